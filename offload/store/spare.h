/* spare.h: files of a removed checkpoint, which the next one overwrites: freeing gigabytes would
 * stall the drive during a run, and overwriting existing files is faster than writing new ones. */
#ifndef OFFLOAD_STORE_SPARE_H
#define OFFLOAD_STORE_SPARE_H

#include "offload/store/image.h"

/* Moves the streams' files from the folder `from` into `folder`, a descriptor: the files of the
 * right size that have no other name and that no other process has open. The other files stay in
 * `from`. */
void store_spare_take(const char *from, const struct store_image *image, int folder);

#endif
