/* shelf.h: the folder of a run's checkpoints: checkpoint-N after step N. The writer's lock ends
 * with the process. Readers need no lock: a checkpoint gets its manifest last and loses it
 * first. */
#ifndef OFFLOAD_STORE_SHELF_H
#define OFFLOAD_STORE_SHELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_shelf;

/* Creates the folder if missing, locks it, publishes checkpoints that killed runs completed, and
 * removes other remains. Returns -EBUSY if another run holds the lock. */
int store_shelf_open(const char *directory, struct store_shelf **out);
void store_shelf_close(struct store_shelf *shelf); /* removes the spare; accepts NULL */

/* Returns whether `directory`, in any spelling, has the shelf's lock file. */
bool store_shelf_is(const struct store_shelf *shelf, const char *directory);
const char *store_shelf_directory(const struct store_shelf *shelf);
/* Writes DIRECTORY/checkpoint-N to text, and returns it. */
const char *store_shelf_path(const char *directory, uint64_t step, char *text, size_t bytes);

/* Lists the checkpoints' steps, ascending; the caller frees the list. A missing folder has none.
 * Folders without a checkpoint's files do not count. */
int store_shelf_list(const char *directory, uint64_t **steps, size_t *count);

/* Removes the checkpoint's own files (checkpoint_remove.h), and the folder if then empty. Warns if
 * the folder has no manifest of tide, or a removal fails. */
void store_shelf_remove(const struct store_shelf *shelf, uint64_t step);
/* Removes the oldest checkpoints until `keep` remain of those up to `step`, which was written last;
 * 0: removes none. Checkpoints of later steps, which a resumed run has skipped as damaged, do not
 * count. The first checkpoint removed becomes the spare if there is none: overwriting files is
 * faster than freeing and writing gigabytes. */
void store_shelf_rotate(struct store_shelf *shelf, uint64_t step, uint32_t keep);
/* Returns the folder of the spare; NULL: there is none. */
const char *store_shelf_spare(const struct store_shelf *shelf, char *text, size_t bytes);
void store_shelf_spare_drop(struct store_shelf *shelf); /* removes the spare */

#endif
