/* world.c: the processes of a run, for an application. The caller's thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "offload/api/abi.h"
#include "offload/api/build.h"
#include "offload/api/context.h"
#include "offload/api/world_parts.h"
#include "offload/run/remote.h"

static const char *environment(const char *name)
{
    return getenv(name);
}

static bool asked_to_stop(void *user)
{
    const struct tide_world *world = user;
    return world->given.stop != NULL && world->given.stop(world->given.user) != 0;
}

static int open_peers(struct tide_world *world)
{
    char identity[128];
    const struct coll_launch *launch = &world->launch;
    if (launch->torchrun) {
        return core_err_set(
            -ENOTSUP,
            "torchrun started %u processes, but does not connect them on the CPU; use "
            "mpirun -n %u instead",
            launch->world, launch->world);
    }
    snprintf(identity, sizeof identity, "tide %s (%s, %s)", api_build_version, api_build_commit,
             api_build_compiler);
    const struct coll_peers_options options = {.launch = *launch,
                                               .identity = identity,
                                               .silence_ns = (int64_t)world->given.silence_seconds *
                                                             1000000000,
                                               .stop = asked_to_stop,
                                               .user = world};
    return coll_peers_open(&options, &world->peers);
}

static int open_world(const struct tide_world_options *options, struct tide_world **out)
{
    struct tide_world made = {.peers = NULL};
    int rc = options != NULL
                 ? abi_struct_read("tide_world_options", options, &made.given, sizeof made.given)
                 : 0;
    if (rc != 0) {
        return rc;
    }
    rc = coll_launch_find(environment, &made.launch);
    if (rc != 0) {
        return rc;
    }
    if (made.launch.world == 1) {
        *out = NULL;
        return 0;
    }
    struct tide_world *world = malloc(sizeof *world);
    if (world == NULL) {
        return core_err_set(-ENOMEM, "no memory for a world");
    }
    *world = made;
    rc = open_peers(world);
    if (rc != 0) {
        free(world);
        return rc;
    }
    *out = world;
    return 0;
}

int tide_world_open(const struct tide_world_options *options, struct tide_world **out)
{
    const struct context_before before = context_enter(NULL);
    const int rc = open_world(options, out);
    context_leave(&before);
    return rc;
}

unsigned tide_world_rank(void)
{
    return coll_launch_rank(environment);
}

/* ---- hosts ---- */

static bool same_host(const struct coll_peers *peers, unsigned a, unsigned b)
{
    return strcmp(coll_peers_at(peers, a)->host, coll_peers_at(peers, b)->host) == 0;
}

/* Whether a rank is the first one on its host. */
static bool is_first(const struct coll_peers *peers, unsigned rank)
{
    unsigned r = 0;
    while (!same_host(peers, r, rank)) {
        r++;
    }
    return r == rank;
}

/* The ranks on a rank's host, and the processors that they may use together. */
static unsigned count_host(const struct coll_peers *peers, unsigned rank, struct core_cpus *cpus)
{
    unsigned count = 0;
    *cpus = (struct core_cpus){{0}};
    for (unsigned r = 0; r < coll_peers_world(peers); r++) {
        if (same_host(peers, r, rank)) {
            const struct core_cpus *more = &coll_peers_at(peers, r)->cpus;
            for (size_t i = 0; i < sizeof cpus->bits / sizeof cpus->bits[0]; i++) {
                cpus->bits[i] |= more->bits[i];
            }
            count++;
        }
    }
    return count;
}

unsigned world_ranks_per_host(const struct coll_peers *peers)
{
    struct core_cpus cpus;
    unsigned most = 0;
    for (unsigned r = 0; r < coll_peers_world(peers); r++) {
        const unsigned count = is_first(peers, r) ? count_host(peers, r, &cpus) : 0;
        most = count > most ? count : most;
    }
    return most;
}

unsigned world_ranks_of_host(const struct coll_peers *peers)
{
    struct core_cpus cpus;
    return count_host(peers, coll_peers_rank(peers), &cpus);
}

unsigned world_threads(const struct coll_peers *peers)
{
    unsigned least = CORE_CPUS_MAX;
    for (unsigned r = 0; r < coll_peers_world(peers); r++) {
        struct core_cpus cpus;
        const unsigned ranks = count_host(peers, r, &cpus);
        const unsigned each = core_cpus_count(&cpus) / ranks;
        least = each < least ? each : least;
    }
    return least > 0 ? least : 1;
}

double world_crowding(const struct coll_peers *peers, unsigned threads)
{
    double most = 1;
    for (unsigned r = 0; r < coll_peers_world(peers); r++) {
        struct core_cpus cpus;
        const unsigned ranks = count_host(peers, r, &cpus);
        const unsigned own = core_cpus_count(&coll_peers_at(peers, r)->cpus);
        const unsigned all = core_cpus_count(&cpus);
        const double alone = threads < own || own == 0 ? threads : own;
        const double together = alone * ranks / (all > 0 ? all : 1);
        most = together > most ? together : most;
    }
    return most;
}

void world_check_binding(const struct coll_peers *peers, unsigned threads)
{
    for (unsigned r = 0; r < coll_peers_world(peers); r++) {
        const unsigned count = core_cpus_count(&coll_peers_at(peers, r)->cpus);
        if (count > 0 && count < threads) {
            core_log(CORE_LOG_WARN,
                     "rank %u on %s has %u threads, but its launcher binds it to %u processor%s: "
                     "mpirun --bind-to none (or a wider binding) lets it use them",
                     r, coll_peers_at(peers, r)->host, threads, count, count == 1 ? "" : "s");
            return; /* the others are bound alike */
        }
    }
}

int tide_world_describe(const struct tide_world *world, struct tide_world_info *out)
{
    const struct coll_peers *peers = world->peers;
    struct tide_world_info info = {.rank = coll_peers_rank(peers),
                                   .ranks = coll_peers_world(peers),
                                   .ranks_per_host = world_ranks_per_host(peers),
                                   .first_on_host = is_first(peers, coll_peers_rank(peers)),
                                   .launcher = world->launch.launcher,
                                   .library = coll_peers_library(peers)};
    for (unsigned r = 0; r < info.ranks; r++) {
        info.hosts += is_first(peers, r);
    }
    return abi_struct_write("tide_world_info", &info, sizeof info, out);
}

/* ---- the end of a world ---- */

int tide_world_follow(struct tide_world *world, struct tide_context *context, int *code)
{
    const struct context_before before = context_enter(context);
    world->follows = true;
    int rc =
        coll_peers_rank(world->peers) > 0
            ? run_follow(world->peers, code)
            : core_err_set(
                  -EINVAL,
                  "the first process creates the engine; only the others call tide_world_follow");
    if (rc != 0 && coll_peers_rank(world->peers) > 0) {
        rc = coll_peers_fail(world->peers, rc); /* or the first process would wait for this one */
    }
    if (rc != 0 && coll_peers_told(world->peers)) {
        *code = 1; /* the first process says why */
        rc = 0;
    }
    context_leave(&before);
    return rc;
}

int tide_world_stopping(const struct tide_world *world)
{
    return coll_peers_stopping(world->peers);
}

void tide_world_close(struct tide_world *world, int code)
{
    if (world == NULL) {
        return;
    }
    struct coll_peers *peers = world->peers;
    for (unsigned r = 1; coll_peers_rank(peers) == 0 && r < coll_peers_world(peers); r++) {
        (void)run_remote_call(peers, r, RUN_CALL_END, &code, sizeof code);
    }
    if (coll_peers_rank(peers) > 0 && !world->follows) { /* the others would wait for its answers */
        (void)coll_peers_fail(
            peers,
            core_err_set(-ECANCELED, "rank %u ended with code %d before it served the engines",
                         coll_peers_rank(peers), code));
    }
    coll_peers_close(peers, code);
    free(world);
}
