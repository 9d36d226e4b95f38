/* checkpoint.h: an engine's run as a checkpoint: what its manifest says, its weights and states put
 * there, and the newest one found again. The application's thread. */
#ifndef OFFLOAD_RUN_CHECKPOINT_H
#define OFFLOAD_RUN_CHECKPOINT_H

#include "offload/run/engine.h"

struct run_checkpoint_options {
    const struct store_shelf *shelf; /* borrowed, as all here */
    const char *source;              /* the model's folder; NULL: none */
    uint32_t keep;
    const void *application; /* bytes that a resumed run gets back */
    size_t application_bytes;
    struct aio_fault *fault; /* for tests; NULL: none */
};

/* Writes one after the last step. Where the pending update can go there as it is made, it does so with
 * the next step or drain; else, and with several ranks, everything is read out now. An earlier one is
 * waited for; if it failed that is a warning. */
int run_checkpoint_later(struct run_engine *engine, const struct run_checkpoint_options *options);
/* Until the last one is published: 0, or why it is not. */
int run_checkpoint_wait(struct run_engine *engine);
/* Both. */
int run_checkpoint_save(struct run_engine *engine, const struct run_checkpoint_options *options);

/* Whether a run with these options and model can go on from a checkpoint: -EINVAL names what differs
 * in its formats or its model. What changes bits alone is a warning. */
int run_checkpoint_check(const struct store_manifest *manifest, const struct model *model,
                         const struct run_options *options);

/* The compute threads of a rank of the run whose newest readable checkpoint lies in a directory; 0:
 * there is none. */
unsigned run_checkpoint_threads(const char *directory);

/* The run in the words of a manifest. */
int run_checkpoint_describe(const struct run_options *options, const struct model *model,
                            const struct run_position *position, struct store_manifest *out);

#endif
