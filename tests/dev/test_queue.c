/* test_queue.c: ops, order, limits and failures of the CPU device's queues. */
#include <errno.h>

#include "core/base/err.h"
#include "core/base/team.h"
#include "core/dev/backend.h"
#include "core/dev/dev.h"
#include "tests/dev/device.h"
#include "tests/dev/mix.h"
#include "tests/harness/test.h"

enum { OP_ADD = 3, OP_FAIL = 4, OP_ABSENT = 5, OP_WAIT = 6 };

struct add_arguments {
    uint64_t *at;
    uint64_t value;
    uint64_t multiply;
};

static int op_add(const struct dev_launch *where, const struct add_arguments *a)
{
    (void)where;
    *a->at = *a->at * a->multiply + a->value;
    return 0;
}
DEV_OP_LAUNCH(op_add, add_arguments)

struct fail_arguments {
    int code;
};

static int op_fail(const struct dev_launch *where, const struct fail_arguments *a)
{
    (void)where;
    return core_err_set(a->code, "the op was asked to fail");
}
DEV_OP_LAUNCH(op_fail, fail_arguments)

struct wait_arguments {
    struct core_line *line;
};

/* Holds its queue until the line reaches 1. */
static int op_wait(const struct dev_launch *where, const struct wait_arguments *a)
{
    (void)where;
    return core_fence_wait((struct core_fence){.line = a->line, .value = 1}, -1);
}
DEV_OP_LAUNCH(op_wait, wait_arguments)

static const struct dev_op ops[] = {
    {OP_ADD, "add", sizeof(struct add_arguments), op_add_launch},
    {OP_FAIL, "fail", sizeof(struct fail_arguments), op_fail_launch},
    {OP_ABSENT, "absent", 8, NULL},
    {OP_WAIT, "wait", sizeof(struct wait_arguments), op_wait_launch},
};

static struct dev_device *open_with_ops(size_t memory_bytes)
{
    struct dev_device *device = device_open(memory_bytes);
    check_int(dev_ops_register(device, ops, sizeof ops / sizeof ops[0], NULL), ==, 0);
    return device;
}

/* Missing ops, invalid ops and arguments of the wrong size are refused; the queue
 * remains usable. */
static void op_table(void)
{
    struct dev_device *device = open_with_ops(4096);
    struct dev_op wrong[] = {{DEV_OP_MAX, "beyond", 8, op_add_launch},
                             {1, "large", DEV_ARGUMENT_BYTES + 1, op_add_launch}};
    check_int(dev_ops_register(device, &wrong[0], 1, NULL), ==, -EINVAL);
    check_int(dev_ops_register(device, &wrong[1], 1, NULL), ==, -EINVAL);
    check_int(dev_ops_register(device, &ops[1], 1, NULL), ==, 0);
    struct dev_queue *queue = device_queue(device, DEV_QUEUE_COMPUTE, 0);
    check_int(dev_ops_register(device, ops, 1, NULL), ==, -EBUSY);
    struct core_fence fence;
    struct fail_arguments a = {0};
    struct dev_command command = {.op = OP_ABSENT, .arguments = &a, .arguments_bytes = 8};
    check_int(dev_queue_launch(queue, &command, &fence), ==, -ENOTSUP);
    check_contains(core_err_message(), "absent");
    command.op = 60;
    check_int(dev_queue_launch(queue, &command, &fence), ==, -ENOTSUP);
    command.op = DEV_OP_MAX;
    check_int(dev_queue_launch(queue, &command, &fence), ==, -EINVAL);
    command.op = OP_ADD;
    command.arguments_bytes = sizeof a;
    check_int(dev_queue_launch(queue, &command, &fence), ==, -EINVAL);
    uint64_t *cell = device_alloc(device, 8);
    *cell = 1;
    for (uint64_t i = 0; i < 10; i++) { /* `add` is reused: arguments are copied */
        struct add_arguments add = {.at = cell, .value = i, .multiply = 3};
        command = (struct dev_command){
            .op = OP_ADD, .arguments = &add, .arguments_bytes = sizeof add};
        check_int(dev_queue_launch(queue, &command, &fence), ==, 0);
    }
    device_wait(fence);
    uint64_t expected = 1;
    for (uint64_t i = 0; i < 10; i++) {
        expected = expected * 3 + i;
    }
    check_uint(*cell, ==, expected);
    check_uint(dev_queue_tail(queue).value, ==, 10);
    dev_memory_free(device, cell);
    dev_queue_destroy(queue);
    dev_close(device);
}

static int enter_code;

static int enter(struct dev_device *device)
{
    (void)device;
    return enter_code;
}

/* dev_queue_enter() makes the device current before it describes the queue, and returns the
 * device's error. */
static void entered(void)
{
    struct dev_device *device = open_with_ops(8192);
    const struct dev_backend *own = device->backend;
    struct dev_backend streams = *own;
    struct dev_queue *queue = NULL;
    struct dev_launch where = {.scratch_bytes = 7};
    check_int(dev_queue_create(device, &(struct dev_queue_options){.scratch_bytes = 300}, &queue),
              ==, 0);
    streams.enter = enter;
    device->backend = &streams;
    enter_code = -ENODEV;
    check_int(dev_queue_enter(queue, &where), ==, -ENODEV);
    check_uint(where.scratch_bytes, ==, 7);
    enter_code = 0;
    check_int(dev_queue_enter(queue, &where), ==, 0);
    check_uint(where.scratch_bytes, ==, 300);
    device->backend = own;
    dev_queue_destroy(queue);
    dev_close(device);
}

struct where_arguments {
    struct dev_launch *seen;
};

static int op_where(const struct dev_launch *where, const struct where_arguments *a)
{
    *a->seen = *where;
    memset(where->scratch, 0x11, where->scratch_bytes);
    return 0;
}
DEV_OP_LAUNCH(op_where, where_arguments)

/* An op gets its queue's team, its context, and scratch memory from the budget. */
static void launch_context(void)
{
    struct dev_device *device = open_with_ops(8192);
    int context = 0;
    struct dev_op row = {9, "where", sizeof(struct where_arguments), op_where_launch};
    check_int(dev_ops_register(device, &row, 1, &context), ==, 0);
    struct dev_queue *queue = NULL;
    struct dev_queue_options options = {
        .kind = DEV_QUEUE_UPDATE, .threads = 3, .scratch_bytes = 8193};
    check_int(dev_queue_create(device, &options, &queue), ==, -ENOMEM);
    check_contains(core_err_message(), "scratch");
    options.scratch_bytes = 5000;
    check_int(dev_queue_create(device, &options, &queue), ==, 0);
    struct dev_launch seen = {0};
    struct where_arguments a = {.seen = &seen};
    struct core_fence fence;
    struct dev_command command = {.op = 9, .arguments = &a, .arguments_bytes = sizeof a};
    check_int(dev_queue_launch(queue, &command, &fence), ==, 0);
    device_wait(fence);
    check_uint(core_team_count(seen.team), ==, 3);
    check_uint(seen.scratch_bytes, ==, 5000);
    check_true(seen.context == &context);
    check_true(seen.stream == NULL);
    struct dev_memory memory;
    dev_memory_report(device, &memory);
    check_uint(memory.used_bytes, ==, 5120);
    dev_queue_destroy(queue);
    dev_memory_report(device, &memory);
    check_uint(memory.used_bytes, ==, 0);
    dev_close(device);
}

/* A full queue returns -EAGAIN until it has space. Kinds, depths and the number of queues are
 * limited. */
static void limits(void)
{
    struct dev_device *device = open_with_ops(4096);
    struct core_line gate;
    core_line_init(&gate, "gate", NULL);
    struct dev_queue *queue = device_queue(device, DEV_QUEUE_COMPUTE, 4);
    struct wait_arguments a = {.line = &gate};
    struct dev_command command = {.op = OP_WAIT, .arguments = &a, .arguments_bytes = sizeof a};
    struct core_fence fence;
    for (int i = 0; i < 4; i++) {
        check_int(dev_queue_launch(queue, &command, &fence), ==, 0);
    }
    check_int(dev_queue_launch(queue, &command, &fence), ==, -EAGAIN);
    core_line_reach(&gate, 1);
    device_wait(fence);
    check_int(dev_queue_launch(queue, &command, &fence), ==, 0);
    device_wait(fence);
    struct dev_queue *others[DEV_QUEUE_MAX];
    for (int i = 1; i < DEV_QUEUE_MAX; i++) {
        others[i] = device_queue(device, (enum dev_queue_kind)(i % DEV_QUEUE_KINDS), 2);
    }
    struct dev_queue_options options = {.kind = DEV_QUEUE_UP};
    check_int(dev_queue_create(device, &options, &others[0]), ==, -ENOSPC);
    for (int i = 1; i < DEV_QUEUE_MAX; i++) {
        dev_queue_destroy(others[i]);
    }
    options.kind = DEV_QUEUE_KINDS;
    check_int(dev_queue_create(device, &options, &others[0]), ==, -EINVAL);
    options = (struct dev_queue_options){.depth = DEV_QUEUE_DEPTH_MAX + 1};
    check_int(dev_queue_create(device, &options, &others[0]), ==, -EINVAL);
    dev_queue_destroy(queue);
    dev_queue_destroy(NULL);
    check_string(dev_queue_kind_name(DEV_QUEUE_UPDATE), "update");
    check_string(dev_queue_kind_name(DEV_QUEUE_KINDS), "unknown");
    dev_close(device);
}

/* A failing op ends its queue with its message; other queues continue. */
static void failing_op(void)
{
    struct dev_device *device = open_with_ops(4096);
    struct dev_queue *broken = device_queue(device, DEV_QUEUE_COMPUTE, 0);
    struct dev_queue *other = device_queue(device, DEV_QUEUE_UP, 0);
    uint64_t *cells = device_alloc(device, 16);
    memset(cells, 0, 16);
    struct fail_arguments fail = {.code = -EDOM};
    struct add_arguments add = {.at = cells, .value = 1};
    struct core_fence failed, behind, edge;
    struct dev_command command = {
        .op = OP_FAIL, .arguments = &fail, .arguments_bytes = sizeof fail};
    check_int(dev_queue_launch(broken, &command, &failed), ==, 0);
    command = (struct dev_command){.op = OP_ADD, .arguments = &add, .arguments_bytes = sizeof add};
    int rc = dev_queue_launch(broken, &command, &behind);
    check_true(rc == 0 || rc == -EDOM);
    check_int(core_fence_wait(failed, 20000000000), ==, -EDOM);
    check_contains(core_err_message(), "the op was asked to fail");
    check_contains(core_err_message(), "op fail");
    add.at = cells + 1;
    (void)core_err_adopt(-EIO, "");
    check_int(dev_queue_launch(broken, &command, &behind), ==, -EDOM);
    check_contains(core_err_message(), "the op was asked to fail");
    check_int(dev_queue_launch(other, &command, &edge), ==, 0);
    device_wait(edge);
    dev_queue_destroy(broken);
    dev_queue_destroy(other);
    check_uint(cells[0], ==, 0);
    check_uint(cells[1], ==, 1);
    dev_memory_free(device, cells);
    dev_close(device);
}

/* Abandoning a queue drops the commands that have not started. */
static void abandoned(void)
{
    struct dev_device *device = open_with_ops(4096);
    struct core_line gate;
    core_line_init(&gate, "gate", NULL);
    struct dev_queue *queue = device_queue(device, DEV_QUEUE_COMPUTE, 0);
    uint64_t *cell = device_alloc(device, 8);
    *cell = 5;
    const struct wait_arguments wait = {.line = &gate};
    const struct add_arguments add = {.at = cell};
    struct dev_command command = {
        .op = OP_WAIT, .arguments = &wait, .arguments_bytes = sizeof wait};
    struct core_fence fence;
    check_int(dev_queue_launch(queue, &command, &fence), ==, 0);
    command = (struct dev_command){.op = OP_ADD, .arguments = &add, .arguments_bytes = sizeof add};
    check_int(dev_queue_launch(queue, &command, &fence), ==, 0);
    core_err_set(-ECANCELED, "the run was interrupted");
    dev_queue_abandon(queue, -ECANCELED);
    check_int(core_fence_wait(fence, 20000000000), ==, -ECANCELED);
    check_contains(core_err_message(), "the run was interrupted");
    core_line_reach(&gate, 1);
    dev_queue_destroy(queue);
    check_uint(*cell, ==, 5);
    dev_memory_free(device, cell);
    dev_close(device);
}

enum { GRAPH_QUEUES = 5, GRAPH_CELLS = 400 };

static int op_mix(const struct dev_launch *where, const struct mix_arguments *a)
{
    (void)where;
    return run_mix(NULL, a);
}
DEV_OP_LAUNCH(op_mix, mix_arguments)

/* Launches commands that read cells of earlier commands in any queue, after waiting for the fences
 * of these commands. */
static void run_graph(struct dev_device *device, struct dev_queue **queues, uint64_t seed)
{
    uint64_t *cells = device_alloc(device, 8 * GRAPH_CELLS);
    uint64_t expected[GRAPH_CELLS];
    struct core_fence written[GRAPH_CELLS] = {{0}};
    memset(cells, 0, 8 * GRAPH_CELLS);
    memset(expected, 0, sizeof expected);
    for (size_t i = 0; i < GRAPH_CELLS; i++) {
        struct mix_arguments a = {.to = &cells[i], .value = seed + i};
        struct mix_arguments serial = {.value = seed + i};
        struct dev_command command = {.op = 7, .arguments = &a, .arguments_bytes = sizeof a};
        for (size_t k = 0; k < MIX_SOURCES; k++) {
            size_t source = i == 0 ? 0
                                   : test_random(&seed, i < 40 ? i : 40) + (i < 40 ? 0 : i - 40);
            a.from[k] = &cells[source];
            serial.from[k] = &expected[source];
            device_wait(written[source]);
        }
        expected[i] = mix(&serial);
        struct dev_queue *queue = queues[test_random(&seed, GRAPH_QUEUES)];
        int rc;
        while ((rc = dev_queue_launch(queue, &command, &written[i])) == -EAGAIN) {
            device_wait(written[i - 1]);
        }
        check_int(rc, ==, 0);
    }
    for (size_t i = 0; i < GRAPH_QUEUES; i++) {
        device_wait(dev_queue_tail(queues[i]));
    }
    check_memory(cells, expected, sizeof expected);
    dev_memory_free(device, cells);
}

static void random_graphs(void)
{
    struct dev_device *device = open_with_ops(1 << 16);
    struct dev_op row = {7, "mix", sizeof(struct mix_arguments), op_mix_launch};
    check_int(dev_ops_register(device, &row, 1, NULL), ==, 0);
    struct dev_queue *queues[GRAPH_QUEUES];
    for (size_t i = 0; i < GRAPH_QUEUES; i++) {
        struct dev_queue_options options = {
            .kind = (enum dev_queue_kind)(i % DEV_QUEUE_KINDS), .threads = 1, .depth = 16};
        check_int(dev_queue_create(device, &options, &queues[i]), ==, 0);
    }
    for (uint64_t seed = 1; seed <= TEST_COUNT(100, 10); seed++) {
        run_graph(device, queues, seed);
    }
    for (size_t i = 0; i < GRAPH_QUEUES; i++) {
        dev_queue_destroy(queues[i]);
    }
    dev_close(device);
}

TEST_MAIN({"op_table", op_table}, {"entered", entered}, {"launch_context", launch_context},
          {"limits", limits}, {"failing_op", failing_op}, {"abandoned", abandoned},
          {"random_graphs", random_graphs})
