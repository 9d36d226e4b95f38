/* file.c: see file.h. */
#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "core/base/err.h"
#include "core/base/hash.h"

/* `at` < 0: read(2), else pread(2). Repeats an interrupted call. */
static ssize_t read_once(int fd, void *to, size_t bytes, off_t at)
{
    for (int i = 0; i < CORE_FILE_INTERRUPTS_MAX; i++) {
        const ssize_t got = at < 0 ? read(fd, to, bytes) : pread(fd, to, bytes, at);
        if (got >= 0 || errno != EINTR) {
            return got >= 0 ? got : -errno;
        }
    }
    return -EINTR;
}

ssize_t core_file_read_some(int fd, void *to, size_t bytes)
{
    return read_once(fd, to, bytes, -1);
}

ssize_t core_file_read_at(int fd, void *to, size_t bytes, uint64_t at)
{
    static const size_t most = (size_t)1 << 30; /* bytes of one call */
    size_t done = 0;
    while (done < bytes) {
        const size_t left = bytes - done;
        const ssize_t got = read_once(fd, (char *)to + done, left < most ? left : most,
                                      (off_t)(at + done));
        if (got < 0) {
            return got;
        }
        if (got == 0) {
            break;
        }
        done += (size_t)got;
    }
    return (ssize_t)done;
}

uint64_t core_file_sum_bytes(const void *bytes, size_t count, uint64_t at)
{
    uint64_t sum = 0;
    for (size_t done = 0; done < count; done += CORE_FILE_SUM_BYTES) {
        const size_t left = count - done;
        sum += core_hash((const char *)bytes + done,
                         left < CORE_FILE_SUM_BYTES ? left : CORE_FILE_SUM_BYTES, at + done);
    }
    return sum;
}

int core_file_sum(int fd, uint64_t *out)
{
    enum { BUFFER_BYTES = 16 * CORE_FILE_SUM_BYTES };
    char *buffer = malloc(BUFFER_BYTES);
    uint64_t sum = 0;
    uint64_t at = 0;
    ssize_t got = buffer != NULL ? 1 : -ENOMEM;
    while (got > 0) {
        got = core_file_read_at(fd, buffer, BUFFER_BYTES, at);
        sum += got > 0 ? core_file_sum_bytes(buffer, (size_t)got, at) : 0;
        at += got > 0 ? (uint64_t)got : 0;
    }
    free(buffer);
    if (got == 0) {
        *out = sum;
    }
    return (int)got;
}

int core_file_reserve(int fd, uint64_t bytes, bool *reserved)
{
    int error = EINTR;
    for (int i = 0; error == EINTR && i < CORE_FILE_INTERRUPTS_MAX; i++) {
        error = fallocate(fd, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
    }
    *reserved = error == 0;
    if (error == EOPNOTSUPP || error == ENOSYS) {
        error = ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno;
    }
    return -error;
}

/* Reads up to bytes_max + 1 bytes; the extra byte shows that the file is too large. */
static int read_all(int fd, const char *path, size_t expected, size_t bytes_max, char **text,
                    size_t *bytes)
{
    size_t room = (expected < bytes_max ? expected : bytes_max) + 2;
    char *buffer = malloc(room);
    size_t filled = 0;
    while (buffer != NULL) {
        if (filled + 1 == room) {
            room = room > bytes_max / 2 ? bytes_max + 2 : room * 2 + 4096;
            char *larger = realloc(buffer, room);
            if (larger == NULL) {
                break;
            }
            buffer = larger;
        }
        const ssize_t got = core_file_read_some(fd, buffer + filled, room - 1 - filled);
        if (got < 0) {
            const int rc = (int)got;
            free(buffer);
            return core_err_set(rc, "%s cannot be read: %s", path, strerror(-rc));
        }
        filled += (size_t)got;
        if (filled > bytes_max) {
            free(buffer);
            return core_err_set(-E2BIG, "%s is larger than the limit of %zu bytes", path,
                                bytes_max);
        }
        if (got == 0) {
            buffer[filled] = '\0';
            *text = buffer;
            *bytes = filled;
            return 0;
        }
    }
    free(buffer);
    return core_err_set(-ENOMEM, "no memory to read %s (%zu bytes)", path, room);
}

static int read_opened(int fd, const char *path, size_t bytes_max, char **text, size_t *bytes)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        int rc = -errno;
        return core_err_set(rc, "%s cannot be examined: %s", path, strerror(-rc));
    }
    if (S_ISDIR(info.st_mode)) {
        return core_err_set(-EISDIR, "%s is a directory, not a file", path);
    }
    size_t expected = S_ISREG(info.st_mode) ? (size_t)info.st_size : 0;
    if (expected > bytes_max) {
        return core_err_set(-E2BIG, "%s has %zu bytes; the limit is %zu", path, expected,
                            bytes_max);
    }
    return read_all(fd, path, expected, bytes_max, text, bytes);
}

bool core_file_is_fifo(const char *path)
{
    struct stat info;
    struct statfs system;
    return stat(path, &info) == 0 && S_ISFIFO(info.st_mode) && statfs(path, &system) == 0 &&
           system.f_type != PIPEFS_MAGIC;
}

static int let_wait(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0 ? 0 : -errno;
}

static int read_path(const char *path, bool regular, size_t bytes_max, char **text, size_t *bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        int rc = -errno;
        return core_err_set(rc, "%s cannot be opened: %s", path, strerror(-rc));
    }
    struct stat info;
    int rc;
    if (regular && fstat(fd, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
        rc = core_err_set(-EINVAL, "%s is not a regular file", path);
    } else if (core_file_is_fifo(path)) {
        rc = core_err_set(
            -EINVAL, "%s is a FIFO; expected a regular file, or \"-\" for standard input", path);
    } else if ((rc = let_wait(fd)) != 0) {
        rc = core_err_set(rc, "%s cannot be opened: %s", path, strerror(-rc));
    } else {
        rc = read_opened(fd, path, bytes_max, text, bytes);
    }
    close(fd);
    return rc;
}

int core_file_read(const char *path, size_t bytes_max, char **text, size_t *bytes)
{
    if (strcmp(path, "-") == 0) {
        return read_opened(STDIN_FILENO, "standard input", bytes_max, text, bytes);
    }
    return read_path(path, false, bytes_max, text, bytes);
}

int core_file_read_regular(const char *path, size_t bytes_max, char **text, size_t *bytes)
{
    return read_path(path, true, bytes_max, text, bytes);
}

/* `at` < 0: at the descriptor's position. */
static int write_all(int fd, const char *from, size_t bytes, off_t at)
{
    int interrupts = 0;
    for (size_t done = 0; done < bytes;) {
        const ssize_t put = at < 0 ? write(fd, from + done, bytes - done)
                                   : pwrite(fd, from + done, bytes - done, at + (off_t)done);
        interrupts = put < 0 && errno == EINTR ? interrupts + 1 : 0;
        if (put < 0 && (errno != EINTR || interrupts == CORE_FILE_INTERRUPTS_MAX)) {
            return -errno;
        }
        if (put == 0) {
            return -EIO;
        }
        done += put > 0 ? (size_t)put : 0;
    }
    return 0;
}

int core_file_write(int fd, const void *from, size_t bytes)
{
    return write_all(fd, from, bytes, -1);
}

int core_file_write_at(int fd, const void *from, size_t bytes, uint64_t at)
{
    return write_all(fd, from, bytes, (off_t)at);
}

int core_file_open_output(const char *path, bool append, FILE **out)
{
    const int fd = open(path,
                        O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK |
                            (append ? O_APPEND : O_TRUNC),
                        0666);
    struct stat info;
    if (fd < 0 && errno == ENXIO && stat(path, &info) == 0 && S_ISFIFO(info.st_mode)) {
        return core_err_set(-EINVAL,
                            "%s cannot be written: it is a FIFO that no process reads; start the "
                            "reader first, or name a file",
                            path);
    }
    int rc = fd < 0 ? -errno : let_wait(fd);
    FILE *file = rc == 0 ? fdopen(fd, append ? "a" : "w") : NULL;
    if (file == NULL) {
        rc = rc == 0 ? -errno : rc;
        if (fd >= 0) {
            close(fd);
        }
        return core_err_set(rc, "%s cannot be written: %s", path, strerror(-rc));
    }
    *out = file;
    return 0;
}

int core_file_make_folders(const char *path, size_t bytes)
{
    char *folder = strndup(path, bytes);
    int rc = 0;
    if (folder == NULL) {
        return core_err_set(-ENOMEM, "no memory for a path");
    }
    for (size_t i = 1; rc == 0 && i <= bytes; i++) {
        const char kept = folder[i];
        if (kept != '/' && kept != '\0') {
            continue;
        }
        folder[i] = '\0';
        struct stat info;
        int cause = mkdir(folder, 0777) != 0 ? errno : 0;
        if (cause == EEXIST && i == bytes && stat(folder, &info) == 0 && !S_ISDIR(info.st_mode)) {
            cause = ENOTDIR;
        }
        if (cause != 0 && cause != EEXIST) {
            rc = core_err_set(-cause, "%s cannot be created: %s", folder, strerror(cause));
        }
        folder[i] = kept;
    }
    free(folder);
    return rc;
}

int core_file_open_direct(int folder, const char *name, int flags, bool *direct)
{
    flags |= O_CLOEXEC | O_NOFOLLOW;
    int fd = openat(folder, name, flags | O_NONBLOCK | O_DIRECT);
    const bool direct_works = fd >= 0;
    if (fd < 0 && errno == EINVAL) {
        fd = openat(folder, name, flags | O_NONBLOCK);
    }
    if (fd < 0) {
        return -errno;
    }
    /* With O_NONBLOCK, io_uring may fail requests instead of waiting. */
    if (fcntl(fd, F_SETFL, flags | (direct_works ? O_DIRECT : 0)) != 0) {
        const int rc = -errno;
        close(fd);
        return rc;
    }
    *direct = direct_works;
    return fd;
}

bool core_file_is_numbered(const char *name, const char *prefix, const char *end, uint64_t *number)
{
    const size_t length = strlen(prefix);
    char again[24];
    if (strncmp(name, prefix, length) != 0) {
        return false;
    }
    const uint64_t found = strtoull(name + length, NULL, 10);
    const int digits = snprintf(again, sizeof again, "%" PRIu64, found);
    if (strncmp(name + length, again, (size_t)digits) != 0 ||
        strcmp(name + length + digits, end) != 0) {
        return false;
    }
    *number = found;
    return true;
}

bool core_file_is_same(const char *one, const char *other)
{
    struct stat a;
    struct stat b;
    return stat(one, &a) == 0 && stat(other, &b) == 0 &&
           (S_ISREG(a.st_mode) || S_ISDIR(a.st_mode)) && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

bool core_file_is_weights(const char *name)
{
    static const char shape[] = "model-#####-of-#####.safetensors";
    if (strcmp(name, "model.safetensors") == 0 ||
        strcmp(name, "model.safetensors.index.json") == 0 ||
        strcmp(name, "adapter_model.safetensors") == 0 ||
        strcmp(name, "adapter_config.json") == 0) {
        return true;
    }
    bool same = strlen(name) == sizeof shape - 1;
    for (size_t i = 0; same && i < sizeof shape - 1; i++) {
        const bool digit = name[i] >= '0' && name[i] <= '9';
        same = shape[i] == '#' ? digit : shape[i] == name[i];
    }
    return same;
}

bool core_file_is_of_model(const char *name)
{
    return strcmp(name, "config.json") == 0 || core_file_is_weights(name);
}
