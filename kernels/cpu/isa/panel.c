/* panel.c: packs operands (converting 16-bit types) and multiplies packed blocks, with a tile of
 * results in registers. */
#include "kernels/cpu/isa/panel.h"

enum { ACROSS = 8 }; /* cells of one panel that are packed before the next panel's */

/* Returns LANES cells of a row from element `at` on; zero after `steps` steps. */
VF_INLINE vf cells_along(enum kern_type type, bool pairs, const void *data, int64_t at,
                         int64_t steps)
{
#if VF_DOTS
    if (pairs) {
        return vf_pairs(type, data, at, steps);
    }
#else
    (void)pairs;
#endif
    return vf_get_part(type, data, at, steps);
}

/* LANES cells of the step at at[0] (`pairs`: joined with at[1]); zero after the first `have`. */
VF_INLINE vf cells_across(enum kern_type type, bool pairs, const void *data, const int64_t at[2],
                          int64_t have)
{
#if VF_DOTS
    if (pairs) {
        return vf_join(type, data, at[0], at[1], have);
    }
#else
    (void)pairs;
#endif
    return vf_get_part(type, data, at[0], have);
}

/* Computes to[cell][width] = from[i][cell] for size[0] rows, with zeros up to `width`. Overwrites
 * up to LANES - 1 floats of the next row, before that is written. */
VF_INLINE void pack_turn(const struct operand *from, enum kern_type type, bool pairs, int64_t start,
                         const int64_t size[2], float *to, int64_t width)
{
    const int64_t steps = pairs ? 2 : 1;
    const int64_t cells = panel_cells(pairs, size[1]);
    for (int64_t i0 = 0; i0 < width; i0 += LANES) {
        for (int64_t j = 0; j < cells; j += LANES) {
            const int64_t wide = smaller(cells - j, LANES);
            vf block[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) {
                const int64_t at = start + (i0 + i) * from->stride + j * steps;
                block[i] = i0 + i < size[0]
                               ? cells_along(type, pairs, from->data, at, size[1] - j * steps)
                               : vf_zero();
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

/* Computes to[cell][width] = from[cell][i], with zeros after size[0] columns. The last cell's
 * stores are narrow, because the next panel may already hold data. */
VF_INLINE void pack_copy(const struct operand *from, enum kern_type type, bool pairs, int64_t start,
                         const int64_t size[2], const int64_t cells[2], float *to, int64_t width)
{
    const int64_t steps = pairs ? 2 : 1;
    const int64_t last = panel_cells(pairs, size[1]) - 1;
    for (int64_t cell = cells[0]; cell < cells[1]; cell++) {
        const int64_t j = cell * steps;
        for (int64_t i = 0; i < width; i += LANES) {
            const int64_t have = smaller(size[0] - i, LANES);
            const int64_t first = start + j * from->stride + i;
            const int64_t at[2] = {first, j + 1 < size[1] ? first + from->stride : -1};
            vf_put_part(KERN_F32, to, cell * width + i,
                        have > 0 ? cells_across(type, pairs, from->data, at, have) : vf_zero(),
                        cell < last ? LANES : width - i);
        }
    }
}

/* Packs an operand that is not `along_k`, a few cells of each panel at a time. */
VF_INLINE void pack_across(const struct operand *from, enum kern_type type, bool pairs,
                           const int64_t range[2], const int64_t steps[2], float *to, int64_t width)
{
    const int64_t cells = panel_cells(pairs, steps[1]);
    const int64_t start = steps[0] * from->stride;
    for (int64_t cell = 0; cell < cells; cell += ACROSS) {
        const int64_t some[2] = {cell, smaller(cell + ACROSS, cells)};
        float *panel = to;
        for (int64_t i = range[0]; i < range[1]; i += width) {
            const int64_t size[2] = {range[1] - i, steps[1]};
            pack_copy(from, type, pairs, start + i, size, some, panel, width);
            panel += cells * width;
        }
    }
}

VF_INLINE void pack(const struct operand *from, enum kern_type type, bool pairs,
                    const int64_t range[2], const int64_t steps[2], float *to, int64_t width)
{
    if (!from->along_k) {
        pack_across(from, type, pairs, range, steps, to, width);
        return;
    }
    for (int64_t i = range[0]; i < range[1]; i += width) {
        const int64_t size[2] = {range[1] - i, steps[1]};
        pack_turn(from, type, pairs, i * from->stride + steps[0], size, to, width);
        to += panel_cells(pairs, steps[1]) * width;
    }
}

/* Calls body(type, pairs) with both arguments as constants. */
#define OPERAND_CASES(operand, body)                                                               \
    do {                                                                                           \
        if (VF_DOTS != 0 && (operand)->pairs) {                                                    \
            if ((operand)->type == KERN_BF16) {                                                    \
                body(KERN_BF16, true);                                                             \
            } else {                                                                               \
                body(KERN_F32, true);                                                              \
            }                                                                                      \
        } else if ((operand)->type == KERN_BF16) {                                                 \
            body(KERN_BF16, false);                                                                \
        } else if ((operand)->type == KERN_F32) {                                                  \
            body(KERN_F32, false);                                                                 \
        } else {                                                                                   \
            body(KERN_FP16, false);                                                                \
        }                                                                                          \
    } while (0)

VF_INLINE void pack_any(const struct operand *from, const int64_t range[2], const int64_t steps[2],
                        float *to, int64_t width)
{
#define BODY(t, pairs) pack(from, t, pairs, range, steps, to, width)
    OPERAND_CASES(from, BODY);
#undef BODY
}

void kern_pack_rows(const struct operand *from, const int64_t range[2], const int64_t steps[2],
                    float *to)
{
    pack_any(from, range, steps, to, ROWS);
}

void kern_pack_columns(const struct operand *from, const int64_t range[2], const int64_t steps[2],
                       float *to)
{
    pack_any(from, range, steps, to, COLUMNS);
}

VF_INLINE void dense(const struct operand *from, enum kern_type type, bool pairs,
                     const int64_t range[2], const int64_t steps[2], float *to)
{
    const int64_t each = pairs ? 2 : 1;
    const int64_t cells = panel_cells(pairs, steps[1]);
    for (int64_t i = range[0]; i < range[1]; i++) {
        for (int64_t j = 0; j < cells; j += LANES) {
            const int64_t at = i * from->stride + steps[0] + j * each;
            vf_store(to + j, cells_along(type, pairs, from->data, at, steps[1] - j * each));
        }
        to += cells;
    }
}

void kern_pack_dense(const struct operand *from, const int64_t range[2], const int64_t steps[2],
                     float *to)
{
#define BODY(t, pairs) dense(from, t, pairs, range, steps, to)
    OPERAND_CASES(from, BODY);
#undef BODY
}

/* Not inlined: a copy in each tile_store would multiply the compile time by six. */
__attribute__((noinline)) static void row_store(const struct tile *t, float *c, const float *row)
{
    for (int64_t j = 0; j < t->columns; j++) {
        c[j] = (t->add ? c[j] : 0.0f) + row[j];
    }
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
    row_store(t, c, row);
}

VF_INLINE vf step_add(bool pairs, vf a, vf b, vf sum)
{
#if VF_DOTS
    if (pairs) {
        return vf_dot(a, b, sum);
    }
#else
    (void)pairs;
#endif
    return vf_fma(a, b, sum);
}

VF_INLINE void tile_multiply(const struct tile *t, const bool pairs, const enum rows_layout layout,
                             const int rows)
{
    vf acc[PRODUCT_ROWS][PRODUCT_VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int v = 0; v < PRODUCT_VECTORS; v++) {
            acc[i][v] = vf_zero();
        }
    }
    const int64_t row_step = layout == LAYOUT_DENSE ? t->a_stride : 1;
    const int64_t cell_step = layout == LAYOUT_PANELS  ? ROWS
                              : layout == LAYOUT_DENSE ? 1
                                                       : t->a_stride;
    const float *a = t->a;
    const float *b = t->b;
    for (int64_t cell = 0; cell < t->cells; cell++) {
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
            const vf each = vf_set(a[i * row_step]);
#pragma GCC unroll 4
            for (int v = 0; v < PRODUCT_VECTORS; v++) {
                acc[i][v] = step_add(pairs, each, step[v], acc[i][v]);
            }
        }
        a += cell_step;
        b += COLUMNS;
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        if (i < t->rows) {
            tile_store(t, i, acc[i]);
        }
    }
}

VF_INLINE void tile_run(const struct tile *t, const bool pairs, const enum rows_layout layout)
{
    if (t->rows > ROWS * 2 / 3) {
        tile_multiply(t, pairs, layout, ROWS);
    } else if (t->rows > ROWS / 3) {
        tile_multiply(t, pairs, layout, ROWS * 2 / 3);
    } else {
        tile_multiply(t, pairs, layout, ROWS / 3);
    }
}

VF_INLINE void tiles_run(const struct tile *whole, const bool pairs, const enum rows_layout layout)
{
    const int64_t row_step = layout == LAYOUT_PANELS  ? whole->cells
                             : layout == LAYOUT_DENSE ? whole->a_stride
                                                      : 1;
    for (int64_t i = 0; i < whole->rows; i += ROWS) {
        for (int64_t j = 0; j < whole->columns; j += COLUMNS) {
            struct tile t = *whole;
            t.a += i * row_step;
            t.b += j * whole->cells;
            t.c += i * whole->c_stride + j;
            t.rows = smaller(whole->rows - i, ROWS);
            t.columns = smaller(whole->columns - j, COLUMNS);
            tile_run(&t, pairs, layout);
        }
    }
}

VF_INLINE void layouts_run(const struct tile *whole, const bool pairs)
{
    switch (whole->layout) {
    case LAYOUT_PANELS: tiles_run(whole, pairs, LAYOUT_PANELS); break;
    case LAYOUT_DENSE: tiles_run(whole, pairs, LAYOUT_DENSE); break;
    case LAYOUT_TURNED: tiles_run(whole, pairs, LAYOUT_TURNED); break;
    }
}

#if defined(__SANITIZE_THREAD__)
/* Hides the many reads of packed blocks from TSan: a thread reads only blocks that it wrote. */
#define UNWATCHED __attribute__((no_sanitize_thread))
void __tsan_write_range(void *address, unsigned long bytes);

static void tell_writes(const struct tile *whole)
{
    for (int64_t i = 0; i < whole->rows; i++) {
        __tsan_write_range(whole->c + i * whole->c_stride,
                           (size_t)whole->columns * sizeof *whole->c);
    }
}
#else
#define UNWATCHED
VF_INLINE void tell_writes(const struct tile *whole)
{
    (void)whole;
}
#endif

UNWATCHED void kern_panel_multiply(const struct tile *whole)
{
    tell_writes(whole);
    if (VF_DOTS != 0 && whole->pairs) {
        layouts_run(whole, true);
    } else {
        layouts_run(whole, false);
    }
}
