/* program.c: builds the steps of a block, works out who lives when, and gives every array its
 * place. */
#include "offload/model/program.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "kernels/table.h"
#include "offload/model/program_build.h"

enum { BUFFER_ALIGN_BYTES = 256 };

/* ---- growing ---- */

int64_t model_build_width(const struct model_build *build, enum model_value value)
{
    static const enum model_dim widths[MODEL_VALUE_COUNT] = {
        [MODEL_IN] = MODEL_DIM_HIDDEN,
        [MODEL_OUT] = MODEL_DIM_HIDDEN,
        [MODEL_V_NORMED1] = MODEL_DIM_HIDDEN,
        [MODEL_V_QKV] = MODEL_DIM_QKV,
        [MODEL_V_QK] = MODEL_DIM_QK,
        [MODEL_V_MIXED] = MODEL_DIM_Q,
        [MODEL_V_PROJECTED] = MODEL_DIM_HIDDEN,
        [MODEL_V_MIDDLE] = MODEL_DIM_HIDDEN,
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
    memcpy(step->arguments, arguments, kern_op_argument_bytes(op));
    return step;
}

static struct model_patch *add_patch(struct model_step *step, size_t field, enum model_base base)
{
    assert(step->patch_count < MODEL_PATCHES_MAX);
    struct model_patch *patch = &step->patches[step->patch_count++];
    *patch = (struct model_patch){.field = (uint16_t)field, .base = (uint8_t)base};
    /* Something that is not NULL stands in for the address: scratch sizes depend on that. */
    const uintptr_t there = BUFFER_ALIGN_BYTES;
    memcpy(step->arguments + field, &there, sizeof there);
    return patch;
}

/* Until finish, base MODEL_BASE_COUNT means the buffer whose number stands in `param`. */
static void touch(struct model_build *build, struct model_step *step, size_t field, int index,
                  int64_t first_element)
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
}

void model_build_point(struct model_build *build, struct model_step *step, size_t field, int buffer,
                       int64_t first_element)
{
    touch(build, step, field, buffer, first_element);
    step->reads |= UINT64_C(1) << buffer;
}

void model_build_write(struct model_build *build, struct model_step *step, size_t field, int buffer,
                       int64_t first_element)
{
    touch(build, step, field, buffer, first_element);
    step->writes |= UINT64_C(1) << buffer;
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

/* ---- places ---- */

static uint64_t align(uint64_t bytes)
{
    return (bytes + BUFFER_ALIGN_BYTES - 1) / BUFFER_ALIGN_BYTES * BUFFER_ALIGN_BYTES;
}

static bool is_kept(const struct model_buffer *buffer)
{
    return !buffer->fixed && buffer->used[MODEL_PHASE_FORWARD] &&
           buffer->used[MODEL_PHASE_BACKWARD];
}

static bool is_temp(const struct model_buffer *buffer, enum model_phase phase)
{
    return !buffer->fixed && buffer->used[phase] && !is_kept(buffer);
}

/* The lowest place in the phase's temporary memory where nobody stands who lives at the same time.
 * Buffers are placed in order of their first use. */
static uint64_t find_place(const struct model_build *build, enum model_phase phase, int index)
{
    const struct model_buffer *one = &build->buffers[index];
    uint64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < build->buffer_count; i++) {
            const struct model_buffer *other = &build->buffers[i];
            bool placed = is_temp(other, phase) &&
                          (other->first[phase] < one->first[phase] ||
                           (other->first[phase] == one->first[phase] && i < index));
            bool together = other->last[phase] >= one->first[phase];
            if (placed && together && at < other->offset_bytes + align(other->bytes) &&
                other->offset_bytes < at + align(one->bytes)) {
                at = other->offset_bytes + align(other->bytes);
                moved = true;
            }
        }
    }
    return at;
}

static uint64_t place_temps(struct model_build *build, enum model_phase phase)
{
    uint64_t bytes = 0;
    for (size_t step = 0; step < build->steps[phase].count; step++) {
        for (int i = 0; i < build->buffer_count; i++) {
            struct model_buffer *buffer = &build->buffers[i];
            if (is_temp(buffer, phase) && buffer->first[phase] == step) {
                buffer->base = MODEL_BASE_TEMP;
                buffer->offset_bytes = find_place(build, phase, i);
                if (bytes < buffer->offset_bytes + align(buffer->bytes)) {
                    bytes = buffer->offset_bytes + align(buffer->bytes);
                }
            }
        }
    }
    return bytes;
}

static uint64_t place_kept(struct model_build *build)
{
    uint64_t bytes = 0;
    for (int i = 0; i < build->buffer_count; i++) {
        struct model_buffer *buffer = &build->buffers[i];
        if (is_kept(buffer)) {
            buffer->base = MODEL_BASE_KEPT;
            buffer->offset_bytes = bytes;
            bytes += align(buffer->bytes);
        }
    }
    return bytes;
}

static void resolve_patches(const struct model_build *build, struct model_steps *steps)
{
    for (size_t i = 0; i < steps->count; i++) {
        struct model_step *step = &steps->list[i];
        steps->flops += step->flops;
        for (unsigned j = 0; j < step->patch_count; j++) {
            struct model_patch *patch = &step->patches[j];
            if (patch->base == MODEL_BASE_COUNT) {
                const struct model_buffer *buffer = &build->buffers[patch->param];
                patch->base = (uint8_t)buffer->base;
                patch->param = 0;
                patch->offset_bytes += buffer->fixed ? 0 : buffer->offset_bytes;
            }
        }
    }
}

/* Marks the steps of forward without which a kept array would lack its values. */
static double mark_recompute(const struct model_build *build, struct model_steps *forward)
{
    uint64_t needed = 0;
    double flops = 0.0;
    for (int i = 0; i < build->buffer_count; i++) {
        needed |= is_kept(&build->buffers[i]) ? UINT64_C(1) << i : 0;
    }
    for (size_t i = forward->count; i-- > 0;) {
        struct model_step *step = &forward->list[i];
        step->recompute = (step->writes & needed) != 0;
        if (step->recompute) {
            needed |= step->reads;
            flops += step->flops;
        }
    }
    return flops;
}

static void finish(struct model_build *build, enum model_phase phase, struct model_steps *out)
{
    build->steps[phase].temp_bytes = place_temps(build, phase);
    resolve_patches(build, &build->steps[phase]);
    *out = build->steps[phase];
    build->steps[phase] = (struct model_steps){0};
}

/* ---- blocks ---- */

static void begin(struct model_build *build, const struct model *model, unsigned block,
                  const struct model_shape *shape)
{
    *build = (struct model_build){
        .model = model,
        .block = &model->blocks[block],
        .shape = *shape,
        .tokens = shape->rows * shape->length,
    };
    for (int i = 0; i < MODEL_VALUE_COUNT; i++) {
        build->value[i] = build->grad[i] = build->mean[i] = build->rstd[i] = build->rstd2[i] = -1;
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

/* Embedding and layers: forward down, backward up, kept arrays between them. */
static void build_through(struct model_build *build, struct model_program *program)
{
    const struct model_block_table *table = build->block->table;
    for (size_t i = 0; i < table->op_count; i++) {
        model_build_forward_row(build, &table->ops[i]);
    }
    build->phase = MODEL_PHASE_BACKWARD;
    for (size_t i = table->op_count; i-- > 0;) {
        model_build_backward_row(build, &table->ops[i]);
    }
    if (build->failed) {
        return;
    }
    program->kept_bytes = place_kept(build);
    program->recompute_flops = mark_recompute(build, &build->steps[MODEL_PHASE_FORWARD]);
    finish(build, MODEL_PHASE_FORWARD, &program->forward);
    finish(build, MODEL_PHASE_BACKWARD, &program->backward);
}

/* A head: its last row is forward and backward in one. */
static void build_head(struct model_build *build, enum model_loss what, struct model_steps *out)
{
    const struct model_block_table *table = build->block->table;
    size_t last = table->op_count - 1;
    for (size_t i = 0; i < last; i++) {
        model_build_forward_row(build, &table->ops[i]);
    }
    model_build_loss(build, &table->ops[last], what);
    for (size_t i = last; what == MODEL_LOSS_GRAD && i-- > 0;) {
        model_build_backward_row(build, &table->ops[i]);
    }
    if (!build->failed) {
        finish(build, build->phase, out);
    }
}

static int check_shape(const struct model *model, const struct model_shape *shape)
{
    const int64_t most = INT32_MAX;
    if (shape->rows < 1 || shape->length < 1 || shape->rows > most / shape->length) {
        return core_err_set(-EINVAL, "a micro-batch of %lld rows of %lld tokens is not possible",
                            (long long)shape->rows, (long long)shape->length);
    }
    if (shape->length > model->config.length_max) {
        return core_err_set(-EINVAL,
                            "rows of %lld tokens are longer than the %lld positions that "
                            "the model has",
                            (long long)shape->length, (long long)model->config.length_max);
    }
    return 0;
}

int model_program_create(const struct model *model, unsigned block, const struct model_shape *shape,
                         struct model_program **out)
{
    int rc = check_shape(model, shape);
    if (rc != 0) {
        return rc;
    }
    struct model_program *program = calloc(1, sizeof *program);
    struct model_build *build = calloc(1, sizeof *build);
    bool failed = program == NULL || build == NULL;
    if (!failed) {
        program->shape = *shape;
        begin(build, model, block, shape);
        program->in_bytes = build->buffers[0].bytes;
        program->out_bytes = build->buffers[1].bytes;
    }
    if (!failed && model->blocks[block].kind != MODEL_BLOCK_HEAD) {
        build_through(build, program);
        failed = build->failed;
    } else if (!failed) {
        struct model_steps *const parts[] = {
            [MODEL_LOSS_ALONE] = &program->forward,
            [MODEL_LOSS_GRAD] = &program->backward,
            [MODEL_LOGITS] = &program->logits,
        };
        program->out_bytes = 0;
        for (size_t i = 0; !failed && i < 3; i++) {
            begin(build, model, block, shape);
            build_head(build, (enum model_loss)i, parts[i]);
            failed = build->failed;
        }
    }
    for (int i = 0; build != NULL && i < MODEL_PHASE_COUNT; i++) {
        free(build->steps[i].list);
    }
    free(build);
    if (failed) {
        model_program_destroy(program);
        return core_err_set(-ENOMEM, "no memory for the steps of %s", model->blocks[block].name);
    }
    *out = program;
    return 0;
}

void model_program_destroy(struct model_program *program)
{
    if (program == NULL) {
        return;
    }
    free(program->forward.list);
    free(program->backward.list);
    free(program->logits.list);
    free(program);
}

size_t model_steps_scratch_bytes(const struct model_steps *steps, const char *kind,
                                 unsigned threads, const struct kern_grad *grad)
{
    size_t most = 0;
    for (size_t j = 0; j < steps->count; j++) {
        struct model_step step = steps->list[j];
        for (unsigned k = 0; k < step.grad_count; k++) {
            memcpy(step.arguments + step.grads[k].field, grad, sizeof *grad);
        }
        size_t bytes = kern_scratch_bytes(kind, step.op, step.arguments, threads);
        most = bytes > most ? bytes : most;
    }
    return most;
}

size_t model_program_scratch_bytes(const struct model_program *program, const char *kind,
                                   unsigned threads, const struct kern_grad *grad)
{
    const struct model_steps *const parts[] = {&program->forward, &program->backward,
                                               &program->logits};
    size_t most = 0;
    for (size_t i = 0; i < 3; i++) {
        const size_t bytes = model_steps_scratch_bytes(parts[i], kind, threads, grad);
        most = bytes > most ? bytes : most;
    }
    return most;
}
