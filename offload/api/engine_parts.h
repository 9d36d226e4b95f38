/* engine_parts.h: what an engine of the application holds: private to engine.c and checkpoint.c. */
#ifndef OFFLOAD_API_ENGINE_PARTS_H
#define OFFLOAD_API_ENGINE_PARTS_H

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
    struct model_batch *batches; /* owned, of a step */
    int64_t step_ns;             /* when the last step ended */
    struct run_stats stats;      /* of the last step */
    struct model_claim claim;    /* on the folder that a save was tried for */
    struct store_shelf *shelf;   /* owned: where checkpoints go; NULL: none was asked for yet */
    /* How it began; the manifest's application bytes are handed out. */
    struct store_manifest resumed; /* of step 0: with the model */
    char resumed_path[4096];       /* "": with the model */
    uint32_t passed_over;
};

/* Makes engine->engine: from the newest checkpoint that `run` can go on from, or from the files. */
int engine_begin(struct tide_engine *engine, struct run_engine_options *run);

#endif
