/* image.h: how a checkpoint lies in files: one safetensors file a stream, one tensor a block, whole
 * blocks whatever the ranks, chunks and tiers of the run that wrote it. Tensors begin at multiples of
 * 4096; what is between them are tensors of zeros named "padding.N". Sums are taken over cuts of 64 Ki
 * elements; that of a block's last cut covers the padding behind it.
 * Pure; constant once made, any thread reads. */
#ifndef OFFLOAD_STORE_IMAGE_H
#define OFFLOAD_STORE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/plan/plan.h"

enum store_stream {
    STORE_STREAM_WEIGHTS, /* working weights, of all blocks; the others of trained ones alone */
    STORE_STREAM_MASTER,  /* the remainder below them (lo16), or the whole in fp32 */
    STORE_STREAM_M,
    STORE_STREAM_V,
    STORE_STREAM_M_SCALES, /* of moments of 8 bits */
    STORE_STREAM_V_SCALES,
    STORE_STREAM_COUNT
};

enum { STORE_CUT_BYTES_MAX = 65536 * 4, STORE_BLOCK_NAME_BYTES = 24, STORE_BLOCKS_MAX = 4096 };

struct store_image_block {
    char name[STORE_BLOCK_NAME_BYTES];
    uint64_t elements;
    bool trained;
};

struct store_image {
    struct plan_format format;
    char weight_dtype[8]; /* "BF16", as safetensors spells it */
    uint32_t block_count;
    struct store_image_block *blocks;      /* owned */
    uint64_t *offsets[STORE_STREAM_COUNT]; /* owned, [block_count + 1]: in the file; then its end */
    uint64_t *first_cuts[STORE_STREAM_COUNT]; /* owned, [block_count + 1]: in the stream's sums */
    char *headers[STORE_STREAM_COUNT]; /* owned; what each file begins with, its length too */
    uint64_t header_bytes[STORE_STREAM_COUNT]; /* a multiple of 4096 */
};

/* "weights", "m_scales". The file is NAME.safetensors. */
const char *store_stream_name(enum store_stream stream);

/* `blocks` is copied. -EINVAL with a sentence where sizes mean nothing. */
int store_image_init(struct store_image *image, const struct plan_format *format,
                     const char *weight_dtype, const struct store_image_block *blocks,
                     uint32_t block_count);
/* A zeroed one is fine. */
void store_image_fini(struct store_image *image);

/* Bytes of a block's tensor without padding; 0: it has none. */
uint64_t store_image_bytes(const struct store_image *image, enum store_stream stream,
                           uint32_t block);
/* Whether any block has it: whether there is a file. */
bool store_image_has(const struct store_image *image, enum store_stream stream);
uint64_t store_image_file_bytes(const struct store_image *image, enum store_stream stream);
/* Sums of a stream; of all. */
uint64_t store_image_cuts(const struct store_image *image, enum store_stream stream);
uint64_t store_image_cuts_all(const struct store_image *image);

/* Cut `index` of a block's tensor: where in the file, how many bytes, and with padding. */
struct store_cut {
    uint64_t offset;
    uint64_t bytes;
    uint64_t padded_bytes;
};
struct store_cut store_image_cut(const struct store_image *image, enum store_stream stream,
                                 uint32_t block, uint64_t index);

/* Where each stream of a range of elements lies in memory; NULL: not moved. */
struct store_arrays {
    char *at[STORE_STREAM_COUNT];
};

#endif
