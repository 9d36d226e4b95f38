/* attention_sm90.cu: attention with Hopper's warpgroup products and bulk copies.
 * A consumer has 64 queries and goes over tiles of 128 keys from the last to the first. Scores
 * become probabilities while the previous tile's probabilities are multiplied by its values. Used
 * only if attention_check.c finds agreement on this card. */
#include "kernels/cuda/attention_sm90.cuh"
#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/cuda.h"

namespace
{

constexpr int KEYS = 128;

/* Consumers (`groups`), stages of keys and of values, and registers per thread, by head size. */
template <int D> struct shape {
    static constexpr int groups = D == 64 ? 3 : 2;
    static constexpr int queries = groups * KERN_WG_ROWS;
    static constexpr int threads = (groups + 1) * KERN_WG_THREADS;
    static constexpr int stages = 2;
    static constexpr int producer_registers = D == 64 ? 32 : 24;
    static constexpr int consumer_registers = D == 64 ? 160 : 240;
    static_assert(kern_wg_registers_fit(groups, producer_registers, consumer_registers));
};

/* Offsets and sizes in shared memory, in bytes. */
template <int D> struct room {
    static constexpr int query_bytes = kern_wg_tile_bytes<D, shape<D>::queries>;
    static constexpr int key_bytes = kern_wg_tile_bytes<D, KEYS>;
    static constexpr int keys = query_bytes;
    static constexpr int values = keys + shape<D>::stages * key_bytes;
    static constexpr int query_ring = values + shape<D>::stages * key_bytes;
    static constexpr int key_ring = query_ring + kern_ring<1>::bytes;
    static constexpr int value_ring = key_ring + kern_ring<shape<D>::stages>::bytes;
    static constexpr int bytes = value_ring + kern_ring<shape<D>::stages>::bytes;
};

struct tensors {
    kern_tensor_map q, k, v;
};

template <int D> struct rings {
    kern_ring<1> queries;
    kern_ring<shape<D>::stages> keys, values;

    __device__ explicit rings(uint32_t shared)
        : queries(shared + room<D>::query_ring), keys(shared + room<D>::key_ring),
          values(shared + room<D>::value_ring)
    {
    }
};

struct key_range {
    int32_t first;
    int count;
};

__device__ key_range keys_of(const kern_attention_arguments &a, const kern_tile &tile)
{
    const int32_t first = kern_first_keys(tile, a, KEYS);
    return {first, (tile.end - first + KEYS - 1) / KEYS};
}

/* Calls f(tile, row, head) for the block's tiles. Later tiles may see more keys and go first. */
template <typename F>
__device__ __forceinline__ void tiles_each(const kern_attention_arguments &a,
                                           const kern_tiles &tiles, F f)
{
    const int32_t rows = static_cast<int32_t>(a.rows);
    const int32_t heads = static_cast<int32_t>(a.heads);
    kern_wg_items(tiles, rows, heads, [&](int32_t slot, int32_t row, int32_t head) {
        for (int32_t i = kern_tile_count(tiles, row) - 1 - slot; i >= 0; i -= tiles.slots) {
            f(kern_tile_of(tiles, row, i), row, head);
        }
    });
}

template <int D>
__device__ __forceinline__ void produce(const kern_attention_arguments &a, const kern_tiles &tiles,
                                        const tensors &from, uint32_t shared)
{
    const int32_t group = static_cast<int32_t>(a.heads / a.kv_heads);
    rings<D> ring(shared);
    tiles_each(a, tiles, [&](const kern_tile &tile, int32_t row, int32_t head) {
        const int32_t kv = head / group * D;
        const key_range keys = keys_of(a, tile);
        ring.queries.wait_empty();
        kern_barrier_announce(ring.queries.full(), room<D>::query_bytes);
        kern_wg_tile_copy<D, shape<D>::queries>(shared, &from.q, ring.queries.full(), head * D,
                                                tile.begin, row);
        ring.queries.next();
        for (int i = keys.count - 1; i >= 0; i--) {
            const int32_t key = keys.first + i * KEYS;
            const uint32_t at = shared + ring.keys.stage * room<D>::key_bytes;
            ring.keys.wait_empty();
            kern_barrier_announce(ring.keys.full(), room<D>::key_bytes);
            kern_wg_tile_copy<D, KEYS>(at + room<D>::keys, &from.k, ring.keys.full(), kv, key, row);
            ring.keys.next();
            ring.values.wait_empty();
            kern_barrier_announce(ring.values.full(), room<D>::key_bytes);
            kern_wg_tile_copy<D, KEYS>(at + room<D>::values, &from.v, ring.values.full(), kv, key,
                                       row);
            ring.values.next();
        }
    });
}

template <typename T, int D>
__device__ __forceinline__ void attend_tile(const kern_attention_arguments &a,
                                            const kern_tile &tile, int32_t row, int32_t head,
                                            uint32_t shared, rings<D> &ring)
{
    const key_range keys = keys_of(a, tile);
    const int32_t warp_row = kern_wg_warp() * KERN_WG_WARP_ROWS;
    const int32_t first_row = tile.begin + warp_row;
    const float scale_log2 = a.scale * KERN_LOG2_E;
    const int32_t window = kern_window(a);
    kern_softmax<D> s;
    float shrink[2];
    float scores[KEYS / 8][4];
    uint32_t p[KEYS / 16][4];
    int32_t key = keys.first + (keys.count - 1) * KEYS;
    const auto scores_begin = [&] {
        const uint32_t own = kern_uniform(shared +
                                          kern_wg_group() * KERN_WG_ROWS * KERN_WG_ROW_BYTES);
        const uint32_t at = kern_uniform(shared + room<D>::keys +
                                         ring.keys.stage * room<D>::key_bytes);
        kern_wg_begin();
        kern_wg_scores_begin<T, D, shape<D>::queries, KEYS>(
            scores, kern_wg_tile_at<shape<D>::queries>(own), kern_wg_tile_at<KEYS>(at));
        kern_wg_batch();
    };
    const auto gather_begin = [&] {
        const uint32_t at = kern_uniform(shared + room<D>::values +
                                         ring.values.stage * room<D>::key_bytes);
        kern_wg_settle(p);
        kern_wg_begin();
        kern_wg_gather_begin<T>(s.o, p, kern_wg_tile_at<KEYS>(at));
        kern_wg_batch();
    };
    const auto probabilities = [&] {
        if (key + KEYS - 1 > first_row || first_row + KERN_WG_WARP_ROWS - 1 - key >= window) {
            kern_scores_mask(scores, first_row, key, window);
        }
        kern_softmax_add(s, scores, shrink, scale_log2);
    };
    kern_softmax_begin(s);
    ring.queries.wait_full();
    ring.keys.wait_full();
    scores_begin();
    kern_wg_wait<0>();
    kern_wg_settle(scores);
    ring.keys.release();
    ring.keys.next();
    probabilities();
    kern_wg_pack<T>(p, scores);
    for (key -= KEYS; key >= keys.first; key -= KEYS) {
        ring.keys.wait_full();
        kern_wg_settle(scores);
        kern_wg_settle(s.o);
        kern_wg_settle(p);
        scores_begin();
        ring.values.wait_full();
        gather_begin();
        kern_wg_wait<1>();
        kern_wg_settle(scores);
        ring.keys.release();
        ring.keys.next();
        probabilities();
        kern_wg_wait<0>();
        kern_wg_settle(s.o);
        kern_wg_settle(p);
        ring.values.release();
        ring.values.next();
        kern_softmax_shrink(s, shrink);
        kern_wg_pack<T>(p, scores);
    }
    ring.queries.release();
    ring.queries.next();
    ring.values.wait_full();
    kern_wg_settle(s.o);
    gather_begin();
    float factor[2];
    kern_softmax_finish(s, a, tile, row * a.length, head, warp_row, factor);
    kern_wg_wait<0>();
    kern_wg_settle(s.o);
    kern_wg_settle(p);
    ring.values.release();
    ring.values.next();
    uint16_t *to = static_cast<uint16_t *>(a.o) + (row * a.length + first_row) * a.o_stride +
                   head * D;
    kern_wg_rows_write<T, D>(s.o, factor, to, a.o_stride, tile.end - first_row);
}

template <typename T, int D>
__global__ void __launch_bounds__(shape<D>::threads, 1)
    attend(struct kern_attention_arguments a, struct kern_tiles tiles,
           const __grid_constant__ struct tensors from)
{
    const uint32_t shared = kern_shared_address(kern_wg_shared());
    rings<D> ring(shared);
    if (threadIdx.x == 0) {
        ring.queries.init(1, shape<D>::groups * KERN_WG_WARPS);
        ring.keys.init(1, shape<D>::groups * KERN_WG_WARPS);
        ring.values.init(1, shape<D>::groups * KERN_WG_WARPS);
        kern_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.x < KERN_WG_THREADS) {
        kern_registers_lower<shape<D>::producer_registers>();
        if (kern_wg_copies()) {
            produce<D>(a, tiles, from, shared);
        }
    } else {
        kern_registers_raise<shape<D>::consumer_registers>();
        tiles_each(a, tiles, [&](const kern_tile &tile, int32_t row, int32_t head) {
            attend_tile<T, D>(a, tile, row, head, shared, ring);
        });
    }
}

template <typename T, int D>
int launch(const struct dev_launch *where, const struct kern_attention_arguments *a)
{
    struct kern_tiles tiles;
    struct tensors from;
    kern_grid grid = {.blocks = 0,
                      .threads = shape<D>::threads,
                      .lines = 1,
                      .shared_bytes = room<D>::bytes + KERN_WG_ALIGN_BYTES};
    int rc = kern_cuda_tiles_list(where, "attention", a, shape<D>::queries, where->scratch, &tiles);
    if (rc != 0 ||
        (rc = kern_wg_map("attention", *a, a->q, a->q_stride, a->heads, shape<D>::queries,
                          &from.q)) != 0 ||
        (rc = kern_wg_map("attention", *a, a->k, a->k_stride, a->kv_heads, KEYS, &from.k)) != 0 ||
        (rc = kern_wg_map("attention", *a, a->v, a->v_stride, a->kv_heads, KEYS, &from.v)) != 0 ||
        (rc = kern_wg_blocks("attention", tiles, a->rows, a->heads, &grid.blocks)) != 0) {
        return rc;
    }
    return kern_cuda_launch(where, "attention", grid, attend<T, D>, *a, tiles, from);
}

} // namespace

bool kern_cuda_attention_sm90_fits(const struct kern_attention_arguments *a)
{
    return a->type == KERN_BF16 && (a->head_dim == 64 || a->head_dim == 128) && a->gaps == NULL &&
           kern_cuda_attention_fits(a);
}

int kern_cuda_attention_sm90(const struct dev_launch *where,
                             const struct kern_attention_arguments *a)
{
    return a->head_dim == 64 ? launch<kern_bf16, 64>(where, a) : launch<kern_bf16, 128>(where, a);
}
