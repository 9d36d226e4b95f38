/* bench_aio_side.c: our side of a comparison: a drive with a queue for reads and one for writes. */
#include <stdlib.h>

#include "aio/backend.h"
#include "core/base/clock.h"
#include "tests/bench/bench_aio.h"

void bench_side_open(struct bench_side *side, const char *backend, bool sums)
{
    *side = (struct bench_side){0};
    struct aio_drive_options options = {.name = bench.directory};
    if (aio_backend_choose(backend, true, NULL, 0, &options.backend) != 0 ||
        aio_drive_create(&options, &side->drive) != 0) {
        bench_die(backend);
    }
    for (int i = 0; i < 2; i++) {
        struct aio_file file = {
            .fd = bench.fds[i], .name = bench.files[i], .size_bytes = bench.bytes, .direct = true};
        struct aio_queue_options queue = {.name = i == 0 ? "reads" : "writes",
                                          .urgency = AIO_STATES};
        if (aio_drive_attach(side->drive, &file, &side->files[i]) != 0 ||
            aio_queue_open(&side->drive, 1, &queue, &side->queues[i]) != 0) {
            bench_die("attach");
        }
    }
    struct iovec memory = {bench.region.base, bench.region.bytes};
    if (aio_drive_register(side->drive, &memory, 1) != 0) {
        bench_die("register");
    }
    if (sums) {
        side->sums = calloc(bench.bytes >> 20, sizeof *side->sums);
    }
}

void bench_side_close(struct bench_side *side)
{
    aio_queue_close(side->queues[0]);
    aio_queue_close(side->queues[1]);
    aio_drive_destroy(side->drive);
    free(side->sums);
}

/* Waits once per half of the window, so that the thread wakes rarely. */
void bench_side_push(struct bench_side *side, int which, uint64_t index, struct core_fence *fences)
{
    struct core_fence *fence = &fences[index % BENCH_WINDOW];
    if (index % (BENCH_WINDOW / 2) == 0 &&
        core_fence_wait(fences[(index + BENCH_WINDOW / 2 - 1) % BENCH_WINDOW], -1) != 0) {
        bench_die("wait");
    }
    uint64_t at = index * bench_request_bytes % bench.bytes;
    uint64_t window = index % BENCH_WINDOW * bench_request_bytes +
                      (uint64_t)which * BENCH_WINDOW * bench_request_bytes;
    struct aio_iov piece = {.file = side->files[0],
                            .offset = at,
                            .memory = bench.region.base + window,
                            .bytes = bench_request_bytes};
    if (side->sums != NULL) {
        piece.sums = (struct aio_sums){.table = side->sums + (at >> 20), .first = at >> 20};
    }
    if (aio_queue_submit(side->queues[which], which == 0 ? AIO_READ : AIO_WRITE, &piece, 1,
                         fence) != 0) {
        bench_die("submit");
    }
}

/* Walks over the file for `seconds`; a mixed walk alternates reads and writes. Checksums need files
 * that were written with checksums. */
struct bench_figure bench_side_run(struct bench_side *side, enum bench_pattern pattern,
                                   double seconds)
{
    struct core_fence fences[2][BENCH_WINDOW] = {{{0}}};
    uint64_t counts[2] = {0, 0};
    double cpu = bench_cpu_ms();
    int64_t begin_ns = core_clock_now_ns();
    int64_t end_ns = begin_ns + (int64_t)(seconds * 1e9);
    do {
        for (int which = 0; which < 2; which++) {
            if (pattern == BENCH_MIXED || (pattern == BENCH_WRITE_ALL) == (which == 1)) {
                bench_side_push(side, which, counts[which], fences[which]);
                counts[which]++;
            }
        }
    } while (core_clock_now_ns() < end_ns);
    for (int which = 0; which < 2; which++) {
        if (core_fence_wait(aio_queue_tail(side->queues[which]), -1) != 0) {
            bench_die("wait");
        }
    }
    double moved = (double)((counts[0] + counts[1]) * bench_request_bytes);
    double wall = (double)(core_clock_now_ns() - begin_ns) / 1e9;
    return (struct bench_figure){moved / wall, (bench_cpu_ms() - cpu) * bench_gib / moved};
}

/* Measures reading or writing a whole file, or both at once, as DeepSpeed does. */
struct bench_figure bench_side_whole(struct bench_side *side, enum bench_pattern pattern)
{
    struct core_fence fence = {0};
    double cpu = bench_cpu_ms();
    int64_t begin_ns = core_clock_now_ns();
    uint64_t moved = 0;
    if (pattern != BENCH_WRITE_ALL) {
        moved += bench.bytes;
        if (aio_queue_read(side->queues[0], side->files[0], 0, bench.region.base, bench.bytes,
                           &fence) != 0) {
            bench_die("read");
        }
    }
    if (pattern != BENCH_READ_ALL) {
        moved += bench.bytes;
        if (aio_queue_write(side->queues[1], side->files[pattern == BENCH_MIXED], 0,
                            bench.region.base + bench.bytes, bench.bytes, &fence) != 0) {
            bench_die("write");
        }
    }
    for (int which = 0; which < 2; which++) {
        if (core_fence_wait(aio_queue_tail(side->queues[which]), -1) != 0) {
            bench_die("wait");
        }
    }
    double wall = (double)(core_clock_now_ns() - begin_ns) / 1e9;
    return (struct bench_figure){(double)moved / wall,
                                 (bench_cpu_ms() - cpu) * bench_gib / (double)moved};
}
