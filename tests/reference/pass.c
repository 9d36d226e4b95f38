/* pass.c: forward and backward of the reference trainer. */
#include <errno.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/dev/dev.h"
#include "tests/reference/parts.h"

/* Submits one step at a time and records its time. */
static int submit_timed(struct plain *plain, const struct model_steps *steps,
                        enum model_which which, const struct model_binding *binding)
{
    for (size_t i = 0; i < steps->count; i++) {
        struct model_steps one = {.list = &steps->list[i], .count = 1};
        struct plain_time *time = &plain->times[one.list->op];
        struct core_fence fence = {0};
        struct model_cursor cursor = {0};
        const int64_t start_ns = core_clock_now_ns();
        int rc = model_run(plain->queue, &one, which, binding, &cursor, &fence);
        rc = rc != 0 ? rc : core_fence_wait(fence, -1);
        if (rc != 0) {
            return rc;
        }
        if (fence.line != NULL) {
            time->ns += core_clock_now_ns() - start_ns;
            time->launches++;
            time->flops += one.list->flops;
        }
    }
    return 0;
}

static int pass(struct plain *plain, const struct model_steps *steps, enum model_which which,
                const struct model_binding *binding)
{
    return plain->options.profile ? submit_timed(plain, steps, which, binding)
                                  : model_run_all(plain->queue, steps, which, binding);
}

/* A micro-batch, and whether it is the first or last one of the step. */
struct turn {
    unsigned micro;
    bool first;
    bool last;
};

/* Returns the destination of the gradient of a block's own parameter. */
static struct kern_grad own_grad(const struct plain *plain, unsigned index, const struct turn *turn)
{
    const enum kern_type type = plain->options.shape.type;
    char *out = plain_at(plain, &plain->grads, index, kern_type_bytes(type));
    struct kern_grad grad = {
        .out = out, .out_type = type, .first = turn->first, .last = turn->last};
    if (!turn->first || !turn->last) {
        grad.sum = type == KERN_F32 ? (float *)(void *)out
                                    : (float *)(void *)plain_at(plain, &plain->sums, index, 4);
    }
    return grad;
}

/* A tied table has two uses. With one micro-batch, the embedding adds to the head's sum; with
 * several, each use has its own sum, and add_tied() follows. */
static void tie_grads(const struct plain *plain, unsigned index, const struct turn *turn,
                      struct model_binding *binding)
{
    const struct model_block *block = &plain->model->blocks[index];
    const bool one = turn->first && turn->last;
    float *head = (float *)(void *)plain->tied_head.memory;
    if (!plain->model->config.tied) {
        return;
    }
    if (block->kind == MODEL_BLOCK_HEAD) {
        const int param = model_block_param(block, MODEL_HEAD);
        binding->grads[param] = (struct kern_grad){
            .sum = head, .first = turn->first, .last = turn->last};
    } else if (block->kind == MODEL_BLOCK_EMBEDDING) {
        struct kern_grad *grad = &binding->grads[model_block_param(block, MODEL_TOKEN_TABLE)];
        if (one) {
            grad->sum = head;
            grad->first = false;
        } else {
            *grad = (struct kern_grad){.sum = (float *)(void *)plain->tied_table.memory,
                                       .first = turn->first,
                                       .last = turn->last};
        }
    }
}

static void bind(const struct plain *plain, unsigned index, const struct turn *turn,
                 struct model_binding *binding)
{
    const struct model *model = plain->model;
    const struct model_block *block = &model->blocks[index];
    const uint64_t act_bytes = plain->programs[0]->out_bytes;
    const size_t tokens = (size_t)(plain->options.shape.rows * plain->options.shape.length) *
                          sizeof(int32_t);
    char *kept = plain->kept.memory;
    for (unsigned i = 0; i < index && !plain->options.recompute; i++) {
        kept += plain->programs[i]->kept_bytes;
    }
    const struct kern_grad grad = own_grad(plain, index, turn);
    const struct kern_grad none = {0};
    unsigned borrows[MODEL_BORROWS_MAX];
    const unsigned borrowed = model_block_borrows(model, index, borrows);
    model_binding_set_flat(binding, block, index, plain->options.shape.type,
                           plain_weights(plain, index), &grad);
    for (unsigned i = 0; i < borrowed; i++) {
        model_binding_set_flat(binding, block, borrows[i], plain->options.shape.type,
                               plain_weights(plain, borrows[i]), &none);
    }
    tie_grads(plain, index, turn, binding);
    binding->base[MODEL_BASE_IN] = index > 0 ? plain->boundary.memory + (index - 1) * act_bytes
                                             : NULL;
    binding->base[MODEL_BASE_OUT] = plain->boundary.memory + index * act_bytes;
    binding->base[MODEL_BASE_GRAD] = plain->boundary.memory +
                                     (model->compute_count - 1) * act_bytes;
    binding->base[MODEL_BASE_KEPT] = kept;
    binding->base[MODEL_BASE_TEMP] = plain->temp.memory;
    binding->base[MODEL_BASE_IDS] = plain->inputs.memory;
    binding->base[MODEL_BASE_LABELS] = plain->inputs.memory + tokens;
    binding->base[MODEL_BASE_COS] = plain->angles.memory;
    binding->base[MODEL_BASE_SIN] = plain->angles.memory + plain->angles.bytes / 2;
    binding->base[MODEL_BASE_LOSS] = plain->losses.memory;
    binding->base[MODEL_BASE_SCALE] = plain->losses.memory + sizeof(struct kern_loss);
    binding->base[MODEL_BASE_STREAM] = model_stream_of(index, turn->micro);
}

/* Copies rows into the device's memory while the queue is idle; pairs twice, for policy and
 * reference. Returns the targets (tokens or pairs), or -EINVAL if a pair is too long. */
static int64_t place_inputs(struct plain *plain, const struct model_batch *batch,
                            struct model_binding *binding)
{
    const struct model_shape *shape = &plain->options.shape;
    const size_t bytes = (size_t)(shape->rows * shape->length) * sizeof(int32_t);
    char *to = plain->inputs.memory;
    if (shape->pairs > 0) {
        const struct model_pair_rows rows = {.pairs = shape->pairs,
                                             .length = shape->length,
                                             .ids = (int32_t *)(void *)to,
                                             .labels = (int32_t *)(void *)(to + bytes),
                                             .positions = (int32_t *)(void *)(to + 2 * bytes),
                                             .gaps = (int32_t *)(void *)(to + 3 * bytes)};
        const int64_t pairs = model_batch_put_pairs(batch, &rows);
        for (int array = 0; array < 3; array++, to += bytes) {
            memcpy(to + bytes / 2, to, bytes / 2);
        }
        binding->base[MODEL_BASE_POSITIONS] = rows.positions;
        binding->base[MODEL_BASE_GAPS] = rows.gaps;
        return pairs;
    }
    memcpy(to, batch->ids, bytes);
    const int64_t targets = model_batch_shift(batch, (int32_t *)(void *)(to + bytes));
    if (batch->positions != NULL) {
        memcpy(to + 2 * bytes, batch->positions, bytes);
        binding->base[MODEL_BASE_POSITIONS] = to + 2 * bytes;
    }
    if (batch->starts != NULL) {
        memcpy(to + 3 * bytes, batch->starts, bytes);
        binding->base[MODEL_BASE_STARTS] = to + 3 * bytes;
    }
    return targets;
}

static int check_batch(const struct plain *plain, const struct model_batch *batch)
{
    const struct model_shape *shape = &plain->options.shape;
    const int64_t length = shape->pairs > 0 ? shape->row_length : shape->length;
    if (batch->rows != shape->rows || batch->length != length) {
        return core_err_set(-EINVAL, "a micro-batch of %lld x %lld where %lld x %lld was promised",
                            (long long)batch->rows, (long long)batch->length,
                            (long long)shape->rows, (long long)length);
    }
    return model_batch_check(batch, &plain->model->config);
}

/* Runs the embedding and the layers of one micro-batch. */
static int forward(struct plain *plain, const struct turn *turn, struct model_binding *binding)
{
    for (unsigned i = 0; i + 1 < plain->model->compute_count; i++) {
        bind(plain, i, turn, binding);
        int rc = pass(plain, &plain->programs[i]->forward, MODEL_RUN_ALL, binding);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int backward(struct plain *plain, const struct turn *turn, struct model_binding *binding)
{
    for (unsigned i = plain->model->compute_count; i-- > 0;) {
        const struct model_program *program = plain->programs[i];
        bind(plain, i, turn, binding);
        int rc = 0;
        if (plain->options.recompute && plain->model->blocks[i].kind == MODEL_BLOCK_LAYER) {
            rc = pass(plain, &program->forward, MODEL_RUN_RECOMPUTE, binding);
        }
        rc = rc != 0 ? rc : pass(plain, &program->backward, MODEL_RUN_ALL, binding);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* Adds the sums of head and embedding and rounds once. */
static int add_tied(struct plain *plain)
{
    const struct model_block *embedding = &plain->model->blocks[0];
    const struct model_param *table =
        &embedding->params[model_block_param(embedding, MODEL_TOKEN_TABLE)];
    const enum kern_type type = plain->options.shape.type;
    const struct kern_add_arguments arguments = {
        .count = (int64_t)table->elements,
        .a = plain->tied_head.memory,
        .b = plain->tied_table.memory,
        .y_type = type,
        .y = plain->grads.memory + table->offset * kern_type_bytes(type),
    };
    const struct dev_command command = {
        .op = KERN_ADD, .arguments = &arguments, .arguments_bytes = sizeof arguments};
    struct core_fence fence;
    int rc = table->trained ? dev_queue_launch(plain->queue, &command, &fence) : 0;
    return rc;
}

static void set_scale(struct plain *plain, int64_t targets, uint64_t seed)
{
    const double loss_scale = plain->options.loss_scale > 0.0 ? plain->options.loss_scale : 1.0;
    const float scale = targets > 0 ? (float)(loss_scale / (double)targets) : 0.0f;
    char *at = plain->losses.memory + sizeof(struct kern_loss);
    memcpy(at, &scale, sizeof scale);
    memcpy(at + MODEL_SCALE_SEED_AT, &seed, sizeof seed);
}

/* Checks all micro-batches and counts the step's targets. */
static int count_targets(struct plain *plain, const struct model_batch *batches, int64_t *targets)
{
    *targets = 0;
    for (unsigned i = 0; i < plain->options.micro_batches; i++) {
        int rc = check_batch(plain, &batches[i]);
        if (rc != 0) {
            return rc;
        }
        const int64_t found = place_inputs(plain, &batches[i], &plain->binding);
        if (found < 0) {
            return (int)found;
        }
        *targets += found;
    }
    return 0;
}

int plain_backward(struct plain *plain, const struct model_batch *batches, struct plain_result *out)
{
    const unsigned count = plain->options.micro_batches;
    struct plain_result result = {0};
    struct kern_loss sum = {0};
    int rc = count_targets(plain, batches, &result.targets);
    if (rc != 0) {
        return rc;
    }
    set_scale(plain, result.targets, model_lora_step_seed(&plain->model->lora, plain->steps));
    for (unsigned i = 0; i < count; i++) {
        const struct turn turn = {.micro = i, .first = i == 0, .last = i + 1 == count};
        model_binding_clear(&plain->binding);
        place_inputs(plain, &batches[i], &plain->binding);
        rc = forward(plain, &turn, &plain->binding);
        rc = rc != 0 ? rc : backward(plain, &turn, &plain->binding);
        if (rc == 0 && turn.last && count > 1 && plain->model->config.tied) {
            rc = add_tied(plain);
        }
        rc = rc != 0 ? rc : core_fence_wait(dev_queue_tail(plain->queue), -1);
        if (rc != 0) {
            return rc;
        }
        const struct kern_loss *one = (const struct kern_loss *)(const void *)plain->losses.memory;
        sum.sum += one->sum;
        sum.chosen += one->chosen;
        sum.rejected += one->rejected;
        sum.right += one->right;
    }
    const double targets = result.targets > 0 ? (double)result.targets : 1.0;
    result.loss = sum.sum / targets;
    result.chosen = sum.chosen / targets;
    result.rejected = sum.rejected / targets;
    result.right = (double)sum.right / targets;
    *out = result;
    return 0;
}

int plain_step(struct plain *plain, const struct model_batch *batches, double lr,
               struct plain_result *out)
{
    struct plain_result result;
    int rc = plain_backward(plain, batches, &result);
    rc = rc != 0 ? rc : plain_update(plain, lr, &result);
    if (rc == 0) {
        *out = result;
    }
    return rc;
}

/* Runs the forward pass and the given steps of the head. */
static int run_head(struct plain *plain, const struct model_batch *batch,
                    const struct model_steps *head, void *logits)
{
    const struct turn turn = {.first = true, .last = true};
    const unsigned last = plain->model->compute_count - 1;
    struct model_binding *binding = &plain->binding;
    int rc = check_batch(plain, batch);
    if (rc != 0) {
        return rc;
    }
    model_binding_clear(binding);
    place_inputs(plain, batch, binding);
    set_scale(plain, 0, 0);
    rc = forward(plain, &turn, binding);
    bind(plain, last, &turn, binding);
    binding->base[MODEL_BASE_OUT] = logits;
    rc = rc != 0 ? rc : pass(plain, head, MODEL_RUN_ALL, binding);
    return rc != 0 ? rc : core_fence_wait(dev_queue_tail(plain->queue), -1);
}

int plain_evaluate(struct plain *plain, const struct model_batch *batch, struct kern_loss *out)
{
    const unsigned last = plain->model->compute_count - 1;
    int rc = run_head(plain, batch, &plain->programs[last]->forward, NULL);
    if (rc == 0) {
        memcpy(out, plain->losses.memory, sizeof *out);
    }
    return rc;
}

int plain_logits(struct plain *plain, const struct model_batch *batch, void *out)
{
    const unsigned last = plain->model->compute_count - 1;
    return run_head(plain, batch, &plain->programs[last]->logits, out);
}
