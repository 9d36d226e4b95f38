/* cudnn_graphs.c: attention and its gradient as graphs of operations that cuDNN knows as such and has whole
 * kernels for. The sums of exponentials are saved as ours are, so that either gradient takes either
 * forward's. dq is a product like the others, not a sum that whoever comes first adds to. */
#include "kernels/cuda/cudnn.h"

/* The tensors of a shape: its four sizes, and the type of its arrays. */
struct room {
    struct kern_dnn_graph *g;
    const struct kern_dnn_shape *s;
    enum kern_dnn_type type;
};

static struct room room_of(struct kern_dnn_graph *g, const struct kern_dnn_shape *s)
{
    return (struct room){g, s, s->type == KERN_BF16 ? KERN_DNN_BF16 : KERN_DNN_FP16};
}

/* An array of `heads` heads, whose rows of tokens are `stride` apart. */
static void *array(struct room r, enum kern_dnn_array id, int64_t heads, int64_t stride)
{
    const int64_t length = r.s->length;
    const int64_t width = r.s->head_dim;
    return kern_dnn_tensor(r.g,
                           &(struct kern_dnn_tensor){.size = {r.s->rows, heads, length, width},
                                                     .stride = {length * stride, width, stride, 1},
                                                     .type = r.type,
                                                     .id = id});
}

/* The same with its last two sizes exchanged, for products with the transposed array. */
static void *turned(struct room r, enum kern_dnn_array id, int64_t heads, int64_t stride)
{
    const int64_t length = r.s->length;
    const int64_t width = r.s->head_dim;
    return kern_dnn_tensor(r.g,
                           &(struct kern_dnn_tensor){.size = {r.s->rows, heads, width, length},
                                                     .stride = {length * stride, width, 1, stride},
                                                     .type = r.type,
                                                     .id = id});
}

/* [heads][tokens] of fp32 numbers of queries. */
static void *numbers(struct room r, enum kern_dnn_array id)
{
    const int64_t length = r.s->length;
    return kern_dnn_tensor(r.g,
                           &(struct kern_dnn_tensor){.size = {r.s->rows, r.s->heads, length, 1},
                                                     .stride = {length, r.s->rows * length, 1, 1},
                                                     .type = KERN_DNN_F32,
                                                     .id = id});
}

static void *constant(struct room r, enum kern_dnn_array id)
{
    return kern_dnn_tensor(
        r.g, &(struct kern_dnn_tensor){
                 .size = {1, 1, 1, 1}, .stride = {1, 1, 1, 1}, .type = KERN_DNN_F32, .id = id});
}

/* What passes between operations: dense, of all heads, with `width` numbers a query. */
static void *passing(struct room r, int64_t width, enum kern_dnn_type type)
{
    const int64_t length = r.s->length;
    return kern_dnn_tensor(
        r.g,
        &(struct kern_dnn_tensor){.size = {r.s->rows, r.s->heads, length, width},
                                  .stride = {r.s->heads * length * width, length * width, width, 1},
                                  .type = type});
}

/* x turned, rounded to the arrays' type. */
static void *transposed(struct room r, void *x)
{
    const int64_t length = r.s->length;
    void *y = kern_dnn_tensor(
        r.g, &(struct kern_dnn_tensor){
                 .size = {r.s->rows, r.s->heads, length, length},
                 .stride = {r.s->heads * length * length, length * length, 1, length},
                 .type = r.type});
    return kern_dnn_reshape(r.g, x, y);
}

/* y = x mode b: scores, or one number a query. */
static void *scores(struct room r, enum kern_dnn_mode mode, void *x, void *b)
{
    return kern_dnn_pointwise(r.g, &(struct kern_dnn_pointwise){.mode = mode, .x = x, .b = b},
                              passing(r, r.s->length, KERN_DNN_F32));
}

/* Scores of keys behind their query become the floor. */
static void *masked(struct room r, void *x)
{
    const int64_t length = r.s->length;
    void *query = kern_dnn_pointwise(
        r.g, &(struct kern_dnn_pointwise){.mode = KERN_DNN_INDEX, .x = x, .axis = 2},
        passing(r, length, KERN_DNN_INT32));
    void *key = kern_dnn_pointwise(
        r.g, &(struct kern_dnn_pointwise){.mode = KERN_DNN_INDEX, .x = x, .axis = 3},
        passing(r, length, KERN_DNN_INT32));
    void *seen = kern_dnn_pointwise(
        r.g, &(struct kern_dnn_pointwise){.mode = KERN_DNN_NOT_BELOW, .x = query, .b = key},
        passing(r, length, KERN_DNN_BOOL));
    return kern_dnn_pointwise(
        r.g,
        &(struct kern_dnn_pointwise){
            .mode = KERN_DNN_SELECT, .x = x, .b = constant(r, KERN_DNN_FLOOR), .chooser = seen},
        passing(r, length, KERN_DNN_F32));
}

/* softmax(scale q k^T + mask) v, and the log of each sum. */
void kern_dnn_graph_forward(struct kern_dnn_graph *g, const struct kern_dnn_shape *s)
{
    const struct room r = room_of(g, s);
    void *q = array(r, KERN_DNN_Q, s->heads, s->q_stride);
    void *k = turned(r, KERN_DNN_K, s->kv_heads, s->k_stride);
    void *v = array(r, KERN_DNN_V, s->kv_heads, s->v_stride);
    void *x = kern_dnn_matmul(g, q, k, passing(r, s->length, KERN_DNN_F32));
    x = masked(r, scores(r, KERN_DNN_MUL, x, constant(r, KERN_DNN_SCALE)));
    void *most = kern_dnn_fold(g, KERN_DNN_MAX, x, passing(r, 1, KERN_DNN_F32));
    x = scores(r, KERN_DNN_EXP, scores(r, KERN_DNN_SUB, x, most), NULL);
    void *sum = kern_dnn_fold(g, KERN_DNN_SUM, x, passing(r, 1, KERN_DNN_F32));
    void *log = kern_dnn_pointwise(g, &(struct kern_dnn_pointwise){.mode = KERN_DNN_LOG, .x = sum},
                                   passing(r, 1, KERN_DNN_F32));
    kern_dnn_pointwise(g, &(struct kern_dnn_pointwise){.mode = KERN_DNN_ADD, .x = most, .b = log},
                       numbers(r, KERN_DNN_LSE));
    void *p = kern_dnn_pointwise(
        g, &(struct kern_dnn_pointwise){.mode = KERN_DNN_DIV, .x = x, .b = sum},
        passing(r, s->length, r.type));
    kern_dnn_matmul(g, p, v, array(r, KERN_DNN_O, s->heads, s->o_stride));
}

/* to = a b, added over the query heads of each key head. */
static void add_heads(struct room r, void *a, void *b, enum kern_dnn_array to, int64_t stride)
{
    if (r.s->heads == r.s->kv_heads) {
        kern_dnn_matmul(r.g, a, b, array(r, to, r.s->heads, stride));
        return;
    }
    void *all = kern_dnn_matmul(r.g, a, b, passing(r, r.s->head_dim, r.type));
    kern_dnn_fold(r.g, KERN_DNN_SUM, all, array(r, to, r.s->kv_heads, stride));
}

void kern_dnn_graph_gradient(struct kern_dnn_graph *g, const struct kern_dnn_shape *s)
{
    const struct room r = room_of(g, s);
    void *q = array(r, KERN_DNN_Q, s->heads, s->q_stride);
    void *k = turned(r, KERN_DNN_K, s->kv_heads, s->k_stride);
    void *v = turned(r, KERN_DNN_V, s->kv_heads, s->v_stride);
    void *o = array(r, KERN_DNN_O, s->heads, s->o_stride);
    void *d_o = array(r, KERN_DNN_D_O, s->heads, s->d_o_stride);
    void *scale = constant(r, KERN_DNN_SCALE);
    void *x = kern_dnn_pointwise(
        g, &(struct kern_dnn_pointwise){.mode = KERN_DNN_MUL, .x = d_o, .b = o},
        passing(r, s->head_dim, KERN_DNN_F32));
    x = kern_dnn_fold(g, KERN_DNN_SUM, x, passing(r, 1, KERN_DNN_F32));
    void *delta = kern_dnn_pointwise(
        g,
        &(struct kern_dnn_pointwise){.mode = KERN_DNN_MUL, .x = x, .b = constant(r, KERN_DNN_ONE)},
        numbers(r, KERN_DNN_DELTA));
    x = kern_dnn_matmul(g, q, k, passing(r, s->length, KERN_DNN_F32));
    x = scores(r, KERN_DNN_SUB, scores(r, KERN_DNN_MUL, x, scale), numbers(r, KERN_DNN_LSE));
    void *p = scores(r, KERN_DNN_EXP, masked(r, x), NULL);
    add_heads(r, transposed(r, p), d_o, KERN_DNN_DV, s->dv_stride);
    x = kern_dnn_matmul(g, d_o, v, passing(r, s->length, KERN_DNN_F32));
    x = scores(r, KERN_DNN_MUL, scores(r, KERN_DNN_SUB, x, delta), p);
    void *d_scores = scores(r, KERN_DNN_MUL, x, scale);
    add_heads(r, transposed(r, d_scores), q, KERN_DNN_DK, s->dk_stride);
    void *keys = kern_dnn_reshape(g, k, array(r, 0, s->kv_heads, s->k_stride));
    kern_dnn_matmul(g, d_scores, keys, array(r, KERN_DNN_DQ, s->heads, s->dq_stride));
}
