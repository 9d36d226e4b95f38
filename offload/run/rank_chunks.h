/* rank_chunks.h: chunks of a rank's weights and states while the tapes rest: where each lies, the slots of
 * the host that they pass through, and their ways between these. For rank_load.c and rank_out.c. */
#ifndef OFFLOAD_RUN_RANK_CHUNKS_H
#define OFFLOAD_RUN_RANK_CHUNKS_H

#include "offload/plan/layout.h"
#include "offload/run/rank_internal.h"

/* Slots of the host that hold a chunk each, its weights too where the device is another: those of
 * states, or of weights where no states move. Returns how many. */
uint32_t run_chunk_slots(const struct run_rank *rank, char *slots[PLAN_STATE_SLOT_MAX]);

struct run_chunk {
    uint32_t block;
    uint32_t index;
    uint64_t first; /* in the block's array */
    uint64_t count;
};

/* The chunk `index` of the states of a block; how many there are. */
struct run_chunk run_chunk_at(const struct run_rank *rank, uint32_t block, uint32_t index);
uint32_t run_chunk_count(const struct run_rank *rank, uint32_t block);

/* Working weights of a block where they stay in the host's reach; NULL where they lie in STORE or on
 * the card alone. On a device whose memory the host does not see the HOST copy is the one that
 * counts. */
char *run_chunk_weights_memory(const struct run_rank *rank, uint32_t block);
/* The same of a chunk's states. */
char *run_chunk_states_memory(const struct run_rank *rank, const struct run_chunk *chunk);

/* Begins to move a chunk from the host's memory to where it lies, STORE or the card, or back. Each way
 * keeps its order. */
int run_chunk_put(struct run_rank *rank, const struct store_place *place, void *memory,
                  struct core_fence *out);
int run_chunk_get(struct run_rank *rank, const struct store_place *place, void *memory,
                  struct core_fence *out);

#endif
