/* prepare.h: from a model and what is asked of a run to a plan, with everything that a plan is made
 * from: shapes, budgets less what the runtime takes, rates. Created once; then constant. */
#ifndef OFFLOAD_RUN_PREPARE_H
#define OFFLOAD_RUN_PREPARE_H

#include "offload/run/options.h"
#include "offload/run/rates.h"
#include "offload/run/shapes.h"

struct run_prepared {
    struct run_shapes *shapes;       /* owned */
    struct plan_block_shape *blocks; /* owned: those of `shapes`, by groups of micro-batches */
    struct plan_input input;
    struct plan *plan; /* owned */
    struct run_rates rates;
    double plan_seconds; /* without measuring */
};

/* Measures where `rates` is NULL. -EFBIG where it cannot fit. */
int run_prepared_create(const struct model *model, const struct run_options *options,
                        const struct run_rates *rates, struct run_prepared **out);
void run_prepared_destroy(struct run_prepared *prepared);

/* Bytes of a tier, the runtime's own included. */
uint64_t run_prepared_bytes(const struct run_prepared *prepared, enum plan_tier tier);

#endif
