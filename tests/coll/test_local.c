/* test_local.c: ranks that are threads: results, order, and what happens when one goes missing. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/half.h"
#include "core/coll/coll.h"
#include "tests/harness/test.h"

enum { WORLD_MAX = 5, COUNT_MAX = 3000 };
static const int64_t LONG_NS = 20000000000;

struct run;

/* A rank's thread: its coll, and what came of it. Checks are made by the case's thread. */
struct rank {
    struct run *run; /* borrowed */
    unsigned index;
    struct coll *coll; /* owned by the thread */
    int rc;
    char sentence[512];
    int64_t took_ns;
    uint32_t results[5][COUNT_MAX];
    struct coll_traffic traffic;
};

struct run {
    unsigned world;
    int64_t limit_ns;
    int (*body)(struct rank *rank);
    struct coll_meeting *meeting;
    uint64_t count;
    enum coll_type type;
    const uint64_t *borders;
    unsigned delay; /* which rank comes late */
    struct rank *ranks;
};

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static void *rank_main(void *argument)
{
    struct rank *rank = argument;
    struct run *run = rank->run;
    struct coll_options options = {.kind = "local",
                                   .rank = rank->index,
                                   .world = run->world,
                                   .meeting = run->meeting,
                                   .limit_ns = run->limit_ns};
    int64_t start_ns = core_clock_now_ns();
    rank->rc = coll_open(&options, &rank->coll);
    if (rank->rc == 0) {
        rank->rc = run->body(rank);
        snprintf(rank->sentence, sizeof rank->sentence, "%s", core_err_sentence());
        coll_traffic_report(rank->coll, &rank->traffic);
        coll_close(rank->coll);
    }
    rank->took_ns = core_clock_now_ns() - start_ns;
    return NULL;
}

/* Runs the body on each rank's thread; the caller frees run->ranks. */
static void run_ranks(struct run *run)
{
    pthread_t threads[WORLD_MAX];
    run->ranks = calloc(run->world, sizeof *run->ranks);
    check_true(run->ranks != NULL);
    check_int(coll_meeting_create(run->world, &run->meeting), ==, 0);
    for (unsigned r = 0; r < run->world; r++) {
        run->ranks[r].run = run;
        run->ranks[r].index = r;
        check_int(pthread_create(&threads[r], NULL, rank_main, &run->ranks[r]), ==, 0);
    }
    for (unsigned r = 0; r < run->world; r++) {
        pthread_join(threads[r], NULL);
    }
    coll_meeting_destroy(run->meeting);
}

static int submit_wait(struct coll *coll, const struct coll_command *command)
{
    struct core_fence fence;
    int rc = coll_submit(coll, command, &fence);
    return rc != 0 ? rc : core_fence_wait(fence, LONG_NS);
}

/* The word at `i` of a rank's array: small numbers that fp16 holds, whose order of summation shows. */
static uint32_t word(enum coll_type type, unsigned rank, uint64_t i)
{
    uint32_t hash = (uint32_t)(i * 2654435761U + rank * 40503U) >> 7;
    float value = (float)((int)(hash % 20011) - 10005) * 0.37F;
    switch (type) {
    case COLL_F32: return core_f32_bits(value);
    case COLL_BF16: return core_f32_to_bf16(value);
    case COLL_FP16: return core_f32_to_fp16(value);
    case COLL_F64:
    case COLL_BYTE:
    case COLL_TYPES: break;
    }
    return hash & 0xff;
}

static void put(enum coll_type type, void *array, uint64_t i, uint32_t bits)
{
    if (coll_type_bytes(type) == 4) {
        ((uint32_t *)array)[i] = bits;
    } else if (coll_type_bytes(type) == 2) {
        ((uint16_t *)array)[i] = (uint16_t)bits;
    } else {
        ((unsigned char *)array)[i] = (unsigned char)bits;
    }
}

static uint32_t get(enum coll_type type, const void *array, uint64_t i)
{
    if (coll_type_bytes(type) == 4) {
        return ((const uint32_t *)array)[i];
    }
    if (coll_type_bytes(type) == 2) {
        return ((const uint16_t *)array)[i];
    }
    return ((const unsigned char *)array)[i];
}

static float as_float(enum coll_type type, uint32_t bits)
{
    return type == COLL_F32    ? core_f32_from_bits(bits)
           : type == COLL_BF16 ? core_bf16_to_f32((uint16_t)bits)
                               : core_fp16_to_f32((uint16_t)bits);
}

static uint32_t expected_sum(const struct run *run, uint64_t i)
{
    float sum = as_float(run->type, word(run->type, 0, i));
    for (unsigned r = 1; r < run->world; r++) {
        sum += as_float(run->type, word(run->type, r, i));
    }
    return run->type == COLL_F32    ? core_f32_bits(sum)
           : run->type == COLL_BF16 ? core_f32_to_bf16(sum)
                                    : core_f32_to_fp16(sum);
}

static uint64_t border(const struct run *run, unsigned r)
{
    return run->borders != NULL ? run->borders[r] : coll_border(run->count, run->world, r);
}

/* All five collectives in a row, once in place and once not, the delayed rank coming late to each. */
static int all_collectives(struct rank *rank)
{
    const struct run *run = rank->run;
    uint64_t begin = border(run, rank->index);
    size_t type_bytes = coll_type_bytes(run->type);
    bool sums = run->type != COLL_BYTE;
    static const enum coll_op ops[] = {COLL_GATHER, COLL_REDUCE_SCATTER, COLL_ALL_REDUCE,
                                       COLL_BROADCAST, COLL_BARRIER};
    for (int in_place = 0; in_place < 2; in_place++) {
        for (size_t k = 0; k < 5; k++) {
            static _Thread_local uint32_t from[COUNT_MAX];
            for (uint64_t i = 0; i < run->count; i++) {
                put(run->type, from, i, word(run->type, rank->index, i));
            }
            bool part_from = ops[k] == COLL_GATHER;
            bool part_to = ops[k] == COLL_REDUCE_SCATTER;
            unsigned char *to = (unsigned char *)(in_place ? from : rank->results[k]);
            struct coll_command command = {
                .op = ops[k],
                .type = run->type,
                .root = run->world / 2,
                .from = (unsigned char *)from + (part_from ? begin * type_bytes : 0),
                .to = to + (part_to ? begin * type_bytes : 0),
                .count = run->count,
                .borders = run->borders,
            };
            if (run->delay == rank->index) {
                pause_ms(2);
            }
            if (!sums && (ops[k] == COLL_REDUCE_SCATTER || ops[k] == COLL_ALL_REDUCE)) {
                continue;
            }
            int rc = submit_wait(rank->coll, &command);
            if (rc != 0) {
                return rc;
            }
            if (in_place && ops[k] != COLL_BARRIER) {
                uint64_t first = part_to ? begin : 0;
                uint64_t last = part_to ? border(run, rank->index + 1) : run->count;
                for (uint64_t i = first; i < last; i++) {
                    if (get(run->type, from, i) != get(run->type, rank->results[k], i)) {
                        return core_err_set(-EBADMSG, "in place differs at %zu", (size_t)i);
                    }
                }
            }
        }
    }
    return 0;
}

static void check_results(const struct run *run)
{
    for (unsigned r = 0; r < run->world; r++) {
        const struct rank *rank = &run->ranks[r];
        if (rank->rc != 0) {
            test_note("rank %u: %s", r, rank->sentence);
        }
        check_int(rank->rc, ==, 0);
        unsigned owner = 0;
        for (uint64_t i = 0; i < run->count; i++) {
            while (i >= border(run, owner + 1)) {
                owner++;
            }
            check_uint(get(run->type, rank->results[0], i), ==, word(run->type, owner, i));
            check_uint(get(run->type, rank->results[3], i), ==, word(run->type, run->world / 2, i));
            if (run->type == COLL_BYTE) {
                continue;
            }
            check_uint(get(run->type, rank->results[2], i), ==, expected_sum(run, i));
            if (owner == r) {
                check_uint(get(run->type, rank->results[1], i), ==, expected_sum(run, i));
            }
        }
    }
}

static void check_traffic(const struct run *run)
{
    uint64_t type_bytes = coll_type_bytes(run->type);
    for (unsigned r = 0; r < run->world; r++) {
        const struct coll_traffic *traffic = &run->ranks[r].traffic;
        uint64_t part = border(run, r + 1) - border(run, r);
        check_uint(traffic->received_bytes[COLL_GATHER], ==, 2 * type_bytes * (run->count - part));
        check_uint(traffic->received_bytes[COLL_BROADCAST], ==,
                   r == run->world / 2 ? 0 : 2 * type_bytes * run->count);
        check_uint(traffic->received_bytes[COLL_BARRIER], ==, 0);
        if (run->type != COLL_BYTE) {
            check_uint(traffic->commands, ==, 10);
            check_uint(traffic->received_bytes[COLL_REDUCE_SCATTER], ==,
                       2 * type_bytes * (run->world - 1) * part);
        }
    }
}

/* Every collective, type, world and many counts, with each rank coming last in turn: the sums are
 * those in rank order, to the bit, and the traffic is what it has to be. */
static void results(void)
{
    static const uint64_t counts[] = {0, 1, 4, 1027, COUNT_MAX};
    static const enum coll_type types[] = {COLL_F32, COLL_BF16, COLL_FP16, COLL_BYTE};
    for (unsigned world = 1; world <= WORLD_MAX; world++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            struct run run = {.world = world,
                              .limit_ns = LONG_NS,
                              .body = all_collectives,
                              .count = counts[c],
                              .type = types[(c + world) % 4],
                              .delay = (unsigned)c % (world + 1)};
            run_ranks(&run);
            check_results(&run);
            check_traffic(&run);
            free(run.ranks);
        }
    }
}

/* Parts of any size, empty ones too, at borders that the caller gives. */
static void uneven_borders(void)
{
    static const uint64_t borders[] = {0, 0, 700, 701, 2900, 3000};
    for (size_t type = 0; type < 3; type++) {
        struct run run = {.world = 5,
                          .limit_ns = LONG_NS,
                          .body = all_collectives,
                          .count = 3000,
                          .type = (enum coll_type)type,
                          .borders = borders,
                          .delay = 2};
        run_ranks(&run);
        check_results(&run);
        free(run.ranks);
    }
}

/* Many commands in flight on every rank, each needing the one before. */
static int pipelined(struct rank *rank)
{
    float sums[2] = {1, 0};
    struct core_fence fence = {0};
    for (int i = 0; i < 40; i++) {
        struct coll_command command = {.op = COLL_ALL_REDUCE, .from = sums, .to = sums, .count = 1};
        int rc = coll_submit(rank->coll, &command, &fence);
        if (rc != 0) {
            return rc;
        }
    }
    int rc = core_fence_wait(fence, LONG_NS);
    rank->results[0][0] = core_f32_bits(sums[0]);
    return rc;
}

static void in_flight(void)
{
    struct run run = {.world = 2, .limit_ns = LONG_NS, .body = pipelined};
    run_ranks(&run);
    for (unsigned r = 0; r < 2; r++) {
        check_int(run.ranks[r].rc, ==, 0);
        check_double((double)core_f32_from_bits(run.ranks[r].results[0][0]), ==, 0x1p40);
    }
    free(run.ranks);
}

static const int64_t LIMIT_NS = 300000000;

static int barrier(struct coll *coll)
{
    return submit_wait(coll, &(struct coll_command){.op = COLL_BARRIER});
}

/* Rank 2 goes through one barrier and then hangs for longer than the limit. */
static int hangs(struct rank *rank)
{
    int rc = barrier(rank->coll);
    if (rc != 0 || rank->index == 2) {
        pause_ms(600);
        return rc != 0 ? rc : barrier(rank->coll);
    }
    static _Thread_local float array[64];
    return submit_wait(
        rank->coll,
        &(struct coll_command){.op = COLL_ALL_REDUCE, .from = array, .to = array, .count = 64});
}

/* A rank that hangs is named with the collective, by all ranks alike, and by itself when it comes
 * back; those that waited have left soon after the limit. */
static void hanging_rank(void)
{
    struct run run = {.world = 4, .limit_ns = LIMIT_NS, .body = hangs};
    run_ranks(&run);
    for (unsigned r = 0; r < 4; r++) {
        check_int(run.ranks[r].rc, ==, -ETIMEDOUT);
        check_contains(run.ranks[r].sentence,
                       "rank 2 did not come to collective 2 (all-reduce of 64 fp32) within 0.3");
        check_int(run.ranks[r].took_ns, <, r == 2 ? 8000000000 : 5000000000);
    }
    free(run.ranks);
}

/* Ranks 1 to 3 never come at all. */
static int mostly_absent(struct rank *rank)
{
    if (rank->index != 0) {
        pause_ms(500);
        return 0;
    }
    return barrier(rank->coll);
}

/* All who are missing are named. */
static void several_missing(void)
{
    struct run run = {.world = 4, .limit_ns = LIMIT_NS / 3, .body = mostly_absent};
    run_ranks(&run);
    check_int(run.ranks[0].rc, ==, -ETIMEDOUT);
    check_contains(run.ranks[0].sentence, "ranks 1, 2, 3 did not come to collective 1 (barrier)");
    free(run.ranks);
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

/* A rank that dies (closes while others go on) is named at once, long before the limit. */
static void dead_rank(void)
{
    struct run run = {.world = 3, .limit_ns = 60 * LIMIT_NS, .body = leaves};
    run_ranks(&run);
    check_int(run.ranks[1].rc, ==, 0);
    for (unsigned r = 0; r < 3; r += 2) {
        check_int(run.ranks[r].rc, ==, -EPIPE);
        check_contains(run.ranks[r].sentence,
                       "rank 1 left before collective 2 (broadcast of 64 bytes from rank 1)");
        check_int(run.ranks[r].took_ns, <, 10000000000);
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

/* A rank that cannot go on takes the others with it, with its own sentence and number. */
static void aborting_rank(void)
{
    struct run run = {.world = 4, .limit_ns = 60 * LIMIT_NS, .body = aborts};
    run_ranks(&run);
    for (unsigned r = 0; r < 4; r++) {
        check_int(run.ranks[r].rc, ==, -EIO);
        check_contains(run.ranks[r].sentence, "rank 3: the drive of block 7 is gone");
    }
    free(run.ranks);
}

struct mismatch {
    struct coll_command calls[2]; /* of the others; of rank 2 */
    const char *sentence;
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
    {{{.op = COLL_BARRIER}, {.op = COLL_BROADCAST, .count = 0}}, "rank 0 calls barrier, rank 2"},
};

static int differs(struct rank *rank)
{
    static _Thread_local float arrays[2][8];
    const struct mismatch *mismatch = &mismatches[rank->run->delay];
    struct coll_command command = mismatch->calls[rank->index == 2];
    command.from = arrays[0];
    command.to = arrays[1];
    return submit_wait(rank->coll, &command);
}

/* Ranks that call different things all hear who differs and how, at once. */
static void mismatched(void)
{
    for (unsigned i = 0; i < sizeof mismatches / sizeof mismatches[0]; i++) {
        struct run run = {.world = 3, .limit_ns = 60 * LIMIT_NS, .body = differs, .delay = i};
        run_ranks(&run);
        for (unsigned r = 0; r < 3; r++) {
            check_int(run.ranks[r].rc, ==, -EPROTO);
            check_contains(run.ranks[r].sentence, mismatches[i].sentence);
            check_contains(run.ranks[r].sentence, "collective 1 differs");
        }
        free(run.ranks);
    }
}

/* Works on an array of its own that it frees as soon as its fence has failed. */
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

/* After a failure nobody touches the arrays of a rank that has left (seen by the sanitizers). */
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

TEST_MAIN({"results", results}, {"uneven_borders", uneven_borders}, {"in_flight", in_flight},
          {"hanging_rank", hanging_rank}, {"several_missing", several_missing},
          {"dead_rank", dead_rank}, {"aborting_rank", aborting_rank}, {"mismatched", mismatched},
          {"left_in_peace", left_in_peace}, {"opening", opening})
