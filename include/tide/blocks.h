/* blocks.h: a store of named blocks of bytes that can be larger than memory: blocks are kept in
 * host memory up to a budget, and on drives beyond it. The rules of tide.h apply. docs/api.md has a
 * short program.
 *
 * A block is in host memory, on the drives, or in both. If memory runs out, blocks that are not
 * pinned are evicted: first those that do not occur in the recorded order of uses
 * (tide_blocks_iteration), least recently used first; then those whose next use is farthest away. A
 * block that is not on the drives is written there first. If the drives are full or fail, such
 * blocks stay in memory and can be read, and calls that need more memory may fail.
 *
 * Memory: `host_bytes`, allocated and touched at creation, and up to 16 MiB more (a GPU's driver
 * and `io` "mem" take more). 16 MiB suffice for about 30,000 blocks with names of up to 50 bytes; a
 * further block takes about 400 bytes.
 *
 * A block takes one contiguous piece of memory; on the drives it takes pieces of whole MiB and a
 * rest. Blocks of very different sizes leave gaps, so budgets need some room to spare.
 *
 * Files: the library creates its own directory, tide-blocks, in each directory of `stores` and
 * reserves the whole limit there. One store at a time uses a directory. Destroying the store
 * removes its files. The next store there reuses or removes what a killed process left.
 *
 * Threads: several threads may call functions of one block store at the same time, except destroy.
 * Puts, gets and drops of one block run in the order of their calls.
 *
 * A forked child has neither memory nor threads of a block store: functions return -ECHILD there,
 * and destroy does nothing. */
#ifndef TIDE_BLOCKS_H
#define TIDE_BLOCKS_H

#include <stddef.h>
#include <stdint.h>
#include <tide/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tide_blocks;

/* Memory of the application. */
struct tide_memory {
    size_t struct_bytes;
    void *memory;
    uint64_t bytes;
};

struct tide_blocks_options {
    size_t struct_bytes;
    uint64_t host_bytes; /* budget of host memory for blocks; at least 4096 */
    /* `bytes` of each store is required, because the space is reserved at once: at least 1 MiB;
     * rounded down to whole MiB. */
    const struct tide_store_path *stores;
    size_t store_count; /* up to TIDE_STORES_MAX; 0: blocks are in memory only */
    /* "uring", "libaio" or "threads"; NULL: the first one that works. "mem": memory instead of
     * drives */
    const char *io;
    uint32_t depth;        /* transfers of up to 1 MiB in flight per drive; 0: 32 */
    uint32_t no_checksums; /* 1: data is not verified when it is read */
    /* Optional: buffers for puts and gets, up to about 1000. They must stay mapped as long as the
     * store exists. If the I/O back end can register them with the kernel, this saves processor
     * time. */
    const struct tide_memory *memory;
    size_t memory_count;
    const char *device;    /* "cpu" (or NULL), "cuda", "cuda:N" */
    uint64_t device_bytes; /* budget of device memory for copies of blocks; 0: none */
};

/* Creates a block store. Returns 0 or an error. -EBUSY: a store uses one of the directories.
 * -ENOSPC, -EFBIG: the space cannot be reserved. */
TIDE_API int tide_blocks_create(struct tide_context *context,
                                const struct tide_blocks_options *options,
                                struct tide_blocks **out);
/* Destroys a store and its blocks; pinned blocks become invalid. No other thread may be using
 * it. */
TIDE_API void tide_blocks_destroy(struct tide_blocks *blocks);

/* ---- Blocks ---- */

/* The result of a get. */
struct tide_block {
    size_t struct_bytes;
    /* the caller's buffer, or the pinned memory on host or device, valid until it is released */
    void *data;
    uint64_t bytes;
};

/* Stores `bytes` bytes under a name of 1 to 255 bytes, and replaces an earlier block of this name.
 * Returns 0 or an error. -EBUSY: the block is pinned. -ENOMEM, -ENOSPC: there is no place for the
 * new bytes; an earlier block stays. -EAGAIN: TIDE_BLOCKS_TOKENS operations are not done yet. */
TIDE_API int tide_blocks_put(struct tide_blocks *blocks, const char *name, const void *data,
                             uint64_t bytes);

/* Reads a block into `buffer`, which has room for `bytes` bytes. `out` may be NULL if there is a
 * buffer. A block that is only on the drives is read straight into the buffer if the block's size
 * and the buffer's address are multiples of 4096. `buffer` NULL: pins the block in the store's
 * memory. The data of *out is valid, and may be written to, until tide_blocks_release was called
 * once for each such get of the block. Returns 0 or an error. -ENOENT: there is no such block.
 * -EBUSY: `buffer` is NULL and the block is pinned on the device. -ENOMEM, -ENOSPC: no memory can
 * be freed for the block. -EBADMSG: the drives returned other bytes than were written. -EAGAIN like
 * tide_blocks_put. The error may be one of writing an evicted block. */
TIDE_API int tide_blocks_get(struct tide_blocks *blocks, const char *name, void *buffer,
                             uint64_t bytes, struct tide_block *out);

/* Ends one pin. `changed` is 1 if the application has written to the pinned memory. Memory on the
 * device is then first copied to the host; if that fails, the pin stays, and the error is one of
 * tide_blocks_put. Returns 0 or an error. */
TIDE_API int tide_blocks_release(struct tide_blocks *blocks, const char *name, int changed);

/* Begins to read a block into host memory, if that is possible without waiting. Returns 0 or an
 * error. */
TIDE_API int tide_blocks_prefetch(struct tide_blocks *blocks, const char *name);

/* Deletes a block. Returns 0 or an error. -ENOENT: there is none. -EBUSY: it is pinned. -EAGAIN
 * like tide_blocks_put. */
TIDE_API int tide_blocks_drop(struct tide_blocks *blocks, const char *name);

/* ---- Asynchronous operations ---- */

/* Options of an operation. */
struct tide_block_io {
    size_t struct_bytes;
    uint32_t background; /* 1: its transfers have a lower priority than those of other operations */
    /* 1: a put writes `data` to the drives and keeps no copy in memory. No effect without `stores`,
     * if `data` is device memory, if its address or `bytes` is not a multiple of 4096, or if the
     * drives have no room for it. */
    uint32_t through;
    /* enum tide_place: where a get without a buffer pins the block. TIDE_AUTO, TIDE_HOST: in host
     * memory. TIDE_DEVICE: in a copy on the device, which stays for later gets while there is
     * memory. In a put, TIDE_DEVICE means that `data` is device memory, which may be the pinned
     * copy of the block. -EINVAL: TIDE_STORE, and TIDE_DEVICE in a get with a buffer */
    uint64_t place;
};

/* Number of operations that the library keeps: unfinished ones, and results. */
enum { TIDE_BLOCKS_TOKENS = 1024 };

/* Begins a put. *token names the operation. `data` is borrowed until the operation is done. `io`
 * NULL: all zero. A result is kept until a later operation takes its place; unfinished operations
 * keep their places. Returns 0 or an error. -EAGAIN: TIDE_BLOCKS_TOKENS operations are not done
 * yet. Errors of the operation itself are returned for the token. */
TIDE_API int tide_blocks_put_begin(struct tide_blocks *blocks, const char *name, const void *data,
                                   uint64_t bytes, const struct tide_block_io *io, uint64_t *token);
/* Begins a get, with a token as above; `buffer` is borrowed until the operation is done. A get
 * without a buffer pins its block even if nobody waits for the get. A block can be pinned on the
 * host or on the device, not on both. Returns 0 or an error. -ENOENT: there is no such block.
 * -EAGAIN as above. */
TIDE_API int tide_blocks_get_begin(struct tide_blocks *blocks, const char *name, void *buffer,
                                   uint64_t bytes, const struct tide_block_io *io, uint64_t *token);

/* Tells whether an operation is done; `out` (may be NULL) receives the block of a get. Returns 1
 * after success, 0 if it is not done, or the operation's error, with a message that names the
 * block. -ENOENT, too, if the result is no longer kept. */
TIDE_API int tide_blocks_poll(struct tide_blocks *blocks, uint64_t token, struct tide_block *out);
/* Waits for an operation; several threads may wait for one. The result is kept as long as a thread
 * waits. Returns 0 after success, or an error like tide_blocks_poll. */
TIDE_API int tide_blocks_wait(struct tide_blocks *blocks, uint64_t token, struct tide_block *out);

/* ---- The order of uses ---- */

/* Begins an iteration. The library expects its gets in the previous iteration's order, and reads
 * blocks ahead in that order as memory allows, also the next iteration's first ones. Another order
 * works, too; it is logged and counted, and expected in the next iteration. Returns 0 or an
 * error. */
TIDE_API int tide_blocks_iteration(struct tide_blocks *blocks);

/* ---- Information ---- */

struct tide_block_info {
    size_t struct_bytes;
    uint64_t bytes;
    uint32_t in_memory; /* 1: a get need not read the drives */
    uint32_t in_store;  /* 1: the drives have its bytes */
    uint64_t pins;
    uint64_t on_device; /* 1: the device has a copy */
};

/* Describes a block. Returns 0 or an error. -ENOENT: there is none. */
TIDE_API int tide_blocks_describe(struct tide_blocks *blocks, const char *name,
                                  struct tide_block_info *out);

/* Memory and drive space in use, and counts since creation. */
struct tide_blocks_stats {
    size_t struct_bytes;
    uint64_t host_bytes; /* the budget */
    uint64_t host_used_bytes;
    uint64_t host_peak_bytes; /* largest host_used_bytes so far */
    uint64_t store_bytes;     /* sum of the stores' limits */
    uint64_t store_used_bytes;
    uint64_t gets;
    uint64_t hits; /* gets that found the block in memory, or on its way there */
    uint64_t read_bytes;
    uint64_t written_bytes;
    uint64_t evictions;  /* blocks removed from memory to make room */
    uint64_t prefetches; /* blocks read ahead in the recorded order */
    /* iterations with another order of gets than the previous one */
    uint64_t order_changes;
    uint64_t device_bytes; /* the budget on the device */
    uint64_t device_used_bytes;
};

/* Counts what the store has and did. Returns 0 or an error. */
TIDE_API int tide_blocks_stats(struct tide_blocks *blocks, struct tide_blocks_stats *out);

/* ---- Memory for others ---- */

/* Host memory for buffers of fast transfers: touched, on large pages if possible, from a multiple
 * of 4096 bytes on. */
struct tide_pinned;

/* Allocates `bytes` zero bytes. `device` says what uses the memory. NULL or "cpu": drives. "cuda"
 * or "cuda:N": drives and that GPU; the memory is pinned for its copies if the driver permits that.
 * A forked child does not have the memory. Returns 0 or an error. */
TIDE_API int tide_pinned_alloc(struct tide_context *context, const char *device, uint64_t bytes,
                               struct tide_pinned **out);
/* Returns the memory's address; NULL for NULL. */
TIDE_API void *tide_pinned_memory(const struct tide_pinned *pinned);
/* Frees the memory, which no operation may be using. Does nothing in a forked child. Accepts
 * NULL. */
TIDE_API void tide_pinned_free(struct tide_pinned *pinned);

#ifdef __cplusplus
}
#endif

#endif
