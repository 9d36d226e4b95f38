/* ref_linear.c: products, the bias and the embedding in double. */
#include "kernels/ref/ref.h"

static double scale_of(float scale)
{
    return scale > 0.0f || scale < 0.0f ? (double)scale : 1.0;
}

void kern_ref_linear(const struct kern_linear_arguments *a)
{
    for (int64_t i = 0; i < a->m; i++) {
        for (int64_t j = 0; j < a->n; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < a->k; k++) {
                sum += kern_ref_load(a->type, a->x, i * a->x_stride + k) *
                       kern_ref_load(a->type, a->w, j * a->k + k);
            }
            sum *= scale_of(a->scale);
            sum += a->bias != NULL ? kern_ref_load(a->type, a->bias, j) : 0.0;
            sum += a->onto ? kern_ref_load(a->type, a->y, i * a->y_stride + j) : 0.0;
            kern_ref_store(a->type, a->y, i * a->y_stride + j, sum);
        }
    }
}

void kern_ref_linear_grad_input(const struct kern_linear_grad_input_arguments *a)
{
    for (int64_t i = 0; i < a->m; i++) {
        for (int64_t k = 0; k < a->k; k++) {
            double sum = 0.0;
            for (int64_t j = 0; j < a->n; j++) {
                sum += kern_ref_load(a->type, a->dy, i * a->dy_stride + j) *
                       kern_ref_load(a->type, a->w, j * a->k + k);
            }
            sum = sum * scale_of(a->scale) + (a->first ? 0.0 : (double)a->sum[i * a->k + k]);
            if (a->last) {
                kern_ref_store(a->type, a->dx, i * a->dx_stride + k, sum);
            } else {
                a->sum[i * a->k + k] = (float)sum;
            }
        }
    }
}

void kern_ref_linear_grad_weight(const struct kern_linear_grad_weight_arguments *a)
{
    for (int64_t j = 0; j < a->n; j++) {
        for (int64_t k = 0; k < a->k; k++) {
            double sum = 0.0;
            for (int64_t i = 0; i < a->m; i++) {
                sum += kern_ref_load(a->type, a->dy, i * a->dy_stride + j) *
                       kern_ref_load(a->type, a->x, i * a->x_stride + k);
            }
            kern_ref_grad(&a->dw, j * a->k + k, sum);
        }
    }
}

void kern_ref_bias_grad(const struct kern_bias_grad_arguments *a)
{
    for (int64_t j = 0; j < a->n; j++) {
        double sum = 0.0;
        for (int64_t i = 0; i < a->m; i++) {
            sum += kern_ref_load(a->type, a->dy, i * a->dy_stride + j);
        }
        kern_ref_grad(&a->db, j, sum);
    }
}

void kern_ref_embed(const struct kern_embed_arguments *a)
{
    const int64_t stride = a->stride > 0 ? a->stride : a->width;
    for (int64_t t = 0; t < a->tokens; t++) {
        const int64_t position = a->positions != NULL ? a->positions[t] : t % a->length;
        for (int64_t i = 0; i < a->width; i++) {
            double value = kern_ref_load(a->type, a->table, a->ids[t] * stride + i);
            if (a->position_table != NULL) {
                value += kern_ref_load(a->type, a->position_table, position * a->width + i);
            }
            kern_ref_store(a->type, a->y, t * a->width + i, value);
        }
    }
}

void kern_ref_embed_grad(const struct kern_embed_grad_arguments *a)
{
    for (int64_t id = 0; id < a->vocab; id++) {
        const bool padding = a->has_padding && id == a->padding_id;
        for (int64_t i = 0; i < a->width; i++) {
            double sum = 0.0;
            for (int64_t t = 0; t < a->tokens; t++) {
                const int64_t here = a->ids != NULL ? a->ids[t] : t % a->length;
                sum += here == id && !padding ? kern_ref_load(a->type, a->dy, t * a->width + i)
                                              : 0.0;
            }
            kern_ref_grad(&a->dtable, id * a->width + i, sum);
        }
    }
}
