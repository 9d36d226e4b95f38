/* world.h: a model, rates and a store for an application of libtide. Includes no internal
 * header. */
#ifndef TESTS_API_WORLD_H
#define TESTS_API_WORLD_H

#include <tide/engine.h>

#include "tests/api/world_files.h"
#include "tests/harness/test.h"

struct world {
    char model[WORLD_PATH_BYTES];
    char rates[WORLD_PATH_BYTES];
    char store[512]; /* does not exist yet */
    struct tide_store_path path;
    struct tide_engine_options options; /* weights and states in the store, one thread */
    int32_t ids[WORLD_ROWS * WORLD_LENGTH];
    struct tide_batch batch;
};

/* Makes a tied Llama of two layers. Its weights and the batch are pseudorandom. */
void world_init(struct world *world);

/* Creates an engine, or fails the case. */
struct tide_engine *world_engine(const struct tide_engine_options *options);

/* Takes `steps` steps with the batch; returns the last step. */
struct tide_step world_steps(const struct world *world, struct tide_engine *engine, unsigned steps);

/* Copies the model to `folder`, with `value` inside the tensor whose name ends with `tensor`. */
void world_spoil(const struct world *world, const char *folder, const char *tensor, uint16_t value);

bool world_exists(const char *path);

#endif
