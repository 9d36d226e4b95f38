/* test_card_queues.c: order, limits and faults of a CUDA device's queues, on the emulated runtime
 * or a real GPU. Ops are host functions in the queue's stream. */
#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "tests/dev/device.h"
#include "tests/dev/mix.h"
#include "tests/dev/runtime.h"
#include "tests/harness/test.h"

enum { OP_MIX = 1, OP_FAIL = 2, QUEUES = 4, CELLS = 300 };
static const int64_t LONG_NS = 20000000000;

static int op_mix(const struct dev_launch *where, const struct mix_arguments *a)
{
    return runtime_stream_run(where->stream, run_mix, a, sizeof *a);
}
DEV_OP_LAUNCH(op_mix, mix_arguments)

struct fail_arguments {
    int code;
};

static int op_fail(const struct dev_launch *where, const struct fail_arguments *a)
{
    (void)where;
    return core_err_set(a->code, "no such shape");
}
DEV_OP_LAUNCH(op_fail, fail_arguments)

static const struct dev_op ops[] = {
    {OP_MIX, "mix", sizeof(struct mix_arguments), op_mix_launch},
    {OP_FAIL, "fail", sizeof(struct fail_arguments), op_fail_launch},
};

static struct dev_device *open_card(size_t budget_bytes)
{
    struct dev_device *device = NULL;
    runtime_reset();
    const int rc = dev_open("cuda", &(struct dev_options){.memory_bytes = budget_bytes}, &device);
    if (rc == -ENODEV || rc == -ENOTSUP) {
        test_skip("%s", core_err_message());
    }
    check_int(rc, ==, 0);
    check_int(dev_ops_register(device, ops, 2, NULL), ==, 0);
    return device;
}

/* Launches commands that read cells of earlier commands in any queue, after waiting for the fences
 * of these commands. */
static void run_graph(struct dev_queue **queues, uint64_t seed)
{
    uint64_t cells[CELLS] = {0};
    uint64_t expected[CELLS] = {0};
    struct core_fence written[CELLS] = {{0}};
    for (size_t i = 0; i < CELLS; i++) {
        struct mix_arguments a = {.to = &cells[i], .value = seed + i};
        struct mix_arguments serial = {.value = seed + i};
        struct dev_command command = {.op = OP_MIX, .arguments = &a, .arguments_bytes = sizeof a};
        for (size_t k = 0; k < MIX_SOURCES; k++) {
            size_t source = i == 0 ? 0 : test_random(&seed, i);
            a.from[k] = &cells[source];
            serial.from[k] = &expected[source];
            check_int(core_fence_wait(written[source], LONG_NS), ==, 0);
        }
        expected[i] = mix(&serial);
        struct dev_queue *queue = queues[test_random(&seed, QUEUES)];
        int rc;
        while ((rc = dev_queue_launch(queue, &command, &written[i])) == -EAGAIN) {
        }
        check_int(rc, ==, 0);
    }
    for (size_t i = 0; i < QUEUES; i++) {
        check_int(core_fence_wait(dev_queue_tail(queues[i]), LONG_NS), ==, 0);
    }
    check_memory(cells, expected, sizeof expected);
}

/* Fences order commands between queues; rings of events are reused. */
static void random_graphs(void)
{
    struct dev_device *device = open_card(1 << 20);
    struct dev_queue *queues[QUEUES];
    for (size_t i = 0; i < QUEUES; i++) {
        queues[i] = device_queue(device, (enum dev_queue_kind)i, 8);
    }
    for (uint64_t seed = 1; seed <= TEST_COUNT(20, 4); seed++) {
        run_graph(queues, seed);
    }
    for (size_t i = 0; i < QUEUES; i++) {
        dev_queue_destroy(queues[i]);
    }
    dev_close(device);
    check_int(runtime_live(), ==, 0);
}

enum { PIECES = 24, PIECE_BYTES = 40000, ROUNDS = 20 };

/* Copies that wait for the fence of the previous copy move the right bytes, from pinned and other
 * memory. */
static void copies_follow_fences(void)
{
    struct dev_device *device = open_card((size_t)4 << 20);
    struct dev_queue *queues[QUEUES];
    const size_t bytes = (size_t)PIECES * PIECE_BYTES;
    unsigned char *up = NULL;
    unsigned char *down = malloc(bytes);
    check_true(down != NULL && posix_memalign((void **)&up, 4096, bytes) == 0);
    unsigned char *one = device_alloc(device, bytes);
    unsigned char *other = device_alloc(device, bytes);
    uint64_t random = 1;
    for (size_t i = 0; i < QUEUES; i++) {
        queues[i] = device_queue(device, (enum dev_queue_kind)i, 8);
    }
    check_int(dev_host_register(device, up, bytes), ==, 0);
    for (int round = 0; round < TEST_COUNT(ROUNDS, 3); round++) {
        struct core_fence last[PIECES];
        for (size_t i = 0; i < bytes; i++) {
            up[i] = (unsigned char)test_random(&random, 256);
        }
        memset(down, 0, bytes);
        for (size_t i = 0; i < PIECES; i++) {
            const size_t at = i * PIECE_BYTES + test_random(&random, 100);
            const size_t count = 1 + test_random(&random, PIECE_BYTES - 100);
            memset(up + i * PIECE_BYTES, 0, at - i * PIECE_BYTES);
            memset(up + at + count, 0, (i + 1) * PIECE_BYTES - at - count);
            struct core_fence fence = device_submit(
                queues[i % QUEUES],
                &(struct dev_copy){
                    .direction = DEV_COPY_UP, .to = one + at, .from = up + at, .bytes = count});
            check_int(core_fence_wait(fence, LONG_NS), ==, 0);
            fence = device_submit(queues[(i + 1) % QUEUES],
                                  &(struct dev_copy){.direction = DEV_COPY_WITHIN,
                                                     .to = other + at,
                                                     .from = one + at,
                                                     .bytes = count});
            check_int(core_fence_wait(fence, LONG_NS), ==, 0);
            last[i] = device_submit(queues[(i + 2) % QUEUES],
                                    &(struct dev_copy){.direction = DEV_COPY_DOWN,
                                                       .to = down + at,
                                                       .from = other + at,
                                                       .bytes = count});
        }
        for (size_t i = 0; i < PIECES; i++) {
            check_int(core_fence_wait(last[i], LONG_NS), ==, 0);
        }
        check_memory(down, up, bytes);
    }
    dev_host_unregister(device, up);
    for (size_t i = 0; i < QUEUES; i++) {
        dev_queue_destroy(queues[i]);
    }
    dev_memory_free(device, one);
    dev_memory_free(device, other);
    dev_close(device);
    free(up);
    free(down);
    check_int(runtime_live(), ==, 0);
}

/* Few launches are in flight: with a full queue, the runtime would wait with its lock held. A
 * longer unit is taken as a whole. */
static void launches_in_flight_are_bounded(void)
{
    enum { LAUNCHES = 3000, IN_FLIGHT_MAX = 64 };
    static const unsigned units[] = {1, 30, 700};
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        struct dev_device *device = open_card(1 << 20);
        struct dev_queue *queue = NULL;
        const struct dev_queue_options options = {.kind = DEV_QUEUE_COMPUTE, .depth = 1024};
        check_int(dev_queue_create(device, &options, &queue), ==, 0);
        uint64_t cell[2] = {0};
        const struct mix_arguments a = {.to = &cell[1], .from = {cell, cell, cell}};
        struct core_fence fence = {0};
        for (unsigned i = 1; i <= LAUNCHES / units[u] * units[u]; i++) {
            const struct dev_command command = {.op = OP_MIX,
                                                .arguments = &a,
                                                .arguments_bytes = sizeof a,
                                                .more = i % units[u] != 0};
            int rc;
            while ((rc = dev_queue_launch(queue, &command, &fence)) == -EAGAIN) {
            }
            check_int(rc, ==, 0);
            const uint64_t reached = fence.line->reached;
            check_uint(i - reached * units[u], <=, IN_FLIGHT_MAX + units[u]);
        }
        check_int(core_fence_wait(fence, LONG_NS), ==, 0);
        dev_queue_destroy(queue);
        dev_close(device);
    }
    check_int(runtime_live(), ==, 0);
}

/* A failing op or an abandonment ends its queue; other queues continue. */
static void failing_op(void)
{
    struct dev_device *device = open_card(1 << 20);
    struct dev_queue *queue = device_queue(device, DEV_QUEUE_COMPUTE, 8);
    struct dev_queue *other = device_queue(device, DEV_QUEUE_DOWN, 8);
    unsigned char *memory = device_alloc(device, 64);
    unsigned char host[64];
    struct fail_arguments a = {.code = -EDOM};
    struct dev_command command = {.op = OP_FAIL, .arguments = &a, .arguments_bytes = sizeof a};
    struct core_fence fence;
    check_int(dev_queue_launch(queue, &command, &fence), ==, -EDOM);
    check_contains(core_err_message(), "op fail: no such shape");
    (void)core_err_adopt(-EIO, "");
    check_int(dev_queue_launch(queue, &command, &fence), ==, -EDOM);
    check_contains(core_err_message(), "op fail: no such shape");
    struct dev_copy down = {
        .direction = DEV_COPY_DOWN, .to = host, .from = memory, .bytes = sizeof host};
    check_int(core_fence_wait(device_submit(other, &down), LONG_NS), ==, 0);
    core_err_set(-ECANCELED, "stop");
    dev_queue_abandon(other, -ECANCELED);
    check_int(dev_queue_copy(other, &down, &fence), ==, -ECANCELED);
    dev_queue_destroy(queue);
    dev_queue_destroy(other);
    dev_memory_free(device, memory);
    dev_close(device);
    check_int(runtime_live(), ==, 0);
}

TEST_MAIN({"random_graphs", random_graphs}, {"copies_follow_fences", copies_follow_fences},
          {"launches_in_flight_are_bounded", launches_in_flight_are_bounded},
          {"failing_op", failing_op})
