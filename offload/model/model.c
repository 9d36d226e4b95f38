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

static bool lists_as_frozen(const struct blocks *blocks, const char *name)
{
    for (uint32_t b = 0; b < blocks->count; b++) {
        const struct block *block = &blocks->list[b];
        for (size_t i = 0; i < block->tensor_count && !block->trained; i++) {
            if (strcmp(block->tensors[i].name, name) == 0) {
                return true;
            }
        }
    }
    return false;
}

static bool matches_any(const char *const *modules, size_t count, const char *tensor)
{
    for (size_t i = 0; i < count; i++) {
        if (model_module_matches(tensor, modules[i])) {
            return true;
        }
    }
    return false;
}

/* With adapters, only the parameters of lora->saved are trained beside them. */
static bool is_frozen(const struct model_options *options, const char *name)
{
    if (options != NULL && options->lora != NULL) {
        return !matches_any(options->lora->saved, options->lora->saved_count, name);
    }
    for (size_t i = 0; options != NULL && i < options->frozen_count; i++) {
        if (fnmatch(options->frozen[i], name, 0) == 0) {
            return true;
        }
    }
    return options != NULL && options->frozen_as != NULL &&
           lists_as_frozen(options->frozen_as, name);
}

static void print_block_name(const struct model *model, unsigned index, char *out, size_t bytes)
{
    const struct model_block *block = &model->blocks[index];
    switch (block->kind) {
    case MODEL_BLOCK_EMBEDDING: snprintf(out, bytes, "embedding"); break;
    case MODEL_BLOCK_LAYER: snprintf(out, bytes, "layer %" PRId64, block->layer); break;
    case MODEL_BLOCK_HEAD: snprintf(out, bytes, "head"); break;
    case MODEL_BLOCK_DATA: {
        unsigned user = 0;
        while (model->blocks[user].data != index) {
            user++;
        }
        snprintf(out, bytes, "%s frozen", model->blocks[user].name);
        break;
    }
    }
}

/* ---- the parameters that computing blocks use ---- */

static enum kern_quant quant_of(const struct model *model, unsigned index,
                                const struct model_param_row *row, unsigned part)
{
    const struct model_config *config = &model->config;
    const struct model_block *block = &model->blocks[index];
    const bool has = block->kind == MODEL_BLOCK_LAYER && model_role_is_linear(row->role) &&
                     (config->whole[block->layer] & model_part_bit(config->family, row, part)) == 0;
    return has ? config->quant : KERN_QUANT_NONE;
}

/* The names are the family's patterns until the parameter has its place. */
static int list_parts(struct model *model, const struct model_options *options,
                      const struct model_param_row *row, unsigned index, struct model_param *param)
{
    char first[2][BLOCKS_NAME_BYTES_MAX + 1] = {"", ""}; /* first trained name, first frozen name */
    int64_t first_row = 0;
    for (unsigned i = 0; i < MODEL_PARTS_MAX && row->parts[i].name != NULL; i++) {
        struct model_part *part = &param->parts[i];
        char name[BLOCKS_NAME_BYTES_MAX + 1];
        model_part_name(row->parts[i].name, model->blocks[index].layer, name, sizeof name);
        part->name = row->parts[i].name;
        part->first_row = first_row;
        part->rows = model_dim(&model->config, row->parts[i].rows);
        part->quant = quant_of(model, index, row, i);
        param->part_count = i + 1;
        first_row += part->rows;
        char *kept = first[is_frozen(options, name)];
        if (kept[0] == '\0') {
            memcpy(kept, name, sizeof name);
        }
    }
    assert(first_row == param->rows);
    if (first[0][0] != '\0' && first[1][0] != '\0') {
        char name[BLOCKS_NAME_BYTES_MAX + 1];
        print_block_name(model, index, name, sizeof name);
        const bool lora = options->lora != NULL;
        return core_err_set(-EINVAL,
                            "%s matches %s and not %s: they are one array in memory (%s of %s), "
                            "whose tensors can only be %s together",
                            lora ? "modules_to_save (--modules-to-save)" : "frozen (--freeze)",
                            first[!lora], first[lora], model_role_name(param->role), name,
                            lora ? "trained" : "frozen");
    }
    param->trained = first[1][0] == '\0';
    return 0;
}

static int list_param(struct model *model, const struct model_options *options,
                      const struct model_param_row *row, unsigned index)
{
    struct model_block *block = &model->blocks[index];
    struct model_param *param = &block->params[block->param_count++];
    *param = (struct model_param){
        .role = row->role,
        .rows = model_dim(&model->config, row->rows),
        .cols = model_dim(&model->config, row->cols),
        .owner = index,
        .vector = row->cols == MODEL_DIM_ONE,
        .transposed = row->transposed,
        .decay = row->decay,
    };
    if (__builtin_mul_overflow((uint64_t)param->rows, (uint64_t)param->cols, &param->elements) ||
        param->elements > BLOCKS_ELEMENTS_MAX) {
        char name[BLOCKS_NAME_BYTES_MAX + 1];
        print_block_name(model, index, name, sizeof name);
        return core_err_set(-EINVAL,
                            "%s of %s would have %" PRId64 " x %" PRId64
                            " elements; the maximum is %" PRIu64,
                            model_role_name(param->role), name, param->rows, param->cols,
                            (uint64_t)BLOCKS_ELEMENTS_MAX);
    }
    return list_parts(model, options, row, index, param);
}

/* ---- adapters ---- */

static bool is_target(const struct model_lora_options *lora, const struct model_param *param,
                      const char *tensor)
{
    return model_role_is_linear(param->role) && param->adapter == MODEL_ADAPTER_NONE &&
           (lora->targets == NULL || matches_any(lora->targets, lora->target_count, tensor));
}

/* Adds one kind of adapter, with a part per targeted part of the parameter. */
static int list_adapter(struct model *model, const struct model_lora_options *lora, unsigned index,
                        const struct model_param *base, enum model_adapter adapter)
{
    struct model_block *block = &model->blocks[index];
    struct model_param param = {
        .role = base->role,
        .adapter = adapter,
        .cols = adapter == MODEL_ADAPTER_A   ? base->cols
                : adapter == MODEL_ADAPTER_B ? lora->rank
                                             : 1,
        .owner = index,
        .vector = adapter == MODEL_ADAPTER_MAGNITUDE,
        .decay = true,
        .trained = true,
        .seed = lora->seed,
    };
    for (unsigned i = 0; i < base->part_count; i++) {
        const struct model_part *from = &base->parts[i];
        char name[BLOCKS_NAME_BYTES_MAX + 1];
        model_part_name(from->name, block->layer, name, sizeof name);
        if (!is_target(lora, base, name)) {
            continue;
        }
        if (base->trained) {
            return core_err_set(-EINVAL,
                                "lora_targets (--lora-targets) and modules_to_save "
                                "(--modules-to-save) both match %s: a layer that "
                                "is trained whole gets no adapter",
                                name);
        }
        struct model_part *part = &param.parts[param.part_count++];
        part->name = from->name;
        part->first_row = param.rows;
        part->rows = adapter == MODEL_ADAPTER_A ? lora->rank : from->rows;
        part->onto_row = from->first_row;
        param.rows += part->rows;
    }
    if (param.part_count > 0) {
        param.elements = (uint64_t)param.rows * (uint64_t)param.cols;
        block->params[block->param_count++] = param;
    }
    return 0;
}

static int list_adapters(struct model *model, const struct model_lora_options *lora, unsigned index)
{
    struct model_block *block = &model->blocks[index];
    const unsigned count = block->param_count;
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < count; i++) {
        rc = list_adapter(model, lora, index, &block->params[i], MODEL_ADAPTER_A);
        if (rc == 0) {
            rc = list_adapter(model, lora, index, &block->params[i], MODEL_ADAPTER_B);
        }
        if (rc == 0 && lora->dora) {
            rc = list_adapter(model, lora, index, &block->params[i], MODEL_ADAPTER_MAGNITUDE);
        }
    }
    return rc;
}

/* With `lora`, only modules of targeted tensors count. */
static bool names_module(const struct model *model, const struct model_lora_options *lora,
                         const char *module)
{
    for (unsigned b = 0; b < model->block_count; b++) {
        const struct model_block *block = &model->blocks[b];
        for (unsigned i = 0; i < block->param_count; i++) {
            const struct model_param *param = &block->params[i];
            for (unsigned k = 0; k < param->part_count; k++) {
                if ((lora == NULL || is_target(lora, param, param->parts[k].name)) &&
                    model_module_matches(param->parts[k].name, module)) {
                    return true;
                }
            }
        }
    }
    return false;
}

static int refuse_target(const struct model *model, const char *target)
{
    if (strpbrk(target, "*+?()[]{}|\\^$") != NULL) {
        return core_err_set(
            -EINVAL,
            "lora_targets (--lora-targets): \"%s\" is a regular expression; name modules instead: "
            "q_proj,v_proj",
            target);
    }
    if (names_module(model, NULL, target)) {
        return core_err_set(-EINVAL,
                            "lora_targets (--lora-targets): \"%s\" is not a linear layer of the "
                            "model's layers, and only these can have adapters; modules_to_save "
                            "(--modules-to-save) with %s trains it whole",
                            target, target);
    }
    return core_err_set(
        -EINVAL,
        "lora_targets (--lora-targets): \"%s\" is not a linear layer of the model's layers; "
        "\"tide inspect --tensors\" with the folder of --model lists all names",
        target);
}

/* Refuses a rank above the smallest dimension of adapted layers. */
static int check_rank(const struct model *model, const struct model_lora_options *lora)
{
    int64_t least = INT64_MAX;
    char tensor[BLOCKS_NAME_BYTES_MAX + 1] = "";
    for (unsigned b = 0; b < model->block_count; b++) {
        const struct model_block *block = &model->blocks[b];
        for (unsigned i = 0; i < block->param_count; i++) {
            const struct model_param *param = &block->params[i];
            for (unsigned k = 0; k < param->part_count; k++) {
                const struct model_part *part = &param->parts[k];
                const int64_t smaller = part->rows < param->cols ? part->rows : param->cols;
                if (smaller < least && is_target(lora, param, part->name)) {
                    least = smaller;
                    model_part_name(part->name, block->layer, tensor, sizeof tensor);
                }
            }
        }
    }
    return lora->rank <= least ? 0
                               : core_err_set(-EINVAL,
                                              "lora_rank (--lora) is %" PRId64
                                              ", more than the smaller dimension of %s, which "
                                              "is %" PRId64,
                                              lora->rank, tensor, least);
}

static int check_saved(const struct model *model, const char *module)
{
    const struct model_block *embedding = &model->blocks[0];
    const struct model_param *table =
        &embedding->params[model_block_param(embedding, MODEL_TOKEN_TABLE)];
    const char *head = model->config.tied ? table->parts[0].other : NULL;
    const bool shared = head != NULL && model_module_matches(head, module);
    if (shared || (model->config.tied && table->trained)) {
        return core_err_set(-EINVAL,
                            "modules_to_save (--modules-to-save) matches the token table, which "
                            "this model also uses "
                            "as its head (tie_word_embeddings); PEFT would train two tables");
    }
    return names_module(model, NULL, module)
               ? 0
               : core_err_set(-EINVAL,
                              "modules_to_save (--modules-to-save): the model has no module \"%s\"",
                              module);
}

static int check_lora(const struct model *model, const struct model_lora_options *lora)
{
    for (size_t i = 0; i < lora->target_count; i++) {
        if (!names_module(model, lora, lora->targets[i])) {
            return refuse_target(model, lora->targets[i]);
        }
    }
    int rc = check_rank(model, lora);
    for (size_t i = 0; rc == 0 && i < lora->saved_count; i++) {
        rc = check_saved(model, lora->saved[i]);
    }
    return rc;
}

/* Files of a tied model may have the table only under the head's name. */
static void name_table(const struct model_family *family, struct model_block *embedding)
{
    const unsigned table = (unsigned)model_block_param(embedding, MODEL_TOKEN_TABLE);
    for (size_t i = 0; i < family->head.param_count; i++) {
        if (family->head.params[i].role == MODEL_HEAD) {
            embedding->params[table].parts[0].other = family->head.params[i].parts[0].name;
        }
    }
}

static int make_params(struct model_block *block, size_t room)
{
    assert(room <= UINT8_MAX);
    block->params = calloc(room, sizeof *block->params);
    return block->params != NULL ? 0 : core_err_set(-ENOMEM, "no memory for %zu parameters", room);
}

static int list_block(struct model *model, const struct model_options *options, unsigned index)
{
    struct model_block *block = &model->blocks[index];
    const struct model_family *family = model->config.family;
    block->layer = (int64_t)index - 1;
    if (index == 0) {
        block->kind = MODEL_BLOCK_EMBEDDING;
        block->table = &family->embedding;
    } else if (index == model->compute_count - 1) {
        block->kind = MODEL_BLOCK_HEAD;
        block->table = &family->head;
    } else {
        block->kind = MODEL_BLOCK_LAYER;
        block->table = &family->layer;
        block->window = model_config_window(&model->config, block->layer);
        block->scale = model_config_scale(&model->config, block->layer);
    }
    const bool adapters = options != NULL && options->lora != NULL;
    /* A tied head borrows one parameter; a parameter has up to three arrays of adapters. */
    int rc = make_params(block, (adapters ? 4 : 1) * block->table->param_count + 1);
    for (size_t i = 0; rc == 0 && i < block->table->param_count; i++) {
        const struct model_param_row *row = &block->table->params[i];
        rc = applies(row->when, &model->config) ? list_param(model, options, row, index) : 0;
    }
    if (rc == 0 && adapters && block->kind == MODEL_BLOCK_LAYER) {
        rc = list_adapters(model, options->lora, index);
    }
    if (rc == 0 && index == 0 && model->config.tied) {
        name_table(family, block);
    }
    return rc;
}

/* ---- which block owns a parameter ---- */

/* Moves frozen parameters to a data block, unless the whole block is frozen. */
static int move_frozen(struct model *model, unsigned index)
{
    struct model_block *block = &model->blocks[index];
    unsigned frozen = 0;
    for (unsigned i = 0; i < block->param_count; i++) {
        frozen += !block->params[i].trained;
    }
    block->trained = frozen < block->param_count;
    if (frozen == 0 || !block->trained) {
        return 0;
    }
    struct model_block *data = &model->blocks[model->block_count];
    block->data = model->block_count++;
    *data = (struct model_block){
        .kind = MODEL_BLOCK_DATA, .layer = block->layer, .like = block->data};
    int rc = make_params(data, frozen);
    for (unsigned i = 0; rc == 0 && i < block->param_count; i++) {
        struct model_param *param = &block->params[i];
        if (!param->trained) {
            param->owner = block->data;
            data->params[data->param_count++] = *param;
        }
    }
    return rc;
}

static int place_param(struct model *model, struct model_param *param)
{
    struct model_block *block = &model->blocks[param->owner];
    param->offset = block->elements;
    for (unsigned i = 0; i < param->part_count; i++) {
        struct model_part *part = &param->parts[i];
        char name[BLOCKS_NAME_BYTES_MAX + 1];
        model_part_name(part->name, block->layer, name, sizeof name);
        if (param->adapter != MODEL_ADAPTER_NONE) {
            char tensor[BLOCKS_NAME_BYTES_MAX + 1];
            memcpy(tensor, name, sizeof tensor);
            model_adapter_name(tensor, param->adapter, name, sizeof name);
        }
        const struct block_tensor tensor = {
            .name = name,
            .first = param->offset + (uint64_t)part->first_row * (uint64_t)param->cols,
            .rows = part->rows,
            .cols = param->cols,
            .transposed = param->transposed,
        };
        int rc = blocks_add_tensor(model->flat, &tensor, &part->name);
        if (rc != 0) {
            return rc;
        }
    }
    uint64_t first = 0;
    int rc = blocks_add_array(model->flat, param->elements,
                              param->decay ? MODEL_GROUP_DECAY : MODEL_GROUP_PLAIN, param->trained,
                              &first);
    if (rc != 0) {
        return rc;
    }
    assert(first == param->offset);
    blocks_pad(model->flat);
    block->elements = model->flat->list[param->owner].elements;
    model->parameters += param->elements;
    model->trained_parameters += param->trained ? param->elements : 0;
    return 0;
}

static int place_block(struct model *model, unsigned index)
{
    struct model_block *block = &model->blocks[index];
    char name[BLOCKS_NAME_BYTES_MAX + 1];
    print_block_name(model, index, name, sizeof name);
    int rc = blocks_add(model->flat, name);
    if (rc != 0) {
        return rc;
    }
    block->name = model->flat->list[index].name;
    for (unsigned i = 0; rc == 0 && i < block->param_count; i++) {
        rc = block->params[i].owner == index ? place_param(model, &block->params[i]) : 0;
    }
    return rc;
}

/* ---- what is borrowed ---- */

/* `param` keeps its own role; the parts stay with the owner. */
static void borrow_param(const struct model *model, unsigned owner, enum model_role role,
                         struct model_param *param)
{
    const struct model_block *from = &model->blocks[owner];
    const enum model_role used_as = param->role;
    *param = from->params[model_block_param(from, role)];
    param->role = used_as;
    param->part_count = 0;
    memset(param->parts, 0, sizeof param->parts);
}

static void borrow_params(struct model *model, unsigned index)
{
    struct model_block *block = &model->blocks[index];
    for (unsigned i = 0; i < block->param_count; i++) {
        struct model_param *param = &block->params[i];
        if (param->owner != index) {
            borrow_param(model, param->owner, param->role, param);
        }
    }
    if (block->kind == MODEL_BLOCK_HEAD && model->config.tied) {
        const struct model_block *embedding = &model->blocks[0];
        struct model_param *param = &block->params[block->param_count++];
        param->role = MODEL_HEAD;
        borrow_param(model,
                     embedding->params[model_block_param(embedding, MODEL_TOKEN_TABLE)].owner,
                     MODEL_TOKEN_TABLE, param);
    }
}

static bool same_adapters(const struct model_param *a, const struct model_param *b)
{
    bool same = a->role == b->role && a->adapter == b->adapter && a->rows == b->rows;
    for (unsigned i = 0; same && a->adapter != MODEL_ADAPTER_NONE && i < a->part_count; i++) {
        same = a->parts[i].onto_row == b->parts[i].onto_row;
    }
    return same;
}

static bool same_programs(const struct model_block *a, const struct model_block *b)
{
    if (a->kind != b->kind || a->window != b->window || a->param_count != b->param_count ||
        a->scale < b->scale || a->scale > b->scale) {
        return false;
    }
    for (unsigned i = 0; i < a->param_count; i++) {
        if (a->params[i].trained != b->params[i].trained ||
            !same_adapters(&a->params[i], &b->params[i])) {
            return false;
        }
    }
    return true;
}

/* ---- creating a model ---- */

static bool names_any(const struct blocks *blocks, const char *pattern)
{
    for (uint32_t b = 0; b < blocks->count; b++) {
        for (size_t i = 0; i < blocks->list[b].tensor_count; i++) {
            if (fnmatch(pattern, blocks->list[b].tensors[i].name, 0) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* A pattern without a match is probably misspelled, and would freeze nothing. */
static int check_frozen(const struct model *model, const struct model_options *options)
{
    if (options != NULL && options->lora != NULL) {
        return check_lora(model, options->lora);
    }
    for (size_t i = 0; options != NULL && i < options->frozen_count; i++) {
        if (!names_any(model->flat, options->frozen[i])) {
            return core_err_set(-EINVAL,
                                "frozen (--freeze): pattern \"%s\" matches no tensor of the model; "
                                "the model's first tensor is %s",
                                options->frozen[i], model->flat->list[0].tensors[0].name);
        }
    }
    return 0;
}

static uint64_t hash_param(uint64_t hash, const struct model_param *param)
{
    hash = core_hash_number(param->offset, hash);
    hash = core_hash_number((uint64_t)param->rows, hash);
    hash = core_hash_number((uint64_t)param->cols, hash);
    hash = core_hash_number((uint64_t)param->owner << 2 | (uint64_t)param->transposed << 1 |
                                (uint64_t)param->trained,
                            hash);
    for (unsigned i = 0; i < param->part_count; i++) {
        const struct model_part *part = &param->parts[i];
        hash = core_hash(part->name, strlen(part->name), hash);
        hash = core_hash_number((uint64_t)part->first_row, hash);
        hash = core_hash_number((uint64_t)part->rows, hash);
    }
    return hash;
}

static uint64_t hash_model(const struct model *model)
{
    const char *family = model->config.family->name;
    uint64_t hash = core_hash(family, strlen(family), model->block_count);
    if (model->lora.rank > 0) {
        hash = core_hash(&model->lora.scale, sizeof model->lora.scale, hash);
    }
    for (unsigned b = 0; b < model->block_count; b++) {
        hash = core_hash_number(model->blocks[b].elements, hash);
        for (unsigned i = 0; i < model->blocks[b].param_count; i++) {
            hash = hash_param(hash, &model->blocks[b].params[i]);
        }
    }
    return hash;
}

static int fill_model(struct model *model, const struct model_options *options)
{
    /* A computing block has at most one data block. */
    model->blocks = calloc(2 * (size_t)model->compute_count, sizeof *model->blocks);
    if (model->blocks == NULL) {
        return core_err_set(-ENOMEM, "no memory for %u blocks", model->compute_count);
    }
    int rc = blocks_create(&model->flat);
    model->block_count = model->compute_count;
    for (unsigned i = 0; rc == 0 && i < model->compute_count; i++) {
        rc = list_block(model, options, i);
    }
    for (unsigned i = 0; rc == 0 && i < model->compute_count; i++) {
        rc = move_frozen(model, i);
    }
    for (unsigned i = 0; rc == 0 && i < model->block_count; i++) {
        rc = place_block(model, i);
    }
    if (rc != 0) {
        return rc;
    }
    for (unsigned i = 0; i < model->compute_count; i++) {
        struct model_block *block = &model->blocks[i];
        borrow_params(model, i);
        while (block->like < i && !same_programs(&model->blocks[block->like], block)) {
            block->like++;
        }
        model->params_max = block->param_count > model->params_max ? block->param_count
                                                                   : model->params_max;
    }
    model->flat->base_apart = options != NULL && (options->base_apart || options->lora != NULL);
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
    model->compute_count = (unsigned)config->layers + 2;
    if (options != NULL && options->lora != NULL) {
        model->lora = model_lora_of(options->lora);
    }
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
    for (unsigned i = 0; model->blocks != NULL && i < model->block_count; i++) {
        free(model->blocks[i].params);
    }
    free(model->blocks);
    free(model);
}

int model_block_param(const struct model_block *block, enum model_role role)
{
    return role != MODEL_NO_ROLE ? model_block_adapter(block, role, MODEL_ADAPTER_NONE) : -1;
}

int model_block_adapter(const struct model_block *block, enum model_role role,
                        enum model_adapter adapter)
{
    for (unsigned i = 0; i < block->param_count; i++) {
        if (block->params[i].role == role && block->params[i].adapter == adapter) {
            return (int)i;
        }
    }
    return -1;
}

unsigned model_block_borrows(const struct model *model, unsigned index,
                             unsigned borrows[MODEL_BORROWS_MAX])
{
    const struct model_block *block = &model->blocks[index];
    unsigned count = 0;
    for (unsigned i = 0; i < block->param_count; i++) {
        const struct model_param *param = &block->params[i];
        unsigned at = 0;
        while (at < count && borrows[at] != param->owner) {
            at++;
        }
        if (param->owner == index || at < count) {
            continue;
        }
        assert(count < MODEL_BORROWS_MAX);
        if (param->trained && count > 0) {
            borrows[count] = borrows[0];
            at = 0;
        }
        borrows[at] = param->owner;
        count++;
    }
    return count;
}
