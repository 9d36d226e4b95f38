/* shelf.h: the folder in which a run keeps its checkpoints: checkpoint-N after step N, each a folder
 * of its own. Whoever writes holds the shelf, by a lock that ends with the process; reading needs
 * none, for a checkpoint gets its name when it is whole, and loses it before it is taken apart. */
#ifndef OFFLOAD_STORE_SHELF_H
#define OFFLOAD_STORE_SHELF_H

#include <stddef.h>
#include <stdint.h>

struct store_shelf;

/* Makes the folder where it is missing, locks it, and removes what a run left that was killed while
 * it wrote. -EBUSY: another run holds it. */
int store_shelf_open(const char *directory, struct store_shelf **out);
void store_shelf_close(struct store_shelf *shelf); /* NULL is fine */

const char *store_shelf_directory(const struct store_shelf *shelf);
/* DIRECTORY/checkpoint-N. Returns text. */
const char *store_shelf_path(const char *directory, uint64_t step, char *text, size_t bytes);

/* The steps of the checkpoints that are there, ascending; the caller's to free. A folder that is not
 * there has none. */
int store_shelf_list(const char *directory, uint64_t **steps, size_t *count);

/* Removes one; what cannot be removed is a warning. */
void store_shelf_remove(const struct store_shelf *shelf, uint64_t step);
/* Removes the oldest until `keep` are left; 0: all stay. */
void store_shelf_rotate(const struct store_shelf *shelf, uint32_t keep);

#endif
