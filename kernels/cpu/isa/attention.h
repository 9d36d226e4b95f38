/* attention.h: tiles of scores and their masks, for attention and its gradient. The caller owns the
 * memory. */
#ifndef KERNELS_CPU_ISA_ATTENTION_H
#define KERNELS_CPU_ISA_ATTENTION_H

#include "kernels/cpu/isa.h"
#include "kernels/cpu/isa/panel.h"

enum {
    QUERIES = KERN_ATTENTION_QUERIES, /* queries in a tile */
    KEYS = 64,                        /* keys in a tile */
    VECTORS = KEYS / LANES,
};

/* The keys of a tile that a query sees: [low, high) except [gap[0], gap[1]), counted from the
 * tile's first key. */
struct seen {
    int64_t low, high;
    int64_t gap[2]; /* a part of [low, high); equal: no gap */
};

/* For a query of the second answer: hides the first answer's keys, which a window does not
 * count. */
VF_INLINE struct seen keys_beside_gap(const struct kern_attention_arguments *a, const int32_t *gap,
                                      int64_t position, int64_t first, struct seen seen)
{
    if (a->window > 0 && position - a->window + 1 < gap[1]) {
        const int64_t low = position - a->window + 1 - (gap[1] - gap[0]) - first;
        seen.low = low > 0 ? low : 0;
    }
    const int64_t begin = gap[0] - first;
    const int64_t end = gap[1] - first;
    if (end <= seen.low || begin >= seen.high) {
        return seen;
    }
    if (begin <= seen.low) {
        seen.low = smaller(end, seen.high);
    } else if (end >= seen.high) {
        seen.high = begin;
    } else {
        seen.gap[0] = begin;
        seen.gap[1] = end;
    }
    return seen;
}

VF_INLINE struct seen keys_seen(const struct kern_attention_arguments *a, int64_t row,
                                int64_t position, int64_t first, int64_t keys)
{
    struct seen seen = {0, smaller(position - first + 1, keys), {0, 0}};
    if (a->window > 0 && position - a->window + 1 > first) {
        seen.low = position - a->window + 1 - first;
    }
    if (a->gaps != NULL && position >= a->gaps[2 * row + 1]) {
        return keys_beside_gap(a, a->gaps + 2 * row, position, first, seen);
    }
    return seen;
}

/* Returns whether the query at `position`, in the document that begins at `start`, sees only its
 * own key. */
VF_INLINE bool sees_one_key(const struct kern_attention_arguments *a, int64_t row, int64_t start,
                            int64_t position)
{
    const int32_t *gap = a->gaps != NULL ? a->gaps + 2 * row : NULL;
    return a->window == 1 || position == start ||
           (gap != NULL && gap[0] == start && position == gap[1]);
}

/* Returns whether the row's gap hides all keys [first, first + keys) from the queries at `position`
 * and later. */
VF_INLINE bool tile_is_hidden(const struct kern_attention_arguments *a, int64_t row,
                              int64_t position, int64_t first, int64_t keys)
{
    const int32_t *gap = a->gaps != NULL ? a->gaps + 2 * row : NULL;
    return gap != NULL && position >= gap[1] && first >= gap[0] && first + keys <= gap[1];
}

/* Returns the start of the first tile of keys that a query at `position` may see. Tiles are counted
 * from the document's start, so that its place in the row has no effect. */
VF_INLINE int64_t first_tile(const struct kern_attention_arguments *a, int64_t start,
                             int64_t position)
{
    if (a->window > 0 && a->gaps == NULL && position - a->window + 1 > start) {
        return start + (position - a->window + 1 - start) / KEYS * KEYS;
    }
    return start;
}

/* Returns -1 in the lanes of seen keys; lane 0 is key `first` of the tile. */
VF_INLINE vi lanes_seen(int64_t first, struct seen seen)
{
    _Alignas(64) static const int32_t count[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                   8, 9, 10, 11, 12, 13, 14, 15};
    vi lane;
    memcpy(&lane, count, sizeof lane);
    lane += (int32_t)first;
    return (lane >= (int32_t)seen.low) & (lane < (int32_t)seen.high) &
           ((lane < (int32_t)seen.gap[0]) | (lane >= (int32_t)seen.gap[1]));
}

VF_INLINE int64_t rows_of_group(const struct kern_attention_arguments *a)
{
    return a->heads / a->kv_heads;
}

/* Return the floats of a packed block. */
VF_INLINE int64_t dense_rows(int64_t rows, int64_t cells)
{
    return round_up(rows * cells + PANEL_SLACK, 16);
}

VF_INLINE int64_t column_panels(int64_t columns, int64_t cells)
{
    return round_up(round_up(columns, COLUMNS) * cells + PANEL_SLACK, 16);
}

VF_INLINE const void *element_at(const void *base, enum kern_type type, int64_t index)
{
    return (const char *)base + (size_t)index * kern_type_bytes(type);
}

#endif
