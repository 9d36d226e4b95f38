/* table.c: the rows of CUDA devices. */
#include "kernels/cuda/cuda.h"

DEV_OP_LAUNCH(kern_cuda_cast, core_vec_cast)

const struct dev_op kern_cuda_ops[] = {
    {KERN_CAST, "cast", sizeof(struct core_vec_cast), kern_cuda_cast_launch},
};
const size_t kern_cuda_ops_count = sizeof kern_cuda_ops / sizeof kern_cuda_ops[0];
