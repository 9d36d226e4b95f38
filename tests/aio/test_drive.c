/* test_drive.c: the same requests on each back end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "aio/backend.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/rng.h"
#include "tests/aio/rig.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

/* smaller with sanitizers */
enum { UNIT = TEST_SLOW ? 1 << 17 : 1 << 18 };
static const int64_t patience_ns = 20000000000;

static void write_all(struct rig *rig, uint64_t offset, const void *memory, uint64_t bytes)
{
    struct core_fence fence = {0};
    check_int(aio_queue_write(rig->queue, rig->file, offset, memory, bytes, &fence), ==, 0);
    check_int(core_fence_wait(fence, patience_ns), ==, 0);
}

static void read_all(struct rig *rig, uint64_t offset, void *memory, uint64_t bytes)
{
    struct core_fence fence = {0};
    check_int(aio_queue_read(rig->queue, rig->file, offset, memory, bytes, &fence), ==, 0);
    check_int(core_fence_wait(fence, patience_ns), ==, 0);
}

static void what_is_written_is_read(void)
{
    enum { BYTES = 12 * UNIT };
    static const struct {
        uint32_t block_bytes, depth;
    } grid[] = {{4096, 4}, {UNIT / 8, 64}, {UNIT, 1}, {UNIT, 32}, {8 * UNIT, 3}};
    static const struct {
        uint64_t offset, bytes;
    } requests[] = {{0, 4096},    {4096, 8192},
                    {UNIT, UNIT}, {UNIT + 4096, UNIT - 8192},
                    {0, BYTES},   {5 * UNIT + 12288, 6 * UNIT + 4096}};
    unsigned char *in = rig_memory(BYTES);
    unsigned char *out = rig_memory(BYTES);
    for (const char *const *name = rig_backends(); *name != NULL; name++) {
        for (size_t g = 0; g < sizeof grid / sizeof grid[0]; g++) {
            struct rig rig;
            rig_open(&rig, &(struct rig_options){.backend = *name,
                                                 .bytes = BYTES,
                                                 .drive = {.block_bytes = grid[g].block_bytes,
                                                           .depth = grid[g].depth}});
            for (size_t r = 0; r < sizeof requests / sizeof requests[0]; r++) {
                rig_fill(in, requests[r].bytes, g * 100 + r);
                memset(out, 0xee, requests[r].bytes);
                write_all(&rig, requests[r].offset, in, requests[r].bytes);
                read_all(&rig, requests[r].offset, out, requests[r].bytes);
                check_memory(in, out, requests[r].bytes);
            }
            struct aio_drive_stats stats;
            aio_drive_stats(rig.drive, &stats);
            check_uint(stats.read_bytes, ==, stats.write_bytes);
            check_uint(stats.errors, ==, 0);
            check_uint(aio_latency_ns(stats.latency[0], 0.5), >, 0);
            check_uint(aio_latency_ns(stats.latency[0], 0.5), <=,
                       aio_latency_ns(stats.latency[0], 0.999));
            check_uint(aio_drive_block_bytes(rig.drive), ==, grid[g].block_bytes);
            check_uint(aio_drive_depth(rig.drive), ==, grid[g].depth);
            check_string(aio_drive_name(rig.drive), "rig");
            check_true(strlen(aio_drive_describe(rig.drive)) > 0);
            rig_close(&rig);
        }
    }
    rig_free(in);
    rig_free(out);
}

/* Fences count in the order of submission, and no bytes are mixed up. */
static void many_requests_in_order(void)
{
    enum { BYTES = 32 * UNIT, PIECE = UNIT / 16, COUNT = BYTES / PIECE };
    unsigned char *in = rig_memory(BYTES);
    unsigned char *out = rig_memory(BYTES);
    rig_fill(in, BYTES, 7);
    for (const char *const *name = rig_backends(); *name != NULL; name++) {
        struct rig rig;
        rig_open(&rig, &(struct rig_options){.backend = *name,
                                             .bytes = BYTES,
                                             .queue_depth = 32,
                                             .drive = {.block_bytes = UNIT / 32, .depth = 8}});
        for (int pass = 0; pass < 2; pass++) {
            struct core_fence fences[COUNT];
            for (uint64_t i = 0; i < COUNT; i++) {
                uint64_t at = (i * 37 % COUNT) * PIECE;
                int rc = -EAGAIN;
                while (rc == -EAGAIN) {
                    rc = pass == 0
                             ? aio_queue_write(rig.queue, rig.file, at, in + at, PIECE, &fences[i])
                             : aio_queue_read(rig.queue, rig.file, at, out + at, PIECE, &fences[i]);
                    if (rc == -EAGAIN) {
                        check_int(core_fence_wait(fences[i - 32], patience_ns), ==, 0);
                    }
                }
                check_int(rc, ==, 0);
                check_uint(fences[i].value, ==, (uint64_t)(pass * COUNT) + i + 1);
            }
            check_int(core_fence_wait(aio_queue_tail(rig.queue), patience_ns), ==, 0);
            check_int(core_fence_poll(fences[0]), ==, 1);
        }
        check_memory(in, out, BYTES);
        check_string(aio_queue_tail(rig.queue).line->name, "rig-queue");
        rig_close(&rig);
    }
    rig_free(in);
    rig_free(out);
}

/* A drive of the maximum depth works; a back end may reduce the depth. */
static void as_deep_as_it_goes(void)
{
    enum { BLOCK = 4096, BYTES = 2 * AIO_DEPTH_MAX * BLOCK };
    unsigned char *in = rig_memory(BYTES);
    unsigned char *out = rig_memory(BYTES);
    rig_fill(in, BYTES, 11);
    for (const char *const *name = rig_backends(); *name != NULL; name++) {
        struct rig rig;
        rig_open(&rig,
                 &(struct rig_options){.backend = *name,
                                       .bytes = BYTES,
                                       .drive = {.block_bytes = BLOCK, .depth = AIO_DEPTH_MAX}});
        check_uint(aio_drive_depth(rig.drive), ==,
                   strcmp(*name, "threads") == 0 ? 64 : AIO_DEPTH_MAX);
        memset(out, 0xee, BYTES);
        write_all(&rig, 0, in, BYTES);
        read_all(&rig, 0, out, BYTES);
        check_memory(in, out, BYTES);
        rig_close(&rig);
    }
    rig_free(in);
    rig_free(out);
}

/* Returns whether nothing else has the file open: otherwise the kernel refuses a write lease. */
static bool is_alone(const char *path)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    check_int(fd, >=, 0);
    const bool alone = fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
    close(fd);
    return alone;
}

/* Returns whether the file system supports such leases. */
static bool has_leases(const char *beside)
{
    char path[600];
    snprintf(path, sizeof path, "%s.lease", beside);
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    check_int(fd, >=, 0);
    close(fd);
    const bool has = is_alone(path);
    unlink(path);
    return has;
}

/* A drive that has ended keeps no file open, so the space of removed files is free. */
static void no_file_is_held(void)
{
    enum { BYTES = 2 * UNIT };
    unsigned char *in = rig_memory(BYTES);
    for (const char *const *name = rig_backends(); *name != NULL; name++) {
        struct rig rig;
        rig_open(&rig, &(struct rig_options){.backend = *name, .bytes = BYTES});
        rig_fill(in, BYTES, 3);
        write_all(&rig, 0, in, BYTES);
        if (rig.fd >= 0) {
            check_true(!is_alone(rig.path));
        }
        check_int(aio_queue_close(rig.queue), ==, 0);
        check_int(aio_drive_destroy(rig.drive), ==, 0);
        aio_mem_destroy(rig.disk);
        if (rig.fd >= 0) {
            close(rig.fd);
            check_true(is_alone(rig.path) || !has_leases(rig.path));
            unlink(rig.path);
        }
    }
    rig_free(in);
}

TEST_MAIN({"what_is_written_is_read", what_is_written_is_read},
          {"no_file_is_held", no_file_is_held}, {"many_requests_in_order", many_requests_in_order},
          {"as_deep_as_it_goes", as_deep_as_it_goes})
