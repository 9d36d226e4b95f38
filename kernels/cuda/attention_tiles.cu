/* attention_tiles.cu: lists the tiles of documents, and computes delta for the gradient. */
#include "kernels/cuda/attention.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int LISTERS = 1024;
constexpr int WARP = 32;

/* Returns the end of the document that begins at `start` and contains `from`. */
__device__ int32_t stop_of(const int32_t *starts, int32_t length, int32_t from, int32_t start)
{
    int32_t low = from + 1;
    int32_t high = length;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (starts[middle] <= start) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* A block has one row; tiles are in order of position. */
__global__ void __launch_bounds__(LISTERS)
    list_tiles(const int32_t *all_starts, int32_t length, int32_t step, struct kern_tile *list,
               int32_t *counts)
{
    __shared__ int32_t rooms[2][LISTERS / WARP];
    const int64_t row = blockIdx.x;
    const int32_t *starts = all_starts + row * length;
    struct kern_tile *tiles = list + row * length;
    const unsigned lane = threadIdx.x % WARP;
    const unsigned warp = threadIdx.x / WARP;
    int32_t listed = 0;
    int turn = 0;
    for (int32_t first = 0; first < length; first += LISTERS, turn ^= 1) {
        const int32_t t = first + static_cast<int32_t>(threadIdx.x);
        const int32_t start = t < length ? starts[t] : 0;
        const bool begins = t < length && (t - start) % step == 0;
        const unsigned votes = __ballot_sync(0xffffffffu, begins);
        if (lane == 0) {
            rooms[turn][warp] = __popc(votes);
        }
        __syncthreads();
        int32_t index = listed + __popc(votes & ((1u << lane) - 1));
        for (unsigned w = 0; w < LISTERS / WARP; w++) {
            index += w < warp ? rooms[turn][w] : 0;
            listed += rooms[turn][w];
        }
        if (begins) {
            const int32_t stop = stop_of(starts, length, t, start);
            tiles[index] = {t, t + step < stop ? t + step : stop, start, stop};
        }
    }
    if (threadIdx.x == 0) {
        counts[row] = listed;
    }
}

/* LANES lanes have one head of one token; the warp shares shuffles. */
template <typename T, int LANES>
__global__ void __launch_bounds__(THREADS)
    head_deltas(struct kern_attention_grad_arguments g, float *delta, int64_t tokens, bool wide)
{
    const int64_t index = static_cast<int64_t>(blockIdx.x) * (THREADS / LANES) +
                          threadIdx.x / LANES;
    const kern_head_row at = kern_head_row_of(index, g.forward.heads);
    const int64_t width = at.token < tokens ? g.forward.head_dim : 0;
    const int64_t o_at = at.token * g.forward.o_stride + at.head * width;
    const int64_t d_o_at = at.token * g.d_o_stride + at.head * width;
    float sum = 0.0f;
    for (int64_t i = threadIdx.x % LANES * KERN_GROUP; i < width; i += LANES * KERN_GROUP) {
        kern_words<T> words[2]; /* both loads are in flight before one is used */
        float o[KERN_GROUP];
        float d_o[KERN_GROUP];
        kern_words_load<T>(words[0], g.forward.o, o_at + i, width - i, wide);
        kern_words_load<T>(words[1], g.d_o, d_o_at + i, width - i, wide);
        kern_words_widen<T>(o, words[0]);
        kern_words_widen<T>(d_o, words[1]);
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            sum = __fmaf_rn(o[j], d_o[j], sum);
        }
    }
    sum = kern_warp_sum<LANES>(sum);
    if (threadIdx.x % LANES == 0 && width > 0) {
        delta[at.head * tokens + at.token] = sum;
    }
}

template <typename T, int LANES>
int launch_deltas(const struct dev_launch *where, const struct kern_attention_grad_arguments *g,
                  float *delta, bool wide)
{
    const int64_t tokens = g->forward.rows * g->forward.length;
    const kern_grid grid = kern_grid_of(kern_div_up(tokens * g->forward.heads, THREADS / LANES),
                                        THREADS);
    return kern_cuda_launch(where, "attention_grad", grid, head_deltas<T, LANES>, *g, delta, tokens,
                            wide);
}

} // namespace

size_t kern_cuda_tiles_bytes(const struct kern_attention_arguments *a)
{
    const size_t tokens = static_cast<size_t>(a->rows * a->length);
    return a->starts == nullptr
               ? 0
               : tokens * sizeof(struct kern_tile) +
                     (static_cast<size_t>(a->rows) * sizeof(int32_t) + 255) / 256 * 256;
}

int kern_cuda_tiles_list(const struct dev_launch *where, const char *op,
                         const struct kern_attention_arguments *a, int32_t step, void *scratch,
                         struct kern_tiles *out)
{
    if (a->length > INT32_MAX / 2) {
        return core_err_set(-EINVAL, "op %s has rows of %lld tokens; the maximum is %d", op,
                            (long long)a->length, INT32_MAX / 2);
    }
    *out = {nullptr, nullptr, step, static_cast<int32_t>(a->length),
            static_cast<int32_t>(kern_div_up(a->length, step))};
    if (a->starts == nullptr) {
        return 0;
    }
    struct kern_tile *list = static_cast<struct kern_tile *>(scratch);
    int32_t *counts = reinterpret_cast<int32_t *>(list + a->rows * a->length);
    const kern_grid grid = kern_grid_of(a->rows, LISTERS);
    out->list = list;
    out->counts = counts;
    out->slots *= 2; /* documents add partial tiles */
    return kern_cuda_launch(where, op, grid, list_tiles, a->starts, out->length, step, list,
                            counts);
}

size_t kern_cuda_delta_bytes(const struct kern_attention_arguments *a)
{
    return (static_cast<size_t>(a->rows * a->length * a->heads) * sizeof(float) + 255) / 256 * 256;
}

int kern_cuda_delta(const struct dev_launch *where, const struct kern_attention_grad_arguments *g,
                    float *delta)
{
    const struct kern_attention_arguments *a = &g->forward;
    const bool wide = kern_is_wide(a->type, a->o, a->o_stride) &&
                      kern_is_wide(a->type, g->d_o, g->d_o_stride) &&
                      kern_is_wide(a->type, nullptr, a->head_dim) && a->head_dim % KERN_GROUP == 0;
    return kern_by_type("attention_grad", a->type, [&](auto type) {
        using T = decltype(type);
        return a->head_dim <= WARP / 4 * KERN_GROUP
                   ? launch_deltas<T, WARP / 4>(where, g, delta, wide)
                   : launch_deltas<T, WARP / 2>(where, g, delta, wide);
    });
}

int kern_cuda_attention_grad_begin(const struct dev_launch *where,
                                   const struct kern_attention_grad_arguments *g, int32_t step,
                                   struct kern_tiles *tiles, const float **delta)
{
    float *at = static_cast<float *>(where->scratch);
    char *behind = static_cast<char *>(where->scratch) + kern_cuda_delta_bytes(&g->forward);
    *delta = at;
    const int rc = kern_cuda_delta(where, g, at);
    return rc != 0
               ? rc
               : kern_cuda_tiles_list(where, "attention_grad", &g->forward, step, behind, tiles);
}

bool kern_cuda_attention_fits(const struct kern_attention_arguments *a)
{
    return a->type != KERN_F32 && a->head_dim % KERN_GROUP == 0 && a->head_dim <= 128 &&
           a->scale > 0.0f && kern_is_wide(a->type, a->q, a->q_stride) &&
           kern_is_wide(a->type, a->k, a->k_stride) && kern_is_wide(a->type, a->v, a->v_stride) &&
           kern_is_wide(a->type, a->o, a->o_stride);
}

bool kern_cuda_attention_grad_fits(const struct kern_attention_grad_arguments *g)
{
    const enum kern_type type = g->forward.type;
    return kern_cuda_attention_fits(&g->forward) && kern_is_wide(type, g->d_o, g->d_o_stride) &&
           kern_is_wide(type, g->dq, g->dq_stride) && kern_is_wide(type, g->dk, g->dk_stride) &&
           kern_is_wide(type, g->dv, g->dv_stride);
}
