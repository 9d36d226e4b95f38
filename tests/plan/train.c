/* train.c: trains ranks on machines, with sequences of tapes. */
#include "tests/plan/train.h"

#include <stdlib.h>

#include "tests/harness/test.h"
#include "tests/plan/machine.h"
#include "tests/plan/order.h"

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
    struct train_row row;
    uint32_t world;
};

static uint32_t step_of(const struct train_row *row, uint32_t tape)
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

/* Runs a join of one rank, or a collective that every rank has reached. Returns whether a command
 * ran. */
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
    machine_do_together(ranks->machines, ranks->world, commands, step_of(&ranks->row, tape));
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

static void ranks_begin(struct ranks *ranks, const struct world *world, const struct train_row *row)
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

/* Returns the steps whose updates need their norm, as bits. */
static uint32_t by_norm(const struct train_row *row, enum plan_timing timing)
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

void train_machines(const struct world *world, const struct train_row *row, int seeds)
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

const struct train_row train_drained = {{PLAN_FIRST, PLAN_NEXT, PLAN_NEXT, PLAN_DRAIN}, 4, 0};
const struct train_row train_evaluated = {
    {PLAN_FIRST, PLAN_DRAIN, PLAN_EVAL, PLAN_FIRST, PLAN_NEXT, PLAN_DRAIN}, 6, 0};
const struct train_row train_inside = {{PLAN_FIRST, PLAN_FIRST, PLAN_EVAL, PLAN_FIRST}, 4, 0};

void train_as_timed(const struct world *world, bool drained, int seeds)
{
    const bool is_inside = world->input.wishes.timing == PLAN_TIMING_INSIDE;
    train_machines(world,
                   is_inside ? &train_inside
                   : drained ? &train_drained
                             : &train_evaluated,
                   seeds);
}

/* Rows with right and wrong guesses, after and before other kinds of steps. */
static const struct train_row guessed[] = {
    {{PLAN_GUESS, PLAN_GUESS, PLAN_EVAL, PLAN_GUESS}, 4, 0},
    {{PLAN_GUESS, PLAN_GUESS_NEXT, PLAN_FIRST, PLAN_NEXT, PLAN_DRAIN}, 5, 1},
    {{PLAN_FIRST, PLAN_GUESS_NEXT, PLAN_NEXT, PLAN_DRAIN}, 4, 2},
    {{PLAN_GUESS, PLAN_GUESS_NEXT, PLAN_GUESS_NEXT, PLAN_GUESS}, 4, 3},
    {{PLAN_GUESS, PLAN_DRAIN, PLAN_EVAL, PLAN_GUESS, PLAN_FIRST, PLAN_DRAIN}, 6, 1},
    {{PLAN_FIRST, PLAN_GUESS_NEXT, PLAN_GUESS, PLAN_NEXT, PLAN_DRAIN}, 5, 4},
};
enum { GUESSED = sizeof guessed / sizeof guessed[0] };

const struct train_row *train_row_for(enum plan_timing timing, uint64_t i)
{
    return timing == PLAN_TIMING_INSIDE        ? &train_inside
           : timing == PLAN_TIMING_SPECULATIVE ? &guessed[i % GUESSED]
           : i % 2 == 0                        ? &train_drained
                                               : &train_evaluated;
}

void train_vary(struct world *world, uint64_t number)
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
void train_store_blocks(struct world *world, bool some)
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
