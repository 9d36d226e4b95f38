/* emulated.cuh: defines CUDA's keywords and functions on top of card.h; included before a .cu of
 * kernels/cuda that is compiled for the emulated card. */
#ifndef TESTS_CUDA_EMULATED_CUH
#define TESTS_CUDA_EMULATED_CUH

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <tuple>
#include <utility>

#include <cuda_runtime_api.h>

extern "C" {
#include "tests/cuda/card.h"
#include "tests/dev/fake_cuda.h"
}

#undef __shared__
#undef __launch_bounds__
#undef __forceinline__
#undef __grid_constant__
#define __shared__ static
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __grid_constant__
#define __trap __builtin_trap

struct card_index {
    unsigned x, y;
};

#define threadIdx (card_index{card_place()->thread, 0})
#define blockIdx  (card_index{card_place()->block[0], card_place()->block[1]})
#define blockDim  (card_index{card_place()->grid.threads, 1})
#define gridDim   (card_index{card_place()->grid.blocks[0], card_place()->grid.blocks[1]})

/* ---- Launches: put on the stream that fake_cuda.c emulates. ---- */

template <typename... P> struct card_call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
    card_grid grid;

    static void thread(void *closure)
    {
        const card_call *call = static_cast<const card_call *>(closure);
        std::apply(call->kernel, call->arguments);
    }
};

template <typename... P> int card_call_run(void *, const void *arguments)
{
    card_call<P...> *call;
    std::memcpy(&call, arguments, sizeof call);
    card_run(&call->grid, card_call<P...>::thread, call);
    std::free(call);
    return 0;
}

template <typename... P, size_t... I>
card_call<P...> *card_call_make(void (*kernel)(P...), void **arguments, std::index_sequence<I...>)
{
    /* Programs are linked as C, without operator new. */
    void *room = std::aligned_alloc(alignof(card_call<P...>), sizeof(card_call<P...>));
    return new (room)
        card_call<P...>{kernel, std::tuple<P...>(*static_cast<P *>(arguments[I])...), {}};
}

template <typename... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, cudaStream_t stream)
{
    card_call<P...> *call = card_call_make(kernel, arguments, std::index_sequence_for<P...>{});
    call->grid = {{grid.x, grid.y}, block.x, shared_bytes};
    fake_stream_run(stream, card_call_run<P...>, &call, sizeof call);
    return cudaSuccess;
}

/* ---- Threads that meet. ---- */

static inline void __syncthreads()
{
    card_barrier(0);
}

static inline int __syncthreads_count(int value)
{
    return card_barrier(value != 0);
}

static inline int __syncthreads_or(int value)
{
    return card_barrier(value != 0) != 0;
}

static inline unsigned card_lane()
{
    return card_place()->thread % 32;
}

/* Returns the value of lane `from` of the warp. */
template <typename V> V card_take(V mine, unsigned from)
{
    const char *all = static_cast<const char *>(card_exchange(&mine, sizeof mine));
    V taken;
    std::memcpy(&taken, all + from % 32 * sizeof taken, sizeof taken);
    return taken;
}

static inline void __syncwarp(unsigned = 0xffffffffu)
{
    card_take(0, 0);
}

template <typename V> V __shfl_sync(unsigned, V value, int lane)
{
    return card_take(value, static_cast<unsigned>(lane));
}

template <typename V> V __shfl_xor_sync(unsigned, V value, int mask)
{
    return card_take(value, card_lane() ^ static_cast<unsigned>(mask));
}

template <typename V> V __shfl_up_sync(unsigned, V value, unsigned by)
{
    return card_take(value, card_lane() >= by ? card_lane() - by : card_lane());
}

static inline unsigned __reduce_max_sync(unsigned, unsigned value)
{
    unsigned all[32];
    std::memcpy(all, card_exchange(&value, sizeof value), sizeof all);
    unsigned most = 0;
    for (int lane = 0; lane < 32; lane++) {
        most = all[lane] > most ? all[lane] : most;
    }
    return most;
}

static inline unsigned __ballot_sync(unsigned, int value)
{
    int all[32];
    std::memcpy(all, card_exchange(&value, sizeof value), sizeof all);
    unsigned votes = 0;
    for (int lane = 0; lane < 32; lane++) {
        votes |= all[lane] != 0 ? 1u << lane : 0u;
    }
    return votes;
}

template <typename V> unsigned __match_any_sync(unsigned, V value)
{
    V all[32];
    std::memcpy(all, card_exchange(&value, sizeof value), sizeof all);
    unsigned same = 0;
    for (int lane = 0; lane < 32; lane++) {
        same |= all[lane] == value ? 1u << lane : 0u;
    }
    return same;
}

/* Threads run one at a time, so plain accesses replace atomic ones. */
template <typename V, typename W> V atomicAdd(V *at, W value)
{
    const V before = *at;
    *at = before + static_cast<V>(value);
    return before;
}

static inline unsigned atomicOr(unsigned *at, unsigned value)
{
    const unsigned before = *at;
    *at = before | value;
    return before;
}

template <typename V> V atomicMin(V *at, V value)
{
    const V before = *at;
    *at = value < before ? value : before;
    return before;
}

/* ---- Numbers: rounded as IEEE says, like CUDA's functions that name a rounding. ---- */

static inline unsigned __float_as_uint(float value)
{
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float __uint_as_float(unsigned bits)
{
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

static inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}

static inline int __popc(unsigned a)
{
    return __builtin_popcount(a);
}

static inline int __ffs(int a)
{
    return __builtin_ffs(a);
}

template <typename V> V min(V a, V b)
{
    return b < a ? b : a;
}

template <typename V> V max(V a, V b)
{
    return a < b ? b : a;
}

#endif
