/* drive.c: the drive's thread and its turn: serve what others ask, hand blocks out, collect answers,
 * verify, watch the clock. */
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
#include "core/base/thread.h"

enum {
    EVENTS = 64,
    VERIFY_AT_ONCE = 4,      /* blocks hashed before the ring is looked after again */
    SPIN_NS = 20000,         /* looked for work before sleeping */
    WAIT_NS = 100000000,     /* for completions, before the watchdog looks again */
    BATCH_WAIT_NS = 5000000, /* for several completions at once */
    WATCH_NS = 250000000,
    FAILING_CALLS_MAX = 10000, /* submit or reap, in a row */
};
static const int64_t warn_default_ns = 5000000000;
static const int64_t limit_default_ns = 60000000000;

static void read_clock(struct aio_drive *drive)
{
    if (drive->options.now_ns != NULL) {
        drive->now_ns = drive->ran_ns = drive->options.now_ns(drive->options.now_user);
    } else {
        drive->now_ns = core_clock_now_ns();
        drive->ran_ns = core_clock_ran_ns();
    }
}

void aio_drive_ring(struct aio_drive *drive)
{
    core_bell_ring(&drive->bell);
    if ((atomic_load_explicit(&drive->waiting, memory_order_seq_cst) & WAKE_FOR_PARTS) != 0 &&
        atomic_exchange_explicit(&drive->waiting, 0, memory_order_seq_cst) != 0) {
        drive->backend->wake(drive->state);
    }
}

int aio_drive_ask(struct aio_drive *drive, int (*run)(struct aio_drive *, struct control *),
                  void *argument)
{
    struct control control = {.run = run, .argument = argument};
    pthread_mutex_lock(&drive->asking);
    atomic_store_explicit(&drive->control, &control, memory_order_seq_cst);
    core_bell_ring(&drive->bell);
    if (atomic_exchange_explicit(&drive->waiting, 0, memory_order_seq_cst) != 0) {
        drive->backend->wake(drive->state);
    }
    for (;;) {
        uint32_t seen = core_bell_look(&drive->answers);
        if (atomic_load_explicit(&control.answered, memory_order_acquire)) {
            break;
        }
        core_bell_sleep(&drive->answers, seen, -1);
    }
    pthread_mutex_unlock(&drive->asking);
    return core_err_first(&control.result, 0);
}

static void answer(struct aio_drive *drive, struct control *control, int rc)
{
    control->result = core_err_keep(rc);
    atomic_store_explicit(&control->answered, true, memory_order_release);
    core_bell_ring(&drive->answers);
}

static void serve(struct aio_drive *drive)
{
    struct control *control = atomic_exchange_explicit(&drive->control, NULL, memory_order_seq_cst);
    if (control != NULL) {
        int rc = control->run(drive, control);
        if (rc != -EINPROGRESS) {
            answer(drive, control, rc);
        }
    }
}

/* Lanes whose last block is through, or whose blocks will not come back. */
static void close_lanes(struct aio_drive *drive)
{
    for (unsigned i = 0; i < drive->lanes_count; i++) {
        struct lane *lane = drive->lanes[i];
        if (lane->closer == NULL) {
            continue;
        }
        int64_t limit_ns = drive->dead ? drive->options.warn_ns : drive->options.limit_ns;
        struct control *closer = lane->closer;
        if (lane->flying == 0) {
            drive->lanes[i--] = drive->lanes[--drive->lanes_count];
            answer(drive, closer, 0); /* the lane is gone */
        } else if (drive->ran_ns - lane->closing_ns >= limit_ns) {
            lane->closer = NULL;
            answer(drive, closer,
                   core_err_set(-ETIMEDOUT,
                                "%s does not give back %" PRIu64
                                " blocks; their memory stays with the kernel",
                                drive->name, lane->flying));
        }
    }
}

void aio_drive_die(struct aio_drive *drive, int code)
{
    drive->dead = true;
    core_log(CORE_LOG_ERROR, "%s", core_err_sentence());
    for (unsigned i = 0; i < drive->lanes_count; i++) {
        aio_queue_fail(drive->lanes[i]->queue, code, core_err_sentence());
    }
    aio_block_sweep(drive);
    for (unsigned i = 0; i < drive->lanes_count; i++) {
        aio_lane_drop(drive->lanes[i]);
    }
    aio_block_cancel(drive, NULL);
}

/* A call into the back end failed. Some failures pass; the number in a row is bounded. The call is
 * not made again before *call_ns. */
static void note_failure(struct aio_drive *drive, const char *call, int rc, int64_t *call_ns)
{
    bool passes = rc == -EINTR || rc == -EAGAIN || rc == -EBUSY || rc == -ENOMEM;
    if (drive->dead) { /* only late answers are waited for */
        *call_ns = drive->now_ns + 1000000;
        return;
    }
    count(&drive->repeats, 1);
    if (!passes || ++drive->failing_calls > FAILING_CALLS_MAX) {
        core_err_set(rc, "%s: %s of %s failed %u times: %s", drive->name, call,
                     drive->backend->name, passes ? drive->failing_calls : 1, strerror(-rc));
        aio_drive_die(drive, rc);
        return;
    }
    if (drive->failing_calls > 8) {
        *call_ns = drive->now_ns + (drive->failing_calls < 64 ? 20000 : 500000);
    }
}

static bool is_closing(const struct aio_drive *drive)
{
    for (unsigned i = 0; i < drive->lanes_count; i++) {
        if (drive->lanes[i]->closer != NULL) {
            return true;
        }
    }
    return false;
}

static bool is_asked(struct aio_drive *drive)
{
    return atomic_load_explicit(&drive->control, memory_order_seq_cst) != NULL;
}

/* How long nothing but `until_ns` and a ring of the bell is waited for; 0: there is work now. */
static int64_t idle_ns(struct aio_drive *drive, int64_t until_ns)
{
    const bool full = drive->dead || drive->flying >= drive->depth;
    const int64_t due_ns = full ? INT64_MAX : aio_block_due(drive);
    const int64_t first_ns = due_ns < until_ns ? due_ns : until_ns;
    if (first_ns <= drive->now_ns || is_asked(drive) || drive->done.first != NONE) {
        return 0;
    }
    return first_ns == INT64_MAX ? -1 : first_ns - drive->now_ns;
}

/* Waits as briefly as what is there to do asks for. With many blocks in flight several completions
 * are collected at a time: fewer calls, and the drive still has most of its depth. */
static int collect(struct aio_drive *drive, struct aio_event *events)
{
    bool full = drive->flying >= drive->depth;
    unsigned min = 1;
    atomic_store_explicit(&drive->waiting,
                          full ? WAKE_FOR_CONTROL : WAKE_FOR_CONTROL | WAKE_FOR_PARTS,
                          memory_order_seq_cst);
    int64_t wait_ns = idle_ns(drive, drive->now_ns + WAIT_NS);
    if (wait_ns == 0) {
        min = 0;
    } else if (full && drive->depth >= 16) {
        min = drive->depth / 8 < EVENTS ? drive->depth / 8 : EVENTS;
        wait_ns = BATCH_WAIT_NS;
    }
    if (min > 0) {
        count(&drive->waits, 1);
    }
    int rc = drive->backend->reap(drive->state, events, EVENTS, min, wait_ns);
    atomic_store_explicit(&drive->waiting, 0, memory_order_relaxed);
    return rc;
}

/* Until `until_ns`, or until there is work. */
static void rest(struct aio_drive *drive, int64_t until_ns)
{
    uint32_t seen = core_bell_look(&drive->bell);
    int64_t wait_ns = idle_ns(drive, until_ns);
    if (wait_ns != 0 && (until_ns != INT64_MAX || !is_closing(drive)) && !drive->ending) {
        core_bell_spin_sleep(&drive->bell, seen, wait_ns < 0 ? SPIN_NS : 0, wait_ns);
    }
}

/* Takes in the answers that are there. False: the back end does not tell now. */
static bool drain(struct aio_drive *drive, int got)
{
    struct aio_event events[EVENTS];
    for (int i = 0; got == EVENTS && i <= AIO_DEPTH_MAX / EVENTS; i++) {
        got = drive->backend->reap(drive->state, events, EVENTS, 0, 0);
        for (int n = 0; n < got; n++) {
            aio_block_event(drive, &events[n]);
        }
    }
    return got >= 0;
}

static void turn(struct aio_drive *drive)
{
    struct aio_event events[EVENTS];
    read_clock(drive);
    serve(drive);
    close_lanes(drive);
    int rc = aio_block_fill(drive);
    if (rc < 0) {
        note_failure(drive, "submit", rc, &drive->submit_ns);
    }
    if (drive->flying == 0 && drive->done.first == NONE) {
        rest(drive, INT64_MAX);
        return;
    }
    const bool reaps = drive->reap_ns <= drive->now_ns;
    int got = 0;
    if (reaps) {
        got = collect(drive, events);
    } else {
        rest(drive, drive->reap_ns);
    }
    read_clock(drive);
    if (got < 0) {
        note_failure(drive, "reap", got, &drive->reap_ns);
    } else if (got > 0) {
        drive->failing_calls = 0;
    }
    for (int i = 0; i < got; i++) {
        aio_block_event(drive, &events[i]);
    }
    if (drive->done.first != NONE) {
        rc = aio_block_fill(drive); /* the drive works on while this thread hashes */
        if (rc < 0) {
            note_failure(drive, "submit", rc, &drive->submit_ns);
        }
        aio_block_verify(drive, VERIFY_AT_ONCE);
    }
    if (reaps && drive->ran_ns - drive->looked_ns >= WATCH_NS && drain(drive, got)) {
        drive->looked_ns = drive->ran_ns; /* what is still flying has not been answered */
        aio_block_watch(drive);
    }
}

static void *drive_main(void *argument)
{
    struct aio_drive *drive = argument;
    core_log_bind(drive->log);
    pthread_setname_np(pthread_self(), "tide-drive");
    if (core_cpus_count(&drive->cpus) > 0 && core_cpus_bind_self(&drive->cpus) != 0) {
        core_log(CORE_LOG_WARN, "%s; it runs where the kernel puts it", core_err_sentence());
    }
    while (!drive->ending) {
        turn(drive);
    }
    return NULL;
}

static int open_backend(struct aio_drive *drive, struct control *self)
{
    (void)self;
    struct aio_backend_options options = {
        .drive = drive->name,
        .depth = drive->depth,
        .context = drive->options.context,
        .user = drive->backend->user,
        .sqpoll = drive->options.sqpoll,
        .iopoll = drive->options.iopoll,
        .no_file_table = drive->options.no_file_table,
        .refused_flags = drive->options.refused_flags,
    };
    int rc = drive->backend->open(&options, &drive->state);
    if (rc == 0) {
        snprintf(drive->description, sizeof drive->description, "%s",
                 drive->backend->describe(drive->state));
    }
    return rc;
}

static int end(struct aio_drive *drive, struct control *self)
{
    (void)self;
    drive->ending = true;
    if (drive->flying > 0) {
        return core_err_set(-ETIMEDOUT, "%s: %u blocks never came back", drive->name,
                            drive->flying);
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
        return core_err_set(-EINVAL, "%s: depth %u; %d at most", name, options->depth,
                            AIO_DEPTH_MAX);
    }
    if (options->block_bytes % AIO_ALIGN_BYTES != 0 ||
        options->block_bytes > AIO_BUFFER_MAX_BYTES) {
        return core_err_set(-EINVAL, "%s: blocks of %u bytes; a multiple of %d up to 1 GiB", name,
                            options->block_bytes, AIO_ALIGN_BYTES);
    }
    return 0;
}

static int start(struct aio_drive *drive)
{
    int rc = aio_block_init(drive);
    if (rc != 0) {
        return rc;
    }
    rc = core_thread_start(&drive->thread, drive_main, drive);
    if (rc != 0) {
        return core_err_set(-rc, "cannot start the thread of %s: %s", drive->name, strerror(rc));
    }
    drive->started = true;
    return aio_drive_ask(drive, open_backend, NULL);
}

static void set_options(struct aio_drive *drive, const struct aio_drive_options *options)
{
    drive->options = *options;
    snprintf(drive->name, sizeof drive->name, "%s",
             options->name != NULL ? options->name : "drive");
    drive->options.name = drive->name;
    drive->options.cpus = NULL;
    if (options->cpus != NULL) {
        drive->cpus = *options->cpus;
    }
    drive->options.warn_ns = options->warn_ns > 0 ? options->warn_ns : warn_default_ns;
    drive->options.limit_ns = options->limit_ns > 0 ? options->limit_ns : limit_default_ns;
    if (drive->options.warn_ns > drive->options.limit_ns) {
        drive->options.warn_ns = drive->options.limit_ns;
    }
    drive->depth = options->depth != 0 ? options->depth : AIO_DEPTH_DEFAULT;
    drive->block_bytes = options->block_bytes != 0 ? options->block_bytes : AIO_BLOCK_DEFAULT_BYTES;
    read_clock(drive);
    drive->looked_ns = drive->ran_ns;
}

int aio_drive_create(const struct aio_drive_options *options, struct aio_drive **out)
{
    int rc = check_options(options);
    if (rc != 0) {
        return rc;
    }
    struct aio_drive *drive = calloc(1, sizeof *drive);
    if (drive == NULL) {
        return core_err_set(-ENOMEM, "no memory for a drive");
    }
    set_options(drive, options);
    pthread_mutex_init(&drive->asking, NULL);
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
        /* Blocks that it takes no more would be offered to it without a rest. */
        const uint32_t most = drive->backend->depth_max;
        drive->depth = most != 0 && drive->depth > most ? most : drive->depth;
        rc = start(drive);
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
        int rc = aio_drive_ask(drive, end, NULL);
        pthread_join(drive->thread, NULL);
        if (rc != 0) {
            return rc; /* leaked on purpose: the kernel may still write to what it points to */
        }
    }
    pthread_mutex_destroy(&drive->asking);
    free(drive->blocks);
    free(drive->slabs);
    free(drive);
    return 0;
}

enum { HUGE_BYTES = 2 << 20 };

struct attaching {
    const struct aio_file *file;
    uint32_t index;
};

static int attach(struct aio_drive *drive, struct control *self)
{
    struct attaching *attaching = self->argument;
    uint32_t index = 0;
    while (index < AIO_FILES_MAX &&
           atomic_load_explicit(&drive->files[index].used, memory_order_relaxed)) {
        index++;
    }
    if (index == AIO_FILES_MAX) {
        return core_err_set(-ENOSPC, "%s: %d files are open already", drive->name, AIO_FILES_MAX);
    }
    int rc = drive->backend->attach(drive->state, index, attaching->file->fd);
    if (rc != 0) {
        return core_err_set(rc, "%s: cannot attach %s: %s", drive->name, attaching->file->name,
                            strerror(-rc));
    }
    struct file *file = &drive->files[index];
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
    int rc = aio_drive_ask(drive, attach, &attaching);
    if (rc == 0) {
        *index = attaching.index;
    }
    return rc;
}

static int detach(struct aio_drive *drive, struct control *self)
{
    uint32_t index = *(const uint32_t *)self->argument;
    if (index >= AIO_FILES_MAX ||
        !atomic_load_explicit(&drive->files[index].used, memory_order_relaxed)) {
        return core_err_set(-ENOENT, "%s has no file %" PRIu32, drive->name, index);
    }
    atomic_store_explicit(&drive->files[index].used, false, memory_order_release);
    drive->backend->attach(drive->state, index, -1);
    return 0;
}

int aio_drive_detach(struct aio_drive *drive, uint32_t index)
{
    return aio_drive_ask(drive, detach, &index);
}

struct registering {
    struct iovec *slabs;
    unsigned count;
};

static int register_slabs(struct aio_drive *drive, struct control *self)
{
    const struct registering *registering = self->argument;
    if (drive->slabs_count > 0) {
        return core_err_set(-EALREADY, "%s has registered its memory already", drive->name);
    }
    if (drive->flying > 0) {
        return core_err_set(-EBUSY, "%s: memory is registered before requests begin", drive->name);
    }
    int rc = drive->backend->buffers(drive->state, registering->slabs, registering->count);
    if (rc != 0) {
        return rc; /* no sentence: the asker knows what to say */
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

/* Where the slab that begins at `at` ends. The kernel takes a slab's huge pages as they are only where
 * it has no other pages; else it splits each block into as many segments as it has small ones, and a
 * block of 1 MiB into two requests. So what is ragged at the ends of a piece of memory stands alone. */
static uintptr_t slab_end(uintptr_t at, uintptr_t end)
{
    const uintptr_t whole = end / HUGE_BYTES * HUGE_BYTES;
    const uintptr_t next = (at + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
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

static void warn_unregistered(const struct aio_drive *drive, uint64_t bytes, int code)
{
    if (code == -ENOMEM || code == -EPERM) {
        core_log(CORE_LOG_WARN,
                 "%s: the limit of locked memory forbids registered buffers; it works without, at a"
                 " little more CPU time. `ulimit -l %" PRIu64 "` (KiB, for each drive) would do",
                 drive->name, (bytes + 1023) / 1024);
    } else if (code != -EOPNOTSUPP) {
        core_log(CORE_LOG_WARN, "%s: buffers are not registered: %s; it works without", drive->name,
                 strerror(-code));
    }
}

int aio_drive_register(struct aio_drive *drive, const struct iovec *memory, unsigned count_in)
{
    struct registering registering = {.count = cut_slabs(memory, count_in, NULL)};
    uint64_t bytes = 0;
    if (registering.count == 0 || registering.count > AIO_BUFFERS_MAX) {
        return core_err_set(-EINVAL, "%s: %u pieces of memory to register; 1 to %d", drive->name,
                            registering.count, AIO_BUFFERS_MAX);
    }
    registering.slabs = calloc(registering.count, sizeof *registering.slabs);
    if (registering.slabs == NULL) {
        return core_err_set(-ENOMEM, "%s: no memory to register buffers", drive->name);
    }
    cut_slabs(memory, count_in, registering.slabs);
    qsort(registering.slabs, registering.count, sizeof *registering.slabs, by_address);
    for (unsigned i = 0; i < registering.count; i++) {
        bytes += registering.slabs[i].iov_len;
    }
    int rc = aio_drive_ask(drive, register_slabs, &registering);
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

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void aio_drive_stats(struct aio_drive *drive, struct aio_drive_stats *out)
{
    *out = (struct aio_drive_stats){
        .read_bytes = get(&drive->read_bytes),
        .write_bytes = get(&drive->write_bytes),
        .blocks = get(&drive->finished),
        .shorts = get(&drive->shorts),
        .repeats = get(&drive->repeats),
        .retries = get(&drive->retries),
        .errors = get(&drive->errors),
        .mismatches = get(&drive->mismatches),
        .strangers = get(&drive->strangers),
        .stalls = get(&drive->stalls),
        .waits = get(&drive->waits),
        .hashed_bytes = get(&drive->hashed_bytes),
        .registered_bytes = get(&drive->registered_bytes),
    };
    for (unsigned i = 0; i < AIO_LATENCY_BUCKETS; i++) {
        out->latency[0][i] = get(&drive->latency[0][i]);
        out->latency[1][i] = get(&drive->latency[1][i]);
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

const struct aio_backend *aio_drive_backend(const struct aio_drive *drive)
{
    return drive->backend;
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
