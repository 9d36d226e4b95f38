/* cache.h: named blocks of bytes in a budget of host memory and in a store. A block is in a slot
 * (in memory), in an extent (in the store), or in both. The slot of a block that is not in the
 * store is dirty, and is written to the store before the block is evicted.
 * How a call becomes I/O:
 *
 *     caller ── lock ──▶ operation ── its turn on the block ──▶ takes free memory, or evicts blocks
 *                                                                  │ (dirty ones are written first)
 *     thread of a drive ◀── queue of the store ◀── transfer ◀──────┘
 *          │ the queue's line rings the bell
 *          ▼
 *     the cache's thread ── lock ──▶ ends transfers and operations, reads ahead ──▶ wakes waiters
 *
 * One lock guards everything; copies and I/O run without it. A call takes its operation as far as
 * possible without waiting; later calls and the cache's thread continue it. Operations on one block
 * run in the order in which they were begun; operations on different blocks may overlap.
 * The order in which blocks are read is recorded from one cache_iteration to the next, and blocks
 * are then read ahead in that order. Blocks that are not in the order are evicted first, longest
 * unused ones first; then the block whose next use is farthest away.
 * Any thread may call. While cache_destroy runs, no other call may run. */
#ifndef OFFLOAD_CACHE_CACHE_H
#define OFFLOAD_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "aio/store.h"

struct cache;

/* the cache's directory, inside the caller's */
#define CACHE_FOLDER_NAME "tide-blocks"

enum {
    CACHE_NAME_MAX = 255,
    CACHE_TOKENS = 1024,         /* places for unfinished operations and results */
    CACHE_ALIGN_BYTES = 4096,    /* of addresses and sizes, for I/O without a copy */
    CACHE_STORE_BYTES = 1 << 20, /* paths' limits are rounded down to multiples of this */
};

struct cache_options {
    uint64_t host_bytes; /* for slots; rounded down to a multiple of 4096 */
    const struct aio_store_path *paths;
    unsigned path_count; /* up to AIO_PATHS_MAX; 0: blocks are only in memory */
    const char *backend; /* NULL: probed; "mem": memory instead of directories */
    bool no_sums;
    const char *device;    /* NULL: "cpu" */
    uint64_t device_bytes; /* for copies on the device; 0: none */
    struct aio_drive_options drive;
    const struct iovec *memory; /* the caller's memory to register for direct I/O */
    unsigned memory_count;
};

int cache_create(const struct cache_options *options, struct cache **out);
/* Cancels unfinished operations and drops all blocks. Returns -ETIMEDOUT if a drive does not
 * respond; the cache then leaks, because the drive may still access its memory. Accepts NULL. */
int cache_destroy(struct cache *cache);

/* ---- operations ----
 * Each operation has a token, which names its result. The message of a failed operation names its
 * block. */

struct cache_request {
    const char *name; /* 1 to CACHE_NAME_MAX bytes */
    /* put: the bytes, borrowed until the operation is done; device memory if on_device. */
    const void *from;
    /* get: receives the block; NULL: pins the block in its slot or, if on_device, on the device */
    void *to;
    uint64_t bytes;  /* of `from`, or room at `to` */
    bool background; /* the I/O has a lower priority */
    /* put: keeps no copy in memory; ignored if `from` or `bytes` is not aligned, if on_device, or
     * if the store has no room */
    bool through;
    /* get: pins a copy in device memory, with `to` NULL. put: the bytes are in device memory */
    bool on_device;
};

struct cache_result {
    void *data; /* of a get: `to`, or the pinned slot or device copy, valid until cache_release */
    uint64_t bytes;
};

/* Begin an operation. Return -EAGAIN if CACHE_TOKENS operations are unfinished or waited for; a get
 * returns -ENOENT if there is no such block. Later errors are results. */
int cache_put(struct cache *cache, const struct cache_request *request, uint64_t *token);
int cache_get(struct cache *cache, const struct cache_request *request, uint64_t *token);

/* Returns 1 after success, 0 if the operation is not done, else its error; -ENOENT if the token is
 * unknown or its result is no longer kept. `out` may be NULL. */
int cache_poll(struct cache *cache, uint64_t token, struct cache_result *out);
/* Like cache_poll(), but waits. Returns 0 or the error. The result is kept while a call waits for
 * it. */
int cache_wait(struct cache *cache, uint64_t token, struct cache_result *out);

/* Begin an operation and wait for its result. */
int cache_put_now(struct cache *cache, const struct cache_request *request);
int cache_get_now(struct cache *cache, const struct cache_request *request,
                  struct cache_result *out);
int cache_drop(struct cache *cache, const char *name);

/* Ends one pin. `changed`: the caller has written to the slot or device copy. A changed device copy
 * is put before the pin ends; if that fails, the pin stays. */
int cache_release(struct cache *cache, const char *name, bool changed);
/* Starts to read a block into memory, if that is possible without waiting. */
int cache_prefetch(struct cache *cache, const char *name);
/* Begins an iteration, which reads ahead in the last one's order. */
int cache_iteration(struct cache *cache);

struct cache_look {
    uint64_t bytes;
    uint32_t pins;
    bool in_memory, in_store, on_device;
};
int cache_look(struct cache *cache, const char *name, struct cache_look *out);

struct cache_stats {
    /* memory of slots: budget, in use, most in use */
    uint64_t host_bytes, host_used_bytes, host_peak_bytes;
    uint64_t store_bytes, store_used_bytes;
    uint64_t device_bytes, device_used_bytes;
    uint64_t gets, hits; /* hits: in memory or on the way there */
    uint64_t read_bytes, written_bytes;
    uint64_t evictions;
    uint64_t prefetches;    /* blocks read ahead in the recorded order */
    uint64_t order_changes; /* iterations with another order than the previous one */
};
void cache_stats_take(struct cache *cache, struct cache_stats *out);

#endif
