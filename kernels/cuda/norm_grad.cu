/* norm_grad.cu: the gradient of the norms.
 * A team (lanes of a warp for short rows, else a block) takes every n-th row or, if rows do not fit
 * in registers, consecutive rows, and sums the gradients of weight and bias; a block adds up its
 * teams, columns.cuh the blocks. ANY marks kernels for any kind, width and alignment. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int BLOCKS_MAX = 264; /* two per multiprocessor of an H100 or H200 */

struct runs {
    float *dweight; /* [blocks][width]; NULL: not wanted */
    float *dbias;
    int blocks;
};

__device__ int64_t row_at(const kern_norm_grad_arguments &a, int64_t row, int64_t stride)
{
    const kern_head_row at = kern_head_row_of(row, a.heads);
    return at.token * stride + at.head * a.width;
}

/* A thread's part of its team's sums. */
template <int KEPT> struct gathered {
    float dweight[KEPT][KERN_GROUP];
    float dbias[KEPT][KERN_GROUP];
};

template <int TEAM> __device__ int64_t place_of(int k)
{
    return (static_cast<int64_t>(k) * TEAM + threadIdx.x % TEAM) * KERN_GROUP;
}

/* A thread's part of a row, as in memory. */
template <typename T, int TEAM, int KEPT, bool WHOLE> struct inputs {
    kern_words<T> s[KEPT];
    kern_words<T> dy[KEPT];
    kern_words<T> add[KEPT];
    int64_t dx_at;
    float mean, rstd;

    /* Loads zeros after the last row. */
    __device__ void load(const kern_norm_grad_arguments &a, int64_t index, bool wide)
    {
        const bool lives = index < a.tokens * a.heads;
        const kern_head_row at = kern_head_row_of(index, a.heads);
        const int64_t s_at = at.token * a.s_stride + at.head * a.width;
        const int64_t dy_at = at.token * a.dy_stride + at.head * a.width;
        dx_at = at.token * a.dx_stride + at.head * a.width;
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            const int64_t i = place_of<TEAM>(k);
            const int64_t left = lives ? a.width - i : 0;
            kern_words_fetch<T, WHOLE>(s[k], a.s, s_at + i, left, wide);
            kern_words_fetch<T, WHOLE>(dy[k], a.dy, dy_at + i, left, wide);
            if (a.add != nullptr) {
                kern_words_fetch<T, WHOLE>(add[k], a.add, dx_at + i, left, wide);
            }
        }
        mean = lives && a.kind == KERN_NORM_LAYER ? a.mean[index] : 0.0f;
        rstd = lives ? a.rstd[index] : 0.0f;
    }
};

template <typename T, bool ANY, int TEAM, int KEPT>
__device__ void grad_row(const kern_norm_grad_arguments &a, int64_t index, bool wide, float *room,
                         const inputs<T, TEAM, KEPT, !ANY> &in,
                         const kern_words<T> (&weights)[KEPT], gathered<KEPT> &sums)
{
    const bool layer = ANY && a.kind == KERN_NORM_LAYER;
    const float mean = layer ? in.mean : 0.0f;
    const float rstd = in.rstd;
    const bool lives = index < a.tokens * a.heads;
    float n[KEPT][KERN_GROUP];
    float g[KEPT][KERN_GROUP];
    float sum = 0.0f;
    float dot = 0.0f;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        float weight[KERN_GROUP];
        kern_words_widen<T>(n[k], in.s[k]);
        kern_words_widen<T>(g[k], in.dy[k]);
        kern_words_widen<T>(weight, weights[k]);
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) { /* past the end dy and weight are 0 */
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
        const int64_t i = place_of<TEAM>(k);
        float add[KERN_GROUP] = {};
        if (a.add != nullptr) {
            kern_words_widen<T>(add, in.add[k]);
        }
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            add[j] = rstd * (g[k][j] - shift - n[k][j] * slope) + add[j];
        }
        const int64_t left = lives ? a.width - i : 0;
        if (ANY) {
            kern_store<T>(add, a.dx, in.dx_at + i, left, wide);
        } else if (left > 0) {
            kern_store<T>(add, a.dx, in.dx_at + i, KERN_GROUP, true);
        }
    }
}

/* Writes the sum of the block's teams, in order. */
template <int TEAM, int KEPT>
__device__ void gathered_write(const float (&sums)[KEPT][KERN_GROUP], float *out, int64_t width,
                               float *room)
{
    float *to = out + blockIdx.x * width;
    if (TEAM == THREADS) {
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            const int64_t i = place_of<TEAM>(k);
            kern_store<kern_f32>(sums[k], to, i, width - i, width % 4 == 0);
        }
        return;
    }
    __syncthreads(); /* other threads may still read the room */
    constexpr int WIDTH = TEAM * KEPT * KERN_GROUP;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            room[threadIdx.x / TEAM * WIDTH + place_of<TEAM>(k) + j] = sums[k][j];
        }
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        float sum = room[i];
        for (int team = 1; team < THREADS / TEAM; team++) {
            sum += room[team * WIDTH + i];
        }
        to[i] = sum;
    }
}

/* Loads a row ahead where registers are free. */
template <bool ANY, int KEPT> constexpr bool is_ahead = !ANY && KEPT <= 2;

template <typename T, bool ANY, int TEAM, int KEPT>
__global__ void __launch_bounds__(THREADS, (is_ahead<ANY, KEPT> ? 2 : 1))
    norm_grad_rows(struct kern_norm_grad_arguments a, struct runs out, bool wide)
{
    /* Rows alternate between halves, so a row's barriers separate two uses of a half. */
    __shared__ float rooms[2][2 * (THREADS / KERN_WARP)];
    __shared__ float teams_room[TEAM == THREADS ? 1 : THREADS * KEPT * KERN_GROUP];
    const int64_t teams = static_cast<int64_t>(gridDim.x) * (THREADS / TEAM);
    /* the same in all threads, because a turn has barriers */
    const int64_t turns = (a.tokens * a.heads + teams - 1) / teams;
    int64_t row = static_cast<int64_t>(blockIdx.x) * (THREADS / TEAM) + threadIdx.x / TEAM;
    gathered<KEPT> sums = {};
    kern_words<T> weights[KEPT];
    inputs<T, TEAM, KEPT, !ANY> now;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int64_t i = place_of<TEAM>(k);
        kern_words_fetch<T, !ANY>(weights[k], a.weight, i, a.width - i, wide);
    }
    now.load(a, row, wide);
    for (int64_t turn = 0; turn < turns; turn++, row += teams) {
        inputs<T, TEAM, KEPT, !ANY> ahead;
        if (is_ahead<ANY, KEPT>) {
            ahead.load(a, row + teams, wide);
        }
        grad_row<T, ANY, TEAM, KEPT>(a, row, wide, rooms[turn % 2], now, weights, sums);
        if (is_ahead<ANY, KEPT>) {
            now = ahead;
        } else {
            now.load(a, row + teams, wide);
        }
    }
    if (out.dweight != nullptr) {
        gathered_write<TEAM, KEPT>(sums.dweight, out.dweight, a.width, teams_room);
    }
    if (ANY && out.dbias != nullptr) {
        gathered_write<TEAM, KEPT>(sums.dbias, out.dbias, a.width, teams_room);
    }
}

/* For rows that norm_grad_rows() does not keep: two passes over memory, running sums in `out`. */
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

int64_t part_floats(const struct kern_norm_grad_arguments *a)
{
    const int64_t floats = BLOCKS_MAX * a->width;
    return kern_div_up(floats, 64) * 64;
}

/* Returns the blocks for `teams` rows per block. Without rows one block writes zeros. */
int blocks_of(const struct kern_norm_grad_arguments *a, int teams)
{
    const int64_t blocks = kern_div_up(a->tokens * a->heads, teams);
    return blocks < 1 ? 1 : static_cast<int>(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX);
}

template <typename T, bool ANY, int TEAM, int KEPT>
int launch(const struct dev_launch *where, const struct kern_norm_grad_arguments *a,
           struct runs *out, bool wide)
{
    out->blocks = blocks_of(a, THREADS / TEAM);
    return kern_cuda_launch(where, "norm_grad", kern_grid_of(out->blocks, THREADS),
                            norm_grad_rows<T, ANY, TEAM, KEPT>, *a, *out, wide);
}

int launch_rms_bf16(const struct dev_launch *where, const struct kern_norm_grad_arguments *a,
                    struct runs *out, bool wide)
{
    if (a->width <= KERN_WARP / 4 * KERN_GROUP) {
        return launch<kern_bf16, false, KERN_WARP / 8, 2>(where, a, out, wide);
    }
    if (a->width <= KERN_WARP / 2 * KERN_GROUP) {
        return launch<kern_bf16, false, KERN_WARP / 4, 2>(where, a, out, wide);
    }
    if (a->width <= KERN_WARP * KERN_GROUP) {
        return launch<kern_bf16, false, KERN_WARP / 2, 2>(where, a, out, wide);
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
               struct runs *out, bool wide)
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
    out->blocks = blocks_of(a, 1);
    return kern_cuda_launch(where, "norm_grad", kern_grid_of(out->blocks, THREADS),
                            norm_grad_wide_rows<T>, *a, *out);
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
    struct runs out = {kern_grad_wanted(a->dweight) ? scratch : nullptr,
                       kern_grad_wanted(a->dbias) ? scratch + part_floats(a) : nullptr, 0};
    const bool wide = is_wide(a);
    int rc = kern_by_type("norm_grad", a->type, [&](auto type) {
        using T = decltype(type);
        const bool kept = a->width <= KEPT_MAX * THREADS * KERN_GROUP;
        const bool whole = wide && a->width % KERN_GROUP == 0;
        return kern_is_bf16<T> && whole && kept && a->kind != KERN_NORM_LAYER
                   ? launch_rms_bf16(where, a, &out, wide)
                   : launch_any<T>(where, a, &out, wide);
    });
    if (rc == 0 && out.dweight != nullptr) {
        rc = kern_cuda_columns_finish(where, "norm_grad", out.dweight, out.blocks, a->width,
                                      &a->dweight);
    }
    if (rc == 0 && out.dbias != nullptr) {
        rc = kern_cuda_columns_finish(where, "norm_grad", out.dbias, out.blocks, a->width,
                                      &a->dbias);
    }
    return rc;
}
