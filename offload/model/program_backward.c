/* program_backward.c: the backward steps of a row. The residual stream's gradient stays in
 * MODEL_BASE_GRAD, where norms add to it in place. The addends of a sum share the sum's gradient,
 * which rows further down no longer need. */
#include <assert.h>
#include <stddef.h>

#include "offload/model/program_rows.h"

static bool trained(const struct model_build *build, int param)
{
    return param >= 0 && build->block->params[param].trained;
}

static void embed_grad_of(struct model_build *build, int param, enum model_base ids, int grad)
{
    const struct kern_embed_grad_arguments arguments = {
        .type = build->shape.type,
        .tokens = build->tokens,
        .width = build->model->config.hidden,
        .vocab = build->block->params[param].rows,
        .length = build->shape.length,
        .has_padding = ids == MODEL_BASE_IDS && build->model->config.padding_id >= 0,
        .padding_id = build->model->config.padding_id,
    };
    struct model_step *step = model_build_step(build, KERN_EMBED_GRAD, &arguments);
    model_build_base(build, step, AT(embed_grad, ids), ids);
    model_build_point(build, step, AT(embed_grad, dy), grad, 0);
    model_build_weight_grad(build, step, AT(embed_grad, dtable), param, 0);
}

static void embed_grad(struct model_build *build, const struct model_op_row *row)
{
    const int grad = model_build_grad(build, row->out.value);
    const int table = model_build_role(build, row->weight);
    const int positions = model_build_role(build, row->bias);
    if (trained(build, table)) {
        embed_grad_of(build, table, MODEL_BASE_IDS, grad);
    }
    if (trained(build, positions)) {
        embed_grad_of(build, positions, MODEL_BASE_POSITIONS, grad);
    }
}

static void norm_grad(struct model_build *build, const struct model_op_row *row)
{
    const struct model_config *config = &build->model->config;
    const enum model_value normed = row->add != MODEL_NO_VALUE ? row->sum : row->x.value;
    const int64_t width = model_build_dim(build, row->x.width);
    const struct kern_norm_grad_arguments arguments = {
        .type = build->shape.type,
        .kind = config->family->norm,
        .tokens = build->tokens,
        .heads = 1,
        .width = width,
        .dy_stride = width,
        .s_stride = width,
        .dx_stride = width,
    };
    /* The residual branch's gradient, which bypasses the norm; -1: none. */
    const int past = build->grad[normed];
    const int dx = past >= 0 ? past : model_build_grad(build, row->x.value);
    struct model_step *step = model_build_step(build, KERN_NORM_GRAD, &arguments);
    model_build_point(build, step, AT(norm_grad, dy), model_build_grad(build, row->out.value), 0);
    model_build_point(build, step, AT(norm_grad, s), model_build_value(build, normed), 0);
    model_build_param(build, step, AT(norm_grad, weight), model_build_role(build, row->weight), 0,
                      0);
    if (config->family->norm == KERN_NORM_LAYER) {
        model_build_point(build, step, AT(norm_grad, mean), build->mean[row->out.value], 0);
    }
    model_build_point(build, step, AT(norm_grad, rstd), build->rstd[row->out.value], 0);
    if (past >= 0) {
        model_build_point(build, step, AT(norm_grad, add), past, 0);
    }
    model_build_write(build, step, AT(norm_grad, dx), dx, 0);
    model_build_weight_grad(build, step, AT(norm_grad, dweight),
                            model_build_role(build, row->weight), 0);
    model_build_weight_grad(build, step, AT(norm_grad, dbias), model_build_role(build, row->bias),
                            0);
    build->grad[row->x.value] = dx;
    if (row->add != MODEL_NO_VALUE) {
        build->grad[row->add] = dx;
    }
}

static void head_norm_grad(struct model_build *build, const struct model_op_row *row)
{
    const struct model_config *config = &build->model->config;
    const bool second = row->out.first != MODEL_DIM_NONE;
    const struct kern_norm_grad_arguments arguments = {
        .type = build->shape.type,
        .kind = KERN_NORM_RMS,
        .tokens = build->tokens,
        .heads = model_build_dim(build, row->x.width) / config->head_dim,
        .width = config->head_dim,
        .dy_stride = model_build_width(build, row->out.value),
        .s_stride = model_build_width(build, row->x.value),
        .dx_stride = model_build_width(build, row->x.value),
    };
    struct model_step *step = model_build_step(build, KERN_NORM_GRAD, &arguments);
    model_build_point(build, step, AT(norm_grad, dy), model_build_grad(build, row->out.value),
                      model_build_dim(build, row->out.first));
    model_build_point(build, step, AT(norm_grad, s), model_build_value(build, row->x.value),
                      model_build_dim(build, row->x.first));
    model_build_param(build, step, AT(norm_grad, weight), model_build_role(build, row->weight), 0,
                      0);
    model_build_point(build, step, AT(norm_grad, rstd),
                      second ? build->rstd2[row->out.value] : build->rstd[row->out.value], 0);
    model_build_write(build, step, AT(norm_grad, dx), model_build_grad(build, row->x.value),
                      model_build_dim(build, row->x.first));
    model_build_weight_grad(build, step, AT(norm_grad, dweight),
                            model_build_role(build, row->weight), 0);
}

/* With DoRA, returns the gradient of the array before the factors; else `dy`. */
static int magnitude_grad(struct model_build *build, const struct model_op_row *row, int dy)
{
    const enum model_value value = row->out.value;
    const int magnitude = model_block_adapter(build->block, row->weight, MODEL_ADAPTER_MAGNITUDE);
    const int64_t width = model_build_width(build, value);
    if (magnitude < 0) {
        return dy;
    }
    const int64_t rows = build->block->params[magnitude].rows;
    const int out = model_build_buffer(build, build->buffers[build->whole[value]].bytes);
    struct model_columns columns = {.count = 0};
    model_build_columns(build, row, &columns);
    for (unsigned i = 0; i < columns.count; i++) {
        const struct model_column_range *range = &columns.list[i];
        struct model_column_operands operands = {.x = dy, .by = -1, .add = -1, .y = out};
        if (range->factor >= 0) { /* dy * whole / norm, summed over tokens */
            operands.by = build->whole[value];
            operands.factor = rows + range->factor;
            model_build_columns_step(build, row, range, &operands);
            const struct kern_bias_grad_arguments sum = {
                .type = build->shape.type,
                .m = build->tokens,
                .n = range->count,
                .dy_stride = width,
            };
            struct model_step *step = model_build_step(build, KERN_BIAS_GRAD, &sum);
            model_build_point(build, step, AT(bias_grad, dy), out, range->first);
            model_build_weight_grad(build, step, AT(bias_grad, db), magnitude, range->factor);
        }
        operands.by = -1;
        operands.factor = range->factor;
        model_build_columns_step(build, row, range, &operands);
    }
    return out;
}

/* Adds the gradients of B and of the product of x and A. */
static void adapter_grad(struct model_build *build, const struct model_op_row *row, int dy)
{
    const int b = model_block_adapter(build->block, row->weight, MODEL_ADAPTER_B);
    if (b < 0) {
        return;
    }
    const struct model_param *up = &build->block->params[b];
    const int64_t width = model_build_width(build, row->out.value);
    const int64_t stride = up->cols * up->part_count;
    const int hidden = model_build_hidden(build, row);
    const int hidden_grad = model_build_hidden_grad(build, row);
    for (unsigned i = 0; i < up->part_count; i++) {
        const struct model_part *part = &up->parts[i];
        const int64_t at = (int64_t)i * up->cols;
        const double flops = 2.0 * (double)build->tokens * (double)(part->rows * up->cols);
        const struct kern_linear_grad_input_arguments input = {
            .type = build->shape.type,
            .m = build->tokens,
            .n = part->rows,
            .k = up->cols,
            .dy_stride = width,
            .dx_stride = stride,
            .scale = build->model->lora.scale,
            .first = true,
            .last = true,
        };
        struct model_step *step = model_build_step(build, KERN_LINEAR_GRAD_INPUT, &input);
        step->flops = flops;
        model_build_point(build, step, AT(linear_grad_input, dy), dy, part->onto_row);
        model_build_param(build, step, AT(linear_grad_input, w), b, part->first_row, 0);
        model_build_write(build, step, AT(linear_grad_input, dx), hidden_grad, at);
        const struct kern_linear_grad_weight_arguments weight = {
            .type = build->shape.type,
            .m = build->tokens,
            .n = part->rows,
            .k = up->cols,
            .dy_stride = width,
            .x_stride = stride,
        };
        step = model_build_step(build, KERN_LINEAR_GRAD_WEIGHT, &weight);
        step->flops = flops;
        model_build_point(build, step, AT(linear_grad_weight, dy), dy, part->onto_row);
        model_build_point(build, step, AT(linear_grad_weight, x), hidden, at);
        model_build_weight_grad(build, step, AT(linear_grad_weight, dw), b, part->first_row);
    }
}

static void adapter_weight_grad(struct model_build *build, const struct model_op_row *row, int x)
{
    const int a = model_block_adapter(build->block, row->weight, MODEL_ADAPTER_A);
    if (a < 0) {
        return;
    }
    if (build->model->lora.dropout > 0.0) {
        x = model_build_dropped(build, row, x, false);
    }
    const struct model_param *down = &build->block->params[a];
    const struct kern_linear_grad_weight_arguments arguments = {
        .type = build->shape.type,
        .m = build->tokens,
        .n = down->rows,
        .k = down->cols,
        .dy_stride = down->rows,
        .x_stride = down->cols,
    };
    struct model_step *step = model_build_step(build, KERN_LINEAR_GRAD_WEIGHT, &arguments);
    step->flops = 2.0 * (double)build->tokens * (double)down->elements;
    model_build_point(build, step, AT(linear_grad_weight, dy), model_build_hidden_grad(build, row),
                      0);
    model_build_point(build, step, AT(linear_grad_weight, x), x, 0);
    model_build_weight_grad(build, step, AT(linear_grad_weight, dw), a, 0);
}

static void weight_grad(struct model_build *build, const struct model_op_row *row, int dy, int x)
{
    const int weight = model_build_role(build, row->weight);
    const int bias = model_build_role(build, row->bias);
    const struct model_param *param = &build->block->params[weight];
    const int64_t tile = kern_tile_rows(param->rows, param->cols, build->shape.type,
                                        build->shape.tile_bytes);
    for (int64_t at = 0; trained(build, weight) && at < param->rows; at += tile) {
        const int64_t rows = param->rows - at < tile ? param->rows - at : tile;
        const struct kern_linear_grad_weight_arguments arguments = {
            .type = build->shape.type,
            .m = build->tokens,
            .n = rows,
            .k = param->cols,
            .dy_stride = param->rows,
            .x_stride = param->cols,
        };
        struct model_step *step = model_build_step(build, KERN_LINEAR_GRAD_WEIGHT, &arguments);
        step->flops = 2.0 * (double)build->tokens * (double)rows * (double)param->cols;
        model_build_point(build, step, AT(linear_grad_weight, dy), dy, at);
        model_build_point(build, step, AT(linear_grad_weight, x), x, 0);
        model_build_weight_grad(build, step, AT(linear_grad_weight, dw), weight, at);
    }
    if (trained(build, bias)) {
        const struct kern_bias_grad_arguments arguments = {
            .type = build->shape.type,
            .m = build->tokens,
            .n = param->rows,
            .dy_stride = param->rows,
        };
        struct model_step *step = model_build_step(build, KERN_BIAS_GRAD, &arguments);
        model_build_point(build, step, AT(bias_grad, dy), dy, 0);
        model_build_weight_grad(build, step, AT(bias_grad, db), bias, 0);
    }
    adapter_weight_grad(build, row, x);
}

/* A term of the gradient of a linear layer's input: dy times rows of a parameter. */
struct input_part {
    int param;
    int64_t at, rows;
    int dy;                      /* the gradient that is multiplied */
    int64_t dy_first, dy_stride; /* first column and stride of dy */
    int dx, sum;                 /* sum: partial sums; -1: only one part */
    bool first, last;
};

static void input_grad_part(struct model_build *build, const struct input_part *part)
{
    const struct model_param *param = &build->block->params[part->param];
    const struct kern_linear_grad_input_arguments arguments = {
        .type = build->shape.type,
        .m = build->tokens,
        .n = part->rows,
        .k = param->cols,
        .dy_stride = part->dy_stride,
        .dx_stride = param->cols,
        .first = part->first,
        .last = part->last,
    };
    struct model_step *step = model_build_step(build, KERN_LINEAR_GRAD_INPUT, &arguments);
    step->flops = 2.0 * (double)build->tokens * (double)part->rows * (double)param->cols;
    model_build_point(build, step, AT(linear_grad_input, dy), part->dy, part->dy_first);
    model_build_param(build, step, AT(linear_grad_input, w), part->param, part->at, part->rows);
    if (part->last) {
        model_build_write(build, step, AT(linear_grad_input, dx), part->dx, 0);
    }
    if (part->sum >= 0) {
        model_build_write(build, step, AT(linear_grad_input, sum), part->sum, 0);
    }
}

/* Adds dx = scaled w + h A, where `scaled` is dy times DoRA's factors and h the gradient of x A^T.
 * With dropout, dx = dy w + dropout(h A); with DoRA too, dx = rest(dy w) + dropout(scaled w + h A),
 * where rest(v) = v - dropout(v). */
static void input_grad(struct model_build *build, const struct model_op_row *row, int dy,
                       int scaled)
{
    const int weight = model_build_role(build, row->weight);
    const struct model_param *param = &build->block->params[weight];
    const int64_t tile = kern_tile_rows(param->rows, param->cols, build->shape.type,
                                        build->shape.tile_bytes);
    const int adapter = model_block_adapter(build->block, row->weight, MODEL_ADAPTER_A);
    const uint64_t sum_bytes = (uint64_t)(build->tokens * param->cols) * sizeof(float);
    const bool drops = adapter >= 0 && build->model->lora.dropout > 0.0;
    const bool splits = model_build_splits(build, row);
    const bool parts = tile < param->rows || (adapter >= 0 && !drops);
    const int dx = model_build_grad(build, row->x.value);
    struct input_part part = {
        .param = weight,
        .dy = splits ? dy : scaled,
        .dy_stride = param->rows,
        .dx = dx,
        .sum = parts ? model_build_buffer(build, sum_bytes) : -1,
        .first = true,
    };
    struct input_part dropped = part;
    if (drops) { /* dropped inputs get no gradient through the adapter */
        dropped.dy = scaled;
        dropped.dx = model_build_buffer(build, build->buffers[dx].bytes);
        dropped.sum = splits ? model_build_buffer(build, sum_bytes) : -1;
    }
    for (; part.at < param->rows; part.at += tile) {
        part.rows = param->rows - part.at < tile ? param->rows - part.at : tile;
        part.dy_first = part.at;
        part.last = (adapter < 0 || drops) && part.at + part.rows == param->rows;
        input_grad_part(build, &part);
        part.first = false;
        if (splits) {
            dropped.at = dropped.dy_first = part.at;
            dropped.rows = part.rows;
            input_grad_part(build, &dropped);
            dropped.first = false;
        }
    }
    if (adapter >= 0) {
        struct input_part *last = drops ? &dropped : &part;
        last->param = adapter;
        last->at = last->dy_first = 0;
        last->rows = last->dy_stride = build->block->params[adapter].rows;
        last->dy = model_build_hidden_grad(build, row);
        last->last = true;
        input_grad_part(build, last);
    }
    if (splits) {
        const struct model_dropout_operands rest = {.x = dx, .add = -1, .y = dx, .rest = true};
        model_build_dropout(build, row, &rest);
    }
    if (drops) {
        const struct model_dropout_operands operands = {.x = dropped.dx, .add = dx, .y = dx};
        model_build_dropout(build, row, &operands);
    }
}

static bool made_by_act(const struct model_build *build, enum model_value value)
{
    const struct model_block_table *table = build->block->table;
    for (size_t i = 0; i < table->op_count; i++) {
        if (table->ops[i].out.value == value) {
            return table->ops[i].row == MODEL_ROW_ACT;
        }
    }
    return false;
}

/* The output of an activation is not kept: the activation's gradient computes it again, and the
 * weight's gradient waits for that. */
static void linear_grad(struct model_build *build, const struct model_op_row *row)
{
    const int dy = model_build_grad(build, row->out.value);
    const int scaled = magnitude_grad(build, row, dy);
    adapter_grad(build, row, scaled);
    if (made_by_act(build, row->x.value)) {
        build->waiting = row;
        build->waiting_grad = scaled;
    } else {
        weight_grad(build, row, scaled, model_build_value(build, row->x.value));
    }
    input_grad(build, row, dy, scaled);
}

static void act_grad(struct model_build *build, const struct model_op_row *row)
{
    const struct model_config *config = &build->model->config;
    const int64_t stride = model_build_width(build, row->x.value);
    const struct kern_act_grad_arguments arguments = {
        .type = build->shape.type,
        .kind = config->act,
        .tokens = build->tokens,
        .width = config->inner,
        .gate_stride = stride,
        .up_stride = stride,
        .dy_stride = config->inner,
        .dgate_stride = stride,
        .dup_stride = stride,
        .y_stride = config->inner,
    };
    const int x = model_build_value(build, row->x.value);
    const int dx = model_build_grad(build, row->x.value);
    const int dy = model_build_grad(build, row->out.value);
    struct model_step *step = model_build_step(build, KERN_ACT_GRAD, &arguments);
    model_build_point(build, step, AT(act_grad, gate), x, 0);
    model_build_write(build, step, AT(act_grad, dgate), dx, 0);
    if (config->family->gated) {
        model_build_point(build, step, AT(act_grad, up), x, config->inner);
        model_build_write(build, step, AT(act_grad, dup), dx, config->inner);
    }
    model_build_point(build, step, AT(act_grad, dy), dy, 0);
    model_build_write(build, step, AT(act_grad, y), dy, 0);
    assert(build->waiting != NULL && build->waiting->x.value == row->out.value);
    weight_grad(build, build->waiting, build->waiting_grad, dy);
    build->waiting = NULL;
}

static void attention_grad(struct model_build *build, const struct model_op_row *row)
{
    const struct kern_attention_arguments forward = model_build_attention(build, row);
    const struct kern_attention_grad_arguments arguments = {
        .forward = forward,
        .d_o_stride = forward.o_stride,
        .dq_stride = forward.q_stride,
        .dk_stride = forward.k_stride,
        .dv_stride = forward.v_stride,
    };
    struct model_step *step = model_build_step(build, KERN_ATTENTION_GRAD, &arguments);
    step->flops = 2.5 * model_build_attention_flops(build);
    model_build_base(build, step, AT(attention_grad, forward.starts), MODEL_BASE_STARTS);
    if (build->shape.pairs > 0) {
        model_build_base(build, step, AT(attention_grad, forward.gaps), MODEL_BASE_GAPS);
    }
    const struct {
        size_t field;
        size_t grad_field;
        struct model_slice slice;
    } parts[] = {
        {AT(attention_grad, forward.q), AT(attention_grad, dq), row->x},
        {AT(attention_grad, forward.k), AT(attention_grad, dk), row->x2},
        {AT(attention_grad, forward.v), AT(attention_grad, dv), row->x3},
    };
    for (size_t i = 0; i < 3; i++) {
        const enum model_value value = parts[i].slice.value;
        const int64_t first = model_build_dim(build, parts[i].slice.first);
        model_build_point(build, step, parts[i].field, model_build_value(build, value), first);
        model_build_write(build, step, parts[i].grad_field, model_build_grad(build, value), first);
    }
    const int o = model_build_value(build, row->out.value);
    model_build_point(build, step, AT(attention_grad, forward.o), o, 0);
    model_build_point(build, step, AT(attention_grad, forward.lse), build->lse[row->out.value], 0);
    model_build_point(build, step, AT(attention_grad, d_o), model_build_grad(build, row->out.value),
                      0);
}

/* Both addends share the sum's gradient. */
static void add_grad(struct model_build *build, const struct model_op_row *row)
{
    const int dy = model_build_grad(build, row->out.value);
    assert(build->grad[row->x.value] < 0 && build->grad[row->add] < 0);
    build->grad[row->x.value] = dy;
    build->grad[row->add] = dy;
}

void model_build_backward_row(struct model_build *build, const struct model_op_row *row)
{
    switch (row->row) {
    case MODEL_ROW_EMBED: embed_grad(build, row); break;
    case MODEL_ROW_NORM: norm_grad(build, row); break;
    case MODEL_ROW_HEAD_NORM: head_norm_grad(build, row); break;
    case MODEL_ROW_LINEAR: linear_grad(build, row); break;
    case MODEL_ROW_ROPE:
        model_build_rope(build, row, model_build_grad(build, row->x.value), true);
        break;
    case MODEL_ROW_ATTENTION: attention_grad(build, row); break;
    case MODEL_ROW_ACT: act_grad(build, row); break;
    case MODEL_ROW_ADD: add_grad(build, row); break;
    case MODEL_ROW_LOSS: break; /* program_loss.c adds forward and backward */
    }
}
