/* rows.cuh: rows cut into groups of eight elements, one group per thread, one or more blocks per
 * row. */
#ifndef KERNELS_CUDA_ROWS_CUH
#define KERNELS_CUDA_ROWS_CUH

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/wide.cuh"

constexpr int KERN_ROWS_THREADS = 256;
constexpr int KERN_ROWS_WARP = 32;

/* The token (row) and first element of a thread's group. */
struct kern_place {
    int64_t token;
    int64_t i;
};

/* Each row takes `parts` blocks. */
__device__ inline kern_place kern_place_of(uint32_t parts)
{
    const int64_t part = blockIdx.x % parts;
    return {static_cast<int64_t>(blockIdx.x / parts),
            (part * blockDim.x + threadIdx.x) * KERN_GROUP};
}

/* The token and head of a row, where a token's heads are consecutive rows. */
struct kern_head_row {
    int64_t token, head;
};

/* Divides in 32 bits if possible: faster. */
__device__ inline kern_head_row kern_head_row_of(int64_t row, int64_t heads)
{
    if (heads == 1) {
        return {row, 0};
    }
    if (row <= UINT32_MAX && heads <= UINT32_MAX) {
        const uint32_t token = static_cast<uint32_t>(row) / static_cast<uint32_t>(heads);
        return {token, row - token * heads};
    }
    return {row / heads, row % heads};
}

/* A launch over rows of groups: grid, and blocks per row. A block has no more threads than a row
 * fills, rounded up to whole warps. */
struct kern_cut {
    kern_grid grid;
    uint32_t parts;
};

static inline kern_cut kern_cut_of(int64_t tokens, int64_t groups)
{
    const int64_t filled = kern_div_up(groups, KERN_ROWS_WARP) * KERN_ROWS_WARP;
    const unsigned threads = static_cast<unsigned>(filled < KERN_ROWS_THREADS ? filled
                                                                              : KERN_ROWS_THREADS);
    const int64_t parts = threads > 0 ? kern_div_up(groups, threads) : 0;
    return {{.blocks = tokens * parts, .threads = threads, .lines = 1, .shared_bytes = 0},
            static_cast<uint32_t>(parts)};
}

#endif
