/* attention_mma.cu: attention on tensor cores, after FlashAttention-2.
 * A warp has 16 of a block's 128 queries, with sums in registers. The order of sums depends on the
 * document alone. */
#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/cuda.h"

namespace
{

constexpr int QUERIES = 128;
constexpr int KEYS = 64;
constexpr int THREADS = 256;

template <typename T, int D>
__device__ void attend_tile(const kern_attention_arguments &a, const kern_tile &tile, int64_t row,
                            int64_t head, uint16_t *shared)
{
    constexpr int TILE = KEYS * kern_row<D>::stride; /* stage s: keys at 2 * s * TILE, then
                                                      * values */
    const int64_t row_token = row * a.length;
    const int64_t kv = head / (a.heads / a.kv_heads) * a.head_dim;
    const int warp_row = threadIdx.x / KERN_LANES * KERN_WARP_ROWS;
    kern_rows q = kern_rows_of(a.q, a.q_stride, row_token, head * a.head_dim);
    kern_rows k = kern_rows_of(a.k, a.k_stride, row_token, kv);
    kern_rows v = kern_rows_of(a.v, a.v_stride, row_token, kv);
    int32_t key = kern_first_keys(tile, a, KEYS);
    q.first = tile.begin;
    k.first = v.first = key;
    /* The second stage's memory holds the queries until they are in registers. */
    kern_rows_copy<D, QUERIES, THREADS>(shared + 2 * TILE, q, tile.end, a.head_dim);
    kern_rows_copy<D, KEYS, THREADS>(shared, k, tile.end, a.head_dim);
    kern_rows_copy<D, KEYS, THREADS>(shared + TILE, v, tile.end, a.head_dim);
    kern_copy_batch();
    kern_copy_wait<0>();
    __syncthreads();
    uint32_t queries[D / 16][4];
#pragma unroll
    for (int s = 0; s < D / 16; s++) {
        kern_a_load<D>(queries[s], shared + 2 * TILE, warp_row, s);
    }
    __syncthreads();
    kern_softmax<D> s;
    kern_softmax_begin(s);
    const float scale_log2 = a.scale * KERN_LOG2_E;
    const int32_t window = kern_window(a);
    const kern_gap gap = kern_gap_of(a, row);
    const int32_t first_row = tile.begin + warp_row;
    for (int stage = 0; key < tile.end; key += KEYS, stage ^= 1) {
        uint16_t *next = shared + 2 * (stage ^ 1) * TILE;
        k.first = v.first = key + KEYS;
        if (key + KEYS < tile.end) {
            kern_rows_copy<D, KEYS, THREADS>(next, k, tile.end, a.head_dim);
            kern_rows_copy<D, KEYS, THREADS>(next + TILE, v, tile.end, a.head_dim);
        }
        kern_copy_batch();
        kern_copy_wait<1>();
        __syncthreads();
        /* Skips keys after the warp's rows, and keys that a gap hides. */
        if (key < first_row + KERN_WARP_ROWS && !kern_gap_hides(gap, first_row, key, KEYS)) {
            const uint16_t *keys = shared + 2 * stage * TILE;
            float scores[KEYS / 8][4] = {};
            kern_scores_kept<T, D, KEYS>(scores, queries, keys, 0);
            const bool cut = key + KEYS - 1 > first_row ||
                             first_row + KERN_WARP_ROWS - 1 - key >= window;
            if (a.gaps != nullptr) {
                kern_scores_mask(scores, first_row, key, window, gap);
            } else if (cut) {
                kern_scores_mask(scores, first_row, key, window);
            }
            float shrink[2];
            kern_softmax_add(s, scores, shrink, scale_log2);
            kern_softmax_shrink(s, shrink);
            kern_gather<T, D, KEYS>(s.o, scores, keys + TILE, 0);
        }
        __syncthreads();
    }
    kern_softmax_end<T, D>(s, a, tile, row_token, head, shared);
    __syncthreads();
}

/* Blocks in x are the heads of a slot, slot after slot; in y, rows. Later tiles may see more keys
 * and go first. */
template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 1)
    attend(struct kern_attention_arguments a, struct kern_tiles tiles)
{
    uint16_t *shared = reinterpret_cast<uint16_t *>(kern_shared());
    const int64_t head = blockIdx.x % a.heads;
    const int32_t slot = static_cast<int32_t>(blockIdx.x / a.heads);
    const int32_t count = kern_tile_count(tiles, blockIdx.y);
    for (int32_t index = count - 1 - slot; index >= 0; index -= tiles.slots) {
        attend_tile<T, D>(a, kern_tile_of(tiles, blockIdx.y, index), blockIdx.y, head, shared);
    }
}

template <typename T, int D>
int launch(const struct dev_launch *where, const struct kern_attention_arguments *a,
           const struct kern_tiles &tiles)
{
    const kern_grid grid = {.blocks = tiles.slots * a->heads,
                            .threads = THREADS,
                            .lines = static_cast<unsigned>(a->rows),
                            .shared_bytes = 4 * KEYS * kern_row<D>::stride * sizeof(uint16_t)};
    return kern_cuda_launch(where, "attention", grid, attend<T, D>, *a, tiles);
}

int launch_bf16(const struct dev_launch *where, const struct kern_attention_arguments *a,
                const struct kern_tiles &tiles)
{
    if (a->head_dim <= 64) {
        return launch<kern_bf16, 64>(where, a, tiles);
    }
    return a->head_dim <= 96 ? launch<kern_bf16, 96>(where, a, tiles)
                             : launch<kern_bf16, 128>(where, a, tiles);
}

} // namespace

extern "C" size_t kern_cuda_attention_bytes(const struct kern_attention_arguments *a)
{
    const size_t tiles = kern_cuda_tiles_bytes(a);
    const size_t check = kern_cuda_attention_sm90_fits(a) ? kern_cuda_attention_check_bytes() : 0;
    return tiles > check ? tiles : check;
}

int kern_cuda_attention_mma(const struct dev_launch *where,
                            const struct kern_attention_arguments *a)
{
    struct kern_tiles tiles;
    int rc = kern_cuda_tiles_list(where, "attention", a, QUERIES, where->scratch, &tiles);
    if (rc != 0) {
        return rc;
    }
    return a->type == KERN_BF16 ? launch_bf16(where, a, tiles)
                                : launch<kern_fp16, 128>(where, a, tiles);
}

extern "C" int kern_cuda_attention(const struct dev_launch *where,
                                   const struct kern_attention_arguments *a)
{
    struct kern_cuda *cuda = static_cast<struct kern_cuda *>(where->context);
    if (a->rows * a->length * a->heads == 0) {
        return 0;
    }
    if (!kern_cuda_attention_fits(a)) {
        return kern_cuda_attention_plain(where, a);
    }
    if (!kern_cuda_attention_sm90_fits(a)) {
        return kern_cuda_attention_mma(where, a);
    }
    if (cuda->sm90 == KERN_SM90_UNKNOWN) {
        cuda->sm90 = kern_cuda_attention_check(where) ? KERN_SM90_WORKS : KERN_SM90_LEFT_OUT;
    }
    return cuda->sm90 == KERN_SM90_WORKS ? kern_cuda_attention_sm90(where, a)
                                         : kern_cuda_attention_mma(where, a);
}
