/* sum.cu: sums of several ranks' arrays, with the bits of core/coll/sum.c. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{

constexpr int THREADS = 256;

template <typename T>
__global__ void __launch_bounds__(THREADS) rank_sums(struct core_sum_args a, bool wide)
{
    const int64_t i = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * KERN_GROUP;
    const int64_t left = static_cast<int64_t>(a.count) - i;
    const int64_t stride = static_cast<int64_t>(a.stride);
    float sum[KERN_GROUP];
    if (left <= 0) {
        return;
    }
    for (uint32_t rank = 0; rank < a.ranks; rank++) {
        const int64_t before = (rank < a.own ? rank : rank - 1) * stride;
        const bool own = rank == a.own;
        float next[KERN_GROUP];
        kern_load<T>(next, own ? a.from : a.others, own ? i : before + i, left, wide);
#pragma unroll
        for (int k = 0; k < KERN_GROUP; k++) {
            sum[k] = rank == 0 ? next[k] : sum[k] + next[k];
        }
    }
    kern_store<T>(sum, a.to, i, left, wide);
}

bool is_wide(const struct core_sum_args &a, size_t bytes)
{
    const uintptr_t all = reinterpret_cast<uintptr_t>(a.from) | reinterpret_cast<uintptr_t>(a.to) |
                          reinterpret_cast<uintptr_t>(a.others) | a.stride * bytes;
    return all % sizeof(uint4) == 0;
}

} // namespace

extern "C" int kern_cuda_sum(const struct dev_launch *where, const struct core_sum_args *a)
{
    const int64_t groups = kern_div_up(static_cast<int64_t>(a->count), KERN_GROUP);
    const kern_grid grid = kern_grid_of(kern_div_up(groups, THREADS), THREADS);
    if (a->own >= a->ranks) {
        return core_err_set(-EINVAL, "op sum: rank %u does not exist; there are %u ranks", a->own,
                            a->ranks);
    }
    return kern_by_type("sum", static_cast<enum kern_type>(a->type), [&](auto type) {
        using element = decltype(type);
        return kern_cuda_launch(where, "sum", grid, rank_sums<element>, *a,
                                is_wide(*a, sizeof(typename element::store)));
    });
}
