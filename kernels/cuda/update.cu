/* update.cu: the fused update. A warp has the 256 parameters of one group (by global index), which
 * share random numbers and, in 8 bits, a scale: each lane four of the first half and four of the
 * second, so that a warp's accesses are dense. A group that arrays begin or end within goes element by
 * element; so do arrays that are not aligned. */
#include "kernels/cuda/update.cuh"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int WARP = 32;
constexpr int WARPS = THREADS / WARP;
constexpr int HALVES = 2; /* of a group */
constexpr int QUAD = 4;   /* elements of a lane in each */
constexpr int WORDS = 64; /* random words of a group, each used by a pair of either half */

/* Four elements that follow one another. */
struct quad {
    int64_t i;     /* of the first, in the arrays; below 0 where the arrays begin later */
    uint32_t live; /* bit j: element i + j is one of the arrays' */
    bool dense;    /* all are, and the arrays are aligned */
};

template <typename T> __device__ void load(float (&to)[QUAD], const void *base, const quad &q)
{
    using store = typename T::store;
    union {
        uint4 four;
        uint2 two;
        store elements[QUAD];
    } in;
    const store *from = static_cast<const store *>(base);
    if (q.dense && sizeof(store) == 4) {
        in.four = *reinterpret_cast<const uint4 *>(from + q.i);
    } else if (q.dense) {
        in.two = *reinterpret_cast<const uint2 *>(from + q.i);
    } else {
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            in.elements[j] = q.live >> j & 1 ? from[q.i + j] : store(0);
        }
    }
#pragma unroll
    for (int j = 0; j < QUAD; j++) {
        to[j] = T::widen(in.elements[j]);
    }
}

template <typename S> __device__ void put(void *base, const quad &q, const S (&from)[QUAD])
{
    union {
        uint4 four;
        uint2 two;
        uint32_t one;
        S elements[QUAD];
    } out;
    S *to = static_cast<S *>(base);
#pragma unroll
    for (int j = 0; j < QUAD; j++) {
        out.elements[j] = from[j];
    }
    if (q.dense && sizeof(S) == 4) {
        *reinterpret_cast<uint4 *>(to + q.i) = out.four;
    } else if (q.dense && sizeof(S) == 2) {
        *reinterpret_cast<uint2 *>(to + q.i) = out.two;
    } else if (q.dense) {
        *reinterpret_cast<uint32_t *>(to + q.i) = out.one;
    } else {
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            if (q.live >> j & 1) {
                to[q.i + j] = out.elements[j];
            }
        }
    }
}

/* Both halves before either is looked at: a warp waits once. */
template <typename T>
__device__ void halves_load(float (&to)[HALVES][QUAD], const void *base, const quad (&q)[HALVES])
{
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        load<T>(to[h], base, q[h]);
    }
}

__device__ void load_any(float (&to)[HALVES][QUAD], core_vec_type type, const void *base,
                         const quad (&q)[HALVES])
{
    if (type == CORE_VEC_BF16) {
        halves_load<kern_bf16>(to, base, q);
    } else if (type == CORE_VEC_FP16) {
        halves_load<kern_fp16>(to, base, q);
    } else {
        halves_load<kern_f32>(to, base, q);
    }
}

template <typename T> __device__ void store(const float (&from)[QUAD], void *base, const quad &q)
{
    typename T::store out[QUAD];
#pragma unroll
    for (int j = 0; j < QUAD; j++) {
        out[j] = T::narrow(from[j]);
    }
    put(base, q, out);
}

__device__ void codes_load(uint32_t (&to)[QUAD], const void *base, const quad &q)
{
    const uint8_t *from = static_cast<const uint8_t *>(base);
    const uint32_t word = q.dense ? *reinterpret_cast<const uint32_t *>(from + q.i) : 0;
#pragma unroll
    for (int j = 0; j < QUAD; j++) {
        to[j] = q.dense ? word >> 8 * j & 0xffu : q.live >> j & 1 ? from[q.i + j] : 0u;
    }
}

__device__ bool has_m(core_vec_rule rule)
{
    return rule != CORE_VEC_ADAGRAD;
}

__device__ bool has_v(core_vec_rule rule)
{
    return rule != CORE_VEC_LION && rule != CORE_VEC_SGD;
}

/* ---- Master and working weight ---- */

__device__ uint32_t canonical(float x)
{
    const uint32_t bits = __float_as_uint(x);
    return (bits & 0x7fffffffu) > 0x7f800000u ? (bits & 0x80000000u) | 0x7fc00000u : bits;
}

__device__ void master_load(float (&p)[HALVES][QUAD], const core_vec_update &u,
                            const quad (&q)[HALVES])
{
    if (u.master != CORE_VEC_MASTER_SPLIT) {
        halves_load<kern_f32>(p, u.w32, q);
        return;
    }
    float low[HALVES][QUAD];
    halves_load<kern_bf16>(p, u.w16, q); /* bits, shifted up; NaN keeps its payload */
    halves_load<kern_bf16>(low, u.lo16, q);
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            const int32_t rest = static_cast<int32_t>(__float_as_uint(low[h][j])) >> 16;
            p[h][j] = __uint_as_float(__float_as_uint(p[h][j]) + static_cast<uint32_t>(rest));
        }
    }
}

__device__ void master_store(const float (&p)[QUAD], const core_vec_update &u, const quad &q)
{
    if (u.master == CORE_VEC_MASTER_SPLIT) {
        uint16_t high[QUAD];
        uint16_t low[QUAD];
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            const uint32_t bits = canonical(p[j]);
            high[j] = static_cast<uint16_t>((bits + 0x8000u) >> 16);
            low[j] = static_cast<uint16_t>(bits);
        }
        put(u.w16, q, high);
        put(u.lo16, q, low);
        return;
    }
    store<kern_f32>(p, u.w32, q);
    if (u.master == CORE_VEC_MASTER_BF16) {
        store<kern_bf16>(p, u.w16, q);
    } else if (u.master == CORE_VEC_MASTER_FP16) {
        store<kern_fp16>(p, u.w16, q);
    }
}

__device__ uint32_t met_of(core_vec_master master, float g, float p)
{
    const uint32_t limit = master == CORE_VEC_MASTER_FP16  ? 0x477ff000u
                           : master == CORE_VEC_MASTER_F32 ? 0x7f800000u
                                                           : 0x7f7f8000u;
    const uint32_t size = __float_as_uint(p) & 0x7fffffffu;
    return ((__float_as_uint(g) & 0x7fffffffu) >= 0x7f800000u ? CORE_VEC_MET_GRADIENT : 0) |
           (size >= 0x7f800000u ? CORE_VEC_MET_MASTER : 0) |
           (size >= limit ? CORE_VEC_MET_WORKING : 0);
}

/* ---- Moments ---- */

/* The 16 random bits of element j of this lane's quad. */
__device__ uint32_t chance_of(const uint32_t (&words)[2], int half, int j)
{
    const uint32_t word = half == 0 ? words[j / 2] : words[j / 2] << 8 | words[j / 2] >> 24;
    return j % 2 == 0 ? word & 0xffffu : word >> 16;
}

/* One moment of this lane: both halves, in fp32. */
struct moment {
    float x[HALVES][QUAD];
};

template <core_vec_type MOMENTS, bool SIGNED>
__device__ void moment_load(moment &to, const void *base, const quad (&q)[HALVES], float scale)
{
    const float unit = MOMENTS == CORE_VEC_Q8
                           ? __fdiv_rn(scale, SIGNED ? KERN_Q8_M_TOP : KERN_Q8_V_TOP)
                           : 0.0f;
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        if (MOMENTS == CORE_VEC_Q8) {
            uint32_t code[QUAD];
            codes_load(code, base, q[h]);
#pragma unroll
            for (int j = 0; j < QUAD; j++) {
                to.x[h][j] = SIGNED ? kern_q8_m_value(code[j], unit)
                                    : kern_q8_value(code[j], KERN_Q8_V_C, unit);
            }
        } else if (MOMENTS == CORE_VEC_BF16) {
            load<kern_bf16>(to.x[h], base, q[h]);
        } else {
            load<kern_f32>(to.x[h], base, q[h]);
        }
    }
}

/* The scale of a block: its largest magnitude; NaN counts above infinity. Elements that are not the
 * arrays' do not count. */
__device__ float block_scale(const moment &from, const quad (&q)[HALVES])
{
    uint32_t most = 0;
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            const uint32_t size = __float_as_uint(from.x[h][j]) & 0x7fffffffu;
            most = max(most, q[h].live >> j & 1 ? size : 0u);
        }
    }
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) {
        most = max(most, __shfl_xor_sync(0xffffffffu, most, step));
    }
    const float largest = __uint_as_float(most);
    return largest < KERN_Q8_SCALE_MIN ? KERN_Q8_SCALE_MIN : largest;
}

template <core_vec_type MOMENTS, bool SIGNED>
__device__ void moment_store(const moment &from, void *base, const quad (&q)[HALVES],
                             const uint32_t (&words)[2], float *scale)
{
    float rate = 0.0f;
    if (MOMENTS == CORE_VEC_Q8) {
        const float top = block_scale(from, q);
        rate = __fdiv_rn(SIGNED ? KERN_Q8_M_TOP : KERN_Q8_V_TOP, top);
        if (threadIdx.x % WARP == 0) {
            *scale = top;
        }
    }
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        uint16_t half[QUAD];
        uint8_t code[QUAD];
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            const uint32_t chance = MOMENTS == CORE_VEC_F32 ? 0 : chance_of(words, h, j);
            const float x = from.x[h][j];
            half[j] = static_cast<uint16_t>((canonical(x) + chance) >> 16);
            code[j] = static_cast<uint8_t>(SIGNED ? kern_q8_m_code(x, rate, chance)
                                                  : kern_q8_v_code(x, rate, chance));
        }
        if (MOMENTS == CORE_VEC_Q8) {
            put(base, q[h], code);
        } else if (MOMENTS == CORE_VEC_BF16) {
            put(base, q[h], half);
        } else {
            store<kern_f32>(from.x[h], base, q[h]);
        }
    }
}

/* ---- A group ---- */

/* Words of the pairs of elements 4 l .. 4 l + 3, l the lane: word w of position c stands at
 * w * 16 + c. */
__device__ void words_draw(uint32_t (&words)[2], uint32_t (&room)[WORDS], const core_vec_update &u,
                           uint64_t group)
{
    const unsigned lane = threadIdx.x % WARP;
    if (lane < WORDS / 4) {
        const uint4 drawn = kern_philox(u.seed, u.stream, group * (WORDS / 4) + lane);
        room[lane] = drawn.x;
        room[WORDS / 4 + lane] = drawn.y;
        room[WORDS / 2 + lane] = drawn.z;
        room[3 * (WORDS / 4) + lane] = drawn.w;
    }
    __syncwarp();
    words[0] = room[2 * lane];
    words[1] = room[2 * lane + 1];
}

__device__ quad quad_of(const core_vec_update &u, uint64_t group, int half, bool wide)
{
    quad q;
    q.i = static_cast<int64_t>(group * CORE_VEC_GROUP - u.first) +
          half * (CORE_VEC_GROUP / HALVES) + threadIdx.x % WARP * QUAD;
    q.live = 0;
#pragma unroll
    for (int j = 0; j < QUAD; j++) {
        const bool lives = q.i + j >= 0 && q.i + j < static_cast<int64_t>(u.count);
        q.live |= lives ? 1u << j : 0u;
    }
    q.dense = wide && q.live == (1u << QUAD) - 1;
    return q;
}

template <core_vec_type MOMENTS>
__global__ void __launch_bounds__(THREADS)
    update_groups(struct core_vec_update u, uint32_t *met, uint64_t groups, bool wide)
{
    __shared__ uint32_t rooms[WARPS][WORDS];
    const uint64_t index = static_cast<uint64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP;
    if (index >= groups) {
        return;
    }
    const uint64_t group = u.first / CORE_VEC_GROUP + index;
    uint32_t words[2] = {0, 0};
    if (MOMENTS != CORE_VEC_F32) {
        words_draw(words, rooms[threadIdx.x / WARP], u, group);
    }
    const quad q[HALVES] = {quad_of(u, group, 0, wide), quad_of(u, group, 1, wide)};
    moment m = {};
    moment v = {};
    if (has_m(u.rule)) {
        moment_load<MOMENTS, true>(m, u.m, q, MOMENTS == CORE_VEC_Q8 ? u.m_scale[index] : 0.0f);
    }
    if (has_v(u.rule)) {
        moment_load<MOMENTS, false>(v, u.v, q, MOMENTS == CORE_VEC_Q8 ? u.v_scale[index] : 0.0f);
    }
    float g[HALVES][QUAD];
    float p[HALVES][QUAD];
    load_any(g, u.gradients, u.g, q);
    master_load(p, u, q);
    uint32_t found = 0;
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            const float gradient = g[h][j] * u.scalars.gradient_scale;
            kern_element e = {p[h][j], m.x[h][j], v.x[h][j]};
            kern_apply(u.rule, e, gradient, u.scalars);
            p[h][j] = e.p;
            m.x[h][j] = e.m;
            v.x[h][j] = e.v;
            found |= q[h].live >> j & 1 ? met_of(u.master, gradient, e.p) : 0u;
        }
        master_store(p[h], u, q[h]);
    }
    if (has_m(u.rule)) {
        moment_store<MOMENTS, true>(m, u.m, q, words, u.m_scale + index);
    }
    if (has_v(u.rule)) {
        moment_store<MOMENTS, false>(v, u.v, q, words, u.v_scale + index);
    }
    if (found != 0 && met != nullptr) {
        atomicOr(met, found);
    }
}

/* Whether the first group's first quad would stand at a multiple of its bytes. */
bool is_dense(const struct core_vec_update &u, const void *base, uint64_t bytes)
{
    const uint64_t into = u.first % CORE_VEC_GROUP * bytes;
    return base == nullptr || (reinterpret_cast<uintptr_t>(base) - into) % (QUAD * bytes) == 0;
}

uint64_t bytes_of(enum core_vec_type type)
{
    return type == CORE_VEC_F32 ? 4 : type == CORE_VEC_Q8 ? 1 : 2;
}

int check(const struct core_vec_update &u)
{
    const bool moments = u.moments == CORE_VEC_F32 || u.moments == CORE_VEC_BF16 ||
                         u.moments == CORE_VEC_Q8;
    if (static_cast<unsigned>(u.rule) >= CORE_VEC_RULES ||
        static_cast<unsigned>(u.master) > CORE_VEC_MASTER_F32 ||
        static_cast<unsigned>(u.gradients) > CORE_VEC_FP16 || !moments) {
        return core_err_set(-EINVAL,
                            "op update has no rule %d with master %d, gradients %d and "
                            "moments %d",
                            (int)u.rule, (int)u.master, (int)u.gradients, (int)u.moments);
    }
    if (u.moments == CORE_VEC_Q8 && u.first % CORE_VEC_Q8_BLOCK != 0) {
        return core_err_set(-EINVAL, "op update begins at element %llu, within a block of %d",
                            (unsigned long long)u.first, CORE_VEC_Q8_BLOCK);
    }
    return 0;
}

} // namespace

extern "C" int kern_cuda_update(const struct dev_launch *where,
                                const struct kern_update_arguments *a)
{
    const struct core_vec_update &u = a->update;
    int rc = check(u);
    if (rc != 0 || u.count == 0) {
        return rc;
    }
    const bool wide = is_dense(u, u.w16, 2) && is_dense(u, u.lo16, 2) && is_dense(u, u.w32, 4) &&
                      is_dense(u, u.g, bytes_of(u.gradients)) &&
                      is_dense(u, u.m, bytes_of(u.moments)) &&
                      is_dense(u, u.v, bytes_of(u.moments));
    const uint64_t groups = (u.first + u.count - 1) / CORE_VEC_GROUP - u.first / CORE_VEC_GROUP + 1;
    const kern_grid grid = kern_grid_of(kern_div_up(static_cast<int64_t>(groups), WARPS), THREADS);
    switch (u.moments) {
    case CORE_VEC_BF16:
        return kern_cuda_launch(where, "update", grid, update_groups<CORE_VEC_BF16>, u, a->met,
                                groups, wide);
    case CORE_VEC_Q8:
        return kern_cuda_launch(where, "update", grid, update_groups<CORE_VEC_Q8>, u, a->met,
                                groups, wide);
    default:
        return kern_cuda_launch(where, "update", grid, update_groups<CORE_VEC_F32>, u, a->met,
                                groups, wide);
    }
}
