/* shuffle.h: seeded orders that need no memory of what came before. Pure functions. */
#ifndef TOOLS_TEXT_DATA_SHUFFLE_H
#define TOOLS_TEXT_DATA_SHUFFLE_H

#include <stddef.h>
#include <stdint.h>

/* What comes at `index` when 0 ... count - 1 are put into the order of (seed, epoch). */
uint64_t text_shuffle_at(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index);

/* Mixes the array, always the same for the same (seed, epoch, window, count). At most 2^32 items. */
void text_shuffle_mix(uint64_t seed, uint64_t epoch, uint64_t window, uint64_t *items,
                      size_t count);

#endif
