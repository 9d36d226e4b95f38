/* adopt.h: a store takes over what a checkpoint has instead of writing it again: a chunk that was read
 * from there and found right counts as the store's where it lies, until its first write stands. Every
 * read of it is checked by sums that were taken when it was found right.
 * Where the checkpoint lies on the same file system as a store of one path, and for chunks whose streams
 * are whole MiB; all others are written. The checkpoint may be removed meanwhile: its files are open.
 * The engine's thread. */
#ifndef OFFLOAD_STORE_ADOPT_H
#define OFFLOAD_STORE_ADOPT_H

#include "offload/plan/shard.h"
#include "offload/store/checkpoint.h"
#include "offload/store/store.h"

/* Opens the checkpoint's files for the store; where nothing can be adopted that does nothing. */
int store_adopt_begin(struct store *store, const struct store_checkpoint *checkpoint);

/* A chunk of `span` of its block, as it was read into `memory` and found right, at `place` from now on.
 * 1: it is; 0: it has to be written. */
int store_adopt(struct store *store, const struct store_place *place,
                const struct store_checkpoint *checkpoint, struct plan_span span,
                const void *memory);

/* Bytes that still lie in a checkpoint. */
uint64_t store_adopted_bytes(struct store *store);
/* Closes the checkpoint's files where nothing lies there any more. NULL is fine. */
int store_adopt_release(struct store *store);

#endif
