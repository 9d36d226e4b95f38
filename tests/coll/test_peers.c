/* test_peers.c: processes over a faulty MPI library. The other process is a mirror of this one
 * (fake_mpi.h). */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/coll/backend.h"
#include "core/coll/peers.h"
#include "core/coll/transport.h"
#include "tests/coll/fake_mpi.h"
#include "tests/coll/ranks.h"
#include "tests/harness/child.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"

/* Exit codes of a child. ENDED_WORLD: a collective failed. */
enum { WORKED, NOT_OPENED = 41, ENDED_WORLD = 42 };

static char message[1024];

static void remember(void)
{
    snprintf(message, sizeof message, "%s", core_err_message());
}

static int open_peers(const char *identity, struct coll_peers **out)
{
    const struct coll_peers_options options = {
        .launch = {.launcher = "fakerun", .flavour = COLL_FLAVOUR_OPENMPI, .rank = 1, .world = 2},
        .identity = identity};
    const int rc = coll_peers_open(&options, out);
    remember();
    return rc;
}

static int open_coll(struct coll_peers *peers, int64_t limit_ns, struct coll **out)
{
    const struct coll_options options = {
        .kind = "processes", .rank = 1, .world = 2, .peers = peers, .limit_ns = limit_ns};
    return coll_open(&options, out);
}

/* Runs all collectives, with data in the heads and after the heads. */
static int collectives(struct coll *coll)
{
    enum { LONG = 4000 };
    static float from[LONG];
    static float to[LONG];
    for (uint64_t count = 8; count <= LONG; count *= LONG / 8) {
        const struct coll_command commands[] = {
            {.op = COLL_BARRIER},
            {.op = COLL_REDUCE_SCATTER, .from = from, .to = to, .count = count},
            {.op = COLL_ALL_REDUCE, .from = from, .to = to, .count = count},
            {.op = COLL_GATHER, .from = from, .to = to, .count = count},
            {.op = COLL_BROADCAST, .root = 1, .from = from, .to = to, .count = count},
        };
        for (size_t i = 0; i < count; i++) {
            from[i] = (float)i;
        }
        for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
            const int rc = submit_wait(coll, &commands[i]);
            if (rc != 0) {
                return rc;
            }
            if (commands[i].op == COLL_REDUCE_SCATTER) {
                /* This rank's part begins in the middle; the mirror has sent the first half. */
                check_double((double)to[1], ==, (double)(count / 2 + 1 + 1));
            }
        }
    }
    return 0;
}

/* ---- calls that fail ---- */

/* Opens a world, uses it and closes it. After a failure the process ends. */
static int life(void *argument)
{
    struct coll_peers *peers = NULL;
    struct coll *coll = NULL;
    (void)argument;
    if (open_peers("test", &peers) != 0) {
        check_contains(message, "broken");
        return NOT_OPENED;
    }
    int rc = open_coll(peers, LONG_NS, &coll);
    check_int(rc, ==, 0);
    rc = collectives(coll);
    if (rc != 0) {
        check_int(rc, ==, -EIO);
        check_string(core_err_message(), "fake MPI failed: broken");
        check_int(collectives(coll), ==, -EIO);
        check_int(coll_peers_error(peers), ==, -EIO);
    }
    coll_close(coll);
    coll_peers_close(peers, ENDED_WORLD);
    return rc; /* not reached after a failure */
}

/* A failing call is reported when the world is opened, or ends the process. */
static void failing_calls(void)
{
    static const struct {
        enum fake_call call;
        unsigned least; /* smallest number of calls in a clean run */
    } kinds[] = {
        {FAKE_OPEN, 1}, {FAKE_SEND, 14}, {FAKE_RECEIVE, 14}, {FAKE_TEST, 28}, {FAKE_CANCEL, 1}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        unsigned n = 0;
        int status = -1;
        while (status != WORKED) {
            fake_mpi = (struct fake_mpi){.rank = 1, .fails = kinds[i].call, .nth = ++n};
            status = test_child(life, NULL);
            check_true(n < 200);
            check_true(status == WORKED || status == NOT_OPENED || status == ENDED_WORLD);
        }
        check_int(n - 1, >=, kinds[i].least);
    }
}

/* A failing end of MPI does not change the process's code, because the work is done. */
static void failing_close(void)
{
    fake_mpi = (struct fake_mpi){.rank = 1, .fails = FAKE_CLOSE, .nth = 1};
    check_int(test_child(life, NULL), ==, WORKED);
}

static int life_here(void)
{
    struct coll_peers *peers = NULL;
    struct coll *coll = NULL;
    int rc = open_peers("test", &peers);
    if (rc == 0) {
        rc = open_coll(peers, LONG_NS, &coll);
    }
    if (rc == 0) {
        rc = collectives(coll);
    }
    coll_close(coll);
    coll_peers_close(peers, 0);
    return rc;
}

/* Opens TCP at a rendezvous where no process listens. */
static int tcp_life(void)
{
    char why[COLL_TRANSPORT_WHY_BYTES] = "";
    const struct coll_launch launch = {
        .torchrun = true, .rank = 1, .world = 2, .rendezvous = "127.0.0.1:1"};
    const struct coll_transport_options options = {
        .launch = &launch, .slots = 4, .limit_ns = 1000000};
    struct coll_place place;
    const int rc = coll_transport_tcp.open(&options, &place, why);
    check_true(rc == -ETIMEDOUT || rc == -ENOMEM);
    return rc == -ETIMEDOUT ? 0 : core_err_set(rc, "%s", why);
}

static void failing_allocations_over_tcp(void)
{
    check_int(test_fail_nth(tcp_life), >=, 5);
}

/* Missing memory or threads are reported, and the world can be opened again. */
static void failing_allocations(void)
{
    fake_mpi = (struct fake_mpi){.rank = 1};
    check_int(test_fail_nth(life_here), >=, 15);
}

/* ---- processes that do not answer ---- */

/* Lost messages end the world at the limit of the collective. */
static int lost_heads(void *argument)
{
    struct coll_peers *peers = NULL;
    struct coll *coll = NULL;
    (void)argument;
    check_int(open_peers("test", &peers), ==, 0);
    check_int(open_coll(peers, 100000000, &coll), ==, 0);
    check_int(submit_wait(coll, &(struct coll_command){.op = COLL_BARRIER}), ==, -ETIMEDOUT);
    check_contains(core_err_message(), "rank 0 did not reach collective 1 (barrier) within 0.1");
    coll_close(coll);
    coll_peers_close(peers, ENDED_WORLD);
    return 1;
}

static void lost_messages(void)
{
    fake_mpi = (struct fake_mpi){.rank = 1, .lost_tag_min = 16};
    check_int(test_child(lost_heads, NULL), ==, ENDED_WORLD);
}

/* ---- heads that differ ---- */

/* Fields of a head, and the error if rank 0 has another value there. */
static const struct {
    size_t at;
    const char *message;
} fields[] = {
    {8, "differs: rank 0 calls "},
    {12, "differs: rank 0 calls reduce-scatter of 8 bf16, rank 1 calls reduce-scatter of 8 fp32"},
    {16, "differs: rank 0 calls reduce-scatter of 8 fp32, rank 1 calls reduce-scatter of 8 fp32"},
    {20, "differs: rank 0 calls reduce-scatter of 8 fp32 within 1 ranks, rank 1 calls "},
    {24, "differs: rank 0 calls reduce-scatter of 9 fp32, rank 1 calls reduce-scatter of 8 fp32"},
    {32, "rank 1 calls reduce-scatter of 8 fp32 with other borders"},
};

static int changed_head(void *argument)
{
    const char *expected = argument;
    float array[8] = {0};
    struct coll_peers *peers = NULL;
    struct coll *coll = NULL;
    const struct coll_command command = {
        .op = COLL_REDUCE_SCATTER, .from = array, .to = array, .count = 8};
    check_int(open_peers("test", &peers), ==, 0);
    check_int(open_coll(peers, LONG_NS, &coll), ==, 0);
    check_int(submit_wait(coll, &command), ==, -EPROTO);
    check_contains(core_err_message(), expected);
    check_int(submit_wait(coll, &command), ==, -EPROTO);
    coll_close(coll);
    coll_peers_close(peers, ENDED_WORLD);
    return WORKED;
}

/* Fields of heads are compared. */
static void other_heads(void)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        fake_mpi = (struct fake_mpi){.rank = 1, .change_at = fields[i].at, .change_tag_min = 16};
        check_int(test_child(changed_head, (void *)(uintptr_t)fields[i].message), ==, WORKED);
    }
}

/* The type to which codes are summed is compared, too. */
static int changed_sum(void *argument)
{
    unsigned char groups[2][132] = {{0}};
    float sums[256];
    struct coll_peers *peers = NULL;
    struct coll *coll = NULL;
    const struct coll_command command = {.op = COLL_REDUCE_SCATTER,
                                         .type = COLL_INT4,
                                         .from = groups,
                                         .to = sums,
                                         .count = 2,
                                         .sum_count = 256};
    (void)argument;
    check_int(open_peers("test", &peers), ==, 0);
    check_int(open_coll(peers, LONG_NS, &coll), ==, 0);
    check_int(submit_wait(coll, &command), ==, -EPROTO);
    check_contains(core_err_message(), "differs: rank 0 calls reduce-scatter of 2 int4 to bf16, "
                                       "rank 1 calls reduce-scatter of 2 int4 to fp32");
    coll_close(coll);
    coll_peers_close(peers, ENDED_WORLD);
    return WORKED;
}

static void other_sums(void)
{
    fake_mpi = (struct fake_mpi){.rank = 1, .change_at = 40, .change_tag_min = 16};
    check_int(test_child(changed_sum, NULL), ==, WORKED);
}

/* ---- ends ---- */

/* Calls the back end's end(), as a back end over it does. An error ends the world. */
static int ends_with_error(void *argument)
{
    struct coll_peers *peers = NULL;
    struct coll *coll = NULL;
    (void)argument;
    check_int(open_peers("test", &peers), ==, 0);
    check_int(open_coll(peers, LONG_NS, &coll), ==, 0);
    check_int(coll->backend->end(coll, 0), ==, 0);
    check_int(coll->backend->end(coll, core_err_set(-EIO, "the card is gone")), ==, -EIO);
    check_contains(core_err_message(), "rank 1 on ");
    check_contains(core_err_message(), ": the card is gone");
    check_int(coll_peers_error(peers), ==, -EIO);
    check_int(coll->backend->end(coll, 0), ==, -EIO);
    coll_close(coll);
    coll_peers_close(peers, ENDED_WORLD);
    return 1;
}

static void an_end_with_an_error(void)
{
    fake_mpi = (struct fake_mpi){.rank = 1};
    check_int(test_child(ends_with_error, NULL), ==, ENDED_WORLD);
}

static bool stop_now(void *user)
{
    (void)user;
    return true;
}

/* This process's request to stop comes back from the mirror and is heard; then rank 0 counts as
 * silent. */
static int silent_rank(void *argument)
{
    struct coll_peers *peers = NULL;
    const struct coll_peers_options options = {
        .launch = {.launcher = "fakerun", .rank = 1, .world = 2},
        .silence_ns = 1000000000,
        .stop = stop_now};
    (void)argument;
    check_int(coll_peers_open(&options, &peers), ==, 0);
    while (!coll_peers_stopping(peers) && coll_peers_error(peers) == 0) {
        pause_ms(1);
    }
    check_true(coll_peers_stopping(peers));
    while (coll_peers_error(peers) == 0) {
        pause_ms(1);
    }
    check_int(coll_peers_error(peers), ==, -ETIMEDOUT);
    check_contains(core_err_message(), "rank 0 on ");
    check_contains(core_err_message(), " has not responded for 1 s");
    check_true(!coll_peers_told(peers));
    coll_peers_close(peers, 0); /* a failed world does not end with 0 */
    return WORKED;
}

static void silence(void)
{
    fake_mpi = (struct fake_mpi){.rank = 1};
    check_int(test_child(silent_rank, NULL), ==, 1);
}

/* Withdraws receives that the library's thread may not have taken yet. The alarm ends a child that
 * lost a withdrawal. */
static int withdraws(void *argument)
{
    struct coll_peers *peers = NULL;
    char byte;
    (void)argument;
    alarm(30);
    check_int(open_peers("test", &peers), ==, 0);
    const int tag = coll_peers_tags(peers, 1);
    for (int i = 0; i < TEST_COUNT(1000, 200); i++) {
        struct coll_transfer transfer = {.peer = 0, .tag = tag, .at = &byte, .bytes = 1};
        coll_peers_post(peers, &transfer);
        coll_peers_withdraw(peers, &transfer);
        check_int(atomic_load(&transfer.state), ==, COLL_TRANSFER_FREE);
    }
    coll_peers_close(peers, 0);
    return WORKED;
}

static void receives_are_withdrawn(void)
{
    fake_mpi = (struct fake_mpi){.rank = 1, .dozes = true};
    check_int(test_child(withdraws, NULL), ==, WORKED);
}

/* ---- a library that does not fit ---- */

static void check_refused(int rc, const char *text)
{
    struct coll_peers *peers = NULL;
    check_int(open_peers("test", &peers), ==, rc);
    check_contains(message, text);
}

/* The message states why a world cannot be opened. */
static void refused_worlds(void)
{
    fake_mpi = (struct fake_mpi){.rank = 1, .missing = true};
    check_refused(-ENOTSUP, "ranks in several processes need tide's module for Open MPI");
    fake_mpi = (struct fake_mpi){.rank = 1, .unloadable = true};
    check_refused(-ENOTSUP, "cannot load ");
    fake_mpi = (struct fake_mpi){.rank = 1, .version = 99};
    check_refused(-ENOTSUP, "is of another version of tide (99, expected ");
    fake_mpi = (struct fake_mpi){.rank = 0};
    check_refused(-EPROTO, "fakerun started rank 1 of 2 processes, but fake MPI connects it as "
                           "rank 0 of 2");
    fake_mpi = (struct fake_mpi){.rank = 1, .world = 3};
    check_refused(-EPROTO,
                  "started rank 1 of 2 processes, but fake MPI connects it as rank 1 of 3");
    fake_mpi = (struct fake_mpi){.rank = 1, .world = COLL_PEERS_MAX + 1};
    check_refused(-EPROTO, "connects it as rank 1 of ");
    fake_mpi = (struct fake_mpi){.rank = 1, .change_at = offsetof(struct coll_peer, identity)};
    check_refused(-EPROTO, " is test, and rank 0 on ");
}

/* A coll without peers, or of another rank or world, is refused. */
static void other_rank(void)
{
    struct coll_peers *peers = NULL;
    struct coll *coll = NULL;
    fake_mpi = (struct fake_mpi){.rank = 1};
    check_int(open_peers("test", &peers), ==, 0);
    struct coll_options options = {.kind = "processes", .rank = 1, .world = 3, .peers = peers};
    check_int(coll_open(&options, &coll), ==, -EINVAL);
    check_string(core_err_message(), "rank 1 of 3 is not this process's rank");
    options = (struct coll_options){.kind = "processes", .rank = 0, .world = 2, .peers = peers};
    check_int(coll_open(&options, &coll), ==, -EINVAL);
    options = (struct coll_options){.kind = "processes", .rank = 1, .world = 2};
    check_int(coll_open(&options, &coll), ==, -EINVAL);
    coll_peers_close(peers, 0);
}

TEST_MAIN({"failing_calls", failing_calls}, {"failing_close", failing_close},
          {"failing_allocations", failing_allocations},
          {"failing_allocations_over_tcp", failing_allocations_over_tcp},
          {"lost_messages", lost_messages}, {"other_heads", other_heads},
          {"other_sums", other_sums}, {"an_end_with_an_error", an_end_with_an_error},
          {"silence", silence}, {"receives_are_withdrawn", receives_are_withdrawn},
          {"refused_worlds", refused_worlds}, {"other_rank", other_rank})
