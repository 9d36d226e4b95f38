/* program.c: creates a block's program: steps, lifetimes of arrays, offsets. */
#include "offload/model/program.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "kernels/table.h"
#include "offload/model/program_rows.h"

/* ---- places of buffers ---- */

static uint64_t padded(const struct model_buffer *buffer)
{
    return core_round_up(buffer->bytes, MODEL_BUFFER_ALIGN_BYTES);
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

/* Returns the lowest offset that is free during the buffer's lifetime. Buffers are placed in order
 * of their first use. */
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
            if (placed && together && at < other->offset_bytes + padded(other) &&
                other->offset_bytes < at + padded(one)) {
                at = other->offset_bytes + padded(other);
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
                if (bytes < buffer->offset_bytes + padded(buffer)) {
                    bytes = buffer->offset_bytes + padded(buffer);
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
            bytes += padded(buffer);
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

static bool writes_any(const struct model_step *step, const bool buffers[MODEL_BUFFERS_MAX])
{
    for (unsigned i = 0; i < step->patch_count; i++) {
        const struct model_patch *patch = &step->patches[i];
        if (patch->base == MODEL_BASE_COUNT && patch->writes && buffers[patch->param]) {
            return true;
        }
    }
    return false;
}

static void need_reads(const struct model_step *step, bool buffers[MODEL_BUFFERS_MAX])
{
    for (unsigned i = 0; i < step->patch_count; i++) {
        const struct model_patch *patch = &step->patches[i];
        if (patch->base == MODEL_BASE_COUNT && !patch->writes) {
            buffers[patch->param] = true;
        }
    }
}

/* Marks the forward steps that compute the kept arrays; returns their operations. */
static double mark_recompute(const struct model_build *build, struct model_steps *forward)
{
    bool needed[MODEL_BUFFERS_MAX];
    double flops = 0.0;
    for (int i = 0; i < build->buffer_count; i++) {
        needed[i] = is_kept(&build->buffers[i]);
    }
    for (size_t i = forward->count; i-- > 0;) {
        struct model_step *step = &forward->list[i];
        step->recompute = step->half != MODEL_HALF_REFERENCE && writes_any(step, needed);
        if (step->recompute) {
            need_reads(step, needed);
            flops += step->halved != 0 ? step->flops / 2 : step->flops;
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

static void build_through(struct model_build *build, struct model_program *program)
{
    const struct model_block_table *table = build->block->table;
    for (size_t i = 0; i < table->op_count; i++) {
        model_build_forward_row(build, &table->ops[i]);
    }
    build->phase = MODEL_PHASE_BACKWARD;
    model_build_choose(build, MODEL_HALF_POLICY);
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

static void build_head(struct model_build *build, enum model_loss what, struct model_steps *out)
{
    const struct model_block_table *table = build->block->table;
    size_t last = table->op_count - 1;
    for (size_t i = 0; i < last; i++) {
        model_build_forward_row(build, &table->ops[i]);
    }
    model_build_loss(build, &table->ops[last], what);
    model_build_choose(build, MODEL_HALF_POLICY);
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
        return core_err_set(-EINVAL, "invalid micro-batch of %lld rows of %lld tokens",
                            (long long)shape->rows, (long long)shape->length);
    }
    if (shape->pairs > 0 && (shape->rows != 2 * shape->pairs || model->lora.rank == 0)) {
        return core_err_set(-EINVAL, "%lld pairs in %lld rows of a model %s adapters",
                            (long long)shape->pairs, (long long)shape->rows,
                            model->lora.rank == 0 ? "without" : "with");
    }
    const int64_t row_length = shape->pairs > 0 ? shape->row_length : shape->length;
    if (row_length > model->config.length_max) {
        return core_err_set(-EINVAL,
                            "rows of %lld tokens are longer than the %lld positions that "
                            "the model has",
                            (long long)row_length, (long long)model->config.length_max);
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
        model_build_begin(build, model, block, shape);
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
            model_build_begin(build, model, block, shape);
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

void model_step_halve(const struct model_step *step, unsigned char *arguments)
{
    int64_t count;
    if (step->halved != 0) {
        memcpy(&count, arguments + step->halved, sizeof count);
        count /= 2;
        memcpy(arguments + step->halved, &count, sizeof count);
    }
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
        if (step.recompute && step.halved != 0) {
            model_step_halve(&step, step.arguments);
            bytes = kern_scratch_bytes(kind, step.op, step.arguments, threads);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}
