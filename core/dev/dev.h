/* dev.h: a device gives memory under a budget, queues, copies and a table of ops.
 * The CPU device is one file behind this interface and CUDA another; callers know neither. Every
 * function here checks what it is given before a back end sees it.
 * A device and its memory: any thread. A queue: one thread at a time submits to it.
 * There is no state outside the objects. */
#ifndef CORE_DEV_DEV_H
#define CORE_DEV_DEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/cpus.h"
#include "core/base/fence.h"
#include "core/dev/launch.h"

struct dev_device;
struct dev_queue;

/* ---- Registry: which kinds of device this build knows. ---- */

/* The name of the index-th kind ("cpu", "cuda"), NULL beyond the last. Kinds that were not built
 * in are listed too. */
const char *dev_kind_name(unsigned index);
bool dev_kind_built(unsigned index);
/* Whether a device of this kind or name ("cpu", "cuda:1") is the processor, which works in host
 * memory. */
bool dev_is_cpu(const char *name);
/* How many devices of the kind this machine has now, at least 1; or -ENODEV, or -ENOTSUP where the
 * kind is not built in, with a sentence that says why and what would cure it. */
int dev_kind_count(unsigned index);

/* ---- Device ---- */

struct dev_options {
    size_t memory_bytes;          /* hard budget of the DEVICE tier; 0: what the device proposes,
                                     a quarter of the machine's memory or of the cgroup's limit on
                                     the CPU, what is free less 1 GiB on a card */
    const struct core_cpus *cpus; /* CPU: where its queues run unless they say; read at open; NULL:
                                     where the caller may */
};

/* `name` is "cpu", "cuda" or "cuda:N". Unknown: -EINVAL listing the kinds; absent: as
 * dev_kind_count. `options` NULL takes the defaults. */
int dev_open(const char *name, const struct dev_options *options, struct dev_device **out);
/* After its queues were destroyed. Memory that is still allocated is returned with a warning. NULL
 * is fine. */
void dev_close(struct dev_device *device);

enum { DEV_NAME_BYTES = 32, DEV_DESCRIPTION_BYTES = 128 };

struct dev_properties {
    char name[DEV_NAME_BYTES];               /* "cpu", "cuda:0" */
    char kind[DEV_NAME_BYTES];               /* "cpu", "cuda" */
    char description[DEV_DESCRIPTION_BYTES]; /* the product, its clock, its address */
    uint64_t memory_total_bytes;             /* of the hardware */
    unsigned units;    /* processors that the CPU device may use; multiprocessors of a card */
    unsigned arch;     /* 10 * major + minor of the compute capability; 0 on the CPU */
    int numa_node;     /* nearest host memory; -1 where unknown */
    bool host_visible; /* the host may read and write the device's memory through its pointers */
};

const struct dev_properties *dev_properties(const struct dev_device *device);

/* ---- Memory: one arena, exact to DEV_ALIGN_BYTES, never above the budget. ---- */

enum { DEV_ALIGN_BYTES = 256 };

struct dev_memory {
    size_t budget_bytes;
    size_t used_bytes; /* allocations, each rounded up to DEV_ALIGN_BYTES */
    size_t peak_bytes;
    size_t largest_bytes; /* of an allocation that would succeed now */
    unsigned count;
};

/* Contents are undefined. -ENOMEM names what is left and what was asked for; zero bytes: -EINVAL.
 * Not while working: the tape's slots lie in allocations made before. */
int dev_memory_alloc(struct dev_device *device, size_t bytes, void **out);
/* NULL is fine. Nothing in flight may touch it. */
void dev_memory_free(struct dev_device *device, void *memory);
void dev_memory_report(struct dev_device *device, struct dev_memory *out);

/* Makes host memory fit for asynchronous copies (pins it; on the CPU device only noted). The range
 * starts at a page, is not registered yet and stays mapped until dev_host_unregister. Failing is
 * no end: copies from memory that is not registered are right, though slow and not asynchronous. */
int dev_host_register(struct dev_device *device, void *memory, size_t bytes);
/* `memory` as it was registered. NULL is fine. */
void dev_host_unregister(struct dev_device *device, void *memory);

/* ---- Ops ---- */

/* Adds rows to the device's table; a later row for the same op replaces the earlier one. `context`
 * is handed to those rows' launches and outlives the device's queues. Before any queue exists. */
int dev_ops_register(struct dev_device *device, const struct dev_op *rows, size_t count,
                     void *context);

/* ---- Queues ---- */

enum dev_queue_kind {
    DEV_QUEUE_COMPUTE,
    DEV_QUEUE_UP,   /* host to device */
    DEV_QUEUE_DOWN, /* device to host */
    DEV_QUEUE_UPDATE,
    DEV_QUEUE_KINDS
};

/* "compute", "up", "down", "update". */
const char *dev_queue_kind_name(enum dev_queue_kind kind);

enum { DEV_QUEUE_MAX = 16, DEV_QUEUE_DEPTH_MAX = 1 << 16 };

struct dev_queue_options {
    enum dev_queue_kind kind;
    uint32_t depth;               /* commands in flight, rounded up to a power of two; 0: 64 */
    unsigned threads;             /* CPU: members of its team; 0: one a processor of `cpus` for
                                     compute and update, 1 for the copy queues */
    const struct core_cpus *cpus; /* CPU: where it runs; NULL: the device's */
    bool pin;                     /* CPU: one processor a member of the team */
    size_t scratch_bytes;         /* device memory for its ops, taken from the budget; 0: none */
    struct core_bell *bell;       /* borrowed: rung with each move of its line; NULL: its own */
};

/* A queue does its commands in order; its line counts them. At most DEV_QUEUE_MAX a device. */
int dev_queue_create(struct dev_device *device, const struct dev_queue_options *options,
                     struct dev_queue **out);
/* Waits for what was submitted (abandon first where that can no longer end). NULL is fine. Fences
 * of the queue end with it. */
void dev_queue_destroy(struct dev_queue *queue);

struct dev_command {
    unsigned op;
    const void *arguments; /* copied */
    size_t arguments_bytes;
    bool more; /* launches of the same unit of work follow, the last one without `more`. A card then
                  records one event for all of them; their fences are reached with the last one's and
                  must not be waited for before it was submitted. The CPU device ignores it */
};

enum dev_copy_direction {
    DEV_COPY_UP,
    DEV_COPY_DOWN,
    DEV_COPY_WITHIN,
    DEV_COPY_ZEROS, /* fills memory that ops of the device may write with zero bytes: its own, or the
                       host's, too, where host_visible; `from` is NULL */
    DEV_COPY_DIRECTIONS
};

struct dev_copy {
    enum dev_copy_direction direction;
    void *to;
    const void *from;
    size_t bytes; /* 0 is fine: a fence alone */
    bool more;    /* as of dev_command */
};

/* Both never block, and wait for nothing but the queue's earlier commands: who needs another queue's
 * results waits for its fence first. 0 and a fence that is reached when the command is done;
 * -EAGAIN (without a sentence) when the queue is full: try again later;
 * -ENOTSUP for an op that the device does not have, -EINVAL for arguments that are not the op's or
 * a copy that leaves the arena: the queue lives on;
 * or the error with which the queue has ended. An op that fails ends its queue: later commands are
 * dropped and their fences carry the sentence. */
int dev_queue_launch(struct dev_queue *queue, const struct dev_command *command,
                     struct core_fence *out);
int dev_queue_copy(struct dev_queue *queue, const struct dev_copy *copy, struct core_fence *out);

/* A fence that is reached when everything submitted so far is done. */
struct core_fence dev_queue_tail(const struct dev_queue *queue);
/* Ends the queue with `code` and this thread's sentence: commands not started are dropped. */
void dev_queue_abandon(struct dev_queue *queue, int code);

/* ---- Rates ---- */

struct dev_rates { /* bytes a second */
    double up;
    double down;
    double both;   /* each of an up and a down copy of the same size that run at once */
    double within; /* bytes copied; each is read and written */
};

/* Measures with copies of `bytes`, for which it takes 2 * bytes of the budget and as much host
 * memory, and two queues; 20 copies. The device's other queues should rest. */
int dev_rates_measure(struct dev_device *device, size_t bytes, struct dev_rates *out);

#endif
