/* test_executor.c: threads that run tapes read the versions that program order reads; failures
 * and stalls end with a message. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/queue.h"
#include "offload/run/executor.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"
#include "tests/plan/model.h"
#include "tests/plan/world.h"

struct seen;

static void watch(void *user, uint64_t tape, const struct plan_command *command, int64_t begin_ns,
                  int64_t end_ns);

struct bench {
    struct world world;
    struct plan *plan;
    struct model model;
    struct core_bell bell;
    struct core_queue *queues[PLAN_Q_COUNT];
    struct run_executor *executor;
    uint64_t *digests; /* by number of the command over all tapes */
    const struct plan_tape *now[3];
    /* Commands done by each queue; written by the queue's thread. */
    _Atomic uint32_t done[PLAN_Q_COUNT];
    unsigned sleep_us[PLAN_Q_COUNT];
    struct seen *watched; /* NULL: no watcher */
    int fail_op;          /* op that fails; -1: none */
};

struct job {
    struct bench *bench;
    const struct plan_command *command;
};

/* Returns the number over all tapes of a queue's next command. */
static uint32_t number_of(const struct bench *bench, const struct plan_command *command)
{
    uint32_t done = bench->done[command->queue];
    for (uint32_t t = 0; t < bench->model.tape_count; t++) {
        if (done < bench->model.tapes[t]->queue_count[command->queue]) {
            return model_first_number(&bench->model, t) +
                   (uint32_t)(command - bench->model.tapes[t]->commands);
        }
        done -= bench->model.tapes[t]->queue_count[command->queue];
    }
    return 0;
}

static int work(void *context, const void *arguments)
{
    (void)context;
    const struct job *job = arguments;
    struct bench *bench = job->bench;
    uint8_t q = job->command->queue;
    if (bench->sleep_us[q] > 0) {
        usleep(bench->sleep_us[q]);
    }
    if (job->command->op == bench->fail_op) {
        return core_err_set(-EIO, "drive /a gave up at block %u", job->command->block);
    }
    if (bench->digests != NULL) {
        uint32_t number = number_of(bench, job->command);
        bench->digests[number] = model_run(&bench->model, job->command, number);
    }
    bench->done[q]++;
    return 0;
}

static int submit(void *context, const struct plan_command *command, struct core_fence *out)
{
    struct bench *bench = context;
    struct job arguments = {bench, command};
    const struct core_job job = {
        .run = work, .arguments = &arguments, .arguments_bytes = sizeof arguments};
    return core_queue_submit(bench->queues[command->queue], &job, out);
}

static void bench_init(struct bench *bench, uint32_t depth)
{
    bench->fail_op = -1;
    core_bell_init(&bench->bell);
    uint32_t longest = 0;
    for (uint32_t t = 0; t < bench->model.tape_count; t++) {
        uint32_t count = bench->model.tapes[t]->count;
        longest = count > longest ? count : longest;
    }
    struct run_executor_options options = {
        .bell = &bench->bell, .commands_max = longest, .stall_limit_ns = 2000000000};
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        struct core_queue_options queue = {.name = plan_queue_name((enum plan_queue)q),
                                           .depth = depth,
                                           .bell = &bench->bell,
                                           .spin_ns = -1};
        check_int(core_queue_create(&queue, &bench->queues[q]), ==, 0);
        options.lanes[q] = (struct run_lane){.submit = submit, .context = bench};
    }
    options.watch = bench->watched != NULL ? watch : NULL;
    options.watch_user = bench->watched;
    check_int(run_executor_create(&options, &bench->executor), ==, 0);
}

static void bench_fini(struct bench *bench)
{
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        core_err_set(-ECANCELED, "the test is over");
        core_queue_abandon(bench->queues[q], -ECANCELED);
    }
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        core_queue_destroy(bench->queues[q]);
    }
    run_executor_destroy(bench->executor);
    run_executor_destroy(NULL);
}

static void plan_init(struct bench *bench, bool tied, uint32_t micros)
{
    world_init(&bench->world, tied, micros);
    bench->world.input.wishes.weights = PLAN_WHERE_STORE;
    bench->world.input.wishes.states = PLAN_WHERE_STORE;
    bench->world.input.wishes.acts = tied ? PLAN_ACTS_STORE : PLAN_ACTS_RECOMPUTE;
    bench->plan = world_plan(&bench->world);
    bench->model = (struct model){.plan = bench->plan, .tape_count = 3};
    enum plan_kind before = PLAN_KIND_COUNT;
    for (uint32_t t = 0; t < 3; t++) {
        enum plan_kind kind = t == 0 ? PLAN_FIRST : t == 1 ? PLAN_NEXT : PLAN_DRAIN;
        bench->model.tapes[t] = plan_tape(bench->plan, before, kind);
        before = kind;
    }
}

static void run_tapes(struct bench *bench, uint32_t tapes)
{
    for (uint32_t t = 0; t < tapes; t++) {
        int rc;
        while ((rc = run_executor_push(bench->executor, bench->model.tapes[t],
                                       (struct core_fence){0})) == -EAGAIN) {
            check_int(run_executor_drive(bench->executor, 1), ==, 0);
        }
        check_int(rc, ==, 0);
    }
    check_int(run_executor_drive(bench->executor, 0), ==, 0);
}

/* With one thread per queue, commands read the versions of program order. */
static void threads_read_what_program_order_reads(void)
{
    for (int variant = 0; variant < 4; variant++) {
        struct bench bench = {.fail_op = -1};
        plan_init(&bench, variant & 1, 2);
        model_init(&bench.model);
        uint32_t total = model_first_number(&bench.model, 3);
        uint64_t *expected = calloc(total, sizeof *expected);
        for (uint32_t t = 0; t < 3; t++) {
            for (uint32_t i = 0; i < bench.model.tapes[t]->count; i++) {
                uint32_t number = model_first_number(&bench.model, t) + i;
                expected[number] = model_run(&bench.model, &bench.model.tapes[t]->commands[i],
                                             number);
            }
        }
        model_fini(&bench.model);
        model_init(&bench.model);
        bench.digests = calloc(total, sizeof *bench.digests);
        bench_init(&bench, variant & 2 ? 2 : 64);
        run_tapes(&bench, 3);
        bench_fini(&bench);
        check_memory(bench.digests, expected, total * sizeof *expected);
        free(expected);
        free(bench.digests);
        model_fini(&bench.model);
        plan_destroy(bench.plan);
    }
}

struct seen {
    uint32_t tapes[3][PLAN_Q_COUNT];
    int64_t end_ns[PLAN_Q_COUNT];
    int64_t ends[3][4096]; /* by tape and index */
    const struct bench *bench;
    uint32_t wrong;
};

static uint32_t index_of(const struct plan_tape *tape, uint8_t queue, uint32_t place)
{
    for (uint32_t i = 0; i < tape->count; i++) {
        if (tape->commands[i].queue == queue && tape->commands[i].place == place) {
            return i;
        }
    }
    return UINT32_MAX;
}

static void watch(void *user, uint64_t tape, const struct plan_command *command, int64_t begin_ns,
                  int64_t end_ns)
{
    struct seen *seen = user;
    uint8_t q = command->queue;
    const struct plan_tape *now = seen->bench->model.tapes[tape];
    bool in_order = command->place == ++seen->tapes[tape][q];
    seen->wrong += !in_order || begin_ns < seen->end_ns[q] || end_ns < begin_ns;
    for (int e = 0; e < PLAN_EDGE_MAX; e++) {
        struct plan_edge edge = command->edges[e];
        if (edge.queue != PLAN_Q_COUNT && edge.count > 0) {
            uint32_t other = index_of(now, edge.queue, (uint32_t)edge.count);
            seen->wrong += seen->ends[tape][other] == 0 || begin_ns < seen->ends[tape][other];
        }
    }
    seen->end_ns[q] = end_ns;
    seen->ends[tape][command - now->commands] = end_ns;
}

/* A watcher sees commands in their queue's order, after the commands that they wait for. */
static void a_watcher_sees_every_command(void)
{
    for (int tied = 0; tied < 2; tied++) {
        struct bench bench = {.fail_op = -1};
        struct seen *seen = calloc(1, sizeof *seen);
        seen->bench = &bench;
        plan_init(&bench, tied, 2);
        bench.watched = seen;
        bench_init(&bench, 64);
        bench.sleep_us[PLAN_Q_UPDATE] = 300;
        const int64_t start_ns = core_clock_now_ns();
        run_tapes(&bench, 3);
        const int64_t end_ns = core_clock_now_ns();
        check_int(seen->wrong, ==, 0);
        for (uint32_t t = 0; t < 3; t++) {
            for (int q = 0; q < PLAN_Q_COUNT; q++) {
                check_int(seen->tapes[t][q], ==, bench.model.tapes[t]->queue_count[q]);
            }
        }
        check_int(seen->end_ns[PLAN_Q_UPDATE], >=, start_ns);
        check_int(seen->end_ns[PLAN_Q_UPDATE], <=, end_ns);
        bench_fini(&bench);
        plan_destroy(bench.plan);
        free(seen);
    }
}

/* Two lines whose commands end when the test says so. */
struct two_lines {
    struct core_line lines[2];
    uint64_t given[2];
    unsigned calls;
    uint64_t tapes[3]; /* of the reported commands of the first line */
    unsigned reported;
};

static int submit_first(void *context, const struct plan_command *command, struct core_fence *out)
{
    struct two_lines *two = context;
    (void)command;
    *out = (struct core_fence){&two->lines[0], ++two->given[0]};
    return 0;
}

/* The second call lets all commands of the first line end, between the looks at two tapes. */
static int submit_second(void *context, const struct plan_command *command, struct core_fence *out)
{
    struct two_lines *two = context;
    (void)command;
    if (two->calls++ == 0) {
        return -EAGAIN;
    }
    *out = (struct core_fence){&two->lines[1], ++two->given[1]};
    core_line_reach(&two->lines[1], two->given[1]);
    core_line_reach(&two->lines[0], two->given[0]);
    return 0;
}

static void note_tape(void *user, uint64_t tape, const struct plan_command *command,
                      int64_t begin_ns, int64_t end_ns)
{
    struct two_lines *two = user;
    check_int(begin_ns, <=, end_ns);
    if (command->queue == PLAN_Q_READ_WEIGHT) {
        two->tapes[two->reported++] = tape;
    }
}

/* Commands of one queue are reported in order over tapes, even if they are found done at once. */
static void tapes_are_watched_in_order(void)
{
    struct two_lines two = {.calls = 0};
    struct core_bell bell;
    struct run_executor *executor = NULL;
    struct plan_command commands[2][2] = {
        {{.queue = PLAN_Q_READ_WEIGHT, .place = 1}, {.queue = PLAN_Q_READ_STATE, .place = 1}},
        {{.queue = PLAN_Q_READ_WEIGHT, .place = 1}}};
    struct plan_tape tapes[2] = {{.commands = commands[0], .count = 2},
                                 {.commands = commands[1], .count = 1}};
    core_bell_init(&bell);
    core_line_init(&two.lines[0], "first", &bell);
    core_line_init(&two.lines[1], "second", &bell);
    struct run_executor_options options = {.bell = &bell,
                                           .commands_max = 2,
                                           .watch = note_tape,
                                           .watch_user = &two,
                                           .stall_limit_ns = 60000000000};
    options.lanes[PLAN_Q_READ_WEIGHT] = (struct run_lane){.submit = submit_first, .context = &two};
    options.lanes[PLAN_Q_READ_STATE] = (struct run_lane){.submit = submit_second, .context = &two};
    check_int(run_executor_create(&options, &executor), ==, 0);
    for (int t = 0; t < 2; t++) {
        for (uint32_t c = 0; c < tapes[t].count; c++) {
            tapes[t].queue_count[commands[t][c].queue]++;
            for (int e = 0; e < PLAN_EDGE_MAX; e++) {
                commands[t][c].edges[e].queue = PLAN_Q_COUNT;
            }
        }
        check_int(run_executor_push(executor, &tapes[t], (struct core_fence){0}), ==, 0);
    }
    check_int(run_executor_drive(executor, 0), ==, 0);
    check_uint(two.reported, ==, 2);
    check_uint(two.tapes[0], ==, 0);
    check_uint(two.tapes[1], ==, 1);
    run_executor_destroy(executor);
}

/* A failed command ends the run with its message; a later push fails with its code. */
static void a_failure_ends_the_run(void)
{
    struct bench bench = {0};
    plan_init(&bench, false, 1);
    bench_init(&bench, 64);
    bench.fail_op = PLAN_WRITE;
    check_int(run_executor_push(bench.executor, bench.model.tapes[0], (struct core_fence){0}), ==,
              0);
    check_int(run_executor_push(bench.executor, bench.model.tapes[1], (struct core_fence){0}), ==,
              0);
    check_int(run_executor_drive(bench.executor, 0), ==, -EIO);
    check_contains(core_err_message(), "drive /a gave up at block 0");
    check_int(run_executor_push(bench.executor, bench.model.tapes[2], (struct core_fence){0}), ==,
              -EIO);
    bench_fini(&bench);
    plan_destroy(bench.plan);
}

/* A closed gate holds compute but not reads, and the stall limit ends the wait. */
static void the_gate_holds_compute(void)
{
    struct core_line data;
    core_line_init(&data, "rows", NULL);
    struct bench bench = {0};
    plan_init(&bench, false, 1);
    bench_init(&bench, 64);
    struct core_fence gate = {&data, 1};
    check_int(run_executor_push(bench.executor, bench.model.tapes[0], gate), ==, 0);
    check_true(!run_executor_stalled(bench.executor));
    check_int(run_executor_drive(bench.executor, 0), ==, -ETIMEDOUT);
    check_contains(core_err_message(), "no progress for 2.0 s");
    check_true(run_executor_stalled(bench.executor));
    check_int(bench.done[PLAN_Q_COMPUTE], ==, 0);
    check_int(bench.done[PLAN_Q_READ_WEIGHT], >, 0);
    struct run_stats stats = run_executor_stats_take(bench.executor);
    check_int(stats.compute_wait_ns[RUN_WAIT_OTHER], >, 1500000000);
    bench_fini(&bench);
    plan_destroy(bench.plan);
}

/* Stops the process for longer than the stall limit; the data arrives a little later. */
static void *stop_then_reach(void *line)
{
    usleep(2 * CORE_CLOCK_BEAT_NS / 1000);
    raise(SIGSTOP);
    usleep(3 * CORE_CLOCK_BEAT_NS / 1000);
    core_line_reach(line, 1);
    return NULL;
}

static int drives_and_stops(void *argument)
{
    struct core_line data;
    core_line_init(&data, "rows", NULL);
    struct bench bench = {0};
    pthread_t thread;
    (void)argument;
    plan_init(&bench, false, 1);
    bench_init(&bench, 64);
    data.bell = &bench.bell;
    int rc = run_executor_push(bench.executor, bench.model.tapes[0], (struct core_fence){&data, 1});
    rc = rc != 0 ? rc : pthread_create(&thread, NULL, stop_then_reach, &data);
    if (rc == 0) {
        rc = run_executor_drive(bench.executor, 0);
        pthread_join(thread, NULL);
    }
    bench_fini(&bench);
    plan_destroy(bench.plan);
    return rc == 0 ? 0 : 1;
}

static void a_stopped_process_has_not_stalled(void)
{
    check_int(test_child(drives_and_stops, NULL), ==, 0);
}

/* A tape behind a closed gate only reads, and can be withdrawn. */
static void a_tape_is_taken_back(void)
{
    struct core_line data;
    core_line_init(&data, "the next step", NULL);
    struct bench bench = {0};
    plan_init(&bench, false, 1);
    bench_init(&bench, 64);
    const struct plan_tape *const *tapes = bench.model.tapes;
    check_int(run_executor_push(bench.executor, tapes[0], (struct core_fence){0}), ==, 0);
    check_int(run_executor_push(bench.executor, tapes[1], (struct core_fence){&data, 1}), ==, 0);
    check_uint(run_executor_pushed(bench.executor), ==, 2);
    check_int(run_executor_drive(bench.executor, 1), ==, 0);
    uint64_t read_bytes = 0;
    check_int(run_executor_withdraw(bench.executor, &read_bytes), ==, 0);
    check_uint(read_bytes, >, 0);
    check_uint(run_executor_pushed(bench.executor), ==, 1);
    uint32_t read = 0;
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        const bool reads = q == PLAN_Q_READ_WEIGHT || q == PLAN_Q_READ_STATE ||
                           q == PLAN_Q_READ_ACT;
        check_uint(bench.done[q], >=, tapes[0]->queue_count[q]);
        read += bench.done[q] - tapes[0]->queue_count[q];
        check_true(reads || bench.done[q] == tapes[0]->queue_count[q]);
    }
    check_uint(read, >, 0);
    run_tapes(&bench, 0);
    check_int(run_executor_push(bench.executor, tapes[1], (struct core_fence){0}), ==, 0);
    check_int(run_executor_drive_to(bench.executor, 1, PLAN_Q_UPDATE,
                                    tapes[1]->queue_count[PLAN_Q_UPDATE]),
              ==, 0);
    check_int(run_executor_push(bench.executor, tapes[2], (struct core_fence){&data, 1}), ==, 0);
    core_line_reach(&data, 1);
    check_int(run_executor_drive(bench.executor, 0), ==, 0);
    check_int(run_executor_drive_to(bench.executor, 0, PLAN_Q_UPDATE, 1), ==, 0); /* done earlier */
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        read -= bench.done[q] - tapes[0]->queue_count[q] - tapes[1]->queue_count[q] -
                tapes[2]->queue_count[q];
    }
    check_uint(read, ==, 0);
    bench_fini(&bench);
    plan_destroy(bench.plan);
}

static void waiting_is_charged_to_its_cause(void)
{
    for (int slow = 0; slow < 2; slow++) {
        struct bench bench = {0};
        plan_init(&bench, false, 1);
        bench_init(&bench, 64);
        bench.sleep_us[slow == 0 ? PLAN_Q_READ_WEIGHT : PLAN_Q_UPDATE] = 6000;
        run_tapes(&bench, 2);
        struct run_stats stats = run_executor_stats_take(bench.executor);
        int64_t most = 0;
        int cause = 0;
        for (int w = 0; w < RUN_WAIT_COUNT; w++) {
            if (stats.compute_wait_ns[w] > most) {
                most = stats.compute_wait_ns[w];
                cause = w;
            }
        }
        check_int(cause, ==, slow == 0 ? RUN_WAIT_STORE_READ : RUN_WAIT_UPDATE);
        check_int(most, >, 60000000);
        bench_fini(&bench);
        plan_destroy(bench.plan);
    }
}

static int submit_done(void *context, const struct plan_command *command, struct core_fence *out)
{
    struct core_line *line = context;
    (void)command;
    uint64_t next = line[0].reached + 1;
    core_line_reach(line, next);
    *out = (struct core_fence){line, next};
    return 0;
}

/* If lanes finish commands at once, a turn of the executor's loop serves two or more on average. */
static void a_turn_serves_several_commands(void)
{
    struct bench bench = {0};
    plan_init(&bench, false, 2);
    struct core_line lines[PLAN_Q_COUNT];
    core_bell_init(&bench.bell);
    struct run_executor_options options = {.bell = &bench.bell, .commands_max = 4096};
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        core_line_init(&lines[q], plan_queue_name((enum plan_queue)q), &bench.bell);
        options.lanes[q] = (struct run_lane){.submit = submit_done, .context = &lines[q]};
    }
    check_int(run_executor_create(&options, &bench.executor), ==, 0);
    run_tapes(&bench, 3);
    struct run_stats stats = run_executor_stats_take(bench.executor);
    test_note("%" PRIu64 " turns for %" PRIu64 " commands", stats.loops, stats.commands);
    check_uint(stats.commands, >, 0);
    check_uint(2 * stats.loops, <=, stats.commands);
    run_executor_destroy(bench.executor);
    plan_destroy(bench.plan);
}

static int nothing(void *context, const void *arguments)
{
    (void)context;
    (void)arguments;
    return 0;
}

static int submit_nothing(void *context, const struct plan_command *command, struct core_fence *out)
{
    struct bench *bench = context;
    const struct core_job job = {.run = nothing};
    return core_queue_submit(bench->queues[command->queue], &job, out);
}

/* A long step takes at most three turns of the executor's loop per command. */
static void a_long_step_takes_few_turns(void)
{
    enum { COMMANDS = 1000, ROUNDS = 20 };
    struct bench bench = {.fail_op = -1};
    struct run_executor_options options = {.bell = &bench.bell, .commands_max = 1 << 16};
    uint32_t micros = 1;
    for (plan_init(&bench, true, micros); bench.model.tapes[1]->count < COMMANDS;) {
        plan_destroy(bench.plan);
        plan_init(&bench, true, micros *= 2);
    }
    const struct plan_tape *tape = plan_tape(bench.plan, PLAN_NEXT, PLAN_NEXT);
    core_bell_init(&bench.bell);
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        const struct core_queue_options queue = {
            .name = plan_queue_name((enum plan_queue)q), .depth = 64, .bell = &bench.bell};
        check_int(core_queue_create(&queue, &bench.queues[q]), ==, 0);
        options.lanes[q] = (struct run_lane){.submit = submit_nothing, .context = &bench};
    }
    check_int(run_executor_create(&options, &bench.executor), ==, 0);
    run_tapes(&bench, 2);
    (void)run_executor_stats_take(bench.executor);
    for (int i = 0; i < ROUNDS; i++) {
        check_int(run_executor_push(bench.executor, tape, (struct core_fence){0}), ==, 0);
        check_int(run_executor_drive(bench.executor, 0), ==, 0);
    }
    struct run_stats stats = run_executor_stats_take(bench.executor);
    test_note("%" PRIu64 " turns for %" PRIu64 " commands", stats.loops, stats.commands);
    check_uint(stats.commands, ==, (uint64_t)ROUNDS * tape->count);
    check_uint(stats.loops, <=, 3 * stats.commands);
    bench_fini(&bench);
    plan_destroy(bench.plan);
}

/* The executor refuses a tape that is too long, and a third unfinished tape. */
static void limits(void)
{
    struct bench bench = {0};
    plan_init(&bench, false, 1);
    bench_init(&bench, 64);
    struct plan_tape longer = *bench.model.tapes[0];
    longer.count = 1 << 20;
    check_int(run_executor_push(bench.executor, &longer, (struct core_fence){0}), ==, -EINVAL);
    check_contains(core_err_message(), "longer than");
    check_int(run_executor_push(bench.executor, bench.model.tapes[0], (struct core_fence){0}), ==,
              0);
    check_int(run_executor_drive_to(bench.executor, 0, PLAN_Q_COMPUTE, 3), ==, 0);
    check_int(bench.done[PLAN_Q_COMPUTE], >=, 3);
    check_int(run_executor_push(bench.executor, bench.model.tapes[1], (struct core_fence){0}), ==,
              0);
    check_int(run_executor_push(bench.executor, bench.model.tapes[2], (struct core_fence){0}), ==,
              -EAGAIN);
    check_int(run_executor_drive(bench.executor, 0), ==, 0);
    bench_fini(&bench);
    plan_destroy(bench.plan);
}

TEST_MAIN({"threads_read_what_program_order_reads", threads_read_what_program_order_reads},
          {"a_watcher_sees_every_command", a_watcher_sees_every_command},
          {"tapes_are_watched_in_order", tapes_are_watched_in_order},
          {"a_failure_ends_the_run", a_failure_ends_the_run},
          {"the_gate_holds_compute", the_gate_holds_compute},
          {"a_stopped_process_has_not_stalled", a_stopped_process_has_not_stalled},
          {"a_tape_is_taken_back", a_tape_is_taken_back},
          {"waiting_is_charged_to_its_cause", waiting_is_charged_to_its_cause},
          {"a_turn_serves_several_commands", a_turn_serves_several_commands},
          {"a_long_step_takes_few_turns", a_long_step_takes_few_turns}, {"limits", limits})
