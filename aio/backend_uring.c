/* backend_uring.c: io_uring, and the wrapper of liburing (2.3 or later). */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "core/base/log.h"

static const uint64_t wake_token = AIO_TOKEN_LIMIT + 1;
static const uint64_t cancel_token = AIO_TOKEN_LIMIT + 2;

struct uring {
    struct io_uring ring;
    bool ring_open;
    bool file_table; /* files are registered */
    bool can_wake;   /* false if completions are polled: such a ring cannot read an eventfd */
    bool armed;      /* a read of the eventfd is queued or in flight */
    int eventfd;     /* owned */
    uint64_t wake_count;
    unsigned flags;
    char words[128];
};

static const struct {
    unsigned flag;
    const char *name;
} flag_names[] = {
    {IORING_SETUP_SQPOLL, "sqpoll"},
    {IORING_SETUP_IOPOLL, "iopoll"},
    {IORING_SETUP_SINGLE_ISSUER, "single_issuer"},
    {IORING_SETUP_DEFER_TASKRUN, "defer_taskrun"},
    {IORING_SETUP_COOP_TASKRUN, "coop_taskrun"},
    {IORING_SETUP_SUBMIT_ALL, "submit_all"},
};

/* Flags that older kernels refuse, newest first. */
static const unsigned droppable[] = {IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_SINGLE_ISSUER,
                                     IORING_SETUP_COOP_TASKRUN, IORING_SETUP_SUBMIT_ALL};

/* ThreadSanitizer does not see liburing's system calls. This orders the unmapping of a ring before
 * the mapping of a later one at the same address. */
static void ring_order_mappings(void)
{
#ifdef __SANITIZE_THREAD__
    static _Atomic unsigned mappings;
    atomic_fetch_add_explicit(&mappings, 1, memory_order_acq_rel);
#endif
}

static int set_up(struct uring *uring, const struct aio_backend_options *options)
{
    unsigned flags = IORING_SETUP_SUBMIT_ALL;
    flags |= options->sqpoll ? IORING_SETUP_SQPOLL
                             : IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SINGLE_ISSUER |
                                   IORING_SETUP_DEFER_TASKRUN;
    flags |= options->iopoll ? IORING_SETUP_IOPOLL : 0;
    int rc = -EINVAL;
    for (size_t dropped = 0;; dropped++) {
        struct io_uring_params params = {.flags = flags, .sq_thread_idle = 50};
        rc = (flags & options->refused_flags) != 0
                 ? -EINVAL
                 : io_uring_queue_init_params(options->depth + 4, &uring->ring, &params);
        if (rc != -EINVAL || dropped == sizeof droppable / sizeof droppable[0]) {
            break;
        }
        flags &= ~droppable[dropped];
    }
    ring_order_mappings();
    uring->flags = flags;
    uring->ring_open = rc == 0;
    return rc;
}

static void describe_flags(struct uring *uring)
{
    size_t length = (size_t)snprintf(uring->words, sizeof uring->words, "io_uring (");
    for (size_t i = 0; i < sizeof flag_names / sizeof flag_names[0]; i++) {
        if ((uring->flags & flag_names[i].flag) != 0 && length < sizeof uring->words) {
            length += (size_t)snprintf(uring->words + length, sizeof uring->words - length, "%s ",
                                       flag_names[i].name);
        }
    }
    if (length < sizeof uring->words) {
        snprintf(uring->words + length, sizeof uring->words - length, "%s)",
                 uring->file_table ? "files" : "no file table");
    }
}

static int sysctl_disabled(void)
{
    char text[16] = "";
    int fd = open("/proc/sys/kernel/io_uring_disabled", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t got = read(fd, text, sizeof text - 1);
        text[got > 0 ? got : 0] = '\0';
        close(fd);
    }
    return atoi(text);
}

static void explain(int rc, char *reason, size_t bytes)
{
    int disabled = sysctl_disabled();
    if (rc == 0) {
        snprintf(reason, bytes, "io_uring works");
    } else if (rc == -EPERM && disabled != 0) {
        snprintf(reason, bytes, "io_uring is disabled (sysctl kernel.io_uring_disabled = %d)",
                 disabled);
    } else if (rc == -EPERM || rc == -EACCES) {
        snprintf(reason, bytes,
                 "io_uring is forbidden (%s), probably by the seccomp filter of a container",
                 strerror(-rc));
    } else if (rc == -ENOSYS) {
        snprintf(
            reason, bytes,
            "this kernel has no io_uring (%s): it is older than 5.1, or a seccomp filter hides it",
            strerror(-rc));
    } else if (rc == -ENOMEM) {
        snprintf(reason, bytes,
                 "io_uring cannot be set up (%s): the limit on locked memory"
                 " (ulimit -l) is too low for a ring",
                 strerror(-rc));
    } else {
        snprintf(reason, bytes, "io_uring cannot be set up: %s", strerror(-rc));
    }
}

int aio_probe_uring(char *reason, size_t bytes)
{
    struct io_uring ring;
    int rc = io_uring_queue_init(2, &ring, 0);
    if (rc == 0) {
        io_uring_queue_exit(&ring);
    }
    explain(rc, reason, bytes);
    return rc;
}

static void uring_close(void *state)
{
    struct uring *uring = state;
    if (uring == NULL) {
        return;
    }
    if (uring->ring_open) {
        ring_order_mappings();
        /* The kernel frees a ring later and would keep removed files open. */
        if (uring->file_table) {
            (void)io_uring_unregister_files(&uring->ring);
        }
        io_uring_queue_exit(&uring->ring);
    }
    if (uring->eventfd >= 0) {
        close(uring->eventfd);
    }
    free(uring);
}

/* A file table, filled by attach, saves the kernel a look-up per transfer. */
static void make_file_table(struct uring *uring)
{
    int fds[AIO_FILES_MAX];
    for (int i = 0; i < AIO_FILES_MAX; i++) {
        fds[i] = -1;
    }
    uring->file_table = io_uring_register_files(&uring->ring, fds, AIO_FILES_MAX) == 0;
}

static int uring_open(const struct aio_backend_options *options, void **state)
{
    struct uring *uring = calloc(1, sizeof *uring);
    if (uring == NULL) {
        return core_err_set(-ENOMEM, "%s: out of memory for a ring", options->drive);
    }
    /* A ring waits for a nonblocking eventfd only since Linux 5.15. */
    uring->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = uring->eventfd < 0 ? -errno : set_up(uring, options);
    if (rc != 0) {
        char reason[AIO_REASON_BYTES];
        explain(rc, reason, sizeof reason);
        uring_close(uring);
        return core_err_set(rc, "%s: %s", options->drive, reason);
    }
    uring->can_wake = !options->iopoll;
    if (!options->no_file_table) {
        make_file_table(uring);
    }
    describe_flags(uring);
    *state = uring;
    return 0;
}

static int uring_attach(void *state, uint32_t index, int fd)
{
    struct uring *uring = state;
    if (!uring->file_table) {
        return 0;
    }
    int rc = io_uring_register_files_update(&uring->ring, index, &fd, 1);
    return rc < 0 ? rc : 0;
}

static int uring_buffers(void *state, const struct iovec *slabs, unsigned count)
{
    struct uring *uring = state;
    return io_uring_register_buffers(&uring->ring, slabs, count);
}

static void prepare(const struct uring *uring, struct io_uring_sqe *sqe, const struct aio_op *op)
{
    int fd = uring->file_table ? (int)op->file : op->fd;
    if (op->kind == AIO_SYNC) {
        io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
    } else if (op->kind == AIO_READ && op->buffer >= 0) {
        io_uring_prep_read_fixed(sqe, fd, op->memory, op->bytes, op->offset, op->buffer);
    } else if (op->kind == AIO_READ) {
        io_uring_prep_read(sqe, fd, op->memory, op->bytes, op->offset);
    } else if (op->buffer >= 0) {
        io_uring_prep_write_fixed(sqe, fd, op->memory, op->bytes, op->offset, op->buffer);
    } else {
        io_uring_prep_write(sqe, fd, op->memory, op->bytes, op->offset);
    }
    if (uring->file_table) {
        sqe->flags |= IOSQE_FIXED_FILE;
    }
    io_uring_sqe_set_data64(sqe, op->token);
}

static int uring_submit(void *state, const struct aio_op *ops, unsigned count)
{
    struct uring *uring = state;
    unsigned taken = 0;
    while (taken < count) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
        if (sqe == NULL) {
            int rc = io_uring_submit(&uring->ring);
            if (rc < 0) {
                return taken > 0 ? (int)taken : rc;
            }
            sqe = io_uring_get_sqe(&uring->ring);
            if (sqe == NULL) {
                break;
            }
        }
        prepare(uring, sqe, &ops[taken++]);
    }
    return (int)taken;
}

static void arm(struct uring *uring)
{
    struct io_uring_sqe *sqe = uring->can_wake && !uring->armed ? io_uring_get_sqe(&uring->ring)
                                                                : NULL;
    if (sqe != NULL) {
        io_uring_prep_read(sqe, uring->eventfd, &uring->wake_count, sizeof uring->wake_count, 0);
        io_uring_sqe_set_data64(sqe, wake_token);
        uring->armed = true;
    }
}

static int collect(struct uring *uring, struct aio_event *events, unsigned max, bool *woken)
{
    struct io_uring_cqe *cqe = NULL;
    unsigned head = 0;
    unsigned seen = 0;
    unsigned got = 0;
    io_uring_for_each_cqe(&uring->ring, head, cqe)
    {
        if (got == max) {
            break;
        }
        seen++;
        uint64_t token = io_uring_cqe_get_data64(cqe);
        if (token == wake_token) {
            uring->armed = false;
            *woken = true;
        } else if (token < AIO_TOKEN_LIMIT) {
            events[got++] = (struct aio_event){token, cqe->res};
        } /* otherwise the event of a cancel, or of liburing's timeout before Linux 5.11 */
    }
    io_uring_cq_advance(&uring->ring, seen);
    return (int)got;
}

static int enter(struct uring *uring, unsigned min, int64_t wait_ns)
{
    int rc = 0;
    if (min == 0 || wait_ns <= 0) {
        rc = io_uring_submit_and_get_events(&uring->ring);
    } else {
        struct io_uring_cqe *cqe = NULL;
        struct __kernel_timespec limit = {.tv_sec = wait_ns / 1000000000,
                                          .tv_nsec = wait_ns % 1000000000};
        rc = io_uring_submit_and_wait_timeout(&uring->ring, &cqe, min, &limit, NULL);
    }
    return rc == -ETIME || rc == -EINTR || rc > 0 ? 0 : rc;
}

/* A wake-up counts as one of `min` completions. */
static int uring_reap(void *state, struct aio_event *events, unsigned max, unsigned min,
                      int64_t wait_ns)
{
    struct uring *uring = state;
    bool woken = false;
    if (min > 0) {
        arm(uring);
    }
    int rc = enter(uring, min, wait_ns);
    int got = collect(uring, events, max, &woken);
    return got > 0 ? got : rc;
}

static void uring_wake(void *state)
{
    struct uring *uring = state;
    const uint64_t one = 1;
    if (uring->can_wake && write(uring->eventfd, &one, sizeof one) < 0) {
        return; /* counter full: a wake-up is pending */
    }
}

static void uring_cancel(void *state, uint64_t token)
{
    struct uring *uring = state;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    if (sqe != NULL) { /* a full ring: the transfer ends by itself */
        io_uring_prep_cancel64(sqe, token, 0);
        io_uring_sqe_set_data64(sqe, cancel_token);
    }
}

static const char *uring_describe(void *state)
{
    struct uring *uring = state;
    return uring->words;
}

const struct aio_backend aio_uring = {
    .name = "uring",
    .probe = aio_probe_uring,
    .open = uring_open,
    .close = uring_close,
    .attach = uring_attach,
    .buffers = uring_buffers,
    .submit = uring_submit,
    .reap = uring_reap,
    .wake = uring_wake,
    .cancel = uring_cancel,
    .describe = uring_describe,
};
