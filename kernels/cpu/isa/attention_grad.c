/* attention_grad.c: the gradient of one document's attention for the query heads of one key head.
 * Tiles of keys, and for each the tiles of queries that see it. Probabilities are recomputed. */
#include <math.h>

#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/bodies.h"

struct work {
    const struct kern_attention_grad_arguments *g;
    const struct kern_attention_arguments *a;
    const struct kern_attention_item *item;
    bool pairs;
    int64_t heads;
    int64_t tokens;               /* in the document */
    float *dq;                    /* [heads][tokens][head_dim] */
    float *delta;                 /* [heads][tokens]: sum over i of o[i] d_o[i] */
    float *dk, *dv;               /* [KEYS][head_dim] */
    float *k_columns, *v_columns; /* column panels over head_dim, for scores and dp */
    float *k_steps;               /* column panels over keys, for dq */
    float *q_rows, *do_rows;      /* dense rows of cells over head_dim */
    float *q_steps, *do_steps;    /* column panels over queries, for dk and dv */
    float *p, *ds;                /* [QUERIES][KEYS] */
    float *p_cells, *ds_cells;    /* with `pairs`: a cell holds two queries, [QUERIES / 2][KEYS] */
    float *ds_rows;               /* with `pairs`: a cell holds two keys, [QUERIES][KEYS / 2] */
};

static int64_t layout(struct work *w, const struct kern_attention_arguments *a, int64_t tokens,
                      float *scratch)
{
    const int64_t d = a->head_dim;
    w->a = a;
    w->pairs = panel_pairs(a->type);
    w->heads = rows_of_group(a);
    w->tokens = tokens;
    const int64_t d_cells = panel_cells(w->pairs, d);
    const int64_t key_cells = panel_cells(w->pairs, KEYS);
    const int64_t query_cells = panel_cells(w->pairs, QUERIES);
    const int64_t tile_cells = w->pairs ? QUERIES * KEYS / 2 : 0;
    const struct {
        float **part;
        int64_t floats;
    } parts[] = {
        {&w->delta, w->heads * tokens},
        {&w->dk, KEYS * d},
        {&w->dv, KEYS * d},
        {&w->k_columns, column_panels(KEYS, d_cells)},
        {&w->v_columns, column_panels(KEYS, d_cells)},
        {&w->k_steps, column_panels(d, key_cells)},
        {&w->q_rows, dense_rows(QUERIES, d_cells)},
        {&w->do_rows, dense_rows(QUERIES, d_cells)},
        {&w->q_steps, column_panels(d, query_cells)},
        {&w->do_steps, column_panels(d, query_cells)},
        {&w->p, QUERIES * KEYS},
        {&w->ds, QUERIES * KEYS},
        {&w->p_cells, tile_cells},
        {&w->ds_cells, tile_cells},
        {&w->ds_rows, tile_cells},
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

static struct operand operand_of(const struct work *w, const void *data, int64_t stride, int64_t at,
                                 bool along_k)
{
    const enum kern_type type = w->a->type;
    return (struct operand){type, element_at(data, type, at), stride, along_k, w->pairs};
}

static void keys_pack(const struct work *w, int64_t first, int64_t keys)
{
    const struct kern_attention_arguments *a = w->a;
    const int64_t d = a->head_dim;
    const int64_t k_at = token_of(w, first) * a->k_stride + w->item->kv_head * d;
    const int64_t v_at = token_of(w, first) * a->v_stride + w->item->kv_head * d;
    const struct operand k = operand_of(w, a->k, a->k_stride, k_at, true);
    const struct operand v = operand_of(w, a->v, a->v_stride, v_at, true);
    const struct operand k_across = operand_of(w, a->k, a->k_stride, k_at, false);
    const int64_t all_keys[2] = {0, keys};
    const int64_t all_d[2] = {0, d};
    kern_pack_columns(&k, all_keys, all_d, w->k_columns);
    kern_pack_columns(&v, all_keys, all_d, w->v_columns);
    kern_pack_columns(&k_across, all_d, all_keys, w->k_steps);
    memset(w->dk, 0, (size_t)(KEYS * d) * sizeof(float));
    memset(w->dv, 0, (size_t)(KEYS * d) * sizeof(float));
}

static void queries_pack(const struct work *w, int64_t h, int64_t first, int64_t queries)
{
    const struct kern_attention_arguments *a = w->a;
    const int64_t d = a->head_dim;
    const int64_t d_o_stride = w->g->d_o_stride;
    const int64_t q_at = token_of(w, first) * a->q_stride + head_of(w, h) * d;
    const int64_t d_o_at = token_of(w, first) * d_o_stride + head_of(w, h) * d;
    const struct operand q = operand_of(w, a->q, a->q_stride, q_at, true);
    const struct operand d_o = operand_of(w, w->g->d_o, d_o_stride, d_o_at, true);
    const struct operand q_across = operand_of(w, a->q, a->q_stride, q_at, false);
    const struct operand d_o_across = operand_of(w, w->g->d_o, d_o_stride, d_o_at, false);
    const int64_t all_queries[2] = {0, queries};
    const int64_t all_d[2] = {0, d};
    kern_pack_dense(&q, all_queries, all_d, w->q_rows);
    kern_pack_dense(&d_o, all_queries, all_d, w->do_rows);
    kern_pack_columns(&q_across, all_d, all_queries, w->q_steps);
    kern_pack_columns(&d_o_across, all_d, all_queries, w->do_steps);
}

struct turned {
    vf p[VECTORS], ds[VECTORS];
};

/* Reads scores of query from[0] + i from w->p, and dp from w->ds. */
VF_INLINE struct turned row_turn(const struct work *w, int64_t h, int64_t i, const int64_t from[2],
                                 int64_t keys)
{
    const struct kern_attention_arguments *a = w->a;
    const int64_t position = from[0] + i;
    const struct seen seen = keys_seen(a, w->item->row, position, from[1], keys);
    const vf lse = vf_set(a->lse[head_of(w, h) * a->rows * a->length + token_of(w, position)]);
    const vf delta = vf_set(w->delta[h * w->tokens + position - w->item->start]);
    /* The score gradient of a query that sees one key is 0, not what rounding leaves of dp -
     * delta. */
    const bool alone = sees_one_key(a, w->item->row, w->item->start, position);
    const vf scale = vf_set(alone ? 0.0f : a->scale);
    struct turned row;
    for (int v = 0; v < VECTORS; v++) {
        const int64_t at = i * KEYS + v * LANES;
        const vi mask = lanes_seen(v * LANES, seen);
        const vf score = vf_load(w->p + at) * vf_set(a->scale) - lse;
        row.p[v] = vf_pick(mask, vf_exp(score), vf_zero());
        row.ds[v] = vf_pick(mask, row.p[v] * (vf_load(w->ds + at) - delta) * scale, vf_zero());
    }
    return row;
}

#if VF_DOTS
/* Stores queries i and i + 1 (or zeros) in the formats of the three products. */
VF_INLINE void rows_store(const struct work *w, int64_t i, const struct turned rows[2])
{
    for (int v = 0; v < VECTORS; v++) {
        const int64_t at = i / 2 * KEYS + v * LANES;
        vf_store(w->p_cells + at, vf_pair(rows[0].p[v], rows[1].p[v]));
        vf_store(w->ds_cells + at, vf_pair(rows[0].ds[v], rows[1].ds[v]));
    }
    for (int row = 0; row < 2; row++) {
        for (int v = 0; v < VECTORS; v += 2) {
            vf_store(w->ds_rows + (i + row) * KEYS / 2 + v / 2 * LANES,
                     vf_pair_next(rows[row].ds[v], rows[row].ds[v + 1]));
        }
    }
}

static void rows_turn_pairs(const struct work *w, int64_t h, const int64_t from[2],
                            const int64_t size[2])
{
    for (int64_t i = 0; i < size[0]; i += 2) {
        struct turned rows[2];
        rows[0] = row_turn(w, h, i, from, size[1]);
        if (i + 1 < size[0]) {
            rows[1] = row_turn(w, h, i + 1, from, size[1]);
        } else {
            for (int v = 0; v < VECTORS; v++) {
                rows[1].p[v] = vf_zero();
                rows[1].ds[v] = vf_zero();
            }
        }
        rows_store(w, i, rows);
    }
}
#endif

/* Turns scores in w->p into probabilities, and dp in w->ds into score gradients; with `pairs`, in
 * the arrays of cells. */
static void rows_turn(const struct work *w, int64_t h, const int64_t from[2], const int64_t size[2])
{
#if VF_DOTS
    if (w->pairs) {
        rows_turn_pairs(w, h, from, size);
        return;
    }
#endif
    for (int64_t i = 0; i < size[0]; i++) {
        const struct turned row = row_turn(w, h, i, from, size[1]);
        for (int v = 0; v < VECTORS; v++) {
            vf_store(w->p + i * KEYS + v * LANES, row.p[v]);
            vf_store(w->ds + i * KEYS + v * LANES, row.ds[v]);
        }
    }
}

/* Computes c[rows][columns] = a b for one tile, over head_dim. */
static void scores_of(const struct work *w, const float *a, const float *b, float *c,
                      const int64_t size[2])
{
    const int64_t cells = panel_cells(w->pairs, w->a->head_dim);
    kern_panel_multiply(&(struct tile){.a = a,
                                       .layout = LAYOUT_DENSE,
                                       .a_stride = cells,
                                       .b = b,
                                       .cells = cells,
                                       .pairs = w->pairs,
                                       .c = c,
                                       .c_stride = KEYS,
                                       .rows = size[0],
                                       .columns = size[1]});
}

/* Computes c[rows][head_dim] += a b; a is turned, or dense with rows of a_stride cells. */
static void add_onto(const struct work *w, struct tile tile, float *c, const int64_t rows_steps[2])
{
    tile.cells = panel_cells(w->pairs, rows_steps[1]);
    tile.pairs = w->pairs;
    tile.c = c;
    tile.c_stride = w->a->head_dim;
    tile.rows = rows_steps[0];
    tile.columns = w->a->head_dim;
    tile.add = true;
    kern_panel_multiply(&tile);
}

static void tile_run(const struct work *w, int64_t h, const int64_t from[2], const int64_t size[2])
{
    const int64_t onto_keys[2] = {size[1], size[0]};
    float *dq = w->dq + (h * w->tokens + from[0] - w->item->start) * w->a->head_dim;
    const float *p = w->pairs ? w->p_cells : w->p;
    const float *ds = w->pairs ? w->ds_cells : w->ds;
    const float *ds_rows = w->pairs ? w->ds_rows : w->ds;
    const int64_t key_cells = panel_cells(w->pairs, KEYS);
    queries_pack(w, h, from[0], size[0]);
    scores_of(w, w->q_rows, w->k_columns, w->p, size);
    scores_of(w, w->do_rows, w->v_columns, w->ds, size);
    rows_turn(w, h, from, size);
    const struct tile dv = {.a = p, .layout = LAYOUT_TURNED, .a_stride = KEYS, .b = w->do_steps};
    const struct tile dk = {.a = ds, .layout = LAYOUT_TURNED, .a_stride = KEYS, .b = w->q_steps};
    const struct tile onto_q = {
        .a = ds_rows, .layout = LAYOUT_DENSE, .a_stride = key_cells, .b = w->k_steps};
    add_onto(w, dv, w->dv, onto_keys);
    add_onto(w, dk, w->dk, onto_keys);
    add_onto(w, onto_q, dq, size);
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

/* Computes dk and dv of a tile of keys, and its part of dq, from the queries that see the keys. */
static void keys_tile(const struct work *w, int64_t first)
{
    const struct kern_attention_arguments *a = w->a;
    const struct kern_attention_item *item = w->item;
    const int64_t keys = smaller(item->stop - first, KEYS);
    const bool windowed = a->window > 0 && a->gaps == NULL;
    const int64_t last = windowed ? smaller(first + keys - 1 + a->window, item->stop) : item->stop;
    keys_pack(w, first, keys);
    for (int64_t h = 0; h < w->heads; h++) {
        int64_t query = item->start + (first - item->start) / QUERIES * QUERIES;
        for (; query < last; query += QUERIES) {
            const int64_t from[2] = {query, first};
            const int64_t size[2] = {smaller(item->stop - query, QUERIES), keys};
            if (!tile_is_hidden(a, item->row, query, first, keys)) {
                tile_run(w, h, from, size);
            }
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
