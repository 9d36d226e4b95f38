/* target.c: creates and fills the scratch file, because first writes are slower, and reads of
 * unwritten parts faster. */
#include "tools/ds_nvme_bench/target.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "aio/backend.h"
#include "aio/files.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/rng.h"
#include "core/base/topo_read.h"

enum {
    FILL_BLOCK = 8 << 20,
    FILL_SLOTS = 4,
    FILL_RANDOM = 32 << 20,
    GRAIN = 2 << 20,
    STAMPED = 4096
};
static const uint64_t least_bytes = (uint64_t)64 << 20;
static const uint64_t most_bytes = (uint64_t)8 << 30;

void bench_target_fill(unsigned char *memory, uint64_t bytes)
{
    const uint64_t random = bytes < FILL_RANDOM ? bytes : FILL_RANDOM;
    for (uint64_t i = 0; i < random / 16; i++) {
        struct core_rng_words words = core_rng_philox(7, 0, i);
        memcpy(memory + i * 16, words.word, 16);
    }
    for (uint64_t at = random; at < bytes; at += FILL_RANDOM) {
        memcpy(memory + at, memory, bytes - at < FILL_RANDOM ? bytes - at : FILL_RANDOM);
    }
}

/* Writes a number into each 4096 bytes, from *next on, so that a drive that stores equal blocks
 * once finds none in the file. Measured writes have no such numbers, because writing
 * them costs processor time. */
static void stamp_blocks(unsigned char *memory, uint64_t bytes, uint64_t *next)
{
    for (uint64_t at = 0; at < bytes; at += STAMPED) {
        memcpy(memory + at, next, sizeof *next);
        ++*next;
    }
}

int bench_target_io_open(const struct bench_target_io_options *options, struct bench_target_io *io)
{
    const struct bench_target *target = options->target;
    const struct core_region_options memory = {
        .name = "slots", .bytes = options->memory_bytes, .pages = options->pages};
    const struct aio_drive_options drive = {.name = target->path,
                                            .backend = target->backend,
                                            .depth = options->depth,
                                            .block_bytes = options->block_bytes};
    const struct aio_file file = {.fd = target->fd,
                                  .name = target->path,
                                  .size_bytes = options->file_bytes != 0 ? options->file_bytes
                                                                         : target->file_bytes,
                                  .direct = target->direct};
    *io = (struct bench_target_io){0};
    int rc = core_region_alloc(&memory, &io->memory);
    if (rc != 0 || (rc = aio_drive_create(&drive, &io->drive)) != 0 ||
        (rc = aio_drive_attach(io->drive, &file, &io->file)) != 0) {
        return rc;
    }
    if (options->registered) {
        const struct iovec slab = {.iov_base = io->memory.base, .iov_len = io->memory.bytes};
        rc = aio_drive_register(io->drive, &slab, 1);
        if (rc != 0) {
            return rc;
        }
    }
    for (int q = 0; q < BENCH_TARGET_QUEUES && rc == 0; q++) {
        const struct aio_queue_options queue = {.name = options->names[q], .urgency = AIO_STATES};
        rc = options->names[q] != NULL ? aio_queue_open(&io->drive, 1, &queue, &io->queues[q]) : 0;
    }
    return rc;
}

int bench_target_io_close(struct bench_target_io *io)
{
    int first = 0; /* everything is closed in any case */
    for (int q = 0; q < BENCH_TARGET_QUEUES; q++) {
        const int rc = aio_queue_close(io->queues[q]);
        first = first != 0 ? first : rc;
    }
    const int rc = aio_drive_destroy(io->drive);
    first = first != 0 ? first : rc;
    if (first == 0) {
        core_region_free(&io->memory);
    }
    return first;
}

/* Stops after `fill_seconds` unless a size was requested. *wrote: bytes written. */
static int fill(struct bench_target *target, const struct bench_target_options *options,
                const struct bench_target_io *io, uint64_t bytes, uint64_t *wrote)
{
    struct core_fence fences[FILL_SLOTS] = {{0}};
    int64_t start_ns = core_clock_now_ns();
    bool timed = options->bytes == 0;
    uint64_t at = 0;
    uint64_t stamp = 0;
    for (unsigned turn = 0; at < bytes; turn++) {
        int rc = core_fence_wait(fences[turn % FILL_SLOTS], BENCH_PATIENCE_NS);
        double seconds = (double)(core_clock_now_ns() - start_ns) / 1e9;
        if (rc != 0 || (timed && seconds >= options->fill_seconds && at >= least_bytes)) {
            if (rc != 0) {
                return rc;
            }
            break;
        }
        if (options->stop != NULL && *options->stop) {
            return core_err_set(-EINTR, "interrupted while %s was being written", target->path);
        }
        uint64_t piece = bytes - at < FILL_BLOCK ? bytes - at : FILL_BLOCK;
        unsigned char *memory = io->memory.base + turn % FILL_SLOTS * FILL_BLOCK;
        stamp_blocks(memory, piece, &stamp);
        rc = aio_queue_write(io->queues[0], io->file, at, memory, piece,
                             &fences[turn % FILL_SLOTS]);
        if (rc != 0) {
            return rc;
        }
        at += piece;
        if (options->progress != NULL) {
            options->progress(options->user, at, bytes);
        }
    }
    int rc = core_fence_wait(aio_queue_tail(io->queues[0]), BENCH_PATIENCE_NS);
    double seconds = (double)(core_clock_now_ns() - start_ns) / 1e9;
    target->fill_bytes_per_s = (double)at / seconds;
    *wrote = at;
    return rc;
}

static int write_all(struct bench_target *target, const struct bench_target_options *options,
                     uint64_t bytes)
{
    const struct bench_target_io_options io_options = {.target = target,
                                                       .file_bytes = bytes,
                                                       .memory_bytes = FILL_BLOCK * FILL_SLOTS,
                                                       .pages = CORE_PAGES_THP,
                                                       .names = {"first write"}};
    struct bench_target_io io;
    uint64_t wrote = 0;
    int rc = bench_target_io_open(&io_options, &io);
    if (rc == 0) {
        bench_target_fill(io.memory.base, io.memory.bytes);
        rc = fill(target, options, &io, bytes, &wrote);
    }
    const int closed = bench_target_io_close(&io);
    if (rc != 0 || closed != 0) {
        return rc != 0 ? rc : closed;
    }
    target->file_bytes = wrote / GRAIN * GRAIN;
    if (target->file_bytes < bytes && ftruncate(target->fd, (off_t)wrote) != 0) {
        return core_err_set(-errno, "%s: the size of the scratch file cannot be set: %s",
                            target->path, strerror(errno));
    }
    return 0;
}

static int choose_bytes(const struct bench_target *target,
                        const struct bench_target_options *options, uint64_t *bytes)
{
    uint64_t free_bytes = target->fs.free_bytes;
    *bytes = options->bytes != 0 ? options->bytes : most_bytes;
    if (options->bytes == 0 && *bytes > free_bytes / 4) {
        *bytes = free_bytes / 4;
    }
    *bytes = *bytes / GRAIN * GRAIN;
    if (options->bytes != 0 && *bytes < least_bytes) {
        return core_err_set(-EINVAL, "--io_size %" PRIu64 " is too small; allowed: %d MiB or more",
                            options->bytes, (int)(least_bytes >> 20));
    }
    if (*bytes < least_bytes || *bytes > free_bytes) {
        return core_err_set(
            -ENOSPC,
            "%s has %.2f GB free; a scratch file of %.2f GB does not fit (--io_size takes %d MiB "
            "or more; its default is at most a quarter of the free space)",
            target->path, (double)free_bytes / 1e9,
            (double)(*bytes > 0 ? *bytes : options->bytes) / 1e9, (int)(least_bytes >> 20));
    }
    bool reserved; /* else the first writes allocate space */
    int rc = core_file_reserve(target->fd, *bytes, &reserved);
    if (rc != 0) {
        return core_err_set(rc, "%s: a scratch file of %.2f GB cannot be created: %s", target->path,
                            (double)*bytes / 1e9, strerror(-rc));
    }
    return 0;
}

int bench_target_open(const struct bench_target_options *options, struct bench_target *out)
{
    struct bench_target target = {.path = options->path, .fd = -1, .node = -1};
    uint64_t bytes = 0;
    const int dir_fd = aio_dir_look(options->path);
    if (dir_fd < 0) {
        return dir_fd;
    }
    int rc = aio_fs_look(dir_fd, options->path, &target.fs);
    if (rc != 0) {
        goto cleanup;
    }
    if (target.fs.verdict == AIO_FS_REFUSED) {
        rc = core_err_set(-ENOTSUP, "%s: %s", options->path, target.fs.reason);
        goto cleanup;
    }
    target.direct = target.fs.verdict == AIO_FS_DIRECT;
    rc = aio_backend_choose(options->backend, target.direct, target.backend_reason,
                            sizeof target.backend_reason, &target.backend);
    if (rc != 0) {
        goto cleanup;
    }
    target.fd = aio_fs_scratch(dir_fd, options->path, target.direct);
    if (target.fd < 0) {
        rc = target.fd;
        goto cleanup;
    }
    if (!target.direct) {
        core_log(CORE_LOG_WARN, "%s is measured through the page cache: %s", options->path,
                 target.fs.reason);
    }
    if ((rc = choose_bytes(&target, options, &bytes)) != 0 ||
        (rc = write_all(&target, options, bytes)) != 0) {
        bench_target_close(&target);
        goto cleanup;
    }
    *out = target;
cleanup:
    close(dir_fd);
    return rc;
}

int bench_target_place(struct bench_target *target, int wanted, int drive_node)
{
    struct core_topo *topo = NULL;
    if (wanted < 0 && drive_node < 0) {
        return 0;
    }
    int rc = core_topo_create(CORE_TOPO_LIVE, NULL, NULL, &topo);
    if (rc != 0) {
        return wanted < 0 ? 0 : rc;
    }
    const struct core_topo_node *node = core_topo_node_find(topo,
                                                            wanted >= 0 ? wanted : drive_node);
    if (node == NULL && wanted >= 0) {
        rc = core_err_set(-EINVAL, "--numa %d: this machine does not have that node", wanted);
    } else if (node != NULL && topo->node_count > 1 && core_cpus_count(&node->cpus) > 0) {
        target->node = node->number;
        target->node_cpus = node->cpus;
        target->cpus = &target->node_cpus;
    }
    core_topo_destroy(topo);
    return rc;
}

void bench_target_close(struct bench_target *target)
{
    if (target->fd > 0) {
        close(target->fd);
    }
    *target = (struct bench_target){.fd = -1};
}
