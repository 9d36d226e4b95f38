/* attention_sm90.cuh: what attention and its gradient share on Hopper: tiles of rows in shared memory as
 * warpgroup products read them (asm_sm90.cuh), and runs of such products. A tile has a multiple of 64 rows;
 * a slice of it 128 bytes of each. */
#ifndef KERNELS_CUDA_ATTENTION_SM90_CUH
#define KERNELS_CUDA_ATTENTION_SM90_CUH

#include "kernels/cuda/asm_sm90.cuh"
#include "kernels/cuda/attention.cuh"

constexpr int KERN_WG_ROWS = 64; /* of a warpgroup */
constexpr int KERN_WG_THREADS = 128;
constexpr int KERN_WG_ROW_BYTES = 128;
constexpr int KERN_WG_ALIGN_BYTES = 1024;

template <int D, int ROWS> constexpr int kern_wg_tile_bytes = ROWS *D * 2;

/* The block's shared memory from a multiple of KERN_WG_ALIGN_BYTES on. */
__device__ inline char *kern_wg_shared()
{
    const uint32_t past = kern_shared_address(kern_shared()) % KERN_WG_ALIGN_BYTES;
    return kern_shared() + (past > 0 ? KERN_WG_ALIGN_BYTES - past : 0);
}

/* Starts to copy ROWS rows of D elements; rows from position `end` on are zeros. AT_ONCE: addresses that
 * are made side by side, which takes registers. */
template <int D, int ROWS, int THREADS, int AT_ONCE>
__device__ inline void kern_wg_copy(char *to, const kern_rows &rows, int32_t end)
{
    constexpr int CHUNKS = D / 8;
#pragma unroll AT_ONCE
    for (int i = 0; i < ROWS * CHUNKS; i += THREADS) {
        const int chunk = i + static_cast<int>(threadIdx.x);
        const int row = chunk / CHUNKS;
        const int column = chunk % CHUNKS;
        const bool inside = rows.first + row < end;
        const uint16_t *from = inside ? rows.base + (rows.first + row) * rows.stride + column * 8
                                      : rows.base;
        char *at = to + column / 8 * (ROWS * KERN_WG_ROW_BYTES) + row * KERN_WG_ROW_BYTES +
                   (column % 8 ^ row % 8) * 16;
        kern_copy16(at, from, inside);
    }
}

/* A tile of ROWS rows, from row `row` on (a multiple of 64). */
template <int ROWS> __device__ inline kern_wg_tile kern_wg_tile_at(const char *tile, uint32_t row)
{
    return kern_wg_tile_of(kern_shared_address(tile) + row * KERN_WG_ROW_BYTES,
                           ROWS * KERN_WG_ROW_BYTES);
}

/* What was copied is there for all; what products that were waited for have read may be written over. */
__device__ inline void kern_wg_turn()
{
    kern_copy_wait<0>();
    kern_wg_publish();
    __syncthreads();
}

/* Begins scores[64][8 N] = a b^T over D, from tiles of A and B rows. */
template <typename T, int D, int A, int B, int N>
__device__ __forceinline__ void kern_wg_scores_begin(float (&scores)[N][4], kern_wg_tile a,
                                                     kern_wg_tile b)
{
    kern_wg_scores<true>(T{}, scores, a, b);
#pragma unroll
    for (int k = 1; k < D / 16; k++) {
        const uint32_t within = k % 4 * 32;
        kern_wg_scores<false>(T{}, scores,
                              kern_wg_tile_from(a, k / 4 * (A * KERN_WG_ROW_BYTES) + within),
                              kern_wg_tile_from(b, k / 4 * (B * KERN_WG_ROW_BYTES) + within));
    }
}

/* Begins sums[64][8 N] += p rows, 16 K rows of a tile. */
template <typename T, int K, int N>
__device__ __forceinline__ void kern_wg_gather_begin(float (&sums)[N][4], const uint32_t (&p)[K][4],
                                                     kern_wg_tile rows)
{
#pragma unroll
    for (int k = 0; k < K; k++) {
        kern_wg_gather(T{}, sums, p[k], kern_wg_tile_from(rows, k * 16 * KERN_WG_ROW_BYTES));
    }
}

/* Results of 16 K columns become the other operand of a gathering. */
template <typename T, int K>
__device__ __forceinline__ void kern_wg_pack(uint32_t (&p)[K][4], const float (&scores)[2 * K][4])
{
#pragma unroll
    for (int k = 0; k < K; k++) {
        kern_a_pack<T>(p[k], scores[2 * k], scores[2 * k + 1]);
    }
}

#endif
