/* launch.cuh: puts the kernels of this folder on their queue's stream. Host side. */
#ifndef KERNELS_CUDA_LAUNCH_CUH
#define KERNELS_CUDA_LAUNCH_CUH

#include <errno.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

extern "C" {
#include "core/base/err.h"
}
#include "core/dev/launch.h"
#include "kernels/cuda/half.cuh"
#include "kernels/kern.h"

/* Returns 0, or -EIO with the runtime's message. An error of a running kernel shows up at the
 * queue's next event. */
static inline int kern_cuda_launched(const char *op)
{
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) {
        return 0;
    }
    return core_err_set(-EIO, "op %s cannot be launched: %s (%s)", op, cudaGetErrorString(error),
                        cudaGetErrorName(error));
}

struct kern_grid {
    int64_t blocks; /* in x; 0: nothing is launched */
    unsigned threads;
    unsigned lines; /* blocks in y; 0: 1 */
    size_t shared_bytes;
};

/* Returns a grid of one line, without dynamic shared memory. */
static inline kern_grid kern_grid_of(int64_t blocks, unsigned threads)
{
    return {.blocks = blocks, .threads = threads, .lines = 1, .shared_bytes = 0};
}

constexpr size_t KERN_SHARED_PLAIN = 48 << 10;
constexpr unsigned KERN_LINES_MAX = 65535;

template <typename Same> struct kern_same {
    using type = Same;
};

template <typename... P>
int kern_cuda_launch(const struct dev_launch *where, const char *op, struct kern_grid grid,
                     void (*kernel)(P...), typename kern_same<P>::type... arguments)
{
    if (grid.blocks == 0) {
        return 0;
    }
    const unsigned lines = grid.lines > 0 ? grid.lines : 1;
    if (grid.blocks > INT32_MAX || lines > KERN_LINES_MAX) {
        return core_err_set(-EINVAL, "op %s is too large for one launch: %lld x %u blocks", op,
                            (long long)grid.blocks, lines);
    }
    if (grid.shared_bytes > KERN_SHARED_PLAIN &&
        cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(grid.shared_bytes)) != cudaSuccess) {
        return kern_cuda_launched(op);
    }
    void *pointers[] = {&arguments...};
    (void)cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(grid.blocks), lines),
                           dim3(grid.threads), pointers, grid.shared_bytes,
                           static_cast<cudaStream_t>(where->stream));
    return kern_cuda_launched(op);
}

/* Calls f with an object of the type's class in half.cuh. */
template <typename F> int kern_by_type(const char *op, enum kern_type type, F f)
{
    switch (type) {
    case KERN_F32: return f(kern_f32{});
    case KERN_BF16: return f(kern_bf16{});
    case KERN_FP16: return f(kern_fp16{});
    case KERN_F64: break;
    }
    return core_err_set(-EINVAL, "op %s takes fp32, bf16 and fp16", op);
}

static inline int64_t kern_div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline bool kern_grad_wanted(const struct kern_grad &grad)
{
    return grad.sum != nullptr || grad.out != nullptr;
}

#endif
