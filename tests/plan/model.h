/* model.h: memory as tapes see it. Operands' borders cut a buffer into pieces, which have a version
 * each. A write stores the command's number; a read must find the number that program order gives.
 * No access is atomic, so TSan checks that edges order the threads. */
#ifndef TESTS_PLAN_MODEL_H
#define TESTS_PLAN_MODEL_H

#include "offload/plan/plan.h"

struct model {
    const struct plan *plan;
    const struct plan_tape *tapes[3];
    uint32_t tape_count;
    uint64_t **borders; /* one sorted array per buffer */
    uint32_t *border_counts;
    uint32_t **versions;
};

/* Sets the remaining members; the caller sets plan, tapes and tape_count. */
void model_init(struct model *model);
void model_fini(struct model *model);

/* Runs a command; returns a digest of the versions that it read. */
uint64_t model_run(struct model *model, const struct plan_command *command, uint32_t number);

/* Returns the number of a tape's first command; numbers begin at 1 and continue over the tapes. */
uint32_t model_first_number(const struct model *model, uint32_t tape);

#endif
