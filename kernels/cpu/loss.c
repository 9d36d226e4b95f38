/* loss.c: linear + loss over tiles of the vocabulary: statistics, then gradients, which compute a
 * tile's logits again and replace them. */
#include <errno.h>
#include <math.h>

#include "core/base/err.h"
#include "core/base/team.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/table.h"

enum { TOKEN_GRAIN = 4, LOGITS_BYTES = 8 << 20, TILE_GRAIN = 64, TILE_MIN = 512 };

static int labels_check(const int32_t *labels, int64_t tokens, int64_t vocab)
{
    for (int64_t t = 0; t < tokens; t++) {
        if (labels[t] != KERN_LABEL_IGNORED && (labels[t] < 0 || labels[t] >= vocab)) {
            return core_err_set(-EINVAL, "token %lld has label %d; expected 0 to %lld, or %d",
                                (long long)t, labels[t], (long long)vocab - 1, KERN_LABEL_IGNORED);
        }
    }
    return 0;
}

struct tile_job {
    const struct kern_isa *isa;
    struct kern_loss_tile tile;
};

static void stats_range(const void *argument, int64_t begin, int64_t end)
{
    const struct tile_job *job = argument;
    job->isa->loss_stats(&job->tile, begin, end);
}

static void grad_range(const void *argument, int64_t begin, int64_t end)
{
    const struct tile_job *job = argument;
    job->isa->loss_grad(&job->tile, begin, end);
}

static size_t logits_bytes(int64_t tokens, int64_t n)
{
    return kern_cpu_round((size_t)(tokens * n) * sizeof(float));
}

struct arrays {
    float *maxima, *sums, *picked; /* [tokens] */
    float *scales;                 /* [tokens]: factor of a token's gradients */
    float *dx_sum;                 /* [tokens][width] */
};

static int64_t grad_tokens(const struct kern_loss_arguments *a)
{
    return a->pairs > 0 ? a->tokens / 2 : a->tokens;
}

/* Rows begin .. begin + n - 1 of w. */
struct part {
    int64_t begin, n;
};

static const void *weights_at(const struct kern_loss_arguments *a, int64_t row)
{
    return (const char *)a->w + (size_t)(row * a->width) * kern_type_bytes(a->type);
}

/* Computes [tokens][n] = x w^T of the first `tokens` tokens in fp32 scratch. */
static int logits_product(const struct dev_launch *where, const struct kern_loss_arguments *a,
                          int64_t tokens, struct part part, char **scratch, float **out)
{
    float *logits = kern_cpu_take(scratch, logits_bytes(tokens, part.n));
    const struct kern_product product = {
        .type = a->type,
        .m = tokens,
        .n = part.n,
        .k = a->width,
        .a = a->x,
        .a_stride = a->x_stride,
        .b = weights_at(a, part.begin),
        .b_stride = a->width,
        .b_turned = true,
        .finish = {.first = true, .out = logits, .out_type = KERN_F32, .out_stride = part.n},
    };
    *out = logits;
    return kern_cpu_product(where, &product, *scratch);
}

static int stats_run(const struct dev_launch *where, const struct kern_loss_arguments *a,
                     const struct arrays *arrays, struct part part, char *scratch)
{
    float *logits = NULL;
    const int rc = logits_product(where, a, a->tokens, part, &scratch, &logits);
    if (rc != 0) {
        return rc;
    }
    const struct tile_job job = {.isa = kern_cpu_isa(where),
                                 .tile = {.n = part.n,
                                          .begin = part.begin,
                                          .logits = logits,
                                          .labels = a->labels,
                                          .maxima = arrays->maxima,
                                          .sums = arrays->sums,
                                          .picked = arrays->picked,
                                          .first = part.begin == 0}};
    kern_cpu_spread(where, a->tokens, TOKEN_GRAIN, stats_range, &job);
    return 0;
}

/* Sums -log p of some tokens' labels. */
static struct kern_loss sum_labels(const struct kern_loss_arguments *a, const struct arrays *arrays,
                                   int64_t first, int64_t count)
{
    struct kern_loss loss = {0};
    for (int64_t t = first; t < first + count; t++) {
        if (a->labels[t] != KERN_LABEL_IGNORED) {
            loss.sum += (double)arrays->maxima[t] - (double)arrays->picked[t] +
                        log((double)arrays->sums[t]);
            loss.count++;
        }
    }
    return loss;
}

static void fill_scales(const struct arrays *arrays, int64_t first, int64_t count, double scale)
{
    for (int64_t t = first; t < first + count; t++) {
        arrays->scales[t] = (float)scale;
    }
}

/* Returns the pairs' loss, and sets their tokens' factors. */
static struct kern_loss settle_pairs(const struct kern_loss_arguments *a,
                                     const struct arrays *arrays)
{
    const int64_t length = a->tokens / (2 * a->pairs);
    const double beta = a->beta;
    struct kern_loss loss = {0};
    for (int64_t pair = 0; pair < a->pairs; pair++) {
        const int64_t begin = pair * length;
        const int64_t rejected = begin + a->gaps[2 * pair + 1];
        const int64_t firsts[2] = {begin, rejected};
        const int64_t counts_of[2] = {rejected - begin, begin + length - rejected};
        double reward[2];
        bool counts = true;
        for (int side = 0; side < 2; side++) {
            const struct kern_loss policy = sum_labels(a, arrays, firsts[side], counts_of[side]);
            const struct kern_loss base = sum_labels(a, arrays, a->tokens / 2 + firsts[side],
                                                     counts_of[side]);
            reward[side] = beta * (base.sum - policy.sum);
            counts = counts && policy.count > 0;
        }
        const double margin = reward[0] - reward[1];
        const double factor = counts ? beta / (1 + exp(margin)) * (double)*a->scale : 0;
        fill_scales(arrays, firsts[0], counts_of[0], factor);
        fill_scales(arrays, firsts[1], counts_of[1], -factor);
        if (counts) {
            loss.sum += log1p(exp(-fabs(margin))) + fmax(-margin, 0);
            loss.count++;
            loss.chosen += reward[0];
            loss.rejected += reward[1];
            loss.right += reward[0] > reward[1];
        }
    }
    return loss;
}

static void settle(const struct kern_loss_arguments *a, const struct arrays *arrays)
{
    if (a->pairs > 0) {
        *a->loss = settle_pairs(a, arrays);
    } else {
        fill_scales(arrays, 0, a->tokens, (double)*a->scale);
        *a->loss = sum_labels(a, arrays, 0, a->tokens);
    }
}

static int grad_products(const struct dev_launch *where, const struct kern_loss_arguments *a,
                         const struct arrays *arrays, const struct kern_loss_tile *tile,
                         char *scratch)
{
    const struct kern_grad grad = kern_grad_at(&a->dw, tile->begin * a->width);
    const struct kern_product dw = {
        .type = a->type,
        .m = tile->n,
        .n = a->width,
        .k = grad_tokens(a),
        .a = tile->logits,
        .a_stride = tile->grad_stride,
        .a_turned = true,
        .b = a->x,
        .b_stride = a->x_stride,
        .finish = kern_finish_grad(&grad, a->width),
    };
    const struct kern_product dx = {
        .type = a->type,
        .m = grad_tokens(a),
        .n = a->width,
        .k = tile->n,
        .a = tile->logits,
        .a_stride = tile->grad_stride,
        .b = weights_at(a, tile->begin),
        .b_stride = a->width,
        .finish = {.sum = arrays->dx_sum,
                   .sum_stride = a->width,
                   .first = tile->begin == 0,
                   .out = tile->begin + tile->n == a->vocab ? a->dx : NULL,
                   .out_type = a->type,
                   .out_stride = a->dx_stride},
    };
    const int rc = kern_grad_wanted(&grad) ? kern_cpu_product(where, &dw, scratch) : 0;
    return rc != 0 ? rc : kern_cpu_product(where, &dx, scratch);
}

static int grad_run(const struct dev_launch *where, const struct kern_loss_arguments *a,
                    const struct arrays *arrays, struct part part, char *scratch)
{
    float *logits = NULL;
    const int64_t tokens = grad_tokens(a);
    const int rc = logits_product(where, a, tokens, part, &scratch, &logits);
    if (rc != 0) {
        return rc;
    }
    const int64_t in_row = (int64_t)(sizeof(float) / kern_type_bytes(a->type));
    const struct tile_job job = {.isa = kern_cpu_isa(where),
                                 .tile = {.n = part.n,
                                          .begin = part.begin,
                                          .logits = logits,
                                          .labels = a->labels,
                                          .maxima = arrays->maxima,
                                          .sums = arrays->sums,
                                          .type = a->type,
                                          .grad_stride = part.n * in_row,
                                          .scales = arrays->scales}};
    kern_cpu_spread(where, tokens, TOKEN_GRAIN, grad_range, &job);
    return grad_products(where, a, arrays, &job.tile, scratch);
}

static int64_t tile_rows(const struct kern_loss_arguments *a)
{
    const int64_t row_bytes = (a->tokens > 0 ? a->tokens : 1) * (int64_t)sizeof(float);
    const int64_t held = LOGITS_BYTES / row_bytes / TILE_GRAIN * TILE_GRAIN;
    const int64_t chosen = held > TILE_MIN ? held : TILE_MIN;
    const int64_t n = a->tile > 0 ? a->tile : chosen;
    return n < a->vocab ? n : a->vocab;
}

static size_t tile_bytes(const struct kern_loss_arguments *a, int64_t n, unsigned threads)
{
    const int64_t tokens = grad_tokens(a);
    const size_t products[] = {
        kern_cpu_product_bytes(a->type, a->tokens, n, a->width, threads),
        kern_cpu_product_bytes(a->type, tokens, n, a->width, threads),
        kern_cpu_product_bytes(a->type, n, a->width, tokens, threads),
        kern_cpu_product_bytes(a->type, tokens, a->width, n, threads),
    };
    size_t most = products[0];
    for (int i = 1; i < 4; i++) {
        most = products[i] > most ? products[i] : most;
    }
    return logits_bytes(a->tokens, n) + most;
}

static size_t arrays_bytes(const struct kern_loss_arguments *a)
{
    return 4 * kern_cpu_round((size_t)a->tokens * sizeof(float)) +
           kern_cpu_round((size_t)(grad_tokens(a) * a->width) * sizeof(float));
}

size_t kern_cpu_loss_bytes(const struct kern_loss_arguments *a, unsigned threads)
{
    const int64_t n = tile_rows(a);
    const int64_t rest = a->vocab % n;
    const size_t tile = tile_bytes(a, n, threads);
    const size_t last = rest > 0 ? tile_bytes(a, rest, threads) : 0;
    return (a->row_count > 0 ? 0 : arrays_bytes(a)) + (tile > last ? tile : last);
}

struct kern_loss_parts kern_cpu_loss_parts(const struct kern_loss_arguments *a)
{
    return (struct kern_loss_parts){.rows = tile_rows(a), .state_bytes = arrays_bytes(a)};
}

static struct arrays take_arrays(const struct kern_loss_arguments *a, char **memory)
{
    const size_t bytes = (size_t)a->tokens * sizeof(float);
    struct arrays arrays = {.maxima = kern_cpu_take(memory, bytes)};
    arrays.sums = kern_cpu_take(memory, bytes);
    arrays.picked = kern_cpu_take(memory, bytes);
    arrays.scales = kern_cpu_take(memory, bytes);
    arrays.dx_sum = kern_cpu_take(memory, (size_t)(grad_tokens(a) * a->width) * sizeof(float));
    return arrays;
}

/* Computes statistics or gradients of the arguments' part of w. */
static int rows_run(const struct dev_launch *where, const struct kern_loss_arguments *a)
{
    const struct part part = {a->first_row, a->row_count};
    char *state = a->state;
    const struct arrays arrays = take_arrays(a, &state);
    if (a->dx != NULL) {
        return grad_run(where, a, &arrays, part, where->scratch);
    }
    const int rc = stats_run(where, a, &arrays, part, where->scratch);
    if (rc == 0 && part.begin + part.n == a->vocab) {
        settle(a, &arrays);
    }
    return rc;
}

int kern_cpu_loss(const struct dev_launch *where, const struct kern_loss_arguments *a)
{
    int rc = kern_cpu_need(where, KERN_LOSS, kern_cpu_loss_bytes(a, core_team_count(where->team)));
    if (rc != 0) {
        return rc;
    }
    rc = labels_check(a->labels, a->tokens, a->vocab);
    if (rc != 0) {
        return rc;
    }
    if (a->row_count > 0) {
        return rows_run(where, a);
    }
    char *scratch = where->scratch;
    const struct arrays arrays = take_arrays(a, &scratch);
    const int64_t step = tile_rows(a);
    for (int64_t begin = 0; begin < a->vocab && rc == 0; begin += step) {
        const struct part part = {begin, begin + step < a->vocab ? step : a->vocab - begin};
        rc = stats_run(where, a, &arrays, part, scratch);
    }
    if (rc != 0) {
        return rc;
    }
    settle(a, &arrays);
    for (int64_t begin = 0; a->dx != NULL && begin < a->vocab && rc == 0; begin += step) {
        const struct part part = {begin, begin + step < a->vocab ? step : a->vocab - begin};
        rc = grad_run(where, a, &arrays, part, scratch);
    }
    return rc;
}
