/* product_dnnl.h: products by oneDNN, and a stub for builds without it.
 * oneDNN brings its own OpenMP threads: they are called from one thread at a time, keep to the
 * processors and the number of the team that asks, and sleep between products. */
#ifndef KERNELS_CPU_PRODUCT_DNNL_H
#define KERNELS_CPU_PRODUCT_DNNL_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/product.h"

struct kern_dnnl;

/* `all`: take every type it knows (tests, comparisons); else only what it does faster than the
 * plain product on a processor with these core_cpu_flags. *out is NULL where it takes nothing.
 * -ENOTSUP without the library. */
int kern_dnnl_create(unsigned flags, bool all, struct kern_dnnl **out);
void kern_dnnl_destroy(struct kern_dnnl *dnnl);
/* "oneDNN 2.6.3 for bf16"; borrowed from dnnl. */
const char *kern_dnnl_describe(const struct kern_dnnl *dnnl);

bool kern_product_dnnl_takes(const struct kern_dnnl *dnnl, const struct kern_product *product);
int kern_product_dnnl(struct kern_dnnl *dnnl, const struct kern_isa *isa, struct core_team *team,
                      const struct kern_product *product, void *scratch);
size_t kern_product_dnnl_bytes(enum kern_type type, int64_t m, int64_t n, int64_t k,
                               unsigned threads);

#endif
