/* pointwise.cu: ops on single tokens or elements. A thread reads its groups before it writes, so a
 * result may replace its input. */
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{

constexpr int THREADS = KERN_ROWS_THREADS;

/* ---- Activations: bf16 has its own kernels; fp16 and fp32 share kernels. ---- */

template <typename T> struct shared_by {
    using type = kern_f32; /* fp16 too */
};
template <> struct shared_by<kern_bf16> {
    using type = kern_bf16;
};

template <typename T>
__device__ void act_load(float (&to)[KERN_GROUP], enum kern_type type, const void *base,
                         int64_t index, int64_t left, bool wide)
{
    if (!kern_is_bf16<T> && type == KERN_FP16) {
        kern_load<kern_fp16>(to, base, index, left, wide);
    } else {
        kern_load<T>(to, base, index, left, wide);
    }
}

template <typename T>
__device__ void act_store(const float (&from)[KERN_GROUP], enum kern_type type, void *base,
                          int64_t index, int64_t left, bool wide)
{
    if (!kern_is_bf16<T> && type == KERN_FP16) {
        kern_store<kern_fp16>(from, base, index, left, wide);
    } else {
        kern_store<T>(from, base, index, left, wide);
    }
}

template <int KIND> __device__ float act_value(float x, float *slope)
{
    const float root = 0.7978845608028654f; /* sqrt(2 / pi) */
    if (KIND == KERN_ACT_SILU) {
        const float s = 1.0f / (1.0f + expf(-x));
        *slope = s * (1.0f + x * (1.0f - s));
        return x * s;
    }
    if (KIND == KERN_ACT_GELU_TANH) {
        const float t = tanhf(root * (x + 0.044715f * x * x * x));
        *slope = 0.5f * (1.0f + t) +
                 0.5f * x * (1.0f - t * t) * root * (1.0f + 3.0f * 0.044715f * x * x);
        return 0.5f * x * (1.0f + t);
    }
    if (KIND == KERN_ACT_GELU) {
        const float part = 0.5f * erfcf(-x * 0.7071067811865476f);
        *slope = part + x * expf(-0.5f * x * x) * 0.3989422804014327f;
        return x * part;
    }
    *slope = x > 0.0f ? 1.0f : 0.0f;
    return x > 0.0f ? x : 0.0f;
}

template <typename T, int KIND>
__global__ void __launch_bounds__(THREADS)
    act_rows(struct kern_act_arguments a, uint32_t parts, bool wide)
{
    const kern_place at = kern_place_of(parts);
    const int64_t left = a.width - at.i;
    if (left <= 0) {
        return;
    }
    float gate[KERN_GROUP];
    float up[KERN_GROUP];
    act_load<T>(gate, a.type, a.gate, at.token * a.gate_stride + at.i, left, wide);
    if (a.up != nullptr) {
        act_load<T>(up, a.type, a.up, at.token * a.up_stride + at.i, left, wide);
    }
#pragma unroll
    for (int i = 0; i < KERN_GROUP; i++) {
        float slope;
        gate[i] = act_value<KIND>(gate[i], &slope);
        gate[i] = a.up != nullptr ? gate[i] * up[i] : gate[i];
    }
    act_store<T>(gate, a.type, a.y, at.token * a.y_stride + at.i, left, wide);
}

template <typename T, int KIND>
__global__ void __launch_bounds__(THREADS)
    act_grad_rows(struct kern_act_grad_arguments a, uint32_t parts, bool wide)
{
    const kern_place at = kern_place_of(parts);
    const int64_t left = a.width - at.i;
    if (left <= 0) {
        return;
    }
    const bool gated = a.up != nullptr;
    float gate[KERN_GROUP];
    float up[KERN_GROUP];
    float dy[KERN_GROUP];
    act_load<T>(gate, a.type, a.gate, at.token * a.gate_stride + at.i, left, wide);
    act_load<T>(dy, a.type, a.dy, at.token * a.dy_stride + at.i, left, wide);
    if (gated) {
        act_load<T>(up, a.type, a.up, at.token * a.up_stride + at.i, left, wide);
    }
    float y[KERN_GROUP];
#pragma unroll
    for (int i = 0; i < KERN_GROUP; i++) {
        float slope;
        const float value = act_value<KIND>(gate[i], &slope);
        const float factor = gated ? up[i] : 1.0f;
        y[i] = gated ? value * up[i] : value;
        gate[i] = dy[i] * factor * slope;
        up[i] = dy[i] * value;
    }
    act_store<T>(gate, a.type, a.dgate, at.token * a.dgate_stride + at.i, left, wide);
    if (gated) {
        act_store<T>(up, a.type, a.dup, at.token * a.dup_stride + at.i, left, wide);
    }
    if (a.y != nullptr) {
        act_store<T>(y, a.type, a.y, at.token * a.y_stride + at.i, left, wide);
    }
}

template <int N> struct kind {
    static constexpr int value = N;
};

/* Copies *from into an int, because the kind may be invalid. */
template <typename F> int by_kind(const char *op, const enum kern_act_kind *from, F f)
{
    int which;
    memcpy(&which, from, sizeof which);
    switch (which) {
    case KERN_ACT_SILU: return f(kind<KERN_ACT_SILU>{});
    case KERN_ACT_GELU_TANH: return f(kind<KERN_ACT_GELU_TANH>{});
    case KERN_ACT_GELU: return f(kind<KERN_ACT_GELU>{});
    case KERN_ACT_RELU: return f(kind<KERN_ACT_RELU>{});
    }
    return core_err_set(-EINVAL, "op %s has no activation %d", op, which);
}

/* ---- RoPE ---- */

template <typename T>
__global__ void __launch_bounds__(THREADS)
    rope_rows(struct kern_rope_arguments a, uint32_t parts, uint32_t head_groups, bool wide)
{
    const int64_t half = a.rotary / 2;
    const int64_t token = blockIdx.x / parts;
    const uint32_t group = (blockIdx.x % parts) * blockDim.x + threadIdx.x;
    const int64_t head = group / head_groups;
    const int64_t i = static_cast<int64_t>(group % head_groups) * KERN_GROUP;
    if (head >= a.heads) {
        return;
    }
    const int64_t position = a.positions != nullptr ? a.positions[token] : token % a.length;
    const int64_t at = token * a.stride + head * a.head_dim + i;
    float x[KERN_GROUP];
    float y[KERN_GROUP];
    float c[KERN_GROUP];
    float s[KERN_GROUP];
    kern_load<T>(x, a.x, at, half - i, wide);
    kern_load<T>(y, a.x, at + half, half - i, wide);
    kern_load<kern_f32>(c, a.cos, position * half + i, half - i, wide);
    kern_load<kern_f32>(s, a.sin, position * half + i, half - i, wide);
#pragma unroll
    for (int j = 0; j < KERN_GROUP; j++) {
        const float turn = a.backward ? -s[j] : s[j];
        const float first = x[j] * c[j] - y[j] * turn;
        y[j] = y[j] * c[j] + x[j] * turn;
        x[j] = first;
    }
    kern_store<T>(x, a.x, at, half - i, wide);
    kern_store<T>(y, a.x, at + half, half - i, wide);
}

/* ---- Addition ---- */

/* Adds a group of `base`, unless NULL. */
__device__ void add_any(enum kern_type type, float (&to)[KERN_GROUP], const void *base,
                        int64_t index, int64_t left, bool wide)
{
    float y[KERN_GROUP];
    if (base == nullptr) {
        return;
    }
    kern_load_any(type, y, base, index, left, wide);
#pragma unroll
    for (int j = 0; j < KERN_GROUP; j++) {
        to[j] += y[j];
    }
}

__global__ void __launch_bounds__(THREADS) add_groups(struct kern_add_arguments a, bool wide)
{
    const int64_t i = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * KERN_GROUP;
    const int64_t left = a.count - i;
    if (left <= 0) {
        return;
    }
    float x[KERN_GROUP];
    kern_load_any(a.a_type, x, a.a, i, left, wide);
    add_any(a.b_type, x, a.b, i, left, wide);
    kern_store_any(a.y_type, x, a.y, i, left, wide);
}

/* ---- Dropout ---- */

/* Computes the words of core_rng_philox(). */
__device__ void philox(uint64_t seed, uint64_t stream, uint64_t position, uint32_t (&c)[4])
{
    uint32_t k0 = static_cast<uint32_t>(seed);
    uint32_t k1 = static_cast<uint32_t>(seed >> 32);
    c[0] = static_cast<uint32_t>(position);
    c[1] = static_cast<uint32_t>(position >> 32);
    c[2] = static_cast<uint32_t>(stream);
    c[3] = static_cast<uint32_t>(stream >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c[0];
        const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c[2];
        c[0] = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0;
        c[2] = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1;
        c[1] = static_cast<uint32_t>(p1);
        c[3] = static_cast<uint32_t>(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

__device__ float rounded(enum kern_type type, float value)
{
    return type == KERN_BF16   ? kern_bf16::widen(kern_bf16::narrow(value))
           : type == KERN_FP16 ? kern_fp16::widen(kern_fp16::narrow(value))
                               : value;
}

__global__ void __launch_bounds__(THREADS)
    dropout_groups(struct kern_dropout_arguments a, bool wide)
{
    const int64_t i = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * KERN_GROUP;
    const int64_t left = a.count - i;
    if (left <= 0) {
        return;
    }
    const uint64_t seed = *a.seed;
    const float kept = 1.0f / (1.0f - a.rate);
    float whole[KERN_GROUP];
    float x[KERN_GROUP];
    kern_load_any(a.type, whole, a.x, i, left, wide);
#pragma unroll
    for (int j = 0; j < KERN_GROUP; j++) {
        x[j] = whole[j];
    }
    if (seed != 0) {
#pragma unroll
        for (int g = 0; g < KERN_GROUP / 4; g++) {
            uint32_t words[4];
            philox(seed, a.stream, static_cast<uint64_t>(i) / 4 + g, words);
#pragma unroll
            for (int w = 0; w < 4; w++) {
                const float unit = static_cast<float>(words[w] >> 8) * 0x1p-24f;
                x[4 * g + w] *= unit < a.rate ? 0.0f : kept;
            }
        }
    }
    if (a.rest) {
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            x[j] = whole[j] - rounded(a.type, x[j]);
        }
    }
    add_any(a.type, x, a.add, i, left, wide);
    kern_store_any(a.type, x, a.y, i, left, wide);
}

} // namespace

extern "C" int kern_cuda_dropout(const struct dev_launch *where,
                                 const struct kern_dropout_arguments *a)
{
    const bool wide = kern_is_wide(a->type, a->x, 0) && kern_is_wide(a->type, a->add, 0) &&
                      kern_is_wide(a->type, a->y, 0);
    const kern_grid grid = kern_grid_of(kern_div_up(a->count, THREADS * KERN_GROUP), THREADS);
    return kern_cuda_launch(where, "dropout", grid, dropout_groups, *a, wide);
}

extern "C" int kern_cuda_act(const struct dev_launch *where, const struct kern_act_arguments *a)
{
    const bool wide = kern_is_wide(a->type, a->gate, a->gate_stride) &&
                      kern_is_wide(a->type, a->up, a->up_stride) &&
                      kern_is_wide(a->type, a->y, a->y_stride);
    const kern_cut c = kern_cut_of(a->tokens, kern_div_up(a->width, KERN_GROUP));
    return kern_by_type("act", a->type, [&](auto type) {
        return by_kind("act", &a->kind, [&](auto which) {
            return kern_cuda_launch(where, "act", c.grid,
                                    act_rows<typename shared_by<decltype(type)>::type, which.value>,
                                    *a, c.parts, wide);
        });
    });
}

extern "C" int kern_cuda_act_grad(const struct dev_launch *where,
                                  const struct kern_act_grad_arguments *a)
{
    const bool wide = kern_is_wide(a->type, a->gate, a->gate_stride) &&
                      kern_is_wide(a->type, a->up, a->up_stride) &&
                      kern_is_wide(a->type, a->dy, a->dy_stride) &&
                      kern_is_wide(a->type, a->dgate, a->dgate_stride) &&
                      kern_is_wide(a->type, a->dup, a->dup_stride) &&
                      kern_is_wide(a->type, a->y, a->y_stride);
    const kern_cut c = kern_cut_of(a->tokens, kern_div_up(a->width, KERN_GROUP));
    return kern_by_type("act_grad", a->type, [&](auto type) {
        return by_kind("act_grad", &a->kind, [&](auto which) {
            return kern_cuda_launch(
                where, "act_grad", c.grid,
                act_grad_rows<typename shared_by<decltype(type)>::type, which.value>, *a, c.parts,
                wide);
        });
    });
}

extern "C" int kern_cuda_rope(const struct dev_launch *where, const struct kern_rope_arguments *a)
{
    const int64_t half = a->rotary / 2;
    const int64_t head_groups = kern_div_up(half, KERN_GROUP);
    const bool wide = kern_is_wide(a->type, a->x, a->stride) &&
                      kern_is_wide(a->type, a->x, a->head_dim) &&
                      kern_is_wide(a->type, a->x, half) && kern_is_wide(KERN_F32, a->cos, half) &&
                      kern_is_wide(KERN_F32, a->sin, half);
    const kern_cut c = kern_cut_of(a->tokens, a->heads * head_groups);
    return kern_by_type("rope", a->type, [&](auto type) {
        return kern_cuda_launch(where, "rope", c.grid, rope_rows<decltype(type)>, *a, c.parts,
                                static_cast<uint32_t>(head_groups), wide);
    });
}

extern "C" int kern_cuda_add(const struct dev_launch *where, const struct kern_add_arguments *a)
{
    const bool wide = kern_is_wide(a->a_type, a->a, 0) && kern_is_wide(a->b_type, a->b, 0) &&
                      kern_is_wide(a->y_type, a->y, 0);
    const kern_grid grid = kern_grid_of(kern_div_up(a->count, THREADS * KERN_GROUP), THREADS);
    return kern_cuda_launch(where, "add", grid, add_groups, *a, wide);
}
