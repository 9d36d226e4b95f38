/* sum.h: sums over ranks, element by element, in rank order. Any thread. */
#ifndef CORE_COLL_SUM_H
#define CORE_COLL_SUM_H

#include "core/coll/codes.h"

/* Computes to[i] = round(from[0][first + i] + from[1][first + i] + ...) for i < count, in fp32
 * (F64: fp64) in the order of `from`. `to` may be from[k] + first for any k. */
void coll_sum(enum coll_type type, const void *const *from, unsigned ranks, uint64_t first,
              uint64_t count, void *to);

/* Like coll_sum(), for F32, BF16 and FP16 by groups: each group of `within` ranks is summed first,
 * and its sum is rounded to `type`; then the groups' sums are added in fp32, in order, and rounded.
 * `within` divides `ranks`. */
void coll_sum_groups(enum coll_type type, const void *const *from, unsigned ranks, unsigned within,
                     uint64_t first, uint64_t count, void *to);

/* Sums `count` numbers of COLL_INT4 arrays, from group `first` on: adds the decoded numbers in fp32
 * in the order of `from`, and writes them in `type`. `to` does not overlap `from`. */
void coll_sum_codes(enum coll_type type, const void *const *from, unsigned ranks, uint64_t first,
                    uint64_t count, void *to);

#endif
