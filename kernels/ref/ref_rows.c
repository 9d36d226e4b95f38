/* ref_rows.c: norms, RoPE, activations, addition, dropout, DoRA and stored weights, in double. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "kernels/quant_values.h"
#include "kernels/ref/ref.h"

static int64_t row_at(int64_t row, int64_t heads, int64_t stride, int64_t width)
{
    return row / heads * stride + row % heads * width;
}

void kern_ref_norm(const struct kern_norm_arguments *a)
{
    const bool layer = a->kind == KERN_NORM_LAYER;
    for (int64_t row = 0; row < a->tokens * a->heads; row++) {
        const int64_t x = row_at(row, a->heads, a->x_stride, a->width);
        const int64_t y = row_at(row, a->heads, a->y_stride, a->width);
        const void *s = a->add != NULL ? a->sum : a->x;
        double mean = 0.0;
        for (int64_t i = 0; i < a->width; i++) {
            if (a->add != NULL) {
                kern_ref_store(a->type, a->sum, x + i,
                               kern_ref_load(a->type, a->x, x + i) +
                                   kern_ref_load(a->type, a->add, x + i));
            }
            mean += layer ? kern_ref_load(a->type, s, x + i) / (double)a->width : 0.0;
        }
        double squares = 0.0;
        for (int64_t i = 0; i < a->width; i++) {
            const double value = kern_ref_load(a->type, s, x + i) - mean;
            squares += value * value;
        }
        const double rstd = 1.0 / sqrt(squares / (double)a->width + (double)a->eps);
        a->rstd[row] = (float)rstd;
        if (layer) {
            a->mean[row] = (float)mean;
        }
        for (int64_t i = 0; i < a->width; i++) {
            double value = (kern_ref_load(a->type, s, x + i) - mean) * rstd *
                           kern_ref_load(a->type, a->weight, i);
            value += layer && a->bias != NULL ? kern_ref_load(a->type, a->bias, i) : 0.0;
            kern_ref_store(a->type, a->y, y + i, value);
        }
    }
}

static void norm_grad_row(const struct kern_norm_grad_arguments *a, int64_t row, double *dweight,
                          double *dbias)
{
    const int64_t s = row_at(row, a->heads, a->s_stride, a->width);
    const int64_t dy = row_at(row, a->heads, a->dy_stride, a->width);
    const int64_t dx = row_at(row, a->heads, a->dx_stride, a->width);
    const bool layer = a->kind == KERN_NORM_LAYER;
    const double mean = layer ? (double)a->mean[row] : 0.0;
    const double rstd = (double)a->rstd[row];
    double sum = 0.0;
    double dot = 0.0;
    for (int64_t i = 0; i < a->width; i++) {
        const double n = (kern_ref_load(a->type, a->s, s + i) - mean) * rstd;
        const double in = kern_ref_load(a->type, a->dy, dy + i);
        const double g = in * kern_ref_load(a->type, a->weight, i);
        sum += layer ? g : 0.0;
        dot += g * n;
        dweight[i] += in * n;
        dbias[i] += in;
    }
    for (int64_t i = 0; i < a->width; i++) {
        const double n = (kern_ref_load(a->type, a->s, s + i) - mean) * rstd;
        const double g = kern_ref_load(a->type, a->dy, dy + i) *
                         kern_ref_load(a->type, a->weight, i);
        const double add = a->add != NULL ? kern_ref_load(a->type, a->add, dx + i) : 0.0;
        kern_ref_store(a->type, a->dx, dx + i,
                       rstd * (g - (sum + n * dot) / (double)a->width) + add);
    }
}

void kern_ref_norm_grad(const struct kern_norm_grad_arguments *a)
{
    double *sums = calloc(2 * (size_t)a->width, sizeof *sums);
    if (sums == NULL) {
        abort(); /* a reference with wrong sums would be worse */
    }
    for (int64_t row = 0; row < a->tokens * a->heads; row++) {
        norm_grad_row(a, row, sums, sums + a->width);
    }
    for (int64_t i = 0; i < a->width; i++) {
        kern_ref_grad(&a->dweight, i, sums[i]);
        kern_ref_grad(&a->dbias, i, sums[a->width + i]);
    }
    free(sums);
}

void kern_ref_rope(const struct kern_rope_arguments *a)
{
    const int64_t half = a->rotary / 2;
    for (int64_t t = 0; t < a->tokens; t++) {
        const int64_t position = a->positions != NULL ? a->positions[t] : t % a->length;
        for (int64_t i = 0; i < a->heads * half; i++) {
            const int64_t first = t * a->stride + i / half * a->head_dim + i % half;
            const double c = (double)a->cos[position * half + i % half];
            const double turn = (double)a->sin[position * half + i % half];
            const double s = a->backward ? -turn : turn;
            const double x = kern_ref_load(a->type, a->x, first);
            const double y = kern_ref_load(a->type, a->x, first + half);
            kern_ref_store(a->type, a->x, first, x * c - y * s);
            kern_ref_store(a->type, a->x, first + half, y * c + x * s);
        }
    }
}

static double act(enum kern_act_kind kind, double x, double *slope)
{
    const double root = 0.7978845608028654; /* sqrt(2 / pi) */
    switch (kind) {
    case KERN_ACT_SILU: {
        const double s = 1.0 / (1.0 + exp(-x));
        *slope = s * (1.0 + x * (1.0 - s));
        return x * s;
    }
    case KERN_ACT_GELU_TANH: {
        const double t = tanh(root * (x + 0.044715 * x * x * x));
        *slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 3.0 * 0.044715 * x * x);
        return 0.5 * x * (1.0 + t);
    }
    case KERN_ACT_GELU: {
        const double part = 0.5 * erfc(-x * 0.7071067811865476);
        *slope = part + x * exp(-0.5 * x * x) * 0.3989422804014327;
        return x * part;
    }
    case KERN_ACT_RELU: break;
    }
    *slope = x > 0.0 ? 1.0 : 0.0;
    return x > 0.0 ? x : 0.0;
}

void kern_ref_act(const struct kern_act_arguments *a)
{
    for (int64_t t = 0; t < a->tokens; t++) {
        for (int64_t i = 0; i < a->width; i++) {
            double slope = 0.0;
            double y = act(a->kind, kern_ref_load(a->type, a->gate, t * a->gate_stride + i),
                           &slope);
            y *= a->up != NULL ? kern_ref_load(a->type, a->up, t * a->up_stride + i) : 1.0;
            kern_ref_store(a->type, a->y, t * a->y_stride + i, y);
        }
    }
}

void kern_ref_act_grad(const struct kern_act_grad_arguments *a)
{
    for (int64_t t = 0; t < a->tokens; t++) {
        for (int64_t i = 0; i < a->width; i++) {
            double slope = 0.0;
            const double y = act(a->kind, kern_ref_load(a->type, a->gate, t * a->gate_stride + i),
                                 &slope);
            const double up = a->up != NULL ? kern_ref_load(a->type, a->up, t * a->up_stride + i)
                                            : 1.0;
            const double dy = kern_ref_load(a->type, a->dy, t * a->dy_stride + i);
            kern_ref_store(a->type, a->dgate, t * a->dgate_stride + i, dy * up * slope);
            if (a->up != NULL) {
                kern_ref_store(a->type, a->dup, t * a->dup_stride + i, dy * y);
            }
            if (a->y != NULL) {
                kern_ref_store(a->type, a->y, t * a->y_stride + i, y * up);
            }
        }
    }
}

void kern_ref_add(const struct kern_add_arguments *a)
{
    for (int64_t i = 0; i < a->count; i++) {
        const double b = a->b != NULL ? kern_ref_load(a->b_type, a->b, i) : 0.0;
        kern_ref_store(a->y_type, a->y, i, kern_ref_load(a->a_type, a->a, i) + b);
    }
}

/* Rounds to fp32, then to the type, as every device does. */
static float expanded(const struct kern_expand_arguments *a, int64_t i)
{
    static const float nf4_values[] = {KERN_NF4_VALUES};
    static const float map_values[] = {KERN_DYNAMIC_VALUES};
    const int64_t blocks = (a->rows * a->cols + 63) / 64;
    const uint8_t *codes = a->codes;
    const uint8_t *scales = a->scales;
    if (a->quant == KERN_QUANT_INT8) {
        float scale;
        memcpy(&scale, scales + i / a->cols * 4, sizeof scale);
        return (float)(int8_t)codes[i] * scale * (1.0f / 127.0f);
    }
    const int code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
    if (a->quant == KERN_QUANT_NF4_F32) {
        float scale;
        memcpy(&scale, scales + i / 64 * 4, sizeof scale);
        return nf4_values[code] * scale;
    }
    const float nested = a->nested[(a->first + i) / 64 / 256];
    const float offset = a->nested[(blocks + 255) / 256];
    return nf4_values[code] * (map_values[scales[i / 64]] * nested + offset);
}

void kern_ref_expand(const struct kern_expand_arguments *a)
{
    for (int64_t i = 0; i < a->count; i++) {
        const double value = a->quant == KERN_QUANT_NONE ? kern_ref_load(a->from, a->codes, i)
                                                         : (double)expanded(a, i);
        kern_ref_store(a->type, a->y, i, value);
    }
}

void kern_ref_dropout(const struct kern_dropout_arguments *a)
{
    for (int64_t i = 0; i < a->count; i++) {
        const struct core_rng_words words = core_rng_philox(*a->seed, a->stream, (uint64_t)i / 4);
        const bool drops = core_rng_unit(words.word[i % 4]) < a->rate;
        const double factor = *a->seed == 0 ? 1.0 : drops ? 0.0 : 1.0 / (1.0 - (double)a->rate);
        const double add = a->add != NULL ? kern_ref_load(a->type, a->add, i) : 0.0;
        const double x = kern_ref_load(a->type, a->x, i);
        double value = x * factor;
        if (a->rest) {
            double rounded[1]; /* room for any type */
            kern_ref_store(a->type, rounded, 0, value);
            value = x - kern_ref_load(a->type, rounded, 0);
        }
        kern_ref_store(a->type, a->y, i, value + add);
    }
}

void kern_ref_magnitude(const struct kern_magnitude_arguments *a)
{
    for (int64_t row = 0; row < a->rows; row++) {
        double squares = 0.0;
        for (int64_t i = 0; i < a->cols; i++) {
            double added = 0.0;
            for (int64_t r = 0; r < a->rank; r++) {
                added += kern_ref_load(a->type, a->b, row * a->rank + r) *
                         kern_ref_load(a->type, a->a, r * a->cols + i);
            }
            const double value = kern_ref_load(a->type, a->w, row * a->cols + i) +
                                 (double)a->scale * added;
            squares += value * value;
        }
        double norm[1]; /* room for any type */
        kern_ref_store(a->type, norm, 0, sqrt(squares));
        const double rounded = kern_ref_load(a->type, norm, 0);
        const double magnitude = kern_ref_load(a->type, a->magnitude, row);
        a->factor[row] = rounded > 0.0 ? (float)(magnitude / rounded) : 1.0f;
        a->inverse[row] = rounded > 0.0 ? (float)(1.0 / rounded) : 0.0f;
    }
}

void kern_ref_columns(const struct kern_columns_arguments *a)
{
    for (int64_t t = 0; t < a->tokens; t++) {
        for (int64_t i = 0; i < a->width; i++) {
            double value = kern_ref_load(a->type, a->x, t * a->x_stride + i);
            value *= a->factor != NULL ? (double)a->factor[i] : 1.0;
            value *= a->by != NULL ? kern_ref_load(a->type, a->by, t * a->by_stride + i) : 1.0;
            value += a->bias != NULL ? kern_ref_load(a->type, a->bias, i) : 0.0;
            value += a->add != NULL ? kern_ref_load(a->type, a->add, t * a->y_stride + i) : 0.0;
            kern_ref_store(a->type, a->y, t * a->y_stride + i, value);
        }
    }
}
