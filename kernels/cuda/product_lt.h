/* product_lt.h: matrix products by cuBLASLt; private to kernels/cuda.
 * The library is opened when a device's ops are attached, so that a program starts without it. The
 * same card, library and driver give the same bits. Only the submitting thread calls
 * kern_lt_product(). */
#ifndef KERNELS_CUDA_PRODUCT_LT_H
#define KERNELS_CUDA_PRODUCT_LT_H

#include "kernels/cuda/product.h"

struct kern_lt;

/* For the calling thread's current card. -ENOTSUP with a message: the library is missing or lacks a
 * function. */
int kern_lt_create(struct kern_lt **out);
void kern_lt_destroy(struct kern_lt *lt); /* Accepts NULL */
/* Returns versions and card, such as "cuBLASLt 130002, driver 13000, NVIDIA H200"; valid until
 * destroy. */
const char *kern_lt_describe(const struct kern_lt *lt);

/* *taken is false, and nothing is launched, if the library proposes no algorithm. The library's
 * workspace is the end of the queue's scratch (KERN_CUDA_WORKSPACE_BYTES). */
int kern_lt_product(struct kern_lt *lt, const struct dev_launch *where, const char *op,
                    const struct kern_cuda_product *product, bool *taken);

/* ---- product_lt_load.c: the library's functions. ---- */

enum kern_lt_symbol {
    KERN_LT_CREATE,
    KERN_LT_DESTROY,
    KERN_LT_VERSION,
    KERN_LT_DESC_INIT,
    KERN_LT_DESC_SET,
    KERN_LT_LAYOUT_INIT,
    KERN_LT_PREFERENCE_INIT,
    KERN_LT_PREFERENCE_SET,
    KERN_LT_HEURISTIC,
    KERN_LT_MATMUL,
    KERN_LT_SYMBOLS
};

/* Fills in the library's functions; the caller casts them. Returns -ENOTSUP with a message if the
 * library is missing or lacks a function. The library stays loaded, with the kernels that it has
 * put on the card. */
int kern_lt_load(void (*symbols[KERN_LT_SYMBOLS])(void));

#endif
