/* attention_grad.c: the gradient of one document's attention for the query heads of one key head.
 * Tiles of keys in order; for each, the tiles of queries that see it, whose probabilities are
 * computed again from the saved log of sums. dq is gathered in fp32 over all tiles of keys. */
#include <math.h>

#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/bodies.h"

struct work {
    const struct kern_attention_grad_arguments *g;
    const struct kern_attention_arguments *a;
    const struct kern_attention_item *item;
    int64_t heads;
    int64_t tokens;               /* of the document */
    float *dq;                    /* [heads][tokens][head_dim] */
    float *delta;                 /* [heads][tokens]: sum over i of o[i] d_o[i] */
    float *dk, *dv;               /* [KEYS][head_dim] */
    float *k_columns, *v_columns; /* column panels over head_dim: of scores and of dp */
    float *k_steps;               /* column panels over keys: of dq */
    float *q_rows, *do_rows;      /* row panels over head_dim */
    float *q_steps, *do_steps;    /* column panels over queries: of dk, dv */
    float *p, *ds;                /* [QUERIES][KEYS] */
    float *panels;                /* row panels of p or ds */
};

static int64_t layout(struct work *w, const struct kern_attention_arguments *a, int64_t tokens,
                      float *scratch)
{
    const int64_t d = a->head_dim;
    w->a = a;
    w->heads = rows_of_group(a);
    w->tokens = tokens;
    const int64_t panels_p = row_panels(KEYS, QUERIES);
    const int64_t panels_ds = row_panels(QUERIES, KEYS);
    const struct {
        float **part;
        int64_t floats;
    } parts[] = {
        {&w->delta, w->heads * tokens},
        {&w->dk, KEYS * d},
        {&w->dv, KEYS * d},
        {&w->k_columns, column_panels(KEYS, d)},
        {&w->v_columns, column_panels(KEYS, d)},
        {&w->k_steps, column_panels(d, KEYS)},
        {&w->q_rows, row_panels(QUERIES, d)},
        {&w->do_rows, row_panels(QUERIES, d)},
        {&w->q_steps, column_panels(d, QUERIES)},
        {&w->do_steps, column_panels(d, QUERIES)},
        {&w->p, QUERIES * KEYS},
        {&w->ds, QUERIES * KEYS},
        {&w->panels, panels_p > panels_ds ? panels_p : panels_ds},
        {&w->dq, w->heads * tokens * d},
    };
    int64_t used = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i].part = scratch != NULL ? scratch + used : NULL;
        used += round_up(parts[i].floats, 16);
    }
    return used;
}

size_t kern_attention_grad_bytes(const struct kern_attention_arguments *a)
{
    struct work w;
    return (size_t)layout(&w, a, a->length, NULL) * sizeof(float);
}

static const void *at(const void *base, enum kern_type type, int64_t index)
{
    return (const char *)base + (size_t)index * kern_type_bytes(type);
}

static int64_t token_of(const struct work *w, int64_t position)
{
    return w->item->row * w->a->length + position;
}

static int64_t head_of(const struct work *w, int64_t h)
{
    return w->item->kv_head * w->heads + h;
}

VF_INLINE void deltas(const struct work *w, enum kern_type type)
{
    const int64_t d = w->a->head_dim;
    for (int64_t h = 0; h < w->heads; h++) {
        for (int64_t t = 0; t < w->tokens; t++) {
            const int64_t token = token_of(w, w->item->start + t);
            const int64_t o = token * w->a->o_stride + head_of(w, h) * d;
            const int64_t d_o = token * w->g->d_o_stride + head_of(w, h) * d;
            vf sum = vf_zero();
            for (int64_t j = 0; j < d; j += LANES) {
                sum = vf_fma(vf_get_part(type, w->a->o, o + j, d - j),
                             vf_get_part(type, w->g->d_o, d_o + j, d - j), sum);
            }
            w->delta[h * w->tokens + t] = vf_sum(sum);
        }
    }
}

static void keys_pack(const struct work *w, int64_t first, int64_t keys)
{
    const struct kern_attention_arguments *a = w->a;
    const int64_t d = a->head_dim;
    const int64_t token = token_of(w, first);
    const void *k = at(a->k, a->type, token * a->k_stride + w->item->kv_head * d);
    const void *v = at(a->v, a->type, token * a->v_stride + w->item->kv_head * d);
    const int64_t all_keys[2] = {0, keys};
    const int64_t all_d[2] = {0, d};
    kern_pack_columns(a->type, k, a->k_stride, true, all_keys, all_d, w->k_columns);
    kern_pack_columns(a->type, v, a->v_stride, true, all_keys, all_d, w->v_columns);
    kern_pack_columns(a->type, k, a->k_stride, false, all_d, all_keys, w->k_steps);
    memset(w->dk, 0, (size_t)(KEYS * d) * sizeof(float));
    memset(w->dv, 0, (size_t)(KEYS * d) * sizeof(float));
}

static void queries_pack(const struct work *w, int64_t h, int64_t first, int64_t queries)
{
    const struct kern_attention_arguments *a = w->a;
    const int64_t d = a->head_dim;
    const int64_t token = token_of(w, first);
    const void *q = at(a->q, a->type, token * a->q_stride + head_of(w, h) * d);
    const void *d_o = at(w->g->d_o, a->type, token * w->g->d_o_stride + head_of(w, h) * d);
    const int64_t all_queries[2] = {0, queries};
    const int64_t all_d[2] = {0, d};
    kern_pack_rows(a->type, q, a->q_stride, true, all_queries, all_d, w->q_rows);
    kern_pack_rows(a->type, d_o, w->g->d_o_stride, true, all_queries, all_d, w->do_rows);
    kern_pack_columns(a->type, q, a->q_stride, false, all_d, all_queries, w->q_steps);
    kern_pack_columns(a->type, d_o, w->g->d_o_stride, false, all_d, all_queries, w->do_steps);
}

/* p holds scores and ds holds dp; they become probabilities and gradients of scale * score. */
static void rows_turn(const struct work *w, int64_t h, const int64_t from[2], const int64_t size[2])
{
    const struct kern_attention_arguments *a = w->a;
    const int64_t heads_lse = head_of(w, h) * a->rows * a->length;
    for (int64_t i = 0; i < size[0]; i++) {
        const int64_t position = from[0] + i;
        const struct seen seen = keys_seen(a, position, from[1], size[1]);
        const vf lse = vf_set(a->lse[heads_lse + token_of(w, position)]);
        const vf delta = vf_set(w->delta[h * w->tokens + position - w->item->start]);
        float *p = w->p + i * KEYS;
        float *ds = w->ds + i * KEYS;
        for (int64_t j = 0; j < KEYS; j += LANES) {
            const vi mask = lanes_seen(j, seen);
            const vf score = vf_load(p + j) * vf_set(a->scale) - lse;
            const vf probability = vf_pick(mask, vf_exp(score), vf_zero());
            const vf slope = probability * (vf_load(ds + j) - delta) * vf_set(a->scale);
            vf_store(p + j, probability);
            vf_store(ds + j, vf_pick(mask, slope, vf_zero()));
        }
    }
}

/* c[m][n] (+)= a b for packed operands. */
static void multiply(const float *a, const float *b, float *c, int64_t c_stride,
                     const int64_t mnk[3], bool add)
{
    kern_panel_multiply(&(struct tile){.a = a,
                                       .b = b,
                                       .k = mnk[2],
                                       .c = c,
                                       .c_stride = c_stride,
                                       .rows = mnk[0],
                                       .columns = mnk[1],
                                       .add = add});
}

static void tile_run(const struct work *w, int64_t h, const int64_t from[2], const int64_t size[2])
{
    const int64_t d = w->a->head_dim;
    const int64_t queries = size[0];
    const int64_t keys = size[1];
    const int64_t scores[3] = {queries, keys, d};
    const int64_t onto_keys[3] = {keys, d, queries};
    const int64_t onto_queries[3] = {queries, d, keys};
    const int64_t all_queries[2] = {0, queries};
    const int64_t all_keys[2] = {0, keys};
    queries_pack(w, h, from[0], queries);
    multiply(w->q_rows, w->k_columns, w->p, KEYS, scores, false);
    multiply(w->do_rows, w->v_columns, w->ds, KEYS, scores, false);
    rows_turn(w, h, from, size);
    kern_pack_rows(KERN_F32, w->p, KEYS, false, all_keys, all_queries, w->panels);
    multiply(w->panels, w->do_steps, w->dv, d, onto_keys, true);
    kern_pack_rows(KERN_F32, w->ds, KEYS, false, all_keys, all_queries, w->panels);
    multiply(w->panels, w->q_steps, w->dk, d, onto_keys, true);
    kern_pack_rows(KERN_F32, w->ds, KEYS, true, all_queries, all_keys, w->panels);
    float *dq = w->dq + (h * w->tokens + from[0] - w->item->start) * d;
    multiply(w->panels, w->k_steps, dq, d, onto_queries, true);
}

VF_INLINE void rows_write(enum kern_type type, const float *from, void *to, int64_t first,
                          const int64_t shape[3])
{
    const int64_t d = shape[1];
    for (int64_t i = 0; i < shape[0]; i++) {
        for (int64_t j = 0; j < d; j += LANES) {
            vf_put_part(type, to, first + i * shape[2] + j,
                        vf_get_part(KERN_F32, from, i * d + j, d - j), d - j);
        }
    }
}

static void rows_write_any(enum kern_type type, const float *from, void *to, int64_t first,
                           const int64_t shape[3])
{
#define BODY(t) rows_write(t, from, to, first, shape)
    KERN_TYPE_CASES(type, BODY);
#undef BODY
}

/* Queries see keys up to their own and, with a window, not older than it: the tiles of queries from
 * the one that holds key `first` to the one that holds the last query that sees the tile. */
static void keys_tile(const struct work *w, int64_t first)
{
    const struct kern_attention_arguments *a = w->a;
    const struct kern_attention_item *item = w->item;
    const int64_t keys = smaller(item->stop - first, KEYS);
    const int64_t last = a->window > 0 ? smaller(first + keys - 1 + a->window, item->stop)
                                       : item->stop;
    keys_pack(w, first, keys);
    for (int64_t h = 0; h < w->heads; h++) {
        int64_t query = item->start + (first - item->start) / QUERIES * QUERIES;
        for (; query < last; query += QUERIES) {
            const int64_t from[2] = {query, first};
            const int64_t size[2] = {smaller(item->stop - query, QUERIES), keys};
            tile_run(w, h, from, size);
        }
    }
    const int64_t token = token_of(w, first);
    const int64_t column = item->kv_head * a->head_dim;
    rows_write_any(a->type, w->dk, w->g->dk, token * w->g->dk_stride + column,
                   (const int64_t[3]){keys, a->head_dim, w->g->dk_stride});
    rows_write_any(a->type, w->dv, w->g->dv, token * w->g->dv_stride + column,
                   (const int64_t[3]){keys, a->head_dim, w->g->dv_stride});
}

void kern_attention_grad_run(const struct kern_attention_grad_arguments *g,
                             const struct kern_attention_item *item, float *scratch)
{
    const struct kern_attention_arguments *a = &g->forward;
    struct work w = {.g = g, .item = item};
    layout(&w, a, item->stop - item->start, scratch);
    memset(w.dq, 0, (size_t)(w.heads * w.tokens * a->head_dim) * sizeof(float));
#define BODY(t) deltas(&w, t)
    KERN_TYPE_CASES(a->type, BODY);
#undef BODY
    for (int64_t first = item->start; first < item->stop; first += KEYS) {
        keys_tile(&w, first);
    }
    for (int64_t h = 0; h < w.heads; h++) {
        const int64_t column = head_of(&w, h) * a->head_dim;
        rows_write_any(a->type, w.dq + h * w.tokens * a->head_dim, g->dq,
                       token_of(&w, item->start) * g->dq_stride + column,
                       (const int64_t[3]){w.tokens, a->head_dim, g->dq_stride});
    }
}
