/* Proves that tapes made while gradients arrive train correctly, with blocks in any order and
 * grouping. */
#include <string.h>

#include "core/base/rng.h"
#include "offload/plan/flow.h"
#include "offload/plan/layout.h"
#include "tests/harness/test.h"
#include "tests/plan/machine.h"
#include "tests/plan/order.h"
#include "tests/plan/world.h"

enum { STEPS = MACHINE_STEPS_MAX - 1, TAPES = 3 };

/* The last retired tape, and at most two tapes in progress. */
struct running {
    struct world world;
    struct plan *plan;
    struct plan_flow *flow;
    struct machine *machine;
    struct order order;
    uint32_t steps[TAPES];
    uint32_t made[BLOCKS]; /* number of updates of each block */
    uint64_t seed;
    uint32_t turn;
    uint32_t reads; /* reads on tapes */
};

static uint32_t draw(struct running *run, uint32_t below)
{
    return core_rng_philox(run->seed, run->turn++, 2).word[0] % below;
}

/* ---- running ---- */

static void do_one(struct running *run)
{
    struct order *order = &run->order;
    const int queue = order_draw(order, run->seed, run->turn++);
    if (queue < 0) {
        test_fail(__FILE__, __LINE__, "seed %d: commands wait for each other", (int)run->seed);
    }
    const struct plan_command *command = order_at(order, queue);
    const uint32_t step = run->steps[order->tape[queue]];
    machine_do(run->machine, command, PLAN_FIRST, step);
    const uint64_t end = (command->chunk + UINT64_C(1)) * plan_chunk_elements(run->plan);
    if (command->op == PLAN_UPDATE && end >= run->world.input.blocks[command->block].elements) {
        run->made[command->block] = step + 1;
    }
    order_done(order, queue);
}

/* Forgets the oldest tape, because the next one has retired. */
static void shift(struct running *run)
{
    struct order *order = &run->order;
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        (void)order_ready(order, q); /* moves on from finished tapes */
        check_int(order->tape[q], >=, 2);
        order->tape[q]--;
    }
    for (int t = 0; t + 1 < TAPES; t++) {
        order->tapes[t] = order->tapes[t + 1];
        order->left[t] = order->left[t + 1];
        memcpy(order->reached[t], order->reached[t + 1], sizeof order->reached[t]);
        run->steps[t] = run->steps[t + 1];
    }
    order->tape_count--;
}

/* Runs commands until another tape can be pushed: the flow has memory for three. */
static void make_room(struct running *run)
{
    while (run->order.tape_count == TAPES) {
        if (run->order.left[0] + run->order.left[1] == 0) {
            shift(run);
        } else {
            do_one(run);
        }
    }
}

static void push(struct running *run, uint32_t step)
{
    struct order *order = &run->order;
    const uint32_t t = order->tape_count++;
    order->tapes[t] = plan_flow_end(run->flow);
    order->left[t] = order->tapes[t]->count;
    memset(order->reached[t], 0, sizeof order->reached[t]);
    run->steps[t] = step;
    run->reads += order->tapes[t]->queue_count[PLAN_Q_READ_STATE];
    check_int(order->tapes[t]->count, <=, plan_flow_commands_max(run->flow));
    for (uint32_t i = draw(run, 40); i > 0 && order->left[t] > 0; i--) {
        do_one(run);
    }
}

static void finish(struct running *run)
{
    for (uint32_t t = 0; t < run->order.tape_count; t++) {
        while (run->order.left[t] > 0) {
            do_one(run);
        }
    }
}

/* ---- the application ---- */

/* Submits a block's gradient after the block's last update. */
static void submit(struct running *run, uint32_t block, uint32_t step)
{
    const struct plan_input *input = &run->world.input;
    const uint64_t bytes = input->blocks[block].elements * input->blocks[block].format.grad_bytes;
    const struct plan_command backward = {
        .op = PLAN_BWD,
        .block = (uint16_t)block,
        .operand_count = 1,
        .operands = {{.buffer = plan_layout_of(run->plan)->blocks[block].gradient,
                      .access = PLAN_WRITES,
                      .role = PLAN_AS_GRAD,
                      .bytes = bytes}}};
    while (run->made[block] < step) {
        do_one(run);
    }
    machine_do(run->machine, &backward, PLAN_FIRST, step);
}

static void shuffle(struct running *run, uint32_t *order, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    for (uint32_t i = count; i-- > 1;) {
        const uint32_t other = draw(run, i + 1);
        const uint32_t kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

static void fetch(struct running *run, uint32_t block, uint32_t step)
{
    bool full = false;
    make_room(run);
    plan_flow_begin(run->flow);
    check_int(plan_flow_fetch(run->flow, block, &full), ==, 0);
    if (!full && plan_flow_has_room(run->flow)) {
        /* the block is already in memory */
        check_int(plan_flow_fetch(run->flow, block, &full), ==, 0);
    }
    push(run, step);
}

/* Puts blocks on tapes, some together, some fetched before. */
static void take(struct running *run, const uint32_t *order, uint32_t step, bool inside, bool late)
{
    const uint32_t count = run->world.input.block_count;
    for (uint32_t i = 0; i < count;) {
        if (draw(run, 2) == 0) {
            fetch(run, draw(run, 2) ? order[i] : draw(run, count), step);
        }
        const uint32_t end = i + 1 + draw(run, count - i);
        for (uint32_t k = i; !late && k < end; k++) {
            submit(run, order[k], step);
        }
        make_room(run);
        plan_flow_begin(run->flow);
        for (; i < end && plan_flow_has_room(run->flow); i++) {
            check_int(late ? 0 : plan_flow_sums(run->flow, order[i]), ==, 0);
            check_int(late || inside ? plan_flow_update(run->flow, order[i], inside) : 0, ==, 0);
        }
        push(run, step);
    }
}

static void train(struct running *run, bool inside)
{
    uint32_t order[BLOCKS];
    for (uint32_t s = 0; s < STEPS; s++) {
        shuffle(run, order, run->world.input.block_count);
        take(run, order, s, inside, false);
        make_room(run);
        plan_flow_begin(run->flow);
        check_int(plan_flow_norm(run->flow), ==, 0);
        push(run, s);
        if (!inside) {
            take(run, order, s, false, true);
        }
        if (draw(run, 8) == 0) { /* another user takes the slots */
            finish(run);
            plan_flow_forget(run->flow);
        }
    }
    finish(run);
    machine_check(run->machine, STEPS);
}

static void flows_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(300, 60); i++) {
        struct running run = {.seed = i * 7919};
        world_lend(&run.world, i * 7919);
        const bool inside = run.world.input.wishes.may_clip == 0;
        run.plan = world_plan(&run.world);
        struct machine_truth *truth = machine_truth_create(&run.world.input,
                                                           inside ? 0 : UINT32_MAX);
        run.machine = machine_create(&run.world.input, run.plan, truth);
        check_int(plan_flow_create(&run.world.input, run.plan, &run.flow), ==, 0);
        train(&run, inside);
        plan_flow_destroy(run.flow);
        machine_destroy(run.machine);
        machine_truth_destroy(truth);
        plan_destroy(run.plan);
    }
}

/* An update does not read again what was fetched for its block; an update of another block takes
 * the slots. */
static void fetched_chunks_are_used(void)
{
    struct running run = {.seed = 1};
    bool full = false;
    world_lend(&run.world, 0);
    run.world.input.block_count = run.world.input.compute_count = 2;
    run.world.input.wishes.may_clip = 0;
    run.world.input.wishes.states = PLAN_WHERE_STORE;
    run.world.input.wishes.chunk_elements = UNIT;
    run.world.input.wishes.state_slots = 2;
    run.plan = world_plan(&run.world);
    check_int(plan_flow_create(&run.world.input, run.plan, &run.flow), ==, 0);
    const uint64_t chunks = plan_chunk_count(run.world.input.blocks[1].elements, UNIT);
    check_uint(chunks, >, 2);
    for (uint32_t b = 0; b < 2; b++) {
        const uint32_t lost = plan_flow_lost(run.flow);
        plan_flow_begin(run.flow);
        check_int(plan_flow_fetch(run.flow, 1, &full), ==, 0);
        check_true(full);
        check_uint(plan_flow_end(run.flow)->count, ==, 2);
        plan_flow_begin(run.flow);
        check_int(plan_flow_update(run.flow, 1 - b, true), ==, 0);
        const uint32_t reads = plan_flow_end(run.flow)->queue_count[PLAN_Q_READ_STATE];
        const uint64_t of = plan_chunk_count(run.world.input.blocks[1 - b].elements, UNIT);
        check_uint(reads, ==, b == 0 ? of - 2 : of);
        check_uint(plan_flow_lost(run.flow) - lost, ==, b == 0 ? 0 : of < 2 ? of : 2);
    }
    plan_flow_destroy(run.flow);
    plan_destroy(run.plan);
}

TEST_MAIN({"flows_train", flows_train}, {"fetched_chunks_are_used", fetched_chunks_are_used})
