/* squares.cu: sums of squares, tile by tile, with the bits of cpu_adam. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"

namespace
{

constexpr int THREADS = 64; /* small blocks spread over more multiprocessors */
constexpr int WARP = 32;
constexpr int64_t TILE = CORE_UPDATE_TILE;
constexpr int AHEAD = 32; /* loads in flight while as many values are added */

static_assert(TILE % (2 * WARP * AHEAD) == 0, "a whole tile is read in pairs of batches");

/* Loads a lane's part of AHEAD rows of 32 elements; a WHOLE tile has all of them. */
template <typename T, bool WHOLE>
__device__ void batch_load(typename T::store (&to)[AHEAD], const typename T::store *x, int64_t i,
                           int64_t count)
{
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
        to[k] = WHOLE || i + k * WARP < count ? x[i + k * WARP] : typename T::store(0);
    }
}

template <typename T> __device__ void batch_add(double &sum, const typename T::store (&from)[AHEAD])
{
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
        const double wide = static_cast<double>(T::widen(from[k]));
        sum = __fma_rn(wide, wide, sum);
    }
}

/* Lane l adds the squares of elements l, l + 32, ... in order. */
template <typename T, bool WHOLE>
__device__ double lane_sum(const typename T::store *x, int64_t count)
{
    constexpr int64_t BATCH = WARP * AHEAD;
    const int64_t lane = threadIdx.x % WARP;
    double sum = 0.0;
    typename T::store even[AHEAD];
    typename T::store odd[AHEAD];
    batch_load<T, WHOLE>(even, x, lane, count);
    for (int64_t i = lane; i < count; i += 2 * BATCH) {
        batch_load<T, WHOLE>(odd, x, i + BATCH, count);
        batch_add<T>(sum, even);
        if (!WHOLE || i + 2 * BATCH < TILE) {
            batch_load<T, WHOLE>(even, x, i + 2 * BATCH, count);
        }
        batch_add<T>(sum, odd);
    }
    return sum;
}

template <typename T>
__global__ void __launch_bounds__(THREADS) tile_squares(struct core_squares_args a, int64_t tiles)
{
    const int64_t tile = static_cast<int64_t>(blockIdx.x) * (THREADS / WARP) + threadIdx.x / WARP;
    if (tile >= tiles) {
        return;
    }
    const int64_t begin = tile * TILE;
    const int64_t rest = static_cast<int64_t>(a.count) - begin;
    const typename T::store *x = static_cast<const typename T::store *>(a.x) + begin;
    double sum = rest >= TILE ? lane_sum<T, true>(x, TILE) : lane_sum<T, false>(x, rest);
#pragma unroll
    for (int half = WARP / 2; half > 0; half /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, half);
    }
    if (threadIdx.x % WARP == 0) {
        a.sums[tile] = sum;
    }
}

static_assert(static_cast<int>(CORE_UPDATE_F32) == static_cast<int>(KERN_F32) &&
                  static_cast<int>(CORE_UPDATE_BF16) == static_cast<int>(KERN_BF16) &&
                  static_cast<int>(CORE_UPDATE_FP16) == static_cast<int>(KERN_FP16) &&
                  static_cast<int>(CORE_UPDATE_Q8) > static_cast<int>(KERN_FP16),
              "the type of squares is looked up as a type of the ops");

} // namespace

extern "C" int kern_cuda_squares(const struct dev_launch *where, const struct core_squares_args *a)
{
    const int64_t tiles = kern_div_up(static_cast<int64_t>(a->count), CORE_UPDATE_TILE);
    const kern_grid grid = kern_grid_of(kern_div_up(tiles, THREADS / WARP), THREADS);
    if (a->first % CORE_UPDATE_TILE != 0) {
        return core_err_set(-EINVAL, "op squares begins at element %llu, within a tile of %d",
                            (unsigned long long)a->first, CORE_UPDATE_TILE);
    }
    return kern_by_type("squares", static_cast<enum kern_type>(a->type), [&](auto type) {
        return kern_cuda_launch(where, "squares", grid, tile_squares<decltype(type)>, *a, tiles);
    });
}
