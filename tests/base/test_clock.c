/* Tests the heartbeat with which waits measure their limits; a long stop of the process hardly
 * counts. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/fence.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

static const int64_t second_ns = 1000000000;
/* about 1 ms */
static const int64_t unit_ns = 1 << 20;

/* Frequent readings add up to the time that has passed. */
static void beats_add_up(void)
{
    struct core_heartbeat heartbeat = {0};
    int64_t now_ns = 77 * second_ns + 123;
    const int64_t begin_ns = core_heartbeat_ran_ns(&heartbeat, now_ns);
    for (int i = 0; i < 1000; i++) {
        now_ns += CORE_CLOCK_BEAT_NS;
        check_int(core_heartbeat_ran_ns(&heartbeat, now_ns) - begin_ns, ==,
                  (i + 1) * (int64_t)CORE_CLOCK_BEAT_NS);
    }
}

/* A gap counts as at most CORE_CLOCK_GAP_NS (and a unit), however long it was. */
static void gaps_are_bounded(void)
{
    static const int64_t gaps_ns[] = {1, 10, 60, 3600, 17592, 86400, 30 * 86400};
    for (size_t i = 0; i < sizeof gaps_ns / sizeof gaps_ns[0]; i++) {
        struct core_heartbeat heartbeat = {0};
        const int64_t now_ns = 5 * second_ns;
        const int64_t before_ns = core_heartbeat_ran_ns(&heartbeat, now_ns);
        const int64_t after_ns = core_heartbeat_ran_ns(&heartbeat, now_ns + gaps_ns[i] * second_ns);
        check_int(after_ns - before_ns, >, -unit_ns);
        check_int(after_ns - before_ns, <=, CORE_CLOCK_GAP_NS + unit_ns);
    }
}

/* A reading that is older than another thread's changes nothing. */
static void late_readings_count_nothing(void)
{
    struct core_heartbeat heartbeat = {0};
    int64_t now_ns = 9 * second_ns;
    const int64_t begin_ns = core_heartbeat_ran_ns(&heartbeat, now_ns);
    for (int i = 0; i < 100; i++) {
        now_ns += 200000000;
        const int64_t ran_ns = core_heartbeat_ran_ns(&heartbeat, now_ns);
        check_int(core_heartbeat_ran_ns(&heartbeat, now_ns - 150000000), <=, ran_ns);
    }
    check_int(core_heartbeat_ran_ns(&heartbeat, now_ns) - begin_ns, ==, 100 * INT64_C(200000000));
}

enum { READERS = 4, READINGS = TEST_COUNT(200000, 20000) };

static void *read_often(void *argument)
{
    int64_t before_ns = core_clock_ran_ns();
    for (int i = 0; i < READINGS; i++) {
        const int64_t now_ns = core_clock_ran_ns();
        if (now_ns < before_ns) {
            return argument;
        }
        before_ns = now_ns;
    }
    return NULL;
}

/* Time does not run backwards when several threads read it. */
static void threads_never_see_it_run_backwards(void)
{
    pthread_t threads[READERS];
    int broken = 1;
    for (int i = 0; i < READERS; i++) {
        check_int(pthread_create(&threads[i], NULL, read_often, &broken), ==, 0);
    }
    for (int i = 0; i < READERS; i++) {
        void *found = NULL;
        pthread_join(threads[i], &found);
        check_true(found == NULL);
    }
}

/* A thread sleeps at most a beat, and at most until its limit. */
static void sleeps_are_short(void)
{
    check_int(core_clock_beat_ns(60 * second_ns), ==, CORE_CLOCK_BEAT_NS);
    check_int(core_clock_beat_ns(1000), ==, 1000);
    check_int(core_clock_beat_ns(-5), ==, -5);
}

static void sleep_beats(int beats)
{
    for (int i = 0; i < beats; i++) {
        nanosleep(&(struct timespec){.tv_nsec = CORE_CLOCK_BEAT_NS}, NULL);
    }
}

/* Stops the process during the wait, then moves the line. A wait that counted the stop would have
 * ended. */
static void *stop_then_reach(void *line)
{
    sleep_beats(2);
    raise(SIGSTOP);
    sleep_beats(3);
    core_line_reach(line, 1);
    return NULL;
}

/* Waits while the process is stopped for longer than the wait's limit. */
static int waits_and_stops(void *argument)
{
    (void)argument;
    struct core_line line;
    pthread_t thread;
    core_line_init(&line, "line", NULL);
    if (pthread_create(&thread, NULL, stop_then_reach, &line) != 0) {
        return 9;
    }
    struct core_line never;
    core_line_init(&never, "never", NULL);
    const struct core_fence fence = {.line = &line, .value = 1};
    /* the first wait survives the stop; the second reaches its limit */
    int rc = core_fence_wait(fence, (TEST_STOP_MS - 500) * INT64_C(1000000));
    rc = rc != 0 ? 1 : core_fence_wait((struct core_fence){&never, 1}, 50000000);
    pthread_join(thread, NULL);
    return rc == -ETIMEDOUT ? 0 : 2;
}

static void a_stopped_process_is_not_late(void)
{
    check_int(test_child(waits_and_stops, NULL), ==, 0);
}

TEST_MAIN({"beats_add_up", beats_add_up}, {"gaps_are_bounded", gaps_are_bounded},
          {"late_readings_count_nothing", late_readings_count_nothing},
          {"threads_never_see_it_run_backwards", threads_never_see_it_run_backwards},
          {"sleeps_are_short", sleeps_are_short},
          {"a_stopped_process_is_not_late", a_stopped_process_is_not_late})
