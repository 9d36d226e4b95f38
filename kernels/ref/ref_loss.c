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

/* Writes the gradients of x and w from those of the logits, [tokens][vocab]. */
static void grads_write(const struct kern_loss_arguments *a, const double *slopes)
{
    for (int64_t j = 0; j < a->vocab * a->width; j++) {
        double sum = 0.0;
        for (int64_t t = 0; t < a->tokens; t++) {
            sum += slopes[t * a->vocab + j / a->width] *
                   kern_ref_load(a->type, a->x, t * a->x_stride + j % a->width);
        }
        kern_ref_grad(&a->dw, j, sum);
    }
    for (int64_t i = 0; i < a->tokens * a->width; i++) {
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

void kern_ref_loss(const struct kern_loss_arguments *a)
{
    double *slopes = doubles(a->tokens * a->vocab);
    *a->loss = (struct kern_loss){0};
    for (int64_t t = 0; t < a->tokens; t++) {
        double *row = slopes + t * a->vocab;
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
    if (a->dx != NULL) {
        grads_write(a, slopes);
    }
    free(slopes);
}
