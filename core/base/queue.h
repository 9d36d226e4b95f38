/* queue.h: a thread that runs jobs in order, with a line for fences. One thread, the queue's owner,
 * submits jobs; the queue's own thread runs them. A job starts when the previous one has ended. The
 * first job that fails ends the queue: the queue's line carries the error, and later jobs are
 * dropped. Nothing is allocated after create. */
#ifndef CORE_BASE_QUEUE_H
#define CORE_BASE_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/cpus.h"
#include "core/base/fence.h"

struct core_queue;

enum { CORE_JOB_ARGUMENT_BYTES = 256 };

struct core_job {
    /* Runs on the queue's thread. Returns 0, or -errno with the thread's message set. `arguments`
     * are the queue's copy and valid during the call only. */
    int (*run)(void *context, const void *arguments);
    /* Called on the queue's thread after `run` has failed and set its message. The line has already
     * failed then, so a thread that this function notifies finds that the queue accepts no more
     * jobs. May be NULL. */
    void (*failed)(void *context, int rc);
    void *context;          /* borrowed; outlives the job */
    const void *arguments;  /* copied at submit */
    size_t arguments_bytes; /* at most CORE_JOB_ARGUMENT_BYTES */
};

struct core_queue_options {
    const char *name;             /* name of the line and, shortened, of the thread */
    uint32_t depth;               /* the most jobs that are not done, rounded up to a power of two;
                                   * 0: 64 */
    const struct core_cpus *cpus; /* the processors of the thread, read at create; NULL: those of
                                   * the caller */
    /* borrowed: shared bell of the line; NULL: the line has its own */
    struct core_bell *bell;
    /* The end of a job rings the line's bell only if fewer jobs than this are left, for an owner
     * that only needs to know when the queue runs short; 0: the end of every job rings it. */
    uint32_t rings_below;
    /* how long the thread polls for work before it sleeps; 0: 20000, <0: not at all */
    int64_t spin_ns;
};

int core_queue_create(const struct core_queue_options *options, struct core_queue **out);

/* Ends the thread after all submitted jobs have run or were dropped. Accepts NULL. */
void core_queue_destroy(struct core_queue *queue);

/* Submits a job without blocking. Returns -EAGAIN without a message if `depth` jobs are not done
 * (the caller then waits for an older fence), or the error that ended the queue. On success *out is
 * reached when the job has run. */
int core_queue_submit(struct core_queue *queue, const struct core_job *job, struct core_fence *out);

/* Ends the queue early: fails the line with `code` and this thread's message, and drops jobs that
 * have not started. */
void core_queue_abandon(struct core_queue *queue, int code);

/* Returns a fence that is reached when all submitted jobs are done. */
struct core_fence core_queue_tail(struct core_queue *queue);

/* Returns whether a job waits for the running one to end. Called by jobs, on the queue's thread. */
bool core_queue_has_more(const struct core_queue *queue);

struct core_line *core_queue_line(struct core_queue *queue);

#endif
