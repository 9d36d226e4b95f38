/* test_parts.c: tests the parts that measure, on a small file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"
#include "tools/ds_nvme_bench/environment.h"
#include "tools/ds_nvme_bench/options.h"
#include "tools/ds_nvme_bench/progress.h"
#include "tools/ds_nvme_bench/swap.h"
#include "tools/ds_nvme_bench/usage.h"
#include "tools/ds_nvme_bench/verify.h"
#include "tools/ds_nvme_bench/version.h"

static struct bench_target target;
static volatile int stop;

static const struct bench_how brief = {.ramp_seconds = 0.01,
                                       .sample_seconds = 0.02,
                                       .samples = 3,
                                       .buffers = true,
                                       .files = true,
                                       .node = BENCH_NODE_AUTO};

static void open_target_of(const char *backend, uint64_t bytes)
{
    struct bench_target_options options = {
        .path = test_directory(), .backend = backend, .bytes = bytes, .stop = &stop};
    stop = 0;
    bench_target_close(&target);
    check_int(bench_target_open(&options, &target), ==, 0);
    check_uint(target.file_bytes, ==, bytes);
    check_double(target.fill_bytes_per_s, >, 0);
}

static void open_target(const char *backend)
{
    open_target_of(backend, 64 << 20);
}

static uint64_t latencies_of(const struct bench_point *point)
{
    uint64_t blocks = 0;
    for (int i = 0; i < AIO_LATENCY_BUCKETS; i++) {
        blocks += point->latency[i];
    }
    return blocks;
}

/* Points have the requested samples, and more after another visit. */
static void points(void)
{
    static const char *const backends[] = {NULL, "libaio", "threads"};
    for (size_t b = 0; b < sizeof backends / sizeof backends[0]; b++) {
        const struct aio_backend *found = NULL;
        char why[256];
        if (aio_backend_choose(backends[b], true, why, sizeof why, &found) != 0) {
            test_note("%s is not tried: %s", backends[b], core_err_message());
            continue;
        }
        open_target(backends[b]);
        for (int op = 0; op < BENCH_OP_COUNT; op++) {
            struct bench_point point = {
                .params = {
                    .op = (enum bench_op)op, .block_bytes = 256 << 10, .depth = 8, .threads = 2}};
            struct core_region memory = {0};
            struct core_region_options options = {.name = "test",
                                                  .bytes = bench_point_memory(&point.params)};
            check_int(core_region_alloc(&options, &memory), ==, 0);
            check_int(bench_point_run(&target, &memory, &brief, &stop, &point), ==, 0);
            const uint64_t first_visit = latencies_of(&point);
            check_int(bench_point_run(&target, &memory, &brief, &stop, &point), ==, 0);
            check_uint(latencies_of(&point), >, first_visit); /* of both visits */
            core_region_free(&memory);
            check_uint(point.count, ==, 6);
            check_double(point.median, >, 0);
            check_double(point.interval.low, <=, point.median);
            check_double(point.interval.high, >=, point.median);
            check_double(point.latency_ms[0], <=, point.latency_ms[3]);
            check_uint(point.errors, ==, 0);
            check_true(op == BENCH_READ    ? point.read_share >= 1
                       : op == BENCH_WRITE ? point.read_share <= 0
                                           : point.read_share > 0 && point.read_share < 1);
        }
    }
    check_string(bench_op_name(BENCH_RW), "rw");
    check_double(bench_cpu_seconds(), >, 0);
}

/* Checksums that a point writes are valid when read; an interrupt ends a point. */
static void checksums(void)
{
    struct bench_how how = brief;
    how.checksums = true;
    open_target(NULL);
    struct bench_point point = {
        .params = {.op = BENCH_READ, .block_bytes = 1 << 20, .depth = 4, .threads = 1}};
    struct core_region memory = {0};
    struct core_region_options options = {.name = "test",
                                          .bytes = bench_point_memory(&point.params)};
    check_int(core_region_alloc(&options, &memory), ==, 0);
    check_int(bench_point_run(&target, &memory, &how, &stop, &point), ==, 0);
    check_uint(point.errors, ==, 0);
    stop = 1;
    check_int(bench_point_run(&target, &memory, &how, &stop, &point), ==, -EINTR);
    core_region_free(&memory);
}

static uint64_t moved_bytes;
static uint64_t moved_of;

static void moved(void *user, uint64_t done_bytes, uint64_t bytes)
{
    (void)user;
    check_uint(done_bytes, >, moved_bytes);
    moved_bytes = done_bytes;
    moved_of = bytes;
}

/* Checks that progress was reported to the end, and resets it. */
static void check_all_moved(uint64_t bytes)
{
    check_uint(moved_bytes, ==, bytes);
    check_uint(moved_of, ==, bytes);
    moved_bytes = 0;
}

/* Swap and verify move the bytes that they report; an interrupt ends them. */
static void swap_and_verify(void)
{
    struct bench_swap swap;
    struct bench_verify verify;
    open_target(NULL);
    struct bench_params params = {.block_bytes = 1 << 20, .depth = 16, .threads = 1};
    struct bench_swap_options swapping = {.target = &target,
                                          .params = params,
                                          .tensor_bytes = 4 << 20,
                                          .passes = 3,
                                          .checksums = true,
                                          .stop = &stop,
                                          .progress = moved};
    struct bench_verify_options verifying = {.target = &target,
                                             .params = params,
                                             .passes = 2,
                                             .seed = 5,
                                             .stop = &stop,
                                             .progress = moved};
    check_int(bench_swap_run(&swapping, &swap), ==, 0);
    check_all_moved((uint64_t)(1 + 2 * 4) * 64 << 20);
    check_uint(swap.tensors, ==, 16);
    check_uint(swap.bytes, ==, 128 << 20);
    check_uint(swap.count, ==, 3);
    check_double(swap.bytes_per_s, >, 0);
    check_int(bench_verify_run(&verifying, &verify), ==, 0);
    check_all_moved(256 << 20);
    check_uint(verify.bytes, ==, 128 << 20);
    check_uint(verify.wrong, ==, 0);
    swapping.progress = NULL;
    verifying.progress = NULL;
    swapping.tensor_bytes = 32 << 20;
    check_int(bench_swap_run(&swapping, &swap), ==, -EINVAL);
    check_contains(core_err_message(), "at least 4");
    swapping.tensor_bytes = 4 << 20;
    stop = 1;
    check_int(bench_swap_run(&swapping, &swap), ==, -EINTR);
    check_int(bench_verify_run(&verifying, &verify), ==, -EINTR);
    /* the size is not a multiple of a request */
    open_target_of(NULL, 66 << 20);
    check_int(bench_verify_run(&verifying, &verify), ==, 0);
    check_uint(verify.bytes, ==, 132 << 20);
    check_uint(verify.wrong, ==, 0);
}

/* A grid visits its settings `rounds` times; the adaptive sweep ends in time. */
static void sweeps(void)
{
    struct bench_sweep *sweep = calloc(1, sizeof *sweep);
    check_true(sweep != NULL);
    open_target(NULL);
    struct bench_sweep_options options = {.target = &target,
                                          .ops = {true, false, true},
                                          .blocks = {256 << 10, 1 << 20},
                                          .block_count = 2,
                                          .depths = {1, 4},
                                          .depth_count = 2,
                                          .threads = {1},
                                          .thread_count = 1,
                                          .grid = true,
                                          .how = brief,
                                          .rounds = 2,
                                          .stop = &stop};
    check_int(bench_sweep_run(&options, sweep), ==, 0);
    check_uint(sweep->count, ==, 8);
    for (unsigned i = 0; i < sweep->count; i++) {
        check_uint(sweep->points[i].count, ==, 6);
    }
    check_true(bench_sweep_find(sweep, BENCH_RW, sweep->recommendation.block_bytes,
                                sweep->recommendation.depth, 1) != NULL);
    options.grid = false;
    options.budget_seconds = 1;
    check_int(bench_sweep_run(&options, sweep), ==, 0);
    unsigned samples = 0;
    for (unsigned i = 0; i < sweep->count; i++) {
        samples += sweep->points[i].count;
    }
    /* A sample takes at least 1.4 ms, or 70 ms with a budget of 50 s. */
    check_double(samples * 0.0014, <, 2);
    check_true(bench_sweep_find(sweep, BENCH_READ, sweep->recommendation.block_bytes,
                                sweep->recommendation.depth, 1) != NULL);
    options.blocks[0] = options.blocks[1] = 128 << 20;
    options.depths[0] = options.depths[1] = 2;
    check_int(bench_sweep_run(&options, sweep), ==, -EINVAL);
    free(sweep);
}

enum { SCRATCH = 64 << 20 };

/* Checks that blocks differ from those 32 MiB later, where the random bytes repeat. */
static void check_no_repetition(unsigned char *data)
{
    check_int(pread(target.fd, data, SCRATCH, 0), ==, SCRATCH);
    for (unsigned at = 0; at < SCRATCH / 2; at += 4096) {
        check_true(memcmp(data + at, data + at + SCRATCH / 2, 4096) != 0);
    }
}

/* Written data cannot be compressed; the first write cannot be deduplicated. */
static void written_data(void)
{
    struct bench_sweep *sweep = calloc(1, sizeof *sweep);
    unsigned char *data = aligned_alloc(4096, SCRATCH);
    check_true(sweep != NULL && data != NULL);
    open_target(NULL);
    check_no_repetition(data);
    memset(data, 0, SCRATCH);
    check_int(pwrite(target.fd, data, SCRATCH, 0), ==, SCRATCH);
    const struct bench_sweep_options options = {.target = &target,
                                                .ops = {false, true, false},
                                                .blocks = {256 << 10},
                                                .block_count = 1,
                                                .depths = {4},
                                                .depth_count = 1,
                                                .threads = {1},
                                                .thread_count = 1,
                                                .grid = true,
                                                .how = brief,
                                                .rounds = 1,
                                                .stop = &stop};
    check_int(bench_sweep_run(&options, sweep), ==, 0);
    check_int(pread(target.fd, data, SCRATCH, 0), ==, SCRATCH);
    unsigned written = 0;
    for (unsigned at = 0; at < SCRATCH; at += 256 << 10) {
        unsigned zeros = 0;
        for (unsigned i = 0; i < 4096; i++) {
            zeros += data[at + i] == 0;
        }
        check_true(zeros == 4096 || zeros < 100); /* of random bytes about 16 are 0 */
        written += zeros < 100;
    }
    check_uint(written, >, 0);
    free(data);
    free(sweep);
}

static unsigned beats;

static void count_beats(void *user, const struct bench_point *point, double share_done,
                        double seconds_left)
{
    (void)user;
    (void)seconds_left;
    check_uint(point->params.block_bytes, >, 0);
    check_true(share_done >= 0 && share_done <= 1);
    beats++;
}

/* The adaptive sweep measures only listed blocks and depths. */
static void listed_only(void)
{
    struct bench_sweep *sweep = calloc(1, sizeof *sweep);
    check_true(sweep != NULL);
    open_target(NULL);
    struct bench_sweep_options options = {.target = &target,
                                          .ops = {true, false, false},
                                          .blocks = {256 << 10, 512 << 10},
                                          .block_count = 2,
                                          .depths = {2, 8},
                                          .depth_count = 2,
                                          .threads = {1, 2},
                                          .thread_count = 2,
                                          .how = brief,
                                          .budget_seconds = 1,
                                          .stop = &stop,
                                          .beat = count_beats};
    check_int(bench_sweep_run(&options, sweep), ==, 0);
    check_uint(beats, >, sweep->count); /* also while a point is measured */
    for (unsigned i = 0; i < sweep->count; i++) {
        const struct bench_params *params = &sweep->points[i].params;
        check_true(params->block_bytes == 256 << 10 || params->block_bytes == 512 << 10);
        check_true(params->depth == 2 || params->depth == 8);
    }
    free(sweep);
}

/* Targets with too large a file, or without a folder, back end or node, are refused. */
static void targets(void)
{
    struct bench_target none = {0};
    struct bench_target_options options = {.path = test_directory(), .bytes = (uint64_t)1 << 60};
    check_int(bench_target_open(&options, &none), ==, -ENOSPC);
    check_contains(core_err_message(), "does not fit");
    options.path = "/nowhere/at/all";
    check_int(bench_target_open(&options, &none), ==, -ENOENT);
    options.path = test_directory();
    options.bytes = 64 << 20;
    options.backend = "floppy";
    check_int(bench_target_open(&options, &none), ==, -EINVAL);
    stop = 1;
    options.backend = NULL;
    options.stop = &stop;
    check_int(bench_target_open(&options, &none), ==, -EINTR);
    bench_target_close(&none);
    open_target(NULL);
    check_int(bench_target_place(&target, -1, -1), ==, 0);
    check_int(bench_target_place(&target, -1, 0), ==, 0);
    check_int(bench_target_place(&target, 999, -1), ==, -EINVAL);
    check_contains(core_err_message(), "does not have that node");
}

static const struct bench_params small = {
    .op = BENCH_RW, .block_bytes = 1 << 20, .depth = 4, .threads = 1};

static int target_life(void)
{
    struct bench_target made = {0};
    const struct bench_target_options options = {
        .path = test_directory(), .backend = "threads", .bytes = 64 << 20, .stop = &stop};
    int rc = bench_target_open(&options, &made);
    bench_target_close(&made);
    return rc;
}

static int point_life(void)
{
    struct bench_point point = {.params = small};
    struct core_region memory = {0};
    const struct core_region_options region = {.name = "test", .bytes = bench_point_memory(&small)};
    struct bench_how how = brief;
    how.samples = 1;
    how.checksums = true;
    int rc = core_region_alloc(&region, &memory);
    if (rc == 0) {
        rc = bench_point_run(&target, &memory, &how, &stop, &point);
    }
    core_region_free(&memory);
    return rc;
}

static int swap_life(void)
{
    struct bench_swap swap;
    const struct bench_swap_options options = {.target = &target,
                                               .params = small,
                                               .tensor_bytes = 16 << 20,
                                               .passes = 1,
                                               .checksums = true,
                                               .stop = &stop};
    return bench_swap_run(&options, &swap);
}

static int verify_life(void)
{
    struct bench_verify verify;
    const struct bench_verify_options options = {
        .target = &target, .params = small, .passes = 1, .seed = 5, .stop = &stop};
    return bench_verify_run(&options, &verify);
}

/* A failed request is an error or has a fallback; nothing leaks. */
static void failed_requests(void)
{
    test_directory_in_memory();
    open_target("threads");
    check_int(test_fail_every(target_life, TEST_STRIDE(3)), >=, 5);
    check_int(test_fail_every(point_life, TEST_STRIDE(3)), >=, 5);
    check_int(test_fail_every(swap_life, TEST_STRIDE(3)), >=, 5);
    check_int(test_fail_every(verify_life, TEST_STRIDE(3)), >=, 5);
}

/* The environment is read; the drive may be unknown. */
static void surroundings(void)
{
    struct bench_environment environment;
    struct bench_device device;
    bench_environment_read(&environment);
    check_true(environment.kernel[0] != '\0' && environment.io_uring[0] != '\0');
    check_uint(environment.processors, >, 0);
    check_uint(environment.memory_bytes, >, 0);
    open_target(NULL);
    bench_device_read(&target, &device);
    test_note("%s", device.found ? device.block.name : "no block device");
    bench_target_close(&target);
    check_true(bench_version()[0] != '\0' && bench_commit()[0] != '\0' &&
               bench_compiler()[0] != '\0');
}

/* Progress is drawn on a terminal only. */
static void progress(void)
{
    struct bench_progress none = {.path = "x"};
    struct bench_point point = {.params = {.block_bytes = 4096, .depth = 1, .threads = 1}};
    bench_progress_fill(&none, 1, 2);
    bench_progress_point(&none, &point, 0.5, 3);
    bench_progress_clear(&none);
    bench_progress_moved(&none, 1, 2);
    bench_progress_beat(&none, &point, 0.5, 3);
    check_true(!none.standing && none.shown_ns == 0);
    struct bench_progress live = {.path = "x", .live = true};
    bench_progress_moved(&live, 1, 2);
    check_true(live.standing && live.begin_ns == live.shown_ns);
    bench_progress_clear(&live);
    check_true(!live.standing);
    live.shown_ns = 0;
    bench_progress_beat(&live, &point, 0.5, 3);
    check_true(live.standing);
    bench_progress_clear(&live);
}

static int parse(struct bench_options *out, unsigned count, const char *const *words)
{
    char *argv[16];
    for (unsigned i = 0; i < count; i++) {
        argv[i] = (char *)(uintptr_t)words[i];
    }
    return bench_options_parse((int)count, argv, out);
}

/* Options may be spelled in several ways; modes have defaults. */
static void spellings(void)
{
    static const char *const same[][12] = {
        {"--nvme_dir", "/d", "--mode=point", "--block_size", "512K", "--queue_depth", "8",
         "--threads", "2", "--io_size", "1G", "--op=read"},
        {"/d", "--mode=point", "--block_size=512K", "--queue-depth=8", "--threads=2",
         "--io_size=1G", "--op=read"},
        {"--nvme-dir=/d", "--mode=point", "--block-size=524288", "--queue_depth=8", "--threads=2",
         "--io-size=1024M", "--op", "read"},
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        struct bench_options options;
        unsigned count = 0;
        while (count < 12 && same[i][count] != NULL) {
            count++;
        }
        check_int(parse(&options, count, same[i]), ==, -1);
        check_string(options.dirs[0], "/d");
        check_string(bench_mode_name(options.mode), "point");
        check_uint(options.sweep.blocks[0], ==, 512 << 10);
        check_uint(options.sweep.depths[0], ==, 8);
        check_uint(options.sweep.threads[0], ==, 2);
        check_uint(options.io_bytes, ==, 1 << 30);
        check_true(options.sweep.ops[BENCH_READ] && !options.sweep.ops[BENCH_WRITE] &&
                   !options.sweep.ops[BENCH_RW]);
    }
    struct bench_options options;
    const char *const none[] = {"/d"};
    check_int(parse(&options, 1, none), ==, -1);
    check_string(bench_mode_name(options.mode), "sweep");
    check_true(!options.sweep.grid);
    check_uint(options.sweep.block_count, ==, 7);
    check_uint(options.sweep.depth_count, ==, 9);
    check_uint(options.sweep.thread_count, ==, 2);
    const char *const full[] = {"/d", "--full", "--block_size=1M,8M", "--queue_depth=32,128,64"};
    check_int(parse(&options, 4, full), ==, -1);
    check_true(options.sweep.grid);
    check_uint(options.sweep.block_count, ==, 2);
    check_uint(options.sweep.blocks[1], ==, 8 << 20);
    check_uint(options.sweep.depth_count, ==, 3);
    check_uint(options.sweep.depths[2], ==, 128);
    check_uint(options.sweep.thread_count, ==, 1);
    check_uint(options.sweep.threads[0], ==, 1);
    const char *const validate[] = {"--nvme_dir=/d", "--mode=verify", "--loops=2"};
    check_int(parse(&options, 3, validate), ==, -1);
    check_int(options.mode, ==, BENCH_VERIFY);
    const char *const swap[] = {"/d", "--mode", "swap"};
    check_int(parse(&options, 3, swap), ==, -1);
    check_true(options.sweep.how.checksums);
    const char *const visits[] = {"/d", "--mode=point", "--loops=20", "--op=rw"};
    check_int(parse(&options, 4, visits), ==, -1);
    check_uint(options.sweep.rounds, ==, 20);
    check_uint(options.sweep.how.samples, ==, 3);
    check_true(options.sweep.ops[BENCH_RW] && !options.sweep.ops[BENCH_READ]);
    const char *const soak[] = {"/d", "--mode=soak", "--loops=60"};
    check_int(parse(&options, 3, soak), ==, -1);
    check_uint(options.sweep.rounds * options.sweep.how.samples, ==, 60);
}

TEST_MAIN({"points", points}, {"checksums", checksums}, {"swap_and_verify", swap_and_verify},
          {"sweeps", sweeps}, {"written_data", written_data}, {"listed_only", listed_only},
          {"targets", targets}, {"failed_requests", failed_requests},
          {"surroundings", surroundings}, {"progress", progress}, {"spellings", spellings})
