/* cast.cu: arrays of fp32, bf16 and fp16 from one type to another.
 * Bound by memory: a thread moves GROUP elements at a time in accesses of 16 bytes and has UNROLL of
 * them in flight. Arrays that cannot both be aligned by leaving out a few elements at the front go
 * one element at a time. Reads an element before it writes it, so arrays of equal width may be the
 * same. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/half.cuh"
#include "kernels/cuda/launch.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int GROUP = 8;
constexpr int UNROLL = 4;
constexpr int BLOCK_ELEMENTS = THREADS * GROUP * UNROLL;

/* GROUP elements as they lie in memory: one or two accesses of 16 bytes. */
template <typename Store> union group {
    uint4 words[GROUP * sizeof(Store) / sizeof(uint4)];
    Store elements[GROUP];
};

template <typename Store> __device__ void load(group<Store> &to, const Store *from)
{
#pragma unroll
    for (unsigned i = 0; i < GROUP * sizeof(Store) / sizeof(uint4); i++) {
        to.words[i] = reinterpret_cast<const uint4 *>(from)[i];
    }
}

template <typename Store> __device__ void store(Store *to, const group<Store> &from)
{
#pragma unroll
    for (unsigned i = 0; i < GROUP * sizeof(Store) / sizeof(uint4); i++) {
        reinterpret_cast<uint4 *>(to)[i] = from.words[i];
    }
}

/* `count` elements from `head` on go by groups, as many as are whole; the head and the rest are the
 * first block's first threads'. */
template <typename From, typename To>
__global__ void __launch_bounds__(THREADS)
    cast_groups(const typename From::store *from, typename To::store *to, uint64_t count,
                uint32_t head)
{
    uint64_t groups = (count - head) / GROUP;
    uint64_t first = static_cast<uint64_t>(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
    group<typename From::store> in[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        uint64_t index = first + static_cast<uint64_t>(k) * THREADS;
        if (index < groups) {
            load(in[k], from + head + index * GROUP);
        }
    }
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        uint64_t index = first + static_cast<uint64_t>(k) * THREADS;
        if (index < groups) {
            group<typename To::store> out;
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                out.elements[i] = To::narrow(From::widen(in[k].elements[i]));
            }
            store(to + head + index * GROUP, out);
        }
    }
    uint64_t rest = count - groups * GROUP;
    if (blockIdx.x == 0 && threadIdx.x < rest) {
        uint64_t index = threadIdx.x < head ? threadIdx.x : groups * GROUP + threadIdx.x;
        to[index] = To::narrow(From::widen(from[index]));
    }
}

template <typename From, typename To>
__global__ void __launch_bounds__(THREADS)
    cast_elements(const typename From::store *from, typename To::store *to, uint64_t count)
{
    uint64_t first = static_cast<uint64_t>(blockIdx.x) * BLOCK_ELEMENTS + threadIdx.x;
    for (int k = 0; k < GROUP * UNROLL; k++) {
        uint64_t index = first + static_cast<uint64_t>(k) * THREADS;
        if (index < count) {
            to[index] = To::narrow(From::widen(from[index]));
        }
    }
}

/* Elements to leave out until the address is a multiple of 16 bytes. */
uint32_t elements_to_alignment(const void *at, size_t bytes)
{
    size_t past = reinterpret_cast<uintptr_t>(at) % sizeof(uint4);
    return static_cast<uint32_t>((sizeof(uint4) - past) % sizeof(uint4) / bytes);
}

template <typename From, typename To>
int launch(const struct dev_launch *where, const struct core_vec_cast *a)
{
    auto from = static_cast<const typename From::store *>(a->from);
    auto to = static_cast<typename To::store *>(a->to);
    const kern_grid grid = kern_grid_of(kern_div_up(static_cast<int64_t>(a->count), BLOCK_ELEMENTS),
                                        THREADS);
    /* The narrower side decides: what aligns it aligns the wider one, or nothing does. */
    uint32_t head = sizeof *from < sizeof *to ? elements_to_alignment(from, sizeof *from)
                                              : elements_to_alignment(to, sizeof *to);
    bool aligned = head <= a->count && elements_to_alignment(from + head, sizeof *from) == 0 &&
                   elements_to_alignment(to + head, sizeof *to) == 0;
    return aligned
               ? kern_cuda_launch(where, "cast", grid, cast_groups<From, To>, from, to, a->count,
                                  head)
               : kern_cuda_launch(where, "cast", grid, cast_elements<From, To>, from, to, a->count);
}

template <typename From>
int launch_to(const struct dev_launch *where, const struct core_vec_cast *a)
{
    switch (a->to_type) {
    case CORE_VEC_F32: return launch<From, kern_f32>(where, a);
    case CORE_VEC_BF16: return launch<From, kern_bf16>(where, a);
    case CORE_VEC_FP16: return launch<From, kern_fp16>(where, a);
    default: return core_err_set(-EINVAL, "op cast writes fp32, bf16 and fp16");
    }
}

} // namespace

extern "C" int kern_cuda_cast(const struct dev_launch *where, const struct core_vec_cast *a)
{
    if (a->count == 0) {
        return 0;
    }
    switch (a->from_type) {
    case CORE_VEC_F32: return launch_to<kern_f32>(where, a);
    case CORE_VEC_BF16: return launch_to<kern_bf16>(where, a);
    case CORE_VEC_FP16: return launch_to<kern_fp16>(where, a);
    default: return core_err_set(-EINVAL, "op cast reads fp32, bf16 and fp16");
    }
}
