/* checkpoint.h: an engine's run as a checkpoint: what its manifest says, its weights and states put
 * there, and the newest one found again. The application's thread. */
#ifndef OFFLOAD_RUN_CHECKPOINT_H
#define OFFLOAD_RUN_CHECKPOINT_H

#include "offload/run/engine.h"

struct run_checkpoint_options {
    struct store_shelf *shelf; /* borrowed, as all here */
    const char *source;        /* the model's folder; NULL: none */
    uint32_t keep;
    const void *application; /* bytes that a resumed run gets back */
    size_t application_bytes;
    const struct aio_backend *recipe; /* back end of its files; NULL: the run's */
};

/* Says that one is wanted behind the next step: what updates of that step make goes there as they make
 * it. Costs what making its files costs. One that nobody asks for behind the step is dropped. */
int run_checkpoint_ahead(struct run_engine *engine, const struct run_checkpoint_options *options);
/* Writes one after the last step. Where it was said ahead, or the update is pending, it goes there as it
 * is made, at the latest with the next step or drain; else, and behind a step that was skipped,
 * everything is read out now. An earlier one is waited for; if it failed that is a warning. */
int run_checkpoint_later(struct run_engine *engine, const struct run_checkpoint_options *options);
/* Whether there is one whose end nobody has asked for. */
bool run_checkpoint_open(struct run_engine *engine);
/* Until the last one is published: 0, or why it is not. */
int run_checkpoint_wait(struct run_engine *engine);
/* Both. */
int run_checkpoint_save(struct run_engine *engine, const struct run_checkpoint_options *options);

/* Whether a run with these options and model can go on from a checkpoint: -EINVAL names what differs
 * in its formats or its model. What changes bits alone is a warning. */
int run_checkpoint_check(const struct store_manifest *manifest, const struct model *model,
                         const struct run_options *options);

/* Warns if the engine's matrix products are computed by another library, driver or card than those of
 * the run that wrote the manifest, which changes bits. */
void run_checkpoint_compare_products(const struct store_manifest *manifest,
                                     const struct run_engine *engine);

/* The compute threads of a rank of the run whose newest readable checkpoint lies in a directory; 0:
 * there is none, or it is of another number of ranks than `world`. */
unsigned run_checkpoint_threads(const char *directory, uint32_t world);

/* The run in the words of a manifest. */
int run_checkpoint_describe(const struct run_options *options, const struct model *model,
                            const struct run_position *position, struct store_manifest *out);

#endif
