/* source.c: reads, decompresses and spools one file. */
#include "tools/text/data/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "tools/text/data/codec.h"
#include "tools/text/data/spool.h"

enum { PACKED_BYTES = 1 << 17, SKIP_BYTES = 1 << 16, MAGIC_BYTES = 4 };

struct text_source {
    int fd;                         /* owned, except standard input */
    char *name;                     /* owned */
    const struct text_codec *codec; /* borrowed, static; NULL: plain */
    void *state;                    /* owned */
    char *packed;                   /* owned: unused input */
    size_t room;
    size_t begin;
    size_t end;
    uint64_t offset; /* of the next returned byte */
    uint64_t bytes;  /* on disk; 0: unknown */
    uint64_t taken;  /* bytes of the file read */
    bool seeks;
    bool reopens; /* by its path */
};

static int read_some(struct text_source *source, char *to, size_t bytes, size_t *got)
{
    const ssize_t count = core_file_read_some(source->fd, to, bytes);
    if (count < 0) {
        return core_err_set((int)count, "%s cannot be read: %s", source->name,
                            strerror((int)-count));
    }
    *got = (size_t)count;
    source->taken += *got;
    return 0;
}

static int fill_packed(struct text_source *source, size_t least)
{
    memmove(source->packed, source->packed + source->begin, source->end - source->begin);
    source->end -= source->begin;
    source->begin = 0;
    for (size_t got = 1; got > 0 && source->end < least;) {
        int rc = read_some(source, source->packed + source->end, source->room - source->end, &got);
        if (rc != 0) {
            return rc;
        }
        source->end += got;
    }
    return 0;
}

static int find_codec(struct text_source *source)
{
    static const struct text_codec *const codecs[] = {&text_codec_gzip, &text_codec_zstd};
    int rc = fill_packed(source, MAGIC_BYTES);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < 2 && source->codec == NULL; i++) {
        if (source->end >= codecs[i]->magic_bytes &&
            memcmp(source->packed, codecs[i]->magic, codecs[i]->magic_bytes) == 0) {
            rc = codecs[i]->create(&source->state);
            if (rc != 0) {
                return core_err_prefix(rc, "%s", source->name);
            }
            source->codec = codecs[i];
            source->room = PACKED_BYTES;
        }
    }
    return 0;
}

static int refuse_special(const char *name, const char *kind)
{
    return core_err_set(-EINVAL,
                        "%s is a %s; expected a regular file, or \"-\" for standard input, which "
                        "may be a pipe",
                        name, kind);
}

/* `named`: the file has a path, so that it may be opened again. */
static int check_kind(struct text_source *source, bool named)
{
    struct stat info;
    if (fstat(source->fd, &info) != 0) {
        return core_err_set(-errno, "%s cannot be opened: %s", source->name, strerror(errno));
    }
    if (S_ISDIR(info.st_mode)) {
        return core_err_set(-EISDIR, "%s is a folder; expected a file of rows", source->name);
    }
    if (named && !S_ISREG(info.st_mode)) {
        return refuse_special(source->name, S_ISFIFO(info.st_mode) ? "pipe" : "device");
    }
    source->seeks = S_ISREG(info.st_mode);
    source->reopens = source->seeks && named;
    source->bytes = source->seeks ? (uint64_t)info.st_size : 0;
    return 0;
}

/* `path`: NULL if the file has none. */
static int create(int fd, const char *path, const char *name, bool plain, struct text_source **out)
{
    int rc = 0;
    struct text_source *source = core_charge_zeroed(1, sizeof *source);
    if (source == NULL) {
        if (fd > STDIN_FILENO) {
            close(fd);
        }
        return core_err_set(-ENOMEM, "no memory to read %s", name);
    }
    source->fd = fd;
    source->name = core_charge_text(name, SIZE_MAX);
    source->packed = core_charge_alloc(PACKED_BYTES);
    source->room = MAGIC_BYTES; /* enough for a plain file */
    if (source->name == NULL || source->packed == NULL) {
        rc = core_err_set(-ENOMEM, "no memory to read %s", name);
        goto fail;
    }
    if ((rc = check_kind(source, path != NULL)) != 0 ||
        (!plain && (rc = find_codec(source)) != 0)) {
        goto fail;
    }
    *out = source;
    return 0;
fail:
    text_source_close(source);
    return rc;
}

/* Opens standard input, or the file of `input` again, so that readers have positions of their
 * own. */
static int open_input(int input, struct text_source **out)
{
    char path[40];
    int fd = STDIN_FILENO;
    if (input != STDIN_FILENO) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", input);
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    return fd < 0
               ? core_err_set(-errno, "standard input cannot be opened again: %s", strerror(errno))
               : create(fd, NULL, "standard input", false, out);
}

int text_source_open(const char *path, int input, struct text_source **out)
{
    if (strcmp(path, "-") == 0) {
        return open_input(input, out);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block */
    if (fd < 0 && errno == ENXIO) {
        return refuse_special(path, "socket or a device");
    }
    if (fd < 0) {
        return core_err_set(-errno, "%s cannot be opened: %s%s", path, strerror(errno),
                            errno == EMFILE ? "; all packed files that are shuffled are open at "
                                              "once, and `ulimit -n` limits their number"
                                            : "");
    }
    return create(fd, path, path, false, out);
}

void text_source_close(struct text_source *source)
{
    if (source == NULL) {
        return;
    }
    if (source->codec != NULL) {
        source->codec->destroy(source->state);
    }
    if (source->fd > STDIN_FILENO) {
        close(source->fd);
    }
    core_charge_free(source->packed);
    core_charge_free(source->name);
    core_charge_free(source);
}

const char *text_source_name(const struct text_source *source)
{
    return source->name;
}

bool text_source_random(const struct text_source *source)
{
    return source->seeks && source->codec == NULL;
}

bool text_source_seeks(const struct text_source *source)
{
    return source->seeks;
}

bool text_source_reopens(const struct text_source *source)
{
    return source->reopens;
}

uint64_t text_source_used(const struct text_source *source)
{
    return source->codec != NULL ? source->taken - (source->end - source->begin) : source->offset;
}

uint64_t text_source_bytes(const struct text_source *source)
{
    return source->bytes;
}

static int unpack(struct text_source *source, char *to, size_t bytes, size_t *got)
{
    struct text_codec_io io = {.out = to, .out_bytes = bytes};
    bool more = true;
    while (io.out_bytes == bytes && more) {
        int rc = source->begin == source->end ? fill_packed(source, 1) : 0;
        if (rc != 0) {
            return rc;
        }
        more = source->end > source->begin;
        io.in = source->packed + source->begin;
        io.in_bytes = source->end - source->begin;
        rc = source->codec->run(source->state, &io);
        source->begin = source->end - io.in_bytes;
        if (rc != 0) {
            *got = bytes - io.out_bytes;
            return core_err_prefix(rc, "%s", source->name);
        }
    }
    if (io.out_bytes == bytes && !source->codec->whole(source->state)) {
        return core_err_set(-EINVAL, "%s ends in the middle of its compressed data", source->name);
    }
    *got = bytes - io.out_bytes;
    return 0;
}

int text_source_read(struct text_source *source, char *to, size_t bytes, size_t *got)
{
    int rc = 0;
    if (source->codec != NULL) {
        rc = unpack(source, to, bytes, got);
    } else if (source->end > source->begin) {
        *got = source->end - source->begin < bytes ? source->end - source->begin : bytes;
        memcpy(to, source->packed + source->begin, *got);
        source->begin += *got;
    } else {
        rc = read_some(source, to, bytes, got);
    }
    source->offset += rc == 0 ? *got : 0;
    return rc;
}

static int restart(struct text_source *source)
{
    if (lseek(source->fd, 0, SEEK_SET) < 0) {
        return core_err_set(-errno, "%s cannot be read again from its beginning: %s", source->name,
                            strerror(errno));
    }
    source->begin = source->end = 0;
    source->offset = source->taken = 0;
    return source->codec != NULL ? source->codec->restart(source->state) : 0;
}

static int skip(struct text_source *source, uint64_t bytes)
{
    char *passed = core_charge_alloc(SKIP_BYTES);
    int rc = passed != NULL ? 0 : core_err_set(-ENOMEM, "no memory to skip in a file");
    while (rc == 0 && bytes > 0) {
        size_t got = 0;
        rc = text_source_read(source, passed, bytes < SKIP_BYTES ? bytes : SKIP_BYTES, &got);
        if (rc == 0 && got == 0) {
            rc = core_err_set(-EINVAL, "%s has only %llu bytes and ends before the saved position",
                              source->name, (unsigned long long)source->offset);
        }
        bytes -= rc == 0 ? got : 0;
    }
    core_charge_free(passed);
    return rc;
}

int text_source_seek(struct text_source *source, uint64_t offset)
{
    if (text_source_random(source)) {
        if (lseek(source->fd, (off_t)offset, SEEK_SET) < 0) {
            return core_err_set(-errno, "%s cannot be read at byte %llu: %s", source->name,
                                (unsigned long long)offset, strerror(errno));
        }
        source->begin = source->end = 0;
        source->offset = offset;
        return 0;
    }
    int rc = offset < source->offset ? restart(source) : 0;
    return rc == 0 ? skip(source, offset - source->offset) : rc;
}

static int copy_pieces(const struct text_source *source, int fd, text_source_piece *next,
                       void *user)
{
    int rc;
    size_t bytes = 0;
    const char *piece = NULL;
    while ((rc = next(user, &piece, &bytes)) == 1) {
        int wrote = core_file_write(fd, piece, bytes);
        if (wrote != 0) {
            return core_err_set(wrote,
                                "%s cannot be unpacked: %s; set TMPDIR to unpack to another folder",
                                source->name, strerror(-wrote));
        }
    }
    return rc;
}

/* Takes over `fd`, even on failure. */
static int replace(struct text_source *source, int fd)
{
    struct text_source *plain = NULL;
    lseek(fd, 0, SEEK_SET);
    int rc = create(fd, NULL, source->name, true, &plain);
    if (rc == 0) {
        struct text_source old = *source;
        *source = *plain;
        *plain = old;
        text_source_close(plain);
    }
    return rc;
}

int text_source_spool(struct text_source *source, text_source_piece *piece, void *user)
{
    int fd;
    int rc = text_spool_open(source->name, &fd);
    if (rc != 0) {
        return rc;
    }
    core_log(CORE_LOG_INFO, "%s: unpacked into an unnamed file in %s", source->name,
             text_spool_folder());
    rc = copy_pieces(source, fd, piece, user);
    if (rc != 0) {
        close(fd);
        return rc;
    }
    return replace(source, fd);
}
