/* bench_aio_sums.c: the cost of verifying, and its lower bounds: reading uncached memory, hashing
 * cached memory, and a drive's rate while another thread hashes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "tests/bench/bench_aio.h"

enum { MIB = 1 << 20, COLD_MIB = 256 };
static volatile uint64_t sink; /* keeps results alive */

/* The least work that looks at every byte: four sums. */
static uint64_t add_up(const void *memory, uint64_t bytes)
{
    const uint64_t *words = memory;
    uint64_t sums[4] = {0};
    for (uint64_t i = 0; i < bytes / 8; i += 4) {
        for (unsigned k = 0; k < 4; k++) {
            sums[k] += words[i + k];
        }
    }
    return sums[0] + sums[1] + sums[2] + sums[3];
}

static uint64_t hash_up(const void *memory, uint64_t bytes)
{
    return core_hash(memory, bytes, 1);
}

/* Returns the processor time of `work` in milliseconds per GiB: over 256 MiB if `cold`, else
 * repeatedly over 1 MiB. */
static double one_pass(uint64_t (*work)(const void *, uint64_t), bool cold)
{
    double cpu = bench_cpu_ms();
    for (uint64_t i = 0; i < COLD_MIB; i++) {
        sink = sink + work(bench.region.base + (cold ? i * MIB : 0), MIB);
    }
    return (bench_cpu_ms() - cpu) * bench_gib / ((double)COLD_MIB * MIB);
}

static void floors(void)
{
    static const struct {
        const char *name;
        uint64_t (*work)(const void *, uint64_t);
        bool cold;
    } rows[] = {{"hash_floor_ms_per_gib", add_up, true},
                {"hash_cold_ms_per_gib", hash_up, true},
                {"hash_hot_ms_per_gib", hash_up, false}};
    double passes[3][BENCH_PAIRS_MAX];
    for (int i = 0; i < bench.pairs; i++) {
        for (int r = 0; r < 3; r++) {
            passes[r][i] = one_pass(rows[r].work, rows[r].cold);
        }
    }
    for (int r = 0; r < 3; r++) {
        printf("%s %.2f ms/GiB\n", rows[r].name, bench_median(passes[r], bench.pairs));
    }
}

/* A thread that hashes, at a given rate, memory into which nothing is read. */
struct beside {
    double bytes_per_s;
    _Atomic bool stop; /* relaxed: it ends the loop */
};

static void *hash_beside(void *argument)
{
    struct beside *beside = argument;
    const int64_t begin_ns = core_clock_now_ns();
    for (uint64_t i = 0; !atomic_load_explicit(&beside->stop, memory_order_relaxed); i++) {
        const uint64_t at = i % (bench.bytes / MIB) * MIB;
        sink = sink + hash_up(bench.region.base + bench.bytes + at, MIB);
        const double due_s = (double)(i + 1) * MIB / beside->bytes_per_s;
        const double ahead_s = due_s - (double)(core_clock_now_ns() - begin_ns) / 1e9;
        if (ahead_s > 0) {
            const time_t whole_s = (time_t)ahead_s;
            nanosleep(&(struct timespec){.tv_sec = whole_s,
                                         .tv_nsec = (long)((ahead_s - (double)whole_s) * 1e9)},
                      NULL);
        }
    }
    return NULL;
}

static struct bench_figure read_beside(struct bench_side *side, double bytes_per_s)
{
    struct beside beside = {.bytes_per_s = bytes_per_s};
    pthread_t thread;
    if (pthread_create(&thread, NULL, hash_beside, &beside) != 0) {
        bench_die("thread");
    }
    const struct bench_figure figure = bench_side_run(side, BENCH_READ_ALL, bench.seconds);
    atomic_store_explicit(&beside.stop, true, memory_order_relaxed);
    pthread_join(thread, NULL);
    return figure;
}

void bench_checksums(void)
{
    struct bench_row with;
    struct bench_row without;
    struct bench_row beside;
    struct bench_side sides[2];
    floors();
    bench_side_open(&sides[0], NULL, true);
    bench_side_open(&sides[1], NULL, false);
    for (uint64_t i = 0; i < bench.bytes / bench_request_bytes; i++) { /* reads verify these */
        static struct core_fence fences[BENCH_WINDOW];
        bench_side_push(&sides[0], 1, i, fences);
        core_fence_wait(aio_queue_tail(sides[0].queues[1]), -1);
    }
    for (int i = 0; i < bench.pairs; i++) {
        for (int turn = 0; turn < 2; turn++) {
            if ((turn + i) % 2 == 0) {
                with.samples[i] = bench_side_run(&sides[0], BENCH_READ_ALL, bench.seconds);
            } else {
                without.samples[i] = bench_side_run(&sides[1], BENCH_READ_ALL, bench.seconds);
            }
        }
        beside.samples[i] = read_beside(&sides[1], with.samples[i].bytes_per_s);
    }
    bench_side_close(&sides[0]);
    bench_side_close(&sides[1]);
    bench_report("verified_read", &with, &without, "unverified");
    bench_report("read_beside_hashing", &beside, &without, "alone");
    printf("verify_cpu %.2f ms/GiB\n",
           bench_middle(&with).cpu_ms_per_gib - bench_middle(&without).cpu_ms_per_gib);
}
