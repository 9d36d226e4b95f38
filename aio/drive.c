/* drive.c: the drive's thread. A turn answers calls, submits, collects completions, verifies reads
 * and looks for late pieces. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aio/backend.h"
#include "aio/drive.h"
#include "aio/drive_internal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/size.h"
#include "core/base/thread.h"

enum {
    EVENTS = 64,
    VERIFY_AT_ONCE = 4,        /* pieces hashed between two collections */
    SPIN_NS = 20000,           /* spins this long before a sleep without a limit */
    WAIT_NS = 100000000,       /* the longest wait for completions */
    BATCH_WAIT_NS = 5000000,   /* for several completions at once */
    WATCH_NS = 250000000,      /* time between checks for late pieces */
    FAILING_CALLS_MAX = 10000, /* failures of submit or reap in a row */
};
_Static_assert((int)AIO_DRIVE_QUEUES_MAX == (int)AIO_CHANNELS_MAX,
               "a queue has one channel on a drive");
static const int64_t warn_default_ns = 5000000000;
static const int64_t limit_default_ns = 60000000000;

static void read_clock(struct aio_drive *drive)
{
    if (drive->clock_ns != NULL) {
        drive->now_ns = drive->ran_ns = drive->clock_ns(drive->clock_user);
    } else {
        drive->now_ns = core_clock_now_ns();
        drive->ran_ns = core_clock_ran_ns();
    }
}

void aio_drive_wake(struct aio_drive *drive)
{
    core_bell_ring(&drive->bell);
    if ((atomic_load_explicit(&drive->waiting, memory_order_seq_cst) & WAKE_FOR_REQUESTS) != 0 &&
        atomic_exchange_explicit(&drive->waiting, 0, memory_order_seq_cst) != 0) {
        drive->backend->wake(drive->state);
    }
}

/* Waits for the result. Any thread but the drive's. */
static int drive_call_run(struct aio_drive *drive,
                          int (*run)(struct aio_drive *, struct drive_call *), void *argument)
{
    struct drive_call call = {.run = run, .argument = argument};
    pthread_mutex_lock(&drive->calling);
    atomic_store_explicit(&drive->call, &call, memory_order_seq_cst);
    core_bell_ring(&drive->bell);
    if (atomic_exchange_explicit(&drive->waiting, 0, memory_order_seq_cst) != 0) {
        drive->backend->wake(drive->state);
    }
    for (;;) {
        uint32_t seen = core_bell_look(&drive->answers);
        if (atomic_load_explicit(&call.answered, memory_order_acquire)) {
            break;
        }
        core_bell_sleep(&drive->answers, seen, -1);
    }
    pthread_mutex_unlock(&drive->calling);
    return core_err_first(&call.result, 0);
}

static void answer_call(struct aio_drive *drive, struct drive_call *call, int rc)
{
    call->result = core_err_keep(rc);
    atomic_store_explicit(&call->answered, true, memory_order_release);
    core_bell_ring(&drive->answers);
}

static void serve_call(struct aio_drive *drive)
{
    struct drive_call *call = atomic_exchange_explicit(&drive->call, NULL, memory_order_seq_cst);
    if (call != NULL) {
        int rc = call->run(drive, call);
        if (rc != -EINPROGRESS) {
            answer_call(drive, call, rc);
        }
    }
}

/* Answers a close when all cut pieces of the channel are finished, or with -ETIMEDOUT after
 * limit_ns (dead drive: warn_ns). */
static void close_channels(struct aio_drive *drive)
{
    for (unsigned i = 0; i < drive->channels_count; i++) {
        struct channel *channel = drive->channels[i];
        if (channel->closer == NULL) {
            continue;
        }
        int64_t limit_ns = drive->dead ? drive->warn_ns : drive->limit_ns;
        struct drive_call *closer = channel->closer;
        if (channel->in_flight == 0) {
            drive->channels[i--] = drive->channels[--drive->channels_count];
            answer_call(drive, closer, 0); /* the caller may free the channel now */
        } else if (drive->ran_ns - channel->closing_ns >= limit_ns) {
            channel->closer = NULL;
            answer_call(drive, closer,
                        core_err_set(-ETIMEDOUT,
                                     "%s: %" PRIu64
                                     " transfers do not complete; the kernel may still access"
                                     " their memory",
                                     drive->name, channel->in_flight));
        }
    }
}

/* Fails all queues with this thread's error message. */
static void drive_fail(struct aio_drive *drive, int rc)
{
    drive->dead = true;
    core_log(CORE_LOG_ERROR, "%s", core_err_message());
    for (unsigned i = 0; i < drive->channels_count; i++) {
        aio_channel_fail(drive->channels[i], 0, rc);
    }
    aio_pieces_drop(drive);
    for (unsigned i = 0; i < drive->channels_count; i++) {
        aio_channel_drop(drive->channels[i]);
    }
    aio_pieces_cancel(drive, NULL);
}

/* After a transient failure the call may be repeated, from *call_ns on and at most
 * FAILING_CALLS_MAX times in a row. Other failures fail the drive. */
static void note_failure(struct aio_drive *drive, const char *call, int rc, int64_t *call_ns)
{
    const bool transient = rc == -EINTR || rc == -EAGAIN || rc == -EBUSY || rc == -ENOMEM;
    if (drive->dead) { /* dead: only collects late completions */
        *call_ns = drive->now_ns + 1000000;
        return;
    }
    count(&drive->repeats, 1);
    if (!transient || ++drive->failing_calls > FAILING_CALLS_MAX) {
        core_err_set(rc, "%s: %s of %s failed %u times: %s", drive->name, call,
                     drive->backend->name, transient ? drive->failing_calls : 1, strerror(-rc));
        drive_fail(drive, rc);
        return;
    }
    if (drive->failing_calls > 8) {
        *call_ns = drive->now_ns + (drive->failing_calls < 64 ? 20000 : 500000);
    }
}

static bool is_closing(const struct aio_drive *drive)
{
    for (unsigned i = 0; i < drive->channels_count; i++) {
        if (drive->channels[i]->closer != NULL) {
            return true;
        }
    }
    return false;
}

static bool is_called(struct aio_drive *drive)
{
    return atomic_load_explicit(&drive->call, memory_order_seq_cst) != NULL;
}

/* Returns the time until there is work, at most until `until_ns`; 0: now; -1: no limit. */
static int64_t idle_ns(struct aio_drive *drive, int64_t until_ns)
{
    const bool full = drive->dead || drive->in_flight >= drive->depth;
    const int64_t due_ns = full ? INT64_MAX : aio_pieces_due(drive);
    const int64_t first_ns = due_ns < until_ns ? due_ns : until_ns;
    if (first_ns <= drive->now_ns || is_called(drive) || drive->done.first != NONE) {
        return 0;
    }
    return first_ns == INT64_MAX ? -1 : first_ns - drive->now_ns;
}

/* Waits if there is nothing else to do; at full depth usually for several completions, which saves
 * calls. */
static int drive_reap(struct aio_drive *drive, struct aio_event *events)
{
    bool full = drive->in_flight >= drive->depth;
    unsigned min = 1;
    atomic_store_explicit(&drive->waiting, full ? WAKE_FOR_CALL : WAKE_FOR_CALL | WAKE_FOR_REQUESTS,
                          memory_order_seq_cst);
    int64_t wait_ns = idle_ns(drive, drive->now_ns + WAIT_NS);
    if (wait_ns == 0) {
        min = 0;
    } else if (full && drive->depth >= 16 && !drive->batch_expired) {
        min = drive->depth / 8 < EVENTS ? drive->depth / 8 : EVENTS;
        wait_ns = BATCH_WAIT_NS;
    }
    if (min > 0) {
        count(&drive->waits, 1);
    }
    int rc = drive->backend->reap(drive->state, events, EVENTS, min, wait_ns);
    drive->batch_expired = min > 0 && rc == 0;
    atomic_store_explicit(&drive->waiting, 0, memory_order_relaxed);
    return rc;
}

static void drive_sleep(struct aio_drive *drive, int64_t until_ns)
{
    uint32_t seen = core_bell_look(&drive->bell);
    int64_t wait_ns = idle_ns(drive, until_ns);
    if (wait_ns != 0 && (until_ns != INT64_MAX || !is_closing(drive)) && !drive->ending) {
        core_bell_spin_sleep(&drive->bell, seen, wait_ns < 0 ? SPIN_NS : 0, wait_ns);
    }
}

/* Collects the rest after a reap that returned `got`. Returns false if a reap failed. */
static bool drive_drain(struct aio_drive *drive, int got)
{
    struct aio_event events[EVENTS];
    for (int i = 0; got == EVENTS && i <= AIO_DEPTH_MAX / EVENTS; i++) {
        got = drive->backend->reap(drive->state, events, EVENTS, 0, 0);
        for (int n = 0; n < got; n++) {
            aio_pieces_complete(drive, &events[n]);
        }
    }
    return got >= 0;
}

static void drive_turn(struct aio_drive *drive)
{
    struct aio_event events[EVENTS];
    read_clock(drive);
    serve_call(drive);
    close_channels(drive);
    int rc = aio_pieces_submit(drive);
    if (rc < 0) {
        note_failure(drive, "submit", rc, &drive->submit_ns);
    }
    if (drive->in_flight == 0 && drive->done.first == NONE) {
        drive_sleep(drive, INT64_MAX);
        return;
    }
    const bool reaps = drive->reap_ns <= drive->now_ns;
    int got = 0;
    if (reaps) {
        got = drive_reap(drive, events);
    } else {
        drive_sleep(drive, drive->reap_ns);
    }
    read_clock(drive);
    if (got < 0) {
        note_failure(drive, "reap", got, &drive->reap_ns);
    } else if (got > 0) {
        drive->failing_calls = 0;
    }
    for (int i = 0; i < got; i++) {
        aio_pieces_complete(drive, &events[i]);
    }
    if (drive->done.first != NONE) {
        rc = aio_pieces_submit(drive); /* keeps the drive busy while this thread hashes */
        if (rc < 0) {
            note_failure(drive, "submit", rc, &drive->submit_ns);
        }
        aio_pieces_verify(drive, VERIFY_AT_ONCE);
    }
    if (reaps && drive->ran_ns - drive->watched_ns >= WATCH_NS && drive_drain(drive, got)) {
        drive->watched_ns = drive->ran_ns;
        rc = drive->dead ? 0 : aio_pieces_watch(drive);
        if (rc != 0) {
            drive_fail(drive, rc);
        }
    }
}

static void *drive_main(void *argument)
{
    struct aio_drive *drive = argument;
    core_log_bind(drive->log);
    pthread_setname_np(pthread_self(), "tide-drive");
    if (core_cpus_count(&drive->cpus) > 0 && core_cpus_bind_self(&drive->cpus) != 0) {
        core_log(CORE_LOG_WARN, "%s; the thread of the drive is left unpinned", core_err_message());
    }
    while (!drive->ending) {
        drive_turn(drive);
    }
    return NULL;
}

static int open_backend(struct aio_drive *drive, struct drive_call *self)
{
    const struct aio_drive_options *given = self->argument;
    const struct aio_backend_options options = {
        .drive = drive->name,
        .depth = drive->depth,
        .context = given->context,
        .user = drive->backend->user,
        .sqpoll = given->sqpoll,
        .iopoll = given->iopoll,
        .no_file_table = given->no_file_table,
        .refused_flags = given->refused_flags,
    };
    int rc = drive->backend->open(&options, &drive->state);
    if (rc == 0) {
        snprintf(drive->description, sizeof drive->description, "%s",
                 drive->backend->describe(drive->state));
    }
    return rc;
}

static int close_backend(struct aio_drive *drive, struct drive_call *self)
{
    (void)self;
    drive->ending = true;
    if (drive->in_flight > 0) {
        return core_err_set(-ETIMEDOUT, "%s: %u transfers never completed", drive->name,
                            drive->in_flight);
    }
    if (drive->state != NULL) {
        drive->backend->close(drive->state);
        drive->state = NULL;
    }
    return 0;
}

static int check_options(const struct aio_drive_options *options)
{
    const char *name = options->name != NULL ? options->name : "drive";
    if (options->depth > AIO_DEPTH_MAX) {
        return core_err_set(-EINVAL, "%s: depth %u is out of range 1..%d", name, options->depth,
                            AIO_DEPTH_MAX);
    }
    if (options->block_bytes % AIO_ALIGN_BYTES != 0 ||
        options->block_bytes > AIO_BUFFER_MAX_BYTES) {
        return core_err_set(-EINVAL, "%s: block size %u is not a multiple of %d up to 1 GiB", name,
                            options->block_bytes, AIO_ALIGN_BYTES);
    }
    return 0;
}

static int start(struct aio_drive *drive, struct aio_drive_options options)
{
    int rc = aio_pieces_create(drive);
    if (rc != 0) {
        return rc;
    }
    rc = core_thread_start(&drive->thread, drive_main, drive);
    if (rc != 0) {
        return core_err_set(-rc, "cannot start the thread of %s: %s", drive->name, strerror(rc));
    }
    drive->started = true;
    return drive_call_run(drive, open_backend, &options);
}

static void set_options(struct aio_drive *drive, const struct aio_drive_options *options)
{
    snprintf(drive->name, sizeof drive->name, "%s",
             options->name != NULL ? options->name : "drive");
    if (options->cpus != NULL) {
        drive->cpus = *options->cpus;
    }
    drive->warn_ns = options->warn_ns > 0 ? options->warn_ns : warn_default_ns;
    drive->limit_ns = options->limit_ns > 0 ? options->limit_ns : limit_default_ns;
    if (drive->warn_ns > drive->limit_ns) {
        drive->warn_ns = drive->limit_ns;
    }
    drive->clock_ns = options->now_ns;
    drive->clock_user = options->now_user;
    drive->iopoll = options->iopoll;
    drive->depth = options->depth != 0 ? options->depth : AIO_DEPTH_DEFAULT;
    drive->block_bytes = options->block_bytes != 0 ? options->block_bytes : AIO_BLOCK_DEFAULT_BYTES;
    read_clock(drive);
    drive->watched_ns = drive->ran_ns;
}

int aio_drive_create(const struct aio_drive_options *options, struct aio_drive **out)
{
    int rc = check_options(options);
    if (rc != 0) {
        return rc;
    }
    struct aio_drive *drive = calloc(1, sizeof *drive);
    if (drive == NULL) {
        return core_err_set(-ENOMEM, "out of memory for a drive");
    }
    set_options(drive, options);
    pthread_mutex_init(&drive->calling, NULL);
    core_bell_init(&drive->bell);
    core_bell_init(&drive->answers);
    drive->log = core_log_bound();
    drive->backend = options->backend;
    if (drive->backend == NULL) {
        char reason[AIO_REASON_BYTES];
        rc = aio_backend_choose(NULL, true, reason, sizeof reason, &drive->backend);
        if (rc == 0) {
            core_log(CORE_LOG_INFO, "%s: %s", drive->name, reason);
        }
    }
    if (rc == 0) {
        /* Pieces beyond depth_max would be refused in a busy loop. */
        const uint32_t most = drive->backend->depth_max;
        drive->depth = most != 0 && drive->depth > most ? most : drive->depth;
        rc = start(drive, *options);
    }
    if (rc != 0) {
        aio_drive_destroy(drive);
        return rc;
    }
    *out = drive;
    return 0;
}

int aio_drive_destroy(struct aio_drive *drive)
{
    if (drive == NULL) {
        return 0;
    }
    if (drive->started) {
        int rc = drive_call_run(drive, close_backend, NULL);
        pthread_join(drive->thread, NULL);
        if (rc != 0) {
            return rc; /* leaked: transfers are still in flight */
        }
    }
    pthread_mutex_destroy(&drive->calling);
    free(drive->pieces);
    free(drive->slabs);
    free(drive);
    return 0;
}

/* ---- files and memory ---- */

enum { HUGE_BYTES = 2 << 20 };

struct attaching {
    const struct aio_file *file;
    uint32_t index;
};

static int attach(struct aio_drive *drive, struct drive_call *self)
{
    struct attaching *attaching = self->argument;
    uint32_t index = 0;
    while (index < AIO_FILES_MAX &&
           atomic_load_explicit(&drive->files[index].used, memory_order_relaxed)) {
        index++;
    }
    if (index == AIO_FILES_MAX) {
        return core_err_set(-ENOSPC, "%s: no more than %d files can be attached", drive->name,
                            AIO_FILES_MAX);
    }
    int rc = drive->backend->attach(drive->state, index, attaching->file->fd);
    if (rc != 0) {
        return core_err_set(rc, "%s: cannot attach %s: %s", drive->name, attaching->file->name,
                            strerror(-rc));
    }
    struct attached_file *file = &drive->files[index];
    file->fd = attaching->file->fd;
    file->size_bytes = attaching->file->size_bytes;
    file->direct = attaching->file->direct;
    snprintf(file->name, sizeof file->name, "%s", attaching->file->name);
    atomic_store_explicit(&file->used, true, memory_order_release);
    attaching->index = index;
    return 0;
}

int aio_drive_attach(struct aio_drive *drive, const struct aio_file *file, uint32_t *index)
{
    struct attaching attaching = {.file = file};
    int rc = drive_call_run(drive, attach, &attaching);
    if (rc == 0) {
        *index = attaching.index;
    }
    return rc;
}

static int detach(struct aio_drive *drive, struct drive_call *self)
{
    uint32_t index = *(const uint32_t *)self->argument;
    if (index >= AIO_FILES_MAX ||
        !atomic_load_explicit(&drive->files[index].used, memory_order_relaxed)) {
        return core_err_set(-ENOENT, "%s: no file %" PRIu32 " is attached", drive->name, index);
    }
    atomic_store_explicit(&drive->files[index].used, false, memory_order_release);
    drive->backend->attach(drive->state, index, -1);
    return 0;
}

int aio_drive_detach(struct aio_drive *drive, uint32_t index)
{
    return drive_call_run(drive, detach, &index);
}

struct registering {
    struct iovec *slabs;
    unsigned count;
};

static int register_slabs(struct aio_drive *drive, struct drive_call *self)
{
    const struct registering *registering = self->argument;
    if (drive->slabs_count > 0) {
        return core_err_set(-EALREADY, "%s: memory is registered already", drive->name);
    }
    if (drive->in_flight > 0) {
        return core_err_set(-EBUSY, "%s: memory must be registered before the first request",
                            drive->name);
    }
    int rc = drive->backend->buffers(drive->state, registering->slabs, registering->count);
    if (rc != 0) {
        return rc; /* no message: a refusal is no error */
    }
    free(drive->slabs);
    drive->slabs = registering->slabs;
    drive->slabs_count = registering->count;
    return 0;
}

static int by_address(const void *a, const void *b)
{
    const unsigned char *left = ((const struct iovec *)a)->iov_base;
    const unsigned char *right = ((const struct iovec *)b)->iov_base;
    return (left > right) - (left < right);
}

/* Returns the end of the slab that begins at `at`. Unaligned ends are separate slabs: the kernel
 * keeps huge pages whole only in slabs without small pages. */
static uintptr_t slab_end(uintptr_t at, uintptr_t end)
{
    const uintptr_t whole = end / HUGE_BYTES * HUGE_BYTES;
    const uintptr_t next = core_round_up(at, HUGE_BYTES);
    if (next > at) {
        return next < end ? next : end;
    }
    if (at >= whole) {
        return end;
    }
    return whole - at < AIO_BUFFER_MAX_BYTES ? whole : at + AIO_BUFFER_MAX_BYTES;
}

static unsigned cut_slabs(const struct iovec *memory, unsigned count_in, struct iovec *slabs)
{
    unsigned made = 0;
    for (unsigned i = 0; i < count_in; i++) {
        unsigned char *at = memory[i].iov_base;
        uint64_t left = memory[i].iov_len;
        while (left > 0) {
            const uint64_t bytes = slab_end((uintptr_t)at, (uintptr_t)at + left) - (uintptr_t)at;
            if (slabs != NULL) {
                slabs[made] = (struct iovec){.iov_base = at, .iov_len = bytes};
            }
            made++;
            at += bytes;
            left -= bytes;
        }
    }
    return made;
}

static void warn_unregistered(const struct aio_drive *drive, uint64_t bytes, int rc)
{
    if (rc == -ENOMEM || rc == -EPERM) {
        core_log(CORE_LOG_WARN,
                 "%s: buffers are not registered because the limit on locked memory is too low; "
                 "this costs"
                 " a little CPU time. Raise it with `ulimit -l %" PRIu64 "` (KiB, for each drive)",
                 drive->name, (bytes + 1023) / 1024);
    } else if (rc != -EOPNOTSUPP) {
        core_log(CORE_LOG_WARN, "%s: buffers are not registered (%s); this costs a little CPU time",
                 drive->name, strerror(-rc));
    }
}

int aio_drive_register(struct aio_drive *drive, const struct iovec *memory, unsigned count_in)
{
    struct registering registering = {.count = cut_slabs(memory, count_in, NULL)};
    uint64_t bytes = 0;
    if (registering.count == 0 || registering.count > AIO_BUFFERS_MAX) {
        return core_err_set(-EINVAL, "%s: cannot register %u ranges of memory; expected 1 to %d",
                            drive->name, registering.count, AIO_BUFFERS_MAX);
    }
    registering.slabs = calloc(registering.count, sizeof *registering.slabs);
    if (registering.slabs == NULL) {
        return core_err_set(-ENOMEM, "%s: out of memory for the list of registered buffers",
                            drive->name);
    }
    cut_slabs(memory, count_in, registering.slabs);
    qsort(registering.slabs, registering.count, sizeof *registering.slabs, by_address);
    for (unsigned i = 0; i < registering.count; i++) {
        bytes += registering.slabs[i].iov_len;
    }
    int rc = drive_call_run(drive, register_slabs, &registering);
    if (rc == 0) {
        atomic_store_explicit(&drive->registered_bytes, bytes, memory_order_relaxed);
        return 0;
    }
    free(registering.slabs);
    if (rc == -EALREADY || rc == -EBUSY) {
        return rc;
    }
    warn_unregistered(drive, bytes, rc);
    return 0;
}

/* ---- channels ---- */

static int open_channel(struct aio_drive *drive, struct drive_call *self)
{
    struct channel *channel = self->argument;
    if (drive->dead) {
        return core_err_set(-EIO, "%s has failed; no queue can be opened on it", drive->name);
    }
    if (drive->channels_count == AIO_DRIVE_QUEUES_MAX) {
        return core_err_set(-ENOSPC, "%s has %d queues already", drive->name, AIO_DRIVE_QUEUES_MAX);
    }
    channel->pass = drive->pass;
    drive->channels[drive->channels_count++] = channel;
    return 0;
}

int aio_drive_open_channel(struct aio_drive *drive, struct channel *channel)
{
    return drive_call_run(drive, open_channel, channel);
}

/* close_channels answers the call later. */
static int close_channel(struct aio_drive *drive, struct drive_call *self)
{
    struct channel *channel = self->argument;
    const uint64_t tail = atomic_load_explicit(&channel->tail, memory_order_seq_cst);
    channel->closing = true;
    channel->closer = self;
    channel->closing_ns = drive->ran_ns;
    if (tail != atomic_load_explicit(&channel->head, memory_order_relaxed)) {
        aio_channel_fail(channel, 0, core_err_set(-ECANCELED, "the queue was closed"));
        aio_channel_drop(channel);
        aio_pieces_cancel(drive, channel);
    }
    return -EINPROGRESS;
}

int aio_drive_close_channel(struct aio_drive *drive, struct channel *channel)
{
    return drive_call_run(drive, close_channel, channel);
}

/* ---- counts ---- */

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void aio_drive_stats(struct aio_drive *drive, struct aio_drive_stats *out)
{
    *out = (struct aio_drive_stats){
        .read_bytes = load(&drive->read_bytes),
        .write_bytes = load(&drive->write_bytes),
        .pieces = load(&drive->finished),
        .short_transfers = load(&drive->short_transfers),
        .repeats = load(&drive->repeats),
        .retries = load(&drive->retries),
        .errors = load(&drive->errors),
        .mismatches = load(&drive->mismatches),
        .unknown_completions = load(&drive->unknown_completions),
        .stalls = load(&drive->stalls),
        .waits = load(&drive->waits),
        .hashed_bytes = load(&drive->hashed_bytes),
        .registered_bytes = load(&drive->registered_bytes),
    };
    for (unsigned i = 0; i < AIO_LATENCY_BUCKETS; i++) {
        out->latency[0][i] = load(&drive->latency[0][i]);
        out->latency[1][i] = load(&drive->latency[1][i]);
    }
    clockid_t clock;
    struct timespec used;
    if (pthread_getcpuclockid(drive->thread, &clock) == 0 && clock_gettime(clock, &used) == 0) {
        out->cpu_ns = (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
    }
}

const char *aio_drive_name(const struct aio_drive *drive)
{
    return drive->name;
}

const char *aio_drive_describe(const struct aio_drive *drive)
{
    return drive->description;
}

uint32_t aio_drive_block_bytes(const struct aio_drive *drive)
{
    return drive->block_bytes;
}

uint32_t aio_drive_depth(const struct aio_drive *drive)
{
    return drive->depth;
}
