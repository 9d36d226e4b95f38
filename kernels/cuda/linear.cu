/* linear.cu: the three products of a linear layer, its bias gradient, and sums over rows. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product.h"
#include "kernels/cuda/wide.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int RUNS = 128;   /* of rows, each summed alone */
constexpr int COLUMNS = 32; /* of a block that adds up parts */
constexpr int SLICES = 32;  /* into which that block divides the rows of parts */

/* Sets parts[run][i] to the sum of column i over the run's rows. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    rows_sum(struct kern_bias_grad_arguments a, float *parts, bool wide)
{
    const int64_t i = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * KERN_GROUP;
    const int64_t left = a.n - i;
    if (left <= 0) {
        return;
    }
    const int64_t end = a.m * (blockIdx.y + 1) / RUNS;
    float sum[KERN_GROUP] = {};
    for (int64_t row = a.m * blockIdx.y / RUNS; row < end; row++) {
        float dy[KERN_GROUP];
        kern_load<T>(dy, a.dy, row * a.dy_stride + i, left, wide);
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            sum[j] += dy[j];
        }
    }
    kern_store<kern_f32>(sum, parts, blockIdx.y * a.n + i, left, a.n % 4 == 0);
}

__global__ void __launch_bounds__(COLUMNS *SLICES)
    columns_sum(const float *parts, int64_t count, int64_t width, struct kern_grad grad)
{
    __shared__ float sums[SLICES][COLUMNS];
    const int column = threadIdx.x % COLUMNS;
    const int slice = threadIdx.x / COLUMNS;
    const int64_t i = static_cast<int64_t>(blockIdx.x) * COLUMNS + column;
    float sum = 0.0f;
    if (i < width) {
#pragma unroll 4
        for (int64_t part = slice; part < count; part += SLICES) {
            sum += parts[part * width + i];
        }
    }
    sums[slice][column] = sum;
    __syncthreads();
    if (slice == 0 && i < width) {
#pragma unroll
        for (int s = 1; s < SLICES; s++) {
            sum += sums[s][column];
        }
        kern_grad_put(grad, i, sum);
    }
}

} // namespace

int kern_cuda_columns_finish(const struct dev_launch *where, const char *op, const float *parts,
                             int64_t count, int64_t width, const struct kern_grad *grad)
{
    const kern_grid grid = kern_grid_of(kern_div_up(width, COLUMNS), COLUMNS * SLICES);
    return kern_cuda_launch(where, op, grid, columns_sum, parts, count, width, *grad);
}

extern "C" size_t kern_cuda_linear_bytes(const struct kern_linear_arguments *a)
{
    (void)a;
    return KERN_CUDA_WORKSPACE_BYTES;
}

extern "C" int kern_cuda_linear(const struct dev_launch *where,
                                const struct kern_linear_arguments *a)
{
    struct kern_cuda_product product = {};
    product.type = a->type;
    product.m = a->m;
    product.n = a->n;
    product.k = a->k;
    product.a = a->x;
    product.a_stride = a->x_stride;
    product.b = a->w;
    product.b_stride = a->k;
    product.b_turned = true;
    product.bias = a->bias;
    product.out = a->y;
    product.out_type = a->type;
    product.out_stride = a->y_stride;
    product.scale = a->scale;
    product.onto = a->onto;
    return kern_cuda_product(where, "linear", &product);
}

extern "C" size_t
kern_cuda_linear_grad_input_bytes(const struct kern_linear_grad_input_arguments *a)
{
    const bool whole = a->first && a->last;
    return KERN_CUDA_WORKSPACE_BYTES + (whole ? 0 : kern_cuda_product_sum_bytes(a->m, a->k));
}

extern "C" int kern_cuda_linear_grad_input(const struct dev_launch *where,
                                           const struct kern_linear_grad_input_arguments *a)
{
    struct kern_cuda_product product = {};
    product.type = a->type;
    product.m = a->m;
    product.n = a->k;
    product.k = a->n;
    product.a = a->dy;
    product.a_stride = a->dy_stride;
    product.b = a->w;
    product.b_stride = a->k;
    product.out = a->dx;
    product.out_type = a->type;
    product.out_stride = a->dx_stride;
    product.scale = a->scale;
    if (a->first && a->last) {
        return kern_cuda_product(where, "linear_grad_input", &product);
    }
    struct kern_cuda_finish finish = {};
    finish.width = a->k;
    finish.sum = a->sum;
    finish.first = a->first;
    finish.out = a->last ? a->dx : nullptr;
    finish.out_type = a->type;
    finish.out_stride = a->dx_stride;
    return kern_cuda_product_sum(where, "linear_grad_input", &product, &finish, where->scratch);
}

extern "C" size_t
kern_cuda_linear_grad_weight_bytes(const struct kern_linear_grad_weight_arguments *a)
{
    return KERN_CUDA_WORKSPACE_BYTES + kern_cuda_product_sum_bytes(a->n, a->k);
}

extern "C" int kern_cuda_linear_grad_weight(const struct dev_launch *where,
                                            const struct kern_linear_grad_weight_arguments *a)
{
    if (!kern_grad_wanted(a->dw)) {
        return 0;
    }
    struct kern_cuda_product product = {};
    product.type = a->type;
    product.m = a->n;
    product.n = a->k;
    product.k = a->m;
    product.a = a->dy;
    product.a_stride = a->dy_stride;
    product.a_turned = true;
    product.b = a->x;
    product.b_stride = a->x_stride;
    const struct kern_cuda_finish finish = kern_cuda_finish_grad(&a->dw, a->k);
    return kern_cuda_product_sum(where, "linear_grad_weight", &product, &finish, where->scratch);
}

extern "C" size_t kern_cuda_bias_grad_bytes(const struct kern_bias_grad_arguments *a)
{
    return RUNS * static_cast<size_t>(a->n) * sizeof(float);
}

extern "C" int kern_cuda_bias_grad(const struct dev_launch *where,
                                   const struct kern_bias_grad_arguments *a)
{
    if (!kern_grad_wanted(a->db)) {
        return 0;
    }
    float *parts = static_cast<float *>(where->scratch);
    const bool wide = kern_is_wide(a->type, a->dy, a->dy_stride);
    const kern_grid grid = {.blocks = kern_div_up(a->n, THREADS * KERN_GROUP),
                            .threads = THREADS,
                            .lines = RUNS,
                            .shared_bytes = 0};
    int rc = kern_by_type("bias_grad", a->type, [&](auto type) {
        return kern_cuda_launch(where, "bias_grad", grid, rows_sum<decltype(type)>, *a, parts,
                                wide);
    });
    return rc != 0 ? rc : kern_cuda_columns_finish(where, "bias_grad", parts, RUNS, a->n, &a->db);
}
