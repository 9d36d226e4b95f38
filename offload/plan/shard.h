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

/* Elements, or bytes, of a block's array. */
struct plan_span {
    uint64_t first;
    uint64_t count;
};

/* Returns the elements that are in both spans; there may be none. */
struct plan_span plan_span_overlap(struct plan_span one, struct plan_span other);

/* Returns the number of ranks that share the budgets that the user gives. */
uint32_t plan_sharing(const struct plan_input *input);

/* Returns how many elements of `weight_bytes` a block's weights take in the form in which they are
 * kept: the stored form if they have one, else the weights themselves. */
uint64_t plan_kept_elements(const struct plan_input *input, uint32_t block);

/* Return the elements whose working weights, or whose states, this rank keeps: the whole block or
 * this rank's shard. For weights that are stored in fewer bits, these are elements of the stored
 * form. */
struct plan_span plan_weight_span(const struct plan_input *input, uint32_t block);
struct plan_span plan_state_span(const struct plan_input *input, uint32_t block);

/* Returns the span of `elements` that the shards of the ranks on this rank's node cover. */
struct plan_span plan_node_span(const struct plan_input *input, uint64_t elements);

/* Returns whether a group of ranks keeps a copy of weights from the first gather of a step on. */
bool plan_copies_weights(const struct plan_input *input);
/* Return this rank's part of the copy that its group keeps of a block's plan_kept_elements, and the
 * number of elements of the largest part of any rank. */
struct plan_span plan_copy_span(const struct plan_input *input, uint32_t block);
uint64_t plan_copy_most(const struct plan_input *input, uint32_t block);

/* Returns the part of `pages`, whole pages of a block's weights in bytes, that this rank keeps:
 * whole pages, too. The last page may reach beyond the end of the block. */
struct plan_span plan_weight_pages(const struct plan_input *input, uint32_t block,
                                   struct plan_span pages);

/* Return whether each of several ranks keeps only its shard of the weights (ZeRO stage 3), or of
 * the states (stages 1 to 3). */
bool plan_shards_weights(const struct plan_input *input);
bool plan_shards_states(const struct plan_input *input);

/* Return the number of elements of the largest span of any rank. Buffers have this size, so that
 * all ranks have the same layout. */
uint64_t plan_weight_most(const struct plan_input *input, uint32_t block);
uint64_t plan_state_most(const struct plan_input *input, uint32_t block);

uint64_t plan_chunk_count(uint64_t elements, uint64_t chunk_elements);
/* Returns the elements of one chunk: the last one may be short. */
uint64_t plan_chunk_size(uint64_t elements, uint64_t chunk_elements, uint64_t chunk);

/* The states of a chunk of n elements are packed, one stream after the other: master, m, v, scales
 * of m, scales of v. plan_state_offset says where a stream begins. */
uint64_t plan_state_bytes(const struct plan_format *format, uint64_t n);
uint64_t plan_state_offset(const struct plan_format *format, enum plan_stream stream, uint64_t n);

/* Returns the number of elements before `rank`'s shard of a block: a multiple of 64 Ki, or all of
 * them. */
uint64_t plan_shard_border(uint64_t elements, uint32_t world, uint32_t rank);

/* Returns whether ranks gather a block's weights packed: a code of 8 bits for each, and an fp32
 * scale for each PLAN_PACK_ELEMENTS of them. */
bool plan_packs_weights(const struct plan_input *input, uint32_t block);
/* Returns the bytes of `elements` packed weights: the codes of whole groups, then their scales,
 * then the same for the rest. A packed shard begins at the packed bytes of all elements before
 * it. */
uint64_t plan_packed_bytes(uint64_t elements);
/* Returns how many bytes the first `elements` of a block's weights take in the form in which ranks
 * gather them: packed, or as they are kept. */
uint64_t plan_gathered_bytes(const struct plan_input *input, uint32_t block, uint64_t elements);

/* Returns whether ranks send each other gradients as codes of 4 bits. */
bool plan_codes_gradients(const struct plan_input *input);
uint64_t plan_coded_bytes(uint64_t elements);

#endif
