/* attention.c: one tile of queries (of a key head's query heads) against tiles of keys, with a
 * running maximum and sum per row. */
#include <math.h>

#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/bodies.h"

struct work {
    const struct kern_attention_arguments *a;
    const struct kern_attention_item *item;
    bool pairs;
    int64_t heads;   /* query heads of the group */
    int64_t queries; /* in the tile */
    int64_t rows;    /* row h * QUERIES + i is query i of head h */
    float *q;        /* dense rows of cells: [rows][head_dim] */
    float *k;        /* column panels [head_dim][KEYS] */
    float *v;        /* column panels [KEYS][head_dim] */
    float *scores;   /* scores of one head: [QUERIES][KEYS] */
    float *p;        /* with `pairs`: cells [QUERIES][KEYS]; else `scores` */
    float *o;        /* [rows][head_dim] */
    float *top;      /* [rows] */
    float *sum;      /* [rows] */
};

static int64_t layout(struct work *w, const struct kern_attention_arguments *a, float *scratch)
{
    const int64_t d = a->head_dim;
    w->a = a;
    w->pairs = panel_pairs(a->type);
    w->heads = rows_of_group(a);
    w->rows = w->heads * QUERIES;
    const int64_t d_cells = panel_cells(w->pairs, d);
    const int64_t key_cells = panel_cells(w->pairs, KEYS);
    const struct {
        float **part;
        int64_t floats;
    } parts[] = {
        {&w->q, dense_rows(w->rows, d_cells)},
        {&w->k, column_panels(KEYS, d_cells)},
        {&w->v, column_panels(d, key_cells)},
        {&w->scores, QUERIES * KEYS},
        {&w->p, w->pairs ? QUERIES * key_cells : 0},
        {&w->o, w->rows * d},
        {&w->top, w->rows},
        {&w->sum, w->rows},
    };
    int64_t used = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i].part = scratch != NULL ? scratch + used : NULL;
        used += round_up(parts[i].floats, 16);
    }
    w->p = w->pairs ? w->p : w->scores;
    return used;
}

size_t kern_attention_bytes(const struct kern_attention_arguments *a)
{
    struct work w;
    return (size_t)layout(&w, a, NULL) * sizeof(float);
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
        const struct operand q = {.type = a->type,
                                  .data = element_at(a->q, a->type, token * a->q_stride + head * d),
                                  .stride = a->q_stride,
                                  .along_k = true,
                                  .pairs = w->pairs};
        kern_pack_dense(&q, range, steps, w->q + h * QUERIES * panel_cells(w->pairs, d));
    }
    memset(w->o, 0, (size_t)(w->rows * d) * sizeof(float));
    for (int64_t r = 0; r < w->rows; r++) {
        w->top[r] = -INFINITY;
        w->sum[r] = 0.0f;
    }
}

/* Scales the row's sums in w->o to a new maximum. */
VF_INLINE void row_shrink(const struct work *w, int64_t row, float shrink)
{
    float *o = w->o + row * w->a->head_dim;
    for (int64_t i = 0; i < w->a->head_dim; i += LANES) {
        const int64_t wide = w->a->head_dim - i;
        vf_put_part(KERN_F32, o, i, vf_get_part(KERN_F32, o, i, wide) * vf_set(shrink), wide);
    }
}

/* Stores probabilities in the next product's format. */
VF_INLINE void row_store(const struct work *w, int64_t i, const vf p[VECTORS])
{
#if VF_DOTS
    if (w->pairs) {
        for (int v = 0; v < VECTORS; v += 2) {
            vf_store(w->p + i * KEYS / 2 + v / 2 * LANES, vf_pair_next(p[v], p[v + 1]));
        }
        return;
    }
#endif
    for (int v = 0; v < VECTORS; v++) {
        vf_store(w->p + i * KEYS + v * LANES, p[v]);
    }
}

/* Stores exp(scale * score - maximum) for query i of head h; updates its maximum and sums. */
VF_INLINE void row_softmax(const struct work *w, int64_t h, int64_t i, struct seen seen)
{
    const float *scores = w->scores + i * KEYS;
    const int64_t row = h * QUERIES + i;
    const vf scale = vf_set(w->a->scale);
    vf s[VECTORS];
    if (seen.low >= seen.high) {
        for (int v = 0; v < VECTORS; v++) {
            s[v] = vf_zero();
        }
        row_store(w, i, s);
        return;
    }
    vf top = vf_set(-INFINITY);
    for (int v = 0; v < VECTORS; v++) {
        s[v] = vf_pick(lanes_seen(v * LANES, seen), vf_load(scores + v * LANES) * scale,
                       vf_set(-INFINITY));
        top = vf_max(s[v], top);
    }
    const float tile_top = vf_top(top);
    const float new_top = tile_top > w->top[row] ? tile_top : w->top[row];
    vf sum = vf_zero();
    for (int v = 0; v < VECTORS; v++) {
        s[v] = vf_exp(s[v] - vf_set(new_top));
        sum += s[v];
    }
    row_store(w, i, s);
    const float shrink = expf(w->top[row] - new_top);
    w->sum[row] = w->sum[row] * shrink + vf_sum(sum);
    w->top[row] = new_top;
    if (shrink < 1.0f) {
        row_shrink(w, row, shrink);
    }
}

static void keys_pack(struct work *w, int64_t first, int64_t keys)
{
    const struct kern_attention_arguments *a = w->a;
    const int64_t d = a->head_dim;
    const int64_t token = w->item->row * a->length + first;
    const int64_t column = w->item->kv_head * d;
    const struct operand k = {.type = a->type,
                              .data = element_at(a->k, a->type, token * a->k_stride + column),
                              .stride = a->k_stride,
                              .along_k = true,
                              .pairs = w->pairs};
    const struct operand v = {.type = a->type,
                              .data = element_at(a->v, a->type, token * a->v_stride + column),
                              .stride = a->v_stride,
                              .pairs = w->pairs};
    const int64_t all_keys[2] = {0, keys};
    const int64_t all_d[2] = {0, d};
    kern_pack_columns(&k, all_keys, all_d, w->k);
    kern_pack_columns(&v, all_d, all_keys, w->v);
}

static void keys_tile(struct work *w, int64_t first, int64_t keys)
{
    const struct kern_attention_arguments *a = w->a;
    const int64_t d = a->head_dim;
    const int64_t d_cells = panel_cells(w->pairs, d);
    keys_pack(w, first, keys);
    for (int64_t h = 0; h < w->heads; h++) {
        kern_panel_multiply(&(struct tile){.a = w->q + h * QUERIES * d_cells,
                                           .layout = LAYOUT_DENSE,
                                           .a_stride = d_cells,
                                           .b = w->k,
                                           .cells = d_cells,
                                           .pairs = w->pairs,
                                           .c = w->scores,
                                           .c_stride = KEYS,
                                           .rows = w->queries,
                                           .columns = keys});
        for (int64_t i = 0; i < w->queries; i++) {
            row_softmax(w, h, i, keys_seen(a, w->item->row, w->item->begin + i, first, keys));
        }
        kern_panel_multiply(&(struct tile){.a = w->p,
                                           .layout = LAYOUT_DENSE,
                                           .a_stride = panel_cells(w->pairs, KEYS),
                                           .b = w->v,
                                           .cells = panel_cells(w->pairs, keys),
                                           .pairs = w->pairs,
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
        /* Includes keys after the item's last query: the order of sums must not depend on the
         * item's end. */
        const int64_t keys = smaller(item->stop - first, KEYS);
        if (!tile_is_hidden(a, item->row, item->begin, first, keys)) {
            keys_tile(&w, first, keys);
        }
    }
#define BODY(t) rows_write(&w, t)
    KERN_TYPE_CASES(a->type, BODY);
#undef BODY
}
