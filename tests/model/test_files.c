/* test_files.c: matching tensors, reading ranges, and writing folders. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/team.h"
#include "offload/model/config_read.h"
#include "offload/model/save.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"
#include "tests/model/fixture.h"

/* Returns the block as fp32; the caller frees it. */
static float *read_block(const struct model_files *files, const struct model_block *block)
{
    float *data = malloc(block->elements * sizeof *data);
    check_true(data != NULL);
    memset(data, 0xee, block->elements * sizeof *data);
    check_int(model_files_read(files, block, 0, block->elements, MODEL_F32, data, NULL), ==, 0);
    return data;
}

/* Parameters are aligned and in order, and the elements between them are zero. */
static void places(void)
{
    for (size_t f = 0; f < fixture_count; f++) {
        struct fixture fixture;
        fixture_open(&fixture, fixture_names[f]);
        uint64_t seen = 0;
        for (unsigned b = 0; b < fixture.model->block_count; b++) {
            const struct model_block *block = &fixture.model->blocks[b];
            float *data = read_block(fixture.files, block);
            uint64_t at = 0;
            for (unsigned p = 0; p < block->param_count; p++) {
                const struct model_param *param = &block->params[p];
                if (param->part_count == 0) {
                    check_uint(param->owner, ==, 0);
                    continue;
                }
                check_uint(param->offset % BLOCKS_ALIGN_ELEMENTS, ==, 0);
                for (; at < param->offset; at++) {
                    check_double(data[at], ==, 0.0);
                }
                at += param->elements;
                seen += param->elements;
            }
            for (; at < block->elements; at++) {
                check_double(data[at], ==, 0.0);
            }
            free(data);
        }
        check_uint(seen, ==, fixture.model->parameters);
        fixture_close(&fixture);
    }
}

/* GPT-2's [in][out] matrices are read as [out][in]. */
static void turned(void)
{
    struct fixture fixture;
    fixture_open(&fixture, "gpt2");
    const struct model_block *block = &fixture.model->blocks[1];
    const struct model_param *param = &block->params[model_block_param(block, MODEL_QKV)];
    const struct model_safetensors *shard;
    const struct model_tensor *tensor = model_files_find(
        fixture.files, "transformer.h.0.attn.c_attn.weight", &shard);
    check_true(tensor != NULL && param->transposed);
    uint16_t *raw = malloc(tensor->bytes);
    float *data = read_block(fixture.files, block);
    check_int(model_safetensors_read(shard, tensor, 0, raw, tensor->bytes), ==, 0);
    for (int64_t row = 0; row < param->rows; row++) {
        for (int64_t col = 0; col < param->cols; col++) {
            float there;
            model_convert(&there, MODEL_F32, &raw[col * param->rows + row], MODEL_BF16, 1);
            check_double(data[param->offset + (uint64_t)(row * param->cols + col)], ==, there);
        }
    }
    free(data);
    free(raw);
    fixture_close(&fixture);
}

/* A range equals its part of the whole block. A team reads the same bytes as one thread. */
static void ranges(void)
{
    static const char *const names[] = {"gpt2_untied", "llama3", "qwen3_sharded"};
    struct core_team *team = NULL;
    const struct core_team_options options = {.count = 3};
    check_int(core_team_create(&options, &team), ==, 0);
    for (size_t f = 0; f < 3; f++) {
        struct fixture fixture;
        fixture_open(&fixture, names[f]);
        const struct model_block *block = &fixture.model->blocks[1];
        float *whole = read_block(fixture.files, block);
        float *part = malloc(block->elements * sizeof *part);
        uint64_t seed = 5;
        for (int i = 0; i < 40; i++) {
            uint64_t begin = test_random(&seed, block->elements);
            uint64_t count = test_random(&seed, block->elements - begin) + 1;
            check_int(model_files_read(fixture.files, block, begin, count, MODEL_F32, part, NULL),
                      ==, 0);
            check_memory(part, whole + begin, count * sizeof *part);
        }
        memset(part, 0xee, block->elements * sizeof *part);
        check_int(model_files_read_block(fixture.files, block, MODEL_F32, part, team, NULL), ==, 0);
        check_memory(part, whole, block->elements * sizeof *part);
        free(part);
        free(whole);
        fixture_close(&fixture);
    }
    core_team_destroy(team);
}

static void put_all(const struct fixture *fixture, struct model_save *save, uint64_t step)
{
    for (unsigned b = 0; b < fixture->model->block_count; b++) {
        const struct model_block *block = &fixture->model->blocks[b];
        float *data = read_block(fixture->files, block);
        for (uint64_t at = 0; at < block->elements; at += step) {
            uint64_t count = block->elements - at < step ? block->elements - at : step;
            check_int(model_save_put(save, b, at, count, MODEL_F32, data + at), ==, 0);
        }
        free(data);
    }
}

/* Checks the index's total of the weights' bytes. */
static void check_total_size(const char *folder, uint64_t bytes)
{
    char path[700];
    char wanted[60];
    char *text = NULL;
    size_t text_bytes;
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    snprintf(wanted, sizeof wanted, "\"total_size\": %llu\n", (unsigned long long)bytes);
    check_int(core_file_read(path, 1 << 20, &text, &text_bytes), ==, 0);
    check_contains(text, wanted);
    free(text);
}

/* A written folder is read back with the same bits and has the source's other files. */
static void writes(void)
{
    char out[600];
    char name[700];
    snprintf(out, sizeof out, "%s/out", test_directory());
    for (size_t f = 0; f < fixture_count; f++) {
        struct fixture fixture;
        fixture_open(&fixture, fixture_names[f]);
        const struct model_save_options options = {
            .folder = out,
            .source = fixture.folder,
            .type = f % 2 == 0 ? MODEL_F32 : MODEL_BF16,
            .shard_bytes = f % 3 == 0 ? 30000 : 0,
            .replace = f > 0,
        };
        struct model_save *save = NULL;
        check_int(model_save_open(fixture.model, &options, &save), ==, 0);
        put_all(&fixture, save, 1777);
        const uint64_t bytes = fixture.model->parameters * model_dtype_bytes(options.type);
        const bool sharded = options.shard_bytes > 0 && bytes > options.shard_bytes;
        check_int(model_save_finish(save), ==, 0);
        model_save_close(save);
        struct model_config config;
        struct model_files *files = NULL;
        check_int(model_config_load(out, &config), ==, 0);
        check_int(config.dtype, ==, options.type);
        check_int(config.tied, ==, fixture.config.tied);
        check_int(model_files_open(out, &files), ==, 0);
        check_true((model_files_shard_count(files) > 1) == sharded);
        if (sharded) {
            check_total_size(out, bytes);
        }
        check_int(model_files_check(files, fixture.model), ==, 0);
        for (unsigned b = 0; b < fixture.model->block_count; b++) {
            float *ours = read_block(files, &fixture.model->blocks[b]);
            float *theirs = read_block(fixture.files, &fixture.model->blocks[b]);
            check_memory(ours, theirs, fixture.model->blocks[b].elements * sizeof *ours);
            free(ours);
            free(theirs);
        }
        model_files_close(files);
        snprintf(name, sizeof name, "%s/generation_config.json", out);
        check_int(access(name, R_OK), ==, 0);
        snprintf(name, sizeof name, "%s.partial", out);
        check_int(access(name, F_OK), !=, 0);
        fixture_close(&fixture);
    }
}

/* Writes a file of two zero tensors; with `apart`, the last element is not zero. */
static void write_pair(const char *second, const char *type, unsigned bytes, bool apart)
{
    char header[400];
    const unsigned first = 16;
    snprintf(header, sizeof header,
             "{\"model.embed_tokens.weight\":{\"dtype\":\"BF16\",\"shape\":[4,2],\"data_offsets\":["
             "0,%u]},"
             "\"%s\":{\"dtype\":\"%s\",\"shape\":[4,2],\"data_offsets\":[%u,%u]}}",
             first, second, type, first, first + bytes);
    const char *path = fixture_safetensors("model.safetensors", header, first + bytes);
    FILE *file = fopen(path, "r+b");
    check_true(file != NULL);
    check_int(fseek(file, -1, SEEK_END), ==, 0);
    check_int(fputc(apart ? 64 : 0, file), ==, apart ? 64 : 0);
    check_int(fclose(file), ==, 0);
}

/* A tied model whose files have a different head becomes untied. */
static void own_heads(void)
{
    const struct model_family *llama = model_family_find("llama");
    write_pair("lm_head.weight", "BF16", 16, false);
    check_true(!model_files_have_own_head(test_directory(), llama));
    write_pair("lm_head.weight", "F32", 32, false);
    check_true(!model_files_have_own_head(test_directory(), llama));
    write_pair("model.norm.weight", "BF16", 16, true);
    check_true(!model_files_have_own_head(test_directory(), llama));
    write_pair("lm_head.weight", "BF16", 16, true);
    check_true(model_files_have_own_head(test_directory(), llama));
    write_pair("lm_head.weight", "F32", 32, true);
    check_true(model_files_have_own_head(test_directory(), llama));
    check_true(!model_files_have_own_head("/nonexistent", llama));

    char out[600];
    struct fixture fixture;
    struct model_config config;
    struct model_save *save = NULL;
    snprintf(out, sizeof out, "%s/own_head", test_directory());
    test_listen(CORE_LOG_WARN);
    fixture_open(&fixture, "qwen2_both");
    check_contains(test_heard(),
                   "config.json: tie_word_embeddings is true, but the files have a head");
    test_listen_end();
    check_true(!fixture.config.tied);
    const struct model_save_options options = {
        .folder = out, .source = fixture.folder, .type = MODEL_F32};
    check_int(model_save_open(fixture.model, &options, &save), ==, 0);
    put_all(&fixture, save, 1777);
    check_int(model_save_finish(save), ==, 0);
    model_save_close(save);
    test_listen(CORE_LOG_WARN);
    check_int(model_config_load(out, &config), ==, 0);
    check_string(test_heard(), "");
    test_listen_end();
    check_true(!config.tied);
    fixture_close(&fixture);
}

/* A folder with files is not changed without permission, nor a symbolic link. A save that ends
 * early leaves nothing. */
static void keeps(void)
{
    char out[600];
    char partial[700];
    char moved[700];
    char dotted[700];
    snprintf(out, sizeof out, "%s/kept", test_directory());
    snprintf(moved, sizeof moved, "%s-moved", out);
    snprintf(dotted, sizeof dotted, "%s-moved/.", out);
    snprintf(partial, sizeof partial, "%s.partial", out);
    struct fixture fixture;
    fixture_open(&fixture, "llama3");
    struct model_save *save = NULL;
    struct model_save_options options = {.folder = out, .type = MODEL_F32};
    check_int(mkdir(out, 0777), ==, 0);
    test_file("kept/diary", "", 0);
    check_int(model_save_open(fixture.model, &options, &save), ==, -EEXIST);
    check_contains(core_err_message(), "exists and has files in it");
    check_int(rename(out, moved), ==, 0);
    check_int(symlink(moved, out), ==, 0);
    /* the target of a link is not replaced, either */
    for (int replace = 0; replace < 2; replace++) {
        options.replace = replace != 0;
        check_int(model_save_open(fixture.model, &options, &save), ==, -EINVAL);
        check_contains(core_err_message(), "symbolic link");
    }
    options.replace = false;
    check_int(unlink(out), ==, 0);
    options.folder = dotted;
    check_int(model_save_open(fixture.model, &options, &save), ==, -EINVAL);
    options.folder = out;
    check_int(mkdir(out, 0777), ==, 0);
    check_int(model_save_open(fixture.model, &options, &save), ==, 0); /* the folder is empty */
    model_save_close(save);
    check_int(rmdir(out), ==, 0);
    check_int(model_save_open(fixture.model, &options, &save), ==, 0);
    check_int(access(partial, F_OK), ==, 0);
    check_int(model_save_finish(save), ==, -EINVAL);
    check_contains(core_err_message(), "0 of ");
    model_save_close(save);
    check_int(access(partial, F_OK), !=, 0);
    check_int(access(out, F_OK), !=, 0);
    options.folder = "/nonexistent/folder";
    check_int(model_save_open(fixture.model, &options, &save), ==, -ENOENT);
    options.folder = out;
    options.source = "/nonexistent";
    check_int(model_save_open(fixture.model, &options, &save), ==, -ENOENT);
    check_int(access(partial, F_OK), !=, 0);
    fixture_close(&fixture);
}

static const char *folder_with(const char *name, const char *file, const char *text)
{
    static char folder[600];
    char path[700];
    snprintf(folder, sizeof folder, "%s/%s", test_directory(), name);
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/%s", name, file);
    test_file(path, text, strlen(text));
    return folder;
}

/* A folder is refused if its index and shards contradict each other. */
static void bad_folders(void)
{
    static const char index[] = "model.safetensors.index.json";
    struct model_files *files = NULL;
    check_int(model_files_open("/nonexistent", &files), ==, -ENOENT);
    check_contains(core_err_message(), "has neither model.safetensors nor");
    const char *folder = folder_with("i1", index, "{\"weight_map\":{\"a\":\"gone.safetensors\"}}");
    check_int(model_files_open(folder, &files), ==, -ENOENT);
    check_contains(core_err_message(), "gone.safetensors");
    check_contains(core_err_message(), "tensor a");
    folder = folder_with("i2", index, "{}");
    check_int(model_files_open(folder, &files), ==, -EINVAL);
    check_contains(core_err_message(), "weight_map");
    folder = folder_with("i3", index, "{\"weight_map\":{\"a\":\"../x.safetensors\"}}");
    check_int(model_files_open(folder, &files), ==, -EINVAL);
    check_contains(core_err_message(), "not the name of a file in the folder");
    folder = folder_with("i4", index, "{\"weight_map\":{\"b\":\"one.safetensors\"}}");
    fixture_safetensors("i4/one.safetensors",
                        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    check_int(model_files_open(folder, &files), ==, -EINVAL);
    check_contains(core_err_message(), "where the index says it is");
    folder = folder_with("i5", index,
                         "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
    fixture_safetensors("i5/one.safetensors",
                        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    fixture_safetensors("i5/two.safetensors",
                        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                        "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                        8);
    check_int(model_files_open(folder, &files), ==, -EINVAL);
    check_contains(core_err_message(), "is in one.safetensors and in two.safetensors");
    folder = folder_with("i6", index, "{\"weight_map\":{\"a\":3}}");
    check_int(model_files_open(folder, &files), ==, -EINVAL);
}

static uint16_t pattern(uint64_t element)
{
    return (uint16_t)(element * 40503u + element / 65536);
}

/* Elements of a block longer than one read are in their places. */
static void long_runs(void)
{
    enum { VOCAB = 140001, CUT = 3 };
    struct fixture fixture;
    struct model *model = NULL;
    struct model_files *files = NULL;
    struct core_team *team = NULL;
    const struct core_team_options options = {.count = 3};
    fixture_open(&fixture, "llama");
    fixture.config.vocab = VOCAB;
    check_int(model_create(&fixture.config, NULL, &model), ==, 0);
    const struct model_block *block = &model->blocks[0];
    const uint64_t count = VOCAB * (uint64_t)fixture.config.hidden;
    char header[200];
    snprintf(header, sizeof header,
             "{\"model.embed_tokens.weight\":{\"dtype\":\"BF16\",\"shape\":[%d,%d],"
             "\"data_offsets\":[0,%llu]}}",
             VOCAB, (int)fixture.config.hidden, 2 * (unsigned long long)count);
    const char *folder = folder_with("long", "other.json", "{}");
    const char *path = fixture_safetensors("long/model.safetensors", header, 2 * count);
    uint16_t *data = calloc(block->elements, sizeof *data);
    check_true(data != NULL && block->elements >= count);
    for (uint64_t i = 0; i < count; i++) {
        data[i] = pattern(i);
    }
    FILE *file = fopen(path, "r+b");
    check_true(file != NULL && fseek(file, 8 + (long)strlen(header), SEEK_SET) == 0);
    check_uint(fwrite(data, 2, count, file), ==, count);
    check_int(fclose(file), ==, 0);
    uint16_t *read = malloc(block->elements * sizeof *read);
    check_true(read != NULL);
    check_int(model_files_open(folder, &files), ==, 0);
    check_int(model_files_read(files, block, CUT, count - CUT, MODEL_BF16, read, NULL), ==, 0);
    check_memory(read, data + CUT, (count - CUT) * sizeof *read);
    check_int(core_team_create(&options, &team), ==, 0);
    memset(read, 0xee, block->elements * sizeof *read);
    check_int(model_files_read_block(files, block, MODEL_BF16, read, team, NULL), ==, 0);
    check_memory(read, data, block->elements * sizeof *read);
    core_team_destroy(team);
    free(read);
    free(data);
    model_files_close(files);
    model_destroy(model);
    fixture_close(&fixture);
}

/* Returns the identity after one read, by a team or in pieces. */
static uint64_t identity_of(const struct fixture *fixture, const struct model *model,
                            enum model_dtype type, uint64_t piece, struct core_team *team)
{
    struct model_sums *sums = NULL;
    check_int(model_sums_create(model, &sums), ==, 0);
    for (unsigned b = model->block_count; b-- > 0;) {
        const struct model_block *block = &model->blocks[b];
        float *data = malloc(block->elements * sizeof *data);
        check_true(data != NULL);
        for (uint64_t at = 0; team == NULL && at < block->elements; at += piece) {
            const uint64_t left = block->elements - at;
            check_int(model_files_read(fixture->files, block, at, left < piece ? left : piece, type,
                                       data, sums),
                      ==, 0);
        }
        if (team != NULL) {
            check_int(model_files_read_block(fixture->files, block, type, data, team, sums), ==, 0);
        }
        free(data);
    }
    const uint64_t identity = model_sums_identity(sums, fixture->files);
    model_sums_destroy(sums);
    return identity;
}

/* The identity of frozen tensors does not depend on how they are read. */
static void identities(void)
{
    static const char *const names[] = {"gpt2", "llama3", "qwen3_sharded", "llama"};
    static const char *const frozen[] = {"*attn*", "*norm*", "*ln_*"};
    struct core_team *team = NULL;
    const struct core_team_options options = {.count = 3};
    uint64_t seen[4];
    check_int(core_team_create(&options, &team), ==, 0);
    for (size_t f = 0; f < 4; f++) {
        const bool gpt2 = f == 0;
        const struct model_options freeze = {.frozen = gpt2 ? frozen + 2 : frozen,
                                             .frozen_count = gpt2 ? 1 : 2};
        struct fixture fixture;
        struct model *model = NULL;
        fixture_open(&fixture, names[f]);
        check_int(model_create(&fixture.config, &freeze, &model), ==, 0);
        const uint64_t whole = identity_of(&fixture, model, MODEL_F32, 0, team);
        check_uint(identity_of(&fixture, model, MODEL_BF16, 0, team), ==, whole);
        check_uint(identity_of(&fixture, model, MODEL_BF16, 1024, NULL), ==, whole);
        check_uint(identity_of(&fixture, model, MODEL_F32, 256, NULL), ==, whole);
        model_destroy(model);
        static const char *const all[] = {"*"};
        const struct model_options everything = {.frozen = all, .frozen_count = 1};
        check_int(model_create(&fixture.config, &everything, &model), ==, 0);
        seen[f] = identity_of(&fixture, model, MODEL_F32, 0, team);
        check_uint(identity_of(&fixture, model, MODEL_BF16, 512, NULL), ==, seen[f]);
        check_uint(seen[f], !=, whole);
        for (size_t i = 0; i < f; i++) {
            check_uint(seen[f], !=, seen[i]);
        }
        model_destroy(model);
        fixture_close(&fixture);
    }
    core_team_destroy(team);
}

/* Tensors that are missing or unusable are refused. Surplus tensors are reported, unless usual for
 * the family. */
static void mismatches(void)
{
    struct fixture fixture;
    struct model_files *files = NULL;
    fixture_open(&fixture, "llama");
    folder_with("m1", "unused", "");
    char folder[600];
    snprintf(folder, sizeof folder, "%s/m1", test_directory());
    fixture_safetensors("m1/model.safetensors",
                        "{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[2,32],"
                        "\"data_offsets\":[0,256]}}",
                        256);
    check_int(model_files_open(folder, &files), ==, 0);
    check_int(model_files_check(files, fixture.model), ==, -EINVAL);
    check_contains(core_err_message(), "has the shape [2, 32]; config.json requires [72, 32]");
    model_files_close(files);
    fixture_safetensors("m1/model.safetensors",
                        "{\"model.embed_tokens.weight\":{\"dtype\":\"I8\",\"shape\":[72,32],"
                        "\"data_offsets\":[0,2304]}}",
                        2304);
    check_int(model_files_open(folder, &files), ==, 0);
    check_int(model_files_check(files, fixture.model), ==, -EINVAL);
    check_contains(core_err_message(), "has type I8");
    model_files_close(files);
    fixture_safetensors("m1/model.safetensors",
                        "{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[72,32],"
                        "\"data_offsets\":[0,9216]},"
                        "\"model.layers.0.input_layernorm.weight\":{\"dtype\":\"F32\","
                        "\"shape\":[1,32],\"data_offsets\":[9216,9344]}}",
                        9344);
    check_int(model_files_open(folder, &files), ==, 0);
    check_int(model_files_check(files, fixture.model), ==, -EINVAL);
    check_contains(core_err_message(), "has the shape [1, 32]; config.json requires [32]");
    model_files_close(files);
    /* Folders of GPTQ and AWQ have codes instead of weights. */
    fixture_safetensors(
        "m1/model.safetensors",
        "{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[72,32],"
        "\"data_offsets\":[0,9216]},"
        "\"model.layers.0.input_layernorm.weight\":{\"dtype\":\"F32\",\"shape\":[32],"
        "\"data_offsets\":[9216,9344]},"
        "\"model.layers.0.self_attn.q_proj.qweight\":{\"dtype\":\"I32\",\"shape\":[4,32],"
        "\"data_offsets\":[9344,9856]}}",
        9856);
    check_int(model_files_open(folder, &files), ==, 0);
    check_int(model_files_check(files, fixture.model), ==, -EINVAL);
    check_contains(core_err_message(),
                   "has model.layers.0.self_attn.q_proj.qweight in place of "
                   "model.layers.0.self_attn.q_proj.weight: its weights are quantised");
    model_files_close(files);
    fixture_safetensors("m1/model.safetensors", "{}", 0);
    check_int(model_files_open(folder, &files), ==, 0);
    check_int(model_files_check(files, fixture.model), ==, -EINVAL);
    check_contains(core_err_message(), "has no tensor model.embed_tokens.weight");
    model_files_close(files);
    fixture_close(&fixture);
    test_listen(CORE_LOG_WARN);
    fixture_open(&fixture, "gpt2_untied"); /* has a mask, usual in GPT-2 files */
    check_true(strstr(test_heard(), "not part of the model") == NULL);
    struct model_config config = fixture.config;
    struct model *model = NULL;
    config.qkv_bias = false;
    config.layers = 1;
    check_int(model_create(&config, NULL, &model), ==, 0);
    check_int(model_files_check(fixture.files, model), ==, 0);
    check_contains(test_heard(), "12 tensors are not part of the model and not read: h.1.");
    test_listen_end();
    model_destroy(model);
    fixture_close(&fixture);
}

/* Replaces a name in a file's header. */
static void rename_tensor(const char *path, const char *from, const char *to)
{
    char *text = NULL;
    size_t bytes = 0;
    check_int(core_file_read(path, 1 << 26, &text, &bytes), ==, 0);
    char *at = memmem(text, bytes, from, strlen(from));
    check_true(at != NULL && strlen(to) <= strlen(from));
    memset(at, ' ', strlen(from));
    memcpy(at, to, strlen(to));
    FILE *file = fopen(path, "w");
    check_true(file != NULL && fwrite(text, 1, bytes, file) == bytes && fclose(file) == 0);
    free(text);
}

/* A tied model's table may have the head's name. */
static void table_by_the_heads_name(void)
{
    static const char *const names[] = {"llama3", "gpt2"};
    static const char *const tables[] = {"\"model.embed_tokens.weight\":",
                                         "\"transformer.wte.weight\":"};
    for (int i = 0; i < 2; i++) {
        struct fixture fixture;
        struct model_files *files = NULL;
        struct model *model = NULL;
        struct model_config config;
        char folder[600];
        char line[2400];
        fixture_open(&fixture, names[i]);
        snprintf(folder, sizeof folder, "%s/by head %s", test_directory(), names[i]);
        snprintf(line, sizeof line, "cp -r '%s' '%s' && chmod -R u+w '%s'", fixture.folder, folder,
                 folder);
        check_int(system(line), ==, 0);
        snprintf(line, sizeof line, "%s/model.safetensors", folder);
        rename_tensor(line, tables[i], "\"lm_head.weight\":");
        check_int(model_config_load(folder, &config), ==, 0);
        check_true(config.tied);
        check_int(model_create(&config, NULL, &model), ==, 0);
        check_int(model_files_open(folder, &files), ==, 0);
        test_listen(CORE_LOG_WARN);
        check_int(model_files_check(files, model), ==, 0);
        check_string(test_heard(), "");
        test_listen_end();
        const struct model_block *block = &model->blocks[0];
        float *expected = read_block(fixture.files, &fixture.model->blocks[0]);
        float *found = read_block(files, block);
        check_memory(found, expected, block->elements * sizeof *found);
        free(found);
        free(expected);
        model_destroy(model);
        config.tied = false;
        check_int(model_create(&config, NULL, &model), ==, 0);
        check_int(model_files_check(files, model), ==, -EINVAL);
        check_contains(core_err_message(), "has no tensor ");
        model_destroy(model);
        model_files_close(files);
        fixture_close(&fixture);
    }
}

/* Runs cover a block. Frozen parameters are found by pattern, and only as a whole. */
static void runs(void)
{
    struct fixture fixture;
    fixture_open(&fixture, "qwen2");
    for (unsigned b = 0; b < fixture.model->block_count; b++) {
        const struct block *block = &fixture.model->flat->list[b];
        uint64_t at = 0;
        for (size_t i = 0; i < block->run_count; i++) {
            check_uint(block->runs[i].end, >, at);
            at = block->runs[i].end;
        }
        check_uint(at, ==, block->elements);
        check_uint(at, ==, fixture.model->blocks[b].elements);
    }
    const struct block *layer = &fixture.model->flat->list[1];
    check_uint(layer->runs[0].group, ==, MODEL_GROUP_PLAIN); /* the norm comes first */
    check_uint(layer->runs[1].group, ==, MODEL_GROUP_DECAY);
    check_uint(layer->runs[0].end, ==, fixture.model->blocks[1].params[1].offset);
    struct model *model = NULL;
    static const char *const some[] = {"model.layers.1.*", "lm_head.weight"};
    struct model_options options = {.frozen = some, .frozen_count = 2};
    check_int(model_create(&fixture.config, &options, &model), ==, 0);
    check_true(model->blocks[1].trained && !model->blocks[2].trained && model->blocks[3].trained);
    check_uint(model->blocks[1].like, ==, 1);
    check_uint(model->blocks[2].like, ==, 2);
    check_true(!model->flat->list[2].trained);
    check_uint(model->trained_parameters, <, model->parameters);
    model_destroy(model);
    static const char *const none[] = {"model.layers.1.*", "model.layers.9.*"};
    options.frozen = none; /* something that should be frozen would be trained */
    check_int(model_create(&fixture.config, &options, &model), ==, -EINVAL);
    check_contains(core_err_message(),
                   "frozen (--freeze): pattern \"model.layers.9.*\" matches no tensor");
    check_contains(core_err_message(), "model.embed_tokens.weight");
    static const char *const half[] = {"*.q_proj.weight"};
    options = (struct model_options){.frozen = half, .frozen_count = 1};
    check_int(model_create(&fixture.config, &options, &model), ==, -EINVAL);
    check_contains(core_err_message(), "qkv of layer 0");
    check_string(model_role_name(MODEL_QKV), "qkv");
    fixture_close(&fixture);
}

TEST_MAIN({"places", places}, {"turned", turned}, {"ranges", ranges}, {"long_runs", long_runs},
          {"identities", identities}, {"writes", writes}, {"own_heads", own_heads},
          {"keeps", keeps}, {"bad_folders", bad_folders}, {"mismatches", mismatches},
          {"table_by_the_heads_name", table_by_the_heads_name}, {"runs", runs})
