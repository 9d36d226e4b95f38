/* cache_internal.h: the state of a cache, for this module only. Calls go to the right: cache.c ->
 * pass.c -> operation.c, order.c -> device.c, table.c -> slots.c -> transfer.c; and cache.c ->
 * drives.c -> transfer.c. `lock` guards everything, except in cache_create and cache_destroy. */
#ifndef OFFLOAD_CACHE_CACHE_INTERNAL_H
#define OFFLOAD_CACHE_CACHE_INTERNAL_H

#include <pthread.h>

#include "aio/backend.h"
#include "aio/space.h"
#include "core/base/bell.h"
#include "core/base/fence.h"
#include "core/base/mem.h"
#include "core/dev/dev.h"
#include "offload/cache/cache.h"
#include "offload/cache/transfer.h"

#define BLOCK_NEVER UINT64_MAX /* not used in the recorded order */

struct block {
    struct block *next; /* in its bucket */
    uint64_t hash;
    uint64_t bytes;
    unsigned char *slot;       /* in the region; NULL: not in memory */
    struct aio_extent *extent; /* owned; NULL: not in the store */
    /* the extent has the block's bytes, or will after `cleaning` */
    bool stored;
    /* the slot is being read from the extent, or written to it */
    bool loading, cleaning;
    bool stuck;              /* could not be written, so it stays in memory */
    uint32_t pins;           /* gets whose slot is not released yet */
    uint32_t held;           /* operations during which the slot must stay */
    uint32_t issued, served; /* operations begun, and done */
    uint32_t mentions;       /* times in `recorded` and `recording` */
    uint64_t used;           /* `clock` at its last use */
    uint64_t due;            /* next use in the order, or BLOCK_NEVER */
    /* index in the heap of evictable blocks, plus one; 0: not there */
    size_t heap;
    void *copy; /* in device memory; may be NULL */
    uint32_t copy_pins;
    char name[];
};

enum operation_kind { OPERATION_PUT, OPERATION_GET, OPERATION_DROP };
enum operation_phase {
    PHASE_WAITS, /* operation_step tries to continue */
    PHASE_TRANSFERS,
    PHASE_COPIES_UP,   /* the block is being copied to the device */
    PHASE_COPIES_DOWN, /* bytes are being copied from the device */
    PHASE_COPIES,      /* memory must be or is being copied without the lock */
    PHASE_DONE,
};

struct operation {
    uint64_t token;
    enum operation_kind kind;
    enum operation_phase phase;
    uint32_t awaited; /* unfinished waits, for which the result is kept */
    bool copying;     /* a thread is copying */
    bool background, through, on_device;
    struct core_fence copied;        /* reached when the copy up or down is done */
    struct operation *next, *before; /* among unfinished operations */
    struct block *block;
    uint32_t turn; /* runs when block->served reaches this */
    const unsigned char *from;
    unsigned char *to;
    uint64_t bytes;
    unsigned char *slot;       /* receives the copy of a put */
    struct aio_extent *extent; /* owned; for a put that writes through */
    int rc;
    struct cache_result result;
    char message[CORE_LINE_MESSAGE_BYTES];
};

/* Blocks in the order of their uses. */
struct order {
    struct block **blocks; /* owned, [room]; counted in the blocks' `mentions` */
    uint64_t count, room;
};

enum { QUEUE_NOW, QUEUE_LATER, QUEUE_WRITE, QUEUE_COUNT };

struct cache {
    pthread_mutex_t lock;
    pthread_t thread;
    bool started, ending;
    bool ended; /* an operation has ended since the lock was taken */
    const struct core_log *log;
    struct core_bell work; /* rung by queues' lines, cache_delegate, cache_destroy */
    struct core_bell done; /* rung by cache_unlock when operations have ended */

    struct core_region region;
    struct aio_space *space; /* owned: free ranges of the region */
    uint64_t host_used_bytes, host_peak_bytes;
    /* unfinished transfers and copies, whose ends may free memory */
    uint64_t transient;
    uint64_t cleaning_bytes; /* bytes of slots being written */
    /* an operation of this pass waits for memory, so later ones take none */
    bool starved;
    uint64_t stuck_count;
    struct core_err unclean; /* why the last stuck block could not be written */
    struct block **heap;     /* owned, [heap_room]: evictable blocks; [0] is evicted first */
    size_t heap_count, heap_room;

    struct aio_store *store; /* owned; NULL: none */
    struct transfers queues[QUEUE_COUNT];
    struct store_directory *directories; /* owned, [directory_count] */
    unsigned directory_count;
    uint64_t next_owner;

    struct block **buckets; /* owned, [bucket_count], a power of two */
    size_t bucket_count, block_count;

    struct operation *operations; /* owned, [CACHE_TOKENS]: token t is at t % CACHE_TOKENS */
    uint64_t next_token;
    struct operation *oldest, *newest; /* unfinished operations */

    struct dev_device *device; /* owned; NULL: none */
    struct dev_queue *up;      /* owned, like `down` */
    struct dev_queue *down;
    uint64_t device_bytes;
    bool registered;       /* the region with the device */
    struct block **copies; /* owned, [copies_room]: blocks with a copy on the device */
    size_t copies_count, copies_room;

    struct order recorded, recording;
    /* owned, [recorded.count]: the next position of the same block */
    uint64_t *again;
    /* positions in the recorded order of the next use and the next prefetch */
    uint64_t at, ahead;
    bool marked;     /* an iteration was begun, so uses are recorded */
    bool strayed;    /* this iteration does not follow the recorded order */
    unsigned strays; /* consecutive uses that did not follow the order */
    uint64_t clock;  /* uses so far */

    struct cache_stats stats;
};

/* ---- table.c: blocks by name ---- */

struct block *table_find(const struct cache *cache, const char *name);
/* Finds or adds a block. NULL: no memory, with a message. */
struct block *table_add(struct cache *cache, const char *name);
/* Returns whether the block has bytes anywhere. */
bool table_holds(const struct block *block);
/* Frees the block if it has no bytes and nothing refers to it. */
void table_settle(struct cache *cache, struct block *block);
void table_fini(struct cache *cache);

/* ---- slots.c: memory of blocks, and which of them is evicted next ---- */

uint64_t slots_round(uint64_t bytes);
/* Takes memory; evicts blocks with no use before `due` (0: any block). Returns -EAGAIN, without a
 * message, to try again later. */
int slots_take(struct cache *cache, uint64_t bytes, uint64_t due, unsigned char **out);
void slots_give(struct cache *cache, unsigned char *slot, uint64_t bytes);
void slots_drop(struct cache *cache, struct block *block);
void slots_unstick(struct cache *cache, struct block *block);
/* Moves a changed block within, into or out of the heap. */
void slots_sort(struct cache *cache, struct block *block);
/* Rebuilds the heap after many positions have changed. */
void slots_rebuild(struct cache *cache);
/* Makes room in the heap for another block, so that slots_sort cannot fail. */
int slots_reserve(struct cache *cache);

/* The distance of a block's next use, to compare with other blocks. */
uint64_t slots_distance(const struct block *block);

/* ---- device.c: copies in device memory ---- */

int device_open(struct cache *cache, const char *name, uint64_t bytes);
/* Accepts a cache without a device. */
void device_close(struct cache *cache);
/* Begins to copy a block's slot to the device; the slot must stay until *fence is reached. Returns
 * -EAGAIN to try again later. */
int device_copy(struct cache *cache, struct block *block, struct core_fence *fence);
/* Begins to copy an operation's bytes from device memory to its slot. Returns -EAGAIN to try again
 * later. */
int device_fetch(struct cache *cache, const struct operation *operation, struct core_fence *fence);
/* Frees the block's copy, if any; it must not be pinned. */
void device_drop(struct cache *cache, struct block *block);

/* ---- order.c: the recorded order ---- */

void order_use(struct cache *cache, struct block *block);
/* Returns the next block to read ahead, and sets *due to the position of its use; NULL: none. */
struct block *order_next(struct cache *cache, uint64_t *due);
int order_turn(struct cache *cache);
void order_fini(struct order *order);

/* ---- operation.c: the steps of an operation ---- */

/* Releases the lock, then wakes the waiters of ended operations. */
void cache_unlock(struct cache *cache);

/* Advances an operation as far as possible under the lock. */
void operation_step(struct cache *cache, struct operation *operation);
/* Begins to read a block, for `operation` or, if that is NULL, ahead of its use. `due` as in
 * slots_take. */
int operation_load(struct cache *cache, struct block *block, uint64_t due,
                   struct operation *operation, unsigned queue);
/* Ends a transfer with result `rc`; its operation ends or continues. */
void operation_end_transfer(struct cache *cache, const struct transfer *transfer, int rc);
/* Ends an operation's copy to or from the device with result `rc`. */
void operation_copied(struct cache *cache, struct operation *operation, int rc);
/* Copies for an operation in PHASE_COPIES without the lock, which is held before and after. */
void operation_copy(struct cache *cache, struct operation *operation);

/* ---- pass.c ---- */

/* The lock is held. */
void cache_pass(struct cache *cache);
/* Wakes the cache's thread if a queue is broken or bytes must be copied. */
void cache_delegate(struct cache *cache);
/* The cache's thread; `argument` is the cache. */
void *cache_main(void *argument);

/* ---- drives.c: the store on its drives ---- */

int drives_open(struct cache *cache, const struct cache_options *options);
/* Call it after the queues are closed. Accepts a cache without a store. */
int drives_close(struct cache *cache);

#endif
