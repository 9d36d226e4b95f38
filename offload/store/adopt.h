/* adopt.h: a store uses a checkpoint's files instead of writing the data again. A chunk that was
 * read from a checkpoint and verified stays in the checkpoint's file until its first write is done.
 * Every read of it is compared with checksums that were computed when it was verified. This works
 * if the checkpoint is on the same file system as a store with one path, for chunks whose streams
 * are whole MiB; all others are written. The checkpoint may be removed meanwhile, because its files
 * stay open. The engine's thread. */
#ifndef OFFLOAD_STORE_ADOPT_H
#define OFFLOAD_STORE_ADOPT_H

#include "offload/plan/shard.h"
#include "offload/store/checkpoint.h"
#include "offload/store/store.h"

/* Opens the checkpoint's files for the store; does nothing if nothing can be adopted. */
int store_adopt_begin(struct store *store, const struct store_checkpoint *checkpoint);

/* Adopts a chunk: `span` of its block, which was read into `memory` and verified, is at `place`
 * from now on. 1: it is adopted; 0: the caller has to write it. */
int store_adopt(struct store *store, const struct store_place *place,
                const struct store_checkpoint *checkpoint, struct plan_span span,
                const void *memory);

/* Bytes that are still in a checkpoint's files. */
uint64_t store_adopted_bytes(struct store *store);
/* Closes the checkpoint's files if no chunk is in them any more. NULL is fine. */
int store_adopt_release(struct store *store);

#endif
