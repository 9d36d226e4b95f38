/* product.h: matrix products of the CPU device, computed by oneDNN or by our own code.
 * c[m][n] = sum over k of a[m][k] b[k][n] in fp32, then finished once: multiplied by a scale, the
 * bias and the sum of earlier products added, rounded to the stored type (struct kern_finish).
 * Called by the thread that runs ops; the work is shared among its team. */
#ifndef KERNELS_CPU_PRODUCT_H
#define KERNELS_CPU_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kern.h"

struct core_team;
struct kern_isa;

/* With p = scale * product (+ bias) and s = first ? p : sum + p: stores out = round(s) if there is
 * an `out`, or round(s + out) if it is added `onto`; otherwise sum = s. */
struct kern_finish {
    bool parameter; /* a parameter's gradient: always computed in fp32 before it is rounded to
                       `out` */
    enum kern_type bias_type;
    const void *bias; /* [n]; NULL: none */
    float scale;      /* 0: 1 */
    float *sum;
    int64_t sum_stride;
    bool first;
    bool onto;
    void *out;
    enum kern_type out_type;
    int64_t out_stride;
};

struct kern_product {
    enum kern_type type; /* type of a and b */
    int64_t m, n, k;
    const void *a;
    int64_t a_stride; /* elements from one stored row of a to the next */
    bool a_turned;    /* a is stored [k][m] */
    const void *b;
    int64_t b_stride;
    bool b_turned; /* b is stored [n][k] */
    struct kern_finish finish;
};

/* Returns the finish that writes a parameter's gradient in dense rows of `width`. */
struct kern_finish kern_finish_grad(const struct kern_grad *grad, int64_t width);

/* Returns whether the result is the product itself, without scale, bias or anything added. */
bool kern_finish_plain(const struct kern_finish *finish);
/* Returns fp32 memory that a product may write directly, because it needs no finish; NULL if there
 * is none. */
float *kern_finish_direct(const struct kern_finish *finish, int64_t *stride);

/* Computes a blocked product in C: product_plain.c. The scratch depends only on shape, type,
 * instruction set and threads. */
void kern_product_plain(const struct kern_isa *isa, struct core_team *team,
                        const struct kern_product *product, void *scratch);
size_t kern_product_plain_bytes(const struct kern_isa *isa, enum kern_type type, int64_t m,
                                int64_t n, int64_t k, unsigned threads);

#endif
