/* attention_grad.cu: the gradient of attention on tensor cores, in two kernels: dk and dv of 64
 * keys, from the queries that see them; dq of 64 queries, from their keys.
 * A block owns what it writes, so no sum depends on the order of blocks. */
#include "kernels/cuda/attention_grad.cuh"
#include "kernels/cuda/cuda.h"

namespace
{

constexpr int TILE = 64; /* keys of a block of dk and dv; queries of a block of dq */
constexpr int STEP = 32; /* queries, or keys, of a step */
constexpr int THREADS = 128;
constexpr int WARP_ROWS = 16;

/* ---- dk and dv: rows are keys, columns are queries. ---- */

/* Shared memory of a step. */
template <int D> struct step_room {
    uint16_t q[STEP * kern_row<D>::stride];
    uint16_t d_o[STEP * kern_row<D>::stride];
    float lse[STEP]; /* times log2 e */
    float delta[STEP];
};

template <int D> struct keys_room {
    uint16_t k[TILE * kern_row<D>::stride];
    uint16_t v[TILE * kern_row<D>::stride];
    step_room<D> steps[2];
};

template <int D>
__device__ void step_copy(step_room<D> &to, const kern_grad_job &j, int64_t row_token, int64_t head,
                          int32_t first, int32_t stop)
{
    const kern_attention_arguments &a = j.g.forward;
    kern_rows q = kern_rows_of(a.q, a.q_stride, row_token, head * a.head_dim);
    kern_rows d_o = kern_rows_of(j.g.d_o, j.g.d_o_stride, row_token, head * a.head_dim);
    q.first = d_o.first = first;
    kern_rows_copy<D, STEP, THREADS>(to.q, q, stop, a.head_dim);
    kern_rows_copy<D, STEP, THREADS>(to.d_o, d_o, stop, a.head_dim);
}

/* The lse and delta of a query of the next step, in threads below STEP. */
struct query_numbers {
    float lse, delta;
};

__device__ query_numbers numbers_ask(const kern_grad_job &j, int64_t row_token, const kern_walk &w,
                                     int32_t stop)
{
    const kern_attention_arguments &a = j.g.forward;
    const int32_t query = w.query + static_cast<int32_t>(threadIdx.x);
    const int64_t at = w.head * a.rows * a.length + row_token + query;
    const bool has = threadIdx.x < STEP && query < stop;
    return {has ? a.lse[at] : 0.0f, has ? j.delta[at] : 0.0f};
}

/* Apart from numbers_ask(), so that the products of a step hide the latency of its loads. */
template <int D> __device__ void numbers_put(step_room<D> &to, const query_numbers &numbers)
{
    if (threadIdx.x < STEP) {
        to.lse[threadIdx.x] = numbers.lse * KERN_LOG2_E;
        to.delta[threadIdx.x] = numbers.delta;
    }
}

/* Turns scores in p into probabilities, and dp into score gradients. */
template <int D>
__device__ void turn_keys(float (&p)[STEP / 8][4], float (&dp)[STEP / 8][4],
                          const step_room<D> &step, const kern_attention_arguments &a,
                          int32_t first_key, int32_t first_query, const kern_tile &tile,
                          kern_gap gap)
{
    const int lane = threadIdx.x % KERN_LANES;
    const int32_t window = kern_window(a);
    const float scale_log2 = a.scale * KERN_LOG2_E;
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int column = n * 8 + lane % 4 * 2 + i % 2;
            const int32_t key = first_key + lane / 4 + i / 2 * 8;
            const int32_t query = first_query + column;
            const bool seen = query < tile.stop && kern_sees_key(query, key, window, gap);
            const bool slopes = seen && !kern_sees_one_key(query, tile.start, window, gap);
            const float chance = kern_exp2(__fmaf_rn(p[n][i], scale_log2, -step.lse[column]));
            p[n][i] = seen ? chance : 0.0f;
            dp[n][i] = slopes ? chance * (dp[n][i] - step.delta[column]) * a.scale : 0.0f;
        }
    }
}

template <typename T, int D>
__device__ void keys_tile(const kern_grad_job &j, const kern_tile &tile, int64_t row,
                          int64_t kv_head, keys_room<D> &room)
{
    const kern_attention_arguments &a = j.g.forward;
    const int64_t row_token = row * a.length;
    const int warp_row = threadIdx.x / KERN_LANES * WARP_ROWS;
    kern_rows k = kern_rows_of(a.k, a.k_stride, row_token, kv_head * a.head_dim);
    kern_rows v = kern_rows_of(a.v, a.v_stride, row_token, kv_head * a.head_dim);
    k.first = v.first = tile.begin;
    kern_rows_copy<D, TILE, THREADS>(room.k, k, tile.end, a.head_dim);
    kern_rows_copy<D, TILE, THREADS>(room.v, v, tile.end, a.head_dim);
    const kern_gap gap = kern_gap_of(a, row);
    kern_walk w = kern_walk_begin(a, tile, kv_head);
    step_copy(room.steps[0], j, row_token, w.head, w.query, tile.stop);
    kern_copy_batch();
    query_numbers numbers = numbers_ask(j, row_token, w, tile.stop);
    numbers_put(room.steps[0], numbers);
    float dk[D / 8][4];
    float dv[D / 8][4];
    kern_clear(dk);
    kern_clear(dv);
    bool more = true;
    for (int stage = 0; more; stage ^= 1) {
        const int32_t query = w.query;
        const step_room<D> &step = room.steps[stage];
        more = kern_walk_next(w, STEP);
        if (more) {
            step_copy(room.steps[stage ^ 1], j, row_token, w.head, w.query, tile.stop);
            numbers = numbers_ask(j, row_token, w, tile.stop);
        }
        kern_copy_batch();
        kern_copy_wait<1>();
        __syncthreads();
        const int32_t first_key = tile.begin + warp_row;
        /* Skips queries that see none of the warp's keys. */
        if (query + STEP > first_key && !kern_gap_hides(gap, query, first_key, WARP_ROWS)) {
            float p[STEP / 8][4] = {};
            float dp[STEP / 8][4] = {};
            kern_scores<T, D, STEP>(p, room.k, warp_row, step.q, 0);
            kern_scores<T, D, STEP>(dp, room.v, warp_row, step.d_o, 0);
            turn_keys<D>(p, dp, step, a, first_key, query, tile, gap);
            kern_gather<T, D, STEP>(dv, p, step.d_o, 0);
            kern_gather<T, D, STEP>(dk, dp, step.q, 0);
        }
        numbers_put(room.steps[stage ^ 1], numbers);
        __syncthreads();
    }
    const float one[2] = {1.0f, 1.0f};
    const int64_t token = row_token + tile.begin + warp_row;
    const int32_t left = tile.end - tile.begin - warp_row;
    uint16_t *own = room.k + warp_row * kern_row<D>::stride;
    kern_rows_write<T, D>(dk, one, own, j.g.dk, j.g.dk_stride,
                          token * j.g.dk_stride + kv_head * a.head_dim, left, a.head_dim);
    own = room.v + warp_row * kern_row<D>::stride;
    kern_rows_write<T, D>(dv, one, own, j.g.dv, j.g.dv_stride,
                          token * j.g.dv_stride + kv_head * a.head_dim, left, a.head_dim);
    __syncthreads();
}

/* Earlier tiles may be seen by more queries and go first. */
template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 2) attend_dkdv(struct kern_grad_job j)
{
    keys_room<D> &room = *reinterpret_cast<keys_room<D> *>(kern_shared());
    const int64_t kv_head = blockIdx.x % j.g.forward.kv_heads;
    const int32_t count = kern_tile_count(j.tiles, blockIdx.y);
    for (int32_t index = static_cast<int32_t>(blockIdx.x / j.g.forward.kv_heads); index < count;
         index += j.tiles.slots) {
        keys_tile<T, D>(j, kern_tile_of(j.tiles, blockIdx.y, index), blockIdx.y, kv_head, room);
    }
}

/* ---- dq: rows are queries, columns are keys. ---- */

template <int D> struct queries_room {
    uint16_t q[TILE * kern_row<D>::stride];
    uint16_t d_o[TILE * kern_row<D>::stride];
    struct {
        uint16_t k[STEP * kern_row<D>::stride];
        uint16_t v[STEP * kern_row<D>::stride];
    } stages[2];
};

/* The numbers of rows g and g + 8; the factor of dq is 0 if the query sees only one key. */
struct row_numbers {
    float lse[2]; /* times log2 e */
    float delta[2];
    float factor[2];
};

__device__ void turn_queries(float (&p)[STEP / 8][4], float (&dp)[STEP / 8][4],
                             const row_numbers &r, const kern_attention_arguments &a,
                             int32_t first_query, int32_t first_key, int32_t stop, kern_gap gap)
{
    const int lane = threadIdx.x % KERN_LANES;
    const int32_t window = kern_window(a);
    const float scale_log2 = a.scale * KERN_LOG2_E;
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int32_t key = first_key + n * 8 + lane % 4 * 2 + i % 2;
            const int32_t query = first_query + lane / 4 + i / 2 * 8;
            const float chance = kern_exp2(__fmaf_rn(p[n][i], scale_log2, -r.lse[i / 2]));
            const float slope = chance * (dp[n][i] - r.delta[i / 2]) * a.scale;
            const bool seen = query < stop && kern_sees_key(query, key, window, gap);
            dp[n][i] = seen ? slope : 0.0f;
        }
    }
}

template <int D>
__device__ void stage_copy(queries_room<D> &room, int stage, const kern_grad_job &j,
                           int64_t row_token, int64_t column, int32_t key, int32_t end)
{
    const kern_attention_arguments &a = j.g.forward;
    kern_rows k = kern_rows_of(a.k, a.k_stride, row_token, column);
    kern_rows v = kern_rows_of(a.v, a.v_stride, row_token, column);
    k.first = v.first = key;
    kern_rows_copy<D, STEP, THREADS>(room.stages[stage].k, k, end, a.head_dim);
    kern_rows_copy<D, STEP, THREADS>(room.stages[stage].v, v, end, a.head_dim);
}

template <typename T, int D>
__device__ void queries_tile(const kern_grad_job &j, const kern_tile &tile, int64_t row,
                             int64_t head, queries_room<D> &room)
{
    const kern_attention_arguments &a = j.g.forward;
    const int64_t row_token = row * a.length;
    const int64_t kv = head / (a.heads / a.kv_heads) * a.head_dim;
    const int warp_row = threadIdx.x / KERN_LANES * WARP_ROWS;
    const int32_t first_row = tile.begin + warp_row;
    const kern_gap gap = kern_gap_of(a, row);
    int32_t key = kern_first_keys(tile, a, STEP);
    kern_rows q = kern_rows_of(a.q, a.q_stride, row_token, head * a.head_dim);
    kern_rows d_o = kern_rows_of(j.g.d_o, j.g.d_o_stride, row_token, head * a.head_dim);
    q.first = d_o.first = tile.begin;
    kern_rows_copy<D, TILE, THREADS>(room.q, q, tile.end, a.head_dim);
    kern_rows_copy<D, TILE, THREADS>(room.d_o, d_o, tile.end, a.head_dim);
    stage_copy(room, 0, j, row_token, kv, key, tile.end);
    kern_copy_batch();
    row_numbers r;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int32_t query = first_row + static_cast<int32_t>(threadIdx.x % KERN_LANES) / 4 +
                              8 * half;
        const int64_t at = head * a.rows * a.length + row_token + query;
        r.lse[half] = query < tile.end ? a.lse[at] * KERN_LOG2_E : 0.0f;
        r.delta[half] = query < tile.end ? j.delta[at] : 0.0f;
        r.factor[half] = kern_sees_one_key(query, tile.start, kern_window(a), gap) ? 0.0f : 1.0f;
    }
    float dq[D / 8][4];
    kern_clear(dq);
    for (int stage = 0; key < tile.end; key += STEP, stage ^= 1) {
        if (key + STEP < tile.end) {
            stage_copy(room, stage ^ 1, j, row_token, kv, key + STEP, tile.end);
        }
        kern_copy_batch();
        kern_copy_wait<1>();
        __syncthreads();
        /* Skips keys that the warp's rows do not see. */
        if (key < first_row + WARP_ROWS && !kern_gap_hides(gap, first_row, key, STEP)) {
            float p[STEP / 8][4] = {};
            float dp[STEP / 8][4] = {};
            kern_scores<T, D, STEP>(p, room.q, warp_row, room.stages[stage].k, 0);
            kern_scores<T, D, STEP>(dp, room.d_o, warp_row, room.stages[stage].v, 0);
            turn_queries(p, dp, r, a, first_row, key, tile.end, gap);
            kern_gather<T, D, STEP>(dq, dp, room.stages[stage].k, 0);
        }
        __syncthreads();
    }
    kern_rows_write<T, D>(dq, r.factor, room.q + warp_row * kern_row<D>::stride, j.g.dq,
                          j.g.dq_stride,
                          (row_token + first_row) * j.g.dq_stride + head * a.head_dim,
                          tile.end - first_row, a.head_dim);
    __syncthreads();
}

template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 2) attend_dq(struct kern_grad_job j)
{
    queries_room<D> &room = *reinterpret_cast<queries_room<D> *>(kern_shared());
    const int64_t head = blockIdx.x % j.g.forward.heads;
    const int32_t slot = static_cast<int32_t>(blockIdx.x / j.g.forward.heads);
    const int32_t count = kern_tile_count(j.tiles, blockIdx.y);
    for (int32_t index = count - 1 - slot; index >= 0; index -= j.tiles.slots) {
        queries_tile<T, D>(j, kern_tile_of(j.tiles, blockIdx.y, index), blockIdx.y, head, room);
    }
}

constexpr size_t SHARED_MAX = 99 << 10; /* a block's on sm_86 and sm_89, the least of the supported
                                         * cards */

template <typename T, int D>
int launch(const struct dev_launch *where, const struct kern_grad_job &j)
{
    static_assert(sizeof(keys_room<D>) <= SHARED_MAX && sizeof(queries_room<D>) <= SHARED_MAX);
    const kern_attention_arguments &a = j.g.forward;
    const unsigned rows = static_cast<unsigned>(a.rows);
    const kern_grid dkdv = {.blocks = j.tiles.slots * a.kv_heads,
                            .threads = THREADS,
                            .lines = rows,
                            .shared_bytes = sizeof(keys_room<D>)};
    const kern_grid dq = {.blocks = j.tiles.slots * a.heads,
                          .threads = THREADS,
                          .lines = rows,
                          .shared_bytes = sizeof(queries_room<D>)};
    /* dq is last, because it may replace d_o, which dk and dv need. */
    int rc = kern_cuda_launch(where, "attention_grad", dkdv, attend_dkdv<T, D>, j);
    return rc != 0 ? rc : kern_cuda_launch(where, "attention_grad", dq, attend_dq<T, D>, j);
}

int launch_bf16(const struct dev_launch *where, const struct kern_grad_job &j)
{
    if (j.g.forward.head_dim <= 64) {
        return launch<kern_bf16, 64>(where, j);
    }
    return j.g.forward.head_dim <= 96 ? launch<kern_bf16, 96>(where, j)
                                      : launch<kern_bf16, 128>(where, j);
}

} // namespace

extern "C" size_t kern_cuda_attention_grad_bytes(const struct kern_attention_grad_arguments *g)
{
    const size_t own = kern_cuda_delta_bytes(&g->forward) + kern_cuda_tiles_bytes(&g->forward);
    const size_t check = kern_cuda_attention_grad_sm90_fits(g)
                             ? kern_cuda_attention_grad_check_bytes()
                             : 0;
    return own > check ? own : check;
}

int kern_cuda_attention_grad_mma(const struct dev_launch *where,
                                 const struct kern_attention_grad_arguments *g)
{
    struct kern_grad_job j;
    int rc = kern_cuda_attention_grad_begin(where, g, TILE, &j.tiles, &j.delta);
    if (rc != 0) {
        return rc;
    }
    j.g = *g;
    return g->forward.type == KERN_BF16 ? launch_bf16(where, j) : launch<kern_fp16, 128>(where, j);
}

extern "C" int kern_cuda_attention_grad(const struct dev_launch *where,
                                        const struct kern_attention_grad_arguments *g)
{
    struct kern_cuda *cuda = static_cast<struct kern_cuda *>(where->context);
    const struct kern_attention_arguments *a = &g->forward;
    if (a->rows * a->length * a->heads == 0) {
        return 0;
    }
    if (!kern_cuda_attention_grad_fits(g)) {
        float *delta = static_cast<float *>(where->scratch);
        int rc = kern_cuda_delta(where, g, delta);
        return rc != 0 ? rc : kern_cuda_attention_grad_plain(where, g, delta);
    }
    if (!kern_cuda_attention_grad_sm90_fits(g)) {
        return kern_cuda_attention_grad_mma(where, g);
    }
    if (cuda->sm90_grad == KERN_SM90_UNKNOWN) {
        cuda->sm90_grad = kern_cuda_attention_grad_check(where) ? KERN_SM90_WORKS
                                                                : KERN_SM90_LEFT_OUT;
    }
    return cuda->sm90_grad == KERN_SM90_WORKS ? kern_cuda_attention_grad_sm90(where, g)
                                              : kern_cuda_attention_grad_mma(where, g);
}
