/* transfer.c: a command names both ends by role; a chunk may be two or three extents, which become as
 * many requests of one queue: the last one's fence stands for all. */
#include "offload/run/transfer.h"

#include <errno.h>

#include "core/base/err.h"
#include "core/dev/dev.h"

static int copy_submit(void *context, const struct plan_command *command, struct core_fence *out)
{
    struct run_copy *copy = context;
    const struct dev_copy move = {
        .direction = command->op == PLAN_H2D ? DEV_COPY_UP : DEV_COPY_DOWN,
        .to = run_memory_of(copy->memory, command, PLAN_AS_TO),
        .from = run_memory_of(copy->memory, command, PLAN_AS_FROM),
        .bytes = command->bytes,
    };
    if (command->op == PLAN_JOIN) {
        *out = (struct core_fence){0};
        return 0;
    }
    return dev_queue_copy(copy->queue, &move, out);
}

struct run_lane run_copy_lane(struct run_copy *copy)
{
    return (struct run_lane){.submit = copy_submit, .context = copy};
}

/* One extent of a command, and where it goes or comes from. */
struct part {
    struct store_place place;
    char *memory;
};

static unsigned parts_of(const struct run_io *io, const struct plan_command *command,
                         struct part parts[4])
{
    static const struct {
        enum plan_role role;
        enum store_kind kind;
    } kinds[] = {{PLAN_AS_EXTENT_W16, STORE_WEIGHTS},
                 {PLAN_AS_EXTENT_STATES, STORE_STATES},
                 {PLAN_AS_EXTENT_GRAD, STORE_GRADS},
                 {PLAN_AS_EXTENT_ACT, STORE_ACTS}};
    char *slot = run_memory_slot_of(io->memory, command, PLAN_AS_SLOT);
    char *memory = run_memory_of(io->memory, command, PLAN_AS_MEMORY);
    unsigned count = 0;
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (plan_command_operand(command, kinds[i].role) == NULL) {
            continue;
        }
        const bool act = kinds[i].kind == STORE_ACTS;
        struct part *part = &parts[count++];
        part->place = (struct store_place){
            .kind = kinds[i].kind,
            .block = command->block,
            .index = act ? command->micro : command->chunk,
        };
        switch (kinds[i].kind) {
        case STORE_WEIGHTS: part->memory = memory != NULL ? memory : slot; break;
        case STORE_STATES: part->memory = slot + plan_slot_states_offset(io->plan); break;
        case STORE_GRADS:
            part->memory = memory != NULL ? memory : slot + plan_slot_gradient_offset(io->plan);
            break;
        case STORE_ACTS:
        case STORE_KIND_COUNT: part->memory = memory; break;
        }
    }
    return count;
}

static int move_part(struct run_io *io, const struct plan_command *command, const struct part *part,
                     struct core_fence *out)
{
    if (command->op == PLAN_READ) {
        return store_read(io->store, io->queue, &part->place, part->memory, out);
    }
    return command->ahead ? store_write_ahead(io->store, io->queue, &part->place, part->memory, out)
                          : store_write(io->store, io->queue, &part->place, part->memory, out);
}

static int io_submit(void *context, const struct plan_command *command, struct core_fence *out)
{
    struct run_io *io = context;
    struct part parts[4];
    const unsigned count = command->op == PLAN_JOIN ? 0 : parts_of(io, command, parts);
    struct core_fence fence = {0};
    for (; io->done < count; io->done++) {
        const struct part *part = &parts[io->done];
        int rc = move_part(io, command, part, &fence);
        if (rc != 0) {
            return rc;
        }
    }
    io->done = 0;
    *out = fence;
    return 0;
}

struct run_lane run_io_lane(struct run_io *io)
{
    return (struct run_lane){.submit = io_submit, .context = io};
}
