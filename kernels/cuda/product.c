/* product.c: chooses the code of a product, and computes products that are added to sums. */
#include "kernels/cuda/product.h"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/product_lt.h"

/* A run's results take at most SUM_BYTES, unless SUM_GRAIN rows take more. */
enum { SUM_BYTES = 256 << 20, SUM_GRAIN = 256 };

int kern_cuda_product(const struct dev_launch *where, const char *op,
                      const struct kern_cuda_product *product)
{
    const struct kern_cuda *cuda = where->context;
    if (product->m == 0 || product->n == 0) {
        return 0;
    }
    if (cuda->lt != NULL && product->k > 0) {
        bool taken = false;
        const int rc = kern_lt_product(cuda->lt, where, op, product, &taken);
        if (rc != 0 || taken) {
            return rc;
        }
    }
    return kern_cuda_product_plain(where, op, product);
}

/* Returns the rows of a run, whatever the destination. */
static int64_t run_rows(int64_t m, int64_t n)
{
    const int64_t rows = SUM_BYTES / (int64_t)sizeof(float) / (n > 0 ? n : 1) / SUM_GRAIN *
                         SUM_GRAIN;
    const int64_t least = rows > SUM_GRAIN ? rows : SUM_GRAIN;
    return m < least ? m : least;
}

size_t kern_cuda_product_sum_bytes(int64_t m, int64_t n)
{
    return ((size_t)(run_rows(m, n) * n) * sizeof(float) + 255) / 256 * 256;
}

static const void *at(const void *base, enum kern_type type, int64_t index)
{
    return (const char *)base + (size_t)index * kern_type_bytes(type);
}

/* Returns the destination of the run's results, and sets *stride, if they can be written there
 * directly; else NULL. */
static float *direct(const struct kern_cuda_finish *finish, int64_t begin, int64_t *stride)
{
    if (!finish->first || (finish->out != NULL && finish->out_type != KERN_F32)) {
        return NULL;
    }
    *stride = finish->out != NULL ? finish->out_stride : finish->width;
    return (float *)(finish->out != NULL ? finish->out : finish->sum) + begin * *stride;
}

static int run_finish(const struct dev_launch *where, const char *op,
                      const struct kern_cuda_finish *finish, const int64_t range[2], const float *p)
{
    struct kern_cuda_finish run = *finish;
    run.p = p;
    run.rows = range[1] - range[0];
    run.sum = run.sum != NULL ? run.sum + range[0] * run.width : NULL;
    run.out = run.out != NULL ? (char *)run.out + (size_t)(range[0] * run.out_stride) *
                                                      kern_type_bytes(run.out_type)
                              : NULL;
    return kern_cuda_finish(where, op, &run);
}

int kern_cuda_product_sum(const struct dev_launch *where, const char *op,
                          const struct kern_cuda_product *product,
                          const struct kern_cuda_finish *finish, void *scratch)
{
    const int64_t rows = run_rows(product->m, product->n);
    int rc = 0;
    for (int64_t begin = 0; begin < product->m && rc == 0; begin += rows) {
        const int64_t range[2] = {begin, begin + rows < product->m ? begin + rows : product->m};
        struct kern_cuda_product run = *product;
        run.m = range[1] - range[0];
        run.a = at(product->a, product->type, begin * (product->a_turned ? 1 : product->a_stride));
        run.out_type = KERN_F32;
        run.out_stride = product->n;
        float *straight = direct(finish, begin, &run.out_stride);
        run.out = straight != NULL ? straight : scratch;
        rc = kern_cuda_product(where, op, &run);
        if (rc == 0 && straight == NULL) {
            rc = run_finish(where, op, finish, range, scratch);
        }
    }
    return rc;
}

struct kern_cuda_finish kern_cuda_finish_grad(const struct kern_grad *grad, int64_t width)
{
    return (struct kern_cuda_finish){
        .width = width,
        .sum = grad->sum,
        .first = grad->first,
        .out = grad->last ? grad->out : NULL,
        .out_type = grad->out_type,
        .out_stride = width,
    };
}
