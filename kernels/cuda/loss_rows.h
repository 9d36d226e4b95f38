/* loss_rows.h: the cross-entropy of logits, for a tile of the vocabulary or a run of tokens;
 * private to loss.c and loss_rows.cu. Host side. */
#ifndef KERNELS_CUDA_LOSS_ROWS_H
#define KERNELS_CUDA_LOSS_ROWS_H

#include "core/dev/launch.h"
#include "kernels/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Logits of `tokens` tokens for words begin .. begin + n - 1, and statistics over all tiles. */
struct kern_loss_rows {
    int64_t tokens, n, begin;
    float *logits; /* [tokens][n] */
    const int32_t *labels;
    float *maxima; /* [tokens], over the tiles read so far */
    float *sums;   /* [tokens], of exp(logit - maximum) */
    float *picked; /* [tokens], the label's logit once its tile is read */
    /* Pairs: [tokens], the factor of a token's gradients; NULL: one factor for all */
    const float *scales;
    /* gradients of the logits, in kern_cuda_loss_grad_rows()'s type; row t may overlap row t of
     * `logits` */
    void *grads;
    int64_t grads_stride;
};

/* Updates maxima, sums and picked with a tile's logits. The tile with begin = 0 comes first and
 * sets them. */
int kern_cuda_loss_stats_rows(const struct dev_launch *where, const struct kern_loss_rows *rows);
/* Computes the logits' gradients of rows->tokens; without rows->scales their factor is *scale, in
 * device memory. Needs the statistics of all tiles. */
int kern_cuda_loss_grad_rows(const struct dev_launch *where, enum kern_type type,
                             const struct kern_loss_rows *rows, const float *scale);
/* Sums the loss into *loss, in device memory. Needs the statistics of all tiles. */
int kern_cuda_loss_sum(const struct dev_launch *where, const struct kern_loss_rows *rows,
                       struct kern_loss *loss);
/* Sums the loss of pairs into *a->loss, and sets scales[tokens / 2], for the policy's tokens. Needs
 * the statistics of all tiles. */
int kern_cuda_loss_sum_pairs(const struct dev_launch *where, const struct kern_loss_arguments *a,
                             const struct kern_loss_rows *rows, float *scales);

#ifdef __cplusplus
}
#endif

#endif
