/* chunks.h: finds and moves chunks of a rank's weights and states while no tape runs, between the
 * places where they are kept and the slots of the host that they pass through in turn. For load.c,
 * read_out.c, logits.c and, between steps, the optimizer. Called by the thread of the rank. */
#ifndef OFFLOAD_RUN_CHUNKS_H
#define OFFLOAD_RUN_CHUNKS_H

#include "offload/plan/layout.h"
#include "offload/run/rank_internal.h"

struct run_chunk {
    uint32_t block;
    uint32_t index;
    uint64_t first; /* the chunk's first element, counted in the block */
    uint64_t count;
};

/* Returns chunk number `index` of a block's states, and how many such chunks the block has. */
struct run_chunk run_chunk_at(const struct run_rank *rank, uint32_t block, uint32_t index);
uint32_t run_chunk_count(const struct run_rank *rank, uint32_t block);

/* Returns a block's working weights in memory that the host can access; NULL: they are in STORE, or
 * only on the card. With a card, the copy in HOST is the valid one. */
char *run_chunk_weights_memory(const struct run_rank *rank, uint32_t block);
/* Like run_chunk_weights_memory(), for a chunk's states. */
char *run_chunk_states_memory(const struct run_rank *rank, const struct run_chunk *chunk);

/* Begins to move a chunk from the host's memory to the place where it is kept (STORE or the GPU),
 * or back. Moves in one direction keep their order. */
int run_chunk_put(struct run_rank *rank, const struct store_place *place, void *memory,
                  struct core_fence *out);
int run_chunk_get(struct run_rank *rank, const struct store_place *place, void *memory,
                  struct core_fence *out);

/* ---- blocks that compute reads by pages ---- */

/* A part of a block in STORE that compute reads by pages. Parts pass through the block's slot for
 * pages: each takes half of the slot, or all of it if it has no room for two. Used only if the
 * device is the host. */
struct run_pages {
    uint32_t block;
    char *slot;
    struct plan_span shard; /* the part of the block that this rank keeps */
    uint64_t most;          /* elements of the largest part */
    uint64_t type_bytes;
    uint32_t turns;        /* parts that the slot has room for: 1 or 2 */
    uint32_t turn;         /* this part's place in the slot, from 0 */
    struct plan_span span; /* range of this part; empty at first */
    char *memory;
};

struct run_pages run_pages_of(const struct run_rank *rank, uint32_t block);
/* Advances to the first or next part; returns false after the last one. */
bool run_pages_next(struct run_pages *pages);
/* Begins to write a part to STORE, or to read it. */
int run_pages_put(struct run_rank *rank, const struct run_pages *pages, struct core_fence *out);
int run_pages_get(struct run_rank *rank, const struct run_pages *pages, struct core_fence *out);

/* Reads `bytes` bytes of this rank's shard of a block in STORE, from byte `first`, and waits for
 * the read. The bytes are whole pages. */
int run_pages_read(struct run_rank *rank, uint32_t block, uint64_t first, uint64_t bytes,
                   char *memory);

/* ---- slots in rotation ---- */

/* A slot that a chunk passes through. */
struct run_slot {
    char *memory;
    struct core_fence moved; /* reached when the last move into or out of the slot is done */
    /* 0 at first. For the caller, which may wait for more than `moved` before it reuses the slot;
     * the functions below do not use it. */
    uint64_t mark;
};

/* Slots that are used in turn, so that some are filled while others are emptied. */
struct run_slots {
    struct run_slot at[PLAN_STATE_SLOT_MAX];
    uint32_t count;
    uint32_t next;
};

/* Sets up the slots of the host that hold a chunk each: those of states, or of weights if no states
 * move. If the device is not the host, each slot also has room for the chunk's weights. There may
 * be no slots. */
void run_slots_init(struct run_slots *slots, const struct run_rank *rank);
/* Returns the slot whose turn it is. The caller waits until it is free. */
struct run_slot *run_slots_next(struct run_slots *slots);
/* Returns the slot whose turn it will be half a rotation later. */
struct run_slot *run_slots_opposite(struct run_slots *slots);
/* Waits for the last move of every slot, even after an error, and returns the first error. If a
 * queue makes no progress, returns -ETIMEDOUT at once, whatever error came before. */
int run_slots_wait(struct run_rank *rank, const struct run_slots *slots);

#endif
