/* fixture.c: see fixture.h. */
#include "tests/model/fixture.h"
#include "offload/model/config_read.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "tests/harness/test.h"

const char *const fixture_names[] = {
    "gpt2",          "gpt2_untied",   "llama",
    "llama3",        "llama_yarn",    "llama_yarn_long",
    "llama_linear",  "llama_dynamic", "llama_dynamic_long",
    "llama_pad",     "mistral",       "mistral_layers",
    "mistral_wide",  "qwen2",         "qwen2_window",
    "qwen2_both",    "qwen3",         "qwen3_pad",
    "qwen3_sharded",
};
const size_t fixture_count = sizeof fixture_names / sizeof fixture_names[0];

void fixture_open(struct fixture *fixture, const char *name)
{
    char path[600];
    *fixture = (struct fixture){0};
    snprintf(fixture->folder, sizeof fixture->folder, "%s/model/fixtures/%s", test_root(), name);
    int rc = model_config_load(fixture->folder, &fixture->config);
    if (rc == 0) {
        rc = model_create(&fixture->config, NULL, &fixture->model);
    }
    if (rc == 0) {
        rc = model_files_open(fixture->folder, &fixture->files);
    }
    if (rc == 0) {
        rc = model_files_check(fixture->files, fixture->model);
    }
    snprintf(path, sizeof path, "%s/expect.safetensors", fixture->folder);
    if (rc == 0) {
        rc = model_safetensors_open(path, &fixture->expect);
    }
    if (rc != 0) {
        fixture_close(fixture);
        test_fail(__FILE__, __LINE__, "%s: %s", name, core_err_message());
    }
}

void fixture_close(struct fixture *fixture)
{
    model_safetensors_close(fixture->expect);
    model_files_close(fixture->files);
    model_destroy(fixture->model);
    *fixture = (struct fixture){0};
}

static void *read_whole(const struct fixture *fixture, const char *name, size_t *bytes)
{
    const struct model_tensor *tensor = model_safetensors_find(fixture->expect, name);
    if (tensor == NULL) {
        test_fail(__FILE__, __LINE__, "%s has no %s", fixture->folder, name);
    }
    void *data = malloc(tensor->bytes + 1);
    if (data == NULL ||
        model_safetensors_read(fixture->expect, tensor, 0, data, tensor->bytes) != 0) {
        test_fail(__FILE__, __LINE__, "%s: %s", name, core_err_message());
    }
    *bytes = tensor->bytes;
    return data;
}

float *fixture_floats(const struct fixture *fixture, const char *name, size_t *count)
{
    size_t bytes;
    float *data = read_whole(fixture, name, &bytes);
    *count = bytes / sizeof *data;
    return data;
}

int32_t *fixture_ids(const struct fixture *fixture, int64_t *rows, int64_t *length)
{
    size_t bytes;
    const struct model_tensor *tensor = model_safetensors_find(fixture->expect, "ids");
    int32_t *data = read_whole(fixture, "ids", &bytes);
    *rows = (int64_t)tensor->shape[0];
    *length = (int64_t)tensor->shape[1];
    return data;
}

double fixture_distance(const float *a, const float *b, size_t count)
{
    double difference = 0.0;
    double norm = 0.0;
    for (size_t i = 0; i < count; i++) {
        const double d = (double)a[i] - (double)b[i];
        difference += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0.0 ? sqrt(difference / norm) : sqrt(difference);
}

const char *fixture_safetensors(const char *name, const char *header, size_t data_bytes)
{
    const size_t length = strlen(header);
    unsigned char *text = calloc(1, 8 + length + data_bytes + 1);
    if (text == NULL) {
        test_fail(__FILE__, __LINE__, "no memory");
    }
    for (unsigned i = 0; i < 8; i++) {
        text[i] = (unsigned char)((uint64_t)length >> (8 * i));
    }
    memcpy(text + 8, header, length);
    const char *path = test_file(name, text, 8 + length + data_bytes);
    free(text);
    return path;
}
