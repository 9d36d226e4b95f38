/* test_self.c: the interface, and a world of one rank. */
#include <errno.h>

#include "core/base/err.h"
#include "core/coll/work.h"
#include "core/dev/backend.h"
#include "tests/harness/test.h"

static const int64_t LONG_NS = 20000000000;

/* Back ends are listed; one that is not built in says so. */
static void registry(void)
{
    static const char *const names[] = {"self", "local", "processes", "nccl"};
    for (unsigned i = 0; i < 4; i++) {
        check_string(coll_kind_name(i), names[i]);
        struct coll *coll = NULL;
        if (!coll_kind_built(i)) {
            check_int(coll_open(&(struct coll_options){.kind = names[i]}, &coll), ==, -ENOTSUP);
            check_contains(core_err_message(), names[i]);
        }
    }
    check_true(coll_kind_name(4) == NULL && !coll_kind_built(4));
    check_true(coll_kind_built(0) && coll_kind_built(1));
    check_string(coll_op_name(COLL_REDUCE_SCATTER), "reduce-scatter");
    check_string(coll_op_name(COLL_OPS), "unknown");
    check_string(coll_type_name(COLL_BF16), "bf16");
    check_string(coll_type_name(COLL_TYPES), "unknown");
    check_uint(coll_type_bytes(COLL_F64), ==, 8);
    check_string(coll_type_name(COLL_INT4), "int4");
    check_uint(coll_type_bytes(COLL_TYPES), ==, 0);
}

/* Parts cover the array in order and differ by at most one element. */
static void borders(void)
{
    for (uint64_t count = 0; count < 40; count++) {
        for (unsigned world = 1; world < 9; world++) {
            check_uint(coll_border(count, world, 0), ==, 0);
            check_uint(coll_border(count, world, world), ==, count);
            for (unsigned r = 0; r < world; r++) {
                uint64_t part = coll_border(count, world, r + 1) - coll_border(count, world, r);
                check_uint(part, >=, count / world);
                check_uint(part, <=, count / world + 1);
            }
        }
    }
}

static struct coll *open_self(void)
{
    struct coll *coll = NULL;
    check_int(coll_open(&(struct coll_options){0}, &coll), ==, 0);
    return coll;
}

static int run(struct coll *coll, struct coll_command command)
{
    struct core_fence fence;
    int rc = coll_submit(coll, &command, &fence);
    return rc != 0 ? rc : core_fence_wait(fence, LONG_NS);
}

/* In a world of one rank a collective is a copy. */
static void copies(void)
{
    struct coll *coll = open_self();
    check_uint(coll_world(coll), ==, 1);
    for (int op = 0; op < COLL_OPS; op++) {
        float from[5] = {1, 2, 3, 4, 5};
        float to[5] = {0};
        struct coll_command command = {.op = (enum coll_op)op, .from = from, .to = to, .count = 5};
        check_int(run(coll, command), ==, 0);
        if (op != COLL_BARRIER) {
            check_memory(to, from, sizeof to);
        }
        command.to = from;
        check_int(run(coll, command), ==, 0);
        check_double((double)from[4], ==, 5);
    }
    check_uint(atomic_load(&coll->commands), ==, 10);
    check_uint(atomic_load(&coll->received_bytes[COLL_GATHER]), ==, 0);
    coll_close(coll);
    coll_close(NULL);
}

/* Invalid commands are refused, and the coll remains usable. */
static void refused(void)
{
    struct coll *coll = open_self();
    float data[4] = {0};
    uint64_t falling[] = {0, 3};
    uint64_t late[] = {1, 4};
    struct coll_command wrong[] = {
        {.op = COLL_OPS, .from = data, .to = data, .count = 4},
        {.op = COLL_GATHER, .type = COLL_TYPES, .from = data, .to = data, .count = 4},
        {.op = COLL_ALL_REDUCE, .type = COLL_BYTE, .from = data, .to = data, .count = 4},
        {.op = COLL_GATHER, .from = NULL, .to = data, .count = 4},
        {.op = COLL_GATHER, .from = data, .to = NULL, .count = 4},
        {.op = COLL_BROADCAST, .root = 1, .from = data, .to = data, .count = 4},
        {.op = COLL_GATHER, .from = data, .to = data, .count = UINT64_MAX / 2},
        {.op = COLL_GATHER, .from = data, .to = data, .count = 4, .borders = falling},
        {.op = COLL_GATHER, .from = data, .to = data, .count = 4, .borders = late},
        {.op = COLL_ALL_REDUCE, .type = COLL_F64, .from = data, .to = data, .within = 1},
        {.op = COLL_REDUCE_SCATTER, .type = COLL_F64, .from = data, .to = data, .within = 1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check_int(run(coll, wrong[i]), ==, -EINVAL);
    }
    for (int op = 0; op < COLL_OPS; op++) {
        if (op != COLL_REDUCE_SCATTER) {
            const struct coll_command codes = {
                .op = (enum coll_op)op, .type = COLL_INT4, .from = data, .to = data};
            check_int(run(coll, codes), ==, -EINVAL);
            check_contains(core_err_message(), "not possible for type int4");
        }
    }
    static unsigned char groups[2 * 132];
    static float sums[512];
    struct coll_command codes = {
        .op = COLL_REDUCE_SCATTER, .type = COLL_INT4, .from = groups, .to = sums, .count = 2};
    static const uint64_t counts[] = {0, 256, 513};
    for (size_t i = 0; i < 3; i++) {
        codes.sum_count = counts[i];
        check_int(run(coll, codes), ==, -EINVAL);
        check_contains(core_err_message(), "in an array of 2 groups of codes");
    }
    codes.sum_count = 300;
    codes.sum_type = COLL_F64;
    check_int(run(coll, codes), ==, -EINVAL);
    check_contains(core_err_message(), "300 numbers of type fp64");
    codes.sum_type = COLL_F32;
    check_int(run(coll, codes), ==, 0);
    check_int(
        run(coll,
            (struct coll_command){.op = COLL_ALL_REDUCE, .from = data, .to = data, .count = 4}),
        ==, 0);
    check_int(run(coll, (struct coll_command){.op = COLL_GATHER}), ==, 0);
    coll_close(coll);
    struct coll_options options[] = {
        {.world = 2},     {.rank = 1},       {.world = COLL_WORLD_MAX + 1},
        {.limit_ns = -1}, {.kind = "smoke"}, {.kind = "local"},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        check_int(coll_open(&options[i], &coll), ==, -EINVAL);
    }
}

/* Collectives of data need memory that the host can access. */
static void unreachable(void)
{
    static struct dev_device card = {.properties = {.host_visible = false}};
    struct coll *coll = NULL;
    float data[4] = {0};
    check_int(coll_open(&(struct coll_options){.device = &card}, &coll), ==, 0);
    const struct coll_command command = {.op = COLL_GATHER, .from = data, .to = data, .count = 4};
    check_int(run(coll, command), ==, -ENOTSUP);
    check_contains(core_err_message(), "ranks over self cannot reach the memory of this device");
    check_int(run(coll, (struct coll_command){.op = COLL_BARRIER}), ==, 0);
    coll_close(coll);
}

/* The message lists the first missing ranks and counts the others. */
static void many_missing(void)
{
    struct coll_missing missing = {0};
    const struct coll_work work = {.op = COLL_BROADCAST, .type = COLL_F32, .root = 3, .count = 7};
    for (unsigned r = 0; r < COLL_MISSING_MAX + 2; r++) {
        coll_missing_add(&missing, 10 + r);
    }
    check_int(coll_fail_missing(5, &work, &missing, 1500000000), ==, -ETIMEDOUT);
    check_contains(core_err_message(),
                   "ranks 10, 11, 12, 13 and 2 others did not reach collective 5 (broadcast of 7 "
                   "fp32 from rank 3) within 1.500 s");
}

/* A command after an abort fails with the abort's message. */
static void aborted(void)
{
    struct coll *coll = open_self();
    float from = 1;
    float to = 0;
    const struct coll_command command = {
        .op = COLL_ALL_REDUCE, .from = &from, .to = &to, .count = 1};
    struct core_fence fence;
    check_int(coll_submit(coll, &command, &fence), ==, 0);
    check_int(core_fence_wait(fence, LONG_NS), ==, 0);
    core_err_set(-ECANCELED, "the user asked to stop");
    coll_abort(coll, -ECANCELED);
    (void)core_err_adopt(-EIO, "");
    check_int(coll_submit(coll, &command, &fence), ==, -ECANCELED);
    check_contains(core_err_message(), "the user asked to stop");
    coll_close(coll);
}

TEST_MAIN({"registry", registry}, {"borders", borders}, {"copies", copies}, {"refused", refused},
          {"unreachable", unreachable}, {"many_missing", many_missing}, {"aborted", aborted})
