/* lane_move.c: moves bytes; a command names source and destination by role. */
#include "offload/run/lane_move.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/coll/codes.h"
#include "core/dev/dev.h"
#include "kernels/quant.h"
#include "offload/plan/shard.h"

/* ---- rows ---- */

uint32_t run_rows_micros(const struct run_rows *rows, const struct plan_command *command,
                         uint32_t *first)
{
    *first = command->micro * rows->group;
    const uint32_t left = rows->micro_batches - *first;
    return left < rows->group ? left : rows->group;
}

/* Sets *out to the next part of a command's rows. Returns false after the last part, and starts
 * over. */
static bool next_rows(struct run_rows *rows, const struct plan_command *command,
                      struct run_rows_part *out)
{
    uint32_t first = 0;
    const uint32_t count = run_rows_micros(rows, command, &first);
    if (run_inputs_next_rows(rows->inputs, first, count, &rows->cursor, out)) {
        return true;
    }
    rows->cursor = (struct run_rows_cursor){0};
    return false;
}

/* ---- copies ---- */

static int copy_rows(struct run_copy *copy, const struct plan_command *command,
                     struct core_fence *out)
{
    char *to = run_memory_of(copy->memory, command, PLAN_AS_TO);
    const char *from = run_memory_of(copy->memory, command, PLAN_AS_FROM);
    struct core_fence fence = dev_queue_tail(copy->queue);
    struct run_rows_part part;
    while (next_rows(&copy->rows, command, &part)) {
        const uint64_t end = plan_command_operand(command, PLAN_AS_FROM)->bytes;
        const struct dev_copy move = {
            .direction = DEV_COPY_UP,
            .to = to + part.to,
            .from = from + part.from,
            .bytes = part.bytes < end - part.from ? part.bytes : end - part.from,
        };
        int rc = dev_queue_copy(copy->queue, &move, &fence);
        if (rc != 0) {
            return rc;
        }
        copy->rows.cursor.done += part.bytes;
    }
    *out = fence;
    return 0;
}

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
    return command->rows ? copy_rows(copy, command, out) : dev_queue_copy(copy->queue, &move, out);
}

struct run_lane run_copy_lane(struct run_copy *copy)
{
    return (struct run_lane){.submit = copy_submit, .context = copy};
}

/* ---- requests to a drive ---- */

/* An extent of a command, and its memory. */
struct extent {
    struct store_place place;
    char *memory;
};

static unsigned extents_of(const struct run_io *io, const struct plan_command *command,
                           struct extent extents[4])
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
        struct extent *extent = &extents[count++];
        extent->place = (struct store_place){
            .kind = kinds[i].kind,
            .block = command->block,
            .index = act ? command->micro : command->chunk,
        };
        switch (kinds[i].kind) {
        case STORE_WEIGHTS: extent->memory = memory != NULL ? memory : slot; break;
        case STORE_STATES: extent->memory = slot + plan_slot_states_offset(io->plan); break;
        case STORE_GRADS:
            extent->memory = memory != NULL ? memory : slot + plan_slot_gradient_offset(io->plan);
            break;
        case STORE_ACTS:
        case STORE_KIND_COUNT: extent->memory = memory; break;
        }
    }
    return count;
}

static int move_extent(struct run_io *io, const struct plan_command *command,
                       const struct extent *extent, struct core_fence *out)
{
    if (command->op == PLAN_READ) {
        return store_read(io->store, io->queue, &extent->place, extent->memory, out);
    }
    return command->ahead
               ? store_write_ahead(io->store, io->queue, &extent->place, extent->memory, out)
               : store_write(io->store, io->queue, &extent->place, extent->memory, out);
}

static int read_rows(struct run_io *io, const struct plan_command *command, struct core_fence *out)
{
    char *memory = run_memory_of(io->memory, command, PLAN_AS_MEMORY);
    struct core_fence fence = aio_queue_tail(io->queue);
    struct run_rows_part part;
    while (next_rows(&io->rows, command, &part)) {
        uint64_t moved = 0;
        int rc = store_read_pages(io->store, io->queue, command->block, part.from, memory + part.to,
                                  part.bytes, &moved, &fence);
        if (rc != 0) {
            return rc;
        }
        io->rows.cursor.done += moved;
    }
    *out = fence;
    return 0;
}

static int read_pages(struct run_io *io, const struct plan_command *command, struct core_fence *out)
{
    const uint64_t first = plan_command_operand(command, PLAN_AS_EXTENT_W16)->offset;
    char *memory = run_memory_of(io->memory, command, PLAN_AS_MEMORY);
    struct core_fence fence = {0};
    while (io->submitted_bytes < command->bytes) {
        uint64_t moved = 0;
        int rc = store_read_pages(io->store, io->queue, command->block, first + io->submitted_bytes,
                                  memory + io->submitted_bytes,
                                  command->bytes - io->submitted_bytes, &moved, &fence);
        if (rc != 0) {
            return rc;
        }
        io->submitted_bytes += moved;
    }
    io->submitted_bytes = 0;
    *out = fence;
    return 0;
}

/* Requests go to one queue in order, so the last fence covers all. */
static int io_submit(void *context, const struct plan_command *command, struct core_fence *out)
{
    struct run_io *io = context;
    struct extent extents[4];
    const unsigned count = command->op == PLAN_JOIN ? 0 : extents_of(io, command, extents);
    struct core_fence fence = {0};
    if (command->rows) {
        return read_rows(io, command, out);
    }
    if (command->pages) {
        return read_pages(io, command, out);
    }
    for (; io->submitted < count; io->submitted++) {
        const struct extent *extent = &extents[io->submitted];
        int rc = move_extent(io, command, extent, &fence);
        if (rc != 0) {
            return rc;
        }
    }
    io->submitted = 0;
    *out = fence;
    return 0;
}

struct run_lane run_io_lane(struct run_io *io)
{
    return (struct run_lane){.submit = io_submit, .context = io};
}

/* ---- collectives ---- */

static enum coll_type coll_type_of(enum kern_type type)
{
    return type == KERN_F32 ? COLL_F32 : type == KERN_BF16 ? COLL_BF16 : COLL_FP16;
}

int run_collect_init(struct run_collect *collect, const struct run_options *options,
                     const struct plan_input *input, const struct run_memory *memory,
                     struct coll *coll)
{
    const uint32_t world = coll_world(coll);
    const bool f32_grads = run_options_gradients(options) == CORE_UPDATE_F32;
    *collect = (struct run_collect){
        .memory = memory,
        .input = input,
        .coll = coll,
        .type = options->type,
        .weight_type = coll_type_of(options->type),
        .grad_type = f32_grads ? COLL_F32 : coll_type_of(options->type),
        .borders = calloc((size_t)input->block_count * (world + 1), sizeof *collect->borders),
        .parts = calloc((size_t)(RUN_COLLECT_DEPTH + 1) * (world + 1), sizeof *collect->parts),
        .packs = calloc(RUN_COLLECT_DEPTH + 1, sizeof *collect->packs),
    };
    if (collect->borders == NULL || collect->parts == NULL || collect->packs == NULL) {
        return core_err_set(-ENOMEM, "no memory for the borders of %u shards", world);
    }
    for (uint32_t b = 0; b < input->block_count; b++) {
        for (uint32_t r = 0; r <= world; r++) {
            collect->borders[(size_t)b * (world + 1) + r] = plan_shard_border(
                plan_kept_elements(input, b), world, r);
        }
    }
    return 0;
}

void run_collect_fini(struct run_collect *collect)
{
    free(collect->borders);
    free(collect->parts);
    free(collect->packs);
    *collect = (struct run_collect){0};
}

/* Returns an operand's memory. An empty shard has none; `otherwise` takes its place, and is then
 * not read. */
static char *operand_or(const struct run_collect *collect, const struct plan_command *command,
                        enum plan_role role, char *otherwise)
{
    char *at = run_memory_of(collect->memory, command, role);
    return at != NULL ? at : otherwise;
}

int run_collect_pages(struct run_collect *collect, const struct run_collect_pages *pages,
                      struct core_fence *out)
{
    const uint32_t world = coll_world(collect->coll);
    const uint64_t kept = plan_kept_elements(collect->input, pages->block);
    const uint64_t width = collect->input->blocks[pages->block].format.weight_bytes;
    const uint64_t *borders = collect->borders + (size_t)pages->block * (world + 1);
    const uint64_t first = pages->first / width;
    const uint64_t pages_end = first + pages->bytes / width;
    const uint64_t end = pages_end < kept ? pages_end : kept;
    uint64_t *parts = collect->parts +
                      (size_t)(collect->parts_turn % (RUN_COLLECT_DEPTH + 1)) * (world + 1);
    for (uint32_t r = 0; r <= world; r++) {
        const uint64_t border = borders[r] < end ? borders[r] : end;
        parts[r] = border > first ? border - first : 0;
    }
    const struct coll_command request = {.op = COLL_GATHER,
                                         .type = collect->weight_type,
                                         .from = pages->from,
                                         .to = pages->to,
                                         .count = end - first,
                                         .borders = parts};
    int rc = coll_submit(collect->coll, &request, out);
    if (rc == 0) {
        collect->parts_turn++;
    }
    return rc;
}

static void pack(void *context)
{
    const struct run_pack *shard = context;
    const uint64_t groups = shard->elements / PLAN_PACK_ELEMENTS;
    const uint64_t rest = shard->elements % PLAN_PACK_ELEMENTS;
    const uint64_t whole = shard->elements - rest;
    uint8_t *to = (uint8_t *)shard->to;
    kern_quant_pack(shard->type, shard->from, (int64_t)groups, PLAN_PACK_ELEMENTS, to);
    if (rest > 0) {
        kern_quant_pack(shard->type, shard->from + whole * kern_type_bytes(shard->type), 1,
                        (int64_t)rest, to + plan_packed_bytes(whole));
    }
}

static int gather_packed(struct run_collect *collect, uint32_t block, const char *from, char *to,
                         struct core_fence *out)
{
    const uint32_t world = coll_world(collect->coll);
    const uint32_t rank = collect->input->rank;
    const uint64_t *borders = collect->borders + (size_t)block * (world + 1);
    const size_t turn = collect->parts_turn % (RUN_COLLECT_DEPTH + 1);
    uint64_t *parts = collect->parts + turn * (world + 1);
    for (uint32_t r = 0; r <= world; r++) {
        parts[r] = plan_packed_bytes(borders[r]);
    }
    collect->packs[turn] = (struct run_pack){.type = collect->type,
                                             .from = from,
                                             .elements = borders[rank + 1] - borders[rank],
                                             .to = to + parts[rank]};
    const struct coll_command request = {.op = COLL_GATHER,
                                         .type = COLL_BYTE,
                                         .from = to + parts[rank],
                                         .to = to,
                                         .count = parts[world],
                                         .borders = parts,
                                         .prepare = pack,
                                         .context = &collect->packs[turn]};
    int rc = coll_submit(collect->coll, &request, out);
    if (rc == 0) {
        collect->parts_turn++;
    }
    return rc;
}

/* Gathers the group's copy of weights, or of their codes. */
static int gather_copy(struct run_collect *collect, const struct plan_command *command,
                       const char *from, char *to, struct core_fence *out)
{
    uint64_t *parts = collect->parts + (size_t)(collect->parts_turn % (RUN_COLLECT_DEPTH + 1)) *
                                           (coll_world(collect->coll) + 1);
    for (uint32_t r = 0; r <= command->within; r++) {
        const uint64_t border = plan_shard_border(command->elements, command->within, r);
        parts[r] = command->packed ? plan_packed_bytes(border) : border;
    }
    const struct coll_command request = {.op = COLL_GATHER,
                                         .type = command->packed ? COLL_BYTE : collect->weight_type,
                                         .from = from,
                                         .to = to,
                                         .count = parts[command->within],
                                         .within = command->within,
                                         .borders = parts};
    int rc = coll_submit(collect->coll, &request, out);
    if (rc == 0) {
        collect->parts_turn++;
    }
    return rc;
}

_Static_assert((int)PLAN_CODE_ELEMENTS == (int)COLL_CODES,
               "the plan's groups are those of collectives");

static void encode(void *context)
{
    const struct run_pack *whole = context;
    coll_codes_encode(whole->numbers, whole->from, whole->elements, whole->to);
}

/* Sums a block's gradient, exchanged as codes. */
static int reduce_codes(struct run_collect *collect, const struct plan_command *command,
                        const char *from, char *to, struct core_fence *out)
{
    const uint32_t world = coll_world(collect->coll);
    const uint32_t rank = collect->input->rank;
    const uint64_t *borders = collect->borders + (size_t)command->block * (world + 1);
    const size_t turn = collect->parts_turn % (RUN_COLLECT_DEPTH + 1);
    uint64_t *parts = collect->parts + turn * (world + 1);
    char *codes = run_memory_of(collect->memory, command, PLAN_AS_CODES);
    for (uint32_t r = 0; r <= world; r++) {
        parts[r] = coll_codes_groups(borders[r]);
    }
    collect->packs[turn] = (struct run_pack){
        .numbers = collect->grad_type, .from = from, .elements = borders[world], .to = codes};
    const struct coll_command request = {.op = COLL_REDUCE_SCATTER,
                                         .type = COLL_INT4,
                                         .from = codes,
                                         .to = to != NULL ? to : codes,
                                         .count = parts[world],
                                         .borders = parts,
                                         .sum_type = collect->grad_type,
                                         .sum_count = borders[rank + 1] - borders[rank],
                                         .prepare = encode,
                                         .context = &collect->packs[turn]};
    int rc = coll_submit(collect->coll, &request, out);
    if (rc == 0) {
        collect->parts_turn++;
    }
    return rc;
}

static int collect_submit(void *context, const struct plan_command *command, struct core_fence *out)
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
    if (gather && command->within > 0) {
        return gather_copy(collect, command, from, to, out);
    }
    if (command->packed) {
        return gather ? gather_packed(collect, command->block, from, to, out)
                      : reduce_codes(collect, command, from, to, out);
    }
    if (command->pages) {
        const struct run_collect_pages pages = {
            .block = command->block,
            .first = command->first,
            .bytes = plan_command_operand(command, PLAN_AS_TO)->bytes,
            .from = from,
            .to = to};
        return run_collect_pages(collect, &pages, out);
    }
    struct coll_command request = {.from = from, .to = to != NULL ? to : from};
    if (command->block == PLAN_NONE) { /* for the sums of squares of all tiles */
        request.op = COLL_ALL_REDUCE;
        request.type = COLL_F64;
        request.count = plan_command_operand(command, PLAN_AS_FROM)->bytes / sizeof(double);
    } else {
        request.op = gather ? COLL_GATHER : reduce;
        request.type = gather ? collect->weight_type : collect->grad_type;
        request.count = plan_kept_elements(collect->input, command->block);
        request.within = command->within; /* ranks of a group, which sum first */
        request.borders = collect->borders + (size_t)command->block * (world + 1);
    }
    return coll_submit(collect->coll, &request, out);
}

struct run_lane run_collect_lane(struct run_collect *collect)
{
    return (struct run_lane){.submit = collect_submit, .context = collect};
}
