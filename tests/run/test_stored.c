/* test_stored.c: frozen layers stored in fewer bits give the losses of their expanded weights,
 * and bits that do not depend on the placement. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "kernels/ref/ref.h"
#include "offload/model/adapter.h"
#include "offload/model/config_read.h"
#include "offload/plan/layout.h"
#include "offload/run/engine_internal.h"
#include "offload/run/rank_internal.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

enum { STEPS = 3 };

static const char *const layers[] = {"model.layers.*"};
static const char *const parts[] = {"*mlp*", "*q_proj*", "*k_proj*", "*v_proj*"};
static const char *const gpt2_layers[] = {"*h.*"};

struct way {
    const char *name;
    enum plan_where weights;
    enum plan_acts acts;
    enum plan_order order;
    uint32_t slots;
    const char *io;
};

static const struct way ways[] = {
    {"in DEVICE", PLAN_WHERE_DEVICE, PLAN_ACTS_KEEP, PLAN_ORDER_AUTO, 0, "mem"},
    {"in HOST", PLAN_WHERE_HOST, PLAN_ACTS_RECOMPUTE, PLAN_ORDER_LAYER, 0, "mem"},
    {"in STORE, two slots", PLAN_WHERE_STORE, PLAN_ACTS_STORE, PLAN_ORDER_LAYER, 2, "threads"},
    {"in STORE, micro-batch by micro-batch", PLAN_WHERE_STORE, PLAN_ACTS_RECOMPUTE,
     PLAN_ORDER_MICRO, 4, "mem"},
};

static struct run_options options_of(const struct way *way, enum model_storage base)
{
    struct run_options options = case_options();
    options.base = base;
    options.micro_batches = 2;
    options.wishes.weights = way->weights;
    options.wishes.acts = way->acts;
    options.wishes.order = way->order;
    options.wishes.weight_slots = way->slots;
    case_store(&options, way->io);
    return options;
}

static void make(struct case_model *made, const char *family, const char *const *patterns,
                 size_t count)
{
    case_model_make(made, family);
    case_model_freeze_base(made, patterns, count);
}

/* ---- the expanded weights, by the reference ---- */

/* Overwrites a tensor of the model's file with the expansion of its stored form. */
static void expand_tensor(const struct case_model *made, int file, const struct model_param *param,
                          const struct model_part *part, enum kern_quant quant)
{
    const struct model_safetensors *shard = NULL;
    const struct model_tensor *tensor = model_files_part(made->files, part, &shard);
    const int64_t count = part->rows * param->cols;
    const struct kern_quant_layout layout = kern_quant_layout_of(quant, KERN_BF16, part->rows,
                                                                 param->cols);
    uint16_t *raw = malloc((size_t)count * sizeof *raw);
    uint16_t *turned = malloc((size_t)count * sizeof *turned);
    float *wide = malloc((size_t)count * sizeof *wide);
    float *scales = malloc((size_t)(layout.scale_count + 1) * sizeof *scales);
    uint8_t *stored = calloc(1, layout.bytes);
    check_int(model_safetensors_read(shard, tensor, 0, raw, tensor->bytes), ==, 0);
    for (int64_t i = 0; i < count; i++) { /* to the order in memory */
        const int64_t at = i % param->cols * part->rows + i / param->cols;
        turned[i] = raw[param->transposed ? at : i];
    }
    model_convert(wide, MODEL_F32, turned, MODEL_BF16, (size_t)count);
    check_true(kern_quant_encode(quant, param->cols, wide, count, stored, scales));
    kern_quant_encode_scales(quant, &layout, scales, stored + layout.scales);
    struct kern_expand_arguments y = {.type = KERN_BF16,
                                      .quant = quant,
                                      .rows = part->rows,
                                      .cols = param->cols,
                                      .count = count,
                                      .y = turned};
    kern_quant_point(&y, stored);
    kern_ref_expand(&y);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i % param->cols * part->rows + i / param->cols;
        raw[param->transposed ? at : i] = turned[i];
    }
    check_int(pwrite(file, raw, tensor->bytes, (off_t)tensor->offset_bytes), ==, tensor->bytes);
    free(stored);
    free(scales);
    free(wide);
    free(turned);
    free(raw);
}

static void expand_files(const struct case_model *made, enum kern_quant quant)
{
    char path[600];
    snprintf(path, sizeof path, "%s/model.safetensors", made->folder);
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    check_int(file, >=, 0);
    for (unsigned b = 0; b < made->model->block_count; b++) {
        const struct model_block *block = &made->model->blocks[b];
        for (unsigned i = 0; i < block->param_count; i++) {
            const struct model_param *param = &block->params[i];
            const bool stored = model_stored_is_possible(made->model, block) && !param->vector;
            for (unsigned k = 0; stored && k < param->part_count; k++) {
                expand_tensor(made, file, param, &param->parts[k], quant);
            }
        }
    }
    close(file);
}

/* ---- runs ---- */

/* Checks that the ways have the same bits, and the losses of the expanded weights. */
static void run_made(struct case_model *made, const char *family, enum model_storage base,
                     enum kern_quant quant)
{
    struct case_outcome first = {.steps = 0};
    struct case_outcome plain = {.steps = 0};
    struct run_options options = options_of(&ways[0], base);
    char name[160];
    model_stored_set_base(made->files, made->model, base, KERN_BF16);
    for (size_t w = TEST_COUNT(0, 2); w < sizeof ways / sizeof ways[0]; w += TEST_COUNT(1, 2)) {
        struct case_outcome outcome = {.steps = 0};
        options = options_of(&ways[w], base);
        snprintf(name, sizeof name, "%s, %s, %s", family, model_storage_name(base), ways[w].name);
        case_run_engine(made, &options, STEPS, &outcome);
        if (first.steps > 0) {
            case_check_equal(&first, &outcome, name);
        }
        first = outcome;
    }
    expand_files(made, quant);
    model_stored_set_base(made->files, made->model, MODEL_STORAGE_PLAIN, KERN_BF16);
    options.base = MODEL_STORAGE_PLAIN;
    case_run_plain(made, &options, STEPS, &plain);
    case_check_losses(&plain, &first, family);
}

static void run(const char *family, const char *const *patterns, size_t count,
                enum model_storage base, enum kern_quant quant)
{
    struct case_model made;
    make(&made, family, patterns, count);
    run_made(&made, family, base, quant);
    case_model_free(&made);
}

static void nf4_has_the_bits_of_expanded_weights(void)
{
    run("llama", layers, 1, MODEL_STORAGE_NF4, KERN_QUANT_NF4);
}

static void int8_has_the_bits_of_expanded_weights(void)
{
    run("llama tied", layers, 1, MODEL_STORAGE_INT8, KERN_QUANT_INT8);
}

static void parts_of_layers_too(void)
{
    run("llama", parts, 4, MODEL_STORAGE_NF4, KERN_QUANT_NF4);
}

/* Magnitudes begin with the norms of the expanded weights. Dropout adds a second product with
 * these weights. */
static void adapters_too(void)
{
    struct model_lora_options lora = {.rank = 4, .alpha = 8, .dora = true, .seed = 3};
    struct case_model made;
    case_model_make(&made, "llama");
    case_model_adapt(&made, &lora);
    run_made(&made, "adapters", MODEL_STORAGE_NF4, KERN_QUANT_NF4);
    case_model_free(&made);
    lora.dropout = 0.2;
    case_model_make(&made, "llama");
    case_model_adapt(&made, &lora);
    run_made(&made, "adapters, dropout", MODEL_STORAGE_INT8, KERN_QUANT_INT8);
    case_model_free(&made);
}

/* Tensors that are transposed in the files are stored in fewer bits, too. */
static void transposed_tensors_too(void)
{
    run("gpt2", gpt2_layers, 1, MODEL_STORAGE_NF4, KERN_QUANT_NF4);
}

/* Weights that stay bf16 have the bits of a plain fp32 run. */
static void fp32_runs_keep_less(void)
{
    struct case_model made;
    struct case_outcome outcomes[3] = {{.steps = 0}, {.steps = 0}, {.steps = 0}};
    static const enum model_storage bases[] = {MODEL_STORAGE_BF16, MODEL_STORAGE_PLAIN,
                                               MODEL_STORAGE_NF4};
    make(&made, "llama", layers, 1);
    for (int i = 0; i < 3; i++) {
        struct run_options options = options_of(&ways[3], bases[i]);
        options.type = KERN_F32;
        case_run_engine(&made, &options, STEPS, &outcomes[i]);
    }
    case_check_equal(&outcomes[0], &outcomes[1], "bf16 in an fp32 run");
    check_true(outcomes[0].loss[0] != outcomes[2].loss[0]);
    case_model_free(&made);
}

/* Two ranks have the same bits, whether a rank has all stored bytes or its part. */
static void ranks_have_the_same_bits(void)
{
    struct case_model made;
    struct case_outcome first = {.steps = 0};
    make(&made, "llama", layers, 1);
    for (uint32_t stage = 0; stage < 4; stage += 3) {
        for (size_t w = 0; w < 3; w++) {
            struct case_outcome outcome = {.steps = 0};
            struct run_options options = options_of(&ways[w], MODEL_STORAGE_NF4);
            options.world = 2;
            options.stage = stage;
            options.wishes.acts = PLAN_ACTS_RECOMPUTE;
            case_run_engine(&made, &options, STEPS, &outcome);
            if (first.steps > 0) {
                outcome.received_bytes = first.received_bytes;
                case_check_equal(&first, &outcome, ways[w].name);
            }
            first = outcome;
        }
    }
    case_model_free(&made);
}

/* ---- sections ---- */

static const char *const all_but_embedding[] = {"model.layers.*", "lm_head.weight",
                                                "model.norm.weight"};
static const char *const mlp_and_head[] = {"*.mlp.*", "lm_head.weight", "model.norm.weight"};

static const struct sectioned {
    const char *name;
    const char *family;
    const char *const *patterns;
    size_t count;
    enum model_storage base;
    uint64_t tile_bytes;
    size_t way;
    uint32_t world;
    uint32_t micro_batches;
} sectioned[] = {
    {"whole tensors", "wide", all_but_embedding, 3, MODEL_STORAGE_NF4, 0, 2, 1, 2},
    {"tiles of parts of layers", "wide", mlp_and_head, 3, MODEL_STORAGE_INT8, 64 << 10, 3, 1, 2},
    {"tiles between blocks of nf4", "gpt2 words", gpt2_layers, 1, MODEL_STORAGE_NF4, 5300, 2, 1, 2},
    {"in HOST", "wide", all_but_embedding, 3, MODEL_STORAGE_INT8, 0, 1, 1, 2},
    {"in DEVICE", "wide", all_but_embedding, 3, MODEL_STORAGE_NF4, 64 << 10, 0, 1, 2},
    {"groups", "wide", all_but_embedding, 3, MODEL_STORAGE_NF4, 0, 2, 1, RUN_OPTIONS_GROUPS + 3},
    {"shards in STORE", "wide", all_but_embedding, 3, MODEL_STORAGE_NF4, 64 << 10, 2, 2, 2},
    {"shards in HOST", "wide", mlp_and_head, 3, MODEL_STORAGE_NF4, 0, 1, 3, 1},
    {"bf16 in fp32", "wide", all_but_embedding, 3, MODEL_STORAGE_BF16, 0, 2, 1, 2},
};

/* Checks that no slot is for whole expanded layers, and that expanded sections take less than
 * 3/4 of a layer. */
static void check_sections(const struct case_model *made, const struct run_prepared *prepared)
{
    const struct plan_layout *layout = plan_layout_of(prepared->plan);
    const struct plan_input *input = &prepared->input;
    uint64_t expanded = 0;
    for (unsigned block = 0; block < made->model->compute_count; block++) {
        const uint32_t source = plan_layout_sectioned(input, layout, block);
        if (source != PLAN_NONE && input->blocks[source].stored_elements > 0) {
            const struct plan_block_shape *shape = &input->blocks[source];
            const uint64_t width = shape->format.weight_bytes;
            expanded = shape->elements * width > expanded ? shape->elements * width : expanded;
            check_uint(layout->weights.counts[layout->blocks[source].size], ==, 0);
        }
    }
    check_uint(expanded, >, 0);
    check_uint(layout->buffers[layout->expanded].bytes, <, expanded * 3 / 4);
}

static void run_sections(const struct sectioned *of)
{
    struct case_model made;
    struct case_outcome whole = {.steps = 0};
    struct case_outcome sections = {.steps = 0};
    struct run_options options = options_of(&ways[of->way], of->base);
    make(&made, of->family, of->patterns, of->count);
    options.type = of->base == MODEL_STORAGE_BF16 ? KERN_F32 : KERN_BF16;
    options.tile_bytes = of->tile_bytes;
    options.world = of->world;
    options.stage = of->world > 1 ? 3 : 0;
    options.micro_batches = of->micro_batches;
    options.wishes.acts = PLAN_ACTS_RECOMPUTE;
    case_run_engine(&made, &options, STEPS, &whole);
    case_squeeze(&made, &options, 1, check_sections);
    case_run_engine(&made, &options, STEPS, &sections);
    sections.received_bytes = whole.received_bytes;
    case_check_equal(&whole, &sections, of->name);
    case_model_free(&made);
}

/* Training on pairs by sections has the bits of whole blocks. */
static void pairs_by_sections(void)
{
    const struct model_lora_options lora = {.rank = 4, .alpha = 8, .seed = 3};
    static const struct case_part part = {.end = STEPS, .evaluated = 1};
    struct case_model made;
    struct case_outcome whole = {.steps = 0};
    struct case_outcome sections = {.steps = 0};
    struct run_options options = options_of(&ways[2], MODEL_STORAGE_NF4);
    case_model_make(&made, "wide");
    case_model_adapt(&made, &lora);
    made.rows = CASE_PAIRS;
    options.tile_bytes = 64 << 10;
    options.pairs = CASE_ROWS / 2;
    options.rows = 2 * options.pairs;
    options.row_length = CASE_LENGTH;
    options.length = 2 * CASE_LENGTH;
    options.beta = 0.1;
    options.micro_batches = 1;
    case_run_part(&made, &options, &part, &whole, "whole blocks");
    case_squeeze(&made, &options, 1, check_sections);
    struct run_prepared *prepared = NULL;
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    check_uint(plan_layout_sectioned(&prepared->input, plan_layout_of(prepared->plan),
                                     made.model->compute_count - 1),
               !=, PLAN_NONE);
    run_prepared_destroy(prepared);
    case_run_part(&made, &options, &part, &sections, "sections");
    case_check_equal(&whole, &sections, "pairs");
    case_model_free(&made);
}

static void sections_have_the_same_bits(void)
{
    for (size_t i = TEST_COUNT(0, 1); i < sizeof sectioned / sizeof sectioned[0];
         i += TEST_COUNT(1, 3)) {
        run_sections(&sectioned[i]);
    }
}

/* ---- plans ---- */

/* Drive and slots hold the stored form: 0.516 bytes per weight. */
static void memory_is_that_of_stored_bytes(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    const struct run_options options = options_of(&ways[2], MODEL_STORAGE_NF4);
    make(&made, "wide", layers, 1);
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    const struct plan_layout *layout = plan_layout_of(prepared->plan);
    const uint64_t elements = made.model->blocks[1].elements;
    const uint64_t stored = layout->buffers[layout->blocks[1].weights_store].bytes;
    check_uint(layout->buffers[layout->stored.buffers[PLAN_LAYER][0]].bytes, <,
               elements * 53 / 100);
    check_uint(stored, <, elements * 53 / 100);
    check_uint(stored, >, elements / 2);
    run_prepared_destroy(prepared);
    case_model_free(&made);
}

/* Returns whether a layer's sections expand tensors from the formats in which the layer stores
 * them. */
static bool fits_stored(const struct run_shapes *shapes, uint32_t block)
{
    const struct model_sections *sections = shapes->sections[block];
    const struct model_stored *stored = shapes->stored[block];
    bool fits = true;
    for (size_t i = 0; i < sections->first[MODEL_PASS_COUNT]; i++) {
        for (unsigned k = 0; k < sections->list[i].expansion_count; k++) {
            const struct model_expansion *made = &sections->list[i].expansions[k];
            bool found = false;
            for (unsigned p = 0; p < stored->count; p++) {
                found = found || (made->stored.codes.begin == stored->parts[p].offset_bytes &&
                                  made->part.quant == stored->parts[p].quant);
            }
            fits = fits && found;
        }
    }
    return fits;
}

/* Layers with the same program share sections, unless their tensors are quantised differently. */
static void layers_that_are_stored_otherwise_have_other_sections(void)
{
    struct case_model made;
    struct run_shapes *shapes = NULL;
    const struct run_options options = options_of(&ways[2], MODEL_STORAGE_NF4);
    make(&made, "wide", all_but_embedding, 3);
    check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
    check_true(shapes->sections[1] == shapes->sections[2]);
    check_true(fits_stored(shapes, 1) && fits_stored(shapes, 2));
    run_shapes_destroy(shapes);
    made.model->config.quant = KERN_QUANT_NF4;
    for (unsigned b = 1; b < 3; b++) {
        struct model_block *block = &made.model->blocks[b];
        for (unsigned i = 0; i < block->param_count; i++) {
            block->params[i].parts[0].quant = block->params[i].vector || (b == 2 && i % 2 == 0)
                                                  ? KERN_QUANT_NONE
                                                  : KERN_QUANT_NF4;
        }
    }
    check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
    check_true(shapes->sections[1] != shapes->sections[2]);
    check_true(fits_stored(shapes, 1) && fits_stored(shapes, 2));
    run_shapes_destroy(shapes);
    case_model_free(&made);
}

/* Sections have about the size of the largest matrix. Checksums of pages count as memory. */
static void sections_have_the_largest_matrix(void)
{
    enum { SPARE_BYTES = 32 << 10 };
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct run_options options = options_of(&ways[2], MODEL_STORAGE_NF4);
    make(&made, "wide", all_but_embedding, 3);
    case_squeeze(&made, &options, 1, check_sections);
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    const struct plan_layout *layout = plan_layout_of(prepared->plan);
    const uint64_t matrix = UINT64_C(2) * 1024 * 512; /* gate and up */
    check_uint(layout->buffers[layout->expanded].bytes, >=, 2 * matrix);
    check_uint(layout->buffers[layout->expanded].bytes, <=, 2 * matrix + SPARE_BYTES);
    check_uint(prepared->input.blocks[1].sections->bytes, >=, matrix * 51 / 100);
    check_uint(prepared->input.blocks[1].sections->bytes, <=, matrix * 52 / 100 + SPARE_BYTES);
    check_uint(layout->stored.counts[PLAN_LAYER], ==, 0);
    uint64_t checksums = 0;
    for (unsigned b = 0; b < made.model->block_count; b++) {
        if (layout->blocks[b].by_pages) {
            const uint64_t pages = layout->buffers[layout->blocks[b].weights_store].bytes / 4096;
            checksums += pages * (prepared->input.blocks[b].stored_elements > 0 ? 24 : 16);
        }
    }
    check_uint(checksums, >, 0);
    check_uint(run_prepared_bytes(prepared, PLAN_HOST), ==,
               plan_tier_bytes(prepared->plan, PLAN_HOST) + options.budgets.host_taken_bytes +
                   checksums);
    run_prepared_destroy(prepared);
    case_model_free(&made);
}

/* ---- checkpoints ---- */

/* A run resumes on the same base, stored or whole, but not on another one. */
static void resumes_on_the_same_base(void)
{
    struct case_model made;
    struct case_outcome straight = {.steps = 0};
    struct case_outcome resumed = {.steps = 0};
    struct run_options options = options_of(&ways[2], MODEL_STORAGE_NF4);
    struct store_shelf *shelf = case_shelf_open();
    char folder[700];
    make(&made, "llama", layers, 1);
    options.wishes.saves = true;
    const struct run_save_options save = {.shelf = shelf, .keep = 2};
    const struct case_part all = {.end = 4, .evaluated = 2};
    const struct case_part first = {.end = 2, .save = &save, .save_after = 2, .evaluated = 2};
    case_run_part(&made, &options, &all, &straight, "a run");
    case_run_part(&made, &options, &first, &resumed, "its beginning");
    const struct case_part second = {
        .first = 2,
        .end = 4,
        .resume = store_shelf_path(store_shelf_directory(shelf), 2, folder, sizeof folder)};
    case_run_part(&made, &options, &second, &resumed, "its end");
    case_check_equal(&straight, &resumed, "resumed");
    options.base = MODEL_STORAGE_PLAIN;
    case_run_part(&made, &options, &second, &resumed, "its end, kept as it is");
    check_true(straight.loss[3] != resumed.loss[3]);
    options.base = MODEL_STORAGE_NF4;
    expand_files(&made, KERN_QUANT_NF4);
    check_int(case_try_part(&made, &options, &second, &resumed), ==, -EINVAL);
    check_contains(core_err_message(), "belongs to another base model");
    store_shelf_close(shelf);
    case_model_free(&made);
}

/* ---- bad input ---- */

static void odd_tensors_are_refused(void)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 64, \"hidden_size\": 33, "
        "\"intermediate_size\": 35, \"num_hidden_layers\": 1, \"num_attention_heads\": 1, "
        "\"num_key_value_heads\": 1, \"head_dim\": 10, \"max_position_embeddings\": 64, "
        "\"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}";
    const struct model_options frozen = {.frozen = layers, .frozen_count = 1};
    struct model_config config;
    struct model *model = NULL;
    struct model_stored *stored = NULL;
    char folder[600];
    char path[700];
    snprintf(folder, sizeof folder, "%s/odd", test_directory());
    snprintf(path, sizeof path, "%s/config.json", folder);
    (void)mkdir(folder, 0700);
    FILE *file = fopen(path, "w");
    check_true(file != NULL);
    fputs(text, file);
    fclose(file);
    check_int(model_config_load(folder, &config), ==, 0);
    check_int(model_create(&config, &frozen, &model), ==, 0);
    check_int(model_stored_create(model, &model->blocks[1], MODEL_STORAGE_NF4, KERN_BF16, &stored),
              ==, -EINVAL);
    check_contains(core_err_message(), "model.layers.0.mlp.gate_proj.weight has 35 x 33 elements");
    check_int(model_stored_create(model, &model->blocks[1], MODEL_STORAGE_INT8, KERN_BF16, &stored),
              ==, 0);
    model_stored_destroy(stored);
    model_destroy(model);
}

/* A weight without a code is refused, with the name of its tensor. */
static void weights_without_a_code_are_refused(void)
{
    static const uint16_t infinity = 0x7f80;
    struct case_model made;
    struct case_outcome outcome;
    const struct model_safetensors *shard = NULL;
    const struct run_options options = options_of(&ways[2], MODEL_STORAGE_NF4);
    char path[600];
    make(&made, "llama", layers, 1);
    const struct model_tensor *tensor = model_files_find(
        made.files, "model.layers.2.mlp.down_proj.weight", &shard);
    snprintf(path, sizeof path, "%s/model.safetensors", made.folder);
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    check_int(pwrite(file, &infinity, sizeof infinity, (off_t)tensor->offset_bytes + 200), ==, 2);
    close(file);
    check_int(case_try_engine(&made, &options, STEPS, &outcome), ==, -EINVAL);
    check_contains(core_err_message(), "model.layers.2.mlp.down_proj.weight has weights that are "
                                       "not finite, so that nf4 cannot store it");
    case_model_free(&made);
}

TEST_MAIN({"nf4_has_the_bits_of_expanded_weights", nf4_has_the_bits_of_expanded_weights},
          {"int8_has_the_bits_of_expanded_weights", int8_has_the_bits_of_expanded_weights},
          {"parts_of_layers_too", parts_of_layers_too}, {"adapters_too", adapters_too},
          {"transposed_tensors_too", transposed_tensors_too},
          {"fp32_runs_keep_less", fp32_runs_keep_less},
          {"ranks_have_the_same_bits", ranks_have_the_same_bits},
          {"sections_have_the_same_bits", sections_have_the_same_bits},
          {"pairs_by_sections", pairs_by_sections},
          {"layers_that_are_stored_otherwise_have_other_sections",
           layers_that_are_stored_otherwise_have_other_sections},
          {"sections_have_the_largest_matrix", sections_have_the_largest_matrix},
          {"memory_is_that_of_stored_bytes", memory_is_that_of_stored_bytes},
          {"resumes_on_the_same_base", resumes_on_the_same_base},
          {"odd_tensors_are_refused", odd_tensors_are_refused},
          {"weights_without_a_code_are_refused", weights_without_a_code_are_refused})
