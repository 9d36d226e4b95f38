/* sums.h: checksums of data on a drive, per MiB or, for smaller reads, per page.
 * The owner of the data keeps them in memory; the drive computes them before a write and compares
 * them after a read. */
#ifndef AIO_SUMS_H
#define AIO_SUMS_H

#include <stdbool.h>
#include <stdint.h>

enum { AIO_SUM_BYTES = 1 << 20, AIO_SUM_PAGE_BYTES = 4096 };

/* The checksum of a unit (the last may be shorter), and how often it was set. */
struct aio_sum {
    uint64_t value;
    uint64_t generation; /* 0: never set */
};

/* Checksums of a range of bytes, with seeds (run, owner, number, generation). */
struct aio_sums {
    /* borrowed; [0]: the range's first unit; NULL: no checksums */
    struct aio_sum *table;
    uint64_t run, owner; /* `owner`: a shard or an extent; the same data of another owner has
                          * another checksum */
    uint64_t first;      /* number of the first sum within the owner */
    bool pages;          /* a unit is a page, not a MiB */
};

uint32_t aio_sums_unit(const struct aio_sums *sums);
/* Returns the seed of sum `index` of the table. */
uint64_t aio_sum_seed(const struct aio_sums *sums, uint64_t index, uint64_t generation);

/* Both functions take `bytes` bytes of the range, from `offset`, a multiple of the unit. `memory`
 * points to these bytes. */

/* Computes the sums before a write and increments their generations. */
void aio_sums_compute(const struct aio_sums *sums, uint64_t offset, const unsigned char *memory,
                      uint32_t bytes);
/* Returns the index of the first sum that differs or was never set; -1 if all match. *found gets
 * the last computed checksum. */
int64_t aio_sums_verify(const struct aio_sums *sums, uint64_t offset, const unsigned char *memory,
                        uint32_t bytes, uint64_t *found);

#endif
