/* Tests lines, fences, bells and queues. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cpus.h"
#include "core/base/err.h"
#include "core/base/fence.h"
#include "core/base/queue.h"
#include "core/base/team.h"
#include "tests/harness/child.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"

/* Issued and reached values are separate; a fence without a line is reached. */
static void line_counts(void)
{
    struct core_line line;
    core_line_init(&line, "line", NULL);
    struct core_fence two = {.line = &line, .value = 2};
    core_line_issue(&line, 2);
    check_int(core_fence_poll(two), ==, 0);
    core_line_reach(&line, 2);
    check_int(core_fence_poll(two), ==, 1);
    check_int(core_fence_wait(two, 0), ==, 0);
    check_int(core_fence_poll((struct core_fence){0}), ==, 1);
    check_int(core_fence_wait((struct core_fence){0}, 0), ==, 0);
}

/* A line's own bell rings only for awaited values; a shared bell rings for each reached value. */
static void only_an_awaited_value_rings(void)
{
    struct core_line line;
    core_line_init(&line, "line", NULL);
    const uint32_t before = core_bell_look(&line.own);
    core_line_issue(&line, 2);
    core_line_reach(&line, 1);
    core_line_reach(&line, 2);
    check_int(core_fence_wait((struct core_fence){&line, 2}, 0), ==, 0);
    core_line_reach(&line, 3);
    check_uint(core_bell_look(&line.own), ==, before);
    check_int(core_fence_wait((struct core_fence){&line, 9}, 1000), ==, -ETIMEDOUT);
    check_int(core_fence_wait((struct core_fence){&line, 5}, 1000), ==, -ETIMEDOUT);
    core_line_reach(&line, 4);
    check_uint(core_bell_look(&line.own), ==, before);
    core_line_reach(&line, 6);
    check_uint(core_bell_look(&line.own), ==, before + 1);
    core_line_reach(&line, 7);
    check_uint(core_bell_look(&line.own), ==, before + 1);
    core_line_fail(&line, -EIO, "the end");
    check_uint(core_bell_look(&line.own), ==, before + 2);

    struct core_bell shared;
    core_bell_init(&shared);
    core_line_init(&line, "line", &shared);
    core_line_issue(&line, 1);
    check_uint(core_bell_look(&shared), ==, 0);
    core_line_reach(&line, 1);
    check_uint(core_bell_look(&shared), ==, 1);
}

static void timeout_names_the_line(void)
{
    struct core_line line;
    core_line_init(&line, "store-read", NULL);
    check_int(core_fence_wait((struct core_fence){&line, 5}, 20000000), ==, -ETIMEDOUT);
    check_contains(core_err_message(), "store-read did not reach 5");
}

/* The first failure wins; values reached before stay reached. */
static void failure_carries_its_message(void)
{
    struct core_line line;
    core_line_init(&line, "line", NULL);
    core_line_reach(&line, 3);
    core_line_fail(&line, -EIO, "drive A is gone");
    core_line_fail(&line, -ENOSPC, "something else");
    check_int(core_fence_poll((struct core_fence){&line, 3}), ==, 1);
    (void)core_err_adopt(-EIO, "");
    check_int(core_fence_wait((struct core_fence){&line, 4}, -1), ==, -EIO);
    check_string(core_err_message(), "drive A is gone");
}

static int append(void *context, const void *arguments)
{
    int **at = context;
    const int *value = arguments;
    *(*at)++ = *value;
    return 0;
}

static struct core_job job_of(int (*run)(void *, const void *), void *context,
                              const void *arguments, size_t bytes)
{
    return (struct core_job){
        .run = run, .context = context, .arguments = arguments, .arguments_bytes = bytes};
}

static void queue_keeps_order(void)
{
    enum { COUNT = 10000 };
    static int seen[COUNT];
    int *at = seen;
    struct core_queue *queue = NULL;
    check_int(core_queue_create(&(struct core_queue_options){.name = "order", .depth = 8}, &queue),
              ==, 0);
    struct core_fence fence = {0};
    for (int i = 0; i < COUNT; i++) {
        struct core_job job = job_of(append, &at, &i, sizeof i);
        int rc;
        while ((rc = core_queue_submit(queue, &job, &fence)) == -EAGAIN) {
            check_int(core_fence_wait((struct core_fence){fence.line, fence.value - 4}, -1), ==, 0);
        }
        check_int(rc, ==, 0);
    }
    check_int(core_fence_wait(core_queue_tail(queue), -1), ==, 0);
    check_uint(core_queue_line(queue)->reached, ==, COUNT);
    core_queue_destroy(queue);
    for (int i = 0; i < COUNT; i++) {
        check_int(seen[i], ==, i);
    }
}

static int pause_job(void *context, const void *arguments)
{
    (void)context;
    usleep(*(const unsigned *)arguments);
    return 0;
}

static void queue_is_bounded(void)
{
    struct core_queue *queue = NULL;
    check_int(core_queue_create(&(struct core_queue_options){.name = "full", .depth = 4}, &queue),
              ==, 0);
    const unsigned pause_us = 20000;
    struct core_job job = job_of(pause_job, NULL, &pause_us, sizeof pause_us);
    struct core_fence first = {0};
    struct core_fence fence = {0};
    check_int(core_queue_submit(queue, &job, &first), ==, 0);
    for (int i = 0; i < 3; i++) {
        check_int(core_queue_submit(queue, &job, &fence), ==, 0);
    }
    check_int(core_queue_submit(queue, &job, &fence), ==, -EAGAIN);
    check_int(core_fence_wait(first, -1), ==, 0);
    check_int(core_queue_submit(queue, &job, &fence), ==, 0);
    core_queue_destroy(queue); /* waits until the queue is empty */
}

struct turn {
    struct core_fence before;
    int **at;
    int value;
};

/* Waits for the other queue's job, then appends a number. */
static int append_after(void *context, const void *arguments)
{
    const struct turn *turn = arguments;
    int rc = core_fence_wait(turn->before, -1);
    return rc != 0 ? rc : append(context, &turn->value);
}

/* Two queues wait for each other in turn, and their jobs see each other's work. */
static void fences_cross_queues(void)
{
    enum { COUNT = 2000 };
    static int seen[2 * COUNT];
    int *at = seen; /* not atomic: fences order the accesses, as TSan confirms */
    struct core_queue *queue[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        struct core_queue_options options = {.name = i == 0 ? "ping" : "pong", .depth = 2 * COUNT};
        check_int(core_queue_create(&options, &queue[i]), ==, 0);
    }
    struct core_fence last = {0};
    for (int i = 0; i < 2 * COUNT; i++) {
        const struct turn turn = {.before = last, .value = i};
        struct core_job job = job_of(append_after, &at, &turn, sizeof turn);
        check_int(core_queue_submit(queue[i % 2], &job, &last), ==, 0);
    }
    check_int(core_fence_wait(last, 10000000000), ==, 0);
    core_queue_destroy(queue[0]);
    core_queue_destroy(queue[1]);
    for (int i = 0; i < 2 * COUNT; i++) {
        check_int(seen[i], ==, i);
    }
}

static int fail_job(void *context, const void *arguments)
{
    (void)context;
    (void)arguments;
    return core_err_set(-EIO, "the job broke");
}

/* A failed job ends its queue with its message; later jobs do not run. */
static void failure_ends_the_queue(void)
{
    struct core_queue *queue = NULL;
    check_int(core_queue_create(&(struct core_queue_options){.name = "a"}, &queue), ==, 0);
    struct core_job bad = job_of(fail_job, NULL, NULL, 0);
    struct core_fence fence = {0};
    check_int(core_queue_submit(queue, &bad, &fence), ==, 0);
    check_int(core_fence_wait(fence, -1), ==, -EIO);
    check_string(core_err_message(), "the job broke");
    int value = 1;
    int *at = &value;
    struct core_job good = job_of(append, &at, &value, sizeof value);
    (void)core_err_adopt(-EIO, "");
    check_int(core_queue_submit(queue, &good, &fence), ==, -EIO);
    check_string(core_err_message(), "the job broke");
    core_queue_destroy(queue);
    check_true(at == &value);
}

struct failure_note {
    struct core_queue *queue;
    int rc;
    int next_rc;
    char message[64];
};

/* Records the failed job's result and message, and the result of submitting another job. */
static void note_failure(void *context, int rc)
{
    struct failure_note *note = context;
    struct core_fence unused;
    const struct core_job next = job_of(fail_job, NULL, NULL, 0);
    note->rc = rc;
    snprintf(note->message, sizeof note->message, "%s", core_err_message());
    note->next_rc = core_queue_submit(note->queue, &next, &unused);
}

static void failed_is_called_after_the_end(void)
{
    struct failure_note note = {.queue = NULL};
    check_int(core_queue_create(&(struct core_queue_options){.name = "a"}, &note.queue), ==, 0);
    struct core_job bad = job_of(fail_job, &note, NULL, 0);
    bad.failed = note_failure;
    struct core_fence fence = {0};
    check_int(core_queue_submit(note.queue, &bad, &fence), ==, 0);
    core_queue_destroy(note.queue);
    check_int(note.rc, ==, -EIO);
    check_int(note.next_rc, ==, -EIO);
    check_string(note.message, "the job broke");
}

static int wait_job(void *context, const void *arguments)
{
    (void)arguments;
    return core_fence_wait((struct core_fence){context, 1}, -1);
}

static void abandoned_jobs_are_dropped(void)
{
    struct core_line gate;
    core_line_init(&gate, "gate", NULL);
    int value = 1;
    int *at = &value;
    struct core_job first = job_of(wait_job, &gate, NULL, 0);
    struct core_job second = job_of(append, &at, &value, sizeof value);
    struct core_queue *queue = NULL;
    struct core_fence fence = {0};
    check_int(core_queue_create(&(struct core_queue_options){.name = "abandoned"}, &queue), ==, 0);
    check_int(core_queue_submit(queue, &first, &fence), ==, 0);
    check_int(core_queue_submit(queue, &second, &fence), ==, 0);
    core_err_set(-ECANCELED, "leaving");
    core_queue_abandon(queue, -ECANCELED);
    check_int(core_fence_wait(fence, -1), ==, -ECANCELED);
    core_line_reach(&gate, 1);
    core_queue_destroy(queue);
    check_true(at == &value);
}

/* With `rings_below` 2, only the last two jobs ring; the line shows the other jobs, too. */
static void a_queue_may_ring_late(void)
{
    enum { COUNT = 6 };
    struct core_line gate;
    struct core_bell bell;
    core_line_init(&gate, "gate", NULL);
    core_bell_init(&bell);
    int seen[COUNT];
    int *at = seen;
    struct core_queue *queue = NULL;
    struct core_fence fence = {0};
    const struct core_queue_options options = {.name = "late", .bell = &bell, .rings_below = 2};
    check_int(core_queue_create(&options, &queue), ==, 0);
    struct core_job first = job_of(wait_job, &gate, NULL, 0);
    check_int(core_queue_submit(queue, &first, &fence), ==, 0);
    for (int i = 0; i < COUNT; i++) {
        struct core_job job = job_of(append, &at, &i, sizeof i);
        check_int(core_queue_submit(queue, &job, &fence), ==, 0);
    }
    core_line_reach(&gate, 1);
    check_int(core_fence_wait(fence, -1), ==, 0);
    check_uint(core_queue_line(queue)->reached, ==, COUNT + 1);
    core_queue_destroy(queue);
    check_uint(core_bell_look(&bell), ==, 2);
}

/* The time limit of a wait starts again whenever its line moves. */
static void patience_begins_anew(void)
{
    struct core_queue *queue = NULL;
    struct core_fence last = {0};
    const unsigned pause_us = 60000; /* the sum exceeds the limit; a single pause does not */
    check_int(core_queue_create(&(struct core_queue_options){.name = "slow"}, &queue), ==, 0);
    for (int i = 0; i < 20; i++) {
        struct core_job job = job_of(pause_job, NULL, &pause_us, sizeof pause_us);
        check_int(core_queue_submit(queue, &job, &last), ==, 0);
    }
    check_int(core_fence_wait_moving(last, 1000000000), ==, 0);
    core_queue_destroy(queue);

    struct core_line line;
    core_line_init(&line, "still", NULL);
    core_line_reach(&line, 3);
    check_int(core_fence_wait_moving((struct core_fence){&line, 3}, 1000000), ==, 0);
    check_int(core_fence_wait_moving((struct core_fence){0}, 0), ==, 0);
    check_int(core_fence_wait_moving((struct core_fence){&line, 4}, 20000000), ==, -ETIMEDOUT);
    check_contains(core_err_message(), "still did not reach 4");
    core_line_fail(&line, -ETIMEDOUT, "the drive sleeps");
    check_int(core_fence_wait_moving((struct core_fence){&line, 4}, 20000000), ==, -ETIMEDOUT);
    check_string(core_err_message(), "the drive sleeps");
}

/* A waiter of a shared bell wakes when one of the bell's lines moves. */
static void shared_bell(void)
{
    struct core_bell bell;
    core_bell_init(&bell);
    struct core_queue *queue[2];
    struct core_fence fence[2];
    for (int i = 0; i < 2; i++) {
        struct core_queue_options options = {.name = "shared", .bell = &bell};
        check_int(core_queue_create(&options, &queue[i]), ==, 0);
        const unsigned pause_us = i == 0 ? 60000 : 1000;
        struct core_job job = job_of(pause_job, NULL, &pause_us, sizeof pause_us);
        check_int(core_queue_submit(queue[i], &job, &fence[i]), ==, 0);
    }
    int first = -1;
    while (first < 0) {
        uint32_t seen = core_bell_look(&bell);
        for (int i = 0; i < 2; i++) {
            first = core_fence_poll(fence[i]) > 0 ? i : first;
        }
        if (first < 0) {
            core_bell_sleep(&bell, seen, 5000000000);
        }
    }
    check_int(first, ==, 1);
    core_queue_destroy(queue[0]);
    core_queue_destroy(queue[1]);
    uint32_t seen = core_bell_look(&bell);
    check_int(core_bell_sleep(&bell, seen, 1000000), ==, -ETIMEDOUT);
    check_int(core_bell_spin_sleep(&bell, seen - 1, 1000, -1), ==, 0);
    core_bell_ring(&bell); /* rung after the check: the wait ends at once */
    check_int(core_bell_look(&bell), ==, seen + 1);
    check_int(core_bell_sleep(&bell, seen, -1), ==, 0);
}

/* Waits 1 ms for a bell, and checks that the wait does not spin for long. */
static int wait_without_spinning(void)
{
    struct core_bell bell;
    struct timespec before;
    struct timespec after;
    core_bell_init(&bell);
    const uint32_t seen = core_bell_look(&bell);
    check_int(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before), ==, 0);
    check_int(core_bell_spin_sleep(&bell, seen, INT64_C(10000000000), 1000000), ==, -ETIMEDOUT);
    check_int(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after), ==, 0);
    check_double(difftime(after.tv_sec, before.tv_sec), <, 2);
    check_true(!core_bell_may_spin());
    return 0;
}

static int wait_passively(void *argument)
{
    (void)argument;
    check_int(setenv("TIDE_WAIT_POLICY", "passive", 1), ==, 0);
    return wait_without_spinning();
}

static void bind_to_one_processor(void)
{
    struct core_cpus allowed;
    struct core_cpus one = {.bits = {0}};
    check_int(core_cpus_allowed(&allowed), ==, 0);
    core_cpus_add(&one, (unsigned)core_cpus_nth(&allowed, 0));
    check_int(core_cpus_bind_self(&one), ==, 0);
}

static int wait_on_one_processor(void *argument)
{
    (void)argument;
    check_int(unsetenv("TIDE_WAIT_POLICY"), ==, 0);
    bind_to_one_processor();
    return wait_without_spinning();
}

static int wait_actively_on_one_processor(void *argument)
{
    (void)argument;
    check_int(setenv("TIDE_WAIT_POLICY", "active", 1), ==, 0);
    bind_to_one_processor();
    check_true(core_bell_may_spin());
    return 0;
}

static int wait_as_nobody_knows(void *argument)
{
    struct core_bell bell;
    (void)argument;
    check_int(setenv("TIDE_WAIT_POLICY", "pasive", 1), ==, 0);
    test_listen(CORE_LOG_WARN);
    core_bell_init(&bell);
    check_int(core_bell_spin_sleep(&bell, core_bell_look(&bell), 1000, 1000), ==, -ETIMEDOUT);
    test_listen_end();
    check_contains(test_heard(), "\"pasive\"");
    return 0;
}

/* Waits are passive on request, and on a single processor unless active waits are requested.
 * Children run the checks, because the environment is read once. */
static void waits_may_be_passive(void)
{
    check_int(test_child(wait_passively, NULL), ==, 0);
    check_int(test_child(wait_on_one_processor, NULL), ==, 0);
    check_int(test_child(wait_actively_on_one_processor, NULL), ==, 0);
    check_int(test_child(wait_as_nobody_knows, NULL), ==, 0);
}

struct failers {
    struct core_line line;
    _Atomic int wrong;
};

static void fail_part(void *argument, unsigned index, unsigned count)
{
    struct failers *failers = argument;
    (void)count;
    core_line_fail(&failers->line, -1 - (int)index, index == 0 ? "zero" : "other");
    struct core_fence fence = {&failers->line, 1};
    int rc = core_fence_wait(fence, INT64_MAX);
    failers->wrong += rc >= 0 || strcmp(core_err_message(), rc == -1 ? "zero" : "other") != 0;
}

/* If threads fail a line at the same time, one code wins with its own message. */
static void failures_do_not_mix(void)
{
    struct core_team *team = NULL;
    check_int(core_team_create(&(struct core_team_options){.count = 3}, &team), ==, 0);
    for (int i = 0; i < 300; i++) {
        struct failers failers = {.wrong = 0};
        core_line_init(&failers.line, "line", NULL);
        core_team_run(team, fail_part, &failers);
        check_int(failers.wrong, ==, 0);
    }
    core_team_destroy(team);
}

static void bad_options_are_refused(void)
{
    struct core_queue *queue = NULL;
    struct core_queue_options options = {.name = "deep", .depth = UINT32_MAX};
    check_int(core_queue_create(&options, &queue), ==, -EINVAL);
    check_contains(core_err_message(), "out of range");
    check_true(queue == NULL);
    core_queue_destroy(NULL);
}

TEST_MAIN({"waits_may_be_passive", waits_may_be_passive}, {"line_counts", line_counts},
          {"only_an_awaited_value_rings", only_an_awaited_value_rings},
          {"timeout_names_the_line", timeout_names_the_line},
          {"failure_carries_its_message", failure_carries_its_message},
          {"queue_keeps_order", queue_keeps_order}, {"queue_is_bounded", queue_is_bounded},
          {"fences_cross_queues", fences_cross_queues},
          {"failure_ends_the_queue", failure_ends_the_queue},
          {"failed_is_called_after_the_end", failed_is_called_after_the_end},
          {"abandoned_jobs_are_dropped", abandoned_jobs_are_dropped},
          {"a_queue_may_ring_late", a_queue_may_ring_late},
          {"patience_begins_anew", patience_begins_anew}, {"shared_bell", shared_bell},
          {"failures_do_not_mix", failures_do_not_mix},
          {"bad_options_are_refused", bad_options_are_refused})
