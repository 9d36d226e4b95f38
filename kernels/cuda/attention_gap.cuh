/* attention_gap.cuh: which query sees which key in a row that is a prompt and two answers (gaps of
 * kern_attention_arguments), and in one that is not. */
#ifndef KERNELS_CUDA_ATTENTION_GAP_CUH
#define KERNELS_CUDA_ATTENTION_GAP_CUH

#include "kernels/kern.h"

/* The first answer, which queries from `end` on do not see. A row without gaps has no such
 * queries. */
struct kern_gap {
    int32_t begin, end;
};

__device__ inline kern_gap kern_gap_of(const kern_attention_arguments &a, int64_t row)
{
    return a.gaps != nullptr ? kern_gap{a.gaps[2 * row], a.gaps[2 * row + 1]}
                             : kern_gap{INT32_MAX, INT32_MAX};
}

/* Returns the distance from which on a query does not see a key; INT32_MAX without a window. */
__device__ inline int32_t kern_window(const kern_attention_arguments &a)
{
    return a.window > 0 && a.window < INT32_MAX ? static_cast<int32_t>(a.window) : INT32_MAX;
}

/* Returns whether a query sees a key; both are of the same document. */
__device__ inline bool kern_sees_key(int32_t query, int32_t key, int32_t window, kern_gap gap)
{
    const bool across = query >= gap.end && key < gap.end;
    const int32_t apart = query - key - (across ? gap.end - gap.begin : 0);
    return key <= query && apart < window && !(across && key >= gap.begin);
}

/* Returns whether a query sees only its own key. Its probability is then 1 whatever its score is,
 * and the gradient of the score is 0, not what rounding leaves of dp - delta. `start` is the first
 * position of the query's document. */
__device__ inline bool kern_sees_one_key(int32_t query, int32_t start, int32_t window, kern_gap gap)
{
    return window == 1 || query == start || (gap.begin == start && query == gap.end);
}

/* Returns whether the gap hides the keys [key, key + count) from all queries from `query` on. */
__device__ inline bool kern_gap_hides(kern_gap gap, int32_t query, int32_t key, int32_t count)
{
    return query >= gap.end && key >= gap.begin && key + count <= gap.end;
}

#endif
