/* shard.h: divides the elements of a block into shards, chunks, streams and extents. Pure. */
#ifndef OFFLOAD_PLAN_SHARD_H
#define OFFLOAD_PLAN_SHARD_H

#include "offload/plan/types.h"

enum {
    PLAN_CUT_ELEMENTS = 65536, /* shards and chunks begin at multiples of it */
    PLAN_ALIGN_BYTES = 4096,   /* alignment of buffers, and of reads and writes */
    PLAN_EXTENT_BYTES = 4096,  /* extents of STORE are rounded up to it */
    PLAN_PACK_ELEMENTS = 256,  /* packed weights that share a scale */
    PLAN_PACK_ALIGN_BYTES = 64,
    PLAN_CODE_ELEMENTS = 256, /* gradients in a group of codes */
    PLAN_CODE_BYTES = 132,    /* bytes of a group: its codes and their scale */
};

/* Elements or bytes of a block's array. */
struct plan_span {
    uint64_t first;
    uint64_t count;
};

/* Returns the common part of two spans, which may be empty. */
struct plan_span plan_span_overlap(struct plan_span one, struct plan_span other);

/* Returns how many ranks share the user's budgets. */
uint32_t plan_sharing(const struct plan_input *input);

/* Returns a block's size in elements of `weight_bytes`, in the form in which it is kept. */
uint64_t plan_kept_elements(const struct plan_input *input, uint32_t block);

/* Return the elements whose working weights, or states, this rank keeps: the whole block or its
 * shard. Stored weights count in elements of the stored form. */
struct plan_span plan_weight_span(const struct plan_input *input, uint32_t block);
struct plan_span plan_state_span(const struct plan_input *input, uint32_t block);

/* Returns the part of `elements` in the shards of this node's ranks. */
struct plan_span plan_node_span(const struct plan_input *input, uint64_t elements);

/* Returns whether groups of ranks keep copies of weights after a step's first gather. */
bool plan_copies_weights(const struct plan_input *input);
/* Return this rank's part of its group's copy of a block (in plan_kept_elements), and the size of
 * the largest part of any rank. */
struct plan_span plan_copy_span(const struct plan_input *input, uint32_t block);
uint64_t plan_copy_most(const struct plan_input *input, uint32_t block);

/* Returns this rank's part of `pages`, whole pages of a block's weights in bytes. The last page may
 * reach beyond the block. */
struct plan_span plan_weight_pages(const struct plan_input *input, uint32_t block,
                                   struct plan_span pages);

/* Return whether ranks keep only shards of weights (ZeRO stage 3), or of states (stages 1 to 3). */
bool plan_shards_weights(const struct plan_input *input);
bool plan_shards_states(const struct plan_input *input);

/* Return the largest span of any rank. Buffers have this size, so that ranks have equal layouts. */
uint64_t plan_weight_most(const struct plan_input *input, uint32_t block);
uint64_t plan_state_most(const struct plan_input *input, uint32_t block);

uint64_t plan_chunk_count(uint64_t elements, uint64_t chunk_elements);
/* Returns a chunk's elements; the last chunk may be short. */
uint64_t plan_chunk_size(uint64_t elements, uint64_t chunk_elements, uint64_t chunk);

/* A chunk's streams follow each other: master, m, v, scales of m, scales of v. plan_state_offset
 * says where a stream begins. */
uint64_t plan_state_bytes(const struct plan_format *format, uint64_t n);
uint64_t plan_state_offset(const struct plan_format *format, enum plan_stream stream, uint64_t n);

/* Returns the elements before `rank`'s shard: a multiple of 64 Ki, or all of them. */
uint64_t plan_shard_border(uint64_t elements, uint32_t world, uint32_t rank);

/* Returns whether ranks gather a block's weights packed: as codes of 8 bits, with an fp32 scale per
 * PLAN_PACK_ELEMENTS. */
bool plan_packs_weights(const struct plan_input *input, uint32_t block);
/* Returns the bytes of packed weights: codes of whole groups, their scales, then the rest likewise.
 * A shard begins at the packed bytes of the elements before it. */
uint64_t plan_packed_bytes(uint64_t elements);
/* Returns the bytes of a block's first `elements` as ranks gather them: packed, or as they are
 * kept. */
uint64_t plan_gathered_bytes(const struct plan_input *input, uint32_t block, uint64_t elements);

/* Returns whether ranks send gradients as codes of 4 bits. */
bool plan_codes_gradients(const struct plan_input *input);
uint64_t plan_coded_bytes(uint64_t elements);

#endif
