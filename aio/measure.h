/* measure.h: how fast a path is, in about two seconds, for the planner and for `tide doctor`. The
 * caller's thread waits meanwhile. */
#ifndef AIO_MEASURE_H
#define AIO_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "aio/drive.h"

struct aio_rates {
    double read_bytes_per_s;
    double write_bytes_per_s;
    double mixed_bytes_per_s; /* reading and writing at once: the sum */
    double cpu_ns_per_byte;   /* of the drive's thread, over all three */
    uint64_t hashed_bytes;    /* of what was moved, how much had checksums */
};

/* Measures on bytes [offset, offset + bytes) of an attached file, which are overwritten; `seconds`
 * for all together, and what a few blocks take on a slow path. Other requests meanwhile
 * falsify the result. */
int aio_measure_drive(struct aio_drive *drive, uint32_t file, uint64_t offset, uint64_t bytes,
                      double seconds, struct aio_rates *out);

struct aio_measure_options {
    const char *backend;  /* NULL: chosen by probing */
    uint32_t depth;       /* 0: AIO_DEPTH_DEFAULT */
    uint32_t block_bytes; /* 0: AIO_BLOCK_DEFAULT_BYTES */
    uint64_t bytes;       /* of the scratch file; 0: 512 MiB, or a quarter of what is free */
    bool sums;      /* with checksums, as a store asks; without where blocks are below 1 MiB */
    double seconds; /* 0: 1.6; writing the file once takes as long at most (32 MiB are written) */
};

/* Measures a directory on a nameless file that nobody else sees and that is gone afterwards,
 * whatever happens. `options` may be NULL. */
int aio_measure_path(const char *directory, const struct aio_measure_options *options,
                     struct aio_rates *out);

#endif
