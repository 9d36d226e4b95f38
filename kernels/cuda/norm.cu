/* norm.cu: RMSNorm and LayerNorm over rows, forward. A row belongs to a team: a warp if the row is
 * short, else a block. Each thread keeps its groups in registers between the passes over the row, up to
 * KEPT of them, and reads the others again. A thread writes only what no other thread reads, so a result
 * may replace its input. bf16 has a kernel for each width, the other types one for short rows and one for all others. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int KEPT_MAX = 4; /* groups of a thread; with fewer a row has no more */

/* Element 0 of a row (token, head) in an array of this stride. */
__device__ int64_t row_at(const kern_norm_arguments &a, int64_t row, int64_t stride)
{
    return a.heads == 1 ? row * stride : row / a.heads * stride + row % a.heads * a.width;
}

/* A thread's groups of one row: group g of thread r of a team stands at (g * TEAM + r) * 8. */
template <typename T, int TEAM, int KEPT> struct row {
    const kern_norm_arguments &a;
    int64_t at;
    bool wide;
    float kept[KEPT][KERN_GROUP];

    __device__ int64_t index(int g) const
    {
        return (static_cast<int64_t>(g) * TEAM + threadIdx.x % TEAM) * KERN_GROUP;
    }

    /* Whether the row goes on from group g, for all threads of the team alike. */
    __device__ bool has_rest(int g) const
    {
        return (KEPT == KEPT_MAX || !kern_is_bf16<T>)&&static_cast<int64_t>(g) * TEAM * KERN_GROUP <
               a.width;
    }

    /* s = x (+ add), rounded and stored where there is something to add. */
    __device__ void begin(float (&to)[KERN_GROUP], int g)
    {
        const int64_t i = index(g);
        kern_load<T>(to, a.x, at + i, a.width - i, wide);
        if (a.add != nullptr) {
            float more[KERN_GROUP];
            kern_load<T>(more, a.add, at + i, a.width - i, wide);
#pragma unroll
            for (int j = 0; j < KERN_GROUP; j++) {
                to[j] = T::widen(T::narrow(to[j] + more[j]));
            }
            kern_store<T>(to, a.sum, at + i, a.width - i, wide);
        }
    }

    __device__ void again(float (&to)[KERN_GROUP], int g) const
    {
        const int64_t i = index(g);
        kern_load<T>(to, a.add != nullptr ? a.sum : a.x, at + i, a.width - i, wide);
    }

    /* f(values, g) for each group; the first time the row is read. */
    template <typename F> __device__ void each(bool first, F f)
    {
#pragma unroll
        for (int g = 0; g < KEPT; g++) {
            if (first) {
                begin(kept[g], g);
            }
            f(kept[g], g);
        }
        for (int g = KEPT; has_rest(g); g++) {
            float values[KERN_GROUP];
            if (first) {
                begin(values, g);
            } else {
                again(values, g);
            }
            f(values, g);
        }
    }
};

/* Blocks of a multiprocessor, as many as registers without spills allow. */
template <typename T, int TEAM, int KEPT>
__global__ void __launch_bounds__(THREADS, KEPT == 1   ? 5
                                           : KEPT == 2 ? 4
                                                       : 3)
    norm_rows(struct kern_norm_arguments a, bool wide)
{
    __shared__ float rooms[2][THREADS / KERN_WARP];
    const int64_t index = static_cast<int64_t>(blockIdx.x) * (THREADS / TEAM) + threadIdx.x / TEAM;
    const bool lives = index < a.tokens * a.heads;
    const bool layer = a.kind == KERN_NORM_LAYER;
    if (TEAM == KERN_WARP && !lives) {
        return;
    }
    row<T, TEAM, KEPT> r = {a, row_at(a, index, a.x_stride), wide, {}};
    float sum = 0.0f;
    float squares = 0.0f;
    r.each(true, [&](const float(&v)[KERN_GROUP], int) {
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            sum += v[j];
            squares = __fmaf_rn(v[j], v[j], squares);
        }
    });
    float mean = 0.0f;
    if (layer) {
        mean = kern_team_sum<TEAM>(sum, rooms[0]) / static_cast<float>(a.width);
        squares = 0.0f;
        r.each(false, [&](const float(&v)[KERN_GROUP], int g) {
#pragma unroll
            for (int j = 0; j < KERN_GROUP; j++) {
                const float part = r.index(g) + j < a.width ? v[j] - mean : 0.0f;
                squares = __fmaf_rn(part, part, squares);
            }
        });
    }
    squares = kern_team_sum<TEAM>(squares, rooms[1]);
    const float rstd = 1.0f / sqrtf(squares / static_cast<float>(a.width) + a.eps);
    if (threadIdx.x % TEAM == 0) {
        a.rstd[index] = rstd;
        if (layer) {
            a.mean[index] = mean;
        }
    }
    const int64_t y_at = row_at(a, index, a.y_stride);
    r.each(false, [&](const float(&v)[KERN_GROUP], int g) {
        const int64_t i = r.index(g);
        float weight[KERN_GROUP];
        float y[KERN_GROUP];
        kern_load<T>(weight, a.weight, i, a.width - i, wide);
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            y[j] = (v[j] - mean) * rstd * weight[j];
        }
        if (layer && a.bias != nullptr) {
            kern_load<T>(weight, a.bias, i, a.width - i, wide);
#pragma unroll
            for (int j = 0; j < KERN_GROUP; j++) {
                y[j] += weight[j];
            }
        }
        kern_store<T>(y, a.y, y_at + i, a.width - i, wide);
    });
}

template <typename T, int TEAM, int KEPT>
int launch(const struct dev_launch *where, const struct kern_norm_arguments *a, bool wide)
{
    const kern_grid grid = kern_grid_of(kern_div_up(a->tokens * a->heads, THREADS / TEAM), THREADS);
    return kern_cuda_launch(where, "norm", grid, norm_rows<T, TEAM, KEPT>, *a, wide);
}

} // namespace

extern "C" int kern_cuda_norm(const struct dev_launch *where, const struct kern_norm_arguments *a)
{
    const bool wide = kern_is_wide(a->type, a->x, a->x_stride) &&
                      kern_is_wide(a->type, a->add, a->x_stride) &&
                      kern_is_wide(a->type, a->sum, a->x_stride) &&
                      kern_is_wide(a->type, a->y, a->y_stride) &&
                      kern_is_wide(a->type, a->weight, a->heads > 1 ? a->width : 0) &&
                      kern_is_wide(a->type, a->bias, 0);
    return kern_by_type("norm", a->type, [&](auto type) {
        using T = decltype(type);
        if (a->width <= KERN_WARP * KERN_GROUP) {
            return launch<T, KERN_WARP, 1>(where, a, wide);
        }
        if constexpr (kern_is_bf16<T>) {
            if (a->width <= THREADS * KERN_GROUP) {
                return launch<T, THREADS, 1>(where, a, wide);
            }
            return a->width <= 2 * THREADS * KERN_GROUP
                       ? launch<T, THREADS, 2>(where, a, wide)
                       : launch<T, THREADS, KEPT_MAX>(where, a, wide);
        }
        return launch<T, THREADS, 1>(where, a, wide);
    });
}
