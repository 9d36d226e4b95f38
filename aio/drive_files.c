/* drive_files.c: what a drive is told at set-up (files, memory) and what it tells (counts). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aio/drive_parts.h"
#include "core/base/err.h"
#include "core/base/log.h"

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
