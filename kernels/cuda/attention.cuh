/* attention.cuh: tiles of rows in shared memory and products of fragments, for the tensor-core
 * kernels of attention.
 * A row has D 16-bit elements and 16 bytes of padding, so that eight rows of a matrix are in
 * different banks. */
#ifndef KERNELS_CUDA_ATTENTION_CUH
#define KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/asm.cuh"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_gap.cuh"
#include "kernels/cuda/launch.cuh"

constexpr int KERN_LANES = 32;
constexpr float KERN_LOG2_E = 1.4426950408889634f;

/* Elements between rows in shared memory. */
template <int D> struct kern_row {
    static constexpr int stride = D + 8;
};

/* Rows of a [tokens][stride] array of 16-bit elements from position `first` on. */
struct kern_rows {
    const uint16_t *base;
    int64_t stride;
    int32_t first;
};

__device__ inline kern_rows kern_rows_of(const void *base, int64_t stride, int64_t row_token,
                                         int64_t column)
{
    return {static_cast<const uint16_t *>(base) + row_token * stride + column, stride, 0};
}

/* Starts to copy ROWS rows of `head_dim` elements, padded to D with zeros, to shared memory; rows
 * from `end` on are zeros. The caller ends the batch. */
template <int D, int ROWS, int THREADS>
__device__ inline void kern_rows_copy(uint16_t *to, const kern_rows &rows, int32_t end,
                                      int64_t head_dim)
{
    constexpr int CHUNKS = D / 8;
#pragma unroll 1 /* unrolled, addresses would take registers that the sums need */
    for (int i = 0; i < ROWS * CHUNKS; i += THREADS) {
        const int chunk = i + static_cast<int>(threadIdx.x);
        const int row = chunk / CHUNKS;
        const int column = chunk % CHUNKS * 8;
        const bool inside = rows.first + row < end && column < head_dim;
        const uint16_t *from = inside ? rows.base + (rows.first + row) * rows.stride + column
                                      : rows.base;
        if (ROWS * CHUNKS % THREADS == 0 || chunk < ROWS * CHUNKS) {
            kern_copy16(to + row * kern_row<D>::stride + column, from, inside);
        }
    }
}

/* Loads the a-fragments of 16 rows from `row` on, columns 16 s .. 16 s + 15. */
template <int D>
__device__ inline void kern_a_load(uint32_t (&a)[4], const uint16_t *tile, int row, int s)
{
    const int lane = threadIdx.x % KERN_LANES;
    kern_ldmatrix(a, tile + (row + lane % 16) * kern_row<D>::stride + s * 16 + lane / 16 * 8);
}

/* Loads the b-fragments of the transposed tile, b[k][n] = tile[n][k], for 16 k from 16 s on and 16
 * n from `row` on: r[0] and r[1] for the first eight n, r[2] and r[3] for the others. */
template <int D>
__device__ inline void kern_b_turned_load(uint32_t (&r)[4], const uint16_t *tile, int row, int s)
{
    const int lane = threadIdx.x % KERN_LANES;
    kern_ldmatrix(r, tile + (row + lane / 16 * 8 + lane % 8) * kern_row<D>::stride + s * 16 +
                         lane / 8 % 2 * 8);
}

/* Loads the b-fragments of the tile, b[k][n] = tile[k][n], for 16 k from `row` on and 16 n from
 * `column` on; r as above. */
template <int D>
__device__ inline void kern_b_load(uint32_t (&r)[4], const uint16_t *tile, int row, int column)
{
    const int lane = threadIdx.x % KERN_LANES;
    kern_ldmatrix_turned(r,
                         tile + (row + lane % 16) * kern_row<D>::stride + column + lane / 16 * 8);
}

/* Rounds two adjacent 16 x 8 results to a-fragments of the next product. */
template <typename T>
__device__ inline void kern_a_pack(uint32_t (&a)[4], const float (&left)[4],
                                   const float (&right)[4])
{
    a[0] = kern_pack(T{}, left[0], left[1]);
    a[1] = kern_pack(T{}, left[2], left[3]);
    a[2] = kern_pack(T{}, right[0], right[1]);
    a[3] = kern_pack(T{}, right[2], right[3]);
}

/* Computes c[16][N] += a b^T over D, with 16 rows of a_tile from a_row on and N rows of b_tile from
 * b_row on. */
template <typename T, int D, int N>
__device__ inline void kern_scores(float (&c)[N / 8][4], const uint16_t *a_tile, int a_row,
                                   const uint16_t *b_tile, int b_row)
{
#pragma unroll 2
    for (int s = 0; s < D / 16; s++) {
        uint32_t a[4];
        kern_a_load<D>(a, a_tile, a_row, s);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t b[4];
            kern_b_turned_load<D>(b, b_tile, b_row + n * 16, s);
            kern_mma(T{}, c[2 * n], a, b[0], b[1]);
            kern_mma(T{}, c[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* Computes kern_scores() with a's fragments in registers. */
template <typename T, int D, int N>
__device__ inline void kern_scores_kept(float (&c)[N / 8][4], const uint32_t (&a)[D / 16][4],
                                        const uint16_t *b_tile, int b_row)
{
#pragma unroll
    for (int s = 0; s < D / 16; s++) {
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t b[4];
            kern_b_turned_load<D>(b, b_tile, b_row + n * 16, s);
            kern_mma(T{}, c[2 * n], a[s], b[0], b[1]);
            kern_mma(T{}, c[2 * n + 1], a[s], b[2], b[3]);
        }
    }
}

/* Computes sums[16][D] += p b, with p[16][K] rounded to the type, and K rows of `tile` from `row`
 * on. */
template <typename T, int D, int K>
__device__ inline void kern_gather(float (&sums)[D / 8][4], const float (&p)[K / 8][4],
                                   const uint16_t *tile, int row)
{
#pragma unroll
    for (int s = 0; s < K / 16; s++) {
        uint32_t a[4];
        kern_a_pack<T>(a, p[2 * s], p[2 * s + 1]);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            kern_b_load<D>(b, tile, row + s * 16, n * 16);
            kern_mma(T{}, sums[2 * n], a, b[0], b[1]);
            kern_mma(T{}, sums[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* Writes a warp's 16 rows of results from element `at` on, at most `rows_left` rows; rows g are
 * multiplied by factor[0], rows g + 8 by factor[1]. `room`: the warp's shared memory for 16
 * rows. */
template <typename T, int D>
__device__ inline void kern_rows_write(const float (&sums)[D / 8][4], const float (&factor)[2],
                                       uint16_t *room, void *to_base, int64_t to_stride, int64_t at,
                                       int32_t rows_left, int64_t head_dim)
{
    const int lane = threadIdx.x % KERN_LANES;
    uint32_t *words = reinterpret_cast<uint32_t *>(room);
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            words[((lane / 4 + 8 * half) * kern_row<D>::stride + 8 * n) / 2 + lane % 4] = kern_pack(
                T{}, sums[n][2 * half] * factor[half], sums[n][2 * half + 1] * factor[half]);
        }
    }
    __syncwarp();
    constexpr int CHUNKS = D / 8;
#pragma unroll
    for (int i = 0; i < 16 * CHUNKS; i += KERN_LANES) {
        const int row = (i + lane) / CHUNKS;
        const int column = (i + lane) % CHUNKS * 8;
        if (row < rows_left && column < head_dim) {
            uint16_t *to = static_cast<uint16_t *>(to_base) + at + row * to_stride + column;
            *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(
                room + row * kern_row<D>::stride + column);
        }
    }
}

__device__ inline kern_tile kern_tile_of(const kern_tiles &tiles, int64_t row, int32_t index)
{
    if (tiles.list != nullptr) {
        return tiles.list[row * tiles.length + index];
    }
    const int32_t begin = index * tiles.step;
    const int32_t end = begin + tiles.step;
    return {begin, end < tiles.length ? end : tiles.length, 0, tiles.length};
}

__device__ inline int32_t kern_tile_count(const kern_tiles &tiles, int64_t row)
{
    return tiles.list != nullptr ? tiles.counts[row] : tiles.slots;
}

/* Returns the first key of the first tile of `step` keys that the tile's queries see; with gaps the
 * row's first key. */
__device__ inline int32_t kern_first_keys(const kern_tile &tile, const kern_attention_arguments &a,
                                          int32_t step)
{
    const int64_t oldest = a.window > 0 && a.gaps == nullptr ? tile.begin - a.window + 1 : 0;
    const int32_t first = oldest > tile.start ? static_cast<int32_t>(oldest) : tile.start;
    return tile.start + (first - tile.start) / step * step;
}

#endif
