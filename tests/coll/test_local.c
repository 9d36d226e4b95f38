/* test_local.c: results of ranks that are threads. */
#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "core/coll/backend.h"
#include "tests/coll/contract.h"
#include "tests/harness/test.h"

static void check_results(const struct run *run)
{
    for (unsigned r = 0; r < run->world; r++) {
        contract_check(&run->ranks[r]);
        contract_check_traffic(&run->ranks[r]);
    }
}

static void results(void)
{
    static const uint64_t counts[] = {0, 1, 4, 1027, COUNT_MAX};
    static const enum coll_type types[] = {COLL_F32, COLL_BF16, COLL_FP16, COLL_BYTE};
    for (unsigned world = 1; world <= WORLD_MAX; world++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            struct run run = {.world = world,
                              .limit_ns = LONG_NS,
                              .body = contract_all,
                              .count = counts[c],
                              .type = types[(c + world) % 4],
                              .delay = (unsigned)c % (world + 1)};
            run_ranks(&run);
            check_results(&run);
            free(run.ranks);
        }
    }
}

static void uneven_borders(void)
{
    static const uint64_t borders[] = {0, 0, 700, 701, 2900, 3000};
    for (size_t type = 0; type < 3; type++) {
        struct run run = {.world = 5,
                          .limit_ns = LONG_NS,
                          .body = contract_all,
                          .count = 3000,
                          .type = (enum coll_type)type,
                          .borders = borders,
                          .delay = 2};
        run_ranks(&run);
        check_results(&run);
        free(run.ranks);
    }
}

static void run_codes(struct run run)
{
    run_ranks(&run);
    for (unsigned r = 0; r < run.world; r++) {
        check_string(run.ranks[r].message, "");
        check_int(run.ranks[r].rc, ==, 0);
    }
    free(run.ranks);
}

/* Sums of codes are right, also with incomplete groups. */
static void codes(void)
{
    static const uint64_t counts[] = {0, 1, 255, 256, 257, 3000, 70001};
    static const uint64_t borders[] = {0, 0, 512, 768, 2816, 3000};
    for (unsigned type = COLL_F32; type <= COLL_FP16; type++) {
        struct run run = {
            .limit_ns = LONG_NS, .body = contract_codes, .type = (enum coll_type)type, .delay = 1};
        for (run.world = 1; run.world <= WORLD_MAX; run.world++) {
            for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
                run.count = counts[c];
                run_codes(run);
            }
        }
        run.world = 5;
        run.count = 3000;
        run.borders = borders;
        run_codes(run);
    }
}

/* Sums by groups are right, also with groups of one rank or of all ranks. */
static void groups(void)
{
    static const uint64_t counts[] = {0, 1, 1027, 40001};
    static const uint64_t borders[] = {0, 0, 700, 1701, 40001};
    static const unsigned worlds[][2] = {{2, 1}, {2, 2}, {4, 2}, {3, 3}, {4, 1}};
    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            struct run run = {.limit_ns = LONG_NS,
                              .body = contract_groups,
                              .world = worlds[w][0],
                              .within = worlds[w][1],
                              .count = counts[c],
                              .type = (enum coll_type)((c + w) % 3),
                              .borders = c == 3 && worlds[w][0] == 4 ? borders : NULL,
                              .delay = 1};
            run_codes(run);
        }
    }
}

static void within(void)
{
    static const uint64_t counts[] = {0, 1, 5, 1027, 40001};
    static const unsigned worlds[][2] = {{2, 1}, {2, 2}, {4, 2}, {5, 5}, {4, 4}};
    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            struct run run = {.limit_ns = LONG_NS,
                              .body = contract_within,
                              .world = worlds[w][0],
                              .within = worlds[w][1],
                              .count = counts[c],
                              .type = c % 2 == 0 ? COLL_BF16 : COLL_BYTE,
                              .delay = 1};
            run_codes(run);
        }
    }
}

static int refuse_within(struct rank *rank)
{
    float array[4] = {0};
    const struct coll_command third = {
        .op = COLL_GATHER, .from = array, .to = array, .count = 4, .within = 3};
    double sums[4] = {0};
    const struct coll_command sum = {
        .op = COLL_ALL_REDUCE, .type = COLL_F64, .from = sums, .to = sums, .count = 4, .within = 2};
    const int first = submit_wait(rank->coll, &third);
    return first == -EINVAL ? submit_wait(rank->coll, &sum) : -EDOM;
}

static int differ_within(struct rank *rank)
{
    float array[4] = {0};
    const struct coll_command gather = {.op = COLL_GATHER,
                                        .from = array + rank->index % 2,
                                        .to = array,
                                        .count = 2,
                                        .within = rank->index == 3 ? 0 : 2};
    return submit_wait(rank->coll, &gather);
}

static void wrong_groups(void)
{
    struct run run = {.world = 4, .limit_ns = LONG_NS, .body = refuse_within};
    run_ranks(&run);
    for (unsigned r = 0; r < 4; r++) {
        check_int(run.ranks[r].rc, ==, -EINVAL);
        check_contains(run.ranks[r].message, "all-reduce within groups of 2 of 4 ranks is invalid");
    }
    free(run.ranks);
    run.body = differ_within;
    run_ranks(&run);
    check_int(run.ranks[0].rc, ==, -EPROTO);
    check_contains(run.ranks[0].message, "rank 0 calls gather of 2 fp32 within 2 ranks, rank 3 "
                                         "calls gather of 2 fp32");
    free(run.ranks);
}

static void in_flight(void)
{
    struct run run = {.world = 2, .limit_ns = LONG_NS, .body = contract_pipelined};
    run_ranks(&run);
    for (unsigned r = 0; r < 2; r++) {
        check_int(run.ranks[r].rc, ==, 0);
        check_double((double)core_f32_from_bits(run.ranks[r].results[0][0]), ==, 0x1p40);
    }
    free(run.ranks);
}

static const uint64_t falling_borders[] = {0, 3, 2};

static int falls(struct rank *rank)
{
    struct coll_command command = {
        .op = COLL_GATHER, .from = rank->from, .to = rank->results[0], .count = 2};
    command.borders = falling_borders;
    return submit_wait(rank->coll, &command);
}

static void borders_that_fall(void)
{
    struct run run = {.world = 2, .limit_ns = LONG_NS, .body = falls};
    run_ranks(&run);
    for (unsigned r = 0; r < 2; r++) {
        check_int(run.ranks[r].rc, ==, -EINVAL);
        check_contains(run.ranks[r].message, "border 2 of a gather is 2; borders ascend from 0");
    }
    free(run.ranks);
}

/* Calls the back end's end(), as a back end over it does. A rank's error is returned to the other
 * ranks. */
static int ends(struct rank *rank)
{
    int rc = rank->coll->backend->end(rank->coll, 0);
    if (rc != 0) {
        return rc;
    }
    rc = submit_wait(rank->coll, &(struct coll_command){.op = COLL_BARRIER});
    if (rc != 0) {
        return rc;
    }
    if (rank->index == 1) {
        return rank->coll->backend->end(rank->coll, core_err_set(-EIO, "the card is gone"));
    }
    rc = submit_wait(rank->coll, &(struct coll_command){.op = COLL_BARRIER});
    const int again = rank->coll->backend->end(rank->coll, 0);
    return rc == again ? rc : 0;
}

static void an_end_with_an_error(void)
{
    struct run run = {.world = 3, .limit_ns = LONG_NS, .body = ends};
    run_ranks(&run);
    for (unsigned r = 0; r < 3; r++) {
        check_int(run.ranks[r].rc, ==, -EIO);
        check_contains(run.ranks[r].message, "rank 1: the card is gone");
    }
    free(run.ranks);
}

static int meet_once(struct rank *rank)
{
    return submit_wait(rank->coll, &(struct coll_command){.op = COLL_BARRIER});
}

/* A rank may close before other ranks have seen that its last collective ended. */
static void leaves_at_once(void)
{
    for (int turn = 0; turn < TEST_COUNT(1000, 200); turn++) {
        struct run run = {.world = 3, .limit_ns = LONG_NS, .body = meet_once};
        run_ranks(&run);
        for (unsigned r = 0; r < run.world; r++) {
            if (run.ranks[r].rc != 0) {
                test_note("turn %d, rank %u: %s", turn, r, run.ranks[r].message);
            }
            check_int(run.ranks[r].rc, ==, 0);
        }
        free(run.ranks);
    }
}

TEST_MAIN({"results", results}, {"borders_that_fall", borders_that_fall},
          {"an_end_with_an_error", an_end_with_an_error}, {"uneven_borders", uneven_borders},
          {"codes", codes}, {"within", within}, {"groups", groups}, {"wrong_groups", wrong_groups},
          {"in_flight", in_flight}, {"leaves_at_once", leaves_at_once})
