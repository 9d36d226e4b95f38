/* queue.h: a thread that runs jobs in order. One thread, the owner, submits them. A failing job
 * ends the queue: the queue's line carries the error, and later jobs are dropped. Nothing is
 * allocated after create. */
#ifndef CORE_BASE_QUEUE_H
#define CORE_BASE_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/cpus.h"
#include "core/base/fence.h"

struct core_queue;

enum { CORE_JOB_ARGUMENT_BYTES = 256 };

struct core_job {
    /* Runs on the queue's thread. Returns 0, or -errno with a message. `arguments` are copied, and
     * valid during the call. */
    int (*run)(void *context, const void *arguments);
    /* Called on the queue's thread after `run` failed and the line carries the error, so a thread
     * that is notified finds the queue ended. May be NULL. */
    void (*failed)(void *context, int rc);
    void *context;          /* borrowed; outlives the job */
    const void *arguments;  /* copied at submit */
    size_t arguments_bytes; /* at most CORE_JOB_ARGUMENT_BYTES */
};

struct core_queue_options {
    const char *name;             /* name of the line and, cut to 15 bytes, of the thread */
    uint32_t depth;               /* limit of jobs in flight, rounded up to a power of two; 0: 64 */
    const struct core_cpus *cpus; /* read at create; NULL: those of the caller */
    /* borrowed; NULL: the line's own */
    struct core_bell *bell;
    /* The end of a job rings the bell only if fewer jobs than this are left, for an owner that
     * refills the queue; 0: always. */
    uint32_t rings_below;
    /* polls this long before it sleeps; 0: 20000, <0: not at all */
    int64_t spin_ns;
};

int core_queue_create(const struct core_queue_options *options, struct core_queue **out);

/* Waits until the submitted jobs have run or were dropped. Accepts NULL. */
void core_queue_destroy(struct core_queue *queue);

/* Submits a job without blocking. *out is reached when the job has run. Returns -EAGAIN without a
 * message if `depth` jobs are in flight, or the error that ended the queue. */
int core_queue_submit(struct core_queue *queue, const struct core_job *job, struct core_fence *out);

/* Fails the line with `code` and this thread's message, and drops jobs that have not started. */
void core_queue_abandon(struct core_queue *queue, int code);

/* Returns the fence of the last submitted job. */
struct core_fence core_queue_tail(struct core_queue *queue);

/* Returns whether another job waits. Called by jobs. */
bool core_queue_has_more(const struct core_queue *queue);

struct core_line *core_queue_line(struct core_queue *queue);

#endif
