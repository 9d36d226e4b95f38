/* kept.h: a quantised base that stays on the drive between runs: a file beside the store with the
 * stored form (stored.h) of quantised blocks, and the other frozen blocks as compute reads them. A
 * file is valid for one state of a model folder, one set of frozen tensors, one storage and one
 * type of weights. The run that makes the base writes the file under a temporary name and renames
 * it once durable. Later runs read the parts that they need, directly or through a store (store.h).
 * The thread that opens a file also writes and closes it; any threads read. */
#ifndef OFFLOAD_MODEL_KEPT_H
#define OFFLOAD_MODEL_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "offload/model/stored.h"

struct core_team;
struct model_kept;

struct model_kept_options {
    const char *directory; /* of the file; borrowed, like every pointer here */
    const char *folder;    /* folder of the model */
    const struct model *model;
    const struct model_files *files;
    const struct model_stored *const *stored; /* [model->block_count] */
    /* [model->block_count]: the run reads the block by pages. A new file has checksums per page of
     * such blocks and of the embedding, else per MiB */
    const bool *paged;
    enum model_storage storage; /* INT8 or NF4 */
    enum kern_type type;        /* type of the run's weights */
    bool writes;                /* writes a file if none is valid and no other run writes it */
    uint64_t room_bytes;        /* limit of a new file's size */
};

/* Opens the file of a base, or begins to write one. If neither is possible, returns 0 with *out
 * NULL; a log line says why, unless the file is missing and options->writes is false. The only
 * error is -ENOMEM. */
int model_kept_open(const struct model_kept_options *options, struct model_kept **out);
/* Computes the size of a new file. */
int model_kept_measure(const struct model_kept_options *options, uint64_t *out);
/* Closes the file; removes an unfinished one. Accepts NULL. */
void model_kept_close(struct model_kept *kept);

/* ---- reading ---- */

/* Returns whether an earlier run's file is read. */
bool model_kept_is_read(const struct model_kept *kept);
/* Returns whether a block can be read from an earlier run's file in which no damage was found.
 * Accepts NULL. */
bool model_kept_has(const struct model_kept *kept, unsigned block);
/* Returns the identity (model_sums_identity) of the base that is read. */
uint64_t model_kept_identity(const struct model_kept *kept);
/* Reads and verifies bytes of a block's weights in the run's form; bytes after the block's end are
 * zero. `team` may be NULL. An error other than -ENOMEM removes the file, with a log line;
 * model_kept_has() is then false. */
int model_kept_read(struct model_kept *kept, unsigned block, uint64_t begin, uint64_t bytes,
                    void *to, struct core_team *team);
/* Like model_kept_read(), for a tensor's stored form. Returns -ENOENT without a message if the file
 * does not have it, or was removed. */
int model_kept_read_tensor(struct model_kept *kept, const char *name, void *to);
/* Removes the file, for a caller that has read it (model_kept_place) and found damage. */
void model_kept_drop(struct model_kept *kept);

/* A block's place in the file, for a store that reads the file itself. The checksum sums[i] of unit
 * i is core_hash(unit, its bytes, core_hash_seed(0, owner, i, 1)). */
struct model_kept_place {
    uint64_t offset;      /* multiple of 4096 */
    uint64_t bytes;       /* multiple of 4096 */
    uint64_t unit_bytes;  /* bytes per checksum: a MiB or a page */
    uint64_t owner;       /* owner of the checksums */
    const uint64_t *sums; /* borrowed, one per unit */
};
struct model_kept_place model_kept_place(const struct model_kept *kept, unsigned block);
const char *model_kept_path(const struct model_kept *kept);
uint64_t model_kept_bytes(const struct model_kept *kept);
/* Returns the file's descriptor if it is open for direct I/O; else -1. */
int model_kept_direct_file(const struct model_kept *kept);

/* ---- writing ---- */

/* Returns whether a file with this block is being written. Accepts NULL. */
bool model_kept_wants(const struct model_kept *kept, unsigned block);
/* Writes a block's next bytes. Blocks may come in any order, each complete before the next. After a
 * failure, which is logged, nothing more is written. */
void model_kept_write(struct model_kept *kept, unsigned block, const void *from, uint64_t bytes);
/* Makes the file durable and names it, if it is complete and the model's files are unchanged. */
void model_kept_finish(struct model_kept *kept, uint64_t identity);

/* ---- inspecting ---- */

struct model_kept_look {
    char folder[2048]; /* model's folder */
    char storage[8];   /* "int8", "nf4" */
    char type[8];      /* type of weights that are not quantised */
    uint64_t identity;
    uint64_t bytes; /* size of the file */
};

/* Returns whether a file is named like a kept base, or begins like one. */
bool model_kept_is(const char *path);
/* Returns the number of kept bases in a directory, including half-written ones. */
unsigned model_kept_count(const char *directory);
/* Reads and verifies a whole file. Refuses a file of another version or another user, or that
 * others can write to. Even after an error, *out has what was read. */
int model_kept_inspect(const char *path, struct model_kept_look *out);

#endif
