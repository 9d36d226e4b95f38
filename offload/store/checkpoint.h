/* checkpoint.h: one checkpoint being written, and one being read. It is written under another name,
 * made durable, read back whole, and only then gets its name; so a checkpoint that can be found is
 * one that was found good. One thread at a time. */
#ifndef OFFLOAD_STORE_CHECKPOINT_H
#define OFFLOAD_STORE_CHECKPOINT_H

#include "offload/store/flow.h"
#include "offload/store/manifest.h"
#include "offload/store/shelf.h"

/* ---- writing ---- */

struct store_checkpoint_write;

struct store_checkpoint_options {
    struct store_shelf *shelf; /* borrowed, as all here */
    const struct model *model;
    const char *source; /* folder whose configuration and tokenizer go along; NULL: none */
    uint32_t keep;      /* checkpoints that stay, this one counted; 0: all */
    const char *backend;
    const struct aio_backend *recipe; /* replaces `backend`; NULL: none */
    int64_t limit_ns;                 /* of one block's I/O; 0: the drive's own */
};

/* Makes the folder and its files at full size. `manifest` says everything that is known now; what it
 * owns is taken over, in any case. */
int store_checkpoint_begin(const struct store_checkpoint_options *options,
                           struct store_manifest *manifest, struct store_checkpoint_write **out);
/* A range as store_flow_begin takes it; all ranges, each once, in any order. */
int store_checkpoint_put(struct store_checkpoint_write *checkpoint, uint32_t block, uint64_t first,
                         uint64_t count, const struct store_arrays *arrays);
/* The same, begun: `arrays` are the caller's again once the tail behind it was waited for. */
int store_checkpoint_put_begin(struct store_checkpoint_write *checkpoint, uint32_t block,
                               uint64_t first, uint64_t count, const struct store_arrays *arrays);
uint64_t store_checkpoint_put_tail(const struct store_checkpoint_write *checkpoint);
int store_checkpoint_put_wait(struct store_checkpoint_write *checkpoint, uint64_t point);
/* What is known only now: the counts, the loss scale and the application's bytes of `manifest`, of the
 * same step; what it owns is taken over. Any time before the finish. */
void store_checkpoint_tell(struct store_checkpoint_write *checkpoint,
                           struct store_manifest *manifest);
/* Durable, read back, published; older ones are removed. On failure there is none of this step, or
 * the old one of this step. The object stays the caller's to end. */
int store_checkpoint_finish(struct store_checkpoint_write *checkpoint);
/* Without a finish that succeeded what was written is removed. -ETIMEDOUT: a drive does not answer,
 * and memory that was put must not be freed. NULL is fine. */
int store_checkpoint_end(struct store_checkpoint_write *checkpoint);

/* ---- reading ---- */

struct store_checkpoint;

/* What it says of itself, and nothing else; for store_manifest_fini. */
int store_checkpoint_peek(const char *path, struct store_manifest *out);
/* Checks everything but the streams themselves. `path` is the checkpoint's own folder. */
int store_checkpoint_open(const char *path, const char *backend, const struct aio_backend *recipe,
                          struct store_checkpoint **out);
int store_checkpoint_close(struct store_checkpoint *checkpoint); /* NULL is fine */
const struct store_manifest *store_checkpoint_manifest(const struct store_checkpoint *checkpoint);
const struct store_image *store_checkpoint_image(const struct store_checkpoint *checkpoint);
const char *store_checkpoint_path(const struct store_checkpoint *checkpoint);
/* As store_flow_direct_file. */
int store_checkpoint_direct_file(const struct store_checkpoint *checkpoint,
                                 enum store_stream stream);
/* -EBADMSG where the bytes are not those that were written. */
int store_checkpoint_read(struct store_checkpoint *checkpoint, uint32_t block, uint64_t first,
                          uint64_t count, const struct store_arrays *arrays);
/* The same, begun: `arrays` are there once the tail behind it was waited for. What was begun
 * STORE_FLOW_PIECES MiB before the tail is there already. */
int store_checkpoint_read_begin(struct store_checkpoint *checkpoint, uint32_t block, uint64_t first,
                                uint64_t count, const struct store_arrays *arrays);
uint64_t store_checkpoint_read_tail(const struct store_checkpoint *checkpoint);
int store_checkpoint_read_wait(struct store_checkpoint *checkpoint, uint64_t point);
/* Reads all and compares. `progress` may be NULL; not 0 stops. */
int store_checkpoint_verify(struct store_checkpoint *checkpoint,
                            int (*progress)(void *user, uint64_t done, uint64_t total), void *user);

#endif
