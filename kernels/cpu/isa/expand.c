/* expand.c: makes weights of stored tensors. Operations are rounded separately, for equal bits on
 * all instruction sets. */
#include "kernels/cpu/isa/bodies.h"
#include "kernels/quant.h"
#include "kernels/quant_values.h"

static const float nf4_values[] = {KERN_NF4_VALUES};
static const float map_values[] = {KERN_DYNAMIC_VALUES};
static const float int8_unit = 0x1.020408p-7f; /* 1 / 127 */

/* `block` counts from the part's first block. */
VF_INLINE float scale_of(const struct kern_expand_arguments *a, bool nested, int64_t offset_at,
                         int64_t block)
{
    const uint8_t *codes = a->scales;
    const float *floats = a->scales;
    const int64_t in_tensor = a->first / KERN_NF4_BLOCK + block;
    return nested ? map_values[codes[block]] * a->nested[in_tensor / KERN_NF4_NESTED] +
                        a->nested[offset_at]
                  : floats[block];
}

VF_INLINE void expand_nf4(const struct kern_expand_arguments *a, enum kern_type type,
                          const int64_t range[2])
{
    const uint8_t *codes = a->codes;
    const bool nested = a->quant == KERN_QUANT_NF4;
    const int64_t blocks = (a->rows * a->cols + KERN_NF4_BLOCK - 1) / KERN_NF4_BLOCK;
    const int64_t offset_at = (blocks + KERN_NF4_NESTED - 1) / KERN_NF4_NESTED;
    for (int64_t b = range[0]; b < range[1]; b++) {
        const float scale = scale_of(a, nested, offset_at, b);
        for (int64_t i = b * KERN_NF4_BLOCK; i < (b + 1) * KERN_NF4_BLOCK; i += LANES) {
            const int64_t left = a->count - i;
            if (left > 0) {
                const vf value = vf_lookup4(nf4_values, codes + i / 2) * vf_set(scale);
                vf_put_part(type, a->y, i, value, left);
            }
        }
    }
}

VF_INLINE void expand_int8(const struct kern_expand_arguments *a, enum kern_type type,
                           const int64_t range[2])
{
    const int8_t *codes = a->codes;
    const float *scales = a->scales;
    for (int64_t row = range[0]; row < range[1]; row++) {
        for (int64_t i = 0; i < a->cols; i += LANES) {
            const int64_t at = row * a->cols + i;
            const vf code = vf_load_int8(codes + at);
            vf_put_part(type, a->y, at, code * vf_set(scales[row]) * vf_set(int8_unit),
                        a->cols - i);
        }
    }
}

VF_INLINE void copy(const struct kern_expand_arguments *a, enum kern_type type,
                    const int64_t range[2])
{
    for (int64_t i = range[0]; i < range[1]; i += LANES) {
        const int64_t left = range[1] - i;
        vf_put_part(type, a->y, i, vf_get_part(a->from, a->codes, i, left), left);
    }
}

void kern_expand_parts(const struct kern_expand_arguments *a, int64_t begin, int64_t end)
{
    const int64_t range[2] = {begin, end};
#define NF4(t)  expand_nf4(a, t, range)
#define INT8(t) expand_int8(a, t, range)
#define NONE(t) copy(a, t, range)
    if (kern_quant_is_nf4(a->quant)) {
        KERN_TYPE_CASES(a->type, NF4);
    } else if (a->quant == KERN_QUANT_INT8) {
        KERN_TYPE_CASES(a->type, INT8);
    } else {
        KERN_TYPE_CASES(a->type, NONE);
    }
#undef NF4
#undef INT8
#undef NONE
}
