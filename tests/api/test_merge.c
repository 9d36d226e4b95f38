/* tide_adapter_merge and tide_inspect of PEFT folders: the merged weights are those of PEFT's merge_and_unload
 * (tests/oracle/merge.py), and an adapter that is damaged or of another base writes nothing. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tide/checkpoint.h>
#include <tide/inspect.h>
#include <unistd.h>

#include "core/base/err.h"
#include "offload/model/config_read.h"
#include "offload/model/files.h"
#include "offload/model/save.h"
#include "tests/harness/test.h"

static const struct row {
    const char *name;
    bool bf16; /* else fp32 */
    uint64_t rank, adapted, saved, rslora, dora;
    double alpha;
} rows[] = {
    {"llama", false, 4, 14, 0, 1, 0, 3},  {"gpt2", false, 2, 4, 0, 0, 0, 4},
    {"qwen2", true, 3, 14, 0, 0, 0, 6},   {"qwen3", true, 2, 4, 0, 0, 1, 4},
    {"mistral", false, 2, 2, 2, 0, 0, 4},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static const char *adapter_of(const char *name, char out[600])
{
    snprintf(out, 600, "%s/model/merge/%s", test_root(), name);
    return out;
}

/* A copy of the fixture with weights of the row's type. */
static const char *base_of(const struct row *row, char out[600])
{
    struct model_config config;
    struct model *model = NULL;
    struct model_files *files = NULL;
    struct model_save *save = NULL;
    char from[600];
    snprintf(from, sizeof from, "%s/model/fixtures/%s", test_root(), row->name);
    snprintf(out, 600, "%s", test_path(row->name));
    check_int(model_config_load(from, &config), ==, 0);
    check_int(model_create(&config, NULL, &model), ==, 0);
    check_int(model_files_open(from, &files), ==, 0);
    const struct model_save_options options = {
        .folder = out, .source = from, .type = row->bf16 ? MODEL_BF16 : MODEL_F32};
    check_int(model_save_open(model, &options, &save), ==, 0);
    for (unsigned b = 0; b < model->block_count; b++) {
        const struct model_block *block = &model->blocks[b];
        float *data = malloc(block->elements * sizeof *data);
        check_true(data != NULL);
        check_int(model_files_read(files, block, 0, block->elements, MODEL_F32, data, NULL), ==, 0);
        check_int(model_save_put(save, b, 0, block->elements, MODEL_F32, data), ==, 0);
        free(data);
    }
    check_int(model_save_finish(save), ==, 0);
    model_save_close(save);
    model_files_close(files);
    model_destroy(model);
    return out;
}

static float *floats_of(const struct model_safetensors *file, const struct model_tensor *tensor)
{
    const size_t bytes = model_dtype_bytes(tensor->dtype);
    char *raw = malloc(tensor->bytes);
    float *out = malloc(tensor->bytes / bytes * sizeof *out);
    check_true(raw != NULL && out != NULL);
    check_int(model_safetensors_read(file, tensor, 0, raw, tensor->bytes), ==, 0);
    model_convert(out, MODEL_F32, raw, tensor->dtype, tensor->bytes / bytes);
    free(raw);
    return out;
}

/* Compares all tensors: fp32 within 1e-6; of bf16 one element in 10,000 may be one step off. */
static void check_weights(const struct row *row, const char *folder)
{
    struct model_safetensors *found = NULL;
    struct model_safetensors *wanted = NULL;
    char path[700];
    size_t count;
    uint64_t off = 0;
    uint64_t all = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    check_int(model_safetensors_open(path, &found), ==, 0);
    snprintf(path, sizeof path, "%s/model/merge/%s/merged.safetensors", test_root(), row->name);
    check_int(model_safetensors_open(path, &wanted), ==, 0);
    const struct model_tensor *list = model_safetensors_list(wanted, &count);
    for (size_t i = 0; i < count; i++) {
        const struct model_tensor *tensor = model_safetensors_find(found, list[i].name);
        if (tensor == NULL) {
            test_fail(__FILE__, __LINE__, "%s has no %s", folder, list[i].name);
        }
        check_int(tensor->dtype, ==, row->bf16 ? MODEL_BF16 : MODEL_F32);
        check_uint(tensor->bytes, ==, list[i].bytes);
        float *is = floats_of(found, tensor);
        float *right = floats_of(wanted, &list[i]);
        const size_t elements = tensor->bytes / model_dtype_bytes(tensor->dtype);
        for (size_t e = 0; e < elements; e++) {
            const double gap = fabs((double)is[e] - (double)right[e]);
            const double size = fabs((double)right[e]);
            off += gap > 0;
            if (gap > (row->bf16 ? size / 128 : 1e-6 * (size > 1 ? size : 1))) {
                test_fail(__FILE__, __LINE__, "%s: %s[%zu] is %.9g; expected %.9g", row->name,
                          list[i].name, e, (double)is[e], (double)right[e]);
            }
        }
        all += elements;
        free(is);
        free(right);
    }
    test_note("%s: %llu of %llu elements differ", row->name, (unsigned long long)off,
              (unsigned long long)all);
    check_true(!row->bf16 || off * 10000 <= all);
    model_safetensors_close(found);
    model_safetensors_close(wanted);
}

static void merges_as_peft_does(void)
{
    for (size_t i = 0; i < ROWS; i++) {
        struct tide_inspection found = {.struct_bytes = sizeof found};
        char base[600];
        char adapter[600];
        char out[600];
        base_of(&rows[i], base);
        adapter_of(rows[i].name, adapter);
        snprintf(out, sizeof out, "%s merged", test_path(rows[i].name));
        if (tide_adapter_merge(NULL, base, adapter, out, 0) != 0) {
            test_fail(__FILE__, __LINE__, "%s: %s", rows[i].name, tide_last_error());
        }
        check_weights(&rows[i], out);
        check_int(tide_inspect(NULL, out, NULL, &found), ==, 0);
        check_true(found.verified && found.what == TIDE_MODEL_FOLDER);
        check_int(tide_adapter_merge(NULL, base, adapter, out, 0), ==, -EEXIST);
        check_int(tide_adapter_merge(NULL, base, adapter, out, 1), ==, 0);
    }
}

static void inspects(void)
{
    for (size_t i = 0; i < ROWS; i++) {
        struct tide_inspection found = {.struct_bytes = sizeof found};
        char adapter[600];
        check_int(tide_inspect(NULL, adapter_of(rows[i].name, adapter), NULL, &found), ==, 0);
        check_true(found.what == TIDE_ADAPTER_FOLDER && found.verified);
        check_uint(found.rank, ==, rows[i].rank);
        check_uint(found.adapted, ==, rows[i].adapted);
        check_uint(found.saved, ==, rows[i].saved);
        check_uint(found.rslora, ==, rows[i].rslora);
        check_uint(found.dora, ==, rows[i].dora);
        check_double(found.alpha, ==, rows[i].alpha);
    }
}

/* ---- damaged adapters ---- */

static void copy_file(const char *from, const char *to, size_t bytes_max)
{
    char *data = malloc(1 << 20);
    FILE *in = fopen(from, "rb");
    FILE *out = fopen(to, "wb");
    check_true(data != NULL && in != NULL && out != NULL);
    const size_t bytes = fread(data, 1, 1 << 20, in);
    check_true(bytes < 1 << 20);
    check_uint(fwrite(data, 1, bytes < bytes_max ? bytes : bytes_max, out), >, 0);
    check_int(fclose(out), ==, 0);
    check_int(fclose(in), ==, 0);
    free(data);
}

/* A folder with this config and the tensors of the llama adapter, cut off after `bytes_max`; 0: without. */
static const char *folder_with(const char *config, size_t bytes_max)
{
    static char folder[600];
    static unsigned number;
    char name[64];
    char from[700];
    char to[700];
    snprintf(name, sizeof name, "damaged-%u", number++);
    snprintf(folder, sizeof folder, "%s", test_path(name));
    check_int(mkdir(folder, 0700), ==, 0);
    if (config != NULL) {
        snprintf(to, sizeof to, "%s/adapter_config.json", name);
        test_file(to, config, strlen(config));
    }
    if (bytes_max > 0) {
        snprintf(from, sizeof from, "%s/model/merge/llama/adapter_model.safetensors", test_root());
        snprintf(to, sizeof to, "%s/adapter_model.safetensors", folder);
        copy_file(from, to, bytes_max);
    }
    return folder;
}

static void damaged_ones_are_refused(void)
{
    static const struct {
        const char *config;
        size_t bytes_max;
        int rc;
        const char *message;
    } cases[] = {
        {NULL, 1 << 20, -ENOENT, "adapter_config.json"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 3}", 0, -ENOENT,
         "adapter_model.safetensors"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 3}", 5000, -EINVAL,
         "adapter_model.safetensors"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_al", 1 << 20, -EINVAL,
         "adapter_config.json:1"},
        {"[]", 1 << 20, -EINVAL, "expected an object"},
        {"{\"peft_type\": \"IA3\", \"r\": 4, \"lora_alpha\": 3}", 1 << 20, -EINVAL,
         "found \"IA3\"; expected \"LORA\""},
        {"{\"r\": 4, \"lora_alpha\": 3}", 1 << 20, -EINVAL, "peft_type"},
        {"{\"peft_type\": \"LORA\", \"r\": 0, \"lora_alpha\": 3}", 1 << 20, -EINVAL,
         "found 0; expected 1 to"},
        {"{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 3}", 1 << 20, -EINVAL,
         "other shapes than rank 8"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 3, \"bias\": \"all\"}", 1 << 20,
         -EINVAL, "found \"all\"; expected \"none\""},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 3, \"use_dora\": true}", 1 << 20,
         -EINVAL, "has no lora_magnitude_vector"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 3, \"lora_bias\": true}", 1 << 20,
         -EINVAL, "is not supported"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 3, \"rank_pattern\": {\"q\": 8}}",
         1 << 20, -EINVAL, "rank_pattern: is not supported"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 3, \"init_lora_weights\": \"pissa\"}",
         1 << 20, -EINVAL, "init_lora_weights: \"pissa\" changes the weights of the base"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 3, "
         "\"alora_invocation_tokens\": [1, 2]}",
         1 << 20, -EINVAL, "alora_invocation_tokens: is not supported"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 3, "
         "\"auto_mapping\": {\"tide_base\": \"12\"}}",
         1 << 20, -EINVAL, "expected 16 hexadecimal digits"},
    };
    char base[600];
    char out[600];
    snprintf(base, sizeof base, "%s/model/fixtures/llama", test_root());
    snprintf(out, sizeof out, "%s", test_path("never"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tide_inspection found = {.struct_bytes = sizeof found};
        const char *adapter = folder_with(cases[i].config, cases[i].bytes_max);
        check_int(tide_adapter_merge(NULL, base, adapter, out, 0), ==, cases[i].rc);
        check_contains(tide_last_error(), cases[i].message);
        check_int(access(out, F_OK), !=, 0);
        check_int(tide_inspect(NULL, adapter, NULL, &found), ==, 0);
        check_true(found.what == TIDE_ADAPTER_FOLDER && !found.verified);
        check_contains(found.problem, cases[i].message);
    }
}

/* A scale that no float has: PEFT would write weights that are infinite or NaN. Nothing is left behind. */
static void infinite_weights_are_refused(void)
{
    char base[600];
    char out[600];
    const char *adapter = folder_with("{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 1e300}",
                                      1 << 20);
    snprintf(base, sizeof base, "%s/model/fixtures/llama", test_root());
    snprintf(out, sizeof out, "%s", test_path("never"));
    check_int(tide_adapter_merge(NULL, base, adapter, out, 0), ==, -EINVAL);
    check_contains(tide_last_error(), "are not finite");
    check_contains(tide_last_error(), "lora_alpha is too large");
    check_int(access(out, F_OK), !=, 0);
    check_int(access(test_path("never.partial"), F_OK), !=, 0);
}

/* An adapter of another base, and folders that would be overwritten. */
static void others_are_refused(void)
{
    char base[600];
    char adapter[600];
    char out[600];
    snprintf(out, sizeof out, "%s", test_path("never"));
    snprintf(base, sizeof base, "%s/model/fixtures/mistral_wide", test_root());
    check_int(tide_adapter_merge(NULL, base, adapter_of("llama", adapter), out, 0), ==, -EINVAL);
    check_contains(tide_last_error(), "is an adapter of another base model");
    snprintf(base, sizeof base, "%s/model/fixtures/gpt2", test_root());
    check_int(tide_adapter_merge(NULL, base, adapter, out, 0), ==, -EINVAL);
    check_contains(tide_last_error(), "this one has no tensor model.layers.0.mlp.down_proj.weight");
    check_int(access(out, F_OK), !=, 0);
    check_int(tide_adapter_merge(NULL, base, adapter, adapter, 1), ==, -EINVAL);
    check_contains(tide_last_error(), "is an input of the merge");
    check_int(tide_adapter_merge(NULL, base, adapter, base, 1), ==, -EINVAL);
    check_int(tide_adapter_merge(NULL, NULL, adapter, out, 1), ==, -EINVAL);
    check_int(tide_adapter_merge(NULL, test_path("none"), adapter, out, 1), ==, -ENOENT);
}

TEST_MAIN({"merges_as_peft_does", merges_as_peft_does}, {"inspects", inspects},
          {"damaged_ones_are_refused", damaged_ones_are_refused},
          {"infinite_weights_are_refused", infinite_weights_are_refused},
          {"others_are_refused", others_are_refused})
