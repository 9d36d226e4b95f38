/* norm.cu: RMSNorm and LayerNorm over rows, forward.
 * A team processes a row: lanes of a warp if the row is short, else a block. A thread writes only
 * what no other thread reads, so a result may replace its input. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{

constexpr int THREADS = 256;
/* Most groups that a thread keeps. bf16 kernels with fewer get only rows that they keep whole. */
constexpr int KEPT_MAX = 4;

__device__ int64_t row_at(const kern_norm_arguments &a, int64_t row, int64_t stride)
{
    const kern_head_row at = kern_head_row_of(row, a.heads);
    return at.token * stride + at.head * a.width;
}

/* A thread's groups of one row: group g of thread r is at (g * TEAM + r) * 8. */
template <typename T, int TEAM, int KEPT> struct row {
    const kern_norm_arguments &a;
    int64_t index;
    int64_t width; /* 0: there is no such row */
    int64_t at;
    bool wide;
    kern_words<T> kept[KEPT];
    kern_words<T> weights[KEPT]; /* weights of the kept elements */

    __device__ row(const kern_norm_arguments &norm, int64_t i, bool is_wide)
        : a(norm), index(i), width(i < norm.tokens * norm.heads ? norm.width : 0),
          at(row_at(norm, i, norm.x_stride)), wide(is_wide)
    {
    }

    __device__ int64_t place(int g) const
    {
        return (static_cast<int64_t>(g) * TEAM + threadIdx.x % TEAM) * KERN_GROUP;
    }

    /* Returns whether the row has groups g, for g >= KEPT; the same in all threads of the team. */
    __device__ bool has_rest(int g) const
    {
        return (KEPT == KEPT_MAX || !kern_is_bf16<T>)&&static_cast<int64_t>(g) * TEAM * KERN_GROUP <
               width;
    }

    __device__ void load(kern_words<T> &to, const void *base, int g) const
    {
        kern_words_load<T>(to, base, at + place(g), width - place(g), wide);
    }

    /* Replaces x by x + more, rounded, and stores it in a.sum. */
    __device__ void add(kern_words<T> &x, const kern_words<T> &more, int g)
    {
        float sum[KERN_GROUP];
        float other[KERN_GROUP];
        kern_words_widen<T>(sum, x);
        kern_words_widen<T>(other, more);
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            sum[j] += other[j];
        }
        kern_words_narrow<T>(x, sum);
        kern_words_store<T>(x, a.sum, at + place(g), width - place(g), wide);
    }

    /* Reads the kept groups before the first is used; weights arrive during the sums. */
    __device__ void begin()
    {
#pragma unroll
        for (int g = 0; g < KEPT; g++) {
            load(kept[g], a.x, g);
        }
#pragma unroll
        for (int g = 0; g < KEPT; g++) {
            kern_words_load<T>(weights[g], a.weight, place(g), width - place(g), wide);
        }
        if (a.add != nullptr) {
            kern_words<T> more[KEPT];
#pragma unroll
            for (int g = 0; g < KEPT; g++) {
                load(more[g], a.add, g);
            }
#pragma unroll
            for (int g = 0; g < KEPT; g++) {
                add(kept[g], more[g], g);
            }
        }
    }

    /* Reads a group that is not kept; `first`: adds a.add, if any, and stores the sum. */
    __device__ void read(kern_words<T> &to, int g, bool first)
    {
        load(to, a.add != nullptr && !first ? a.sum : a.x, g);
        if (a.add != nullptr && first) {
            kern_words<T> more;
            load(more, a.add, g);
            add(to, more, g);
        }
    }

    /* Calls f with the values and index of groups, and whether they are kept. `first`: the first
     * call after begin. */
    template <typename F> __device__ void each(bool first, F f)
    {
#pragma unroll
        for (int g = 0; g < KEPT; g++) {
            float values[KERN_GROUP];
            kern_words_widen<T>(values, kept[g]);
            f(values, g, true);
        }
        for (int g = KEPT; has_rest(g); g++) {
            kern_words<T> words;
            float values[KERN_GROUP];
            read(words, g, first);
            kern_words_widen<T>(values, words);
            f(values, g, false);
        }
    }

    __device__ void finish(float mean, float rstd)
    {
        const int64_t y_at = row_at(a, index, a.y_stride);
        each(false, [&](const float(&v)[KERN_GROUP], int g, bool is_kept) {
            const int64_t i = place(g);
            float weight[KERN_GROUP];
            float y[KERN_GROUP];
            if (is_kept) {
                kern_words_widen<T>(weight, weights[g]);
            } else {
                kern_load<T>(weight, a.weight, i, width - i, wide);
            }
#pragma unroll
            for (int j = 0; j < KERN_GROUP; j++) {
                y[j] = (v[j] - mean) * rstd * weight[j];
            }
            if (a.kind == KERN_NORM_LAYER && a.bias != nullptr) {
                kern_load<T>(weight, a.bias, i, width - i, wide);
#pragma unroll
                for (int j = 0; j < KERN_GROUP; j++) {
                    y[j] += weight[j];
                }
            }
            kern_store<T>(y, a.y, y_at + i, width - i, wide);
        });
    }
};

template <int TEAM> constexpr int threads_of = TEAM > KERN_WARP ? TEAM : THREADS;

/* All lanes of a warp run the whole kernel: its teams share shuffles. */
template <typename T, int TEAM, int KEPT>
__global__ void __launch_bounds__(threads_of<TEAM>)
    norm_rows(struct kern_norm_arguments a, bool wide)
{
    constexpr int TEAMS = threads_of<TEAM> / TEAM;
    __shared__ float rooms[2][threads_of<TEAM> / KERN_WARP];
    const bool layer = a.kind == KERN_NORM_LAYER;
    row<T, TEAM, KEPT> r(a, static_cast<int64_t>(blockIdx.x) * TEAMS + threadIdx.x / TEAM, wide);
    r.begin();
    float sum = 0.0f;
    float squares = 0.0f;
    r.each(true, [&](const float(&v)[KERN_GROUP], int, bool) {
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
        r.each(false, [&](const float(&v)[KERN_GROUP], int g, bool) {
#pragma unroll
            for (int j = 0; j < KERN_GROUP; j++) {
                const float part = r.place(g) + j < a.width ? v[j] - mean : 0.0f;
                squares = __fmaf_rn(part, part, squares);
            }
        });
    }
    squares = kern_team_sum<TEAM>(squares, rooms[1]);
    const float rstd = 1.0f / sqrtf(squares / static_cast<float>(a.width) + a.eps);
    if (threadIdx.x % TEAM == 0 && r.width > 0) {
        a.rstd[r.index] = rstd;
        if (layer) {
            a.mean[r.index] = mean;
        }
    }
    r.finish(mean, rstd);
}

template <typename T, int TEAM, int KEPT>
int launch(const struct dev_launch *where, const struct kern_norm_arguments *a, bool wide)
{
    constexpr int TEAMS = threads_of<TEAM> / TEAM;
    const kern_grid grid = kern_grid_of(kern_div_up(a->tokens * a->heads, TEAMS), threads_of<TEAM>);
    return kern_cuda_launch(where, "norm", grid, norm_rows<T, TEAM, KEPT>, *a, wide);
}

/* In bf16 a lane takes two groups: a row's fixed work costs more than a second group. */
template <typename T>
int launch_short(const struct dev_launch *where, const struct kern_norm_arguments *a, bool wide)
{
    if constexpr (kern_is_bf16<T>) {
        if (a->width <= KERN_WARP / 4 * KERN_GROUP) {
            return launch<T, KERN_WARP / 8, 2>(where, a, wide);
        }
        return a->width <= KERN_WARP / 2 * KERN_GROUP ? launch<T, KERN_WARP / 4, 2>(where, a, wide)
                                                      : launch<T, KERN_WARP / 2, 2>(where, a, wide);
    } else {
        return launch<T, KERN_WARP, 1>(where, a, wide);
    }
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
            return launch_short<T>(where, a, wide);
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
