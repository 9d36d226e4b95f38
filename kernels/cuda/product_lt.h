/* product_lt.h: matrix products by cuBLASLt; private to kernels/cuda. The library is opened at run
 * time, when a device's ops are attached, so that a program starts without it. The first usable
 * algorithm that the library proposes for a shape is used: the same card, library and driver give
 * the same bits. Only the submitting thread calls kern_lt_product(). */
#ifndef KERNELS_CUDA_PRODUCT_LT_H
#define KERNELS_CUDA_PRODUCT_LT_H

#include "kernels/cuda/product.h"

struct kern_lt;

/* For the calling thread's current card. Returns -ENOTSUP with a message if the library is missing
 * or lacks a function; other errors are -ENOMEM and -EIO. */
int kern_lt_create(struct kern_lt **out);
void kern_lt_destroy(struct kern_lt *lt); /* Accepts NULL */
/* Returns the versions of library and driver and the name of the card, such as "cuBLASLt 130002,
 * driver 13000, NVIDIA H200"; valid until destroy. */
const char *kern_lt_describe(const struct kern_lt *lt);

/* Sets *taken to false and launches nothing if the library proposes no algorithm for the shape. The
 * library's workspace is the end of the queue's scratch (KERN_CUDA_WORKSPACE_BYTES). */
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

/* Fills in the library's functions; the caller casts each to its type. Returns -ENOTSUP with a
 * message if the library is missing or lacks one of them. The library is never unloaded: a later
 * call finds it in memory, with the kernels that it has already put on the card. */
int kern_lt_load(void (*symbols[KERN_LT_SYMBOLS])(void));

#endif
