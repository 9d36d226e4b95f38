/* sums.h: checksums of data on a drive, one for each MiB or, where the owner wants to read less at
 * once, for each page. The owner of the data keeps them in memory; the drive computes them just
 * before a write and compares them just after a read. No state; any thread. */
#ifndef AIO_SUMS_H
#define AIO_SUMS_H

#include <stdbool.h>
#include <stdint.h>

enum { AIO_SUM_BYTES = 1 << 20, AIO_SUM_PAGE_BYTES = 4096 };

/* The checksum of a unit (of the last unit: of the remaining bytes), and how often the unit was
 * written. */
struct aio_sum {
    uint64_t value;
    uint64_t generation; /* 0: never written */
};

/* Checksums of a range of bytes. The seed of each is (run, owner, number, generation). */
struct aio_sums {
    /* borrowed; [0] belongs to the range's first unit; NULL: no checksums */
    struct aio_sum *table;
    uint64_t run, owner; /* the owner is a shard or an extent; equal data of two owners has
                          * different checksums */
    uint64_t first;      /* number of the first sum within the owner */
    bool pages;          /* a unit is a page, not a MiB */
};

/* Returns the bytes of a unit. */
uint32_t aio_sums_unit(const struct aio_sums *sums);
/* Returns the seed of sum `index` of the table. */
uint64_t aio_sum_seed(const struct aio_sums *sums, uint64_t index, uint64_t generation);

/* Both functions take the `bytes` bytes of the range that begin at `offset`, a multiple of the
 * unit. `memory` points to these bytes. */

/* Computes the sums before a write and increments their generations. */
void aio_sums_compute(const struct aio_sums *sums, uint64_t offset, const unsigned char *memory,
                      uint32_t bytes);
/* Returns the index of the first sum that does not match or was never set, or -1 if all match.
 * *found gets the checksum that was computed last. */
int64_t aio_sums_verify(const struct aio_sums *sums, uint64_t offset, const unsigned char *memory,
                        uint32_t bytes, uint64_t *found);

#endif
