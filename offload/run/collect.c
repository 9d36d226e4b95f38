/* collect.c: GATHER and REDUCE as commands of core/coll. */
#include "offload/run/collect.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"

static enum coll_type type_of(enum kern_type type)
{
    return type == KERN_F32 ? COLL_F32 : type == KERN_BF16 ? COLL_BF16 : COLL_FP16;
}

int run_collect_init(struct run_collect *collect, const struct run_options *options,
                     const struct plan_input *input, const struct run_memory *memory,
                     struct coll *coll)
{
    const uint32_t world = coll_world(coll);
    const bool f32_grads = run_options_gradients(options) == CORE_VEC_F32;
    *collect = (struct run_collect){
        .memory = memory,
        .input = input,
        .coll = coll,
        .weight_type = type_of(options->type),
        .grad_type = f32_grads ? COLL_F32 : type_of(options->type),
        .borders = calloc((size_t)input->block_count * (world + 1), sizeof *collect->borders),
    };
    if (collect->borders == NULL) {
        return core_err_set(-ENOMEM, "no memory for the borders of %u shards", world);
    }
    for (uint32_t b = 0; b < input->block_count; b++) {
        for (uint32_t r = 0; r <= world; r++) {
            collect->borders[(size_t)b * (world + 1) + r] = plan_shard_border(
                input->blocks[b].elements, world, r);
        }
    }
    return 0;
}

void run_collect_fini(struct run_collect *collect)
{
    free(collect->borders);
    *collect = (struct run_collect){0};
}

/* A rank whose shard is empty brings nothing; the pointer is not looked at then. */
static char *operand_or(const struct run_collect *collect, const struct plan_command *command,
                        enum plan_role role, char *otherwise)
{
    char *at = run_memory_of(collect->memory, command, role);
    return at != NULL ? at : otherwise;
}

static int submit(void *context, const struct plan_command *command, struct core_fence *out)
{
    struct run_collect *collect = context;
    const uint32_t world = coll_world(collect->coll);
    const bool gather = command->op == PLAN_GATHER;
    const enum coll_op reduce = collect->input->stage == 0 ? COLL_ALL_REDUCE : COLL_REDUCE_SCATTER;
    if (command->op == PLAN_JOIN) {
        *out = (struct core_fence){0};
        return 0;
    }
    char *to = run_memory_of(collect->memory, command, PLAN_AS_TO);
    char *from = operand_or(collect, command, PLAN_AS_FROM, to);
    struct coll_command order = {.from = from, .to = to != NULL ? to : from};
    if (command->block == PLAN_NONE) { /* the sums of squares of all tiles */
        order.op = COLL_ALL_REDUCE;
        order.type = COLL_F64;
        order.count = plan_command_operand(command, PLAN_AS_FROM)->bytes / sizeof(double);
    } else {
        order.op = gather ? COLL_GATHER : reduce;
        order.type = gather ? collect->weight_type : collect->grad_type;
        order.count = collect->input->blocks[command->block].elements;
        order.borders = collect->borders + (size_t)command->block * (world + 1);
    }
    return coll_submit(collect->coll, &order, out);
}

struct run_lane run_collect_lane(struct run_collect *collect)
{
    return (struct run_lane){.submit = submit, .context = collect};
}
