/* program_rows.h: adds the steps of a row of a family's table; for program*.c only. */
#ifndef OFFLOAD_MODEL_PROGRAM_ROWS_H
#define OFFLOAD_MODEL_PROGRAM_ROWS_H

#include <stddef.h>

#include "offload/model/program_build.h"

/* The offset of a member of an op's arguments. */
#define AT(type, field) offsetof(struct kern_##type##_arguments, field)

/* Returns the index of the block's parameter with this role; -1: none. */
static inline int model_build_role(const struct model_build *build, enum model_role role)
{
    return model_block_param(build->block, role);
}

static inline int64_t model_build_dim(const struct model_build *build, enum model_dim dim)
{
    return model_dim(&build->model->config, dim);
}

void model_build_forward_row(struct model_build *build, const struct model_op_row *row);
void model_build_backward_row(struct model_build *build, const struct model_op_row *row);
/* What a head's last row computes. */
enum model_loss { MODEL_LOSS_ALONE, MODEL_LOSS_GRAD, MODEL_LOGITS };
void model_build_loss(struct model_build *build, const struct model_op_row *row,
                      enum model_loss what);

#endif
