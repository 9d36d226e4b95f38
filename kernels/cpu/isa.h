/* isa.h: private to kernels/: the inner loops of the CPU device, one table per instruction set.
 * Sources under isa/ are compiled once for each set (avx512bf16 shares code with avx512). A
 * function works on a team member's part (rows, heads, a tile). */
#ifndef KERNELS_CPU_ISA_H
#define KERNELS_CPU_ISA_H

#include <stdint.h>

#include "kernels/cpu/product.h"
#include "kernels/kern.h"

struct kern_product_part {
    const struct kern_product *product;
    int64_t m_begin, m_end;
    int64_t n_begin, n_end;
    float *scratch; /* kern_isa.product_bytes() bytes */
};

/* Rows to sum: row order[i] of `data`, or row i if `order` is NULL. */
struct kern_rows {
    enum kern_type type;
    const void *data;
    int64_t stride;
    int64_t width;
    const int32_t *order;
};

/* A tile of logits: columns begin .. begin + n - 1 of the vocabulary. */
struct kern_loss_tile {
    int64_t n;
    int64_t begin;
    float *logits; /* [tokens][n] */
    const int32_t *labels;
    float *maxima; /* [tokens]: of the logits */
    float *sums;   /* [tokens]: of exp(logit - maximum) */
    float *picked; /* logits of the labels; only for statistics */
    bool first;    /* the first tile; only for statistics */
    /* Only for gradients, which replace the logits: their type and the stride of their rows. */
    enum kern_type type;
    int64_t grad_stride;
    const float *scales; /* [tokens]; only for gradients */
};

/* A part of an attention: queries [begin, end) (positions in the row) of the document [start,
 * stop), for the query heads of key head kv_head. For the gradient, the whole document. */
struct kern_attention_item {
    int64_t row;
    int64_t start, stop;
    int64_t begin, end;
    int64_t kv_head;
};

enum { KERN_ATTENTION_QUERIES = 60 }; /* at most, in an item of the forward pass */

struct kern_isa {
    const char *name;
    unsigned flag;           /* core_cpu_flag of the set; 0: none */
    int64_t product_rows;    /* granularity of a part's rows */
    int64_t product_columns; /* granularity of a part's columns */
    void (*product)(const struct kern_product_part *part);
    size_t (*product_bytes)(enum kern_type type, int64_t rows, int64_t columns, int64_t k);
    /* Finishes a tile of size[0] rows and size[1] columns at row at[0] and column at[1]. */
    void (*finish)(const struct kern_finish *finish, const float *tile, int64_t tile_stride,
                   const int64_t at[2], const int64_t size[2]);
    /* [begin, end): rows (token, head) for the norms, elements for `add` and dropout (whose `begin`
     * is a multiple of 64), tokens for rope, act, act_grad and embed. */
    void (*norm)(const struct kern_norm_arguments *a, int64_t begin, int64_t end);
    /* Also stores the sums over these rows in dweight and dbias [width], unless NULL. */
    void (*norm_grad)(const struct kern_norm_grad_arguments *a, int64_t begin, int64_t end,
                      float *dweight, float *dbias);
    void (*rope)(const struct kern_rope_arguments *a, int64_t begin, int64_t end);
    void (*act)(const struct kern_act_arguments *a, int64_t begin, int64_t end);
    void (*act_grad)(const struct kern_act_grad_arguments *a, int64_t begin, int64_t end);
    void (*add)(const struct kern_add_arguments *a, int64_t begin, int64_t end);
    void (*dropout)(const struct kern_dropout_arguments *a, int64_t begin, int64_t end);
    void (*embed)(const struct kern_embed_arguments *a, int64_t begin, int64_t end);
    /* [begin, end): blocks of 64 for NF4, rows for INT8, elements for NONE. */
    void (*expand)(const struct kern_expand_arguments *a, int64_t begin, int64_t end);
    void (*magnitude)(const struct kern_magnitude_arguments *a, int64_t begin,
                      int64_t end); /* rows */
    void (*columns)(const struct kern_columns_arguments *a, int64_t begin,
                    int64_t end); /* tokens */
    void (*rows_sum)(const struct kern_rows *rows, int64_t begin, int64_t end, float *sum);
    void (*loss_stats)(const struct kern_loss_tile *tile, int64_t begin, int64_t end);
    void (*loss_grad)(const struct kern_loss_tile *tile, int64_t begin, int64_t end);
    void (*attention)(const struct kern_attention_arguments *a,
                      const struct kern_attention_item *item, float *scratch);
    size_t (*attention_bytes)(const struct kern_attention_arguments *a);
    void (*attention_grad)(const struct kern_attention_grad_arguments *a,
                           const struct kern_attention_item *item, float *scratch);
    size_t (*attention_grad_bytes)(const struct kern_attention_arguments *a);
};

/* The tables that this processor can run: widest first, the base set last. Never call a function of
 * another table: even one that computes a size uses its instructions. */
unsigned kern_isa_count(void);
const struct kern_isa *kern_isa_at(unsigned index);

extern const struct kern_isa kern_isa_base;
extern const struct kern_isa kern_isa_avx2;
extern const struct kern_isa kern_isa_avx512;
extern const struct kern_isa kern_isa_avx512bf16;

/* Returns the widest table that `flags` (core_cpu_flags) allows. */
const struct kern_isa *kern_isa_best(unsigned flags);

#endif
