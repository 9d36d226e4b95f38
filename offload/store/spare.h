/* spare.h: files of a removed checkpoint, which the next checkpoint overwrites (see
 * store_shelf_rotate). */
#ifndef OFFLOAD_STORE_SPARE_H
#define OFFLOAD_STORE_SPARE_H

#include "offload/store/image.h"

/* Moves the streams' files from `from` into the descriptor `folder`, if they have the right size
 * and no other name, and no other process has them open. */
void store_spare_take(const char *from, const struct store_image *image, int folder);

#endif
