/* store_parts.h: what the files of the store (store.c, store_extent.c, store_request.c) share; nobody
 * else includes it. Set-up thread, except where a request is submitted: the queue's owner. */
#ifndef AIO_STORE_PARTS_H
#define AIO_STORE_PARTS_H

#include "aio/extent.h"
#include "aio/store.h"

struct segment {
    unsigned path;
    uint32_t file;   /* of the path's drive */
    uint64_t offset; /* in the file */
    uint64_t at;     /* in the extent */
    uint64_t bytes;
};

struct aio_extent {
    uint64_t bytes;
    uint64_t run, owner;
    struct aio_sum *sums; /* owned, one a MiB; NULL: none are kept */
    bool adopted;         /* in files that are not the store's */
    unsigned segments_count;
    struct segment segments[AIO_PIECES_MAX];
};

struct aio_store {
    unsigned paths_count;
    struct aio_path *paths[AIO_PATHS_MAX];   /* owned */
    struct aio_drive *drives[AIO_PATHS_MAX]; /* borrowed from the paths */
    struct aio_space *spaces[AIO_PATHS_MAX]; /* owned */
    double weights[AIO_PATHS_MAX], credit[AIO_PATHS_MAX];
    uint64_t bytes;
    uint64_t align_bytes, unit_bytes; /* unit: a stripe's grain, whole sums */
    uint64_t run;
    bool no_sums;
};

#endif
