/* attention_plain.cu: attention and its gradient without tensor cores.
 * A warp computes one query (for dk and dv: one key), with a score per lane. */
#include "kernels/cuda/attention.h"

#include "kernels/cuda/attention_gap.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace
{

constexpr int THREADS = 128;
constexpr int WARP = 32;
constexpr int WARPS = THREADS / WARP;
constexpr int DIM_MAX = 512;
constexpr int EACH = DIM_MAX / WARP; /* dimensions of a lane: lane, lane + 32, ... */

template <typename T> __device__ float load(const void *base, int64_t index)
{
    return T::widen(static_cast<const typename T::store *>(base)[index]);
}

template <typename T> __device__ void store(void *base, int64_t index, float value)
{
    static_cast<typename T::store *>(base)[index] = T::narrow(value);
}

struct place {
    bool lives;
    int64_t row, position, token, head;
};

/* Later tokens may see more keys and go first. */
__device__ place place_of(const kern_attention_arguments &a, int64_t heads)
{
    const int64_t tokens = a.rows * a.length;
    const int64_t index = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP;
    place p = {};
    p.lives = index < tokens * heads;
    p.token = tokens - 1 - index / heads;
    p.head = index % heads;
    p.row = p.token / a.length;
    p.position = p.token % a.length;
    return p;
}

__device__ int64_t start_of(const kern_attention_arguments &a, int64_t token)
{
    return a.starts != nullptr ? a.starts[token] : 0;
}

__device__ int64_t first_key(const kern_attention_arguments &a, int64_t token, int64_t position)
{
    const int64_t start = start_of(a, token);
    const bool windowed = a.window > 0 && a.gaps == nullptr;
    const int64_t in_window = windowed ? position - a.window + 1 : 0;
    return in_window > start ? in_window : start;
}

__device__ bool sees(const kern_attention_arguments &a, int64_t query, int64_t key, kern_gap gap)
{
    return kern_sees_key(static_cast<int32_t>(query), static_cast<int32_t>(key), kern_window(a),
                         gap);
}

template <typename T>
__device__ void vector_load(float (&to)[DIM_MAX], const void *base, int64_t at, int64_t dims)
{
    for (int64_t i = threadIdx.x % WARP; i < dims; i += WARP) {
        to[i] = load<T>(base, at + i);
    }
}

template <typename T>
__device__ float dot(const float (&x)[DIM_MAX], const void *base, int64_t at, int64_t dims)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < dims; i++) {
        sum = __fmaf_rn(x[i], load<T>(base, at + i), sum);
    }
    return sum;
}

/* Adds the weight of each of the first `count` lanes times the vector at `at` + lane * stride. */
template <typename T>
__device__ void gather(float (&sums)[EACH], float weight, int64_t count, const void *base,
                       int64_t at, int64_t stride, int64_t dims)
{
    for (int l = 0; l < count; l++) {
        const float w = __shfl_sync(0xffffffffu, weight, l);
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int64_t i = e * WARP + threadIdx.x % WARP;
            if (i < dims) {
                sums[e] = __fmaf_rn(w, load<T>(base, at + l * stride + i), sums[e]);
            }
        }
    }
}

template <typename T>
__device__ void vector_store(const float (&sums)[EACH], float factor, void *base, int64_t at,
                             int64_t dims)
{
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int64_t i = e * WARP + threadIdx.x % WARP;
        if (i < dims) {
            store<T>(base, at + i, sums[e] * factor);
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS) attend(struct kern_attention_arguments a)
{
    __shared__ float queries[WARPS][DIM_MAX];
    float(&q)[DIM_MAX] = queries[threadIdx.x / WARP];
    const int64_t lane = threadIdx.x % WARP;
    const place p = place_of(a, a.heads);
    if (!p.lives) {
        return;
    }
    const int64_t d = a.head_dim;
    const int64_t kv = p.head / (a.heads / a.kv_heads) * d;
    const int64_t row = p.row * a.length;
    vector_load<T>(q, a.q, p.token * a.q_stride + p.head * d, d);
    __syncwarp();
    const kern_gap gap = kern_gap_of(a, p.row);
    const float none = -__uint_as_float(0x7f800000u);
    float top = none;
    float sum = 0.0f;
    float o[EACH] = {};
    for (int64_t first = first_key(a, p.token, p.position); first <= p.position; first += WARP) {
        const int64_t count = min(p.position + 1 - first, static_cast<int64_t>(WARP));
        const bool seen = lane < count && sees(a, p.position, first + lane, gap);
        const float score = seen ? a.scale *
                                       dot<T>(q, a.k, (row + first + lane) * a.k_stride + kv, d)
                                 : none;
        const float new_top = fmaxf(top, kern_warp_max(score));
        if (new_top == none) { /* no key is visible so far */
            continue;
        }
        const float shrink = expf(top - new_top);
        const float weight = seen ? expf(score - new_top) : 0.0f;
        sum = sum * shrink + kern_warp_sum(weight);
        top = new_top;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            o[e] *= shrink;
        }
        gather<T>(o, weight, count, a.v, (row + first) * a.v_stride + kv, a.v_stride, d);
    }
    vector_store<T>(o, 1.0f / sum, a.o, p.token * a.o_stride + p.head * d, d);
    if (lane == 0) {
        a.lse[p.head * a.rows * a.length + p.token] = top + logf(sum);
    }
}

/* Returns a score's gradient and sets *probability. */
__device__ float score_grad(const kern_attention_grad_arguments &g, const float *delta, float score,
                            float dp, int64_t at, float *probability)
{
    *probability = expf(g.forward.scale * score - g.forward.lse[at]);
    return *probability * (dp - delta[at]) * g.forward.scale;
}

__device__ bool sees_one_key(const kern_attention_arguments &a, int64_t token, kern_gap gap)
{
    return kern_sees_one_key(static_cast<int32_t>(token % a.length),
                             static_cast<int32_t>(start_of(a, token)), kern_window(a), gap);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    attend_dq(struct kern_attention_grad_arguments g, const float *delta)
{
    __shared__ float queries[WARPS][DIM_MAX];
    __shared__ float slopes[WARPS][DIM_MAX];
    const kern_attention_arguments &a = g.forward;
    float(&q)[DIM_MAX] = queries[threadIdx.x / WARP];
    float(&d_o)[DIM_MAX] = slopes[threadIdx.x / WARP];
    const int64_t lane = threadIdx.x % WARP;
    const place p = place_of(a, a.heads);
    if (!p.lives) {
        return;
    }
    const int64_t d = a.head_dim;
    const int64_t kv = p.head / (a.heads / a.kv_heads) * d;
    const int64_t row = p.row * a.length;
    const int64_t at = p.head * a.rows * a.length + p.token;
    vector_load<T>(q, a.q, p.token * a.q_stride + p.head * d, d);
    vector_load<T>(d_o, g.d_o, p.token * g.d_o_stride + p.head * d, d);
    __syncwarp();
    const kern_gap gap = kern_gap_of(a, p.row);
    float dq[EACH] = {};
    for (int64_t first = first_key(a, p.token, p.position); first <= p.position; first += WARP) {
        const int64_t count = min(p.position + 1 - first, static_cast<int64_t>(WARP));
        const int64_t key = row + first + lane;
        float ds = 0.0f;
        if (lane < count && sees(a, p.position, first + lane, gap)) {
            float probability;
            ds = score_grad(g, delta, dot<T>(q, a.k, key * a.k_stride + kv, d),
                            dot<T>(d_o, a.v, key * a.v_stride + kv, d), at, &probability);
        }
        gather<T>(dq, ds, count, a.k, (row + first) * a.k_stride + kv, a.k_stride, d);
    }
    vector_store<T>(dq, sees_one_key(a, p.token, gap) ? 0.0f : 1.0f, g.dq,
                    p.token * g.dq_stride + p.head * d, d);
}

/* Returns the end of the queries that may see the key: of its document or window. */
__device__ int64_t queries_end(const kern_attention_arguments &a, const place &p)
{
    int64_t low = p.position + 1;
    int64_t high = a.length;
    const int32_t *starts = a.starts != nullptr ? a.starts + p.row * a.length : nullptr;
    while (starts != nullptr && low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (starts[middle] <= starts[p.position]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const int64_t stop = high;
    /* a gap brings keys closer: with gaps the window may reach further */
    const bool windowed = a.window > 0 && a.gaps == nullptr;
    return windowed && p.position + a.window < stop ? p.position + a.window : stop;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    attend_dkdv(struct kern_attention_grad_arguments g, const float *delta)
{
    __shared__ float keys[WARPS][DIM_MAX];
    __shared__ float values[WARPS][DIM_MAX];
    const kern_attention_arguments &a = g.forward;
    float(&k)[DIM_MAX] = keys[threadIdx.x / WARP];
    float(&v)[DIM_MAX] = values[threadIdx.x / WARP];
    const int64_t lane = threadIdx.x % WARP;
    const place p = place_of(a, a.kv_heads);
    if (!p.lives) {
        return;
    }
    const int64_t d = a.head_dim;
    const int64_t group = a.heads / a.kv_heads;
    const int64_t end = queries_end(a, p);
    vector_load<T>(k, a.k, p.token * a.k_stride + p.head * d, d);
    vector_load<T>(v, a.v, p.token * a.v_stride + p.head * d, d);
    __syncwarp();
    const kern_gap gap = kern_gap_of(a, p.row);
    float dk[EACH] = {};
    float dv[EACH] = {};
    for (int64_t head = p.head * group; head < (p.head + 1) * group; head++) {
        for (int64_t first = p.position; first < end; first += WARP) {
            const int64_t count = min(end - first, static_cast<int64_t>(WARP));
            const int64_t begin = p.row * a.length + first;
            const int64_t token = begin + lane;
            float ds = 0.0f;
            float probability = 0.0f;
            if (lane < count && sees(a, first + lane, p.position, gap)) {
                ds = score_grad(g, delta, dot<T>(k, a.q, token * a.q_stride + head * d, d),
                                dot<T>(v, g.d_o, token * g.d_o_stride + head * d, d),
                                head * a.rows * a.length + token, &probability);
                ds = sees_one_key(a, token, gap) ? 0.0f : ds;
            }
            gather<T>(dv, probability, count, g.d_o, begin * g.d_o_stride + head * d, g.d_o_stride,
                      d);
            gather<T>(dk, ds, count, a.q, begin * a.q_stride + head * d, a.q_stride, d);
        }
    }
    vector_store<T>(dk, 1.0f, g.dk, p.token * g.dk_stride + p.head * d, d);
    vector_store<T>(dv, 1.0f, g.dv, p.token * g.dv_stride + p.head * d, d);
}

kern_grid grid_of(const struct kern_attention_arguments *a, int64_t heads)
{
    return kern_grid_of(kern_div_up(a->rows * a->length * heads, WARPS), THREADS);
}

int check(const char *op, const struct kern_attention_arguments *a)
{
    return a->head_dim <= DIM_MAX
               ? 0
               : core_err_set(-ENOTSUP, "op %s takes heads of up to %d dimensions, not of %lld", op,
                              DIM_MAX, (long long)a->head_dim);
}

} // namespace

int kern_cuda_attention_plain(const struct dev_launch *where,
                              const struct kern_attention_arguments *a)
{
    int rc = check("attention", a);
    return rc != 0 ? rc : kern_by_type("attention", a->type, [&](auto type) {
        return kern_cuda_launch(where, "attention", grid_of(a, a->heads), attend<decltype(type)>,
                                *a);
    });
}

int kern_cuda_attention_grad_plain(const struct dev_launch *where,
                                   const struct kern_attention_grad_arguments *g,
                                   const float *delta)
{
    const struct kern_attention_arguments *a = &g->forward;
    const int rc = check("attention_grad", a);
    return rc != 0 ? rc : kern_by_type("attention_grad", a->type, [&](auto type) {
        using T = decltype(type);
        /* dq is last, because it may replace d_o, which dk and dv need. */
        int launched = kern_cuda_launch(where, "attention_grad", grid_of(a, a->kv_heads),
                                        attend_dkdv<T>, *g, delta);
        return launched != 0 ? launched
                             : kern_cuda_launch(where, "attention_grad", grid_of(a, a->heads),
                                                attend_dq<T>, *g, delta);
    });
}
