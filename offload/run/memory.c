/* memory.c: one allocation per tier; buffers are offsets in it. */
#include "offload/run/memory.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/dev/dev.h"

/* Aligned to pages and not only to DEV_ALIGN_BYTES: if the device's memory is the host's, drives move
 * bytes from and to it. */
static int alloc_device(struct run_memory *memory, uint64_t bytes)
{
    void *block = NULL;
    if (bytes == 0) {
        return 0;
    }
    int rc = dev_memory_alloc(memory->device, bytes + RUN_MEMORY_SPARE_BYTES, &block);
    if (rc != 0) {
        return rc;
    }
    const uintptr_t over = (uintptr_t)block % RUN_MEMORY_SPARE_BYTES;
    memory->device_block = block;
    memory->device_base = (char *)block + (over > 0 ? RUN_MEMORY_SPARE_BYTES - over : 0);
    memory->device_bytes = bytes;
    return 0;
}

static int alloc_host(struct run_memory *memory, uint64_t bytes, struct core_team *team)
{
    const struct dev_properties *properties = dev_properties(memory->device);
    const struct core_region_options options = {
        .name = "the HOST tier",
        .bytes = bytes,
        .prefer_node = properties->numa_node >= 0,
        .node = properties->numa_node,
        .team = team,
    };
    if (bytes == 0) {
        return 0;
    }
    int rc = core_region_alloc(&options, &memory->host);
    if (rc != 0) {
        return rc;
    }
    rc = dev_host_register(memory->device, memory->host.base, memory->host.mapped_bytes);
    memory->registered = rc == 0;
    if (rc != 0) {
        core_log(CORE_LOG_WARN, "the HOST tier of %zu bytes is not pinned, so that copies wait: %s",
                 memory->host.mapped_bytes, core_err_message());
    }
    return 0;
}

int run_memory_init(struct run_memory *memory, const struct plan *plan, struct dev_device *device,
                    struct core_team *team)
{
    *memory = (struct run_memory){.plan = plan, .device = device, .count = plan_buffer_count(plan)};
    memory->at = calloc(memory->count > 0 ? memory->count : 1, sizeof(*memory->at));
    if (memory->at == NULL) {
        return core_err_set(-ENOMEM, "no memory for %u buffers", memory->count);
    }
    int rc = alloc_device(memory, plan_tier_bytes(plan, PLAN_DEVICE));
    if (rc != 0) {
        goto fail;
    }
    rc = alloc_host(memory, plan_tier_bytes(plan, PLAN_HOST), team);
    if (rc != 0) {
        goto fail;
    }
    for (uint32_t i = 0; i < memory->count; i++) {
        const struct plan_buffer *buffer = plan_buffer(plan, i);
        char *const bases[PLAN_TIER_COUNT + 1] = {
            [PLAN_DEVICE] = memory->device_base, [PLAN_HOST] = (char *)memory->host.base};
        memory->at[i] = bases[buffer->tier] != NULL ? bases[buffer->tier] + buffer->offset : NULL;
    }
    return 0;
fail:
    run_memory_fini(memory);
    return rc;
}

void run_memory_fini(struct run_memory *memory)
{
    if (memory->registered) {
        dev_host_unregister(memory->device, memory->host.base);
    }
    core_region_free(&memory->host);
    if (memory->device_block != NULL) {
        dev_memory_free(memory->device, memory->device_block);
    }
    free(memory->at);
    *memory = (struct run_memory){0};
}

static char *address_of(const struct run_memory *memory, const struct plan_operand *operand,
                        bool ahead)
{
    if (operand == NULL) {
        return NULL;
    }
    const uint32_t twin = plan_buffer(memory->plan, operand->buffer)->twin;
    char *at = memory->at[ahead && twin != PLAN_NONE ? twin : operand->buffer];
    return at != NULL ? at + operand->offset : NULL;
}

char *run_memory_of(const struct run_memory *memory, const struct plan_command *command,
                    enum plan_role role)
{
    return address_of(memory, plan_command_operand(command, role), command->ahead);
}

const char *run_memory_borrowed(const struct run_memory *memory, const struct plan_command *command,
                                uint32_t index)
{
    const struct plan_operand *operand = plan_command_operand(command, PLAN_AS_BORROWED);
    while (operand != NULL && index > 0) {
        operand++;
        const bool is = operand < command->operands + command->operand_count;
        operand = is ? operand : NULL;
        index -= is && operand->role == PLAN_AS_BORROWED;
    }
    return address_of(memory, operand, command->ahead);
}

const char *run_memory_current(const struct run_memory *memory, const struct plan_command *command,
                               enum plan_role role)
{
    return address_of(memory, plan_command_operand(command, role), false);
}

char *run_memory_slot_of(const struct run_memory *memory, const struct plan_command *command,
                         enum plan_role role)
{
    const struct plan_operand *operand = plan_command_operand(command, role);
    return operand != NULL ? memory->at[operand->buffer] : NULL;
}

/* ---- generations ---- */

void run_memory_swap_generations(struct run_memory *memory)
{
    for (uint32_t i = 0; i < memory->count; i++) {
        const uint32_t twin = plan_buffer(memory->plan, i)->twin;
        if (twin != PLAN_NONE) {
            char *current = memory->at[i];
            memory->at[i] = memory->at[twin];
            memory->at[twin] = current;
        }
    }
}

bool run_memory_has_generations(const struct run_memory *memory)
{
    for (uint32_t i = 0; i < memory->count; i++) {
        const struct plan_buffer *buffer = plan_buffer(memory->plan, i);
        if (buffer->twin != PLAN_NONE && buffer->tier != PLAN_STORE) {
            return true;
        }
    }
    return false;
}
