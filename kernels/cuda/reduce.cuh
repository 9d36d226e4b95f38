/* reduce.cuh: sums and maxima over a warp or a block, in a fixed order, with the result in every
 * thread.
 * `room` is shared memory for one value per warp; calls without a barrier between them need
 * different rooms. */
#ifndef KERNELS_CUDA_REDUCE_CUH
#define KERNELS_CUDA_REDUCE_CUH

#include <cuda_runtime_api.h>

constexpr int KERN_WARP = 32;

/* Returns the sum over LANES consecutive lanes; all lanes of the warp must call. */
template <int LANES = KERN_WARP> __device__ inline float kern_warp_sum(float value)
{
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    return value;
}

__device__ inline float kern_warp_max(float value)
{
#pragma unroll
    for (int step = KERN_WARP / 2; step > 0; step /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}

/* Returns the sum over TEAM consecutive threads: lanes of a warp, or a block. */
template <int TEAM> __device__ inline float kern_team_sum(float value, float *room)
{
    constexpr int LANES = TEAM < KERN_WARP ? TEAM : KERN_WARP;
    value = kern_warp_sum<LANES>(value);
    if (TEAM <= KERN_WARP) {
        return value;
    }
    if (threadIdx.x % KERN_WARP == 0) {
        room[threadIdx.x / KERN_WARP] = value;
    }
    __syncthreads();
    float sum = room[0];
#pragma unroll
    for (int i = 1; i < TEAM / KERN_WARP; i++) {
        sum += room[i];
    }
    return sum;
}

template <int TEAM> __device__ inline float kern_team_max(float value, float *room)
{
    value = kern_warp_max(value);
    if (TEAM == KERN_WARP) {
        return value;
    }
    if (threadIdx.x % KERN_WARP == 0) {
        room[threadIdx.x / KERN_WARP] = value;
    }
    __syncthreads();
    float top = room[0];
#pragma unroll
    for (int i = 1; i < TEAM / KERN_WARP; i++) {
        top = fmaxf(top, room[i]);
    }
    return top;
}

#endif
