/* vector.cuh: types of core/base/vec.h as the words of half.cuh. Host side. */
#ifndef KERNELS_CUDA_VECTOR_CUH
#define KERNELS_CUDA_VECTOR_CUH

#include "core/base/vec.h"
#include "kernels/cuda/launch.cuh"

template <typename F> int kern_by_vec_type(const char *op, enum core_vec_type type, F f)
{
    switch (type) {
    case CORE_VEC_F32: return f(kern_f32{});
    case CORE_VEC_BF16: return f(kern_bf16{});
    case CORE_VEC_FP16: return f(kern_fp16{});
    case CORE_VEC_Q8: break;
    }
    return core_err_set(-EINVAL, "op %s takes fp32, bf16 or fp16 numbers, not type %d", op,
                        static_cast<int>(type));
}

#endif
