/* ref_attention.c: attention in double, with a query's whole row of probabilities. */
#include <math.h>
#include <stdlib.h>

#include "kernels/ref/ref.h"

struct query {
    const struct kern_attention_arguments *a;
    int64_t row, head, position;
};

static int64_t token_of(const struct query *q, int64_t position)
{
    return q->row * q->a->length + position;
}

static int64_t key_head(const struct query *q)
{
    return q->head / (q->a->heads / q->a->kv_heads);
}

static int64_t first_key(const struct query *q)
{
    return q->a->starts != NULL ? q->a->starts[token_of(q, q->position)] : 0;
}

/* Returns whether the query sees key j, between first_key() and its own position. */
static bool is_seen(const struct query *q, int64_t j)
{
    const struct kern_attention_arguments *a = q->a;
    int64_t apart = q->position - j;
    if (a->gaps != NULL) {
        const int32_t *gap = a->gaps + 2 * q->row;
        if (q->position >= gap[1] && j < gap[1]) {
            if (j >= gap[0]) {
                return false;
            }
            apart -= gap[1] - gap[0];
        }
    }
    return a->window == 0 || apart < a->window;
}

static double dot(const struct query *q, const void *x, int64_t x_at, const void *y, int64_t y_at)
{
    double sum = 0.0;
    for (int64_t i = 0; i < q->a->head_dim; i++) {
        sum += kern_ref_load(q->a->type, x, x_at + i) * kern_ref_load(q->a->type, y, y_at + i);
    }
    return sum;
}

/* Sets p of keys that are not seen to 0. Returns the log of the sum of exponentials. */
static double probabilities(const struct query *q, double *p)
{
    const struct kern_attention_arguments *a = q->a;
    const int64_t q_at = token_of(q, q->position) * a->q_stride + q->head * a->head_dim;
    double top = -HUGE_VAL;
    for (int64_t j = first_key(q); j <= q->position; j++) {
        const int64_t k_at = token_of(q, j) * a->k_stride + key_head(q) * a->head_dim;
        p[j] = is_seen(q, j) ? (double)a->scale * dot(q, a->q, q_at, a->k, k_at) : -HUGE_VAL;
        top = fmax(top, p[j]);
    }
    double sum = 0.0;
    for (int64_t j = first_key(q); j <= q->position; j++) {
        sum += exp(p[j] - top);
    }
    const double lse = top + log(sum);
    for (int64_t j = first_key(q); j <= q->position; j++) {
        p[j] = exp(p[j] - lse);
    }
    return lse;
}

static void forward_query(const struct query *q, double *p)
{
    const struct kern_attention_arguments *a = q->a;
    const int64_t token = token_of(q, q->position);
    const double lse = probabilities(q, p);
    for (int64_t i = 0; i < a->head_dim; i++) {
        double sum = 0.0;
        for (int64_t j = first_key(q); j <= q->position; j++) {
            const int64_t v_at = token_of(q, j) * a->v_stride + key_head(q) * a->head_dim;
            sum += is_seen(q, j) ? p[j] * kern_ref_load(a->type, a->v, v_at + i) : 0.0;
        }
        kern_ref_store(a->type, a->o, token * a->o_stride + q->head * a->head_dim + i, sum);
    }
    a->lse[q->head * a->rows * a->length + token] = (float)lse;
}

static double *doubles(int64_t count)
{
    double *memory = calloc((size_t)count, sizeof *memory);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

void kern_ref_attention(const struct kern_attention_arguments *a)
{
    double *p = doubles(a->length + 1);
    for (int64_t i = 0; i < a->rows * a->heads * a->length; i++) {
        const struct query q = {a, i / a->length / a->heads, i / a->length % a->heads,
                                i % a->length};
        forward_query(&q, p);
    }
    free(p);
}

struct sums {
    double *dq, *dk, *dv; /* [tokens][heads or kv_heads][head_dim] */
};

static void grad_query(const struct kern_attention_grad_arguments *g, const struct query *q,
                       double *p, const struct sums *sums)
{
    const struct kern_attention_arguments *a = q->a;
    const int64_t d = a->head_dim;
    const int64_t token = token_of(q, q->position);
    const int64_t do_at = token * g->d_o_stride + q->head * d;
    const double delta = dot(q, g->d_o, do_at, a->o, token * a->o_stride + q->head * d);
    probabilities(q, p);
    for (int64_t j = first_key(q); j <= q->position; j++) {
        if (!is_seen(q, j)) {
            continue;
        }
        const int64_t key = token_of(q, j);
        const int64_t k_at = key * a->k_stride + key_head(q) * d;
        const int64_t v_at = key * a->v_stride + key_head(q) * d;
        const double ds = p[j] * (dot(q, g->d_o, do_at, a->v, v_at) - delta) * (double)a->scale;
        double *dq = sums->dq + (token * a->heads + q->head) * d;
        double *dk = sums->dk + (key * a->kv_heads + key_head(q)) * d;
        double *dv = sums->dv + (key * a->kv_heads + key_head(q)) * d;
        for (int64_t i = 0; i < d; i++) {
            dq[i] += ds * kern_ref_load(a->type, a->k, k_at + i);
            dk[i] += ds * kern_ref_load(a->type, a->q, token * a->q_stride + q->head * d + i);
            dv[i] += p[j] * kern_ref_load(a->type, g->d_o, do_at + i);
        }
    }
}

static void write(enum kern_type type, const double *from, void *to, int64_t stride,
                  const int64_t shape[2])
{
    for (int64_t t = 0; t < shape[0]; t++) {
        for (int64_t i = 0; i < shape[1]; i++) {
            kern_ref_store(type, to, t * stride + i, from[t * shape[1] + i]);
        }
    }
}

void kern_ref_attention_grad(const struct kern_attention_grad_arguments *g)
{
    const struct kern_attention_arguments *a = &g->forward;
    const int64_t tokens = a->rows * a->length;
    const int64_t queries[2] = {tokens, a->heads * a->head_dim};
    const int64_t keys[2] = {tokens, a->kv_heads * a->head_dim};
    double *p = doubles(a->length + 1);
    const struct sums sums = {doubles(queries[0] * queries[1] + 1), doubles(keys[0] * keys[1] + 1),
                              doubles(keys[0] * keys[1] + 1)};
    for (int64_t i = 0; i < a->rows * a->heads * a->length; i++) {
        const struct query q = {a, i / a->length / a->heads, i / a->length % a->heads,
                                i % a->length};
        grad_query(g, &q, p, &sums);
    }
    write(a->type, sums.dq, g->dq, g->dq_stride, queries);
    write(a->type, sums.dk, g->dk, g->dk_stride, keys);
    write(a->type, sums.dv, g->dv, g->dv_stride, keys);
    free(p);
    free(sums.dq);
    free(sums.dk);
    free(sums.dv);
}
