/* backend_libaio.c: the kernel's older asynchronous I/O, and the wrapper of libaio. I/O on buffered
 * files blocks in submit. */
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "core/base/log.h"

enum { BATCH = 64 };
/* the longest wait if the eventfd cannot be polled (for example before Linux 4.19) */
static const int64_t slice_ns = 1000000;

struct libaio {
    io_context_t context;
    struct iocb *iocbs; /* owned, [depth] */
    int32_t *unused;    /* owned: stack of free control blocks */
    uint32_t unused_count;
    uint32_t depth;
    int eventfd; /* owned */
    struct iocb poll;
    bool can_poll, armed;
};

int aio_probe_libaio(char *reason, size_t bytes)
{
    io_context_t context = NULL;
    int rc = io_setup(1, &context);
    if (rc == 0) {
        io_destroy(context);
        snprintf(reason, bytes, "libaio works");
    } else if (rc == -EAGAIN) {
        snprintf(reason, bytes, "libaio: the limit fs.aio-max-nr is reached");
    } else {
        snprintf(reason, bytes, "libaio cannot be set up: %s", strerror(-rc));
    }
    return rc;
}

static void libaio_close(void *state)
{
    struct libaio *libaio = state;
    if (libaio == NULL) {
        return;
    }
    if (libaio->context != NULL) {
        io_destroy(libaio->context);
    }
    if (libaio->eventfd >= 0) {
        close(libaio->eventfd);
    }
    free(libaio->iocbs);
    free(libaio->unused);
    free(libaio);
}

static int allocate(struct libaio *libaio, uint32_t depth)
{
    libaio->depth = depth;
    libaio->iocbs = calloc(depth, sizeof *libaio->iocbs);
    libaio->unused = calloc(depth, sizeof *libaio->unused);
    libaio->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (libaio->iocbs == NULL || libaio->unused == NULL || libaio->eventfd < 0) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < depth; i++) {
        libaio->unused[libaio->unused_count++] = (int32_t)(depth - 1 - i);
    }
    return io_setup((int)depth + 1, &libaio->context);
}

static int libaio_open(const struct aio_backend_options *options, void **state)
{
    struct libaio *libaio = calloc(1, sizeof *libaio);
    if (libaio == NULL) {
        return core_err_set(-ENOMEM, "%s: out of memory for libaio", options->drive);
    }
    libaio->eventfd = -1;
    int rc = allocate(libaio, options->depth);
    if (rc != 0) {
        libaio_close(libaio);
        return core_err_set(rc, "%s: libaio cannot be set up for %u transfers: %s%s",
                            options->drive, options->depth, strerror(-rc),
                            rc == -EAGAIN ? " (sysctl fs.aio-max-nr is used up)" : "");
    }
    libaio->can_poll = true;
    *state = libaio;
    return 0;
}

static int libaio_attach(void *state, uint32_t index, int fd)
{
    (void)state;
    (void)index;
    (void)fd;
    return 0;
}

static int libaio_buffers(void *state, const struct iovec *slabs, unsigned count)
{
    (void)state;
    (void)slabs;
    (void)count;
    return -EOPNOTSUPP;
}

static void prepare(struct iocb *iocb, const struct aio_op *op)
{
    if (op->kind == AIO_SYNC) {
        io_prep_fdsync(iocb, op->fd);
    } else if (op->kind == AIO_READ) {
        io_prep_pread(iocb, op->fd, op->memory, op->bytes, (long long)op->offset);
    } else {
        io_prep_pwrite(iocb, op->fd, op->memory, op->bytes, (long long)op->offset);
    }
    /* A token has 56 bits; a pointer here has 64. */
    iocb->data = (void *)(uintptr_t)op->token; // NOLINT
}

static int libaio_submit(void *state, const struct aio_op *ops, unsigned count)
{
    struct libaio *libaio = state;
    struct iocb *batch[BATCH];
    unsigned n = 0;
    while (n < count && n < BATCH && libaio->unused_count > 0) {
        batch[n] = &libaio->iocbs[libaio->unused[--libaio->unused_count]];
        prepare(batch[n], &ops[n]);
        n++;
    }
    int taken = n > 0 ? io_submit(libaio->context, (long)n, batch) : 0;
    unsigned from = taken > 0 ? (unsigned)taken : 0;
    while (n > from) {
        libaio->unused[libaio->unused_count++] = (int32_t)(batch[--n] - libaio->iocbs);
    }
    return taken;
}

static void arm(struct libaio *libaio)
{
    struct iocb *poll = &libaio->poll;
    if (!libaio->can_poll || libaio->armed) {
        return;
    }
    io_prep_poll(poll, libaio->eventfd, POLLIN);
    libaio->armed = io_submit(libaio->context, 1, &poll) == 1;
    libaio->can_poll = libaio->armed;
}

static int collect(struct libaio *libaio, const struct io_event *from, int count,
                   struct aio_event *events)
{
    int got = 0;
    for (int i = 0; i < count; i++) {
        if (from[i].obj == &libaio->poll) {
            uint64_t woken = 0;
            libaio->armed = false;
            if (read(libaio->eventfd, &woken, sizeof woken) < 0) {
                continue;
            }
        } else {
            events[got++] = (struct aio_event){(uint64_t)(uintptr_t)from[i].data,
                                               (int64_t)from[i].res};
            libaio->unused[libaio->unused_count++] = (int32_t)(from[i].obj - libaio->iocbs);
        }
    }
    return got;
}

static int libaio_reap(void *state, struct aio_event *events, unsigned max, unsigned min,
                       int64_t wait_ns)
{
    struct libaio *libaio = state;
    struct io_event found[BATCH];
    if (min > 0) {
        arm(libaio);
        wait_ns = libaio->can_poll || wait_ns < slice_ns ? wait_ns : slice_ns;
    }
    struct timespec limit = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns % 1000000000};
    int rc = io_getevents(libaio->context, (long)min, max < BATCH ? (long)max : BATCH, found,
                          &limit);
    if (rc < 0) {
        return rc == -EINTR ? 0 : rc;
    }
    return collect(libaio, found, rc, events);
}

static void libaio_wake(void *state)
{
    struct libaio *libaio = state;
    const uint64_t one = 1;
    if (write(libaio->eventfd, &one, sizeof one) < 0) {
        return; /* counter full: a wake-up is pending */
    }
}

/* io_cancel supports none of these transfers. */
static void libaio_cancel(void *state, uint64_t token)
{
    (void)state;
    (void)token;
}

static const char *libaio_describe(void *state)
{
    (void)state;
    return "libaio";
}

const struct aio_backend aio_libaio = {
    .name = "libaio",
    .probe = aio_probe_libaio,
    .open = libaio_open,
    .close = libaio_close,
    .attach = libaio_attach,
    .buffers = libaio_buffers,
    .submit = libaio_submit,
    .reap = libaio_reap,
    .wake = libaio_wake,
    .cancel = libaio_cancel,
    .describe = libaio_describe,
};
