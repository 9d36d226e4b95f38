/* attention.c: one tile of queries (of all heads that share a key head) against the keys before
 * it, tile of keys by tile of keys, with a running maximum and sum a row. */
#include <math.h>

#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/bodies.h"

struct work {
    const struct kern_attention_arguments *a;
    const struct kern_attention_item *item;
    int64_t heads;   /* of the group */
    int64_t queries; /* of the tile */
    int64_t rows;    /* heads * QUERIES: row h * QUERIES + i is query i of head h */
    float *q;        /* row panels of each head: [heads][QUERIES][head_dim] */
    float *k;        /* column panels [head_dim][KEYS] */
    float *v;        /* column panels [KEYS][head_dim] */
    float *scores;   /* [rows][KEYS] */
    float *p;        /* row panels of one head [QUERIES][KEYS] */
    float *o;        /* [rows][head_dim] */
    float *top;      /* [rows] */
    float *sum;      /* [rows] */
};

static int64_t layout(struct work *w, const struct kern_attention_arguments *a, float *scratch)
{
    const int64_t d = a->head_dim;
    w->a = a;
    w->heads = rows_of_group(a);
    w->rows = w->heads * QUERIES;
    const int64_t sizes[] = {
        w->heads * row_panels(QUERIES, d),
        column_panels(KEYS, d),
        column_panels(d, KEYS),
        w->rows * KEYS,
        row_panels(QUERIES, KEYS),
        round_up(w->rows * d, 16),
        round_up(w->rows, 16),
        round_up(w->rows, 16),
    };
    float **const parts[] = {&w->q, &w->k, &w->v, &w->scores, &w->p, &w->o, &w->top, &w->sum};
    int64_t used = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        *parts[i] = scratch != NULL ? scratch + used : NULL;
        used += sizes[i];
    }
    return used;
}

size_t kern_attention_bytes(const struct kern_attention_arguments *a)
{
    struct work w;
    return (size_t)layout(&w, a, NULL) * sizeof(float);
}

static const void *at(const void *base, enum kern_type type, int64_t index)
{
    return (const char *)base + (size_t)index * kern_type_bytes(type);
}

static void begin(struct work *w)
{
    const struct kern_attention_arguments *a = w->a;
    const int64_t d = a->head_dim;
    const int64_t steps[2] = {0, d};
    const int64_t range[2] = {0, w->queries};
    const int64_t token = w->item->row * a->length + w->item->begin;
    for (int64_t h = 0; h < w->heads; h++) {
        const int64_t head = w->item->kv_head * w->heads + h;
        const void *q = at(a->q, a->type, token * a->q_stride + head * d);
        kern_pack_rows(a->type, q, a->q_stride, true, range, steps,
                       w->q + h * row_panels(QUERIES, d));
    }
    memset(w->o, 0, (size_t)(w->rows * d) * sizeof(float));
    for (int64_t r = 0; r < w->rows; r++) {
        w->top[r] = -INFINITY;
        w->sum[r] = 0.0f;
    }
}

/* Scores of one row become exp(scale score - maximum); what was gathered shrinks with the maximum. */
VF_INLINE void row_softmax(const struct work *w, int64_t row, struct seen seen)
{
    float *s = w->scores + row * KEYS;
    if (seen.low >= seen.high) {
        memset(s, 0, KEYS * sizeof(float));
        return;
    }
    const vf scale = vf_set(w->a->scale);
    vf top = vf_set(-INFINITY);
    for (int64_t j = 0; j < KEYS; j += LANES) {
        const vf score = vf_pick(lanes_seen(j, seen), vf_load(s + j) * scale, vf_set(-INFINITY));
        vf_store(s + j, score);
        top = vf_max(score, top);
    }
    const float tile_top = vf_top(top);
    const float new_top = tile_top > w->top[row] ? tile_top : w->top[row];
    vf sum = vf_zero();
    for (int64_t j = 0; j < KEYS; j += LANES) {
        const vf p = vf_exp(vf_load(s + j) - vf_set(new_top));
        vf_store(s + j, p);
        sum += p;
    }
    const float shrink = expf(w->top[row] - new_top);
    w->sum[row] = w->sum[row] * shrink + vf_sum(sum);
    w->top[row] = new_top;
    if (shrink < 1.0f) {
        float *o = w->o + row * w->a->head_dim;
        for (int64_t i = 0; i < w->a->head_dim; i += LANES) {
            const int64_t wide = w->a->head_dim - i;
            vf_put_part(KERN_F32, o, i, vf_get_part(KERN_F32, o, i, wide) * vf_set(shrink), wide);
        }
    }
}

static void keys_pack(struct work *w, int64_t first, int64_t keys)
{
    const struct kern_attention_arguments *a = w->a;
    const int64_t d = a->head_dim;
    const int64_t token = w->item->row * a->length + first;
    const void *k = at(a->k, a->type, token * a->k_stride + w->item->kv_head * d);
    const void *v = at(a->v, a->type, token * a->v_stride + w->item->kv_head * d);
    kern_pack_columns(a->type, k, a->k_stride, true, (const int64_t[2]){0, keys},
                      (const int64_t[2]){0, d}, w->k);
    kern_pack_columns(a->type, v, a->v_stride, false, (const int64_t[2]){0, d},
                      (const int64_t[2]){0, keys}, w->v);
}

static void keys_tile(struct work *w, int64_t first, int64_t keys)
{
    const struct kern_attention_arguments *a = w->a;
    const int64_t d = a->head_dim;
    keys_pack(w, first, keys);
    for (int64_t h = 0; h < w->heads; h++) {
        float *scores = w->scores + h * QUERIES * KEYS;
        kern_panel_multiply(&(struct tile){.a = w->q + h * row_panels(QUERIES, d),
                                           .b = w->k,
                                           .k = d,
                                           .c = scores,
                                           .c_stride = KEYS,
                                           .rows = w->queries,
                                           .columns = keys});
        for (int64_t i = 0; i < w->queries; i++) {
            row_softmax(w, h * QUERIES + i, keys_seen(a, w->item->begin + i, first, keys));
        }
        kern_pack_rows(KERN_F32, scores, KEYS, true, (const int64_t[2]){0, w->queries},
                       (const int64_t[2]){0, keys}, w->p);
        kern_panel_multiply(&(struct tile){.a = w->p,
                                           .b = w->v,
                                           .k = keys,
                                           .c = w->o + h * QUERIES * d,
                                           .c_stride = d,
                                           .rows = w->queries,
                                           .columns = d,
                                           .add = true});
    }
}

VF_INLINE void rows_write(const struct work *w, enum kern_type type)
{
    const struct kern_attention_arguments *a = w->a;
    const int64_t d = a->head_dim;
    for (int64_t h = 0; h < w->heads; h++) {
        const int64_t head = w->item->kv_head * w->heads + h;
        for (int64_t i = 0; i < w->queries; i++) {
            const int64_t row = h * QUERIES + i;
            const int64_t token = w->item->row * a->length + w->item->begin + i;
            const vf factor = vf_set(1.0f / w->sum[row]);
            for (int64_t j = 0; j < d; j += LANES) {
                const vf value = vf_get_part(KERN_F32, w->o, row * d + j, d - j) * factor;
                vf_put_part(type, a->o, token * a->o_stride + head * d + j, value, d - j);
            }
            a->lse[head * a->rows * a->length + token] = w->top[row] + logf(w->sum[row]);
        }
    }
}

void kern_attention_run(const struct kern_attention_arguments *a,
                        const struct kern_attention_item *item, float *scratch)
{
    struct work w = {.item = item, .queries = item->end - item->begin};
    layout(&w, a, scratch);
    begin(&w);
    for (int64_t first = first_tile(a, item->start, item->begin); first < item->end;
         first += KEYS) {
        /* Keys up to the tile's border, so that sums run alike whatever stands behind. */
        keys_tile(&w, first, smaller(item->stop - first, KEYS));
    }
#define BODY(t) rows_write(&w, t)
    KERN_TYPE_CASES(a->type, BODY);
#undef BODY
}
