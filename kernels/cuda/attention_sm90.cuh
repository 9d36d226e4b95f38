/* attention_sm90.cuh: shared by attention and its gradient on Hopper: tiles in shared memory
 * (asm_sm90.cuh), runs of warpgroup products, and the division of work.
 * A block's first warpgroup, the producer, fills a ring of buffers with bulk copies; the others,
 * the consumers, compute. */
#ifndef KERNELS_CUDA_ATTENTION_SM90_CUH
#define KERNELS_CUDA_ATTENTION_SM90_CUH

#include "kernels/cuda/asm_sm90.cuh"
#include "kernels/cuda/attention.cuh"

constexpr int KERN_WG_ROWS = 64; /* rows of one warpgroup */
constexpr int KERN_WG_THREADS = 128;
constexpr int KERN_WG_WARPS = 4;
constexpr int KERN_WG_WARP_ROWS = 16;
constexpr int KERN_WG_COLUMNS = 64; /* columns of one slice */
constexpr int KERN_WG_ROW_BYTES = 128;
constexpr int KERN_WG_ALIGN_BYTES = 1024;
constexpr int KERN_BARRIER_BYTES = 8;

template <int D, int ROWS> constexpr int kern_wg_tile_bytes = ROWS *D * 2;

/* Returns whether a block of a producer and `groups` consumers has these registers per thread. A
 * request beyond what others release waits forever. */
constexpr bool kern_wg_registers_fit(int groups, int producer, int consumer)
{
    return producer + groups * consumer <=
           (groups + 1) * (65536 / ((groups + 1) * KERN_WG_THREADS) / 8 * 8);
}

/* Returns the block's shared memory, from a multiple of KERN_WG_ALIGN_BYTES on. */
__device__ inline char *kern_wg_shared()
{
    const uint32_t past = kern_shared_address(kern_shared()) % KERN_WG_ALIGN_BYTES;
    return kern_shared() + (past > 0 ? KERN_WG_ALIGN_BYTES - past : 0);
}

/* Returns whether this thread starts the producer's copies. */
__device__ inline bool kern_wg_copies()
{
    return threadIdx.x == 0;
}

/* Return the index of a consumer's warpgroup, and of its warp among the consumers' warps. */
__device__ inline int kern_wg_group()
{
    return static_cast<int>(threadIdx.x / KERN_WG_THREADS) - 1;
}

__device__ inline int32_t kern_wg_warp()
{
    return static_cast<int32_t>(threadIdx.x / KERN_LANES) - KERN_WG_WARPS;
}

template <int ROWS> __device__ inline kern_wg_tile kern_wg_tile_at(uint32_t address)
{
    return kern_wg_tile_of(address, ROWS * KERN_WG_ROW_BYTES);
}

/* Starts to copy ROWS positions of D columns from (`column`, `position`) of row `row` on; the
 * barrier counts the bytes. */
template <int D, int ROWS>
__device__ inline void kern_wg_tile_copy(uint32_t address, const kern_tensor_map *map,
                                         uint32_t barrier, int32_t column, int32_t position,
                                         int32_t row)
{
#pragma unroll
    for (int slice = 0; slice < D / KERN_WG_COLUMNS; slice++) {
        kern_tensor_copy(address + slice * (ROWS * KERN_WG_ROW_BYTES), map, barrier,
                         column + slice * KERN_WG_COLUMNS, position, row);
    }
}

/* A ring of STAGES buffers with two barriers each: a phase of `full` ends when the producer has
 * filled the buffer, a phase of `empty` when the consumers have read it. A thread advances its own
 * kern_ring with next(). */
template <int STAGES> struct kern_ring {
    static constexpr int bytes = 2 * STAGES * KERN_BARRIER_BYTES;
    uint32_t barriers;
    uint32_t stage, phase;

    __device__ explicit kern_ring(uint32_t at) : barriers(at), stage(0), phase(0)
    {
    }
    __device__ uint32_t full() const
    {
        return barriers + stage * KERN_BARRIER_BYTES;
    }
    __device__ uint32_t empty() const
    {
        return full() + STAGES * KERN_BARRIER_BYTES;
    }
    /* One thread of the block calls this before the others begin. `producers` and `consumers` are
     * the arrivals in a phase of `full` and of `empty`. */
    __device__ void init(uint32_t producers, uint32_t consumers) const
    {
        for (uint32_t i = 0; i < STAGES; i++) {
            kern_barrier_init(barriers + i * KERN_BARRIER_BYTES, producers);
            kern_barrier_init(barriers + (STAGES + i) * KERN_BARRIER_BYTES, consumers);
        }
    }
    /* Producer: the buffer may then be overwritten. */
    __device__ void wait_empty() const
    {
        kern_barrier_wait(empty(), phase ^ 1);
    }
    __device__ void wait_full() const
    {
        kern_barrier_wait(full(), phase);
    }
    /* A warp of a consumer calls this after its products have read the buffer. */
    __device__ void release() const
    {
        kern_barrier_arrive(empty(), threadIdx.x % KERN_LANES == 0);
    }
    __device__ void next()
    {
        stage++;
        if (stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

/* Calls f(slot, row, head) for the block's share, ordered by slot, row, head. Blocks take items in
 * turns, in alternating direction: shares are about equal even if items get smaller. */
template <typename F>
__device__ __forceinline__ void kern_wg_items(const kern_tiles &tiles, int32_t rows, int32_t heads,
                                              F f)
{
    const int32_t blocks = static_cast<int32_t>(gridDim.x);
    const int32_t items = tiles.slots * rows * heads;
    int32_t own = static_cast<int32_t>(blockIdx.x);
    for (int32_t first = 0; first + own < items; first += blocks) {
        const int32_t line = (first + own) / heads;
        f(line / rows, line % rows, (first + own) % heads);
        own = blocks - 1 - own;
    }
}

/* Sets *out to the number of blocks: at most one per multiprocessor if items are known to get
 * smaller (tiles are not listed), else one per item. */
static inline int kern_wg_blocks(const char *op, const kern_tiles &tiles, int64_t rows,
                                 int64_t heads, int64_t *out)
{
    const int64_t items = tiles.slots * rows * heads;
    int device = 0;
    int processors = 0;
    if (items > INT32_MAX / 2) {
        return core_err_set(-EINVAL, "op %s is too large for one launch: %lld tiles", op,
                            (long long)items);
    }
    if (tiles.list != nullptr) {
        *out = items;
        return 0;
    }
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) !=
            cudaSuccess) {
        return kern_cuda_launched(op);
    }
    *out = items < processors ? items : processors;
    return 0;
}

/* Makes the map of `heads` heads of all rows, in boxes of `box_rows` positions by 64 columns. */
static inline int kern_wg_map(const char *op, const kern_attention_arguments &a, const void *base,
                              int64_t stride, int64_t heads, uint32_t box_rows,
                              struct kern_tensor_map *out)
{
    const struct kern_tensor tensor = {.base = base,
                                       .rows = a.rows,
                                       .length = a.length,
                                       .stride = stride,
                                       .columns = heads * a.head_dim};
    return kern_cuda_tensor_map(op, &tensor, box_rows, out);
}

/* Begins scores[64][8 N] = a b^T over D; a is part of a tile of A rows, b of B rows. */
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

/* Begins sums[64][8 N] += p rows; `rows` are 16 K rows of a tile. */
template <typename T, int K, int N>
__device__ __forceinline__ void kern_wg_gather_begin(float (&sums)[N][4], const uint32_t (&p)[K][4],
                                                     kern_wg_tile rows)
{
#pragma unroll
    for (int k = 0; k < K; k++) {
        kern_wg_gather(T{}, sums, p[k], kern_wg_tile_from(rows, k * 16 * KERN_WG_ROW_BYTES));
    }
}

/* Packs results of 16 K columns as kern_wg_gather's left operand. */
template <typename T, int K>
__device__ __forceinline__ void kern_wg_pack(uint32_t (&p)[K][4], const float (&scores)[2 * K][4])
{
#pragma unroll
    for (int k = 0; k < K; k++) {
        kern_a_pack<T>(p[k], scores[2 * k], scores[2 * k + 1]);
    }
}

/* Transposes four words of four lanes: w[i] of lane t becomes w[t] of lane i. */
__device__ __forceinline__ void kern_quad_turn(uint32_t (&w)[4])
{
    const int lane = threadIdx.x % 4;
#pragma unroll
    for (int by = 1; by < 4; by *= 2) {
        const bool high = (lane & by) != 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if ((i & by) == 0) {
                const uint32_t sent = high ? w[i] : w[i + by];
                const uint32_t came = __shfl_xor_sync(0xffffffffu, sent, by);
                w[i] = high ? came : w[i];
                w[i + by] = high ? w[i + by] : came;
            }
        }
    }
}

/* Writes a warp's 16 rows of results from `to` on, at most `left` rows; rows g are multiplied by
 * factor[0], rows g + 8 by factor[1]. */
template <typename T, int D>
__device__ __forceinline__ void kern_wg_rows_write(const float (&sums)[D / 8][4],
                                                   const float (&factor)[2], uint16_t *to,
                                                   int64_t stride, int32_t left)
{
    const int lane = threadIdx.x % KERN_LANES;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = lane / 4 + 8 * half;
        uint16_t *at = to + row * stride + lane % 4 * 8;
#pragma unroll
        for (int j = 0; j < D / 32; j++) {
            uint32_t words[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *two = sums[4 * j + i] + 2 * half;
                words[i] = kern_pack(T{}, two[0] * factor[half], two[1] * factor[half]);
            }
            kern_quad_turn(words);
            if (row < left) {
                *reinterpret_cast<uint4 *>(at + j * 32) = {words[0], words[1], words[2], words[3]};
            }
        }
    }
}

#endif
