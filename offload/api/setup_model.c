/* setup_model.c: opens the model with its adapters, and refuses parts that cannot be trained. */
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "offload/api/setup_parts.h"
#include "offload/model/config_read.h"

/* Without a list, or with "all-linear", all linear layers get adapters. */
static void fill_targets(const struct tide_engine_options *given, struct model_lora_options *lora)
{
    const bool all = given->lora_target_count == 0 ||
                     (given->lora_target_count == 1 &&
                      strcmp(given->lora_targets[0], "all-linear") == 0);
    lora->targets = all ? NULL : given->lora_targets;
    lora->target_count = all ? 0 : given->lora_target_count;
}

static int check_reference(const struct tide_engine_options *given,
                           const struct model_lora_options *lora)
{
    if (lora->saved_count > 0) {
        return core_err_set(-ENOTSUP,
                            "%s has whole modules (modules_to_save), which the loss of pairs "
                            "(--loss dpo) cannot train: its reference would need their original "
                            "weights beside the trained ones; merge the adapter into its base "
                            "(tide export --merge) and train a new one",
                            given->adapter);
    }
    core_log(
        CORE_LOG_WARN,
        "the loss of pairs (--loss dpo): the reference is %s without adapters, not with those of "
        "%s; merge those into the model (tide export --merge) to compare with them",
        given->model, given->adapter);
    return 0;
}

static int open_adapter(struct setup *setup, struct model_lora_options *lora)
{
    const struct tide_engine_options *given = &setup->given;
    int rc = model_peft_open(given->adapter, &setup->peft);
    if (rc != 0) {
        return rc;
    }
    const struct model_peft *peft = setup->peft;
    const char *const file = MODEL_ADAPTER_CONFIG;
    if (given->lora_rank > 0 && given->lora_rank != peft->rank) {
        return core_err_set(
            -EINVAL, "lora_rank %" PRIu32 " (--lora) contradicts \"r\": %" PRId64 " in %s/%s",
            given->lora_rank, peft->rank, peft->folder, file);
    }
    if (given->lora_alpha > 0 &&
        (given->lora_alpha > peft->alpha || given->lora_alpha < peft->alpha)) {
        return core_err_set(-EINVAL,
                            "lora_alpha %g (--lora-alpha) contradicts \"lora_alpha\": %g in %s/%s",
                            given->lora_alpha, peft->alpha, peft->folder, file);
    }
    if (given->lora_rslora != 0 && !peft->rslora) {
        return core_err_set(
            -EINVAL, "lora_rslora (--lora-rslora) contradicts \"use_rslora\": false in %s/%s",
            peft->folder, file);
    }
    if (given->lora_dora != 0 && !peft->dora) {
        return core_err_set(-EINVAL,
                            "lora_dora (--lora-dora) contradicts \"use_dora\": false in %s/%s",
                            peft->folder, file);
    }
    if (fabs(peft->scale) < (double)FLT_MIN) {
        return core_err_set(-EINVAL,
                            "%s/%s: lora_alpha is %g: adapters that are multiplied by 0 learn "
                            "nothing",
                            peft->folder, file, peft->alpha);
    }
    model_peft_options(peft, lora);
    if (given->lora_dropout > 0) {
        lora->dropout = given->lora_dropout;
    }
    if (given->lora_target_count > 0) {
        fill_targets(given, lora);
    }
    if (given->modules_to_save_count > 0) {
        lora->saved = given->modules_to_save;
        lora->saved_count = given->modules_to_save_count;
    }
    return given->loss == TIDE_LOSS_DPO ? check_reference(given, lora) : 0;
}

static int create_model(struct setup *setup, const struct model_config *config)
{
    const struct tide_engine_options *given = &setup->given;
    const bool adapted = given->lora_rank > 0 || given->adapter != NULL;
    struct model_lora_options *lora = &setup->lora;
    *lora = (struct model_lora_options){
        .rank = given->lora_rank,
        .alpha = given->lora_alpha > 0 ? given->lora_alpha : 2.0 * given->lora_rank,
        .rslora = given->lora_rslora != 0,
        .dora = given->lora_dora != 0,
        .dropout = given->lora_dropout,
        .saved = given->modules_to_save,
        .saved_count = given->modules_to_save_count,
        .seed = given->seed,
    };
    setup->model_options = (struct model_options){.frozen = given->frozen,
                                                  .frozen_count = given->frozen_count,
                                                  .base_apart = setup->options.base !=
                                                                MODEL_STORAGE_PLAIN,
                                                  .lora = adapted ? lora : NULL};
    if (given->adapter == NULL) {
        fill_targets(given, lora);
        return model_create(config, &setup->model_options, &setup->model);
    }
    int rc = open_adapter(setup, lora);
    if (rc != 0) {
        return rc;
    }
    rc = model_create(config, &setup->model_options, &setup->model);
    return rc == 0 ? model_peft_check(setup->peft, setup->model)
                   : core_err_prefix(rc, "%s does not fit %s", given->adapter, given->model);
}

static int check_base(const struct setup *setup)
{
    const enum model_storage base = setup->options.base;
    const struct model *model = setup->model;
    for (unsigned b = 0; base != MODEL_STORAGE_PLAIN && b < model->block_count; b++) {
        if (model_stored_is_possible(model, &model->blocks[b])) {
            return 0;
        }
    }
    return base == MODEL_STORAGE_PLAIN
               ? 0
               : core_err_set(
                     -EINVAL,
                     "base %s (--base) is for frozen layers, and no part of a layer of %s is "
                     "frozen: train adapters (--lora R) or freeze layers (--freeze "
                     "PATTERN)",
                     model_storage_name(base), setup->given.model);
}

/* A quantised folder decides the storage of its layers; only adapters can be trained. */
static int take_quantised(struct setup *setup, const struct model_config *config)
{
    const struct tide_engine_options *given = &setup->given;
    const enum model_storage base = model_stored_as(config->quant);
    const char *name = model_storage_name(base);
    if (base == MODEL_STORAGE_PLAIN) {
        return 0;
    }
    if (given->base != TIDE_BASE_PLAIN && setup->options.base != base) {
        return core_err_set(
            -EINVAL,
            "base %s (--base): the weights of %s are quantised to %s already; leave it "
            "out, or give the model that they were made from",
            model_storage_name(setup->options.base), given->model, name);
    }
    if (given->lora_rank == 0 && given->adapter == NULL) {
        return core_err_set(-EINVAL,
                            "the weights of %s are quantised (%s), and such weights cannot be "
                            "trained: train adapters (--lora R), or give the model that they were "
                            "made from, in 16 or 32 bits",
                            given->model, name);
    }
    setup->options.base = base;
    return 0;
}

static int check_trained(const struct setup *setup)
{
    const struct model *model = setup->model;
    for (unsigned b = 0; b < model->block_count; b++) {
        const struct model_block *block = &model->blocks[b];
        for (unsigned i = 0; i < block->param_count; i++) {
            const struct model_param *param = &block->params[i];
            for (unsigned k = 0; param->trained && k < param->part_count; k++) {
                if (param->parts[k].quant != KERN_QUANT_NONE) {
                    return core_err_set(
                        -EINVAL,
                        "modules_to_save (--modules-to-save) matches %s, which is quantised in %s "
                        "and cannot be trained",
                        param->parts[k].name, setup->given.model);
                }
            }
        }
    }
    return 0;
}

int setup_open_model(struct setup *setup, bool weights)
{
    const struct tide_engine_options *given = &setup->given;
    struct model_config config;
    if (given->model == NULL) {
        return core_err_set(-EINVAL, "no model folder was given");
    }
    int rc = model_config_load(given->model, &config);
    if (rc != 0) {
        return rc;
    }
    if (config.dropouts[0] != '\0') {
        core_log(CORE_LOG_WARN, "%s/config.json: dropout is not applied (%s)", given->model,
                 config.dropouts);
    }
    rc = take_quantised(setup, &config);
    if (rc == 0) {
        rc = create_model(setup, &config);
    }
    if (rc == 0) {
        rc = check_trained(setup);
    }
    if (rc != 0) {
        return rc;
    }
    setup->options.lora = setup->model->lora;
    setup->options.config_hash = model_config_hash(&config);
    if (given->length > config.length_max) {
        return core_err_set(-EINVAL,
                            "rows of %" PRIu32 " tokens are longer than the %" PRId64
                            " positions that %s has",
                            given->length, config.length_max, given->model);
    }
    if (setup->model->trained_parameters == 0) {
        return core_err_set(-EINVAL, "every parameter of %s is frozen: there is nothing to train",
                            given->model);
    }
    rc = check_base(setup);
    if (rc != 0 || !weights) {
        return rc;
    }
    rc = model_files_open(given->model, &setup->files);
    if (rc != 0) {
        return rc;
    }
    model_stored_set_base(setup->files, setup->model, setup->options.base, setup->options.type);
    if (setup->peft != NULL) {
        model_files_add_adapter(setup->files, setup->peft);
    }
    return model_files_check(setup->files, setup->model);
}
