/* prepare.h: turns a model and a run's options into a plan, with the plan's shapes, rates and
 * budgets. Immutable once created. */
#ifndef OFFLOAD_RUN_PREPARE_H
#define OFFLOAD_RUN_PREPARE_H

#include "offload/run/options.h"
#include "offload/run/rates.h"
#include "offload/run/shapes.h"

struct run_prepared {
    struct run_shapes *shapes;       /* owned */
    struct plan_block_shape *blocks; /* owned: blocks of `shapes`, for groups of micro-batches */
    struct plan_input input;
    struct plan *plan; /* owned */
    struct run_rates rates;
    double plan_seconds; /* time of planning, without measuring */
};

/* `rates` NULL: measured, or from the cache. Returns -EFBIG if no plan fits the budgets. */
int run_prepared_create(const struct model *model, const struct run_options *options,
                        const struct run_rates *rates, struct run_prepared **out);
void run_prepared_destroy(struct run_prepared *prepared);

/* Returns the bytes of a tier that the run takes: the plan's buffers and what is taken besides. */
uint64_t run_prepared_bytes(const struct run_prepared *prepared, enum plan_tier tier);

#endif
