/* queue.h: a thread that does jobs in order, with a line for fences.
 * One thread submits (the queue's owner); the queue's own thread runs. A job starts when the one
 * before it has ended. The first job that fails ends the queue: its line carries the error, and later
 * jobs are dropped unrun. Nothing is allocated after create. */
#ifndef CORE_BASE_QUEUE_H
#define CORE_BASE_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/cpus.h"
#include "core/base/fence.h"

struct core_queue;

enum { CORE_JOB_ARGUMENT_BYTES = 256 };

struct core_job {
    /* Runs on the queue's thread. 0, or -errno with the thread's message set. `arguments` are the
     * queue's copy and valid during the call only. */
    int (*run)(void *context, const void *arguments);
    /* Called on the queue's thread if `run` has failed; the message of `run` is set. By then the
     * line has failed, so a thread that this function notifies finds that the queue accepts no more
     * jobs. NULL: no thread is to be notified. */
    void (*failed)(void *context, int rc);
    void *context;          /* borrowed; outlives the job */
    const void *arguments;  /* copied at submit */
    size_t arguments_bytes; /* at most CORE_JOB_ARGUMENT_BYTES */
};

struct core_queue_options {
    const char *name;             /* of the line and, shortened, of the thread */
    uint32_t depth;               /* jobs that can wait, rounded up to a power of two; 0: 64 */
    const struct core_cpus *cpus; /* where it runs, read at create; NULL: on the caller's
                                   * processors */
    struct core_bell *bell;       /* borrowed: shared bell of the line; NULL: its own */
    int64_t spin_ns;              /* time to look for work before sleeping; 0: 20000, <0: none */
};

int core_queue_create(const struct core_queue_options *options, struct core_queue **out);

/* Ends the thread after the jobs that were submitted have run. NULL is fine. */
void core_queue_destroy(struct core_queue *queue);

/* Never blocks. -EAGAIN when `depth` jobs wait (the caller waits on an older fence), or the error
 * with which the queue has ended. On success *out is reached when the job has run. */
int core_queue_submit(struct core_queue *queue, const struct core_job *job, struct core_fence *out);

/* Fails the line with `code` and this thread's message; jobs that have not started are dropped.
 * For ending early. */
void core_queue_abandon(struct core_queue *queue, int code);

/* A fence that is reached when everything submitted so far is done. */
struct core_fence core_queue_tail(struct core_queue *queue);

struct core_line *core_queue_line(struct core_queue *queue);

#endif
