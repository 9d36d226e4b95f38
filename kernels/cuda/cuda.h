/* cuda.h: the ops of CUDA devices, as rows for dev_ops_register. Constant. */
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H

#include "core/base/vec.h"
#include "core/dev/launch.h"
#include "kernels/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct dev_op kern_cuda_ops[];
extern const size_t kern_cuda_ops_count;

/* One function an op, in the .cu file of its name. */
int kern_cuda_cast(const struct dev_launch *where, const struct core_vec_cast *a);

#ifdef __cplusplus
}
#endif

#endif
