/* image.h: the layout of a checkpoint's files: one safetensors file per stream, one tensor per
 * block, whatever the run's ranks, chunks and tiers. Tensors begin at multiples of 4096; tensors of
 * zeros named "padding.N" fill the gaps. Checksums cover cuts of 64 Ki elements; the last cut of a
 * block includes its padding. Pure; after init any thread may read it. */
#ifndef OFFLOAD_STORE_IMAGE_H
#define OFFLOAD_STORE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/blocks/blocks.h"
#include "offload/plan/plan.h"
#include "offload/plan/shard.h"

enum store_stream {
    STORE_STREAM_WEIGHTS, /* working weights of all blocks (base_apart: of trained ones); the other
                           * streams have only trained blocks */
    STORE_STREAM_MASTER,  /* the bits below the working weights (lo16), or the whole master in
                           * fp32 */
    STORE_STREAM_M,
    STORE_STREAM_V,
    STORE_STREAM_M_SCALES, /* scales of 8-bit moments */
    STORE_STREAM_V_SCALES,
    STORE_STREAM_COUNT
};

enum {
    STORE_CUT_BYTES_MAX = PLAN_CUT_ELEMENTS * 4,
    /* Limit of safetensors' own readers: about 200,000 blocks with names of 255 bytes, or 500,000
     * with short names. */
    STORE_HEADER_BYTES_MAX = 100 * 1000 * 1000,
};

struct store_image {
    struct plan_format format; /* format of blocks whose weights have the run's type */
    /* type of these blocks' weights: "BF16", as safetensors names it */
    char weight_dtype[8];
    const struct blocks *blocks; /* borrowed */
    /* owned, [blocks + 1]: offset of each block, and the end */
    uint64_t *offsets[STORE_STREAM_COUNT];
    /* owned, [blocks + 1]: index of each block's first checksum */
    uint64_t *first_cuts[STORE_STREAM_COUNT];
    /* owned: the length of each file's header, then the header */
    char *headers[STORE_STREAM_COUNT];
    uint64_t header_bytes[STORE_STREAM_COUNT]; /* a multiple of 4096 */
};

/* Returns "weights", "m_scales" ... The file is NAME.safetensors. */
const char *store_stream_name(enum store_stream stream);

/* Returns -EINVAL for a block name that the files use themselves, -EFBIG if names are too long for
 * a header; with a message. */
int store_image_init(struct store_image *image, const struct plan_format *format,
                     const char *weight_dtype, const struct blocks *blocks);
/* Accepts a zeroed struct. */
void store_image_fini(struct store_image *image);

/* Returns the type of a block's weights as safetensors names it; NULL: the type of the run. */
const char *store_block_dtype(enum block_weights weights);

/* Returns the bytes of a block's tensor without padding; 0: no tensor. */
uint64_t store_image_bytes(const struct store_image *image, enum store_stream stream,
                           uint32_t block);
/* Returns whether any block has the stream, so that its file exists. */
bool store_image_has(const struct store_image *image, enum store_stream stream);
uint64_t store_image_file_bytes(const struct store_image *image, enum store_stream stream);
/* Return the number of checksums of a stream, and of all streams. */
uint64_t store_image_cuts(const struct store_image *image, enum store_stream stream);
uint64_t store_image_cuts_all(const struct store_image *image);

/* A cut of a block's tensor: offset in the file, bytes without and with padding. */
struct store_cut {
    uint64_t offset;
    uint64_t bytes;
    uint64_t padded_bytes;
};
struct store_cut store_image_cut(const struct store_image *image, enum store_stream stream,
                                 uint32_t block, uint64_t index);

/* Addresses of a range of elements, by stream; NULL: the stream is not moved. */
struct store_arrays {
    char *at[STORE_STREAM_COUNT];
};

#endif
