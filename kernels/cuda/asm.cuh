/* asm.cuh: PTX instructions, one function each: matrix products of a warp, packing of pairs,
 * asynchronous copies to shared memory, exp2; and the block's dynamic shared memory. A test
 * replaces this file by one in plain C++ (tests/cuda).
 * Layout of a warp's fragments, with g = lane / 4 and t = lane % 4; a word of a or b holds two
 * elements, d[i] is one number:
 *   a[0 .. 3]  rows g, g + 8, g, g + 8 of 16; columns 2 t, 2 t + 1 (a[2], a[3]: + 8)
 *   b[0 .. 1]  rows 2 t, 2 t + 1 (b[1]: + 8) of 16; column g of 8
 *   d[0 .. 3]  row g (d[2], d[3]: + 8) of 16; column 2 t (d[1], d[3]: + 1) of 8 */
#ifndef KERNELS_CUDA_ASM_CUH
#define KERNELS_CUDA_ASM_CUH

#include <stdint.h>

#include <cuda_runtime_api.h>

#include "kernels/cuda/half.cuh"

__device__ __forceinline__ char *kern_shared()
{
    extern __shared__ uint4 kern_shared_words[];
    return reinterpret_cast<char *>(kern_shared_words);
}

__device__ __forceinline__ uint32_t kern_shared_address(const void *shared)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

/* Computes d += a b in fp32. */
__device__ __forceinline__ void kern_mma(kern_bf16, float (&d)[4], const uint32_t (&a)[4],
                                         uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void kern_mma(kern_fp16, float (&d)[4], const uint32_t (&a)[4],
                                         uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Packs two numbers, rounded to nearest even; the first is in the low half. */
__device__ __forceinline__ uint32_t kern_pack(kern_bf16, float first, float second)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}

__device__ __forceinline__ uint32_t kern_pack(kern_fp16, float first, float second)
{
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}

/* Loads four 8 x 8 matrices. Lane l passes the address of row l % 8 of matrix l / 8 (16 bytes), and
 * gets in r[i] elements 2 t and 2 t + 1 of row g of matrix i (_turned: of column g). */
__device__ __forceinline__ void kern_ldmatrix(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(kern_shared_address(row))
                 : "memory");
}

__device__ __forceinline__ void kern_ldmatrix_turned(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(kern_shared_address(row))
                 : "memory");
}

/* Starts to copy 16 bytes to shared memory, or zeros unless `inside`. Complete after a wait for its
 * batch. */
__device__ __forceinline__ void kern_copy16(void *shared, const void *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(kern_shared_address(shared)), "l"(__cvta_generic_to_global(from)),
                   "r"(inside ? 16 : 0)
                 : "memory");
}

/* Ends a batch of this thread's copies. */
__device__ __forceinline__ void kern_copy_batch()
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Waits for all but this thread's last N batches. */
template <int N> __device__ __forceinline__ void kern_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

__device__ __forceinline__ float kern_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
