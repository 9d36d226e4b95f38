/* checkpoint.c: describes a run in a manifest, and compares manifests with runs. */
#include "offload/run/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/json/write.h"

/* ---- describing a run ---- */

static void add(struct store_manifest *manifest, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add(struct store_manifest *manifest, const char *name, const char *format, ...)
{
    struct store_parameter *to = &manifest->parameters[manifest->parameter_count++];
    va_list arguments;
    va_start(arguments, format);
    snprintf(to->name, sizeof to->name, "%s", name);
    vsnprintf(to->value, sizeof to->value, format, arguments);
    va_end(arguments);
}

static const char *precision_name(enum block_weights weights)
{
    static const char *const names[] = {[BLOCK_WEIGHTS_BF16] = "bf16",
                                        [BLOCK_WEIGHTS_FP16] = "fp16",
                                        [BLOCK_WEIGHTS_FP32] = "fp32"};
    return names[weights];
}

static enum block_weights weights_of(const struct run_options *options, const struct block *block)
{
    return block->weights != BLOCK_WEIGHTS_OF_RUN ? block->weights
                                                  : run_options_weights(options->type);
}

/* Adds the types of weights, as in "bf16" or "bf16+fp32". */
static void add_precision(struct store_manifest *manifest, const struct run_options *options,
                          const struct blocks *blocks)
{
    bool has[BLOCK_WEIGHTS_FP32 + 1] = {false};
    char text[32] = "";
    for (uint32_t b = 0; b < blocks->count; b++) {
        has[weights_of(options, &blocks->list[b])] = true;
    }
    for (int w = BLOCK_WEIGHTS_BF16; w <= BLOCK_WEIGHTS_FP32; w++) {
        const size_t chars = strlen(text);
        if (has[w]) {
            snprintf(text + chars, sizeof text - chars, "%s%s", chars > 0 ? "+" : "",
                     precision_name((enum block_weights)w));
        }
    }
    add(manifest, "precision", "%s", text);
}

static const char *rule_name(enum core_update_rule rule)
{
    static const char *const names[] = {[CORE_UPDATE_ADAMW] = "adamw",
                                        [CORE_UPDATE_ADAM] = "adam",
                                        [CORE_UPDATE_LION] = "lion",
                                        [CORE_UPDATE_ADAGRAD] = "adagrad",
                                        [CORE_UPDATE_SGD] = "sgd"};
    return names[rule];
}

static const char *moments_name(enum core_update_type moments)
{
    return moments == CORE_UPDATE_F32 ? "fp32" : moments == CORE_UPDATE_BF16 ? "bf16" : "8bit";
}

/* The first parameters describe the states; a run with other values cannot resume. */
enum { FORMAT_PARAMETERS = 3, VALUE_CHARS = STORE_PARAMETER_BYTES - 1 };

static const char CONFIG[] = "config";
static const char THREADS[] = "threads";
static const char PAIR_LENGTH[] = "pair_length";

static void add_parameters(struct store_manifest *manifest, const struct run_options *options,
                           const struct blocks *blocks)
{
    char text[32];
    add_precision(manifest, options, blocks);
    add(manifest, "optimizer", "%s", rule_name(options->rule));
    add(manifest, "moments", "%s", moments_name(options->moments));
    add(manifest, "seed", "%" PRIu64, options->seed);
    add(manifest, THREADS, "%u", options->threads);
    add(manifest, RUN_CHECKPOINT_RANKS, "%" PRIu32, options->world > 0 ? options->world : 1);
    add(manifest, "batch", "%" PRId64, options->pairs > 0 ? options->pairs : options->rows);
    add(manifest, "length", "%" PRId64, options->pairs > 0 ? options->row_length : options->length);
    add(manifest, "accum", "%" PRIu32, options->micro_batches);
    add(manifest, "tile_bytes", "%" PRIu64, options->tile_bytes);
    add(manifest, "gradients_fp32", "%d", options->gradients_fp32);
    add(manifest, "beta1", "%s", core_json_real_print(options->group.beta1, 17, text));
    add(manifest, "beta2", "%s", core_json_real_print(options->group.beta2, 17, text));
    add(manifest, "eps", "%s", core_json_real_print(options->group.eps, 17, text));
    add(manifest, "decay", "%s", core_json_real_print(options->group.decay, 17, text));
    add(manifest, "decay_all", "%d", options->decay_all);
    add(manifest, "bias_correction", "%d", options->group.bias_correction);
    add(manifest, "clip", "%s", core_json_real_print(options->clip, 17, text));
    add(manifest, "check_overflow", "%d", options->may_skip);
    add(manifest, "base", "%s", model_storage_name(options->base));
    add(manifest, "gather", "%s", options->packs ? "int8" : "exact");
    add(manifest, "reduce", "%s", options->codes ? "int4" : options->fast ? "fast" : "exact");
    add(manifest, "loss", "%s", options->pairs > 0 ? "dpo" : "tokens");
    if (options->pairs > 0) {
        add(manifest, "beta", "%s", core_json_real_print(options->beta, 17, text));
        add(manifest, PAIR_LENGTH, "%" PRId64, options->length);
    }
    if (options->config_hash != 0) {
        add(manifest, CONFIG, "%016" PRIx64, options->config_hash);
    }
    if (options->lora.rank > 0) {
        add(manifest, STORE_LORA_ALPHA, "%s", core_json_real_print(options->lora.alpha, 17, text));
        add(manifest, STORE_LORA_RSLORA, "%d", options->lora.rslora);
        add(manifest, STORE_LORA_DROPOUT, "%s",
            core_json_real_print(options->lora.dropout, 17, text));
    }
}

/* library, driver and name of the GPU */
static const char PRODUCTS[] = "products";

void run_checkpoint_describe(const struct run_options *options, const struct blocks *blocks,
                             const struct run_position *position, struct store_manifest *out)
{
    struct store_manifest manifest = {
        .run = position->run,
        .step = position->steps,
        .updates = position->updates,
        .scale = {.value = position->scale.value,
                  .steps = position->scale.steps,
                  .last_overflow = position->scale.last_overflow,
                  .hysteresis_left = position->scale.hysteresis_left},
        .format = run_options_format(options),
        .blocks = blocks,
        .base = position->base,
    };
    snprintf(manifest.weight_dtype, sizeof manifest.weight_dtype, "%s",
             store_block_dtype(run_options_weights(options->type)));
    add_parameters(&manifest, options, blocks);
    if (position->products != NULL) {
        add(&manifest, PRODUCTS, "%s", position->products);
    }
    *out = manifest;
}

/* ---- comparing a checkpoint with a run ---- */

/* why a checkpoint's blocks differ from a run's */
struct block_causes {
    const char *count;
    const char *shape;
    const char *hash;
};

static struct block_causes causes_of(const char *family)
{
    return strcmp(family, BLOCKS_APPLICATION) == 0
               ? (struct block_causes){.count = "the application has other parameters",
                                       .shape = "the application has other parameters, or "
                                                "their order differs",
                                       .hash = "parameters of other names, elements or precisions"}
               : (struct block_causes){.count = "it has other layers, or other tensors are frozen "
                                                "or adapted (--freeze, --lora, --modules-to-save)",
                                       .shape = "it has other shapes, or other adapters (--lora, "
                                                "--lora-targets, --lora-dora)",
                                       .hash = "tensors of other names or shapes, other frozen "
                                               "tensors, or adapters of another scale "
                                               "(--lora-alpha)"};
}

static int check_family(const char *found, const char *mine)
{
    if (strcmp(found, mine) == 0) {
        return 0;
    }
    if (strcmp(mine, BLOCKS_APPLICATION) == 0) {
        return core_err_set(
            -EINVAL, "the checkpoint is of a %s model, not of an application's optimizer", found);
    }
    if (strcmp(found, BLOCKS_APPLICATION) == 0) {
        return core_err_set(-EINVAL,
                            "the checkpoint is of an application's optimizer, not of a model");
    }
    return core_err_set(-EINVAL, "the checkpoint is of a %s model; this model is a %s", found,
                        mine);
}

static int check_blocks(const struct blocks *found, const struct blocks *mine)
{
    const struct block_causes causes = causes_of(mine->family);
    int rc = check_family(found->family, mine->family);
    if (rc != 0) {
        return rc;
    }
    if (found->count != mine->count) {
        return core_err_set(-EINVAL,
                            "the checkpoint has %" PRIu32 " blocks; this run has %" PRIu32 ": %s",
                            found->count, mine->count, causes.count);
    }
    for (uint32_t b = 0; b < mine->count; b++) {
        const struct block *theirs = &found->list[b];
        const struct block *ours = &mine->list[b];
        if (theirs->elements != ours->elements || strcmp(theirs->name, ours->name) != 0) {
            return core_err_set(
                -EINVAL,
                "block %" PRIu32 " is \"%s\" of %" PRIu64
                " elements in the checkpoint and \"%s\" of %" PRIu64 " in this run: %s",
                b, theirs->name, theirs->elements, ours->name, ours->elements, causes.shape);
        }
        if (theirs->trained != ours->trained) {
            return core_err_set(-EINVAL, "%s is %s in the checkpoint and %s now", ours->name,
                                theirs->trained ? "trained" : "frozen",
                                ours->trained ? "trained" : "frozen");
        }
        if (theirs->weights != ours->weights) {
            return core_err_set(-EINVAL, "the weights of %s have another type in the checkpoint",
                                ours->name);
        }
    }
    return found->hash == mine->hash ? 0
                                     : core_err_set(-EINVAL, "the checkpoint has %s", causes.hash);
}

/* Compares the sizes, too, because the manifest's parameters may contradict them. */
static int check_format(const struct store_manifest *found, const struct store_manifest *mine)
{
    const struct plan_format *a = &found->format;
    const struct plan_format *b = &mine->format;
    const bool same = a->weight_bytes == b->weight_bytes && a->master_bytes == b->master_bytes &&
                      a->m_bytes == b->m_bytes && a->v_bytes == b->v_bytes &&
                      a->q8_block == b->q8_block &&
                      strcmp(found->weight_dtype, mine->weight_dtype) == 0;
    return same ? 0
                : core_err_set(-EINVAL,
                               "the checkpoint has weights of %s (%u bytes), masters of %u bytes "
                               "and moments of %u and %u; this run has weights of %s (%u), "
                               "masters of %u and moments of %u and %u",
                               found->weight_dtype, a->weight_bytes, a->master_bytes, a->m_bytes,
                               a->v_bytes, mine->weight_dtype, b->weight_bytes, b->master_bytes,
                               b->m_bytes, b->v_bytes);
}

static int check_parameters(const struct store_manifest *found, const struct store_manifest *mine)
{
    for (uint32_t i = 0; i < mine->parameter_count; i++) {
        const struct store_parameter *ours = &mine->parameters[i];
        const char *theirs = store_manifest_parameter(found, ours->name);
        if (theirs == NULL || strcmp(theirs, ours->value) == 0) {
            continue;
        }
        if (i < FORMAT_PARAMETERS) {
            return core_err_set(-EINVAL, "%s is %s in the checkpoint and %s now", ours->name,
                                theirs, ours->value);
        }
        if (strcmp(ours->name, CONFIG) == 0) {
            core_log(CORE_LOG_WARN,
                     "config.json of the model differs from that of the checkpoint in what is "
                     "computed (windows, RoPE, scales, activation or epsilon): results will not be "
                     "identical to those of an uninterrupted run");
            continue;
        }
        core_log(CORE_LOG_WARN,
                 "%s was %s before this run was resumed and is %s now: results will not be "
                 "identical to those of an uninterrupted run",
                 ours->name, theirs, ours->value);
    }
    return 0;
}

static int compare(const struct store_manifest *found, const struct store_manifest *mine)
{
    int rc = check_blocks(found->blocks, mine->blocks);
    if (rc != 0) {
        return rc;
    }
    rc = check_parameters(found, mine);
    return rc != 0 ? rc : check_format(found, mine);
}

int run_checkpoint_check(const struct store_manifest *manifest, const struct blocks *blocks,
                         const struct run_options *options)
{
    const struct run_position nowhere = {.run = 0};
    struct store_manifest mine;
    run_checkpoint_describe(options, blocks, &nowhere, &mine);
    return compare(manifest, &mine);
}

void run_checkpoint_compare_products(const struct store_manifest *manifest, const char *products)
{
    const char *theirs = store_manifest_parameter(manifest, PRODUCTS);
    if (theirs == NULL ? products == NULL
                       : products != NULL && strncmp(theirs, products, VALUE_CHARS) == 0) {
        return;
    }
    core_log(CORE_LOG_WARN,
             "matrix products were computed by %s before this run was resumed and are computed by "
             "%s now: results may not be identical to those of an uninterrupted run",
             theirs != NULL ? theirs : "the CPU or an earlier version of tide",
             products != NULL ? products : "the CPU");
}

/* ---- directories of checkpoints ---- */

enum { PATH_BYTES = 4096 };

/* Returns a manifest's parameter as a number; 0: it is missing. */
static uint64_t number_of(const struct store_manifest *manifest, const char *name)
{
    const char *value = store_manifest_parameter(manifest, name);
    return value != NULL ? strtoull(value, NULL, 10) : 0;
}

struct run_checkpoint_shape run_checkpoint_shape(const char *directory)
{
    enum { THREADS_MAX = 4096 };
    struct run_checkpoint_shape shape = {.threads = 0};
    uint64_t *steps = NULL;
    size_t count = 0;
    bool found = false;
    if (store_shelf_list(directory, &steps, &count) != 0) {
        return shape;
    }
    for (size_t i = count; !found && i-- > 0;) {
        struct store_manifest manifest = {.step = 0};
        char path[PATH_BYTES];
        store_shelf_path(directory, steps[i], path, sizeof path);
        found = store_checkpoint_peek(path, &manifest) == 0;
        if (found) {
            const uint64_t threads = number_of(&manifest, THREADS);
            shape.threads = threads <= THREADS_MAX ? (unsigned)threads : 0;
            shape.ranks = number_of(&manifest, RUN_CHECKPOINT_RANKS);
            shape.pair_length = number_of(&manifest, PAIR_LENGTH);
        }
        store_manifest_fini(&manifest);
    }
    free(steps);
    return shape;
}

int run_checkpoint_find_foreign(const char *directory, uint64_t run, uint64_t *step)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    int rc = store_shelf_list(directory, &steps, &count);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct store_manifest manifest = {.step = 0};
        char path[PATH_BYTES];
        store_shelf_path(directory, steps[i], path, sizeof path);
        if (store_checkpoint_peek(path, &manifest) == 0 && manifest.run != run) {
            *step = steps[i];
            rc = 1;
        }
        store_manifest_fini(&manifest);
    }
    free(steps);
    return rc;
}

/* ---- streams ---- */

struct store_arrays run_checkpoint_streams(const struct adam_arrays *arrays)
{
    const bool halves = arrays->w16 != NULL;
    char *master = arrays->lo16 != NULL ? (char *)arrays->lo16 : (char *)arrays->w32;
    return (struct store_arrays){
        .at = {[STORE_STREAM_WEIGHTS] = halves ? (char *)arrays->w16 : (char *)arrays->w32,
               [STORE_STREAM_MASTER] = halves ? master : NULL,
               [STORE_STREAM_M] = arrays->m,
               [STORE_STREAM_V] = arrays->v,
               [STORE_STREAM_M_SCALES] = (char *)arrays->m_scale,
               [STORE_STREAM_V_SCALES] = (char *)arrays->v_scale}};
}
