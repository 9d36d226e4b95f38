/* loss.c: the cross-entropy of a tile of logits: running maxima and sums, then gradients in
 * place. */
#include <math.h>

#include "kernels/cpu/isa/bodies.h"

VF_INLINE int64_t part(int64_t n, int64_t j)
{
    return n - j < LANES ? n - j : LANES;
}

static float row_top(const float *row, int64_t n)
{
    vf top = vf_set(-INFINITY);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        top = vf_max(vf_load(row + j), top);
    }
    float best = vf_top(top);
    for (; j < n; j++) {
        best = row[j] > best ? row[j] : best;
    }
    return best;
}

static float row_exp_sum(const float *row, int64_t n, float top)
{
    vf sum = vf_zero();
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        sum += vf_exp(vf_load(row + j) - vf_set(top));
    }
    if (j < n) {
        _Alignas(64) float lane[LANES];
        vf_store(lane, vf_exp(vf_get_part(KERN_F32, row, j, n - j) - vf_set(top)));
        sum += vf_get_part(KERN_F32, lane, 0, n - j);
    }
    return vf_sum(sum);
}

void kern_loss_stats_rows(const struct kern_loss_tile *tile, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        const float *row = tile->logits + t * tile->n;
        const float top = row_top(row, tile->n);
        const float old_top = tile->first ? -INFINITY : tile->maxima[t];
        const float new_top = top > old_top ? top : old_top;
        const float old_sum = tile->first ? 0.0f : tile->sums[t] * expf(old_top - new_top);
        tile->sums[t] = old_sum + row_exp_sum(row, tile->n, new_top);
        tile->maxima[t] = new_top;
        const int64_t column = tile->labels[t] - tile->begin;
        if (column >= 0 && column < tile->n) {
            tile->picked[t] = row[column];
        } else if (tile->first) {
            tile->picked[t] = 0.0f;
        }
    }
}

VF_INLINE void grad_row(const struct kern_loss_tile *tile, enum kern_type type, int64_t t)
{
    const float *row = tile->logits + t * tile->n;
    void *out = tile->logits;
    const int64_t at = t * tile->grad_stride;
    const int64_t n = tile->n;
    if (tile->labels[t] == KERN_LABEL_IGNORED) {
        for (int64_t j = 0; j < n; j += LANES) {
            vf_put_part(type, out, at + j, vf_zero(), part(n, j));
        }
        return;
    }
    const int64_t column = tile->labels[t] - tile->begin;
    const vf top = vf_set(tile->maxima[t]);
    const float scale = tile->scales[t];
    const float each = scale / tile->sums[t];
    float label = 0.0f;
    if (column >= 0 && column < n) {
        /* computed before p is rounded to the type */
        label = expf(row[column] - tile->maxima[t]) * each - scale;
    }
    for (int64_t j = 0; j < n; j += LANES) {
        const vf value = vf_exp(vf_get_part(KERN_F32, row, j, part(n, j)) - top) * vf_set(each);
        if (column >= j && column < j + LANES) {
            _Alignas(64) float lane[LANES];
            vf_store(lane, value);
            lane[column - j] = label;
            vf_put_part(type, out, at + j, vf_load(lane), part(n, j));
        } else {
            vf_put_part(type, out, at + j, value, part(n, j));
        }
    }
}

void kern_loss_grad_rows(const struct kern_loss_tile *tile, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
#define BODY(type) grad_row(tile, type, t)
        KERN_TYPE_CASES(tile->type, BODY);
#undef BODY
    }
}
