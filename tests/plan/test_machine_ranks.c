/* Proves that tapes of several ranks train like simple loops and send the predicted bytes. */
#include <errno.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "offload/plan/layout.h"
#include "tests/harness/test.h"
#include "tests/plan/train.h"

static void ranks_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(240, 40); i++) {
        struct world world;
        train_vary(&world, i * 7919 + i / 3);
        world.input.world = i % 2 == 0 ? 2 : 4;
        world.input.stage = (uint32_t)(i / 2 % 4);
        bool half = world.input.stage == 1 || world.input.stage == 2;
        if (half && !world.input.budgets.device_is_host &&
            world.input.wishes.weights == PLAN_WHERE_STORE) {
            world.input.wishes.weights = PLAN_WHERE_HOST;
        }
        train_as_timed(&world, i % 3 == 0, 1);
    }
}

/* Ranks that gather packed weights compute with rounded values and update exact ones. */
static void packed_ranks_train(void)
{
    uint32_t packed = 0;
    for (uint64_t i = 0; i < TEST_COUNT(120, 24); i++) {
        struct world world;
        train_vary(&world, i * 7919 + i / 3);
        world.input.budgets.device_is_host = true;
        world.input.world = i % 2 == 0 ? 2 : 4;
        world.input.stage = 3;
        world.input.packs = true;
        train_as_timed(&world, i % 3 == 0, 1);
        struct plan *plan = world_plan(&world);
        const struct plan_tape *tape = plan_tape(plan, PLAN_KIND_COUNT, PLAN_FIRST);
        for (uint32_t c = 0; c < tape->count; c++) {
            packed += tape->commands[c].op == PLAN_EXPAND && tape->commands[c].packed;
        }
        plan_destroy(plan);
    }
    check_uint(packed, >, 0);
}

static void coded_ranks_train(void)
{
    for (uint64_t i = 0; i < TEST_COUNT(120, 24); i++) {
        struct world world;
        train_vary(&world, i * 7919 + i / 3);
        world.input.budgets.device_is_host = true;
        world.input.world = i % 2 == 0 ? 2 : 4;
        world.input.stage = 1 + (uint32_t)(i / 2 % 3);
        world.input.codes = true;
        world.input.packs = i % 5 == 0;
        train_as_timed(&world, i % 3 == 0, 1);
    }
}

/* Returns the number of a tape's gathers within groups. Adds to *others the repeated gathers from
 * all ranks. */
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

/* With groups, a step gathers a block from all ranks at most once. */
static void groups_train(void)
{
    uint32_t within = 0;
    uint32_t others = 0;
    for (uint64_t i = 0; i < TEST_COUNT(160, 32); i++) {
        struct world world;
        train_vary(&world, i * 7919 + i / 3);
        world.input.budgets.device_is_host = true;
        world.input.world = 4;
        world.input.within = 2;
        world.input.local = i % 3 == 0 ? 4 : 2;
        world.input.stage = 3;
        world.input.packs = i % 4 == 1;
        world.shapes[i % BLOCKS].trained = i % 5 != 2;
        if (i % 7 == 3) {
            train_store_blocks(&world, i % 2 == 0);
        }
        train_as_timed(&world, i % 3 == 0, 1);
        struct plan *plan = world_plan(&world);
        within += count_within(plan, &others);
        plan_destroy(plan);
    }
    check_uint(within, >, 100);
    check_uint(others, ==, 0);
}

/* A rank keeps its part of the copy in HOST. Shards of other nodes are received once. */
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
        uint64_t once = 0; /* elements received from the other node */
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

static const struct plan_command *reduction(const struct plan_tape *tape, uint32_t block)
{
    uint32_t c = 0;
    while (tape->commands[c].op != PLAN_REDUCE || tape->commands[c].block != block) {
        c++;
    }
    return &tape->commands[c];
}

/* Gradients as codes take 4 bits, with a scale per 256 gradients. */
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
                /* Rank 0 has two of five cuts. */
                check_uint(reduce->bytes, ==, 3 * UNIT / 256 * 132);
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

/* Returns the bytes that the first GATHER of a block receives. */
static uint64_t gathered_bytes(const struct plan_tape *tape, uint32_t block)
{
    uint32_t c = 0;
    while (tape->commands[c].op != PLAN_GATHER || tape->commands[c].block != block) {
        c++;
    }
    return tape->commands[c].bytes;
}

/* Packed weights take one byte, with a scale of 4 bytes per 256 weights. */
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
    check_uint(bytes[0], ==, 2 * 3 * UNIT); /* two of five cuts */
    check_uint(bytes[1], ==, 3 * (UNIT + UNIT / 64));
    world.input.budgets.device_is_host = false;
    check_int(plan_create(&world.input, &plan), ==, -ENOTSUP);
    check_contains(core_err_message(), "on the CPU device only");
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

/* Stages 0 to 2 send about the bytes of an all-reduce, stage 3 up to half more; higher stages keep
 * less memory. */
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

TEST_MAIN({"ranks_train", ranks_train}, {"packed_ranks_train", packed_ranks_train},
          {"coded_ranks_train", coded_ranks_train}, {"groups_train", groups_train},
          {"groups_gather_inside", groups_gather_inside},
          {"coded_gradients_are_small", coded_gradients_are_small},
          {"packed_weights_are_small", packed_weights_are_small},
          {"stages_keep_their_promises", stages_keep_their_promises})
