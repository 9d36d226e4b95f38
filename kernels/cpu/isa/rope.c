/* rope.c: rotates pairs of elements in place by their position's angle. */
#include "kernels/cpu/isa/bodies.h"

VF_INLINE void rope_tokens(const struct kern_rope_arguments *a, enum kern_type type,
                           const int64_t range[2])
{
    const int64_t half = a->rotary / 2;
    for (int64_t t = range[0]; t < range[1]; t++) {
        const int64_t position = a->positions != NULL ? a->positions[t] : t % a->length;
        const float *cos_row = a->cos + position * half;
        const float *sin_row = a->sin + position * half;
        for (int64_t h = 0; h < a->heads; h++) {
            const int64_t at = t * a->stride + h * a->head_dim;
            for (int64_t i = 0; i < half; i += LANES) {
                const int64_t wide = half - i;
                const vf c = vf_get_part(KERN_F32, cos_row, i, wide);
                const vf turn = vf_get_part(KERN_F32, sin_row, i, wide);
                const vf s = a->backward ? -turn : turn;
                const vf first = vf_get_part(type, a->x, at + i, wide);
                const vf second = vf_get_part(type, a->x, at + half + i, wide);
                vf_put_part(type, a->x, at + i, vf_fma(first, c, -(second * s)), wide);
                vf_put_part(type, a->x, at + half + i, vf_fma(second, c, first * s), wide);
            }
        }
    }
}

void kern_rope_tokens(const struct kern_rope_arguments *a, int64_t begin, int64_t end)
{
    const int64_t range[2] = {begin, end};
#define BODY(t) rope_tokens(a, t, range)
    KERN_TYPE_CASES(a->type, BODY);
#undef BODY
}
