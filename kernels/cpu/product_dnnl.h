/* product_dnnl.h: products by oneDNN, and a stub for builds without it.
 * oneDNN has as many OpenMP threads as the calling team has members. One thread at a time. */
#ifndef KERNELS_CPU_PRODUCT_DNNL_H
#define KERNELS_CPU_PRODUCT_DNNL_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/product.h"

struct kern_dnnl;

/* `all`: use oneDNN for all its types (tests, comparisons), not only for those in which it beats
 * our own product with these core_cpu_flags. *out is NULL if there are none. Returns -ENOTSUP
 * without the library. */
int kern_dnnl_create(unsigned flags, bool all, struct kern_dnnl **out);
void kern_dnnl_destroy(struct kern_dnnl *dnnl);
/* Returns a text such as "oneDNN 2.6.3 for bf16", borrowed. */
const char *kern_dnnl_describe(const struct kern_dnnl *dnnl);

bool kern_product_dnnl_takes(const struct kern_dnnl *dnnl, const struct kern_product *product);
int kern_product_dnnl(struct kern_dnnl *dnnl, const struct kern_isa *isa, struct core_team *team,
                      const struct kern_product *product, void *scratch);
size_t kern_product_dnnl_bytes(enum kern_type type, int64_t m, int64_t n, int64_t k,
                               unsigned threads);

#endif
