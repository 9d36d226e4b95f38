/* Tests plans: budgets hold, placement follows wishes, and traffic is as designed. */
#include <errno.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "offload/plan/layout.h"
#include "offload/plan/print.h"
#include "offload/plan/shard.h"
#include "tests/harness/test.h"
#include "tests/plan/world.h"

static void buffers_do_not_overlap(void)
{
    for (int stored = 0; stored < 2; stored++) {
        struct world world;
        world_init(&world, true, 2);
        if (stored) {
            world.input.wishes.weights = world.input.wishes.states = PLAN_WHERE_STORE;
        }
        struct plan *plan = world_plan(&world);
        uint64_t ends[PLAN_TIER_COUNT] = {0};
        for (uint32_t i = 0; i < plan_buffer_count(plan); i++) {
            const struct plan_buffer *buffer = plan_buffer(plan, i);
            check_uint(buffer->bytes, >, 0);
            check_uint(buffer->offset, ==, core_round_up(ends[buffer->tier], 4096));
            ends[buffer->tier] = buffer->offset + buffer->bytes;
        }
        for (int t = 0; t < PLAN_TIER_COUNT; t++) {
            check_uint(plan_tier_bytes(plan, (enum plan_tier)t), ==, core_round_up(ends[t], 4096));
            check_true(ends[t] > 0 || (!stored && t == PLAN_STORE));
        }
        plan_destroy(plan);
    }
}

/* With everything on the drive, a parameter costs 14 bytes of reads and 12 of writes, minus reads
 * of weights that are still in a slot. */
static void traffic_is_what_the_design_counts(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.wishes.timing = PLAN_TIMING_DEFERRED;
    world.input.wishes.weights = PLAN_WHERE_STORE;
    world.input.wishes.states = PLAN_WHERE_STORE;
    world.input.wishes.acts = PLAN_ACTS_RECOMPUTE;
    world.input.wishes.weight_slots = 2;
    struct plan *plan = world_plan(&world);
    const struct plan_prediction *predicted = plan_predicted(plan);
    uint64_t held = 2 * (world.shapes[BLOCKS - 1].elements + 2 * world.shapes[BLOCKS - 2].elements +
                         world.shapes[0].elements);
    check_int(predicted->store_write_bytes, ==, 12 * world_parameters(&world));
    check_int(predicted->store_read_bytes, ==, 14 * world_parameters(&world) - held);
    check_int(predicted->down_bytes, ==, 2 * world_parameters(&world));
    check_int(predicted->up_bytes, ==, 4 * world_parameters(&world) - held);
    plan_destroy(plan);
    world.input.wishes.weights = PLAN_WHERE_HOST;
    plan = world_plan(&world);
    predicted = plan_predicted(plan);
    check_int(predicted->store_write_bytes, ==, 10 * world_parameters(&world));
    check_int(predicted->store_read_bytes, ==, 10 * world_parameters(&world));
    plan_destroy(plan);
    world.input.wishes.states = PLAN_WHERE_HOST;
    plan = world_plan(&world);
    check_int(plan_predicted(plan)->store_write_bytes, ==, 0);
    check_int(plan_predicted(plan)->store_read_bytes, ==, 0);
    plan_destroy(plan);
}

/* More HOST memory does not make the predicted step slower, apart from small differences that the
 * planner ignores. */
static void time_falls_with_memory(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.budgets.device_bytes = 24 << 20;
    double first = 0;
    double fastest = 1e9;
    double last = 0;
    uint64_t traffic = 0;
    int placements = 0;
    for (uint64_t mib = 8; mib <= 64; mib += 4) {
        world.input.budgets.host_bytes = mib << 20;
        struct plan *plan = NULL;
        int rc = plan_create(&world.input, &plan);
        if (rc == -EFBIG) {
            continue;
        }
        check_int(rc, ==, 0);
        const struct plan_prediction *predicted = plan_predicted(plan);
        check_double(predicted->step_seconds, <=, fastest * 1.005);
        check_int(plan_tier_bytes(plan, PLAN_HOST), <=, world.input.budgets.host_bytes);
        check_int(plan_tier_bytes(plan, PLAN_DEVICE), <=, world.input.budgets.device_bytes);
        last = predicted->step_seconds;
        first = placements == 0 ? last : first;
        fastest = last < fastest ? last : fastest;
        check_true(placements > 0 || predicted->store_read_bytes > 0);
        traffic = predicted->store_read_bytes;
        placements++;
        plan_destroy(plan);
    }
    check_int(placements, >, 8);
    check_int(traffic, ==, 0);
    check_double(last, <, first * 2 / 3);
}

/* If a store is too small, the rest of the data is in memory, unless all data was explicitly placed
 * in the store. */
static void small_stores(void)
{
    struct world world;
    world_init(&world, false, 2);
    world.input.wishes.timing = PLAN_TIMING_DEFERRED; /* so that everything is stored once */
    world.input.wishes.weights = world.input.wishes.states = PLAN_WHERE_STORE;
    struct plan *plan = world_plan(&world);
    const uint64_t all = plan_tier_bytes(plan, PLAN_STORE);
    const uint64_t host = plan_tier_bytes(plan, PLAN_HOST);
    plan_destroy(plan);
    check_int(all, >, 4 << 20);
    world.input.wishes.weights = world.input.wishes.states = PLAN_WHERE_AUTO;
    for (uint64_t eighths = 1; eighths < 8; eighths++) {
        world.input.budgets.store_bytes = all * eighths / 8;
        world.input.budgets.host_bytes = host + all;
        plan = world_plan(&world);
        check_int(plan_tier_bytes(plan, PLAN_STORE), <=, world.input.budgets.store_bytes);
        check_int(plan_tier_bytes(plan, PLAN_HOST), <=, world.input.budgets.host_bytes);
        plan_destroy(plan);
    }
    world.input.wishes.weights = world.input.wishes.states = PLAN_WHERE_STORE;
    check_int(plan_create(&world.input, &plan), ==, -EFBIG);
}

static void bad_input_is_refused(void)
{
    struct world world;
    struct plan *plan = NULL;
    world_init(&world, false, 0);
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "at least one micro-batch");
    world_init(&world, false, 1);
    world.input.wishes.timing = PLAN_TIMING_INSIDE;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "clipped");
    world_init(&world, false, 1);
    world.input.wishes.weight_slots = 1;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    world_init(&world, false, 1);
    world.input.wishes.chunk_elements = 1000;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "multiple of 65536");
    world_init(&world, false, 1);
    world.input.wishes.states = PLAN_WHERE_STORE;
    world.input.budgets.store_bytes = 0;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    world_init(&world, false, 1);
    world.shapes[3].borrow_count = 1;
    world.shapes[3].borrows[0] = 5;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "layer.2");
    world.shapes[3].borrow_count = PLAN_BORROWS_MAX + 1;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "borrows 3 blocks; at most 2");
    world_init(&world, false, 1);
    world_add_data(&world, 3, UNIT);
    world.shapes[BLOCKS].trained = true;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "(data) does not compute, but is trained");
    world_init(&world, false, 1);
    world.input.block_count--;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "7 blocks were given, 8 of them computing");
    world_init(&world, false, 2);
    world.shapes[4].format.grad_bytes = 4;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "block 4 (layer.3) 4");
    world_init(&world, true, 1);
    world.shapes[BLOCKS - 1].shared_elements = 9 * UNIT;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "borrows 589824 elements of block 0");
    world_init(&world, false, 1);
    world.shapes[2].elements = 0;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "no elements");
    world_init(&world, false, 1);
    world.input.world = 2;
    world.input.rank = 2;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "rank 2 of 2");
    world.input.rank = 1;
    world.input.stage = 2;
    world.input.wishes.weights = PLAN_WHERE_STORE;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "stage 3 keeps shards");
    world_init(&world, false, 1);
    world.input.wishes.states = PLAN_WHERE_DEVICE;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "need a card that updates them");
    world_init(&world, false, 2);
    world.input.wishes.grads = PLAN_WHERE_STORE;
    world.input.wishes.order = PLAN_ORDER_MICRO;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "layer-major");
    world_init(&world, false, 2);
    world.input.wishes.may_clip = false;
    world.input.wishes.grads = PLAN_WHERE_STORE;
    world.input.wishes.timing = PLAN_TIMING_INSIDE;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), "gradients cannot wait");
    plan_destroy(NULL);
}

static void refused(const struct world *world, const char *message)
{
    struct plan *plan = NULL;
    check_int(plan_create(&world->input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), message);
}

static void contradictions_are_refused(void)
{
    struct world world;
    world_init(&world, true, 1);
    world.shapes[BLOCKS - 1].borrows[0] = BLOCKS;
    refused(&world, "borrows 458752 elements of block 8; expected an earlier block");
    world_init(&world, false, 1);
    world_add_data(&world, 3, UNIT);
    world.shapes[BLOCKS].borrow_count = 1;
    refused(&world, "(data) does not compute, but borrows blocks");
    world_init(&world, false, 1);
    world.shapes[2].stored_elements = UNIT;
    refused(&world, "block 2 (layer.1) is stored in fewer bits, so it must be frozen");
    world.shapes[2].trained = false;
    world.shapes[2].rows_bytes = 64;
    refused(&world, "block 2 (layer.1) is stored in fewer bits, so it must be frozen");
    world_init(&world, false, 1);
    world.input.world = 2;
    world.input.stage = 4;
    refused(&world, "rank 0 of 2 at stage 4 is invalid");
    world_init(&world, false, 1);
    world.input.budgets.device_is_host = true;
    world.input.world = 4;
    world.input.stage = 3;
    world.input.within = 3;
    refused(&world, "groups of 3 ranks are not possible with 4 ranks");
    world.input.within = 1;
    refused(&world, "groups of 1 ranks are not possible with 4 ranks");
    world_init(&world, false, 1);
    world.input.wishes.state_slots = PLAN_STATE_SLOT_MAX + 1;
    refused(&world, "state slots are out of range");
    world_init(&world, false, 1);
    world.input.wishes.weight_slots = PLAN_SLOT_MAX + 1;
    refused(&world, "weight slots and 0 state slots are out of range");
    world_init(&world, false, 1);
    world.input.wishes.thrift = -0.5;
    refused(&world, "thrift -0.5 is out of range 0..1");
    world.input.wishes.thrift = 1.5;
    refused(&world, "thrift 1.5 is out of range 0..1");
    world_init(&world, false, 1);
    world.input.wishes.states = PLAN_WHERE_DEVICE;
    world.input.rates.card_update_elements = 1e10;
    refused(&world, "card_sums_elements_per_second");
}

static void an_application_is_refused_what_it_decides(void)
{
    struct world good;
    world_lend(&good, 0);
    struct world world = good;
    world.input.blocks = world.shapes;
    plan_destroy(world_plan(&world));
    world.input.compute_count = 0;
    refused(&world, "a plan needs a block; 1 blocks were given, 0 of them computing");
    world.input = good.input;
    world.input.budgets.device_is_host = false;
    refused(&world, "needs one rank on the CPU device");
    world.input = good.input;
    world.input.world = 2;
    refused(&world, "needs one rank on the CPU device");
    world.input = good.input;
    world.input.wishes.micro_batches = 2;
    refused(&world, "one micro-batch per step");
    world.input = good.input;
    world.input.wishes.timing = PLAN_TIMING_DEFERRED;
    refused(&world, "none for timing");
    world.input = good.input;
    world.input.wishes.acts = PLAN_ACTS_KEEP;
    refused(&world, "takes no request for activations or order");
    world.input = good.input;
    world.input.wishes.order = PLAN_ORDER_LAYER;
    refused(&world, "takes no request for activations or order");
    world.input = good.input;
    world.input.wishes.weights = PLAN_WHERE_HOST;
    refused(&world, "places no weights, and gradients only in HOST");
    world.input = good.input;
    world.input.wishes.grads = PLAN_WHERE_STORE;
    refused(&world, "places no weights, and gradients only in HOST");
}

static void no_store_is_needed(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.budgets.store_bytes = 0;
    struct plan *plan = world_plan(&world);
    check_int(plan_tier_bytes(plan, PLAN_STORE), ==, 0);
    check_int(plan_predicted(plan)->store_read_bytes, ==, 0);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        check_true(plan_block_place(plan, b)->weights != PLAN_STORE);
        check_int(plan_block_place(plan, b)->resident_chunks, ==,
                  plan_block_place(plan, b)->chunk_count);
    }
    plan_destroy(plan);
}

/* States in a chunk are packed, with and without scales. */
static void states_lie_packed(void)
{
    const struct plan_format split = {
        .weight_bytes = 2, .master_bytes = 2, .m_bytes = 4, .v_bytes = 4, .grad_bytes = 2};
    check_int(plan_state_bytes(&split, 1000), ==, 10000);
    check_int(plan_state_offset(&split, PLAN_MASTER, 1000), ==, 0);
    check_int(plan_state_offset(&split, PLAN_M, 1000), ==, 2000);
    check_int(plan_state_offset(&split, PLAN_V, 1000), ==, 6000);
    const struct plan_format narrow = {.weight_bytes = 2,
                                       .master_bytes = 2,
                                       .m_bytes = 1,
                                       .v_bytes = 1,
                                       .grad_bytes = 2,
                                       .q8_block = 256};
    check_int(plan_state_offset(&narrow, PLAN_V, 1000), ==, 3000);
    check_int(plan_state_offset(&narrow, PLAN_M_SCALE, 1000), ==, 4000);
    check_int(plan_state_offset(&narrow, PLAN_V_SCALE, 1000), ==, 4016);
    check_int(plan_state_bytes(&narrow, 1000), ==, 4032);
    struct plan_format momentum = narrow;
    momentum.v_bytes = 0;
    check_int(plan_state_bytes(&momentum, 1000), ==, 3016);
    for (int cpu = 0; cpu < 2; cpu++) {
        struct world world;
        world_init(&world, false, 1);
        world.input.wishes.weights = PLAN_WHERE_STORE;
        world.input.wishes.states = PLAN_WHERE_STORE;
        world.input.budgets.device_is_host = cpu;
        struct plan *plan = world_plan(&world);
        check_int(plan_slot_states_offset(plan), ==, cpu ? 0 : 2 * 2 * UNIT);
        plan_destroy(plan);
    }
}

/* If a stage has shards, they cover a block once, in the order of ranks, and differ by at most one
 * unit. */
static void shards_cover_a_block(void)
{
    enum { UNITS = 11, BLOCK = 2 };
    const uint64_t elements = (UNITS - 1) * UNIT + 5;
    struct world world;
    world_init(&world, false, 1);
    world.shapes[BLOCK].elements = elements;
    for (uint32_t i = 0; i < 16 * 4; i++) {
        const uint32_t ranks = 1 + i / 4;
        uint64_t ends[2] = {0, 0};
        world.input.world = ranks;
        world.input.stage = i % 4;
        const bool parts[2] = {ranks > 1 && world.input.stage >= 1,
                               ranks > 1 && world.input.stage >= 3};
        for (uint32_t r = 0; r < ranks; r++) {
            world.input.rank = r;
            const struct plan_span spans[2] = {plan_state_span(&world.input, BLOCK),
                                               plan_weight_span(&world.input, BLOCK)};
            for (int s = 0; s < 2; s++) {
                const uint64_t units = (spans[s].count + UNIT - 1) / UNIT;
                check_uint(spans[s].first, ==, parts[s] ? ends[s] : 0);
                check_uint(units, >=, parts[s] ? UNITS / ranks : UNITS);
                check_uint(units, <=, parts[s] ? (UNITS + ranks - 1) / ranks : UNITS);
                ends[s] = spans[s].first + spans[s].count;
                check_true(ends[s] % UNIT == 0 || ends[s] == elements);
            }
        }
        check_uint(ends[0], ==, elements);
        check_uint(ends[1], ==, elements);
    }
}

static void joint_limit_holds(void)
{
    struct world world;
    world_init(&world, true, 1);
    world.input.budgets.device_is_host = true;
    uint64_t last = 0;
    for (uint64_t mib = 12; mib <= 62; mib += 10) {
        world.input.budgets.joint_bytes = mib << 20;
        struct plan *plan = world_plan(&world);
        uint64_t bytes = plan_tier_bytes(plan, PLAN_DEVICE) + plan_tier_bytes(plan, PLAN_HOST);
        check_int(bytes, <=, mib << 20);
        check_int(bytes, >=, last);
        last = bytes;
        plan_destroy(plan);
    }
    world.input.budgets.joint_bytes = 1 << 20;
    struct plan *plan = NULL;
    check_int(plan_create(&world.input, &plan), ==, -EFBIG);
}

static void hash_tells_plans_apart(void)
{
    struct world world;
    world_init(&world, false, 2);
    struct plan *plan = world_plan(&world);
    struct plan *same = world_plan(&world);
    check_true(plan_hash(plan) == plan_hash(same));
    plan_destroy(same);
    world.input.wishes.weights = PLAN_WHERE_HOST;
    struct plan *other = world_plan(&world);
    check_true(plan_hash(plan) != plan_hash(other));
    plan_destroy(other);
    plan_destroy(plan);
}

/* Returns the number of an op's commands with an operand of this role. */
static uint32_t count_roles(const struct plan_tape *tape, enum plan_op op, enum plan_role role)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        count += command->op == op && plan_command_operand(command, role) != NULL;
    }
    return count;
}

static void sums_are_made_where_needed(void)
{
    struct world world;
    for (int tied = 0; tied < 2; tied++) {
        world_init(&world, tied, 1);
        struct plan *plan = world_plan(&world);
        const struct plan_tape *tape = plan_tape(plan, PLAN_NEXT, PLAN_NEXT);
        check_int(count_roles(tape, PLAN_BWD, PLAN_AS_GRAD), ==, BLOCKS);
        check_int(count_roles(tape, PLAN_BWD, PLAN_AS_SUM), ==, 0);
        check_int(count_roles(tape, PLAN_BWD, PLAN_AS_SHARED_SUM), ==, tied ? 2 : 0);
        check_int(count_roles(tape, PLAN_ROUND, PLAN_AS_GRAD), ==, 0);
        plan_destroy(plan);
        world_init(&world, tied, 3);
        plan = world_plan(&world);
        tape = plan_tape(plan, PLAN_NEXT, PLAN_NEXT);
        check_int(count_roles(tape, PLAN_BWD, PLAN_AS_GRAD), ==, BLOCKS);
        check_int(count_roles(tape, PLAN_BWD, PLAN_AS_SUM), ==, 3 * BLOCKS);
        check_int(count_roles(tape, PLAN_BWD, PLAN_AS_SHARED_SUM), ==, tied ? 3 : 0);
        check_int(count_roles(tape, PLAN_ROUND, PLAN_AS_SUM), ==, tied);
        plan_destroy(plan);
        world_set_grad_bytes(&world, 4);
        plan = world_plan(&world);
        tape = plan_tape(plan, PLAN_NEXT, PLAN_NEXT);
        check_int(count_roles(tape, PLAN_BWD, PLAN_AS_GRAD), ==, 3 * BLOCKS);
        check_int(count_roles(tape, PLAN_BWD, PLAN_AS_SUM), ==, 0);
        check_int(count_roles(tape, PLAN_ROUND, PLAN_AS_SUM), ==, 0);
        check_int(count_roles(tape, PLAN_ROUND, PLAN_AS_SHARED_SUM), ==, tied);
        plan_destroy(plan);
    }
}

/* The backward pass ends at the first trained block. */
static void frozen_blocks_rest(void)
{
    struct world world;
    world_init(&world, true, 1);
    for (int b = 0; b < 4; b++) {
        world.shapes[b].trained = false;
    }
    world.shapes[5].trained = false;
    struct plan *plan = world_plan(&world);
    const struct plan_tape *tape = plan_tape(plan, PLAN_NEXT, PLAN_NEXT);
    check_int(count_roles(tape, PLAN_BWD, PLAN_AS_OUT_GRAD), ==, BLOCKS - 4);
    check_int(count_roles(tape, PLAN_BWD, PLAN_AS_GRAD), ==, BLOCKS - 5);
    check_int(count_roles(tape, PLAN_BWD, PLAN_AS_SHARED_SUM), ==, 0);
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        check_true(command->op != PLAN_UPDATE || world.shapes[command->block].trained);
    }
    plan_destroy(plan);
}

/* An update inside the backward pass finds its weights in that pass's slot, without copies. */
static void inside_updates_in_the_slot(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.budgets.device_is_host = true;
    world.input.wishes.may_clip = false;
    world.input.wishes.timing = PLAN_TIMING_INSIDE;
    world.input.wishes.weights = PLAN_WHERE_STORE;
    world.input.wishes.states = PLAN_WHERE_STORE;
    struct plan *plan = world_plan(&world);
    const struct plan_prediction *predicted = plan_predicted(plan);
    check_int(predicted->store_write_bytes, ==, 12 * world_parameters(&world));
    check_int(predicted->store_read_bytes, <=, 14 * world_parameters(&world));
    check_int(predicted->up_bytes + predicted->down_bytes, ==, 0);
    const struct plan_tape *tape = plan_tape(plan, PLAN_FIRST, PLAN_FIRST);
    uint32_t updates = tape->queue_count[PLAN_Q_UPDATE] - BLOCKS - 1;
    check_int(count_roles(tape, PLAN_UPDATE, PLAN_AS_WEIGHTS_PLACE), ==, updates);
    check_int(count_roles(tape, PLAN_UPDATE, PLAN_AS_SLOT), ==, updates);
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        check_true(plan_command_operand(command, PLAN_AS_SLOT) == NULL ||
                   (command->streams & PLAN_W16) == 0);
    }
    plan_destroy(plan);
}

/* The text of a command is shorter than 512 bytes. */
static void tapes_print(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.wishes.weights = PLAN_WHERE_STORE;
    world.input.wishes.states = PLAN_WHERE_STORE;
    world.input.wishes.weight_slots = 2;
    world.input.wishes.state_slots = 2;
    world.input.wishes.acts = PLAN_ACTS_RECOMPUTE;
    struct plan *plan = world_plan(&world);
    const struct plan_tape *tape = plan_tape(plan, PLAN_NEXT, PLAN_NEXT);
    char text[512];
    plan_print_command(&world.input, plan, &tape->commands[1], text, sizeof text);
    check_string(text, "update         1  UPDATE embedding chunk 0 reads host:g(embedding) "
                       "host:norm changes host:sslot[0] after read-state 1");
    plan_print_command(&world.input, plan, &tape->commands[0], text, sizeof text);
    check_contains(text, "read-state");
    for (uint32_t i = 0; i < tape->count; i++) {
        const int length = plan_print_command(&world.input, plan, &tape->commands[i], text,
                                              sizeof text);
        check_true(length > 0 && (size_t)length < sizeof text);
    }
    check_int(plan_chunk_elements(plan), ==, 2 * UNIT);
    check_int(plan_chosen_acts(plan), ==, PLAN_ACTS_RECOMPUTE);
    check_int(plan_chosen_order(plan), ==, PLAN_ORDER_LAYER);
    check_string(plan_resource_name(PLAN_R_DRIVE), "drive");
    plan_destroy(plan);
}

/* Ops and queues have distinct names; names of several streams are joined. */
static void names_are_told_apart(void)
{
    for (int a = 0; a < PLAN_OP_COUNT; a++) {
        for (int b = 0; b < a; b++) {
            check_true(strcmp(plan_op_name((enum plan_op)a), plan_op_name((enum plan_op)b)) != 0);
        }
    }
    for (int a = 0; a < PLAN_Q_COUNT; a++) {
        for (int b = 0; b < a; b++) {
            check_true(strcmp(plan_queue_name((enum plan_queue)a),
                              plan_queue_name((enum plan_queue)b)) != 0);
        }
    }
    check_string(plan_tier_name(PLAN_STORE), "store");
    char text[48];
    check_string(plan_streams_print(PLAN_W16 | PLAN_MASTER | PLAN_ACT, text, sizeof text),
                 "w16+master+act");
    check_string(plan_streams_print(0, text, sizeof text), "");
}

/* Checks that a tape that saves writes every trained block once, and that other tapes write nothing
 * to the checkpoint. */
static void check_saving(const struct world *world, const struct plan *plan, enum plan_kind before,
                         enum plan_kind kind, bool saves, const char *name)
{
    const struct plan_tape *tape = plan_tape(plan, before, kind);
    uint64_t elements[BLOCKS] = {0};
    check_true(tape != NULL);
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        if (command->queue != PLAN_Q_WRITE_CHECKPOINT) {
            continue;
        }
        const struct plan_format *format = &world->shapes[command->block].format;
        check_int(command->op, ==, PLAN_WRITE);
        check_uint(command->bytes, ==,
                   command->elements * format->weight_bytes +
                       plan_state_bytes(format, command->elements));
        elements[command->block] += command->elements;
    }
    for (uint32_t b = 0; b < BLOCKS; b++) {
        const uint64_t wanted = saves && world->shapes[b].trained ? world->shapes[b].elements : 0;
        if (elements[b] != wanted) {
            test_fail(__FILE__, __LINE__, "%s: %" PRIu64 " elements of block %u, not %" PRIu64,
                      name, elements[b], b, wanted);
        }
    }
}

/* Saves write all states, wherever they are. A save of states on a card adds only their bytes and
 * those of the weights to the traffic of the link. */
static void saves_write_every_state(void)
{
    static const struct {
        const char *name;
        enum plan_where weights, states;
        bool card;
    } ways[] = {{"STORE", PLAN_WHERE_STORE, PLAN_WHERE_STORE, false},
                {"weights in STORE", PLAN_WHERE_STORE, PLAN_WHERE_HOST, false},
                {"HOST", PLAN_WHERE_HOST, PLAN_WHERE_HOST, false},
                {"card and STORE", PLAN_WHERE_AUTO, PLAN_WHERE_STORE, true},
                {"card", PLAN_WHERE_DEVICE, PLAN_WHERE_DEVICE, true}};
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        struct world world;
        world_init(&world, false, 1);
        world.shapes[2].trained = false;
        world.input.wishes.weights = ways[w].weights;
        world.input.wishes.states = ways[w].states;
        world.input.wishes.saves = true;
        world.input.budgets.device_is_host = !ways[w].card;
        world.input.rates.card_update_elements = 5e10;
        world.input.rates.card_sums_elements = 1e11;
        struct plan *plan = world_plan(&world);
        check_saving(&world, plan, PLAN_NEXT, PLAN_NEXT, false, ways[w].name);
        check_saving(&world, plan, PLAN_NEXT, PLAN_NEXT_SAVE, true, ways[w].name);
        check_saving(&world, plan, PLAN_FIRST, PLAN_DRAIN_SAVE, true, ways[w].name);
        if (ways[w].states == PLAN_WHERE_DEVICE) {
            const struct plan_traffic next = plan_tape_traffic(
                plan_tape(plan, PLAN_NEXT, PLAN_NEXT));
            const struct plan_traffic save = plan_tape_traffic(
                plan_tape(plan, PLAN_NEXT, PLAN_NEXT_SAVE));
            const struct plan_format *format = &world.shapes[0].format;
            const uint64_t trained = world_parameters(&world) - world.shapes[2].elements;
            check_uint(save.down_bytes - next.down_bytes, ==,
                       trained * format->weight_bytes + plan_state_bytes(format, trained));
            check_uint(save.up_bytes, ==, next.up_bytes);
        }
        plan_destroy(plan);
    }
}

static void inside_updates_save_their_own(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.wishes.may_clip = false;
    world.input.wishes.timing = PLAN_TIMING_INSIDE;
    world.input.wishes.saves = true;
    struct plan *plan = world_plan(&world);
    check_saving(&world, plan, PLAN_FIRST, PLAN_FIRST, false, "inside");
    check_saving(&world, plan, PLAN_FIRST, PLAN_FIRST_SAVE_OWN, true, "inside");
    plan_destroy(plan);
}

TEST_MAIN({"names_are_told_apart", names_are_told_apart},
          {"buffers_do_not_overlap", buffers_do_not_overlap},
          {"traffic_is_what_the_design_counts", traffic_is_what_the_design_counts},
          {"time_falls_with_memory", time_falls_with_memory}, {"small_stores", small_stores},
          {"bad_input_is_refused", bad_input_is_refused},
          {"contradictions_are_refused", contradictions_are_refused},
          {"an_application_is_refused_what_it_decides", an_application_is_refused_what_it_decides},
          {"states_lie_packed", states_lie_packed}, {"shards_cover_a_block", shards_cover_a_block},
          {"joint_limit_holds", joint_limit_holds},
          {"hash_tells_plans_apart", hash_tells_plans_apart},
          {"sums_are_made_where_needed", sums_are_made_where_needed},
          {"frozen_blocks_rest", frozen_blocks_rest},
          {"inside_updates_in_the_slot", inside_updates_in_the_slot},
          {"no_store_is_needed", no_store_is_needed},
          {"saves_write_every_state", saves_write_every_state},
          {"inside_updates_save_their_own", inside_updates_save_their_own},
          {"tapes_print", tapes_print})
