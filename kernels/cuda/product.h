/* product.h: matrix products of a CUDA card, whoever computes them.
 * out[m][n] = round(sum over k of a[m][k] b[k][n] + bias[n]), summed in fp32. What is added to sums of
 * earlier products goes through fp32 scratch and kern_cuda_finish, so that the bits of a product do
 * not depend on where it goes. Host side; puts work on the queue's stream. */
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
    int64_t a_stride; /* between rows as they are stored */
    bool a_turned;    /* stored [k][m] */
    const void *b;
    int64_t b_stride;
    bool b_turned;    /* stored [n][k] */
    const void *bias; /* [n]; NULL: none */
    void *out;
    enum kern_type out_type; /* `type`, or KERN_F32 */
    int64_t out_stride;
};

/* By cuBLASLt where it is there and takes the product, else by the plain kernel. */
int kern_cuda_product(const struct dev_launch *where, const char *op,
                      const struct kern_cuda_product *product);
/* By tiles in shared memory, without tensor cores: any shape, stride and alignment. */
int kern_cuda_product_plain(const struct dev_launch *where, const char *op,
                            const struct kern_cuda_product *product);

/* With p dense fp32 [rows][width]: s = first ? p : sum + p; out ? out = round(s) : sum = s.
 * `sum` is dense, `out` has a stride. */
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

/* A product whose rows are finished: in runs of rows, each through fp32 scratch. The product's out
 * is ignored. `scratch` has kern_cuda_product_sum_bytes. */
int kern_cuda_product_sum(const struct dev_launch *where, const char *op,
                          const struct kern_cuda_product *product,
                          const struct kern_cuda_finish *finish, void *scratch);
size_t kern_cuda_product_sum_bytes(int64_t m, int64_t n);

/* The finish that writes a parameter's gradient, dense rows of `width`. */
struct kern_cuda_finish kern_cuda_finish_grad(const struct kern_grad *grad, int64_t width);

/* The end of a queue's scratch, which is cuBLASLt's own. */
enum { KERN_CUDA_WORKSPACE_BYTES = 32 << 20 };

#ifdef __cplusplus
}
#endif

#endif
