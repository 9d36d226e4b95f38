/* loss_rows.cu: running maxima and sums of rows of logits, gradients of logits, and the sum of the
 * loss. */
#include "kernels/cuda/loss_rows.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{

constexpr int THREADS = 512;
constexpr int SUMMERS = 1024;
constexpr int GROUP = KERN_GROUP;

__global__ void __launch_bounds__(THREADS) stats_rows(struct kern_loss_rows a, bool wide)
{
    __shared__ float rooms[2][THREADS / KERN_WARP];
    const int64_t t = blockIdx.x;
    const bool first = a.begin == 0;
    const float *row = a.logits + t * a.n;
    const float none = -__uint_as_float(0x7f800000u);
    float top = none;
    float sum = 0.0f;
    for (int64_t i = threadIdx.x * GROUP; i < a.n; i += THREADS * GROUP) {
        float v[GROUP];
        kern_load<kern_f32>(v, row, i, a.n - i, wide);
        float group_top = top;
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            group_top = i + j < a.n ? fmaxf(group_top, v[j]) : group_top;
        }
        sum = top == group_top ? sum : sum * expf(top - group_top);
        top = group_top;
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            sum += i + j < a.n && top > none ? expf(v[j] - top) : 0.0f;
        }
    }
    const float old_top = first ? none : a.maxima[t];
    const float new_top = fmaxf(kern_team_max<THREADS>(top, rooms[0]), old_top);
    sum = top > none ? sum * expf(top - new_top) : 0.0f;
    sum = kern_team_sum<THREADS>(sum, rooms[1]);
    if (threadIdx.x == 0) {
        const int64_t column = static_cast<int64_t>(a.labels[t]) - a.begin;
        a.sums[t] = (first ? 0.0f : a.sums[t] * expf(old_top - new_top)) + sum;
        a.maxima[t] = new_top;
        if (column >= 0 && column < a.n) {
            a.picked[t] = row[column];
        } else if (first) {
            a.picked[t] = 0.0f;
        }
    }
}

/* All threads read a slice before one writes, because gradients may replace logits. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    grad_rows(struct kern_loss_rows a, const float *factor, bool wide, bool wide_grads)
{
    const int64_t t = blockIdx.x;
    const float *row = a.logits + t * a.n;
    const bool ignored = a.labels[t] == KERN_LABEL_IGNORED;
    const int64_t column = static_cast<int64_t>(a.labels[t]) - a.begin;
    const float top = a.maxima[t];
    const float scale = a.scales != nullptr ? a.scales[t] : *factor;
    const float each = scale / a.sums[t];
    for (int64_t first = 0; first < a.n; first += THREADS * GROUP) {
        const int64_t i = first + threadIdx.x * GROUP;
        float v[GROUP];
        kern_load<kern_f32>(v, row, i, a.n - i, wide);
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            v[j] = expf(v[j] - top) * each;
            v[j] = i + j == column ? v[j] - scale : v[j];
            v[j] = ignored ? 0.0f : v[j];
        }
        __syncthreads();
        kern_store<T>(v, a.grads, t * a.grads_stride + i, a.n - i, wide_grads);
    }
}

/* The sum of -log p(label), and the number of tokens with a label. */
struct label_sums {
    double sum;
    int64_t count;
};

/* Thread 0 gets the sums, other threads zeros. Threads' sums are added by halves, in a fixed
 * order. */
__device__ label_sums sum_labels(const kern_loss_rows &a, int64_t first, int64_t count,
                                 double (&sums)[SUMMERS], int64_t (&counts)[SUMMERS])
{
    label_sums own = {0.0, 0};
    for (int64_t t = first + threadIdx.x; t < first + count; t += SUMMERS) {
        if (a.labels[t] != KERN_LABEL_IGNORED) {
            own.sum += static_cast<double>(a.maxima[t]) - static_cast<double>(a.picked[t]) +
                       log(static_cast<double>(a.sums[t]));
            own.count++;
        }
    }
    __syncthreads();
    sums[threadIdx.x] = own.sum;
    counts[threadIdx.x] = own.count;
    for (unsigned half = SUMMERS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
            counts[threadIdx.x] += counts[threadIdx.x + half];
        }
    }
    return threadIdx.x == 0 ? label_sums{sums[0], counts[0]} : label_sums{};
}

__global__ void __launch_bounds__(SUMMERS)
    sum_losses(struct kern_loss_rows a, struct kern_loss *loss)
{
    __shared__ double sums[SUMMERS];
    __shared__ int64_t counts[SUMMERS];
    const label_sums all = sum_labels(a, 0, a.tokens, sums, counts);
    if (threadIdx.x == 0) {
        loss->sum = all.sum;
        loss->count = all.count;
    }
}

/* One block processes all pairs in order. */
__global__ void __launch_bounds__(SUMMERS)
    sum_pairs(struct kern_loss_rows a, struct kern_loss_arguments given, float *scales)
{
    __shared__ double sums[SUMMERS];
    __shared__ int64_t counts[SUMMERS];
    __shared__ float factor;
    const int64_t length = given.tokens / (2 * given.pairs);
    const int64_t half = given.tokens / 2;
    struct kern_loss loss = {};
    for (int64_t pair = 0; pair < given.pairs; pair++) {
        const int64_t begin = pair * length;
        const int64_t chosen_count = given.gaps[2 * pair + 1];
        double rewards[2];
        bool valid = true;
        for (int side = 0; side < 2; side++) {
            const int64_t first = side == 0 ? begin : begin + chosen_count;
            const int64_t count = side == 0 ? chosen_count : length - chosen_count;
            const label_sums policy = sum_labels(a, first, count, sums, counts);
            const label_sums base = sum_labels(a, half + first, count, sums, counts);
            rewards[side] = given.beta * (base.sum - policy.sum);
            valid = valid && policy.count > 0;
        }
        if (threadIdx.x == 0) {
            const double margin = rewards[0] - rewards[1];
            factor = valid ? static_cast<float>(given.beta / (1.0 + exp(margin)) *
                                                static_cast<double>(*given.scale))
                           : 0.0f;
            if (valid) {
                loss.sum += log1p(exp(-fabs(margin))) + fmax(-margin, 0.0);
                loss.count++;
                loss.chosen += rewards[0];
                loss.rejected += rewards[1];
                loss.right += rewards[0] > rewards[1];
            }
        }
        __syncthreads();
        for (int64_t t = threadIdx.x; t < length; t += SUMMERS) {
            scales[begin + t] = t < chosen_count ? factor : -factor;
        }
    }
    if (threadIdx.x == 0) {
        *given.loss = loss;
    }
}

} // namespace

extern "C" int kern_cuda_loss_stats_rows(const struct dev_launch *where,
                                         const struct kern_loss_rows *rows)
{
    const kern_grid grid = kern_grid_of(rows->tokens, THREADS);
    return kern_cuda_launch(where, "loss", grid, stats_rows, *rows,
                            kern_is_wide(KERN_F32, rows->logits, rows->n));
}

extern "C" int kern_cuda_loss_grad_rows(const struct dev_launch *where, enum kern_type type,
                                        const struct kern_loss_rows *rows, const float *scale)
{
    const kern_grid grid = kern_grid_of(rows->tokens, THREADS);
    return kern_by_type("loss", type, [&](auto words) {
        return kern_cuda_launch(where, "loss", grid, grad_rows<decltype(words)>, *rows, scale,
                                kern_is_wide(KERN_F32, rows->logits, rows->n),
                                kern_is_wide(type, rows->grads, rows->grads_stride));
    });
}

extern "C" int kern_cuda_loss_sum(const struct dev_launch *where, const struct kern_loss_rows *rows,
                                  struct kern_loss *loss)
{
    const kern_grid grid = kern_grid_of(1, SUMMERS);
    return kern_cuda_launch(where, "loss", grid, sum_losses, *rows, loss);
}

extern "C" int kern_cuda_loss_sum_pairs(const struct dev_launch *where,
                                        const struct kern_loss_arguments *a,
                                        const struct kern_loss_rows *rows, float *scales)
{
    const kern_grid grid = kern_grid_of(1, SUMMERS);
    return kern_cuda_launch(where, "loss", grid, sum_pairs, *rows, *a, scales);
}
