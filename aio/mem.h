/* mem.h: a drive that is memory, for tests and for `--io mem`: bytes that a file would have, and
 * the speed of a drive that is not here. */
#ifndef AIO_MEM_H
#define AIO_MEM_H

#include <stdint.h>

/* The context of back end `mem`. Every attached file is these bytes. Read by the drive's thread;
 * the caller may look at `bytes` when nothing is in flight, and change the rates between runs. */
struct aio_mem_disk {
    unsigned char *memory; /* owned */
    uint64_t bytes;
    uint64_t read_bytes_per_s;  /* 0: as fast as memory is */
    uint64_t write_bytes_per_s; /* the same; both share one drive */
    int64_t latency_ns;         /* added to each transfer */
    int64_t free_ns;            /* when the drive has done what was asked of it */
};

/* Zeroed bytes. */
int aio_mem_create(uint64_t bytes, struct aio_mem_disk **out);
void aio_mem_destroy(struct aio_mem_disk *disk);

#endif
