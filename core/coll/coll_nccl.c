/* coll_nccl.c: connects ranks with a card each. NCCL moves arrays on cards, the host's back end
 * those in host memory. Before a collective on cards, ranks compare their commands through the
 * host's back end, which notices ranks that are late or have left before NCCL's kernels start. An
 * op of the card sums in the order of ranks, because NCCL's order varies; with `within`, NCCL sums.
 * The queue's thread uses the communicator, and coll_close after that thread has ended. */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/update_args.h"
#include "core/coll/backend.h"
#include "core/dev/dev.h"

/* 2.14 has ncclCommFinalize and communicators that do not block. */
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 14, 0)
#error "NCCL 2.14 or later is needed"
#endif

_Static_assert((int)COLL_F32 == (int)CORE_UPDATE_F32 && (int)COLL_BF16 == (int)CORE_UPDATE_BF16 &&
                   (int)COLL_FP16 == (int)CORE_UPDATE_FP16,
               "the types of sums are those of the update");

enum { PIECE_ALIGN_ELEMENTS = 128, QUEUE_DEPTH = 64, SPINS = 1000, SLEEP_NS = 20000 };
/* between two checks of other ranks in finish() */
static const int64_t look_ns = CORE_CLOCK_BEAT_NS;

/* ---- the library ---- */

#define FUNCTIONS(each)                                                                            \
    each(ncclGetVersion) each(ncclGetUniqueId) each(ncclCommInitRankConfig)                        \
        each(ncclCommGetAsyncError) each(ncclCommFinalize) each(ncclCommDestroy)                   \
            each(ncclCommAbort) each(ncclGetErrorString) each(ncclGetLastError)                    \
                each(ncclGroupStart) each(ncclGroupEnd) each(ncclSend) each(ncclRecv)              \
                    each(ncclAllGather) each(ncclBroadcast) each(ncclReduceScatter)                \
                        each(ncclReduce) each(ncclAllReduce)

struct functions {
#define MEMBER(name) __typeof__(&(name)) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

/* RTLD_NODELETE keeps the library, because its threads and kernels need it. */
static int load(struct functions *out)
{
    static const char *const names[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"};
    char causes[2][256] = {"", ""};
    void *opened = NULL;
    int version = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && opened == NULL; i++) {
        opened = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (opened == NULL) {
            snprintf(causes[i], sizeof causes[i], "%s", dlerror());
        }
    }
    if (opened == NULL) {
        return core_err_set(
            -ENOTSUP,
            "ranks with a card each need NCCL, and it cannot be opened (%s; %s); install "
            "libnccl2, or add the folder of libnccl.so.2 to LD_LIBRARY_PATH",
            causes[0], causes[1]);
    }
    struct functions found;
    const char *missing = NULL;
#define FIND(name)                                                                                 \
    {                                                                                              \
        void *symbol = dlsym(opened, #name);                                                       \
        missing = symbol == NULL ? #name : missing;                                                \
        memcpy(&found.name, &symbol, sizeof symbol);                                               \
    }
    FUNCTIONS(FIND)
#undef FIND
    dlclose(opened); /* the functions stay (RTLD_NODELETE) */
    if (missing != NULL) {
        return core_err_set(
            -ENOTSUP, "libnccl.so.2 has no function %s; NCCL 2.14 or later is needed", missing);
    }
    if (found.ncclGetVersion(&version) != ncclSuccess || version < NCCL_VERSION(2, 14, 0)) {
        return core_err_set(-ENOTSUP,
                            "libnccl.so.2 has version number %d; NCCL 2.14 (%d) or later is needed",
                            version, NCCL_VERSION(2, 14, 0));
    }
    *out = found;
    return 0;
}

int coll_nccl_find(void)
{
    struct functions unused;
    return load(&unused);
}

/* ---- communicators of a rank ---- */

struct nccl {
    struct coll base;
    struct functions call;
    struct coll *host;         /* owned: the host's back end */
    struct dev_device *device; /* borrowed */
    struct dev_queue *queue;   /* owned: NCCL's stream and scratch */
    struct dev_launch where;   /* the stream and scratch of `queue` */
    unsigned sum_op;
    ncclComm_t comm; /* owned; NULL: not connected */
    uint64_t number; /* number of the collective, from 1, for messages */
};

static int code_of(ncclResult_t result)
{
    switch ((int)result) {
    case ncclRemoteError: return -EPIPE;
    case ncclInvalidArgument:
    case ncclInvalidUsage: return -EINVAL;
    default: return -EIO;
    }
}

static int fail_call(const struct nccl *nccl, const char *call, ncclResult_t result)
{
    const char *last = nccl->call.ncclGetLastError(nccl->comm);
    return core_err_set(code_of(result), "%s: %s failed: %s%s%s; NCCL_DEBUG=WARN shows more",
                        dev_properties(nccl->device)->name, call,
                        nccl->call.ncclGetErrorString(result), last != NULL && *last ? ": " : "",
                        last != NULL ? last : "");
}

/* Returns 0 to continue, the error that ended the ranks, or -ETIMEDOUT if base.limit_ns has passed
 * since `start_ns`. */
static int look_around(const struct nccl *nccl, const char *what, int64_t start_ns)
{
    const int rc = nccl->host->backend->end(nccl->host, 0);
    const int64_t waited_ns = core_clock_ran_ns() - start_ns;
    if (rc != 0 || waited_ns < nccl->base.limit_ns) {
        return rc;
    }
    return core_err_set(
        -ETIMEDOUT,
        "%s: NCCL did not end %s within %.3f s, although all ranks called it (collective "
        "%" PRIu64 "); NCCL_DEBUG=INFO shows how cards are connected",
        dev_properties(nccl->device)->name, what, (double)waited_ns / 1e9, nccl->number);
}

/* Waits for a call that returned `result`. Returns 0, or an error with a message. */
static int settle(const struct nccl *nccl, const char *call, ncclResult_t result)
{
    const int64_t start_ns = core_clock_ran_ns();
    for (unsigned turn = 0; result == ncclInProgress; turn++) {
        const ncclResult_t asked = nccl->call.ncclCommGetAsyncError(nccl->comm, &result);
        result = asked != ncclSuccess ? asked : result;
        const int rc = look_around(nccl, call, start_ns);
        if (rc != 0) {
            return rc;
        }
        if (turn < SPINS) {
            core_clock_relax();
        } else {
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
        }
    }
    return result == ncclSuccess ? 0 : fail_call(nccl, call, result);
}

static int finish(const struct nccl *nccl)
{
    const struct dev_copy nothing = {.direction = DEV_COPY_WITHIN};
    const int64_t start_ns = core_clock_ran_ns();
    struct core_fence done;
    int rc = dev_queue_copy(nccl->queue, &nothing, &done);
    while (rc == 0 && core_fence_wait(done, look_ns) != 0) {
        ncclResult_t result = ncclSuccess;
        const int reached = core_fence_poll(done);
        if (reached != 0) {
            return reached > 0 ? 0 : reached;
        }
        const ncclResult_t asked = nccl->call.ncclCommGetAsyncError(nccl->comm, &result);
        if (asked != ncclSuccess || result != ncclSuccess) {
            return fail_call(nccl, "a collective", asked != ncclSuccess ? asked : result);
        }
        rc = look_around(nccl, "a collective", start_ns);
    }
    return rc;
}

static int connect_ranks(struct nccl *nccl)
{
    ncclUniqueId id = {{0}};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t result = nccl->base.rank == 0 ? nccl->call.ncclGetUniqueId(&id) : ncclSuccess;
    if (result != ncclSuccess) {
        return fail_call(nccl, "ncclGetUniqueId", result);
    }
    const struct coll_work spread = {
        .op = COLL_BROADCAST, .type = COLL_BYTE, .from = &id, .to = &id, .count = sizeof id};
    int rc = nccl->host->backend->run(nccl->host, &spread);
    if (rc != 0) {
        return rc;
    }
    config.blocking = 0;
    result = nccl->call.ncclCommInitRankConfig(&nccl->comm, (int)nccl->base.world, id,
                                               (int)nccl->base.rank, &config);
    return settle(nccl, "ncclCommInitRankConfig", result);
}

/* ---- data ---- */

static void received(struct nccl *nccl, enum coll_op op, uint64_t bytes)
{
    atomic_fetch_add_explicit(&nccl->base.received_bytes[op], bytes, memory_order_relaxed);
}

/* Copies within the card, unless `to` is `from`. */
static int copy_own(struct nccl *nccl, void *to, const void *from, uint64_t bytes)
{
    struct core_fence unused;
    const struct dev_copy copy = {
        .direction = DEV_COPY_WITHIN, .to = to, .from = from, .bytes = bytes};
    return to == from || bytes == 0 ? 0 : dev_queue_copy(nccl->queue, &copy, &unused);
}

struct exchange {
    const void *from;
    uint64_t from_bytes;
    void *to;
    uint64_t to_bytes;
};

static ncclResult_t add_exchange(const struct nccl *nccl, unsigned rank,
                                 const struct exchange *with)
{
    ncclResult_t result = ncclSuccess;
    if (with->from_bytes > 0) {
        result = nccl->call.ncclSend(with->from, with->from_bytes, ncclUint8, (int)rank, nccl->comm,
                                     nccl->where.stream);
    }
    if (result == ncclSuccess && with->to_bytes > 0) {
        result = nccl->call.ncclRecv(with->to, with->to_bytes, ncclUint8, (int)rank, nccl->comm,
                                     nccl->where.stream);
    }
    return result;
}

/* Exchanges, in one NCCL group, what `of` returns for each other rank that takes part. */
static int exchange(struct nccl *nccl, const struct coll_work *work, uint64_t index,
                    struct exchange (*of)(const struct nccl *nccl, const struct coll_work *work,
                                          unsigned rank, uint64_t index))
{
    ncclResult_t result = nccl->call.ncclGroupStart();
    if (result != ncclSuccess) {
        return fail_call(nccl, "ncclGroupStart", result);
    }
    for (unsigned i = 1; result == ncclSuccess && i < nccl->base.world; i++) {
        const unsigned rank = (nccl->base.rank + i) % nccl->base.world;
        if (!coll_takes_part(&nccl->base, work, rank)) {
            continue;
        }
        const struct exchange with = of(nccl, work, rank, index);
        received(nccl, work->op, with.to_bytes);
        result = add_exchange(nccl, rank, &with);
        /* ncclGroupEnd's result is more precise */
        result = result == ncclInProgress ? ncclSuccess : result;
    }
    const ncclResult_t ended = nccl->call.ncclGroupEnd();
    return result != ncclSuccess ? fail_call(nccl, "ncclSend or ncclRecv", result)
                                 : settle(nccl, "ncclGroupEnd", ended);
}

static bool parts_are_equal(const struct nccl *nccl, const struct coll_work *work)
{
    uint64_t at;
    const uint64_t first = coll_part_bytes(&nccl->base, work, 0, &at);
    for (unsigned r = 1; r < nccl->base.world; r++) {
        if (coll_part_bytes(&nccl->base, work, r, &at) != first) {
            return false;
        }
    }
    return true;
}

/* For a gather: sends this rank's part, at work->from, and receives that of `rank`. */
static struct exchange parts_of(const struct nccl *nccl, const struct coll_work *work,
                                unsigned rank, uint64_t index)
{
    uint64_t own_at;
    uint64_t at;
    const uint64_t own = coll_part_bytes(&nccl->base, work, nccl->base.rank, &own_at);
    const uint64_t other = coll_part_bytes(&nccl->base, work, rank, &at);
    (void)index;
    return (struct exchange){.from = work->from,
                             .from_bytes = own,
                             .to = (unsigned char *)work->to + at,
                             .to_bytes = other};
}

static int gather(struct nccl *nccl, const struct coll_work *work)
{
    uint64_t at;
    const uint64_t own = coll_part_bytes(&nccl->base, work, nccl->base.rank, &at);
    if (work->within == 0 && parts_are_equal(nccl, work)) {
        received(nccl, work->op, own * (nccl->base.world - 1));
        return settle(nccl, "ncclAllGather",
                      nccl->call.ncclAllGather(work->from, work->to, own, ncclUint8, nccl->comm,
                                               nccl->where.stream));
    }
    const int rc = copy_own(nccl, (unsigned char *)work->to + at, work->from, own);
    return rc != 0 ? rc : exchange(nccl, work, 0, parts_of);
}

/* Returns the elements of a piece; the scratch holds a piece of each other rank. */
static uint64_t piece_elements(const struct nccl *nccl, const struct coll_work *work)
{
    const uint64_t room = nccl->where.scratch_bytes / (nccl->base.world - 1);
    const uint64_t elements = room / coll_type_bytes(work->type);
    return elements - elements % PIECE_ALIGN_ELEMENTS;
}

static uint64_t piece_bytes(const struct nccl *nccl, const struct coll_work *work, unsigned r,
                            uint64_t index, uint64_t *at)
{
    const uint64_t piece = piece_elements(nccl, work) * coll_type_bytes(work->type);
    const uint64_t bytes = coll_part_bytes(&nccl->base, work, r, at);
    const uint64_t before = index * piece < bytes ? index * piece : bytes;
    *at += before;
    return bytes - before < piece ? bytes - before : piece;
}

static struct exchange pieces_of(const struct nccl *nccl, const struct coll_work *work,
                                 unsigned rank, uint64_t index)
{
    uint64_t own_at;
    uint64_t at;
    const unsigned own = nccl->base.rank;
    const uint64_t place = rank < own ? rank : rank - 1;
    const uint64_t stride = piece_elements(nccl, work) * coll_type_bytes(work->type);
    const uint64_t own_bytes = piece_bytes(nccl, work, own, index, &own_at);
    const uint64_t other_bytes = piece_bytes(nccl, work, rank, index, &at);
    return (struct exchange){.from = (const unsigned char *)work->from + at,
                             .from_bytes = other_bytes,
                             .to = (unsigned char *)nccl->where.scratch + place * stride,
                             .to_bytes = own_bytes};
}

static int sum_piece(struct nccl *nccl, const struct coll_work *work, uint64_t index, void *to)
{
    uint64_t at;
    uint64_t begin;
    (void)coll_part_bytes(&nccl->base, work, nccl->base.rank, &begin);
    const uint64_t bytes = piece_bytes(nccl, work, nccl->base.rank, index, &at);
    const struct core_sum_args sum = {.type = (enum core_update_type)work->type,
                                      .ranks = nccl->base.world,
                                      .own = nccl->base.rank,
                                      .from = (const unsigned char *)work->from + at,
                                      .others = nccl->where.scratch,
                                      .stride = piece_elements(nccl, work),
                                      .count = bytes / coll_type_bytes(work->type),
                                      .to = (unsigned char *)to + (at - begin)};
    const struct dev_command launch = {
        .op = nccl->sum_op, .arguments = &sum, .arguments_bytes = sizeof sum};
    struct core_fence unused;
    return bytes == 0 ? 0 : dev_queue_launch(nccl->queue, &launch, &unused);
}

static int sum_part(struct nccl *nccl, const struct coll_work *work, void *to)
{
    const uint64_t piece = piece_elements(nccl, work) * coll_type_bytes(work->type);
    uint64_t longest = 0;
    for (unsigned r = 0; r < nccl->base.world; r++) {
        uint64_t at;
        const uint64_t bytes = coll_part_bytes(&nccl->base, work, r, &at);
        longest = bytes > longest ? bytes : longest;
    }
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i * piece < longest; i++) {
        rc = i > 0 && i % (QUEUE_DEPTH / 2) == 0 ? finish(nccl)
                                                 : 0; /* so that the queue has room */
        if (rc == 0) {
            rc = exchange(nccl, work, i, pieces_of);
        }
        if (rc == 0) {
            rc = sum_piece(nccl, work, i, to);
        }
    }
    return rc;
}

static int all_reduce(struct nccl *nccl, const struct coll_work *work)
{
    uint64_t at;
    (void)coll_part_bytes(&nccl->base, work, nccl->base.rank, &at);
    struct coll_work whole = *work;
    whole.from = (unsigned char *)work->to + at;
    const int rc = sum_part(nccl, work, (unsigned char *)work->to + at);
    return rc != 0 ? rc : gather(nccl, &whole);
}

/* ---- NCCL's own sums ---- */

static ncclDataType_t nccl_type(enum coll_type type)
{
    enum { BF16 = 9 }; /* ncclBfloat16, which older headers define for nvcc alone */
    return type == COLL_F32 ? ncclFloat32 : type == COLL_BF16 ? (ncclDataType_t)BF16 : ncclFloat16;
}

/* One ncclReduce for each rank, because parts may differ in length. */
static int reduce_parts(struct nccl *nccl, const struct coll_work *work)
{
    ncclResult_t result = nccl->call.ncclGroupStart();
    if (result != ncclSuccess) {
        return fail_call(nccl, "ncclGroupStart", result);
    }
    for (unsigned r = 0; result == ncclSuccess && r < nccl->base.world; r++) {
        uint64_t at;
        const uint64_t count = coll_part_bytes(&nccl->base, work, r, &at) /
                               coll_type_bytes(work->type);
        if (count > 0) {
            result = nccl->call.ncclReduce((const unsigned char *)work->from + at, work->to, count,
                                           nccl_type(work->type), ncclSum, (int)r, nccl->comm,
                                           nccl->where.stream);
            result = result == ncclInProgress ? ncclSuccess
                                              /* ncclGroupEnd's result is more precise */
                                              : result;
        }
    }
    const ncclResult_t ended = nccl->call.ncclGroupEnd();
    return result != ncclSuccess ? fail_call(nccl, "ncclReduce", result)
                                 : settle(nccl, "ncclGroupEnd", ended);
}

static int reduce_scatter_fast(struct nccl *nccl, const struct coll_work *work)
{
    uint64_t at;
    const uint64_t own = coll_part_bytes(&nccl->base, work, nccl->base.rank, &at);
    received(nccl, work->op, own * (nccl->base.world - 1));
    if (!parts_are_equal(nccl, work)) {
        return reduce_parts(nccl, work);
    }
    return settle(nccl, "ncclReduceScatter",
                  nccl->call.ncclReduceScatter(
                      work->from, work->to, own / coll_type_bytes(work->type),
                      nccl_type(work->type), ncclSum, nccl->comm, nccl->where.stream));
}

static int all_reduce_fast(struct nccl *nccl, const struct coll_work *work)
{
    uint64_t at;
    const uint64_t own = coll_part_bytes(&nccl->base, work, nccl->base.rank, &at);
    const uint64_t all = work->count * coll_type_bytes(work->type);
    received(nccl, work->op, own * (nccl->base.world - 1) + (all - own));
    return settle(nccl, "ncclAllReduce",
                  nccl->call.ncclAllReduce(work->from, work->to, work->count, nccl_type(work->type),
                                           ncclSum, nccl->comm, nccl->where.stream));
}

static int broadcast(struct nccl *nccl, const struct coll_work *work)
{
    const bool root = work->root == nccl->base.rank;
    const uint64_t bytes = work->count * coll_type_bytes(work->type);
    received(nccl, work->op, root ? 0 : bytes);
    return settle(nccl, "ncclBroadcast",
                  nccl->call.ncclBroadcast(root ? work->from : work->to, work->to, bytes, ncclUint8,
                                           (int)work->root, nccl->comm, nccl->where.stream));
}

static int put_work(struct nccl *nccl, const struct coll_work *work)
{
    const bool fast = work->within > 0; /* NCCL may choose the order */
    switch (work->op) {
    case COLL_GATHER: return gather(nccl, work);
    case COLL_REDUCE_SCATTER:
        return fast ? reduce_scatter_fast(nccl, work) : sum_part(nccl, work, work->to);
    case COLL_ALL_REDUCE: return fast ? all_reduce_fast(nccl, work) : all_reduce(nccl, work);
    case COLL_BROADCAST: return broadcast(nccl, work);
    case COLL_BARRIER:
    case COLL_OPS: break;
    }
    return 0;
}

/* ---- a collective ---- */

/* Tests `to`, because `from` may be missing. The arrays of all ranks are in the same kind of
 * memory. */
static bool is_on_card(const struct nccl *nccl, const struct coll_work *work)
{
    return work->count > 0 && dev_memory_holds(nccl->device, work->to, 1);
}

static int run_on_host(struct nccl *nccl, const struct coll_work *work)
{
    _Atomic uint64_t *counter = &nccl->host->received_bytes[work->op];
    const uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
    const int rc = nccl->host->backend->run(nccl->host, work);
    received(nccl, work->op, atomic_load_explicit(counter, memory_order_relaxed) - before);
    return rc;
}

static int run_on_cards(struct nccl *nccl, const struct coll_work *work)
{
    int rc = dev_queue_enter(nccl->queue, &nccl->where);
    if (rc == 0 && nccl->comm == NULL) {
        rc = connect_ranks(nccl);
    }
    if (rc == 0) {
        rc = put_work(nccl, work);
    }
    return rc != 0 ? rc : finish(nccl);
}

/* Ends the ranks, unless they have ended, and NCCL's work. Returns an error. */
static int end_ranks(struct nccl *nccl, int code)
{
    struct core_err kept = core_err_keep(code);
    if (nccl->host->backend->end(nccl->host, 0) == 0) {
        (void)core_err_first(&kept, 0);
        kept = core_err_keep(nccl->host->backend->end(nccl->host, code));
    }
    if (nccl->comm != NULL) {
        (void)nccl->call.ncclCommAbort(nccl->comm);
        nccl->comm = NULL;
    }
    return core_err_first(&kept, 0);
}

static int nccl_run(struct coll *base, const struct coll_work *work)
{
    struct nccl *nccl = (struct nccl *)base;
    const bool sums = work->op == COLL_REDUCE_SCATTER || work->op == COLL_ALL_REDUCE;
    nccl->number++;
    if (!is_on_card(nccl, work)) {
        return run_on_host(nccl, work);
    }
    if (sums && work->type > COLL_FP16) {
        return core_err_set(-ENOTSUP, "cards cannot sum %s over ranks", coll_type_name(work->type));
    }
    struct coll_work meeting = *work;
    meeting.meets = true;
    int rc = nccl->host->backend->run(nccl->host, &meeting);
    if (rc != 0) {
        return rc;
    }
    rc = run_on_cards(nccl, work);
    return rc != 0 ? end_ranks(nccl, rc) : 0;
}

static int nccl_abort(struct coll *base, int code)
{
    struct nccl *nccl = (struct nccl *)base;
    return nccl->host->backend->abort(nccl->host, code);
}

/* ---- open and close ---- */

/* ncclCommFinalize waits for data that this rank still sends. */
static void disconnect(struct nccl *nccl)
{
    if (nccl->comm == NULL) {
        return;
    }
    if (settle(nccl, "ncclCommFinalize", nccl->call.ncclCommFinalize(nccl->comm)) == 0) {
        (void)nccl->call.ncclCommDestroy(nccl->comm);
    } else {
        core_log(CORE_LOG_DEBUG, "%s", core_err_message());
        (void)nccl->call.ncclCommAbort(nccl->comm);
    }
    nccl->comm = NULL;
}

static void nccl_close(struct coll *base)
{
    struct nccl *nccl = (struct nccl *)base;
    disconnect(nccl);
    dev_queue_destroy(nccl->queue);
    if (nccl->host != NULL) {
        nccl->host->backend->close(nccl->host);
    }
    free(nccl);
}

static int open_host(const struct coll_options *options, const struct coll *base, struct nccl *nccl)
{
    const struct coll_backend *backend = options->peers != NULL ? &coll_backend_processes
                                                                : &coll_backend_local;
    struct coll below = *base;
    below.backend = backend;
    return backend->open(options, &below, &nccl->host);
}

static int nccl_open(const struct coll_options *options, struct coll *base, struct coll **out)
{
    const struct dev_queue_options queue = {
        .kind = DEV_QUEUE_COMPUTE, .depth = QUEUE_DEPTH, .scratch_bytes = options->scratch_bytes};
    struct functions call;
    int rc = load(&call);
    if (rc != 0) {
        return rc;
    }
    if (options->device == NULL || dev_is_cpu(dev_properties(options->device)->kind)) {
        return core_err_set(-EINVAL, "rank %u over NCCL needs a card", base->rank);
    }
    struct nccl *nccl = calloc(1, sizeof *nccl);
    if (nccl == NULL) {
        return core_err_set(-ENOMEM, "no memory for rank %u of %u", base->rank, base->world);
    }
    nccl->call = call;
    nccl->base = *base;
    nccl->device = options->device;
    nccl->sum_op = options->sum_op;
    rc = open_host(options, base, nccl);
    if (rc == 0) {
        rc = dev_queue_create(options->device, &queue, &nccl->queue);
    }
    if (rc == 0) {
        rc = dev_queue_enter(nccl->queue, &nccl->where);
    }
    if (rc == 0 && base->world > 1 &&
        piece_elements(nccl, &(struct coll_work){.type = COLL_F32}) == 0) {
        rc = core_err_set(-EINVAL, "%zu bytes of scratch are too few for sums of %u ranks",
                          options->scratch_bytes, base->world);
    }
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        nccl_close(&nccl->base);
        return core_err_first(&kept, 0);
    }
    *out = &nccl->base;
    return 0;
}

const struct coll_backend coll_backend_nccl = {
    .kind = "nccl",
    .open = nccl_open,
    .close = nccl_close,
    .run = nccl_run,
    .abort = nccl_abort,
    .devices = true,
};
