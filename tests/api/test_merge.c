/* test_merge.c: tide_adapter_merge writes the weights of PEFT's merge_and_unload
 * (tests/oracle/merge.py). */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tide/checkpoint.h>
#include <tide/inspect.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "offload/model/config_read.h"
#include "offload/model/files.h"
#include "offload/model/save.h"
#include "tests/harness/test.h"

static const struct row {
    const char *name;
    bool bf16;
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

/* Copies the fixture, with weights of the row's type. */
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

/* Compares tensors: fp32 within 1e-6, relative to values above 1; in bf16, at most one element of
 * 10,000 may differ, by one step. */
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

/* ---- adapters in other types, and tensors that replace the base's ---- */

enum { HEADER_BYTES = 32768 };

static size_t append_tensor(char *header, size_t used, const struct model_tensor *tensor,
                            const char *dtype, size_t begin, size_t bytes)
{
    used += (size_t)snprintf(header + used, HEADER_BYTES - used,
                             "%s\"%s\": {\"dtype\": \"%s\", \"shape\": [", used > 0 ? ", " : "",
                             tensor->name, dtype);
    for (unsigned d = 0; d < tensor->dimensions; d++) {
        used += (size_t)snprintf(header + used, HEADER_BYTES - used, "%s%llu", d > 0 ? ", " : "",
                                 (unsigned long long)tensor->shape[d]);
    }
    used += (size_t)snprintf(header + used, HEADER_BYTES - used, "], \"data_offsets\": [%zu, %zu]}",
                             begin, begin + bytes);
    check_true(used < HEADER_BYTES);
    return used;
}

static void write_tensors(const char *folder, const char *header, const void *data, size_t bytes)
{
    char path[700];
    const uint64_t header_bytes = strlen(header) + 2;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    FILE *out = fopen(path, "wb");
    check_true(out != NULL && fwrite(&header_bytes, sizeof header_bytes, 1, out) == 1 &&
               fprintf(out, "{%s}", header) == (int)header_bytes &&
               fwrite(data, 1, bytes, out) == bytes && fclose(out) == 0);
}

/* Copies a fixture's adapter with values rounded to `dtype`, stored as fp32 if `widened`. `added`
 * (NULL: none) is another tensor, with `values` in fp32. */
static const char *copy_adapter(const char *name, const char *to, enum model_dtype dtype,
                                bool widened, const struct model_tensor *added, const float *values)
{
    static char folder[600];
    static char header[HEADER_BYTES];
    struct model_safetensors *file = NULL;
    char path[700];
    char config[700];
    size_t count;
    size_t used = 0;
    size_t bytes = 0;
    char *data = calloc(1, 1 << 20);
    check_true(data != NULL);
    snprintf(folder, sizeof folder, "%s", test_path(to));
    check_int(mkdir(folder, 0700), ==, 0);
    snprintf(path, sizeof path, "%s/model/merge/%s/adapter_config.json", test_root(), name);
    snprintf(config, sizeof config, "%s/adapter_config.json", folder);
    copy_file(path, config, 1 << 20);
    snprintf(path, sizeof path, "%s/model/merge/%s/adapter_model.safetensors", test_root(), name);
    check_int(model_safetensors_open(path, &file), ==, 0);
    const struct model_tensor *list = model_safetensors_list(file, &count);
    const enum model_dtype written = widened ? MODEL_F32 : dtype;
    for (size_t i = 0; i < count; i++) {
        float *floats = floats_of(file, &list[i]);
        const size_t elements = list[i].bytes / model_dtype_bytes(list[i].dtype);
        const size_t length = elements * model_dtype_bytes(written);
        char *narrow = malloc(elements * sizeof *floats);
        check_true(narrow != NULL && bytes + length < 1 << 20);
        model_convert(narrow, dtype, floats, MODEL_F32, elements);
        model_convert(data + bytes, written, narrow, dtype, elements);
        used = append_tensor(header, used, &list[i],
                             written == MODEL_BF16  ? "BF16"
                             : written == MODEL_F16 ? "F16"
                                                    : "F32",
                             bytes, length);
        bytes += length;
        free(narrow);
        free(floats);
    }
    if (added != NULL) {
        memcpy(data + bytes, values, added->bytes);
        used = append_tensor(header, used, added, "F32", bytes, added->bytes);
        bytes += added->bytes;
    }
    model_safetensors_close(file);
    write_tensors(folder, header, data, bytes);
    free(data);
    return folder;
}

/* Returns the merged model's file; the caller frees the bytes. */
static char *merged_bytes(const char *base, const char *adapter, size_t *bytes)
{
    char out[600];
    char path[700];
    char *data = NULL;
    snprintf(out, sizeof out, "%s merged", adapter);
    if (tide_adapter_merge(NULL, base, adapter, out, 0) != 0) {
        test_fail(__FILE__, __LINE__, "%s: %s", adapter, tide_last_error());
    }
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    check_int(core_file_read(path, 1 << 22, &data, bytes), ==, 0);
    return data;
}

/* An adapter in 16 bits merges like its values in fp32. */
static void adapters_of_16_bits(void)
{
    static const enum model_dtype types[] = {MODEL_BF16, MODEL_F16};
    char base[600];
    snprintf(base, sizeof base, "%s/model/fixtures/llama", test_root());
    for (size_t i = 0; i < 2; i++) {
        char name[40];
        size_t narrow_bytes;
        size_t wide_bytes;
        snprintf(name, sizeof name, "narrow-%zu", i);
        char *narrow = merged_bytes(base, copy_adapter("llama", name, types[i], false, NULL, NULL),
                                    &narrow_bytes);
        snprintf(name, sizeof name, "wide-%zu", i);
        char *wide = merged_bytes(base, copy_adapter("llama", name, types[i], true, NULL, NULL),
                                  &wide_bytes);
        check_uint(narrow_bytes, ==, wide_bytes);
        check_memory(narrow, wide, wide_bytes);
        free(narrow);
        free(wide);
    }
}

/* A tensor of modules_to_save replaces the base's tensor, even a transposed one of GPT-2. */
static void transposed_tensors_are_replaced(void)
{
    static const char replaced[] = "transformer.h.0.mlp.c_proj.weight";
    struct model_safetensors *file = NULL;
    char base[600];
    char path[700];
    snprintf(base, sizeof base, "%s/model/fixtures/gpt2", test_root());
    snprintf(path, sizeof path, "%s/model.safetensors", base);
    check_int(model_safetensors_open(path, &file), ==, 0);
    const struct model_tensor *found = model_safetensors_find(file, replaced);
    check_true(found != NULL);
    struct model_tensor added = *found;
    const size_t elements = found->bytes / model_dtype_bytes(found->dtype);
    added.name = "base_model.model.transformer.h.0.mlp.c_proj.modules_to_save.weight";
    added.bytes = elements * sizeof(float);
    float *values = malloc(added.bytes);
    check_true(values != NULL);
    for (size_t i = 0; i < elements; i++) {
        /* exact in 16 bits, and different from its transpose */
        values[i] = (float)(i % 255) * 0.5F;
    }
    model_safetensors_close(file);
    size_t bytes;
    const char *adapter = copy_adapter("gpt2", "whole", MODEL_F32, false, &added, values);
    free(merged_bytes(base, adapter, &bytes));
    snprintf(path, sizeof path, "%s merged/model.safetensors", adapter);
    check_int(model_safetensors_open(path, &file), ==, 0);
    found = model_safetensors_find(file, replaced);
    check_true(found != NULL && found->bytes == elements * model_dtype_bytes(found->dtype));
    float *is = floats_of(file, found);
    check_memory(is, values, added.bytes);
    free(is);
    free(values);
    model_safetensors_close(file);
}

enum { WIDE = 1024, INNER = 1100, BIG_RANK = 2 };

/* Returns a small pseudorandom number that is exact in 16 bits. */
static float number_at(uint64_t at)
{
    return (float)((int)(at * UINT64_C(2654435761) >> 16 & 0xff) - 128) / 256;
}

/* Makes a Llama of one layer from number_at(). */
static const char *make_big_base(char out[600])
{
    char config[400];
    char source[600];
    struct model_config read;
    struct model *model = NULL;
    struct model_save *save = NULL;
    snprintf(source, sizeof source, "%s", test_path("big source"));
    snprintf(out, 600, "%s", test_path("big"));
    check_int(mkdir(source, 0700), ==, 0);
    const int length = snprintf(
        config, sizeof config,
        "{\"model_type\": \"llama\", \"vocab_size\": 8, \"hidden_size\": %d, "
        "\"intermediate_size\": %d,"
        " \"num_hidden_layers\": 1, \"num_attention_heads\": 8, \"num_key_value_heads\": 1}",
        WIDE, INNER);
    test_file("big source/config.json", config, (size_t)length);
    check_int(model_config_load(source, &read), ==, 0);
    check_int(model_create(&read, NULL, &model), ==, 0);
    const struct model_save_options options = {.folder = out, .source = source, .type = MODEL_BF16};
    check_int(model_save_open(model, &options, &save), ==, 0);
    for (unsigned b = 0; b < model->block_count; b++) {
        const uint64_t elements = model->blocks[b].elements;
        float *data = malloc(elements * sizeof *data);
        check_true(data != NULL);
        for (uint64_t i = 0; i < elements; i++) {
            data[i] = number_at(i);
        }
        check_int(model_save_put(save, b, 0, elements, MODEL_F32, data), ==, 0);
        free(data);
    }
    check_int(model_save_finish(save), ==, 0);
    model_save_close(save);
    model_destroy(model);
    return out;
}

enum { A_FLOATS = BIG_RANK * INNER, B_FLOATS = WIDE * BIG_RANK };

/* Writes an adapter of down_proj; `values` has A, then B. */
static const char *make_big_adapter(const float values[A_FLOATS + B_FLOATS])
{
    static const char config[] = "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 1}";
    static const char *const names[] = {
        "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight",
        "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight"};
    static const uint64_t shapes[2][2] = {{BIG_RANK, INNER}, {WIDE, BIG_RANK}};
    static char folder[600];
    static char header[HEADER_BYTES];
    size_t used = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < 2; i++) {
        const struct model_tensor tensor = {
            .name = names[i], .dimensions = 2, .shape = {shapes[i][0], shapes[i][1]}};
        const size_t length = shapes[i][0] * shapes[i][1] * sizeof *values;
        used = append_tensor(header, used, &tensor, "F32", bytes, length);
        bytes += length;
    }
    snprintf(folder, sizeof folder, "%s", test_path("big adapter"));
    check_int(mkdir(folder, 0700), ==, 0);
    test_file("big adapter/adapter_config.json", config, sizeof config - 1);
    write_tensors(folder, header, values, bytes);
    return folder;
}

/* A large tensor is merged some rows at a time; a row uses its part of B. */
static void large_tensors_are_merged_in_parts(void)
{
    static float values[A_FLOATS + B_FLOATS];
    const float *const a = values;
    const float *const b = values + A_FLOATS;
    static const char down[] = "model.layers.0.mlp.down_proj.weight";
    struct model_safetensors *before = NULL;
    struct model_safetensors *after = NULL;
    char base[600];
    char out[600];
    char path[700];
    for (size_t i = 0; i < A_FLOATS + B_FLOATS; i++) {
        values[i] = 2 * number_at(i + 7);
    }
    snprintf(out, sizeof out, "%s", test_path("big merged"));
    check_int(tide_adapter_merge(NULL, make_big_base(base), make_big_adapter(values), out, 0), ==,
              0);
    snprintf(path, sizeof path, "%s/model.safetensors", base);
    check_int(model_safetensors_open(path, &before), ==, 0);
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    check_int(model_safetensors_open(path, &after), ==, 0);
    check_true(model_safetensors_find(before, down) != NULL &&
               model_safetensors_find(after, down) != NULL);
    float *was = floats_of(before, model_safetensors_find(before, down));
    float *is = floats_of(after, model_safetensors_find(after, down));
    for (size_t r = 0; r < WIDE; r++) {
        for (size_t c = 0; c < INNER; c++) {
            double right = (double)was[r * INNER + c];
            for (size_t k = 0; k < BIG_RANK; k++) {
                right += 0.5 * (double)b[r * BIG_RANK + k] * (double)a[k * INNER + c];
            }
            if (fabs((double)is[r * INNER + c] - right) > fabs(right) / 256 + 1e-6) {
                test_fail(__FILE__, __LINE__, "row %zu, column %zu: %.9g; expected %.9g", r, c,
                          (double)is[r * INNER + c], right);
            }
        }
    }
    free(was);
    free(is);
    model_safetensors_close(before);
    model_safetensors_close(after);
}

/* ---- damaged adapters ---- */

/* Returns a folder with `config` (NULL: none) and the first `bytes_max` bytes of the llama
 * adapter's tensors (0: none). */
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
         "do not match rank 8"},
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

/* PEFT would write infinite or NaN weights; tide refuses the merge and writes nothing. */
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

/* PEFT trains the table apart from the tied head. One table cannot hold both. */
static void shared_tables_are_refused(void)
{
    static const char header[] = "{\"base_model.model.transformer.wte.weight\":"
                                 "{\"dtype\":\"F32\",\"shape\":[72,32],\"data_offsets\":[0,9216]}}";
    static char file[8 + sizeof header - 1 + 9216];
    const uint64_t header_bytes = sizeof header - 1;
    char base[600];
    char name[700];
    const char *adapter = folder_with("{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 3, "
                                      "\"modules_to_save\": [\"wte\"]}",
                                      0);
    memcpy(file, &header_bytes, sizeof header_bytes);
    memcpy(file + 8, header, header_bytes);
    snprintf(name, sizeof name, "%s/adapter_model.safetensors", strrchr(adapter, '/') + 1);
    test_file(name, file, sizeof file);
    snprintf(base, sizeof base, "%s/model/fixtures/gpt2", test_root());
    check_int(tide_adapter_merge(NULL, base, adapter, test_path("never"), 0), ==, -EINVAL);
    check_contains(tide_last_error(), "also uses as its head (tie_word_embeddings)");
    check_int(access(test_path("never"), F_OK), !=, 0);
}

/* Adapters of other bases and wrong paths are refused. */
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
    check_int(tide_adapter_merge(NULL, base, NULL, out, 1), ==, -EINVAL);
    check_int(tide_adapter_merge(NULL, base, adapter, NULL, 1), ==, -EINVAL);
    check_int(tide_adapter_merge(NULL, base, adapter, "", 1), ==, -EINVAL);
    check_contains(tide_last_error(), "a base model, an adapter and a folder to write");
    check_int(tide_adapter_merge(NULL, test_path("none"), adapter, out, 1), ==, -ENOENT);
}

/* A path that is too long is refused even if errno is 0. */
static void a_long_path_is_refused(void)
{
    static char folder[PATH_MAX];
    char base[600];
    char checkpoint[600];
    snprintf(base, sizeof base, "%s/model/fixtures/llama", test_root());
    snprintf(checkpoint, sizeof checkpoint, "%s", test_path("checkpoint"));
    check_int(mkdir(checkpoint, 0777), ==, 0);
    test_file("checkpoint/manifest.json", "{}", 2);
    memset(folder, 'a', sizeof folder - 1);
    errno = 0;
    check_int(tide_adapter_merge(NULL, base, checkpoint, folder, 0), ==, -ENAMETOOLONG);
    check_contains(tide_last_error(), "the folder to write has 4095 bytes");
}

TEST_MAIN({"merges_as_peft_does", merges_as_peft_does}, {"inspects", inspects},
          {"adapters_of_16_bits", adapters_of_16_bits},
          {"transposed_tensors_are_replaced", transposed_tensors_are_replaced},
          {"large_tensors_are_merged_in_parts", large_tensors_are_merged_in_parts},
          {"damaged_ones_are_refused", damaged_ones_are_refused},
          {"infinite_weights_are_refused", infinite_weights_are_refused},
          {"shared_tables_are_refused", shared_tables_are_refused},
          {"a_long_path_is_refused", a_long_path_is_refused},
          {"others_are_refused", others_are_refused})
