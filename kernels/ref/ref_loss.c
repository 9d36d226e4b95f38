/* ref_loss.c: linear + cross-entropy, or the loss of pairs, in double. */
#include <math.h>
#include <stdlib.h>

#include "kernels/ref/ref.h"

static double logit(enum kern_type type, const void *x, int64_t x_at, const void *w, int64_t w_at,
                    int64_t width)
{
    double sum = 0.0;
    for (int64_t i = 0; i < width; i++) {
        sum += kern_ref_load(type, x, x_at + i) * kern_ref_load(type, w, w_at + i);
    }
    return sum;
}

/* `slopes` [tokens][vocab]: the gradients of the logits. */
static void grads_write(const struct kern_loss_arguments *a, int64_t tokens, const double *slopes)
{
    for (int64_t j = 0; j < a->vocab * a->width; j++) {
        double sum = 0.0;
        for (int64_t t = 0; t < tokens; t++) {
            sum += slopes[t * a->vocab + j / a->width] *
                   kern_ref_load(a->type, a->x, t * a->x_stride + j % a->width);
        }
        kern_ref_grad(&a->dw, j, sum);
    }
    for (int64_t i = 0; i < tokens * a->width; i++) {
        const int64_t t = i / a->width;
        double sum = 0.0;
        for (int64_t j = 0; j < a->vocab; j++) {
            sum += slopes[t * a->vocab + j] *
                   kern_ref_load(a->type, a->w, j * a->width + i % a->width);
        }
        kern_ref_store(a->type, a->dx, t * a->dx_stride + i % a->width, sum);
    }
}

static double *doubles(int64_t count)
{
    double *memory = calloc((size_t)count + 1, sizeof *memory);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

/* Sums log p in *sum. Returns the number of labels. */
static int64_t labels_sum(const struct kern_loss_arguments *a, const double *log_p, int64_t first,
                          int64_t count, double *sum)
{
    int64_t labels = 0;
    *sum = 0.0;
    for (int64_t t = first; t < first + count; t++) {
        *sum += log_p[t];
        labels += a->labels[t] != KERN_LABEL_IGNORED ? 1 : 0;
    }
    return labels;
}

/* Returns the pairs' loss, and sets the policy tokens' factors. */
static struct kern_loss pairs_loss(const struct kern_loss_arguments *a, const double *log_p,
                                   double *factors)
{
    const int64_t length = a->tokens / (2 * a->pairs);
    const int64_t half = a->tokens / 2;
    struct kern_loss loss = {0};
    for (int64_t i = 0; i < a->pairs; i++) {
        const int64_t chosen = i * length;
        const int64_t rejected = chosen + a->gaps[2 * i + 1];
        const int64_t end = chosen + length;
        double sums[4];
        const bool counts = labels_sum(a, log_p, chosen, rejected - chosen, &sums[0]) > 0 &&
                            labels_sum(a, log_p, rejected, end - rejected, &sums[1]) > 0;
        if (!counts) {
            continue;
        }
        (void)labels_sum(a, log_p, half + chosen, rejected - chosen, &sums[2]);
        (void)labels_sum(a, log_p, half + rejected, end - rejected, &sums[3]);
        const double good = a->beta * (sums[0] - sums[2]);
        const double bad = a->beta * (sums[1] - sums[3]);
        loss.sum += log(1.0 + exp(bad - good));
        loss.count++;
        loss.chosen += good;
        loss.rejected += bad;
        loss.right += good > bad ? 1 : 0;
        for (int64_t t = chosen; t < end; t++) {
            factors[t] = (t < rejected ? 1.0 : -1.0) * a->beta / (1.0 + exp(good - bad));
        }
    }
    return loss;
}

static struct kern_loss tokens_loss(const struct kern_loss_arguments *a, const double *log_p,
                                    double *factors)
{
    struct kern_loss loss = {0};
    loss.count = labels_sum(a, log_p, 0, a->tokens, &loss.sum);
    loss.sum = -loss.sum;
    for (int64_t t = 0; t < a->tokens; t++) {
        factors[t] = 1.0;
    }
    return loss;
}

void kern_ref_loss(const struct kern_loss_arguments *a)
{
    double *slopes = doubles(a->tokens * a->vocab);
    double *log_p = doubles(a->tokens);
    double *factors = doubles(a->tokens);
    for (int64_t t = 0; t < a->tokens; t++) {
        double *row = slopes + t * a->vocab;
        double sum = 0.0;
        for (int64_t j = 0; j < a->vocab; j++) {
            row[j] = logit(a->type, a->x, t * a->x_stride, a->w, j * a->width, a->width);
            sum += exp(row[j]);
        }
        const bool counts = a->labels[t] != KERN_LABEL_IGNORED;
        log_p[t] = counts ? row[a->labels[t]] - log(sum) : 0.0;
        for (int64_t j = 0; j < a->vocab; j++) {
            const double hit = j == a->labels[t] ? 1.0 : 0.0;
            row[j] = counts ? exp(row[j]) / sum - hit : 0.0;
        }
    }
    *a->loss = a->pairs > 0 ? pairs_loss(a, log_p, factors) : tokens_loss(a, log_p, factors);
    for (int64_t i = 0; i < a->tokens * a->vocab; i++) {
        slopes[i] *= factors[i / a->vocab] * (double)*a->scale;
    }
    if (a->dx != NULL) {
        grads_write(a, a->pairs > 0 ? a->tokens / 2 : a->tokens, slopes);
    }
    free(slopes);
    free(log_p);
    free(factors);
}
