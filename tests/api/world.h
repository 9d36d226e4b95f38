/* world.h: a model folder, a file of rates and a store's directory: what an application of libtide
 * has before it begins. Nothing here is taken from inside the library. */
#ifndef TESTS_API_WORLD_H
#define TESTS_API_WORLD_H

#include <tide/engine.h>

#include "tests/api/world_files.h"
#include "tests/harness/test.h"

struct world {
    char model[WORLD_PATH_BYTES];
    char rates[WORLD_PATH_BYTES];
    char store[512];                    /* not there yet */
    struct tide_store_path path;        /* the store */
    struct tide_engine_options options; /* all in the store, memory for it, one thread */
    int32_t ids[WORLD_ROWS * WORLD_LENGTH];
    struct tide_batch batch;
};

/* A tied Llama of two layers; its weights and the batch are random and always the same. */
void world_init(struct world *world);

/* An engine that has to work. */
struct tide_engine *world_engine(const struct tide_engine_options *options);

/* `steps` steps over the batch; the last one's numbers. */
struct tide_step world_steps(const struct world *world, struct tide_engine *engine, unsigned steps);

/* Copies the model to `folder`, with `value` in the middle of the tensor whose name ends so. */
void world_spoil(const struct world *world, const char *folder, const char *tensor, uint16_t value);

/* Whether there is anything of this name. */
bool world_exists(const char *path);

#endif
