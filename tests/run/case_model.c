/* case_model.c: makes small models with random weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/half.h"
#include "offload/model/config_read.h"
#include "offload/model/save.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

/* Smaller under a sanitizer: processor time is proportional to the number of elements. */
#if TEST_SLOW
#define WIDTH        "96"
#define INNER        "160"
#define INNER_NARROW "160"
#define VOCAB        "151"
#else
#define WIDTH        "128"
#define INNER        "320"
#define INNER_NARROW "256"
#define VOCAB        "601"
#endif

static const struct {
    const char *name;
    const char *config;
} configs[] = {
    {"gpt2",
     "{\"model_type\": \"gpt2\", \"vocab_size\": " VOCAB ", \"n_embd\": " WIDTH ", \"n_layer\": 2,"
     " \"n_head\": 4, \"n_positions\": 64, \"resid_pdrop\": 0, \"embd_pdrop\": 0,"
     " \"attn_pdrop\": 0}"},
    {"llama", "{\"model_type\": \"llama\", \"vocab_size\": " VOCAB ", \"hidden_size\": " WIDTH ","
              " \"intermediate_size\": " INNER ", \"num_hidden_layers\": 3,"
              " \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
              " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5,"
              " \"tie_word_embeddings\": false}"},
    {"llama tied",
     "{\"model_type\": \"llama\", \"vocab_size\": " VOCAB ", \"hidden_size\": " WIDTH ","
     " \"intermediate_size\": " INNER ", \"num_hidden_layers\": 2,"
     " \"num_attention_heads\": 4, \"num_key_value_heads\": 4,"
     " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5,"
     " \"tie_word_embeddings\": true}"},
    {"llama, whole", /* the same in every build: tests count bytes */
     "{\"model_type\": \"llama\", \"vocab_size\": 601, \"hidden_size\": 128,"
     " \"intermediate_size\": 320, \"num_hidden_layers\": 3,"
     " \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
     " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5,"
     " \"tie_word_embeddings\": false}"},
    {"llama tied, whole", /* the same in every build: seeds of test_faults depend on its size */
     "{\"model_type\": \"llama\", \"vocab_size\": 601, \"hidden_size\": 128,"
     " \"intermediate_size\": 320, \"num_hidden_layers\": 2,"
     " \"num_attention_heads\": 4, \"num_key_value_heads\": 4,"
     " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5,"
     " \"tie_word_embeddings\": true}"},
    {"qwen3", "{\"model_type\": \"qwen3\", \"vocab_size\": " VOCAB ", \"hidden_size\": " WIDTH ","
              " \"intermediate_size\": " INNER_NARROW ", \"num_hidden_layers\": 2,"
              " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 40,"
              " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-6,"
              " \"tie_word_embeddings\": false}"},
    {"qwen3 tied",
     "{\"model_type\": \"qwen3\", \"vocab_size\": " VOCAB ", \"hidden_size\": " WIDTH ","
     " \"intermediate_size\": " INNER_NARROW ", \"num_hidden_layers\": 2,"
     " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 40,"
     " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-6,"
     " \"tie_word_embeddings\": true}"},
    {"words", "{\"model_type\": \"llama\", \"vocab_size\": 4001, \"hidden_size\": 96,"
              " \"intermediate_size\": 192, \"num_hidden_layers\": 2,"
              " \"num_attention_heads\": 4, \"num_key_value_heads\": 4,"
              " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5,"
              " \"tie_word_embeddings\": false}"},
    {"words tied", "{\"model_type\": \"llama\", \"vocab_size\": 8001, \"hidden_size\": 96,"
                   " \"intermediate_size\": 192, \"num_hidden_layers\": 2,"
                   " \"num_attention_heads\": 4, \"num_key_value_heads\": 4,"
                   " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5,"
                   " \"tie_word_embeddings\": true}"},
    {"gpt2 words",
     "{\"model_type\": \"gpt2\", \"vocab_size\": 4001, \"n_embd\": 96, \"n_layer\": 2,"
     " \"n_head\": 4, \"n_positions\": 64, \"resid_pdrop\": 0, \"embd_pdrop\": 0,"
     " \"attn_pdrop\": 0, \"tie_word_embeddings\": false}"},
    {"wide", "{\"model_type\": \"llama\", \"vocab_size\": 1024, \"hidden_size\": 512,"
             " \"intermediate_size\": 1024, \"num_hidden_layers\": 2,"
             " \"num_attention_heads\": 4, \"num_key_value_heads\": 4,"
             " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5,"
             " \"tie_word_embeddings\": false}"},
    {"deep", "{\"model_type\": \"llama\", \"vocab_size\": 601, \"hidden_size\": 128,"
             " \"intermediate_size\": 320, \"num_hidden_layers\": 48,"
             " \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
             " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5,"
             " \"tie_word_embeddings\": true}"},
};

uint64_t case_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double random_unit(uint64_t *state)
{
    return (double)(case_random(state) >> 11) / (double)(UINT64_C(1) << 53) * 2 - 1;
}

/* Norms and biases are near one, matrices near zero. */
static void put_random(struct model_save *save, const struct model *model, unsigned index,
                       uint64_t *state)
{
    const struct model_block *block = &model->blocks[index];
    uint16_t *values = calloc(block->elements, sizeof *values);
    check_true(values != NULL);
    for (unsigned i = 0; i < block->param_count; i++) {
        const struct model_param *param = &block->params[i];
        const bool scale = param->rows == 1 || param->cols == 1;
        if (param->part_count == 0) {
            continue;
        }
        for (uint64_t e = 0; e < param->elements; e++) {
            const double value = (scale ? 1 : 0) + 0.08 * random_unit(state);
            values[param->offset + e] = core_f32_to_bf16((float)value);
        }
    }
    check_int(model_save_put(save, index, 0, block->elements, MODEL_BF16, values), ==, 0);
    free(values);
}

void case_model_make(struct case_model *made, const char *name)
{
    struct model_config config;
    struct model_save *save = NULL;
    char source[600];
    char file[700];
    const char *text = NULL;
    *made = (struct case_model){.model = NULL};
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        text = strcmp(configs[i].name, name) == 0 ? configs[i].config : text;
    }
    check_true(text != NULL);
    snprintf(source, sizeof source, "%s/%s source", test_directory(), name);
    snprintf(made->folder, sizeof made->folder, "%s/%s model", test_directory(), name);
    (void)mkdir(source, 0700);
    snprintf(file, sizeof file, "%s/config.json", source);
    FILE *out = fopen(file, "w");
    check_true(out != NULL);
    fputs(text, out);
    fclose(out);
    check_int(model_config_load(source, &config), ==, 0);
    check_int(model_create(&config, NULL, &made->model), ==, 0);
    const struct model_save_options options = {
        .folder = made->folder, .source = source, .type = MODEL_BF16, .replace = true};
    check_int(model_save_open(made->model, &options, &save), ==, 0);
    uint64_t state = 7;
    for (unsigned b = 0; b < made->model->block_count; b++) {
        put_random(save, made->model, b, &state);
    }
    check_int(model_save_finish(save), ==, 0);
    model_save_close(save);
    check_int(model_files_open(made->folder, &made->files), ==, 0);
    check_int(model_files_check(made->files, made->model), ==, 0);
}

static void freeze(struct case_model *made, const struct model_options *options)
{
    const struct model_config config = made->model->config;
    model_destroy(made->model);
    made->model = NULL;
    check_int(model_create(&config, options, &made->model), ==, 0);
}

void case_model_freeze(struct case_model *made, const char *const *patterns, size_t count)
{
    freeze(made, &(struct model_options){.frozen = patterns, .frozen_count = count});
}

void case_model_freeze_base(struct case_model *made, const char *const *patterns, size_t count)
{
    freeze(made,
           &(struct model_options){.frozen = patterns, .frozen_count = count, .base_apart = true});
}

void case_model_adapt(struct case_model *made, const struct model_lora_options *lora)
{
    const struct model_config config = made->model->config;
    const struct model_options options = {.lora = lora};
    model_destroy(made->model);
    made->model = NULL;
    check_int(model_create(&config, &options, &made->model), ==, 0);
}

void case_model_free(struct case_model *made)
{
    model_files_close(made->files);
    model_destroy(made->model);
    *made = (struct case_model){.model = NULL};
}
