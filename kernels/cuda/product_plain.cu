/* product_plain.cu: matrix products without tensor cores, and the finish of products that are added
 * to sums. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product.h"
#include "kernels/cuda/rows.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int TILE = 64; /* rows and columns of a block's results */
constexpr int STEP = 16; /* elements of k per step */
constexpr int EACH = 4;  /* rows, and columns, of a thread, TILE / EACH apart */
constexpr int LANES = TILE / EACH;

__device__ float element(enum kern_type type, const void *from, int64_t index)
{
    switch (type) {
    case KERN_BF16: return kern_bf16::widen(static_cast<const uint16_t *>(from)[index]);
    case KERN_FP16: return kern_fp16::widen(static_cast<const uint16_t *>(from)[index]);
    default: return static_cast<const float *>(from)[index];
    }
}

/* Element (k, i) is at first + i * outer + k * inner. */
struct operand {
    enum kern_type type;
    const void *from;
    int64_t first, outer, inner;
};

/* Loads zeros beyond k_left or i_left. */
__device__ void tile_load(float (&to)[STEP][TILE + 1], const operand &o, int64_t k_left,
                          int64_t i_left)
{
    for (int e = threadIdx.x; e < STEP * TILE; e += THREADS) {
        /* Neighbouring threads read neighbouring elements. */
        const int k = o.inner == 1 ? e % STEP : e / TILE;
        const int i = o.inner == 1 ? e / STEP : e % TILE;
        const bool inside = k < k_left && i < i_left;
        to[k][i] = inside ? element(o.type, o.from, o.first + i * o.outer + k * o.inner) : 0.0f;
    }
}

__device__ void out_put(const struct kern_cuda_product &p, int64_t m, int64_t n, float value)
{
    if (m >= p.m || n >= p.n) {
        return;
    }
    const int64_t at = m * p.out_stride + n;
    if (p.scale > 0.0f || p.scale < 0.0f) {
        value *= p.scale;
    }
    value += p.bias != nullptr ? element(p.type, p.bias, n) : 0.0f;
    value += p.onto ? element(p.out_type, p.out, at) : 0.0f;
    if (p.out_type == KERN_BF16) {
        static_cast<uint16_t *>(p.out)[at] = kern_bf16::narrow(value);
    } else if (p.out_type == KERN_FP16) {
        static_cast<uint16_t *>(p.out)[at] = kern_fp16::narrow(value);
    } else {
        static_cast<float *>(p.out)[at] = value;
    }
}

__global__ void __launch_bounds__(THREADS) product_tiles(struct kern_cuda_product p)
{
    __shared__ float a[STEP][TILE + 1];
    __shared__ float b[STEP][TILE + 1];
    const int64_t m = static_cast<int64_t>(blockIdx.x) * TILE;
    const int64_t n = static_cast<int64_t>(blockIdx.y) * TILE;
    const int64_t a_outer = p.a_turned ? 1 : p.a_stride;
    const int64_t a_inner = p.a_turned ? p.a_stride : 1;
    const int64_t b_outer = p.b_turned ? p.b_stride : 1;
    const int64_t b_inner = p.b_turned ? 1 : p.b_stride;
    const int row = threadIdx.x / LANES;
    const int column = threadIdx.x % LANES;
    float sums[EACH][EACH] = {};
    for (int64_t k = 0; k < p.k; k += STEP) {
        tile_load(a, {p.type, p.a, m * a_outer + k * a_inner, a_outer, a_inner}, p.k - k, p.m - m);
        tile_load(b, {p.type, p.b, n * b_outer + k * b_inner, b_outer, b_inner}, p.k - k, p.n - n);
        __syncthreads();
#pragma unroll
        for (int s = 0; s < STEP; s++) {
#pragma unroll
            for (int i = 0; i < EACH; i++) {
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    sums[i][j] = __fmaf_rn(a[s][row + i * LANES], b[s][column + j * LANES],
                                           sums[i][j]);
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            out_put(p, m + row + i * LANES, n + column + j * LANES, sums[i][j]);
        }
    }
}

__global__ void __launch_bounds__(KERN_ROWS_THREADS)
    finish_rows(struct kern_cuda_finish f, uint32_t parts, bool wide)
{
    const kern_place at = kern_place_of(parts);
    const int64_t left = f.width - at.i;
    if (left <= 0) {
        return;
    }
    const int64_t dense = at.token * f.width + at.i;
    float p[KERN_GROUP];
    kern_load<kern_f32>(p, f.p, dense, left, wide);
    if (!f.first) {
        float sum[KERN_GROUP];
        kern_load<kern_f32>(sum, f.sum, dense, left, wide);
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            p[j] = sum[j] + p[j];
        }
    }
    if (f.out != nullptr) {
        kern_store_any(f.out_type, p, f.out, at.token * f.out_stride + at.i, left, wide);
    } else {
        kern_store<kern_f32>(p, f.sum, dense, left, wide);
    }
}

} // namespace

extern "C" int kern_cuda_product_plain(const struct dev_launch *where, const char *op,
                                       const struct kern_cuda_product *product)
{
    const kern_grid grid = {.blocks = product->n > 0 ? kern_div_up(product->m, TILE) : 0,
                            .threads = THREADS,
                            .lines = static_cast<unsigned>(kern_div_up(product->n, TILE)),
                            .shared_bytes = 0};
    return kern_cuda_launch(where, op, grid, product_tiles, *product);
}

extern "C" int kern_cuda_finish(const struct dev_launch *where, const char *op,
                                const struct kern_cuda_finish *finish)
{
    const kern_cut c = kern_cut_of(finish->rows, kern_div_up(finish->width, KERN_GROUP));
    const bool wide = kern_is_wide(KERN_F32, finish->p, finish->width) &&
                      kern_is_wide(KERN_F32, finish->sum, finish->width) &&
                      kern_is_wide(finish->out_type, finish->out, finish->out_stride);
    return kern_cuda_launch(where, op, c.grid, finish_rows, *finish, c.parts, wide);
}
