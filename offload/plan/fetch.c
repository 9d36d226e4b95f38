/* fetch.c: assigns weight slots to blocks and adds the commands that fill them. */
#include "offload/plan/fetch.h"

#include <assert.h>

#include "core/base/size.h"
#include "offload/model/sections.h"

/* Takes the least recently used slot of the block's size. */
uint32_t plan_fetch_claim(struct plan_step *step, uint32_t block)
{
    int size = plan_move_block(step, block)->size;
    const struct plan_ring *ring = &step->layout->weights;
    uint32_t oldest = 0;
    assert(ring->counts[size] > 0);
    for (uint32_t i = 1; i < ring->counts[size]; i++) {
        oldest = step->slot_used[size][i] < step->slot_used[size][oldest] ? i : oldest;
    }
    step->slot_block[size][oldest] = block;
    step->slot_used[size][oldest] = ++step->clock;
    return ring->buffers[size][oldest];
}

uint32_t plan_fetch_held(struct plan_step *step, uint32_t block)
{
    int size = plan_move_block(step, block)->size;
    const struct plan_ring *ring = &step->layout->weights;
    for (uint32_t i = 0; i < ring->counts[size]; i++) {
        if (step->slot_block[size][i] == block) {
            step->slot_used[size][i] = ++step->clock;
            return ring->buffers[size][i];
        }
    }
    return PLAN_NONE;
}

int plan_fetch_chunk_move(struct plan_step *step, enum plan_op op, uint32_t block, uint64_t index,
                          struct plan_piece memory)
{
    bool reads = op == PLAN_READ;
    uint64_t width = step->input->blocks[block].format.weight_bytes;
    struct plan_chunk chunk = plan_chunk_at(step->input, step->layout, PLAN_W16, block, index);
    struct plan_command command = plan_move_command(
        op, reads ? PLAN_Q_READ_WEIGHT : PLAN_Q_WRITE_STATE, block, PLAN_NONE);
    command.streams = PLAN_W16;
    command.chunk = (uint32_t)index;
    command.elements = memory.bytes / width;
    command.bytes = memory.bytes;
    plan_move_operand(&command, PLAN_AS_EXTENT_W16, reads ? PLAN_READS : PLAN_WRITES, chunk.kept);
    plan_move_operand(&command, PLAN_AS_MEMORY, reads ? PLAN_WRITES : PLAN_READS, memory);
    return plan_move_add(step, &command);
}

/* Reads through HOST if I/O does not reach DEVICE. */
static int read_weights(struct plan_step *step, uint32_t block, uint32_t slot)
{
    struct plan_span span = plan_weight_span(step->input, block);
    uint64_t each = step->choice->chunk_elements;
    uint64_t width = step->input->blocks[block].format.weight_bytes;
    bool direct = step->input->budgets.device_is_host;
    int rc = 0;
    for (uint64_t c = 0; rc == 0 && c < plan_chunk_count(span.count, each); c++) {
        struct plan_piece to = {.buffer = slot,
                                .offset = (span.first + c * each) * width,
                                .bytes = plan_chunk_size(span.count, each, c) * width};
        struct plan_piece stage = {.bytes = to.bytes};
        if (!direct) {
            stage.buffer =
                step->layout->weight_stages[step->stage_turn++ % step->choice->state_slots];
        }
        rc = plan_fetch_chunk_move(step, PLAN_READ, block, c, direct ? to : stage);
        if (rc == 0 && !direct) {
            rc = plan_move_copy(step, PLAN_H2D, block, stage, to);
        }
    }
    return rc;
}

void plan_fetch_forget(struct plan_step *step, uint32_t block)
{
    int size = plan_move_block(step, block)->size;
    for (uint32_t i = 0; i < step->layout->weights.counts[size]; i++) {
        if (step->slot_block[size][i] == block) {
            step->slot_block[size][i] = PLAN_NONE;
        }
    }
}

/* `first`: the element of the block with which the buffer begins. */
static struct plan_piece own_part(const struct plan_step *step, uint32_t block, uint32_t buffer,
                                  struct plan_span span, uint64_t first)
{
    uint64_t width = step->input->blocks[block].format.weight_bytes;
    return (struct plan_piece){
        .buffer = buffer, .offset = (span.first - first) * width, .bytes = span.count * width};
}

static struct plan_piece kept_whole(const struct plan_step *step, uint32_t block, uint32_t buffer)
{
    uint64_t width = step->input->blocks[block].format.weight_bytes;
    return (struct plan_piece){.buffer = buffer,
                               .bytes = plan_kept_elements(step->input, block) * width};
}

static int expand_to(struct plan_step *step, uint32_t block, struct plan_piece from, uint32_t slot)
{
    struct plan_command command = plan_move_command(PLAN_EXPAND, PLAN_Q_COMPUTE, block, PLAN_NONE);
    struct plan_piece weights = {.buffer = slot, .bytes = plan_move_weight_bytes(step, block)};
    command.packed = plan_packs_weights(step->input, block);
    command.elements = step->input->blocks[block].elements;
    plan_move_operand(&command, PLAN_AS_FROM, PLAN_READS, from);
    plan_move_operand(&command, PLAN_AS_TO, PLAN_WRITES, weights);
    return plan_move_add(step, &command);
}

/* ---- copies that a group of ranks keeps ---- */

/* Returns the part that this rank keeps for its group. */
static struct plan_piece copy_part(const struct plan_step *step, uint32_t block, uint32_t buffer)
{
    const struct plan_span span = plan_copy_span(step->input, block);
    const uint64_t first = plan_gathered_bytes(step->input, block, span.first);
    const uint64_t end = plan_gathered_bytes(step->input, block, span.first + span.count);
    return (struct plan_piece){.buffer = buffer, .offset = first, .bytes = end - first};
}

/* Keeps this rank's part if the step needs the weights again. */
static int keep_copy(struct plan_step *step, uint32_t block, uint32_t gathered)
{
    const uint32_t copy = plan_move_block(step, block)->weights_copy;
    if (copy == PLAN_NONE || step->copied == NULL) {
        return 0;
    }
    const struct plan_piece from = copy_part(step, block, gathered);
    const struct plan_piece to = {.buffer = copy, .bytes = from.bytes};
    step->copied[block] = true;
    return from.bytes > 0 ? plan_move_copy(step, PLAN_D2H, block, from, to) : 0;
}

static bool has_copy(const struct plan_step *step, uint32_t block)
{
    return step->copied != NULL && step->copied[block];
}

static uint64_t copy_between(const struct plan_step *step, uint32_t block)
{
    const struct plan_input *input = step->input;
    const uint32_t local = plan_sharing(input);
    const struct plan_span group = {.first = input->rank / input->within * input->within,
                                    .count = input->within};
    const struct plan_span node = {.first = input->rank / local * local, .count = local};
    const struct plan_span near = plan_span_overlap(group, node);
    const uint64_t elements = plan_kept_elements(input, block);
    const uint32_t first = (uint32_t)(near.first - group.first);
    const uint64_t begin = plan_shard_border(elements, input->within, first);
    const uint64_t end = plan_shard_border(elements, input->within, first + (uint32_t)near.count);
    return plan_gathered_bytes(input, block, elements) - plan_gathered_bytes(input, block, end) +
           plan_gathered_bytes(input, block, begin);
}

static int gather_copy(struct plan_step *step, uint32_t block, struct plan_piece whole)
{
    struct plan_command command = plan_move_command(PLAN_GATHER, PLAN_Q_COLL, block, PLAN_NONE);
    const struct plan_input *input = step->input;
    const struct plan_piece part = copy_part(step, block, PLAN_NONE);
    const struct plan_piece own = {.buffer = plan_move_block(step, block)->weights_copy,
                                   .bytes = part.bytes};
    command.within = input->within;
    command.packed = plan_packs_weights(input, block);
    command.elements = plan_kept_elements(input, block);
    command.bytes = whole.bytes - part.bytes;
    command.between_bytes = copy_between(step, block);
    plan_move_operand(&command, PLAN_AS_FROM, PLAN_READS, own);
    plan_move_operand(&command, PLAN_AS_TO, PLAN_WRITES, whole);
    return plan_move_add(step, &command);
}

/* ---- gathers ---- */

static struct plan_piece next_packed(struct plan_step *step, uint32_t block)
{
    return (struct plan_piece){.buffer = plan_move_turn(step, &step->layout->packed,
                                                        &step->packed_turns, block, PLAN_NONE),
                               .bytes = plan_packed_bytes(step->input->blocks[block].elements)};
}

/* This rank's own part is expanded, too, so that all ranks compute with equal weights. */
static int gather_packed(struct plan_step *step, uint32_t block, struct plan_piece own,
                         uint32_t slot)
{
    struct plan_command command = plan_move_command(PLAN_GATHER, PLAN_Q_COLL, block, PLAN_NONE);
    const uint64_t width = step->input->blocks[block].format.weight_bytes;
    const struct plan_piece packed = next_packed(step, block);
    command.packed = true;
    command.elements = step->input->blocks[block].elements;
    command.bytes = packed.bytes - plan_packed_bytes(own.bytes / width);
    command.between_bytes = plan_move_gathered_between(step, block);
    plan_move_operand(&command, PLAN_AS_FROM, PLAN_READS, own);
    plan_move_operand(&command, PLAN_AS_TO, PLAN_WRITES, packed);
    int rc = plan_move_add(step, &command);
    if (rc == 0) {
        rc = keep_copy(step, block, packed.buffer);
    }
    return rc != 0 ? rc : expand_to(step, block, packed, slot);
}

static int gather_shards(struct plan_step *step, uint32_t block, struct plan_piece own,
                         struct plan_piece whole)
{
    int rc = plan_move_together(step, PLAN_GATHER, block, own, whole);
    return rc != 0 ? rc : keep_copy(step, block, whole.buffer);
}

int plan_fetch_gather(struct plan_step *step, uint32_t block, uint32_t whole)
{
    struct plan_span span = plan_state_span(step->input, block);
    if (plan_packs_weights(step->input, block)) {
        plan_fetch_forget(step, block);
        return gather_packed(step, block, own_part(step, block, whole, span, 0),
                             plan_fetch_claim(step, block));
    }
    return gather_shards(step, block, own_part(step, block, whole, span, 0),
                         kept_whole(step, block, whole));
}

static int fill_whole(struct plan_step *step, uint32_t block, uint32_t slot)
{
    struct plan_piece from = kept_whole(step, block, plan_move_block(step, block)->weights_host);
    return from.buffer != PLAN_NONE
               ? plan_move_copy(step, PLAN_H2D, block, from, kept_whole(step, block, slot))
               : read_weights(step, block, slot);
}

/* Moves this rank's shard to its offset, unless it is in DEVICE, and gathers the others. */
static int fill_shards(struct plan_step *step, uint32_t block, uint32_t slot)
{
    const struct plan_block_layout *where = plan_move_block(step, block);
    struct plan_span span = plan_weight_span(step->input, block);
    struct plan_piece whole = kept_whole(step, block, slot);
    struct plan_piece own = own_part(step, block, slot, span, 0);
    if (where->weights_device != PLAN_NONE) {
        return gather_shards(step, block,
                             own_part(step, block, where->weights_device, span, span.first), whole);
    }
    int rc = 0;
    if (where->weights_host != PLAN_NONE) {
        if (span.count > 0) {
            rc = plan_move_copy(step, PLAN_H2D, block,
                                own_part(step, block, where->weights_host, span, span.first), own);
        }
    } else {
        rc = read_weights(step, block, slot);
    }
    return rc == 0 ? gather_shards(step, block, own, whole) : rc;
}

static int fill_packed(struct plan_step *step, uint32_t block, uint32_t slot)
{
    const struct plan_block_layout *where = plan_move_block(step, block);
    const struct plan_span span = plan_weight_span(step->input, block);
    const uint32_t kept = where->weights_device != PLAN_NONE ? where->weights_device
                                                             : where->weights_host;
    if (kept != PLAN_NONE) {
        return gather_packed(step, block, own_part(step, block, kept, span, span.first), slot);
    }
    int rc = read_weights(step, block, slot);
    return rc != 0 ? rc : gather_packed(step, block, own_part(step, block, slot, span, 0), slot);
}

static int fill_copied(struct plan_step *step, uint32_t block, uint32_t slot)
{
    if (!plan_packs_weights(step->input, block)) {
        return gather_copy(step, block, kept_whole(step, block, slot));
    }
    const struct plan_piece packed = next_packed(step, block);
    int rc = gather_copy(step, block, packed);
    return rc != 0 ? rc : expand_to(step, block, packed, slot);
}

static int fill(struct plan_step *step, uint32_t block, uint32_t slot)
{
    if (has_copy(step, block)) {
        return fill_copied(step, block, slot);
    }
    return plan_packs_weights(step->input, block) ? fill_packed(step, block, slot)
           : plan_shards_weights(step->input)     ? fill_shards(step, block, slot)
                                                  : fill_whole(step, block, slot);
}

/* Expands stored weights into `slot`. Moves the stored form first if compute cannot read it in
 * place. */
static int expand(struct plan_step *step, uint32_t block, uint32_t slot)
{
    const struct plan_block_layout *where = plan_move_block(step, block);
    uint32_t stored = where->weights_device != PLAN_NONE ? where->weights_device
                                                         : where->weights_host;
    if (!plan_layout_reaches_stored(step->input, step->layout, block)) {
        stored = plan_move_turn(step, &step->layout->stored, &step->stored_turns, block, PLAN_NONE);
        int rc = fill(step, block, stored);
        if (rc != 0) {
            return rc;
        }
    }
    return expand_to(step, block, kept_whole(step, block, stored), slot);
}

int plan_fetch_weights(struct plan_step *step, uint32_t block, uint32_t *out)
{
    const struct plan_block_layout *where = plan_move_block(step, block);
    bool is_stored = step->input->blocks[block].stored_elements > 0;
    if (where->weights_device != PLAN_NONE && !plan_shards_weights(step->input) && !is_stored) {
        *out = where->weights_device;
        return 0;
    }
    uint32_t slot = plan_fetch_held(step, block);
    int rc = 0;
    if (slot == PLAN_NONE) {
        slot = plan_fetch_claim(step, block);
        rc = is_stored ? expand(step, block, slot) : fill(step, block, slot);
    }
    *out = slot;
    return rc;
}

static int move_rows(struct plan_step *step, struct plan_command command, enum plan_role from_as,
                     uint32_t from, enum plan_role to_as, struct plan_piece to)
{
    command.streams = PLAN_W16;
    command.rows = true;
    command.bytes = to.bytes;
    plan_move_operand(&command, from_as, PLAN_READS, plan_move_whole(step, from));
    plan_move_operand(&command, to_as, PLAN_WRITES, to);
    return plan_move_add(step, &command);
}

/* Rows wait for the inputs of the step. On the queue of weights they would delay other weights. */
static int read_rows(struct plan_step *step, uint32_t block, uint32_t micro, struct plan_piece to)
{
    return move_rows(step, plan_move_command(PLAN_READ, PLAN_Q_READ_ACT, block, micro),
                     PLAN_AS_EXTENT_W16, plan_move_block(step, block)->weights_store,
                     PLAN_AS_MEMORY, to);
}

static int copy_rows(struct plan_step *step, uint32_t block, uint32_t micro, struct plan_piece to)
{
    return move_rows(step, plan_move_command(PLAN_H2D, PLAN_Q_UP, block, micro), PLAN_AS_FROM,
                     plan_move_block(step, block)->weights_host, PLAN_AS_TO, to);
}

int plan_fetch_rows(struct plan_step *step, uint32_t block, uint32_t micro, struct plan_piece *out)
{
    const struct plan_block_layout *where = plan_move_block(step, block);
    if (where->rows[0] == PLAN_NONE) {
        struct plan_piece whole = {.bytes = plan_move_weight_bytes(step, block)};
        int rc = plan_fetch_weights(step, block, &whole.buffer);
        *out = whole;
        return rc;
    }
    const uint32_t turn = where->rows[1] != PLAN_NONE ? step->rows_turn++ % PLAN_ROWS_TURN : 0;
    const uint64_t bytes = step->input->blocks[block].rows_bytes;
    const struct plan_piece slot = {.buffer = where->rows[turn], .bytes = bytes};
    const struct plan_piece stage = {.buffer = where->rows_stages[turn], .bytes = bytes};
    *out = slot;
    if (where->weights_host != PLAN_NONE) {
        return copy_rows(step, block, micro, slot);
    }
    if (stage.buffer == PLAN_NONE) {
        return read_rows(step, block, micro, slot);
    }
    int rc = read_rows(step, block, micro, stage);
    return rc != 0 ? rc : plan_move_copy(step, PLAN_H2D, block, stage, slot);
}

static int read_pages(struct plan_step *step, uint32_t block, uint64_t first, struct plan_piece to)
{
    struct plan_command command = plan_move_command(PLAN_READ, PLAN_Q_READ_WEIGHT, block,
                                                    PLAN_NONE);
    const struct plan_piece from = {
        .buffer = plan_move_block(step, block)->weights_store, .offset = first, .bytes = to.bytes};
    command.streams = PLAN_W16;
    command.pages = true;
    command.bytes = to.bytes;
    plan_move_operand(&command, PLAN_AS_EXTENT_W16, PLAN_READS, from);
    plan_move_operand(&command, PLAN_AS_MEMORY, PLAN_WRITES, to);
    return plan_move_add(step, &command);
}

/* `stage`: with a card, the place in HOST through which the pages pass. */
static int fill_pages(struct plan_step *step, uint32_t block, uint64_t first,
                      struct plan_piece stage, struct plan_piece to)
{
    const uint32_t host = plan_move_block(step, block)->weights_host;
    struct plan_piece from = {.buffer = host, .offset = first, .bytes = to.bytes};
    if (to.bytes == 0) {
        return 0;
    }
    if (host == PLAN_NONE) {
        const bool direct = stage.buffer == PLAN_NONE;
        int rc = read_pages(step, block, first, direct ? to : stage);
        if (rc != 0 || direct) {
            return rc;
        }
        from = stage;
    }
    return plan_move_copy(step, PLAN_H2D, block, from, to);
}

static int gather_pages(struct plan_step *step, uint32_t block, uint64_t first,
                        struct plan_piece from, struct plan_piece to)
{
    struct plan_command command = plan_move_command(PLAN_GATHER, PLAN_Q_COLL, block, PLAN_NONE);
    const bool in_place = from.buffer == to.buffer;
    command.pages = true;
    command.first = first;
    command.elements = to.bytes / step->input->blocks[block].format.weight_bytes;
    command.bytes = to.bytes - from.bytes;
    const uint64_t width = step->input->blocks[block].format.weight_bytes;
    const struct plan_span node = plan_node_span(step->input,
                                                 plan_kept_elements(step->input, block));
    const struct plan_span near = plan_span_overlap(
        (struct plan_span){.first = first, .count = to.bytes},
        (struct plan_span){.first = node.first * width,
                           .count = core_round_up(node.count * width, PLAN_ALIGN_BYTES)});
    command.between_bytes = to.bytes - near.count;
    plan_move_operand(&command, PLAN_AS_FROM, PLAN_READS, from);
    plan_move_operand(&command, PLAN_AS_TO, in_place ? PLAN_CHANGES : PLAN_WRITES, to);
    return plan_move_add(step, &command);
}

static int fetch_range(struct plan_step *step, uint32_t block, const struct model_range *range,
                       uint32_t turn, uint64_t at)
{
    const struct plan_block_layout *where = plan_move_block(step, block);
    const struct plan_span pages = {.first = range->first, .count = range->bytes};
    const struct plan_span own = plan_weight_pages(step->input, block, pages);
    const uint64_t shard = plan_weight_span(step->input, block).first *
                           step->input->blocks[block].format.weight_bytes;
    const uint64_t own_at = at + (own.first - range->first);
    const struct plan_piece stage = {
        .buffer = step->layout->section_stages[turn], .offset = own_at, .bytes = own.count};
    const struct plan_piece to = {
        .buffer = step->layout->sections[turn], .offset = at, .bytes = range->bytes};
    struct plan_piece from = {.buffer = to.buffer, .offset = own_at, .bytes = own.count};
    if (where->weights_device != PLAN_NONE) {
        from.buffer = where->weights_device;
        from.offset = own.first - shard;
    } else {
        int rc = fill_pages(step, block, own.first - shard, stage, from);
        if (rc != 0) {
            return rc;
        }
    }
    return plan_shards_weights(step->input) ? gather_pages(step, block, range->first, from, to) : 0;
}

static int fetch_pages(struct plan_step *step, uint32_t block, const struct model_section *section,
                       struct plan_piece *out)
{
    const uint32_t turn = step->section_turn++ % PLAN_SECTIONS_TURN;
    uint64_t at = 0;
    for (unsigned i = 0; i < section->range_count; i++) {
        int rc = fetch_range(step, block, &section->ranges[i], turn, at);
        if (rc != 0) {
            return rc;
        }
        at += section->ranges[i].bytes;
    }
    *out = (struct plan_piece){.buffer = step->layout->sections[turn], .bytes = section->bytes};
    return 0;
}

/* Expands a section's weights. Moves their stored form first if compute cannot read it in place. */
static int expand_section(struct plan_step *step, uint32_t block,
                          const struct model_section *section, struct plan_piece *out)
{
    const struct plan_block_layout *where = plan_move_block(step, block);
    struct plan_command command = plan_move_command(PLAN_EXPAND, PLAN_Q_COMPUTE, block, PLAN_NONE);
    struct plan_piece from = kept_whole(step, block,
                                        where->weights_device != PLAN_NONE ? where->weights_device
                                                                           : where->weights_host);
    command.pages = !plan_layout_reaches_stored(step->input, step->layout, block);
    if (command.pages) {
        int rc = fetch_pages(step, block, section, &from);
        if (rc != 0) {
            return rc;
        }
    }
    *out = (struct plan_piece){.buffer = step->layout->expanded, .bytes = section->expanded_bytes};
    command.section = section;
    command.elements = section->expanded_elements;
    plan_move_operand(&command, PLAN_AS_FROM, PLAN_READS, from);
    plan_move_operand(&command, PLAN_AS_TO, PLAN_WRITES, *out);
    return plan_move_add(step, &command);
}

int plan_fetch_section(struct plan_step *step, uint32_t block, const struct model_section *section,
                       struct plan_piece *out)
{
    return section->expanded_bytes > 0 ? expand_section(step, block, section, out)
                                       : fetch_pages(step, block, section, out);
}
