/* move.c: adds, casts and gathers rows. */
#include "kernels/cpu/isa/bodies.h"

VF_INLINE void add_elements(const struct kern_add_arguments *a, enum kern_type y_type,
                            const int64_t range[2])
{
    for (int64_t i = range[0]; i < range[1]; i += LANES) {
        const int64_t wide = range[1] - i;
        vf value = vf_get_part(a->a_type, a->a, i, wide);
        if (a->b != NULL) {
            value += vf_get_part(a->b_type, a->b, i, wide);
        }
        vf_put_part(y_type, a->y, i, value, wide);
    }
}

void kern_add_elements(const struct kern_add_arguments *a, int64_t begin, int64_t end)
{
    const int64_t range[2] = {begin, end};
#define BODY(t) add_elements(a, t, range)
    KERN_TYPE_CASES(a->y_type, BODY);
#undef BODY
}

VF_INLINE void embed_token(const struct kern_embed_arguments *a, enum kern_type type, int64_t t)
{
    const int64_t row = (int64_t)a->ids[t] * (a->stride > 0 ? a->stride : a->width);
    const int64_t position = a->positions != NULL ? a->positions[t] : t % a->length;
    for (int64_t i = 0; i < a->width; i += LANES) {
        const int64_t wide = a->width - i;
        vf value = vf_get_part(type, a->table, row + i, wide);
        if (a->position_table != NULL) {
            value += vf_get_part(type, a->position_table, position * a->width + i, wide);
        }
        vf_put_part(type, a->y, t * a->width + i, value, wide);
    }
}

void kern_embed_tokens(const struct kern_embed_arguments *a, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
#define BODY(type) embed_token(a, type, t)
        KERN_TYPE_CASES(a->type, BODY);
#undef BODY
    }
}

VF_INLINE void rows_sum(const struct kern_rows *rows, enum kern_type type, const int64_t range[2],
                        float *sum)
{
    for (int64_t r = range[0]; r < range[1]; r++) {
        const int64_t row = rows->order != NULL ? rows->order[r] : r;
        for (int64_t i = 0; i < rows->width; i += LANES) {
            const int64_t wide = rows->width - i;
            const vf value = vf_get_part(type, rows->data, row * rows->stride + i, wide);
            vf_put_part(KERN_F32, sum, i, vf_get_part(KERN_F32, sum, i, wide) + value, wide);
        }
    }
}

void kern_rows_sum(const struct kern_rows *rows, int64_t begin, int64_t end, float *sum)
{
    const int64_t range[2] = {begin, end};
    for (int64_t i = 0; i < rows->width; i++) {
        sum[i] = 0.0f;
    }
#define BODY(t) rows_sum(rows, t, range, sum)
    KERN_TYPE_CASES(rows->type, BODY);
#undef BODY
}
