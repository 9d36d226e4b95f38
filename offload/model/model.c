/* model.c: makes a model from a family's tables and a configuration. */
#include "offload/model/model.h"

#include <assert.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/hash.h"

const char *model_role_name(enum model_role role)
{
    static const char *const names[] = {
        [MODEL_NO_ROLE] = "none",
        [MODEL_TOKEN_TABLE] = "token_table",
        [MODEL_POSITION_TABLE] = "position_table",
        [MODEL_NORM1] = "norm1",
        [MODEL_NORM1_BIAS] = "norm1_bias",
        [MODEL_QKV] = "qkv",
        [MODEL_QKV_BIAS] = "qkv_bias",
        [MODEL_Q_NORM] = "q_norm",
        [MODEL_K_NORM] = "k_norm",
        [MODEL_OUTPUT] = "output",
        [MODEL_OUTPUT_BIAS] = "output_bias",
        [MODEL_NORM2] = "norm2",
        [MODEL_NORM2_BIAS] = "norm2_bias",
        [MODEL_UP] = "up",
        [MODEL_UP_BIAS] = "up_bias",
        [MODEL_DOWN] = "down",
        [MODEL_DOWN_BIAS] = "down_bias",
        [MODEL_FINAL_NORM] = "final_norm",
        [MODEL_FINAL_NORM_BIAS] = "final_norm_bias",
        [MODEL_HEAD] = "head",
    };
    return names[role];
}

static bool applies(enum model_condition when, const struct model_config *config)
{
    switch (when) {
    case MODEL_ALWAYS: return true;
    case MODEL_WHEN_QKV_BIAS: return config->qkv_bias;
    case MODEL_WHEN_OUTPUT_BIAS: return config->output_bias;
    case MODEL_WHEN_MLP_BIAS: return config->mlp_bias;
    case MODEL_WHEN_UNTIED: return !config->tied;
    }
    return false;
}

/* "model.layers.#.x" with the layer's number for '#'. */
static void print_part_name(const char *pattern, int64_t layer, char *out, size_t bytes)
{
    const char *mark = strchr(pattern, '#');
    if (mark == NULL) {
        snprintf(out, bytes, "%s", pattern);
    } else {
        snprintf(out, bytes, "%.*s%" PRId64 "%s", (int)(mark - pattern), pattern, layer, mark + 1);
    }
}

static bool is_frozen(const struct model_options *options, const char *name)
{
    for (size_t i = 0; options != NULL && i < options->frozen_count; i++) {
        if (fnmatch(options->frozen[i], name, 0) == 0) {
            return true;
        }
    }
    return false;
}

static int add_parts(struct model *model, const struct model_options *options,
                     const struct model_param_row *row, const struct model_block *block,
                     struct model_param *param)
{
    const char *frozen = NULL;
    const char *trained = NULL;
    int64_t first_row = 0;
    for (unsigned i = 0; i < MODEL_PARTS_MAX && row->parts[i].name != NULL; i++) {
        struct model_part *part = &param->parts[i];
        char name[BLOCKS_NAME_BYTES_MAX + 1];
        print_part_name(row->parts[i].name, block->layer, name, sizeof name);
        part->first_row = first_row;
        part->rows = model_dim(&model->config, row->parts[i].rows);
        const struct block_tensor tensor = {
            .name = name,
            .first = param->offset + (uint64_t)first_row * (uint64_t)param->cols,
            .rows = part->rows,
            .cols = param->cols,
            .transposed = param->transposed,
        };
        int rc = blocks_add_tensor(model->flat, &tensor, &part->name);
        if (rc != 0) {
            return rc;
        }
        param->part_count = i + 1;
        first_row += part->rows;
        const char **first = is_frozen(options, part->name) ? &frozen : &trained;
        *first = *first != NULL ? *first : part->name;
    }
    assert(first_row == param->rows);
    if (frozen != NULL && trained != NULL) {
        return core_err_set(-EINVAL,
                            "--freeze matches %s and not %s: they are one array in memory (%s of "
                            "%s), whose tensors can only be frozen together",
                            frozen, trained, model_role_name(param->role), block->name);
    }
    param->trained = frozen == NULL;
    return 0;
}

static int add_param(struct model *model, const struct model_options *options,
                     const struct model_param_row *row, struct model_block *block)
{
    assert(block->param_count < MODEL_PARAMS_MAX);
    struct model_param *param = &block->params[block->param_count++];
    *param = (struct model_param){
        .role = row->role,
        .rows = model_dim(&model->config, row->rows),
        .cols = model_dim(&model->config, row->cols),
        .owner = (unsigned)(block - model->blocks),
        .vector = row->cols == MODEL_DIM_ONE,
        .transposed = row->transposed,
        .decay = row->decay,
        .offset = block->elements,
    };
    if (__builtin_mul_overflow((uint64_t)param->rows, (uint64_t)param->cols, &param->elements) ||
        param->elements > BLOCKS_ELEMENTS_MAX) {
        return core_err_set(-EINVAL, "%s of %s would have %" PRId64 " x %" PRId64 " elements",
                            model_role_name(param->role), block->name, param->rows, param->cols);
    }
    int rc = add_parts(model, options, row, block, param);
    if (rc != 0) {
        return rc;
    }
    uint64_t first = 0;
    rc = blocks_add_array(model->flat, param->elements,
                          param->decay ? MODEL_GROUP_DECAY : MODEL_GROUP_PLAIN, param->trained,
                          &first);
    if (rc != 0) {
        return rc;
    }
    assert(first == param->offset);
    blocks_pad(model->flat);
    block->elements = model->flat->list[param->owner].elements;
    block->trained = block->trained || param->trained;
    model->parameters += param->elements;
    model->trained_parameters += param->trained ? param->elements : 0;
    return 0;
}

/* The head of a tied model uses the embedding's table, which the embedding owns. */
static void borrow_head(struct model *model, struct model_block *head)
{
    const struct model_block *embedding = &model->blocks[0];
    struct model_param *param = &head->params[head->param_count++];
    *param = embedding->params[model_block_param(embedding, MODEL_TOKEN_TABLE)];
    param->role = MODEL_HEAD;
    param->part_count = 0;
    memset(param->parts, 0, sizeof param->parts);
}

/* Files of a tied model may have the table under the head's name alone; transformers reads them, too. */
static void name_table(const struct model_family *family, struct model_block *embedding)
{
    const unsigned table = (unsigned)model_block_param(embedding, MODEL_TOKEN_TABLE);
    for (size_t i = 0; i < family->head.param_count; i++) {
        if (family->head.params[i].role == MODEL_HEAD) {
            embedding->params[table].parts[0].other = family->head.params[i].parts[0].name;
        }
    }
}

static bool same_programs(const struct model_block *a, const struct model_block *b)
{
    if (a->kind != b->kind || a->window != b->window || a->param_count != b->param_count ||
        a->scale < b->scale || a->scale > b->scale) {
        return false;
    }
    for (unsigned i = 0; i < a->param_count; i++) {
        if (a->params[i].trained != b->params[i].trained) {
            return false;
        }
    }
    return true;
}

static int fill_block(struct model *model, const struct model_options *options, unsigned index)
{
    struct model_block *block = &model->blocks[index];
    const struct model_family *family = model->config.family;
    char name[32];
    block->layer = (int64_t)index - 1;
    if (index == 0) {
        block->kind = MODEL_BLOCK_EMBEDDING;
        block->table = &family->embedding;
        snprintf(name, sizeof name, "embedding");
    } else if (index == model->block_count - 1) {
        block->kind = MODEL_BLOCK_HEAD;
        block->table = &family->head;
        snprintf(name, sizeof name, "head");
    } else {
        block->kind = MODEL_BLOCK_LAYER;
        block->table = &family->layer;
        block->window = model_config_window(&model->config, block->layer);
        block->scale = model_config_scale(&model->config, block->layer);
        snprintf(name, sizeof name, "layer %" PRId64, block->layer);
    }
    int rc = blocks_add(model->flat, name);
    if (rc != 0) {
        return rc;
    }
    block->name = model->flat->list[index].name;
    for (size_t i = 0; i < block->table->param_count; i++) {
        const struct model_param_row *row = &block->table->params[i];
        rc = applies(row->when, &model->config) ? add_param(model, options, row, block) : 0;
        if (rc != 0) {
            return rc;
        }
    }
    if (block->kind == MODEL_BLOCK_HEAD && model->config.tied) {
        borrow_head(model, block);
    } else if (block->kind == MODEL_BLOCK_EMBEDDING && model->config.tied) {
        name_table(family, block);
    }
    while (block->like < index && !same_programs(&model->blocks[block->like], block)) {
        block->like++;
    }
    return 0;
}

static bool names_any(const struct model *model, const char *pattern)
{
    for (unsigned b = 0; b < model->block_count; b++) {
        const struct model_block *block = &model->blocks[b];
        for (unsigned i = 0; i < block->param_count; i++) {
            const struct model_param *param = &block->params[i];
            for (unsigned k = 0; k < param->part_count; k++) {
                if (fnmatch(pattern, param->parts[k].name, 0) == 0) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* A pattern that matches nothing is probably misspelled; the tensors that were meant would be trained. */
static int check_frozen(const struct model *model, const struct model_options *options)
{
    for (size_t i = 0; options != NULL && i < options->frozen_count; i++) {
        if (!names_any(model, options->frozen[i])) {
            return core_err_set(
                -EINVAL,
                "--freeze pattern \"%s\" matches no tensor of the model; its first one is %s",
                options->frozen[i], model->blocks[0].params[0].parts[0].name);
        }
    }
    return 0;
}

static uint64_t mix(uint64_t hash, uint64_t number)
{
    return core_hash(&number, sizeof number, hash);
}

static uint64_t hash_param(uint64_t hash, const struct model_param *param)
{
    hash = mix(hash, param->offset);
    hash = mix(hash, (uint64_t)param->rows);
    hash = mix(hash, (uint64_t)param->cols);
    hash = mix(hash, (uint64_t)param->owner << 2 | (uint64_t)param->transposed << 1 |
                         (uint64_t)param->trained);
    for (unsigned i = 0; i < param->part_count; i++) {
        const struct model_part *part = &param->parts[i];
        hash = core_hash(part->name, strlen(part->name), hash);
        hash = mix(hash, (uint64_t)part->first_row);
        hash = mix(hash, (uint64_t)part->rows);
    }
    return hash;
}

/* Hash of names, shapes, offsets, and which tensors are frozen. */
static uint64_t hash_model(const struct model *model)
{
    const char *family = model->config.family->name;
    uint64_t hash = core_hash(family, strlen(family), model->block_count);
    for (unsigned b = 0; b < model->block_count; b++) {
        hash = mix(hash, model->blocks[b].elements);
        for (unsigned i = 0; i < model->blocks[b].param_count; i++) {
            hash = hash_param(hash, &model->blocks[b].params[i]);
        }
    }
    return hash;
}

static int fill_model(struct model *model, const struct model_options *options)
{
    model->blocks = calloc(model->block_count, sizeof *model->blocks);
    if (model->blocks == NULL) {
        return core_err_set(-ENOMEM, "no memory for %u blocks", model->block_count);
    }
    int rc = blocks_create(&model->flat);
    for (unsigned i = 0; rc == 0 && i < model->block_count; i++) {
        rc = fill_block(model, options, i);
    }
    if (rc != 0) {
        return rc;
    }
    rc = blocks_finish(model->flat, model->config.family->name, hash_model(model));
    return rc == 0 ? check_frozen(model, options) : rc;
}

int model_create(const struct model_config *config, const struct model_options *options,
                 struct model **out)
{
    struct model *model = calloc(1, sizeof *model);
    if (model == NULL) {
        return core_err_set(-ENOMEM, "no memory for a model");
    }
    model->config = *config;
    model->block_count = (unsigned)config->layers + 2;
    int rc = fill_model(model, options);
    if (rc != 0) {
        model_destroy(model);
        return rc;
    }
    *out = model;
    return 0;
}

void model_destroy(struct model *model)
{
    if (model == NULL) {
        return;
    }
    blocks_destroy(model->flat);
    free(model->blocks);
    free(model);
}

int model_block_param(const struct model_block *block, enum model_role role)
{
    for (unsigned i = 0; role != MODEL_NO_ROLE && i < block->param_count; i++) {
        if (block->params[i].role == role) {
            return (int)i;
        }
    }
    return -1;
}
