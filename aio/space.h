/* extent.h: which bytes of a path are taken: a list of free ranges in order. At set-up, one
 * thread. */
#ifndef AIO_EXTENT_H
#define AIO_EXTENT_H

#include <stdint.h>

struct aio_space;

struct aio_range {
    uint64_t offset;
    uint64_t bytes;
};

/* All of [begin, begin + bytes) free. */
int aio_space_create(uint64_t begin, uint64_t bytes, struct aio_space **out);
void aio_space_destroy(struct aio_space *space);

/* Takes up to `bytes` as one range, the first that is long enough, else the longest there is.
 * -ENOSPC without a sentence: nothing is free. */
int aio_space_take(struct aio_space *space, uint64_t bytes, struct aio_range *out);
/* Gives a range back that was taken. Never fails: the room was made when it was taken. */
void aio_space_give(struct aio_space *space, struct aio_range range);

/* Gives back a part of a range that was taken; the rest of it stays taken. */
void aio_space_split(struct aio_space *space, struct aio_range part);

uint64_t aio_space_free_bytes(const struct aio_space *space);
/* Free ranges in order, none touching the next; how many there are. */
uint32_t aio_space_ranges(const struct aio_space *space, const struct aio_range **out);

/* Shares `units` over `count` paths: in proportion to `weights`, where `credit` (zeros at first)
 * carries what rounding left over, so that the sum over many extents is exact to one unit a path.
 * A path gets no more than `free_units`; the others take what it cannot. `units` must not exceed
 * the sum of them. */
void aio_stripe_share(const double *weights, double *credit, const uint64_t *free_units,
                      unsigned count, uint64_t units, uint64_t *out);

#endif
