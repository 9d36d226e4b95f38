/* world.c: the processes of a run, for an application. The caller's thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/coll/coll.h"
#include "offload/api/abi.h"
#include "offload/api/build.h"
#include "offload/api/context.h"
#include "offload/api/world_parts.h"
#include "offload/run/remote.h"

/* Twice this time must fit in 63 bits of nanoseconds. */
enum { SILENCE_SECONDS_MAX = 1000000000 };
static const uint64_t arguments_bytes_max = UINT64_C(1) << 30;

static const char *environment(const char *name)
{
    return getenv(name);
}

static bool asked_to_stop(void *user)
{
    const struct tide_world *world = user;
    return world->given.stop != NULL && world->given.stop(world->given.user) != 0;
}

/* torchrun does not connect processes: NCCL connects their GPUs, and other data goes over TCP. */
static int check_torchrun(struct tide_world *world)
{
    struct coll_launch *launch = &world->launch;
    const char *given = world->given.rendezvous;
    if (!world->given.cards) {
        return core_err_set(-ENOTSUP,
                            "torchrun started %u processes, but does not connect them on the CPU; "
                            "use mpirun -n %u instead, or a card for each with --dev cuda",
                            launch->world, launch->world);
    }
    const int rc = coll_nccl_find();
    if (rc != 0) {
        return core_err_prefix(rc,
                               "torchrun started %u processes; mpirun -n %u needs no NCCL on "
                               "the CPU",
                               launch->world, launch->world);
    }
    if (given != NULL && strlen(given) >= sizeof launch->rendezvous) {
        return core_err_set(-EINVAL, "rendezvous (--rendezvous) is longer than %zu bytes",
                            sizeof launch->rendezvous - 1);
    }
    if (given != NULL) {
        snprintf(launch->rendezvous, sizeof launch->rendezvous, "%s", given);
    }
    return launch->rendezvous[0] != '\0'
               ? 0
               : core_err_set(-EINVAL,
                              "torchrun's processes have no place to meet: MASTER_ADDR and "
                              "MASTER_PORT do not name a host and a port below 65535; give all "
                              "processes --rendezvous HOST:PORT");
}

static int open_peers(struct tide_world *world)
{
    char identity[128];
    const struct coll_launch *launch = &world->launch;
    const int rc = launch->torchrun ? check_torchrun(world) : 0;
    if (rc != 0) {
        return rc;
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

/* ---- arguments ---- */

static uint64_t argument_bytes(const struct tide_world_options *given)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < given->argument_count; i++) {
        bytes += strlen(given->arguments[i]) + 1;
    }
    return bytes;
}

static int check_arguments(const struct tide_world_options *given)
{
    if (given->argument_count > 0 && given->arguments == NULL) {
        return core_err_set(-EINVAL, "argument_count is %" PRIu64 ", but arguments is NULL",
                            given->argument_count);
    }
    for (uint64_t i = 0; i < given->argument_count; i++) {
        if (given->arguments[i] == NULL) {
            return core_err_set(-EINVAL, "arguments[%" PRIu64 "] is NULL", i);
        }
    }
    const uint64_t bytes = argument_bytes(given);
    return bytes < arguments_bytes_max
               ? 0
               : core_err_set(-EINVAL,
                              "the arguments have %" PRIu64 " bytes; expected less than %" PRIu64,
                              bytes, arguments_bytes_max);
}

static int check_options(const struct tide_world_options *given)
{
    if (given->silence_seconds > SILENCE_SECONDS_MAX) {
        return core_err_set(-EINVAL, "silence_seconds is %" PRIu64 "; expected 0 to %d",
                            given->silence_seconds, SILENCE_SECONDS_MAX);
    }
    return check_arguments(given);
}

static const char *own_argument(const struct tide_world *world, uint64_t index)
{
    return index < world->given.argument_count ? world->given.arguments[index] : NULL;
}

static int send_arguments(const struct tide_world *world)
{
    const uint64_t bytes = argument_bytes(&world->given);
    char *texts = malloc(bytes + 1);
    char *at = texts;
    if (texts == NULL) {
        return core_err_set(-ENOMEM, "no memory for the arguments of a process");
    }
    for (uint64_t i = 0; i < world->given.argument_count; i++) {
        at = stpcpy(at, world->given.arguments[i]) + 1;
    }
    *at = '\0'; /* one byte more, so that no transfer is empty */
    int rc = coll_peers_send(world->peers, 0, &bytes, sizeof bytes);
    if (rc == 0) {
        rc = coll_peers_send(world->peers, 0, texts, bytes + 1);
    }
    free(texts);
    return rc;
}

/* `own`, `other` NULL: there is no such argument. `before`: the argument before. */
static void describe_difference(struct tide_world *world, unsigned rank, const char *before,
                                const char *own, const char *other)
{
    const char *host = coll_peers_at(world->peers, rank)->host;
    char *to = world->difference;
    const size_t room = sizeof world->difference;
    if (own == NULL || other == NULL) {
        snprintf(to, room, "%.100s was given to rank %s%u on %s%s", own != NULL ? own : other,
                 own != NULL ? "0 but not to rank " : "", rank, host,
                 own != NULL ? "" : " but not to rank 0");
        return;
    }
    const size_t name = strcspn(own, "=");
    const bool flags = strncmp(own, "--", 2) == 0 || strncmp(other, "--", 2) == 0;
    if (!flags && before != NULL && strncmp(before, "--", 2) == 0) {
        snprintf(to, room, "%.60s is %.100s for rank %u on %s, but %.100s for rank 0", before,
                 other, rank, host, own);
    } else if (own[name] == '=' && strncmp(own, other, name + 1) == 0) {
        snprintf(to, room, "%.*s is %.100s for rank %u on %s, but %.100s for rank 0",
                 (int)(name < 60 ? name : 60), own, other + name + 1, rank, host, own + name + 1);
    } else {
        snprintf(to, room, "rank %u on %s was started with %.100s where rank 0 has %.100s", rank,
                 host, other, own);
    }
}

/* Called in the first process. */
static void find_difference(struct tide_world *world, unsigned rank, const char *texts,
                            const char *end)
{
    const char *before = NULL;
    for (uint64_t i = 0; world->difference[0] == '\0'; i++) {
        const char *own = own_argument(world, i);
        const char *other = texts < end ? texts : NULL;
        if (own == NULL && other == NULL) {
            return;
        }
        if (own == NULL || other == NULL || strcmp(own, other) != 0) {
            describe_difference(world, rank, before, own, other);
        }
        before = own;
        texts += other != NULL ? strlen(other) + 1 : 0;
    }
}

static int receive_arguments(struct tide_world *world, unsigned rank)
{
    uint64_t bytes = 0;
    size_t got = 0;
    int rc = coll_peers_receive(world->peers, rank, &bytes, sizeof bytes, &got);
    if (rc == 0 && bytes >= arguments_bytes_max) {
        rc = core_err_set(
            -EPROTO, "the arguments of rank %u have %" PRIu64 " bytes; expected less than %" PRIu64,
            rank, bytes, arguments_bytes_max);
    }
    char *texts = rc == 0 ? calloc(1, bytes + 1) : NULL;
    if (rc == 0 && texts == NULL) {
        rc = core_err_set(-ENOMEM, "no memory for the arguments of rank %u", rank);
    }
    if (rc == 0) {
        rc = coll_peers_receive(world->peers, rank, texts, bytes + 1, &got);
    }
    if (rc == 0) {
        texts[bytes] = '\0';
        find_difference(world, rank, texts, texts + bytes);
    }
    free(texts);
    return rc;
}

static int compare_arguments(struct tide_world *world)
{
    int rc = 0;
    if (coll_peers_rank(world->peers) > 0) {
        return send_arguments(world);
    }
    for (unsigned r = 1; rc == 0 && r < coll_peers_world(world->peers); r++) {
        rc = receive_arguments(world, r);
    }
    return rc;
}

static int open_world(const struct tide_world_options *options, struct tide_world **out)
{
    struct tide_world made = {.peers = NULL};
    int rc = options != NULL
                 ? abi_struct_read("tide_world_options", options, &made.given, sizeof made.given)
                 : 0;
    if (rc == 0) {
        rc = check_options(&made.given);
    }
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
    const struct context_before before = context_enter(made.given.context);
    rc = open_peers(world);
    context_leave(&before);
    if (rc != 0) {
        free(world);
        return rc;
    }
    rc = compare_arguments(world);
    if (rc != 0) {
        (void)coll_peers_fail(world->peers, rc); /* the next call reports it */
    }
    world->given.arguments = NULL; /* the caller may free them now */
    world->given.argument_count = 0;
    *out = world;
    return 0;
}

int tide_world_open(const struct tide_world_options *options, struct tide_world **out)
{
    const struct context_before before = context_enter(NULL);
    int rc = abi_pointer_check("`out`", out);
    if (rc == 0) {
        rc = open_world(options, out);
    }
    context_leave(&before);
    return rc;
}

unsigned tide_world_rank(void)
{
    return coll_launch_rank(environment);
}

/* ---- hosts ---- */

unsigned world_ranks_per_host(const struct coll_peers *peers)
{
    unsigned most = 0;
    for (unsigned r = 0; r < coll_peers_world(peers); r++) {
        struct coll_host host;
        coll_peers_host(peers, r, &host);
        most = host.ranks > most ? host.ranks : most;
    }
    return most;
}

unsigned world_ranks_of_host(const struct coll_peers *peers)
{
    struct coll_host host;
    coll_peers_host(peers, coll_peers_rank(peers), &host);
    return host.ranks;
}

unsigned world_threads(const struct coll_peers *peers)
{
    unsigned least = CORE_CPUS_MAX;
    for (unsigned r = 0; r < coll_peers_world(peers); r++) {
        struct coll_host host;
        coll_peers_host(peers, r, &host);
        const unsigned each = core_cpus_count(&host.cpus) / host.ranks;
        least = each < least ? each : least;
    }
    return least > 0 ? least : 1;
}

double world_crowding(const struct coll_peers *peers, unsigned threads)
{
    double most = 1;
    for (unsigned r = 0; r < coll_peers_world(peers); r++) {
        struct coll_host host;
        coll_peers_host(peers, r, &host);
        const unsigned own = core_cpus_count(&coll_peers_at(peers, r)->cpus);
        const unsigned all = core_cpus_count(&host.cpus);
        const double alone = threads < own || own == 0 ? threads : own;
        const double together = alone * host.ranks / (all > 0 ? all : 1);
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
            return; /* one warning is enough */
        }
    }
}

int tide_world_describe(const struct tide_world *world, struct tide_world_info *out)
{
    int rc = abi_pointer_check("the world", world);
    if (rc != 0) {
        return rc;
    }
    const struct coll_peers *peers = world->peers;
    struct coll_host host;
    coll_peers_host(peers, coll_peers_rank(peers), &host);
    struct tide_world_info info = {.rank = coll_peers_rank(peers),
                                   .ranks = coll_peers_world(peers),
                                   .ranks_per_host = world_ranks_per_host(peers),
                                   .first_on_host = host.index == 0,
                                   .launcher = world->launch.launcher,
                                   .library = coll_peers_library(peers),
                                   .difference = world->difference[0] != '\0' ? world->difference
                                                                              : NULL};
    for (unsigned r = 0; r < info.ranks; r++) {
        coll_peers_host(peers, r, &host);
        info.hosts += host.first == r;
    }
    return abi_struct_write("tide_world_info", &info, sizeof info, out);
}

/* ---- the end of a world ---- */

static int follow(struct tide_world *world, int *code)
{
    world->follows = true;
    int rc =
        coll_peers_rank(world->peers) > 0
            ? run_follow(world->peers, code)
            : core_err_set(
                  -EINVAL,
                  "the first process creates the engine; only the others call tide_world_follow");
    if (rc != 0 && coll_peers_rank(world->peers) > 0) {
        /* otherwise the first process would wait for this one */
        rc = coll_peers_fail(world->peers, rc);
    }
    if (rc != 0 && coll_peers_told(world->peers)) {
        *code = 1; /* the first process reports the reason */
        rc = 0;
    }
    return rc;
}

int tide_world_follow(struct tide_world *world, struct tide_context *context, int *code)
{
    const struct context_before before = context_enter(context);
    int rc = abi_pointer_check("the world", world);
    if (rc == 0) {
        rc = abi_pointer_check("`code`", code);
    }
    if (rc == 0) {
        rc = follow(world, code);
    }
    context_leave(&before);
    return rc;
}

int tide_world_stopping(const struct tide_world *world)
{
    return world != NULL && coll_peers_stopping(world->peers);
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
    /* otherwise the others would wait for the answers of this process */
    if (coll_peers_rank(peers) > 0 && !world->follows) {
        (void)coll_peers_fail(
            peers,
            core_err_set(-ECANCELED, "rank %u ended with code %d before it served the engines",
                         coll_peers_rank(peers), code));
    }
    coll_peers_close(peers, code);
    free(world);
}
