/* collect.h: the lane of what ranks do together: gathering weights, summing gradients and the sums of
 * their squares. The engine's thread of a rank submits. */
#ifndef OFFLOAD_RUN_COLLECT_H
#define OFFLOAD_RUN_COLLECT_H

#include "core/coll/coll.h"
#include "offload/run/executor.h"
#include "offload/run/memory.h"
#include "offload/run/options.h"

struct run_collect {
    const struct run_memory *memory; /* borrowed, as the next two */
    const struct plan_input *input;
    struct coll *coll;
    enum coll_type weight_type;
    enum coll_type grad_type;
    uint64_t *borders; /* owned, [block_count][world + 1]: of shards, in elements */
};

/* `coll` is borrowed. */
int run_collect_init(struct run_collect *collect, const struct run_options *options,
                     const struct plan_input *input, const struct run_memory *memory,
                     struct coll *coll);
/* A zeroed one is fine. */
void run_collect_fini(struct run_collect *collect);

struct run_lane run_collect_lane(struct run_collect *collect);

#endif
