/* bench_aio.c: the drives of aio beside fio and DeepSpeed's async_io on the same file, in pairs that
 * alternate; prints `name value unit` lines, medians of the pairs, and their ratios.
 *
 *     bench_aio [DIRECTORY] [--gib N] [--pairs N] [--seconds S] [--python PATH] [--only WORD]
 *
 * --python names an interpreter that has DeepSpeed; without it that part is skipped. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aio/mem.h"
#include "aio/probe.h"
#include "aio/queue.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/mem.h"

enum { PAIRS_MAX = 25, WINDOW = 8 };
static const uint64_t request_bytes = (uint64_t)16 << 20;
static const double gib = 1024.0 * 1024 * 1024;
enum pattern { READ_ALL, WRITE_ALL, MIXED, PATTERNS };
static const char *const pattern_names[PATTERNS] = {"read", "write", "mixed"};
static const char *const fio_names[PATTERNS] = {"read", "write", "rw"};

static struct {
    const char *directory, *python, *only;
    double gib, seconds;
    int pairs;
    char files[2][512];
    int fds[2];
    uint64_t bytes;
    struct core_region region; /* twice `bytes` for whole passes */
} bench = {.directory = ".", .gib = 1, .seconds = 1.5, .pairs = 5};

struct figure {
    double bytes_per_s, cpu_ms_per_gib;
};

struct row { /* samples of one contestant */
    struct figure samples[PAIRS_MAX];
};

static void die(const char *what)
{
    fprintf(stderr, "bench_aio: %s: %s\n", what, core_err_sentence());
    for (int i = 0; i < 2; i++) {
        unlink(bench.files[i]);
    }
    exit(1);
}

static double cpu_ms(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return count % 2 != 0 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static struct figure middle(const struct row *row)
{
    double rates[PAIRS_MAX];
    double cpus[PAIRS_MAX];
    for (int i = 0; i < bench.pairs; i++) {
        rates[i] = row->samples[i].bytes_per_s;
        cpus[i] = row->samples[i].cpu_ms_per_gib;
    }
    return (struct figure){median(rates, bench.pairs), median(cpus, bench.pairs)};
}

/* Medians of both, and the median of the pairs' ratios. */
static void report(const char *name, const struct row *ours, const struct row *theirs,
                   const char *peer)
{
    struct figure a = middle(ours);
    double rates[PAIRS_MAX];
    double cpus[PAIRS_MAX];
    printf("%s_bytes_per_s %.0f B/s\n%s_cpu %.2f ms/GiB\n", name, a.bytes_per_s, name,
           a.cpu_ms_per_gib);
    if (theirs != NULL) {
        struct figure b = middle(theirs);
        for (int i = 0; i < bench.pairs; i++) {
            rates[i] = ours->samples[i].bytes_per_s / theirs->samples[i].bytes_per_s;
            cpus[i] = ours->samples[i].cpu_ms_per_gib / theirs->samples[i].cpu_ms_per_gib;
        }
        printf("%s_%s_bytes_per_s %.0f B/s\n%s_%s_cpu %.2f ms/GiB\n", name, peer, b.bytes_per_s,
               name, peer, b.cpu_ms_per_gib);
        printf("%s_ratio_of_%s %.3f x\n%s_cpu_ratio_of_%s %.3f x\n", name, peer,
               median(rates, bench.pairs), name, peer, median(cpus, bench.pairs));
    }
    fflush(stdout);
}

/* ---- ours ----------------------------------------------------------------------------------- */

struct side {
    struct aio_drive *drive;
    struct aio_queue *queues[2]; /* reads, writes */
    uint32_t files[2];
    struct aio_sum *sums; /* one a MiB of file 0 and memory; NULL: none */
};

static void side_open(struct side *side, const char *backend, bool sums)
{
    *side = (struct side){0};
    struct aio_drive_options options = {.name = bench.directory};
    if (aio_backend_choose(backend, true, NULL, 0, &options.backend) != 0 ||
        aio_drive_create(&options, &side->drive) != 0) {
        die(backend);
    }
    for (int i = 0; i < 2; i++) {
        struct aio_file file = {
            .fd = bench.fds[i], .name = bench.files[i], .size_bytes = bench.bytes, .direct = true};
        struct aio_queue_options queue = {.name = i == 0 ? "reads" : "writes",
                                          .urgency = AIO_STATES};
        if (aio_drive_attach(side->drive, &file, &side->files[i]) != 0 ||
            aio_queue_open(&side->drive, 1, &queue, &side->queues[i]) != 0) {
            die("attach");
        }
    }
    struct iovec memory = {bench.region.base, bench.region.bytes};
    if (aio_drive_register(side->drive, &memory, 1) != 0) {
        die("register");
    }
    if (sums) {
        side->sums = calloc(bench.bytes >> 20, sizeof *side->sums);
    }
}

static void side_close(struct side *side)
{
    aio_queue_close(side->queues[0]);
    aio_queue_close(side->queues[1]);
    aio_drive_destroy(side->drive);
    free(side->sums);
}

/* Waits at every half of the window, for a half that is long on its way: few wake-ups. */
static void push(struct side *side, int which, uint64_t index, struct core_fence *fences)
{
    struct core_fence *fence = &fences[index % WINDOW];
    if (index % (WINDOW / 2) == 0 &&
        core_fence_wait(fences[(index + WINDOW / 2 - 1) % WINDOW], -1) != 0) {
        die("wait");
    }
    uint64_t at = index * request_bytes % bench.bytes;
    uint64_t window = index % WINDOW * request_bytes + (uint64_t)which * WINDOW * request_bytes;
    struct aio_piece piece = {.file = side->files[0],
                              .offset = at,
                              .memory = bench.region.base + window,
                              .bytes = request_bytes};
    if (side->sums != NULL) {
        piece.sums = (struct aio_sums){.table = side->sums + (at >> 20), .block = at >> 20};
    }
    if (aio_queue_submit(side->queues[which], which == 0 ? AIO_READ : AIO_WRITE, &piece, 1,
                         fence) != 0) {
        die("submit");
    }
}

/* Walks over the file for `seconds`; mixed in halves, as fio's rw does. Reads with sums need what
 * was written with them. */
static struct figure ours_for(struct side *side, enum pattern pattern, double seconds)
{
    struct core_fence fences[2][WINDOW] = {{{0}}};
    uint64_t counts[2] = {0, 0};
    double cpu = cpu_ms();
    int64_t begin_ns = core_clock_now_ns();
    int64_t end_ns = begin_ns + (int64_t)(seconds * 1e9);
    do {
        for (int which = 0; which < 2; which++) {
            if (pattern == MIXED || (pattern == WRITE_ALL) == (which == 1)) {
                push(side, which, counts[which], fences[which]);
                counts[which]++;
            }
        }
    } while (core_clock_now_ns() < end_ns);
    for (int which = 0; which < 2; which++) {
        if (core_fence_wait(aio_queue_tail(side->queues[which]), -1) != 0) {
            die("wait");
        }
    }
    double moved = (double)((counts[0] + counts[1]) * request_bytes);
    double wall = (double)(core_clock_now_ns() - begin_ns) / 1e9;
    return (struct figure){moved / wall, (cpu_ms() - cpu) * gib / moved};
}

/* A whole file into, out of, or into and out of memory of its size: DeepSpeed's unit. */
static struct figure ours_whole(struct side *side, enum pattern pattern)
{
    struct core_fence fence = {0};
    double cpu = cpu_ms();
    int64_t begin_ns = core_clock_now_ns();
    uint64_t moved = 0;
    if (pattern != WRITE_ALL) {
        moved += bench.bytes;
        if (aio_queue_read(side->queues[0], side->files[0], 0, bench.region.base, bench.bytes,
                           &fence) != 0) {
            die("read");
        }
    }
    if (pattern != READ_ALL) {
        moved += bench.bytes;
        if (aio_queue_write(side->queues[1], side->files[pattern == MIXED], 0,
                            bench.region.base + bench.bytes, bench.bytes, &fence) != 0) {
            die("write");
        }
    }
    for (int which = 0; which < 2; which++) {
        if (core_fence_wait(aio_queue_tail(side->queues[which]), -1) != 0) {
            die("wait");
        }
    }
    double wall = (double)(core_clock_now_ns() - begin_ns) / 1e9;
    return (struct figure){(double)moved / wall, (cpu_ms() - cpu) * gib / (double)moved};
}

/* ---- fio ------------------------------------------------------------------------------------ */

/* The n-th field of fio's terse output, from 1. */
static double field(const char *line, int n)
{
    for (int i = 1; i < n && line != NULL; i++) {
        line = strchr(line, ';');
        line = line != NULL ? line + 1 : NULL;
    }
    return line != NULL ? atof(line) : 0;
}

static struct figure fio_for(enum pattern pattern, const char *engine, const char *more)
{
    char command[1024];
    char line[8192] = "";
    snprintf(
        command, sizeof command,
        "%sfio --name=b --filename=%s --size=%llu --bs=1m --iodepth=32 --direct=1 --ioengine=%s"
        " --rw=%s --time_based --runtime=%.0fms --minimal %s 2>/dev/null",
        strstr(more, "fixedbufs") != NULL ? "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 " : "",
        bench.files[0], (unsigned long long)bench.bytes, engine, fio_names[pattern],
        bench.seconds * 1000, more);
    FILE *pipe = popen(command, "r");
    if (pipe == NULL || fgets(line, sizeof line, pipe) == NULL || pclose(pipe) != 0) {
        fprintf(stderr, "bench_aio: fio failed\n");
        exit(1);
    }
    double moved = (field(line, 6) + field(line, 47)) * 1024;
    double rate = (field(line, 7) + field(line, 48)) * 1024;
    double ms = field(line, 9) > field(line, 50) ? field(line, 9) : field(line, 50);
    double cpu = (field(line, 88) + field(line, 89)) / 100 * ms;
    return (struct figure){rate, cpu * gib / moved};
}

static bool has_fio(void)
{
    return system("fio --version >/dev/null 2>&1") == 0;
}

static void against_fio(const char *backend, const char *engine, const char *more, const char *peer)
{
    for (int pattern = 0; pattern < PATTERNS; pattern++) {
        struct row ours;
        struct row theirs;
        char name[64];
        struct side side;
        side_open(&side, backend, false);
        for (int i = 0; i < bench.pairs; i++) {
            for (int turn = 0; turn < 2; turn++) { /* each goes first every other time */
                if ((turn + i) % 2 == 0) {
                    theirs.samples[i] = fio_for((enum pattern)pattern, engine, more);
                } else {
                    ours.samples[i] = ours_for(&side, (enum pattern)pattern, bench.seconds);
                }
            }
        }
        side_close(&side);
        snprintf(name, sizeof name, "%s_%s", backend, pattern_names[pattern]);
        report(name, &ours, &theirs, peer);
    }
}

/* ---- checksums ------------------------------------------------------------------------------ */

static void checksums(void)
{
    struct row with;
    struct row without;
    struct side sides[2];
    side_open(&sides[0], NULL, true);
    side_open(&sides[1], NULL, false);
    for (uint64_t i = 0; i < bench.bytes / request_bytes; i++) { /* what will be verified */
        static struct core_fence fences[WINDOW];
        push(&sides[0], 1, i, fences);
        core_fence_wait(aio_queue_tail(sides[0].queues[1]), -1);
    }
    for (int i = 0; i < bench.pairs; i++) {
        for (int turn = 0; turn < 2; turn++) {
            if ((turn + i) % 2 == 0) {
                with.samples[i] = ours_for(&sides[0], READ_ALL, bench.seconds);
            } else {
                without.samples[i] = ours_for(&sides[1], READ_ALL, bench.seconds);
            }
        }
    }
    side_close(&sides[0]);
    side_close(&sides[1]);
    report("verified_read", &with, &without, "unverified");
    printf("verify_cpu %.2f ms/GiB\n",
           middle(&with).cpu_ms_per_gib - middle(&without).cpu_ms_per_gib);
}

/* ---- DeepSpeed ------------------------------------------------------------------------------ */

static FILE *peer_in;
static FILE *peer_out;

static void start_peer(const char *script)
{
    int to[2];
    int from[2];
    char size[32];
    snprintf(size, sizeof size, "%llu", (unsigned long long)bench.bytes);
    if (pipe(to) != 0 || pipe(from) != 0) {
        die("pipe");
    }
    pid_t child = fork();
    if (child == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        execl(bench.python, bench.python, script, bench.files[0], bench.files[1], size,
              (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    peer_in = fdopen(to[1], "w");
    peer_out = fdopen(from[0], "r");
}

static struct figure peer_whole(enum pattern pattern)
{
    struct figure figure = {0, 0};
    char line[512];
    fprintf(peer_in, "%s\n", pattern_names[pattern]);
    fflush(peer_in);
    while (fgets(line, sizeof line, peer_out) != NULL) {
        if (sscanf(line, "figure %lf %lf", &figure.bytes_per_s, &figure.cpu_ms_per_gib) == 2) {
            return figure;
        }
        if (strncmp(line, "note ", 5) == 0) {
            printf("# %s", line + 5);
        }
    }
    fprintf(stderr, "bench_aio: the peer ended\n");
    exit(1);
}

static void against_deepspeed(void)
{
    char script[512];
    const char *root = getenv("TIDE_TEST_ROOT");
    snprintf(script, sizeof script, "%s/bench/aio_peer.py", root != NULL ? root : "tests");
    start_peer(script);
    struct side side;
    side_open(&side, NULL, false);
    for (int pattern = 0; pattern < PATTERNS; pattern++) {
        struct row ours;
        struct row theirs;
        char name[64];
        for (int i = 0; i < bench.pairs; i++) {
            for (int turn = 0; turn < 2; turn++) {
                if ((turn + i) % 2 == 0) {
                    theirs.samples[i] = peer_whole((enum pattern)pattern);
                } else {
                    ours.samples[i] = ours_whole(&side, (enum pattern)pattern);
                }
            }
        }
        snprintf(name, sizeof name, "whole_%s", pattern == MIXED ? "swap" : pattern_names[pattern]);
        report(name, &ours, &theirs, "deepspeed");
    }
    side_close(&side);
    fclose(peer_in);
    fclose(peer_out);
    wait(NULL);
}

/* ---- overhead ------------------------------------------------------------------------------- */

static void overhead(void)
{
    enum { COUNT = 1000000, AHEAD = 128 };
    struct aio_mem_disk *disk = NULL;
    struct aio_drive *drive = NULL;
    struct aio_queue *queue = NULL;
    uint32_t file = 0;
    static struct core_fence fences[AHEAD];
    double best = 1e9;
    if (aio_mem_create(1 << 20, &disk) != 0) {
        die("mem");
    }
    struct aio_drive_options options = {.backend = &aio_mem, .context = disk, .depth = 64};
    if (aio_drive_create(&options, &drive) != 0 ||
        aio_drive_attach(drive, &(struct aio_file){.fd = -1, .name = "m"}, &file) != 0 ||
        aio_queue_open(&drive, 1, &(struct aio_queue_options){.depth = AHEAD}, &queue) != 0) {
        die("mem");
    }
    for (int pass = 0; pass < 3; pass++) {
        double cpu = cpu_ms();
        int64_t begin_ns = core_clock_now_ns();
        for (uint64_t i = 0; i < COUNT; i++) {
            struct core_fence *fence = &fences[i % AHEAD];
            if (core_fence_wait(*fence, -1) != 0 ||
                aio_queue_read(queue, file, 0, bench.region.base + i % AHEAD * 64, 64, fence) !=
                    0) {
                die("read");
            }
        }
        core_fence_wait(aio_queue_tail(queue), -1);
        double ns = (double)(core_clock_now_ns() - begin_ns) / COUNT;
        printf("# pass %d: %.0f ns, %.0f ns of CPU a request\n", pass, ns,
               (cpu_ms() - cpu) * 1e6 / COUNT);
        best = ns < best ? ns : best;
    }
    printf("overhead %.1f ns\n", best);
    aio_queue_close(queue);
    aio_drive_destroy(drive);
    aio_mem_destroy(disk);
}

static void make_files(void)
{
    bench.bytes = (uint64_t)(bench.gib * gib) / (64 << 20) * (64 << 20);
    struct core_region_options memory = {
        .name = "bench", .bytes = 2 * bench.bytes, .pages = CORE_PAGES_THP};
    if (core_region_alloc(&memory, &bench.region) != 0) {
        die("memory");
    }
    memset(bench.region.base, 0x5a, bench.region.bytes);
    for (int i = 0; i < 2; i++) {
        snprintf(bench.files[i], sizeof bench.files[i], "%s/bench_aio.%d", bench.directory, i);
        bench.fds[i] = open(bench.files[i], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
        for (uint64_t at = 0; at < bench.bytes; at += (uint64_t)16 << 20) {
            if (pwrite(bench.fds[i], bench.region.base, (size_t)16 << 20, (off_t)at) < 0) {
                core_err_set(-errno, "%s: %s", bench.files[i], strerror(errno));
                die("files");
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
    bench.pairs = bench.pairs < 1 ? 1 : bench.pairs > PAIRS_MAX ? PAIRS_MAX : bench.pairs;
    bench.gib = bench.gib < 0.25 ? 0.25 : bench.gib;
}

int main(int argc, char **argv)
{
    options(argc, argv);
    make_files();
    bool fio = has_fio();
    if (!fio) {
        printf("# fio is not installed: nothing is compared with it\n");
    }
    if (wanted("overhead")) {
        overhead();
    }
    if (fio && wanted("uring")) {
        against_fio("uring", "io_uring", "", "fio");
    }
    if (fio && wanted("hugepages")) {
        against_fio("uring", "io_uring", "--fixedbufs=1 --registerfiles=1 --scramble_buffers=0",
                    "fio_hugepages");
    }
    if (fio && wanted("libaio")) {
        against_fio("libaio", "io_uring", "", "fio");
    }
    if (fio && wanted("threads")) {
        against_fio("threads", "io_uring", "", "fio");
    }
    if (wanted("sums")) {
        checksums();
    }
    if (bench.python != NULL && wanted("deepspeed")) {
        against_deepspeed();
    }
    for (int i = 0; i < 2; i++) {
        unlink(bench.files[i]);
    }
    return 0;
}
