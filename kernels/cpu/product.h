/* product.h: matrix products of the CPU device, by oneDNN or our own code.
 * c[m][n] = sum over k of a[m][k] b[k][n] in fp32, finished once by struct kern_finish. The caller
 * is the thread that runs ops; its team shares the work. */
#ifndef KERNELS_CPU_PRODUCT_H
#define KERNELS_CPU_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kern.h"

struct core_team;
struct kern_isa;

/* With p = scale * product (+ bias) and s = first ? p : sum + p: stores out = round(s) if there is
 * an `out`, round(s + out) if also `onto`; otherwise sum = s. */
struct kern_finish {
    bool parameter; /* a parameter's gradient: computed in fp32, then rounded to `out` */
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
    int64_t a_stride; /* elements between stored rows of a */
    bool a_turned;    /* a is stored [k][m] */
    const void *b;
    int64_t b_stride;
    bool b_turned; /* b is stored [n][k] */
    struct kern_finish finish;
};

/* Returns the finish of a parameter's gradient in dense rows of `width`. */
struct kern_finish kern_finish_grad(const struct kern_grad *grad, int64_t width);

/* Returns whether the result is the bare product. */
bool kern_finish_plain(const struct kern_finish *finish);
/* Returns fp32 memory into which the product can be written directly, without a finish, or NULL. */
float *kern_finish_direct(const struct kern_finish *finish, int64_t *stride);

/* The blocked product in C: product_plain.c. The scratch depends on shape, type, instruction set
 * and threads alone. */
void kern_product_plain(const struct kern_isa *isa, struct core_team *team,
                        const struct kern_product *product, void *scratch);
size_t kern_product_plain_bytes(const struct kern_isa *isa, enum kern_type type, int64_t m,
                                int64_t n, int64_t k, unsigned threads);

#endif
