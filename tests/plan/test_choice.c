/* Tests the planner's choices. */
#include <errno.h>

#include "offload/plan/layout.h"
#include "offload/plan/print.h"
#include "offload/plan/sim.h"
#include "tests/harness/test.h"
#include "tests/plan/world.h"

/* Compute and I/O take about the same time. */
static void world_balanced(struct world *world)
{
    world_init(world, false, 1);
    for (int b = 1; b + 1 < BLOCKS; b++) {
        world->shapes[b].elements *= 64;
    }
    world->input.budgets.device_is_host = true;
    world->input.rates.shared_cores = true;
    world->input.rates.flops = 3.6e10;
    world->input.rates.update_elements = 1e9;
    world->input.wishes.may_clip = false;
    world->input.wishes.acts = PLAN_ACTS_RECOMPUTE;
    world->input.wishes.weights = PLAN_WHERE_STORE;
    world->input.wishes.states = PLAN_WHERE_STORE;
    world->input.wishes.chunk_elements = 32 * UNIT;
    world->input.wishes.state_slots = 6;
}

static double step_seconds(const struct world *world, enum plan_timing *timing)
{
    struct plan *plan = world_plan(world);
    double seconds = plan_predicted(plan)->step_seconds;
    *timing = plan_chosen_timing(plan);
    plan_destroy(plan);
    return seconds;
}

/* A split, which moves updates into the next forward pass, makes a step faster, but is not possible
 * with clipping. */
static void a_split_gains(void)
{
    struct world world;
    enum plan_timing timing = PLAN_TIMING_AUTO;
    world_balanced(&world);
    double without = step_seconds(&world, &timing);
    check_true(timing != PLAN_TIMING_SPLIT);
    world.input.wishes.may_split = true;
    double with = step_seconds(&world, &timing);
    test_note("split %.3f s, without %.3f s", with, without);
    check_int(timing, ==, PLAN_TIMING_SPLIT);
    check_double(with, <, without * 0.97);
    struct plan *plan = world_plan(&world);
    uint32_t pending = 0;
    for (uint32_t b = 0; b < BLOCKS; b++) {
        pending += plan_block_place(plan, b)->pending;
    }
    check_int(pending, >, 0);
    check_int(pending, <, BLOCKS - 2);
    check_true(plan_tape(plan, PLAN_FIRST, PLAN_NEXT) != NULL);
    check_true(plan_tape(plan, PLAN_FIRST, PLAN_FIRST) == NULL);
    plan_destroy(plan);
    world.input.wishes.may_clip = true;
    step_seconds(&world, &timing);
    check_true(timing != PLAN_TIMING_SPLIT && timing != PLAN_TIMING_INSIDE);
}

/* Two generations are chosen if they save time and STORE has space for second copies. */
static void two_generations_are_weighed(void)
{
    struct world world;
    enum plan_timing timing = PLAN_TIMING_AUTO;
    world_balanced(&world);
    world.input.wishes.state_slots = 4; /* little memory for reading ahead and delaying writes */
    world.input.wishes.may_clip = true;
    world.shapes[2].trained = false;
    double ahead = step_seconds(&world, &timing);
    check_int(timing, ==, PLAN_TIMING_SPECULATIVE);
    world.input.wishes.timing = PLAN_TIMING_DEFERRED;
    double deferred = step_seconds(&world, &timing);
    test_note("ahead %.3f s, deferred %.3f s", ahead, deferred);
    check_double(ahead, <, deferred * 0.8);
    struct plan *once = world_plan(&world);
    world.input.wishes.timing = PLAN_TIMING_SPECULATIVE;
    struct plan *twice = world_plan(&world);
    check_int(plan_generations(once), ==, 1);
    check_int(plan_generations(twice), ==, 2);
    check_double(plan_predicted_clipped(twice)->step_seconds, >,
                 plan_predicted(twice)->step_seconds * 1.1);
    check_double(plan_predicted_clipped(once)->step_seconds, ==,
                 plan_predicted(once)->step_seconds);
    check_int(plan_steady(once), ==, PLAN_NEXT);
    check_int(plan_steady(twice), ==, PLAN_GUESS);
    uint64_t bytes = plan_tier_bytes(twice, PLAN_STORE);
    uint32_t frozen = plan_layout_of(twice)->blocks[2].weights_store;
    check_int(plan_buffer(twice, frozen)->twin, ==, PLAN_NONE);
    uint64_t twins = 0;
    for (uint32_t i = 0; i < plan_buffer_count(twice); i++) {
        const struct plan_buffer *buffer = plan_buffer(twice, i);
        if (buffer->twin != PLAN_NONE) {
            check_int(plan_buffer(twice, buffer->twin)->bytes, ==, buffer->bytes);
            check_int(plan_buffer(twice, buffer->twin)->tier, ==, buffer->tier);
            twins += buffer->tier == PLAN_STORE ? buffer->bytes : 0;
        }
    }
    check_int(2 * twins + plan_buffer(twice, frozen)->bytes, ==, bytes);
    world.input.wishes.timing = PLAN_TIMING_AUTO;
    world.input.budgets.store_bytes = bytes - 1;
    step_seconds(&world, &timing);
    check_int(timing, ==, PLAN_TIMING_DEFERRED);
    plan_destroy(once);
    plan_destroy(twice);
}

/* With memory for some blocks' activations, some blocks keep them; more memory is no slower. */
static void memory_keeps_activations(void)
{
    struct world world;
    uint32_t kept_some = 0;
    double last = 1e9;
    for (uint32_t kib = 3900; kib <= 4600; kib += 100) {
        world_init(&world, false, 1);
        world.input.rates.flops = 1e10;
        world.input.wishes.weights = PLAN_WHERE_STORE;
        world.input.wishes.states = PLAN_WHERE_STORE;
        world.input.wishes.weight_slots = 2;
        world.input.wishes.state_slots = 2;
        world.input.budgets.device_bytes = kib << 10;
        struct plan *plan = NULL;
        if (plan_create(&world.input, &plan) == -EFBIG) {
            continue;
        }
        uint32_t kept = 0;
        for (uint32_t b = 0; b < BLOCKS; b++) {
            kept += plan_block_place(plan, b)->kept && world.shapes[b].kept_bytes > 0;
        }
        kept_some += kept > 0 && kept < LAYERS;
        check_double(plan_predicted(plan)->step_seconds, <=, last * 1.001);
        last = plan_predicted(plan)->step_seconds;
        plan_destroy(plan);
    }
    check_int(kept_some, >, 0);
}

/* Plans with this number of state slots (0: the planner chooses). Returns how many the plan has. */
static uint32_t plan_slots(struct world *world, uint32_t slots, double *seconds, uint64_t *bytes)
{
    world->input.wishes.state_slots = slots;
    struct plan *plan = world_plan(world);
    const uint32_t count = plan_layout_slots(plan_layout_of(plan)->state_slots);
    *seconds = plan_predicted(plan)->step_seconds;
    *bytes = plan_tier_bytes(plan, PLAN_DEVICE) + plan_tier_bytes(plan, PLAN_HOST);
    plan_destroy(plan);
    return count;
}

/* More than two state slots are taken only where they make the step faster. */
static void slots_where_they_help(void)
{
    struct world world;
    double few = 0;
    double chosen = 0;
    double many = 0;
    uint64_t few_bytes = 0;
    uint64_t bytes = 0;
    uint64_t many_bytes = 0;
    world_balanced(&world);
    check_uint(plan_slots(&world, 2, &few, &few_bytes), ==, 2);
    check_uint(plan_slots(&world, 0, &chosen, &bytes), >, 2);
    check_double(chosen, <, few * 0.95);
    world.input.rates.flops /= 100;
    check_uint(plan_slots(&world, 2, &few, &few_bytes), ==, 2);
    check_uint(plan_slots(&world, 16, &many, &many_bytes), ==, 16);
    check_double(many, >, few * 0.9999);
    check_uint(many_bytes, >, few_bytes);
    check_uint(plan_slots(&world, 0, &chosen, &bytes), ==, 2);
    check_double(chosen, ==, few);
    check_uint(bytes, ==, few_bytes);
}

/* Computing checksums takes time of the cores. */
static void checksums_cost_cores(void)
{
    struct world world;
    enum plan_timing timing = PLAN_TIMING_AUTO;
    world_balanced(&world);
    double free_of_charge = step_seconds(&world, &timing);
    world.input.rates.hash_bytes = 8e9;
    double charged = step_seconds(&world, &timing);
    check_double(charged, >, free_of_charge * 1.02);
    check_double(charged, <, free_of_charge * 1.5);
}

static void memory_is_used_without_a_store(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.budgets.store_bytes = 0;
    struct plan *plan = world_plan(&world);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        check_int(plan_block_place(plan, b)->weights, ==, PLAN_DEVICE);
    }
    plan_destroy(plan);
}

/* On the CPU device, states use DEVICE if HOST is full. */
static void states_go_where_there_is_room(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.budgets.device_is_host = true;
    world.input.budgets.host_bytes = 12 << 20;
    struct plan *plan = world_plan(&world);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        const struct plan_block_place *place = plan_block_place(plan, b);
        check_int(place->states, ==, PLAN_DEVICE);
        check_int(place->resident_chunks, ==, place->chunk_count);
    }
    check_int(plan_predicted(plan)->store_read_bytes, ==, 0);
    plan_destroy(plan);
}

TEST_MAIN({"a_split_gains", a_split_gains},
          {"two_generations_are_weighed", two_generations_are_weighed},
          {"memory_keeps_activations", memory_keeps_activations},
          {"slots_where_they_help", slots_where_they_help},
          {"checksums_cost_cores", checksums_cost_cores},
          {"memory_is_used_without_a_store", memory_is_used_without_a_store},
          {"states_go_where_there_is_room", states_go_where_there_is_room})
