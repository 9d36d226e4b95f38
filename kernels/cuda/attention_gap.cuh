/* attention_gap.cuh: which query sees which key, in rows with and without two answers (gaps of
 * kern_attention_arguments). */
#ifndef KERNELS_CUDA_ATTENTION_GAP_CUH
#define KERNELS_CUDA_ATTENTION_GAP_CUH

#include "kernels/kern.h"

/* The first answer, hidden from queries from `end` on. A row without gaps has no such queries. */
struct kern_gap {
    int32_t begin, end;
};

__device__ inline kern_gap kern_gap_of(const kern_attention_arguments &a, int64_t row)
{
    return a.gaps != nullptr ? kern_gap{a.gaps[2 * row], a.gaps[2 * row + 1]}
                             : kern_gap{INT32_MAX, INT32_MAX};
}

/* Returns the distance at which keys become invisible; INT32_MAX without a window. */
__device__ inline int32_t kern_window(const kern_attention_arguments &a)
{
    return a.window > 0 && a.window < INT32_MAX ? static_cast<int32_t>(a.window) : INT32_MAX;
}

/* Returns whether a query sees a key of its document. */
__device__ inline bool kern_sees_key(int32_t query, int32_t key, int32_t window, kern_gap gap)
{
    const bool across = query >= gap.end && key < gap.end;
    const int32_t apart = query - key - (across ? gap.end - gap.begin : 0);
    return key <= query && apart < window && !(across && key >= gap.begin);
}

/* Returns whether a query sees only its own key: probability 1 and a score gradient of 0, not what
 * rounding leaves of dp - delta. `start`: first position of the document. */
__device__ inline bool kern_sees_one_key(int32_t query, int32_t start, int32_t window, kern_gap gap)
{
    return window == 1 || query == start || (gap.begin == start && query == gap.end);
}

/* Returns whether the gap hides keys [key, key + count) from the queries from `query` on. */
__device__ inline bool kern_gap_hides(kern_gap gap, int32_t query, int32_t key, int32_t count)
{
    return query >= gap.end && key >= gap.begin && key + count <= gap.end;
}

#endif
