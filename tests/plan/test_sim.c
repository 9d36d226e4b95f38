/* Tests the simulator, in which commands share resources. */
#include <errno.h>

#include "offload/plan/print.h"
#include "offload/plan/sim.h"
#include "tests/harness/test.h"
#include "tests/plan/world.h"

/* A step takes at least the time of its busiest resource, and little more. */
static void prediction_keeps_its_bounds(void)
{
    for (int clip = 0; clip < 2; clip++) {
        struct world world;
        world_init(&world, false, 1);
        world.input.wishes.may_clip = clip;
        world.input.rates.flops = 8e12;
        world.input.wishes.weights = PLAN_WHERE_STORE;
        world.input.wishes.states = PLAN_WHERE_STORE;
        struct plan *plan = world_plan(&world);
        const struct plan_prediction *predicted = plan_predicted(plan);
        double drive = (double)(predicted->store_read_bytes + predicted->store_write_bytes) /
                       world.input.rates.mixed_bytes;
        check_double(predicted->step_seconds, >=, drive * 0.999);
        for (int r = 0; r < PLAN_R_COUNT; r++) {
            check_double(predicted->step_seconds * 1.0001, >=, predicted->resource_seconds[r]);
        }
        check_int(predicted->bottleneck, ==, PLAN_R_DRIVE);
        test_note("timing %d: step %.4f s, drive alone %.4f s", (int)plan_chosen_timing(plan),
                  predicted->step_seconds, drive);
        check_true(!clip || plan_chosen_timing(plan) == PLAN_TIMING_DEFERRED);
        check_double(predicted->step_seconds, <=, drive * (clip ? 1.25 : 1.1));
        plan_destroy(plan);
    }
}

/* The expected times are calculated by hand. */
static void simulator_shares_resources(void)
{
    struct plan_rates rates = {.read_bytes = 100,
                               .write_bytes = 50,
                               .mixed_bytes = 80,
                               .up_bytes = 10,
                               .down_bytes = 10,
                               .flops = 1,
                               .update_elements = 1,
                               .sums_elements = 1,
                               .round_elements = 1};
    struct plan_command commands[2] = {
        {.op = PLAN_READ, .queue = PLAN_Q_READ_WEIGHT, .bytes = 100, .place = 1},
        {.op = PLAN_READ, .queue = PLAN_Q_READ_STATE, .bytes = 200, .place = 1}};
    for (int i = 0; i < 2; i++) {
        for (int e = 0; e < PLAN_EDGE_MAX; e++) {
            commands[i].edges[e].queue = PLAN_Q_COUNT;
        }
    }
    struct plan_tape tape = {.commands = commands, .count = 2};
    tape.queue_count[PLAN_Q_READ_WEIGHT] = tape.queue_count[PLAN_Q_READ_STATE] = 1;
    const struct plan_tape *tapes[] = {&tape};
    struct plan_time times[2];
    struct plan_time *const times_of[] = {times};
    double end = 0;
    check_int(plan_sim_run(&rates, false, tapes, 1, times_of, &end), ==, 0);
    /* half speed until the other command is done */
    check_double(fabs(times[0].end_seconds - 2), <, 1e-9);
    check_double(fabs(end - 3), <, 1e-9);
    commands[1].edges[0] = (struct plan_edge){.count = 1, .queue = PLAN_Q_READ_WEIGHT};
    check_int(plan_sim_run(&rates, false, tapes, 1, times_of, &end), ==, 0);
    check_double(fabs(times[0].end_seconds - 1), <, 1e-9);
    check_double(fabs(times[1].begin_seconds - 1), <, 1e-9);
    check_double(fabs(end - 3), <, 1e-9);
    commands[1] = commands[0];
    commands[1].op = PLAN_WRITE;
    commands[1].queue = PLAN_Q_WRITE_STATE;
    tape.queue_count[PLAN_Q_READ_STATE] = 0;
    tape.queue_count[PLAN_Q_WRITE_STATE] = 1;
    check_int(plan_sim_run(&rates, false, tapes, 1, times_of, &end), ==, 0);
    check_double(fabs(end - 2.5), <, 1e-9); /* both move 100 bytes, at 40 per second */
    check_double(plan_sim_alone(&rates, &commands[1]), ==, 2);
    commands[0].edges[0] = (struct plan_edge){.count = 1, .queue = PLAN_Q_WRITE_STATE};
    commands[1].edges[0] = (struct plan_edge){.count = 1, .queue = PLAN_Q_READ_WEIGHT};
    check_int(plan_sim_run(&rates, false, tapes, 1, times_of, &end), ==, -EDEADLK);
    struct plan_prediction predicted;
    check_int(plan_sim_predict(&rates, false, &tape, &predicted), ==, -EDEADLK);
}

/* Simulates two independent commands. */
static void run_pair(const struct plan_rates *rates, bool device_is_host,
                     const struct plan_command *first, const struct plan_command *second,
                     struct plan_time times[2])
{
    struct plan_command commands[2] = {*first, *second};
    for (int i = 0; i < 2; i++) {
        commands[i].place = 1;
        for (int e = 0; e < PLAN_EDGE_MAX; e++) {
            commands[i].edges[e].queue = PLAN_Q_COUNT;
        }
    }
    struct plan_tape tape = {.commands = commands, .count = 2};
    tape.queue_count[first->queue]++;
    tape.queue_count[second->queue]++;
    const struct plan_tape *tapes[] = {&tape};
    struct plan_time *const times_of[] = {times};
    double end = 0;
    check_int(plan_sim_run(rates, device_is_host, tapes, 1, times_of, &end), ==, 0);
}

/* Computing codes adds to the time of transfers. */
static void codes_take_time(void)
{
    struct plan_rates rates = {.coll_bytes = 100};
    struct plan_command gather = {.op = PLAN_GATHER,
                                  .queue = PLAN_Q_COLL,
                                  .bytes = 300,
                                  .operand_count = 1,
                                  .operands = {{.role = PLAN_AS_FROM, .bytes = 80}}};
    struct plan_command reduce = gather;
    reduce.op = PLAN_REDUCE;
    reduce.elements = 90;
    for (int packed = 0; packed <= 1; packed++) {
        gather.packed = reduce.packed = packed == 1;
        rates.pack_elements = rates.code_elements = 0;
        check_double(plan_sim_alone(&rates, &gather), ==, 3);
        check_double(plan_sim_alone(&rates, &reduce), ==, 3);
        rates.pack_elements = 10;
        rates.code_elements = 30;
        check_double(plan_sim_alone(&rates, &gather), ==, packed == 1 ? 3 + 4 : 3);
        check_double(plan_sim_alone(&rates, &reduce), ==, packed == 1 ? 3 + 3 : 3);
    }
    gather.operand_count = 0; /* a rank without a shard */
    check_double(plan_sim_alone(&rates, &gather), ==, 3);
}

/* A gather within a group has its own rate and needs no packing. */
static void groups_have_their_own_rate(void)
{
    struct plan_rates rates = {.coll_bytes = 100, .pack_elements = 1};
    struct plan_command gather = {.op = PLAN_GATHER,
                                  .queue = PLAN_Q_COLL,
                                  .bytes = 300,
                                  .packed = true,
                                  .within = 2,
                                  .operand_count = 1,
                                  .operands = {{.role = PLAN_AS_FROM, .bytes = 80}}};
    check_double(plan_sim_alone(&rates, &gather), ==, 3);
    rates.within_bytes = 150;
    check_double(plan_sim_alone(&rates, &gather), ==, 2);
    gather.within = 0;
    check_double(plan_sim_alone(&rates, &gather), ==, 3 + 40);
}

/* Copies slow each other down, and the update by their share of host memory. */
static void copies_share_links_and_memory(void)
{
    struct plan_rates rates = {.up_bytes = 10, .down_bytes = 20, .update_elements = 1};
    const struct plan_command up = {.op = PLAN_H2D, .queue = PLAN_Q_UP, .bytes = 10};
    const struct plan_command down = {.op = PLAN_D2H, .queue = PLAN_Q_DOWN, .bytes = 20};
    const struct plan_command update = {.op = PLAN_UPDATE, .queue = PLAN_Q_UPDATE, .elements = 10};
    struct plan_time times[2];
    run_pair(&rates, false, &up, &down, times);
    check_double(fabs(times[0].end_seconds - 1), <, 1e-9);
    check_double(fabs(times[1].end_seconds - 1), <, 1e-9);
    rates.both_bytes = 5;
    run_pair(&rates, false, &up, &down, times);
    check_double(fabs(times[0].end_seconds - 2), <, 1e-9);
    check_double(fabs(times[1].end_seconds - 2.5), <,
                 1e-9); /* 10 bytes at 5 per second, then 10 at 20 */
    run_pair(&rates, false, &up, &update, times);
    check_double(fabs(times[1].end_seconds - 10), <, 1e-9);
    rates.memory_bytes = 20;
    run_pair(&rates, false, &up, &update, times);
    check_double(fabs(times[0].end_seconds - 1), <, 1e-9);
    check_double(fabs(times[1].end_seconds - 10.5), <, 1e-9); /* half speed for a second */
}

TEST_MAIN({"codes_take_time", codes_take_time},
          {"groups_have_their_own_rate", groups_have_their_own_rate},
          {"copies_share_links_and_memory", copies_share_links_and_memory},
          {"prediction_keeps_its_bounds", prediction_keeps_its_bounds},
          {"simulator_shares_resources", simulator_shares_resources})
