/* checkpoint.h: writes or reads one checkpoint. A checkpoint gets its final name only after it was
 * made durable and read back. One thread at a time. */
#ifndef OFFLOAD_STORE_CHECKPOINT_H
#define OFFLOAD_STORE_CHECKPOINT_H

#include "offload/store/flow.h"
#include "offload/store/manifest.h"
#include "offload/store/shelf.h"

#define STORE_SUMS_NAME "sums.safetensors" /* checksums of the streams */

/* ---- writing ---- */

struct store_checkpoint_write;
struct model_config;

struct store_checkpoint_options {
    struct store_shelf *shelf; /* borrowed, as is every pointer here */
    const char *source;        /* folder whose configuration and tokenizer are copied; NULL: none */
    const struct model_config *config; /* config of the model in `source` */
    uint32_t keep;                     /* checkpoints that are kept, including this one; 0: all */
    const char *backend;
    const struct aio_backend *recipe; /* back end used in place of `backend`; NULL: none */
    int64_t limit_ns; /* I/O in flight this long is an error; 0: the drive's own limit */
};

/* Creates the folder and its files at full size. `manifest` has the values known now; its memory is
 * taken over, even on failure. */
int store_checkpoint_begin(const struct store_checkpoint_options *options,
                           struct store_manifest *manifest, struct store_checkpoint_write **out);
/* Writes a range as store_flow_begin does, and waits. Ranges may come in any order; together they
 * must cover every cut of every stream. */
int store_checkpoint_put(struct store_checkpoint_write *checkpoint, uint32_t block, uint64_t first,
                         uint64_t count, const struct store_arrays *arrays);
/* Begins a write. The memory may change once store_checkpoint_put_wait has returned 0 for a point
 * that store_checkpoint_put_tail returned after this call. */
int store_checkpoint_put_begin(struct store_checkpoint_write *checkpoint, uint32_t block,
                               uint64_t first, uint64_t count, const struct store_arrays *arrays);
uint64_t store_checkpoint_put_tail(const struct store_checkpoint_write *checkpoint);
int store_checkpoint_put_wait(struct store_checkpoint_write *checkpoint, uint64_t point);

/* ---- by several processes: the first one begins and finishes a checkpoint, the others write their
 * own ranges ---- */

/* In the process that began the checkpoint: returns the temporary path for store_checkpoint_join;
 * NULL once published. */
const char *store_checkpoint_folder(const struct store_checkpoint_write *checkpoint);
/* Opens the files that another process created in `folder`, to put ranges into them. `manifest` has
 * the streams and blocks; its memory is taken over. */
int store_checkpoint_join(const struct store_checkpoint_options *options, const char *folder,
                          struct store_manifest *manifest, struct store_checkpoint_write **out);
const struct store_image *
store_checkpoint_write_image(const struct store_checkpoint_write *checkpoint);
/* Returns the checksums of a range that was put: one per cut of each stream. */
struct store_arrays store_checkpoint_sums(const struct store_checkpoint_write *checkpoint,
                                          uint32_t block, uint64_t first);
/* Makes this process's ranges durable, and verifies them by reading them back. */
int store_checkpoint_seal(struct store_checkpoint_write *checkpoint);
/* In the process that began the checkpoint: takes over the checksums of another process's range.
 * `here`: that process wrote the same files, so the range's first cut will be read back. */
void store_checkpoint_merge(struct store_checkpoint_write *checkpoint, uint32_t block,
                            uint64_t first, uint64_t count, const struct store_arrays *sums,
                            bool here);
/* In the process that began its machine's part: takes over a block's checksums. */
void store_checkpoint_set_sums(struct store_checkpoint_write *checkpoint, uint32_t block,
                               const struct store_arrays *sums);

/* Before store_checkpoint_finish: sets updates, loss scale and application bytes from a `manifest`
 * of the same step, whose memory is taken over. */
void store_checkpoint_tell(struct store_checkpoint_write *checkpoint,
                           struct store_manifest *manifest);
/* Makes the checkpoint durable, reads it back, publishes it and removes older ones. After a failure
 * before publishing, an older checkpoint of this step remains, if any. The caller calls
 * store_checkpoint_end in any case. */
int store_checkpoint_finish(struct store_checkpoint_write *checkpoint);
/* The steps of store_checkpoint_finish, for a checkpoint in parts: complete all parts, then publish
 * all of them, then remove older checkpoints. */
int store_checkpoint_complete(struct store_checkpoint_write *checkpoint);
int store_checkpoint_publish(struct store_checkpoint_write *checkpoint);
void store_checkpoint_rotate(struct store_checkpoint_write *checkpoint);
/* Accepts NULL. In the process that began the checkpoint, removes unpublished files, unless the
 * next run can publish them (model_publish_is_kept). Returns -ETIMEDOUT if a drive does not
 * respond; the memory of begun writes must then not be freed. */
int store_checkpoint_end(struct store_checkpoint_write *checkpoint);

/* ---- reading ---- */

struct store_checkpoint;

/* Reads only the manifest. The caller frees it with store_manifest_fini. */
int store_checkpoint_peek(const char *path, struct store_manifest *out);
/* Opens the checkpoint in the folder `path`. Verifies everything except the data of the streams. */
int store_checkpoint_open(const char *path, const char *backend, const struct aio_backend *recipe,
                          struct store_checkpoint **out);
int store_checkpoint_close(struct store_checkpoint *checkpoint); /* Accepts NULL */
const struct store_manifest *store_checkpoint_manifest(const struct store_checkpoint *checkpoint);
const struct store_image *store_checkpoint_image(const struct store_checkpoint *checkpoint);
const char *store_checkpoint_path(const struct store_checkpoint *checkpoint);
/* Returns a block's checksums: one per cut of each stream. */
struct store_arrays store_checkpoint_read_sums(const struct store_checkpoint *checkpoint,
                                               uint32_t block);
/* See store_flow_direct_file. */
int store_checkpoint_direct_file(const struct store_checkpoint *checkpoint,
                                 enum store_stream stream);
/* Reads a range into `arrays`. Returns -EBADMSG if the bytes are not those that were written. */
int store_checkpoint_read(struct store_checkpoint *checkpoint, uint32_t block, uint64_t first,
                          uint64_t count, const struct store_arrays *arrays);
/* Begins a read. `arrays` are filled after store_checkpoint_read_wait for a later
 * store_checkpoint_read_tail, or once STORE_FLOW_PIECES more pieces were begun. */
int store_checkpoint_read_begin(struct store_checkpoint *checkpoint, uint32_t block, uint64_t first,
                                uint64_t count, const struct store_arrays *arrays);
uint64_t store_checkpoint_read_tail(const struct store_checkpoint *checkpoint);
int store_checkpoint_read_wait(struct store_checkpoint *checkpoint, uint64_t point);
/* Reads and verifies the marked cuts (NULL: all that the checkpoint contains). After each block,
 * `progress` (may be NULL) gets the numbers of blocks done and of all blocks; a result other than 0
 * ends the call with -ECANCELED. */
int store_checkpoint_verify(struct store_checkpoint *checkpoint, const struct store_marks *marks,
                            int (*progress)(void *user, uint64_t done, uint64_t total), void *user);

#endif
