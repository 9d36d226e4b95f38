/* checkpoint_files.c: reads, hashes, prints and parses small files of a checkpoint. */
#include "offload/store/checkpoint_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/size.h"
#include "core/json/write.h"
#include "offload/store/checkpoint.h"

enum { LENGTH_BYTES = 8, GRAIN_BYTES = 8, SUM_BYTES = 8 };

static int failed(const char *where, const char *name, const char *what)
{
    const int error = errno;
    return core_err_set(-error, "%s/%s cannot be %s: %s", where, name, what, strerror(error));
}

static int read_all(int fd, const char *where, const char *name, uint64_t most, char **text,
                    size_t *bytes)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return failed(where, name, "looked at");
    }
    if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size > most) {
        return core_err_set(-EINVAL, "%s/%s is not a file of at most %" PRIu64 " bytes", where,
                            name, most);
    }
    /* so that the disk is read, not the cache */
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    const size_t size = (size_t)info.st_size;
    char *made = malloc(size + 1);
    if (made == NULL) {
        return core_err_set(-ENOMEM, "no memory for %s/%s", where, name);
    }
    const ssize_t got = core_file_read_at(fd, made, size, 0);
    if (got < 0) {
        errno = (int)-got;
        int rc = failed(where, name, "read");
        free(made);
        return rc;
    }
    made[got] = '\0';
    *text = made;
    *bytes = (size_t)got;
    return 0;
}

int store_file_read(int folder, const char *where, const char *name, uint64_t most, char **text,
                    size_t *bytes)
{
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return failed(where, name, "opened");
    }
    int rc = read_all(fd, where, name, most, text, bytes);
    close(fd);
    return rc;
}

int store_file_look(int folder, const char *where, struct store_file *file)
{
    char *text = NULL;
    size_t bytes = 0;
    int rc = store_file_read(folder, where, file->name, INT64_MAX, &text, &bytes);
    if (rc == 0) {
        file->bytes = bytes;
        file->hash = core_hash(text, bytes, 0);
    }
    free(text);
    return rc;
}

int store_file_check(int folder, const char *where, const struct store_file *file)
{
    struct store_file found = *file;
    int rc = store_file_look(folder, where, &found);
    if (rc != 0) {
        return rc;
    }
    if (found.bytes != file->bytes) {
        return core_err_set(-EINVAL, "%s/%s has %" PRIu64 " bytes; expected %" PRIu64, where,
                            file->name, found.bytes, file->bytes);
    }
    if (found.hash != file->hash) {
        return core_err_set(-EBADMSG,
                            "%s/%s does not match its checksum: %016" PRIx64
                            " was written, %016" PRIx64 " was read",
                            where, file->name, file->hash, found.hash);
    }
    return 0;
}

/* ---- checksums ---- */

static int print_header(const struct store_image *image, struct core_json_write *write)
{
    uint64_t at = 0;
    core_json_write_init_text(write);
    core_json_write_object_begin(write, NULL);
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        const uint64_t cuts = store_image_cuts(image, (enum store_stream)s);
        if (cuts == 0) {
            continue;
        }
        core_json_write_object_begin(write, store_stream_name((enum store_stream)s));
        core_json_write_string(write, "dtype", "U64");
        core_json_write_array_begin(write, "shape");
        core_json_write_unsigned(write, NULL, cuts);
        core_json_write_array_end(write);
        core_json_write_array_begin(write, "data_offsets");
        core_json_write_unsigned(write, NULL, at);
        core_json_write_unsigned(write, NULL, at + cuts * SUM_BYTES);
        core_json_write_array_end(write);
        core_json_write_object_end(write);
        at += cuts * SUM_BYTES;
    }
    core_json_write_object_end(write);
    return core_json_write_end(write);
}

int store_sums_print(const struct store_image *image, uint64_t *const sums[STORE_STREAM_COUNT],
                     char **text, size_t *bytes)
{
    struct core_json_write write;
    int rc = print_header(image, &write);
    const uint64_t header = rc == 0 ? core_round_up(write.bytes, GRAIN_BYTES) : 0;
    const uint64_t whole = LENGTH_BYTES + header + store_image_cuts_all(image) * SUM_BYTES;
    char *made = rc == 0 ? malloc(whole) : NULL;
    if (rc == 0 && made == NULL) {
        rc = core_err_set(-ENOMEM, "no memory for %" PRIu64 " bytes of checksums", whole);
    }
    if (rc == 0) {
        memset(made, ' ', LENGTH_BYTES + header);
        for (int i = 0; i < LENGTH_BYTES; i++) {
            made[i] = (char)(header >> (8 * i) & 0xff);
        }
        memcpy(made + LENGTH_BYTES, write.text, write.bytes - 1);
        char *at = made + LENGTH_BYTES + header;
        for (int s = 0; s < STORE_STREAM_COUNT; s++) {
            const uint64_t part = store_image_cuts(image, (enum store_stream)s) * SUM_BYTES;
            if (part > 0) {
                memcpy(at, sums[s], part);
            }
            at += part;
        }
        *text = made;
        *bytes = whole;
    }
    core_json_write_fini(&write);
    return rc;
}

int store_sums_parse(const struct store_image *image, const char *where, const char *text,
                     size_t bytes, uint64_t *const sums[STORE_STREAM_COUNT])
{
    struct core_json_write write;
    const uint64_t data = store_image_cuts_all(image) * SUM_BYTES;
    int rc = print_header(image, &write);
    const uint64_t header = rc == 0 ? core_round_up(write.bytes, GRAIN_BYTES) : 0;
    if (rc == 0 && (bytes != LENGTH_BYTES + header + data ||
                    memcmp(text + LENGTH_BYTES, write.text, write.bytes - 1) != 0)) {
        rc = core_err_set(-EINVAL, "%s/%s has the checksums of another checkpoint", where,
                          STORE_SUMS_NAME);
    }
    core_json_write_fini(&write);
    const char *at = text + LENGTH_BYTES + header;
    for (int s = 0; rc == 0 && s < STORE_STREAM_COUNT; s++) {
        const uint64_t part = store_image_cuts(image, (enum store_stream)s) * SUM_BYTES;
        if (part > 0) {
            memcpy(sums[s], at, part);
        }
        at += part;
    }
    return rc;
}
