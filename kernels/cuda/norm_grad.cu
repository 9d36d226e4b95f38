/* norm_grad.cu: the gradient of the norms. Each team (a warp for short rows, else a block) processes a
 * run of rows and sums what the rows add to the weight's gradient in registers; the sums of the runs are
 * added up afterwards (columns.cuh). Runs depend on the shape alone. bf16 has kernels for each width, and
 * RMSNorm kernels of its own; those for both norms are marked ANY. Rows of the other types that are longer than a
 * warp's go through memory (norm_grad_wide_rows). */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int BLOCKS = 264; /* two for each multiprocessor of an H200 */

struct runs {
    float *dweight; /* [teams][width]; NULL: not wanted */
    float *dbias;
};

__device__ int64_t row_at(const kern_norm_grad_arguments &a, int64_t row, int64_t stride)
{
    return a.heads == 1 ? row * stride : row / a.heads * stride + row % a.heads * a.width;
}

/* A thread's part of what its team gathers over rows. */
template <int KEPT> struct gathered {
    float dweight[KEPT][KERN_GROUP];
    float dbias[KEPT][KERN_GROUP];
};

template <typename T, bool ANY, int TEAM, int KEPT>
__device__ void grad_row(const kern_norm_grad_arguments &a, int64_t index, bool wide, float *room,
                         gathered<KEPT> &sums)
{
    const bool layer = ANY && a.kind == KERN_NORM_LAYER;
    const float mean = layer ? a.mean[index] : 0.0f;
    const float rstd = a.rstd[index];
    const int64_t s_at = row_at(a, index, a.s_stride);
    const int64_t dy_at = row_at(a, index, a.dy_stride);
    const int64_t dx_at = row_at(a, index, a.dx_stride);
    float n[KEPT][KERN_GROUP];
    float g[KEPT][KERN_GROUP];
    kern_words<T> adds[KEPT] = {}; /* loads in flight while the sums are computed */
    float sum = 0.0f;
    float dot = 0.0f;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int64_t i = (static_cast<int64_t>(k) * TEAM + threadIdx.x % TEAM) * KERN_GROUP;
        float weight[KERN_GROUP];
        kern_load<T>(n[k], a.s, s_at + i, a.width - i, wide);
        kern_load<T>(g[k], a.dy, dy_at + i, a.width - i, wide);
        kern_load<T>(weight, a.weight, i, a.width - i, wide);
        if (a.add != nullptr) {
            kern_words_load<T>(adds[k], a.add, dx_at + i, a.width - i, wide);
        }
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) { /* after the end dy and weight are 0 */
            n[k][j] = (n[k][j] - mean) * rstd;
            sums.dweight[k][j] = __fmaf_rn(g[k][j], n[k][j], sums.dweight[k][j]);
            if (ANY) {
                sums.dbias[k][j] += g[k][j];
            }
            g[k][j] *= weight[j];
            sum += g[k][j];
            dot = __fmaf_rn(g[k][j], n[k][j], dot);
        }
    }
    const float width = static_cast<float>(a.width);
    const float shift = layer ? kern_team_sum<TEAM>(sum, room) / width : 0.0f;
    const float slope = kern_team_sum<TEAM>(dot, room + THREADS / KERN_WARP) / width;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int64_t i = (static_cast<int64_t>(k) * TEAM + threadIdx.x % TEAM) * KERN_GROUP;
        float add[KERN_GROUP] = {};
        if (a.add != nullptr) {
            kern_words_widen<T>(add, adds[k]);
        }
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            add[j] = rstd * (g[k][j] - shift - n[k][j] * slope) + add[j];
        }
        kern_store<T>(add, a.dx, dx_at + i, a.width - i, wide);
    }
}

template <typename T, bool ANY, int TEAM, int KEPT>
__global__ void __launch_bounds__(THREADS, 1)
    norm_grad_rows(struct kern_norm_grad_arguments a, struct runs out, bool wide)
{
    /* Each half is used for every second row, so the barriers of one row separate its uses. */
    __shared__ float rooms[2][2 * (THREADS / KERN_WARP)];
    const int64_t rows = a.tokens * a.heads;
    const int64_t teams = static_cast<int64_t>(gridDim.x) * (THREADS / TEAM);
    const int64_t team = static_cast<int64_t>(blockIdx.x) * (THREADS / TEAM) + threadIdx.x / TEAM;
    gathered<KEPT> sums = {};
    for (int64_t row = rows * team / teams; row < rows * (team + 1) / teams; row++) {
        grad_row<T, ANY, TEAM, KEPT>(a, row, wide, rooms[row % 2], sums);
    }
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int64_t i = (static_cast<int64_t>(k) * TEAM + threadIdx.x % TEAM) * KERN_GROUP;
        const bool dense = a.width % 4 == 0;
        if (out.dweight != nullptr) {
            kern_store<kern_f32>(sums.dweight[k], out.dweight, team * a.width + i, a.width - i,
                                 dense);
        }
        if (ANY && out.dbias != nullptr) {
            kern_store<kern_f32>(sums.dbias[k], out.dbias, team * a.width + i, a.width - i, dense);
        }
    }
}

/* Rows too wide for registers: two more passes over memory, with the running sums in `out`. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    norm_grad_wide_rows(struct kern_norm_grad_arguments a, struct runs out)
{
    __shared__ float rooms[2][2 * (THREADS / KERN_WARP)];
    const int64_t rows = a.tokens * a.heads;
    const int64_t begin = rows * blockIdx.x / gridDim.x;
    const int64_t end = rows * (blockIdx.x + 1) / gridDim.x;
    const bool layer = a.kind == KERN_NORM_LAYER;
    using store = typename T::store;
    for (int64_t i = threadIdx.x; i < a.width; i += THREADS) {
        if (out.dweight != nullptr) {
            out.dweight[blockIdx.x * a.width + i] = 0.0f;
        }
        if (out.dbias != nullptr) {
            out.dbias[blockIdx.x * a.width + i] = 0.0f;
        }
    }
    for (int64_t row = begin; row < end; row++) {
        const float mean = layer ? a.mean[row] : 0.0f;
        const float rstd = a.rstd[row];
        const store *s = static_cast<const store *>(a.s) + row_at(a, row, a.s_stride);
        const store *dy = static_cast<const store *>(a.dy) + row_at(a, row, a.dy_stride);
        const store *weight = static_cast<const store *>(a.weight);
        const int64_t dx_at = row_at(a, row, a.dx_stride);
        float sum = 0.0f;
        float dot = 0.0f;
        for (int64_t i = threadIdx.x; i < a.width; i += THREADS) {
            const float in = T::widen(dy[i]);
            const float n = (T::widen(s[i]) - mean) * rstd;
            const float g = in * T::widen(weight[i]);
            sum += g;
            dot = __fmaf_rn(g, n, dot);
            if (out.dweight != nullptr) {
                float *at = &out.dweight[blockIdx.x * a.width + i];
                *at = __fmaf_rn(in, n, *at);
            }
            if (out.dbias != nullptr) {
                out.dbias[blockIdx.x * a.width + i] += in;
            }
        }
        float *room = rooms[row % 2];
        const float width = static_cast<float>(a.width);
        const float shift = layer ? kern_team_sum<THREADS>(sum, room) / width : 0.0f;
        const float slope = kern_team_sum<THREADS>(dot, room + THREADS / KERN_WARP) / width;
        for (int64_t i = threadIdx.x; i < a.width; i += THREADS) {
            const float n = (T::widen(s[i]) - mean) * rstd;
            const float g = T::widen(dy[i]) * T::widen(weight[i]);
            float dx = rstd * (g - shift - n * slope);
            if (a.add != nullptr) {
                dx += T::widen(static_cast<const store *>(a.add)[dx_at + i]);
            }
            static_cast<store *>(a.dx)[dx_at + i] = T::narrow(dx);
        }
    }
}

constexpr int KEPT_MAX = 4;

/* Teams of a block, by the width. */
int64_t teams_of(int64_t width)
{
    return width <= KERN_WARP * KERN_GROUP ? THREADS / KERN_WARP : 1;
}

int64_t part_floats(const struct kern_norm_grad_arguments *a)
{
    const int64_t floats = BLOCKS * teams_of(a->width) * a->width;
    return kern_div_up(floats, 64) * 64;
}

template <typename T, bool ANY, int TEAM, int KEPT>
int launch(const struct dev_launch *where, const struct kern_norm_grad_arguments *a,
           const struct runs &out, bool wide)
{
    return kern_cuda_launch(where, "norm_grad", kern_grid_of(BLOCKS, THREADS),
                            norm_grad_rows<T, ANY, TEAM, KEPT>, *a, out, wide);
}

int launch_rms_bf16(const struct dev_launch *where, const struct kern_norm_grad_arguments *a,
                    const struct runs &out, bool wide)
{
    if (a->width <= KERN_WARP * KERN_GROUP) {
        return launch<kern_bf16, false, KERN_WARP, 1>(where, a, out, wide);
    }
    if (a->width <= THREADS * KERN_GROUP) {
        return launch<kern_bf16, false, THREADS, 1>(where, a, out, wide);
    }
    return a->width <= 2 * THREADS * KERN_GROUP
               ? launch<kern_bf16, false, THREADS, 2>(where, a, out, wide)
               : launch<kern_bf16, false, THREADS, KEPT_MAX>(where, a, out, wide);
}

template <typename T>
int launch_any(const struct dev_launch *where, const struct kern_norm_grad_arguments *a,
               const struct runs &out, bool wide)
{
    if (a->width <= KERN_WARP * KERN_GROUP) {
        return launch<T, true, KERN_WARP, 1>(where, a, out, wide);
    }
    if constexpr (kern_is_bf16<T>) {
        if (a->width <= THREADS * KERN_GROUP) {
            return launch<T, true, THREADS, 1>(where, a, out, wide);
        }
        if (a->width <= KEPT_MAX * THREADS * KERN_GROUP) {
            return launch<T, true, THREADS, KEPT_MAX>(where, a, out, wide);
        }
    }
    return kern_cuda_launch(where, "norm_grad", kern_grid_of(BLOCKS, THREADS),
                            norm_grad_wide_rows<T>, *a, out);
}

bool is_wide(const struct kern_norm_grad_arguments *a)
{
    return kern_is_wide(a->type, a->s, a->s_stride) && kern_is_wide(a->type, a->dy, a->dy_stride) &&
           kern_is_wide(a->type, a->dx, a->dx_stride) &&
           kern_is_wide(a->type, a->add, a->dx_stride) &&
           kern_is_wide(a->type, a->weight, a->heads > 1 ? a->width : 0);
}

} // namespace

extern "C" size_t kern_cuda_norm_grad_bytes(const struct kern_norm_grad_arguments *a)
{
    return 2 * static_cast<size_t>(part_floats(a)) * sizeof(float);
}

extern "C" int kern_cuda_norm_grad(const struct dev_launch *where,
                                   const struct kern_norm_grad_arguments *a)
{
    float *scratch = static_cast<float *>(where->scratch);
    const struct runs out = {kern_grad_wanted(a->dweight) ? scratch : nullptr,
                             kern_grad_wanted(a->dbias) ? scratch + part_floats(a) : nullptr};
    const bool wide = is_wide(a);
    int rc = kern_by_type("norm_grad", a->type, [&](auto type) {
        using T = decltype(type);
        const bool kept = a->width <= KEPT_MAX * THREADS * KERN_GROUP;
        return kern_is_bf16<T> && kept && a->kind != KERN_NORM_LAYER
                   ? launch_rms_bf16(where, a, out, wide)
                   : launch_any<T>(where, a, out, wide);
    });
    const int64_t count = BLOCKS * teams_of(a->width);
    if (rc == 0 && out.dweight != nullptr) {
        rc = kern_cuda_columns_finish(where, "norm_grad", out.dweight, count, a->width,
                                      &a->dweight);
    }
    if (rc == 0 && out.dbias != nullptr) {
        rc = kern_cuda_columns_finish(where, "norm_grad", out.dbias, count, a->width, &a->dbias);
    }
    return rc;
}
