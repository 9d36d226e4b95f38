/* test_mpi.c: ranks that are processes, over MPI or TCP. A case starts this program again as the
 * ranks of a world, which check their own results. Cases of MPI need an MPI library. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "core/coll/peers.h"
#include "core/coll/sum.h"
#include "tests/coll/contract.h"
#include "tests/harness/mpi.h"
#include "tests/harness/test.h"
#include "tests/harness/torchrun.h"

/* ---- ranks ---- */

static struct coll_peers *peers;

static void open_rank(struct rank *rank)
{
    const struct coll_options options = {.kind = "processes",
                                         .rank = rank->index,
                                         .world = rank->run->world,
                                         .peers = peers,
                                         .limit_ns = rank->run->limit_ns};
    check_int(coll_open(&options, &rank->coll), ==, 0);
}

/* Runs a body as this process's rank. */
static struct rank *run_rank(struct run *run)
{
    static struct rank rank;
    rank = (struct rank){.run = run, .index = coll_peers_rank(peers)};
    rank.results = rank.own;
    rank.from = rank.own[5];
    run->world = coll_peers_world(peers);
    open_rank(&rank);
    rank.rc = run->body(&rank);
    snprintf(rank.message, sizeof rank.message, "%s", core_err_message());
    rank.traffic = traffic_of(rank.coll);
    coll_close(rank.coll);
    return &rank;
}

static void rank_results(void)
{
    static const uint64_t counts[] = {0, 1, 4, 1027, COUNT_MAX};
    static const enum coll_type types[] = {COLL_F32, COLL_BF16, COLL_FP16, COLL_BYTE};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (size_t t = 0; t < 4; t++) {
            struct run run = {.limit_ns = LONG_NS,
                              .body = contract_all,
                              .count = counts[c],
                              .type = types[t],
                              .delay = (unsigned)t};
            const struct rank *rank = run_rank(&run);
            contract_check(rank);
            contract_check_traffic(rank);
        }
    }
}

static void rank_borders(void)
{
    static const uint64_t borders[] = {0, 0, 700, 2900, 3000};
    for (size_t type = 0; type < 3; type++) {
        struct run run = {.limit_ns = LONG_NS,
                          .body = contract_all,
                          .count = borders[coll_peers_world(peers)],
                          .type = (enum coll_type)type,
                          .borders = borders,
                          .delay = 1};
        contract_check(run_rank(&run));
    }
}

static void rank_pipelined(void)
{
    struct run run = {.limit_ns = LONG_NS, .body = contract_pipelined};
    const struct rank *rank = run_rank(&run);
    check_int(rank->rc, ==, 0);
    check_double((double)core_f32_from_bits(rank->results[0][0]), ==, 0x1p40);
}

static uint16_t long_word(unsigned rank, size_t i)
{
    return core_f32_to_bf16((float)((i * 7919 + rank * 104729) % 20011) * 0.37F);
}

enum { LONG_COUNT = 3000001 };

/* Sums arrays of many pieces in place. */
static int sums_long(struct rank *rank)
{
    const unsigned world = rank->run->world;
    uint16_t *array = malloc(LONG_COUNT * sizeof *array);
    uint16_t *all[4];
    const void *arrays[4];
    uint16_t sum = 0;
    for (unsigned r = 0; r < world; r++) {
        all[r] = malloc(LONG_COUNT * sizeof *all[r]);
        for (size_t i = 0; i < LONG_COUNT; i++) {
            all[r][i] = long_word(r, i);
        }
        arrays[r] = all[r];
    }
    memcpy(array, all[rank->index], LONG_COUNT * sizeof *array);
    const struct coll_command command = {
        .op = COLL_ALL_REDUCE, .type = COLL_BF16, .from = array, .to = array, .count = LONG_COUNT};
    int rc = submit_wait(rank->coll, &command);
    for (size_t i = 0; rc == 0 && i < LONG_COUNT; i++) {
        coll_sum(COLL_BF16, arrays, world, i, 1, &sum);
        rc = array[i] == sum ? 0 : core_err_set(-EBADMSG, "element %zu differs", i);
    }
    for (unsigned r = 0; r < world; r++) {
        free(all[r]);
    }
    free(array);
    return rc;
}

static void rank_long(void)
{
    struct run run = {.limit_ns = LONG_NS, .body = sums_long};
    const struct rank *rank = run_rank(&run);
    check_string(rank->message, "");
    check_int(rank->rc, ==, 0);
}

/* Sums codes that come with the heads, or later in pieces. */
static void rank_codes(void)
{
    static const uint64_t counts[] = {0, 1, 257, 3000, 100001};
    static const uint64_t borders[] = {0, 0, 2304000, 6000001};
    for (unsigned type = COLL_F32; type <= COLL_FP16; type++) {
        struct run run = {
            .limit_ns = LONG_NS, .body = contract_codes, .type = (enum coll_type)type, .delay = 1};
        for (size_t c = 0; c <= sizeof counts / sizeof counts[0]; c++) {
            const bool last = c == sizeof counts / sizeof counts[0];
            run.count = last ? borders[3] : counts[c];
            run.borders = last ? borders : NULL;
            const struct rank *rank = run_rank(&run);
            check_string(rank->message, "");
            check_int(rank->rc, ==, 0);
        }
    }
}

/* Gathers, within groups, parts that come with the heads or later. */
static void rank_within(void)
{
    static const uint64_t counts[] = {0, 5, 1027, 400001};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        struct run run = {.limit_ns = LONG_NS,
                          .body = contract_within,
                          .within = 2,
                          .count = counts[c],
                          .type = c % 2 == 0 ? COLL_BF16 : COLL_BYTE,
                          .delay = 1};
        const struct rank *rank = run_rank(&run);
        check_string(rank->message, "");
        check_int(rank->rc, ==, 0);
    }
}

/* Sums, by groups, arrays that come with the heads, or later in pieces. */
static void groups_of(bool hosts)
{
    enum { LAST = TEST_COUNT(700000, 250000) };
    static const uint64_t counts[] = {0, 5, 40001, LAST};
    static const uint64_t borders[] = {0, 0, 700, LAST - 99999, LAST};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        struct run run = {.limit_ns = LONG_NS,
                          .body = contract_groups,
                          .within = 2,
                          .count = counts[c],
                          .type = c == 2   ? COLL_F32
                                  : c == 1 ? COLL_FP16
                                           : COLL_BF16,
                          .borders = c == 3 ? borders : NULL,
                          .delay = 1};
        const struct rank *rank = run_rank(&run);
        check_string(rank->message, "");
        check_int(rank->rc, ==, 0);
        if (c >= 2) {
            contract_check_group_traffic(rank, hosts);
        }
    }
}

static void rank_groups(void)
{
    groups_of(false);
}

/* The host names make each group a host, so that hosts exchange fewer bytes. */
static void rank_hosts(void)
{
    groups_of(true);
}

static int differs(struct rank *rank)
{
    float array[8] = {0};
    const struct coll_command command = {
        .op = COLL_ALL_REDUCE, .from = array, .to = array, .count = rank->index == 1 ? 7 : 8};
    return submit_wait(rank->coll, &command);
}

static void rank_differs(void)
{
    struct run run = {.limit_ns = LONG_NS, .body = differs};
    const struct rank *rank = run_rank(&run);
    check_int(rank->rc, ==, -EPROTO);
    check_string(rank->message, "collective 1 differs: rank 0 calls all-reduce of 8 fp32, rank 1 "
                                "calls all-reduce of 7 fp32");
}

static int leaves(struct rank *rank)
{
    const struct coll_command barrier = {.op = COLL_BARRIER};
    const int rc = submit_wait(rank->coll, &barrier);
    return rc != 0 || rank->index == 1 ? rc : submit_wait(rank->coll, &barrier);
}

static void rank_leaves(void)
{
    struct run run = {.limit_ns = LONG_NS, .body = leaves};
    const struct rank *rank = run_rank(&run);
    check_int(rank->rc, ==, rank->index == 1 ? 0 : -EPIPE);
    if (rank->index != 1) {
        check_string(rank->message, "rank 1 left before collective 2 (barrier)");
    }
}

static int aborts(struct rank *rank)
{
    const struct coll_command barrier = {.op = COLL_BARRIER};
    if (rank->index == 1) {
        coll_abort(rank->coll, core_err_set(-ENOSPC, "the drive is full"));
        return -ENOSPC;
    }
    return submit_wait(rank->coll, &barrier);
}

static void rank_aborts(void)
{
    struct run run = {.limit_ns = LONG_NS, .body = aborts};
    const struct rank *rank = run_rank(&run);
    check_int(rank->rc, ==, -ENOSPC);
    check_contains(rank->message, "rank 1 on ");
    check_contains(rank->message, ": the drive is full");
}

/* After a failed collective, messages and other collectives still work. */
static void rank_goes_on(void)
{
    char text[32] = "";
    size_t bytes = 0;
    rank_aborts();
    rank_differs();
    if (coll_peers_rank(peers) == 1) {
        check_int(coll_peers_send(peers, 0, "still here", 11), ==, 0);
    } else if (coll_peers_rank(peers) == 0) {
        check_int(coll_peers_receive(peers, 1, text, sizeof text, &bytes), ==, 0);
        check_uint(bytes, ==, 11);
        check_string(text, "still here");
    }
    rank_pipelined();
}

static int hangs(struct rank *rank)
{
    const struct coll_command barrier = {.op = COLL_BARRIER};
    if (rank->index == 1) {
        sleep(30);
    }
    return submit_wait(rank->coll, &barrier);
}

/* coll_peers_close does not return. */
static void rank_hangs(void)
{
    struct run run = {.limit_ns = 300000000, .body = hangs};
    const struct rank *rank = run_rank(&run);
    check_int(rank->rc, ==, -ETIMEDOUT);
    fprintf(stderr, "%s\n", rank->message);
}

static int stops(struct rank *rank)
{
    const struct coll_command barrier = {.op = COLL_BARRIER};
    if (rank->index == 1) {
        raise(SIGSTOP);
    }
    return submit_wait(rank->coll, &barrier);
}

static void rank_stops(void)
{
    struct run run = {.limit_ns = LONG_NS, .body = stops};
    const struct rank *rank = run_rank(&run);
    check_int(rank->rc, ==, -ETIMEDOUT);
    fprintf(stderr, "%s\n", rank->message);
}

static int is_killed(struct rank *rank)
{
    const struct coll_command barrier = {.op = COLL_BARRIER};
    const int rc = submit_wait(rank->coll, &barrier);
    if (rank->index == 1) {
        raise(SIGKILL);
    }
    return rc != 0 ? rc : submit_wait(rank->coll, &barrier);
}

static void rank_killed(void)
{
    struct run run = {.limit_ns = LONG_NS, .body = is_killed};
    const struct rank *rank = run_rank(&run);
    check_int(rank->rc, ==, -EIO);
    fprintf(stderr, "%s\n", rank->message);
}

static const struct {
    const char *name;
    void (*run)(void);
    int64_t silence_ns;
} bodies[] = {
    {"results", rank_results, 0}, {"borders", rank_borders, 0}, {"pipelined", rank_pipelined, 0},
    {"long", rank_long, 0},       {"codes", rank_codes, 0},     {"within", rank_within, 0},
    {"differs", rank_differs, 0}, {"leaves", rank_leaves, 0},   {"aborts", rank_aborts, 0},
    {"goes_on", rank_goes_on, 0}, {"hangs", rank_hangs, 0},     {"stops", rank_stops, 1500000000},
    {"killed", rank_killed, 0},   {"groups", rank_groups, 0},   {"hosts", rank_hosts, 0},
};

static const char *environment(const char *name)
{
    return getenv(name);
}

/* Gives this process its own host name; returns false if that is not permitted. */
static bool name_host(unsigned number)
{
    char name[16];
    const int length = snprintf(name, sizeof name, "node%u", number);
    return unshare(CLONE_NEWUTS) == 0 && sethostname(name, (size_t)length) == 0;
}

/* Main function of a rank's process, which a failed check ends. */
static int rank_main(const char *name)
{
    struct coll_peers_options options = {.identity = "test"};
    if (coll_launch_find(environment, &options.launch) != 0) {
        return 1;
    }
    if (strcmp(name, "hosts") == 0 && !name_host(options.launch.rank / 2)) {
        return 77;
    }
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        if (strcmp(bodies[i].name, name) == 0) {
            options.silence_ns = bodies[i].silence_ns;
            if (coll_peers_open(&options, &peers) != 0) {
                fprintf(stderr, "%s\n", core_err_message());
                return 1;
            }
            bodies[i].run();
            coll_peers_close(peers, 1);
            return 0;
        }
    }
    return 1;
}

/* ---- cases ---- */

static char self[4096];

static const char openmpi[] = "mpirun.openmpi --oversubscribe --bind-to none";
static const char mpich[] = "mpirun.mpich";
static const char torchrun[] = "torchrun";

/* Runs a body on the ranks of a world. Returns the launcher's status; *text is what the ranks
 * wrote. */
static int run_world(const char *launcher, const char *name, unsigned world, char *text,
                     size_t bytes)
{
    char command[8192];
    size_t length = 0;
    if (launcher == torchrun) {
        snprintf(command, sizeof command, "exec %s --body %s", self, name);
        return test_torchrun(command, world, NULL, text, bytes);
    }
    snprintf(command, sizeof command, "timeout 240 %s -n %u %s --body %s 2>&1", launcher, world,
             self, name);
    FILE *pipe = popen(command, "r");
    check_true(pipe != NULL);
    length = fread(text, 1, bytes - 1, pipe);
    text[length] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void check_launched(const char *launcher, const char *name, unsigned world)
{
    static char text[16384];
    const int status = run_world(launcher, name, world, text, sizeof text);
    if (status != 0) {
        test_note("%s", text);
    }
    check_int(status, ==, 0);
}

static void check_world(const char *name, unsigned world)
{
    test_mpi_begin();
    check_launched(openmpi, name, world);
}

static void results(void)
{
    for (unsigned world = TEST_SLOW ? 3 : 2; world <= TEST_COUNT(4, 3); world++) {
        check_world("results", world);
    }
}

static void uneven_borders(void)
{
    check_world("borders", 4);
}

/* A sum of codes is the sum of decoded numbers in rank order. */
static void codes(void)
{
    check_world("codes", 3);
}

static void within(void)
{
    check_world("within", 4);
}

/* Sums by groups are right; if each group is a host, hosts exchange fewer bytes. */
static void groups(void)
{
    static char text[16384];
    check_launched(torchrun, "groups", 4);
    const int status = run_world(torchrun, "hosts", 4, text, sizeof text);
    if (status == 77) {
        test_skip("no right to give processes host names of their own");
    }
    test_note("%s", text);
    check_int(status, ==, 0);
}

/* Commands that need the previous result may be in flight together. */
static void in_flight(void)
{
    check_world("pipelined", 2);
}

static void long_arrays(void)
{
    check_world("long", 3);
}

/* Ranks report a rank that calls something else, leaves or aborts, and the world still works. */
static void failures(void)
{
    check_world("differs", 3);
    check_world("leaves", 3);
    check_world("aborts", 3);
    check_world("goes_on", 2);
}

/* A missing rank ends all processes. */
static void hanging_rank(void)
{
    static char text[16384];
    test_mpi_begin();
    check_int(run_world(openmpi, "hangs", 3, text, sizeof text), !=, 0);
    check_contains(text, "rank 1 did not reach collective 1 (barrier) within 0.3");
}

/* A stopped process ends all processes. */
static void stopped_rank(void)
{
    static char text[16384];
    test_mpi_begin();
    check_int(run_world(openmpi, "stops", 3, text, sizeof text), !=, 0);
    check_contains(text, "rank 1 on ");
    check_contains(text, "has not responded for ");
}

static void other_library(void)
{
    test_mpich_begin();
    check_launched(mpich, "results", 2);
    check_launched(mpich, "long", 2);
    check_launched(mpich, "groups", 4);
    check_launched(mpich, "goes_on", 2);
}

static void over_tcp(void)
{
    check_launched(torchrun, "results", 3);
    check_launched(torchrun, "borders", 4);
    check_launched(torchrun, "long", 3);
    check_launched(torchrun, "within", 4);
    check_launched(torchrun, "pipelined", 2);
    check_launched(torchrun, "differs", 3);
    check_launched(torchrun, "leaves", 3);
    check_launched(torchrun, "aborts", 3);
    check_launched(torchrun, "goes_on", 2);
}

/* Over TCP, a process that stops or is missing ends the other processes. */
static void ends_over_tcp(void)
{
    static char text[16384];
    check_int(run_world(torchrun, "hangs", 3, text, sizeof text), !=, 0);
    check_contains(text, "rank 1 did not reach collective 1 (barrier) within 0.3");
    check_int(run_world(torchrun, "stops", 3, text, sizeof text), !=, 0);
    check_contains(text, "rank 1 on ");
    check_contains(text, "has not responded for ");
    check_int(run_world(torchrun, "killed", 3, text, sizeof text), !=, 0);
    check_contains(text, "TCP failed: rank 1 on ");
    check_contains(text, "has closed its connection: its process has ended");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"results", results},
        {"uneven_borders", uneven_borders},
        {"codes", codes},
        {"within", within},
        {"groups", groups},
        {"in_flight", in_flight},
        {"long_arrays", long_arrays},
        {"failures", failures},
        {"hanging_rank", hanging_rank},
        {"stopped_rank", stopped_rank},
        {"other_library", other_library},
        {"over_tcp", over_tcp},
        {"ends_over_tcp", ends_over_tcp},
    };
    if (argc == 3 && strcmp(argv[1], "--body") == 0) {
        return rank_main(argv[2]);
    }
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
