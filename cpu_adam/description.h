/* description.h: the members of struct adam, for the files of cpu_adam. The thread that uses the
 * adam changes it; during a call the members of its team read it. Private to cpu_adam. */
#ifndef CPU_ADAM_DESCRIPTION_H
#define CPU_ADAM_DESCRIPTION_H

#include "cpu_adam/adam.h"
#include "cpu_adam/ops.h"

struct adam {
    struct adam_options options; /* its runs and groups are the copies below */
    struct adam_ops ops;
    struct adam_run *runs;               /* owned, [options.runs_count] */
    struct adam_group *groups;           /* owned, [options.groups_count] */
    struct core_update_scalars *scalars; /* owned, [options.groups_count]; scratch of one step */
};

/* Computes the scalars of every group for one step into adam->scalars. */
int adam_step_scalars(struct adam *adam, double gradient_scale);

/* Returns the arguments of an update of the whole window, without scalars. Arrays that the rule or
 * the format of the master does not use are NULL. */
struct core_update_args adam_bind(const struct adam *adam, const struct adam_arrays *arrays);

/* Returns -EINVAL unless begin .. end - 1 is in the window, begins and ends where the moments can
 * be cut, and every array that is used is aligned and overlaps no other. If the range is empty,
 * arrays are not checked; gradients are checked only if `gradients` is set. */
int adam_check_arrays(const struct adam *adam, const struct adam_arrays *arrays, uint64_t begin,
                      uint64_t end, bool gradients);

#endif
