/* attention_grad_sm90.cu: the gradient of attention on Hopper's warpgroup products, in the two kernels of
 * attention_grad.cu that each own what they write: a block has 128 keys of a key head (or 128 queries), a
 * warpgroup 64 of them, and goes by 64 over the other side, whose rows come to shared memory one step ahead.
 * Compiled for sm_90a alone, and used where attention_check.c has found it to agree with attention_grad.cu
 * on the card at hand. */
#include "kernels/cuda/attention_grad.cuh"
#include "kernels/cuda/attention_sm90.cuh"
#include "kernels/cuda/cuda.h"

namespace
{

constexpr int TILE = 128; /* keys of a block of dk and dv; queries of a block of dq */
constexpr int STEP = 64;  /* what the other side goes by */
constexpr int THREADS = 256;
constexpr int WARP_ROWS = 16;

template <int D> constexpr int tile_bytes = kern_wg_tile_bytes<D, TILE>;
template <int D> constexpr int step_bytes = kern_wg_tile_bytes<D, STEP>;

/* Results on their way to memory: the rows of all warps, as kern_rows_write takes them. */
template <int D> constexpr int rows_bytes = TILE *kern_row<D>::stride * 2;

/* The first row of this thread's warpgroup, and of its warp, in the block's tile. */
__device__ uint32_t group_row()
{
    return threadIdx.x / KERN_WG_THREADS * KERN_WG_ROWS;
}

__device__ int32_t warp_row()
{
    return static_cast<int32_t>(threadIdx.x / KERN_LANES) * WARP_ROWS;
}

/* Products that were begun are done. */
template <int D, int K>
__device__ __forceinline__ void gathered(float (&sums)[D / 8][4], uint32_t (&p)[K][4])
{
    kern_wg_settle(sums);
    kern_wg_settle(p);
}

/* ---- dk and dv: rows are keys, columns are queries. ---- */

/* Shared memory: keys, values, two stages of queries and their d_o, two numbers of each query. */
template <int D> struct keys_room {
    static constexpr int k = 0;
    static constexpr int v = tile_bytes<D>;
    static constexpr int steps = 2 * tile_bytes<D>;
    static constexpr int numbers = steps + 4 * step_bytes<D>;
    static constexpr int bytes = numbers + 4 * STEP * static_cast<int>(sizeof(float));
    static_assert(2 * rows_bytes<D> <= numbers);
};

template <int D> struct keys_work {
    const kern_grad_job &j;
    char *shared;
    int64_t row_token;
    int32_t stop;
    float lse, delta; /* of a query that comes: threads below STEP have one each */

    __device__ const char *q(int stage) const
    {
        return shared + keys_room<D>::steps + stage * 2 * step_bytes<D>;
    }
    __device__ const char *d_o(int stage) const
    {
        return q(stage) + step_bytes<D>;
    }
    /* lse times log2 e of the stage's queries; delta behind them. */
    __device__ float *numbers(int stage) const
    {
        return reinterpret_cast<float *>(shared + keys_room<D>::numbers) + stage * 2 * STEP;
    }
    __device__ void copy(int stage, const kern_walk &w)
    {
        const kern_attention_arguments &a = j.g.forward;
        const int64_t column = w.head * a.head_dim;
        kern_rows rows = kern_rows_of(a.q, a.q_stride, row_token, column);
        rows.first = w.query;
        kern_wg_copy<D, STEP, THREADS, 1>(const_cast<char *>(q(stage)), rows, stop);
        rows = kern_rows_of(j.g.d_o, j.g.d_o_stride, row_token, column);
        rows.first = w.query;
        kern_wg_copy<D, STEP, THREADS, 1>(const_cast<char *>(d_o(stage)), rows, stop);
        const int32_t query = w.query + static_cast<int32_t>(threadIdx.x);
        const int64_t at = w.head * a.rows * a.length + row_token + query;
        const bool has = threadIdx.x < STEP && query < stop;
        lse = has ? a.lse[at] : 0.0f;
        delta = has ? j.delta[at] : 0.0f;
    }
    /* After the products of a step: by then the numbers have come, and nobody has waited. */
    __device__ void put(int stage) const
    {
        if (threadIdx.x < STEP) {
            numbers(stage)[threadIdx.x] = lse * KERN_LOG2_E;
            numbers(stage)[STEP + threadIdx.x] = delta;
        }
    }
};

/* Scores become probabilities, dp the gradient of the scores. Rows from first_key on. */
__device__ void turn_keys(float (&p)[STEP / 8][4], float (&dp)[STEP / 8][4], const float *numbers,
                          const kern_attention_arguments &a, int32_t first_key, int32_t first_query,
                          int32_t stop)
{
    const int lane = threadIdx.x % KERN_LANES;
    const int32_t window = kern_window(a);
    const float scale_log2 = a.scale * KERN_LOG2_E;
    const bool cut = first_query < first_key + WARP_ROWS || first_query + STEP > stop ||
                     first_query + STEP - 1 - first_key >= window;
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
        const float *two = numbers + n * 8 + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int32_t query = first_query + n * 8 + lane % 4 * 2 + i % 2;
            const int32_t key = first_key + lane / 4 + i / 2 * 8;
            const float chance = kern_exp2(__fmaf_rn(p[n][i], scale_log2, -two[i % 2]));
            const bool seen = !cut || kern_sees(query, key, stop, window);
            p[n][i] = seen ? chance : 0.0f;
            dp[n][i] = p[n][i] * (dp[n][i] - two[STEP + i % 2]) * a.scale;
        }
    }
}

template <typename T, int D>
__device__ void keys_write(float (&sums)[D / 8][4], char *room, void *to, int64_t stride,
                           int64_t at, int32_t left, int64_t head_dim)
{
    const float one[2] = {1.0f, 1.0f};
    uint16_t *own = reinterpret_cast<uint16_t *>(room) + warp_row() * kern_row<D>::stride;
    kern_rows_write<T, D>(sums, one, own, to, stride, at, left, head_dim);
}

template <typename T, int D>
__device__ void keys_tile(const kern_grad_job &j, const kern_tile &tile, int64_t row,
                          int64_t kv_head, char *shared)
{
    const kern_attention_arguments &a = j.g.forward;
    const int64_t row_token = row * a.length;
    const int64_t column = kv_head * a.head_dim;
    const int32_t first_key = tile.begin + static_cast<int32_t>(group_row());
    kern_rows k = kern_rows_of(a.k, a.k_stride, row_token, column);
    kern_rows v = kern_rows_of(a.v, a.v_stride, row_token, column);
    k.first = v.first = tile.begin;
    kern_wg_copy<D, TILE, THREADS, 1>(shared + keys_room<D>::k, k, tile.end);
    kern_wg_copy<D, TILE, THREADS, 1>(shared + keys_room<D>::v, v, tile.end);
    keys_work<D> work = {j, shared, row_token, tile.stop, 0.0f, 0.0f};
    kern_walk w = kern_walk_begin(a, tile, kv_head);
    work.copy(0, w);
    kern_copy_batch();
    work.put(0);
    const kern_wg_tile keys = kern_wg_tile_at<TILE>(shared + keys_room<D>::k, group_row());
    const kern_wg_tile values = kern_wg_tile_at<TILE>(shared + keys_room<D>::v, group_row());
    float dk[D / 8][4];
    float dv[D / 8][4];
    kern_clear(dk);
    kern_clear(dv);
    bool more = true;
    for (int stage = 0; more; stage ^= 1) {
        const int32_t query = w.query;
        more = kern_walk_next(w, STEP);
        kern_wg_turn();
        if (more) {
            work.copy(stage ^ 1, w);
        }
        kern_copy_batch();
        if (query + STEP > first_key) { /* else no query sees the warpgroup's keys */
            float p[STEP / 8][4];
            float dp[STEP / 8][4];
            uint32_t p_packed[STEP / 16][4];
            uint32_t dp_packed[STEP / 16][4];
            const kern_wg_tile q = kern_wg_tile_at<STEP>(work.q(stage), 0);
            const kern_wg_tile d_o = kern_wg_tile_at<STEP>(work.d_o(stage), 0);
            kern_wg_begin();
            kern_wg_scores_begin<T, D, TILE, STEP>(p, keys, q);
            kern_wg_scores_begin<T, D, TILE, STEP>(dp, values, d_o);
            kern_wg_batch();
            kern_wg_wait<0>();
            kern_wg_settle(p);
            kern_wg_settle(dp);
            turn_keys(p, dp, work.numbers(stage), a, tile.begin + warp_row(), query, tile.stop);
            kern_wg_pack<T>(p_packed, p);
            kern_wg_pack<T>(dp_packed, dp);
            kern_wg_settle(dv);
            kern_wg_settle(dk);
            kern_wg_begin();
            kern_wg_gather_begin<T>(dv, p_packed, d_o);
            kern_wg_gather_begin<T>(dk, dp_packed, q);
            kern_wg_batch();
            kern_wg_wait<0>();
            gathered<D>(dv, p_packed);
            gathered<D>(dk, dp_packed);
        }
        if (more) {
            work.put(stage ^ 1);
        }
    }
    __syncthreads(); /* the results go through the memory of what they were made of */
    const int64_t token = row_token + tile.begin + warp_row();
    const int32_t left = tile.end - tile.begin - warp_row();
    keys_write<T, D>(dk, shared, j.g.dk, j.g.dk_stride, token * j.g.dk_stride + column, left,
                     a.head_dim);
    keys_write<T, D>(dv, shared + rows_bytes<D>, j.g.dv, j.g.dv_stride,
                     token * j.g.dv_stride + column, left, a.head_dim);
    __syncthreads();
}

/* The first tiles are seen by most queries: they go first. */
template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 1) attend_dkdv(struct kern_grad_job j)
{
    char *shared = kern_wg_shared();
    const int64_t kv_head = blockIdx.x % j.g.forward.kv_heads;
    const int32_t count = kern_tile_count(j.tiles, blockIdx.y);
    for (int32_t index = static_cast<int32_t>(blockIdx.x / j.g.forward.kv_heads); index < count;
         index += j.tiles.slots) {
        keys_tile<T, D>(j, kern_tile_of(j.tiles, blockIdx.y, index), blockIdx.y, kv_head, shared);
    }
}

/* ---- dq: rows are queries, columns are keys. ---- */

/* Shared memory: queries, their d_o, two stages of keys and values. */
template <int D> struct queries_room {
    static constexpr int q = 0;
    static constexpr int d_o = tile_bytes<D>;
    static constexpr int steps = 2 * tile_bytes<D>;
    static constexpr int bytes = steps + 4 * step_bytes<D>;
    static_assert(rows_bytes<D> <= bytes);
};

/* Two numbers of rows g and g + 8. */
struct row_numbers {
    float lse[2]; /* times log2 e */
    float delta[2];
};

__device__ row_numbers numbers_of(const kern_grad_job &j, int64_t at, int32_t first_row,
                                  int32_t end)
{
    row_numbers r;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int32_t query = first_row + static_cast<int32_t>(threadIdx.x % KERN_LANES) / 4 +
                              8 * half;
        r.lse[half] = query < end ? j.g.forward.lse[at + query] * KERN_LOG2_E : 0.0f;
        r.delta[half] = query < end ? j.delta[at + query] : 0.0f;
    }
    return r;
}

__device__ void turn_queries(float (&p)[STEP / 8][4], float (&dp)[STEP / 8][4],
                             const row_numbers &r, const kern_attention_arguments &a,
                             int32_t first_query, int32_t first_key, int32_t stop)
{
    const int lane = threadIdx.x % KERN_LANES;
    const int32_t window = kern_window(a);
    const float scale_log2 = a.scale * KERN_LOG2_E;
    const bool cut = first_key + STEP - 1 > first_query ||
                     first_query + WARP_ROWS - 1 - first_key >= window;
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int32_t key = first_key + n * 8 + lane % 4 * 2 + i % 2;
            const int32_t query = first_query + lane / 4 + i / 2 * 8;
            const float chance = kern_exp2(__fmaf_rn(p[n][i], scale_log2, -r.lse[i / 2]));
            const float slope = chance * (dp[n][i] - r.delta[i / 2]) * a.scale;
            const bool seen = !cut || kern_sees(query, key, stop, window);
            dp[n][i] = seen ? slope : 0.0f;
        }
    }
}

template <int D>
__device__ void stage_copy(char *to, const kern_attention_arguments &a, int64_t row_token,
                           int64_t column, const int32_t (&range)[2])
{
    kern_rows rows = kern_rows_of(a.k, a.k_stride, row_token, column);
    rows.first = range[0];
    kern_wg_copy<D, STEP, THREADS, 1>(to, rows, range[1]);
    rows = kern_rows_of(a.v, a.v_stride, row_token, column);
    rows.first = range[0];
    kern_wg_copy<D, STEP, THREADS, 1>(to + step_bytes<D>, rows, range[1]);
}

template <typename T, int D>
__device__ void queries_tile(const kern_grad_job &j, const kern_tile &tile, int64_t row,
                             int64_t head, char *shared)
{
    const kern_attention_arguments &a = j.g.forward;
    const int64_t row_token = row * a.length;
    const int64_t kv = head / (a.heads / a.kv_heads) * a.head_dim;
    const int32_t first_row = tile.begin + warp_row();
    const int32_t group_end = tile.begin + static_cast<int32_t>(group_row()) + KERN_WG_ROWS;
    char *steps = shared + queries_room<D>::steps;
    int32_t key = kern_first_keys(tile, a.window, STEP);
    kern_rows q = kern_rows_of(a.q, a.q_stride, row_token, head * a.head_dim);
    kern_rows d_o = kern_rows_of(j.g.d_o, j.g.d_o_stride, row_token, head * a.head_dim);
    q.first = d_o.first = tile.begin;
    kern_wg_copy<D, TILE, THREADS, 1>(shared + queries_room<D>::q, q, tile.end);
    kern_wg_copy<D, TILE, THREADS, 1>(shared + queries_room<D>::d_o, d_o, tile.end);
    stage_copy<D>(steps, a, row_token, kv, {key, tile.end});
    kern_copy_batch();
    const row_numbers r = numbers_of(j, head * a.rows * a.length + row_token, first_row, tile.end);
    const kern_wg_tile queries = kern_wg_tile_at<TILE>(shared + queries_room<D>::q, group_row());
    const kern_wg_tile slopes = kern_wg_tile_at<TILE>(shared + queries_room<D>::d_o, group_row());
    float dq[D / 8][4];
    kern_clear(dq);
    for (int stage = 0; key < tile.end; key += STEP, stage ^= 1) {
        char *now = steps + stage * 2 * step_bytes<D>;
        kern_wg_turn();
        if (key + STEP < tile.end) {
            stage_copy<D>(steps + (stage ^ 1) * 2 * step_bytes<D>, a, row_token, kv,
                          {key + STEP, tile.end});
        }
        kern_copy_batch();
        if (key < group_end) { /* else the warpgroup sees none of these keys */
            float p[STEP / 8][4];
            float dp[STEP / 8][4];
            uint32_t packed[STEP / 16][4];
            const kern_wg_tile keys = kern_wg_tile_at<STEP>(now, 0);
            const kern_wg_tile values = kern_wg_tile_at<STEP>(now + step_bytes<D>, 0);
            kern_wg_begin();
            kern_wg_scores_begin<T, D, TILE, STEP>(p, queries, keys);
            kern_wg_scores_begin<T, D, TILE, STEP>(dp, slopes, values);
            kern_wg_batch();
            kern_wg_wait<0>();
            kern_wg_settle(p);
            kern_wg_settle(dp);
            turn_queries(p, dp, r, a, first_row, key, tile.end);
            kern_wg_pack<T>(packed, dp);
            kern_wg_settle(dq);
            kern_wg_begin();
            kern_wg_gather_begin<T>(dq, packed, keys);
            kern_wg_batch();
            kern_wg_wait<0>();
            gathered<D>(dq, packed);
        }
    }
    __syncthreads();
    keys_write<T, D>(dq, shared, j.g.dq, j.g.dq_stride,
                     (row_token + first_row) * j.g.dq_stride + head * a.head_dim,
                     tile.end - first_row, a.head_dim);
    __syncthreads();
}

template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 1) attend_dq(struct kern_grad_job j)
{
    char *shared = kern_wg_shared();
    const int64_t head = blockIdx.x % j.g.forward.heads;
    const int32_t slot = static_cast<int32_t>(blockIdx.x / j.g.forward.heads);
    const int32_t count = kern_tile_count(j.tiles, blockIdx.y);
    for (int32_t index = count - 1 - slot; index >= 0; index -= j.tiles.slots) {
        queries_tile<T, D>(j, kern_tile_of(j.tiles, blockIdx.y, index), blockIdx.y, head, shared);
    }
}

template <typename T, int D> int launch(const struct dev_launch *where, const kern_grad_job &j)
{
    const kern_attention_arguments &a = j.g.forward;
    const unsigned rows = static_cast<unsigned>(a.rows);
    const kern_grid dkdv = {.blocks = j.tiles.slots * a.kv_heads,
                            .threads = THREADS,
                            .lines = rows,
                            .shared_bytes = keys_room<D>::bytes + KERN_WG_ALIGN_BYTES};
    const kern_grid dq = {.blocks = j.tiles.slots * a.heads,
                          .threads = THREADS,
                          .lines = rows,
                          .shared_bytes = queries_room<D>::bytes + KERN_WG_ALIGN_BYTES};
    /* dq may be d_o, which dk and dv are made of: it comes last. */
    int rc = kern_cuda_launch(where, "attention_grad", dkdv, attend_dkdv<T, D>, j);
    return rc != 0 ? rc : kern_cuda_launch(where, "attention_grad", dq, attend_dq<T, D>, j);
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
    return g->forward.head_dim == 64 ? launch<kern_bf16, 64>(where, j)
                                     : launch<kern_bf16, 128>(where, j);
}
