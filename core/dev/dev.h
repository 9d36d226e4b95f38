/* dev.h: a device provides memory under a budget, queues, copies and a table of ops. Most callers
 * need not know whether a device is the CPU or a GPU. A device and its memory: any thread. A queue:
 * one thread at a time. No global state. */
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

/* ---- Registry: the kinds of device that this build knows. ---- */

/* Returns the index-th kind ("cpu", "cuda"), built in or not; NULL past the last one. */
const char *dev_kind_name(unsigned index);
bool dev_kind_built(unsigned index);
/* Returns whether a kind or name ("cpu", "cuda:1") is the CPU. */
bool dev_is_cpu(const char *name);
/* Returns the number of devices of the kind, or an error with a message of cause and remedy.
 * -ENODEV: there is none. -ENOTSUP: the kind is not built in. */
int dev_kind_count(unsigned index);

/* ---- Device ---- */

struct dev_options {
    size_t memory_bytes;          /* hard budget of the DEVICE tier. 0: on the CPU, a quarter of the
                                   * machine's memory or, if lower, of the cgroup's limit; on a GPU,
                                   * the free memory less 1 GiB, or half of it if no more than 1 GiB
                                   * is free */
    const struct core_cpus *cpus; /* CPU: for its queues, read at open; NULL: those of the caller */
};

enum { DEV_NAME_BYTES = 32, DEV_DESCRIPTION_BYTES = 128 };

/* Writes the device of rank `index` of `ranks` on this machine. Ranks share "cpu". "cuda" gives a
 * rank the index-th GPU, "cuda:0,2" the index-th of the list. Refuses too few GPUs, a list whose
 * length is not `ranks`, and GPUs that do not exist. */
int dev_name_of_rank(const char *name, unsigned index, unsigned ranks, char out[DEV_NAME_BYTES]);

/* `name` is "cpu", "cuda", "cuda:N" or a list, of which the first device is opened. `options` may
 * be NULL. Returns -EINVAL for an unknown name; if there is no such device, -ENODEV or another
 * error of dev_kind_count. */
int dev_open(const char *name, const struct dev_options *options, struct dev_device **out);
/* Destroy the device's queues first. Frees memory that is still allocated, with a warning. Accepts
 * NULL. */
void dev_close(struct dev_device *device);

struct dev_properties {
    char name[DEV_NAME_BYTES];               /* "cpu", "cuda:0" */
    char kind[DEV_NAME_BYTES];               /* "cpu", "cuda" */
    char description[DEV_DESCRIPTION_BYTES]; /* the product; GPU: with its SMs and PCI address */
    uint64_t memory_total_bytes;             /* all memory of the GPU or, for the CPU, of the
                                              * machine */
    unsigned units;                          /* processors or multiprocessors */
    unsigned arch;                           /* 10 * major + minor compute capability; CPU: 0 */
    int numa_node;                           /* nearest node of host memory; -1: unknown */
    bool host_visible;                       /* the host may access the memory */
};

const struct dev_properties *dev_properties(const struct dev_device *device);

/* ---- Memory: one arena, exact to DEV_ALIGN_BYTES, never above the budget. ---- */

enum { DEV_ALIGN_BYTES = 256 };

struct dev_memory {
    size_t budget_bytes;
    size_t used_bytes; /* allocations, each rounded up to DEV_ALIGN_BYTES */
    size_t peak_bytes;
    size_t largest_bytes; /* the largest allocation that is possible now */
    unsigned count;
};

/* Allocates memory with undefined contents; 0 bytes are refused. Not called during a step, because
 * the tape's slots are in older allocations. */
int dev_memory_alloc(struct dev_device *device, size_t bytes, void **out);
/* Accepts NULL. No command in flight may use the memory. */
void dev_memory_free(struct dev_device *device, void *memory);
void dev_memory_report(struct dev_device *device, struct dev_memory *out);
/* Returns whether [memory, memory + bytes) is memory of this device. */
bool dev_memory_holds(struct dev_device *device, const void *memory, size_t bytes);
/* Returns whether allocations are separate ones of the CUDA runtime, so that its tools detect
 * overruns: on a GPU with TIDE_DEVICE_MEMORY=separate. */
bool dev_memory_is_separate(const struct dev_device *device);

/* Prepares host memory for asynchronous copies: a GPU pins it, the CPU records it. The range must
 * start at a page, not overlap a registered one, and stay mapped until dev_host_unregister(). After
 * a failure, a GPU's copies are correct, but slower and maybe synchronous. */
int dev_host_register(struct dev_device *device, void *memory, size_t bytes);
/* Takes the registered address. Accepts NULL. */
void dev_host_unregister(struct dev_device *device, void *memory);

/* ---- Ops ---- */

/* Adds rows to the device's table, or replaces them. `context` is passed to launches and must
 * outlive the queues. Call it before any queue exists. */
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

const char *dev_queue_kind_name(enum dev_queue_kind kind);

enum { DEV_QUEUE_MAX = 16, DEV_QUEUE_DEPTH_MAX = 1 << 16 };

struct dev_queue_options {
    enum dev_queue_kind kind;
    uint32_t depth;               /* limit of commands in flight, rounded up to a power of two; 0:
                                   * 64 */
    unsigned threads;             /* CPU: members of the team; 0: one per processor of `cpus` for
                                   * compute and update, else 1 */
    const struct core_cpus *cpus; /* CPU: for its threads; NULL: the device's */
    size_t scratch_bytes;         /* device memory for its ops, in the budget; 0: none */
    /* borrowed: rung when the line advances; NULL: the line's own */
    struct core_bell *bell;
};

/* Creates a queue, which runs commands in order. A device has at most DEV_QUEUE_MAX queues. */
int dev_queue_create(struct dev_device *device, const struct dev_queue_options *options,
                     struct dev_queue **out);
/* Waits for all submitted commands; if they cannot end, abandon the queue first. Accepts NULL. Its
 * fences become invalid. */
void dev_queue_destroy(struct dev_queue *queue);

struct dev_command {
    unsigned op;
    const void *arguments; /* copied */
    size_t arguments_bytes;
    bool more; /* more launches of this unit of work follow. A GPU then has one event for the unit:
                * the unit's fences are reached together, and must not be waited for before the last
                * launch is submitted. The CPU ignores `more` */
};

enum dev_copy_direction {
    DEV_COPY_UP,
    DEV_COPY_DOWN,
    DEV_COPY_WITHIN,
    DEV_COPY_ZEROS, /* writes zeros, with `from` NULL, to memory that ops may write: the device's
                     * and, if host_visible, the host's */
    DEV_COPY_DIRECTIONS
};

struct dev_copy {
    enum dev_copy_direction direction;
    void *to;
    const void *from;
    size_t bytes; /* 0: only a fence */
    bool more;    /* as in dev_command */
    bool foreign; /* UP, DOWN: the device's side is the application's memory, outside the arena */
    /* A stream of the application (CUDA: a cudaStream_t), after whose work the copy runs; NULL: the
     * queue's own. The CPU, which has no streams, copies during the call. On a GPU, fences are
     * reached in the order of the queue's commands, whatever their streams. */
    void *const *stream;
};

/* Do not wait for other commands. A command waits only for earlier commands of its queue: before
 * using results of another queue, wait for that queue's fence. Returns 0 and a fence; -EAGAIN
 * (without a message) if the queue is full; -ENOTSUP for a missing op, or -EINVAL for arguments of
 * a wrong size or a copy that leaves the arena or overlaps itself, after which the queue remains
 * usable; or the error that ended the queue. An op that fails ends its queue: the fences of later
 * commands carry the message. */
int dev_queue_launch(struct dev_queue *queue, const struct dev_command *command,
                     struct core_fence *out);
int dev_queue_copy(struct dev_queue *queue, const struct dev_copy *copy, struct core_fence *out);

/* Receives the times of launches, on the clock of core_clock_now_ns(). */
struct dev_timing {
    void (*timed)(void *user, const char *op, int64_t begin_ns, int64_t end_ns);
    void *user;
};
/* Reports the launches that succeed to timing->timed, on a thread of the device, in order, before
 * their fences are reached. `timing` is borrowed until the queue is destroyed; NULL: later launches
 * are not reported. A GPU becomes slower, with two events per launch, and skips a launch while 511
 * reports are due. -EBUSY: the queue is a GPU's and had another `timing` before. Called by the
 * thread that submits. */
int dev_queue_time(struct dev_queue *queue, const struct dev_timing *timing);

/* Lets a library put work on the queue's stream: makes the device current for this thread, which
 * submits to the queue, and sets *out as for an op. To wait for the work, submit a copy of 0 bytes
 * and wait for the copy's fence. Returns -ENOTSUP without streams. */
int dev_queue_enter(struct dev_queue *queue, struct dev_launch *out);

/* Returns the fence of the last submitted command. */
struct core_fence dev_queue_tail(const struct dev_queue *queue);
/* Ends the queue with `code` and this thread's message; fences that are not reached fail. The CPU
 * drops commands that have not started; a GPU still runs those on its stream. */
void dev_queue_abandon(struct dev_queue *queue, int code);

/* ---- Rates ---- */

struct dev_rates { /* bytes per second */
    double up;
    double down;
    double both;   /* each of two concurrent copies, up and down */
    double within; /* bytes copied */
};

/* Measures 20 copies of `bytes` on two queues. Needs 2 * bytes of the budget and of host memory.
 * Other queues should be idle. */
int dev_rates_measure(struct dev_device *device, size_t bytes, struct dev_rates *out);

#endif
