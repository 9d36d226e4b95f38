/* dev.h: a device provides memory under a budget, queues, copies and a table of ops.
 * The CPU and CUDA are back ends behind this interface; callers do not know which one they use.
 * A device and its memory: any thread. A queue: one thread at a time submits to it.
 * There is no global state. */
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

/* Returns the name of the index-th kind ("cpu", "cuda"); NULL past the last one. Kinds that are not
 * built in are listed, too. */
const char *dev_kind_name(unsigned index);
bool dev_kind_built(unsigned index);
/* Returns whether a device of this kind or name ("cpu", "cuda:1") is the CPU, which works in host
 * memory. */
bool dev_is_cpu(const char *name);
/* Returns the number of devices of the kind in this machine, at least 1. Returns -ENODEV if none is
 * usable, -ENOTSUP if the kind is not built in; the message gives the cause and the remedy. */
int dev_kind_count(unsigned index);

/* ---- Device ---- */

struct dev_options {
    size_t memory_bytes;          /* hard budget of the DEVICE tier. 0 means, on the CPU, a quarter
                                   * of the machine's memory or, if that is less, of the cgroup's
                                   * limit; on a GPU, the free memory less 1 GiB, or half of it if
                                   * no more than 1 GiB is free */
    const struct core_cpus *cpus; /* CPU: default processors of its queues, read at open; NULL:
                                   * those of the caller */
};

enum { DEV_NAME_BYTES = 32, DEV_DESCRIPTION_BYTES = 128 };

/* Writes the name of the device that rank `index` of `ranks` ranks of this machine uses. All ranks
 * share "cpu". On GPUs each rank has its own: "cuda" gives it the index-th GPU, "cuda:0,2" the
 * index-th of the list. Returns -EINVAL for an unknown name, if there are fewer GPUs than ranks, or
 * if the list does not have `ranks` entries; -ENODEV if a listed GPU does not exist; else the
 * errors of dev_kind_count. */
int dev_name_of_rank(const char *name, unsigned index, unsigned ranks, char out[DEV_NAME_BYTES]);

/* `name` is "cpu", "cuda", "cuda:N" or a list for several ranks, of which the first device is
 * opened. With `options` NULL the defaults apply. Returns -EINVAL for an unknown name, with a
 * message that lists the expected ones; if there is no such device, -ENODEV or another error of
 * dev_kind_count. */
int dev_open(const char *name, const struct dev_options *options, struct dev_device **out);
/* Destroy the device's queues first. Logs a warning if memory is still allocated, and frees it.
 * Accepts NULL. */
void dev_close(struct dev_device *device);

struct dev_properties {
    char name[DEV_NAME_BYTES];               /* "cpu", "cuda:0" */
    char kind[DEV_NAME_BYTES];               /* "cpu", "cuda" */
    char description[DEV_DESCRIPTION_BYTES]; /* the product; GPU: also the number of its SMs and
                                              * its PCI address */
    uint64_t memory_total_bytes;             /* all memory of the GPU or, for the CPU, of the
                                              * machine */
    unsigned units;    /* CPU: processors that it may use; GPU: multiprocessors */
    unsigned arch;     /* 10 * major + minor of the compute capability; 0 on the CPU */
    int numa_node;     /* the nearest node of host memory; -1: unknown */
    bool host_visible; /* the host may read and write the device's memory through its pointers */
};

const struct dev_properties *dev_properties(const struct dev_device *device);

/* ---- Memory: one arena, exact to DEV_ALIGN_BYTES, never above the budget. ---- */

enum { DEV_ALIGN_BYTES = 256 };

struct dev_memory {
    size_t budget_bytes;
    size_t used_bytes; /* allocations, each rounded up to DEV_ALIGN_BYTES */
    size_t peak_bytes;
    size_t largest_bytes; /* the largest allocation that would succeed now */
    unsigned count;
};

/* Allocates memory with undefined contents. Returns -ENOMEM with a message that gives the bytes
 * requested, in use and in the budget; -EINVAL for zero bytes. Not called during a step: the tape's
 * slots are in allocations that were made before. */
int dev_memory_alloc(struct dev_device *device, size_t bytes, void **out);
/* Accepts NULL. No command in flight may use the memory. */
void dev_memory_free(struct dev_device *device, void *memory);
void dev_memory_report(struct dev_device *device, struct dev_memory *out);
/* Returns whether [memory, memory + bytes) is memory of this device. */
bool dev_memory_holds(struct dev_device *device, const void *memory, size_t bytes);
/* Returns whether each allocation is also a separate allocation of the CUDA runtime, so that its
 * tools detect accesses outside the allocation. This is the case on a GPU with
 * TIDE_DEVICE_MEMORY=separate in the environment. */
bool dev_memory_is_separate(const struct dev_device *device);

/* Prepares host memory for asynchronous copies: a GPU pins it, the CPU device only records the
 * range. The range must start at a page boundary, not be registered yet, and stay mapped until
 * dev_host_unregister(). Failure is not fatal: a GPU's copies from unregistered memory are correct,
 * but slow and synchronous. */
int dev_host_register(struct dev_device *device, void *memory, size_t bytes);
/* `memory` is the address that was registered. Accepts NULL. */
void dev_host_unregister(struct dev_device *device, void *memory);

/* ---- Ops ---- */

/* Adds rows to the device's table; a later row for the same op replaces the earlier one. `context`
 * is passed to the launches of these rows and must outlive the device's queues. Call it before any
 * queue exists. */
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
    uint32_t depth;               /* the most commands in flight, rounded up to a power of two;
                                   * 0: 64 */
    unsigned threads;             /* CPU: members of the queue's team; 0: one per processor of
                                   * `cpus` for compute and update, 1 for the copy queues */
    const struct core_cpus *cpus; /* CPU: the processors of its threads; NULL: the device's */
    size_t scratch_bytes;         /* device memory for its ops, counted in the budget; 0: none */
    /* borrowed: rung whenever the line advances; NULL: the line has its own */
    struct core_bell *bell;
};

/* A queue runs its commands in order. A device has at most DEV_QUEUE_MAX queues. */
int dev_queue_create(struct dev_device *device, const struct dev_queue_options *options,
                     struct dev_queue **out);
/* Waits for all submitted commands; if they can no longer end, abandon the queue first. Accepts
 * NULL. The queue's fences become invalid. */
void dev_queue_destroy(struct dev_queue *queue);

struct dev_command {
    unsigned op;
    const void *arguments; /* copied */
    size_t arguments_bytes;
    bool more; /* more launches of this unit of work follow; the last one has `more` false. A GPU
                * then records one event for all of them: all their fences are reached when the last
                * one's is, and must not be waited for before the last one is submitted. The CPU
                * device ignores `more` */
};

enum dev_copy_direction {
    DEV_COPY_UP,
    DEV_COPY_DOWN,
    DEV_COPY_WITHIN,
    DEV_COPY_ZEROS, /* writes zeros to memory that the device's ops may write: its own memory and,
                     * if host_visible, also the host's; `from` is NULL */
    DEV_COPY_DIRECTIONS
};

struct dev_copy {
    enum dev_copy_direction direction;
    void *to;
    const void *from;
    size_t bytes; /* 0 bytes are allowed: the command is then only a fence */
    bool more;    /* as in dev_command */
    bool foreign; /* UP, DOWN: the device's side of the copy is memory of the application, outside
                   * the arena */
    /* Points to a stream of the application (CUDA: a cudaStream_t); the copy runs after the work
     * that is already on the stream. NULL: the queue's own stream. The CPU device has no streams:
     * if `stream` is set, it makes the copy during the call, because the application's work runs in
     * the order of its calls. Fences of a queue are reached in the order of its commands, whatever
     * streams the commands are on. */
    void *const *stream;
};

/* Neither call blocks. A command waits only for earlier commands of its queue; a caller that needs
 * the results of another queue waits for its fence first. Returns 0 and a fence that is reached
 * when the command is done. Returns -EAGAIN (without a message) if the queue is full: try again
 * later. Returns -ENOTSUP for an op that the device does not have, or -EINVAL for arguments of the
 * wrong size or a copy that leaves the arena or overlaps itself; the queue remains usable after
 * both. Otherwise returns the error that has ended the queue. An op that fails ends its queue:
 * later commands are dropped, and their fences carry the message. */
int dev_queue_launch(struct dev_queue *queue, const struct dev_command *command,
                     struct core_fence *out);
int dev_queue_copy(struct dev_queue *queue, const struct dev_copy *copy, struct core_fence *out);

/* Receives how long launches took. `op` is the op's name; times are those of
 * core_clock_now_ns(). */
struct dev_timing {
    void (*timed)(void *user, const char *op, int64_t begin_ns, int64_t end_ns);
    void *user;
};
/* Calls timing->timed, on a thread of the device, for each launch that starts (on a GPU: that is
 * submitted) from now on and succeeds: in order, and before the fence of the launch is reached.
 * `timing` is borrowed until the queue is destroyed; NULL stops the reports. On a GPU a report
 * takes two events per launch, which slows the queue down, and a launch that is submitted while 511
 * reports are due is not reported. Returns -EBUSY if a queue of a GPU was given another `timing`
 * before. Called by the thread that submits. */
int dev_queue_time(struct dev_queue *queue, const struct dev_timing *timing);

/* Lets a library put its own work on the queue's stream, in order with the queue's commands. Called
 * on the thread that submits to the queue. Returns -ENOTSUP if the device has no streams. Makes the
 * device current for that thread and sets *out to the arguments that an op would receive. To wait
 * for the work, submit a copy of 0 bytes after it and wait for the fence of that copy. */
int dev_queue_enter(struct dev_queue *queue, struct dev_launch *out);

/* Returns a fence that is reached when all submitted commands are done. */
struct core_fence dev_queue_tail(const struct dev_queue *queue);
/* Ends the queue with `code` and this thread's message; its fences that are not reached fail. The
 * CPU drops commands that have not started; a GPU still runs those on its stream. */
void dev_queue_abandon(struct dev_queue *queue, int code);

/* ---- Rates ---- */

struct dev_rates { /* bytes per second */
    double up;
    double down;
    double both;   /* each of two concurrent copies of the same size, one up and one down */
    double within; /* bytes copied; each is read and written */
};

/* Measures with 20 copies of `bytes` on two queues. Needs 2 * bytes of the budget and as much host
 * memory. The device's other queues should be idle. */
int dev_rates_measure(struct dev_device *device, size_t bytes, struct dev_rates *out);

#endif
