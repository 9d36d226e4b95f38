/* aio_threads.c: the back end of plain pread and pwrite, one thread a transfer; works everywhere.
 * The drive's thread hands a transfer to an idle hand and collects from those that are done; each
 * hand has a place of its own, so two bit masks and a bell are all they share. */
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

enum { HANDS_MAX = 64, SPIN_NS = 5000 };

struct hand {
    struct threads *threads; /* borrowed */
    pthread_t thread;
    unsigned index;
    struct aio_op op;       /* the drive's release of `asked` pairs with the hand's acquire */
    struct aio_event event; /* the hand's release of its bit in `done` with the drive's */
    _Alignas(64) _Atomic bool asked;
    struct core_bell bell;
};

struct threads {
    struct hand *hands; /* owned */
    unsigned count, started;
    uint64_t idle; /* the drive's: hands with nothing to do */
    const struct core_log *log;
    _Atomic bool ending;
    _Alignas(64) _Atomic uint64_t done; /* hands whose event waits */
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

static void *hand_main(void *argument)
{
    struct hand *hand = argument;
    struct threads *threads = hand->threads;
    core_log_bind(threads->log);
    pthread_setname_np(pthread_self(), "tide-io");
    for (;;) {
        uint32_t seen = core_bell_look(&hand->bell);
        if (atomic_load_explicit(&hand->asked, memory_order_acquire)) {
            hand->event = (struct aio_event){hand->op.token, transfer(&hand->op)};
            atomic_store_explicit(&hand->asked, false, memory_order_relaxed);
            atomic_fetch_or_explicit(&threads->done, (uint64_t)1 << hand->index,
                                     memory_order_seq_cst);
            core_bell_ring(&threads->bell);
        } else if (atomic_load_explicit(&threads->ending, memory_order_acquire)) {
            return NULL;
        } else {
            core_bell_spin_sleep(&hand->bell, seen, SPIN_NS, -1);
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
        core_bell_ring(&threads->hands[i].bell);
        pthread_join(threads->hands[i].thread, NULL);
    }
    free(threads->hands);
    free(threads);
}

static int start(struct threads *threads, const char *drive)
{
    for (unsigned i = 0; i < threads->count; i++) {
        struct hand *hand = &threads->hands[i];
        hand->threads = threads;
        hand->index = i;
        core_bell_init(&hand->bell);
        int rc = core_thread_start(&hand->thread, hand_main, hand);
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
        return core_err_set(-ENOMEM, "%s: no memory for threads", options->drive);
    }
    memset(threads, 0, sizeof *threads);
    core_bell_init(&threads->bell);
    threads->log = core_log_bound();
    threads->count = options->depth < HANDS_MAX ? options->depth : HANDS_MAX;
    threads->idle = threads->count == 64 ? UINT64_MAX : ((uint64_t)1 << threads->count) - 1;
    snprintf(threads->words, sizeof threads->words, "threads (%u)", threads->count);
    size_t bytes = threads->count * sizeof *threads->hands;
    threads->hands = aligned_alloc(64, bytes);
    int rc = -ENOMEM;
    if (threads->hands != NULL) {
        memset(threads->hands, 0, bytes);
        rc = start(threads, options->drive);
    } else {
        core_err_set(rc, "%s: no memory for %u threads", options->drive, threads->count);
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
        struct hand *hand = &threads->hands[index];
        threads->idle &= threads->idle - 1;
        hand->op = ops[taken++];
        atomic_store_explicit(&hand->asked, true, memory_order_release);
        core_bell_ring(&hand->bell);
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
        events[got++] = threads->hands[__builtin_ctzll(bit)].event;
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

const struct aio_backend aio_threads = {
    .name = "threads",
    .depth_max = HANDS_MAX,
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
