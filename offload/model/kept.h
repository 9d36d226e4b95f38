/* kept.h: a quantised base that stays on the drive between runs. It is a file beside the store with
 * the stored form (stored.h) of each block that is kept in fewer bits, and with the other frozen
 * blocks in the form that compute reads. A file is valid for one model folder in its present state,
 * one set of frozen tensors, one storage and one type of weights. It is written under a temporary
 * name while a run makes the base, and renamed once it is durable. In a later run each rank reads
 * the parts that it needs from the file, or its store does (store.h). The thread that opens a file
 * also writes and closes it; any threads read. */
#ifndef OFFLOAD_MODEL_KEPT_H
#define OFFLOAD_MODEL_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "offload/model/stored.h"

struct core_team;
struct model_kept;

struct model_kept_options {
    const char *directory; /* directory of the file; borrowed, like every pointer here */
    const char *folder;    /* folder of the model */
    const struct model *model;
    const struct model_files *files;
    const struct model_stored *const *stored; /* [model->block_count] */
    /* [model->block_count]: whether the run reads a block by pages. A new file has a checksum for
     * each page of such a block and of the embedding, and one for each MiB of other blocks */
    const bool *paged;
    enum model_storage storage; /* INT8 or NF4 */
    enum kern_type type;        /* type of the run's weights */
    bool writes;         /* writes a file if there is no valid one and no other run writes it */
    uint64_t room_bytes; /* limit of the size of a new file */
};

/* Opens the file of a base, or begins to write one. If neither is possible, *out is NULL and the
 * call returns 0; a log line says why, unless there is no file and options->writes is false. The
 * only error is -ENOMEM. */
int model_kept_open(const struct model_kept_options *options, struct model_kept **out);
/* Computes the size of the file that model_kept_open would write. */
int model_kept_measure(const struct model_kept_options *options, uint64_t *out);
/* Closes the file; removes it if it was begun and not finished. Accepts NULL. */
void model_kept_close(struct model_kept *kept);

/* ---- reading ---- */

/* Returns whether a file of an earlier run is read, not written. */
bool model_kept_is_read(const struct model_kept *kept);
/* Returns whether a block can be read. It cannot while the file is being written, or after the file
 * was found to be damaged. Accepts NULL. */
bool model_kept_has(const struct model_kept *kept, unsigned block);
/* Returns the identity of the base (model_sums_identity) whose file is read. */
uint64_t model_kept_identity(const struct model_kept *kept);
/* Reads and verifies bytes [begin, begin + bytes) of a block's weights in the form in which a run
 * keeps them; bytes after the block's end are zero. `team` may be NULL. After an error other than
 * -ENOMEM the file is removed, so that a later run makes the base again; a log line says so, and no
 * block can be read any more. */
int model_kept_read(struct model_kept *kept, unsigned block, uint64_t begin, uint64_t bytes,
                    void *to, struct core_team *team);
/* Like model_kept_read(), for the stored form of a tensor. Returns -ENOENT without a message if the
 * file does not have it. */
int model_kept_read_tensor(struct model_kept *kept, const char *name, void *to);
/* Removes the file. For a caller that has read the file itself (model_kept_place) and found data
 * that does not match its checksum. */
void model_kept_drop(struct model_kept *kept);

/* The place of a block in the file, for a store that reads the file itself. The checksum sums[i] of
 * unit i is core_hash(unit, its bytes, core_hash_seed(0, owner, i, 1)). */
struct model_kept_place {
    uint64_t offset;      /* a multiple of 4096 */
    uint64_t bytes;       /* rounded up to a multiple of 4096 */
    uint64_t unit_bytes;  /* bytes that share a checksum: a MiB or a page */
    uint64_t owner;       /* owner of the checksums */
    const uint64_t *sums; /* borrowed, one for each unit */
};
struct model_kept_place model_kept_place(const struct model_kept *kept, unsigned block);
const char *model_kept_path(const struct model_kept *kept);
uint64_t model_kept_bytes(const struct model_kept *kept);
/* Returns the descriptor of the file if it is open for direct I/O; else -1. */
int model_kept_direct_file(const struct model_kept *kept);

/* ---- writing ---- */

/* Returns whether a file that contains this block is being written. Accepts NULL. */
bool model_kept_wants(const struct model_kept *kept, unsigned block);
/* Writes the next bytes of a block. Blocks are written one after the other, in any order. After a
 * failure, which is logged, nothing more is written. */
void model_kept_write(struct model_kept *kept, unsigned block, const void *from, uint64_t bytes);
/* Makes the file durable and gives it its name, if all blocks were written and the model's files
 * are still the same. */
void model_kept_finish(struct model_kept *kept, uint64_t identity);

/* ---- inspecting ---- */

struct model_kept_look {
    char folder[2048]; /* folder of the model */
    char storage[8];   /* "int8", "nf4" */
    char type[8];      /* type of weights that are not stored in fewer bits */
    uint64_t identity;
    uint64_t bytes; /* size of the file */
};

/* Returns whether a file has the name of a kept base, or begins like one. */
bool model_kept_is(const char *path);
/* Returns the number of kept bases in a directory, including half-written ones. */
unsigned model_kept_count(const char *directory);
/* Reads and verifies a whole file. Returns -errno with a message: -EINVAL for a file that another
 * version wrote, that belongs to another user, or that others can write to, -EBADMSG for a damaged
 * one, and errors of opening and reading. *out has what was read before the error. */
int model_kept_inspect(const char *path, struct model_kept_look *out);

#endif
