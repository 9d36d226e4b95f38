/* bench_blocks.c: the block store with blocks of 64 MiB, compared with fio in alternating pairs,
 * and the share of reading time that the recorded order hides behind work.
 *
 *     bench_blocks [DIRECTORY] [--gib N] [--pairs N] [--seconds S] [--only WORD] */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tide/blocks.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "tests/bench/bench_aio.h"

enum { WINDOW = 3, ITERATIONS = 3 };
static const uint64_t block_bytes = (uint64_t)64 << 20;
const char *const bench_pattern_names[BENCH_PATTERNS] = {"get", "put", "mixed"};
struct bench bench = {.directory = ".", .gib = 1, .seconds = 1.5, .pairs = 5};

static struct tide_blocks *blocks;
static unsigned count; /* of blocks */
static char names[256][16];

static void die(const char *what)
{
    core_err_set(-EIO, "%s", tide_last_error());
    bench_die(what);
}

static void check(int rc, const char *what)
{
    if (rc < 0) {
        die(what);
    }
}

static unsigned char *buffer_of(unsigned i)
{
    return bench.region.base + i % WINDOW * block_bytes;
}

/* Opens a store and puts all blocks at least twice, so that its file is written. */
static void open_blocks(uint64_t host_bytes, bool sums)
{
    char directory[512];
    snprintf(directory, sizeof directory, "%s/bench_blocks", bench.directory);
    const struct tide_store_path store = {.struct_bytes = sizeof store,
                                          .directory = directory,
                                          .bytes = (count + WINDOW) * block_bytes};
    const struct tide_memory memory = {
        .struct_bytes = sizeof memory, .memory = bench.region.base, .bytes = bench.region.bytes};
    const struct tide_blocks_options options = {.struct_bytes = sizeof options,
                                                .host_bytes = host_bytes,
                                                .stores = &store,
                                                .store_count = 1,
                                                .no_checksums = !sums,
                                                .memory = &memory,
                                                .memory_count = 1};
    const struct tide_block_io through = {.struct_bytes = sizeof through, .through = 1};
    check(tide_blocks_create(NULL, &options, &blocks), "create");
    for (unsigned i = 0; i < 2 * count + WINDOW; i++) {
        uint64_t token;
        check(tide_blocks_put_begin(blocks, names[i % count], buffer_of(i), block_bytes, &through,
                                    &token),
              "put");
        check(tide_blocks_wait(blocks, token, NULL), "put");
    }
}

enum mode { DIRECT, PINNED };

/* Gets blocks, puts blocks, or alternates, for some seconds with WINDOW operations in flight. */
static struct bench_figure run(enum bench_pattern pattern, enum mode mode)
{
    const struct tide_block_io through = {.struct_bytes = sizeof through, .through = 1};
    uint64_t tokens[WINDOW] = {0};
    uint64_t moved = 0;
    const double cpu_ms = bench_cpu_ms();
    const int64_t begin_ns = core_clock_now_ns();
    double seconds = 0;
    for (unsigned i = 0; seconds < bench.seconds || i % WINDOW != 0; i++) {
        uint64_t *token = &tokens[i % WINDOW];
        const char *name = names[i % count];
        const bool puts = pattern == BENCH_WRITE_ALL || (pattern == BENCH_MIXED && i % 2 != 0);
        if (*token != 0) {
            check(tide_blocks_wait(blocks, *token, NULL), "wait");
            if (mode == PINNED) {
                check(tide_blocks_release(blocks, names[(i - WINDOW) % count], 0), "release");
            }
        }
        check(puts ? tide_blocks_put_begin(blocks, name, buffer_of(i), block_bytes, &through, token)
                   : tide_blocks_get_begin(blocks, name, mode == PINNED ? NULL : buffer_of(i),
                                           block_bytes, NULL, token),
              "begin");
        moved += block_bytes;
        seconds = (double)(core_clock_now_ns() - begin_ns) / 1e9;
    }
    for (unsigned i = 0; i < WINDOW; i++) {
        check(tide_blocks_wait(blocks, tokens[i], NULL), "wait");
    }
    seconds = (double)(core_clock_now_ns() - begin_ns) / 1e9;
    const double used_ms = bench_cpu_ms() - cpu_ms;
    for (unsigned i = 0; mode == PINNED && i < count; i++) {
        while (tide_blocks_release(blocks, names[i], 0) == 0) {
        }
    }
    return (struct bench_figure){(double)moved / seconds, used_ms * bench_gib / (double)moved};
}

static void against_fio(const char *more, const char *peer)
{
    for (int row = 0; row < BENCH_PATTERNS + 1; row++) {
        const bool pinned = row == BENCH_PATTERNS;
        const enum bench_pattern pattern = pinned ? BENCH_READ_ALL : (enum bench_pattern)row;
        struct bench_row ours;
        struct bench_row theirs;
        open_blocks(pinned ? (WINDOW + 1) * block_bytes : (uint64_t)4 << 20, false);
        for (int i = 0; i < bench.pairs; i++) {
            for (int turn = 0; turn < 2; turn++) { /* the sides alternate in going first */
                if ((turn + i) % 2 == 0) {
                    theirs.samples[i] = bench_fio(pattern, "io_uring", more);
                } else {
                    ours.samples[i] = run(pattern, pinned ? PINNED : DIRECT);
                }
            }
        }
        tide_blocks_destroy(blocks);
        bench_report(pinned ? "get_pinned" : bench_pattern_names[pattern], &ours, &theirs, peer);
    }
}

/* A pass of XXH3 over as much memory as the buffers of the blocks. */
static struct pass {
    struct core_region region;
    _Atomic bool stop;
    double ms_per_gib; /* of processor time */
} pass;

/* Hashes once or, on a thread, until `stop` is set. */
static void *pass_run(void *context)
{
    static volatile uint64_t sink;
    struct pass *of = context;
    struct timespec begin;
    struct timespec end;
    double bytes = 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        for (uint64_t at = 0; at < of->region.bytes; at += 1 << 20) {
            sink = sink + core_hash(of->region.base + at, 1 << 20, 1);
        }
        bytes += (double)of->region.bytes;
    } while (!of->stop);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    const double ms = (double)(end.tv_sec - begin.tv_sec) * 1e3 +
                      (double)(end.tv_nsec - begin.tv_nsec) / 1e6;
    of->ms_per_gib = ms * bench_gib / bytes;
    return NULL;
}

static double pass_alone(void)
{
    pass.stop = true;
    (void)pass_run(&pass);
    return pass.ms_per_gib;
}

/* Runs the pass while the block store moves blocks without checksums. Returns the pass's processor
 * time per GiB, in milliseconds. */
static double pass_beside(enum bench_pattern pattern)
{
    pthread_t thread;
    pass.stop = false;
    open_blocks((uint64_t)4 << 20, false);
    if (pthread_create(&thread, NULL, pass_run, &pass) != 0) {
        die("thread");
    }
    (void)run(pattern, DIRECT);
    pass.stop = true;
    pthread_join(thread, NULL);
    tide_blocks_destroy(blocks);
    return pass.ms_per_gib;
}

/* Prints the processor time with checksums over the time without checksums plus one pass of
 * hashing, which is measured alone and beside transfers. */
static void with_sums(void)
{
    for (int pattern = 0; pattern < BENCH_MIXED; pattern++) {
        const char *name = bench_pattern_names[pattern];
        double ratios[BENCH_PAIRS_MAX];
        double besides[BENCH_PAIRS_MAX];
        double rates[BENCH_PAIRS_MAX];
        for (int i = 0; i < bench.pairs; i++) {
            struct bench_figure figures[2];
            for (int turn = 0; turn < 2; turn++) {
                const bool sums = (turn + i) % 2 == 0;
                open_blocks((uint64_t)4 << 20, sums);
                figures[sums] = run((enum bench_pattern)pattern, DIRECT);
                tide_blocks_destroy(blocks);
            }
            const double without = figures[0].cpu_ms_per_gib;
            const double with = figures[1].cpu_ms_per_gib;
            const double alone = pass_alone();
            const double beside = pass_beside((enum bench_pattern)pattern);
            printf("# %s: %.1f ms/GiB without, %.1f with checksums; a pass of XXH3 %.1f alone, "
                   "%.1f beside transfers\n",
                   name, without, with, alone, beside);
            ratios[i] = with / (without + alone);
            besides[i] = with / (without + beside);
            rates[i] = figures[1].bytes_per_s / figures[0].bytes_per_s;
        }
        printf("%s_sums_cpu_ratio %.3f x\n%s_sums_cpu_ratio_beside %.3f x\n"
               "%s_sums_rate_ratio %.3f x\n",
               name, bench_median(ratios, bench.pairs), name, bench_median(besides, bench.pairs),
               name, bench_median(rates, bench.pairs));
    }
}

/* Gets the blocks in order with work on each; returns the seconds of the gets. */
static double iterate(double work_s, bool ahead)
{
    int64_t got_ns = 0;
    if (ahead) {
        check(tide_blocks_iteration(blocks), "iteration");
    }
    for (unsigned i = 0; i < count; i++) {
        struct tide_block block = {.struct_bytes = sizeof block};
        const int64_t begin_ns = core_clock_now_ns();
        check(tide_blocks_get(blocks, names[i], NULL, 0, &block), "get");
        got_ns += core_clock_now_ns() - begin_ns;
        const int64_t until_ns = core_clock_now_ns() + (int64_t)(work_s * 1e9);
        while (core_clock_now_ns() < until_ns) {
            core_clock_relax();
        }
        check(tide_blocks_release(blocks, names[i], 0), "release");
    }
    return (double)got_ns / 1e9;
}

/* Prints the share of reading time that is hidden by work of the same length. */
static void hidden(void)
{
    double shares[BENCH_PAIRS_MAX];
    for (int i = 0; i < bench.pairs; i++) {
        open_blocks(4 * block_bytes, true);
        const double read_s = iterate(0, false);
        const double work_s = read_s / count;
        (void)iterate(work_s, true);
        (void)iterate(work_s, true);
        double waits_s = 0;
        for (int n = 0; n < ITERATIONS; n++) {
            waits_s += iterate(work_s, true) / ITERATIONS;
        }
        shares[i] = 1 - waits_s / read_s;
        printf("# %u blocks: read in %.3f s; waited %.3f s beside as much work\n", count, read_s,
               waits_s);
        tide_blocks_destroy(blocks);
    }
    printf("hidden %.3f x\n", bench_median(shares, bench.pairs));
}

static void options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            bench.directory = argv[i];
        } else if (i + 1 < argc && strcmp(argv[i], "--gib") == 0) {
            bench.gib = atof(argv[++i]);
        } else if (i + 1 < argc && strcmp(argv[i], "--pairs") == 0) {
            bench.pairs = atoi(argv[++i]);
        } else if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0) {
            bench.seconds = atof(argv[++i]);
        } else if (i + 1 < argc && strcmp(argv[i], "--only") == 0) {
            bench.only = argv[++i];
        } else {
            fprintf(stderr, "usage: bench_blocks [DIRECTORY] [--gib N] [--pairs N] [--seconds S]"
                            " [--only fio|hugepages|sums|hidden]\n");
            exit(2);
        }
    }
    bench.pairs = bench.pairs < 1                 ? 1
                  : bench.pairs > BENCH_PAIRS_MAX ? BENCH_PAIRS_MAX
                                                  : bench.pairs;
    bench.gib = bench.gib < 0.5 ? 0.5 : bench.gib > 16 ? 16 : bench.gib;
}

static bool wanted(const char *part)
{
    return bench.only == NULL || strstr(part, bench.only) != NULL;
}

static void make_file(void)
{
    snprintf(bench.files[0], sizeof bench.files[0], "%s/bench_blocks.fio", bench.directory);
    const int fd = open(bench.files[0], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    for (uint64_t at = 0; at < bench.bytes; at += block_bytes) {
        if (pwrite(fd, bench.region.base, block_bytes, (off_t)at) < 0) {
            core_err_set(-errno, "%s: %s", bench.files[0], strerror(errno));
            bench_die("files");
        }
    }
    close(fd);
}

int main(int argc, char **argv)
{
    options(argc, argv);
    count = (unsigned)(bench.gib * bench_gib / (double)block_bytes);
    bench.bytes = count * block_bytes;
    for (unsigned i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "block %u", i % 1000);
    }
    const struct core_region_options memory = {
        .name = "bench", .bytes = WINDOW * block_bytes, .pages = CORE_PAGES_THP};
    if (core_region_alloc(&memory, &bench.region) != 0) {
        bench_die("memory");
    }
    memset(bench.region.base, 0x5a, bench.region.bytes);
    if (core_region_alloc(&memory, &pass.region) != 0) {
        bench_die("memory");
    }
    memset(pass.region.base, 0x5a, pass.region.bytes);
    make_file();
    const bool fio = bench_has_fio();
    if (!fio) {
        printf("# fio is not installed: nothing is compared with it\n");
    }
    if (fio && wanted("fio")) {
        against_fio("", "fio");
    }
    if (fio && wanted("hugepages")) {
        against_fio("--fixedbufs=1 --registerfiles=1 --scramble_buffers=0", "fio_hugepages");
    }
    if (wanted("sums")) {
        with_sums();
    }
    if (wanted("hidden")) {
        hidden();
    }
    unlink(bench.files[0]);
    return 0;
}
