/* plan.h: a public plan: a view of a setup, its own or an engine's. */
#ifndef OFFLOAD_API_PLAN_H
#define OFFLOAD_API_PLAN_H

#include "offload/api/setup.h"

struct tide_plan {
    const struct setup *setup; /* borrowed from the engine, or `owned` */
    struct setup *owned;       /* NULL in an engine */
    /* size of the kept base's file; 0: none */
    uint64_t base_bytes;
    bool base_exists;
};

#endif
