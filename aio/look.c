/* look.c: opens for reading, asks for a shared lock on the file and gives it back at once, which who
 * takes a file over has the patience for (dir.c). */
#include "aio/look.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aio/path.h"
#include "core/base/err.h"
#include "core/base/file.h"

static bool is_locked(int fd)
{
    if (flock(fd, LOCK_SH | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK;
    }
    flock(fd, LOCK_UN);
    return false;
}

/* Whoever makes a file writes the header first, then takes its room. */
static int unfinished(const char *name, const struct aio_look *look, uint64_t wanted)
{
    char of[48] = "";
    if (wanted > 0) {
        snprintf(of, sizeof of, " of %" PRIu64, wanted);
    }
    return look->in_use
               ? core_err_set(-EBADMSG,
                              "%s is being made: a running process is at %" PRIu64 "%s bytes", name,
                              look->bytes, of)
               : core_err_set(-EBADMSG,
                              "%s was never finished: whoever made it ended at %" PRIu64
                              "%s bytes; the next run with this store takes it over",
                              name, look->bytes, of);
}

static int read_header(int fd, const char *name, struct aio_look *out)
{
    struct aio_header header;
    if (out->bytes < AIO_HEADER_BYTES) {
        return out->bytes == 0 ? unfinished(name, out, 0)
                               : core_err_set(-EBADMSG, "%s is no extent file", name);
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
               : core_err_set(-EBADMSG, "%s has %" PRIu64 " bytes, and its header says %" PRIu64,
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
        const int code = errno;
        return code == ENOENT || code == ENOTDIR ? -ENOENT
               : code == ELOOP
                   ? core_err_set(-EBADMSG, "%s is a symbolic link", name)
                   : core_err_set(-code, "%s cannot be opened: %s", name, strerror(code));
    }
    if (fstat(fd, &info) != 0) {
        rc = core_err_set(-errno, "%s cannot be looked at: %s", name, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        rc = core_err_set(-EBADMSG, "%s is no regular file", name);
    } else {
        out->bytes = (uint64_t)info.st_size;
        out->in_use = is_locked(fd);
        rc = read_header(fd, name, out);
    }
    close(fd);
    return rc;
}
