/* loss.c: linear + loss in one of two ways, which the arguments alone decide. The kernels are in
 * loss_rows.cu.
 * Whole, if neither pairs nor a tile are given and this takes no more scratch than `logits_bytes`
 * or than tiles: by runs of tokens; logits are computed once, and their gradients kept.
 * By tile of the vocabulary: statistics, then gradients, which compute logits again. Pairs need the
 * statistics of whole answers first. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/loss_rows.h"
#include "kernels/cuda/product.h"

/* A tile has at least TILE_GOOD words if `logits_bytes` suffice: smaller products are slower. */
enum { LOGITS_BYTES = 256 << 20, TILE_GRAIN = 64, TILE_MIN = 512, TILE_GOOD = 4096 };
/* A run's logits take at most RUN_BYTES, unless RUN_GRAIN tokens take more. */
enum { RUN_BYTES = 512 << 20, RUN_GRAIN = 128 };

static size_t floats_bytes(int64_t floats)
{
    return (size_t)((floats + 63) / 64 * 64) * sizeof(float);
}

static void *take(char **scratch, size_t bytes)
{
    void *taken = *scratch;
    *scratch += bytes;
    return taken;
}

struct arrays {
    float *maxima, *sums, *picked; /* [tokens] */
    float *scales;                 /* [tokens / 2]; NULL without pairs */
    float *dx_sum;                 /* [tokens][width] */
    float *logits;
    char *rest;
};

static int64_t tile_columns(const struct kern_loss_arguments *a)
{
    const int64_t row_bytes = (a->tokens > 0 ? a->tokens : 1) * (int64_t)sizeof(float);
    const int64_t held = LOGITS_BYTES / row_bytes / TILE_GRAIN * TILE_GRAIN;
    const bool good = a->logits_bytes / (uint64_t)row_bytes >= TILE_GOOD;
    const int64_t least = good ? TILE_GOOD : TILE_MIN;
    const int64_t chosen = held > least ? held : least;
    const int64_t n = a->tile > 0 ? a->tile : chosen;
    return n < a->vocab ? n : a->vocab;
}

/* ---- logits in tiles of the vocabulary ---- */

static struct arrays arrays_of(const struct kern_loss_arguments *a, void *scratch)
{
    char *at = scratch;
    struct arrays arrays = {0};
    arrays.maxima = take(&at, floats_bytes(a->tokens));
    arrays.sums = take(&at, floats_bytes(a->tokens));
    arrays.picked = take(&at, floats_bytes(a->tokens));
    arrays.scales = a->pairs > 0 ? take(&at, floats_bytes(a->tokens / 2)) : NULL;
    arrays.dx_sum = take(&at, floats_bytes(a->tokens * a->width));
    arrays.logits = take(&at, floats_bytes(a->tokens * tile_columns(a)));
    arrays.rest = at;
    return arrays;
}

static struct kern_loss_rows rows_of(const struct kern_loss_arguments *a,
                                     const struct arrays *arrays, int64_t begin, int64_t n)
{
    return (struct kern_loss_rows){
        .tokens = a->tokens,
        .n = n,
        .begin = begin,
        .logits = arrays->logits,
        .labels = a->labels,
        .maxima = arrays->maxima,
        .sums = arrays->sums,
        .picked = arrays->picked,
        .scales = arrays->scales,
        .grads = arrays->logits,
        .grads_stride = n * (int64_t)(sizeof(float) / kern_type_bytes(a->type)),
    };
}

static const void *weights_at(const struct kern_loss_arguments *a, int64_t row)
{
    return (const char *)a->w + (size_t)(row * a->width) * kern_type_bytes(a->type);
}

/* Computes logits[tokens][n] = x w^T in fp32. */
static int logits_product(const struct dev_launch *where, const struct kern_loss_arguments *a,
                          const struct kern_loss_rows *rows)
{
    const struct kern_cuda_product product = {
        .type = a->type,
        .m = a->tokens,
        .n = rows->n,
        .k = a->width,
        .a = a->x,
        .a_stride = a->x_stride,
        .b = weights_at(a, rows->begin),
        .b_stride = a->width,
        .b_turned = true,
        .out = rows->logits,
        .out_type = KERN_F32,
        .out_stride = rows->n,
    };
    return kern_cuda_product(where, "loss", &product);
}

static int stats_run(const struct dev_launch *where, const struct kern_loss_arguments *a,
                     const struct kern_loss_rows *rows)
{
    const int rc = logits_product(where, a, rows);
    return rc != 0 ? rc : kern_cuda_loss_stats_rows(where, rows);
}

/* Computes the gradient of rows->n words' weights. */
static int weight_gradient(const struct dev_launch *where, const struct kern_loss_arguments *a,
                           const struct kern_loss_rows *rows, void *scratch)
{
    const struct kern_cuda_product dw = {
        .type = a->type,
        .m = rows->n,
        .n = a->width,
        .k = a->tokens,
        .a = rows->grads,
        .a_stride = rows->grads_stride,
        .a_turned = true,
        .b = a->x,
        .b_stride = a->x_stride,
    };
    if (a->dw.sum == NULL && a->dw.out == NULL) {
        return 0;
    }
    const struct kern_grad grad = kern_grad_at(&a->dw, rows->begin * a->width);
    const struct kern_cuda_finish finish = kern_cuda_finish_grad(&grad, a->width);
    return kern_cuda_product_sum(where, "loss", &dw, &finish, scratch);
}

/* Returns the product for rows->n words' part of dx; the caller sets its destination. */
static struct kern_cuda_product input_gradient(const struct kern_loss_arguments *a,
                                               const struct kern_loss_rows *rows)
{
    return (struct kern_cuda_product){
        .type = a->type,
        .m = a->tokens,
        .n = a->width,
        .k = rows->n,
        .a = rows->grads,
        .a_stride = rows->grads_stride,
        .b = weights_at(a, rows->begin),
        .b_stride = a->width,
    };
}

static int grad_products(const struct dev_launch *where, const struct kern_loss_arguments *a,
                         const struct arrays *arrays, const struct kern_loss_rows *rows)
{
    const struct kern_cuda_product dx = input_gradient(a, rows);
    const struct kern_cuda_finish onto = {
        .width = a->width,
        .sum = arrays->dx_sum,
        .first = rows->begin == 0,
        .out = rows->begin + rows->n == a->vocab ? a->dx : NULL,
        .out_type = a->type,
        .out_stride = a->dx_stride,
    };
    const int rc = weight_gradient(where, a, rows, arrays->rest);
    return rc != 0 ? rc : kern_cuda_product_sum(where, "loss", &dx, &onto, arrays->rest);
}

static int grad_run(const struct dev_launch *where, const struct kern_loss_arguments *a,
                    const struct arrays *arrays, const struct kern_loss_rows *rows)
{
    int rc = logits_product(where, a, rows);
    if (rc != 0) {
        return rc;
    }
    rc = kern_cuda_loss_grad_rows(where, a->type, rows, a->scale);
    return rc != 0 ? rc : grad_products(where, a, arrays, rows);
}

static size_t tiles_bytes(const struct kern_loss_arguments *a)
{
    const int64_t n = tile_columns(a);
    const size_t dw = kern_cuda_product_sum_bytes(n, a->width);
    const size_t dx = kern_cuda_product_sum_bytes(a->tokens, a->width);
    const size_t scales = a->pairs > 0 ? floats_bytes(a->tokens / 2) : 0;
    return 3 * floats_bytes(a->tokens) + scales + floats_bytes(a->tokens * a->width) +
           floats_bytes(a->tokens * n) + (dw > dx ? dw : dx) + KERN_CUDA_WORKSPACE_BYTES;
}

static int loss_by_tile(const struct dev_launch *where, const struct kern_loss_arguments *a)
{
    const struct arrays arrays = arrays_of(a, where->scratch);
    const int64_t step = tile_columns(a);
    for (int64_t begin = 0; begin < a->vocab; begin += step) {
        const int64_t n = begin + step < a->vocab ? step : a->vocab - begin;
        const struct kern_loss_rows rows = rows_of(a, &arrays, begin, n);
        const int rc = stats_run(where, a, &rows);
        if (rc != 0) {
            return rc;
        }
    }
    const struct kern_loss_rows all = rows_of(a, &arrays, 0, a->vocab);
    const int rc = a->pairs > 0 ? kern_cuda_loss_sum_pairs(where, a, &all, arrays.scales)
                                : kern_cuda_loss_sum(where, &all, a->loss);
    if (rc != 0 || a->dx == NULL) {
        return rc;
    }
    struct kern_loss_arguments trained = *a;
    trained.tokens = a->pairs > 0 ? a->tokens / 2 : a->tokens;
    for (int64_t begin = 0; begin < a->vocab; begin += step) {
        const int64_t n = begin + step < a->vocab ? step : a->vocab - begin;
        const struct kern_loss_rows rows = rows_of(&trained, &arrays, begin, n);
        const int grad_rc = grad_run(where, &trained, &arrays, &rows);
        if (grad_rc != 0) {
            return grad_rc;
        }
    }
    return 0;
}

/* ---- all logits of a run of tokens ---- */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t run_tokens(const struct kern_loss_arguments *a)
{
    const int64_t row_bytes = (a->vocab > 0 ? a->vocab : 1) * (int64_t)sizeof(float);
    const int64_t held = RUN_BYTES / row_bytes / RUN_GRAIN * RUN_GRAIN;
    return smaller(held > RUN_GRAIN ? held : RUN_GRAIN, a->tokens);
}

/* Returns a stride at which rows begin at multiples of 16 bytes. */
static int64_t grads_stride(const struct kern_loss_arguments *a)
{
    return (a->vocab + 7) / 8 * 8;
}

static size_t grads_bytes(const struct kern_loss_arguments *a)
{
    const size_t bytes = (size_t)(a->tokens * grads_stride(a)) * kern_type_bytes(a->type);
    return (bytes + 255) / 256 * 256;
}

static size_t whole_bytes(const struct kern_loss_arguments *a)
{
    return 3 * floats_bytes(a->tokens) + floats_bytes(run_tokens(a) * a->vocab) + grads_bytes(a) +
           kern_cuda_product_sum_bytes(a->vocab, a->width) + KERN_CUDA_WORKSPACE_BYTES;
}

static bool is_whole(const struct kern_loss_arguments *a)
{
    const size_t own = tiles_bytes(a); /* the limit is never below what tiles take */
    const size_t limit = a->logits_bytes > own ? (size_t)a->logits_bytes : own;
    return a->tile == 0 && a->pairs == 0 && whole_bytes(a) <= limit;
}

/* Computes statistics and, if a->dx is set, the logits' gradients. */
static int whole_run(const struct dev_launch *where, const struct kern_loss_arguments *a,
                     const struct kern_loss_rows *rows, int64_t begin)
{
    struct kern_loss_arguments part = *a;
    part.tokens = rows->tokens;
    part.x = (const char *)a->x + (size_t)(begin * a->x_stride) * kern_type_bytes(a->type);
    const int rc = stats_run(where, &part, rows);
    return rc != 0 || a->dx == NULL ? rc : kern_cuda_loss_grad_rows(where, a->type, rows, a->scale);
}

/* Computes dw, then dx, which may replace x. */
static int whole_products(const struct dev_launch *where, const struct kern_loss_arguments *a,
                          const struct kern_loss_rows *all, void *scratch)
{
    struct kern_cuda_product dx = input_gradient(a, all);
    dx.out = a->dx;
    dx.out_type = a->type;
    dx.out_stride = a->dx_stride;
    const int rc = weight_gradient(where, a, all, scratch);
    return rc != 0 ? rc : kern_cuda_product(where, "loss", &dx);
}

static int loss_whole(const struct dev_launch *where, const struct kern_loss_arguments *a)
{
    char *at = where->scratch;
    struct kern_loss_rows all = {.tokens = a->tokens, .n = a->vocab, .labels = a->labels};
    all.maxima = take(&at, floats_bytes(a->tokens));
    all.sums = take(&at, floats_bytes(a->tokens));
    all.picked = take(&at, floats_bytes(a->tokens));
    all.logits = take(&at, floats_bytes(run_tokens(a) * a->vocab));
    all.grads = take(&at, grads_bytes(a));
    all.grads_stride = grads_stride(a);
    const int64_t step = run_tokens(a);
    for (int64_t begin = 0; begin < a->tokens; begin += step) {
        struct kern_loss_rows run = all;
        run.tokens = smaller(step, a->tokens - begin);
        run.labels += begin;
        run.maxima += begin;
        run.sums += begin;
        run.picked += begin;
        run.grads = (char *)all.grads +
                    (size_t)(begin * all.grads_stride) * kern_type_bytes(a->type);
        const int rc = whole_run(where, a, &run, begin);
        if (rc != 0) {
            return rc;
        }
    }
    const int rc = kern_cuda_loss_sum(where, &all, a->loss);
    return rc != 0 || a->dx == NULL ? rc : whole_products(where, a, &all, at);
}

size_t kern_cuda_loss_bytes(const struct kern_loss_arguments *a)
{
    return is_whole(a) ? whole_bytes(a) : tiles_bytes(a);
}

int kern_cuda_loss(const struct dev_launch *where, const struct kern_loss_arguments *a)
{
    return is_whole(a) ? loss_whole(where, a) : loss_by_tile(where, a);
}
