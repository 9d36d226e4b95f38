/* description.h: what the files of cpu_adam know of a description, and its checks. Private to
 * cpu_adam. */
#ifndef CPU_ADAM_DESCRIPTION_H
#define CPU_ADAM_DESCRIPTION_H

#include "cpu_adam/adam.h"
#include "cpu_adam/pass.h"

struct adam {
    struct adam_options options; /* its runs and groups are the copies below */
    struct adam_ops ops;
    struct adam_run *runs;            /* owned, [options.runs_count] */
    struct adam_group *groups;        /* owned, [options.groups_count] */
    struct core_vec_scalars *scalars; /* owned, [options.groups_count], scratch of a step */
};

bool adam_has_m(enum core_vec_rule rule);
bool adam_has_v(enum core_vec_rule rule);

/* Whether begin .. end - 1 may be worked on in these arrays; the gradients only where asked. */
int adam_check_arrays(const struct adam *adam, const struct adam_arrays *arrays, uint64_t begin,
                      uint64_t end, bool gradients);

/* The scalars of all groups for one step, into adam->scalars. */
int adam_step_scalars(struct adam *adam, double gradient_scale);

/* The arrays as the pass wants them. */
struct core_vec_update adam_bind(const struct adam *adam, const struct adam_arrays *arrays);

#endif
