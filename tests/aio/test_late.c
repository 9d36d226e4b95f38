/* test_late.c: which requests wait, and which count as late. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "tests/aio/rig.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

static const int64_t patience_ns = 20000000000;

static int64_t told_clock(void *user)
{
    return atomic_load_explicit((_Atomic int64_t *)user, memory_order_acquire);
}

/* ---- A back end that completes requests when the test allows it ---- */

static _Atomic bool gate_shut;

static int gated_reap(void *state, struct aio_event *events, unsigned max, unsigned min,
                      int64_t wait_ns)
{
    while (atomic_load_explicit(&gate_shut, memory_order_acquire)) {
        usleep(1000);
    }
    return aio_mem.reap(state, events, max, min, wait_ns);
}

/* Opens a rig with memory behind the gate. */
static void open_gated(struct rig *rig, struct aio_drive_options *options, uint64_t bytes)
{
    static struct aio_backend gated;
    gated = aio_mem;
    gated.reap = gated_reap;
    *rig = (struct rig){.fd = -1};
    check_int(aio_mem_create(bytes, &rig->disk), ==, 0);
    options->backend = &gated;
    options->context = rig->disk;
    check_int(aio_drive_create(options, &rig->drive), ==, 0);
    const struct aio_file file = {.fd = -1, .name = "rig-file", .size_bytes = bytes};
    check_int(aio_drive_attach(rig->drive, &file, &rig->file), ==, 0);
    check_int(aio_queue_open(&rig->drive, 1, &(struct aio_queue_options){.name = "rig-queue"},
                             &rig->queue),
              ==, 0);
}

/* Completions that wait after a pause of the drive's thread are not late. */
static void a_backlog_is_not_late(void)
{
    enum { BLOCKS = 400 };
    _Atomic int64_t clock_ns = 1;
    struct rig rig;
    struct core_fence fence;
    unsigned char *memory = rig_memory(BLOCKS * 4096);
    rig_fill(memory, BLOCKS * 4096, 1);
    atomic_store_explicit(&gate_shut, true, memory_order_release);
    struct aio_drive_options options = {.name = "nvme9",
                                        .depth = BLOCKS,
                                        .block_bytes = 4096,
                                        .now_ns = told_clock,
                                        .now_user = &clock_ns};
    open_gated(&rig, &options, BLOCKS * 4096);
    check_int(aio_queue_write(rig.queue, rig.file, 0, memory, BLOCKS * 4096, &fence), ==, 0);
    struct aio_drive_stats stats = {0};
    for (int i = 0; i < 5000 && stats.waits == 0; i++) { /* until all are submitted */
        usleep(1000);
        aio_drive_stats(rig.drive, &stats);
    }
    atomic_store_explicit(&clock_ns, INT64_C(100000000000), memory_order_release);
    atomic_store_explicit(&gate_shut, false, memory_order_release);
    check_int(core_fence_wait(fence, patience_ns), ==, 0);
    aio_drive_stats(rig.drive, &stats);
    check_uint(stats.stalls, ==, 0);
    rig_close(&rig);
    rig_free(memory);
}

/* A call that blocks the drive's thread beyond the limit is a stall. Until the call returns, only a
 * wait with a limit ends. */
static void a_call_that_blocks_is_late(void)
{
    static struct rig rig; /* deliberately leaked, but reachable */
    static unsigned char memory[4096] __attribute__((aligned(4096)));
    const int64_t limit_ns = 300000000;
    struct core_fence fence;
    atomic_store_explicit(&gate_shut, true, memory_order_release);
    struct aio_drive_options options = {
        .name = "nvme10", .warn_ns = limit_ns, .limit_ns = limit_ns};
    open_gated(&rig, &options, 8192);
    rig.disk->latency_ns = INT64_C(3600000000000);
    check_int(aio_queue_read(rig.queue, rig.file, 0, memory, 4096, &fence), ==, 0);
    check_int(core_fence_wait(fence, 2 * limit_ns), ==, -ETIMEDOUT);
    check_contains(core_err_message(), "did not reach");
    atomic_store_explicit(&gate_shut, false, memory_order_release);
    check_int(core_fence_wait(fence, patience_ns), ==, -ETIMEDOUT);
    check_contains(core_err_message(), "nvme10 does not respond: read of 4096 bytes at offset 0");
    check_int(aio_queue_close(rig.queue), ==, -ETIMEDOUT);
    check_int(aio_drive_destroy(rig.drive), ==, -ETIMEDOUT);
}

/* ---- Pauses ---- */

static uint64_t repeats_of(const struct rig *rig)
{
    struct aio_drive_stats stats;
    aio_drive_stats(rig->drive, &stats);
    return stats.repeats;
}

static void wait_for_repeats(const struct rig *rig, uint64_t repeats)
{
    for (int i = 0; i < 20000 && repeats_of(rig) < repeats; i++) {
        usleep(500);
    }
    check_uint(repeats_of(rig), ==, repeats);
}

/* A block that pauses before a retry does not delay other queues. */
static void a_pause_is_one_queues_own(void)
{
    enum { UNPAUSED = 9, OTHERS = 200 };
    static unsigned char memory[8192] __attribute__((aligned(4096)));
    _Atomic int64_t clock_ns = 1;
    struct aio_fault fault = {.rules_count = 1,
                              .rules = {{.kind = AIO_FAULT_ERROR,
                                         .count = AIO_FAULT_FOREVER,
                                         .argument = ENOMEM,
                                         .offset_end = 4096}}};
    struct rig rig;
    struct aio_queue *other = NULL;
    struct core_fence failing;
    struct core_fence fence;
    rig_open(&rig, &(struct rig_options){.backend = "mem",
                                         .fault = &fault,
                                         .bytes = 8192,
                                         .drive = {.now_ns = told_clock, .now_user = &clock_ns}});
    check_int(aio_queue_open(&rig.drive, 1, &(struct aio_queue_options){.name = "other"}, &other),
              ==, 0);
    check_int(aio_queue_read(rig.queue, rig.file, 0, memory, 4096, &failing), ==, 0);
    wait_for_repeats(&rig, UNPAUSED);
    for (int i = 0; i < OTHERS; i++) {
        check_int(aio_queue_write(other, rig.file, 4096, memory + 4096, 4096, &fence), ==, 0);
        check_int(core_fence_wait(fence, patience_ns), ==, 0);
    }
    check_uint(repeats_of(&rig), ==, UNPAUSED);
    atomic_fetch_add_explicit(&clock_ns, 20000, memory_order_acq_rel);
    wait_for_repeats(&rig, UNPAUSED + 1);
    check_int(core_fence_poll(failing), ==, 0);
    check_int(aio_queue_close(other), ==, 0);
    rig_close(&rig);
}

/* A failing call that pauses before its retry does not delay other work. */
static void a_failing_call_pauses_alone(void)
{
    enum { UNPAUSED = 9, FAILURES = 40 };
    static const enum aio_fault_kind calls[] = {AIO_FAULT_SUBMIT, AIO_FAULT_REAP};
    static unsigned char memory[4096] __attribute__((aligned(4096)));
    for (size_t c = 0; c < 2; c++) {
        _Atomic int64_t clock_ns = 1;
        struct aio_fault fault = {
            .rules_count = 1, .rules = {{.kind = calls[c], .count = FAILURES, .argument = EAGAIN}}};
        struct rig rig;
        struct core_fence fence;
        rig_open(&rig,
                 &(struct rig_options){.backend = "mem",
                                       .fault = &fault,
                                       .bytes = 8192,
                                       .drive = {.now_ns = told_clock, .now_user = &clock_ns}});
        check_int(aio_queue_read(rig.queue, rig.file, 0, memory, 4096, &fence), ==, 0);
        wait_for_repeats(&rig, UNPAUSED);
        for (int i = 0; i < 100; i++) {
            const struct aio_file file = {.fd = rig.fd, .name = "another", .size_bytes = 4096};
            uint32_t index = 0;
            check_int(aio_drive_attach(rig.drive, &file, &index), ==, 0);
            check_int(aio_drive_detach(rig.drive, index), ==, 0);
        }
        check_uint(repeats_of(&rig), ==, UNPAUSED);
        for (int i = 0; i < 20000 && core_fence_poll(fence) == 0; i++) {
            atomic_fetch_add_explicit(&clock_ns, 20000, memory_order_acq_rel);
            core_fence_wait(fence, 1000000);
        }
        check_int(core_fence_wait(fence, patience_ns), ==, 0);
        check_uint(repeats_of(&rig), ==, FAILURES);
        rig_close(&rig);
    }
}

/* ---- A drive fails its part of a request while another drive fails, too ---- */

static unsigned char *held_message;
static _Atomic bool message_read;
static _Atomic bool message_released;

/* A thread that reads the message waits here until the test lets it go on. */
static void hold_reader(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_addr != held_message) {
        signal(number, SIG_DFL);
        return;
    }
    atomic_store_explicit(&message_read, true, memory_order_release);
    while (!atomic_load_explicit(&message_released, memory_order_acquire)) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    mprotect(held_message, 4096, PROT_READ);
}

/* Fails the queue like a drive that is still writing its message. */
static void *fail_queue(void *queue)
{
    core_line_fail(aio_queue_tail(queue).line, -EIO, (const char *)held_message);
    return NULL;
}

/* If two drives fail one queue, the second failure does not complete the request. */
static void the_second_failure_completes_nothing(void)
{
    static unsigned char memory[8192] __attribute__((aligned(4096)));
    struct aio_fault fault = {.rules_count = 1,
                              .rules = {{.kind = AIO_FAULT_ERROR,
                                         .count = AIO_FAULT_FOREVER,
                                         .argument = ENOSPC,
                                         .offset_end = 4096}}};
    struct rig rig;
    struct aio_queue *other = NULL;
    struct core_fence fence;
    struct core_fence passed;
    pthread_t thread;
    struct sigaction before;
    struct sigaction action = {.sa_sigaction = hold_reader, .sa_flags = SA_SIGINFO};
    rig_open(&rig, &(struct rig_options){.backend = "mem", .fault = &fault, .bytes = 8192});
    check_int(aio_queue_open(&rig.drive, 1, &(struct aio_queue_options){.name = "other"}, &other),
              ==, 0);
    held_message = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check_true(held_message != MAP_FAILED);
    strcpy((char *)held_message, "the first drive has failed");
    check_int(mprotect(held_message, 4096, PROT_NONE), ==, 0);
    sigaction(SIGSEGV, &action, &before);
    check_int(pthread_create(&thread, NULL, fail_queue, rig.queue), ==, 0);
    while (!atomic_load_explicit(&message_read, memory_order_acquire)) {
        usleep(1000);
    }
    check_int(aio_queue_read(rig.queue, rig.file, 0, memory, 4096, &fence), ==, 0);
    for (int i = 0; i < 3; i++) { /* then the drive is done with the request */
        check_int(aio_queue_read(other, rig.file, 4096, memory + 4096, 4096, &passed), ==, 0);
        check_int(core_fence_wait(passed, patience_ns), ==, 0);
    }
    check_int(core_fence_poll(fence), ==, 0);
    atomic_store_explicit(&message_released, true, memory_order_release);
    pthread_join(thread, NULL);
    sigaction(SIGSEGV, &before, NULL);
    check_int(core_fence_wait(fence, patience_ns), ==, -EIO);
    check_contains(core_err_message(), "the first drive has failed");
    munmap(held_message, 4096);
    check_int(aio_queue_close(other), ==, 0);
    rig_close(&rig);
}

/* ---- A process that is stopped ---- */

static int reads_and_stops(void *argument)
{
    static unsigned char memory[4096] __attribute__((aligned(4096)));
    const int64_t limit_ns = (TEST_STOP_MS - 500) * INT64_C(1000000);
    struct aio_fault fault = {.rules_count = 1, .rules = {{.kind = AIO_FAULT_STALLED}}};
    struct aio_drive_stats stats = {0};
    struct core_fence fence;
    struct rig rig;
    rig_open(&rig, &(struct rig_options){.backend = argument,
                                         .fault = &fault,
                                         .bytes = 4096,
                                         .drive = {.warn_ns = limit_ns, .limit_ns = limit_ns}});
    check_int(aio_queue_read(rig.queue, rig.file, 0, memory, 4096, &fence), ==, 0);
    while (stats.waits == 0) {
        usleep(1000);
        aio_drive_stats(rig.drive, &stats);
    }
    raise(SIGSTOP);
    const uint64_t waits = stats.waits + 4; /* by then the watchdog has checked */
    while (stats.waits < waits && core_fence_poll(fence) == 0) {
        usleep(1000);
        aio_drive_stats(rig.drive, &stats);
    }
    aio_fault_release(&fault);
    int rc = core_fence_wait(fence, -1);
    rig_close(&rig);
    return rc == 0 ? 0 : 1;
}

static void a_stopped_process_is_not_late(void)
{
    static char names[][8] = {"mem", "threads"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        check_int(test_child(reads_and_stops, names[i]), ==, 0);
    }
}

TEST_MAIN({"a_backlog_is_not_late", a_backlog_is_not_late},
          {"a_call_that_blocks_is_late", a_call_that_blocks_is_late},
          {"a_pause_is_one_queues_own", a_pause_is_one_queues_own},
          {"a_failing_call_pauses_alone", a_failing_call_pauses_alone},
          {"the_second_failure_completes_nothing", the_second_failure_completes_nothing},
          {"a_stopped_process_is_not_late", a_stopped_process_is_not_late})
