/* queue.c: a ring of jobs between the owner and one thread. */
#include "core/base/queue.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/thread.h"

enum { DEPTH_DEFAULT = 64, DEPTH_MAX = 1 << 20, SPIN_NS_DEFAULT = 20000 };

struct slot {
    struct core_job job;
    _Alignas(16) unsigned char arguments[CORE_JOB_ARGUMENT_BYTES];
};

struct core_queue {
    struct core_line line; /* issued: taken by the thread; reached: done */
    struct slot *slots;    /* owned, [depth] */
    uint32_t depth;
    uint32_t rings_below; /* UINT32_MAX: always */
    int64_t spin_ns;
    uint64_t submitted_by_owner;
    struct core_cpus cpus;
    const struct core_log *log; /* borrowed from the creating thread */
    pthread_t thread;
    bool started;
    /* release by the owner, acquire by the thread */
    _Alignas(64) _Atomic uint64_t submitted;
    _Atomic bool ending;
    struct core_bell work;
};

/* Rings only if few jobs are left; the end of a later job rings otherwise. */
static void job_done(struct core_queue *queue, uint64_t done)
{
    const uint64_t submitted = atomic_load_explicit(&queue->submitted, memory_order_relaxed);
    if (submitted - done < queue->rings_below) {
        core_line_reach(&queue->line, done);
    } else {
        core_line_reach_silently(&queue->line, done);
    }
}

static void *queue_main(void *argument)
{
    struct core_queue *queue = argument;
    core_log_bind(queue->log);
    char name[16];
    snprintf(name, sizeof name, "%.15s", queue->line.name);
    pthread_setname_np(pthread_self(), name);
    if (core_cpus_count(&queue->cpus) > 0 && core_cpus_bind_self(&queue->cpus) != 0) {
        core_log(CORE_LOG_WARN, "%s; left unpinned", core_err_message());
    }
    for (uint64_t next = 0;; next++) {
        for (;;) {
            uint32_t seen = core_bell_look(&queue->work);
            if (atomic_load_explicit(&queue->submitted, memory_order_acquire) > next) {
                break;
            }
            if (atomic_load_explicit(&queue->ending, memory_order_acquire)) {
                return NULL;
            }
            core_bell_spin_sleep(&queue->work, seen, queue->spin_ns, -1);
        }
        if (atomic_load_explicit(&queue->line.error, memory_order_acquire) != 0) {
            continue;
        }
        core_line_issue(&queue->line, next + 1);
        const struct slot *slot = &queue->slots[next & (queue->depth - 1)];
        int rc = slot->job.run(slot->job.context, slot->arguments);
        if (rc != 0) {
            core_line_fail(&queue->line, rc, core_err_message());
            if (slot->job.failed != NULL) {
                slot->job.failed(slot->job.context, rc);
            }
        } else {
            job_done(queue, next + 1);
        }
    }
}

static uint32_t power_of_two(uint32_t n)
{
    uint32_t power = 1;
    while (power < n) {
        power *= 2;
    }
    return power;
}

int core_queue_create(const struct core_queue_options *options, struct core_queue **out)
{
    if (options->depth > DEPTH_MAX) {
        return core_err_set(-EINVAL, "queue depth %u is out of range; the maximum is %d",
                            options->depth, DEPTH_MAX);
    }
    struct core_queue *queue = aligned_alloc(64, (sizeof *queue + 63) / 64 * 64);
    if (queue == NULL) {
        return core_err_set(-ENOMEM, "no memory for a queue");
    }
    memset(queue, 0, sizeof *queue);
    core_line_init(&queue->line, options->name != NULL ? options->name : "queue", options->bell);
    core_bell_init(&queue->work);
    atomic_init(&queue->submitted, 0);
    atomic_init(&queue->ending, false);
    queue->depth = power_of_two(options->depth != 0 ? options->depth : DEPTH_DEFAULT);
    queue->rings_below = options->rings_below != 0 ? options->rings_below : UINT32_MAX;
    queue->spin_ns = options->spin_ns != 0 ? options->spin_ns : SPIN_NS_DEFAULT;
    queue->log = core_log_bound();
    if (options->cpus != NULL) {
        queue->cpus = *options->cpus;
    }
    int rc = 0;
    queue->slots = calloc(queue->depth, sizeof *queue->slots);
    if (queue->slots == NULL) {
        rc = core_err_set(-ENOMEM, "no memory for %u jobs of queue %s", queue->depth,
                          queue->line.name);
        goto fail;
    }
    rc = core_thread_start(&queue->thread, queue_main, queue);
    if (rc != 0) {
        rc = core_err_set(-rc, "cannot start the thread of queue %s: %s", queue->line.name,
                          strerror(rc));
        goto fail;
    }
    queue->started = true;
    *out = queue;
    return 0;
fail:
    core_queue_destroy(queue);
    return rc;
}

void core_queue_destroy(struct core_queue *queue)
{
    if (queue == NULL) {
        return;
    }
    if (queue->started) {
        atomic_store_explicit(&queue->ending, true, memory_order_release);
        core_bell_ring(&queue->work);
        pthread_join(queue->thread, NULL);
    }
    free(queue->slots);
    free(queue);
}

int core_queue_submit(struct core_queue *queue, const struct core_job *job, struct core_fence *out)
{
    assert(job->arguments_bytes <= CORE_JOB_ARGUMENT_BYTES);
    int error = atomic_load_explicit(&queue->line.error, memory_order_acquire);
    if (error != 0) {
        return core_err_adopt(error, queue->line.message);
    }
    uint64_t reached = atomic_load_explicit(&queue->line.reached, memory_order_acquire);
    if (queue->submitted_by_owner - reached >= queue->depth) {
        return -EAGAIN;
    }
    struct slot *slot = &queue->slots[queue->submitted_by_owner & (queue->depth - 1)];
    slot->job = *job;
    if (job->arguments_bytes > 0) {
        memcpy(slot->arguments, job->arguments, job->arguments_bytes);
    }
    slot->job.arguments = NULL;
    queue->submitted_by_owner++;
    atomic_store_explicit(&queue->submitted, queue->submitted_by_owner, memory_order_release);
    core_bell_ring(&queue->work);
    *out = core_queue_tail(queue);
    return 0;
}

void core_queue_abandon(struct core_queue *queue, int code)
{
    core_line_fail(&queue->line, code, core_err_message());
}

struct core_fence core_queue_tail(struct core_queue *queue)
{
    return (struct core_fence){.line = &queue->line, .value = queue->submitted_by_owner};
}

bool core_queue_has_more(const struct core_queue *queue)
{
    return atomic_load_explicit(&queue->submitted, memory_order_relaxed) >
           atomic_load_explicit(&queue->line.issued, memory_order_relaxed);
}

struct core_line *core_queue_line(struct core_queue *queue)
{
    return &queue->line;
}
