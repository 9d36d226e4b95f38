/* extent_file.c: creates, reuses, inspects and removes an extent file. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aio/backend.h"
#include "aio/files.h"
#include "aio/queue.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/mem.h"

static const char magic[8] = "TIDEEXT";
static const uint64_t zeros_bytes = (uint64_t)16 << 20;
static const int64_t patience_ns = 600000000000;

struct aio_path {
    struct aio_dir *dir;     /* owned; NULL with mem */
    struct aio_drive *drive; /* owned */
    int fd;                  /* owned */
    bool direct;
    bool reserved;  /* space is allocated already */
    bool formatted; /* an earlier run wrote the whole file */
    bool linked;    /* to be removed at close */
    bool removed;   /* take_over() removed a file open elsewhere */
    uint32_t file;
    uint64_t file_bytes, data_offset;
};

void aio_header_seal(struct aio_header *header)
{
    header->sum = core_hash(header, offsetof(struct aio_header, sum), 0);
}

int aio_header_check(const struct aio_header *header, const char *name)
{
    if (memcmp(header->magic, magic, sizeof magic) != 0) {
        return core_err_set(-EBADMSG, "%s is not an extent file", name);
    }
    if (header->version != AIO_HEADER_VERSION) {
        return core_err_set(-EBADMSG, "%s is an extent file of version %u, not %d", name,
                            header->version, AIO_HEADER_VERSION);
    }
    if (header->sum != core_hash(header, offsetof(struct aio_header, sum), 0)) {
        return core_err_set(-EBADMSG, "the header of extent file %s is damaged", name);
    }
    return 0;
}

static int write_header(const struct aio_path *path, const struct aio_path_options *options,
                        bool formatted)
{
    void *memory = NULL;
    if (posix_memalign(&memory, AIO_HEADER_BYTES, AIO_HEADER_BYTES) != 0) {
        return core_err_set(-ENOMEM, "out of memory for a header");
    }
    memset(memory, 0, AIO_HEADER_BYTES);
    struct aio_header *header = memory;
    *header = (struct aio_header){
        .version = AIO_HEADER_VERSION,
        .path_index = options->index,
        .paths_count = options->count,
        .formatted = formatted,
        .run = options->run,
        .file_bytes = path->file_bytes,
        .data_offset = path->data_offset,
        .align_bytes = options->align_bytes,
        .owner = geteuid(),
        .process = (uint64_t)getpid(),
    };
    memcpy(header->magic, magic, sizeof magic);
    aio_header_seal(header);
    const int rc = core_file_write_at(path->fd, memory, AIO_HEADER_BYTES, 0);
    free(memory);
    return rc == 0 ? 0
                   : core_err_set(rc, "cannot write the header of %s/%s: %s", options->directory,
                                  AIO_PATH_FILE_NAME, strerror(-rc));
}

/* Removes a dead process's extent file that a child or unfinished I/O keeps locked. */
static int replace_locked(struct aio_path *path, const struct aio_header *header, const char *name,
                          int fd)
{
    if (header == NULL || kill((pid_t)header->process, 0) == 0 || errno != ESRCH) {
        return core_err_set(-EPERM, "%s is not touched: a running process has it locked", name);
    }
    core_log(CORE_LOG_INFO, "%s of a run that did not end cleanly is still open; it is replaced",
             name);
    if (ftruncate(fd, 0) != 0) {
        core_log(CORE_LOG_WARN, "%s cannot be emptied: %s", name, strerror(errno));
    }
    return aio_dir_remove(path->dir, AIO_PATH_FILE_NAME, fd);
}

/* Takes over the extent file of a dead run, if any. An empty file's run died before it wrote the
 * header. */
static int take_over(struct aio_path *path, const struct aio_path_options *options)
{
    bool locked = false;
    int fd = aio_dir_open_file(path->dir, AIO_PATH_FILE_NAME, path->direct, &locked);
    if (fd < 0) {
        return fd == -ENOENT ? 0 : fd;
    }
    char name[512];
    struct stat info;
    void *memory = NULL;
    int rc = 0;
    snprintf(name, sizeof name, "%.480s/%s", options->directory, AIO_PATH_FILE_NAME);
    if (fstat(fd, &info) != 0 || posix_memalign(&memory, AIO_HEADER_BYTES, AIO_HEADER_BYTES) != 0) {
        rc = core_err_set(-ENOMEM, "%s cannot be examined", name);
    } else if (info.st_size > 0) {
        const struct aio_header *header = memory;
        rc = core_file_read_at(fd, memory, AIO_HEADER_BYTES, 0) == AIO_HEADER_BYTES
                 ? aio_header_check(header, name)
                 : core_err_set(-EBADMSG, "%s is not an extent file", name);
        if (rc != 0) {
            rc = core_err_prefix(rc, "another file has this name and is not touched");
        }
        path->formatted = rc == 0 && header->formatted != 0 &&
                          header->file_bytes == path->file_bytes &&
                          (uint64_t)info.st_size == path->file_bytes;
    }
    if (rc == 0 && !locked) {
        rc = replace_locked(path, info.st_size > 0 ? memory : NULL, name, fd);
        path->formatted = false;
        path->removed = rc == 0;
    }
    free(memory);
    if (rc != 0 || !locked) {
        close(fd);
        return rc;
    }
    path->fd = fd;
    path->linked = true;
    core_log(CORE_LOG_INFO, "took over %s, which an ended run left%s", name,
             path->formatted ? "" : "; it is written again");
    return 0;
}

static int no_space(const struct aio_path *path, const struct aio_path_options *options,
                    const struct aio_fs *fs, int cause)
{
    return core_err_set(-cause,
                        "%s is full: the store needs %" PRIu64 " bytes, %" PRIu64 " are free: %s",
                        options->directory, path->file_bytes, fs->free_bytes, strerror(cause));
}

/* A full drive is noticed at the start. */
static int reserve(struct aio_path *path, const struct aio_path_options *options,
                   const struct aio_fs *fs)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < path->file_bytes) {
        return core_err_set(-EFBIG,
                            "the limit on file sizes (ulimit -f) is %" PRIu64
                            " bytes; the store in %s needs %" PRIu64,
                            (uint64_t)limit.rlim_cur, options->directory, path->file_bytes);
    }
    if (ftruncate(path->fd, (off_t)path->file_bytes) != 0) {
        int cause = errno;
        return core_err_set(-cause, "cannot create a file of %" PRIu64 " bytes in %s: %s",
                            path->file_bytes, options->directory, strerror(cause));
    }
    int rc = core_file_reserve(path->fd, path->file_bytes, &path->reserved);
    if (rc != 0) {
        return no_space(path, options, fs, -rc);
    }
    if (!path->reserved && fs->free_bytes < path->file_bytes) {
        return no_space(path, options, fs, ENOSPC);
    }
    if (!path->reserved) {
        core_log(
            CORE_LOG_WARN,
            "%s: this file system (%s) cannot reserve space, so the store's %.2f GB are written "
            "first",
            options->directory, fs->type, (double)path->file_bytes / 1e9);
    }
    return 0;
}

static int open_file(struct aio_path *path, const struct aio_path_options *options,
                     const struct aio_fs *fs)
{
    int rc = take_over(path, options);
    if (rc != 0) {
        return rc;
    }
    if (path->fd < 0) {
        path->fd = aio_dir_create(path->dir, AIO_PATH_FILE_NAME, path->direct);
        if (path->fd < 0) {
            return path->fd;
        }
        path->linked = true;
        int flags = 0; /* btrfs: overwrite in place */
        if (ioctl(path->fd, FS_IOC_GETFLAGS, &flags) == 0 && strcmp(fs->type, "btrfs") == 0) {
            flags |= FS_NOCOW_FL;
            ioctl(path->fd, FS_IOC_SETFLAGS, &flags);
        }
    }
    /* The next run must recognise the file even if this one is killed. */
    rc = write_header(path, options, path->formatted);
    return rc == 0 && !path->formatted ? reserve(path, options, fs) : rc;
}

static int prepare_directory(struct aio_path *path, const struct aio_path_options *options,
                             struct aio_fs *fs)
{
    int rc = aio_dir_open(options->directory, &path->dir);
    if (rc != 0) {
        return rc;
    }
    rc = aio_fs_look(aio_dir_fd(path->dir), options->directory, fs);
    if (rc != 0) {
        return rc;
    }
    if (fs->verdict == AIO_FS_REFUSED) {
        return core_err_set(-ENOTSUP, "%s cannot hold a store: %s", options->directory, fs->reason);
    }
    if (fs->verdict == AIO_FS_BUFFERED) {
        core_log(CORE_LOG_WARN, "%s is used through the page cache: %s", options->directory,
                 fs->reason);
    } else if (fs->reason[0] != '\0') {
        core_log(CORE_LOG_WARN, "%s: %s", options->directory, fs->reason);
    }
    path->direct = fs->verdict == AIO_FS_DIRECT;
    return open_file(path, options, fs);
}

static int open_drive(struct aio_path *path, const struct aio_path_options *options)
{
    bool mem = options->directory == NULL;
    const char *name = mem ? "memory" : options->directory;
    struct aio_drive_options drive = options->drive;
    char reason[AIO_REASON_BYTES];
    int rc = 0;
    drive.name = name;
    drive.context = options->disk;
    drive.backend = options->recipe;
    if (drive.backend == NULL) {
        rc = aio_backend_choose(mem ? "mem" : options->backend, path->direct, reason, sizeof reason,
                                &drive.backend);
        if (rc != 0) {
            return rc;
        }
        core_log(CORE_LOG_INFO, "%s: I/O back end %s", name, reason);
    }
    rc = aio_drive_create(&drive, &path->drive);
    if (rc != 0) {
        return rc;
    }
    char file_name[512];
    snprintf(file_name, sizeof file_name, mem ? "%.480s" : "%.480s/%s", name, AIO_PATH_FILE_NAME);
    struct aio_file file = {
        .fd = path->fd, .name = file_name, .size_bytes = path->file_bytes, .direct = path->direct};
    return aio_drive_attach(path->drive, &file, &path->file);
}

static int write_zeros(struct aio_path *path, const struct aio_path_options *options,
                       struct aio_queue *queue, const unsigned char *zeros)
{
    struct core_fence fences[4] = {{0}};
    uint64_t total = path->file_bytes - path->data_offset;
    unsigned turn = 0;
    for (uint64_t done = 0; done < total; turn++) {
        uint64_t bytes = total - done < zeros_bytes ? total - done : zeros_bytes;
        int rc = core_fence_wait(fences[turn % 4], patience_ns);
        if (rc != 0) {
            return rc;
        }
        rc = aio_queue_write(queue, path->file, path->data_offset + done, zeros, bytes,
                             &fences[turn % 4]);
        if (rc != 0) {
            return rc;
        }
        done += bytes;
        if (options->progress != NULL &&
            options->progress(options->user, options->directory, done, total) != 0) {
            return core_err_set(-ECANCELED, "%s: stopped while its file was being written",
                                options->directory);
        }
    }
    int rc = core_fence_wait(aio_queue_tail(queue), patience_ns);
    return rc != 0 ? rc : write_header(path, options, true);
}

static int format(struct aio_path *path, const struct aio_path_options *options)
{
    struct core_region region = {0};
    struct aio_queue *queue = NULL;
    struct core_region_options memory = {
        .name = "zeros", .bytes = zeros_bytes, .pages = CORE_PAGES_THP};
    int rc = core_region_alloc(&memory, &region);
    if (rc != 0) {
        return rc;
    }
    rc = aio_queue_open(&path->drive, 1, &(struct aio_queue_options){.name = "format"}, &queue);
    if (rc == 0) {
        rc = write_zeros(path, options, queue, region.base);
    }
    const int closed = aio_queue_close(queue);
    if (closed == 0) {
        core_region_free(&region);
    }
    return rc != 0 ? rc : closed;
}

int aio_path_open(const struct aio_path_options *options, struct aio_path **out)
{
    struct aio_fs fs = {0};
    struct aio_path *path = calloc(1, sizeof *path);
    if (path == NULL) {
        return core_err_set(-ENOMEM, "out of memory for a path");
    }
    path->fd = -1;
    path->data_offset = options->directory != NULL ? options->align_bytes : 0;
    path->file_bytes = path->data_offset + options->data_bytes;
    int rc = options->directory != NULL ? prepare_directory(path, options, &fs) : 0;
    if (rc != 0) {
        goto fail;
    }
    rc = open_drive(path, options);
    if (rc != 0) {
        goto fail;
    }
    if (options->directory != NULL && !path->formatted &&
        (!options->unwritten || !path->reserved)) {
        rc = format(path, options);
        if (rc != 0) {
            goto fail;
        }
    }
    *out = path;
    return 0;
fail:;
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, aio_path_close(path));
}

int aio_path_close(struct aio_path *path)
{
    if (path == NULL) {
        return 0;
    }
    int rc = aio_drive_destroy(path->drive);
    if (path->linked) {
        const int removed = aio_dir_remove(path->dir, AIO_PATH_FILE_NAME, path->fd);
        if (rc == 0) {
            rc = removed;
        }
    }
    /* After -ETIMEDOUT a transfer may still use the descriptor. */
    if (path->fd >= 0 && rc != -ETIMEDOUT) {
        close(path->fd);
    }
    int closed = aio_dir_close(path->dir);
    free(path);
    return rc != 0 ? rc : closed;
}

int aio_path_discard(const char *directory)
{
    struct aio_path path = {.fd = -1};
    int rc = aio_dir_open(directory, &path.dir);
    if (rc != 0) {
        return rc;
    }
    rc = take_over(&path, &(struct aio_path_options){.directory = directory});
    if (rc == 0 && !path.removed) {
        rc = path.fd >= 0 ? aio_dir_remove(path.dir, AIO_PATH_FILE_NAME, path.fd) : -ENOENT;
    }
    if (path.fd >= 0) {
        close(path.fd);
    }
    const int closed = aio_dir_close(path.dir);
    return rc != 0 ? rc : closed;
}

struct aio_drive *aio_path_drive(const struct aio_path *path)
{
    return path->drive;
}

uint32_t aio_path_file(const struct aio_path *path)
{
    return path->file;
}

uint64_t aio_path_data_offset(const struct aio_path *path)
{
    return path->data_offset;
}

static bool is_locked(int fd)
{
    if (flock(fd, LOCK_SH | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK;
    }
    flock(fd, LOCK_UN);
    return false;
}

/* `wanted`: the full size, or 0 without a header. */
static int unfinished(const char *name, const struct aio_look *look, uint64_t wanted)
{
    char of[48] = "";
    if (wanted > 0) {
        snprintf(of, sizeof of, " of %" PRIu64, wanted);
    }
    return look->in_use
               ? core_err_set(-EBADMSG,
                              "%s is being created: a running process is at %" PRIu64 "%s bytes",
                              name, look->bytes, of)
               : core_err_set(-EBADMSG,
                              "%s is incomplete: its run ended at %" PRIu64
                              "%s bytes; the next run with this store reuses it",
                              name, look->bytes, of);
}

static int read_header(int fd, const char *name, struct aio_look *out)
{
    struct aio_header header;
    if (out->bytes < AIO_HEADER_BYTES) {
        return out->bytes == 0 ? unfinished(name, out, 0)
                               : core_err_set(-EBADMSG, "%s is not an extent file", name);
    }
    const ssize_t got = core_file_read_at(fd, &header, sizeof header, 0);
    if (got != (ssize_t)sizeof header) {
        return core_err_set(-EBADMSG, "the header of %s cannot be read: %s", name,
                            got < 0 ? strerror((int)-got) : "it ends early");
    }
    int rc = aio_header_check(&header, name);
    if (rc != 0) {
        return rc;
    }
    out->run = header.run;
    out->process = header.process;
    out->path = header.path_index;
    out->paths = header.paths_count;
    if (out->bytes < header.file_bytes || (out->in_use && out->bytes != header.file_bytes)) {
        return unfinished(name, out, header.file_bytes);
    }
    return out->bytes == header.file_bytes
               ? 0
               : core_err_set(-EBADMSG, "%s has %" PRIu64 " bytes, but its header says %" PRIu64,
                              name, out->bytes, header.file_bytes);
}

int aio_look(const char *directory, struct aio_look *out)
{
    char name[4200];
    struct stat info;
    int rc = 0;
    *out = (struct aio_look){.in_use = false};
    snprintf(name, sizeof name, "%s/%s", directory, AIO_PATH_FILE_NAME);
    const int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        const int error = errno;
        return error == ENOENT || error == ENOTDIR ? -ENOENT
               : error == ELOOP
                   ? core_err_set(-EBADMSG, "%s is a symbolic link", name)
                   : core_err_set(-error, "%s cannot be opened: %s", name, strerror(error));
    }
    if (fstat(fd, &info) != 0) {
        rc = core_err_set(-errno, "%s cannot be examined: %s", name, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        rc = core_err_set(-EBADMSG, "%s is not a regular file", name);
    } else {
        out->bytes = (uint64_t)info.st_size;
        out->in_use = is_locked(fd);
        rc = read_header(fd, name, out);
    }
    close(fd);
    return rc;
}
