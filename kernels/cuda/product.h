/* product.h: matrix products on a CUDA card, by cuBLASLt or the plain kernel. Host side; puts work
 * on the queue's stream.
 * out[m][n] = round(scale * sum over k of a[m][k] b[k][n] + bias[n] + (onto ? out[m][n] : 0)),
 * summed in fp32. kern_cuda_product_sum() adds to sums of earlier products in a second kernel
 * (kern_cuda_finish), so that the bits do not depend on the destination. */
#ifndef KERNELS_CUDA_PRODUCT_H
#define KERNELS_CUDA_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dev/launch.h"
#include "kernels/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kern_cuda_product {
    enum kern_type type; /* of a, b and bias */
    int64_t m, n, k;
    const void *a;
    int64_t a_stride; /* elements between stored rows of a */
    bool a_turned;    /* a is stored [k][m] */
    const void *b;
    int64_t b_stride;
    bool b_turned;    /* b is stored [n][k] */
    const void *bias; /* [n]; NULL: none */
    void *out;
    enum kern_type out_type; /* `type`, or KERN_F32 */
    int64_t out_stride;
    float scale; /* 0: 1 */
    bool onto;   /* out is added to */
};

/* Uses cuBLASLt if it is loaded and has an algorithm, else the plain kernel. */
int kern_cuda_product(const struct dev_launch *where, const char *op,
                      const struct kern_cuda_product *product);
/* Computes by tiles in shared memory, without tensor cores. Any stride and alignment; n up to 64 *
 * 65535. */
int kern_cuda_product_plain(const struct dev_launch *where, const char *op,
                            const struct kern_cuda_product *product);

/* With p dense fp32 [rows][width]: s = first ? p : sum + p; out ? out = round(s) : sum = s. `sum`
 * is dense, `out` has a stride. */
struct kern_cuda_finish {
    const float *p;
    int64_t rows, width;
    float *sum;
    bool first;
    void *out;
    enum kern_type out_type;
    int64_t out_stride;
};
int kern_cuda_finish(const struct dev_launch *where, const char *op,
                     const struct kern_cuda_finish *finish);

/* Computes a product in runs of rows and applies `finish`. Results of a run go through `scratch`
 * (kern_cuda_product_sum_bytes() bytes), unless finish->first is set and the destination is fp32.
 * Ignores the product's out, out_type and out_stride and finish's p and rows. */
int kern_cuda_product_sum(const struct dev_launch *where, const char *op,
                          const struct kern_cuda_product *product,
                          const struct kern_cuda_finish *finish, void *scratch);
size_t kern_cuda_product_sum_bytes(int64_t m, int64_t n);

/* Returns the finish of a parameter's gradient in dense rows of `width`, without p and rows. */
struct kern_cuda_finish kern_cuda_finish_grad(const struct kern_grad *grad, int64_t width);

/* cuBLASLt's workspace, at the end of a queue's scratch. */
enum { KERN_CUDA_WORKSPACE_BYTES = 32 << 20 };

#ifdef __cplusplus
}
#endif

#endif
