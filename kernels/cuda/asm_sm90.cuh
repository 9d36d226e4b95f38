/* asm_sm90.cuh: Hopper's own instructions: asynchronous products of a warpgroup (four warps, 64
 * rows), which read shared memory by descriptors; bulk copies of tiles (TMA); barriers in shared
 * memory; registers that move between warpgroups. A test replaces this file by plain C++
 * (tests/cuda).
 *
 * A tile in shared memory is cut into slices of 64 columns. Slice c has columns 64 c .. 64 c + 63
 * of all rows, 128 bytes per row, and begins at a multiple of 1024 bytes. Chunk i (16 bytes) of row
 * r is at chunk i ^ (r % 8). Fragments of a and d are those of asm.cuh; a warp has 16 of the 64
 * rows. */
#ifndef KERNELS_CUDA_ASM_SM90_CUH
#define KERNELS_CUDA_ASM_SM90_CUH

#include "kernels/cuda/asm.cuh"
#include "kernels/cuda/tensor_map.h"

/* A descriptor of a tile or of a part: its address, and the distance of its slices. */
struct kern_wg_tile {
    uint64_t bits;
};

/* Fields of the descriptor: bits 0 .. 13 address, 16 .. 29 bytes between slices (LBO), 32 .. 45
 * bytes between groups of eight rows (SBO), all three in units of 16 bytes; 49 .. 51 where a
 * pattern begins; 62 .. 63 swizzle (1: over 128 bytes).
 *
 * The values follow "Canonical Layouts" of wgmma in the PTX manual for a swizzle over 128 bytes.
 * The manual writes layouts as (shape):(stride) in elements; T = 8 elements are 16 bytes.
 *   K-major (kern_wg_scores)   ((8, m), (T, 2k)) : ((8T, SBO), (1, T))
 *     Row 8 b + r begins at r * 64 elements + b * SBO: rows have 128 bytes, and SBO is 8 of
 *     them = 1024. Columns follow one another without a stride, so LBO is not read. The next 16
 *     columns of a slice are 32 bytes further, within the pattern; the swizzle depends on bits of
 *     the address, so the pattern's beginning does not change.
 *   N-major (b of kern_wg_gather)   ((T, 8, m), (8, k)) : ((1, T, LBO), (8T, SBO))
 *     n is the column, k the row. Column 64 c + 8 i + t is at t + i * T + c * LBO: 64 columns fill
 *     128 bytes, and the next slice begins LBO further. Row 8 b + r is at r * 64 elements +
 *     b * SBO: the same rows, SBO = 1024. The next 16 rows are two groups, 2048 bytes further.
 * Slices begin at multiples of 1024 bytes, the length of a pattern (8 rows), so the pattern begins
 * at 0. attention_check.c would notice an exchange of LBO and SBO. */
__device__ __forceinline__ kern_wg_tile kern_wg_tile_of(uint32_t address, uint32_t slice_bytes)
{
    return {(static_cast<uint64_t>(address & 0x3ffffu) >> 4) |
            static_cast<uint64_t>(slice_bytes >> 4) << 16 | static_cast<uint64_t>(1024 >> 4) << 32 |
            static_cast<uint64_t>(1) << 62};
}

/* Returns the tile moved by `bytes`: by columns within a slice, by groups of eight rows, or by
 * slices. */
__device__ __forceinline__ kern_wg_tile kern_wg_tile_from(kern_wg_tile tile, uint32_t bytes)
{
    return {tile.bits + (bytes >> 4)};
}

/* Initialises a barrier in shared memory, 8 bytes at `barrier`. A phase ends when `arrivals`
 * threads have arrived and the phase's announced bytes are copied. Phases are numbered 0, 1, 0, 1
 * ... */
__device__ __forceinline__ void kern_barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(barrier), "r"(arrivals)
                 : "memory");
}

/* Lets copies after the next __syncthreads see this thread's new barriers. */
__device__ __forceinline__ void kern_barrier_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

/* Arrives if `arrives`, by a predicate instead of a branch. */
__device__ __forceinline__ void kern_barrier_arrive(uint32_t barrier, bool arrives)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\n"
                 "@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}"
                 :
                 : "r"(barrier), "r"(static_cast<uint32_t>(arrives))
                 : "memory");
}

/* Arrives, and announces `bytes` of copies in this phase. */
__device__ __forceinline__ void kern_barrier_announce(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(barrier), "r"(bytes)
                 : "memory");
}

/* Waits for the end of phase `phase` (0 or 1). On a new barrier phase 1 has ended. */
__device__ __forceinline__ void kern_barrier_wait(uint32_t barrier, uint32_t phase)
{
    uint32_t ended;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(ended)
                     : "r"(barrier), "r"(phase)
                     : "memory");
    } while (ended == 0);
}

/* Starts to copy the map's box at (column, position, row) to shared memory; the barrier counts its
 * bytes. Products that waited for the barrier read them without a fence. */
__device__ __forceinline__ void kern_tensor_copy(uint32_t shared, const kern_tensor_map *map,
                                                 uint32_t barrier, int32_t column, int32_t position,
                                                 int32_t row)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];"
                 :
                 : "r"(shared), "l"(map), "r"(barrier), "r"(column), "r"(position), "r"(row)
                 : "memory");
}

/* Returns `value`, which is the same in all lanes, such that the compiler can keep it in one
 * register of the whole warp. */
__device__ __forceinline__ uint32_t kern_uniform(uint32_t value)
{
    return __shfl_sync(0xffffffffu, value, 0);
}

/* The warpgroup has N registers per thread from here: _lower releases some, _raise waits until
 * others have released enough. */
template <int N> __device__ __forceinline__ void kern_registers_raise()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(N));
}

template <int N> __device__ __forceinline__ void kern_registers_lower()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(N));
}

/* Lets the next batch of products see earlier writes to registers. */
__device__ __forceinline__ void kern_wg_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

__device__ __forceinline__ void kern_wg_batch()
{
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

/* Waits for all but the last N batches. kern_wg_settle then makes the finished registers usable. */
template <int N> __device__ __forceinline__ void kern_wg_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(N) : "memory");
}

/* Keeps these registers alive until here, and later uses of them after this point. */
template <int N> __device__ __forceinline__ void kern_wg_settle(float (&d)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3]) : : "memory");
    }
}

template <int N> __device__ __forceinline__ void kern_wg_settle(uint32_t (&a)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        asm volatile("" : "+r"(a[n][0]), "+r"(a[n][1]), "+r"(a[n][2]), "+r"(a[n][3]) : : "memory");
    }
}

#define KERN_WG_4(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define KERN_WG_16(d, n)                                                                           \
    KERN_WG_4(d, n), KERN_WG_4(d, n + 1), KERN_WG_4(d, n + 2), KERN_WG_4(d, n + 3)
#define KERN_WG_32(d) KERN_WG_16(d, 0), KERN_WG_16(d, 4)
#define KERN_WG_64(d) KERN_WG_32(d), KERN_WG_16(d, 8), KERN_WG_16(d, 12)

#define KERN_WG_LIST_32                                                                            \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                      \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KERN_WG_LIST_64                                                                            \
    KERN_WG_LIST_32                                                                                \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "           \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/* Begins d[64][n] = (FIRST ? 0 : d) + a b^T; a[64][16] and b[n][16] are parts of tiles, n is 64 or
 * 128. */
#define KERN_WG_SCORES(tag, name)                                                                  \
    template <bool FIRST>                                                                          \
    __device__ __forceinline__ void kern_wg_scores(tag, float(&d)[16][4], kern_wg_tile a,          \
                                                   kern_wg_tile b)                                 \
    {                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                  \
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32." name " " KERN_WG_LIST_64       \
                     "}, %64, %65, p, 1, 1, 0, 0;\n}"                                              \
                     : KERN_WG_64(d)                                                               \
                     : "l"(a.bits), "l"(b.bits), "n"(FIRST ? 0 : 1)                                \
                     : "memory");                                                                  \
    }                                                                                              \
    template <bool FIRST>                                                                          \
    __device__ __forceinline__ void kern_wg_scores(tag, float(&d)[8][4], kern_wg_tile a,           \
                                                   kern_wg_tile b)                                 \
    {                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                  \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." name " " KERN_WG_LIST_32        \
                     "}, %32, %33, p, 1, 1, 0, 0;\n}"                                              \
                     : KERN_WG_32(d)                                                               \
                     : "l"(a.bits), "l"(b.bits), "n"(FIRST ? 0 : 1)                                \
                     : "memory");                                                                  \
    }
KERN_WG_SCORES(kern_bf16, "bf16.bf16")

/* Begins d[64][n] += a b; a[64][16] in registers, b[16][n] rows of a tile, n is 64 or 128. */
#define KERN_WG_GATHER(tag, name)                                                                  \
    __device__ __forceinline__ void kern_wg_gather(tag, float(&d)[16][4], const uint32_t(&a)[4],   \
                                                   kern_wg_tile b)                                 \
    {                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                    \
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32." name " " KERN_WG_LIST_64       \
                     "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"                                \
                     : KERN_WG_64(d)                                                               \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits)                     \
                     : "memory");                                                                  \
    }                                                                                              \
    __device__ __forceinline__ void kern_wg_gather(tag, float(&d)[8][4], const uint32_t(&a)[4],    \
                                                   kern_wg_tile b)                                 \
    {                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                    \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." name " " KERN_WG_LIST_32        \
                     "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"                                \
                     : KERN_WG_32(d)                                                               \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits)                     \
                     : "memory");                                                                  \
    }
KERN_WG_GATHER(kern_bf16, "bf16.bf16")

#undef KERN_WG_SCORES
#undef KERN_WG_GATHER
#undef KERN_WG_LIST_64
#undef KERN_WG_LIST_32
#undef KERN_WG_64
#undef KERN_WG_32
#undef KERN_WG_16
#undef KERN_WG_4

#endif
