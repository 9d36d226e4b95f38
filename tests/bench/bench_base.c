/* bench_base.c: times of core/base: waking a team, a fence, a queue, and first touch of memory.
 * Prints `name value unit` lines, mostly medians. `--quick`: a tenth of the rounds. Exits with 1 if
 * a figure misses its bar. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/fence.h"
#include "core/base/mem.h"
#include "core/base/queue.h"
#include "core/base/team.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static int rounds = 20000;
static int missed;
static unsigned threads;

static _Noreturn void stop(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, core_err_message());
    exit(2);
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static double quantile(double *values, int count, double part)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[(int)((count - 1) * part)];
}

/* Prints a line, and whether the bar (0: none) is met. */
static void print(const char *name, double value, const char *unit, double most)
{
    printf("%-34s %12.3f %s", name, value, unit);
    if (most > 0) {
        printf("   (bar: < %g%s)", most, value < most ? "" : ", missed");
        missed += value >= most;
    }
    printf("\n");
    fflush(stdout);
}

static void print_ratio(const char *name, double value, double least)
{
    printf("%-34s %12.3f ratio   (bar: >= %g%s)\n", name, value, least,
           value >= least ? "" : ", missed");
    missed += value < least;
    fflush(stdout);
}

static void print_times(const char *name, double *ns, int count, double bar_us)
{
    char line[64];
    snprintf(line, sizeof line, "%s_median", name);
    print(line, quantile(ns, count, 0.5) / 1e3, "us", bar_us);
    snprintf(line, sizeof line, "%s_p99", name);
    print(line, quantile(ns, count, 0.99) / 1e3, "us", 0);
}

/* ---- team ---- */

struct wake {
    int64_t start_ns;
    _Atomic int64_t latest_ns; /* start of the last member */
};

static void wake_part(void *argument, unsigned index, unsigned count)
{
    struct wake *wake = argument;
    (void)count;
    if (index > 0) {
        int64_t now_ns = core_clock_now_ns();
        int64_t latest = atomic_load(&wake->latest_ns);
        while (latest < now_ns &&
               !atomic_compare_exchange_weak(&wake->latest_ns, &latest, now_ns)) {
        }
    }
}

/* Times a call until the last member starts, and until the return. Members sleep between calls if
 * `pause_ns` is long. */
static void bench_team(const char *name, int64_t spin_ns, int64_t pause_ns, double bar_us)
{
    struct core_team *team = NULL;
    struct core_cpus allowed = {{0}};
    struct core_cpus sets[CORE_TEAM_MAX] = {{{0}}};
    core_cpus_allowed(&allowed);
    for (unsigned i = 0; i < threads; i++) {
        core_cpus_add(&sets[i], (unsigned)core_cpus_nth(&allowed, i));
    }
    struct core_team_options options = {
        .name = "bench", .count = threads, .spin_ns = spin_ns, .sets = sets};
    if (core_team_create(&options, &team) != 0) {
        stop("team");
    }
    int count = pause_ns > 10000 ? rounds / 10 : rounds;
    double *there = calloc((size_t)count, sizeof *there);
    double *back = calloc((size_t)count, sizeof *back);
    if (there == NULL || back == NULL) {
        stop("memory");
    }
    for (int i = 0; i < count; i++) {
        int64_t until = core_clock_now_ns() + pause_ns;
        while (core_clock_now_ns() < until) {
            core_clock_relax();
        }
        struct wake wake = {.start_ns = core_clock_now_ns()};
        core_team_run(team, wake_part, &wake);
        back[i] = (double)(core_clock_now_ns() - wake.start_ns);
        there[i] = (double)(atomic_load(&wake.latest_ns) - wake.start_ns);
    }
    char line[64];
    snprintf(line, sizeof line, "%s_wake", name);
    print_times(line, there, count, bar_us);
    snprintf(line, sizeof line, "%s_round", name);
    print_times(line, back, count, 0);
    free(there);
    free(back);
    core_team_destroy(team);
}

/* ---- fence and queue ---- */

struct signal {
    struct core_line line;
    struct core_line answer;
    int64_t *sent_ns; /* borrowed, [count] */
    int count;
    int64_t pause_ns;
};

static void *send_signals(void *argument)
{
    struct signal *signal = argument;
    for (int i = 0; i < signal->count; i++) {
        core_fence_wait((struct core_fence){&signal->answer, (uint64_t)i + 1}, -1);
        int64_t until = core_clock_now_ns() + signal->pause_ns;
        while (core_clock_now_ns() < until) {
            core_clock_relax();
        }
        signal->sent_ns[i] = core_clock_now_ns();
        core_line_reach(&signal->line, (uint64_t)i + 1);
    }
    return NULL;
}

/* Times a fence from one thread's advance of a line to the return of another thread's wait. */
static void bench_fence(const char *name, int64_t pause_ns, double bar_us)
{
    int count = pause_ns > 15000 ? rounds / 10 : rounds;
    struct signal signal = {.count = count, .pause_ns = pause_ns};
    core_line_init(&signal.line, "bench", NULL);
    core_line_init(&signal.answer, "answer", NULL);
    signal.sent_ns = calloc((size_t)count, sizeof *signal.sent_ns);
    double *took = calloc((size_t)count, sizeof *took);
    pthread_t thread;
    if (signal.sent_ns == NULL || took == NULL ||
        pthread_create(&thread, NULL, send_signals, &signal) != 0) {
        stop("memory");
    }
    for (int i = 0; i < count; i++) {
        core_line_reach(&signal.answer, (uint64_t)i + 1);
        core_fence_wait((struct core_fence){&signal.line, (uint64_t)i + 1}, -1);
        took[i] = (double)(core_clock_now_ns() - signal.sent_ns[i]);
    }
    pthread_join(thread, NULL);
    print_times(name, took, count, bar_us);
    free(signal.sent_ns);
    free(took);
}

static int note_time(void *context, const void *arguments)
{
    (void)arguments;
    *(int64_t *)context = core_clock_now_ns();
    return 0;
}

/* Times a job from submit to start, and from submit to the end of the wait. */
static void bench_queue(void)
{
    struct core_queue *queue = NULL;
    int64_t ran_ns = 0;
    double *start = calloc((size_t)rounds, sizeof *start);
    double *round = calloc((size_t)rounds, sizeof *round);
    if (start == NULL || round == NULL ||
        core_queue_create(&(struct core_queue_options){.name = "bench"}, &queue) != 0) {
        stop("queue");
    }
    struct core_job job = {.run = note_time, .context = &ran_ns};
    for (int i = 0; i < rounds; i++) {
        struct core_fence fence;
        int64_t begin_ns = core_clock_now_ns();
        if (core_queue_submit(queue, &job, &fence) != 0 || core_fence_wait(fence, -1) != 0) {
            stop("queue");
        }
        round[i] = (double)(core_clock_now_ns() - begin_ns);
        start[i] = (double)(ran_ns - begin_ns);
    }
    core_queue_destroy(queue);
    print_times("queue_submit_to_start", start, rounds, 0);
    print_times("queue_round", round, rounds, 0);
    free(start);
    free(round);
}

/* ---- first touch ---- */

static uint64_t touch_bytes = UINT64_C(1) << 30;

static double touch_region(enum core_pages pages, struct core_team *team)
{
    struct core_region region = {0};
    struct core_region_options options = {
        .name = "bench", .bytes = touch_bytes, .pages = pages, .team = team};
    int64_t begin_ns = core_clock_now_ns();
    if (core_region_alloc(&options, &region) != 0) {
        stop("region");
    }
    double took = (double)(core_clock_now_ns() - begin_ns);
    core_region_free(&region);
    return took;
}

struct half {
    unsigned char *base;
    uint64_t bytes;
};

static void *populate(void *argument)
{
    const struct half *half = argument;
    if (madvise(half->base, half->bytes, MADV_POPULATE_WRITE) != 0) {
        for (uint64_t i = 0; i < half->bytes; i += 4096) {
            ((volatile unsigned char *)half->base)[i] = 0;
        }
    }
    return NULL;
}

/* Returns the nanoseconds of the yardstick: the same number of threads touch equal parts of a plain
 * mapping. */
static double touch_yardstick(enum core_pages pages)
{
    int64_t begin_ns = core_clock_now_ns();
    const uint64_t huge = UINT64_C(2) << 20;
    unsigned char *wide = mmap(NULL, touch_bytes + huge, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (wide == MAP_FAILED) {
        stop("mmap");
    }
    unsigned char *base = wide + (huge - (uintptr_t)wide % huge);
    if (pages == CORE_PAGES_THP) {
        madvise(base, touch_bytes, MADV_HUGEPAGE);
    }
    pthread_t thread[64];
    struct half half[64];
    for (unsigned i = 0; i < threads; i++) {
        uint64_t part = touch_bytes / threads / huge * huge;
        half[i] = (struct half){base + i * part, i + 1 < threads ? part : touch_bytes - i * part};
        if (pthread_create(&thread[i], NULL, populate, &half[i]) != 0) {
            stop("thread");
        }
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
    }
    double took = (double)(core_clock_now_ns() - begin_ns);
    munmap(wide, touch_bytes + huge);
    return took;
}

/* Prints the best rates of three ways to touch memory. Their order changes, so that disturbances
 * affect all ways alike. */
static void bench_touch(const char *name, enum core_pages pages, int tries)
{
    struct core_team *team = NULL;
    if (core_team_create(&(struct core_team_options){.name = "touch", .count = threads}, &team) !=
        0) {
        stop("team");
    }
    double best[3] = {0};
    touch_region(pages, team);
    for (int i = 0; i < tries; i++) {
        for (int turn = 0; turn < 3; turn++) {
            int way = (i + turn) % 3;
            double took = way == 1 ? touch_yardstick(pages)
                                   : touch_region(pages, way == 0 ? team : NULL);
            best[way] = best[way] == 0 || took < best[way] ? took : best[way];
        }
    }
    core_team_destroy(team);
    static const char *const ways[] = {"team", "populate", "one_thread"};
    char line[64];
    for (int way = 0; way < 3; way++) {
        snprintf(line, sizeof line, "touch_%s_%s", name, ways[way]);
        print(line, (double)touch_bytes / best[way], "GB/s", 0);
    }
    snprintf(line, sizeof line, "touch_%s_team_vs_populate", name);
    print_ratio(line, best[1] / best[0], 1.0);
    snprintf(line, sizeof line, "touch_%s_team_vs_one_thread", name);
    print_ratio(line, best[2] / best[0], threads >= 2 ? 1.7 : 0.9);
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    if (argc > 2 || (argc == 2 && !quick)) {
        fprintf(stderr, "usage: bench_base [--quick]\n");
        return 2;
    }
    struct core_cpus cpus;
    if (core_cpus_allowed(&cpus) != 0) {
        stop("processors");
    }
    threads = core_cpus_count(&cpus);
    threads = threads > 64 ? 64 : threads;
    if (quick) {
        rounds /= 10;
        touch_bytes /= 4;
    }
    printf("# bench_base%s: %u threads; again: tests/bench/bench_base%s in a release build, on a "
           "machine that does nothing else\n",
           quick ? " --quick" : "", threads, quick ? " --quick" : "");
    bench_team("team_spinning", 0, 2000, 10);
    bench_team("team_asleep", -1, 200000, 0);
    bench_fence("fence_spinning", 2000, 5);
    bench_fence("fence_asleep", 200000, 0);
    bench_queue();
    bench_touch("huge", CORE_PAGES_THP, quick ? 3 : 7);
    bench_touch("base", CORE_PAGES_4K, quick ? 3 : 5);
    printf("# %d bars missed\n", missed);
    return missed != 0;
}
