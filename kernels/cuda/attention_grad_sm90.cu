/* attention_grad_sm90.cu: the gradient of attention with Hopper's warpgroup products and bulk
 * copies: two kernels, as in attention_grad.cu.
 * A consumer has 64 keys (or queries); its probabilities overlap with the other's products.
 * Used only if attention_check.c finds agreement on this card. */
#include "kernels/cuda/attention_grad.cuh"
#include "kernels/cuda/attention_sm90.cuh"
#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/cuda.h"

namespace
{

constexpr int TILE = 128; /* keys of a block of dk and dv; queries of a block of dq */
constexpr int GROUPS = 2;
constexpr int THREADS = (GROUPS + 1) * KERN_WG_THREADS;
constexpr int PRODUCER_REGISTERS = 40;
constexpr int CONSUMER_REGISTERS = 232;
static_assert(kern_wg_registers_fit(GROUPS, PRODUCER_REGISTERS, CONSUMER_REGISTERS));

template <int D> constexpr int tile_bytes = kern_wg_tile_bytes<D, TILE>;

struct tensors {
    kern_tensor_map q, d_o, k, v;
};

/* Return the first row, in the block's tile, of this thread's warpgroup and of its warp. */
__device__ int32_t group_row()
{
    return kern_wg_group() * KERN_WG_ROWS;
}

__device__ int32_t warp_row()
{
    return kern_wg_warp() * KERN_WG_WARP_ROWS;
}

/* ---- dk and dv: rows are keys, columns are queries. ---- */

constexpr int QUERIES = 64; /* processed in one step */
static_assert(QUERIES == 2 * KERN_LANES);
template <int D> constexpr int query_bytes = kern_wg_tile_bytes<D, QUERIES>;

/* Offsets in shared memory: keys and values; stages of queries and their d_o; per stage the lse
 * (times log2 e), then the delta; barriers. */
template <int D> struct keys_room {
    static constexpr int stages = 4;
    static constexpr int k = 0;
    static constexpr int v = tile_bytes<D>;
    static constexpr int q = 2 * tile_bytes<D>;
    static constexpr int d_o = q + stages * query_bytes<D>;
    static constexpr int numbers = d_o + stages * query_bytes<D>;
    static constexpr int number_bytes = 2 * QUERIES * static_cast<int>(sizeof(float));
    static constexpr int tile_ring = numbers + stages * number_bytes;
    static constexpr int step_ring = tile_ring + kern_ring<1>::bytes;
    static constexpr int numbers_read = step_ring + kern_ring<stages>::bytes;
    static constexpr int bytes = numbers_read + stages * KERN_BARRIER_BYTES;
};

template <int D> struct keys_rings {
    kern_ring<1> tile;
    kern_ring<keys_room<D>::stages> step;

    __device__ explicit keys_rings(uint32_t shared)
        : tile(shared + keys_room<D>::tile_ring), step(shared + keys_room<D>::step_ring)
    {
    }
    /* Returns the barrier whose phase ends when the consumers have read the stage's numbers. */
    __device__ uint32_t numbers_read() const
    {
        return step.full() + (keys_room<D>::numbers_read - keys_room<D>::step_ring);
    }
};

/* Calls f(tile, row, kv_head) for the block's tiles. Earlier tiles may be seen by more queries and
 * go first. */
template <typename F> __device__ __forceinline__ void keys_each(const kern_grad_job &j, F f)
{
    const uint32_t rows = static_cast<uint32_t>(j.g.forward.rows);
    const uint32_t heads = static_cast<uint32_t>(j.g.forward.kv_heads);
    const int32_t row = static_cast<int32_t>(blockIdx.x / heads % rows);
    const int32_t kv_head = static_cast<int32_t>(blockIdx.x % heads);
    const int32_t count = kern_tile_count(j.tiles, row);
    for (int32_t i = static_cast<int32_t>(blockIdx.x / heads / rows); i < count;
         i += j.tiles.slots) {
        f(kern_tile_of(j.tiles, row, i), row, kv_head);
    }
}

/* Calls f(head, query) for steps over the queries that see the tile's keys; `query` is the step's
 * first. */
template <typename F>
__device__ __forceinline__ void steps_each(const kern_grad_job &j, const kern_tile &tile,
                                           int32_t kv_head, F f)
{
    const kern_walk w = kern_walk_begin(j.g.forward, tile, kv_head);
    for (int32_t head = w.head; head < w.head_end; head++) {
        for (int32_t query = w.first; query < w.last; query += QUERIES) {
            f(head, query);
        }
    }
}

/* Starts the bulk copies, on one thread. */
template <int D>
__device__ __forceinline__ void keys_copy(const kern_grad_job &j, const tensors &from,
                                          uint32_t shared)
{
    keys_rings<D> ring(shared);
    keys_each(j, [&](const kern_tile &tile, int32_t row, int32_t kv_head) {
        ring.tile.wait_empty();
        kern_barrier_announce(ring.tile.full(), 2 * tile_bytes<D>);
        kern_wg_tile_copy<D, TILE>(shared + keys_room<D>::k, &from.k, ring.tile.full(), kv_head * D,
                                   tile.begin, row);
        kern_wg_tile_copy<D, TILE>(shared + keys_room<D>::v, &from.v, ring.tile.full(), kv_head * D,
                                   tile.begin, row);
        ring.tile.next();
        steps_each(j, tile, kv_head, [&](int32_t head, int32_t query) {
            const uint32_t at = shared + ring.step.stage * query_bytes<D>;
            ring.step.wait_empty();
            kern_barrier_announce(ring.step.full(), 2 * query_bytes<D>);
            kern_wg_tile_copy<D, QUERIES>(at + keys_room<D>::q, &from.q, ring.step.full(), head * D,
                                          query, row);
            kern_wg_tile_copy<D, QUERIES>(at + keys_room<D>::d_o, &from.d_o, ring.step.full(),
                                          head * D, query, row);
            ring.step.next();
        });
    });
}

/* Copies the lse (`which` 0) or delta (1) of queries, on one warp, because bulk copies need
 * multiples of 16 bytes. */
template <int D>
__device__ __forceinline__ void keys_numbers(const kern_grad_job &j, int which, char *shared)
{
    const kern_attention_arguments &a = j.g.forward;
    const int lane = threadIdx.x % KERN_LANES;
    const float *from = which == 0 ? a.lse : j.delta;
    const float factor = which == 0 ? KERN_LOG2_E : 1.0f;
    float *to = reinterpret_cast<float *>(shared + keys_room<D>::numbers) + which * QUERIES + lane;
    keys_rings<D> ring(kern_shared_address(shared));
    keys_each(j, [&](const kern_tile &tile, int32_t row, int32_t kv_head) {
        steps_each(j, tile, kv_head, [&](int32_t head, int32_t query) {
            const float *at = from + (head * a.rows + row) * a.length + query + lane;
            const int32_t left = tile.stop - query - lane;
            const float first = left > 0 ? at[0] : 0.0f;
            const float second = left > KERN_LANES ? at[KERN_LANES] : 0.0f;
            kern_barrier_wait(ring.numbers_read(), ring.step.phase ^ 1);
            to[ring.step.stage * 2 * QUERIES] = first * factor;
            to[ring.step.stage * 2 * QUERIES + KERN_LANES] = second * factor;
            kern_barrier_arrive(ring.step.full(), true);
            ring.step.next();
        });
    });
}

/* Sets the scores of keys that a query does not see to minus infinity. The tile begins at first_key
 * and first_query. */
__device__ __forceinline__ void keys_mask(float (&p)[QUERIES / 8][4], int32_t first_key,
                                          int32_t first_query, int32_t stop, int32_t window)
{
    const int lane = threadIdx.x % KERN_LANES;
#pragma unroll
    for (int n = 0; n < QUERIES / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int32_t query = first_query + n * 8 + lane % 4 * 2 + i % 2;
            const int32_t key = first_key + lane / 4 + i / 2 * 8;
            p[n][i] = kern_sees(query, key, stop, window) ? p[n][i] : -__uint_as_float(0x7f800000u);
        }
    }
}

constexpr kern_gap NO_GAP = {INT32_MAX, INT32_MAX};

/* Clears dp of queries (from first_query on) that see only one key. */
__device__ __forceinline__ void keys_clear(float (&dp)[QUERIES / 8][4], int32_t first_query,
                                           int32_t start, int32_t window)
{
    const int lane = threadIdx.x % KERN_LANES;
#pragma unroll
    for (int n = 0; n < QUERIES / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int32_t query = first_query + n * 8 + lane % 4 * 2 + i % 2;
            dp[n][i] = kern_sees_one_key(query, start, window, NO_GAP) ? 0.0f : dp[n][i];
        }
    }
}

template <typename T, int D>
__device__ __forceinline__ void keys_tile(const kern_grad_job &j, const kern_tile &tile,
                                          int32_t row, int32_t kv_head, char *memory,
                                          keys_rings<D> &ring)
{
    const kern_attention_arguments &a = j.g.forward;
    const uint32_t shared = kern_shared_address(memory);
    const int lane = threadIdx.x % KERN_LANES;
    const int32_t window = kern_window(a);
    const float scale_log2 = a.scale * KERN_LOG2_E;
    const int32_t first_key = tile.begin + group_row();
    const int32_t warp_key = tile.begin + warp_row();
    float dk[D / 8][4];
    float dv[D / 8][4];
    kern_clear(dk);
    kern_clear(dv);
    ring.tile.wait_full();
    steps_each(j, tile, kv_head, [&](int32_t, int32_t query) {
        ring.step.wait_full();
        if (query + QUERIES > first_key) { /* otherwise no query sees the warpgroup's keys */
            float p[QUERIES / 8][4];
            float dp[QUERIES / 8][4];
            uint32_t p_packed[QUERIES / 16][4];
            uint32_t dp_packed[QUERIES / 16][4];
            const uint32_t own = kern_uniform(shared + group_row() * KERN_WG_ROW_BYTES);
            const kern_wg_tile keys = kern_wg_tile_at<TILE>(own + keys_room<D>::k);
            const kern_wg_tile values = kern_wg_tile_at<TILE>(own + keys_room<D>::v);
            const uint32_t at = kern_uniform(shared + ring.step.stage * query_bytes<D>);
            const kern_wg_tile q = kern_wg_tile_at<QUERIES>(at + keys_room<D>::q);
            const kern_wg_tile d_o = kern_wg_tile_at<QUERIES>(at + keys_room<D>::d_o);
            const float2 *numbers = reinterpret_cast<const float2 *>(
                                        memory + keys_room<D>::numbers +
                                        ring.step.stage * keys_room<D>::number_bytes) +
                                    lane % 4;
            kern_wg_begin();
            kern_wg_scores_begin<T, D, TILE, QUERIES>(p, keys, q);
            kern_wg_batch();
            kern_wg_scores_begin<T, D, TILE, QUERIES>(dp, values, d_o);
            kern_wg_batch();
            kern_wg_wait<1>();
            kern_wg_settle(p);
            if (query < warp_key + KERN_WG_WARP_ROWS || query + QUERIES > tile.stop ||
                query + QUERIES - 1 - warp_key >= window) {
                keys_mask(p, warp_key, query, tile.stop, window);
            }
#pragma unroll
            for (int n = 0; n < QUERIES / 8; n++) {
                const float2 lse = numbers[n * 4];
                p[n][0] = kern_exp2(__fmaf_rn(p[n][0], scale_log2, -lse.x));
                p[n][1] = kern_exp2(__fmaf_rn(p[n][1], scale_log2, -lse.y));
                p[n][2] = kern_exp2(__fmaf_rn(p[n][2], scale_log2, -lse.x));
                p[n][3] = kern_exp2(__fmaf_rn(p[n][3], scale_log2, -lse.y));
            }
            kern_wg_pack<T>(p_packed, p);
            kern_wg_settle(dv);
            kern_wg_settle(p_packed);
            kern_wg_begin();
            kern_wg_gather_begin<T>(dv, p_packed, d_o);
            kern_wg_batch();
            kern_wg_wait<1>();
            kern_wg_settle(dp);
#pragma unroll
            for (int n = 0; n < QUERIES / 8; n++) {
                const float2 delta = numbers[QUERIES / 2 + n * 4];
                dp[n][0] = p[n][0] * (dp[n][0] - delta.x);
                dp[n][1] = p[n][1] * (dp[n][1] - delta.y);
                dp[n][2] = p[n][2] * (dp[n][2] - delta.x);
                dp[n][3] = p[n][3] * (dp[n][3] - delta.y);
            }
            if (query == tile.start || window == 1) {
                keys_clear(dp, query, tile.start, window);
            }
            kern_wg_pack<T>(dp_packed, dp);
            kern_wg_settle(dk);
            kern_wg_settle(dp_packed);
            kern_wg_begin();
            kern_wg_gather_begin<T>(dk, dp_packed, q);
            kern_wg_batch();
            kern_barrier_arrive(ring.numbers_read(), true);
            kern_wg_wait<0>();
            kern_wg_settle(dv);
            kern_wg_settle(p_packed);
            kern_wg_settle(dk);
            kern_wg_settle(dp_packed);
        } else {
            kern_barrier_arrive(ring.numbers_read(), true);
        }
        ring.step.release();
        ring.step.next();
    });
    ring.tile.release();
    ring.tile.next();
    const int64_t token = row * a.length + warp_key;
    const int32_t left = tile.end - warp_key;
    const float scale[2] = {a.scale, a.scale};
    const float one[2] = {1.0f, 1.0f};
    kern_wg_rows_write<T, D>(dk, scale,
                             static_cast<uint16_t *>(j.g.dk) + token * j.g.dk_stride + kv_head * D,
                             j.g.dk_stride, left);
    kern_wg_rows_write<T, D>(dv, one,
                             static_cast<uint16_t *>(j.g.dv) + token * j.g.dv_stride + kv_head * D,
                             j.g.dv_stride, left);
}

template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 1)
    attend_dkdv(struct kern_grad_job j, const __grid_constant__ struct tensors from)
{
    char *shared = kern_wg_shared();
    keys_rings<D> ring(kern_shared_address(shared));
    if (threadIdx.x == 0) {
        ring.tile.init(1, GROUPS * KERN_WG_WARPS);
        ring.step.init(1 + 2 * KERN_LANES, GROUPS * KERN_WG_WARPS);
        for (int i = 0; i < keys_room<D>::stages; i++) {
            kern_barrier_init(ring.numbers_read() + i * KERN_BARRIER_BYTES,
                              GROUPS * KERN_WG_THREADS);
        }
        kern_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.x < KERN_WG_THREADS) {
        kern_registers_lower<PRODUCER_REGISTERS>();
        if (kern_wg_copies()) {
            keys_copy<D>(j, from, kern_shared_address(shared));
        } else if (threadIdx.x / KERN_LANES == 1 || threadIdx.x / KERN_LANES == 2) {
            keys_numbers<D>(j, static_cast<int>(threadIdx.x / KERN_LANES) - 1, shared);
        }
    } else {
        kern_registers_raise<CONSUMER_REGISTERS>();
        keys_each(j, [&](const kern_tile &tile, int32_t row, int32_t kv_head) {
            keys_tile<T, D>(j, tile, row, kv_head, shared, ring);
        });
    }
}

/* ---- dq: rows are queries, columns are keys. ---- */

constexpr int KEYS = 128;        /* processed in one step */
static_assert(TILE % KEYS == 0); /* no step begins after a consumer's last query */
template <int D> constexpr int key_bytes = kern_wg_tile_bytes<D, KEYS>;

/* Offsets in shared memory: queries and their d_o; stages of keys and values; barriers. */
template <int D> struct queries_room {
    static constexpr int stages = 2;
    static constexpr int q = 0;
    static constexpr int d_o = tile_bytes<D>;
    static constexpr int k = 2 * tile_bytes<D>;
    static constexpr int v = k + stages * key_bytes<D>;
    static constexpr int tile_ring = v + stages * key_bytes<D>;
    static constexpr int step_ring = tile_ring + kern_ring<1>::bytes;
    static constexpr int bytes = step_ring + kern_ring<stages>::bytes;
};

template <int D> struct queries_rings {
    kern_ring<1> tile;
    kern_ring<queries_room<D>::stages> step;

    __device__ explicit queries_rings(uint32_t shared)
        : tile(shared + queries_room<D>::tile_ring), step(shared + queries_room<D>::step_ring)
    {
    }
};

/* Calls f(tile, row, head) for the block's tiles. Later tiles may see more keys and go first. */
template <typename F> __device__ __forceinline__ void queries_each(const kern_grad_job &j, F f)
{
    const kern_attention_arguments &a = j.g.forward;
    const int32_t rows = static_cast<int32_t>(a.rows);
    const int32_t heads = static_cast<int32_t>(a.heads);
    kern_wg_items(j.tiles, rows, heads, [&](int32_t slot, int32_t row, int32_t head) {
        for (int32_t i = kern_tile_count(j.tiles, row) - 1 - slot; i >= 0; i -= j.tiles.slots) {
            f(kern_tile_of(j.tiles, row, i), row, head);
        }
    });
}

template <int D>
__device__ __forceinline__ void queries_copy(const kern_grad_job &j, const tensors &from,
                                             uint32_t shared)
{
    const kern_attention_arguments &a = j.g.forward;
    const int32_t group = static_cast<int32_t>(a.heads / a.kv_heads);
    queries_rings<D> ring(shared);
    queries_each(j, [&](const kern_tile &tile, int32_t row, int32_t head) {
        const int32_t kv = head / group * D;
        ring.tile.wait_empty();
        kern_barrier_announce(ring.tile.full(), 2 * tile_bytes<D>);
        kern_wg_tile_copy<D, TILE>(shared + queries_room<D>::q, &from.q, ring.tile.full(), head * D,
                                   tile.begin, row);
        kern_wg_tile_copy<D, TILE>(shared + queries_room<D>::d_o, &from.d_o, ring.tile.full(),
                                   head * D, tile.begin, row);
        ring.tile.next();
        for (int32_t key = kern_first_keys(tile, a, KEYS); key < tile.end; key += KEYS) {
            const uint32_t at = shared + ring.step.stage * key_bytes<D>;
            ring.step.wait_empty();
            kern_barrier_announce(ring.step.full(), 2 * key_bytes<D>);
            kern_wg_tile_copy<D, KEYS>(at + queries_room<D>::k, &from.k, ring.step.full(), kv, key,
                                       row);
            kern_wg_tile_copy<D, KEYS>(at + queries_room<D>::v, &from.v, ring.step.full(), kv, key,
                                       row);
            ring.step.next();
        }
    });
}

/* The numbers of rows g and g + 8; the factor of dq is 0 if the query sees only one key. */
struct row_numbers {
    float lse[2]; /* times log2 e */
    float delta[2];
    float factor[2];
};

__device__ row_numbers numbers_of(const kern_grad_job &j, int64_t at, int32_t first_row,
                                  const kern_tile &tile)
{
    row_numbers r;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int32_t query = first_row + static_cast<int32_t>(threadIdx.x % KERN_LANES) / 4 +
                              8 * half;
        const bool alone = kern_sees_one_key(query, tile.start, kern_window(j.g.forward), NO_GAP);
        r.lse[half] = query < tile.end ? j.g.forward.lse[at + query] * KERN_LOG2_E : 0.0f;
        r.delta[half] = query < tile.end ? j.delta[at + query] : 0.0f;
        r.factor[half] = alone ? 0.0f : j.g.forward.scale;
    }
    return r;
}

template <typename T, int D>
__device__ __forceinline__ void queries_tile(const kern_grad_job &j, const kern_tile &tile,
                                             int32_t row, int32_t head, uint32_t shared,
                                             queries_rings<D> &ring)
{
    const kern_attention_arguments &a = j.g.forward;
    const int32_t window = kern_window(a);
    const float scale_log2 = a.scale * KERN_LOG2_E;
    const int32_t first_row = tile.begin + warp_row();
    const row_numbers r = numbers_of(j, (head * a.rows + row) * a.length, first_row, tile);
    float dq[D / 8][4];
    kern_clear(dq);
    ring.tile.wait_full();
    for (int32_t key = kern_first_keys(tile, a, KEYS); key < tile.end; key += KEYS) {
        const uint32_t own = kern_uniform(shared + group_row() * KERN_WG_ROW_BYTES);
        const kern_wg_tile queries = kern_wg_tile_at<TILE>(own + queries_room<D>::q);
        const kern_wg_tile slopes = kern_wg_tile_at<TILE>(own + queries_room<D>::d_o);
        ring.step.wait_full();
        float p[KEYS / 8][4];
        float dp[KEYS / 8][4];
        uint32_t packed[KEYS / 16][4];
        const uint32_t at = shared + ring.step.stage * key_bytes<D>;
        const kern_wg_tile keys = kern_wg_tile_at<KEYS>(at + queries_room<D>::k);
        const kern_wg_tile values = kern_wg_tile_at<KEYS>(at + queries_room<D>::v);
        kern_wg_begin();
        kern_wg_scores_begin<T, D, TILE, KEYS>(p, queries, keys);
        kern_wg_batch();
        kern_wg_scores_begin<T, D, TILE, KEYS>(dp, slopes, values);
        kern_wg_batch();
        kern_wg_wait<1>();
        kern_wg_settle(p);
        if (key + KEYS - 1 > first_row || first_row + KERN_WG_WARP_ROWS - 1 - key >= window) {
            kern_scores_mask(p, first_row, key, window);
        }
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                p[n][i] = kern_exp2(__fmaf_rn(p[n][i], scale_log2, -r.lse[i / 2]));
            }
        }
        kern_wg_wait<0>();
        kern_wg_settle(dp);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                dp[n][i] = p[n][i] * (dp[n][i] - r.delta[i / 2]);
            }
        }
        kern_wg_pack<T>(packed, dp);
        kern_wg_settle(dq);
        kern_wg_settle(packed);
        kern_wg_begin();
        kern_wg_gather_begin<T>(dq, packed, keys);
        kern_wg_batch();
        kern_wg_wait<0>();
        kern_wg_settle(dq);
        kern_wg_settle(packed);
        ring.step.release();
        ring.step.next();
    }
    ring.tile.release();
    ring.tile.next();
    uint16_t *to = static_cast<uint16_t *>(j.g.dq) + (row * a.length + first_row) * j.g.dq_stride +
                   head * D;
    kern_wg_rows_write<T, D>(dq, r.factor, to, j.g.dq_stride, tile.end - first_row);
}

template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 1)
    attend_dq(struct kern_grad_job j, const __grid_constant__ struct tensors from)
{
    const uint32_t shared = kern_shared_address(kern_wg_shared());
    queries_rings<D> ring(shared);
    if (threadIdx.x == 0) {
        ring.tile.init(1, GROUPS * KERN_WG_WARPS);
        ring.step.init(1, GROUPS * KERN_WG_WARPS);
        kern_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.x < KERN_WG_THREADS) {
        kern_registers_lower<PRODUCER_REGISTERS>();
        if (kern_wg_copies()) {
            queries_copy<D>(j, from, shared);
        }
    } else {
        kern_registers_raise<CONSUMER_REGISTERS>();
        queries_each(j, [&](const kern_tile &tile, int32_t row, int32_t head) {
            queries_tile<T, D>(j, tile, row, head, shared, ring);
        });
    }
}

template <int D> int launch_dkdv(const struct dev_launch *where, const kern_grad_job &j)
{
    const kern_attention_arguments &a = j.g.forward;
    struct tensors from;
    const kern_grid grid = {.blocks = j.tiles.slots * a.kv_heads * a.rows,
                            .threads = THREADS,
                            .lines = 1,
                            .shared_bytes = keys_room<D>::bytes + KERN_WG_ALIGN_BYTES};
    int rc = kern_wg_map("attention_grad", a, a.q, a.q_stride, a.heads, QUERIES, &from.q);
    if (rc != 0 ||
        (rc = kern_wg_map("attention_grad", a, j.g.d_o, j.g.d_o_stride, a.heads, QUERIES,
                          &from.d_o)) != 0 ||
        (rc = kern_wg_map("attention_grad", a, a.k, a.k_stride, a.kv_heads, TILE, &from.k)) != 0 ||
        (rc = kern_wg_map("attention_grad", a, a.v, a.v_stride, a.kv_heads, TILE, &from.v)) != 0) {
        return rc;
    }
    return kern_cuda_launch(where, "attention_grad", grid, attend_dkdv<kern_bf16, D>, j, from);
}

template <int D> int launch_dq(const struct dev_launch *where, const kern_grad_job &j)
{
    const kern_attention_arguments &a = j.g.forward;
    struct tensors from;
    kern_grid grid = {.blocks = 0,
                      .threads = THREADS,
                      .lines = 1,
                      .shared_bytes = queries_room<D>::bytes + KERN_WG_ALIGN_BYTES};
    int rc = kern_wg_blocks("attention_grad", j.tiles, a.rows, a.heads, &grid.blocks);
    if (rc != 0 ||
        (rc = kern_wg_map("attention_grad", a, a.q, a.q_stride, a.heads, TILE, &from.q)) != 0 ||
        (rc = kern_wg_map("attention_grad", a, j.g.d_o, j.g.d_o_stride, a.heads, TILE,
                          &from.d_o)) != 0 ||
        (rc = kern_wg_map("attention_grad", a, a.k, a.k_stride, a.kv_heads, KEYS, &from.k)) != 0 ||
        (rc = kern_wg_map("attention_grad", a, a.v, a.v_stride, a.kv_heads, KEYS, &from.v)) != 0) {
        return rc;
    }
    return kern_cuda_launch(where, "attention_grad", grid, attend_dq<kern_bf16, D>, j, from);
}

/* dq is last, because it may replace d_o, which dk and dv need. */
template <int D> int launch(const struct dev_launch *where, const kern_grad_job &j)
{
    const int rc = launch_dkdv<D>(where, j);
    return rc != 0 ? rc : launch_dq<D>(where, j);
}

} // namespace

bool kern_cuda_attention_grad_sm90_fits(const struct kern_attention_grad_arguments *g)
{
    return kern_cuda_attention_sm90_fits(&g->forward) && kern_cuda_attention_grad_fits(g);
}

int kern_cuda_attention_grad_sm90(const struct dev_launch *where,
                                  const struct kern_attention_grad_arguments *g)
{
    struct kern_grad_job j;
    int rc = kern_cuda_attention_grad_begin(where, g, TILE, &j.tiles, &j.delta);
    if (rc != 0) {
        return rc;
    }
    j.g = *g;
    return g->forward.head_dim == 64 ? launch<64>(where, j) : launch<128>(where, j);
}
