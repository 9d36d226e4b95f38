/* program_loss.c: the steps of a head's last row: the loss alone, the loss with its gradients, or
 * the logits. */
#include <stddef.h>

#include "offload/model/program_rows.h"

#define AT(type, field) offsetof(struct kern_##type##_arguments, field)

struct loss {
    struct model_build *build;
    const struct model_op_row *row;
    int weight;
    const struct model_param *param;
    int x; /* buffer of the input, which its gradient overwrites */
};

static double products(const struct loss *loss, int64_t rows)
{
    return 2.0 * (double)loss->build->tokens * (double)rows * (double)loss->param->cols;
}

static void loss_step(const struct loss *loss, int64_t tile, bool grads)
{
    struct model_build *build = loss->build;
    const bool trained = grads && loss->param->trained;
    const struct kern_loss_arguments arguments = {
        .type = build->shape.type,
        .tokens = build->tokens,
        .vocab = loss->param->rows,
        .width = loss->param->cols,
        .tile = tile < loss->param->rows ? tile : 0,
        .logits_bytes = build->shape.logits_bytes,
        .x_stride = loss->param->cols,
        .dx_stride = loss->param->cols,
    };
    struct model_step *step = model_build_step(build, KERN_LOSS, &arguments);
    step->flops = products(loss, loss->param->rows) *
                  (1.0 + (grads ? 1.0 : 0.0) + (trained ? 1.0 : 0.0));
    model_build_point(build, step, AT(loss, x), loss->x, 0);
    model_build_param(build, step, AT(loss, w), loss->weight, 0, loss->param->rows);
    model_build_base(build, step, AT(loss, labels), MODEL_BASE_LABELS);
    model_build_base(build, step, AT(loss, scale), MODEL_BASE_SCALE);
    model_build_base(build, step, AT(loss, loss), MODEL_BASE_LOSS);
    if (grads) {
        model_build_write(build, step, AT(loss, dx), loss->x, 0);
        model_build_weight_grad(build, step, AT(loss, dw), loss->weight, 0);
    }
}

/* Logits from row `at` of the vocabulary on. */
static void logits(const struct loss *loss, int64_t at, int64_t rows)
{
    struct model_build *build = loss->build;
    const struct kern_linear_arguments arguments = {
        .type = build->shape.type,
        .m = build->tokens,
        .n = rows,
        .k = loss->param->cols,
        .x_stride = loss->param->cols,
        .y_stride = loss->param->rows,
    };
    struct model_step *step = model_build_step(build, KERN_LINEAR, &arguments);
    step->flops = products(loss, rows);
    model_build_point(build, step, AT(linear, x), loss->x, 0);
    model_build_param(build, step, AT(linear, w), loss->weight, at, rows);
    model_build_base(build, step, AT(linear, y), MODEL_BASE_OUT);
    step->patches[step->patch_count - 1].offset_bytes = (uint64_t)at *
                                                        kern_type_bytes(build->shape.type);
}

void model_build_loss(struct model_build *build, const struct model_op_row *row,
                      enum model_loss what)
{
    const int weight = model_block_param(build->block, row->weight);
    const struct loss loss = {
        .build = build,
        .row = row,
        .weight = weight,
        .param = &build->block->params[weight],
        .x = model_build_value(build, row->x.value),
    };
    const int64_t tile = kern_tile_rows(loss.param->rows, loss.param->cols, build->shape.type,
                                        build->shape.tile_bytes);
    if (what == MODEL_LOGITS) {
        for (int64_t at = 0; at < loss.param->rows; at += tile) {
            logits(&loss, at, loss.param->rows - at < tile ? loss.param->rows - at : tile);
        }
    } else {
        loss_step(&loss, tile, what == MODEL_LOSS_GRAD);
    }
    build->grad[row->x.value] = loss.x;
}
