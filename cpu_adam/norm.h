/* norm.h: sums of squares of an array, tile by tile, on a team.
 * Bit-identical for any number of threads. The caller's thread takes part; one caller at a time per
 * team. Nothing is allocated. */
#ifndef CPU_ADAM_NORM_H
#define CPU_ADAM_NORM_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/team.h"
#include "core/base/update_args.h"
#include "cpu_adam/ops.h"

/* Read-only after init. */
struct adam_norm {
    struct adam_ops ops;
    struct core_team *team; /* borrowed; NULL: the caller's thread alone */
};

/* `mask`: as core_cpu_flags(): CORE_CPU_ALL, or fewer flags for a slower variant. */
void adam_norm_init(struct adam_norm *norm, struct core_team *team, unsigned mask);

/* Writes one sum per tile. Only the array's last tile may be shorter than CORE_UPDATE_TILE. On
 * failure nothing has been written. */
int adam_norm_sums(const struct adam_norm *norm, const struct core_squares_args *of);

struct adam_norm_piece {
    const void *x;
    uint64_t first; /* index in the array of element 0 of `x` */
    uint64_t count;
};

/* An array in several pieces of memory, in ascending order and without overlap. Elements between
 * pieces count as zero. If pieces begin at multiples of CORE_UPDATE_GROUP, the sums are those of
 * adam_norm_sums; otherwise squares are added in another order. */
struct adam_norm_pieces {
    /* borrowed; may begin before `first` and end after the last element */
    const struct adam_norm_piece *list;
    size_t list_count;
    enum core_update_type type;
    uint64_t first; /* first summed element; a multiple of CORE_UPDATE_TILE */
    uint64_t count;
    double *sums;
};
int adam_norm_sums_apart(const struct adam_norm *norm, const struct adam_norm_pieces *of);

/* Returns the sum of squares of arrays from their tiles' sums, added in order. It is finite if and
 * only if all elements are. */
double adam_norm_total(const double *sums, uint64_t count);

/* Returns the index of the last tile whose sum is not finite, or `count`. */
uint64_t adam_norm_bad_tile(const double *sums, uint64_t count);

#endif
