/* panel.h: packs operands of a product into panels, and multiplies two packed blocks.
 * A panel of rows is [cell][PRODUCT_ROWS], of columns [cell][PRODUCT_VECTORS * LANES], filled up
 * with zeros. A cell is one step of k in fp32 or, with `pairs`, two steps in bf16 for vf_dot. */
#ifndef KERNELS_CPU_ISA_PANEL_H
#define KERNELS_CPU_ISA_PANEL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/isa/vec.h"
#include "kernels/kern.h"

enum {
    ROWS = PRODUCT_ROWS,
    COLUMNS = PRODUCT_VECTORS * LANES,
    PANEL_SLACK = 16, /* floats that packing may write after the last panel */
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

#define kern_pack_rows      VF_ISA(kern_pack_rows)
#define kern_pack_columns   VF_ISA(kern_pack_columns)
#define kern_pack_dense     VF_ISA(kern_pack_dense)
#define kern_panel_multiply VF_ISA(kern_panel_multiply)

/* An operand. Element (i, k) is at i * stride + k if `along_k`, else at k * stride + i. */
struct operand {
    enum kern_type type; /* with `pairs`: bf16, or fp32 to be rounded */
    const void *data;
    int64_t stride;
    bool along_k;
    bool pairs;
};

/* Returns whether this instruction set multiplies operands of this type in pairs. */
VF_INLINE bool panel_pairs(enum kern_type type)
{
    return VF_DOTS != 0 && type == KERN_BF16;
}

/* Returns the cells of `steps` steps of k; an odd last step is paired with zero. */
VF_INLINE int64_t panel_cells(bool pairs, int64_t steps)
{
    return pairs ? (steps + 1) / 2 : steps;
}

/* Packs rows (columns) range[0] .. range[1] - 1 over steps[1] steps of k from steps[0] on. */
void kern_pack_rows(const struct operand *from, const int64_t range[2], const int64_t steps[2],
                    float *to);
void kern_pack_columns(const struct operand *from, const int64_t range[2], const int64_t steps[2],
                       float *to);
/* Packs rows as [row][cell] without panels; the operand is `along_k`. */
void kern_pack_dense(const struct operand *from, const int64_t range[2], const int64_t steps[2],
                     float *to);

enum rows_layout {
    LAYOUT_PANELS,
    LAYOUT_DENSE,  /* [row][a_stride] */
    LAYOUT_TURNED, /* [cell][a_stride] */
};

struct tile {
    const float *a;
    enum rows_layout layout; /* of a; memory after its last row may be read, but is ignored */
    int64_t a_stride;        /* not for LAYOUT_PANELS */
    const float *b;          /* panels of columns */
    int64_t cells;           /* number of cells along k */
    bool pairs;
    float *c;
    int64_t c_stride;
    int64_t rows, columns; /* size of c */
    bool add;              /* adds to c */
};

/* Computes c = a b; each sum adds the cells in order. */
void kern_panel_multiply(const struct tile *whole);

#endif
