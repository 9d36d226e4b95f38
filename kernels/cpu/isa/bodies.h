/* bodies.h: the functions of this folder for one instruction set's table; isa.h describes them.
 * VF_ISA appends this set's name to a function, VF_SHARED the name of the set whose code is
 * used. */
#ifndef KERNELS_CPU_ISA_BODIES_H
#define KERNELS_CPU_ISA_BODIES_H

#include "kernels/cpu/isa.h"
#include "kernels/cpu/isa/vec.h"

#define kern_product_run          VF_ISA(kern_product_run)
#define kern_product_bytes        VF_ISA(kern_product_bytes)
#define kern_finish_tile          VF_ISA(kern_finish_tile)
#define kern_norm_rows            VF_SHARED(kern_norm_rows)
#define kern_norm_grad_rows       VF_SHARED(kern_norm_grad_rows)
#define kern_rope_tokens          VF_SHARED(kern_rope_tokens)
#define kern_act_tokens           VF_SHARED(kern_act_tokens)
#define kern_act_grad_tokens      VF_SHARED(kern_act_grad_tokens)
#define kern_add_elements         VF_SHARED(kern_add_elements)
#define kern_dropout_elements     VF_SHARED(kern_dropout_elements)
#define kern_magnitude_rows       VF_SHARED(kern_magnitude_rows)
#define kern_columns_tokens       VF_SHARED(kern_columns_tokens)
#define kern_embed_tokens         VF_SHARED(kern_embed_tokens)
#define kern_expand_parts         VF_SHARED(kern_expand_parts)
#define kern_rows_sum             VF_SHARED(kern_rows_sum)
#define kern_loss_stats_rows      VF_SHARED(kern_loss_stats_rows)
#define kern_loss_grad_rows       VF_SHARED(kern_loss_grad_rows)
#define kern_attention_run        VF_ISA(kern_attention_run)
#define kern_attention_bytes      VF_ISA(kern_attention_bytes)
#define kern_attention_grad_run   VF_ISA(kern_attention_grad_run)
#define kern_attention_grad_bytes VF_ISA(kern_attention_grad_bytes)

void kern_product_run(const struct kern_product_part *part);
size_t kern_product_bytes(enum kern_type type, int64_t rows, int64_t columns, int64_t k);
void kern_finish_tile(const struct kern_finish *f, const float *tile, int64_t tile_stride,
                      const int64_t at[2], const int64_t size[2]);
void kern_norm_rows(const struct kern_norm_arguments *a, int64_t begin, int64_t end);
void kern_norm_grad_rows(const struct kern_norm_grad_arguments *a, int64_t begin, int64_t end,
                         float *dweight, float *dbias);
void kern_rope_tokens(const struct kern_rope_arguments *a, int64_t begin, int64_t end);
void kern_act_tokens(const struct kern_act_arguments *a, int64_t begin, int64_t end);
void kern_act_grad_tokens(const struct kern_act_grad_arguments *a, int64_t begin, int64_t end);
void kern_add_elements(const struct kern_add_arguments *a, int64_t begin, int64_t end);
void kern_dropout_elements(const struct kern_dropout_arguments *a, int64_t begin, int64_t end);
void kern_magnitude_rows(const struct kern_magnitude_arguments *a, int64_t begin, int64_t end);
void kern_columns_tokens(const struct kern_columns_arguments *a, int64_t begin, int64_t end);
void kern_embed_tokens(const struct kern_embed_arguments *a, int64_t begin, int64_t end);
void kern_expand_parts(const struct kern_expand_arguments *a, int64_t begin, int64_t end);
void kern_rows_sum(const struct kern_rows *rows, int64_t begin, int64_t end, float *sum);
void kern_loss_stats_rows(const struct kern_loss_tile *tile, int64_t begin, int64_t end);
void kern_loss_grad_rows(const struct kern_loss_tile *tile, int64_t begin, int64_t end);
void kern_attention_run(const struct kern_attention_arguments *a,
                        const struct kern_attention_item *item, float *scratch);
size_t kern_attention_bytes(const struct kern_attention_arguments *a);
void kern_attention_grad_run(const struct kern_attention_grad_arguments *a,
                             const struct kern_attention_item *item, float *scratch);
size_t kern_attention_grad_bytes(const struct kern_attention_arguments *a);

#endif
