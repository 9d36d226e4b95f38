/* program_rows.h: adds the steps of one row of a family's table, forward and backward; for
 * program*.c only. */
#ifndef OFFLOAD_MODEL_PROGRAM_ROWS_H
#define OFFLOAD_MODEL_PROGRAM_ROWS_H

#include "offload/model/program_build.h"

void model_build_forward_row(struct model_build *build, const struct model_op_row *row);
void model_build_backward_row(struct model_build *build, const struct model_op_row *row);
/* What the steps of a head's last row compute: the loss, the loss and its gradients, or logits. */
enum model_loss { MODEL_LOSS_ALONE, MODEL_LOSS_GRAD, MODEL_LOGITS };
void model_build_loss(struct model_build *build, const struct model_op_row *row,
                      enum model_loss what);

#endif
