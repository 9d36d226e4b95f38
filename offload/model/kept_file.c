/* kept_file.c: reads and writes the file of a kept base. */
#include "offload/model/kept_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/size.h"

enum { KEPT_UNITS_MAX = 1 << 28 };

static const char magic[8] = "tidebase";

uint64_t model_kept_rounded(uint64_t bytes)
{
    return core_round_up(bytes, KEPT_PAGE_BYTES);
}

uint64_t model_kept_units(const struct model_kept_block *block)
{
    return (model_kept_rounded(block->bytes) + block->unit_bytes - 1) / block->unit_bytes;
}

uint64_t model_kept_tables_bytes(const struct model_kept_header *header)
{
    return header->blocks * sizeof(struct model_kept_block) + header->units * sizeof(uint64_t);
}

static uint64_t hash_header(const struct model_kept_header *header)
{
    return core_hash(header, offsetof(struct model_kept_header, hash), 0);
}

bool model_kept_is_name(const char *name)
{
    return strncmp(name, KEPT_PREFIX, sizeof KEPT_PREFIX - 1) == 0;
}

bool model_kept_is_begun(int fd)
{
    char found[sizeof magic] = "";
    return core_file_read_at(fd, found, sizeof found, 0) == sizeof found &&
           memcmp(found, magic, sizeof magic) == 0;
}

/* Returns -EBADMSG if the file is shorter. */
static int read_pages(int fd, void *to, uint64_t bytes, uint64_t at)
{
    const ssize_t got = core_file_read_at(fd, to, bytes, at);
    return got == (ssize_t)bytes ? 0 : got < 0 ? (int)got : -EBADMSG;
}

int model_kept_read_header(int fd, struct model_kept_header *out)
{
    void *page = aligned_alloc(KEPT_PAGE_BYTES, KEPT_PAGE_BYTES);
    struct stat info;
    int rc = page == NULL                           ? -ENOMEM
             : fstat(fd, &info) != 0                ? -errno
             : info.st_uid != geteuid()             ? -EPERM
             : (info.st_mode & (S_IWGRP | S_IWOTH)) ? -EPERM
             : !S_ISREG(info.st_mode)               ? -EBADMSG
                                                    : read_pages(fd, page, KEPT_PAGE_BYTES, 0);
    if (rc == 0) {
        memcpy(out, page, sizeof *out);
        const bool ours = memcmp(out->magic, magic, sizeof magic) == 0;
        const uint64_t end = out->tables + model_kept_rounded(model_kept_tables_bytes(out));
        const bool whole = out->hash == hash_header(out) && out->units <= KEPT_UNITS_MAX &&
                           end == (uint64_t)info.st_size &&
                           memchr(out->folder, 0, sizeof out->folder) != NULL;
        rc = ours && out->version != KEPT_VERSION ? -EPROTO : ours && whole ? 0 : -EBADMSG;
    }
    free(page);
    return rc;
}

int model_kept_read_tables(int fd, const struct model_kept_header *header,
                           struct model_kept_block *blocks, uint64_t *sums)
{
    const uint64_t bytes = model_kept_rounded(model_kept_tables_bytes(header));
    const uint64_t blocks_bytes = header->blocks * sizeof *blocks;
    char *tables = aligned_alloc(KEPT_PAGE_BYTES, bytes);
    int rc = tables != NULL ? read_pages(fd, tables, bytes, header->tables) : -ENOMEM;
    if (rc == 0 && core_hash(tables, bytes, 0) != header->tables_hash) {
        rc = -EBADMSG;
    }
    if (rc == 0) {
        memcpy(blocks, tables, blocks_bytes);
        memcpy(sums, tables + blocks_bytes, header->units * sizeof *sums);
    }
    free(tables);
    return rc;
}

uint64_t model_kept_hash_unit(const struct model_kept_block *block, const void *from,
                              uint64_t bytes, uint64_t unit)
{
    return core_hash(from, bytes, core_hash_seed(0, block->block, unit, 1));
}

int model_kept_read_piece(int fd, const struct model_kept_block *block, const uint64_t *sums,
                          uint64_t at, uint8_t *to)
{
    const uint64_t left = model_kept_rounded(block->bytes) - at;
    const uint64_t bytes = left < KEPT_PIECE_BYTES ? left : KEPT_PIECE_BYTES;
    int rc = read_pages(fd, to, bytes, block->offset + at);
    for (uint64_t done = 0; rc == 0 && done < bytes; done += block->unit_bytes) {
        const uint64_t unit = (at + done) / block->unit_bytes;
        const uint64_t rest = bytes - done;
        const uint64_t length = rest < block->unit_bytes ? rest : block->unit_bytes;
        rc = model_kept_hash_unit(block, to + done, length, unit) == sums[block->first_unit + unit]
                 ? 0
                 : -EBADMSG;
    }
    return rc;
}

int model_kept_write_tables(int fd, struct model_kept_header *header,
                            const struct model_kept_block *blocks, const uint64_t *sums,
                            uint8_t *page)
{
    const uint64_t blocks_bytes = header->blocks * sizeof *blocks;
    const uint64_t bytes = model_kept_rounded(model_kept_tables_bytes(header));
    char *tables = aligned_alloc(KEPT_PAGE_BYTES, bytes);
    if (tables == NULL) {
        return -ENOMEM;
    }
    memset(tables, 0, bytes);
    memcpy(tables, blocks, blocks_bytes);
    memcpy(tables + blocks_bytes, sums, header->units * sizeof *sums);
    memcpy(header->magic, magic, sizeof magic);
    header->version = KEPT_VERSION;
    header->tables_hash = core_hash(tables, bytes, 0);
    header->hash = hash_header(header);
    int rc = core_file_write_at(fd, tables, bytes, header->tables);
    free(tables);
    if (rc == 0) {
        rc = fsync(fd) == 0 ? 0 : -errno;
    }
    if (rc == 0) {
        memset(page, 0, KEPT_PAGE_BYTES);
        memcpy(page, header, sizeof *header);
        rc = core_file_write_at(fd, page, KEPT_PAGE_BYTES, 0);
    }
    return rc == 0 && fsync(fd) != 0 ? -errno : rc;
}
