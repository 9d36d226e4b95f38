/* Proves that tapes train: in program order and in many orders that the edges allow, on one rank
 * and on several, they give the weights and states that simple loops give, wherever the data is
 * kept. */
#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "offload/model/sections.h"
#include "offload/plan/layout.h"
#include "tests/harness/test.h"
#include "tests/plan/machine.h"
#include "tests/plan/order.h"
#include "tests/plan/world.h"

struct row {
    enum plan_kind kinds[6];
    uint32_t count;
    uint32_t wrong; /* bit s: the guess of step s is wrong */
};

static bool is_step(enum plan_kind kind)
{
    return kind != PLAN_DRAIN && kind != PLAN_EVAL;
}

static bool is_guess(enum plan_kind kind)
{
    return kind == PLAN_GUESS || kind == PLAN_GUESS_NEXT;
}

struct ranks {
    struct world worlds[MACHINE_RANKS_MAX];
    struct plan *plans[MACHINE_RANKS_MAX];
    struct machine *machines[MACHINE_RANKS_MAX];
    struct order orders[MACHINE_RANKS_MAX];
    struct row row;
    uint32_t world;
    uint64_t sent_bytes; /* by rank 0 */
};

static uint32_t step_of(const struct row *row, uint32_t tape)
{
    uint32_t step = 0;
    for (uint32_t t = 0; t < tape; t++) {
        step += is_step(row->kinds[t]);
    }
    return row->kinds[tape] == PLAN_DRAIN ? step - 1 : step;
}

static void do_one(struct ranks *ranks, uint32_t rank, int queue)
{
    struct order *order = &ranks->orders[rank];
    const uint32_t tape = order->tape[queue];
    machine_do(ranks->machines[rank], order_at(order, queue), ranks->row.kinds[tape],
               step_of(&ranks->row, tape));
    order_done(order, queue);
}

/* A collective starts when every rank has reached it; a join belongs to one rank. */
static bool do_together(struct ranks *ranks)
{
    const struct plan_command *commands[MACHINE_RANKS_MAX] = {NULL};
    for (uint32_t r = 0; r < ranks->world; r++) {
        struct order *order = &ranks->orders[r];
        if (order_ready(order, PLAN_Q_COLL) && order_at(order, PLAN_Q_COLL)->op == PLAN_JOIN) {
            order_done(order, PLAN_Q_COLL);
            return true;
        }
    }
    for (uint32_t r = 0; r < ranks->world; r++) {
        if (!order_ready(&ranks->orders[r], PLAN_Q_COLL)) {
            return false;
        }
        commands[r] = order_at(&ranks->orders[r], PLAN_Q_COLL);
    }
    const uint32_t tape = ranks->orders[0].tape[PLAN_Q_COLL];
    ranks->sent_bytes += machine_do_together(ranks->machines, ranks->world, commands,
                                             step_of(&ranks->row, tape));
    for (uint32_t r = 0; r < ranks->world; r++) {
        order_done(&ranks->orders[r], PLAN_Q_COLL);
    }
    return true;
}

static uint32_t commands_left(const struct ranks *ranks)
{
    uint32_t left = 0;
    for (uint32_t r = 0; r < ranks->world; r++) {
        for (uint32_t t = 0; t < ranks->row.count; t++) {
            left += ranks->orders[r].left[t];
        }
    }
    return left;
}

static void run(struct ranks *ranks, uint64_t seed)
{
    uint32_t turn = 0;
    uint32_t idle = 0;
    for (uint32_t r = 0; r < ranks->world; r++) {
        order_begin(&ranks->orders[r]);
    }
    while (commands_left(ranks) > 0) {
        uint32_t r = turn / 8 % ranks->world;
        int queue = order_draw(&ranks->orders[r], seed + r, turn++);
        if (queue >= 0 && queue != PLAN_Q_COLL) {
            do_one(ranks, r, queue);
            idle = 0;
        } else if (do_together(ranks)) {
            idle = 0;
        } else if (++idle > 100000) {
            test_fail(__FILE__, __LINE__, "seed %" PRIu64 ": %u commands wait for each other", seed,
                      commands_left(ranks));
        }
    }
}

static void ranks_begin(struct ranks *ranks, const struct world *world, const struct row *row)
{
    ranks->world = world->input.world > 1 ? world->input.world : 1;
    ranks->row = *row;
    for (uint32_t r = 0; r < ranks->world; r++) {
        ranks->worlds[r] = *world;
        ranks->worlds[r].input.blocks = ranks->worlds[r].shapes;
        ranks->worlds[r].input.rank = r;
        ranks->plans[r] = world_plan(&ranks->worlds[r]);
        enum plan_kind before = PLAN_KIND_COUNT;
        ranks->orders[r].tape_count = row->count;
        for (uint32_t t = 0; t < row->count; t++) {
            ranks->orders[r].tapes[t] = plan_tape(ranks->plans[r], before, row->kinds[t]);
            check_true(ranks->orders[r].tapes[t] != NULL);
            ranks->orders[r].guesses[t] = is_guess(row->kinds[t]);
            before = row->kinds[t];
        }
    }
}

static void ranks_end(struct ranks *ranks)
{
    for (uint32_t r = 0; r < ranks->world; r++) {
        plan_destroy(ranks->plans[r]);
    }
}

/* The steps whose updates need their norm. */
static uint32_t by_norm(const struct row *row, enum plan_timing timing)
{
    uint32_t mask = timing == PLAN_TIMING_DEFERRED || timing == PLAN_TIMING_SPECULATIVE ? 0xff : 0;
    for (uint32_t t = 0; t < row->count; t++) {
        uint32_t bit = 1u << step_of(row, t);
        if (is_guess(row->kinds[t]) && (row->wrong & bit) == 0) {
            mask &= ~bit;
        }
    }
    return mask;
}

static void train(const struct world *world, const struct row *row, int seeds)
{
    struct ranks *ranks = calloc(1, sizeof *ranks);
    ranks_begin(ranks, world, row);
    struct machine_truth *truth = machine_truth_create(
        &ranks->worlds[0].input, by_norm(row, plan_chosen_timing(ranks->plans[0])));
    uint32_t updates = step_of(row, row->count - 1) + 1;
    for (int seed = 1; seed <= seeds; seed++) {
        for (uint32_t r = 0; r < ranks->world; r++) {
            ranks->machines[r] = machine_create(&ranks->worlds[r].input, ranks->plans[r], truth);
        }
        run(ranks, (uint64_t)seed);
        for (uint32_t r = 0; r < ranks->world; r++) {
            machine_check(ranks->machines[r], updates);
            machine_destroy(ranks->machines[r]);
        }
    }
    machine_truth_destroy(truth);
    ranks_end(ranks);
    free(ranks);
}

static const struct row drained = {{PLAN_FIRST, PLAN_NEXT, PLAN_NEXT, PLAN_DRAIN}, 4, 0};
static const struct row evaluated = {
    {PLAN_FIRST, PLAN_DRAIN, PLAN_EVAL, PLAN_FIRST, PLAN_NEXT, PLAN_DRAIN}, 6, 0};
static const struct row inside = {{PLAN_FIRST, PLAN_FIRST, PLAN_EVAL, PLAN_FIRST}, 4, 0};

/* Right and wrong guesses after each other, after steps that defer, and before everything that can
 * follow. */
static const struct row guessed[] = {
    {{PLAN_GUESS, PLAN_GUESS, PLAN_EVAL, PLAN_GUESS}, 4, 0},
    {{PLAN_GUESS, PLAN_GUESS_NEXT, PLAN_FIRST, PLAN_NEXT, PLAN_DRAIN}, 5, 1},
    {{PLAN_FIRST, PLAN_GUESS_NEXT, PLAN_NEXT, PLAN_DRAIN}, 4, 2},
    {{PLAN_GUESS, PLAN_GUESS_NEXT, PLAN_GUESS_NEXT, PLAN_GUESS}, 4, 3},
    {{PLAN_GUESS, PLAN_DRAIN, PLAN_EVAL, PLAN_GUESS, PLAN_FIRST, PLAN_DRAIN}, 6, 1},
    {{PLAN_FIRST, PLAN_GUESS_NEXT, PLAN_GUESS, PLAN_NEXT, PLAN_DRAIN}, 5, 4},
};
enum { GUESSED = sizeof guessed / sizeof guessed[0] };

static const struct row *row_for(enum plan_timing timing, uint64_t i)
{
    return timing == PLAN_TIMING_INSIDE        ? &inside
           : timing == PLAN_TIMING_SPECULATIVE ? &guessed[i % GUESSED]
           : i % 2 == 0                        ? &drained
                                               : &evaluated;
}

static void vary(struct world *world, uint64_t number)
{
    uint32_t v = (uint32_t)number;
    bool tied = world_digit(&v, 2);
    world_init(world, tied, world_digit(&v, 2) ? 3 : 1);
    struct plan_wishes *wishes = &world->input.wishes;
    static const enum plan_where weights[] = {PLAN_WHERE_DEVICE, PLAN_WHERE_HOST, PLAN_WHERE_STORE};
    static const enum plan_timing timings[] = {PLAN_TIMING_DEFERRED, PLAN_TIMING_INSIDE,
                                               PLAN_TIMING_SPLIT};
    wishes->timing = timings[world_digit(&v, 3)];
    wishes->may_clip = wishes->timing == PLAN_TIMING_DEFERRED;
    wishes->order = world_digit(&v, 2) ? PLAN_ORDER_MICRO : PLAN_ORDER_LAYER;
    world->input.budgets.device_is_host = world_digit(&v, 2);
    world_set_grad_bytes(world, world_digit(&v, 2) ? 4 : 2);
    wishes->acts = (enum plan_acts)(PLAN_ACTS_KEEP + world_digit(&v, 4));
    wishes->weights = weights[world_digit(&v, 3)];
    wishes->states = world_digit(&v, 3) == 0 ? PLAN_WHERE_HOST : PLAN_WHERE_STORE;
    if (wishes->states == PLAN_WHERE_HOST && world->input.budgets.device_is_host && v % 2 == 0) {
        wishes->states = PLAN_WHERE_DEVICE;
        wishes->grads = PLAN_WHERE_DEVICE;
    }
    bool may_send = wishes->timing == PLAN_TIMING_DEFERRED &&
                    (wishes->order == PLAN_ORDER_LAYER || wishes->micro_batches == 1);
    if (may_send && world_digit(&v, 3) == 0) {
        wishes->grads = PLAN_WHERE_STORE;
    }
    static const uint64_t ends[] = {8, 5, 1};
    world->shapes[0].elements = ends[number % 3] * UNIT;
    if (tied) {
        world->shapes[BLOCKS - 1].shared_elements = (number % 3 == 2 ? 1 : 4) * UNIT;
        world->shapes[BLOCKS - 1].elements = number % 2 == 0 ? 128 : ends[number % 3] * UNIT;
    }
    wishes->weight_slots = 2 + world_digit(&v, 3);
    wishes->state_slots = 1 + world_digit(&v, 3);
    wishes->chunk_elements = (1 + world_digit(&v, 3)) * UNIT;
    if (number % 3 == 0) {
        world_mix_formats(world);
    }
}

/* An application computes: its gradients and weights are in no tier, and its updates are made inside its
 * backward or when the norm is known. */
static void applications_train(void)
{
    static const struct row rows[] = {
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
        train(&world, &rows[world.input.wishes.may_clip], 2);
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

/* Goes through all wishes: each number of a long sequence of variants is one run of a machine. */
static void tapes_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(400, 60); i++) {
        struct world world;
        vary(&world, i * 7919 + i / 3);
        bool is_inside = world.input.wishes.timing == PLAN_TIMING_INSIDE;
        train(&world, is_inside ? &inside : i % 2 == 0 ? &drained : &evaluated, 2);
    }
}

/* The same with two generations of everything that updates overwrite, on one rank and on
 * several. */
static void guesses_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(400, 60); i++) {
        struct world world;
        vary(&world, i * 7919 + i / 3);
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
        train(&world, row_for(wishes->timing, i), 2);
    }
}

/* Each section has one unit of the block's weights, two in recomputation, from the last one on in backward; one
 * has none. */
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

/* Gives sections to some blocks: of their own weights, which may be trained, of a data block, or of the embedding, which is then read
 * by rows for itself. */
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

/* Blocks of which the most part is in a data block that they borrow, in every place, on one rank and on
 * several: the tiny arrays are trained as all others, and the data never changes. */
static void borrowers_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(200, 40); i++) {
        struct world world;
        vary(&world, i * 7919 + i / 3);
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
        train(&world, row_for(wishes->timing, i), 2);
    }
}

/* Frozen blocks, at the bottom and in the middle, do not affect anything else. */
static void frozen_blocks_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(64, 16); i++) {
        struct world world;
        vary(&world, i * 104729);
        for (uint32_t b = 0; b < BLOCKS; b++) {
            world.shapes[b].trained = (i * 37 + b * 11) % 5 > 1;
        }
        world.shapes[3].trained = true;
        if (!world.shapes[0].trained && world.shapes[BLOCKS - 1].borrow_count == 0 && i % 8 > 1) {
            world.shapes[0].rows_bytes = 3 * 4096;
        }
        struct cut cuts[BLOCKS];
        cut_blocks(&world, cuts, i);
        bool is_inside = world.input.wishes.timing == PLAN_TIMING_INSIDE;
        train(&world, is_inside ? &inside : &drained, 1);
    }
}

/* Frozen layers in fewer bits; `some` are trained and borrow a data block that is. */
static void store_blocks(struct world *world, bool some)
{
    for (uint32_t b = 1; b + 1 < BLOCKS; b++) {
        world->shapes[b].trained = some && b % 3 == 0;
        world->shapes[b].stored_elements = world->shapes[b].trained ? 0 : UNIT * 5 / 4 + 16;
        if (world->shapes[b].trained) {
            world_add_data(world, b, 4 * UNIT);
            world->shapes[world->input.block_count - 1].stored_elements = UNIT + 32;
        }
    }
    world->input.rates.expand_elements = 1e9;
}

/* Frozen blocks that are stored in fewer bits, wherever they are kept, on one rank and on several; some come by
 * sections. */
static void stored_blocks_train(void)
{
    uint32_t expanded[2] = {0, 0};
    for (uint64_t i = 0; i < TEST_COUNT(128, 24); i++) {
        struct world world;
        vary(&world, i * 15485863);
        store_blocks(&world, i % 3 == 0);
        struct cut cuts[BLOCKS];
        cut_blocks(&world, cuts, i);
        world.input.world = i % 4 == 3 ? 2 : 1;
        world.input.stage = i % 4 == 3 ? (uint32_t)(i / 4 % 4) : 0;
        if (world.input.stage > 0 && world.input.stage < 3 && !world.input.budgets.device_is_host &&
            world.input.wishes.weights == PLAN_WHERE_STORE) {
            world.input.wishes.weights = PLAN_WHERE_HOST;
        }
        bool is_inside = world.input.wishes.timing == PLAN_TIMING_INSIDE;
        train(&world, is_inside ? &inside : i % 2 == 0 ? &drained : &evaluated, 1);
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

/* Only the stored form of a block is read, and slots for it have that size. One slot is enough for
 * expanded weights. */
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
    /* Forward reads each block once. Backward reads all of them again except the last one, whose
     * weights are still in the slot. */
    check_uint(bytes, ==, (2 * LAYERS - 1) * UINT64_C(2) * (UNIT + 64));
    plan_destroy(plan);
    world.shapes[1].trained = true;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "must be frozen");
}

/* All kinds of placement that result from memory between the smallest and ample. */
static void budgets_train(void)
{
    for (uint64_t mib = 8; mib <= 64; mib += TEST_COUNT(2, 8)) {
        struct world world;
        vary(&world, mib * 31);
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
        train(&world, row_for(timing, mib / 2), 2);
    }
}

/* Two and four ranks at every stage, with data in all tiers: the combined result of all ranks. */
static void ranks_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(240, 40); i++) {
        struct world world;
        vary(&world, i * 7919 + i / 3);
        world.input.world = i % 2 == 0 ? 2 : 4;
        world.input.stage = (uint32_t)(i / 2 % 4);
        bool half = world.input.stage == 1 || world.input.stage == 2;
        if (half && !world.input.budgets.device_is_host &&
            world.input.wishes.weights == PLAN_WHERE_STORE) {
            world.input.wishes.weights = PLAN_WHERE_HOST;
        }
        bool is_inside = world.input.wishes.timing == PLAN_TIMING_INSIDE;
        train(&world, is_inside ? &inside : i % 3 == 0 ? &drained : &evaluated, 1);
    }
}

/* The same with weights that ranks gather packed, except those of 32 bits: all compute with the rounded ones, and updates
 * change the exact ones, wherever these are. */
static void packed_ranks_train(void)
{
    uint32_t packed = 0;
    for (uint64_t i = 0; i < TEST_COUNT(120, 24); i++) {
        struct world world;
        vary(&world, i * 7919 + i / 3);
        world.input.budgets.device_is_host = true;
        world.input.world = i % 2 == 0 ? 2 : 4;
        world.input.stage = 3;
        world.input.packs = true;
        bool is_inside = world.input.wishes.timing == PLAN_TIMING_INSIDE;
        train(&world, is_inside ? &inside : i % 3 == 0 ? &drained : &evaluated, 1);
        struct plan *plan = world_plan(&world);
        const struct plan_tape *tape = plan_tape(plan, PLAN_KIND_COUNT, PLAN_FIRST);
        for (uint32_t c = 0; c < tape->count; c++) {
            packed += tape->commands[c].op == PLAN_EXPAND && tape->commands[c].packed;
        }
        plan_destroy(plan);
    }
    check_uint(packed, >, 0);
}

/* The same with gradients that ranks exchange as codes: each rank's is rounded, once, after its last micro-batch. */
static void coded_ranks_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(120, 24); i++) {
        struct world world;
        vary(&world, i * 7919 + i / 3);
        world.input.budgets.device_is_host = true;
        world.input.world = i % 2 == 0 ? 2 : 4;
        world.input.stage = 1 + (uint32_t)(i / 2 % 3);
        world.input.codes = true;
        world.input.packs = i % 5 == 0;
        bool is_inside = world.input.wishes.timing == PLAN_TIMING_INSIDE;
        train(&world, is_inside ? &inside : i % 3 == 0 ? &drained : &evaluated, 1);
    }
}

/* Counts the gathers of a tape within groups, and those of a block after its first one that are not. */
static uint32_t count_within(const struct plan *plan, uint32_t *others)
{
    const struct plan_tape *tape = plan_tape(plan, PLAN_KIND_COUNT, PLAN_FIRST);
    bool gathered[2 * BLOCKS] = {false};
    uint32_t count = 0;
    for (uint32_t c = 0; c < tape->count; c++) {
        const struct plan_command *command = &tape->commands[c];
        if (command->op == PLAN_GATHER && !command->pages) {
            count += command->within > 0;
            *others += gathered[command->block] && command->within == 0;
            gathered[command->block] = true;
        }
    }
    return count;
}

/* Groups of ranks that keep a copy of what the first gather of a step brought: whole weights, stored ones and packed
 * ones, in layer-major and in micro-major order. No block is gathered from all ranks twice in a step. */
static void groups_train(void)
{
    uint32_t within = 0;
    uint32_t others = 0;
    for (uint64_t i = 0; i < TEST_COUNT(160, 32); i++) {
        struct world world;
        vary(&world, i * 7919 + i / 3);
        world.input.budgets.device_is_host = true;
        world.input.world = 4;
        world.input.within = 2;
        world.input.local = i % 3 == 0 ? 4 : 2;
        world.input.stage = 3;
        world.input.packs = i % 4 == 1;
        world.shapes[i % BLOCKS].trained = i % 5 != 2;
        if (i % 7 == 3) {
            store_blocks(&world, i % 2 == 0);
        }
        bool is_inside = world.input.wishes.timing == PLAN_TIMING_INSIDE;
        train(&world, is_inside ? &inside : i % 3 == 0 ? &drained : &evaluated, 1);
        struct plan *plan = world_plan(&world);
        within += count_within(plan, &others);
        plan_destroy(plan);
    }
    check_uint(within, >, 100);
    check_uint(others, ==, 0);
}

/* The copy takes its part of the model in HOST. Bytes between nodes are those of shards of other nodes, once. */
static void groups_gather_inside(void)
{
    struct world world;
    struct plan *plan = NULL;
    uint64_t host[2];
    world_init(&world, false, 1);
    world.input.budgets.device_is_host = true;
    world.input.world = 4;
    world.input.rank = 3; /* predictions are those of the last rank */
    world.input.local = 2;
    world.input.stage = 3;
    world.input.wishes.weights = PLAN_WHERE_HOST;
    world.input.wishes.weight_slots = 2;
    for (uint32_t within = 0; within <= 2; within += 2) {
        world.input.within = within;
        plan = world_plan(&world);
        const struct plan_tape *tape = plan_tape(plan, plan_steady(plan), plan_steady(plan));
        const struct plan_traffic traffic = plan_tape_traffic(tape);
        uint64_t once = 0; /* elements of the other node's shards that the rank receives */
        uint64_t again = 0;
        for (uint32_t c = 0; c < tape->count; c++) {
            const struct plan_command *command = &tape->commands[c];
            if (command->op == PLAN_GATHER) {
                const uint64_t all = command->elements;
                const uint64_t far = plan_shard_border(all, 4, 2);
                const bool copied = command->within > 0;
                once += copied ? 0 : far;
                again += copied;
                check_uint(command->between_bytes, ==, copied ? 0 : 2 * far);
                check_uint(command->bytes, ==,
                           2 * plan_shard_border(all, copied ? 2 : 4, copied ? 1 : 3));
            }
        }
        check_true((again > 0) == (within > 0));
        check_uint(traffic.gather_between_bytes, ==, 2 * once);
        check_uint(plan_predicted(plan)->gather_between_bytes, ==, traffic.gather_between_bytes);
        check_true(traffic.reduce_between_bytes > 0 &&
                   traffic.reduce_between_bytes < traffic.reduce_bytes);
        host[within / 2] = plan_tier_bytes(plan, PLAN_HOST);
        plan_destroy(plan);
    }
    uint64_t copies = 0;
    for (uint32_t b = 1; b + 1 < BLOCKS; b++) { /* embedding and head are used once */
        copies += core_round_up(2 * plan_copy_most(&world.input, b), PLAN_ALIGN_BYTES);
    }
    check_uint(host[1] - host[0], ==, copies);
    world.input.within = 3;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "groups of 3 ranks are not possible with 4 ranks");
    world.input.within = 2;
    world.input.budgets.device_is_host = false;
    check_int(plan_create(&world.input, &plan), ==, -ENOTSUP);
    check_contains(core_err_message(), "on the CPU device only");
}

/* The REDUCE of a block. */
static const struct plan_command *reduction(const struct plan_tape *tape, uint32_t block)
{
    uint32_t c = 0;
    while (tape->commands[c].op != PLAN_REDUCE || tape->commands[c].block != block) {
        c++;
    }
    return &tape->commands[c];
}

/* Gradients as codes take 33/32 of a quarter of their 16 bits, and one buffer holds those of any block. Stage 0
 * has none. A card is refused. */
static void coded_gradients_are_small(void)
{
    struct world world;
    struct plan *plan = NULL;
    check_uint(plan_coded_bytes(0), ==, 0);
    check_uint(plan_coded_bytes(1), ==, 132);
    check_uint(plan_coded_bytes(512), ==, 2 * 132);
    check_uint(plan_coded_bytes(UNIT + 300), ==, UNIT / 256 * 132 + 2 * 132);
    world_init(&world, false, 1);
    world.input.budgets.device_is_host = true;
    world.input.world = 2;
    for (uint32_t stage = 0; stage <= 3; stage++) {
        for (int codes = 0; codes <= 1; codes++) {
            const bool coded = codes == 1 && stage > 0;
            world.input.stage = stage;
            world.input.codes = codes == 1;
            plan = world_plan(&world);
            const struct plan_command *reduce = reduction(
                plan_tape(plan, PLAN_KIND_COUNT, PLAN_FIRST), 1);
            const uint32_t buffer = plan_layout_of(plan)->codes;
            uint64_t most = 0;
            for (uint32_t b = 0; b < BLOCKS; b++) {
                const uint64_t bytes = plan_coded_bytes(world.shapes[b].elements);
                most = bytes > most ? bytes : most;
            }
            check_true(reduce->packed == coded);
            check_true((buffer != PLAN_NONE) == coded);
            if (coded) {
                check_uint(plan_buffer(plan, buffer)->bytes, ==,
                           core_round_up(most, PLAN_ALIGN_BYTES));
                check_uint(reduce->bytes, ==,
                           3 * UNIT / 256 * 132); /* rank 0 has two of five cuts */
            } else if (stage > 0) {
                check_uint(reduce->bytes, ==, 2 * 3 * UNIT);
            }
            plan_destroy(plan);
        }
    }
    world.input.budgets.device_is_host = false;
    check_int(plan_create(&world.input, &plan), ==, -ENOTSUP);
    check_contains(core_err_message(), "gradients are reduced in 4 bits on the CPU device only");
}

/* The bytes that the first GATHER of a block receives. */
static uint64_t gathered_bytes(const struct plan_tape *tape, uint32_t block)
{
    uint32_t c = 0;
    while (tape->commands[c].op != PLAN_GATHER || tape->commands[c].block != block) {
        c++;
    }
    return tape->commands[c].bytes;
}

/* Packed weights are half of the bytes and a 64th more; so are the bytes that a rank receives, and slots for them are as
 * small. The shards of a block lie one after the other. A card is refused. */
static void packed_weights_are_small(void)
{
    struct world world;
    struct plan *plan = NULL;
    check_uint(plan_packed_bytes(512), ==, 512 + 64);
    check_uint(plan_packed_bytes(UNIT + 300), ==, UNIT + UNIT / 64 + 256 + 64 + 64 + 64);
    check_uint(plan_packed_bytes(0), ==, 0);
    world_init(&world, false, 1);
    world.input.budgets.device_is_host = true;
    world.input.world = 2;
    world.input.stage = 3;
    uint64_t bytes[2];
    for (int packs = 0; packs <= 1; packs++) {
        world.input.packs = packs == 1;
        plan = world_plan(&world);
        bytes[packs] = gathered_bytes(plan_tape(plan, PLAN_KIND_COUNT, PLAN_FIRST), 1);
        const struct plan_layout *layout = plan_layout_of(plan);
        check_true((layout->packed.counts[PLAN_LAYER] > 0) == (packs == 1));
        if (packs == 1) {
            check_uint(plan_buffer(plan, layout->packed.buffers[PLAN_LAYER][0])->bytes, ==,
                       core_round_up(5 * (UNIT + UNIT / 64), PLAN_ALIGN_BYTES));
        }
        plan_destroy(plan);
    }
    check_uint(bytes[0], ==, 2 * 3 * UNIT); /* rank 0 has two of five cuts */
    check_uint(bytes[1], ==, 3 * (UNIT + UNIT / 64));
    world.input.budgets.device_is_host = false;
    check_int(plan_create(&world.input, &plan), ==, -ENOTSUP);
    check_contains(core_err_message(), "on the CPU device only");
}

/* A GPU that updates the blocks that it holds. */
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

/* All states are on a GPU and updated there. */
static void cards_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(100, 30); i++) {
        struct world world;
        vary(&world, i * 7919 + i / 3);
        give_card(&world);
        struct plan_wishes *wishes = &world.input.wishes;
        wishes->states = PLAN_WHERE_DEVICE;
        wishes->weights = i % 2 == 0 ? PLAN_WHERE_DEVICE : PLAN_WHERE_AUTO;
        wishes->grads = i % 3 == 0 ? PLAN_WHERE_DEVICE : PLAN_WHERE_AUTO;
        world.shapes[i % BLOCKS].trained = i % 4 != 1;
        bool is_inside = wishes->timing == PLAN_TIMING_INSIDE;
        train(&world, is_inside ? &inside : i % 2 == 0 ? &drained : &evaluated, 2);
    }
}

/* The GPU updates what fits in its memory, the CPU the rest; if HOST is too small for the rest, the
 * GPU takes more. */
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
            train(&world, row_for(timing, mib / 4), 1);
        }
    }
    check_int(shared, >=, 3);
}

/* A GPU sums the squares of every gradient before the next backward pass may reuse its buffer, also of
 * those that the processor updates; with two ranks, or if the GPU's rate is unknown, the processor does. */
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
        vary(&world, i * 7919 + i / 3);
        give_card(&world);
        world.input.wishes.states = i % 2 == 0 ? PLAN_WHERE_HOST : PLAN_WHERE_AUTO;
        if (world.input.wishes.grads == PLAN_WHERE_DEVICE) {
            world.input.wishes.grads = PLAN_WHERE_AUTO;
        }
        const bool is_inside = world.input.wishes.timing == PLAN_TIMING_INSIDE;
        train(&world, is_inside ? &inside : &drained, 2);
    }
}

/* Gradients and weights of a block on the GPU do not cross the link. */
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

static uint64_t bytes_together(const struct plan_tape *tape)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < tape->count; i++) {
        bool counts = tape->commands[i].queue == PLAN_Q_COLL &&
                      tape->commands[i].block != PLAN_NONE;
        bytes += counts ? tape->commands[i].bytes : 0;
    }
    return bytes;
}

/* The bytes that each stage sends: about those of an all-reduce of the gradients in stages 0 to 2,
 * and at most half as much again in stage 3. The memory that it keeps: less with each stage. The
 * plans of all ranks have the same hash. */
static void stages_keep_their_promises(void)
{
    uint64_t bytes[4][PLAN_TIER_COUNT];
    for (uint32_t stage = 0; stage < 4; stage++) {
        struct world world;
        world_init(&world, false, 1);
        world.input.budgets.device_is_host = true;
        world.input.wishes.weights = PLAN_WHERE_DEVICE;
        world.input.wishes.states = PLAN_WHERE_HOST;
        world.input.wishes.weight_slots = 2;
        world.input.world = 4;
        world.input.stage = stage;
        uint64_t once = 2 * 2 * world_parameters(&world) / 4 * 3;
        uint64_t hash = 0;
        for (uint32_t r = 0; r < 4; r++) {
            world.input.rank = r;
            struct plan *plan = world_plan(&world);
            uint64_t sent = bytes_together(plan_tape(plan, PLAN_NEXT, PLAN_NEXT));
            check_double((double)sent, <=, (double)once * (stage == 3 ? 1.5 : 1) * 1.15);
            check_double((double)sent, >=, (double)once * (stage == 3 ? 0.75 : 0.85));
            check_true(r == 0 || plan_hash(plan) == hash);
            hash = plan_hash(plan);
            for (int t = 0; t < PLAN_TIER_COUNT; t++) {
                bytes[stage][t] = plan_tier_bytes(plan, (enum plan_tier)t);
            }
            plan_destroy(plan);
        }
        test_note("stage %u: device %" PRIu64 " host %" PRIu64, stage, bytes[stage][PLAN_DEVICE],
                  bytes[stage][PLAN_HOST]);
    }
    check_int(bytes[1][PLAN_HOST], <, bytes[0][PLAN_HOST] / 2);
    check_int(bytes[2][PLAN_HOST], <, bytes[1][PLAN_HOST]);
    check_int(bytes[3][PLAN_DEVICE], <, bytes[2][PLAN_DEVICE]);
}

TEST_MAIN({"tapes_train", tapes_train}, {"applications_train", applications_train},
          {"what_an_application_cannot_have_is_refused",
           what_an_application_cannot_have_is_refused},
          {"guesses_train", guesses_train}, {"ranks_train", ranks_train},
          {"stages_keep_their_promises", stages_keep_their_promises},
          {"borrowers_train", borrowers_train}, {"frozen_blocks_train", frozen_blocks_train},
          {"stored_blocks_train", stored_blocks_train},
          {"stored_blocks_are_small", stored_blocks_are_small}, {"budgets_train", budgets_train},
          {"cards_train", cards_train}, {"cards_share", cards_share},
          {"cards_sum_what_they_made", cards_sum_what_they_made},
          {"cards_keep_what_is_theirs", cards_keep_what_is_theirs}, {"groups_train", groups_train},
          {"groups_gather_inside", groups_gather_inside},
          {"packed_ranks_train", packed_ranks_train}, {"coded_ranks_train", coded_ranks_train},
          {"coded_gradients_are_small", coded_gradients_are_small},
          {"packed_weights_are_small", packed_weights_are_small})
