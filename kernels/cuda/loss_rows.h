/* loss_rows.h: the cross-entropy of a tile of logits [tokens][n]; private to loss*.cu. */
#ifndef KERNELS_CUDA_LOSS_ROWS_H
#define KERNELS_CUDA_LOSS_ROWS_H

#include "core/dev/launch.h"
#include "kernels/kern.h"

int kern_cuda_loss_stats_rows(const struct dev_launch *where,
                              const struct kern_loss_stats_arguments *a, const float *logits);
/* The gradients, in the type, take the logits' place: row t begins where it began. */
int kern_cuda_loss_grad_rows(const struct dev_launch *where,
                             const struct kern_loss_grad_arguments *a, float *logits);

#endif
