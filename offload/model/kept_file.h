/* kept_file.h: the format of a kept base: a page with the header, the blocks, a table of their
 * places, and a table of their checksums. Numbers are in the machine's byte order; the header is
 * written last. Any thread. Only for kept.c and kept_*.c. */
#ifndef OFFLOAD_MODEL_KEPT_FILE_H
#define OFFLOAD_MODEL_KEPT_FILE_H

#include <stdbool.h>
#include <stdint.h>

#define KEPT_PREFIX "tide-base-" /* beginning of the files' names */

/* Change KEPT_VERSION when the format changes, or when stored.c makes different bytes from equal
 * weights. */
enum { KEPT_VERSION = 1, KEPT_PAGE_BYTES = 4096, KEPT_PIECE_BYTES = 1 << 20 };

struct model_kept_header {
    char magic[8];
    uint32_t version;
    uint32_t blocks;
    uint64_t layout; /* hash of the frozen blocks, with tensors and stored form */
    uint64_t shards; /* hash of names, sizes, times and headers of the model's files */
    uint64_t identity;
    uint64_t units;
    uint64_t tables; /* offset; the file ends with the tables, rounded up to a page */
    uint64_t tables_hash;
    char storage[8];
    char type[8];
    char folder[2048]; /* real path of the model's folder */
    uint64_t hash;     /* hash of all bytes before this member */
};
_Static_assert(sizeof(struct model_kept_header) <= KEPT_PAGE_BYTES,
               "the header is in the first page");

struct model_kept_block {
    uint64_t block; /* its index in the model */
    uint64_t offset;
    uint64_t bytes;
    uint64_t unit_bytes;
    uint64_t first_unit;
};

/* Rounds up to whole pages. */
uint64_t model_kept_rounded(uint64_t bytes);
uint64_t model_kept_units(const struct model_kept_block *block);
uint64_t model_kept_tables_bytes(const struct model_kept_header *header);

/* Returns whether a file is named like a kept base, or a half-written one. */
bool model_kept_is_name(const char *name);
/* Returns whether the file begins with a kept base's magic number. */
bool model_kept_is_begun(int fd);

/* This function and the next two set no message. -EPERM: another user owns the file, or others can
 * write to it; -EPROTO: another version; -EBADMSG: damage, or another kind of file. */
int model_kept_read_header(int fd, struct model_kept_header *out);
/* `blocks` and `sums` have room for header->blocks and header->units entries. */
int model_kept_read_tables(int fd, const struct model_kept_header *header,
                           struct model_kept_block *blocks, uint64_t *sums);
/* Reads and verifies up to KEPT_PIECE_BYTES of a block. `at`, a byte of the block, is a multiple of
 * KEPT_PIECE_BYTES; `to` is aligned to KEPT_PAGE_BYTES. */
int model_kept_read_piece(int fd, const struct model_kept_block *block, const uint64_t *sums,
                          uint64_t at, uint8_t *to);

uint64_t model_kept_hash_unit(const struct model_kept_block *block, const void *from,
                              uint64_t bytes, uint64_t unit);
/* Writes the tables, and once they and the blocks are durable, the header. `page` is memory of
 * KEPT_PAGE_BYTES, aligned to that size. */
int model_kept_write_tables(int fd, struct model_kept_header *header,
                            const struct model_kept_block *blocks, const uint64_t *sums,
                            uint8_t *page);

#endif
