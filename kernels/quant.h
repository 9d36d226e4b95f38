/* quant.h: frozen weights in fewer bits: how a stored tensor is laid out, and its encoder, which
 * gives the codes and scales of bitsandbytes (docs/adapters.md). KERN_EXPAND turns a stored tensor
 * back into weights. Pure; any thread. */
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
    KERN_NF4_NESTED = 256,       /* scales that share a scale of their own */
    KERN_QUANT_ALIGN_BYTES = 64, /* alignment of stored tensors and their parts */
};

const char *
kern_quant_name(enum kern_quant quant);        /* "none", "int8", "nf4", "nf4 with fp32 scales" */
bool kern_quant_is_nf4(enum kern_quant quant); /* NF4 or NF4_F32 */

/* A stored tensor is its codes, and after them its scales:
 *   NONE  elements of the type `from`
 *   INT8  a byte for each element; an fp32 for each row: the largest magnitude
 *   NF4   half a byte for each element of the flat array, the first one in the high half; a byte of
 *         the dynamic map for each block of 64; an fp32 for each 256 of these; an fp32 that is
 *         added to every scale
 *   NF4_F32  the codes of NF4; an fp32 for each block of 64 */
struct kern_quant_layout {
    uint64_t codes_bytes;
    uint64_t scales; /* offset in bytes of the scales */
    uint64_t nested; /* NF4: offset in bytes of the fp32 values */
    uint64_t bytes;  /* total size; a multiple of KERN_QUANT_ALIGN_BYTES */
    int64_t scale_count;
};

struct kern_quant_layout kern_quant_layout_of(enum kern_quant quant, enum kern_type from,
                                              int64_t rows, int64_t cols);

/* Bytes [begin, end) of a stored tensor. */
struct kern_quant_span {
    uint64_t begin, end;
};

/* The bytes of a stored tensor that KERN_EXPAND reads for elements [first, first + count) of
 * `part`, in ascending order. A span that the format does not have is empty. */
struct kern_quant_spans {
    struct kern_quant_span codes, scales, nested;
};
struct kern_quant_spans kern_quant_spans_of(const struct kern_expand_arguments *part);
/* Sets the pointers of `part` to its bytes in a whole stored tensor. The caller has set the other
 * members; `y` is not used. */
void kern_quant_point(struct kern_expand_arguments *part, const void *stored);

/* Returns how many elements are encoded together; encoding begins at a multiple of this number. */
int64_t kern_quant_grain(enum kern_quant quant, int64_t cols);
/* Encodes `count` elements (not for NONE): a multiple of the grain, or all up to the end of a
 * tensor of NF4 or NF4_F32; `scales` gets one fp32 for each grain. Returns false if a weight is not
 * finite or, for INT8, beyond the range of fp16. */
bool kern_quant_encode(enum kern_quant quant, int64_t cols, const float *weights, int64_t count,
                       uint8_t *codes, float *scales);
/* Encodes `rows` x `cols` weights of 16 bits, `cols` at most KERN_NF4_NESTED, as a stored tensor of
 * INT8. The weights are not rounded to fp16 first. A row whose largest magnitude is below 3.7e-37
 * becomes zero, and a row with a weight that is not finite becomes NaN. */
void kern_quant_pack(enum kern_type type, const void *weights, int64_t rows, int64_t cols,
                     uint8_t *to);
/* Decodes elements [begin, begin + count) of a stored tensor (not NONE) to fp32, without rounding
 * them to a type of weights. */
void kern_quant_decode(enum kern_quant quant, const struct kern_quant_layout *layout, int64_t cols,
                       const uint8_t *stored, int64_t begin, int64_t count, float *out);
/* Encodes `scales` to `to`, the part of a stored tensor from layout->scales on. Overwrites
 * `scales`. */
void kern_quant_encode_scales(enum kern_quant quant, const struct kern_quant_layout *layout,
                              float *scales, uint8_t *to);

#ifdef __cplusplus
}
#endif

#endif
