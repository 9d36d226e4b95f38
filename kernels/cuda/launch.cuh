/* launch.cuh: what every launch function of this folder ends with. */
#ifndef KERNELS_CUDA_LAUNCH_CUH
#define KERNELS_CUDA_LAUNCH_CUH

#include <errno.h>

#include <cuda_runtime.h>

extern "C" {
#include "core/base/err.h"
}

/* 0, or -EIO with the runtime's words: the kernel was not put on its stream. What goes wrong while it
 * runs shows up at the queue's next event. */
static inline int kern_cuda_launched(const char *op)
{
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) {
        return 0;
    }
    return core_err_set(-EIO, "op %s cannot be launched: %s (%s)", op, cudaGetErrorString(error),
                        cudaGetErrorName(error));
}

#endif
