/* run.c: fills in a step's pointers and launches the step. */
#include "offload/model/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/dev/dev.h"

int model_binding_init(struct model_binding *binding, const struct model *model)
{
    *binding = (struct model_binding){.param_count = model->params_max};
    binding->weights = calloc(model->params_max, sizeof(*binding->weights));
    binding->grads = calloc(model->params_max, sizeof *binding->grads);
    if (binding->weights == NULL || binding->grads == NULL) {
        model_binding_fini(binding);
        return core_err_set(-ENOMEM, "no memory for the addresses of %u parameters",
                            model->params_max);
    }
    return 0;
}

void model_binding_fini(struct model_binding *binding)
{
    free((void *)binding->weights);
    free(binding->grads);
    *binding = (struct model_binding){0};
}

void model_binding_clear(struct model_binding *binding)
{
    memset(binding->base, 0, sizeof binding->base);
    for (unsigned i = 0; i < binding->param_count; i++) {
        binding->weights[i] = NULL;
        binding->grads[i] = (struct kern_grad){0};
    }
}

void model_binding_set_flat(struct model_binding *binding, const struct model_block *block,
                            unsigned owner, enum kern_type type, const void *weights,
                            const struct kern_grad *grad)
{
    for (unsigned i = 0; i < block->param_count; i++) {
        const struct model_param *param = &block->params[i];
        if (param->owner != owner) {
            continue;
        }
        const size_t bytes = kern_type_bytes(type);
        binding->weights[i] = weights != NULL ? (const char *)weights + param->offset * bytes
                                              : NULL;
        binding->grads[i] = *grad;
        if (grad->sum != NULL) {
            binding->grads[i].sum = grad->sum + param->offset;
        }
        if (grad->out != NULL) {
            binding->grads[i].out = (char *)grad->out +
                                    param->offset * kern_type_bytes(grad->out_type);
        }
    }
}

void *model_stream_of(unsigned block, uint64_t micro_batch)
{
    enum { ROW_BITS = 8, BLOCK_BITS = 24 };
    return (void *)(uintptr_t)((micro_batch << BLOCK_BITS | (block + 1)) << ROW_BITS);
}

static void fill_pointers(const struct model_step *step, const struct model_binding *binding,
                          unsigned char *arguments)
{
    for (unsigned i = 0; i < step->patch_count; i++) {
        const struct model_patch *patch = &step->patches[i];
        const char *base = patch->base == MODEL_BASE_PARAM ? binding->weights[patch->param]
                                                           : binding->base[patch->base];
        const char *address = base != NULL ? base + patch->offset_bytes : NULL;
        memcpy(arguments + patch->field, &address, sizeof address);
    }
}

static void fill_grads(const struct model_step *step, const struct model_binding *binding,
                       unsigned char *arguments)
{
    for (unsigned i = 0; i < step->grad_count; i++) {
        struct kern_grad grad = binding->grads[step->grads[i].param];
        const uint64_t offset = step->grads[i].offset;
        if (grad.sum != NULL) {
            grad.sum += offset;
        }
        if (grad.out != NULL) {
            grad.out = (char *)grad.out + offset * kern_type_bytes(grad.out_type);
        }
        memcpy(arguments + step->grads[i].field, &grad, sizeof grad);
    }
}

static size_t next_step(const struct model_steps *steps, enum model_which which, size_t from,
                        size_t end)
{
    while (from < end && which == MODEL_RUN_RECOMPUTE && !steps->list[from].recompute) {
        from++;
    }
    return from;
}

int model_run(struct dev_queue *queue, const struct model_steps *steps, enum model_which which,
              const struct model_binding *binding, struct model_cursor *cursor,
              struct core_fence *out)
{
    const size_t end = cursor->end > 0 ? cursor->end : steps->count;
    cursor->next = next_step(steps, which, cursor->next, end);
    while (cursor->next < end) {
        const struct model_step *step = &steps->list[cursor->next];
        const size_t following = next_step(steps, which, cursor->next + 1, end);
        _Alignas(16) unsigned char arguments[MODEL_STEP_BYTES];
        struct dev_command command = {
            .op = step->op,
            .arguments = arguments,
            .arguments_bytes = kern_op_argument_bytes(step->op),
            .more = cursor->more || following < end,
        };
        memcpy(arguments, step->arguments, command.arguments_bytes);
        if (which == MODEL_RUN_RECOMPUTE) {
            model_step_halve(step, arguments);
        }
        fill_pointers(step, binding, arguments);
        fill_grads(step, binding, arguments);
        int rc = dev_queue_launch(queue, &command, out);
        if (rc != 0) {
            return rc;
        }
        cursor->next = following;
    }
    return 0;
}

int model_run_all(struct dev_queue *queue, const struct model_steps *steps, enum model_which which,
                  const struct model_binding *binding)
{
    struct model_cursor cursor = {0};
    struct core_fence fence = {0};
    int rc;
    while ((rc = model_run(queue, steps, which, binding, &cursor, &fence)) == -EAGAIN) {
        rc = core_fence_wait(dev_queue_tail(queue), -1);
        if (rc != 0) {
            return rc;
        }
    }
    return rc;
}
