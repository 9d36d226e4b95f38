/* program_forward.c: the forward steps of a row. */
#include <assert.h>

#include "offload/model/program_rows.h"

static void embed(struct model_build *build, const struct model_op_row *row)
{
    const struct model_config *config = &build->model->config;
    int positions = model_build_role(build, row->bias);
    const int64_t stride = build->shape.stride;
    const struct kern_embed_arguments arguments = {
        .type = build->shape.type,
        .tokens = build->tokens,
        .width = config->hidden,
        .vocab = stride > 0 ? (config->vocab - 1) * (config->hidden / stride) + 1 : config->vocab,
        .stride = stride,
        .position_count = positions >= 0 ? config->positions : 0,
        .length = build->shape.length,
    };
    struct model_step *step = model_build_step(build, KERN_EMBED, &arguments);
    model_build_base(build, step, AT(embed, ids), MODEL_BASE_IDS);
    model_build_param(build, step, AT(embed, table), model_build_role(build, row->weight), 0,
                      config->vocab);
    if (positions >= 0) {
        model_build_param(build, step, AT(embed, position_table), positions, 0, 0);
        model_build_base(build, step, AT(embed, positions), MODEL_BASE_POSITIONS);
    }
    model_build_write(build, step, AT(embed, y), model_build_value(build, row->out.value), 0);
}

static void norm(struct model_build *build, const struct model_op_row *row)
{
    const struct model_config *config = &build->model->config;
    const enum kern_norm_kind kind = config->family->norm;
    const int64_t width = model_build_dim(build, row->x.width);
    const struct kern_norm_arguments arguments = {
        .type = build->shape.type,
        .kind = kind,
        .tokens = build->tokens,
        .heads = 1,
        .width = width,
        .eps = (float)config->eps,
        .x_stride = width,
        .y_stride = width,
    };
    const uint64_t statistic_bytes = (uint64_t)build->tokens * sizeof(float);
    struct model_step *step = model_build_step(build, KERN_NORM, &arguments);
    model_build_point(build, step, AT(norm, x), model_build_value(build, row->x.value), 0);
    if (row->add != MODEL_NO_VALUE) {
        model_build_point(build, step, AT(norm, add), model_build_value(build, row->add), 0);
        model_build_write(build, step, AT(norm, sum), model_build_value(build, row->sum), 0);
    }
    model_build_param(build, step, AT(norm, weight), model_build_role(build, row->weight), 0, 0);
    if (model_build_role(build, row->bias) >= 0) {
        model_build_param(build, step, AT(norm, bias), model_build_role(build, row->bias), 0, 0);
    }
    model_build_write(build, step, AT(norm, y), model_build_value(build, row->out.value), 0);
    if (kind == KERN_NORM_LAYER) {
        build->mean[row->out.value] = model_build_buffer(build, statistic_bytes);
        model_build_write(build, step, AT(norm, mean), build->mean[row->out.value], 0);
    }
    build->rstd[row->out.value] = model_build_buffer(build, statistic_bytes);
    model_build_write(build, step, AT(norm, rstd), build->rstd[row->out.value], 0);
}

static void head_norm(struct model_build *build, const struct model_op_row *row)
{
    const struct model_config *config = &build->model->config;
    const int64_t heads = model_build_dim(build, row->x.width) / config->head_dim;
    const struct kern_norm_arguments arguments = {
        .type = build->shape.type,
        .kind = KERN_NORM_RMS,
        .tokens = build->tokens,
        .heads = heads,
        .width = config->head_dim,
        .eps = (float)config->eps,
        .x_stride = model_build_width(build, row->x.value),
        .y_stride = model_build_width(build, row->out.value),
    };
    /* The norms of q and of k write one value. */
    int rstd = model_build_buffer(build, (uint64_t)(build->tokens * heads) * sizeof(float));
    if (row->out.first == MODEL_DIM_NONE) {
        build->rstd[row->out.value] = rstd;
    } else {
        build->rstd2[row->out.value] = rstd;
    }
    struct model_step *step = model_build_step(build, KERN_NORM, &arguments);
    model_build_point(build, step, AT(norm, x), model_build_value(build, row->x.value),
                      model_build_dim(build, row->x.first));
    model_build_param(build, step, AT(norm, weight), model_build_role(build, row->weight), 0, 0);
    model_build_write(build, step, AT(norm, y), model_build_value(build, row->out.value),
                      model_build_dim(build, row->out.first));
    model_build_write(build, step, AT(norm, rstd), rstd, 0);
}

/* Adds hidden = scale x A^T and out += hidden B^T. `dropped` is x after dropout; -1: computed
 * here. */
static void adapter(struct model_build *build, const struct model_op_row *row, int dropped, int out)
{
    const int a = model_block_adapter(build->block, row->weight, MODEL_ADAPTER_A);
    const int b = model_block_adapter(build->block, row->weight, MODEL_ADAPTER_B);
    if (a < 0) {
        return;
    }
    const struct model_param *down = &build->block->params[a];
    const struct model_param *up = &build->block->params[b];
    model_build_choose(build, MODEL_HALF_POLICY);
    const int hidden = model_build_hidden(build, row);
    int x = dropped >= 0 ? dropped : model_build_value(build, row->x.value);
    if (dropped < 0 && build->model->lora.dropout > 0.0) {
        x = model_build_dropped(build, row, x, false);
    }
    const struct kern_linear_arguments first = {
        .type = build->shape.type,
        .m = build->tokens,
        .n = down->rows,
        .k = down->cols,
        .x_stride = down->cols,
        .y_stride = down->rows,
        .scale = build->model->lora.scale,
    };
    struct model_step *step = model_build_step(build, KERN_LINEAR, &first);
    step->flops = 2.0 * (double)build->tokens * (double)down->elements;
    model_build_point(build, step, AT(linear, x), x, 0);
    model_build_param(build, step, AT(linear, w), a, 0, 0);
    model_build_write(build, step, AT(linear, y), hidden, 0);
    for (unsigned i = 0; i < up->part_count; i++) {
        const struct model_part *part = &up->parts[i];
        const struct kern_linear_arguments second = {
            .type = build->shape.type,
            .m = build->tokens,
            .n = part->rows,
            .k = up->cols,
            .x_stride = down->rows,
            .y_stride = model_build_width(build, row->out.value),
            .onto = true,
        };
        step = model_build_step(build, KERN_LINEAR, &second);
        step->flops = 2.0 * (double)build->tokens * (double)(part->rows * up->cols);
        model_build_point(build, step, AT(linear, x), hidden, (int64_t)i * up->cols);
        model_build_param(build, step, AT(linear, w), b, part->first_row, 0);
        model_build_write(build, step, AT(linear, y), out, part->onto_row);
    }
    model_build_choose(build, MODEL_HALF_BOTH);
}

static void find_factors(struct model_build *build, const struct model_op_row *row, int64_t at,
                         int64_t rows)
{
    const int weight = model_build_role(build, row->weight);
    const int a = model_block_adapter(build->block, row->weight, MODEL_ADAPTER_A);
    const int b = model_block_adapter(build->block, row->weight, MODEL_ADAPTER_B);
    const int magnitude = model_block_adapter(build->block, row->weight, MODEL_ADAPTER_MAGNITUDE);
    const struct model_param *up = &build->block->params[b];
    for (unsigned i = 0; i < up->part_count; i++) {
        const struct model_part *part = &up->parts[i];
        const int64_t begin = part->onto_row > at ? part->onto_row : at;
        const int64_t last = part->onto_row + part->rows;
        const int64_t end = last < at + rows ? last : at + rows;
        const int64_t first = part->first_row + begin - part->onto_row;
        if (begin >= end) {
            continue;
        }
        const struct kern_magnitude_arguments arguments = {
            .type = build->shape.type,
            .rows = end - begin,
            .cols = build->block->params[weight].cols,
            .rank = up->cols,
            .scale = build->model->lora.scale,
        };
        struct model_step *step = model_build_step(build, KERN_MAGNITUDE, &arguments);
        step->flops = 2.0 * (double)(arguments.rows * arguments.cols * arguments.rank);
        model_build_param(build, step, AT(magnitude, w), weight, begin, end - begin);
        model_build_param(build, step, AT(magnitude, a), a, (int64_t)i * up->cols, 0);
        model_build_param(build, step, AT(magnitude, b), b, first, 0);
        model_build_param(build, step, AT(magnitude, magnitude), magnitude, first, 0);
        model_build_write_floats(build, step, AT(magnitude, factor), build->factors[row->out.value],
                                 first);
        model_build_write_floats(build, step, AT(magnitude, inverse),
                                 build->factors[row->out.value], up->rows + first);
    }
}

/* Adds out = whole * factor + bias; if the product is split, out += whole * factor. */
static void apply_factor(struct model_build *build, const struct model_op_row *row, int out,
                         const struct model_column_range *range)
{
    const int bias = model_build_role(build, row->bias);
    const bool splits = model_build_splits(build, row);
    const struct model_column_operands operands = {.x = build->whole[row->out.value],
                                                   .by = -1,
                                                   .add = splits ? out : -1,
                                                   .y = out,
                                                   .factor = range->factor};
    struct model_step *step = model_build_columns_step(build, row, range, &operands);
    if (bias >= 0 && !splits) {
        model_build_param(build, step, AT(columns, bias), bias, range->first, 0);
    }
}

/* Columns without an adapter, and the reference, have the factor 1. */
static void apply_factors(struct model_build *build, const struct model_op_row *row, int out)
{
    struct model_columns columns = {.count = 0};
    model_build_columns(build, row, &columns);
    model_build_choose(build, MODEL_HALF_POLICY);
    for (unsigned i = 0; i < columns.count; i++) {
        apply_factor(build, row, out, &columns.list[i]);
    }
    if (build->shape.pairs > 0 && !model_build_splits(build, row)) {
        const struct model_column_range all = {.count = model_build_width(build, row->out.value),
                                               .factor = -1};
        model_build_choose(build, MODEL_HALF_REFERENCE);
        apply_factor(build, row, out, &all);
    }
    model_build_choose(build, MODEL_HALF_BOTH);
}

/* A product of the rows in `half`, from buffer x to buffer y. */
struct product {
    enum model_half half;
    int x, y;
    bool bias;
};

/* Rows of the weight make columns of the output. */
static void product_tile(struct model_build *build, const struct model_op_row *row,
                         const struct product *product, int64_t at, int64_t rows)
{
    const int weight = model_build_role(build, row->weight);
    const int bias = model_build_role(build, row->bias);
    const struct model_param *param = &build->block->params[weight];
    model_build_choose(build, product->half);
    const int64_t token = product->half == MODEL_HALF_REFERENCE ? build->tokens : 0;
    const struct kern_linear_arguments arguments = {
        .type = build->shape.type,
        .m = build->tokens,
        .n = rows,
        .k = param->cols,
        .x_stride = param->cols,
        .y_stride = param->rows,
    };
    struct model_step *step = model_build_step(build, KERN_LINEAR, &arguments);
    step->flops = 2.0 * (double)build->tokens * (double)rows * (double)param->cols;
    model_build_point(build, step, AT(linear, x), product->x, token * param->cols);
    model_build_param(build, step, AT(linear, w), weight, at, rows);
    if (bias >= 0 && product->bias) {
        model_build_param(build, step, AT(linear, bias), bias, at, 0);
    }
    model_build_write(build, step, AT(linear, y), product->y, token * param->rows + at);
    model_build_choose(build, MODEL_HALF_BOTH);
}

/* DoRA with dropout takes two products, as in PEFT: out = (x - d) w^T + bias + factor (d w^T +
 * hidden B^T), where d is x after dropout. */
static void linear(struct model_build *build, const struct model_op_row *row, int out)
{
    const int weight = model_build_role(build, row->weight);
    const struct model_param *param = &build->block->params[weight];
    const int64_t tile = kern_tile_rows(param->rows, param->cols, build->shape.type,
                                        build->shape.tile_bytes);
    const int x = model_build_value(build, row->x.value);
    const bool dora = model_build_begin_dora(build, row);
    const int to = dora ? build->whole[row->out.value] : out;
    struct product products[3] = {{MODEL_HALF_BOTH, x, to, !dora}};
    unsigned count = 1;
    int dropped = -1;
    if (model_build_splits(build, row)) {
        model_build_choose(build, MODEL_HALF_POLICY);
        dropped = model_build_dropped(build, row, x, false);
        const int rest = model_build_dropped(build, row, x, true);
        products[0] = (struct product){MODEL_HALF_POLICY, dropped, to, false};
        products[1] = (struct product){MODEL_HALF_POLICY, rest, out, true};
        products[2] = (struct product){MODEL_HALF_REFERENCE, x, out, true};
        count = build->shape.pairs > 0 ? 3 : 2;
        model_build_choose(build, MODEL_HALF_BOTH);
    }
    for (int64_t at = 0; at < param->rows; at += tile) {
        const int64_t rows = param->rows - at < tile ? param->rows - at : tile;
        for (unsigned i = 0; i < count; i++) {
            product_tile(build, row, &products[i], at, rows);
        }
        if (dora) {
            find_factors(build, row, at, rows);
        }
    }
    adapter(build, row, dropped, to);
    if (dora) {
        apply_factors(build, row, out);
    }
}

static void attention_from(struct model_build *build, const struct model_op_row *row, int64_t token,
                           int lse)
{
    const struct kern_attention_arguments arguments = model_build_attention(build, row);
    struct model_step *step = model_build_step(build, KERN_ATTENTION, &arguments);
    step->flops = model_build_attention_flops(build);
    model_build_base(build, step, AT(attention, starts), MODEL_BASE_STARTS);
    step->patches[step->patch_count - 1].offset_bytes = (uint64_t)token * sizeof(int32_t);
    if (build->shape.pairs > 0) { /* both halves have the same gaps */
        model_build_base(build, step, AT(attention, gaps), MODEL_BASE_GAPS);
    }
    model_build_point(build, step, AT(attention, q), model_build_value(build, row->x.value),
                      token * arguments.q_stride + model_build_dim(build, row->x.first));
    model_build_point(build, step, AT(attention, k), model_build_value(build, row->x2.value),
                      token * arguments.k_stride + model_build_dim(build, row->x2.first));
    model_build_point(build, step, AT(attention, v), model_build_value(build, row->x3.value),
                      token * arguments.v_stride + model_build_dim(build, row->x3.first));
    model_build_write(build, step, AT(attention, o), model_build_value(build, row->out.value),
                      token * arguments.o_stride);
    model_build_write(build, step, AT(attention, lse), lse, 0);
}

/* Pairs take two steps, because the gradient needs `lse` of the policy's rows alone. */
static void attention(struct model_build *build, const struct model_op_row *row)
{
    (void)model_build_value(build, row->out.value); /* makes the value for both halves */
    model_build_choose(build, MODEL_HALF_POLICY);
    const uint64_t bytes = (uint64_t)(build->tokens * build->model->config.heads) * sizeof(float);
    build->lse[row->out.value] = model_build_buffer(build, bytes);
    attention_from(build, row, 0, build->lse[row->out.value]);
    if (build->shape.pairs > 0) {
        model_build_choose(build, MODEL_HALF_REFERENCE);
        attention_from(build, row, build->tokens, model_build_buffer(build, bytes));
    }
    model_build_choose(build, MODEL_HALF_BOTH);
}

static void act(struct model_build *build, const struct model_op_row *row)
{
    const struct model_config *config = &build->model->config;
    const int64_t stride = model_build_width(build, row->x.value);
    const struct kern_act_arguments arguments = {
        .type = build->shape.type,
        .kind = config->act,
        .tokens = build->tokens,
        .width = config->inner,
        .gate_stride = stride,
        .up_stride = stride,
        .y_stride = config->inner,
    };
    struct model_step *step = model_build_step(build, KERN_ACT, &arguments);
    model_build_point(build, step, AT(act, gate), model_build_value(build, row->x.value), 0);
    if (config->family->gated) {
        model_build_point(build, step, AT(act, up), model_build_value(build, row->x.value),
                          config->inner);
    }
    model_build_write(build, step, AT(act, y), model_build_value(build, row->out.value), 0);
}

static void add(struct model_build *build, const struct model_op_row *row)
{
    const struct kern_add_arguments arguments = {
        .count = build->tokens * model_build_dim(build, row->x.width),
        .a_type = build->shape.type,
        .b_type = build->shape.type,
        .y_type = build->shape.type,
    };
    struct model_step *step = model_build_step(build, KERN_ADD, &arguments);
    model_build_point(build, step, AT(add, a), model_build_value(build, row->x.value), 0);
    model_build_point(build, step, AT(add, b), model_build_value(build, row->add), 0);
    model_build_write(build, step, AT(add, y), model_build_value(build, row->out.value), 0);
}

void model_build_forward_row(struct model_build *build, const struct model_op_row *row)
{
    switch (row->row) {
    case MODEL_ROW_EMBED: embed(build, row); break;
    case MODEL_ROW_NORM: norm(build, row); break;
    case MODEL_ROW_HEAD_NORM: head_norm(build, row); break;
    case MODEL_ROW_LINEAR: linear(build, row, model_build_value(build, row->out.value)); break;
    case MODEL_ROW_ROPE:
        model_build_rope(build, row, model_build_value(build, row->x.value), false);
        break;
    case MODEL_ROW_ATTENTION: attention(build, row); break;
    case MODEL_ROW_ACT: act(build, row); break;
    case MODEL_ROW_ADD: add(build, row); break;
    case MODEL_ROW_LOSS: model_build_loss(build, row, MODEL_LOSS_ALONE); break;
    }
}
