/* norm.c: RMSNorm and LayerNorm over rows, forward and backward. */
#include <math.h>

#include "kernels/cpu/isa/bodies.h"

VF_INLINE int64_t left(int64_t width, int64_t i)
{
    return width - i < LANES ? width - i : LANES;
}

VF_INLINE int64_t row_at(int64_t row, int64_t heads, int64_t stride, int64_t width)
{
    return row / heads * stride + row % heads * width;
}

VF_INLINE float row_sum(enum kern_type type, const void *x, int64_t at, int64_t width)
{
    vf sum = vf_zero();
    for (int64_t i = 0; i < width; i += LANES) {
        sum += vf_get_part(type, x, at + i, left(width, i));
    }
    return vf_sum(sum);
}

/* The sum of (x - mean)^2; lanes past the end count as zero. */
VF_INLINE float row_squares(enum kern_type type, const void *x, int64_t at, int64_t width,
                            float mean)
{
    vf sum = vf_zero();
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        const vf value = vf_get(type, x, at + i) - vf_set(mean);
        sum = vf_fma(value, value, sum);
    }
    if (i < width) {
        _Alignas(64) float lane[LANES] = {0};
        vf_store(lane, vf_get_part(type, x, at + i, width - i) - vf_set(mean));
        const vf value = vf_get_part(KERN_F32, lane, 0, width - i);
        sum = vf_fma(value, value, sum);
    }
    return vf_sum(sum);
}

VF_INLINE void norm_row(const struct kern_norm_arguments *a, enum kern_type type, int64_t row)
{
    const int64_t width = a->width;
    const int64_t x_at = row_at(row, a->heads, a->x_stride, width);
    const int64_t y_at = row_at(row, a->heads, a->y_stride, width);
    const bool layer = a->kind == KERN_NORM_LAYER;
    const void *s = a->x;
    if (a->add != NULL) {
        for (int64_t i = 0; i < width; i += LANES) {
            const int64_t wide = left(width, i);
            const vf sum = vf_get_part(type, a->x, x_at + i, wide) +
                           vf_get_part(type, a->add, x_at + i, wide);
            vf_put_part(type, a->sum, x_at + i, sum, wide);
        }
        s = a->sum;
    }
    const float mean = layer ? row_sum(type, s, x_at, width) / (float)width : 0.0f;
    const float squares = row_squares(type, s, x_at, width, mean);
    const float rstd = 1.0f / sqrtf(squares / (float)width + a->eps);
    a->rstd[row] = rstd;
    if (layer) {
        a->mean[row] = mean;
    }
    for (int64_t i = 0; i < width; i += LANES) {
        const int64_t wide = left(width, i);
        vf y = (vf_get_part(type, s, x_at + i, wide) - vf_set(mean)) * vf_set(rstd);
        y = y * vf_get_part(type, a->weight, i, wide);
        if (layer && a->bias != NULL) {
            y += vf_get_part(type, a->bias, i, wide);
        }
        vf_put_part(type, a->y, y_at + i, y, wide);
    }
}

void kern_norm_rows(const struct kern_norm_arguments *a, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
#define BODY(t) norm_row(a, t, row)
        KERN_TYPE_CASES(a->type, BODY);
#undef BODY
    }
}

/* dx = rstd (g - [mean of g] - n * mean of g n), n being the normalised row and g = dy * weight.
 * Only LayerNorm has the bracket. */
VF_INLINE void norm_grad_row(const struct kern_norm_grad_arguments *a, enum kern_type type,
                             int64_t row, float *dweight, float *dbias)
{
    const int64_t width = a->width;
    const int64_t s_at = row_at(row, a->heads, a->s_stride, width);
    const int64_t dy_at = row_at(row, a->heads, a->dy_stride, width);
    const int64_t dx_at = row_at(row, a->heads, a->dx_stride, width);
    const bool layer = a->kind == KERN_NORM_LAYER;
    const vf mean = vf_set(layer ? a->mean[row] : 0.0f);
    const vf rstd = vf_set(a->rstd[row]);
    vf sum = vf_zero();
    vf dot = vf_zero();
    for (int64_t i = 0; i < width; i += LANES) {
        const int64_t wide = left(width, i);
        const vf dy = vf_get_part(type, a->dy, dy_at + i, wide);
        const vf n = (vf_get_part(type, a->s, s_at + i, wide) - mean) * rstd;
        const vf g = dy * vf_get_part(type, a->weight, i, wide);
        sum += g;
        dot = vf_fma(g, n, dot);
        if (dweight != NULL) {
            const vf old = vf_get_part(KERN_F32, dweight, i, wide);
            vf_put_part(KERN_F32, dweight, i, vf_fma(dy, n, old), wide);
        }
        if (dbias != NULL) {
            vf_put_part(KERN_F32, dbias, i, vf_get_part(KERN_F32, dbias, i, wide) + dy, wide);
        }
    }
    const vf shift = vf_set(layer ? vf_sum(sum) / (float)width : 0.0f);
    const vf slope = vf_set(vf_sum(dot) / (float)width);
    for (int64_t i = 0; i < width; i += LANES) {
        const int64_t wide = left(width, i);
        const vf n = (vf_get_part(type, a->s, s_at + i, wide) - mean) * rstd;
        const vf g = vf_get_part(type, a->dy, dy_at + i, wide) *
                     vf_get_part(type, a->weight, i, wide);
        vf dx = rstd * (g - shift - n * slope);
        if (a->add != NULL) {
            dx += vf_get_part(type, a->add, dx_at + i, wide);
        }
        vf_put_part(type, a->dx, dx_at + i, dx, wide);
    }
}

void kern_norm_grad_rows(const struct kern_norm_grad_arguments *a, int64_t begin, int64_t end,
                         float *dweight, float *dbias)
{
    for (int64_t i = 0; i < a->width; i++) {
        if (dweight != NULL) {
            dweight[i] = 0.0f;
        }
        if (dbias != NULL) {
            dbias[i] = 0.0f;
        }
    }
    for (int64_t row = begin; row < end; row++) {
#define BODY(t) norm_grad_row(a, t, row, dweight, dbias)
        KERN_TYPE_CASES(a->type, BODY);
#undef BODY
    }
}
