/* chunks.h: moves chunks of weights and states through slots of the host while no tape runs. One
 * thread at a time calls. */
#ifndef OFFLOAD_RUN_CHUNKS_H
#define OFFLOAD_RUN_CHUNKS_H

#include "offload/plan/layout.h"
#include "offload/run/rank_internal.h"

struct run_chunk {
    uint32_t block;
    uint32_t index;
    uint64_t first; /* first element, counted in the block */
    uint64_t count;
};

/* Returns chunk `index` of a block's states, and the number of such chunks. */
struct run_chunk run_chunk_at(const struct run_rank *rank, uint32_t block, uint32_t index);
uint32_t run_chunk_count(const struct run_rank *rank, uint32_t block);

/* Returns a block's working weights in host memory; NULL: they are in STORE or only on the card. */
char *run_chunk_weights_memory(const struct run_rank *rank, uint32_t block);
/* Like run_chunk_weights_memory(), for a chunk's states. */
char *run_chunk_states_memory(const struct run_rank *rank, const struct run_chunk *chunk);

/* Begins to move a chunk from host memory to its place in STORE or on the GPU, or back. */
int run_chunk_put(struct run_rank *rank, const struct store_place *place, void *memory,
                  struct core_fence *out);
int run_chunk_get(struct run_rank *rank, const struct store_place *place, void *memory,
                  struct core_fence *out);

/* ---- blocks that compute reads by pages ---- */

/* A part of a block in STORE that compute reads by pages. Two parts fit into the block's slot for
 * pages, or one if the slot is too short for two. Only if the device is the host. */
struct run_pages {
    uint32_t block;
    char *slot;
    struct plan_span shard;
    uint64_t most; /* elements of the largest part */
    uint64_t type_bytes;
    uint32_t turns;        /* number of parts that fit into the slot: 1 or 2 */
    uint32_t turn;         /* place of this part in the slot, from 0 */
    struct plan_span span; /* this part; empty at first */
    char *memory;
};

struct run_pages run_pages_of(const struct run_rank *rank, uint32_t block);
/* Advances to the first or next part; false: there is none. */
bool run_pages_next(struct run_pages *pages);
int run_pages_put(struct run_rank *rank, const struct run_pages *pages, struct core_fence *out);
int run_pages_get(struct run_rank *rank, const struct run_pages *pages, struct core_fence *out);

/* Reads whole pages of this rank's shard of a block in STORE, from byte `first`, and waits. */
int run_pages_read(struct run_rank *rank, uint32_t block, uint64_t first, uint64_t bytes,
                   char *memory);

/* ---- slots in rotation ---- */

struct run_slot {
    char *memory;
    struct core_fence moved; /* reached when the slot's last move is done */
    /* for the caller's own waits; 0 at first */
    uint64_t mark;
};

/* Slots in turn: some are filled while others are emptied. */
struct run_slots {
    struct run_slot at[PLAN_STATE_SLOT_MAX];
    uint32_t count;
    uint32_t next;
};

/* Sets up the plan's slots for chunks of states or, if there are none, of weights. There may be no
 * slots. */
void run_slots_init(struct run_slots *slots, const struct run_rank *rank);
/* Returns the next slot. The caller waits until the slot is free. */
struct run_slot *run_slots_next(struct run_slots *slots);
/* Returns the slot that comes half a rotation later. */
struct run_slot *run_slots_opposite(struct run_slots *slots);
/* Waits for the last move of every slot, and returns the first error, or -ETIMEDOUT at once if a
 * queue makes no progress. */
int run_slots_wait(struct run_rank *rank, const struct run_slots *slots);

#endif
