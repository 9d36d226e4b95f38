/* fake_nccl.c: an imitation of NCCL for emulated cards (tests/dev/fake_cuda.h), which ranks find as
 * libnccl.so.2. Sums are rounded at each rank of a ring, so they may differ from sums in the order
 * of ranks. Calls that start work return ncclInProgress and do not block; a rank's stream waits in
 * a group until the other ranks begin the group.
 *
 * FAKE_NCCL=KIND:RANK:NUMBER makes the NUMBER-th group of that rank (counted from 1) go wrong:
 * "remote" reports that another process is gone, "hang" never ends, "start" is refused by the
 * stream. An "absent" rank (NUMBER 0) never joins. */
#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "core/base/half.h"
#include "tests/dev/fake_cuda.h"

#define EXPORT __attribute__((visibility("default")))

enum { RANKS_MAX = 8, OPS_MAX = 4 * RANKS_MAX };

struct box {
    _Atomic uint64_t posted,
        taken; /* released after the members below, or after the bytes are read */
    int process;
    const void *from;
    size_t bytes;
};

struct room { /* in shared memory */
    _Atomic int arrived;
    struct box boxes[RANKS_MAX][RANKS_MAX]; /* [from][to] */
};

struct ncclComm {
    struct room *room;
    int rank, ranks;
    _Atomic bool aborted;
    _Atomic int under_way; /* groups on streams */
    _Atomic int error;     /* ncclResult_t */
    bool joined, settled;
    int groups;
    char fault[16]; /* "": none */
    int fault_at;
};

struct op {
    bool sends;
    bool adds; /* adds received data to the group's sum */
    int peer;
    const void *from;
    void *to;
    size_t bytes;
};

struct group {
    struct ncclComm *comm;
    void *stream;
    bool hangs, loses;
    /* This rank's sum, rounded to `type` at each addition; copied to `to` at the end. */
    ncclDataType_t type;
    void *sum, *to;
    size_t sum_bytes;
    int count;
    struct op ops[OPS_MAX];
};

/* Depth of this thread's group calls, and the thread's group. */
static _Thread_local int depth;
static _Thread_local struct group *open_group;

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* ---- communicators ---- */

EXPORT ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError ? "remote process exited or there was a network error"
                                     : "unhandled system error";
}

EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
    return comm != NULL && atomic_load(&comm->error) == ncclRemoteError ? "socket closed" : "";
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static _Atomic int count;
    snprintf(id->internal, sizeof id->internal, "/tide-fake-nccl-%d-%d", (int)getpid(),
             atomic_fetch_add(&count, 1));
    const int file = shm_open(id->internal, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0 || ftruncate(file, sizeof(struct room)) != 0) {
        abort();
    }
    close(file);
    return ncclSuccess;
}

static void read_fault(struct ncclComm *comm)
{
    const char *text = getenv("FAKE_NCCL");
    int rank = -1;
    if (text == NULL || sscanf(text, "%15[^:]:%d:%d", comm->fault, &rank, &comm->fault_at) != 3 ||
        rank != comm->rank) {
        comm->fault[0] = '\0';
    }
}

static bool has_fault(const struct ncclComm *comm, const char *kind)
{
    return strcmp(comm->fault, kind) == 0 && comm->groups == comm->fault_at;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                           ncclConfig_t *config)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    const int file = shm_open(id.internal, O_RDWR, 0600);
    if (comm == NULL || file < 0 || ranks > RANKS_MAX || config->blocking != 0) {
        abort();
    }
    /* Other ranks read this process's memory. */
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    comm->room = mmap(NULL, sizeof *comm->room, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    comm->rank = rank;
    comm->ranks = ranks;
    read_fault(comm);
    if (!has_fault(comm, "absent") && atomic_fetch_add(&comm->room->arrived, 1) + 1 == ranks) {
        shm_unlink(id.internal);
    }
    *out = comm;
    return ncclInProgress;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    const int error = atomic_load(&comm->error);
    comm->joined = comm->joined || atomic_load(&comm->room->arrived) == comm->ranks;
    /* The first question after a call gets "in progress". */
    const bool settled = comm->settled;
    comm->settled = true;
    *out = error != ncclSuccess        ? (ncclResult_t)error
           : !comm->joined || !settled ? ncclInProgress
                                       : ncclSuccess;
    return ncclSuccess;
}

static void free_comm(struct ncclComm *comm)
{
    while (atomic_load(&comm->under_way) > 0) {
        pause_briefly();
    }
    munmap(comm->room, sizeof *comm->room);
    free(comm);
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    atomic_store(&comm->aborted, true);
    free_comm(comm);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    comm->settled = false;
    return ncclInProgress;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    free_comm(comm);
    return ncclSuccess;
}

/* ---- groups ---- */

static void post(struct ncclComm *comm, const struct op *op)
{
    struct box *box = &comm->room->boxes[comm->rank][op->peer];
    box->process = (int)getpid();
    box->from = op->from;
    box->bytes = op->bytes;
    atomic_fetch_add(&box->posted, 1);
}

static void take(struct ncclComm *comm, const struct op *op)
{
    struct box *box = &comm->room->boxes[op->peer][comm->rank];
    const uint64_t number = atomic_load(&box->taken);
    while (atomic_load(&box->posted) == number) {
        if (atomic_load(&comm->aborted)) {
            return;
        }
        pause_briefly();
    }
    if (box->bytes != op->bytes) {
        fprintf(stderr, "rank %d sends %zu bytes, rank %d expects %zu\n", op->peer, box->bytes,
                comm->rank, op->bytes);
        abort();
    }
    if (box->process == (int)getpid()) {
        memmove(op->to, box->from, op->bytes);
    } else {
        const struct iovec to = {op->to, op->bytes};
        const struct iovec from = {(void *)(uintptr_t)box->from, op->bytes};
        if (process_vm_readv(box->process, &to, 1, &from, 1, 0) != (ssize_t)op->bytes) {
            perror("process_vm_readv");
            abort();
        }
    }
    atomic_fetch_add(&box->taken, 1);
}

static float element(ncclDataType_t type, const void *at, size_t i)
{
    return type == ncclFloat32 ? ((const float *)at)[i]
                               : core_bf16_to_f32(((const uint16_t *)at)[i]);
}

static void set_element(ncclDataType_t type, void *at, size_t i, float value)
{
    if (type == ncclFloat32) {
        ((float *)at)[i] = value;
    } else {
        ((uint16_t *)at)[i] = core_f32_to_bf16(value);
    }
}

/* Adds another rank's array; the first array begins the sum. */
static void take_and_add(struct group *group, const struct op *op)
{
    const size_t width = group->type == ncclFloat32 ? 4 : 2;
    struct op taken = *op;
    const bool begins = group->sum == NULL;
    taken.to = malloc(op->bytes);
    if (begins) {
        group->sum = calloc(1, op->bytes);
        group->sum_bytes = op->bytes;
    }
    if (taken.to == NULL || group->sum == NULL || group->sum_bytes != op->bytes) {
        abort();
    }
    take(group->comm, &taken);
    for (size_t i = 0; i < op->bytes / width; i++) {
        const float value = element(group->type, taken.to, i);
        set_element(group->type, group->sum, i,
                    begins ? value : element(group->type, group->sum, i) + value);
    }
    free(taken.to);
}

static void wait_taken(struct ncclComm *comm, const struct op *op)
{
    const struct box *box = &comm->room->boxes[comm->rank][op->peer];
    while (atomic_load(&box->taken) != atomic_load(&box->posted) && !atomic_load(&comm->aborted)) {
        pause_briefly();
    }
}

static int run_group(void *context, const void *arguments)
{
    struct group *group;
    memcpy(&group, arguments, sizeof group);
    (void)context;
    for (int i = 0; i < group->count; i++) {
        if (group->ops[i].sends && !group->hangs) {
            post(group->comm, &group->ops[i]);
        }
    }
    while (group->hangs && !atomic_load(&group->comm->aborted)) {
        pause_briefly();
        atomic_store(&group->comm->error, group->loses ? ncclRemoteError : ncclSuccess);
    }
    for (int i = 0; i < group->count; i++) {
        if (!group->ops[i].sends && !group->hangs) {
            if (group->ops[i].adds) {
                take_and_add(group, &group->ops[i]);
            } else {
                take(group->comm, &group->ops[i]);
            }
        }
    }
    for (int i = 0; i < group->count; i++) {
        if (group->ops[i].sends && !group->hangs) {
            wait_taken(group->comm, &group->ops[i]);
        }
    }
    if (group->sum != NULL) {
        memcpy(group->to, group->sum, group->sum_bytes);
        free(group->sum);
    }
    atomic_fetch_sub(&group->comm->under_way, 1);
    free(group);
    return 0;
}

static ncclResult_t launch(struct group *group)
{
    struct ncclComm *comm = group->comm;
    comm->groups++;
    comm->settled = false;
    if (has_fault(comm, "start")) {
        free(group);
        return ncclSystemError;
    }
    group->loses = has_fault(comm, "remote");
    group->hangs = has_fault(comm, "hang") || group->loses;
    atomic_fetch_add(&comm->under_way, 1);
    fake_stream_run(group->stream, run_group, &group, sizeof group);
    return ncclInProgress;
}

/* nccl.h declares ncclGroupStart and ncclGroupEnd without parameters. */
EXPORT ncclResult_t ncclGroupStart(void);
EXPORT ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void);
EXPORT ncclResult_t ncclGroupEnd(void)
{
    struct group *group = open_group;
    if (--depth > 0 || group == NULL) {
        return ncclSuccess;
    }
    open_group = NULL;
    return launch(group);
}

static ncclResult_t add(struct ncclComm *comm, void *stream, struct op op)
{
    if (open_group == NULL) {
        open_group = calloc(1, sizeof *open_group);
        open_group->comm = comm;
        open_group->stream = stream;
    }
    if (open_group->count == OPS_MAX || open_group->comm != comm || open_group->stream != stream) {
        abort();
    }
    open_group->ops[open_group->count++] = op;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream)
{
    return type != ncclUint8 || depth == 0
               ? ncclInvalidArgument
               : add(comm, stream,
                     (struct op){.sends = true, .peer = peer, .from = from, .bytes = count});
}

EXPORT ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream)
{
    return type != ncclUint8 || depth == 0
               ? ncclInvalidArgument
               : add(comm, stream, (struct op){.peer = peer, .to = to, .bytes = count});
}

/* A collective is a group; a rank may send data to itself. */
EXPORT ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                                  ncclComm_t comm, cudaStream_t stream)
{
    if (type != ncclUint8) {
        return ncclInvalidArgument;
    }
    (void)ncclGroupStart();
    for (int rank = 0; rank < comm->ranks; rank++) {
        (void)ncclSend(from, count, type, rank, comm, stream);
        (void)ncclRecv((char *)to + (size_t)rank * count, count, type, rank, comm, stream);
    }
    return ncclGroupEnd();
}

EXPORT ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type,
                                  int root, ncclComm_t comm, cudaStream_t stream)
{
    if (type != ncclUint8) {
        return ncclInvalidArgument;
    }
    (void)ncclGroupStart();
    for (int rank = 0; comm->rank == root && rank < comm->ranks; rank++) {
        (void)ncclSend(from, count, type, rank, comm, stream);
    }
    (void)ncclRecv(to, count, type, root, comm, stream);
    return ncclGroupEnd();
}

/* Sends an array to the root of its sum. The root begins with the rank after itself. */
static ncclResult_t add_sum(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                            ncclComm_t comm, cudaStream_t stream)
{
    const size_t bytes = count * (type == ncclFloat32 ? 4 : 2);
    if ((type != ncclFloat32 && type != ncclBfloat16) || depth == 0) {
        return ncclInvalidArgument;
    }
    (void)add(comm, stream, (struct op){.sends = true, .peer = root, .from = from, .bytes = bytes});
    for (int i = 1; comm->rank == root && i <= comm->ranks; i++) {
        (void)add(comm, stream,
                  (struct op){.adds = true, .peer = (root + i) % comm->ranks, .bytes = bytes});
        open_group->type = type;
        open_group->to = to;
    }
    return ncclSuccess;
}

EXPORT ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return op != ncclSum ? ncclInvalidArgument : add_sum(from, to, count, type, root, comm, stream);
}

EXPORT ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    const size_t bytes = count * (type == ncclFloat32 ? 4 : 2);
    ncclResult_t result = ncclSuccess;
    (void)ncclGroupStart();
    for (int rank = 0; result == ncclSuccess && rank < comm->ranks; rank++) {
        result = ncclReduce((const char *)from + (size_t)rank * bytes, to, count, type, op, rank,
                            comm, stream);
    }
    const ncclResult_t ended = ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
}

EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    const size_t bytes = count * (type == ncclFloat32 ? 4 : 2);
    if (op != ncclSum || (type != ncclFloat32 && type != ncclBfloat16)) {
        return ncclInvalidArgument;
    }
    (void)ncclGroupStart();
    for (int i = 0; i < comm->ranks; i++) {
        (void)add(comm, stream,
                  (struct op){.sends = true, .peer = i, .from = from, .bytes = bytes});
        (void)add(comm, stream,
                  (struct op){.adds = true, .peer = comm->ranks - 1 - i, .bytes = bytes});
    }
    open_group->type = type;
    open_group->to = to;
    return ncclGroupEnd();
}
