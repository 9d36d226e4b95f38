/* update.cu: the fused update.
 * A warp updates groups of 256 parameters (by global index), which share 16 Philox counters and,
 * with 8-bit moments, a scale per moment. Partial or unaligned groups go element by element. */
#include "kernels/cuda/update.cuh"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"

namespace
{

constexpr int THREADS = 128;
constexpr int WARP = 32;
constexpr int WARPS = THREADS / WARP;
constexpr int BLOCKS_MIN = 7; /* blocks per multiprocessor, for dense groups */
constexpr int HALVES = 2;
constexpr int QUAD = 4;   /* of a lane in each half */
constexpr int PAIR = 2;   /* groups whose words a warp draws at once */
constexpr int WORDS = 64; /* of a group; each serves two elements in both halves (chance_of) */

/* Four consecutive elements. DENSE groups are whole and aligned, so that all loads are in flight at
 * once. */
struct quad {
    int64_t i;     /* in the arrays; negative if the arrays begin later */
    uint32_t live; /* bit j: element i + j is in the arrays */
};

/* A quad of any type, as in memory. */
union raw {
    uint4 four;
    uint2 two;
    uint32_t one;
    uint32_t words[QUAD];
    uint16_t halves[QUAD];
    uint8_t bytes[QUAD];
};

template <int BYTES, bool DENSE> __device__ void raw_load(raw &to, const void *base, const quad &q)
{
    if (DENSE) {
        const char *from = static_cast<const char *>(base) + q.i * BYTES;
        if (BYTES == 4) {
            to.four = *reinterpret_cast<const uint4 *>(from);
        } else if (BYTES == 2) {
            to.two = *reinterpret_cast<const uint2 *>(from);
        } else {
            to.one = *reinterpret_cast<const uint32_t *>(from);
        }
    } else {
        to.four = {0, 0, 0, 0};
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            if (!(q.live >> j & 1)) {
                continue;
            }
            if (BYTES == 4) {
                to.words[j] = static_cast<const uint32_t *>(base)[q.i + j];
            } else if (BYTES == 2) {
                to.halves[j] = static_cast<const uint16_t *>(base)[q.i + j];
            } else {
                to.bytes[j] = static_cast<const uint8_t *>(base)[q.i + j];
            }
        }
    }
}

template <int BYTES, bool DENSE>
__device__ void raw_store(const raw &from, void *base, const quad &q)
{
    if (DENSE) {
        char *to = static_cast<char *>(base) + q.i * BYTES;
        if (BYTES == 4) {
            *reinterpret_cast<uint4 *>(to) = from.four;
        } else if (BYTES == 2) {
            const uint32_t first = from.halves[0] | static_cast<uint32_t>(from.halves[1]) << 16;
            const uint32_t second = from.halves[2] | static_cast<uint32_t>(from.halves[3]) << 16;
            *reinterpret_cast<uint2 *>(to) = {first, second};
        } else {
            *reinterpret_cast<uint32_t *>(to) = from.one;
        }
    } else {
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            if (!(q.live >> j & 1)) {
                continue;
            }
            if (BYTES == 4) {
                static_cast<uint32_t *>(base)[q.i + j] = from.words[j];
            } else if (BYTES == 2) {
                static_cast<uint16_t *>(base)[q.i + j] = from.halves[j];
            } else {
                static_cast<uint8_t *>(base)[q.i + j] = from.bytes[j];
            }
        }
    }
}

template <int BYTES, bool DENSE>
__device__ void halves_load(raw (&to)[HALVES], const void *base, const quad (&q)[HALVES])
{
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        raw_load<BYTES, DENSE>(to[h], base, q[h]);
    }
}

template <typename T> __device__ float element(const raw &from, int j)
{
    if constexpr (sizeof(typename T::store) == 4) {
        return T::widen(from.words[j]);
    } else {
        return T::widen(from.halves[j]);
    }
}

template <typename T>
__device__ void halves_widen(float (&to)[HALVES][QUAD], const raw (&from)[HALVES])
{
#pragma unroll
    for (int i = 0; i < HALVES * QUAD; i++) {
        to[i / QUAD][i % QUAD] = element<T>(from[i / QUAD], i % QUAD);
    }
}

__device__ constexpr bool has_m(core_update_rule rule)
{
    return rule != CORE_UPDATE_ADAGRAD;
}

__device__ constexpr bool has_v(core_update_rule rule)
{
    return rule != CORE_UPDATE_LION && rule != CORE_UPDATE_SGD;
}

/* ---- Master and working weight ---- */

__device__ uint32_t size_of(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

constexpr uint32_t INFINITE = 0x7f800000u; /* larger sizes are NaN */

/* Returns the bits of the largest magnitude; above INFINITE: NaN. */
__device__ uint32_t sizes_max(const float (&x)[HALVES][QUAD])
{
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < HALVES * QUAD; i++) {
        most = max(most, size_of(x[i / QUAD][i % QUAD]));
    }
    return most;
}

/* Replaces NaNs by the quiet one of their sign; `most` is sizes_max(x). */
__device__ void canonical(float (&x)[HALVES][QUAD], uint32_t most)
{
    if (most <= INFINITE) {
        return;
    }
#pragma unroll
    for (int i = 0; i < HALVES * QUAD; i++) {
        float &value = x[i / QUAD][i % QUAD];
        const uint32_t nan = (__float_as_uint(value) & 0x80000000u) | 0x7fc00000u;
        value = size_of(value) > INFINITE ? __uint_as_float(nan) : value;
    }
}

/* The weights before the update: fp32, or halves. */
struct master {
    raw high[HALVES]; /* high halves, or all 32 bits */
    raw low[HALVES];
};

template <bool DENSE>
__device__ void master_load(master &to, const core_update_args &u, const quad (&q)[HALVES])
{
    if (u.master == CORE_UPDATE_MASTER_SPLIT) {
        halves_load<2, DENSE>(to.high, u.w16, q);
        halves_load<2, DENSE>(to.low, u.lo16, q);
    } else {
        halves_load<4, DENSE>(to.high, u.w32, q);
    }
}

/* Joins halves as integers, so that NaNs keep their payload. */
__device__ void master_widen(float (&p)[HALVES][QUAD], const master &from, bool split)
{
#pragma unroll
    for (int i = 0; i < HALVES * QUAD; i++) {
        const int h = i / QUAD;
        const int j = i % QUAD;
        if (split) {
            const int32_t low = static_cast<int16_t>(from.low[h].halves[j]);
            const uint32_t high = static_cast<uint32_t>(from.high[h].halves[j]) << 16;
            p[h][j] = __uint_as_float(high + static_cast<uint32_t>(low));
        } else {
            p[h][j] = __uint_as_float(from.high[h].words[j]);
        }
    }
}

/* With a split master, NaNs are canonical already. */
template <bool DENSE>
__device__ void master_store(const float (&p)[QUAD], const core_update_args &u, const quad &q)
{
    raw out;
    if (u.master == CORE_UPDATE_MASTER_SPLIT) {
        raw low;
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            const uint32_t bits = __float_as_uint(p[j]);
            out.halves[j] = static_cast<uint16_t>((bits + 0x8000u) >> 16);
            low.halves[j] = static_cast<uint16_t>(bits);
        }
        raw_store<2, DENSE>(out, u.w16, q);
        raw_store<2, DENSE>(low, u.lo16, q);
        return;
    }
#pragma unroll
    for (int j = 0; j < QUAD; j++) {
        out.words[j] = __float_as_uint(p[j]);
    }
    raw_store<4, DENSE>(out, u.w32, q);
    if (u.master == CORE_UPDATE_MASTER_F32) {
        return;
    }
#pragma unroll
    for (int j = 0; j < QUAD; j++) {
        out.halves[j] = u.master == CORE_UPDATE_MASTER_BF16 ? kern_bf16::narrow(p[j])
                                                            : kern_fp16::narrow(p[j]);
    }
    raw_store<2, DENSE>(out, u.w16, q);
}

/* Returns the core_nonfinite_flags of the largest gradient and weight. */
__device__ uint32_t met_of(core_update_master master, uint32_t gradient, uint32_t weight)
{
    const uint32_t limit = master == CORE_UPDATE_MASTER_FP16  ? 0x477ff000u
                           : master == CORE_UPDATE_MASTER_F32 ? INFINITE
                                                              : 0x7f7f8000u;
    return (gradient >= INFINITE ? CORE_NONFINITE_GRADIENT : 0) |
           (weight >= INFINITE ? CORE_NONFINITE_MASTER : 0) |
           (weight >= limit ? CORE_NONFINITE_WORKING : 0);
}

/* ---- Moments ---- */

/* Returns 16 random bits for element j of this lane's quad in `half`. */
__device__ uint32_t chance_of(const uint32_t (&words)[2], int half, int j)
{
    const uint32_t word = half == 0 ? words[j / 2] : words[j / 2] << 8 | words[j / 2] >> 24;
    return j % 2 == 0 ? word & 0xffffu : word >> 16;
}

/* One moment of this lane, in fp32. */
struct moment {
    float x[HALVES][QUAD];
};

template <core_update_type MOMENTS>
constexpr int moment_bytes = MOMENTS == CORE_UPDATE_Q8     ? 1
                             : MOMENTS == CORE_UPDATE_BF16 ? 2
                                                           : 4;

template <core_update_type MOMENTS, bool SIGNED>
__device__ void moment_widen(moment &to, const raw (&from)[HALVES], float unit)
{
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            if (MOMENTS == CORE_UPDATE_Q8) {
                const uint32_t code = from[h].one >> 8 * j & 0xffu;
                to.x[h][j] = SIGNED ? kern_q8_m_value(code, unit)
                                    : kern_q8_value(code, KERN_Q8_V_C, unit);
            } else if (MOMENTS == CORE_UPDATE_BF16) {
                to.x[h][j] = element<kern_bf16>(from[h], j);
            } else {
                to.x[h][j] = element<kern_f32>(from[h], j);
            }
        }
    }
}

/* Returns a block's largest magnitude, at least KERN_Q8_SCALE_MIN. `most`: bits of this lane's
 * largest; NaN is above infinity. */
__device__ float block_scale(uint32_t most)
{
    const float largest = __uint_as_float(__reduce_max_sync(0xffffffffu, most));
    return largest < KERN_Q8_SCALE_MIN ? KERN_Q8_SCALE_MIN : largest;
}

struct both {
    float m, v;
};

/* Computes one quotient in each half of the warp. */
__device__ both both_divide(const both &a, const both &b)
{
    const bool first = threadIdx.x % WARP < WARP / 2;
    const float quotient = __fdiv_rn(first ? a.m : a.v, first ? b.m : b.v);
    return {__shfl_sync(0xffffffffu, quotient, 0), __shfl_sync(0xffffffffu, quotient, WARP / 2)};
}

template <core_update_type MOMENTS, bool SIGNED, bool DENSE>
__device__ void moment_store(moment &from, void *base, const quad (&q)[HALVES],
                             const uint32_t (&words)[2], float rate)
{
    if (MOMENTS == CORE_UPDATE_BF16) {
        canonical(from.x, sizes_max(from.x));
    }
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        raw out;
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            const uint32_t chance = MOMENTS == CORE_UPDATE_F32 ? 0 : chance_of(words, h, j);
            const float x = from.x[h][j];
            if (MOMENTS == CORE_UPDATE_Q8) {
                out.bytes[j] = static_cast<uint8_t>(SIGNED ? kern_q8_m_code(x, rate, chance)
                                                           : kern_q8_v_code(x, rate, chance));
            } else if (MOMENTS == CORE_UPDATE_BF16) {
                out.halves[j] = static_cast<uint16_t>((__float_as_uint(x) + chance) >> 16);
            } else {
                out.words[j] = __float_as_uint(x);
            }
        }
        raw_store<moment_bytes<MOMENTS>, DENSE>(out, base, q[h]);
    }
}

/* ---- A group ---- */

/* Draws words for two groups, one in each half of the warp. Word w of position c is at w * 16 +
 * c. */
__device__ void words_draw(uint32_t (&room)[PAIR][WORDS], const core_update_args &u, uint64_t group)
{
    const unsigned lane = threadIdx.x % WARP;
    const unsigned at = lane % (WORDS / 4);
    uint32_t(&to)[WORDS] = room[lane / (WORDS / 4)];
    const uint4 drawn = kern_philox(u.seed, u.stream, group * (WORDS / 4) + lane);
    to[at] = drawn.x;
    to[WORDS / 4 + at] = drawn.y;
    to[WORDS / 2 + at] = drawn.z;
    to[3 * (WORDS / 4) + at] = drawn.w;
    __syncwarp();
}

__device__ quad quad_of(const core_update_args &u, uint64_t group, int half)
{
    quad q;
    q.i = static_cast<int64_t>(group * CORE_UPDATE_GROUP - u.first) +
          half * (CORE_UPDATE_GROUP / HALVES) + threadIdx.x % WARP * QUAD;
    q.live = 0;
#pragma unroll
    for (int j = 0; j < QUAD; j++) {
        const bool lives = q.i + j >= 0 && q.i + j < static_cast<int64_t>(u.count);
        q.live |= lives ? 1u << j : 0u;
    }
    return q;
}

__device__ void gradients_widen(float (&g)[HALVES][QUAD], const raw (&from)[HALVES],
                                core_update_type type)
{
    if (type == CORE_UPDATE_BF16) {
        halves_widen<kern_bf16>(g, from);
    } else if (type == CORE_UPDATE_FP16) {
        halves_widen<kern_fp16>(g, from);
    } else {
        halves_widen<kern_f32>(g, from);
    }
}

/* `index` counts from the first group that the arrays touch. */
template <core_update_type MOMENTS, core_update_rule RULE, bool DENSE>
__device__ uint32_t update_group(const core_update_args &u, uint64_t index,
                                 const uint32_t (&room)[WORDS])
{
    const uint64_t group = u.first / CORE_UPDATE_GROUP + index;
    const quad q[HALVES] = {quad_of(u, group, 0), quad_of(u, group, 1)};
    raw m_raw[HALVES];
    raw v_raw[HALVES];
    raw g_raw[HALVES];
    master weights;
    both scales = {0.0f, 0.0f};
    const both tops = {KERN_Q8_M_TOP, KERN_Q8_V_TOP};
    if (has_m(RULE)) {
        scales.m = MOMENTS == CORE_UPDATE_Q8 ? u.m_scale[index] : 0.0f;
        halves_load<moment_bytes<MOMENTS>, DENSE>(m_raw, u.m, q);
    }
    if (has_v(RULE)) {
        scales.v = MOMENTS == CORE_UPDATE_Q8 ? u.v_scale[index] : 0.0f;
        halves_load<moment_bytes<MOMENTS>, DENSE>(v_raw, u.v, q);
    }
    if (u.gradients == CORE_UPDATE_F32) {
        halves_load<4, DENSE>(g_raw, u.g, q);
    } else {
        halves_load<2, DENSE>(g_raw, u.g, q);
    }
    master_load<DENSE>(weights, u, q);
    uint32_t words[2] = {0, 0};
    /* Reads the words of elements 4 l .. 4 l + 3, l being the lane. */
    if (MOMENTS != CORE_UPDATE_F32) {
        words[0] = room[threadIdx.x % WARP * 2];
        words[1] = room[threadIdx.x % WARP * 2 + 1];
    }
    moment m = {};
    moment v = {};
    const both units = MOMENTS == CORE_UPDATE_Q8 ? both_divide(scales, tops) : scales;
    if (has_m(RULE)) {
        moment_widen<MOMENTS, true>(m, m_raw, units.m);
    }
    if (has_v(RULE)) {
        moment_widen<MOMENTS, false>(v, v_raw, units.v);
    }
    float g[HALVES][QUAD];
    float p[HALVES][QUAD];
    gradients_widen(g, g_raw, u.gradients);
    master_widen(p, weights, u.master == CORE_UPDATE_MASTER_SPLIT);
#pragma unroll
    for (int i = 0; i < HALVES * QUAD; i++) { /* zeros outside the arrays */
        const int h = i / QUAD;
        const int j = i % QUAD;
        kern_element e = {p[h][j], m.x[h][j], v.x[h][j]};
        const bool lives = DENSE || (q[h].live >> j & 1);
        g[h][j] = lives ? g[h][j] * u.scalars.gradient_scale : 0.0f;
        kern_apply(RULE, e, g[h][j], u.scalars);
        p[h][j] = lives ? e.p : 0.0f;
        m.x[h][j] = lives ? e.m : 0.0f;
        v.x[h][j] = lives ? e.v : 0.0f;
    }
    const uint32_t most = sizes_max(p);
    const uint32_t found = met_of(u.master, sizes_max(g), most);
    if (u.master == CORE_UPDATE_MASTER_SPLIT) {
        canonical(p, most);
    }
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        master_store<DENSE>(p[h], u, q[h]);
    }
    both rates = {0.0f, 0.0f};
    if (MOMENTS == CORE_UPDATE_Q8) {
        scales = {block_scale(sizes_max(m.x)), block_scale(sizes_max(v.x))};
        rates = both_divide(tops, scales);
        if (has_m(RULE) && threadIdx.x % WARP == 0) {
            u.m_scale[index] = scales.m;
        }
        if (has_v(RULE) && threadIdx.x % WARP == 0) {
            u.v_scale[index] = scales.v;
        }
    }
    if (has_m(RULE)) {
        moment_store<MOMENTS, true, DENSE>(m, u.m, q, words, rates.m);
    }
    if (has_v(RULE)) {
        moment_store<MOMENTS, false, DENSE>(v, u.v, q, words, rates.v);
    }
    return found;
}

/* Updates groups, counted from the first that the arrays touch. A warp takes PAIR of them in
 * turn. */
template <core_update_type MOMENTS, core_update_rule RULE, bool DENSE>
__global__ void __launch_bounds__(THREADS, DENSE ? BLOCKS_MIN : 1)
    update_groups(struct core_update_args u, uint32_t *met, uint64_t begin, uint64_t end)
{
    __shared__ uint32_t rooms[WARPS][PAIR][WORDS];
    const uint64_t warp = static_cast<uint64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP;
    const uint64_t first = begin + warp * PAIR;
    uint32_t(&room)[PAIR][WORDS] = rooms[threadIdx.x / WARP];
    uint32_t found = 0;
    if (MOMENTS != CORE_UPDATE_F32 && first < end) {
        words_draw(room, u, u.first / CORE_UPDATE_GROUP + first);
    }
#pragma unroll 1
    for (uint64_t index = first; index < first + PAIR && index < end; index++) {
        found |= update_group<MOMENTS, RULE, DENSE>(u, index, room[index - first]);
    }
    if (found != 0 && met != nullptr) {
        atomicOr(met, found);
    }
}

/* Returns whether quads can be loaded whole; true for NULL. */
bool is_dense(const struct core_update_args &u, const void *base, uint64_t bytes)
{
    const uint64_t into = u.first % CORE_UPDATE_GROUP * bytes;
    return base == nullptr || (reinterpret_cast<uintptr_t>(base) - into) % (QUAD * bytes) == 0;
}

template <core_update_type MOMENTS, core_update_rule RULE, bool DENSE>
int launch_groups(const struct dev_launch *where, const struct kern_update_arguments *a,
                  uint64_t begin, uint64_t end)
{
    const int64_t groups = static_cast<int64_t>(end - begin);
    const kern_grid grid = kern_grid_of(kern_div_up(groups, WARPS * PAIR), THREADS);
    return kern_cuda_launch(where, "update", grid, update_groups<MOMENTS, RULE, DENSE>, a->update,
                            a->met, begin, end);
}

/* Launches whole groups, then the partial ones around them. Without alignment, the second launch
 * has all groups. */
template <core_update_type MOMENTS, core_update_rule RULE>
int launch_rule(const struct dev_launch *where, const struct kern_update_arguments *a,
                uint64_t groups, bool wide)
{
    const uint64_t into = a->update.first % CORE_UPDATE_GROUP;
    const bool ends = (into + a->update.count) % CORE_UPDATE_GROUP != 0;
    const uint64_t begin = !wide ? groups : into != 0 ? 1 : 0;
    const uint64_t end = !wide ? groups : groups - (ends ? 1 : 0);
    int rc = 0;
    if (begin < end) {
        rc = launch_groups<MOMENTS, RULE, true>(where, a, begin, end);
    }
    if (rc == 0 && begin > 0) {
        rc = launch_groups<MOMENTS, RULE, false>(where, a, 0, begin < groups ? begin : groups);
    }
    if (rc == 0 && end < groups && end >= begin) {
        rc = launch_groups<MOMENTS, RULE, false>(where, a, end, groups);
    }
    return rc;
}

template <core_update_type MOMENTS>
int launch(const struct dev_launch *where, const struct kern_update_arguments *a, uint64_t groups,
           bool wide)
{
    switch (a->update.rule) {
    case CORE_UPDATE_ADAM: return launch_rule<MOMENTS, CORE_UPDATE_ADAM>(where, a, groups, wide);
    case CORE_UPDATE_ADAMW: return launch_rule<MOMENTS, CORE_UPDATE_ADAMW>(where, a, groups, wide);
    case CORE_UPDATE_LION: return launch_rule<MOMENTS, CORE_UPDATE_LION>(where, a, groups, wide);
    case CORE_UPDATE_ADAGRAD:
        return launch_rule<MOMENTS, CORE_UPDATE_ADAGRAD>(where, a, groups, wide);
    case CORE_UPDATE_SGD: return launch_rule<MOMENTS, CORE_UPDATE_SGD>(where, a, groups, wide);
    case CORE_UPDATE_RULES: break; /* refused by check */
    }
    return 0;
}

uint64_t bytes_of(enum core_update_type type)
{
    return type == CORE_UPDATE_F32 ? 4 : type == CORE_UPDATE_Q8 ? 1 : 2;
}

int check(const struct core_update_args &u)
{
    const bool moments = u.moments == CORE_UPDATE_F32 || u.moments == CORE_UPDATE_BF16 ||
                         u.moments == CORE_UPDATE_Q8;
    if (static_cast<unsigned>(u.rule) >= CORE_UPDATE_RULES ||
        static_cast<unsigned>(u.master) > CORE_UPDATE_MASTER_F32 ||
        static_cast<unsigned>(u.gradients) > CORE_UPDATE_FP16 || !moments) {
        return core_err_set(-EINVAL,
                            "op update has no rule %d with master %d, gradients %d and "
                            "moments %d",
                            (int)u.rule, (int)u.master, (int)u.gradients, (int)u.moments);
    }
    if (u.moments == CORE_UPDATE_Q8 && u.first % CORE_UPDATE_Q8_BLOCK != 0) {
        return core_err_set(-EINVAL, "op update begins at element %llu, within a block of %d",
                            (unsigned long long)u.first, CORE_UPDATE_Q8_BLOCK);
    }
    return 0;
}

} // namespace

extern "C" int kern_cuda_update(const struct dev_launch *where,
                                const struct kern_update_arguments *a)
{
    const struct core_update_args &u = a->update;
    int rc = check(u);
    if (rc != 0 || u.count == 0) {
        return rc;
    }
    const bool wide = is_dense(u, u.w16, 2) && is_dense(u, u.lo16, 2) && is_dense(u, u.w32, 4) &&
                      is_dense(u, u.g, bytes_of(u.gradients)) &&
                      is_dense(u, u.m, bytes_of(u.moments)) &&
                      is_dense(u, u.v, bytes_of(u.moments));
    const uint64_t groups = (u.first + u.count - 1) / CORE_UPDATE_GROUP -
                            u.first / CORE_UPDATE_GROUP + 1;
    switch (u.moments) {
    case CORE_UPDATE_BF16: return launch<CORE_UPDATE_BF16>(where, a, groups, wide);
    case CORE_UPDATE_Q8: return launch<CORE_UPDATE_Q8>(where, a, groups, wide);
    default: return launch<CORE_UPDATE_F32>(where, a, groups, wide);
    }
}
