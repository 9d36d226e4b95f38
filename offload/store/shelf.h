/* shelf.h: the folder in which a run keeps its checkpoints: checkpoint-N after step N, each a folder
 * of its own. Whoever writes holds the shelf, by a lock that ends with the process; reading needs
 * none, for a checkpoint gets its name when it is whole, and loses it before it is taken apart. */
#ifndef OFFLOAD_STORE_SHELF_H
#define OFFLOAD_STORE_SHELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_shelf;

/* Makes the folder where it is missing, locks it, and removes what a run left that was killed while
 * it wrote. -EBUSY: another run holds it. */
int store_shelf_open(const char *directory, struct store_shelf **out);
void store_shelf_close(struct store_shelf *shelf); /* removes the spare; NULL is fine */

/* Whether it is the one of `directory`, however that is spelled: they have one lock. */
bool store_shelf_is(const struct store_shelf *shelf, const char *directory);
const char *store_shelf_directory(const struct store_shelf *shelf);
/* DIRECTORY/checkpoint-N. Returns text. */
const char *store_shelf_path(const char *directory, uint64_t step, char *text, size_t bytes);

/* The steps of the checkpoints that are there, ascending; the caller's to free. A folder that is not
 * there has none. A checkpoint-N without a checkpoint's files is none. */
int store_shelf_list(const char *directory, uint64_t **steps, size_t *count);

/* Removes the files that its manifest lists, and the folder if no others are in it; what cannot be
 * removed is a warning. */
void store_shelf_remove(const struct store_shelf *shelf, uint64_t step);
/* Removes the oldest (see store_shelf_remove) until `keep` are left of those up to `step`, the one just written; 0: all stay. What
 * is behind it a resumed run has passed over as damaged: that keeps nothing else away, and goes when the
 * run has come so far. The first becomes the spare where there is
 * none: a drive that frees gigabytes under a run stands still meanwhile, and files that are written over
 * take their bytes faster than new ones. The others are removed. */
void store_shelf_rotate(struct store_shelf *shelf, uint64_t step, uint32_t keep);
/* Where the spare is; NULL: there is none. */
const char *store_shelf_spare(const struct store_shelf *shelf, char *text, size_t bytes);
void store_shelf_spare_drop(struct store_shelf *shelf); /* removes it */

#endif
