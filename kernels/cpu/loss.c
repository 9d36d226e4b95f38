/* loss.c: linear + cross-entropy over tiles of the vocabulary: statistics of all tiles first, then
 * gradients, for which a tile's logits are computed again. Only a tile of logits ever exists. */
#include <errno.h>
#include <math.h>

#include "core/base/err.h"
#include "core/base/team.h"
#include "kernels/cpu/cpu.h"

enum { TOKEN_GRAIN = 4, LOGITS_BYTES = 8 << 20, TILE_GRAIN = 64, TILE_LEAST = 512 };

static int labels_check(const int32_t *labels, int64_t tokens, int64_t vocab)
{
    for (int64_t t = 0; t < tokens; t++) {
        if (labels[t] != KERN_LABEL_IGNORED && (labels[t] < 0 || labels[t] >= vocab)) {
            return core_err_set(-EINVAL, "token %lld has label %d; it is 0 to %lld, or %d",
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

/* logits[tokens][n] = x w^T in fp32. */
static struct kern_product logits_product(enum kern_type type, const int64_t shape[3],
                                          const void *x, int64_t x_stride, const void *w)
{
    return (struct kern_product){
        .type = type,
        .m = shape[0],
        .n = shape[1],
        .k = shape[2],
        .a = x,
        .a_stride = x_stride,
        .b = w,
        .b_stride = shape[2],
        .b_turned = true,
        .finish = {.first = true, .out_type = KERN_F32, .out_stride = shape[1]},
    };
}

size_t kern_cpu_loss_stats_bytes(const struct kern_loss_stats_arguments *a, unsigned threads)
{
    return logits_bytes(a->tokens, a->n) +
           kern_cpu_product_bytes(a->type, a->tokens, a->n, a->width, threads);
}

/* Without checks: of labels, of scratch. */
static int stats_run(const struct dev_launch *where, const struct kern_loss_stats_arguments *a,
                     char *scratch)
{
    const int64_t shape[3] = {a->tokens, a->n, a->width};
    struct kern_product product = logits_product(a->type, shape, a->x, a->x_stride, a->w);
    float *logits = kern_cpu_take(&scratch, logits_bytes(a->tokens, a->n));
    product.finish.out = logits;
    int rc = kern_cpu_product(where, &product, scratch);
    if (rc != 0) {
        return rc;
    }
    const struct tile_job job = {.isa = kern_cpu_isa(where),
                                 .tile = {.n = a->n,
                                          .begin = a->begin,
                                          .logits = logits,
                                          .labels = a->labels,
                                          .maxima = a->maxima,
                                          .sums = a->sums,
                                          .picked = a->picked,
                                          .first = a->first}};
    kern_cpu_spread(where, a->tokens, TOKEN_GRAIN, stats_range, &job);
    return 0;
}

int kern_cpu_loss_stats(const struct dev_launch *where, const struct kern_loss_stats_arguments *a)
{
    int rc = kern_cpu_need(where, KERN_LOSS_STATS,
                           kern_cpu_loss_stats_bytes(a, core_team_count(where->team)));
    if (rc == 0 && a->first) {
        rc = labels_check(a->labels, a->tokens, a->vocab);
    }
    return rc == 0 ? stats_run(where, a, where->scratch) : rc;
}

size_t kern_cpu_loss_sum_bytes(const struct kern_loss_sum_arguments *a, unsigned threads)
{
    (void)a;
    (void)threads;
    return 0;
}

int kern_cpu_loss_sum(const struct dev_launch *where, const struct kern_loss_sum_arguments *a)
{
    (void)where;
    struct kern_loss loss = {0};
    for (int64_t t = 0; t < a->tokens; t++) {
        if (a->labels[t] != KERN_LABEL_IGNORED) {
            loss.sum += (double)a->maxima[t] - (double)a->picked[t] + log((double)a->sums[t]);
            loss.count++;
        }
    }
    *a->loss = loss;
    return 0;
}

size_t kern_cpu_loss_grad_bytes(const struct kern_loss_grad_arguments *a, unsigned threads)
{
    const size_t products[] = {
        kern_cpu_product_bytes(a->type, a->tokens, a->n, a->width, threads),
        kern_cpu_product_bytes(a->type, a->n, a->width, a->tokens, threads),
        kern_cpu_product_bytes(a->type, a->tokens, a->width, a->n, threads),
    };
    size_t most = products[0];
    for (int i = 1; i < 3; i++) {
        most = products[i] > most ? products[i] : most;
    }
    return logits_bytes(a->tokens, a->n) + most;
}

/* The gradients of the logits stand where the logits stood. */
static int grad_products(const struct dev_launch *where, const struct kern_loss_grad_arguments *a,
                         const struct kern_loss_tile *tile, char *scratch)
{
    struct kern_product dw = {
        .type = a->type,
        .m = a->n,
        .n = a->width,
        .k = a->tokens,
        .a = tile->logits,
        .a_stride = tile->grad_stride,
        .a_turned = true,
        .b = a->x,
        .b_stride = a->x_stride,
        .finish = kern_finish_grad(&a->dw, a->width),
    };
    const struct kern_product dx = {
        .type = a->type,
        .m = a->tokens,
        .n = a->width,
        .k = a->n,
        .a = tile->logits,
        .a_stride = tile->grad_stride,
        .b = a->w,
        .b_stride = a->width,
        .finish = {.sum = a->dx_sum,
                   .sum_stride = a->width,
                   .first = a->first,
                   .out = a->last ? a->dx : NULL,
                   .out_type = a->type,
                   .out_stride = a->dx_stride},
    };
    int rc = kern_grad_wanted(&a->dw) ? kern_cpu_product(where, &dw, scratch) : 0;
    return rc == 0 ? kern_cpu_product(where, &dx, scratch) : rc;
}

static int grad_run(const struct dev_launch *where, const struct kern_loss_grad_arguments *a,
                    char *scratch)
{
    const int64_t shape[3] = {a->tokens, a->n, a->width};
    struct kern_product product = logits_product(a->type, shape, a->x, a->x_stride, a->w);
    float *logits = kern_cpu_take(&scratch, logits_bytes(a->tokens, a->n));
    product.finish.out = logits;
    int rc = kern_cpu_product(where, &product, scratch);
    if (rc != 0) {
        return rc;
    }
    const int64_t in_row = (int64_t)(sizeof(float) / kern_type_bytes(a->type));
    const struct tile_job job = {.isa = kern_cpu_isa(where),
                                 .tile = {.n = a->n,
                                          .begin = a->begin,
                                          .logits = logits,
                                          .labels = a->labels,
                                          .maxima = (float *)(uintptr_t)a->maxima,
                                          .sums = (float *)(uintptr_t)a->sums,
                                          .type = a->type,
                                          .grad_stride = a->n * in_row,
                                          .scale = *a->scale}};
    kern_cpu_spread(where, a->tokens, TOKEN_GRAIN, grad_range, &job);
    return grad_products(where, a, &job.tile, scratch);
}

int kern_cpu_loss_grad(const struct dev_launch *where, const struct kern_loss_grad_arguments *a)
{
    int rc = kern_cpu_need(where, KERN_LOSS_GRAD,
                           kern_cpu_loss_grad_bytes(a, core_team_count(where->team)));
    return rc == 0 ? grad_run(where, a, where->scratch) : rc;
}

/* Columns of a tile of logits: what LOGITS_BYTES hold, but no fewer than products need. */
static int64_t tile_columns(const struct kern_loss_arguments *a)
{
    const int64_t row_bytes = (a->tokens > 0 ? a->tokens : 1) * (int64_t)sizeof(float);
    int64_t n = LOGITS_BYTES / row_bytes / TILE_GRAIN * TILE_GRAIN;
    n = n > TILE_LEAST ? n : TILE_LEAST;
    return n < a->vocab ? n : a->vocab;
}

static struct kern_loss_grad_arguments grad_of_tile(const struct kern_loss_arguments *a,
                                                    int64_t begin, int64_t n)
{
    const size_t row = (size_t)(begin * a->width);
    struct kern_loss_grad_arguments g = {
        .type = a->type,
        .tokens = a->tokens,
        .n = n,
        .width = a->width,
        .begin = begin,
        .x = a->x,
        .x_stride = a->x_stride,
        .w = (const char *)a->w + row * kern_type_bytes(a->type),
        .labels = a->labels,
        .scale = a->scale,
        .first = begin == 0,
        .last = begin + n == a->vocab,
        .dx = a->dx,
        .dx_stride = a->dx_stride,
        .dw = a->dw,
    };
    if (g.dw.sum != NULL) {
        g.dw.sum += row;
    }
    if (g.dw.out != NULL) {
        g.dw.out = (char *)g.dw.out + row * kern_type_bytes(g.dw.out_type);
    }
    return g;
}

size_t kern_cpu_loss_bytes(const struct kern_loss_arguments *a, unsigned threads)
{
    const int64_t n = tile_columns(a);
    const int64_t rest = a->vocab % n;
    struct kern_loss_grad_arguments grad = grad_of_tile(a, 0, n);
    size_t tile = kern_cpu_loss_grad_bytes(&grad, threads);
    grad.n = rest;
    const size_t last = rest > 0 ? kern_cpu_loss_grad_bytes(&grad, threads) : 0;
    tile = tile > last ? tile : last;
    return 3 * kern_cpu_round((size_t)a->tokens * sizeof(float)) +
           kern_cpu_round((size_t)(a->tokens * a->width) * sizeof(float)) + tile;
}

int kern_cpu_loss(const struct dev_launch *where, const struct kern_loss_arguments *a)
{
    int rc = kern_cpu_need(where, KERN_LOSS, kern_cpu_loss_bytes(a, core_team_count(where->team)));
    rc = rc == 0 ? labels_check(a->labels, a->tokens, a->vocab) : rc;
    if (rc != 0) {
        return rc;
    }
    char *scratch = where->scratch;
    const size_t bytes = (size_t)a->tokens * sizeof(float);
    float *maxima = kern_cpu_take(&scratch, bytes);
    float *sums = kern_cpu_take(&scratch, bytes);
    float *picked = kern_cpu_take(&scratch, bytes);
    float *dx_sum = kern_cpu_take(&scratch, (size_t)a->width * bytes);
    const int64_t step = tile_columns(a);
    for (int64_t begin = 0; begin < a->vocab && rc == 0; begin += step) {
        const int64_t n = begin + step < a->vocab ? step : a->vocab - begin;
        const struct kern_loss_grad_arguments g = grad_of_tile(a, begin, n);
        rc = stats_run(where,
                       &(struct kern_loss_stats_arguments){.type = a->type,
                                                           .tokens = a->tokens,
                                                           .n = n,
                                                           .width = a->width,
                                                           .begin = begin,
                                                           .vocab = a->vocab,
                                                           .x = a->x,
                                                           .x_stride = a->x_stride,
                                                           .w = g.w,
                                                           .labels = a->labels,
                                                           .maxima = maxima,
                                                           .sums = sums,
                                                           .picked = picked,
                                                           .first = begin == 0},
                       scratch);
    }
    if (rc == 0) {
        rc = kern_cpu_loss_sum(where, &(struct kern_loss_sum_arguments){
                                          a->tokens, a->labels, maxima, sums, picked, a->loss});
    }
    for (int64_t begin = 0; a->dx != NULL && begin < a->vocab && rc == 0; begin += step) {
        const int64_t n = begin + step < a->vocab ? step : a->vocab - begin;
        struct kern_loss_grad_arguments g = grad_of_tile(a, begin, n);
        g.maxima = maxima;
        g.sums = sums;
        g.dx_sum = dx_sum;
        rc = grad_run(where, &g, scratch);
    }
    return rc;
}
