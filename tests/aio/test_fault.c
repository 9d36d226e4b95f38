/* test_fault.c: after a fault a drive recovers or reports an error; it does not return wrong bytes
 * or hang. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "aio/backend.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "tests/aio/rig.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"

enum { PART_OF_CASES = TEST_SLOW ? 8 : 1 };
static const int64_t patience_ns = 20000000000;
static const uint64_t seed = 20261121;

/* Writes `bytes` and reads them back in `pieces` requests. Returns the first error; a wrong byte
 * fails the case. */
static int there_and_back(struct rig *rig, uint64_t bytes, uint64_t pieces, uint64_t salt)
{
    static unsigned char in[1 << 16] __attribute__((aligned(4096)));
    static unsigned char out[1 << 16] __attribute__((aligned(4096)));
    struct core_fence fence = {0};
    int rc = 0;
    rig_fill(in, bytes, salt);
    memset(out, 0, bytes);
    for (uint64_t i = 0; i < pieces && rc == 0; i++) {
        uint64_t at = bytes / pieces * i;
        rc = aio_queue_write(rig->queue, rig->file, at, in + at, bytes / pieces, &fence);
    }
    rc = rc == 0 ? core_fence_wait(aio_queue_tail(rig->queue), patience_ns) : rc;
    for (uint64_t i = 0; i < pieces && rc == 0; i++) {
        uint64_t at = bytes / pieces * i;
        rc = aio_queue_read(rig->queue, rig->file, at, out + at, bytes / pieces, &fence);
    }
    rc = rc == 0 ? core_fence_wait(aio_queue_tail(rig->queue), patience_ns) : rc;
    if (rc == 0) {
        check_memory(in, out, bytes);
    }
    return rc;
}

static void open_mem(struct rig *rig, struct aio_fault *fault, uint64_t bytes, uint32_t depth)
{
    fault->seed = seed;
    rig_open(rig, &(struct rig_options){.backend = "mem",
                                        .fault = fault,
                                        .bytes = bytes,
                                        .drive = {.block_bytes = 4096, .depth = depth}});
}

/* Transfers that are cut short continue where they stopped. */
static void short_at_every_split(void)
{
    for (uint32_t split = 1; split <= 511; split++) {
        struct aio_fault fault = {
            .rules_count = 2,
            .rules = {{.kind = AIO_FAULT_SHORT, .from = 1, .argument = split},
                      {.kind = AIO_FAULT_SHORT, .from = 3, .argument = split}}};
        struct rig rig;
        open_mem(&rig, &fault, 512, 4);
        check_int(there_and_back(&rig, 512, 1, split), ==, 0);
        check_uint(fault.hits[AIO_FAULT_SHORT], ==, 2);
        struct aio_drive_stats stats;
        aio_drive_stats(rig.drive, &stats);
        check_uint(stats.short_transfers, ==, 2);
        rig_close(&rig);
    }
    for (const char *const *name = rig_backends(); *name != NULL; name++) {
        struct aio_fault fault = {
            .seed = seed, .rules_count = 1, .rules = {{.kind = AIO_FAULT_SHORT, .one_in = 2}}};
        struct rig rig;
        rig_open(&rig, &(struct rig_options){.backend = *name,
                                             .fault = &fault,
                                             .bytes = 1 << 16,
                                             .drive = {.block_bytes = 16 << 10}});
        for (uint64_t i = 0; i < 20; i++) {
            check_int(there_and_back(&rig, 1 << 16, 2, i), ==, 0);
        }
        check_uint(fault.hits[AIO_FAULT_SHORT], >, 50);
        rig_close(&rig);
    }
}

static void early_end_is_an_error(void)
{
    struct aio_fault fault = {.rules_count = 1, .rules = {{.kind = AIO_FAULT_END, .from = 2}}};
    struct rig rig;
    open_mem(&rig, &fault, 8192, 1);
    check_int(there_and_back(&rig, 8192, 2, 1), ==, -ENODATA);
    check_contains(core_err_message(), "rig-file: write at offset 4096 transferred 0 bytes");
    rig_close(&rig);
}

/* A single EIO is retried and logged; a lasting EIO ends in an error with file, offset
 * and cause. */
static void eio_on_every_request(void)
{
    for (int forever = 0; forever < 2; forever++) {
        uint64_t n = 1;
        for (bool clean = false; !clean; n++) {
            struct aio_fault fault = {.rules_count = 1,
                                      .rules = {{.kind = AIO_FAULT_ERROR,
                                                 .from = n,
                                                 .count = forever ? AIO_FAULT_FOREVER : 1}}};
            struct rig rig;
            test_listen(CORE_LOG_INFO);
            open_mem(&rig, &fault, 1 << 16, 4);
            int rc = there_and_back(&rig, 1 << 16, 4, n);
            clean = fault.hits[AIO_FAULT_ERROR] == 0;
            struct aio_drive_stats stats;
            aio_drive_stats(rig.drive, &stats);
            if (clean || !forever) {
                check_int(rc, ==, 0);
                check_uint(stats.retries, ==, !clean);
            } else {
                check_int(rc, ==, -EIO);
                check_contains(core_err_message(), "rig-file: ");
                check_contains(core_err_message(), "at offset ");
                check_contains(core_err_message(), "failed 4 times: Input/output error");
                struct core_fence fence;
                check_int(aio_queue_read(rig.queue, rig.file, 0, &fence, 8, &fence), ==, -EIO);
            }
            rig_close(&rig);
            if (!clean) {
                check_contains(test_heard(), "retry 1 of 3");
            }
            test_listen_end();
        }
        check_uint(n, ==, 34); /* 16 blocks written, 16 read, one clean run */
    }
}

/* ENOSPC fails the request; the message says that the file is full. */
static void enospc_on_every_write(void)
{
    for (uint64_t n = 1; n <= 16; n++) {
        struct aio_fault fault = {
            .rules_count = 1,
            .rules = {
                {.kind = AIO_FAULT_ERROR, .from = n, .writes_only = true, .argument = ENOSPC}}};
        struct rig rig;
        open_mem(&rig, &fault, 1 << 16, 4);
        check_int(there_and_back(&rig, 1 << 16, 4, n), ==, -ENOSPC);
        check_contains(core_err_message(), "rig-file is full: write of 4096 bytes at offset ");
        rig_close(&rig);
    }
}

/* Transient errors pass unnoticed. Another error ends the queue with a message that names the
 * drive, which then refuses queues. */
static void transient_errors_pass(void)
{
    static const uint32_t codes[] = {EINTR, EAGAIN, EBUSY, ENOMEM, EAGAIN};
    static const uint32_t results[] = {EINTR, EAGAIN, EBUSY, ENOMEM, ECANCELED};
    enum { CODES = sizeof codes / sizeof codes[0] };
    uint64_t total = 0;
    test_note("seed %llu", (unsigned long long)seed);
    for (size_t c = 0; c < CODES; c++) {
        struct aio_fault fault = {
            .rules_count = 3,
            .rules = {{.kind = AIO_FAULT_SUBMIT, .one_in = 2, .argument = codes[c]},
                      {.kind = AIO_FAULT_REAP, .one_in = 2, .argument = codes[c]},
                      {.kind = AIO_FAULT_ERROR, .one_in = 2, .argument = results[c]}}};
        struct rig rig;
        open_mem(&rig, &fault, 1 << 16, 8);
        uint64_t hits = 0;
        for (uint64_t i = 0; hits < 2600 / PART_OF_CASES; i++) {
            check_int(there_and_back(&rig, 1 << 16, 4, i), ==, 0);
            hits = fault.hits[AIO_FAULT_SUBMIT] + fault.hits[AIO_FAULT_REAP] +
                   fault.hits[AIO_FAULT_ERROR];
        }
        total += hits;
        rig_close(&rig);
    }
    check_uint(total, >=, 10000 / PART_OF_CASES);
    for (int kind = AIO_FAULT_SUBMIT; kind <= AIO_FAULT_REAP; kind++) {
        struct aio_fault fault = {
            .rules_count = 1, .rules = {{.kind = (enum aio_fault_kind)kind, .argument = ENODEV}}};
        struct rig rig;
        open_mem(&rig, &fault, 4096, 1);
        check_int(there_and_back(&rig, 4096, 1, 1), ==, -ENODEV);
        check_contains(core_err_message(), "rig: ");
        check_contains(core_err_message(), kind == AIO_FAULT_SUBMIT ? "submit" : "reap");
        struct aio_queue *queue = NULL;
        check_int(aio_queue_open(&rig.drive, 1, &(struct aio_queue_options){0}, &queue), ==, -EIO);
        rig_close(&rig);
    }
}

/* Late, reordered, duplicate and unknown completions do no harm; unknown ones are detected. */
static void disorder_is_harmless(void)
{
    struct aio_fault fault = {.rules_count = 4,
                              .rules = {{.kind = AIO_FAULT_LATE, .one_in = 4},
                                        {.kind = AIO_FAULT_DUPLICATE, .one_in = 3},
                                        {.kind = AIO_FAULT_UNKNOWN, .one_in = 3},
                                        {.kind = AIO_FAULT_REORDER, .one_in = 1}}};
    struct rig rig;
    uint64_t hits = 0;
    open_mem(&rig, &fault, 1 << 16, 16);
    for (uint64_t i = 0; hits < 10000 / PART_OF_CASES; i++) {
        check_int(there_and_back(&rig, 1 << 16, (uint64_t)1 << i % 4, i), ==, 0);
        hits = 0;
        for (int kind = 0; kind < AIO_FAULT_KINDS; kind++) {
            hits += fault.hits[kind];
        }
    }
    struct aio_drive_stats stats;
    aio_drive_stats(rig.drive, &stats);
    check_uint(stats.unknown_completions, >=, fault.hits[AIO_FAULT_UNKNOWN] * 2);
    check_uint(stats.errors, ==, 0);
    rig_close(&rig);
}

/* ---- clocks and stalls ---- */

static int64_t told_clock(void *user)
{
    return atomic_load_explicit((_Atomic int64_t *)user, memory_order_acquire);
}

static void wait_for_stall(struct aio_drive *drive, uint64_t stalls)
{
    struct aio_drive_stats stats = {0};
    for (int i = 0; i < 60000 && stats.stalls < stalls; i++) {
        usleep(1000);
        aio_drive_stats(drive, &stats);
    }
    check_uint(stats.stalls, ==, stalls);
}

/* A late drive causes a warning. A drive that does not respond for a minute fails its queues with
 * an error that names the drive. */
static void stalled_drive_is_named(void)
{
    for (int recovers = 0; recovers < 2; recovers++) {
        static unsigned char memory[4096] __attribute__((aligned(4096)));
        _Atomic int64_t clock_ns = 1;
        struct aio_fault fault = {.rules_count = 1, .rules = {{.kind = AIO_FAULT_STALLED}}};
        struct rig rig;
        test_listen(CORE_LOG_INFO);
        rig_open(&rig,
                 &(struct rig_options){
                     .backend = "mem",
                     .fault = &fault,
                     .bytes = 8192,
                     .drive = {.now_ns = told_clock, .now_user = &clock_ns, .name = "nvme7"}});
        struct core_fence stuck;
        struct core_fence other;
        struct aio_queue *second = NULL;
        check_int(
            aio_queue_open(&rig.drive, 1, &(struct aio_queue_options){.name = "second"}, &second),
            ==, 0);
        check_int(aio_queue_read(rig.queue, rig.file, 4096, memory, 4096, &stuck), ==, 0);
        usleep(2000);
        atomic_store_explicit(&clock_ns, 6000000000, memory_order_release);
        wait_for_stall(rig.drive, 1);
        check_int(core_fence_poll(stuck), ==, 0);
        if (recovers) {
            aio_fault_release(&fault);
            check_int(core_fence_wait(stuck, patience_ns), ==, 0);
        } else {
            atomic_store_explicit(&clock_ns, 61000000000, memory_order_release);
            check_int(core_fence_wait(stuck, patience_ns), ==, -ETIMEDOUT);
            check_contains(core_err_message(),
                           "nvme7 does not respond: read of 4096 bytes at offset 4096 of rig-file");
            /* The drive fails its queues in turn, so this write may be refused or fail later. */
            int rc = aio_queue_write(second, rig.file, 0, memory, 4096, &other);
            check_int(rc == 0 ? core_fence_wait(other, patience_ns) : rc, ==, -ETIMEDOUT);
        }
        check_int(aio_queue_close(second), ==, 0);
        rig_close(&rig);
        test_listen_end();
        check_contains(test_heard(), "nvme7 is slow");
    }
}

/* A request that does not complete fails at the limit. Closing then returns an error and leaks the
 * memory. */
static void lost_completion_ends_in_an_error(void)
{
    static unsigned char memory[4096] __attribute__((aligned(4096)));
    static struct aio_fault fault = {
        .rules_count = 1, .rules = {{.kind = AIO_FAULT_LATE, .one_in = 1, .argument = 0x7fffffff}}};
    static struct rig rig; /* deliberately leaked, but reachable */
    struct core_fence fence;
    rig_open(&rig, &(struct rig_options){
                       .backend = "mem",
                       .fault = &fault,
                       .bytes = 4096,
                       .drive = {.warn_ns = 20000000, .limit_ns = 60000000, .name = "nvme8"}});
    check_int(aio_queue_read(rig.queue, rig.file, 0, memory, 4096, &fence), ==, 0);
    check_int(core_fence_wait(fence, patience_ns), ==, -ETIMEDOUT);
    check_int(aio_queue_close(rig.queue), ==, -ETIMEDOUT);
    check_contains(core_err_message(), "nvme8: 1 transfers do not complete");
    check_int(aio_drive_destroy(rig.drive), ==, -ETIMEDOUT);
    check_contains(core_err_message(), "never completed");
}

/* After a queue is closed with requests in flight, nothing uses the memory (AddressSanitizer checks
 * that). */
static void close_in_flight(void)
{
    for (const char *const *name = rig_backends(); *name != NULL; name++) {
        for (unsigned round = 0; round < 50; round++) {
            struct rig rig;
            const uint64_t bytes = 64 << 10;
            rig_open(&rig, &(struct rig_options){.backend = *name,
                                                 .bytes = bytes,
                                                 .drive = {.block_bytes = 4096, .depth = 4}});
            unsigned char *memory = rig_memory(4 * bytes);
            rig_fill(memory, 4 * bytes, round);
            struct core_fence fence;
            for (int i = 0; i < 4; i++) { /* `own` is the drive's until the queue is closed */
                unsigned char *own = memory + (uint64_t)i * bytes;
                check_int(i % 2 == 0 ? aio_queue_read(rig.queue, rig.file, 0, own, bytes, &fence)
                                     : aio_queue_write(rig.queue, rig.file, 0, own, bytes, &fence),
                          ==, 0);
            }
            usleep(round * 10);
            check_int(aio_queue_close(rig.queue), ==, 0);
            rig_free(memory);
            rig.queue = NULL;
            rig_close(&rig);
        }
    }
}

TEST_MAIN({"short_at_every_split", short_at_every_split},
          {"early_end_is_an_error", early_end_is_an_error},
          {"eio_on_every_request", eio_on_every_request},
          {"enospc_on_every_write", enospc_on_every_write},
          {"transient_errors_pass", transient_errors_pass},
          {"disorder_is_harmless", disorder_is_harmless},
          {"stalled_drive_is_named", stalled_drive_is_named}, {"close_in_flight", close_in_flight},
          {"lost_completion_ends_in_an_error", lost_completion_ends_in_an_error})
