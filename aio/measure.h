/* measure.h: measures the speed of a drive or a directory in a few seconds. The calling thread
 * waits. */
#ifndef AIO_MEASURE_H
#define AIO_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "aio/drive.h"

struct aio_rates {
    double read_bytes_per_s;
    double write_bytes_per_s;
    double mixed_bytes_per_s; /* read + write, while both run */
    /* processor time of the drive's thread */
    double cpu_ns_per_byte;
    uint64_t hashed_bytes; /* transferred bytes that had checksums */
};

/* Reads from the first half of bytes [offset, offset + bytes) of an attached file and writes to the
 * second half. Takes about `seconds`. Other requests to the drive distort the result. */
int aio_measure_drive(struct aio_drive *drive, uint32_t file, uint64_t offset, uint64_t bytes,
                      double seconds, struct aio_rates *out);

struct aio_measure_options {
    const char *backend;  /* NULL: chosen by probing */
    uint32_t depth;       /* 0: AIO_DEPTH_DEFAULT */
    uint32_t block_bytes; /* 0: AIO_BLOCK_DEFAULT_BYTES */
    /* of the temporary file; 0: 512 MiB, or a quarter of the free space if less */
    uint64_t bytes;
    bool sums; /* checksums as in a store; ignored unless blocks are whole MiB */
    /* 0: 1.6. Filling the file first may take as long, or longer */
    double seconds;
};

/* Measures a directory with an unnamed temporary file. `options` may be NULL. */
int aio_measure_path(const char *directory, const struct aio_measure_options *options,
                     struct aio_rates *out);

#endif
