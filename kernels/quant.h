/* quant.h: frozen weights in fewer bits, with bitsandbytes' codes and scales (docs/adapters.md).
 * KERN_EXPAND makes weights again. Any thread. */
#ifndef KERNELS_QUANT_H
#define KERNELS_QUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KERN_NF4_BLOCK = 64,         /* elements that share a scale */
    KERN_NF4_NESTED = 256,       /* scales that share one scale */
    KERN_QUANT_ALIGN_BYTES = 64, /* of stored tensors, and of the offsets in them */
};

const char *
kern_quant_name(enum kern_quant quant);        /* "none", "int8", "nf4", "nf4 with fp32 scales" */
bool kern_quant_is_nf4(enum kern_quant quant); /* NF4 or NF4_F32 */

/* A stored tensor: codes, then scales.
 * - NONE: elements of the type `from`
 * - INT8: a byte per element; an fp32 per row: the largest magnitude
 * - NF4: half a byte per element of the flat array, high half first; a byte of the dynamic map per
 *   block of 64; an fp32 per 256 of these; an fp32 added to all scales
 * - NF4_F32: the codes of NF4; an fp32 per block of 64 */
struct kern_quant_layout {
    uint64_t codes_bytes;
    uint64_t scales; /* offset in bytes */
    uint64_t nested; /* NF4: offset in bytes of the fp32 values */
    uint64_t bytes;  /* in total; a multiple of KERN_QUANT_ALIGN_BYTES */
    int64_t scale_count;
};

struct kern_quant_layout kern_quant_layout_of(enum kern_quant quant, enum kern_type from,
                                              int64_t rows, int64_t cols);

/* Bytes [begin, end) of a stored tensor. */
struct kern_quant_span {
    uint64_t begin, end;
};

/* The bytes that KERN_EXPAND may read for elements [first, first + count) of `part`. A span that
 * the format lacks is empty. */
struct kern_quant_spans {
    struct kern_quant_span codes, scales, nested;
};
struct kern_quant_spans kern_quant_spans_of(const struct kern_expand_arguments *part);
/* Points `part` to its bytes in a whole stored tensor. The caller has set the other members, except
 * `y`. */
void kern_quant_point(struct kern_expand_arguments *part, const void *stored);

/* Returns the number of elements that share a scale (NONE: 1); encoding begins at a multiple. */
int64_t kern_quant_grain(enum kern_quant quant, int64_t cols);
/* Encodes `count` elements (not NONE): a multiple of the grain, or up to the end of a tensor of NF4
 * or NF4_F32. `scales` gets one fp32 per grain. Returns false if a weight is not finite or, for
 * INT8, beyond fp16. */
bool kern_quant_encode(enum kern_quant quant, int64_t cols, const float *weights, int64_t count,
                       uint8_t *codes, float *scales);
/* Encodes `rows` x `cols` 16-bit weights, `cols` at most KERN_NF4_NESTED, as INT8, without rounding
 * to fp16 first. A row with a largest magnitude below 3.7e-37 becomes zero; a row with a weight
 * that is not finite becomes NaN. */
void kern_quant_pack(enum kern_type type, const void *weights, int64_t rows, int64_t cols,
                     uint8_t *to);
/* Decodes elements [begin, begin + count) of a stored tensor (not NONE) to fp32. */
void kern_quant_decode(enum kern_quant quant, const struct kern_quant_layout *layout, int64_t cols,
                       const uint8_t *stored, int64_t begin, int64_t count, float *out);
/* Encodes `scales` to `to`, the bytes of a stored tensor from layout->scales on. May change
 * `scales`. */
void kern_quant_encode_scales(enum kern_quant quant, const struct kern_quant_layout *layout,
                              float *scales, uint8_t *to);

#ifdef __cplusplus
}
#endif

#endif
