/* norm.h: sums of squares of an array, tile by tile, on a team. The result is the same to the bit
 * for any number of threads. The caller's thread takes part; one caller at a time per team. Nothing
 * is allocated. */
#ifndef CPU_ADAM_NORM_H
#define CPU_ADAM_NORM_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/team.h"
#include "core/base/update_args.h"
#include "cpu_adam/ops.h"

/* Read-only after init; may be copied. */
struct adam_norm {
    struct adam_ops ops;
    struct core_team *team; /* borrowed; NULL: the caller's thread alone */
};

/* `mask` is as in core_cpu_flags(): CORE_CPU_ALL, or fewer flags to use a slower variant. */
void adam_norm_init(struct adam_norm *norm, struct core_team *team, unsigned mask);

/* Writes one sum per tile. Only the last tile of the array may be shorter than CORE_UPDATE_TILE.
 * Returns -EINVAL if the array or `sums` is missing, the array is misaligned or too long or has
 * 8-bit codes, or `first` is not a multiple of CORE_UPDATE_TILE; then nothing is written. */
int adam_norm_sums(const struct adam_norm *norm, const struct core_squares_args *of);

/* A part of an array, in separate memory. */
struct adam_norm_piece {
    const void *x;
    uint64_t first; /* index of element 0 of `x` in the array */
    uint64_t count;
};

/* An array whose parts are in separate memory: ascending pieces that do not overlap. Elements
 * between them count as zero. If all begin at multiples of CORE_UPDATE_GROUP, the sums are those of
 * adam_norm_sums for the array put together; otherwise the same squares are added in another
 * order. */
struct adam_norm_pieces {
    /* borrowed; may begin before `first` and may end after the last element. */
    const struct adam_norm_piece *list;
    size_t list_count;
    enum core_update_type type;
    uint64_t first; /* first element that is summed; a multiple of CORE_UPDATE_TILE */
    uint64_t count;
    double *sums;
};
int adam_norm_sums_apart(const struct adam_norm *norm, const struct adam_norm_pieces *of);

/* Returns the sum of squares of one or more arrays from the sums of their tiles, added in order. It
 * is finite if and only if all elements are. */
double adam_norm_total(const double *sums, uint64_t count);

/* Returns the index of the last tile whose sum is not finite, or `count`. */
uint64_t adam_norm_bad_tile(const double *sums, uint64_t count);

#endif
