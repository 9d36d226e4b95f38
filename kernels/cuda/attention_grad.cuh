/* attention_grad.cuh: shared by the tensor-core kernels of attention's gradient: arguments,
 * visibility, and the loop of a block of keys over the queries that see them. */
#ifndef KERNELS_CUDA_ATTENTION_GRAD_CUH
#define KERNELS_CUDA_ATTENTION_GRAD_CUH

#include "kernels/cuda/attention.cuh"

struct kern_grad_job {
    struct kern_attention_grad_arguments g;
    struct kern_tiles tiles;
    const float *delta;
};

template <int N> __device__ inline void kern_clear(float (&sums)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sums[n][i] = 0.0f;
        }
    }
}

__device__ inline bool kern_sees(int32_t query, int32_t key, int32_t stop, int32_t window)
{
    return key <= query && query < stop && query - key < window;
}

/* Where the loop of a block of keys is among the queries of its group's heads. */
struct kern_walk {
    int32_t head, head_end;
    int32_t query, first, last; /* of a head: queries first .. last - 1 */
};

__device__ inline kern_walk kern_walk_begin(const kern_attention_arguments &a,
                                            const kern_tile &tile, int64_t kv_head)
{
    const int32_t group = static_cast<int32_t>(a.heads / a.kv_heads);
    const int32_t head = static_cast<int32_t>(kv_head) * group;
    const bool ends = a.window > 0 && a.gaps == nullptr; /* a gap brings keys closer */
    const int64_t window_end = ends ? tile.end - 1 + a.window : tile.stop;
    const int32_t last = window_end < tile.stop ? static_cast<int32_t>(window_end) : tile.stop;
    return {head, head + group, tile.begin, tile.begin, last};
}

/* Advances by `step` queries. Returns false after the last head. */
__device__ inline bool kern_walk_next(kern_walk &w, int32_t step)
{
    w.query += step;
    if (w.query >= w.last) {
        w.query = w.first;
        w.head++;
    }
    return w.head < w.head_end;
}

#endif
