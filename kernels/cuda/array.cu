/* array.cu: what runs over long arrays beside the update: tile sums of squares, axpy, scale and the
 * search for numbers that are not finite. The bits are those of cpu_adam. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int WARP = 32;
constexpr int64_t TILE = CORE_VEC_TILE;
constexpr int AHEAD = 16; /* loads of a thread in flight */

/* A warp a tile: lane l adds the squares of elements l, l + 32, ... in order. */
template <typename T>
__global__ void __launch_bounds__(THREADS) tile_squares(struct core_vec_norm a, int64_t tiles)
{
    const int64_t tile = static_cast<int64_t>(blockIdx.x) * (THREADS / WARP) + threadIdx.x / WARP;
    if (tile >= tiles) {
        return;
    }
    const int64_t begin = tile * TILE;
    const int64_t rest = static_cast<int64_t>(a.count) - begin;
    const int64_t count = rest < TILE ? rest : TILE;
    const typename T::store *x = static_cast<const typename T::store *>(a.x) + begin;
    double sum = 0.0;
    for (int64_t i = threadIdx.x % WARP; i < count; i += WARP * AHEAD) {
        typename T::store in[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            in[k] = i + k * WARP < count ? x[i + k * WARP] : typename T::store(0);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const double wide = static_cast<double>(T::widen(in[k]));
            sum = __fma_rn(wide, wide, sum);
        }
    }
#pragma unroll
    for (int half = WARP / 2; half > 0; half /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, half);
    }
    if (threadIdx.x % WARP == 0) {
        a.sums[tile] = sum;
    }
}

__device__ int64_t group_at()
{
    return (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * KERN_GROUP;
}

template <typename T>
__global__ void __launch_bounds__(THREADS) axpy_groups(struct core_vec_axpy a, bool wide)
{
    const int64_t i = group_at();
    const int64_t left = static_cast<int64_t>(a.count) - i;
    float x[KERN_GROUP];
    float y[KERN_GROUP];
    if (left <= 0) {
        return;
    }
    kern_load<T>(x, a.x, i, left, wide);
    kern_load<kern_f32>(y, a.y, i, left, wide);
#pragma unroll
    for (int j = 0; j < KERN_GROUP; j++) {
        y[j] = __fmaf_rn(x[j], a.a, y[j]);
    }
    kern_store<kern_f32>(y, a.y, i, left, wide);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) scale_groups(struct core_vec_scale a, bool wide)
{
    const int64_t i = group_at();
    const int64_t left = static_cast<int64_t>(a.count) - i;
    float x[KERN_GROUP];
    if (left <= 0) {
        return;
    }
    kern_load<T>(x, a.x, i, left, wide);
#pragma unroll
    for (int j = 0; j < KERN_GROUP; j++) {
        x[j] *= a.a;
    }
    kern_store<T>(x, a.x, i, left, wide);
}

__global__ void finite_begin(struct kern_finite_arguments a)
{
    if (threadIdx.x == 0) {
        *a.bad_count = 0;
        *a.first_bad = a.x.count;
    }
}

/* Counts and places are whole numbers: the order of the atomics does not show. */
template <typename T>
__global__ void __launch_bounds__(THREADS) finite_groups(struct kern_finite_arguments a, bool wide)
{
    const int64_t i = group_at();
    const int64_t left = static_cast<int64_t>(a.x.count) - i;
    float x[KERN_GROUP];
    if (left <= 0) {
        return;
    }
    kern_load<T>(x, a.x.x, i, left, wide);
    unsigned long long bad = 0;
    unsigned long long first = a.x.count;
#pragma unroll
    for (int j = KERN_GROUP - 1; j >= 0; j--) {
        const bool is_bad = (__float_as_uint(x[j]) & 0x7fffffffu) >= 0x7f800000u;
        bad += is_bad;
        first = is_bad ? i + j : first;
    }
    if (bad > 0) {
        atomicAdd(reinterpret_cast<unsigned long long *>(a.bad_count), bad);
        atomicMin(reinterpret_cast<unsigned long long *>(a.first_bad), first);
    }
}

kern_grid groups_of(uint64_t count)
{
    return kern_grid_of(kern_div_up(static_cast<int64_t>(count), THREADS * KERN_GROUP), THREADS);
}

} // namespace

extern "C" int kern_cuda_squares(const struct dev_launch *where, const struct core_vec_norm *a)
{
    const int64_t tiles = kern_div_up(static_cast<int64_t>(a->count), CORE_VEC_TILE);
    const kern_grid grid = kern_grid_of(kern_div_up(tiles, THREADS / WARP), THREADS);
    if (a->first % CORE_VEC_TILE != 0) {
        return core_err_set(-EINVAL, "op squares begins at element %llu, within a tile of %d",
                            (unsigned long long)a->first, CORE_VEC_TILE);
    }
    return kern_by_vec_type("squares", a->type, [&](auto type) {
        return kern_cuda_launch(where, "squares", grid, tile_squares<decltype(type)>, *a, tiles);
    });
}

extern "C" int kern_cuda_axpy(const struct dev_launch *where, const struct core_vec_axpy *a)
{
    return kern_by_vec_type("axpy", a->x_type, [&](auto type) {
        const bool wide = kern_is_wide(KERN_F32, a->x, 0) && kern_is_wide(KERN_F32, a->y, 0);
        return kern_cuda_launch(where, "axpy", groups_of(a->count), axpy_groups<decltype(type)>, *a,
                                wide);
    });
}

extern "C" int kern_cuda_scale(const struct dev_launch *where, const struct core_vec_scale *a)
{
    return kern_by_vec_type("scale", a->type, [&](auto type) {
        return kern_cuda_launch(where, "scale", groups_of(a->count), scale_groups<decltype(type)>,
                                *a, kern_is_wide(KERN_F32, a->x, 0));
    });
}

extern "C" int kern_cuda_finite(const struct dev_launch *where,
                                const struct kern_finite_arguments *a)
{
    const kern_grid one = kern_grid_of(1, WARP);
    int rc = kern_cuda_launch(where, "finite", one, finite_begin, *a);
    if (rc != 0) {
        return rc;
    }
    return kern_by_vec_type("finite", a->x.type, [&](auto type) {
        return kern_cuda_launch(where, "finite", groups_of(a->x.count),
                                finite_groups<decltype(type)>, *a,
                                kern_is_wide(KERN_F32, a->x.x, 0));
    });
}
