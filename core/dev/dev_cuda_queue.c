/* dev_cuda_queue.c: a queue of a CUDA GPU: a stream and a ring of events, one per unit of work. The
 * submitting thread puts work on the stream; one thread per device watches the events and advances
 * the lines. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/dev/dev_cuda.h"

enum {
    DEPTH_DEFAULT = 64,
    WATCH_SPIN_NS = 50000,
    WATCH_SLEEP_NS = 20000,
    LAUNCHES_MAX = 64,
    TIMER_SLACK_NS = 1
};

static const char *name_of(const struct cuda_device *device)
{
    return device->base.properties.name;
}

/* ---- The watch: advances lines when events complete. ---- */

/* Fails all queues, because the GPU's context is lost. */
static void fail_all(struct cuda_device *device, int code, const char *message)
{
    for (size_t i = 0; i < DEV_QUEUE_MAX; i++) {
        struct cuda_queue *queue = atomic_load_explicit(&device->queues[i], memory_order_acquire);
        if (queue != NULL) {
            core_line_fail(&queue->line, code, message);
        }
    }
}

/* Reports done launches in order, before their unit's fence is reached. */
static void report_times(struct cuda_times *times)
{
    const uint64_t added = atomic_load_explicit(&times->added, memory_order_acquire);
    uint64_t taken = atomic_load_explicit(&times->taken, memory_order_relaxed);
    struct CUevent_st *last = taken > 0 ? times->ring[(taken - 1) % DEV_CUDA_TIMES_MAX].end
                                        : times->start;
    for (; taken < added; taken++) {
        struct CUevent_st *begin = times->ring[taken % DEV_CUDA_TIMES_MAX].begin;
        struct CUevent_st *end = times->ring[taken % DEV_CUDA_TIMES_MAX].end;
        float pause_ms = 0;
        float ran_ms = 0;
        if (cudaEventQuery(end) != cudaSuccess ||
            cudaEventElapsedTime(&pause_ms, last, begin) != cudaSuccess ||
            cudaEventElapsedTime(&ran_ms, begin, end) != cudaSuccess) {
            (void)cudaGetLastError(); /* not done; the unit's event would report a lost GPU */
            break;
        }
        /* A float has too few digits for long runs, so differences are added. */
        const double begin_ns = times->last_ns + (double)pause_ms * 1e6;
        times->last_ns = begin_ns + (double)ran_ms * 1e6;
        times->to->timed(times->to->user, times->ring[taken % DEV_CUDA_TIMES_MAX].op,
                         times->start_ns + (int64_t)begin_ns,
                         times->start_ns + (int64_t)times->last_ns);
        last = end;
        atomic_store_explicit(&times->taken, taken + 1, memory_order_release);
    }
}

/* Returns whether the line advanced; sets *in_flight if work is in flight. */
static bool watch_queue(struct cuda_device *device, struct cuda_queue *queue, bool *in_flight)
{
    struct core_line *line = &queue->line;
    uint64_t issued = atomic_load_explicit(&line->issued, memory_order_acquire);
    uint64_t reached = atomic_load_explicit(&line->reached, memory_order_relaxed);
    bool moved = false;
    if (atomic_load_explicit(&line->error, memory_order_acquire) != 0) {
        return false;
    }
    for (; reached < issued; moved = true) {
        cudaError_t error = cudaEventQuery(queue->events[reached % queue->depth]);
        if (error == cudaErrorNotReady) {
            (void)cudaGetLastError();
            *in_flight = true;
            return moved;
        }
        if (error != cudaSuccess) {
            char call[96];
            snprintf(call, sizeof call, "command %" PRIu64 " of queue %s", reached + 1,
                     queue->base.name);
            int rc = dev_cuda_fail(
                name_of(device), call, 0, error,
                "the card is lost to this process: resume from a checkpoint; dmesg "
                "shows an Xid if the hardware failed");
            fail_all(device, rc, core_err_message());
            return true;
        }
        struct cuda_times *times = atomic_load_explicit(&queue->times, memory_order_acquire);
        if (times != NULL) {
            report_times(times);
        }
        core_line_reach(line, ++reached);
    }
    return moved;
}

static bool watch_pass(struct cuda_device *device, bool *in_flight)
{
    bool moved = false;
    pthread_mutex_lock(&device->watch_lock);
    for (size_t i = 0; i < DEV_QUEUE_MAX; i++) {
        struct cuda_queue *queue = atomic_load_explicit(&device->queues[i], memory_order_acquire);
        moved |= queue != NULL && watch_queue(device, queue, in_flight);
    }
    pthread_mutex_unlock(&device->watch_lock);
    return moved;
}

static void *watch_main(void *argument)
{
    struct cuda_device *device = argument;
    core_log_bind(device->log);
    pthread_setname_np(pthread_self(), "cuda watch");
    /* The kernel would add up to 50 us to the short sleeps below. */
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    (void)dev_cuda_enter(device);
    int64_t moved_ns = core_clock_now_ns();
    while (!atomic_load_explicit(&device->ending, memory_order_acquire)) {
        uint32_t seen = core_bell_look(&device->work);
        bool in_flight = false;
        bool moved = watch_pass(device, &in_flight);
        int64_t now_ns = core_clock_now_ns();
        if (moved) {
            moved_ns = now_ns;
        } else if (!in_flight) {
            core_bell_sleep(&device->work, seen, -1);
            moved_ns = core_clock_now_ns();
        } else if (now_ns - moved_ns < WATCH_SPIN_NS) {
            core_clock_relax();
        } else {
            nanosleep(&(struct timespec){.tv_nsec = WATCH_SLEEP_NS}, NULL);
        }
    }
    return NULL;
}

int dev_cuda_watch_start(struct cuda_device *device)
{
    int rc = core_thread_start(&device->watch, watch_main, device);
    if (rc != 0) {
        return core_err_set(-rc, "cannot start the thread that watches %s: %s", name_of(device),
                            strerror(rc));
    }
    device->watching = true;
    return 0;
}

void dev_cuda_watch_stop(struct cuda_device *device)
{
    if (device->watching) {
        atomic_store_explicit(&device->ending, true, memory_order_release);
        core_bell_ring(&device->work);
        pthread_join(device->watch, NULL);
        device->watching = false;
    }
}

/* ---- Create and destroy ---- */

/* Replaces `before` (NULL: a free entry) by `queue` among the watched queues. */
static void list_swap(struct cuda_device *device, struct cuda_queue *before,
                      struct cuda_queue *queue)
{
    pthread_mutex_lock(&device->watch_lock);
    for (size_t i = 0; i < DEV_QUEUE_MAX; i++) {
        if (atomic_load_explicit(&device->queues[i], memory_order_relaxed) == before) {
            atomic_store_explicit(&device->queues[i], queue, memory_order_release);
            break;
        }
    }
    pthread_mutex_unlock(&device->watch_lock);
}

static void times_destroy(struct cuda_times *times)
{
    for (size_t i = 0; times != NULL && i < DEV_CUDA_TIMES_MAX; i++) {
        struct CUevent_st *const events[] = {times->ring[i].begin, times->ring[i].end};
        for (int e = 0; e < 2; e++) {
            if (events[e] != NULL) {
                (void)cudaEventDestroy(events[e]);
            }
        }
    }
    if (times != NULL && times->start != NULL) {
        (void)cudaEventDestroy(times->start);
    }
    free(times);
}

void dev_cuda_queue_destroy(struct dev_queue *base)
{
    struct cuda_queue *queue = (struct cuda_queue *)base;
    struct cuda_device *device = (struct cuda_device *)base->device;
    (void)cudaSetDevice(device->index);
    const uint64_t issued = atomic_load_explicit(&queue->line.issued, memory_order_relaxed);
    uint64_t reached = atomic_load_explicit(&queue->line.reached, memory_order_acquire);
    for (; reached < issued; reached++) { /* copies may be on callers' streams */
        (void)cudaEventSynchronize(queue->events[reached % queue->depth]);
    }
    if (queue->stream != NULL) {
        cudaError_t error = cudaStreamSynchronize(queue->stream);
        if (error != cudaSuccess) {
            core_log(CORE_LOG_DEBUG, "%s: ended with %s", base->name, cudaGetErrorName(error));
        }
    }
    bool in_flight = false;
    pthread_mutex_lock(&device->watch_lock);
    (void)watch_queue(device, queue, &in_flight); /* waiting threads see the last commands */
    pthread_mutex_unlock(&device->watch_lock);
    list_swap(device, queue, NULL);
    for (uint32_t i = 0; i < queue->event_count; i++) {
        (void)cudaEventDestroy(queue->events[i]);
    }
    times_destroy(atomic_load_explicit(&queue->times, memory_order_relaxed));
    if (queue->stream != NULL) {
        (void)cudaStreamDestroy(queue->stream);
    }
    (void)cudaGetLastError();
    free(queue->events);
    free(queue->ends);
    free(queue);
}

static int make_stream(struct cuda_device *device, struct cuda_queue *queue)
{
    int least = 0;
    int greatest = 0;
    (void)cudaDeviceGetStreamPriorityRange(&least, &greatest);
    bool late = queue->base.kind == DEV_QUEUE_UPDATE;
    cudaError_t error = cudaStreamCreateWithPriority(&queue->stream, cudaStreamNonBlocking,
                                                     late ? least : greatest);
    if (error != cudaSuccess) {
        queue->stream = NULL;
        return dev_cuda_fail(name_of(device), "cudaStreamCreateWithPriority", 0, error, NULL);
    }
    for (; queue->event_count < queue->depth; queue->event_count++) {
        error = cudaEventCreateWithFlags(&queue->events[queue->event_count],
                                         cudaEventDisableTiming);
        if (error != cudaSuccess) {
            return dev_cuda_fail(name_of(device), "cudaEventCreateWithFlags", 0, error, NULL);
        }
    }
    return 0;
}

int dev_cuda_queue_create(struct dev_device *base, const struct dev_queue_options *options,
                          struct dev_queue *proto, struct dev_queue **out)
{
    struct cuda_device *device = (struct cuda_device *)base;
    uint32_t wanted = options->depth != 0 ? options->depth : DEPTH_DEFAULT;
    uint32_t depth = 1;
    while (depth < wanted) {
        depth *= 2;
    }
    struct cuda_queue *queue = calloc(1, sizeof *queue);
    struct CUevent_st **events = calloc(depth, sizeof(struct CUevent_st *));
    uint64_t *ends = calloc(depth, sizeof *ends);
    if (queue == NULL || events == NULL || ends == NULL) {
        free(queue);
        free(events);
        free(ends);
        return core_err_set(-ENOMEM, "no memory for queue %s", proto->name);
    }
    queue->base = *proto;
    queue->depth = depth;
    queue->events = events;
    queue->ends = ends;
    core_line_init(&queue->line, proto->name, options->bell);
    queue->base.line = &queue->line;
    int rc = dev_cuda_enter(device);
    if (rc == 0) {
        rc = make_stream(device, queue);
    }
    if (rc != 0) {
        dev_cuda_queue_destroy(&queue->base);
        return rc;
    }
    queue->base.where.stream = queue->stream;
    list_swap(device, NULL, queue);
    *out = &queue->base;
    return 0;
}

/* ---- Submission: runs on the submitting thread. ---- */

/* Fails the queue with this thread's message. */
static int fail_queue(struct cuda_queue *queue, int code)
{
    core_line_fail(&queue->line, code, core_err_message());
    return code;
}

/* Returns whether too many launches are in flight. At about 1,024 kernels the runtime waits inside
 * a launch and holds its lock, which stops the watch. A unit continues if nothing is in flight
 * before it. */
static bool launches_full(const struct cuda_queue *queue, uint64_t issued, uint64_t reached)
{
    const uint64_t done = reached > 0 ? queue->ends[(reached - 1) % queue->depth] : 0;
    return reached < issued && queue->launches - done >= LAUNCHES_MAX;
}

/* Returns 0 if the stream is ready, -EAGAIN if the queue is full, or the error that ended the
 * queue. */
static int submit_begin(struct cuda_queue *queue)
{
    struct core_line *line = &queue->line;
    int error = atomic_load_explicit(&line->error, memory_order_acquire);
    if (error != 0) {
        return core_err_adopt(error, line->message);
    }
    uint64_t issued = atomic_load_explicit(&line->issued, memory_order_relaxed);
    uint64_t reached = atomic_load_explicit(&line->reached, memory_order_acquire);
    if (issued - reached >= queue->depth || launches_full(queue, issued, reached)) {
        return -EAGAIN;
    }
    int rc = dev_cuda_enter((const struct cuda_device *)queue->base.device);
    return rc == 0 ? 0 : fail_queue(queue, rc);
}

/* Counts the launch or copy. Records the event and wakes the watch, unless `more` leaves this to a
 * later launch. An error `rc` fails the queue. */
static int submit_end(struct cuda_queue *queue, cudaStream_t stream, int rc, bool more,
                      struct core_fence *out)
{
    struct cuda_device *device = (struct cuda_device *)queue->base.device;
    uint64_t value = atomic_load_explicit(&queue->line.issued, memory_order_relaxed) + 1;
    if (rc == 0 && !more) {
        cudaError_t error = cudaEventRecord(queue->events[(value - 1) % queue->depth], stream);
        if (error != cudaSuccess) {
            rc = dev_cuda_fail(queue->base.name, "cudaEventRecord", 0, error, NULL);
        }
    }
    if (rc != 0) {
        return fail_queue(queue, rc);
    }
    queue->launches++;
    if (!more) {
        queue->ends[(value - 1) % queue->depth] = queue->launches;
        core_line_issue(&queue->line, value);
        core_bell_ring(&device->work);
    }
    *out = (struct core_fence){.line = &queue->line, .value = value};
    return 0;
}

/* ---- Times of launches ---- */

/* NULL: the ring is full, and the launch is not timed. */
static struct cuda_times *times_room(struct cuda_queue *queue)
{
    struct cuda_times *times = atomic_load_explicit(&queue->times, memory_order_relaxed);
    const uint64_t added = atomic_load_explicit(&times->added, memory_order_relaxed);
    const uint64_t taken = atomic_load_explicit(&times->taken, memory_order_acquire);
    return added - taken < DEV_CUDA_TIMES_MAX - 1 ? times : NULL;
}

/* Records the event before a launch or, with `end`, after it; adds the launch at its end. */
static int times_record(struct cuda_queue *queue, struct cuda_times *times, const char *op,
                        bool end)
{
    const uint64_t added = atomic_load_explicit(&times->added, memory_order_relaxed);
    const size_t at = added % DEV_CUDA_TIMES_MAX;
    const cudaError_t error = cudaEventRecord(end ? times->ring[at].end : times->ring[at].begin,
                                              queue->stream);
    if (error != cudaSuccess) {
        return dev_cuda_fail(queue->base.name, "cudaEventRecord", 0, error, NULL);
    }
    if (end) {
        times->ring[at].op = op;
        atomic_store_explicit(&times->added, added + 1, memory_order_release);
    }
    return 0;
}

/* An event on an idle stream is the origin of times. */
static int times_create(struct cuda_times *times)
{
    cudaError_t error = cudaEventCreate(&times->start);
    for (size_t i = 0; i < DEV_CUDA_TIMES_MAX && error == cudaSuccess; i++) {
        error = cudaEventCreate(&times->ring[i].begin);
        error = error == cudaSuccess ? cudaEventCreate(&times->ring[i].end) : error;
    }
    cudaStream_t idle = NULL;
    if (error == cudaSuccess) {
        error = cudaStreamCreateWithPriority(&idle, cudaStreamNonBlocking, 0);
    }
    if (error == cudaSuccess) {
        error = cudaEventRecord(times->start, idle);
    }
    if (error == cudaSuccess) {
        error = cudaEventSynchronize(times->start);
        times->start_ns = core_clock_now_ns();
    }
    if (idle != NULL) {
        (void)cudaStreamDestroy(idle);
    }
    return (int)error;
}

int dev_cuda_time(struct dev_queue *base, const struct dev_timing *timing)
{
    struct cuda_queue *queue = (struct cuda_queue *)base;
    queue->timed = false;
    if (timing == NULL) {
        return 0;
    }
    struct cuda_times *times = atomic_load_explicit(&queue->times, memory_order_relaxed);
    if (times != NULL && times->to != timing) {
        return core_err_set(-EBUSY, "launches of queue %s are reported elsewhere already",
                            base->name);
    }
    if (times == NULL) {
        int rc = dev_cuda_enter((const struct cuda_device *)base->device);
        if (rc != 0) {
            return rc;
        }
        times = calloc(1, sizeof *times);
        if (times == NULL) {
            return core_err_set(-ENOMEM, "no memory for the times of queue %s", base->name);
        }
        const cudaError_t error = (cudaError_t)times_create(times);
        if (error != cudaSuccess) {
            times_destroy(times);
            return dev_cuda_fail(base->name, "events that time launches: cudaEventCreate", 0, error,
                                 NULL);
        }
        times->to = timing;
        atomic_store_explicit(&queue->times, times, memory_order_release);
    }
    queue->timed = true;
    return 0;
}

int dev_cuda_launch(struct dev_queue *base, const struct dev_command *command,
                    struct core_fence *out)
{
    struct cuda_queue *queue = (struct cuda_queue *)base;
    int rc = submit_begin(queue);
    if (rc != 0) {
        return rc;
    }
    const struct dev_op_entry *entry = &base->device->ops[command->op];
    struct cuda_times *times = queue->timed ? times_room(queue) : NULL;
    if (times != NULL) {
        rc = times_record(queue, times, entry->row.name, false);
        if (rc != 0) {
            return fail_queue(queue, rc);
        }
    }
    struct dev_launch where = base->where;
    where.context = entry->context;
    _Alignas(16) unsigned char arguments[DEV_ARGUMENT_BYTES];
    if (command->arguments_bytes > 0) {
        memcpy(arguments, command->arguments, command->arguments_bytes);
    }
    rc = entry->row.launch(&where, arguments);
    if (rc != 0) {
        core_err_prefix(rc, "op %s", entry->row.name);
    } else if (times != NULL) {
        rc = times_record(queue, times, entry->row.name, true);
    }
    return submit_end(queue, queue->stream, rc, command->more, out);
}

/* Returns the bytes of a copy before the next border of pinned pieces. */
static size_t span_bytes(const struct cuda_device *device, uintptr_t host, size_t bytes)
{
    size_t count = atomic_load_explicit(&device->border_count, memory_order_acquire);
    for (size_t i = 0; i < count; i++) {
        uintptr_t ahead = device->borders[i] - host;
        if (device->borders[i] > host && ahead < bytes) {
            bytes = ahead;
        }
    }
    return bytes;
}

static int put_copy(struct cuda_queue *queue, cudaStream_t stream, const struct dev_copy *copy)
{
    const struct cuda_device *device = (const struct cuda_device *)queue->base.device;
    static const enum cudaMemcpyKind kinds[] = {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
                                                cudaMemcpyDeviceToDevice};
    for (size_t at = 0; at < copy->bytes;) {
        unsigned char *to = (unsigned char *)copy->to + at;
        const unsigned char *from = (const unsigned char *)copy->from + at;
        size_t bytes = copy->bytes - at;
        if (copy->direction != DEV_COPY_WITHIN) {
            const void *host = copy->direction == DEV_COPY_UP ? (const void *)from : to;
            bytes = span_bytes(device, (uintptr_t)host, bytes);
        }
        cudaError_t error = cudaMemcpyAsync(to, from, bytes, kinds[copy->direction], stream);
        if (error != cudaSuccess) {
            return dev_cuda_fail(queue->base.name, "cudaMemcpyAsync", bytes, error, NULL);
        }
        at += bytes;
    }
    return 0;
}

static int put_zeros(struct cuda_queue *queue, cudaStream_t stream, const struct dev_copy *copy)
{
    if (copy->bytes == 0) {
        return 0;
    }
    cudaError_t error = cudaMemsetAsync(copy->to, 0, copy->bytes, stream);
    return error == cudaSuccess
               ? 0
               : dev_cuda_fail(queue->base.name, "cudaMemsetAsync", copy->bytes, error, NULL);
}

int dev_cuda_copy(struct dev_queue *base, const struct dev_copy *copy, struct core_fence *out)
{
    struct cuda_queue *queue = (struct cuda_queue *)base;
    int rc = submit_begin(queue);
    if (rc != 0) {
        return rc;
    }
    const cudaStream_t stream = copy->stream != NULL ? *copy->stream : queue->stream;
    rc = copy->direction == DEV_COPY_ZEROS ? put_zeros(queue, stream, copy)
                                           : put_copy(queue, stream, copy);
    return submit_end(queue, stream, rc, copy->more, out);
}

struct core_fence dev_cuda_tail(const struct dev_queue *base)
{
    struct cuda_queue *queue = (struct cuda_queue *)(uintptr_t)base;
    return (struct core_fence){
        .line = &queue->line,
        .value = atomic_load_explicit(&queue->line.issued, memory_order_relaxed),
    };
}

/* Work on the stream continues; dev_cuda_queue_destroy waits for it. */
void dev_cuda_abandon(struct dev_queue *base, int code)
{
    (void)fail_queue((struct cuda_queue *)base, code);
}
