/* kept_internal.h: an open file of a kept base. Only for kept.c, kept_look.c, kept_read.c and
 * kept_write.c. */
#ifndef OFFLOAD_MODEL_KEPT_INTERNAL_H
#define OFFLOAD_MODEL_KEPT_INTERNAL_H

#include "core/base/hash.h"
#include "offload/model/kept.h"
#include "offload/model/kept_file.h"

enum { KEPT_NAME_BYTES = 64 }; /* for a file's name, even a half-written one's */

struct core_lock;

struct model_kept {
    /* `model`, `stored` and `files` are borrowed until close; the other pointers during
     * model_kept_open. */
    struct model_kept_options options;
    struct model_kept_header header;
    struct model_kept_block *blocks; /* owned */
    uint64_t *sums;                  /* owned, [header.units] */
    char *path;                      /* owned */
    int fd;
    bool direct;
    _Atomic bool dropped; /* relaxed: readers stop using the file */

    bool writes;
    bool failed;
    int folder;             /* the directory's descriptor; -1: none */
    struct core_lock *lock; /* owned: lock of the file that is written */
    uint64_t *written;      /* owned, [header.blocks]: bytes written */
    uint8_t *piece;         /* owned, KEPT_PIECE_BYTES */
};

/* ---- kept_look.c ---- */

/* Returns the block's entry; NULL: the file has none. */
const struct model_kept_block *model_kept_find(const struct model_kept *kept, unsigned block);
/* Hashes names, sizes, times and headers of the model's files. Returns 0 if one cannot be read; no
 * kept base is valid then. */
uint64_t model_kept_hash_shards(const struct model_files *files);
/* Returns the file's name in its directory. */
const char *model_kept_name(const struct model_kept *kept);
/* Returns whether `name` in the file's directory is the file open as `fd`. */
bool model_kept_is_named(const struct model_kept *kept, int fd, const char *name);

/* ---- kept_write.c ---- */

/* Begins to write the file. A log line says why it fails, except for -ENOMEM. */
int model_kept_begin(struct model_kept *kept);
/* Removes an unfinished file. */
void model_kept_remove_part(const struct model_kept *kept);

#endif
