/* space.h: the free ranges of a path, and how an extent is shared among paths. One thread at a
 * time. */
#ifndef AIO_SPACE_H
#define AIO_SPACE_H

#include <stdint.h>

struct aio_space;

struct aio_range {
    uint64_t offset;
    uint64_t bytes;
};

int aio_space_create(uint64_t begin, uint64_t bytes, struct aio_space **out);
void aio_space_destroy(struct aio_space *space);

/* Takes up to `bytes`: from the first free range that is long enough, else from the longest.
 * Returns -ENOSPC without a message if nothing is free. */
int aio_space_take(struct aio_space *space, uint64_t bytes, struct aio_range *out);
/* Gives a range back; cannot fail. */
void aio_space_give(struct aio_space *space, struct aio_range range);

/* Gives back a part of a taken range; the rest stays taken. */
void aio_space_split(struct aio_space *space, struct aio_range part);

uint64_t aio_space_free_bytes(const struct aio_space *space);

/* Shares `units` among `count` paths in proportion to `weights`, at most `free_units` per path;
 * others take the excess. `credit`, zeros at first and kept by the caller, carries rounding errors
 * to the next call. `units` must not exceed the sum of `free_units`. */
void aio_stripe_share(const double *weights, double *credit, const uint64_t *free_units,
                      unsigned count, uint64_t units, uint64_t *out);

#endif
