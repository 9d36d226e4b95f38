/* ref_loss.c: linear + cross-entropy in double, from whole rows of logits. */
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

void kern_ref_loss_stats(const struct kern_loss_stats_arguments *a)
{
    for (int64_t t = 0; t < a->tokens; t++) {
        double top = a->first ? -HUGE_VAL : (double)a->maxima[t];
        double sum = a->first ? 0.0 : (double)a->sums[t];
        if (a->first) {
            a->picked[t] = 0.0f;
        }
        for (int64_t j = 0; j < a->n; j++) {
            const double value = logit(a->type, a->x, t * a->x_stride, a->w, j * a->width,
                                       a->width);
            const double larger = fmax(top, value);
            sum = sum * exp(top - larger) + exp(value - larger);
            top = larger;
            if (a->begin + j == a->labels[t]) {
                a->picked[t] = (float)value;
            }
        }
        a->maxima[t] = (float)top;
        a->sums[t] = (float)sum;
    }
}

void kern_ref_loss_sum(const struct kern_loss_sum_arguments *a)
{
    *a->loss = (struct kern_loss){0};
    for (int64_t t = 0; t < a->tokens; t++) {
        if (a->labels[t] != KERN_LABEL_IGNORED) {
            a->loss->sum += (double)a->maxima[t] + log((double)a->sums[t]) - (double)a->picked[t];
            a->loss->count++;
        }
    }
}

/* The gradient of one token's logits, for rows of w from `begin`. */
struct slopes {
    double *values; /* [tokens][n] */
    int64_t n;
};

static void slopes_write(const struct kern_loss_grad_arguments *a, const struct slopes *s)
{
    for (int64_t j = 0; j < a->n * a->width; j++) {
        double sum = 0.0;
        for (int64_t t = 0; t < a->tokens; t++) {
            sum += s->values[t * s->n + j / a->width] *
                   kern_ref_load(a->type, a->x, t * a->x_stride + j % a->width);
        }
        kern_ref_grad(&a->dw, j, sum);
    }
    for (int64_t i = 0; i < a->tokens * a->width; i++) {
        const int64_t t = i / a->width;
        double sum = a->first ? 0.0 : (double)a->dx_sum[i];
        for (int64_t j = 0; j < a->n; j++) {
            sum += s->values[t * s->n + j] *
                   kern_ref_load(a->type, a->w, j * a->width + i % a->width);
        }
        if (a->last) {
            kern_ref_store(a->type, a->dx, t * a->dx_stride + i % a->width, sum);
        } else {
            a->dx_sum[i] = (float)sum;
        }
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

void kern_ref_loss_grad(const struct kern_loss_grad_arguments *a)
{
    const struct slopes s = {doubles(a->tokens * a->n), a->n};
    for (int64_t i = 0; i < a->tokens * a->n; i++) {
        const int64_t t = i / a->n;
        const double value = logit(a->type, a->x, t * a->x_stride, a->w, i % a->n * a->width,
                                   a->width);
        const double p = exp(value - (double)a->maxima[t]) / (double)a->sums[t];
        const double hit = a->begin + i % a->n == a->labels[t] ? 1.0 : 0.0;
        s.values[i] = a->labels[t] == KERN_LABEL_IGNORED ? 0.0 : (p - hit) * (double)*a->scale;
    }
    slopes_write(a, &s);
    free(s.values);
}

void kern_ref_loss(const struct kern_loss_arguments *a)
{
    const struct slopes s = {doubles(a->tokens * a->vocab), a->vocab};
    *a->loss = (struct kern_loss){0};
    for (int64_t t = 0; t < a->tokens; t++) {
        double *row = s.values + t * a->vocab;
        double sum = 0.0;
        for (int64_t j = 0; j < a->vocab; j++) {
            row[j] = logit(a->type, a->x, t * a->x_stride, a->w, j * a->width, a->width);
            sum += exp(row[j]);
        }
        const bool counts = a->labels[t] != KERN_LABEL_IGNORED;
        a->loss->sum += counts ? log(sum) - row[a->labels[t]] : 0.0;
        a->loss->count += counts ? 1 : 0;
        for (int64_t j = 0; j < a->vocab; j++) {
            const double hit = j == a->labels[t] ? 1.0 : 0.0;
            row[j] = counts ? (exp(row[j]) / sum - hit) * (double)*a->scale : 0.0;
        }
    }
    const struct kern_loss_grad_arguments g = {
        .type = a->type,
        .tokens = a->tokens,
        .n = a->vocab,
        .width = a->width,
        .x = a->x,
        .x_stride = a->x_stride,
        .w = a->w,
        .first = true,
        .last = true,
        .dx = a->dx,
        .dx_stride = a->dx_stride,
        .dw = a->dw,
    };
    if (a->dx != NULL) {
        slopes_write(&g, &s);
    }
    free(s.values);
}
