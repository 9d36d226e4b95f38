/* spare.h: files of a checkpoint that is no more, for the next one to write over: a drive that frees
 * gigabytes under a run stands still meanwhile, and bytes arrive faster where others were before. */
#ifndef OFFLOAD_STORE_SPARE_H
#define OFFLOAD_STORE_SPARE_H

#include "offload/store/image.h"

/* Moves the streams' files from the folder `from` into `folder`, a descriptor: those of the right size that
 * nobody else can see, by another name or because he has them open. What stays is of no use. */
void store_spare_take(const char *from, const struct store_image *image, int folder);

#endif
