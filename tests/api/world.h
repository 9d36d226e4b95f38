/* world.h: a model folder, a file of rates and a directory for a store, which an application of
 * libtide needs before it begins. Includes no header from inside the library. */
#ifndef TESTS_API_WORLD_H
#define TESTS_API_WORLD_H

#include <tide/engine.h>

#include "tests/api/world_files.h"
#include "tests/harness/test.h"

struct world {
    char model[WORLD_PATH_BYTES];
    char rates[WORLD_PATH_BYTES];
    char store[512];                    /* does not exist yet */
    struct tide_store_path path;        /* the store */
    struct tide_engine_options options; /* all in the store, enough memory, one thread */
    int32_t ids[WORLD_ROWS * WORLD_LENGTH];
    struct tide_batch batch;
};

/* Makes a tied Llama of two layers; its weights and the batch are random, but the same in every
 * run. */
void world_init(struct world *world);

/* Creates an engine; fails the case if that fails. */
struct tide_engine *world_engine(const struct tide_engine_options *options);

/* Takes `steps` steps with the batch; returns the figures of the last step. */
struct tide_step world_steps(const struct world *world, struct tide_engine *engine, unsigned steps);

/* Copies the model to `folder`, with `value` in the middle of the tensor whose name ends with
 * `tensor`. */
void world_spoil(const struct world *world, const char *folder, const char *tensor, uint16_t value);

/* Returns whether `path` exists. */
bool world_exists(const char *path);

#endif
