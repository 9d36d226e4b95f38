/* test_faults.c: if a rank (a thread) fails, the other ranks end with an error that names it. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "tests/coll/ranks.h"
#include "tests/harness/child.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"

static const int64_t LIMIT_NS = 300000000;

static int barrier(struct coll *coll)
{
    return submit_wait(coll, &(struct coll_command){.op = COLL_BARRIER});
}

/* ranks that have left the collective in which a rank is missing */
static atomic_uint left;

/* Rank 2 goes through one barrier and then hangs until the others have given up. */
static int hangs(struct rank *rank)
{
    int rc = barrier(rank->coll);
    if (rc != 0 || rank->index == 2) {
        while (rc == 0 && atomic_load(&left) < 3) {
            pause_ms(10);
        }
        return rc != 0 ? rc : barrier(rank->coll);
    }
    static _Thread_local float array[64];
    rc = submit_wait(
        rank->coll,
        &(struct coll_command){.op = COLL_ALL_REDUCE, .from = array, .to = array, .count = 64});
    atomic_fetch_add(&left, 1);
    return rc;
}

/* All ranks, also the hanging one, report which rank hangs in which collective. */
static void hanging_rank(void)
{
    struct run run = {.world = 4, .limit_ns = LIMIT_NS, .body = hangs};
    run_ranks(&run);
    for (unsigned r = 0; r < 4; r++) {
        check_int(run.ranks[r].rc, ==, -ETIMEDOUT);
        check_contains(run.ranks[r].message,
                       "rank 2 did not reach collective 2 (all-reduce of 64 fp32) within 0.3");
    }
    free(run.ranks);
}

/* Ranks 1 to 3 never enter a collective. */
static int mostly_absent(struct rank *rank)
{
    if (rank->index != 0) {
        pause_ms(500);
        return 0;
    }
    return barrier(rank->coll);
}

static void several_missing(void)
{
    struct run run = {.world = 4, .limit_ns = LIMIT_NS / 3, .body = mostly_absent};
    run_ranks(&run);
    check_int(run.ranks[0].rc, ==, -ETIMEDOUT);
    check_contains(run.ranks[0].message, "ranks 1, 2, 3 did not reach collective 1 (barrier)");
    free(run.ranks);
}

static int stops(struct rank *rank)
{
    int rc = barrier(rank->coll);
    if (rc == 0 && rank->index == 1) {
        pause_ms(200); /* the other ranks wait now */
        raise(SIGSTOP);
        pause_ms(300); /* other ranks check their limit after the stop */
    }
    return rc != 0 ? rc : barrier(rank->coll);
}

static int runs_and_stops(void *argument)
{
    (void)argument;
    struct run run = {
        .world = 3, .limit_ns = (TEST_STOP_MS - 500) * INT64_C(1000000), .body = stops};
    int failed = 0;
    run_ranks(&run);
    for (unsigned r = 0; r < 3; r++) {
        failed += run.ranks[r].rc != 0;
    }
    free(run.ranks);
    return failed;
}

/* Time for which the process was stopped does not count as a delay. */
static void stopped_process(void)
{
    check_int(test_child(runs_and_stops, NULL), ==, 0);
}

static int leaves(struct rank *rank)
{
    static _Thread_local unsigned char array[64];
    int rc = barrier(rank->coll);
    return rc != 0 || rank->index == 1
               ? rc
               : submit_wait(rank->coll, &(struct coll_command){.op = COLL_BROADCAST,
                                                                .type = COLL_BYTE,
                                                                .root = 1,
                                                                .from = array,
                                                                .to = array,
                                                                .count = 64});
}

/* A rank that closes while other ranks continue is reported long before the limit. */
static void dead_rank(void)
{
    struct run run = {.world = 3, .limit_ns = 2 * LONG_NS, .body = leaves};
    run_ranks(&run);
    check_int(run.ranks[1].rc, ==, 0);
    for (unsigned r = 0; r < 3; r += 2) {
        check_int(run.ranks[r].rc, ==, -EPIPE);
        check_contains(run.ranks[r].message,
                       "rank 1 left before collective 2 (broadcast of 64 bytes from rank 1)");
    }
    free(run.ranks);
}

static int aborts(struct rank *rank)
{
    if (rank->index == 3) {
        pause_ms(20);
        int rc = core_err_set(-EIO, "the drive of block 7 is gone");
        coll_abort(rank->coll, rc);
        return rc;
    }
    int rc = barrier(rank->coll);
    int again = barrier(rank->coll);
    return rc == again ? rc : 0;
}

/* An aborting rank ends the other ranks with its message and number. */
static void aborting_rank(void)
{
    struct run run = {.world = 4, .limit_ns = 60 * LIMIT_NS, .body = aborts};
    run_ranks(&run);
    for (unsigned r = 0; r < 4; r++) {
        check_int(run.ranks[r].rc, ==, -EIO);
        check_contains(run.ranks[r].message, "rank 3: the drive of block 7 is gone");
    }
    free(run.ranks);
}

struct mismatch {
    struct coll_command calls[2]; /* of the other ranks, and of rank 2 */
    const char *message;
};

static const uint64_t other_borders[] = {0, 1, 2, 8};
static const struct mismatch mismatches[] = {
    {{{.op = COLL_ALL_REDUCE, .count = 8}, {.op = COLL_GATHER, .count = 8}},
     "rank 0 calls all-reduce of 8 fp32, rank 2 calls gather of 8 fp32"},
    {{{.op = COLL_GATHER, .count = 8}, {.op = COLL_GATHER, .count = 7}},
     "rank 0 calls gather of 8 fp32, rank 2 calls gather of 7 fp32"},
    {{{.op = COLL_GATHER, .count = 8}, {.op = COLL_GATHER, .type = COLL_BF16, .count = 8}},
     "rank 2 calls gather of 8 bf16"},
    {{{.op = COLL_BROADCAST, .count = 8}, {.op = COLL_BROADCAST, .root = 1, .count = 8}},
     "rank 0 calls broadcast of 8 fp32 from rank 0, rank 2 calls broadcast of 8 fp32 from rank 1"},
    {{{.op = COLL_REDUCE_SCATTER, .count = 8},
      {.op = COLL_REDUCE_SCATTER, .count = 8, .borders = other_borders}},
     "rank 2 calls reduce-scatter of 8 fp32 with other borders"},
    {{{.op = COLL_REDUCE_SCATTER, .type = COLL_INT4, .count = 3, .sum_count = 256},
      {.op = COLL_REDUCE_SCATTER,
       .type = COLL_INT4,
       .count = 3,
       .sum_type = COLL_BF16,
       .sum_count = 256}},
     "rank 0 calls reduce-scatter of 3 int4 to fp32, rank 2 calls reduce-scatter of 3 int4 to "
     "bf16"},
    {{{.op = COLL_BARRIER}, {.op = COLL_BROADCAST, .count = 0}}, "rank 0 calls barrier, rank 2"},
};

static int differs(struct rank *rank)
{
    static _Thread_local float arrays[2][256];
    const struct mismatch *mismatch = &mismatches[rank->run->delay];
    struct coll_command command = mismatch->calls[rank->index == 2];
    command.from = arrays[0];
    command.to = arrays[1];
    return submit_wait(rank->coll, &command);
}

/* If ranks submit different commands, they report which rank differs and how. */
static void mismatched(void)
{
    for (unsigned i = 0; i < sizeof mismatches / sizeof mismatches[0]; i++) {
        struct run run = {.world = 3, .limit_ns = 60 * LIMIT_NS, .body = differs, .delay = i};
        run_ranks(&run);
        for (unsigned r = 0; r < 3; r++) {
            check_int(run.ranks[r].rc, ==, -EPROTO);
            check_contains(run.ranks[r].message, mismatches[i].message);
            check_contains(run.ranks[r].message, "collective 1 differs");
        }
        free(run.ranks);
    }
}

/* Sums arrays, and frees an array once its fence is reached or has failed. */
static int frees_early(struct rank *rank)
{
    enum { COUNT = 1 << 18 };
    int rc = 0;
    for (int i = 0; i < 1000 && rc == 0; i++) {
        float *array = calloc(COUNT, sizeof *array);
        if (array == NULL) {
            return -ENOMEM;
        }
        if (rank->index == 1 && i == 3 + (int)rank->run->delay % 5) {
            pause_ms((long)rank->run->delay % 3);
            coll_abort(rank->coll, core_err_set(-EIO, "enough"));
        }
        rc = submit_wait(rank->coll,
                         &(struct coll_command){
                             .op = COLL_ALL_REDUCE, .from = array, .to = array, .count = COUNT});
        free(array);
    }
    return rc;
}

/* After a failure the other ranks do not use the arrays of a rank that has returned (sanitizers
 * check that). */
static void left_in_peace(void)
{
    for (unsigned i = 0; i < TEST_COUNT(20, 6); i++) {
        struct run run = {.world = 4, .limit_ns = 60 * LIMIT_NS, .body = frees_early, .delay = i};
        run_ranks(&run);
        for (unsigned r = 0; r < 4; r++) {
            check_int(run.ranks[r].rc, ==, -EIO);
        }
        free(run.ranks);
    }
}

/* A rank opens once, in a world of the meeting's size. */
static void opening(void)
{
    struct coll_meeting *meeting = NULL;
    check_int(coll_meeting_create(0, &meeting), ==, -EINVAL);
    check_int(coll_meeting_create(COLL_WORLD_MAX + 1, &meeting), ==, -EINVAL);
    check_int(coll_meeting_create(2, &meeting), ==, 0);
    struct coll *coll = NULL;
    struct coll *again = NULL;
    struct coll_options options = {.kind = "local", .world = 3, .meeting = meeting};
    check_int(coll_open(&options, &coll), ==, -EINVAL);
    options.world = 2;
    check_int(coll_open(&options, &coll), ==, 0);
    check_int(coll_open(&options, &again), ==, -EEXIST);
    coll_close(coll);
    coll_meeting_destroy(meeting);
    coll_meeting_destroy(NULL);
}

static int rank_life(void)
{
    struct coll_meeting *meeting = NULL;
    struct coll *coll = NULL;
    int rc = coll_meeting_create(1, &meeting);
    if (rc == 0) {
        struct coll_options options = {.kind = "local", .meeting = meeting};
        rc = coll_open(&options, &coll);
    }
    if (rc == 0) {
        rc = submit_wait(coll, &(struct coll_command){.op = COLL_BARRIER});
    }
    coll_close(coll);
    coll_meeting_destroy(meeting);
    return rc;
}

static int self_life(void)
{
    struct coll *coll = NULL;
    int rc = coll_open(&(struct coll_options){0}, &coll);
    if (rc == 0) {
        rc = submit_wait(coll, &(struct coll_command){.op = COLL_BARRIER});
    }
    coll_close(coll);
    return rc;
}

static void failing_allocations(void)
{
    check_int(test_fail_nth(rank_life), >=, 5);
    check_int(test_fail_nth(self_life), >=, 3);
}

TEST_MAIN({"hanging_rank", hanging_rank}, {"several_missing", several_missing},
          {"stopped_process", stopped_process}, {"dead_rank", dead_rank},
          {"aborting_rank", aborting_rank}, {"mismatched", mismatched},
          {"left_in_peace", left_in_peace}, {"opening", opening},
          {"failing_allocations", failing_allocations})
