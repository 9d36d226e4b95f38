/* product_dnnl_none.c: the stub for builds without oneDNN. */
#include <assert.h>
#include <errno.h>

#include "core/base/err.h"
#include "kernels/cpu/product_dnnl.h"

int kern_dnnl_create(unsigned flags, bool all, struct kern_dnnl **out)
{
    (void)flags;
    (void)all;
    (void)out;
    return core_err_set(-ENOTSUP, "oneDNN is not built in");
}

void kern_dnnl_destroy(struct kern_dnnl *dnnl)
{
    (void)dnnl;
}

const char *kern_dnnl_describe(const struct kern_dnnl *dnnl)
{
    (void)dnnl;
    return "";
}

bool kern_product_dnnl_takes(const struct kern_dnnl *dnnl, const struct kern_product *product)
{
    (void)dnnl;
    (void)product;
    return false;
}

int kern_product_dnnl(struct kern_dnnl *dnnl, const struct kern_isa *isa, struct core_team *team,
                      const struct kern_product *product, void *scratch)
{
    (void)dnnl;
    (void)isa;
    (void)team;
    (void)product;
    (void)scratch;
    return core_err_set(-ENOTSUP, "oneDNN is not built in");
}

size_t kern_product_dnnl_bytes(enum kern_type type, int64_t m, int64_t n, int64_t k,
                               unsigned threads)
{
    (void)type;
    (void)m;
    (void)n;
    (void)k;
    (void)threads;
    return 0;
}
