/* bench_aio.c: the drives of aio, compared with fio and DeepSpeed's async_io in alternating pairs.
 * Prints `name value unit` lines: medians, and their ratios.
 *
 *     bench_aio [DIRECTORY] [--gib N] [--pairs N] [--seconds S] [--python PATH] [--only WORD]
 *
 * --python: an interpreter that has DeepSpeed; without it that part is skipped. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aio/backend.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "tests/bench/bench_aio.h"

const char *const bench_pattern_names[BENCH_PATTERNS] = {"read", "write", "mixed"};
struct bench bench = {.directory = ".", .gib = 1, .seconds = 1.5, .pairs = 5};

static void bench_overhead(void)
{
    enum { COUNT = 1000000, AHEAD = 128 };
    struct aio_mem_disk *disk = NULL;
    struct aio_drive *drive = NULL;
    struct aio_queue *queue = NULL;
    uint32_t file = 0;
    static struct core_fence fences[AHEAD];
    double best = 1e9;
    if (aio_mem_create(1 << 20, &disk) != 0) {
        bench_die("mem");
    }
    struct aio_drive_options options = {.backend = &aio_mem, .context = disk, .depth = 64};
    if (aio_drive_create(&options, &drive) != 0 ||
        aio_drive_attach(drive, &(struct aio_file){.fd = -1, .name = "m"}, &file) != 0 ||
        aio_queue_open(&drive, 1, &(struct aio_queue_options){.depth = AHEAD}, &queue) != 0) {
        bench_die("mem");
    }
    for (int pass = 0; pass < 3; pass++) {
        double cpu = bench_cpu_ms();
        int64_t begin_ns = core_clock_now_ns();
        for (uint64_t i = 0; i < COUNT; i++) {
            struct core_fence *fence = &fences[i % AHEAD];
            if (core_fence_wait(*fence, -1) != 0 ||
                aio_queue_read(queue, file, 0, bench.region.base + i % AHEAD * 64, 64, fence) !=
                    0) {
                bench_die("read");
            }
        }
        core_fence_wait(aio_queue_tail(queue), -1);
        double ns = (double)(core_clock_now_ns() - begin_ns) / COUNT;
        printf("# pass %d: %.0f ns, %.0f ns of CPU a request\n", pass, ns,
               (bench_cpu_ms() - cpu) * 1e6 / COUNT);
        best = ns < best ? ns : best;
    }
    printf("overhead %.1f ns\n", best);
    aio_queue_close(queue);
    aio_drive_destroy(drive);
    aio_mem_destroy(disk);
}

static void make_files(void)
{
    bench.bytes = (uint64_t)(bench.gib * bench_gib) / (64 << 20) * (64 << 20);
    struct core_region_options memory = {
        .name = "bench", .bytes = 2 * bench.bytes, .pages = CORE_PAGES_THP};
    if (core_region_alloc(&memory, &bench.region) != 0) {
        bench_die("memory");
    }
    memset(bench.region.base, 0x5a, bench.region.bytes);
    for (int i = 0; i < 2; i++) {
        snprintf(bench.files[i], sizeof bench.files[i], "%s/bench_aio.%d", bench.directory, i);
        bench.fds[i] = open(bench.files[i], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
        for (uint64_t at = 0; at < bench.bytes; at += (uint64_t)16 << 20) {
            if (pwrite(bench.fds[i], bench.region.base, (size_t)16 << 20, (off_t)at) < 0) {
                core_err_set(-errno, "%s: %s", bench.files[i], strerror(errno));
                bench_die("files");
            }
        }
    }
}

static bool wanted(const char *part)
{
    return bench.only == NULL || strstr(part, bench.only) != NULL;
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
        } else if (i + 1 < argc && strcmp(argv[i], "--python") == 0) {
            bench.python = argv[++i];
        } else if (i + 1 < argc && strcmp(argv[i], "--only") == 0) {
            bench.only = argv[++i];
        } else {
            fprintf(stderr, "usage: bench_aio [DIRECTORY] [--gib N] [--pairs N] [--seconds S]"
                            " [--python PATH] [--only overhead|uring|hugepages|libaio|threads|sums|"
                            "deepspeed]\n");
            exit(2);
        }
    }
    bench.pairs = bench.pairs < 1                 ? 1
                  : bench.pairs > BENCH_PAIRS_MAX ? BENCH_PAIRS_MAX
                                                  : bench.pairs;
    bench.gib = bench.gib < 0.25 ? 0.25 : bench.gib;
}

int main(int argc, char **argv)
{
    options(argc, argv);
    make_files();
    bool fio = bench_has_fio();
    if (!fio) {
        printf("# fio is not installed: nothing is compared with it\n");
    }
    if (wanted("overhead")) {
        bench_overhead();
    }
    if (fio && wanted("uring")) {
        bench_against_fio("uring", "io_uring", "", "fio");
    }
    if (fio && wanted("hugepages")) {
        bench_against_fio("uring", "io_uring",
                          "--fixedbufs=1 --registerfiles=1 --scramble_buffers=0", "fio_hugepages");
    }
    if (fio && wanted("libaio")) {
        bench_against_fio("libaio", "io_uring", "", "fio");
    }
    if (fio && wanted("threads")) {
        bench_against_fio("threads", "io_uring", "", "fio");
    }
    if (wanted("sums")) {
        bench_checksums();
    }
    if (bench.python != NULL && wanted("deepspeed")) {
        bench_against_deepspeed();
    }
    for (int i = 0; i < 2; i++) {
        unlink(bench.files[i]);
    }
    return 0;
}
