/* Tests ranks with a card each, on emulated cards and an imitation of NCCL (fake_nccl.c). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <tide/world.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/coll/peers.h"
#include "core/dev/dev.h"
#include "kernels/table.h"
#include "tests/api/world.h"
#include "tests/coll/contract.h"
#include "tests/dev/fake_cuda.h"
#include "tests/harness/mpi.h"
#include "tests/harness/test.h"
#include "tests/harness/torchrun.h"
#include "tests/kernels/rig.h"
#include "tests/run/case.h"

enum { STEPS = 2, CARDS = 4 };

static const char *machine(int cards)
{
    const char *name = rig_machine();
    kern_ops_detach(NULL); /* makes the linker take the ops of the first library */
    fake_cards(cards);
    return name;
}

/* ---- names ---- */

static void each_rank_has_a_card(void)
{
    static const struct {
        const char *name;
        unsigned index, ranks;
        int rc;
        const char *found; /* the device, or a part of the message */
    } cases[] = {
        {"cpu", 3, 8, 0, "cpu"},
        {"cuda", 0, 1, 0, "cuda:0"},
        {"cuda", 2, 3, 0, "cuda:2"},
        {"cuda", 0, 5, -EINVAL, "5 ranks on this machine need a card each; it has 4 (--ranks 4)"},
        {"cuda:3,1", 0, 2, 0, "cuda:3"},
        {"cuda:3,1", 1, 2, 0, "cuda:1"},
        {"cuda:2", 0, 1, 0, "cuda:2"},
        {"cuda:2", 1, 2, -EINVAL, "lists 1 card for 2 ranks"},
        {"cuda:0,2", 0, 1, -EINVAL, "lists 2 cards for 1 rank of this machine"},
        {"cuda:0,7", 0, 2, -ENODEV, "device cuda:7 does not exist: this machine has 4"},
        {"cuda:0,0", 0, 2, -EINVAL, "device 0 is listed twice in \"cuda:0,0\""},
        {"cuda:0,", 0, 2, -EINVAL, "expected a number from 0 to 1023 after ':'"},
        {"cuda:,1", 0, 2, -EINVAL, "expected a number"},
        {"cuda:1x", 0, 1, -EINVAL, "expected a number"},
        {"gpu:1", 0, 1, -EINVAL, "unknown device \"gpu:1\""},
    };
    (void)machine(CARDS);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char found[DEV_NAME_BYTES] = "";
        const int rc = dev_name_of_rank(cases[i].name, cases[i].index, cases[i].ranks, found);
        test_note("%s, rank %u of %u", cases[i].name, cases[i].index, cases[i].ranks);
        check_int(rc, ==, cases[i].rc);
        if (rc == 0) {
            check_string(found, cases[i].found);
        } else {
            check_contains(core_err_message(), cases[i].found);
        }
    }
    struct dev_device *device = NULL;
    const struct dev_options options = {.memory_bytes = 1 << 20};
    check_int(dev_open("cuda:7,2", &options, &device), ==, -ENODEV);
    check_contains(core_err_message(), "device cuda:7 does not exist");
    check_int(dev_open("cuda:2,1", &options, &device), ==, 0);
    check_string(dev_properties(device)->name, "cuda:2");
    dev_close(device);
}

/* ---- collectives ---- */

static struct dev_device *devices[CARDS];
static struct kern_ops *ops[CARDS];
static void *arrays[CARDS];
static size_t scratch_bytes;

static void open_card(unsigned r, unsigned ranks)
{
    const struct dev_options options = {.memory_bytes = 1 << 20};
    char name[DEV_NAME_BYTES];
    check_int(dev_name_of_rank("cuda", r, ranks, name), ==, 0);
    check_int(dev_open(name, &options, &devices[r]), ==, 0);
    check_int(kern_ops_attach(devices[r], NULL, &ops[r]), ==, 0);
    check_int(dev_memory_alloc(devices[r], sizeof(uint32_t[6][COUNT_MAX]), &arrays[r]), ==, 0);
}

static void close_card(unsigned r)
{
    dev_memory_free(devices[r], arrays[r]);
    kern_ops_detach(ops[r]);
    dev_close(devices[r]);
}

static void open_cards(unsigned count, size_t scratch)
{
    scratch_bytes = scratch;
    (void)machine(CARDS);
    for (unsigned r = 0; r < count; r++) {
        open_card(r, count);
    }
}

static void close_cards(unsigned count)
{
    for (unsigned r = 0; r < count; r++) {
        close_card(r);
    }
    check_int(fake_live(), ==, 0);
}

/* contract.c can access the emulated card's memory. */
static void on_card(struct rank *rank, struct coll_options *options)
{
    options->kind = "nccl";
    options->device = devices[rank->index];
    options->sum_op = KERN_SUM;
    options->scratch_bytes = scratch_bytes;
    rank->results = arrays[rank->index];
    rank->from = rank->results[5];
}

/* Collectives on cards have the right bits, even with little scratch. */
static void results(void)
{
    static const uint64_t counts[] = {0, 1, 4, 1027, 2560, COUNT_MAX};
    static const enum coll_type types[] = {COLL_F32, COLL_BF16, COLL_FP16, COLL_BYTE};
    for (unsigned world = 2; world <= CARDS; world++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            struct run run = {.world = world,
                              .limit_ns = LONG_NS,
                              .body = contract_all,
                              .arrange = on_card,
                              .count = counts[c],
                              .type = types[(c + world) % 4],
                              .delay = (unsigned)c % (world + 1)};
            open_cards(world, c % 2 == 0 ? 2048 : 1 << 16);
            run_ranks(&run);
            for (unsigned r = 0; r < world; r++) {
                contract_check(&run.ranks[r]);
                contract_check_traffic(&run.ranks[r]);
            }
            free(run.ranks);
            close_cards(world);
        }
    }
}

static void uneven_borders(void)
{
    static const uint64_t borders[] = {0, 0, 700, 701, 3000};
    for (size_t type = 0; type < 3; type++) {
        struct run run = {.world = 4,
                          .limit_ns = LONG_NS,
                          .body = contract_all,
                          .arrange = on_card,
                          .count = 3000,
                          .type = (enum coll_type)type,
                          .borders = borders,
                          .delay = 2};
        open_cards(4, 3 * 4096);
        run_ranks(&run);
        for (unsigned r = 0; r < 4; r++) {
            contract_check(&run.ranks[r]);
            contract_check_traffic(&run.ranks[r]);
        }
        free(run.ranks);
        close_cards(4);
    }
}

/* Sums that NCCL computes within groups are near the exact sums; with more than two ranks their
 * bits differ. */
static void fast_sums(void)
{
    static const uint64_t borders[] = {0, 0, 700, 701, 3000};
    for (unsigned c = 0; c < 4; c++) {
        struct run run = {.world = c == 3 ? 2 : 4,
                          .limit_ns = LONG_NS,
                          .body = contract_near,
                          .arrange = on_card,
                          .count = c == 1 ? 3000 : 1024,
                          .type = c == 2 ? COLL_F32 : COLL_BF16,
                          .borders = c == 1 ? borders : NULL,
                          .within = 2};
        uint32_t others = 0;
        open_cards(run.world, 3 * 4096);
        run_ranks(&run);
        for (unsigned r = 0; r < run.world; r++) {
            const uint64_t part = run.borders != NULL ? borders[r + 1] - borders[r]
                                                      : run.count / run.world;
            const uint64_t *received = run.ranks[r].traffic.received_bytes;
            check_string(run.ranks[r].message, "");
            check_int(run.ranks[r].rc, ==, 0);
            check_uint(received[COLL_REDUCE_SCATTER], ==,
                       2 * (run.world - 1) * part * coll_type_bytes(run.type));
            others += run.ranks[r].own[0][0];
        }
        check_true((others > 0) == (run.world > 2)); /* two ranks can be added in only one order */
        free(run.ranks);
        close_cards(run.world);
    }
}

/* Sums arrays in host memory between collectives on cards. The last command is refused. */
static int host_and_card(struct rank *rank)
{
    double sums[2] = {rank->index + 1.0, 0.25};
    const struct coll_command host = {
        .op = COLL_ALL_REDUCE, .type = COLL_F64, .from = sums, .to = sums, .count = 2};
    const struct coll_command wrong = {
        .op = COLL_ALL_REDUCE, .type = COLL_F64, .from = rank->from, .to = rank->from, .count = 2};
    rank->run->count = 8;
    int rc = contract_all(rank);
    rc = rc == 0 ? submit_wait(rank->coll, &host) : rc;
    rc = rc == 0 ? contract_all(rank) : rc;
    if (rc == 0 && (sums[0] != 3 || sums[1] != 0.5)) {
        return core_err_set(-EBADMSG, "the sums are %g and %g", sums[0], sums[1]);
    }
    return rc == 0 ? submit_wait(rank->coll, &wrong) : rc;
}

static struct run two_ranks(int (*body)(struct rank *rank), int64_t limit_ns)
{
    return (struct run){.world = 2,
                        .limit_ns = limit_ns,
                        .body = body,
                        .arrange = on_card,
                        .count = 1000,
                        .type = COLL_BF16,
                        .delay = 2};
}

static void host_memory(void)
{
    struct run run = two_ranks(host_and_card, LONG_NS);
    open_cards(2, 4096);
    run_ranks(&run);
    for (unsigned r = 0; r < 2; r++) {
        check_int(run.ranks[r].rc, ==, -ENOTSUP);
        check_contains(run.ranks[r].message, "cards cannot sum fp64 over ranks");
    }
    free(run.ranks);
    close_cards(2);
}

/* ---- failures ---- */

static void fails(const char *fault, int (*body)(struct rank *rank), int rc, const char *message)
{
    struct run run = two_ranks(body, fault != NULL && rc == -ETIMEDOUT ? 300000000 : LONG_NS);
    if (fault != NULL) {
        setenv("FAKE_NCCL", fault, 1);
    }
    open_cards(2, 4096);
    run_ranks(&run);
    unsetenv("FAKE_NCCL");
    for (unsigned r = 0; r < 2; r++) {
        test_note("%s, rank %u: %s", fault != NULL ? fault : "a rank's error", r,
                  run.ranks[r].message);
        check_int(run.ranks[r].rc, ==, rc);
        check_contains(run.ranks[r].message, message);
    }
    free(run.ranks);
    close_cards(2);
}

/* Rank 1 gives up while rank 0 waits for it. */
static int gives_up(struct rank *rank)
{
    int rc = contract_all(rank);
    if (rc == 0 && rank->index == 1) {
        coll_abort(rank->coll, core_err_set(-ENOSPC, "the drive is full"));
    }
    return rc == 0 ? contract_all(rank) : rc;
}

static int differs(struct rank *rank)
{
    const struct coll_command gather = {.op = COLL_GATHER,
                                        .type = COLL_BYTE,
                                        .from = rank->from,
                                        .to = rank->results[0],
                                        .count = 100 + rank->index};
    return submit_wait(rank->coll, &gather);
}

static int sums_fast(struct rank *rank)
{
    rank->run->within = 2;
    return contract_near(rank);
}

static void a_failure_ends_all(void)
{
    fails("start:1:1", sums_fast, -EIO, "rank 1: cuda:1: ncclReduceScatter failed: unhandled");
    fails("start:0:3", sums_fast, -EIO, "rank 0: cuda:0: ncclAllReduce failed: unhandled");
    fails("remote:1:3", contract_all, -EPIPE,
          "failed: remote process exited or there was a network error: socket closed");
    fails("start:0:4", contract_all, -EIO, "rank 0: cuda:0: ncclAllGather failed: unhandled");
    fails("hang:1:2", contract_all, -ETIMEDOUT, "NCCL did not end a collective within");
    fails("absent:0:0", contract_all, -ETIMEDOUT, "NCCL did not end ncclCommInitRankConfig within");
    fails(NULL, gives_up, -ENOSPC, "rank 1: the drive is full");
    fails(NULL, differs, -EPROTO, "rank 1 calls gather of 101 bytes");
}

/* ---- ranks that are processes ---- */

static const char *environment(const char *name)
{
    return getenv(name);
}

/* Runs a rank's process; ends the process if a check fails. */
static int rank_main(void)
{
    static struct rank rank;
    struct coll_peers *peers = NULL;
    struct coll_peers_options options = {.identity = "test"};
    int rc = coll_launch_find(environment, &options.launch);
    rc = rc == 0 ? coll_peers_open(&options, &peers) : rc;
    if (rc != 0) {
        fprintf(stderr, "%s\n", core_err_message());
        return 1;
    }
    struct run run = {.world = coll_peers_world(peers),
                      .limit_ns = LONG_NS,
                      .count = COUNT_MAX,
                      .type = COLL_BF16,
                      .delay = 1};
    rank = (struct rank){.run = &run, .index = coll_peers_rank(peers)};
    scratch_bytes = 4096;
    (void)machine(CARDS);
    open_card(rank.index, run.world);
    struct coll_options coll = {
        .rank = rank.index, .world = run.world, .peers = peers, .limit_ns = LONG_NS};
    on_card(&rank, &coll);
    check_int(coll_open(&coll, &rank.coll), ==, 0);
    rank.rc = contract_all(&rank);
    snprintf(rank.message, sizeof rank.message, "%s", core_err_message());
    rank.traffic = traffic_of(rank.coll);
    coll_close(rank.coll);
    fprintf(stderr, "%s\n", rank.message);
    if (rank.rc == 0) {
        contract_check(&rank);
        contract_check_traffic(&rank);
    }
    close_card(rank.index);
    coll_peers_close(peers, 1);
    return rank.rc != 0;
}

static char self[4096];

/* Returns mpirun's status; `text` gets the output of the ranks. */
static int run_processes(unsigned world, const char *program, char *text, size_t bytes)
{
    char command[10000];
    test_mpi_begin();
    snprintf(command, sizeof command,
             "timeout 60 mpirun.openmpi --oversubscribe --bind-to none -n %u %s 2>&1", world,
             program);
    FILE *pipe = popen(command, "r");
    check_true(pipe != NULL);
    text[fread(text, 1, bytes - 1, pipe)] = '\0';
    return pclose(pipe);
}

/* Ranks in processes have the right results; a failing rank ends the others. */
static void processes(void)
{
    static char text[16384];
    char program[4200];
    snprintf(program, sizeof program, "%s --rank", self);
    int status = run_processes(3, program, text, sizeof text);
    test_note("%s", text);
    check_int(status, ==, 0);
    setenv("FAKE_NCCL", "remote:1:3", 1);
    status = run_processes(3, program, text, sizeof text);
    unsetenv("FAKE_NCCL");
    check_int(status, !=, 0);
    check_contains(text, "rank 1 on ");
    check_contains(text, ": cuda:1: ");
    check_contains(text, "failed: remote process exited");
}

/* ---- training ---- */

static const struct way {
    const char *name;
    enum plan_where weights, states;
    bool store;
} ways[] = {
    {"all in HOST", PLAN_WHERE_HOST, PLAN_WHERE_HOST, false},
    {"weights in DEVICE, states in STORE", PLAN_WHERE_DEVICE, PLAN_WHERE_STORE, true},
    {"all in STORE", PLAN_WHERE_STORE, PLAN_WHERE_STORE, true},
};

static struct run_options options_of(const struct way *way, const struct run_options *base)
{
    static char directory[512];
    static unsigned count;
    struct run_options options = *base;
    snprintf(directory, sizeof directory, "%.400s/store%u", test_directory(), count++);
    options.device = machine(CARDS);
    options.budgets.device_is_host = false;
    options.wishes.weights = way->weights;
    options.wishes.states = way->states;
    if (way->store) {
        options.io = "mem";
        options.stores[0] = (struct store_path){.directory = directory, .weight = 1};
        options.store_count = 1;
        options.budgets.store_bytes = UINT64_C(1) << 30;
    }
    return options;
}

/* Placements have equal bits, and the losses of the CPU's ranks up to rounding. */
static void trains(uint32_t world, uint32_t stage)
{
    struct case_model made;
    struct case_outcome cpu;
    struct case_outcome first;
    struct run_options base = case_options();
    if (TEST_SLOW && stage < 3) {
        test_skip("one stage is enough under a sanitizer");
    }
    base.world = world;
    base.stage = stage;
    case_model_make(&made, "llama");
    case_run_engine(&made, &base, STEPS, &cpu);
    const size_t from = TEST_COUNT(0, 1);
    for (size_t w = from; w < TEST_COUNT(sizeof ways / sizeof ways[0], 2); w++) {
        struct case_outcome cards;
        const struct run_options options = options_of(&ways[w], &base);
        if (stage < 3 && ways[w].weights == PLAN_WHERE_STORE) {
            continue; /* only the CPU device has whole weights in STORE */
        }
        case_run_engine(&made, &options, STEPS, &cards);
        for (unsigned s = 0; s < STEPS; s++) {
            test_note("%u ranks, stage %u, %s: step %u: loss %.6f, the CPU's %.6f; norm %.5f, %.5f",
                      world, stage, ways[w].name, s, cards.loss[s], cpu.loss[s], cards.norm[s],
                      cpu.norm[s]);
            check_double(fabs(cards.loss[s] - cpu.loss[s]), <=, 0.01 * cpu.loss[s]);
            check_double(fabs(cards.norm[s] - cpu.norm[s]), <=, 0.05 * cpu.norm[s]);
        }
        first = w == from ? cards : first;
        case_check_equal(&first, &cards, ways[w].name);
        check_int(fake_live(), ==, 0);
    }
    case_model_free(&made);
}

/* With NCCL's own sums, a run is near the exact one. */
static void trains_fast(void)
{
    struct case_model made;
    struct case_outcome exact;
    struct case_outcome fast;
    struct run_options base = case_options();
    if (TEST_SLOW) {
        test_skip("the plain build compares the runs");
    }
    base.world = 3;
    base.stage = 2;
    case_model_make(&made, "llama");
    struct run_options options = options_of(&ways[0], &base);
    case_run_engine(&made, &options, STEPS, &exact);
    options.fast = true;
    case_run_engine(&made, &options, STEPS, &fast);
    for (unsigned s = 0; s < STEPS; s++) {
        check_double(fabs(fast.loss[s] - exact.loss[s]), <=, 0.01 * exact.loss[s]);
        check_double(fabs(fast.norm[s] - exact.norm[s]), <=, 0.02 * exact.norm[s]);
    }
    check_true(fast.norm[0] != exact.norm[0]); /* NCCL adds in another order */
    check_uint(fast.reduce_bytes, ==, exact.reduce_bytes);
    check_int(fake_live(), ==, 0);
    case_model_free(&made);
}

static void stage_0(void)
{
    trains(2, 0);
}

static void stage_1(void)
{
    trains(2, 1);
}

static void stage_2(void)
{
    trains(3, 2);
}

static void stage_3(void)
{
    trains(2, 3);
}

/* A rank that fails in a step ends the run, and is named. */
static void a_run_ends(void)
{
    struct case_model made;
    struct case_outcome out;
    struct run_options base = case_options();
    base.world = 2;
    base.stage = 3;
    case_model_make(&made, "llama");
    const struct run_options options = options_of(&ways[0], &base);
    setenv("FAKE_NCCL", "remote:1:7", 1);
    check_int(case_try_engine(&made, &options, STEPS, &out), ==, -EPIPE);
    unsetenv("FAKE_NCCL");
    check_contains(out.message, "rank 1: cuda:1: ");
    check_contains(out.message, "failed: remote process exited");
    check_int(fake_live(), ==, 0);
    case_model_free(&made);
}

/* ---- through the public API ---- */

/* Engines find and measure cards and plan for them; wrong devices are refused. */
static void engines(void)
{
    static const struct {
        const char *device;
        uint32_t ranks;
        int rc;
        const char *message;
    } bad[] = {
        {"cuda", 5, -EINVAL, "5 ranks on this machine need a card each; it has 4 (--ranks 4)"},
        {"cuda:0,2", 3, -EINVAL, "lists 2 cards for 3 ranks of this machine"},
        {"cuda:0,2", 1, -EINVAL, "lists 2 cards for 1 rank of this machine"},
        {"cuda:3,9", 2, -ENODEV, "device cuda:9 does not exist"},
    };
    struct world world;
    double losses[2];
    world_init(&world);
    world.options.device = machine(CARDS);
    world.options.rates = TEST_SLOW ? world.options.rates : NULL;
    world.options.cache = test_path("cache");
    world.options.store_count = 0;
    world.options.weights = world.options.states = TIDE_AUTO;
    world.options.zero_stage = 3;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tide_engine *engine = NULL;
        world.options.device = bad[i].device;
        world.options.ranks = bad[i].ranks;
        check_int(tide_engine_create(NULL, &world.options, &engine), ==, bad[i].rc);
        check_contains(tide_last_error(), bad[i].message);
        check_int(fake_live(), ==, 0);
    }
    for (int way = 0; way < 2; way++) {
        world.options.device = way == 0 ? "cuda" : "cuda:3,1";
        world.options.ranks = 2;
        struct tide_engine *engine = world_engine(&world.options);
        const struct tide_batch batches[] = {world.batch, world.batch};
        struct tide_step step = {.struct_bytes = sizeof step};
        check_int(tide_engine_step(engine, batches, 2, 1e-3, &step), ==, 0);
        check_int(tide_engine_step(engine, batches, 2, 1e-3, &step), ==, 0);
        losses[way] = step.loss;
        tide_engine_destroy(engine);
        check_int(fake_live(), ==, 0);
    }
    check_double(losses[0], ==, losses[1]);
}

/* ---- training in processes ---- */

/* Trains; writes losses, norms and a hash of the weights. `processes`: NULL if ranks are
 * threads. */
static int train(struct tide_world *processes, const char *model, uint32_t ranks, uint32_t stage,
                 char *line, size_t bytes)
{
    static unsigned count;
    struct world world;
    struct tide_engine *engine = NULL;
    char folder[600];
    char file[700];
    size_t at = 0;
    world_init(&world);
    struct tide_engine_options *options = &world.options;
    options->model = model;
    options->device = machine(CARDS);
    options->store_count = 0;
    options->weights = options->states = TIDE_AUTO;
    options->zero_stage = stage;
    options->ranks = ranks;
    options->world = processes;
    int rc = tide_engine_create(NULL, options, &engine);
    for (unsigned s = 0; rc == 0 && s < STEPS; s++) {
        const struct tide_batch batches[] = {world.batch, world.batch, world.batch};
        struct tide_step step = {.struct_bytes = sizeof step};
        rc = tide_engine_step(engine, batches, ranks, 1e-3, &step);
        at += (size_t)snprintf(line + at, bytes - at, "%a %a ", step.loss, step.grad_norm);
    }
    snprintf(folder, sizeof folder, "%.500s/trained%u", test_directory(), count++);
    rc = rc == 0 ? tide_engine_save(engine, folder, 1) : rc;
    if (rc == 0) {
        static unsigned char weights[8 << 20];
        snprintf(file, sizeof file, "%s/model.safetensors", folder);
        FILE *stream = fopen(file, "r");
        const size_t length = stream != NULL ? fread(weights, 1, sizeof weights, stream) : 0;
        check_uint(length, >, 100000);
        fclose(stream);
        snprintf(line + at, bytes - at, "%016" PRIx64, core_hash(weights, length, 0));
    }
    tide_engine_destroy(engine);
    return rc;
}

/* The first process of a world trains, the others serve. */
static int train_main(const char *model, const char *stage)
{
    char line[512] = "";
    int code = 1;
    struct tide_world *world = NULL;
    const struct tide_world_options options = {.struct_bytes = sizeof options, .cards = 1};
    (void)machine(CARDS);
    int rc = tide_world_open(&options, &world);
    if (rc == 0 && world != NULL) {
        struct tide_world_info info = {.struct_bytes = sizeof info};
        (void)tide_world_describe(world, &info);
        rc = info.rank > 0
                 ? tide_world_follow(world, NULL, &code)
                 : train(world, model, info.ranks, (uint32_t)atoi(stage), line, sizeof line);
        code = info.rank == 0 ? rc != 0 : code;
    }
    if (rc != 0) {
        fprintf(stderr, "%s\n", tide_last_error());
    } else if (line[0] != '\0') {
        printf("computed %s over %s\n", line, getenv("TORCHELASTIC_RUN_ID") ? "TCP" : "MPI");
        fflush(stdout);
    }
    tide_world_close(world, code);
    return code;
}

/* Checks that processes print the results of threads. */
static void check_processes(const struct world *world, uint32_t ranks, uint32_t stage, bool mpi)
{
    static char text[16384];
    char line[512] = "";
    char command[9000];
    if (train(NULL, world->model, ranks, stage, line, sizeof line) != 0) {
        test_fail(__FILE__, __LINE__, "%s", tide_last_error());
    }
    snprintf(command, sizeof command, "%s --train '%s' %u", self, world->model, stage);
    const int status = mpi ? run_processes(ranks, command, text, sizeof text)
                           : test_torchrun(command, ranks, NULL, text, sizeof text);
    if (status != 0) {
        test_note("%s", text);
    }
    check_int(status, ==, 0);
    check_contains(text, line);
}

/* Training in processes, over MPI or TCP, has the bits of training with threads. */
static void trains_over_mpi(void)
{
    struct world world;
    world_init(&world);
    check_processes(&world, 2, 1, true);
}

static void trains_under_torchrun(void)
{
    struct world world;
    world_init(&world);
    check_processes(&world, 3, 3, false);
}

/* A card that fails in a step ends torchrun's processes, and is named. */
static void ends_under_torchrun(void)
{
    static char text[16384];
    struct world world;
    char command[9000];
    world_init(&world);
    snprintf(command, sizeof command, "%s --train '%s' 3", self, world.model);
    setenv("FAKE_NCCL", "remote:1:7", 1);
    const int status = test_torchrun(command, 2, NULL, text, sizeof text);
    unsetenv("FAKE_NCCL");
    check_int(status, !=, 0);
    check_contains(text, "rank 1 on ");
    check_contains(text, ": cuda:1: ");
    check_contains(text, "failed: remote process exited");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"engines", engines},
        {"each_rank_has_a_card", each_rank_has_a_card},
        {"results", results},
        {"uneven_borders", uneven_borders},
        {"fast_sums", fast_sums},
        {"host_memory", host_memory},
        {"a_failure_ends_all", a_failure_ends_all},
        {"processes", processes},
        {"trains_fast", trains_fast},
        {"stage_0", stage_0},
        {"stage_1", stage_1},
        {"stage_2", stage_2},
        {"stage_3", stage_3},
        {"a_run_ends", a_run_ends},
        {"trains_over_mpi", trains_over_mpi},
        {"trains_under_torchrun", trains_under_torchrun},
        {"ends_under_torchrun", ends_under_torchrun},
    };
    if (argc == 4 && strcmp(argv[1], "--train") == 0) {
        return train_main(argv[2], argv[3]);
    }
    if (argc == 2 && strcmp(argv[1], "--rank") == 0) {
        return rank_main();
    }
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
