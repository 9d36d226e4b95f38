/* kept_inspect.c: finds and verifies files of kept bases without a model. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "offload/model/kept.h"
#include "offload/model/kept_file.h"

unsigned model_kept_count(const char *directory)
{
    unsigned count = 0;
    DIR *dir = opendir(directory);
    for (const struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        count += model_kept_is_name(entry->d_name);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

bool model_kept_is(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (model_kept_is_name(slash != NULL ? slash + 1 : path)) {
        return true;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool is = fd >= 0 && model_kept_is_begun(fd);
    if (fd >= 0) {
        close(fd);
    }
    return is;
}

static bool fits(const struct model_kept_header *header, const struct model_kept_block *block)
{
    return (block->unit_bytes == KEPT_PAGE_BYTES || block->unit_bytes == KEPT_PIECE_BYTES) &&
           block->bytes > 0 && block->offset >= KEPT_PAGE_BYTES && block->offset < header->tables &&
           block->bytes <= header->tables - block->offset && block->first_unit <= header->units &&
           model_kept_units(block) <= header->units - block->first_unit;
}

static int verify(int fd, const struct model_kept_header *header, const char *path)
{
    struct model_kept_block *blocks = calloc(header->blocks + 1, sizeof *blocks);
    uint64_t *sums = calloc(header->units + 1, sizeof *sums);
    uint8_t *piece = aligned_alloc(KEPT_PAGE_BYTES, KEPT_PIECE_BYTES);
    const bool memory = blocks != NULL && sums != NULL && piece != NULL;
    int rc = memory ? model_kept_read_tables(fd, header, blocks, sums) : -ENOMEM;
    uint64_t where = header->tables;
    for (uint32_t i = 0; rc == 0 && i < header->blocks; i++) {
        rc = fits(header, &blocks[i]) ? 0 : -EBADMSG;
        for (uint64_t at = 0; rc == 0 && at < blocks[i].bytes; at += KEPT_PIECE_BYTES) {
            where = blocks[i].offset + at;
            rc = model_kept_read_piece(fd, &blocks[i], sums, at, piece);
        }
    }
    free(blocks);
    free(sums);
    free(piece);
    return rc == 0         ? 0
           : rc == -ENOMEM ? core_err_set(rc, "no memory to verify %s", path)
                           : core_err_set(rc,
                                          "%s: the data at byte %" PRIu64
                                          " does not match its checksum or cannot be read",
                                          path, where);
}

int model_kept_inspect(const char *path, struct model_kept_look *out)
{
    struct model_kept_header header;
    struct stat info;
    *out = (struct model_kept_look){.bytes = 0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        const int error = errno;
        return core_err_set(-error, "%s cannot be opened: %s", path, strerror(error));
    }
    int rc = model_kept_read_header(fd, &header);
    if (rc != 0) {
        rc = core_err_set(rc == -EPROTO || rc == -EPERM ? -EINVAL : rc, "%s: %s", path,
                          rc == -EPROTO  ? "another version of tide made this base"
                          : rc == -EPERM ? "it belongs to another user, or others can write to it"
                                         : "the header is damaged, or the file is half-written");
    } else {
        snprintf(out->folder, sizeof out->folder, "%s", header.folder);
        snprintf(out->storage, sizeof out->storage, "%.7s", header.storage);
        snprintf(out->type, sizeof out->type, "%.7s", header.type);
        out->identity = header.identity;
        out->bytes = fstat(fd, &info) == 0 ? (uint64_t)info.st_size : 0;
        rc = verify(fd, &header, path);
    }
    close(fd);
    return rc;
}
