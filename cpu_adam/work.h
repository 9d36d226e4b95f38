/* work.h: array work on a team: the sums of a norm, casts, axpy, scale, the search for non-finite
 * numbers. The number of threads never changes a bit. The caller's thread enters and takes part;
 * one caller at a time for one team. Nothing is allocated. */
#ifndef CPU_ADAM_WORK_H
#define CPU_ADAM_WORK_H

#include <stdint.h>

#include "core/base/team.h"
#include "core/base/vec.h"
#include "cpu_adam/ops.h"

/* Read only after init; a value. */
struct adam_work {
    struct adam_ops ops;
    struct core_team *team; /* borrowed; NULL: the caller's thread alone */
};

/* `mask` as for core_cpu_flags: CORE_CPU_ALL, or less to see slower variants. */
void adam_work_init(struct adam_work *work, struct core_team *team, unsigned mask);

/* All below: 0, or -EINVAL with a sentence, nothing having been written. */

/* One sum a tile. `first` stands at a tile's border; the last tile may end early, and counts as
 * whole then (the array ends there). */
int adam_work_norm(const struct adam_work *work, const struct core_vec_norm *norm);
int adam_work_cast(const struct adam_work *work, const struct core_vec_cast *cast);
int adam_work_axpy(const struct adam_work *work, const struct core_vec_axpy *axpy);
int adam_work_scale(const struct adam_work *work, const struct core_vec_scale *scale);

struct adam_finite {
    uint64_t bad_count;
    uint64_t first_bad; /* where the first stands; the array's count where there is none */
};
int adam_work_finite(const struct adam_work *work, const struct core_vec_finite *finite,
                     struct adam_finite *out);

/* Puts together the tile sums of a whole array (or of several, one behind the other) in the order
 * of their index: the sum of squares. Not finite exactly where an element was not. */
double adam_norm_total(const double *sums, uint64_t count);

/* The first tile whose sum is not finite; `count` where all are. */
uint64_t adam_norm_bad_tile(const double *sums, uint64_t count);

#endif
