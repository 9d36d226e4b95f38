/* engine_parts.h: struct tide_engine; private to engine.c and checkpoint.c. */
#ifndef OFFLOAD_API_ENGINE_PARTS_H
#define OFFLOAD_API_ENGINE_PARTS_H

#include "offload/api/context.h"
#include "offload/api/plan.h"
#include "offload/api/setup.h"
#include "offload/model/claim.h"
#include "offload/run/engine.h"
#include "offload/store/shelf.h"

struct tide_engine {
    struct tide_context *context; /* borrowed from the application */
    struct setup setup;
    struct tide_plan plan;       /* a view of `setup` */
    struct run_engine *engine;   /* owned */
    struct model_batch *batches; /* owned: the micro-batches of one step */
    int64_t step_ns;             /* when the next step's time begins */
    /* `stats` and `moved` are of the last step */
    struct run_stats stats;
    struct run_moved moved;
    struct model_claim claim;  /* on the folder that was reserved for a save */
    struct store_shelf *shelf; /* owned: the folder of checkpoints; NULL: none was used */
    /* Manifest of the resumed checkpoint; zero without one. */
    struct store_manifest resumed;
    char resumed_path[4096]; /* path of that checkpoint; "": none */
    uint32_t passed_over;    /* newer checkpoints that were skipped */
};

/* Begins a public call: returns -EINVAL without an engine, otherwise sets `before`. */
int engine_enter(const struct tide_engine *engine, struct context_before *before);

/* Creates engine->engine from the newest checkpoint that verifies in the folder to resume from; if
 * there is no folder or no checkpoint in it, from the model's files. */
int engine_begin(struct tide_engine *engine, struct run_engine_options *run);

#endif
