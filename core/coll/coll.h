/* coll.h: collectives between ranks. All ranks submit the same commands in the same order; commands
 * run in order, asynchronously. When a command's fence is reached, this rank may use its buffers
 * again. One thread per rank submits; any thread may call abort. A command works on one array of
 * `count` elements, cut at `borders` into one part per rank. Sums are computed in fp32 (COLL_F64:
 * fp64) in the order of ranks and rounded once, to nearest even; COLL_INT4 adds the decoded
 * numbers. With `within`, the order and the number of roundings may differ. */
#ifndef CORE_COLL_COLL_H
#define CORE_COLL_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/cpus.h"
#include "core/base/fence.h"

struct coll;
struct coll_meeting;
struct coll_peers;
struct dev_device;

/* ---- Registry ---- */

/* Returns the name of the index-th back end ("self", "local", "processes", "nccl"); NULL past the
 * last one. */
const char *coll_kind_name(unsigned index);
bool coll_kind_built(unsigned index);

/* ---- Opening a rank ---- */

enum { COLL_WORLD_MAX = 4096 };

/* A meeting joins ranks that are threads of one process. Create it before they open; destroy it
 * after they have closed. */
int coll_meeting_create(unsigned world, struct coll_meeting **out);
void coll_meeting_destroy(struct coll_meeting *meeting);

struct coll_options {
    const char *kind; /* NULL: "self" */
    unsigned rank;
    unsigned world;               /* 0 means 1 */
    struct coll_meeting *meeting; /* borrowed; for "local" */
    struct coll_peers *peers;     /* borrowed; for "processes" */
    /* borrowed: the device whose memory has the arrays; NULL: host memory. "nccl": the rank's card;
     * the arrays of a command are on cards on all ranks, or in host memory on all ranks. Those in
     * host memory travel over `peers`, or over `meeting` if `peers` is NULL */
    struct dev_device *device;
    unsigned sum_op; /* nccl: the op of core_sum_args (base/update_args.h) */
    /* nccl: device memory for pieces of other ranks */
    size_t scratch_bytes;
    int64_t limit_ns; /* limit of a wait for other ranks; 0: 10 min */
    uint32_t depth;   /* limit of commands in flight, rounded up to a power of two; 0: 64 */
    /* processors of the back end's thread; NULL: those of the caller */
    const struct core_cpus *cpus;
    struct core_bell *bell; /* borrowed: rung when a command ends; NULL: its own */
};

/* Returns 0 if NCCL can be used, or -errno with the reason as message. */
int coll_nccl_find(void);

int coll_open(const struct coll_options *options, struct coll **out);
/* Waits until the submitted commands have ended; if they cannot end, call coll_abort first. Later
 * commands of other ranks that need this rank fail. Accepts NULL. */
void coll_close(struct coll *coll);

unsigned coll_world(const struct coll *coll);

/* ---- Commands ---- */

enum coll_op {
    COLL_GATHER,         /* from: a part; to: the whole array */
    COLL_REDUCE_SCATTER, /* from: a whole array; to: this rank's part of the sum */
    COLL_ALL_REDUCE,     /* from: a whole array; to: the whole sum */
    COLL_BROADCAST,      /* copies the root's `from` to every rank's `to` */
    COLL_BARRIER,        /* moves no data; `count` is ignored */
    COLL_OPS
};

enum coll_type {
    COLL_F32,
    COLL_BF16,
    COLL_FP16,
    COLL_F64,
    COLL_BYTE, /* only for gather and broadcast */
    COLL_INT4, /* for reduce-scatter: 256 numbers of 4 bits each, and their scale (codes.h) */
    COLL_TYPES
};

const char *coll_op_name(enum coll_op op);       /* "reduce-scatter" */
const char *coll_type_name(enum coll_type type); /* "bf16" */
size_t coll_type_bytes(enum coll_type type);

struct coll_command {
    enum coll_op op;
    enum coll_type type;
    unsigned root;    /* BROADCAST: the rank that is copied; else 0 */
    const void *from; /* borrowed until the fence is reached; BROADCAST: read on the root */
    void *to;         /* may be `from` in ALL_REDUCE and BROADCAST; a part may be at its place in
                       * the whole array; no other overlap */
    uint64_t count;   /* elements of the whole array */
    /* The size of groups of consecutive ranks; a divisor of the world; 0: no groups. All ranks
     * submit the command. GATHER: a group gathers its own array. REDUCE_SCATTER and ALL_REDUCE of
     * fp32, bf16 and fp16: groups add arrays, round their sums to `type`, and add these sums, to
     * save traffic between groups. On cards, NCCL sums over all ranks */
    unsigned within;
    /* GATHER, REDUCE_SCATTER: [world + 1], or [within + 1] for a GATHER within groups, from 0 up to
     * count: the r-th rank has elements borders[r] to borders[r + 1]; borrowed until the fence is
     * reached. NULL: coll_border() */
    const uint64_t *borders;
    /* REDUCE_SCATTER of COLL_INT4: type of `to` (fp32, bf16 or fp16), which does not overlap
     * `from`. */
    enum coll_type sum_type;
    /* REDUCE_SCATTER of COLL_INT4: count of numbers in this rank's part; the last element may be
     * incomplete */
    uint64_t sum_count;
    /* GATHER, REDUCE_SCATTER: fills `from` on the coll's thread, without waiting for ranks; NULL:
     * `from` is complete. `context` is borrowed until the fence is reached */
    void (*prepare)(void *context);
    void *context;
};

/* Returns the r-th default border. Parts are equal, but the first `count % world` have one element
 * more. */
uint64_t coll_border(uint64_t count, unsigned world, unsigned r);

/* Submits a command without blocking. Returns 0 and a fence; -EAGAIN (without a message) if `depth`
 * commands are in flight; -EINVAL for an invalid command; -ENOTSUP if the back end cannot reach the
 * device's memory; or the error that ended the coll. A collective fails on all ranks that have not
 * finished it. The message names the rank at fault, if it is known: -ETIMEDOUT (it did not arrive),
 * -EPIPE (it closed), -EPROTO (it submitted another command), or the code that it gave to
 * coll_abort(). Later commands fail, too. After a fence has failed, no other rank uses this rank's
 * arrays. */
int coll_submit(struct coll *coll, const struct coll_command *command, struct core_fence *out);

/* Ends the run for all ranks with `code` (a negative errno) and this thread's message, because this
 * rank cannot continue. Commands that wait fail at once. */
void coll_abort(struct coll *coll, int code);

#endif
