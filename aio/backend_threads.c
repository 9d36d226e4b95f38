/* backend_threads.c: blocking reads and writes on worker threads; works everywhere. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aio/backend.h"
#include "core/base/bell.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/thread.h"

enum { WORKERS_MAX = 64, SPIN_NS = 5000 };

struct worker {
    struct threads *threads; /* borrowed */
    pthread_t thread;
    unsigned index;
    /* written before `assigned` is released */
    struct aio_op op;
    /* written before the bit in `done` is released */
    struct aio_event event;
    _Alignas(64) _Atomic bool assigned;
    struct core_bell bell;
};

struct threads {
    struct worker *workers; /* owned */
    unsigned count, started;
    uint64_t idle; /* mask of workers that submit may use */
    const struct core_log *log;
    _Atomic bool ending;
    _Alignas(64) _Atomic uint64_t done; /* mask of workers whose event is ready */
    struct core_bell bell;
    char words[32];
};

static int threads_probe(char *reason, size_t bytes)
{
    return aio_probe_threads(reason, bytes);
}

static int64_t transfer(const struct aio_op *op)
{
    ssize_t rc = 0;
    if (op->kind == AIO_READ) {
        rc = pread(op->fd, op->memory, op->bytes, (off_t)op->offset);
    } else if (op->kind == AIO_WRITE) {
        rc = pwrite(op->fd, op->memory, op->bytes, (off_t)op->offset);
    } else {
        rc = fdatasync(op->fd);
    }
    return rc < 0 ? -errno : rc;
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct threads *threads = worker->threads;
    core_log_bind(threads->log);
    pthread_setname_np(pthread_self(), "tide-io");
    for (;;) {
        uint32_t seen = core_bell_look(&worker->bell);
        if (atomic_load_explicit(&worker->assigned, memory_order_acquire)) {
            worker->event = (struct aio_event){worker->op.token, transfer(&worker->op)};
            atomic_store_explicit(&worker->assigned, false, memory_order_relaxed);
            atomic_fetch_or_explicit(&threads->done, (uint64_t)1 << worker->index,
                                     memory_order_seq_cst);
            core_bell_ring(&threads->bell);
        } else if (atomic_load_explicit(&threads->ending, memory_order_acquire)) {
            return NULL;
        } else {
            core_bell_spin_sleep(&worker->bell, seen, SPIN_NS, -1);
        }
    }
}

static void threads_close(void *state)
{
    struct threads *threads = state;
    if (threads == NULL) {
        return;
    }
    atomic_store_explicit(&threads->ending, true, memory_order_release);
    for (unsigned i = 0; i < threads->started; i++) {
        core_bell_ring(&threads->workers[i].bell);
        pthread_join(threads->workers[i].thread, NULL);
    }
    free(threads->workers);
    free(threads);
}

static int start(struct threads *threads, const char *drive)
{
    for (unsigned i = 0; i < threads->count; i++) {
        struct worker *worker = &threads->workers[i];
        worker->threads = threads;
        worker->index = i;
        core_bell_init(&worker->bell);
        int rc = core_thread_start(&worker->thread, worker_main, worker);
        if (rc != 0) {
            return core_err_set(-rc, "%s: cannot start thread %u of %u: %s", drive, i + 1,
                                threads->count, strerror(rc));
        }
        threads->started++;
    }
    return 0;
}

static int threads_open(const struct aio_backend_options *options, void **state)
{
    struct threads *threads = aligned_alloc(64, (sizeof *threads + 63) / 64 * 64);
    if (threads == NULL) {
        return core_err_set(-ENOMEM, "%s: out of memory for back end threads", options->drive);
    }
    memset(threads, 0, sizeof *threads);
    core_bell_init(&threads->bell);
    threads->log = core_log_bound();
    threads->count = options->depth < WORKERS_MAX ? options->depth : WORKERS_MAX;
    threads->idle = threads->count == 64 ? UINT64_MAX : ((uint64_t)1 << threads->count) - 1;
    snprintf(threads->words, sizeof threads->words, "threads (%u)", threads->count);
    size_t bytes = threads->count * sizeof *threads->workers;
    threads->workers = aligned_alloc(64, bytes);
    int rc = -ENOMEM;
    if (threads->workers != NULL) {
        memset(threads->workers, 0, bytes);
        rc = start(threads, options->drive);
    } else {
        core_err_set(rc, "%s: out of memory for %u threads", options->drive, threads->count);
    }
    if (rc != 0) {
        threads_close(threads);
        return rc;
    }
    *state = threads;
    return 0;
}

static int threads_attach(void *state, uint32_t index, int fd)
{
    (void)state;
    (void)index;
    (void)fd;
    return 0;
}

static int threads_buffers(void *state, const struct iovec *slabs, unsigned count)
{
    (void)state;
    (void)slabs;
    (void)count;
    return -EOPNOTSUPP;
}

static int threads_submit(void *state, const struct aio_op *ops, unsigned count)
{
    struct threads *threads = state;
    unsigned taken = 0;
    while (taken < count && threads->idle != 0) {
        unsigned index = (unsigned)__builtin_ctzll(threads->idle);
        struct worker *worker = &threads->workers[index];
        threads->idle &= threads->idle - 1;
        worker->op = ops[taken++];
        atomic_store_explicit(&worker->assigned, true, memory_order_release);
        core_bell_ring(&worker->bell);
    }
    return (int)taken;
}

static int collect(struct threads *threads, struct aio_event *events, unsigned max)
{
    uint64_t done = atomic_load_explicit(&threads->done, memory_order_acquire);
    uint64_t took = 0;
    unsigned got = 0;
    while (done != 0 && got < max) {
        uint64_t bit = done & -done;
        events[got++] = threads->workers[__builtin_ctzll(bit)].event;
        done ^= bit;
        took |= bit;
    }
    if (took != 0) {
        atomic_fetch_and_explicit(&threads->done, ~took, memory_order_acq_rel);
        threads->idle |= took;
    }
    return (int)got;
}

static int threads_reap(void *state, struct aio_event *events, unsigned max, unsigned min,
                        int64_t wait_ns)
{
    struct threads *threads = state;
    uint32_t seen = core_bell_look(&threads->bell);
    int got = collect(threads, events, max);
    if (got > 0 || min == 0) {
        return got;
    }
    core_bell_sleep(&threads->bell, seen, wait_ns);
    return collect(threads, events, max);
}

static void threads_wake(void *state)
{
    struct threads *threads = state;
    core_bell_ring(&threads->bell);
}

static void threads_cancel(void *state, uint64_t token)
{
    (void)state;
    (void)token;
}

static const char *threads_describe(void *state)
{
    struct threads *threads = state;
    return threads->words;
}

int aio_probe_threads(char *reason, size_t bytes)
{
    snprintf(reason, bytes, "threads work everywhere");
    return 0;
}

const struct aio_backend aio_threads = {
    .name = "threads",
    .depth_max = WORKERS_MAX,
    .probe = threads_probe,
    .open = threads_open,
    .close = threads_close,
    .attach = threads_attach,
    .buffers = threads_buffers,
    .submit = threads_submit,
    .reap = threads_reap,
    .wake = threads_wake,
    .cancel = threads_cancel,
    .describe = threads_describe,
};
