/* panel.c: packing (with the conversion of 16-bit types) and the product of packed blocks, in which
 * a tile of PRODUCT_ROWS rows by PRODUCT_VECTORS vectors stays in registers. */
#include "kernels/cpu/isa/panel.h"

/* to[k][width] = from[i][k] transposed, for `rows` <= width rows; missing rows are zero.
 * Stores are LANES wide: up to LANES - 1 elements behind a row are overwritten before it is. */
VF_INLINE void pack_turn(enum kern_type type, const void *from, int64_t start, int64_t stride,
                         int64_t rows, int64_t k, float *to, int64_t width)
{
    for (int64_t i0 = 0; i0 < width; i0 += LANES) {
        for (int64_t j = 0; j < k; j += LANES) {
            const int64_t wide = smaller(k - j, LANES);
            vf block[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) {
                const int64_t at = start + (i0 + i) * stride + j;
                block[i] = i0 + i < rows ? vf_get_part(type, from, at, wide) : vf_zero();
            }
            vf_transpose(block);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) {
                if (i < wide) {
                    vf_store(to + (j + i) * width + i0, block[i]);
                }
            }
        }
    }
}

/* to[k][width] = from[k][i]; of `columns` that stand there, more than width may be loaded, missing
 * ones are zero. Stores are LANES wide, as above. */
VF_INLINE void pack_copy(enum kern_type type, const void *from, int64_t start, int64_t stride,
                         int64_t columns, int64_t k, float *to, int64_t width)
{
    for (int64_t j = 0; j < k; j++) {
        for (int64_t i = 0; i < width; i += LANES) {
            const int64_t have = columns - i;
            const int64_t at = start + j * stride + i;
            vf value = vf_zero();
            if (have > 0) {
                value = vf_get_part(type, from, at, smaller(have, LANES));
            }
            vf_store(to + j * width + i, value);
        }
    }
}

VF_INLINE void pack(enum kern_type type, const void *from, int64_t stride, bool along_k,
                    const int64_t range[2], const int64_t steps[2], float *to, int64_t width)
{
    const int64_t k0 = steps[0];
    const int64_t k = steps[1];
    for (int64_t i = range[0]; i < range[1]; i += width) {
        const int64_t have = smaller(range[1] - i, width);
        if (along_k) {
            pack_turn(type, from, i * stride + k0, stride, have, k, to, width);
        } else {
            pack_copy(type, from, k0 * stride + i, stride, range[1] - i, k, to, width);
        }
        to += k * width;
    }
}

void kern_pack_rows(enum kern_type type, const void *from, int64_t stride, bool along_k,
                    const int64_t range[2], const int64_t steps[2], float *to)
{
#define BODY(t) pack(t, from, stride, along_k, range, steps, to, ROWS)
    KERN_TYPE_CASES(type, BODY);
#undef BODY
}

void kern_pack_columns(enum kern_type type, const void *from, int64_t stride, bool along_k,
                       const int64_t range[2], const int64_t steps[2], float *to)
{
#define BODY(t) pack(t, from, stride, along_k, range, steps, to, COLUMNS)
    KERN_TYPE_CASES(type, BODY);
#undef BODY
}

VF_INLINE void tile_store(const struct tile *t, int64_t i, const vf acc[PRODUCT_VECTORS])
{
    float *c = t->c + i * t->c_stride;
    if (t->columns == COLUMNS) {
#pragma GCC unroll 4
        for (int v = 0; v < PRODUCT_VECTORS; v++) {
            const vf old = t->add ? vf_load(c + v * LANES) : vf_zero();
            vf_store(c + v * LANES, old + acc[v]);
        }
        return;
    }
    _Alignas(64) float row[COLUMNS];
    for (int v = 0; v < PRODUCT_VECTORS; v++) {
        vf_store(row + v * LANES, acc[v]);
    }
    for (int64_t j = 0; j < t->columns; j++) {
        c[j] = (t->add ? c[j] : 0.0f) + row[j];
    }
}

VF_INLINE void tile_multiply(const struct tile *t, const int rows)
{
    vf acc[PRODUCT_ROWS][PRODUCT_VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int v = 0; v < PRODUCT_VECTORS; v++) {
            acc[i][v] = vf_zero();
        }
    }
    const float *a = t->a;
    const float *b = t->b;
    for (int64_t k = 0; k < t->k; k++) {
        vf step[PRODUCT_VECTORS];
#pragma GCC unroll 2
        for (int line = 0; line < COLUMNS; line += 16) {
            __builtin_prefetch(b + 8 * COLUMNS + line, 0, 3);
        }
#pragma GCC unroll 4
        for (int v = 0; v < PRODUCT_VECTORS; v++) {
            step[v] = vf_load(b + v * LANES);
        }
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const vf each = vf_set(a[i]);
#pragma GCC unroll 4
            for (int v = 0; v < PRODUCT_VECTORS; v++) {
                acc[i][v] = vf_fma(each, step[v], acc[i][v]);
            }
        }
        a += ROWS;
        b += COLUMNS;
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        if (i < t->rows) {
            tile_store(t, i, acc[i]);
        }
    }
}

static void tile_run(const struct tile *t)
{
    if (t->rows > ROWS * 2 / 3) {
        tile_multiply(t, ROWS);
    } else if (t->rows > ROWS / 3) {
        tile_multiply(t, ROWS * 2 / 3);
    } else {
        tile_multiply(t, ROWS / 3);
    }
}

void kern_panel_multiply(const struct tile *whole)
{
    for (int64_t i = 0; i < whole->rows; i += ROWS) {
        for (int64_t j = 0; j < whole->columns; j += COLUMNS) {
            const struct tile t = {
                .a = whole->a + i * whole->k,
                .b = whole->b + j * whole->k,
                .k = whole->k,
                .c = whole->c + i * whole->c_stride + j,
                .c_stride = whole->c_stride,
                .rows = smaller(whole->rows - i, ROWS),
                .columns = smaller(whole->columns - j, COLUMNS),
                .add = whole->add,
            };
            tile_run(&t);
        }
    }
}
