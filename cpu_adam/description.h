/* description.h: the members of struct adam. Private to cpu_adam.
 * The thread that uses the adam changes it; during a call the team reads it. */
#ifndef CPU_ADAM_DESCRIPTION_H
#define CPU_ADAM_DESCRIPTION_H

#include "cpu_adam/adam.h"
#include "cpu_adam/ops.h"

struct adam {
    struct adam_options options; /* runs and groups are the copies below */
    struct adam_ops ops;
    struct adam_run *runs;               /* owned, [options.runs_count] */
    struct adam_group *groups;           /* owned, [options.groups_count] */
    struct core_update_scalars *scalars; /* owned, [options.groups_count]; scratch of one step */
};

int adam_step_scalars(struct adam *adam, double gradient_scale);

/* Returns the arguments of an update of the whole window, without scalars. Arrays not used by the
 * rule or the master's format are NULL. */
struct core_update_args adam_bind(const struct adam *adam, const struct adam_arrays *arrays);

/* Returns -EINVAL unless begin .. end - 1 is in the window, 8-bit moments can be cut at its ends,
 * and the used arrays are aligned and do not overlap. Arrays of an empty range are not checked;
 * gradients only if `gradients` is set. */
int adam_check_arrays(const struct adam *adam, const struct adam_arrays *arrays, uint64_t begin,
                      uint64_t end, bool gradients);

#endif
