/* attention_softmax.cuh: the running softmax of attention: sums of values weighted by probabilities
 * relative to the largest score so far.
 * A warp has 16 rows, a thread rows g and g + 8, in the layout of the products' results. */
#ifndef KERNELS_CUDA_ATTENTION_SOFTMAX_CUH
#define KERNELS_CUDA_ATTENTION_SOFTMAX_CUH

#include "kernels/cuda/attention.cuh"

constexpr int KERN_WARP_ROWS = 16;

template <int D> struct kern_softmax {
    float o[D / 8][4];
    float top[2]; /* largest score so far, before scaling */
    float sum[2]; /* of probabilities, over this thread's columns */
};

template <int D> __device__ inline void kern_softmax_begin(kern_softmax<D> &s)
{
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s.o[n][i] = 0.0f;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        s.top[half] = -__uint_as_float(0x7f800000u);
        s.sum[half] = 0.0f;
    }
}

/* Sets scores of keys that their query does not see to minus infinity: later keys, those `window`
 * or more older and, with a kern_gap, those that kern_sees_key() excludes. */
template <int N, typename... G>
__device__ inline void kern_scores_mask(float (&scores)[N][4], int32_t first_row, int32_t first_key,
                                        int32_t window, G... gap)
{
    const int lane = threadIdx.x % KERN_LANES;
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int32_t row = first_row + lane / 4 + i / 2 * 8;
            const int32_t key = first_key + n * 8 + lane % 4 * 2 + i % 2;
            bool seen = key <= row && row - key < window;
            if constexpr (sizeof...(gap) > 0) {
                seen = kern_sees_key(row, key, window, gap...);
            }
            scores[n][i] = seen ? scores[n][i] : -__uint_as_float(0x7f800000u);
        }
    }
}

/* Turns new scores into probabilities relative to the new maxima, and updates maxima and sums. The
 * caller multiplies s.o by `shrink`. */
template <int D, int N>
__device__ inline void kern_softmax_add(kern_softmax<D> &s, float (&scores)[N][4],
                                        float (&shrink)[2], float scale_log2)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = s.top[half];
#pragma unroll
        for (int n = 0; n < N; n++) {
            top = fmaxf(top, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        /* A row without a key so far keeps its zeros. */
        const float base = top > -__uint_as_float(0x7f800000u) ? top * scale_log2 : 0.0f;
        shrink[half] = kern_exp2(__fmaf_rn(s.top[half], scale_log2, -base));
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                scores[n][i] = kern_exp2(__fmaf_rn(scores[n][i], scale_log2, -base));
                sum += scores[n][i];
            }
        }
        s.sum[half] = __fmaf_rn(s.sum[half], shrink[half], sum);
        s.top[half] = top;
    }
}

template <int D>
__device__ inline void kern_softmax_shrink(kern_softmax<D> &s, const float (&shrink)[2])
{
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s.o[n][i] *= shrink[i / 2];
        }
    }
}

/* Completes the rows' sums: sets the factors of a warp's results and writes lse. row_token: the
 * row's first token; warp_row: the warp's first row in the tile. */
template <int D>
__device__ inline void kern_softmax_finish(const kern_softmax<D> &s,
                                           const kern_attention_arguments &a, const kern_tile &tile,
                                           int64_t row_token, int64_t head, int32_t warp_row,
                                           float (&factor)[2])
{
    const int lane = threadIdx.x % KERN_LANES;
    const int32_t left = tile.end - tile.begin - warp_row;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = s.sum[half];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        factor[half] = 1.0f / sum;
        const int row = lane / 4 + 8 * half;
        if (lane % 4 == 0 && row < left) {
            a.lse[head * a.rows * a.length + row_token + tile.begin + warp_row + row] =
                s.top[half] * a.scale + logf(sum);
        }
    }
}

/* Writes results, through shared memory `room`, and lse. */
template <typename T, int D>
__device__ inline void kern_softmax_end(kern_softmax<D> &s, const kern_attention_arguments &a,
                                        const kern_tile &tile, int64_t row_token, int64_t head,
                                        uint16_t *room)
{
    const int warp_row = threadIdx.x / KERN_LANES * KERN_WARP_ROWS;
    float factor[2];
    kern_softmax_finish(s, a, tile, row_token, head, warp_row, factor);
    const int64_t at = (row_token + tile.begin + warp_row) * a.o_stride + head * a.head_dim;
    kern_rows_write<T, D>(s.o, factor, room + warp_row * kern_row<D>::stride, a.o, a.o_stride, at,
                          tile.end - tile.begin - warp_row, a.head_dim);
}

#endif
