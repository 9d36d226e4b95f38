/* sum.h: sums over ranks, by element, in rank order. Any thread. */
#ifndef CORE_COLL_SUM_H
#define CORE_COLL_SUM_H

#include "core/coll/codes.h"

/* Computes to[i] = round(from[0][first + i] + from[1][first + i] + ...) for i < count, in fp32
 * (F64: fp64), in the order of `from`. `to` may be from[k] + first. */
void coll_sum(enum coll_type type, const void *const *from, unsigned ranks, uint64_t first,
              uint64_t count, void *to);

/* Like coll_sum(), but by groups of `within` ranks, a divisor of `ranks`; only F32, BF16 and FP16.
 * A group's sum is rounded to `type`; the groups' sums are added in fp32, in order, and rounded. */
void coll_sum_groups(enum coll_type type, const void *const *from, unsigned ranks, unsigned within,
                     uint64_t first, uint64_t count, void *to);

/* Sums `count` numbers of COLL_INT4 arrays, from group `first` on, in fp32 in the order of `from`,
 * and writes them in `type`. `to` does not overlap `from`. */
void coll_sum_codes(enum coll_type type, const void *const *from, unsigned ranks, uint64_t first,
                    uint64_t count, void *to);

#endif
