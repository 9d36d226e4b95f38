/* family_rotary.h: tables of Llama and its relatives: decoders with RMSNorm, rotary embeddings, a
 * gate, and optional biases. For family_*.c only. */
#ifndef OFFLOAD_MODEL_FAMILY_ROTARY_H
#define OFFLOAD_MODEL_FAMILY_ROTARY_H

#include "offload/model/family.h"

enum { MODEL_ROTARY_KEYS = 10, MODEL_ROTARY_LAYER_PARAMS = 10, MODEL_ROTARY_HEAD_PARAMS = 2 };

extern const struct model_key model_rotary_keys[MODEL_ROTARY_KEYS];
extern const struct model_param_row model_rotary_embedding[1];
extern const struct model_param_row model_rotary_layer[MODEL_ROTARY_LAYER_PARAMS];
extern const struct model_param_row model_rotary_head[MODEL_ROTARY_HEAD_PARAMS];
extern const char *const model_rotary_dropout_keys[];
extern const char *const model_rotary_surplus[];

/* Members of struct model_family that these families have in common. */
#define MODEL_ROTARY_MEMBERS                                                                       \
    .keys = model_rotary_keys, .key_count = MODEL_ROTARY_KEYS, .act_key = "hidden_act",            \
    .dropout_keys = model_rotary_dropout_keys, .prefix = "model.",                                 \
    .surplus = model_rotary_surplus, .norm = KERN_NORM_RMS, .rope = true, .gated = true,           \
    .pads = true, .embedding = {model_rotary_embedding, 1, model_ops_embedding, 1},                \
    .head = {model_rotary_head, MODEL_ROTARY_HEAD_PARAMS, model_ops_head, 2}

#define MODEL_ROTARY_LAYER                                                                         \
    {                                                                                              \
        model_rotary_layer, MODEL_ROTARY_LAYER_PARAMS, model_ops_layer,                            \
            sizeof model_ops_layer / sizeof model_ops_layer[0]                                     \
    }

#endif
