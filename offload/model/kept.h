/* kept.h: a quantised base that stays on the drive between runs: a file beside the store with the stored form
 * (stored.h) of each block that is kept in fewer bits, and with the other frozen blocks as compute reads them. A file
 * is valid for one model folder, as its shards are now, one set of frozen tensors and one storage. It is written under
 * another name while a run makes the base, and renamed once it is durable. A later run reads from it what each rank
 * needs, or lets its store read there (store.h).
 *
 * The thread that opens a file also writes and closes it; any threads read. */
#ifndef OFFLOAD_MODEL_KEPT_H
#define OFFLOAD_MODEL_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "offload/model/stored.h"

struct core_team;
struct model_kept;

struct model_kept_options {
    const char *directory; /* of the file; borrowed, like all here */
    const char *folder;    /* of the model */
    const struct model *model;
    const struct model_files *files;
    const struct model_stored *const *stored; /* [model->block_count] */
    const bool *
        paged; /* [model->block_count]: a block that the run reads by pages. A file that is written has a checksum
                        * for each of them, as of the embedding's; of other blocks for each MiB */
    enum model_storage storage; /* INT8 or NF4 */
    enum kern_type type;        /* of the run's weights */
    bool writes;         /* a file is written if there is no valid one and no other run writes it */
    uint64_t room_bytes; /* that a file to be written may take */
};

/* Opens the file of a base, or begins to write one. *out is NULL if there is neither; a log line says why. An
 * error is only want of memory. */
int model_kept_open(const struct model_kept_options *options, struct model_kept **out);
/* The bytes of such a file. */
int model_kept_measure(const struct model_kept_options *options, uint64_t *out);
/* A file that was begun and not finished is removed. NULL is fine. */
void model_kept_close(struct model_kept *kept);

/* ---- reading ---- */

/* Whether a file of an earlier run is read, not written. */
bool model_kept_is_read(const struct model_kept *kept);
/* Whether a block can be read: not if the file is being written, or was found to be damaged. NULL is fine. */
bool model_kept_has(const struct model_kept *kept, unsigned block);
/* The identity of the base (model_sums_identity) whose file is read. */
uint64_t model_kept_identity(const struct model_kept *kept);
/* Reads and verifies bytes [begin, begin + bytes) of a block's weights as a run keeps them. `team` may be NULL. After
 * an error the file is removed, so that a later run makes it again, a log line says so, and no block can be read. */
int model_kept_read(struct model_kept *kept, unsigned block, uint64_t begin, uint64_t bytes,
                    void *to, struct core_team *team);
/* The same for the stored form of a tensor. */
int model_kept_read_tensor(struct model_kept *kept, const char *name, void *to);
/* Removes the file, because data that was read from it elsewhere did not match its checksums. */
void model_kept_drop(struct model_kept *kept);

/* Where a block is in the file, for those that read it there. */
struct model_kept_place {
    uint64_t offset;      /* a multiple of 4096 */
    uint64_t bytes;       /* rounded up to a multiple of 4096 */
    uint64_t unit_bytes;  /* with a checksum of their own: a MiB or a page */
    uint64_t owner;       /* of checksums: that of unit i is core_hash(unit, */
    const uint64_t *sums; /* core_hash_seed(0, owner, i, 1)) */
};
struct model_kept_place model_kept_place(const struct model_kept *kept, unsigned block);
const char *model_kept_path(const struct model_kept *kept);
uint64_t model_kept_bytes(const struct model_kept *kept);
/* The open file, if it is opened for direct I/O; else -1. */
int model_kept_direct_file(const struct model_kept *kept);

/* ---- writing ---- */

/* Whether the bytes of a block are to be written. NULL is fine. */
bool model_kept_wants(const struct model_kept *kept, unsigned block);
/* Writes the next bytes of a block. Blocks are written one after the other, in any order. If that fails, a log line
 * says so, and no more is written. */
void model_kept_write(struct model_kept *kept, unsigned block, const void *from, uint64_t bytes);
/* Makes the file durable and gives it its name, if all was written and the model's files are still the same. */
void model_kept_finish(struct model_kept *kept, uint64_t identity);

/* ---- inspecting ---- */

struct model_kept_look {
    char folder[2048]; /* of the model */
    char storage[8];   /* "int8", "nf4" */
    char type[8];      /* of weights that are not stored in fewer bits */
    uint64_t identity;
    uint64_t blocks;
    uint64_t bytes; /* of the file */
};

/* Whether a file begins as a kept base, or is the beginning of one. */
bool model_kept_is(const char *path);
/* The files of bases in a directory, half-written ones included. */
unsigned model_kept_count(const char *directory);
/* Reads and verifies a whole file. -EINVAL, -EBADMSG: the message says what is wrong; *out is as far as it was
 * read. */
int model_kept_inspect(const char *path, struct model_kept_look *out);

#endif
