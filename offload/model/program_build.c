/* program_build.c: adds buffers, and steps whose pointers are bound later. */
#include "offload/model/program_build.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/table.h"

int64_t model_build_width(const struct model_build *build, enum model_value value)
{
    static const enum model_dim widths[MODEL_VALUE_COUNT] = {
        [MODEL_IN] = MODEL_DIM_HIDDEN,
        [MODEL_OUT] = MODEL_DIM_HIDDEN,
        [MODEL_V_NORMED1] = MODEL_DIM_HIDDEN,
        [MODEL_V_QKV] = MODEL_DIM_QKV,
        [MODEL_V_QK] = MODEL_DIM_QK,
        [MODEL_V_ATTENTION] = MODEL_DIM_Q,
        [MODEL_V_PROJECTED] = MODEL_DIM_HIDDEN,
        [MODEL_V_RESIDUAL] = MODEL_DIM_HIDDEN,
        [MODEL_V_NORMED2] = MODEL_DIM_HIDDEN,
        [MODEL_V_UP] = MODEL_DIM_UP,
        [MODEL_V_ACTED] = MODEL_DIM_INNER,
        [MODEL_V_DOWN] = MODEL_DIM_HIDDEN,
    };
    return model_dim(&build->model->config, widths[value]);
}

int model_build_buffer(struct model_build *build, uint64_t bytes)
{
    assert(build->buffer_count < MODEL_BUFFERS_MAX);
    build->buffers[build->buffer_count] = (struct model_buffer){.bytes = bytes};
    return build->buffer_count++;
}

static uint64_t value_bytes(const struct model_build *build, enum model_value value)
{
    return (uint64_t)build->tokens * (uint64_t)model_build_width(build, value) *
           kern_type_bytes(build->shape.type);
}

int model_build_value(struct model_build *build, enum model_value value)
{
    if (build->value[value] < 0) {
        build->value[value] = model_build_buffer(build, value_bytes(build, value));
    }
    return build->value[value];
}

int model_build_grad(struct model_build *build, enum model_value value)
{
    if (build->grad[value] < 0) {
        build->grad[value] = value == MODEL_IN
                                 ? build->grad[MODEL_OUT]
                                 : model_build_buffer(build, value_bytes(build, value));
    }
    return build->grad[value];
}

static int hidden_buffer(struct model_build *build, const struct model_op_row *row, int *buffer)
{
    const int a = model_block_adapter(build->block, row->weight, MODEL_ADAPTER_A);
    const uint64_t rank = (uint64_t)build->block->params[a].rows;
    if (*buffer < 0) {
        *buffer = model_build_buffer(build, (uint64_t)build->tokens * rank *
                                                kern_type_bytes(build->shape.type));
    }
    return *buffer;
}

int model_build_hidden(struct model_build *build, const struct model_op_row *row)
{
    return hidden_buffer(build, row, &build->hidden[row->out.value]);
}

int model_build_hidden_grad(struct model_build *build, const struct model_op_row *row)
{
    return hidden_buffer(build, row, &build->hidden_grad[row->out.value]);
}

/* Returns the field of the count that recomputation halves; 0: none. */
static size_t count_field(enum kern_op op)
{
    static const size_t fields[KERN_OP_COUNT] = {
        [KERN_LINEAR] = offsetof(struct kern_linear_arguments, m),
        [KERN_EMBED] = offsetof(struct kern_embed_arguments, tokens),
        [KERN_NORM] = offsetof(struct kern_norm_arguments, tokens),
        [KERN_ROPE] = offsetof(struct kern_rope_arguments, tokens),
        [KERN_ACT] = offsetof(struct kern_act_arguments, tokens),
        [KERN_ADD] = offsetof(struct kern_add_arguments, count),
    };
    return fields[op];
}

void model_build_choose(struct model_build *build, enum model_half half)
{
    const int64_t tokens = build->shape.rows * build->shape.length;
    if (build->shape.pairs > 0) {
        build->half = half;
        build->tokens = half == MODEL_HALF_BOTH ? tokens : tokens / 2;
    }
}

struct model_step *model_build_step(struct model_build *build, enum kern_op op,
                                    const void *arguments)
{
    struct model_steps *steps = &build->steps[build->phase];
    struct model_step *step = &build->spare;
    if (!build->failed && steps->count == build->capacity[build->phase]) {
        size_t capacity = steps->count == 0 ? 16 : 2 * steps->count;
        struct model_step *more = realloc(steps->list, capacity * sizeof *more);
        if (more == NULL) {
            build->failed = true;
        } else {
            steps->list = more;
            build->capacity[build->phase] = capacity;
        }
    }
    if (!build->failed) {
        step = &steps->list[steps->count++];
    }
    assert(kern_op_argument_bytes(op) <= MODEL_STEP_BYTES);
    memset(step, 0, sizeof *step);
    step->op = op;
    step->half = (uint8_t)build->half;
    if (build->shape.pairs > 0 && build->half == MODEL_HALF_BOTH) {
        step->halved = (uint16_t)count_field(op);
    }
    memcpy(step->arguments, arguments, kern_op_argument_bytes(op));
    return step;
}

static struct model_patch *add_patch(struct model_step *step, size_t field, enum model_base base)
{
    assert(step->patch_count < MODEL_PATCHES_MAX);
    struct model_patch *patch = &step->patches[step->patch_count++];
    *patch = (struct model_patch){.field = (uint16_t)field, .base = (uint8_t)base};
    /* A placeholder: scratch sizes depend on whether a pointer is NULL. */
    const uintptr_t there = MODEL_BUFFER_ALIGN_BYTES;
    memcpy(step->arguments + field, &there, sizeof there);
    return patch;
}

/* Until the program is finished, base MODEL_BASE_COUNT means buffer `param`. */
static struct model_patch *touch(struct model_build *build, struct model_step *step, size_t field,
                                 int index, int64_t first_element)
{
    struct model_buffer *buffer = &build->buffers[index];
    struct model_patch *patch = add_patch(step, field, MODEL_BASE_COUNT);
    patch->param = (uint8_t)index;
    patch->offset_bytes = (uint64_t)first_element * kern_type_bytes(build->shape.type);
    size_t now = build->steps[build->phase].count - 1;
    if (!buffer->used[build->phase]) {
        buffer->used[build->phase] = true;
        buffer->first[build->phase] = now;
    }
    buffer->last[build->phase] = now;
    return patch;
}

void model_build_point(struct model_build *build, struct model_step *step, size_t field, int buffer,
                       int64_t first_element)
{
    (void)touch(build, step, field, buffer, first_element);
}

void model_build_write(struct model_build *build, struct model_step *step, size_t field, int buffer,
                       int64_t first_element)
{
    touch(build, step, field, buffer, first_element)->writes = true;
}

/* Converts an index of fp32 to elements of the run's type. */
static int64_t in_elements(const struct model_build *build, int64_t floats)
{
    return floats * (int64_t)(sizeof(float) / kern_type_bytes(build->shape.type));
}

/* Like model_build_point(), for buffers of fp32. */
static void point_floats(struct model_build *build, struct model_step *step, size_t field,
                         int buffer, int64_t first_element)
{
    model_build_point(build, step, field, buffer, in_elements(build, first_element));
}

void model_build_write_floats(struct model_build *build, struct model_step *step, size_t field,
                              int buffer, int64_t first_element)
{
    model_build_write(build, step, field, buffer, in_elements(build, first_element));
}

void model_build_param(struct model_build *build, struct model_step *step, size_t field, int param,
                       int64_t row, int64_t rows)
{
    const struct model_param *what = &build->block->params[param];
    struct model_patch *patch = add_patch(step, field, MODEL_BASE_PARAM);
    patch->param = (uint8_t)param;
    patch->offset_bytes = (uint64_t)row * (uint64_t)what->cols * kern_type_bytes(build->shape.type);
    if (rows > 0) {
        step->param = (uint8_t)param;
        step->row = row;
        step->rows = rows;
    }
}

void model_build_base(struct model_build *build, struct model_step *step, size_t field,
                      enum model_base base)
{
    (void)build;
    add_patch(step, field, base);
}

void model_build_weight_grad(struct model_build *build, struct model_step *step, size_t field,
                             int param, int64_t row)
{
    if (param < 0 || !build->block->params[param].trained) {
        return;
    }
    assert(step->grad_count < MODEL_GRADS_MAX);
    step->grads[step->grad_count++] = (struct model_grad){
        .field = (uint16_t)field,
        .param = (uint8_t)param,
        .offset = (uint64_t)row * (uint64_t)build->block->params[param].cols,
    };
}

bool model_build_begin_dora(struct model_build *build, const struct model_op_row *row)
{
    const enum model_value value = row->out.value;
    const int magnitude = model_block_adapter(build->block, row->weight, MODEL_ADAPTER_MAGNITUDE);
    if (magnitude < 0) {
        return false;
    }
    const uint64_t bytes = 2 * (uint64_t)build->block->params[magnitude].rows * sizeof(float);
    model_build_choose(build, model_build_splits(build, row) ? MODEL_HALF_POLICY : MODEL_HALF_BOTH);
    build->whole[value] = model_build_buffer(build, value_bytes(build, value));
    build->factors[value] = model_build_buffer(build, bytes);
    model_build_choose(build, MODEL_HALF_BOTH);
    return true;
}

bool model_build_splits(const struct model_build *build, const struct model_op_row *row)
{
    return build->model->lora.dropout > 0.0 &&
           model_block_adapter(build->block, row->weight, MODEL_ADAPTER_MAGNITUDE) >= 0;
}

void model_build_columns(const struct model_build *build, const struct model_op_row *row,
                         struct model_columns *out)
{
    const int b = model_block_adapter(build->block, row->weight, MODEL_ADAPTER_B);
    const struct model_param *up = &build->block->params[b];
    const int64_t width = model_build_width(build, row->out.value);
    int64_t at = 0;
    for (unsigned i = 0; i <= up->part_count; i++) {
        const struct model_part *part = i < up->part_count ? &up->parts[i] : NULL;
        const int64_t next = part != NULL ? part->onto_row : width;
        if (next > at) {
            out->list[out->count++] = (struct model_column_range){at, next - at, -1};
        }
        if (part != NULL) {
            out->list[out->count++] = (struct model_column_range){part->onto_row, part->rows,
                                                                  part->first_row};
            at = part->onto_row + part->rows;
        }
    }
}

struct model_step *model_build_columns_step(struct model_build *build,
                                            const struct model_op_row *row,
                                            const struct model_column_range *range,
                                            const struct model_column_operands *operands)
{
    const int64_t width = model_build_width(build, row->out.value);
    const int64_t token = build->half == MODEL_HALF_REFERENCE ? build->tokens : 0;
    const int64_t first = token * width + range->first;
    const struct kern_columns_arguments arguments = {
        .type = build->shape.type,
        .tokens = build->tokens,
        .width = range->count,
        .x_stride = width,
        .by_stride = width,
        .y_stride = width,
    };
    struct model_step *step = model_build_step(build, KERN_COLUMNS, &arguments);
    model_build_point(build, step, offsetof(struct kern_columns_arguments, x), operands->x, first);
    if (operands->by >= 0) {
        model_build_point(build, step, offsetof(struct kern_columns_arguments, by), operands->by,
                          first);
    }
    if (operands->add >= 0) {
        model_build_point(build, step, offsetof(struct kern_columns_arguments, add), operands->add,
                          first);
    }
    if (operands->factor >= 0) {
        point_floats(build, step, offsetof(struct kern_columns_arguments, factor),
                     build->factors[row->out.value], operands->factor);
    }
    model_build_write(build, step, offsetof(struct kern_columns_arguments, y), operands->y, first);
    return step;
}

void model_build_dropout(struct model_build *build, const struct model_op_row *row,
                         const struct model_dropout_operands *operands)
{
    const size_t stream = offsetof(struct kern_dropout_arguments, stream);
    const struct kern_dropout_arguments arguments = {
        .type = build->shape.type,
        .rate = (float)build->model->lora.dropout,
        .rest = operands->rest,
        .count = build->tokens * model_build_width(build, row->x.value),
    };
    struct model_step *step = model_build_step(build, KERN_DROPOUT, &arguments);
    model_build_point(build, step, offsetof(struct kern_dropout_arguments, x), operands->x, 0);
    if (operands->add >= 0) {
        model_build_point(build, step, offsetof(struct kern_dropout_arguments, add), operands->add,
                          0);
    }
    model_build_write(build, step, offsetof(struct kern_dropout_arguments, y), operands->y, 0);
    model_build_base(build, step, offsetof(struct kern_dropout_arguments, seed), MODEL_BASE_SCALE);
    step->patches[step->patch_count - 1].offset_bytes = MODEL_SCALE_SEED_AT;
    model_build_base(build, step, stream, MODEL_BASE_STREAM);
    step->patches[step->patch_count - 1].offset_bytes = (uint64_t)row->weight;
}

int model_build_dropped(struct model_build *build, const struct model_op_row *row, int x, bool rest)
{
    const struct model_dropout_operands operands = {
        .x = x,
        .add = -1,
        .y = model_build_buffer(build, value_bytes(build, row->x.value)),
        .rest = rest,
    };
    model_build_dropout(build, row, &operands);
    return operands.y;
}

void model_build_begin(struct model_build *build, const struct model *model, unsigned block,
                       const struct model_shape *shape)
{
    *build = (struct model_build){
        .model = model,
        .block = &model->blocks[block],
        .shape = *shape,
        .tokens = shape->rows * shape->length,
    };
    for (int i = 0; i < MODEL_VALUE_COUNT; i++) {
        build->value[i] = build->grad[i] = build->mean[i] = build->rstd[i] = build->rstd2[i] =
            build->lse[i] = build->hidden[i] = build->hidden_grad[i] = build->whole[i] =
                build->factors[i] = -1;
    }
    static const enum model_base fixed[] = {MODEL_BASE_IN, MODEL_BASE_OUT, MODEL_BASE_GRAD};
    for (size_t i = 0; i < 3; i++) {
        int index = model_build_buffer(build, value_bytes(build, MODEL_IN));
        build->buffers[index].fixed = true;
        build->buffers[index].base = fixed[i];
    }
    build->value[MODEL_IN] = 0;
    build->value[MODEL_OUT] = 1;
    build->grad[MODEL_OUT] = 2;
}

/* ---- ops that forward and backward share ---- */

void model_build_rope(struct model_build *build, const struct model_op_row *row, int x,
                      bool backward)
{
    const struct model_config *config = &build->model->config;
    if (!config->family->rope) {
        return;
    }
    const struct kern_rope_arguments arguments = {
        .type = build->shape.type,
        .tokens = build->tokens,
        .heads = model_dim(&build->model->config, row->x.width) / config->head_dim,
        .head_dim = config->head_dim,
        .rotary = config->rope.rotary,
        .stride = model_build_width(build, row->x.value),
        .length = build->shape.length,
        .backward = backward,
    };
    struct model_step *step = model_build_step(build, KERN_ROPE, &arguments);
    model_build_write(build, step, offsetof(struct kern_rope_arguments, x), x,
                      model_dim(&build->model->config, row->x.first));
    model_build_base(build, step, offsetof(struct kern_rope_arguments, cos), MODEL_BASE_COS);
    model_build_base(build, step, offsetof(struct kern_rope_arguments, sin), MODEL_BASE_SIN);
    model_build_base(build, step, offsetof(struct kern_rope_arguments, positions),
                     MODEL_BASE_POSITIONS);
}

struct kern_attention_arguments model_build_attention(const struct model_build *build,
                                                      const struct model_op_row *row)
{
    const struct model_config *config = &build->model->config;
    return (struct kern_attention_arguments){
        .type = build->shape.type,
        .rows = build->tokens / build->shape.length,
        .length = build->shape.length,
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .window = build->block->window,
        .scale = (float)build->block->scale,
        .q_stride = model_build_width(build, row->x.value),
        .k_stride = model_build_width(build, row->x2.value),
        .v_stride = model_build_width(build, row->x3.value),
        .o_stride = model_build_width(build, row->out.value),
    };
}

double model_build_attention_flops(const struct model_build *build)
{
    const struct model_config *config = &build->model->config;
    const int64_t length = build->shape.length;
    const int64_t window = build->block->window;
    const int64_t wide = window > 0 && window < length ? window : length;
    const double pairs = 0.5 * (double)wide * (double)(wide + 1) +
                         (double)(length - wide) * (double)wide;
    return 4.0 * (double)(build->tokens / length) * pairs *
           (double)(config->heads * config->head_dim);
}
