/* coll.h: collectives between ranks: gather, reduce-scatter, all-reduce, broadcast, barrier, abort.
 * Each rank opens a coll; all ranks submit the same commands in the same order. Commands are
 * asynchronous and run in order. When a command's fence is reached, this rank's part is done and
 * its buffers may be used again. One thread per rank submits; any thread may call abort.
 *
 * Every command works on one array of `count` elements, cut at `borders` into one part per rank.
 * Sums are computed in fp32 (COLL_F64: fp64) over ranks 0, 1, 2, ... and rounded once, to nearest
 * even; those of COLL_INT4 add the decoded numbers. Sums do not depend on which rank arrives first.
 * A command with `within` permits sums in another order, with more roundings. */
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

/* Ranks that are threads of one process share a meeting. Create it before they open; destroy it
 * after all have closed. */
int coll_meeting_create(unsigned world, struct coll_meeting **out);
void coll_meeting_destroy(struct coll_meeting *meeting);

struct coll_options {
    const char *kind; /* NULL: "self" */
    unsigned rank;
    unsigned world;               /* 0 means 1 */
    struct coll_meeting *meeting; /* borrowed; for "local" */
    struct coll_peers *peers;     /* borrowed; for "processes" */
    /* Borrowed. The device whose memory has the arrays; NULL: host memory. For "nccl" the rank's
     * card: the arrays of a command are either on the cards of all ranks, or in host memory on all
     * ranks; "nccl" moves the latter over `peers`, or over `meeting` if `peers` is NULL */
    struct dev_device *device;
    unsigned sum_op; /* nccl: the device's op that takes core_sum_args (base/update_args.h) */
    /* nccl: device memory that receives the pieces of other ranks to be summed */
    size_t scratch_bytes;
    int64_t limit_ns; /* how long a rank waits for others before the run ends; 0: 10 min */
    uint32_t depth;   /* the most commands in flight; 0: 64 */
    /* processors of the back end's thread; NULL: those of the caller */
    const struct core_cpus *cpus;
    struct core_bell *bell; /* borrowed: rung when a command ends; NULL: the coll creates one */
};

/* Returns 0 if NCCL can be used, or -errno with a message that gives the reason. */
int coll_nccl_find(void);

int coll_open(const struct coll_options *options, struct coll **out);
/* Waits until the submitted commands have ended. If they can no longer end, call coll_abort first.
 * Commands of other ranks that still need this rank fail with an error that names it. Accepts
 * NULL. */
void coll_close(struct coll *coll);

unsigned coll_world(const struct coll *coll);

/* ---- Commands ---- */

enum coll_op {
    COLL_GATHER,         /* from: this rank's part; to: the whole array, on every rank */
    COLL_REDUCE_SCATTER, /* from: a whole array; to: this rank's part of the sum over ranks */
    COLL_ALL_REDUCE,     /* from: a whole array; to: the whole sum */
    COLL_BROADCAST,      /* copies the root's `from` to every rank's `to` */
    COLL_BARRIER,        /* waits for all ranks; moves no data, so `count` is ignored */
    COLL_OPS
};

enum coll_type {
    COLL_F32,
    COLL_BF16,
    COLL_FP16,
    COLL_F64,
    COLL_BYTE, /* only for gather and broadcast */
    COLL_INT4, /* only for reduce-scatter; an element is 256 numbers as codes of 4 bits with their
                * scale (codes.h) */
    COLL_TYPES
};

const char *coll_op_name(enum coll_op op);       /* "reduce-scatter" */
const char *coll_type_name(enum coll_type type); /* "bf16" */
size_t coll_type_bytes(enum coll_type type);

struct coll_command {
    enum coll_op op;
    enum coll_type type;
    unsigned root;    /* BROADCAST: the rank whose `from` is copied; other ops: 0 */
    const void *from; /* borrowed until the fence is reached; BROADCAST: only the root's */
    void *to;         /* may be `from` in ALL_REDUCE and BROADCAST; in the other operations the part
                       * may be at its place inside the whole array. Otherwise `from` and `to` do
                       * not overlap */
    uint64_t count;   /* elements of the whole array */
    /* The size of groups of consecutive ranks: ranks 0 to within - 1 are the first group. Must
     * divide the world; 0: no groups. All ranks submit the command. GATHER: each group gathers a
     * separate array. REDUCE_SCATTER and ALL_REDUCE of fp32, bf16 and fp16: the ranks of a group
     * add their arrays, and the groups add their sums, which are rounded to `type`; so a rank
     * receives one sum from each other group, not a part from each of its ranks. On cards, NCCL
     * sums over all ranks */
    unsigned within;
    /* GATHER, REDUCE_SCATTER: [world + 1], or [within + 1] for a GATHER within groups, ascending
     * from 0 to count: the r-th rank has elements borders[r] to borders[r + 1]; borrowed until the
     * fence is reached. NULL: coll_border() */
    const uint64_t *borders;
    /* REDUCE_SCATTER of COLL_INT4: the type of the numbers at `to` (fp32, bf16 or fp16). `to` does
     * not overlap `from`. */
    enum coll_type sum_type;
    /* REDUCE_SCATTER of COLL_INT4: how many numbers this rank's part has; its last element may have
     * fewer than 256. */
    uint64_t sum_count;
    /* GATHER, REDUCE_SCATTER: called on the coll's thread, before `from` is read, to fill it; NULL:
     * `from` is complete. Must return without waiting for other ranks. `context` is borrowed until
     * the fence is reached */
    void (*prepare)(void *context);
    void *context;
};

/* Returns the r-th default border. Parts have equal size, except that each of the first `count %
 * world` ranks has one element more. */
uint64_t coll_border(uint64_t count, unsigned world, unsigned r);

/* Submits a command and never blocks. Returns 0 and a fence; -EAGAIN (without a message) if `depth`
 * commands are in flight; -EINVAL for an invalid command; -ENOTSUP if the back end cannot reach the
 * device's memory; or the error that has ended this coll. A collective that fails does so on every
 * rank that has not finished it, with the same message everywhere: -ETIMEDOUT if a rank did not
 * arrive within the limit, -EPIPE if one closed, -EPROTO if one submitted a different command, or
 * the code with which one aborted; the message names that rank. All later commands fail, too. After
 * a rank's fence has failed, no other rank uses its arrays. */
int coll_submit(struct coll *coll, const struct coll_command *command, struct core_fence *out);

/* Ends the run for all ranks with `code` (a negative errno) and this thread's message, because this
 * rank cannot continue. Commands that wait for other ranks fail at once, on all ranks. */
void coll_abort(struct coll *coll, int code);

#endif
