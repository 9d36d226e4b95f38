/* cpu.h: private to kernels/: the ops of the CPU device and their helpers.
 * An op runs on the queue's thread (member 0 of the team) and returns when it is complete.
 * `kern_cpu_<op>_bytes` returns the op's scratch bytes. */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include <stddef.h>

#include "core/dev/launch.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/product.h"
#include "kernels/kern.h"

struct kern_dnnl;

/* The object of dev_launch.context. Read-only while queues run, except for the cache in `dnnl`. */
struct kern_cpu {
    const struct kern_isa *isa;
    struct kern_dnnl *dnnl; /* owned; NULL: products use our own code */
    char description[160];
};

#define KERN_CPU_OPS(each)                                                                         \
    each(KERN_LINEAR, linear) each(KERN_LINEAR_GRAD_INPUT, linear_grad_input)                      \
        each(KERN_LINEAR_GRAD_WEIGHT, linear_grad_weight) each(KERN_BIAS_GRAD, bias_grad)          \
            each(KERN_EMBED, embed) each(KERN_EMBED_GRAD, embed_grad) each(KERN_NORM, norm)        \
                each(KERN_NORM_GRAD, norm_grad) each(KERN_ROPE, rope)                              \
                    each(KERN_ATTENTION, attention) each(KERN_ATTENTION_GRAD, attention_grad)      \
                        each(KERN_ACT, act) each(KERN_ACT_GRAD, act_grad) each(KERN_ADD, add)      \
                            each(KERN_LOSS, loss) each(KERN_EXPAND, expand)                        \
                                each(KERN_DROPOUT, dropout) each(KERN_MAGNITUDE, magnitude)        \
                                    each(KERN_COLUMNS, columns)

#define KERN_CPU_DECLARE(id, name)                                                                 \
    int kern_cpu_##name(const struct dev_launch *where, const struct kern_##name##_arguments *a);  \
    size_t kern_cpu_##name##_bytes(const struct kern_##name##_arguments *a, unsigned threads);
KERN_CPU_OPS(KERN_CPU_DECLARE)
#undef KERN_CPU_DECLARE

/* Returns -ENOMEM with a message if the queue's scratch is smaller than `bytes`. */
int kern_cpu_need(const struct dev_launch *where, enum kern_op op, size_t bytes);

/* Returns *scratch, and advances it by `bytes`, rounded up to a multiple of 64. */
void *kern_cpu_take(char **scratch, size_t bytes);
size_t kern_cpu_round(size_t bytes);

/* `scratch` has kern_cpu_product_bytes. */
int kern_cpu_product(const struct dev_launch *where, const struct kern_product *product,
                     void *scratch);
/* Returns scratch bytes that are enough for any method and instruction set. */
size_t kern_cpu_product_bytes(enum kern_type type, int64_t m, int64_t n, int64_t k,
                              unsigned threads);

typedef void kern_cpu_range(const void *argument, int64_t begin, int64_t end);
/* Runs `part(argument, begin, end)` over shares of [0, total) on the team; as one call on this
 * thread if `total` is at most `grain`. */
void kern_cpu_spread(const struct dev_launch *where, int64_t total, int64_t grain,
                     kern_cpu_range *part, const void *argument);

/* A sum over rows has this number of parts, for any number of threads. */
enum { KERN_CPU_PARTS = 64 };
/* Adds parts [KERN_CPU_PARTS][width] in order into the first, and finishes it as a gradient of one
 * row. */
void kern_cpu_parts_finish(const struct kern_isa *isa, float *parts, int64_t width,
                           const struct kern_grad *grad);
void kern_cpu_part_rows(int64_t rows, int64_t index, int64_t *begin, int64_t *end);

static inline const struct kern_isa *kern_cpu_isa(const struct dev_launch *where)
{
    return ((const struct kern_cpu *)where->context)->isa;
}

static inline bool kern_grad_wanted(const struct kern_grad *grad)
{
    return grad->sum != NULL || grad->out != NULL;
}

#endif
