/* panel.h: operands of a product packed into fp32 panels, and the product of two packed blocks.
 * A panel of rows is [k][PRODUCT_ROWS], a panel of columns [k][PRODUCT_VECTORS * LANES]; what is
 * missing in the last panel is zero. Pure functions on the caller's memory. */
#ifndef KERNELS_CPU_ISA_PANEL_H
#define KERNELS_CPU_ISA_PANEL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/isa/vec.h"
#include "kernels/kern.h"

enum {
    ROWS = PRODUCT_ROWS,
    COLUMNS = PRODUCT_VECTORS * LANES,
    PANEL_SLACK = 16, /* floats that packing may write behind the last panel */
};

_Static_assert((int)ROWS <= (int)LANES || (int)ROWS % (int)LANES == 0,
               "packing stores whole vectors");

VF_INLINE int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

VF_INLINE int64_t round_up(int64_t value, int64_t grain)
{
    return (value + grain - 1) / grain * grain;
}

/* Names of this instruction set. */
#define kern_pack_rows      VF_ISA(kern_pack_rows)
#define kern_pack_columns   VF_ISA(kern_pack_columns)
#define kern_panel_multiply VF_ISA(kern_panel_multiply)

/* Packs rows (columns) range[0] .. range[1] - 1 over steps[1] steps of k from steps[0]. Element
 * (i, k) stands at i * stride + k where `along_k`, else at k * stride + i. */
void kern_pack_rows(enum kern_type type, const void *from, int64_t stride, bool along_k,
                    const int64_t range[2], const int64_t steps[2], float *to);
void kern_pack_columns(enum kern_type type, const void *from, int64_t stride, bool along_k,
                       const int64_t range[2], const int64_t steps[2], float *to);

struct tile {
    const float *a; /* panels of rows */
    const float *b; /* panels of columns */
    int64_t k;
    float *c;
    int64_t c_stride;
    int64_t rows, columns; /* of c */
    bool add;              /* to what c holds */
};

/* c = a b, summed over k in order. */
void kern_panel_multiply(const struct tile *whole);

#endif
