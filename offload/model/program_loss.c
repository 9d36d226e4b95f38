/* program_loss.c: the steps of a head's last row: loss, gradients or logits. */
#include "offload/model/program_rows.h"

struct loss {
    struct model_build *build;
    int weight;
    const struct model_param *param;
    int x; /* input's buffer, which the gradient overwrites */
};

struct loss_rows {
    int64_t first, count;
};

static double grad_share(const struct loss *loss)
{
    return loss->build->shape.pairs > 0 ? 0.5 : 1.0;
}

static double products(const struct loss *loss, int64_t rows)
{
    return 2.0 * (double)loss->build->tokens * (double)rows * (double)loss->param->cols;
}

static void point_inputs(struct model_build *build, struct model_step *step)
{
    model_build_base(build, step, AT(loss, labels), MODEL_BASE_LABELS);
    model_build_base(build, step, AT(loss, scale), MODEL_BASE_SCALE);
    model_build_base(build, step, AT(loss, loss), MODEL_BASE_LOSS);
    if (build->shape.pairs > 0) {
        model_build_base(build, step, AT(loss, gaps), MODEL_BASE_GAPS);
    }
}

/* Gradients need the logits again if only part of them is in memory at a time. */
static bool repeats_logits(const struct loss *loss)
{
    return loss->build->shape.loss_parts.rows > 0;
}

static void loss_step(const struct loss *loss, int64_t tile, bool grads)
{
    struct model_build *build = loss->build;
    const double passes = (repeats_logits(loss) ? 1.0 : 0.0) + 1.0 +
                          (loss->param->trained ? 1.0 : 0.0);
    const struct kern_loss_arguments arguments = {
        .type = build->shape.type,
        .tokens = build->tokens,
        .vocab = loss->param->rows,
        .width = loss->param->cols,
        .tile = tile < loss->param->rows ? tile : 0,
        .logits_bytes = build->shape.logits_bytes,
        .x_stride = loss->param->cols,
        .dx_stride = loss->param->cols,
        .pairs = build->shape.pairs,
        .beta = build->shape.beta,
    };
    struct model_step *step = model_build_step(build, KERN_LOSS, &arguments);
    step->flops = products(loss, loss->param->rows) *
                  (1.0 + (grads ? grad_share(loss) * passes : 0.0));
    model_build_point(build, step, AT(loss, x), loss->x, 0);
    model_build_param(build, step, AT(loss, w), loss->weight, 0, loss->param->rows);
    point_inputs(build, step);
    if (grads) {
        model_build_write(build, step, AT(loss, dx), loss->x, 0);
        model_build_weight_grad(build, step, AT(loss, dw), loss->weight, 0);
    }
}

/* A step makes statistics of logits, or gradients. */
static void loss_part(const struct loss *loss, int state, struct loss_rows rows, bool grads)
{
    struct model_build *build = loss->build;
    const struct kern_loss_arguments arguments = {
        .type = build->shape.type,
        .tokens = build->tokens,
        .vocab = loss->param->rows,
        .width = loss->param->cols,
        .tile = build->shape.loss_parts.rows,
        .x_stride = loss->param->cols,
        .dx_stride = loss->param->cols,
        .first_row = rows.first,
        .row_count = rows.count,
        .pairs = build->shape.pairs,
        .beta = build->shape.beta,
    };
    struct model_step *step = model_build_step(build, KERN_LOSS, &arguments);
    step->flops = products(loss, rows.count) * (grads ? 2.0 * grad_share(loss) : 1.0);
    model_build_point(build, step, AT(loss, x), loss->x, 0);
    model_build_param(build, step, AT(loss, w), loss->weight, 0, rows.count);
    step->row = rows.first;
    point_inputs(build, step);
    model_build_write(build, step, AT(loss, state), state, 0);
    if (grads) {
        model_build_write(build, step, AT(loss, dx), loss->x, 0);
    }
}

/* With gradients, each logit is computed twice. */
static void loss_by_parts(const struct loss *loss, bool grads)
{
    const struct kern_loss_parts *parts = &loss->build->shape.loss_parts;
    const int state = model_build_buffer(loss->build, parts->state_bytes);
    for (int pass = 0; pass < (grads ? 2 : 1); pass++) {
        for (int64_t at = 0; at < loss->param->rows; at += parts->rows) {
            const int64_t left = loss->param->rows - at;
            const struct loss_rows rows = {at, left < parts->rows ? left : parts->rows};
            loss_part(loss, state, rows, pass == 1);
        }
    }
}

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
    } else if (build->shape.loss_parts.rows > 0 && !loss.param->trained) {
        loss_by_parts(&loss, what == MODEL_LOSS_GRAD);
    } else {
        loss_step(&loss, tile, what == MODEL_LOSS_GRAD);
    }
    build->grad[row->x.value] = loss.x;
}
