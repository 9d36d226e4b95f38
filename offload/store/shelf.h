/* shelf.h: the folder in which a run keeps its checkpoints: checkpoint-N after step N, each a
 * separate folder. A writer holds the folder's lock, which ends with the process. Readers need no
 * lock: a checkpoint gets its manifest last, and loses it before its other files are removed. */
#ifndef OFFLOAD_STORE_SHELF_H
#define OFFLOAD_STORE_SHELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_shelf;

/* Creates the folder if it is missing, locks it, publishes checkpoints that killed runs had
 * completed, and removes other remains of such runs. Returns -EBUSY if another run holds the
 * lock. */
int store_shelf_open(const char *directory, struct store_shelf **out);
void store_shelf_close(struct store_shelf *shelf); /* removes the spare; accepts NULL */

/* Returns whether the shelf is that of `directory`, in any spelling of its path: both have the same
 * lock file. */
bool store_shelf_is(const struct store_shelf *shelf, const char *directory);
const char *store_shelf_directory(const struct store_shelf *shelf);
/* Writes DIRECTORY/checkpoint-N to text, and returns it. */
const char *store_shelf_path(const char *directory, uint64_t step, char *text, size_t bytes);

/* Lists the steps of the existing checkpoints, ascending; the caller frees the list. A missing
 * folder has none. A folder checkpoint-N without a checkpoint's files does not count. */
int store_shelf_list(const char *directory, uint64_t **steps, size_t *count);

/* Removes the checkpoint's own files (checkpoint_remove.h), and the folder if it is empty then. If
 * the folder has no manifest of tide, or a file cannot be removed, logs a warning. */
void store_shelf_remove(const struct store_shelf *shelf, uint64_t step);
/* Removes the oldest checkpoints (see store_shelf_remove) until `keep` remain of those up to
 * `step`, which was written last; 0: all remain. Newer checkpoints, which a resumed run skipped
 * because they are damaged, do not count until the run has passed their step. If there is no spare,
 * the first checkpoint removed becomes the spare, because freeing gigabytes would stall the drive
 * during a run, and overwriting existing files is faster than writing new ones. */
void store_shelf_rotate(struct store_shelf *shelf, uint64_t step, uint32_t keep);
/* Returns the folder of the spare; NULL: there is none. */
const char *store_shelf_spare(const struct store_shelf *shelf, char *text, size_t bytes);
void store_shelf_spare_drop(struct store_shelf *shelf); /* removes the spare */

#endif
