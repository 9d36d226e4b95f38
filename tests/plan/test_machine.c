/* Proves that tapes, in orders that the edges allow, give the weights and states of simple
 * loops. */
#include <errno.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "offload/model/sections.h"
#include "offload/plan/layout.h"
#include "tests/harness/test.h"
#include "tests/plan/train.h"

/* Weights and gradients are in the application's memory, unless HOST is requested for gradients. */
static void applications_train(void)
{
    static const struct train_row rows[] = {
        {{PLAN_FIRST, PLAN_FIRST, PLAN_FIRST}, 3, 0},
        {{PLAN_FIRST, PLAN_DRAIN, PLAN_FIRST, PLAN_DRAIN, PLAN_FIRST, PLAN_DRAIN}, 6, 0}};
    for (uint64_t i = 0; i < TEST_COUNT(400, 60); i++) {
        struct world world;
        world_lend(&world, i * 7919);
        struct plan *plan = world_plan(&world);
        for (uint32_t b = 0; b < plan_buffer_count(plan); b++) {
            const struct plan_buffer *buffer = plan_buffer(plan, b);
            const bool lent = buffer->consumer == PLAN_FOR_WEIGHTS ||
                              (buffer->consumer == PLAN_FOR_GRADIENTS &&
                               world.input.wishes.grads == PLAN_WHERE_AUTO);
            check_int(buffer->tier == PLAN_APPLICATION, ==, lent);
        }
        check_int(plan_tier_bytes(plan, PLAN_DEVICE), ==, 0);
        plan_destroy(plan);
        train_machines(&world, &rows[world.input.wishes.may_clip], 2);
    }
}

static void what_an_application_cannot_have_is_refused(void)
{
    struct plan *plan = NULL;
    struct world world;
    world_lend(&world, 0);
    world.input.wishes.weights = PLAN_WHERE_HOST;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "places no weights");
    world_lend(&world, 0);
    world.input.wishes.grads = PLAN_WHERE_STORE;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "places no weights");
    world_lend(&world, 0);
    world.input.budgets.device_is_host = false;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "one rank on the CPU device");
    world_lend(&world, 0);
    world.input.wishes.timing = PLAN_TIMING_SPECULATIVE;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "updates wait for the norm");
    world_lend(&world, 0);
    world.input.block_count = world.input.compute_count = 0;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "needs a block");
}

static void tapes_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(400, 60); i++) {
        struct world world;
        train_vary(&world, i * 7919 + i / 3);
        train_as_timed(&world, i % 2 == 0, 2);
    }
}

static void guesses_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(400, 60); i++) {
        struct world world;
        train_vary(&world, i * 7919 + i / 3);
        struct plan_wishes *wishes = &world.input.wishes;
        wishes->timing = PLAN_TIMING_SPECULATIVE;
        wishes->may_clip = true;
        wishes->may_skip = i % 2 == 0;
        wishes->grads = wishes->grads == PLAN_WHERE_STORE ? PLAN_WHERE_AUTO : wishes->grads;
        world.input.world = i % 5 == 4 ? 2 : 1;
        world.input.stage = i % 5 == 4 ? (uint32_t)(i / 5 % 4) : 0;
        if (world.input.stage > 0 && !world.input.budgets.device_is_host &&
            wishes->weights == PLAN_WHERE_STORE) {
            wishes->weights = PLAN_WHERE_HOST;
        }
        train_machines(&world, train_row_for(wishes->timing, i), 2);
    }
}

/* Sections of one unit of a block's weights, or two in recomputation; backward begins with the last
 * unit. One section has no unit. */
struct cut {
    struct model_section list[3 * 8 + 1];
    struct model_range ranges[3 * 8];
    struct model_sections sections;
};

static void cut_block(struct cut *cut, struct world *world, uint32_t block, uint32_t source)
{
    const uint64_t unit = (uint64_t)UNIT * world->shapes[source].format.weight_bytes;
    const uint64_t stored_elements = world->shapes[source].stored_elements;
    const uint64_t kept = stored_elements > 0 ? stored_elements : world->shapes[source].elements;
    const uint64_t units = stored_elements > 0 ? plan_chunk_count(kept, UNIT) : kept / UNIT;
    struct model_range *range = cut->ranges;
    size_t count = 0;
    for (int pass = 0; pass < MODEL_PASS_COUNT; pass++) {
        const unsigned each = pass == MODEL_PASS_RECOMPUTE ? 2 : 1;
        cut->sections.first[pass] = count;
        for (uint64_t u = 0; u < units; u += each) {
            const uint64_t first = pass == MODEL_PASS_BACKWARD ? units - 1 - u : u;
            struct model_section *section = &cut->list[count++];
            *section = (struct model_section){
                .pass = (enum model_pass)pass, .share = 0.1, .ranges = range};
            for (uint64_t r = 0; r < each && first + r < units; r++) {
                const uint64_t left = kept - (first + r) * UNIT;
                const uint64_t bytes = left < UNIT ? left * unit / UNIT : unit;
                *range = (struct model_range){.first = (first + r) * unit,
                                              .bytes = core_round_up(bytes, PLAN_ALIGN_BYTES)};
                section->range_count++;
                section->bytes += range++->bytes;
                section->expanded_bytes += stored_elements > 0 ? unit : 0;
            }
        }
    }
    cut->list[count++] = (struct model_section){.pass = MODEL_PASS_BACKWARD};
    cut->sections.first[MODEL_PASS_COUNT] = count;
    cut->sections.list = cut->list;
    cut->sections.bytes = 2 * unit;
    cut->sections.expanded_bytes = stored_elements > 0 ? 2 * unit : 0;
    world->shapes[block].sections = &cut->sections;
    world->shapes[block].source = source;
}

/* Gives sections to some blocks: of their own weights, or of the block that they borrow last. If
 * that is the embedding, its rows are read separately. */
static void cut_blocks(struct world *world, struct cut cuts[BLOCKS], uint64_t number)
{
    for (uint32_t b = 1; b < BLOCKS; b++) {
        const struct plan_block_shape *shape = &world->shapes[b];
        const uint32_t source = shape->borrow_count > 0 ? shape->borrows[shape->borrow_count - 1]
                                                        : b;
        const bool lent = source == 0 && world->shapes[0].trained;
        if (!lent && (number + b) % 3 > 0) {
            cut_block(&cuts[b], world, b, source);
            world->shapes[source].rows_bytes = source == 0 ? 3 * 4096 : 0;
        }
    }
}

/* Blocks that borrow weights from data blocks train. */
static void borrowers_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(200, 40); i++) {
        struct world world;
        train_vary(&world, i * 7919 + i / 3);
        struct plan_wishes *wishes = &world.input.wishes;
        for (uint32_t b = 0; b < BLOCKS; b++) {
            const bool some = i % 3 == 0 || (i * 37 + b * 11) % 5 > 1;
            const bool lender = b == 0 && world.shapes[BLOCKS - 1].borrow_count > 0;
            if (some && world.shapes[b].borrow_count < PLAN_BORROWS_MAX) {
                world_add_data(&world, b, (i % 2 + 1) * 2 * UNIT);
                world.shapes[b].elements = lender || i % 4 == 0 ? world.shapes[b].elements : 128;
            }
        }
        world.input.world = i % 5 == 4 ? 2 : 1;
        world.input.stage = i % 5 == 4 ? (uint32_t)(i / 5 % 4) : 0;
        if (world.input.stage > 0 && !world.input.budgets.device_is_host &&
            wishes->weights == PLAN_WHERE_STORE) {
            wishes->weights = PLAN_WHERE_HOST;
        }
        struct cut cuts[BLOCKS];
        cut_blocks(&world, cuts, i);
        train_machines(&world, train_row_for(wishes->timing, i), 2);
    }
}

static void frozen_blocks_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(64, 16); i++) {
        struct world world;
        train_vary(&world, i * 104729);
        for (uint32_t b = 0; b < BLOCKS; b++) {
            world.shapes[b].trained = (i * 37 + b * 11) % 5 > 1;
        }
        world.shapes[3].trained = true;
        if (!world.shapes[0].trained && world.shapes[BLOCKS - 1].borrow_count == 0 && i % 8 > 1) {
            world.shapes[0].rows_bytes = 3 * 4096;
        }
        struct cut cuts[BLOCKS];
        cut_blocks(&world, cuts, i);
        train_as_timed(&world, true, 1);
    }
}

/* Frozen blocks stored in fewer bits give right results, with and without sections. */
static void stored_blocks_train(void)
{
    uint32_t expanded[2] = {0, 0};
    for (uint64_t i = 0; i < TEST_COUNT(128, 24); i++) {
        struct world world;
        train_vary(&world, i * 15485863);
        train_store_blocks(&world, i % 3 == 0);
        struct cut cuts[BLOCKS];
        cut_blocks(&world, cuts, i);
        world.input.world = i % 4 == 3 ? 2 : 1;
        world.input.stage = i % 4 == 3 ? (uint32_t)(i / 4 % 4) : 0;
        if (world.input.stage > 0 && world.input.stage < 3 && !world.input.budgets.device_is_host &&
            world.input.wishes.weights == PLAN_WHERE_STORE) {
            world.input.wishes.weights = PLAN_WHERE_HOST;
        }
        train_as_timed(&world, i % 2 == 0, 1);
        struct plan *plan = world_plan(&world);
        const struct plan_tape *tape = plan_tape(plan, PLAN_KIND_COUNT, PLAN_FIRST);
        for (uint32_t c = 0; c < tape->count; c++) {
            expanded[tape->commands[c].section != NULL] += tape->commands[c].op == PLAN_EXPAND;
        }
        plan_destroy(plan);
    }
    check_uint(expanded[0], >, 0);
    check_uint(expanded[1], >, 0);
}

/* Reads and slots have the size of stored weights; one slot suffices for expanded weights. */
static void stored_blocks_are_small(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.budgets.device_is_host = true;
    world.input.wishes.weights = PLAN_WHERE_STORE;
    world.input.wishes.weight_slots = 3;
    for (uint32_t b = 1; b + 1 < BLOCKS; b++) {
        world.shapes[b].trained = false;
        world.shapes[b].stored_elements = UNIT + 64;
    }
    struct plan *plan = world_plan(&world);
    const struct plan_layout *layout = plan_layout_of(plan);
    check_uint(layout->weights.counts[PLAN_LAYER], ==, 1);
    check_uint(layout->stored.counts[PLAN_LAYER], ==, 3);
    check_uint(plan_buffer(plan, layout->stored.buffers[PLAN_LAYER][0])->bytes, ==, 33 * 4096);
    const struct plan_tape *tape = plan_tape(plan, PLAN_KIND_COUNT, PLAN_FIRST);
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < tape->count; c++) {
        const struct plan_command *command = &tape->commands[c];
        const bool layer = command->block > 0 && command->block + 1 < BLOCKS;
        bytes += command->op == PLAN_READ && layer ? command->bytes : 0;
    }
    /* The weights of the last layer are still in a slot in the backward pass. */
    check_uint(bytes, ==, (2 * LAYERS - 1) * UINT64_C(2) * (UNIT + 64));
    plan_destroy(plan);
    world.shapes[1].trained = true;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "must be frozen");
}

static void budgets_train(void)
{
    for (uint64_t mib = 8; mib <= 64; mib += TEST_COUNT(2, 8)) {
        struct world world;
        train_vary(&world, mib * 31);
        struct plan_wishes *wishes = &world.input.wishes;
        *wishes = (struct plan_wishes){.micro_batches = wishes->micro_batches,
                                       .may_clip = wishes->may_clip,
                                       .chunk_elements = wishes->chunk_elements};
        world.input.budgets.joint_bytes = mib << 20;
        struct plan *plan = NULL;
        if (plan_create(&world.input, &plan) == -EFBIG) {
            continue;
        }
        enum plan_timing timing = plan_chosen_timing(plan);
        plan_destroy(plan);
        train_machines(&world, train_row_for(timing, mib / 2), 2);
    }
}

/* Gives the world a GPU that updates the blocks whose states it has. */
static void give_card(struct world *world)
{
    world->input.budgets.device_is_host = false;
    world->input.rates.card_update_elements = 5e10;
    world->input.rates.card_sums_elements = 1e11;
}

static uint32_t blocks_on_card(const struct plan *plan)
{
    uint32_t count = 0;
    for (uint32_t b = 0; b < BLOCKS; b++) {
        count += plan_block_place(plan, b)->states == PLAN_DEVICE;
    }
    return count;
}

static void cards_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(100, 30); i++) {
        struct world world;
        train_vary(&world, i * 7919 + i / 3);
        give_card(&world);
        struct plan_wishes *wishes = &world.input.wishes;
        wishes->states = PLAN_WHERE_DEVICE;
        wishes->weights = i % 2 == 0 ? PLAN_WHERE_DEVICE : PLAN_WHERE_AUTO;
        wishes->grads = i % 3 == 0 ? PLAN_WHERE_DEVICE : PLAN_WHERE_AUTO;
        world.shapes[i % BLOCKS].trained = i % 4 != 1;
        train_as_timed(&world, i % 2 == 0, 2);
    }
}

/* The GPU updates the blocks that fit in its memory, and the CPU the others. */
static void cards_share(void)
{
    uint32_t shared = 0;
    for (uint64_t mib = 20; mib <= 44; mib += 12) {
        for (uint32_t i = 0; i < 3; i++) {
            struct world world;
            struct plan *plan = NULL;
            world_init(&world, i == 1, 1 + i);
            give_card(&world);
            world.input.wishes.may_clip = i != 2;
            world.input.budgets.device_bytes = mib << 20;
            world.input.budgets.host_bytes = mib << 20;
            world.input.budgets.store_bytes = i == 1 ? UINT64_C(1) << 40 : 0;
            if (plan_create(&world.input, &plan) == -EFBIG) {
                continue;
            }
            const uint32_t count = blocks_on_card(plan);
            const enum plan_timing timing = plan_chosen_timing(plan);
            shared += count > 0 && count < BLOCKS;
            plan_destroy(plan);
            train_machines(&world, train_row_for(timing, mib / 4), 1);
        }
    }
    check_int(shared, >=, 3);
}

/* A GPU computes the sums of squares of gradients in its memory. With two ranks, or an unknown
 * rate, the processor computes them. */
static void cards_sum_what_they_made(void)
{
    for (int way = 0; way < 3; way++) {
        struct world world;
        world_init(&world, false, 1);
        give_card(&world);
        world.shapes[2].trained = false;
        world.input.wishes.states = PLAN_WHERE_HOST;
        world.input.world = way == 1 ? 2 : 1;
        world.input.rates.card_sums_elements = way == 2 ? 0 : 1e11;
        struct plan *plan = world_plan(&world);
        const struct plan_tape *tape = plan_tape(plan, PLAN_NEXT, PLAN_NEXT);
        const struct plan_layout *layout = plan_layout_of(plan);
        uint32_t count = 0;
        check_int(blocks_on_card(plan), ==, 0);
        for (uint32_t i = 0; i < tape->count; i++) {
            const struct plan_command *command = &tape->commands[i];
            if (command->op == PLAN_SUMS) {
                const struct plan_operand *grad = plan_command_operand(command, PLAN_AS_GRAD);
                const enum plan_tier tier = plan_buffer(plan, grad->buffer)->tier;
                check_int(command->queue, ==, way == 0 ? PLAN_Q_COMPUTE : PLAN_Q_UPDATE);
                check_int(tier, ==, way == 0 ? PLAN_DEVICE : PLAN_HOST);
                count++;
            }
        }
        check_uint(count, ==, BLOCKS - 1);
        check_int(layout->tile_sums_card != PLAN_NONE, ==, way == 0);
        plan_destroy(plan);
    }
    for (uint64_t i = 0; i < TEST_COUNT(60, 20); i++) {
        struct world world;
        train_vary(&world, i * 7919 + i / 3);
        give_card(&world);
        world.input.wishes.states = i % 2 == 0 ? PLAN_WHERE_HOST : PLAN_WHERE_AUTO;
        if (world.input.wishes.grads == PLAN_WHERE_DEVICE) {
            world.input.wishes.grads = PLAN_WHERE_AUTO;
        }
        train_as_timed(&world, true, 2);
    }
}

/* Gradients and weights on the GPU do not cross the link. */
static void cards_keep_what_is_theirs(void)
{
    struct world world;
    world_init(&world, false, 1);
    give_card(&world);
    world.input.wishes.states = PLAN_WHERE_DEVICE;
    struct plan *plan = world_plan(&world);
    const struct plan_tape *tape = plan_tape(plan, PLAN_NEXT, PLAN_NEXT);
    const struct plan_traffic traffic = plan_tape_traffic(tape);
    check_int(blocks_on_card(plan), ==, BLOCKS);
    check_int(traffic.up_bytes, ==, 0);
    check_int(traffic.down_bytes, ==, world_parameters(&world) / UNIT * PLAN_TILE_SUM_BYTES);
    check_int(tape->queue_count[PLAN_Q_UPDATE], ==, 1); /* the norm */
    plan_destroy(plan);
}

TEST_MAIN({"tapes_train", tapes_train}, {"applications_train", applications_train},
          {"what_an_application_cannot_have_is_refused",
           what_an_application_cannot_have_is_refused},
          {"guesses_train", guesses_train}, {"borrowers_train", borrowers_train},
          {"frozen_blocks_train", frozen_blocks_train},
          {"stored_blocks_train", stored_blocks_train},
          {"stored_blocks_are_small", stored_blocks_are_small}, {"budgets_train", budgets_train},
          {"cards_train", cards_train}, {"cards_share", cards_share},
          {"cards_sum_what_they_made", cards_sum_what_they_made},
          {"cards_keep_what_is_theirs", cards_keep_what_is_theirs})
