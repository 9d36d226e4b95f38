/* test_cuda.c: order, limits and faults of the CUDA device on the emulated runtime, so without a
 * GPU. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/dev/dev.h"
#include "tests/dev/device.h"
#include "tests/dev/fake_cuda.h"
#include "tests/dev/mix.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"

/* error codes of the CUDA runtime */
enum { OUT_OF_MEMORY = 2, DRIVER_TOO_OLD = 35, NO_DEVICE = 100, LAUNCH_FAILURE = 719 };
enum { OP_MIX = 1, CELLS = 300 };
static const int64_t LONG_NS = 20000000000;

static int op_mix(const struct dev_launch *where, const struct mix_arguments *a)
{
    return fake_stream_run(where->stream, run_mix, a, sizeof *a);
}
DEV_OP_LAUNCH(op_mix, mix_arguments)

static const struct dev_op ops[] = {
    {OP_MIX, "mix", sizeof(struct mix_arguments), op_mix_launch},
};

static struct dev_device *open_card(size_t budget_bytes)
{
    struct dev_device *device = NULL;
    fake_reset((size_t)4 << 30);
    check_int(dev_open("cuda", &(struct dev_options){.memory_bytes = budget_bytes}, &device), ==,
              0);
    check_int(dev_ops_register(device, ops, 1, NULL), ==, 0);
    return device;
}

/* Each cause of a missing GPU has a different message. */
static void absence(void)
{
    struct dev_device *device = NULL;
    fake_reset(1 << 20);
    fake_driver(0, DRIVER_TOO_OLD);
    check_int(dev_open("cuda", NULL, &device), ==, -ENODEV);
    check_contains(core_err_message(), "no NVIDIA driver");
    fake_driver(12020, DRIVER_TOO_OLD);
    check_int(dev_kind_count(1), ==, -ENODEV);
    check_contains(core_err_message(), "supports CUDA 12.2, this build needs 13.0");
    fake_driver(13000, NO_DEVICE);
    check_int(dev_kind_count(1), ==, -ENODEV);
    check_contains(core_err_message(), "finds no GPU");
    fake_driver(13000, 0);
    check_int(dev_kind_count(1), ==, 1);
    check_int(dev_open("cuda:1", NULL, &device), ==, -ENODEV);
    check_true(device == NULL);
}

/* The device reports its properties; its budget does not exceed the free memory. */
static void budget(void)
{
    struct dev_device *device = open_card(0);
    const struct dev_properties *properties = dev_properties(device);
    check_string(properties->name, "cuda:0");
    check_contains(properties->description, "Fake Card, 132 SMs, 0000:fa:4e.0");
    check_uint(properties->arch, ==, 90);
    check_true(!properties->host_visible);
    struct dev_memory memory;
    dev_memory_report(device, &memory);
    check_uint(memory.budget_bytes, ==, (uint64_t)3 << 30);
    dev_close(device);
    check_int(fake_live(), ==, 0);
    check_int(dev_open("cuda:0", &(struct dev_options){.memory_bytes = (size_t)5 << 30}, &device),
              ==, -ENOMEM);
    check_contains(core_err_message(), "4294967296 of its 4294967296 bytes free");
    check_int(fake_live(), ==, 0);
}

/* A budget that leaves little memory for a GPU's libraries causes a warning. */
static void small_spare(void)
{
    static const struct {
        size_t bytes;
        unsigned warnings;
    } budgets[] = {{(size_t)3 << 30, 0}, {((size_t)3 << 30) + 1, 1}, {(size_t)4 << 30, 1}, {0, 0}};
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        test_listen(CORE_LOG_WARN);
        struct dev_device *device = open_card(budgets[i].bytes);
        test_listen_end();
        check_uint(test_heard_lines("may need up to 1073741824 beside it"), ==,
                   budgets[i].warnings);
        dev_close(device);
    }
}

/* Writes just past an allocation, in a child that must die. */
static void overrun(void *memory, size_t bytes)
{
    const pid_t child = fork();
    check_int(child, >=, 0);
    if (child == 0) {
        (void)freopen("/dev/null", "w", stderr); /* a sanitizer's report */
        ((volatile char *)memory)[bytes] = 1;
        _exit(0);
    }
    int status = 0;
    check_int(waitpid(child, &status, 0), ==, child);
    check_true(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
}

/* With TIDE_DEVICE_MEMORY=separate, allocations are separate in the runtime, so that overruns are
 * detected. */
static void separate_memory(void)
{
    enum { COUNT = 5, BYTES = 1024, LAST = COUNT - 1 };
    struct dev_device *device = NULL;
    char *parts[COUNT];
    struct dev_memory memory;
    fake_reset((size_t)4 << 30);
    check_int(setenv("TIDE_DEVICE_MEMORY", "apart", 1), ==, 0);
    check_int(dev_open("cuda", &(struct dev_options){.memory_bytes = 1 << 20}, &device), ==,
              -EINVAL);
    check_contains(core_err_message(), "TIDE_DEVICE_MEMORY \"apart\" (expected separate");
    check_int(setenv("TIDE_DEVICE_MEMORY", "separate", 1), ==, 0);
    device = open_card(COUNT * BYTES);
    check_true(dev_memory_is_separate(device));
    const int live = fake_live();
    for (int i = 0; i < COUNT; i++) {
        parts[i] = device_alloc(device, BYTES);
        memset(parts[i], i, BYTES);
        check_int(fake_live(), ==, live + i + 1);
        check_true(dev_memory_holds(device, parts[i], BYTES));
        check_true(dev_memory_holds(device, parts[i] + BYTES - 1, 1));
        check_true(!dev_memory_holds(device, parts[i], BYTES + 1));
        check_true(!dev_memory_holds(device, parts[i] - 1, 1));
    }
    overrun(parts[1], BYTES);
    dev_memory_report(device, &memory);
    check_uint(memory.used_bytes, ==, COUNT * BYTES);
    check_uint(memory.largest_bytes, ==, 0);
    void *more = NULL;
    check_int(dev_memory_alloc(device, 1, &more), ==, -ENOMEM);
    check_contains(core_err_message(), "1 bytes do not fit");
    dev_memory_free(device, parts[2]);
    check_int(fake_live(), ==, live + LAST);
    fake_fail(2, OUT_OF_MEMORY); /* the first call sets the GPU */
    check_int(dev_memory_alloc(device, 1, &more), ==, -ENOMEM);
    check_contains(core_err_message(), "cudaMalloc of 1 bytes failed: out of memory");
    struct dev_queue *queue = device_queue(device, DEV_QUEUE_UP, 8);
    char host[BYTES + 1];
    const struct dev_copy over[] = {
        /* one byte outside an allocation */
        {.direction = DEV_COPY_UP, .to = parts[3], .from = host, .bytes = BYTES + 1},
        {.direction = DEV_COPY_DOWN, .to = host, .from = parts[3], .bytes = BYTES + 1},
        {.direction = DEV_COPY_WITHIN, .to = parts[3] + 1, .from = parts[4], .bytes = BYTES},
        {.direction = DEV_COPY_WITHIN, .to = parts[4], .from = parts[3] + 1, .bytes = BYTES},
        {.direction = DEV_COPY_ZEROS, .to = parts[3], .bytes = BYTES + 1},
        {.direction = DEV_COPY_ZEROS, .to = parts[3] - 1, .bytes = BYTES},
    };
    for (size_t i = 0; i < sizeof over / sizeof over[0]; i++) {
        struct core_fence fence = {0};
        check_int(dev_queue_copy(queue, &over[i], &fence), ==, -EINVAL);
        check_contains(core_err_message(), "leaves the memory of cuda:0");
    }
    memset(host, 7, sizeof host);
    device_wait(device_copy(queue, DEV_COPY_UP, parts[3], host, BYTES));
    check_memory(parts[3], host, BYTES);
    memset(host, 0, BYTES - 2);
    device_wait(device_copy(queue, DEV_COPY_ZEROS, parts[3], NULL, BYTES - 2));
    check_memory(parts[3], host, BYTES);
    device_wait(device_copy(queue, DEV_COPY_ZEROS, parts[3], NULL, BYTES));
    memset(host, 0, sizeof host);
    check_memory(parts[3], host, BYTES);
    for (int i = 0; i < BYTES; i++) {
        check_int(parts[LAST][i], ==, LAST);
    }
    dev_queue_destroy(queue);
    for (int i = 0; i < COUNT - 1; i++) { /* the last one is freed with the device */
        dev_memory_free(device, i == 2 ? NULL : parts[i]);
    }
    dev_close(device);
    check_int(fake_live(), ==, 0);
    check_int(unsetenv("TIDE_DEVICE_MEMORY"), ==, 0);
    device = open_card(1 << 20);
    check_true(!dev_memory_is_separate(device));
    dev_close(device);
}

/* Launches up to the first without `more` share one event; a copy that waits for the event sees
 * their results. */
static void a_unit_has_one_event(void)
{
    struct dev_device *device = open_card(1 << 20);
    struct dev_queue *queue = device_queue(device, DEV_QUEUE_COMPUTE, 8);
    struct dev_queue *other = device_queue(device, DEV_QUEUE_DOWN, 8);
    uint64_t *cells = device_alloc(device, 8 * CELLS);
    uint64_t serial[CELLS + 1] = {0};
    struct core_fence fence = {0};
    memset(cells, 0, 8 * CELLS);
    const unsigned before = fake_events_recorded();
    for (size_t i = 1; i < CELLS; i++) {
        struct mix_arguments a = {.to = &cells[i], .value = i};
        const struct dev_command command = {
            .op = OP_MIX, .arguments = &a, .arguments_bytes = sizeof a, .more = i + 1 < CELLS};
        for (size_t k = 0; k < MIX_SOURCES; k++) {
            a.from[k] = &cells[i - 1];
        }
        const struct mix_arguments expected = {
            .value = i, .from = {&serial[i - 1], &serial[i - 1], &serial[i - 1]}};
        serial[i] = mix(&expected);
        check_int(dev_queue_launch(queue, &command, &fence), ==, 0);
        check_uint(fence.value, ==, 1);
        check_uint(dev_queue_tail(queue).value, ==, command.more ? 0 : 1);
    }
    check_uint(fake_events_recorded() - before, ==, 1);
    const struct dev_copy last = {.direction = DEV_COPY_DOWN,
                                  .to = &serial[CELLS],
                                  .from = &cells[CELLS - 1],
                                  .bytes = sizeof serial[0]};
    check_int(core_fence_wait(fence, LONG_NS), ==, 0);
    check_int(core_fence_wait(device_submit(other, &last), LONG_NS), ==, 0);
    check_uint(serial[CELLS], ==, serial[CELLS - 1]);
    dev_queue_destroy(queue);
    dev_queue_destroy(other);
    dev_memory_free(device, cells);
    dev_close(device);
    check_int(fake_live(), ==, 0);
}

/* ---- times of launches ---- */

/* Written by the thread that watches the device, then read by the test. */
struct reported {
    unsigned count, waits;
    int64_t first_ns, last_ns;
    bool in_order;
};

static void note_time(void *user, const char *op, int64_t begin_ns, int64_t end_ns)
{
    struct reported *reported = user;
    const int64_t slack_ns = 1000; /* rounding of floats */
    reported->in_order = reported->in_order && begin_ns + slack_ns >= reported->last_ns &&
                         end_ns >= begin_ns;
    reported->first_ns = reported->count++ == 0 ? begin_ns : reported->first_ns;
    reported->waits += strcmp(op, "wait") == 0;
    reported->last_ns = end_ns;
}

static int op_wait(const struct dev_launch *where, const struct mix_arguments *a)
{
    return fake_stream_run(where->stream, run_mix, a, sizeof *a);
}
DEV_OP_LAUNCH(op_wait, mix_arguments)

/* Launches of a queue with times are reported once, in order, with the host's time, before their
 * fence is reached. */
static void launches_are_timed(void)
{
    enum { OP_WAIT = 3, UNIT = 5, UNITS = 300 };
    const struct dev_op wait = {OP_WAIT, "wait", sizeof(struct mix_arguments), op_wait_launch};
    struct dev_device *device = open_card(1 << 20);
    check_int(dev_ops_register(device, &wait, 1, NULL), ==, 0);
    struct dev_queue *queue = device_queue(device, DEV_QUEUE_COMPUTE, 8);
    uint64_t *cell = device_alloc(device, 16);
    struct reported reported = {.in_order = true};
    const struct dev_timing timing = {note_time, &reported};
    const struct mix_arguments a = {.to = &cell[1], .from = {cell, cell, cell}};
    struct dev_command command = {.op = OP_WAIT, .arguments = &a, .arguments_bytes = sizeof a};
    static const int failing[] = {1, 2, 500, 1026, 1027, 1028};
    struct core_fence fence = {0};
    const int live = fake_live();
    cell[0] = 1;
    for (size_t i = 0; i < sizeof failing / sizeof failing[0]; i++) {
        fake_fail(failing[i], OUT_OF_MEMORY);
        check_int(dev_queue_time(queue, &timing), ==, -ENOMEM);
        check_int(fake_failed(), ==, 1);
        check_int(fake_live(), ==, live);
        check_int(fake_sticky(), ==, 0);
    }
    fake_fail(0, 0);
    for (int turn = 0; turn < 3; turn++) {
        const int64_t before_ns = core_clock_now_ns();
        reported = (struct reported){.in_order = true, .last_ns = before_ns};
        check_int(dev_queue_time(queue, turn == 1 ? &timing : NULL), ==, 0);
        /* That call reads the host's time of the GPU's first event. */
        const int64_t late_ns = core_clock_now_ns() - before_ns;
        for (unsigned i = 0; i < UNIT * UNITS; i++) {
            command.op = i % UNIT == 0 ? OP_WAIT : OP_MIX;
            command.more = i % UNIT != UNIT - 1;
            int rc;
            while ((rc = dev_queue_launch(queue, &command, &fence)) == -EAGAIN) {
            }
            check_int(rc, ==, 0);
        }
        check_int(core_fence_wait(fence, LONG_NS), ==, 0);
        check_uint(reported.count, ==, turn == 1 ? UNIT * UNITS : 0);
        check_uint(reported.waits, ==, turn == 1 ? UNITS : 0);
        check_true(reported.in_order);
        if (turn == 1) {
            check_int(reported.first_ns, >=, before_ns);
            check_int(reported.last_ns, <=, core_clock_now_ns() + late_ns + 1000000);
        }
    }
    const struct dev_timing other = {note_time, NULL};
    check_int(dev_queue_time(queue, &other), ==, -EBUSY);
    dev_queue_destroy(queue);
    dev_memory_free(device, cell);
    dev_close(device);
    check_int(fake_live(), ==, 0);
}

/* After the loss of a GPU its queues fail with one error, and the device can be closed. */
static void lost_card(void)
{
    struct dev_device *device = open_card(1 << 20);
    struct dev_queue *queues[2] = {device_queue(device, DEV_QUEUE_UP, 8),
                                   device_queue(device, DEV_QUEUE_COMPUTE, 8)};
    unsigned char *memory = device_alloc(device, 64);
    unsigned char host[64] = {0};
    struct dev_copy up = {.to = memory, .from = host, .bytes = 64};
    struct core_fence fence = device_submit(queues[0], &up);
    check_int(core_fence_wait(fence, LONG_NS), ==, 0);
    fake_break(LAUNCH_FAILURE);
    int rc;
    while ((rc = dev_queue_copy(queues[0], &up, &fence)) == 0) {
    }
    check_int(rc, ==, -EIO);
    check_contains(core_err_message(), "cudaErrorLaunchFailure");
    check_contains(core_err_message(), "cuda:0");
    rc = dev_queue_copy(queues[1], &up, &fence);
    check_int(rc, ==, -EIO);
    dev_queue_destroy(queues[0]);
    dev_queue_destroy(queues[1]);
    dev_memory_free(device, memory);
    dev_close(device);
    check_int(fake_live(), ==, 0);
}

/* The watching thread detects the loss while others wait. */
static void lost_while_waiting(void)
{
    struct dev_device *device = open_card(1 << 20);
    struct dev_queue *queue = device_queue(device, DEV_QUEUE_COMPUTE, 8);
    uint64_t *cell = device_alloc(device, 64);
    struct mix_arguments a = {.to = cell, .from = {cell + 1, cell + 1, cell + 1}};
    struct dev_command command = {.op = OP_MIX, .arguments = &a, .arguments_bytes = sizeof a};
    struct core_fence fence = {0};
    int rc = 0;
    for (int i = 0; i < 8 && rc == 0; i++) {
        rc = dev_queue_launch(queue, &command, &fence);
        fake_break(i == 6 ? LAUNCH_FAILURE : 0);
    }
    if (rc == 0) {
        rc = core_fence_wait(fence, LONG_NS);
    }
    check_int(rc, ==, -EIO);
    check_contains(core_err_message(), "cuda:0");
    dev_queue_destroy(queue);
    dev_memory_free(device, cell);
    dev_close(device);
}

/* Large host memory is pinned in pieces, and a copy across a border is split. After a failure
 * nothing remains pinned. */
static void pieces(void)
{
    const size_t bytes = (size_t)130 << 30;
    struct dev_device *device = open_card(1 << 20);
    struct dev_queue *queue = device_queue(device, DEV_QUEUE_UP, 8);
    unsigned char *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED) {
        test_skip("no 130 GiB of address space here");
    }
    int live = fake_live();
    fake_fail(4, OUT_OF_MEMORY); /* sets the GPU, pins two pieces, fails at the third */
    check_int(dev_host_register(device, host, bytes), ==, -ENOMEM);
    check_contains(core_err_message(),
                   "cudaHostRegister of 2147483648 bytes failed: out of memory");
    check_int(fake_live(), ==, live);
    check_int(fake_sticky(), ==, 0);
    check_int(dev_host_register(device, host, bytes), ==, 0);
    check_int(fake_live(), ==, live + 3);
    unsigned char *border = host + ((size_t)128 << 30);
    unsigned char *memory = device_alloc(device, 4096);
    for (size_t i = 0; i < 4096; i++) {
        border[i - 2048] = (unsigned char)(i * 7 >> 3);
    }
    struct dev_copy up = {.to = memory, .from = border - 2048, .bytes = 4096};
    check_int(core_fence_wait(device_submit(queue, &up), LONG_NS), ==, 0);
    check_memory(memory, border - 2048, 4096);
    struct dev_copy down = {
        .direction = DEV_COPY_DOWN, .to = border - 1, .from = memory, .bytes = 100};
    check_int(core_fence_wait(device_submit(queue, &down), LONG_NS), ==, 0);
    check_memory(border - 1, memory, 100);
    dev_host_unregister(device, host);
    check_int(fake_live(), ==, live);
    dev_queue_destroy(queue);
    dev_memory_free(device, memory);
    dev_close(device);
    munmap(host, bytes);
    check_int(fake_live(), ==, 0);
}

static int live_once(void)
{
    struct dev_device *device = NULL;
    struct dev_queue *queue = NULL;
    void *host = NULL;
    int rc = posix_memalign(&host, 65536, 65536);
    check_int(rc, ==, 0);
    rc = dev_open("cuda", &(struct dev_options){.memory_bytes = 1 << 20}, &device);
    if (rc == 0) {
        rc = dev_queue_create(device, &(struct dev_queue_options){.depth = 4}, &queue);
    }
    if (rc == 0) {
        rc = dev_host_register(device, host, 65536);
    }
    dev_queue_destroy(queue);
    dev_close(device);
    free(host);
    return rc;
}

/* If a call of the runtime fails, the life succeeds or reports the error, and nothing remains
 * allocated. */
static void every_call_fails(void)
{
    int n = 1;
    for (;; n++) {
        fake_reset((size_t)4 << 30);
        fake_fail_anywhere(n, OUT_OF_MEMORY);
        (void)core_err_adopt(-EIO, "");
        int rc = live_once();
        check_int(fake_live(), ==, 0);
        check_int(fake_sticky(), ==, 0);
        if (!fake_failed()) {
            check_int(rc, ==, 0);
            break;
        }
        if (rc != 0) {
            check_contains(core_err_message(), "out of memory");
        }
    }
    check_int(n, >, 10);
}

TEST_MAIN({"absence", absence}, {"budget", budget}, {"small_spare", small_spare},
          {"separate_memory", separate_memory}, {"a_unit_has_one_event", a_unit_has_one_event},
          {"launches_are_timed", launches_are_timed}, {"lost_card", lost_card},
          {"lost_while_waiting", lost_while_waiting}, {"pieces", pieces},
          {"every_call_fails", every_call_fails})
