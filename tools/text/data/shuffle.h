/* shuffle.h: seeded orders without state. Pure functions. */
#ifndef TOOLS_TEXT_DATA_SHUFFLE_H
#define TOOLS_TEXT_DATA_SHUFFLE_H

#include <stddef.h>
#include <stdint.h>

/* Returns the item at `index` of 0 ... count - 1 in the order of (seed, epoch). */
uint64_t text_shuffle_at(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index);

/* Shuffles the array by (seed, epoch, window, count). At most 2^32 items. */
void text_shuffle_mix(uint64_t seed, uint64_t epoch, uint64_t window, uint64_t *items,
                      size_t count);

#endif
