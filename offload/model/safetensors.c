/* safetensors.c: opens and reads one file. */
#include "offload/model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"

/* Linux limits a readahead request to a setting of the drive, 128 KiB by default. */
enum { HEADER_BYTES_MAX = 100000000, LENGTH_BYTES = 8, ADVICE_BYTES = 128 << 10 };

struct model_safetensors {
    int fd;
    char *path; /* owned */
    struct model_safetensors_table table;
};

static int read_exactly(int fd, uint64_t at, void *to, size_t bytes)
{
    const ssize_t got = core_file_read_at(fd, to, bytes, at);
    if (got < 0) {
        return core_err_set((int)got, "cannot read %zu bytes at byte %" PRIu64 ": %s", bytes, at,
                            strerror((int)-got));
    }
    if ((size_t)got < bytes) {
        return core_err_set(-EIO, "the file ends at byte %" PRIu64 " while it is read",
                            at + (uint64_t)got);
    }
    return 0;
}

static int read_header(struct model_safetensors *file, uint64_t file_bytes)
{
    unsigned char length[LENGTH_BYTES];
    if (file_bytes < LENGTH_BYTES) {
        return core_err_set(-EINVAL, "a file of %" PRIu64 " bytes cannot be a safetensors file",
                            file_bytes);
    }
    int rc = read_exactly(file->fd, 0, length, sizeof length);
    if (rc != 0) {
        return rc;
    }
    uint64_t header_bytes = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) {
        header_bytes = header_bytes << 8 | length[i];
    }
    if (header_bytes > HEADER_BYTES_MAX || header_bytes > file_bytes - LENGTH_BYTES) {
        return core_err_set(-EINVAL,
                            "a header of %" PRIu64 " bytes in a file of %" PRIu64
                            " bytes (at most %d): not safetensors, or truncated",
                            header_bytes, file_bytes, HEADER_BYTES_MAX);
    }
    char *header = malloc((size_t)header_bytes + 1);
    if (header == NULL) {
        return core_err_set(-ENOMEM, "no memory for a header of %" PRIu64 " bytes", header_bytes);
    }
    rc = read_exactly(file->fd, LENGTH_BYTES, header, (size_t)header_bytes);
    uint64_t data_at = LENGTH_BYTES + header_bytes;
    if (rc == 0) {
        rc = model_safetensors_parse(header, (size_t)header_bytes, file_bytes - data_at,
                                     &file->table);
    }
    free(header);
    for (size_t i = 0; rc == 0 && i < file->table.count; i++) {
        file->table.tensors[i].offset_bytes += data_at;
    }
    return rc;
}

static int open_file(struct model_safetensors *file)
{
    struct stat info;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block */
    if (file->fd < 0 || fstat(file->fd, &info) != 0) {
        return core_err_set(-errno, "cannot be opened: %s", strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return core_err_set(-EINVAL, "is not a regular file");
    }
    return read_header(file, (uint64_t)info.st_size);
}

bool model_safetensors_is_possible(const char *path)
{
    unsigned char length[LENGTH_BYTES];
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    uint64_t bytes = 0;
    bool possible = fd >= 0 && fstat(fd, &info) == 0 && info.st_size >= LENGTH_BYTES &&
                    core_file_read_at(fd, length, sizeof length, 0) == LENGTH_BYTES;
    for (int i = LENGTH_BYTES - 1; possible && i >= 0; i--) {
        bytes = bytes << 8 | length[i];
    }
    possible = possible && bytes <= HEADER_BYTES_MAX;
    possible = possible && bytes <= (uint64_t)info.st_size - LENGTH_BYTES;
    if (fd >= 0) {
        close(fd);
    }
    return possible;
}

int model_safetensors_open(const char *path, struct model_safetensors **out)
{
    struct model_safetensors *file = calloc(1, sizeof *file);
    if (file == NULL) {
        return core_err_set(-ENOMEM, "no memory to open %s", path);
    }
    file->fd = -1;
    file->path = strdup(path);
    int rc = file->path != NULL ? open_file(file) : core_err_set(-ENOMEM, "no memory");
    if (rc != 0) {
        rc = core_err_prefix(rc, "%s", path);
        model_safetensors_close(file);
        return rc;
    }
    *out = file;
    return 0;
}

void model_safetensors_close(struct model_safetensors *file)
{
    if (file == NULL) {
        return;
    }
    if (file->fd >= 0) {
        close(file->fd);
    }
    model_safetensors_table_fini(&file->table);
    free(file->path);
    free(file);
}

const char *model_safetensors_path(const struct model_safetensors *file)
{
    return file->path;
}

const struct model_tensor *model_safetensors_list(const struct model_safetensors *file,
                                                  size_t *count)
{
    *count = file->table.count;
    return file->table.tensors;
}

const struct model_tensor *model_safetensors_find(const struct model_safetensors *file,
                                                  const char *name)
{
    size_t low = 0;
    size_t high = file->table.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, file->table.by_name[middle]->name);
        if (order == 0) {
            return file->table.by_name[middle];
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

int model_safetensors_read(const struct model_safetensors *file, const struct model_tensor *tensor,
                           uint64_t begin, void *to, size_t bytes)
{
    if (begin > tensor->bytes || bytes > tensor->bytes - begin) {
        return core_err_set(-EINVAL,
                            "%s: tensor %s has %" PRIu64 " bytes; %zu at %" PRIu64 " are not in it",
                            file->path, tensor->name, tensor->bytes, bytes, begin);
    }
    int rc = read_exactly(file->fd, tensor->offset_bytes + begin, to, bytes);
    return rc == 0 ? 0 : core_err_prefix(rc, "%s: tensor %s", file->path, tensor->name);
}

/* Readahead of cached bytes is not free. */
static bool is_cached(int fd, uint64_t at)
{
    char byte;
    const struct iovec one = {.iov_base = &byte, .iov_len = 1};
    return preadv2(fd, &one, 1, (off_t)at, RWF_NOWAIT) == 1;
}

void model_safetensors_expect(const struct model_safetensors *file,
                              const struct model_tensor *tensor, uint64_t begin, size_t bytes)
{
    if (bytes == 0 || begin > tensor->bytes || bytes > tensor->bytes - begin) {
        return;
    }
    const uint64_t first = tensor->offset_bytes + begin;
    const uint64_t last = first + bytes - 1;
    if (is_cached(file->fd, first) && is_cached(file->fd, last)) {
        return;
    }
    for (uint64_t at = first; at <= last; at += ADVICE_BYTES) {
        const uint64_t left = last + 1 - at;
        posix_fadvise(file->fd, (off_t)at, (off_t)(left < ADVICE_BYTES ? left : ADVICE_BYTES),
                      POSIX_FADV_WILLNEED);
    }
}
