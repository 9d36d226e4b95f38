/* lane_compute.c: binds operands and submits steps. */
#include "offload/run/lane_compute.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "offload/model/sections.h"
#include "offload/plan/shard.h"

static const struct model_block *block_of(const struct run_compute *compute,
                                          const struct plan_command *command)
{
    return &compute->shapes->model->blocks[command->block];
}

/* ---- micro-batches ---- */

static uint32_t micro_of(const struct run_compute *compute, const struct plan_command *command)
{
    return command->micro * compute->group + compute->done;
}

/* The last group may be smaller. */
static uint32_t micros_of(const struct run_compute *compute, const struct plan_command *command)
{
    const uint32_t left = compute->micro_batches - command->micro * compute->group;
    return command->single ? 1 : left < compute->group ? left : compute->group;
}

/* Returns how many micro-batches are computed before the current one. */
static uint32_t place_of(const struct run_compute *compute, const struct plan_command *command)
{
    return compute->inputs->places[micro_of(compute, command)];
}

static bool is_first(const struct run_compute *compute, const struct plan_command *command)
{
    return place_of(compute, command) == 0;
}

static bool is_last(const struct run_compute *compute, const struct plan_command *command)
{
    return micro_of(compute, command) + 1 == compute->micro_batches;
}

/* Returns the current micro-batch's part of its group's activations. */
static char *own_part(const struct run_compute *compute, char *base, uint64_t stride)
{
    return base != NULL ? base + compute->done * stride : NULL;
}

/* ---- gradients ---- */

static struct kern_grad own_grad(const struct run_compute *compute,
                                 const struct plan_command *command)
{
    char *stored = run_memory_of(compute->memory, command, PLAN_AS_GRAD);
    char *sum = run_memory_of(compute->memory, command, PLAN_AS_SUM);
    struct kern_grad grad = {
        .out = sum == NULL || is_last(compute, command) ? stored : NULL,
        .out_type = compute->grad_type,
        .first = is_first(compute, command),
        .last = is_last(compute, command),
    };
    if (compute->micro_batches > 1) {
        grad.sum = (float *)(void *)(sum != NULL ? sum : stored);
    }
    return grad;
}

/* The head sums its gradient of a shared table into SHARED_SUM. With one micro-batch the embedding
 * adds to that sum; otherwise ROUND adds the embedding's separate sum. */
static void bind_shared(const struct run_compute *compute, const struct plan_command *command,
                        struct model_binding *binding)
{
    const struct model_block *block = block_of(compute, command);
    const struct model *model = compute->shapes->model;
    const bool only = compute->micro_batches == 1;
    char *shared = run_memory_of(compute->memory, command, PLAN_AS_SHARED_SUM);
    if (!model->config.tied) {
        return;
    }
    if (block->kind == MODEL_BLOCK_HEAD) {
        const int index = model_block_param(block, MODEL_HEAD);
        if (shared != NULL) {
            binding->grads[index] = (struct kern_grad){.sum = (float *)(void *)shared,
                                                       .first = is_first(compute, command),
                                                       .last = is_last(compute, command)};
        }
    } else if (block->kind == MODEL_BLOCK_EMBEDDING && command->op == PLAN_BWD) {
        struct kern_grad *grad = &binding->grads[model_block_param(block, MODEL_TOKEN_TABLE)];
        if (only && shared != NULL) {
            grad->sum = (float *)(void *)shared;
            grad->first = false;
        } else if (!only) {
            grad->out = NULL;
        }
    }
}

/* ---- pointers ---- */

/* Borrowed weights have no gradients here. */
static void bind_borrowed(const struct run_compute *compute, const struct plan_command *command,
                          struct model_binding *binding)
{
    const struct plan_block_shape *shape = &compute->shapes->blocks[command->block];
    const struct kern_grad none = {0};
    uint32_t operand = 0;
    for (uint32_t i = 0; i < shape->borrow_count; i++) {
        if (command->section == NULL || shape->borrows[i] != shape->source) {
            model_binding_set_flat(binding, block_of(compute, command), shape->borrows[i],
                                   compute->type,
                                   run_memory_borrowed(compute->memory, command, operand++), &none);
        }
    }
    if (command->section != NULL) {
        model_section_bind(command->section,
                           run_memory_of(compute->memory, command, PLAN_AS_SECTION), binding);
    }
}

static void bind(const struct run_compute *compute, const struct plan_command *command,
                 struct model_binding *binding)
{
    const struct run_memory *memory = compute->memory;
    const struct model_block *block = block_of(compute, command);
    const struct model_program *program = compute->shapes->programs[command->block];
    const struct kern_grad grad = command->op == PLAN_BWD ? own_grad(compute, command)
                                                          : (struct kern_grad){0};
    const uint64_t kept_stride = run_shapes_stride(program->kept_bytes);
    char *kept = own_part(compute, run_memory_of(memory, command, PLAN_AS_KEPT), kept_stride);
    char *scratch = run_memory_of(memory, command, PLAN_AS_SCRATCH);
    /* micro-batches have separate scratch until the last section */
    if (command->section != NULL) {
        scratch = own_part(compute, scratch,
                           run_shapes_kept_offset(program) + (kept == NULL ? kept_stride : 0));
    }
    model_binding_clear(binding);
    model_binding_set_flat(binding, block, command->block, compute->type,
                           run_memory_of(memory, command, PLAN_AS_WEIGHTS), &grad);
    if (block->kind == MODEL_BLOCK_EMBEDDING && command->op == PLAN_FWD) {
        run_inputs_bind_rows(compute->inputs, micro_of(compute, command),
                             own_part(compute, run_memory_of(memory, command, PLAN_AS_WEIGHTS),
                                      compute->shapes->blocks[command->block].rows_bytes),
                             binding);
    }
    bind_borrowed(compute, command, binding);
    bind_shared(compute, command, binding);
    run_inputs_bind(compute->inputs, micro_of(compute, command), binding);
    binding->base[MODEL_BASE_STREAM] = model_stream_of(
        command->block, compute->micro_first + place_of(compute, command));
    binding->base[MODEL_BASE_IN] = own_part(compute, run_memory_of(memory, command, PLAN_AS_IN),
                                            run_shapes_stride(program->in_bytes));
    binding->base[MODEL_BASE_OUT] = own_part(compute, run_memory_of(memory, command, PLAN_AS_OUT),
                                             run_shapes_stride(program->out_bytes));
    binding->base[MODEL_BASE_GRAD] = own_part(
        compute, run_memory_of(memory, command, PLAN_AS_OUT_GRAD), compute->grad_stride);
    binding->base[MODEL_BASE_TEMP] = scratch;
    binding->base[MODEL_BASE_KEPT] = kept != NULL || scratch == NULL
                                         ? kept
                                         : scratch + run_shapes_kept_offset(program);
}

/* ---- commands ---- */

/* Adds the sums of head and embedding, and rounds once. */
static int round_shared(struct run_compute *compute, const struct plan_command *command,
                        struct core_fence *out)
{
    const struct model_block *block = block_of(compute, command);
    const struct model_param *table = &block->params[model_block_param(block, MODEL_TOKEN_TABLE)];
    char *sum = run_memory_of(compute->memory, command, PLAN_AS_SUM);
    char *grads = run_memory_of(compute->memory, command, PLAN_AS_GRAD);
    const uint64_t width = kern_type_bytes(compute->grad_type);
    const struct kern_add_arguments arguments = {
        .count = (int64_t)table->elements,
        .a = run_memory_of(compute->memory, command, PLAN_AS_SHARED_SUM),
        .b = (sum != NULL ? sum : grads) + table->offset * sizeof(float),
        .y_type = compute->grad_type,
        .y = grads + table->offset * width,
    };
    const struct dev_command launch = {
        .op = KERN_ADD, .arguments = &arguments, .arguments_bytes = sizeof arguments};
    return dev_queue_launch(compute->queue, &launch, out);
}

static bool begins(const struct plan_command *command, enum model_pass pass)
{
    return command->section == NULL ||
           (command->section->pass == pass && command->section->first == 0);
}

/* Zeroes the padding between parameters, which backward does not write. Skips gaps that were
 * submitted. */
static int clear_gaps(struct run_compute *compute, const struct plan_command *command)
{
    const struct block *block = &compute->shapes->model->flat->list[command->block];
    const uint64_t width = kern_type_bytes(compute->grad_type);
    char *grads = run_memory_of(compute->memory, command, PLAN_AS_GRAD);
    const bool turn = compute->grad_type == KERN_F32 ? is_first(compute, command)
                                                     : is_last(compute, command);
    if (command->op != PLAN_BWD || grads == NULL || !turn ||
        !begins(command, MODEL_PASS_BACKWARD)) {
        return 0;
    }
    while (compute->cleared < block->elements) {
        const uint64_t at = compute->cleared;
        uint64_t end = 0;
        if (block_gap(block, at, &end)) {
            const struct dev_copy zeros = {
                .direction = DEV_COPY_ZEROS,
                .to = grads + at * width,
                .bytes = (end - at) * width,
                .more = compute->shapes->programs[command->block]->backward.count > 0};
            struct core_fence unused;
            const int rc = dev_queue_copy(compute->queue, &zeros, &unused);
            if (rc != 0) {
                return rc;
            }
        }
        compute->cleared = end;
    }
    return 0;
}

static int run_micro(struct run_compute *compute, const struct plan_command *command,
                     struct core_fence *out)
{
    const struct model_program *program = compute->shapes->programs[command->block];
    const bool layer = block_of(compute, command)->kind == MODEL_BLOCK_LAYER;
    const bool again = command->op == PLAN_BWD && layer &&
                       run_memory_of(compute->memory, command, PLAN_AS_KEPT) == NULL;
    const struct model_section *section = command->section;
    const bool wanted[MODEL_PASS_COUNT] = {
        [MODEL_PASS_FORWARD] = command->op == PLAN_FWD,
        [MODEL_PASS_RECOMPUTE] = again,
        [MODEL_PASS_BACKWARD] = command->op == PLAN_BWD,
    };
    int rc = clear_gaps(compute, command);
    if (rc != 0) {
        return rc;
    }
    bind(compute, command, compute->binding);
    *out = dev_queue_tail(compute->queue);
    for (; compute->phase < MODEL_PASS_COUNT; compute->phase++) {
        const enum model_pass pass = (enum model_pass)compute->phase;
        if (section != NULL ? section->pass == pass : wanted[pass]) {
            const bool recomputes = pass == MODEL_PASS_RECOMPUTE;
            if (section != NULL && compute->cursor.end == 0) {
                compute->cursor = (struct model_cursor){.next = section->first,
                                                        .end = section->end};
            }
            /* Recomputation and backward are one unit of work. */
            compute->cursor.more = recomputes && section == NULL && program->backward.count > 0;
            rc = model_run(compute->queue, model_pass_steps(program, pass),
                           recomputes ? MODEL_RUN_RECOMPUTE : MODEL_RUN_ALL, compute->binding,
                           &compute->cursor, out);
            if (rc != 0) {
                return rc;
            }
        }
        compute->cursor = (struct model_cursor){0};
    }
    compute->phase = 0;
    compute->cleared = 0;
    return 0;
}

static int run_steps(struct run_compute *compute, const struct plan_command *command,
                     struct core_fence *out)
{
    *out = dev_queue_tail(compute->queue);
    for (; compute->done < micros_of(compute, command); compute->done++) {
        if (!command->single && !run_inputs_has(compute->inputs, micro_of(compute, command))) {
            continue;
        }
        int rc = run_micro(compute, command, out);
        if (rc != 0) {
            return rc;
        }
    }
    compute->done = 0;
    return 0;
}

/* Packed weights have up to two tensors per rank's shard: whole groups, and the rest. Sets *out to
 * tensor `index`; returns their number. */
static unsigned packed_part(const struct plan_input *input, uint32_t block, unsigned index,
                            struct model_stored_part *out)
{
    const uint64_t elements = input->blocks[block].elements;
    unsigned count = 0;
    for (uint32_t r = 0; r < input->world; r++) {
        const uint64_t first = plan_shard_border(elements, input->world, r);
        const uint64_t end = plan_shard_border(elements, input->world, r + 1);
        const uint64_t rest = (end - first) % PLAN_PACK_ELEMENTS;
        struct model_stored_part part = {.first = first,
                                         .rows = (int64_t)((end - first) / PLAN_PACK_ELEMENTS),
                                         .cols = PLAN_PACK_ELEMENTS,
                                         .quant = KERN_QUANT_INT8,
                                         .offset_bytes = plan_packed_bytes(first)};
        if (part.rows > 0 && count++ == index) {
            *out = part;
        }
        part.first = end - rest;
        part.offset_bytes += plan_packed_bytes(part.first - first);
        part.rows = 1;
        part.cols = (int64_t)rest;
        if (rest > 0 && count++ == index) {
            *out = part;
        }
    }
    return count;
}

/* Sets *out to a tensor that EXPAND reads, packed or stored; returns the number of tensors. */
static unsigned part_at(const struct run_compute *compute, const struct plan_command *command,
                        unsigned index, struct model_stored_part *out)
{
    const struct model_stored *stored = compute->shapes->stored[command->block];
    if (command->packed) {
        return packed_part(compute->input, command->block, index, out);
    }
    if (index < stored->count) {
        *out = stored->parts[index];
    }
    return stored->count;
}

/* Sets *out to the arguments of part `index`; returns the number of parts. */
static unsigned expansion_at(const struct run_compute *compute, const struct plan_command *command,
                             unsigned index, struct kern_expand_arguments *out)
{
    const struct model_section *section = command->section;
    const char *from = run_memory_of(compute->memory, command, PLAN_AS_FROM);
    char *to = run_memory_of(compute->memory, command, PLAN_AS_TO);
    struct model_stored_part part = {.rows = 0};
    if (section != NULL) {
        if (index < section->expansion_count) {
            model_expansion_point(section, index, from, command->pages, out);
            out->y = to + section->expansions[index].to;
        }
        return section->expansion_count;
    }
    const unsigned count = part_at(compute, command, index, &part);
    if (index < count) {
        *out = (struct kern_expand_arguments){
            .type = compute->type,
            .quant = part.quant,
            .from = part.from,
            .rows = part.rows,
            .cols = part.cols,
            .count = part.rows * part.cols,
            .y = to + part.first * kern_type_bytes(compute->type),
        };
        kern_quant_point(out, from + part.offset_bytes);
    }
    return count;
}

static int expand(struct run_compute *compute, const struct plan_command *command,
                  struct core_fence *out)
{
    struct kern_expand_arguments arguments = {.rows = 0};
    const unsigned count = expansion_at(compute, command, 0, &arguments);
    for (; compute->phase < count; compute->phase++) {
        (void)expansion_at(compute, command, compute->phase, &arguments);
        const struct dev_command launch = {.op = KERN_EXPAND,
                                           .arguments = &arguments,
                                           .arguments_bytes = sizeof arguments,
                                           .more = compute->phase + 1 < count};
        const int rc = dev_queue_launch(compute->queue, &launch, out);
        if (rc != 0) {
            return rc;
        }
    }
    compute->phase = 0;
    return 0;
}

/* Launches of an update. A piece waits for the next one, because only the last piece ends the unit
 * of work. */
struct launching {
    struct run_compute *compute;
    /* next piece; pieces below compute->phase are submitted */
    unsigned index;
    bool kept;
    struct kern_update_arguments arguments; /* arguments of the kept piece */
    struct core_fence *out;
};

static int launch_kept(struct launching *launching, bool more)
{
    const struct dev_command launch = {.op = KERN_UPDATE,
                                       .arguments = &launching->arguments,
                                       .arguments_bytes = sizeof launching->arguments,
                                       .more = more};
    if (!launching->kept) {
        return 0;
    }
    const int rc = dev_queue_launch(launching->compute->queue, &launch, launching->out);
    if (rc == 0) {
        launching->compute->phase++;
        launching->kept = false;
    }
    return rc;
}

static int launch_piece(void *context, const struct core_update_args *piece)
{
    struct launching *launching = context;
    if (launching->index++ < launching->compute->phase) {
        return 0;
    }
    const int rc = launch_kept(launching, true);
    if (rc != 0) {
        return rc;
    }
    launching->arguments = (struct kern_update_arguments){.update = *piece};
    launching->kept = true;
    return 0;
}

static int update_on_card(struct run_compute *compute, const struct plan_command *command,
                          struct core_fence *out)
{
    struct launching launching = {.compute = compute, .out = out};
    *out = dev_queue_tail(compute->queue);
    int rc = run_update_pieces(compute->update, command, launch_piece, &launching);
    if (rc != 0) {
        return rc;
    }
    rc = launch_kept(&launching, false);
    if (rc == 0) {
        compute->phase = 0;
    }
    return rc;
}

static int sums_on_card(struct run_compute *compute, const struct plan_command *command,
                        struct core_fence *out)
{
    const struct core_squares_args norm = run_update_squares(compute->update, command);
    const struct dev_command launch = {
        .op = KERN_SQUARES, .arguments = &norm, .arguments_bytes = sizeof norm};
    return dev_queue_launch(compute->queue, &launch, out);
}

static int compute_submit(void *context, const struct plan_command *command, struct core_fence *out)
{
    struct run_compute *compute = context;
    switch ((enum plan_op)command->op) {
    case PLAN_FWD:
    case PLAN_BWD: return run_steps(compute, command, out);
    case PLAN_EXPAND: return expand(compute, command, out);
    case PLAN_ROUND: return round_shared(compute, command, out);
    case PLAN_SUMS: return sums_on_card(compute, command, out);
    case PLAN_UPDATE: return update_on_card(compute, command, out);
    case PLAN_JOIN: *out = (struct core_fence){0}; return 0;
    case PLAN_READ:
    case PLAN_WRITE:
    case PLAN_H2D:
    case PLAN_D2H:
    case PLAN_GATHER:
    case PLAN_REDUCE:
    case PLAN_NORM:
    case PLAN_OP_COUNT: break;
    }
    return core_err_set(-ENOTSUP, "the compute lane has no command %s",
                        plan_op_name((enum plan_op)command->op));
}

struct run_lane run_compute_lane(struct run_compute *compute)
{
    return (struct run_lane){.submit = compute_submit, .context = compute};
}
