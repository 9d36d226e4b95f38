/* gradient.c: moves and sums gradients between backward and the update. */
#include "offload/plan/gradient.h"

#include "offload/plan/update.h"

void plan_gradient_begin(struct plan_step *step, uint32_t block)
{
    const struct plan_block_layout *where = plan_move_block(step, block);
    const struct plan_layout *layout = step->layout;
    step->sum = plan_move_turn(step, &layout->sums, &step->sum_turns, block, where->sum);
    step->gradient = where->on_card ? PLAN_NONE
                                    : plan_move_turn(step, &layout->gradients,
                                                     &step->gradient_turns, block, where->gradient);
    step->gradient_whole = plan_move_turn(step, &layout->gradients_whole, &step->whole_turns, block,
                                          where->gradient_whole);
    step->gradient = where->on_card ? step->gradient_whole : step->gradient;
}

static struct plan_piece whole_piece(const struct plan_step *step, uint32_t block)
{
    uint64_t bytes = step->input->blocks[block].elements *
                     step->input->blocks[block].format.grad_bytes;
    bool moves = plan_layout_moves_gradients(step->input);
    return plan_move_part(moves ? step->gradient_whole : step->gradient, bytes);
}

/* `first`: the element of the block with which the buffer begins. */
static struct plan_piece own_piece(const struct plan_step *step, uint32_t block, uint32_t buffer,
                                   uint64_t first)
{
    struct plan_span span = plan_state_span(step->input, block);
    uint64_t width = step->input->blocks[block].format.grad_bytes;
    return (struct plan_piece){
        .buffer = buffer, .offset = (span.first - first) * width, .bytes = span.count * width};
}

void plan_gradient_name(struct plan_step *step, struct plan_command *backward)
{
    const struct plan_block_shape *shape = &step->input->blocks[backward->block];
    uint32_t micros = step->input->wishes.micro_batches;
    bool sums = plan_layout_has_sums(step->input);
    bool first = backward->micro == 0;
    enum plan_access adds = first ? PLAN_WRITES : PLAN_CHANGES;
    struct plan_piece shared = plan_move_whole(step, step->layout->shared_sum);
    if (plan_layout_shared(step->input, backward->block) > 0) {
        plan_move_operand(backward, PLAN_AS_SHARED_SUM, adds, shared);
    }
    if (!shape->trained) {
        return;
    }
    if (micros == 1 && plan_move_block(step, backward->block)->lends) {
        plan_move_operand(backward, PLAN_AS_SHARED_SUM, PLAN_CHANGES, shared);
    }
    if (sums) {
        plan_move_operand(backward, PLAN_AS_SUM, adds,
                          plan_move_part(step->sum, shape->elements * PLAN_SUM_BYTES));
    }
    if (!sums || backward->micro + 1u == micros) {
        plan_move_operand(backward, PLAN_AS_GRAD, sums ? PLAN_WRITES : adds,
                          whole_piece(step, backward->block));
    }
}

/* With several micro-batches, each of the two uses of a shared parameter has its own sum. Adds the
 * two sums. */
static int shared_round(struct plan_step *step, uint32_t block)
{
    const struct plan_block_shape *shape = &step->input->blocks[block];
    struct plan_command command = plan_move_command(PLAN_ROUND, PLAN_Q_COMPUTE, block, PLAN_NONE);
    struct plan_piece shared = plan_move_whole(step, step->layout->shared_sum);
    command.elements = shared.bytes / PLAN_SUM_BYTES;
    plan_move_operand(&command, PLAN_AS_SHARED_SUM, PLAN_READS, shared);
    plan_move_operand(&command, PLAN_AS_SUM, PLAN_READS,
                      plan_move_part(step->sum, shape->elements * PLAN_SUM_BYTES));
    plan_move_operand(&command, PLAN_AS_GRAD, PLAN_CHANGES, whole_piece(step, block));
    return plan_builder_add(step->builder, &command);
}

/* `to` is this rank's part. */
static int reduce_codes(struct plan_step *step, uint32_t block, struct plan_piece from,
                        struct plan_piece to)
{
    struct plan_command command = plan_move_command(PLAN_REDUCE, PLAN_Q_COLL, block, PLAN_NONE);
    const uint64_t elements = step->input->blocks[block].elements;
    const uint64_t own = plan_state_span(step->input, block).count;
    const struct plan_piece codes = plan_move_part(step->layout->codes, plan_coded_bytes(elements));
    const bool in_place = from.buffer == to.buffer;
    command.packed = true;
    command.elements = elements;
    command.bytes = codes.bytes - plan_coded_bytes(own);
    const struct plan_span node = plan_node_span(step->input, elements);
    command.between_bytes = codes.bytes - plan_coded_bytes(node.first + node.count) +
                            plan_coded_bytes(node.first);
    plan_move_operand(&command, PLAN_AS_FROM, PLAN_READS, from);
    plan_move_operand(&command, PLAN_AS_TO, in_place ? PLAN_CHANGES : PLAN_WRITES, to);
    plan_move_operand(&command, PLAN_AS_CODES, PLAN_WRITES, codes);
    return plan_move_add(step, &command);
}

/* A rank gets the whole sum, or its own part. */
static int reduce(struct plan_step *step, uint32_t block)
{
    struct plan_piece whole = whole_piece(step, block);
    struct plan_piece to = whole;
    if (plan_shards_states(step->input)) {
        bool lands = step->input->budgets.device_is_host &&
                     plan_layout_moves_gradients(step->input);
        uint64_t first = plan_layout_gradient_first(step->input, block);
        to = lands ? own_piece(step, block, step->gradient, first)
                   : own_piece(step, block, whole.buffer, 0);
    }
    return plan_codes_gradients(step->input)
               ? reduce_codes(step, block, whole, to)
               : plan_move_together(step, PLAN_REDUCE, block, whole, to);
}

/* A GPU sums squares itself, so that the processor need not read the gradient. */
static int sums_of_squares(struct plan_step *step, uint32_t block)
{
    struct plan_span span = plan_state_span(step->input, block);
    const struct plan_block_layout *where = plan_move_block(step, block);
    const bool on_card = step->layout->tile_sums_card != PLAN_NONE;
    struct plan_command sums = plan_move_command(
        PLAN_SUMS, on_card ? PLAN_Q_COMPUTE : PLAN_Q_UPDATE, block, PLAN_NONE);
    uint64_t tile = where->first_tile + span.first / PLAN_TILE_ELEMENTS;
    struct plan_piece tiles = {.buffer = step->layout->tile_sums,
                               .offset = tile * PLAN_TILE_SUM_BYTES,
                               .bytes = plan_chunk_count(span.count, PLAN_TILE_ELEMENTS) *
                                        PLAN_TILE_SUM_BYTES};
    sums.elements = span.count;
    plan_move_operand(&sums, PLAN_AS_GRAD, PLAN_READS,
                      on_card ? own_piece(step, block, step->gradient_whole, 0)
                              : own_piece(step, block, step->gradient,
                                          plan_layout_gradient_first(step->input, block)));
    struct plan_piece made = tiles;
    made.buffer = on_card ? step->layout->tile_sums_card : tiles.buffer;
    plan_move_operand(&sums, PLAN_AS_TILE_SUMS, PLAN_WRITES, made);
    int rc = plan_builder_add(step->builder, &sums);
    return rc == 0 && on_card ? plan_move_copy(step, PLAN_D2H, block, made, tiles) : rc;
}

int plan_gradient_finish(struct plan_step *step, uint32_t block)
{
    uint64_t count = plan_state_span(step->input, block).count;
    int rc = 0;
    if (step->input->wishes.micro_batches > 1 && plan_move_block(step, block)->lends) {
        rc = shared_round(step, block);
    }
    if (rc == 0 && step->input->world > 1) {
        rc = reduce(step, block);
    }
    if (rc != 0 || count == 0) {
        return rc;
    }
    if (!step->input->budgets.device_is_host && !plan_move_block(step, block)->on_card) {
        uint64_t first = plan_layout_gradient_first(step->input, block);
        rc = plan_move_copy(step, PLAN_D2H, block, own_piece(step, block, step->gradient_whole, 0),
                            own_piece(step, block, step->gradient, first));
    }
    if (rc == 0) {
        rc = sums_of_squares(step, block);
    }
    if (rc == 0 && plan_move_block(step, block)->gradient_store != PLAN_NONE) {
        rc = plan_update_put_gradient(step, block);
    }
    return rc;
}

int plan_gradient_norm(struct plan_step *step)
{
    const struct plan_layout *layout = step->layout;
    struct plan_command command = plan_move_command(PLAN_NORM, PLAN_Q_UPDATE, PLAN_NONE, PLAN_NONE);
    bool apart = layout->tile_sums_all != PLAN_NONE;
    int rc = 0;
    if (apart) {
        rc = plan_move_together(step, PLAN_REDUCE, PLAN_NONE,
                                plan_move_whole(step, layout->tile_sums),
                                plan_move_whole(step, layout->tile_sums_all));
    }
    plan_move_operand(&command, PLAN_AS_TILE_SUMS, PLAN_READS,
                      plan_move_whole(step, apart ? layout->tile_sums_all : layout->tile_sums));
    plan_move_operand(&command, PLAN_AS_NORM, PLAN_WRITES, plan_move_whole(step, layout->norm));
    return rc == 0 ? plan_builder_add(step->builder, &command) : rc;
}
