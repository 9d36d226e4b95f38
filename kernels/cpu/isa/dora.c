/* dora.c: the ops of DoRA: norms of the rows of weight plus adapter (magnitude), and tokens times a
 * factor per column (columns). */
#include <math.h>

#include "kernels/cpu/isa/bodies.h"

VF_INLINE float one(enum kern_type type, const void *from, int64_t index)
{
    return vf_get_part(type, from, index, 1)[0];
}

VF_INLINE void magnitude_row(const struct kern_magnitude_arguments *a, enum kern_type type,
                             int64_t row)
{
    const vf scale = vf_set(a->scale);
    vf squares = vf_zero();
    for (int64_t i = 0; i < a->cols; i += LANES) {
        const int64_t wide = a->cols - i;
        vf added = vf_zero();
        for (int64_t r = 0; r < a->rank; r++) {
            const vf b = vf_set(one(type, a->b, row * a->rank + r));
            added = vf_fma(b, vf_get_part(type, a->a, r * a->cols + i, wide), added);
        }
        const vf value = vf_get_part(type, a->w, row * a->cols + i, wide) + scale * added;
        squares = vf_fma(value, value, squares);
    }
    const float norm = vf_rounded(type, vf_set(sqrtf(vf_sum(squares))))[0];
    a->factor[row] = norm > 0.0f ? one(type, a->magnitude, row) / norm : 1.0f;
    a->inverse[row] = norm > 0.0f ? 1.0f / norm : 0.0f;
}

void kern_magnitude_rows(const struct kern_magnitude_arguments *a, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
#define BODY(type) magnitude_row(a, type, row)
        KERN_TYPE_CASES(a->type, BODY);
#undef BODY
    }
}

VF_INLINE void columns_token(const struct kern_columns_arguments *a, enum kern_type type,
                             int64_t token)
{
    for (int64_t i = 0; i < a->width; i += LANES) {
        const int64_t wide = a->width - i;
        vf value = vf_get_part(type, a->x, token * a->x_stride + i, wide);
        if (a->factor != NULL) {
            value *= vf_get_part(KERN_F32, a->factor, i, wide);
        }
        if (a->by != NULL) {
            value *= vf_get_part(type, a->by, token * a->by_stride + i, wide);
        }
        if (a->bias != NULL) {
            value += vf_get_part(type, a->bias, i, wide);
        }
        if (a->add != NULL) {
            value += vf_get_part(type, a->add, token * a->y_stride + i, wide);
        }
        vf_put_part(type, a->y, token * a->y_stride + i, value, wide);
    }
}

void kern_columns_tokens(const struct kern_columns_arguments *a, int64_t begin, int64_t end)
{
    for (int64_t token = begin; token < end; token++) {
#define BODY(type) columns_token(a, type, token)
        KERN_TYPE_CASES(a->type, BODY);
#undef BODY
    }
}
