/* attention_sm90.cu: attention on Hopper's warpgroup products. A block has 128 queries of one head, a
 * warpgroup 64 of them; tiles of 128 keys and values come to shared memory one turn ahead. The scores of
 * the next keys and the gathering of the last probabilities are under way while a warpgroup turns
 * scores into probabilities. Compiled for sm_90a alone, and used where attention_check.c has found it to
 * agree with attention.cu on the card at hand. */
#include "kernels/cuda/attention_sm90.cuh"
#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/cuda.h"

namespace
{

constexpr int QUERIES = 128;
constexpr int KEYS = 128;
constexpr int THREADS = 256;

template <int D> constexpr int tile_bytes = kern_wg_tile_bytes<D, QUERIES>;

/* Shared memory: queries, two stages of keys, two of values. */
template <int D> struct room {
    static constexpr int queries = 0;
    static constexpr int keys = tile_bytes<D>;
    static constexpr int values = 3 * tile_bytes<D>;
    static constexpr int bytes = 5 * tile_bytes<D>;
};

template <int D> __device__ void tile_copy(char *to, const kern_rows &rows, int32_t end)
{
    kern_wg_copy<D, QUERIES, THREADS, 4>(to, rows, end);
}

template <typename T, int D>
__device__ __forceinline__ void scores_begin(float (&scores)[KEYS / 8][4], kern_wg_tile queries,
                                             kern_wg_tile keys)
{
    kern_wg_scores_begin<T, D, QUERIES, KEYS>(scores, queries, keys);
}

/* Where the tiles of a block stand, and what comes into them. */
template <int D> struct work {
    char *shared;
    kern_rows k, v;
    int32_t key, end; /* of the first tile of keys; behind the last key */

    __device__ void keys_copy(int index)
    {
        k.first = key + index * KEYS;
        tile_copy<D>(shared + room<D>::keys + index % 2 * tile_bytes<D>, k, end);
    }
    __device__ void values_copy(int index)
    {
        v.first = key + index * KEYS;
        tile_copy<D>(shared + room<D>::values + index % 2 * tile_bytes<D>, v, end);
    }
    __device__ kern_wg_tile tile_at(uint32_t offset) const
    {
        return kern_wg_tile_at<QUERIES>(shared + offset, 0);
    }
};

template <typename T, int D>
__device__ void attend_tile(const kern_attention_arguments &a, const kern_tile &tile, int64_t row,
                            int64_t head, char *shared)
{
    const int64_t row_token = row * a.length;
    const int64_t kv = head / (a.heads / a.kv_heads) * a.head_dim;
    const uint32_t group_row = threadIdx.x / KERN_WG_THREADS * KERN_WG_ROWS;
    const int32_t first_row = tile.begin +
                              static_cast<int32_t>(threadIdx.x / KERN_LANES) * KERN_WARP_ROWS;
    const float scale_log2 = a.scale * KERN_LOG2_E;
    const int32_t window = kern_window(a);
    kern_rows q = kern_rows_of(a.q, a.q_stride, row_token, head * a.head_dim);
    work<D> w = {shared, kern_rows_of(a.k, a.k_stride, row_token, kv),
                 kern_rows_of(a.v, a.v_stride, row_token, kv),
                 kern_first_keys(tile, a.window, KEYS), tile.end};
    const int count = (w.end - w.key + KEYS - 1) / KEYS;
    q.first = tile.begin;
    tile_copy<D>(shared + room<D>::queries, q, tile.end);
    w.keys_copy(0);
    kern_copy_batch();
    kern_wg_turn();
    const kern_wg_tile queries = w.tile_at(room<D>::queries + group_row * KERN_WG_ROW_BYTES);
    kern_softmax<D> s;
    float shrink[2];
    float scores[KEYS / 8][4];
    uint32_t p[KEYS / 16][4];
    kern_softmax_begin(s);
    const auto probabilities = [&](int index) {
        const int32_t key = w.key + index * KEYS;
        if (key + KEYS - 1 > first_row || first_row + KERN_WARP_ROWS - 1 - key >= window) {
            kern_scores_mask(scores, first_row, key, window);
        }
        kern_softmax_add(s, scores, shrink, scale_log2);
    };
    if (count > 1) {
        w.keys_copy(1);
    }
    w.values_copy(0);
    kern_copy_batch();
    kern_wg_begin();
    scores_begin<T, D>(scores, queries, w.tile_at(room<D>::keys));
    kern_wg_batch();
    kern_wg_wait<0>();
    kern_wg_settle(scores);
    probabilities(0);
    kern_wg_pack<T>(p, scores);
    for (int index = 0; index + 1 < count; index++) {
        const uint32_t stage = index % 2 * tile_bytes<D>;
        const uint32_t other = tile_bytes<D> - stage;
        kern_wg_turn();
        if (index + 2 < count) {
            w.keys_copy(index + 2);
        }
        w.values_copy(index + 1);
        kern_copy_batch();
        kern_wg_settle(scores);
        kern_wg_settle(s.o);
        kern_wg_begin();
        scores_begin<T, D>(scores, queries, w.tile_at(room<D>::keys + other));
        kern_wg_batch();
        kern_wg_gather_begin<T>(s.o, p, w.tile_at(room<D>::values + stage));
        kern_wg_batch();
        kern_wg_wait<1>();
        kern_wg_settle(scores);
        probabilities(index + 1);
        kern_wg_wait<0>();
        kern_wg_settle(s.o);
        kern_wg_settle(p);
        kern_softmax_shrink(s, shrink);
        kern_wg_pack<T>(p, scores);
    }
    kern_wg_turn();
    kern_wg_settle(s.o);
    kern_wg_begin();
    kern_wg_gather_begin<T>(s.o, p, w.tile_at(room<D>::values + (count - 1) % 2 * tile_bytes<D>));
    kern_wg_batch();
    kern_wg_wait<0>();
    kern_wg_settle(s.o);
    kern_wg_settle(p);
    __syncthreads(); /* the results go through the memory of queries and keys */
    kern_softmax_end<T, D>(s, a, tile, row_token, head, reinterpret_cast<uint16_t *>(shared));
    __syncthreads();
}

/* Blocks in x: the heads of a slot, slot after slot, the last tiles, which see most, first. */
template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 1)
    attend(struct kern_attention_arguments a, struct kern_tiles tiles)
{
    char *shared = kern_wg_shared();
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
    static_assert(QUERIES == KEYS && QUERIES * kern_row<D>::stride * 2 <= room<D>::values);
    const kern_grid grid = {.blocks = tiles.slots * a->heads,
                            .threads = THREADS,
                            .lines = static_cast<unsigned>(a->rows),
                            .shared_bytes = room<D>::bytes + KERN_WG_ALIGN_BYTES};
    return kern_cuda_launch(where, "attention", grid, attend<T, D>, *a, tiles);
}

} // namespace

bool kern_cuda_attention_sm90_fits(const struct kern_attention_arguments *a)
{
    return a->type == KERN_BF16 && (a->head_dim == 64 || a->head_dim == 128) &&
           kern_cuda_attention_fits(a);
}

int kern_cuda_attention_sm90(const struct dev_launch *where,
                             const struct kern_attention_arguments *a)
{
    struct kern_tiles tiles;
    int rc = kern_cuda_tiles_list(where, "attention", a, QUERIES, where->scratch, &tiles);
    if (rc != 0) {
        return rc;
    }
    return a->head_dim == 64 ? launch<kern_bf16, 64>(where, a, tiles)
                             : launch<kern_bf16, 128>(where, a, tiles);
}
