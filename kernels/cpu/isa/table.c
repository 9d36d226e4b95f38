/* table.c: the table of this instruction set. */
#include "core/base/cpus.h"
#include "kernels/cpu/isa/bodies.h"

#define STRING(name)    #name
#define STRING_OF(name) STRING(name)

const struct kern_isa VF_ISA(kern_isa) = {
    .name = &STRING_OF(VF_ISA())[1], /* without the underscore */
    .flag = VF_FLAG,
    .product_rows = PRODUCT_ROWS,
    .product_columns = PRODUCT_VECTORS * LANES,
    .product = kern_product_run,
    .product_bytes = kern_product_bytes,
    .finish = kern_finish_tile,
    .norm = kern_norm_rows,
    .norm_grad = kern_norm_grad_rows,
    .rope = kern_rope_tokens,
    .act = kern_act_tokens,
    .act_grad = kern_act_grad_tokens,
    .add = kern_add_elements,
    .dropout = kern_dropout_elements,
    .magnitude = kern_magnitude_rows,
    .columns = kern_columns_tokens,
    .embed = kern_embed_tokens,
    .expand = kern_expand_parts,
    .rows_sum = kern_rows_sum,
    .loss_stats = kern_loss_stats_rows,
    .loss_grad = kern_loss_grad_rows,
    .attention = kern_attention_run,
    .attention_bytes = kern_attention_bytes,
    .attention_grad = kern_attention_grad_run,
    .attention_grad_bytes = kern_attention_grad_bytes,
};
