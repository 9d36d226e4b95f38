/* coll.h: what ranks do together: gather, reduce-scatter, all-reduce, broadcast, barrier, abort.
 * Each rank opens one coll; all ranks submit the same commands in the same order. Commands are
 * asynchronous and done in order; fences say when a rank's part is over, which means that its
 * buffers may be used again. One thread a rank submits; any thread may call abort.
 *
 * Every command is about one array of `count` elements, cut into one part a rank at `borders`. Sums
 * are formed in fp32 (in fp64 for COLL_F64) over ranks 0, 1, 2, ... and rounded once, to nearest
 * even, so that they depend on neither who comes first nor how often they are run (a back end that
 * sums in a fixed order of its own says so where it is opened). */
#ifndef CORE_COLL_COLL_H
#define CORE_COLL_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/cpus.h"
#include "core/base/fence.h"

struct coll;
struct coll_meeting;
struct dev_device;

/* ---- Registry ---- */

/* The name of the index-th back end ("self", "local", "mpi", "nccl"), NULL beyond the last. */
const char *coll_kind_name(unsigned index);
bool coll_kind_built(unsigned index);

/* ---- One rank's end ---- */

enum { COLL_WORLD_MAX = 4096 };

/* Where ranks that are threads of one process meet. Made before they open, destroyed after all have
 * closed. */
int coll_meeting_create(unsigned world, struct coll_meeting **out);
void coll_meeting_destroy(struct coll_meeting *meeting);

struct coll_options {
    const char *kind; /* NULL: "self" */
    unsigned rank;
    unsigned world;               /* 0: 1 */
    struct coll_meeting *meeting; /* local: borrowed */
    struct dev_device *device;    /* borrowed: whose memory the arrays lie in; NULL: host memory */
    int64_t limit_ns;             /* a rank that keeps others waiting longer ends the run; 0: ten
                                     minutes */
    uint32_t depth;               /* commands in flight; 0: 64 */
    const struct core_cpus *cpus; /* of the back end's thread; NULL: where the caller may */
    struct core_bell *bell;       /* borrowed: of the line; NULL: its own */
};

int coll_open(const struct coll_options *options, struct coll **out);
/* Ends when the submitted commands have (coll_abort first where they no longer can). Others that
 * still want something of this rank fail with its number. NULL is fine. */
void coll_close(struct coll *coll);

unsigned coll_world(const struct coll *coll);

/* ---- Commands ---- */

enum coll_op {
    COLL_GATHER,         /* from: this rank's part; to: the whole array, on every rank */
    COLL_REDUCE_SCATTER, /* from: a whole array; to: this rank's part of the sum of all */
    COLL_ALL_REDUCE,     /* from: a whole array; to: the whole sum */
    COLL_BROADCAST,      /* the root's `from` to everybody's `to` */
    COLL_BARRIER,        /* count 0 */
    COLL_OPS
};

enum coll_type {
    COLL_F32,
    COLL_BF16,
    COLL_FP16,
    COLL_F64,
    COLL_BYTE, /* gather and broadcast */
    COLL_TYPES
};

const char *coll_op_name(enum coll_op op);       /* "reduce-scatter" */
const char *coll_type_name(enum coll_type type); /* "bf16" */
size_t coll_type_bytes(enum coll_type type);

struct coll_command {
    enum coll_op op;
    enum coll_type type;
    unsigned root;    /* BROADCAST */
    const void *from; /* borrowed until the fence is reached; BROADCAST: of the root alone */
    void *to;         /* may be `from` in ALL_REDUCE and BROADCAST; in the others the part may
                                be the one that stands at its place in the whole. Apart from that
                                the two do not overlap */
    uint64_t count;   /* elements of the whole array */
    const uint64_t
        *borders; /* GATHER, REDUCE_SCATTER: [world + 1], ascending from 0 to count: rank r
                                has elements borders[r] to borders[r + 1]; borrowed until the fence
                                is reached. NULL: coll_border() */
};

/* The r-th border where none are given: parts of equal size, the first `count % world` ranks one
 * element more. */
uint64_t coll_border(uint64_t count, unsigned world, unsigned r);

/* Never blocks. 0 and a fence; -EAGAIN (without a sentence) when `depth` commands are in flight;
 * -EINVAL for a command that no rank could mean; or the error with which this coll has ended.
 * A collective that fails does so on every rank that has not finished it, each with the same
 * sentence, which names a rank and the collective: -ETIMEDOUT the rank did not come within the limit,
 * -EPIPE it closed, -EPROTO it came with something else, or the code with which it aborted. After
 * that everything else fails too. Once a rank's fence has failed, no other rank uses its arrays. */
int coll_submit(struct coll *coll, const struct coll_command *command, struct core_fence *out);

/* Ends the run for all ranks with `code` and this thread's sentence, for a rank that cannot go on.
 * Ranks that wait leave at once. */
void coll_abort(struct coll *coll, int code);

/* What came to this rank from others since it opened. Any thread. */
struct coll_traffic {
    uint64_t commands;
    uint64_t received_bytes[COLL_OPS];
};

void coll_traffic_report(const struct coll *coll, struct coll_traffic *out);

#endif
