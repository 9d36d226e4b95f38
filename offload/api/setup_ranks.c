/* setup_ranks.c: the ranks of a run, and their exchange of weights and gradients. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/coll/coll.h"
#include "core/dev/dev.h"
#include "offload/api/setup_parts.h"
#include "offload/api/world_parts.h"
#include "offload/run/checkpoint.h"
#include "offload/run/machine.h"
#include "offload/run/measure.h"
#include "offload/run/remote.h"

/* With a GPU and at least four processors, leaves two to the GPU's threads, because a team is as
 * slow as its slowest member. */
static unsigned processors(const char *device)
{
    enum { CARD_THREADS = 2, TEAM_MIN = 2 };
    struct core_cpus cpus;
    const unsigned all = core_cpus_allowed(&cpus) == 0 ? core_cpus_count(&cpus) : 1;
    const bool card = device != NULL && !dev_is_cpu(device);
    return card && all >= CARD_THREADS + TEAM_MIN ? all - CARD_THREADS : all;
}

/* Threads of one rank. A resumed run keeps the checkpoint's number if possible, because results
 * depend on that number. */
static unsigned threads_of(const struct setup *setup)
{
    const struct tide_engine_options *given = &setup->given;
    const uint32_t local = setup->options.local;
    const unsigned all = given->threads > 0       ? given->threads
                         : given->machine != NULL ? (unsigned)setup->machine.cores
                         : setup->peers != NULL   ? world_threads(setup->peers) * local
                                                  : processors(given->device);
    const unsigned each = all / local > 0 ? all / local : 1;
    struct run_checkpoint_shape shape = {.threads = 0};
    if (given->threads == 0 && given->resume != NULL) {
        shape = run_checkpoint_shape(given->resume);
    }
    const unsigned before = shape.ranks == setup->options.world ? shape.threads : 0;
    return before > 0 && (before == 1 || before * local <= all) ? before : each;
}

/* With several processes, a rank is a process. */
static int count_ranks(struct setup *setup)
{
    const struct tide_engine_options *given = &setup->given;
    setup->peers = given->world != NULL ? given->world->peers : NULL;
    setup->options.world = setup->options.local = given->ranks > 0 ? given->ranks : 1;
    if (setup->peers == NULL) {
        return 0;
    }
    const unsigned world = coll_peers_world(setup->peers);
    if (given->ranks > 1 && given->ranks != world) {
        return core_err_set(-EINVAL, "%u ranks were requested, but %s started %u process%s",
                            given->ranks, given->world->launch.launcher, world,
                            world == 1 ? "" : "es");
    }
    setup->options.world = world;
    setup->options.local = world_ranks_per_host(setup->peers);
    /* with several processes, states are read out for a checkpoint instead */
    setup->options.wishes.saves = false;
    return 0;
}

static int check_cards(const struct setup *setup)
{
    const struct run_options *options = &setup->options;
    char first[DEV_NAME_BYTES];
    if (setup->given.machine != NULL || dev_is_cpu(options->device) ||
        (options->world == 1 && strchr(options->device, ',') == NULL)) {
        return 0;
    }
    const unsigned ranks = setup->peers != NULL ? world_ranks_of_host(setup->peers)
                                                : options->world;
    const int rc = dev_name_of_rank(options->device, 0, ranks, first);
    return rc != 0 || options->world == 1 ? rc : coll_nccl_find();
}

int setup_measure_peers(struct setup *setup)
{
    static const uint64_t bytes_least = UINT64_C(64) << 10;
    struct run_options *options = &setup->options;
    const uint64_t bytes_most = (UINT64_C(64) << 20) / options->world;
    struct plan_rates rates = {.coll_bytes = 0};
    const uint64_t share = run_measure_budget_bytes(options) / 16;
    struct run_remote_measure with = {.bytes = share > bytes_most    ? bytes_most
                                               : share > bytes_least ? share
                                                                     : bytes_least,
                                      .within = options->within};
    int rc = run_remote_measure(setup->peers, &with, &rates);
    if (rc == 0) {
        options->coll_bytes = rates.coll_bytes;
        options->within_bytes = rates.within_bytes;
        core_log(CORE_LOG_INFO,
                 "ranks receive %.3g GB/s from each other, measured between processes with %.3g MB "
                 "of each",
                 rates.coll_bytes / 1e9, (double)with.bytes / 1e6);
    }
    return rc;
}

static int read_machine(struct setup *setup)
{
    const struct tide_engine_options *given = &setup->given;
    struct run_options *options = &setup->options;
    const uint64_t nodes = given->nodes > 0 ? given->nodes : 1;
    int rc = run_machine_read(given->machine, &setup->machine);
    if (rc != 0) {
        return rc;
    }
    if (options->world % nodes != 0) {
        return core_err_set(-EINVAL,
                            "%" PRIu32 " ranks cannot be spread evenly over %" PRIu64 " nodes",
                            options->world, nodes);
    }
    options->device = setup->machine.card ? "cuda" : "cpu";
    options->local = (uint32_t)(options->world / nodes);
    if (setup->machine.card && options->local > setup->machine.devices) {
        return core_err_set(-EINVAL,
                            "%" PRIu32
                            " ranks per node are too many: %s has %g GPUs, and each rank needs one",
                            options->local, given->machine, setup->machine.devices);
    }
    return nodes > 1 && setup->machine.between_bytes == 0
               ? core_err_set(-EINVAL,
                              "%" PRIu64 " nodes; %s has no between_bytes_per_second, the rate of "
                              "its network",
                              nodes, given->machine)
               : 0;
}

/* Rates are measured while one rank runs alone, but ranks share the machine. */
static void share_machine(struct setup *setup)
{
    struct run_options *options = &setup->options;
    if (setup->given.machine != NULL) {
        return; /* the file's rates are already those of one rank */
    }
    options->drive_ranks = options->local;
    if (setup->peers != NULL) {
        world_check_binding(setup->peers, options->threads);
        options->crowding = world_crowding(setup->peers, options->threads);
    } else {
        const double threads = (double)options->local * options->threads;
        options->crowding = threads / processors(setup->given.device);
    }
}

static int choose_gather(struct setup *setup)
{
    struct run_options *options = &setup->options;
    if (setup->given.gather == TIDE_GATHER_EXACT) {
        return 0;
    }
    if (!dev_is_cpu(options->device)) {
        return core_err_set(-ENOTSUP, "gathering weights in 8 bits needs the CPU device");
    }
    options->packs = options->stage == 3 && options->type != KERN_F32;
    if (options->packs) {
        core_log(CORE_LOG_INFO,
                 "ranks gather weights in 8 bits, so results differ from exact ones");
    } else {
        core_log(CORE_LOG_WARN, "gathering weights in 8 bits (--gather int8) has no effect: it "
                                "needs several ranks, ZeRO stage 3 and "
                                "16-bit weights");
    }
    return 0;
}

/* Finds the first rank whose host differs from that of its group's first rank. */
static bool find_stray(const struct setup *setup, uint32_t within, uint32_t *stray)
{
    for (uint32_t r = 0; setup->peers != NULL && r < setup->options.world; r++) {
        const char *first = coll_peers_at(setup->peers, r / within * within)->host;
        if (strcmp(first, coll_peers_at(setup->peers, r)->host) != 0) {
            *stray = r;
            return true;
        }
    }
    return false;
}

static void check_neighbours(const struct setup *setup, uint32_t within)
{
    uint32_t r;
    if (find_stray(setup, within, &r)) {
        const uint32_t first = r / within * within;
        core_log(CORE_LOG_WARN,
                 "groups of %u ranks have ranks of several hosts: rank %u is on %s and rank %u on "
                 "%s; start those of a host one after the other (mpirun --map-by slot)",
                 within, first, coll_peers_at(setup->peers, first)->host, r,
                 coll_peers_at(setup->peers, r)->host);
    }
}

static int check_nodes(const struct setup *setup)
{
    const uint32_t world = setup->options.world;
    const uint32_t local = setup->options.local;
    uint32_t r;
    if (world % local != 0) {
        return core_err_set(-EINVAL,
                            "adding gradients inside nodes first (--reduce fast) needs the same "
                            "number of ranks on each host; there are %u ranks, and up to %u on one "
                            "host",
                            world, local);
    }
    if (find_stray(setup, local, &r)) {
        const uint32_t first = r / local * local;
        return core_err_set(
            -EINVAL,
            "adding gradients inside nodes first (--reduce fast) needs the same number of ranks on "
            "each host, one after the other; of ranks %u to %u, rank %u is on %s and rank %u on %s "
            "(mpirun --map-by slot)",
            first, first + local - 1, first, coll_peers_at(setup->peers, first)->host, r,
            coll_peers_at(setup->peers, r)->host);
    }
    return 0;
}

/* On the CPU, the ranks of a node add gradients first; on GPUs, NCCL adds all. */
static int choose_fast(struct setup *setup)
{
    struct run_options *options = &setup->options;
    const bool card = !dev_is_cpu(options->device);
    const bool nodes = options->local > 1 && options->local < options->world;
    const int rc = nodes ? check_nodes(setup) : 0;
    if (rc != 0) {
        return rc;
    }
    options->fast = options->world > 1 && (card || nodes);
    if (!options->fast) {
        core_log(CORE_LOG_WARN,
                 "adding gradients inside nodes first (--reduce fast) has no effect: on the CPU it "
                 "needs several nodes with several ranks each");
        return 0;
    }
    core_log(CORE_LOG_INFO, "reduce fast: %s, so results differ from exact ones",
             card ? "NCCL adds gradients in an order of its own"
                  : "the ranks of each node add their gradients first, and round the sums");
    return 0;
}

static int choose_reduce(struct setup *setup)
{
    struct run_options *options = &setup->options;
    if (setup->given.reduce == TIDE_REDUCE_EXACT) {
        return 0;
    }
    if (setup->given.reduce == TIDE_REDUCE_FAST) {
        return choose_fast(setup);
    }
    if (!dev_is_cpu(options->device)) {
        return core_err_set(-ENOTSUP, "reducing gradients in 4 bits needs the CPU device");
    }
    options->codes = options->stage > 0;
    if (options->codes) {
        core_log(CORE_LOG_INFO,
                 "ranks reduce gradients in 4 bits, so results differ from exact ones");
    } else {
        core_log(CORE_LOG_WARN, "reducing gradients in 4 bits (--reduce int4) has no effect: it "
                                "needs several ranks and ZeRO "
                                "stage 1, 2 or 3");
    }
    return 0;
}

/* A group of ranks gathers weights from its own copy. */
static int choose_within(struct setup *setup)
{
    struct run_options *options = &setup->options;
    const uint64_t within = setup->given.gather_within;
    if (within <= 1) {
        return 0;
    }
    if (!dev_is_cpu(options->device)) {
        return core_err_set(-ENOTSUP,
                            "gathering weights within groups of ranks needs the CPU device");
    }
    if (options->stage != 3 || within == options->world) {
        core_log(CORE_LOG_WARN,
                 "gathering within groups of %" PRIu64
                 " ranks (--gather-within) has no effect: it needs more ranks than that, and ZeRO "
                 "stage 3",
                 within);
        return 0;
    }
    if (within > options->world || options->world % within != 0) {
        return core_err_set(
            -EINVAL,
            "%u ranks cannot be divided into groups of %" PRIu64
            ": gather_within (--gather-within, zero_hpz_partition_size) takes a divisor of the "
            "number of ranks",
            options->world, within);
    }
    options->within = (uint32_t)within;
    check_neighbours(setup, options->within);
    return 0;
}

int setup_init_ranks(struct setup *setup, bool weights)
{
    int rc = count_ranks(setup);
    if (rc == 0 && setup->given.machine != NULL) {
        rc = read_machine(setup);
    }
    if (rc == 0 && weights) {
        rc = check_cards(setup);
    }
    if (rc != 0) {
        return rc;
    }
    setup->options.stage = setup->options.world > 1 ? setup->given.zero_stage : 0;
    rc = choose_gather(setup);
    if (rc == 0) {
        rc = choose_reduce(setup);
    }
    if (rc == 0) {
        rc = choose_within(setup);
    }
    if (rc == 0) {
        setup->options.threads = threads_of(setup);
        share_machine(setup);
    }
    return rc;
}
