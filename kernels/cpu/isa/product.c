/* product.c: one member's part of a blocked matrix product. The order of a sum does not depend on
 * the borders of parts. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/isa/bodies.h"
#include "kernels/cpu/isa/panel.h"

enum {
    BLOCK_M = 1032 / ROWS * ROWS, /* rows of a packed at once */
    SUPER_N = 1152,               /* columns for which a is packed once */
};

/* Packed at once; the block of b stays in the L2 cache. */
struct block {
    bool pairs;
    int64_t cells, columns;
};

static struct block block_of(enum kern_type type)
{
    const struct block pairs = {true, 512, 288};
    const struct block floats = {false, 384, 384};
    return panel_pairs(type) ? pairs : floats;
}

struct buffers {
    float *a, *b, *c;
};

static int64_t cells_packed(const struct block *block, int64_t k)
{
    return smaller(panel_cells(block->pairs, k), block->cells);
}

static int64_t a_floats(const struct block *block, int64_t rows, int64_t k)
{
    return round_up(smaller(rows, BLOCK_M), ROWS) * cells_packed(block, k) + PANEL_SLACK;
}

static int64_t b_floats(const struct block *block, int64_t columns, int64_t k)
{
    return round_up(smaller(columns, block->columns), COLUMNS) * cells_packed(block, k) +
           PANEL_SLACK;
}

size_t kern_product_bytes(enum kern_type type, int64_t rows, int64_t columns, int64_t k)
{
    const struct block block = block_of(type);
    const int64_t c = smaller(rows, BLOCK_M) * round_up(smaller(columns, SUPER_N), 16);
    return (size_t)round_up(a_floats(&block, rows, k) + b_floats(&block, columns, k) + c + 48, 16) *
           sizeof(float);
}

/* Finishes a strip while it is in the L1 cache; only if one block holds all of k. */
static void strips_run(const struct kern_product *p, const struct tile *whole, const int64_t at[2])
{
    for (int64_t i = 0; i < whole->rows; i += ROWS) {
        struct tile strip = *whole;
        strip.a += i * whole->cells;
        strip.rows = smaller(whole->rows - i, ROWS);
        kern_panel_multiply(&strip);
        const int64_t here[2] = {at[0] + i, at[1]};
        const int64_t size[2] = {strip.rows, strip.columns};
        kern_finish_tile(&p->finish, strip.c, strip.c_stride, here, size);
    }
}

/* Computes size[0] rows (at most BLOCK_M) by size[1] columns (at most SUPER_N) from row at[0] and
 * column at[1] on. */
static void super_block(const struct kern_product *p, const struct buffers *buffer,
                        const int64_t at[2], const int64_t size[2])
{
    const struct block block = block_of(p->type);
    const struct operand a = {p->type, p->a, p->a_stride, !p->a_turned, block.pairs};
    const struct operand b = {p->type, p->b, p->b_stride, p->b_turned, block.pairs};
    const int64_t block_k = block.pairs ? 2 * block.cells : block.cells;
    const bool one = p->k <= block_k;
    int64_t c_stride = 0;
    float *c = kern_finish_direct(&p->finish, &c_stride);
    const bool direct = c != NULL;
    if (direct) {
        c += at[0] * c_stride + at[1];
    } else {
        c = buffer->c;
        c_stride = round_up(smaller(size[1], one ? block.columns : SUPER_N), 16);
    }
    const int64_t rows[2] = {at[0], at[0] + size[0]};
    for (int64_t k = 0; k == 0 || k < p->k; k += block_k) {
        const int64_t steps[2] = {k, smaller(p->k - k, block_k)};
        kern_pack_rows(&a, rows, steps, buffer->a);
        for (int64_t j = 0; j < size[1]; j += block.columns) {
            const int64_t wide = smaller(size[1] - j, block.columns);
            const int64_t columns[2] = {at[1] + j, at[1] + j + wide};
            kern_pack_columns(&b, columns, steps, buffer->b);
            const struct tile whole = {.a = buffer->a,
                                       .b = buffer->b,
                                       .cells = panel_cells(block.pairs, steps[1]),
                                       .pairs = block.pairs,
                                       .c = one && !direct ? c : c + j,
                                       .c_stride = c_stride,
                                       .rows = size[0],
                                       .columns = wide,
                                       .add = k > 0};
            if (one && !direct) {
                strips_run(p, &whole, (const int64_t[2]){at[0], at[1] + j});
            } else {
                kern_panel_multiply(&whole);
            }
        }
    }
    if (!one && !direct) {
        kern_finish_tile(&p->finish, c, c_stride, at, size);
    }
}

void kern_product_run(const struct kern_product_part *part)
{
    const struct kern_product *p = part->product;
    const struct block block = block_of(p->type);
    struct buffers buffer;
    buffer.a = part->scratch;
    buffer.b = buffer.a + round_up(a_floats(&block, part->m_end - part->m_begin, p->k), 16);
    buffer.c = buffer.b + round_up(b_floats(&block, part->n_end - part->n_begin, p->k), 16);
    for (int64_t j = part->n_begin; j < part->n_end; j += SUPER_N) {
        for (int64_t i = part->m_begin; i < part->m_end; i += BLOCK_M) {
            const int64_t at[2] = {i, j};
            const int64_t size[2] = {smaller(part->m_end - i, BLOCK_M),
                                     smaller(part->n_end - j, SUPER_N)};
            super_block(p, &buffer, at, size);
        }
    }
}

VF_INLINE void finish_row(const struct kern_finish *f, enum kern_type type, const float *tile,
                          const int64_t at[2], int64_t columns)
{
    for (int64_t j = 0; j < columns; j += LANES) {
        const int64_t wide = smaller(columns - j, LANES);
        const int64_t out_at = at[0] * f->out_stride + at[1] + j;
        vf value = vf_get_part(KERN_F32, tile, j, wide);
        if (f->scale > 0.0f || f->scale < 0.0f) {
            value *= vf_set(f->scale);
        }
        if (f->bias != NULL) {
            value += vf_get_part(f->bias_type, f->bias, at[1] + j, wide);
        }
        float *sum = f->sum != NULL ? f->sum + at[0] * f->sum_stride + at[1] + j : NULL;
        if (!f->first) {
            value = vf_get_part(KERN_F32, sum, 0, wide) + value;
        }
        if (f->onto) {
            value = vf_get_part(type, f->out, out_at, wide) + value;
        }
        if (f->out != NULL) {
            vf_put_part(type, f->out, out_at, value, wide);
        } else {
            vf_put_part(KERN_F32, sum, 0, value, wide);
        }
    }
}

void kern_finish_tile(const struct kern_finish *f, const float *tile, int64_t tile_stride,
                      const int64_t at[2], const int64_t size[2])
{
    for (int64_t i = 0; i < size[0]; i++) {
        const int64_t here[2] = {at[0] + i, at[1]};
#define BODY(t) finish_row(f, t, tile + i * tile_stride, here, size[1])
        KERN_TYPE_CASES(f->out_type, BODY);
#undef BODY
    }
}
