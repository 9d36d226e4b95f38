/* cudnn.h: attention by cuDNN 9; private to kernels/cuda. cudnn.c is the door: it opens the library at run
 * time and describes tensors, operations and plans to it. cudnn_graphs.c says what attention and its
 * gradient are made of, attention_cudnn.c when they are used. The thread that submits enters. */
#ifndef KERNELS_CUDA_CUDNN_H
#define KERNELS_CUDA_CUDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kern.h"

/* All that a plan depends on; compared as bytes. */
struct kern_dnn_shape {
    int32_t rows, length, heads, kv_heads;
    int32_t q_stride, k_stride, v_stride, o_stride;
    int32_t d_o_stride, dq_stride, dk_stride, dv_stride; /* 0 where it is no gradient */
    int32_t head_dim;
    uint8_t type; /* enum kern_type: bf16 or fp16 */
    uint8_t grad;
    uint8_t unused[2];
};

/* What the library reads and writes. The gradient has fp32 deltas of its own, [heads][tokens]. */
enum kern_dnn_array {
    KERN_DNN_Q = 1,
    KERN_DNN_K,
    KERN_DNN_V,
    KERN_DNN_O,
    KERN_DNN_LSE,
    KERN_DNN_D_O,
    KERN_DNN_DELTA,
    KERN_DNN_DQ,
    KERN_DNN_DK,
    KERN_DNN_DV,
    KERN_DNN_SCALE, /* these are numbers of the host */
    KERN_DNN_FLOOR, /* what a score is that nobody sees */
    KERN_DNN_ONE,
    KERN_DNN_ARRAYS
};

struct kern_dnn;
struct kern_dnn_plan;

/* For the calling thread's card. `described`: JSON of a card that need not be there, whose graphs can be
 * made and whose plans are refused; NULL for the real one. -ENOTSUP with a sentence where the library is
 * not there or not one of 9.x. */
int kern_dnn_open(const char *described, struct kern_dnn **out);
void kern_dnn_close(struct kern_dnn *dnn); /* NULL is fine */
size_t kern_dnn_version(const struct kern_dnn *dnn);

/* The first way that the library proposes whose bits are the same each time and whose workspace is at
 * most `workspace_bytes`. -ENOTSUP with a sentence that names the call and its status where it has none. */
int kern_dnn_plan_create(struct kern_dnn *dnn, const struct kern_dnn_shape *shape,
                         size_t workspace_bytes, struct kern_dnn_plan **out);
void kern_dnn_plan_destroy(struct kern_dnn_plan *plan); /* NULL is fine */
size_t kern_dnn_plan_workspace_bytes(const struct kern_dnn_plan *plan);
/* The number that the library gives to the way. */
int64_t kern_dnn_plan_engine(const struct kern_dnn_plan *plan);
/* Puts it on the stream. arrays[KERN_DNN_SCALE] and after it are filled in. */
int kern_dnn_plan_run(struct kern_dnn_plan *plan, void *stream, const void *arrays[KERN_DNN_ARRAYS],
                      float scale, void *workspace);

/* ---- cudnn_load.c: the library's functions, and its version looked at. ---- */

struct kern_dnn_calls {
    size_t (*version)(void);
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*stream)(void *handle, void *stream);
    int (*make)(int kind, void **descriptor);
    int (*unmake)(void *descriptor);
    int (*set)(void *descriptor, int name, int type, int64_t count, const void *values);
    int (*get)(const void *descriptor, int name, int type, int64_t wanted, int64_t *count,
               void *values);
    int (*finalize)(void *descriptor);
    int (*execute)(void *handle, void *plan, void *pack);
};

int kern_dnn_load(struct kern_dnn_calls *calls, void **library);
void kern_dnn_unload(void *library); /* NULL is fine */

/* ---- Between cudnn.c and cudnn_graphs.c: a graph that is being described. The first error stays, and
 * what follows it does nothing. ---- */

enum { KERN_DNN_MADE_MAX = 160, KERN_DNN_OPS_MAX = 32 };

/* Numbers of the library's interface. */
enum kern_dnn_type {
    KERN_DNN_F32 = 0,
    KERN_DNN_FP16 = 2,
    KERN_DNN_INT32 = 4,
    KERN_DNN_BF16 = 9,
    KERN_DNN_BOOL = 11
};
enum kern_dnn_mode {
    KERN_DNN_ADD = 0,
    KERN_DNN_MUL = 1,
    KERN_DNN_DIV = 6,
    KERN_DNN_SUB = 9,
    KERN_DNN_EXP = 13,
    KERN_DNN_LOG = 15,
    KERN_DNN_NOT_BELOW = 303,
    KERN_DNN_INDEX = 501,
    KERN_DNN_SELECT = 601
};
enum kern_dnn_fold { KERN_DNN_SUM = 0, KERN_DNN_MAX = 3 };

struct kern_dnn_graph {
    struct kern_dnn *dnn;
    void *made[KERN_DNN_MADE_MAX]; /* owned: descriptors, the last ones first when it ends */
    size_t made_count;
    void *ops[KERN_DNN_OPS_MAX]; /* of `made` */
    size_t op_count;
    int64_t next_id; /* of tensors that have no memory */
    uint32_t ids;    /* bits of kern_dnn_array: what the graph has */
    int rc;
};

/* [rows][heads][length][width], counted in elements; `id` 0: it has no memory of its own. */
struct kern_dnn_tensor {
    int64_t size[4], stride[4];
    enum kern_dnn_type type;
    enum kern_dnn_array id;
};

struct kern_dnn_pointwise {
    enum kern_dnn_mode mode;
    void *x, *b, *chooser; /* b, chooser: NULL where the mode has none */
    int64_t axis;          /* of KERN_DNN_INDEX */
};

void *kern_dnn_tensor(struct kern_dnn_graph *g, const struct kern_dnn_tensor *tensor);
void *kern_dnn_pointwise(struct kern_dnn_graph *g, const struct kern_dnn_pointwise *p, void *y);
void *kern_dnn_matmul(struct kern_dnn_graph *g, void *a, void *b, void *c);
void *kern_dnn_fold(struct kern_dnn_graph *g, enum kern_dnn_fold fold, void *x, void *y);
void *kern_dnn_reshape(struct kern_dnn_graph *g, void *x, void *y);

/* ---- cudnn_graphs.c ---- */

void kern_dnn_graph_forward(struct kern_dnn_graph *g, const struct kern_dnn_shape *shape);
void kern_dnn_graph_gradient(struct kern_dnn_graph *g, const struct kern_dnn_shape *shape);

#endif
