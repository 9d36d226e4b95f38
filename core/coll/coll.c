/* coll.c: argument checks, the registry of back ends, and the queue. */
#include "core/coll/coll.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/coll/backend.h"
#include "core/coll/codes.h"
#include "core/dev/dev.h"

static const int64_t LIMIT_NS_DEFAULT = 600000000000;

#if !HAVE_NCCL
int coll_nccl_find(void)
{
    return core_err_set(-ENOTSUP,
                        "this build has no ranks over NCCL: nccl.h or CUDA was not found; "
                        "install NCCL's header and build again with -Dnccl=enabled");
}
#endif

static const struct kind {
    const char *name;
    const struct coll_backend *backend; /* NULL: not built in */
} kinds[] = {
    {"self", &coll_backend_self},
    {"local", &coll_backend_local},
    {"processes", &coll_backend_processes},
#if HAVE_NCCL
    {"nccl", &coll_backend_nccl},
#else
    {"nccl", NULL},
#endif
};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

const char *coll_kind_name(unsigned index)
{
    return index < KIND_COUNT ? kinds[index].name : NULL;
}

bool coll_kind_built(unsigned index)
{
    if (index >= KIND_COUNT || kinds[index].backend == NULL) {
        return false;
    }
    return strcmp(kinds[index].name, "nccl") != 0 || coll_nccl_find() == 0;
}

/* ---- Opening ---- */

static int find_kind(const char *name, const struct coll_backend **out)
{
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            if (kinds[i].backend == NULL) {
                return coll_nccl_find();
            }
            *out = kinds[i].backend;
            return 0;
        }
    }
    return core_err_set(
        -EINVAL, "unknown way to connect ranks: \"%s\" (expected self, local, processes or nccl)",
        name);
}

int coll_open(const struct coll_options *options, struct coll **out)
{
    const struct coll_backend *backend = NULL;
    int rc = find_kind(options->kind != NULL ? options->kind : "self", &backend);
    if (rc != 0) {
        return rc;
    }
    struct coll base = {
        .backend = backend,
        .rank = options->rank,
        .world = options->world != 0 ? options->world : 1,
        .reachable = options->device == NULL || dev_properties(options->device)->host_visible ||
                     backend->devices,
        .limit_ns = options->limit_ns != 0 ? options->limit_ns : LIMIT_NS_DEFAULT,
    };
    if (base.world > COLL_WORLD_MAX || base.rank >= base.world || base.limit_ns < 0) {
        return core_err_set(-EINVAL,
                            "invalid rank %u of %u with a limit of %" PRId64
                            " ns: ranks count from 0, %d at most, and limits are positive",
                            base.rank, base.world, base.limit_ns, COLL_WORLD_MAX);
    }
    struct coll *coll = NULL;
    rc = backend->open(options, &base, &coll);
    if (rc != 0) {
        return rc;
    }
    char name[CORE_LINE_NAME_BYTES];
    snprintf(name, sizeof name, "ranks %u", base.rank);
    rc = core_queue_create(
        &(struct core_queue_options){
            .name = name,
            .depth = options->depth,
            .cpus = options->cpus,
            .bell = options->bell,
        },
        &coll->jobs);
    if (rc != 0) {
        coll_close(coll);
        return rc;
    }
    *out = coll;
    return 0;
}

/* Logs the traffic by op, for a cluster that is slow. */
static void log_traffic(const struct coll *coll)
{
    core_log(CORE_LOG_DEBUG, "rank %u ran %" PRIu64 " collectives", coll->rank,
             atomic_load_explicit(&coll->commands, memory_order_relaxed));
    for (int op = 0; op < COLL_OPS; op++) {
        const uint64_t bytes = atomic_load_explicit(&coll->received_bytes[op],
                                                    memory_order_relaxed);
        if (bytes > 0) {
            core_log(CORE_LOG_DEBUG,
                     "rank %u received %" PRIu64 " bytes by %s, %" PRIu64
                     " of them from other hosts",
                     coll->rank, bytes, coll_op_name((enum coll_op)op),
                     atomic_load_explicit(&coll->far_bytes[op], memory_order_relaxed));
        }
    }
}

void coll_close(struct coll *coll)
{
    if (coll == NULL) {
        return;
    }
    core_queue_destroy(coll->jobs);
    log_traffic(coll);
    coll->backend->close(coll);
}

unsigned coll_world(const struct coll *coll)
{
    return coll->world;
}

/* ---- Commands ---- */

static int check_borders(const struct coll *coll, const struct coll_command *command)
{
    if (command->borders == NULL ||
        (command->op != COLL_GATHER && command->op != COLL_REDUCE_SCATTER)) {
        return 0;
    }
    const bool groups = command->op == COLL_GATHER && command->within > 0;
    const unsigned ranks = groups ? command->within : coll->world;
    uint64_t before = 0;
    for (unsigned r = 0; r <= ranks; r++) {
        uint64_t border = command->borders[r];
        if (border < before || (r == 0 && border != 0) ||
            (r == ranks && border != command->count)) {
            return core_err_set(-EINVAL,
                                "border %u of a %s is %" PRIu64
                                "; borders ascend from 0 to the count, %" PRIu64,
                                r, coll_op_name(command->op), border, command->count);
        }
        before = border;
    }
    return 0;
}

static bool fits_sum(const struct coll *coll, const struct coll_command *command)
{
    const struct coll_work work = {.count = command->count, .borders = command->borders};
    uint64_t begin = 0;
    uint64_t end = 0;
    coll_part(coll, &work, coll->rank, &begin, &end);
    return command->sum_type <= COLL_FP16 && coll_codes_groups(command->sum_count) == end - begin;
}

static bool is_possible(const struct coll_command *command)
{
    const bool sums = command->op == COLL_REDUCE_SCATTER || command->op == COLL_ALL_REDUCE;
    return (unsigned)command->op < COLL_OPS && coll_type_bytes(command->type) > 0 &&
           !(sums && command->type == COLL_BYTE) &&
           !(command->type == COLL_INT4 && command->op != COLL_REDUCE_SCATTER);
}

static bool can_be_within(const struct coll_command *command)
{
    return command->op == COLL_GATHER ||
           ((command->op == COLL_REDUCE_SCATTER || command->op == COLL_ALL_REDUCE) &&
            command->type <= COLL_FP16);
}

static int check_command(const struct coll *coll, const struct coll_command *command)
{
    size_t type_bytes = coll_type_bytes(command->type);
    if (!is_possible(command)) {
        return core_err_set(-EINVAL, "%s is not possible for type %s", coll_op_name(command->op),
                            coll_type_name(command->type));
    }
    if (command->op == COLL_BARRIER) {
        return 0;
    }
    bool reads = command->op != COLL_BROADCAST || command->root == coll->rank;
    if (command->root >= coll->world || command->count > SIZE_MAX / type_bytes ||
        (command->count > 0 && (command->to == NULL || (reads && command->from == NULL)))) {
        return core_err_set(
            -EINVAL,
            "a %s of %" PRIu64 " %s from %p to %p with root %u is invalid in a world of %u",
            coll_op_name(command->op), command->count, coll_type_name(command->type), command->from,
            command->to, command->root, coll->world);
    }
    if (command->within > 0 && (!can_be_within(command) || coll->world % command->within != 0)) {
        return core_err_set(-EINVAL,
                            "%s within groups of %u of %u ranks is invalid: only a gather, and a "
                            "sum of fp32, bf16 or fp16, can be within groups, and the group size "
                            "must divide the number of ranks",
                            coll_op_name(command->op), command->within, coll->world);
    }
    if (!coll->reachable) {
        return core_err_set(-ENOTSUP, "ranks over %s cannot reach the memory of this device",
                            coll->backend->kind);
    }
    int rc = check_borders(coll, command);
    return rc != 0 || command->type != COLL_INT4 || fits_sum(coll, command)
               ? rc
               : core_err_set(-EINVAL,
                              "%" PRIu64
                              " numbers of type %s are not the part of rank %u in an array "
                              "of %" PRIu64 " groups of codes",
                              command->sum_count, coll_type_name(command->sum_type), coll->rank,
                              command->count);
}

static int run_job(void *context, const void *arguments)
{
    struct coll *coll = context;
    const struct coll_work *work = arguments;
    if (work->prepare != NULL) {
        work->prepare(work->context);
    }
    int rc = coll->backend->run(coll, work);
    if (rc == 0) {
        atomic_fetch_add_explicit(&coll->commands, 1, memory_order_relaxed);
    }
    return rc;
}

int coll_submit(struct coll *coll, const struct coll_command *command, struct core_fence *out)
{
    int rc = check_command(coll, command);
    if (rc != 0) {
        return rc;
    }
    bool parts = command->op == COLL_GATHER || command->op == COLL_REDUCE_SCATTER;
    struct coll_work work = {
        .op = command->op,
        .type = command->type,
        .root = command->op == COLL_BROADCAST ? command->root : 0,
        .from = command->from,
        .to = command->to,
        .count = command->op != COLL_BARRIER ? command->count : 0,
        .within = command->within,
        .borders = parts ? command->borders : NULL,
        .sum_type = command->sum_type,
        .sum_count = command->sum_count,
        .prepare = parts ? command->prepare : NULL,
        .context = command->context,
    };
    struct core_job job = {
        .run = run_job, .context = coll, .arguments = &work, .arguments_bytes = sizeof work};
    return core_queue_submit(coll->jobs, &job, out);
}

void coll_abort(struct coll *coll, int code)
{
    assert(code < 0);
    core_queue_abandon(coll->jobs, coll->backend->abort(coll, code));
}
