/* memory.c: makes one allocation per tier, or per buffer on a device with separate allocations. */
#include "offload/run/memory.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/dev/dev.h"
#include "offload/plan/layout.h"
#include "offload/run/place.h"

static int alloc_buffers(struct run_memory *memory)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < memory->count; i++) {
        const struct plan_buffer *buffer = plan_buffer(memory->plan, i);
        void *at = NULL;
        if (buffer->tier == PLAN_DEVICE && buffer->bytes > 0) {
            rc = dev_memory_alloc(memory->device, buffer->bytes, &at);
            memory->at[i] = at;
        }
    }
    return rc;
}

/* Begins at a page, because drives use the memory if it is the host's. */
static int alloc_device(struct run_memory *memory, uint64_t bytes)
{
    void *block = NULL;
    if (bytes == 0) {
        return 0;
    }
    if (dev_memory_is_separate(memory->device)) {
        memory->separate = true;
        return alloc_buffers(memory);
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

/* ---- the nodes of pages ---- */

/* A part of HOST, up to the next part. */
struct part {
    uint64_t begin;
    uint32_t node; /* index among the place's nodes */
    size_t index;  /* in the order of adding */
};

struct parts {
    const struct run_memory_options *of;
    struct part *list; /* owned */
    size_t count;
    size_t room;
};

static int add_part(struct parts *parts, uint64_t begin, uint32_t node)
{
    if (parts->count == parts->room) {
        const size_t room = 2 * parts->room + 64;
        struct part *list = realloc(parts->list, room * sizeof *list);
        if (list == NULL) {
            return core_err_set(-ENOMEM, "no memory to place %zu parts of the HOST tier", room);
        }
        parts->list = list;
        parts->room = room;
    }
    const size_t index = parts->count++;
    parts->list[index] = (struct part){.begin = begin, .node = node, .index = index};
    return 0;
}

/* Places memory without chunks on the first node if a GPU computes, or else on the nodes in turn,
 * because all nodes compute. */
static int add_stripes(struct parts *parts, const struct plan_buffer *buffer)
{
    enum { STRIPE_BYTES = 4 << 20 };
    const bool card = !dev_properties(parts->of->device)->host_visible;
    const uint64_t step = card ? buffer->bytes : STRIPE_BYTES;
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && at < buffer->bytes; at += step) {
        const uint64_t begin = buffer->offset + at;
        const uint32_t node = card ? 0
                                   : run_place_of_chunk(parts->of->place, 0, begin / STRIPE_BYTES);
        rc = add_part(parts, begin, node);
    }
    return rc;
}

static int add_chunk(struct parts *parts, const struct plan_piece *piece, uint32_t node)
{
    const struct plan_buffer *buffer = piece->buffer != PLAN_NONE
                                           ? plan_buffer(parts->of->plan, piece->buffer)
                                           : NULL;
    return buffer != NULL && buffer->tier == PLAN_HOST
               ? add_part(parts, buffer->offset + piece->offset, node)
               : 0;
}

static int add_streams(struct parts *parts, uint32_t block, uint64_t index)
{
    static const enum plan_stream streams[] = {PLAN_W16, PLAN_MASTER};
    const struct plan_input *input = parts->of->input;
    const struct plan_layout *layout = plan_layout_of(parts->of->plan);
    const uint32_t node = run_place_of_chunk(parts->of->place, block, index);
    int rc = 0;
    for (size_t s = 0; rc == 0 && s < sizeof streams / sizeof streams[0]; s++) {
        const struct plan_chunk chunk = plan_chunk_at(input, layout, streams[s], block, index);
        rc = add_chunk(parts, &chunk.kept, node);
    }
    const uint64_t from = index * layout->chunk_elements * input->blocks[block].format.grad_bytes;
    const struct plan_piece gradient = {.buffer = layout->blocks[block].gradient, .offset = from};
    return rc != 0 || gradient.buffer == PLAN_NONE ||
                   from >= plan_buffer(parts->of->plan, gradient.buffer)->bytes
               ? rc
               : add_chunk(parts, &gradient, node);
}

/* Of parts with the same begin, all but the one added last are empty. */
static int by_begin(const void *left, const void *right)
{
    const struct part *a = left;
    const struct part *b = right;
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Lists HOST's parts in order: buffers, their chunks, slots of states. */
static int list_parts(struct parts *parts)
{
    const struct plan *plan = parts->of->plan;
    const struct plan_layout *layout = plan_layout_of(plan);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < plan_buffer_count(plan); i++) {
        const struct plan_buffer *buffer = plan_buffer(plan, i);
        rc = buffer->tier == PLAN_HOST ? add_stripes(parts, buffer) : 0;
    }
    for (uint32_t b = 0; rc == 0 && b < parts->of->input->block_count; b++) {
        for (uint32_t c = 0; rc == 0 && c < layout->places[b].chunk_count; c++) {
            rc = add_streams(parts, b, c);
        }
    }
    for (uint32_t s = 0; rc == 0 && s < plan_layout_slots(layout->state_slots); s++) {
        const struct plan_piece slot = {.buffer = layout->state_slots[s]};
        rc = add_chunk(parts, &slot, run_place_of_slot(parts->of->place, slot.buffer));
    }
    if (rc == 0) {
        qsort(parts->list, parts->count, sizeof *parts->list, by_begin);
    }
    return rc;
}

/* Returns which team members touch each part; NULL: no memory. */
static struct core_region_part *touching_members(const struct parts *parts)
{
    struct core_region_part *list = calloc(parts->count, sizeof *list);
    for (size_t i = 0; list != NULL && i < parts->count; i++) {
        const struct run_place_node *node = &parts->of->place->nodes[parts->list[i].node];
        list[i] = (struct core_region_part){
            .begin = parts->list[i].begin, .first = node->first, .end = node->end};
    }
    return list;
}

/* ---- the HOST tier ---- */

/* The calling thread, a team member, moves to the first node meanwhile. */
static int alloc_placed(struct run_memory *memory, const struct run_memory_options *given,
                        struct core_region_options *options)
{
    struct parts parts = {.of = given};
    struct core_region_part *touched = NULL;
    struct core_cpus before;
    int rc = list_parts(&parts);
    if (rc == 0) {
        touched = touching_members(&parts);
        rc = touched != NULL
                 ? 0
                 : core_err_set(-ENOMEM, "no memory to place %zu parts of the HOST tier",
                                parts.count);
    }
    if (rc == 0) {
        rc = core_cpus_allowed(&before);
    }
    if (rc == 0) {
        rc = core_cpus_bind_self(&given->place->nodes[0].cpus);
    }
    if (rc == 0) {
        options->parts = touched;
        options->part_count = parts.count;
        rc = core_region_alloc(options, &memory->host);
        (void)core_cpus_bind_self(&before);
    }
    free(touched);
    free(parts.list);
    return rc;
}

static int alloc_host(struct run_memory *memory, const struct run_memory_options *given)
{
    const struct dev_properties *properties = dev_properties(memory->device);
    const bool placed = given->place != NULL && given->place->node_count > 0;
    struct core_region_options options = {
        .name = "the HOST tier",
        .bytes = plan_tier_bytes(given->plan, PLAN_HOST),
        .prefer_node = !placed && properties->numa_node >= 0,
        .node = properties->numa_node,
        .team = given->team,
    };
    if (options.bytes == 0) {
        return 0;
    }
    int rc = placed ? alloc_placed(memory, given, &options)
                    : core_region_alloc(&options, &memory->host);
    if (rc != 0) {
        return rc;
    }
    rc = dev_host_register(memory->device, memory->host.base, memory->host.mapped_bytes);
    memory->registered = rc == 0;
    if (rc != 0) {
        core_log(CORE_LOG_WARN, "the HOST tier of %zu bytes is not pinned: %s",
                 memory->host.mapped_bytes, core_err_message());
    }
    return 0;
}

int run_memory_init(struct run_memory *memory, const struct run_memory_options *options)
{
    const struct plan *plan = options->plan;
    *memory = (struct run_memory){
        .plan = plan, .device = options->device, .count = plan_buffer_count(plan)};
    memory->at = calloc(memory->count > 0 ? memory->count : 1, sizeof(*memory->at));
    if (memory->at == NULL) {
        return core_err_set(-ENOMEM, "no memory for %u buffers", memory->count);
    }
    int rc = alloc_device(memory, plan_tier_bytes(plan, PLAN_DEVICE));
    if (rc != 0) {
        goto fail;
    }
    rc = alloc_host(memory, options);
    if (rc != 0) {
        goto fail;
    }
    for (uint32_t i = 0; i < memory->count; i++) {
        const struct plan_buffer *buffer = plan_buffer(plan, i);
        char *const bases[PLAN_TIER_COUNT + 1] = {
            [PLAN_DEVICE] = memory->device_base, [PLAN_HOST] = (char *)memory->host.base};
        if (bases[buffer->tier] != NULL) {
            memory->at[i] = bases[buffer->tier] + buffer->offset;
        }
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
    for (uint32_t i = 0; memory->separate && i < memory->count; i++) {
        if (plan_buffer(memory->plan, i)->tier == PLAN_DEVICE) {
            dev_memory_free(memory->device, memory->at[i]);
        }
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
