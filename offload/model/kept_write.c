/* kept_write.c: writes a base under a temporary name, and renames the durable file. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "offload/model/kept_internal.h"

static const char partial[] = ".part";

/* ---- beginning a file ---- */

static bool is_partial(const char *name)
{
    const size_t length = strlen(name);
    return length > sizeof partial - 1 &&
           strcmp(name + length - (sizeof partial - 1), partial) == 0;
}

/* Returns whether a file was made from earlier files of the model's folder. */
static bool is_stale(const struct model_kept *kept, int fd)
{
    struct model_kept_header found;
    return model_kept_read_header(fd, &found) == 0 && kept->header.shards != 0 &&
           found.shards != kept->header.shards && strcmp(found.folder, kept->header.folder) == 0;
}

/* Removes a file that an ended run left half-written, or an outdated one, but not a new file that
 * another run has put in its place. */
static void clear_one(const struct model_kept *kept, const char *name)
{
    struct core_lock *lock = NULL;
    bool direct;
    const int fd = core_file_open_direct(kept->folder, name, O_RDONLY, &direct);
    if (fd < 0) {
        return;
    }
    const bool left = is_partial(name) ? core_lock_take(kept->folder, name, &lock) == 0
                                       : is_stale(kept, fd);
    if (left && model_kept_is_named(kept, fd, name) && unlinkat(kept->folder, name, 0) == 0) {
        core_log(CORE_LOG_INFO, "removed %s/%s, %s", kept->options.directory, name,
                 lock != NULL ? "which a run that ended left half-written"
                              : "a base whose model has changed");
    }
    core_lock_drop(lock);
    close(fd);
}

static void clear(const struct model_kept *kept, const char *own)
{
    const int copy = openat(kept->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    for (const struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (model_kept_is_name(entry->d_name) && strncmp(entry->d_name, own, strlen(own)) != 0) {
            clear_one(kept, entry->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    } else if (copy >= 0) {
        close(copy);
    }
}

/* Returns -EWOULDBLOCK if another run writes the file. */
static int begin_file(struct model_kept *kept, const char *name)
{
    char part[KEPT_NAME_BYTES];
    const uint64_t bytes = model_kept_bytes(kept);
    bool reserved;
    snprintf(part, sizeof part, "%s%s", name, partial);
    int fd = openat(kept->folder, part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return -errno;
    }
    int rc = core_lock_take(kept->folder, part, &kept->lock);
    /* another run has renamed or removed this file meanwhile */
    if (rc == 0 && !model_kept_is_named(kept, fd, part)) {
        core_lock_drop(kept->lock);
        kept->lock = NULL;
        rc = -EWOULDBLOCK;
    }
    if (rc == 0) {
        rc = ftruncate(fd, 0) != 0 ? -errno : core_file_reserve(fd, bytes, &reserved);
        kept->fd = rc == 0 ? core_file_open_direct(kept->folder, part, O_RDWR, &kept->direct) : -1;
        rc = rc == 0 && kept->fd < 0 ? kept->fd : rc;
    }
    close(fd);
    return rc;
}

void model_kept_remove_part(const struct model_kept *kept)
{
    char part[KEPT_NAME_BYTES];
    if (kept->lock != NULL) {
        snprintf(part, sizeof part, "%s%s", model_kept_name(kept), partial);
        (void)unlinkat(kept->folder, part, 0);
    }
}

int model_kept_begin(struct model_kept *kept)
{
    const uint64_t bytes = model_kept_bytes(kept);
    const char *name = model_kept_name(kept);
    int rc = 0;
    kept->writes = true;
    clear(kept, name);
    if (bytes > kept->options.room_bytes) {
        core_log(CORE_LOG_WARN,
                 "the %s base is not kept: it takes %" PRIu64 " MiB, and %s has room for %" PRIu64
                 " MiB beside the run; the next run makes it again (--no-keep-base turns this "
                 "warning off)",
                 kept->header.storage, (bytes + KEPT_PIECE_BYTES - 1) >> 20,
                 kept->options.directory, kept->options.room_bytes >> 20);
        return -ENOSPC;
    }
    (void)unlinkat(kept->folder, name, 0); /* a file of this name is not valid */
    kept->piece = aligned_alloc(KEPT_PAGE_BYTES, KEPT_PIECE_BYTES);
    kept->written = calloc(kept->header.blocks + 1, sizeof *kept->written);
    if (kept->piece == NULL || kept->written == NULL) {
        return core_err_set(-ENOMEM, "no memory to keep a base");
    }
    rc = begin_file(kept, name);
    if (rc == -EWOULDBLOCK) {
        core_log(CORE_LOG_INFO, "another run writes %s, so this run does not", kept->path);
    } else if (rc != 0) {
        core_log(
            CORE_LOG_WARN, "the %s base is not kept: %s of %" PRIu64 " MiB cannot be created: %s",
            kept->header.storage, kept->path, (bytes + KEPT_PIECE_BYTES - 1) >> 20, strerror(-rc));
    }
    return rc;
}

/* ---- blocks ---- */

bool model_kept_wants(const struct model_kept *kept, unsigned block)
{
    return kept != NULL && kept->writes && !kept->failed && model_kept_find(kept, block) != NULL;
}

static void fail_writing(struct model_kept *kept, int rc)
{
    kept->failed = true;
    core_log(CORE_LOG_WARN, "the %s base is not kept: %s of %" PRIu64 " MiB cannot be written: %s",
             kept->header.storage, kept->path,
             (model_kept_bytes(kept) + KEPT_PIECE_BYTES - 1) >> 20, strerror(-rc));
}

/* Hashes and writes the piece that ends at byte `end` of the block. */
static int write_piece(struct model_kept *kept, const struct model_kept_block *block, uint64_t end)
{
    const uint64_t at = (end - 1) / KEPT_PIECE_BYTES * KEPT_PIECE_BYTES;
    const uint64_t padded = model_kept_rounded(end - at);
    memset(kept->piece + (end - at), 0, padded - (end - at));
    for (uint64_t done = 0; done < padded; done += block->unit_bytes) {
        const uint64_t unit = (at + done) / block->unit_bytes;
        const uint64_t rest = padded - done;
        const uint64_t length = rest < block->unit_bytes ? rest : block->unit_bytes;
        kept->sums[block->first_unit + unit] = model_kept_hash_unit(block, kept->piece + done,
                                                                    length, unit);
    }
    return core_file_write_at(kept->fd, kept->piece, padded, block->offset + at);
}

void model_kept_write(struct model_kept *kept, unsigned block, const void *from, uint64_t bytes)
{
    const struct model_kept_block *found = model_kept_find(kept, block);
    assert(found != NULL);
    uint64_t *at = &kept->written[found - kept->blocks];
    const char *next = from;
    int rc = *at + bytes <= found->bytes ? 0 : -ERANGE;
    while (rc == 0 && !kept->failed && bytes > 0) {
        const uint64_t within = *at % KEPT_PIECE_BYTES;
        const uint64_t room = KEPT_PIECE_BYTES - within;
        const uint64_t count = bytes < room ? bytes : room;
        memcpy(kept->piece + within, next, count);
        *at += count;
        next += count;
        bytes -= count;
        if (*at % KEPT_PIECE_BYTES == 0 || *at == found->bytes) {
            rc = write_piece(kept, found, *at);
        }
    }
    if (rc != 0) {
        fail_writing(kept, rc);
    }
}

/* ---- finishing a file ---- */

static bool is_complete(const struct model_kept *kept)
{
    bool complete = kept->writes && !kept->failed;
    for (uint32_t i = 0; complete && i < kept->header.blocks; i++) {
        complete = kept->written[i] == kept->blocks[i].bytes;
    }
    return complete;
}

void model_kept_finish(struct model_kept *kept, uint64_t identity)
{
    char part[KEPT_NAME_BYTES];
    if (kept == NULL || !is_complete(kept)) {
        return;
    }
    const char *name = model_kept_name(kept);
    snprintf(part, sizeof part, "%s%s", name, partial);
    kept->header.identity = identity;
    if (model_kept_hash_shards(kept->options.files) != kept->header.shards) {
        kept->failed = true;
        core_log(CORE_LOG_WARN, "the %s base is not kept: the model's files changed meanwhile",
                 kept->header.storage);
        return;
    }
    int rc = model_kept_write_tables(kept->fd, &kept->header, kept->blocks, kept->sums,
                                     kept->piece);
    if (rc == 0 && renameat(kept->folder, part, kept->folder, name) != 0) {
        rc = -errno;
    }
    if (rc != 0) {
        fail_writing(kept, rc);
        return;
    }
    (void)fsync(kept->folder);
    core_lock_drop(kept->lock);
    kept->lock = NULL;
    core_log(CORE_LOG_INFO, "kept the %s base in %s (%" PRIu64 " MiB) for the next run",
             kept->header.storage, kept->path,
             (model_kept_bytes(kept) + KEPT_PIECE_BYTES - 1) >> 20);
}
