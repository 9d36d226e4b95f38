/* dora.cu: the ops of DoRA: norms of rows of weight plus adapter, and columns times factors. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{

constexpr int THREADS = 256;

template <typename T> __device__ float one(const void *from, int64_t index)
{
    return T::widen(static_cast<const typename T::store *>(from)[index]);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) magnitude_rows(struct kern_magnitude_arguments a)
{
    __shared__ float room[THREADS / KERN_WARP];
    const int64_t row = blockIdx.x;
    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < a.cols; i += THREADS) {
        float added = 0.0f;
        for (int64_t r = 0; r < a.rank; r++) {
            added = fmaf(one<T>(a.b, row * a.rank + r), one<T>(a.a, r * a.cols + i), added);
        }
        const float value = one<T>(a.w, row * a.cols + i) + a.scale * added;
        squares = fmaf(value, value, squares);
    }
    squares = kern_team_sum<THREADS>(squares, room);
    if (threadIdx.x == 0) {
        const float norm = T::widen(T::narrow(sqrtf(squares)));
        a.factor[row] = norm > 0.0f ? one<T>(a.magnitude, row) / norm : 1.0f;
        a.inverse[row] = norm > 0.0f ? 1.0f / norm : 0.0f;
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    columns_groups(struct kern_columns_arguments a, int64_t groups, bool wide)
{
    const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    const int64_t token = at / groups;
    const int64_t i = at % groups * KERN_GROUP;
    const int64_t left = a.width - i;
    if (token >= a.tokens) {
        return;
    }
    float x[KERN_GROUP];
    float y[KERN_GROUP];
    kern_load<T>(x, a.x, token * a.x_stride + i, left, wide);
    if (a.factor != nullptr) {
        kern_load<kern_f32>(y, a.factor, i, left, wide);
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            x[j] *= y[j];
        }
    }
    if (a.by != nullptr) {
        kern_load<T>(y, a.by, token * a.by_stride + i, left, wide);
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            x[j] *= y[j];
        }
    }
    if (a.bias != nullptr) {
        kern_load<T>(y, a.bias, i, left, wide);
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            x[j] += y[j];
        }
    }
    if (a.add != nullptr) {
        kern_load<T>(y, a.add, token * a.y_stride + i, left, wide);
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            x[j] += y[j];
        }
    }
    kern_store<T>(x, a.y, token * a.y_stride + i, left, wide);
}

} // namespace

extern "C" int kern_cuda_magnitude(const struct dev_launch *where,
                                   const struct kern_magnitude_arguments *a)
{
    return kern_by_type("magnitude", a->type, [&](auto type) {
        return kern_cuda_launch(where, "magnitude", kern_grid_of(a->rows, THREADS),
                                magnitude_rows<decltype(type)>, *a);
    });
}

extern "C" int kern_cuda_columns(const struct dev_launch *where,
                                 const struct kern_columns_arguments *a)
{
    const int64_t groups = kern_div_up(a->width, KERN_GROUP);
    const bool wide = kern_is_wide(a->type, a->x, a->x_stride) &&
                      kern_is_wide(a->type, a->y, a->y_stride) &&
                      kern_is_wide(a->type, a->by, a->by_stride) &&
                      kern_is_wide(a->type, a->add, a->y_stride) &&
                      kern_is_wide(a->type, a->bias, 0) && kern_is_wide(KERN_F32, a->factor, 0);
    return kern_by_type("columns", a->type, [&](auto type) {
        return kern_cuda_launch(where, "columns",
                                kern_grid_of(kern_div_up(a->tokens * groups, THREADS), THREADS),
                                columns_groups<decltype(type)>, *a, groups, wide);
    });
}
