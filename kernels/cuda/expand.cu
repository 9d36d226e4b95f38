/* expand.cu: expands stored tensors of frozen weights. Operations are rounded separately, for the
 * CPU's bits. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/wide.cuh"
#include "kernels/quant.h"
#include "kernels/quant_values.h"

namespace
{

constexpr int THREADS = 256;
constexpr int NF4_CODES = 16;
constexpr float INT8_UNIT = 0x1.020408p-7f; /* 1 / 127 */

__constant__ const float nf4_values[NF4_CODES] = {KERN_NF4_VALUES};
__constant__ const float map_values[256] = {KERN_DYNAMIC_VALUES};

__device__ int64_t first_element()
{
    return (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * KERN_GROUP;
}

/* Returns the scale of block `block` of the part. a.nested[offset_at] is the offset of NF4's
 * scales. */
__device__ float scale_of(const struct kern_expand_arguments &a, int64_t offset_at, int64_t block)
{
    const uint8_t *codes = static_cast<const uint8_t *>(a.scales);
    const float *floats = static_cast<const float *>(a.scales);
    const int64_t in_tensor = a.first / KERN_NF4_BLOCK + block;
    return a.quant == KERN_QUANT_NF4
               ? map_values[codes[block]] * a.nested[in_tensor / KERN_NF4_NESTED] +
                     a.nested[offset_at]
               : floats[block];
}

/* Values are in shared memory, because threads of a warp look up different codes. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    expand_nf4(struct kern_expand_arguments a, int64_t offset_at, bool wide)
{
    __shared__ float values[NF4_CODES];
    const uint8_t *codes = static_cast<const uint8_t *>(a.codes);
    const int64_t i = first_element();
    const int64_t left = a.count - i;
    if (threadIdx.x < NF4_CODES) {
        values[threadIdx.x] = nf4_values[threadIdx.x];
    }
    __syncthreads();
    if (left <= 0) {
        return;
    }
    const float scale = scale_of(a, offset_at, i / KERN_NF4_BLOCK);
    float y[KERN_GROUP];
#pragma unroll
    for (int j = 0; j < KERN_GROUP; j += 2) {
        const uint8_t pair = j < left ? codes[(i + j) / 2] : 0;
        y[j] = values[pair >> 4] * scale;
        y[j + 1] = values[pair & 15] * scale;
    }
    kern_store<T>(y, a.y, i, left, wide);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) expand_int8(struct kern_expand_arguments a, bool wide)
{
    const int8_t *codes = static_cast<const int8_t *>(a.codes);
    const float *scales = static_cast<const float *>(a.scales);
    const int64_t i = first_element();
    const int64_t left = a.count - i;
    if (left <= 0) {
        return;
    }
    int64_t row = i / a.cols;
    int64_t column = i % a.cols;
    float y[KERN_GROUP];
#pragma unroll
    for (int j = 0; j < KERN_GROUP; j++) {
        y[j] = j < left ? static_cast<float>(codes[i + j]) * scales[row] * INT8_UNIT : 0.0f;
        column++;
        if (column == a.cols) {
            column = 0;
            row++;
        }
    }
    kern_store<T>(y, a.y, i, left, wide);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) copy(struct kern_expand_arguments a, bool wide)
{
    const int64_t i = first_element();
    const int64_t left = a.count - i;
    if (left <= 0) {
        return;
    }
    float y[KERN_GROUP];
    kern_load_any(a.from, y, a.codes, i, left, wide);
    kern_store<T>(y, a.y, i, left, wide);
}

} // namespace

extern "C" int kern_cuda_expand(const struct dev_launch *where,
                                const struct kern_expand_arguments *a)
{
    const struct kern_quant_layout layout = kern_quant_layout_of(a->quant, a->from, a->rows,
                                                                 a->cols);
    const int64_t offset_at = kern_div_up(layout.scale_count, KERN_NF4_NESTED);
    const kern_grid grid = kern_grid_of(kern_div_up(a->count, THREADS * KERN_GROUP), THREADS);
    const bool wide = kern_is_wide(a->type, a->y, 0);
    return kern_by_type("expand", a->type, [&](auto type) {
        switch (a->quant) {
        case KERN_QUANT_NF4:
        case KERN_QUANT_NF4_F32:
            return kern_cuda_launch(where, "expand", grid, expand_nf4<decltype(type)>, *a,
                                    offset_at, wide);
        case KERN_QUANT_INT8:
            return kern_cuda_launch(where, "expand", grid, expand_int8<decltype(type)>, *a, wide);
        case KERN_QUANT_NONE: break;
        }
        return kern_cuda_launch(where, "expand", grid, copy<decltype(type)>, *a,
                                wide && kern_is_wide(a->from, a->codes, 0));
    });
}
