/* adapter_config.c: writes adapter_config.json for PEFT. */
#include "offload/model/adapter_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/write.h"

/* A module's path; not terminated. */
struct module {
    const char *path;
    size_t length;
};

static struct module module_of(const struct model_param *param, const struct model_part *part)
{
    const size_t prefix = strlen(MODEL_ADAPTER_PREFIX);
    struct module module = {part->name, model_module_length(part->name)};
    if (param->adapter != MODEL_ADAPTER_NONE) { /* the name is PREFIX path.lora_B.weight */
        module.path += prefix;
        module.length -= prefix + strlen(".lora_B");
    }
    return module;
}

static struct module last_name(struct module module)
{
    size_t begin = module.length;
    while (begin > 0 && module.path[begin - 1] != '.') {
        begin--;
    }
    return (struct module){module.path + begin, module.length - begin};
}

static bool same(struct module a, struct module b)
{
    return a.length == b.length && strncmp(a.path, b.path, a.length) == 0;
}

static void write_module(struct core_json_write *write, struct module module)
{
    core_json_write_string_bytes(write, NULL, module.path, module.length);
}

struct walk {
    const struct model *model;
    bool adapted;
    unsigned block, param, part;
};

/* Returns false at the end. */
static bool next_module(struct walk *walk, struct module *out)
{
    const enum model_adapter adapter = walk->adapted ? MODEL_ADAPTER_B : MODEL_ADAPTER_NONE;
    for (; walk->block < walk->model->block_count; walk->block++, walk->param = 0) {
        const struct model_block *block = &walk->model->blocks[walk->block];
        for (; walk->param < block->param_count; walk->param++, walk->part = 0) {
            const struct model_param *param = &block->params[walk->param];
            if (param->adapter == adapter && !param->vector && walk->part < param->part_count) {
                *out = module_of(param, &param->parts[walk->part++]);
                return true;
            }
        }
    }
    return false;
}

/* With `adapted`, only adapted modules count. */
static size_t count_name(const struct model *model, bool adapted, struct module name)
{
    struct walk walk = {.model = model, .adapted = adapted};
    struct module one;
    size_t count = 0;
    while (next_module(&walk, &one)) {
        count += same(last_name(one), name);
    }
    return count;
}

static bool is_whole_name(const struct model *model, struct module name)
{
    return count_name(model, true, name) == count_name(model, false, name);
}

/* Returns whether an earlier adapted module has this last name. */
static bool is_repeated(const struct model *model, struct module module)
{
    struct walk walk = {.model = model, .adapted = true};
    struct module one;
    while (next_module(&walk, &one) && !same(one, module)) {
        if (same(last_name(one), last_name(module))) {
            return true;
        }
    }
    return false;
}

/* Of each adapted module, writes the last name if all modules of that name are adapted, else the
 * full path, because PEFT adapts whatever matches. */
static void write_targets(struct core_json_write *write, const struct model *model)
{
    struct walk walk = {.model = model, .adapted = true};
    struct module module;
    core_json_write_array_begin(write, "target_modules");
    while (next_module(&walk, &module)) {
        const struct module name = last_name(module);
        if (is_repeated(model, module)) {
            if (!is_whole_name(model, name)) {
                write_module(write, module);
            }
        } else {
            write_module(write, is_whole_name(model, name) ? name : module);
        }
    }
    core_json_write_array_end(write);
}

static void write_saved(struct core_json_write *write, const struct model *model)
{
    bool any = false;
    for (unsigned b = 0; b < model->block_count; b++) {
        for (unsigned i = 0; i < model->blocks[b].param_count; i++) {
            const struct model_param *param = &model->blocks[b].params[i];
            const bool saved = param->trained && param->adapter == MODEL_ADAPTER_NONE;
            for (unsigned k = 0; saved && k < param->part_count; k++) {
                if (!any) {
                    core_json_write_array_begin(write, "modules_to_save");
                }
                any = true;
                write_module(write, module_of(param, &param->parts[k]));
            }
        }
    }
    if (any) {
        core_json_write_array_end(write);
    } else {
        core_json_write_null(write, "modules_to_save");
    }
}

/* To PEFT, layers whose weights are transposed in the files are Conv1D (fan_in_fan_out). */
static bool is_transposed(const struct model *model)
{
    for (unsigned b = 0; b < model->block_count; b++) {
        for (unsigned i = 0; i < model->blocks[b].param_count; i++) {
            if (model->blocks[b].params[i].transposed) {
                return true;
            }
        }
    }
    return false;
}

static void write_identity(struct core_json_write *write, uint64_t identity)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, identity);
    core_json_write_object_begin(write, MODEL_ADAPTER_MAPPING);
    core_json_write_string(write, MODEL_ADAPTER_BASE, text);
    core_json_write_object_end(write);
}

int model_adapter_config_write(const struct model_folder *folder, const struct model *model,
                               const char *base, uint64_t identity)
{
    struct core_json_write write;
    char *path = base != NULL ? realpath(base, NULL) : NULL;
    core_json_write_init_text(&write);
    write.indent = 2;
    core_json_write_object_begin(&write, NULL);
    core_json_write_string(&write, "peft_type", "LORA");
    core_json_write_string(&write, "task_type", "CAUSAL_LM");
    if (path != NULL) {
        core_json_write_string(&write, "base_model_name_or_path", path);
    } else {
        core_json_write_null(&write, "base_model_name_or_path");
    }
    if (identity != 0) {
        write_identity(&write, identity);
    }
    core_json_write_bool(&write, "inference_mode", true);
    core_json_write_integer(&write, "r", model->lora.rank);
    core_json_write_real(&write, "lora_alpha", model->lora.alpha);
    core_json_write_real(&write, "lora_dropout", model->lora.dropout);
    core_json_write_bool(&write, "use_rslora", model->lora.rslora);
    core_json_write_bool(&write, "use_dora", model->lora.dora);
    core_json_write_string(&write, "bias", "none");
    core_json_write_bool(&write, "fan_in_fan_out", is_transposed(model));
    core_json_write_bool(&write, "init_lora_weights", true);
    write_targets(&write, model);
    write_saved(&write, model);
    core_json_write_object_end(&write);
    int rc = core_json_write_end(&write);
    if (rc == 0) {
        rc = model_folder_write(folder, MODEL_ADAPTER_CONFIG, write.text, write.bytes);
    }
    core_json_write_fini(&write);
    free(path);
    return rc;
}
