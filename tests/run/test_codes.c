/* test_codes.c: runs with adapters on folders of bitsandbytes (tests/oracle/bnb_folders.py) have
 * the losses of runs on the dequantised weights. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/team.h"
#include "offload/model/adapter.h"
#include "offload/model/codes.h"
#include "offload/model/config_read.h"
#include "offload/model/stored.h"
#include "offload/run/prepare.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

enum { STEPS = 3 };

static const struct quantised {
    const char *name;
    enum kern_quant quant;
} folders[] = {{"llama_nested", KERN_QUANT_NF4},
               {"gpt2_nested", KERN_QUANT_NF4},
               {"gpt2_int8", KERN_QUANT_INT8},
               {"qwen3_nf4", KERN_QUANT_NF4_F32},
               {"qwen2_128", KERN_QUANT_NF4_F32}};

static const struct way {
    const char *name;
    enum plan_where weights;
    enum plan_acts acts;
    uint32_t world, stage;
    bool keeps;
} ways[] = {
    {"in DEVICE", PLAN_WHERE_DEVICE, PLAN_ACTS_KEEP, 1, 0, false},
    {"in HOST", PLAN_WHERE_HOST, PLAN_ACTS_RECOMPUTE, 1, 0, false},
    {"in STORE, kept", PLAN_WHERE_STORE, PLAN_ACTS_RECOMPUTE, 1, 0, true},
    {"in STORE, from the kept base", PLAN_WHERE_STORE, PLAN_ACTS_RECOMPUTE, 1, 0, true},
};

static struct run_options options_of(const struct way *way, const struct case_model *made)
{
    struct run_options options = case_options();
    options.base = model_stored_as(made->model->config.quant);
    options.micro_batches = 2;
    options.keep_base = way->keeps;
    options.wishes.weights = way->weights;
    options.wishes.acts = way->acts;
    options.world = way->world;
    options.stage = way->stage;
    case_store(&options, "threads");
    return options;
}

static void fixture_path(const char *name, const char *part, char path[600])
{
    snprintf(path, 600, "%s/run/bnb/%s%s", test_root(), name, part);
}

static int open_folder(struct case_model *made, const char *folder, bool dora)
{
    const struct model_lora_options lora = {.rank = 4, .alpha = 8, .dora = dora, .seed = 3};
    const struct model_options options = {.lora = &lora};
    struct model_config config;
    *made = (struct case_model){.rows = CASE_WHOLE};
    snprintf(made->folder, sizeof made->folder, "%s", folder);
    int rc = model_config_load(folder, &config);
    if (rc == 0) {
        check_int(model_create(&config, &options, &made->model), ==, 0);
        check_int(model_files_open(folder, &made->files), ==, 0);
        model_stored_set_base(made->files, made->model, model_stored_as(config.quant), KERN_BF16);
        rc = model_files_check(made->files, made->model);
    }
    return rc;
}

static void open_good(struct case_model *made, const char *folder, bool dora)
{
    if (open_folder(made, folder, dora) != 0) {
        test_fail(__FILE__, __LINE__, "%s: %s", folder, core_err_message());
    }
}

/* ---- the same bits ---- */

static void run_folder(const struct quantised *folder, bool dora)
{
    struct case_model made;
    struct case_outcome plain = {.steps = 0};
    char path[600];
    char what[160];
    fixture_path(folder->name, "/plain", path);
    open_good(&made, path, dora);
    struct run_options options = options_of(&ways[0], &made);
    case_run_plain(&made, &options, STEPS, &plain);
    case_model_free(&made);
    fixture_path(folder->name, "", path);
    open_good(&made, path, dora);
    check_int(made.model->config.quant, ==, folder->quant);
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        struct case_outcome outcome = {.steps = 0};
        options = options_of(&ways[w], &made);
        snprintf(what, sizeof what, "%s, %s%s", folder->name, dora ? "DoRA, " : "", ways[w].name);
        case_run_engine(&made, &options, STEPS, &outcome);
        case_check_losses(&plain, &outcome, what);
    }
    case_model_free(&made);
}

/* LoRA and DoRA on stored weights have the losses and norms of runs on the dequantised weights. */
static void runs_have_the_bits_of_dequantised_weights(void)
{
    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++) {
        run_folder(&folders[f], false);
        run_folder(&folders[f], true);
    }
}

/* ---- logits ---- */

static void *read_expected(const struct model_safetensors *file, const char *name, size_t *count)
{
    const struct model_tensor *tensor = model_safetensors_find(file, name);
    check_true(tensor != NULL);
    void *data = malloc(tensor->bytes);
    check_int(model_safetensors_read(file, tensor, 0, data, tensor->bytes), ==, 0);
    *count = tensor->bytes / sizeof(float);
    return data;
}

static void compare_logits(const struct quantised *folder)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct run_engine *engine = NULL;
    struct model_safetensors *file = NULL;
    char path[600];
    size_t length;
    size_t count;
    double difference = 0;
    double norm = 0;
    fixture_path(folder->name, "/expect.safetensors", path);
    check_int(model_safetensors_open(path, &file), ==, 0);
    int32_t *ids = read_expected(file, "ids", &length);
    float *theirs = read_expected(file, "logits", &count);
    fixture_path(folder->name, "", path);
    open_good(&made, path, false);
    struct run_options options = options_of(&ways[1], &made);
    options.type = KERN_F32;
    model_stored_set_base(made.files, made.model, options.base, options.type);
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    const struct run_engine_options given = {
        .prepared = prepared, .options = &options, .model = made.model, .files = made.files};
    check_int(run_engine_create(&given, &engine), ==, 0);
    float *ours = malloc(count * sizeof *ours);
    check_int(run_engine_logits(engine, ids, (int64_t)length, ours), ==, 0);
    for (size_t i = 0; i < count; i++) {
        const double d = (double)ours[i] - (double)theirs[i];
        difference += d * d;
        norm += (double)theirs[i] * (double)theirs[i];
    }
    test_note("%s: logits differ by %.2g", folder->name, sqrt(difference / norm));
    check_double(sqrt(difference / norm), <, 1e-5);
    check_true(run_engine_destroy(engine));
    run_prepared_destroy(prepared);
    model_safetensors_close(file);
    free(ids);
    free(theirs);
    free(ours);
    case_model_free(&made);
}

/* fp32 logits differ from those of transformers with bitsandbytes by less than 1e-5 (relative L2
 * norm). */
static void logits_are_those_of_transformers(void)
{
    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++) {
        compare_logits(&folders[f]);
    }
}

/* ---- bad input ---- */

static void copy_file(const char *from, const char *folder, const char *name)
{
    char path[900];
    char *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/%s", from, name);
    check_int(core_file_read_regular(path, 1 << 20, &text, &bytes), ==, 0);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    check_true(file != NULL);
    check_uint(fwrite(text, 1, bytes, file), ==, bytes);
    fclose(file);
    free(text);
}

struct change {
    const char *fixture;
    const char *old, *changed;
    const char *message; /* part of the error; make_changed() does not read it */
};

/* Copies a fixture and replaces `old` in its weights file by `changed`, which is as long. */
static void make_changed(const struct change *change, char folder[600])
{
    char from[600];
    char path[700];
    char *text = NULL;
    size_t bytes = 0;
    unsigned found = 0;
    const size_t length = strlen(change->old);
    fixture_path(change->fixture, "", from);
    snprintf(folder, 600, "%s/changed", test_directory());
    (void)mkdir(folder, 0700);
    copy_file(from, folder, "config.json");
    snprintf(path, sizeof path, "%s/model.safetensors", from);
    check_int(core_file_read_regular(path, 1 << 20, &text, &bytes), ==, 0);
    check_uint(strlen(change->changed), ==, length);
    for (size_t i = 0; i + length <= bytes; i++) {
        if (memcmp(text + i, change->old, length) == 0) {
            memcpy(text + i, change->changed, length);
            found++;
        }
    }
    check_uint(found, >, 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *file = fopen(path, "wb");
    check_true(file != NULL);
    check_uint(fwrite(text, 1, bytes, file), ==, bytes);
    fclose(file);
    free(text);
}

static void damaged_folders_are_refused(void)
{
    static const struct change changes[] = {
        {"llama_nested", ".weight.absmax\"", ".weight.absmix\"", "has no tensor absmax of the"},
        {"llama_nested", "nested_absmax\"", "nested_absmix\"", "has no tensor nested_absmax of"},
        {"llama_nested", "nested_quant_map\"", "nested_quant_mip\"",
         "has no tensor nested_quant_map of the quantised tensor"},
        {"llama_nested", "quant_state.bitsandbytes__nf4", "quant_state.bitsandbytes__fp4",
         "is quantised as fp4; only nf4 is supported"},
        {"llama_nested", "quant_state.bitsandbytes__nf4", "quant_state.bitsandbytes__nfx",
         "has no state (quant_state.bitsandbytes__nf4)"},
        {"llama_nested", "\"quant_type\": \"nf4\"", "\"quant_type\": \"fp4\"",
         "quant_type: \"fp4\" is not nf4"},
        {"llama_nested", "\"blocksize\": 64", "\"blocksize\": 32",
         "blocksize: expected a multiple of 64 up to 4096"},
        {"qwen3_nf4", "\"blocksize\": 64", "\"blocksize\":128", "has type F32 and"},
        {"llama_nested", "\"blocksize\": 64", "\"blocksized\":64", "blocksize"},
        {"llama_nested", "\"nested_blocksize\": 256", "\"nested_blocksize\": 000", ""},
        {"llama_nested", "\"nested_offset\": 0.0", "\"nested_offset\": nul", ""},
        {"llama_nested", "\"shape\": [40, 40]", "\"shape\": [40, 41]",
         "shape: config.json requires [40, 40]"},
        {"llama_nested", "\"shape\": [40, 40]", "\"shape\": [40, -4]", "config.json requires"},
        {"llama_nested", "\"shape\": [40, 40]", "\"shape\": [40,    ", "model.safetensors"},
        {"gpt2_int8", "c_attn.SCB\"", "c_attn.SCX\"", "has no tensor SCB of the quantised tensor"},
        {"gpt2_int8", "\"I8\"", "\"U8\"",
         "has type U8; tide reads F32, F16 and BF16, and codes of bitsandbytes only in layers"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct case_model made;
        char folder[600];
        make_changed(&changes[i], folder);
        if (open_folder(&made, folder, false) != -EINVAL ||
            strstr(core_err_message(), changes[i].message) == NULL) {
            test_fail(__FILE__, __LINE__, "%s for %s: \"%s\"", changes[i].changed,
                      changes[i].fixture, core_err_message());
        }
        case_model_free(&made);
    }
}

/* ---- numbers ---- */

static void write_tensor(const char *folder, const char *name, uint64_t at, const void *bytes,
                         size_t count)
{
    struct model_safetensors *file = NULL;
    char path[700];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    check_int(model_safetensors_open(path, &file), ==, 0);
    const struct model_tensor *tensor = model_safetensors_find(file, name);
    check_true(tensor != NULL);
    FILE *out = fopen(path, "r+b");
    check_true(out != NULL);
    check_int(fseek(out, (long)(tensor->offset_bytes + at), SEEK_SET), ==, 0);
    check_uint(fwrite(bytes, 1, count, out), ==, count);
    fclose(out);
    model_safetensors_close(file);
}

static void numbers_are_checked(void)
{
    static const float infinity = INFINITY;
    static const float half = 0.5f;
    static const uint8_t one = 1;
    static const struct {
        const char *fixture, *name;
        const void *bytes;
        size_t count;
        const char *message;
    } changes[] = {
        {"llama_nested", "model.layers.0.mlp.down_proj.weight.nested_absmax", &infinity, 4,
         "has scales that are not finite"},
        {"qwen3_nf4", "model.layers.1.self_attn.q_proj.weight.absmax", &infinity, 4,
         "has scales that are not finite"},
        {"qwen2_128", "model.layers.1.self_attn.q_proj.weight.nested_absmax", &infinity, 4,
         "has scales that are not finite"},
        {"gpt2_int8", "transformer.h.0.attn.c_attn.SCB", &infinity, 4,
         "has scales that are not finite"},
        {"qwen3_nf4", "model.layers.1.self_attn.q_proj.weight.quant_map", &half, 4,
         "has other values than those of nf4"},
        {"gpt2_int8", "transformer.h.0.attn.c_attn.weight_format", &one, 1,
         "c_attn.weight_format is 1; expected 0, int8 weights by rows"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct case_model made;
        struct case_outcome outcome = {.steps = 0};
        char folder[600];
        make_changed(&(struct change){changes[i].fixture, "weight", "weight", NULL}, folder);
        write_tensor(folder, changes[i].name, 0, changes[i].bytes, changes[i].count);
        int rc = open_folder(&made, folder, false);
        if (rc == 0) {
            const struct run_options options = options_of(&ways[1], &made);
            rc = case_try_engine(&made, &options, 1, &outcome);
        }
        check_int(rc, ==, -EINVAL);
        check_contains(core_err_message(), changes[i].message);
        case_model_free(&made);
    }
}

/* The identity of a base does not depend on ranks. A run does not resume on dequantised or
 * changed weights. */
static void ranks_resume_on_the_same_base(void)
{
    static const struct way parts = {"parts", PLAN_WHERE_STORE, PLAN_ACTS_RECOMPUTE, 2, 3, false};
    static const char *const changed[] = {"model.layers.1.self_attn.q_proj.weight",
                                          "model.layers.0.mlp.down_proj.weight.absmax",
                                          "model.layers.0.mlp.down_proj.weight.nested_absmax"};
    struct case_model made;
    struct case_outcome straight = {.steps = 0};
    struct case_outcome resumed = {.steps = 0};
    char path[600];
    char folder[700];
    struct store_shelf *shelf = case_shelf_open();
    const struct run_save_options save = {.shelf = shelf, .keep = 2};
    const struct case_part all = {.end = 4};
    const struct case_part first = {.end = 2, .save = &save, .save_after = 2};
    fixture_path("llama_nested", "", path);
    open_good(&made, path, true);
    struct run_options options = options_of(&parts, &made);
    options.wishes.saves = true;
    case_run_part(&made, &options, &all, &straight, "a run");
    case_run_part(&made, &options, &first, &resumed, "its beginning");
    const struct case_part second = {
        .first = 2,
        .end = 4,
        .resume = store_shelf_path(store_shelf_directory(shelf), 2, folder, sizeof folder)};
    case_run_part(&made, &options, &second, &resumed, "its end");
    check_double(straight.loss[3], ==, resumed.loss[3]);
    options.world = 1;
    options.stage = 0;
    case_run_part(&made, &options, &second, &resumed, "its end, with one rank");
    case_model_free(&made);
    fixture_path("llama_nested", "/plain", path);
    open_good(&made, path, true);
    options.base = MODEL_STORAGE_PLAIN;
    check_int(case_try_part(&made, &options, &second, &resumed), ==, -EINVAL);
    check_contains(core_err_message(), "belongs to another base model");
    case_model_free(&made);
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++) {
        static const uint8_t other = 0x5a; /* differs from the byte in the file */
        make_changed(&(struct change){"llama_nested", "weight", "weight", NULL}, path);
        write_tensor(path, changed[i], 3, &other, 1);
        open_good(&made, path, true);
        options.base = model_stored_as(made.model->config.quant);
        check_int(case_try_part(&made, &options, &second, &resumed), ==, -EINVAL);
        check_contains(core_err_message(), "belongs to another base model");
        case_model_free(&made);
    }
    store_shelf_close(shelf);
}

static const char scales_name[] = "model.layers.0.self_attn.q_proj.weight.absmax";

static bool has_code(const char *folder, int code)
{
    struct model_safetensors *file = NULL;
    char path[700];
    uint8_t codes[64];
    bool has = false;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    check_int(model_safetensors_open(path, &file), ==, 0);
    const struct model_tensor *tensor = model_safetensors_find(file, scales_name);
    check_uint(tensor->bytes, <=, sizeof codes);
    check_int(model_safetensors_read(file, tensor, 0, codes, tensor->bytes), ==, 0);
    for (uint64_t i = 0; i < tensor->bytes; i++) {
        has = has || codes[i] == code;
    }
    model_safetensors_close(file);
    return has;
}

/* Scales with another map are kept in fp32, and the log says so. */
static void other_maps_are_read(void)
{
    static const char name[] = "model.layers.0.self_attn.q_proj.weight.nested_quant_map";
    struct case_model made;
    struct case_outcome outcomes[3];
    char folder[600];
    char fixture[600];
    char path[700];
    float map[256];
    fixture_path("llama_nested", "", fixture);
    open_good(&made, fixture, false);
    struct run_options options = options_of(&ways[1], &made);
    case_run_engine(&made, &options, STEPS, &outcomes[0]);
    case_model_free(&made);
    make_changed(&(struct change){"llama_nested", "weight", "weight", NULL}, folder);
    for (int i = 0; i < 2; i++) {
        struct model_safetensors *file = NULL;
        snprintf(path, sizeof path, "%s/model.safetensors", folder);
        check_int(model_safetensors_open(path, &file), ==, 0);
        check_int(
            model_safetensors_read(file, model_safetensors_find(file, name), 0, map, sizeof map),
            ==, 0);
        model_safetensors_close(file);
        /* first the codes that the tensor does not use, then all codes */
        for (int k = 0; k < 256; k++) {
            map[k] *= i == 1 || !has_code(folder, k) ? 1.5f : 1.0f;
        }
        write_tensor(folder, name, 0, map, sizeof map);
        test_listen(CORE_LOG_INFO);
        open_good(&made, folder, false);
        test_listen_end();
        check_uint(test_heard_lines("the codes of the scales are not those that tide stores"), ==,
                   1);
        check_int(made.model->config.quant, ==, KERN_QUANT_NF4_F32);
        options = options_of(&ways[1], &made);
        case_run_engine(&made, &options, STEPS, &outcomes[1 + i]);
        case_model_free(&made);
    }
    case_check_losses(&outcomes[0], &outcomes[1], "fp32 scales");
    check_true(outcomes[0].loss[0] != outcomes[2].loss[0]);
}

static uint64_t identity_of_stored(const struct case_model *made, unsigned threads)
{
    const struct model *model = made->model;
    struct model_sums *sums = NULL;
    struct core_team *team = NULL;
    check_int(core_team_create(&(struct core_team_options){.count = threads}, &team), ==, 0);
    check_int(model_sums_create(model, &sums), ==, 0);
    for (unsigned b = 0; b < model->block_count; b++) {
        struct model_stored *stored = NULL;
        struct model_stored_reader *reader = NULL;
        check_int(
            model_stored_create(model, &model->blocks[b], MODEL_STORAGE_INT8, KERN_BF16, &stored),
            ==, 0);
        if (stored != NULL) {
            const struct model_stored_source source = {.files = made->files,
                                                       .block = &model->blocks[b],
                                                       .stored = stored,
                                                       .team = team,
                                                       .sums = sums};
            check_int(model_stored_open(&source, &reader), ==, 0);
            check_int(model_stored_read(reader, NULL, stored->bytes), ==, 0);
            model_stored_close(reader);
            model_stored_destroy(stored);
        }
    }
    const uint64_t identity = model_sums_identity(sums, made->files);
    model_sums_destroy(sums);
    core_team_destroy(team);
    return identity;
}

/* Modules that bitsandbytes left unquantised have the identity of a plain folder. */
static void whole_modules_have_one_identity(void)
{
    static const char *const frozen[] = {"*"};
    const struct model_options options = {.frozen = frozen, .frozen_count = 1};
    struct case_model made = {.rows = CASE_WHOLE};
    struct model_config config;
    uint64_t seen[2];
    char folder[600];
    fixture_path("llama_nested", "/plain", folder);
    check_int(model_config_load(folder, &config), ==, 0);
    for (int given = 0; given < 2; given++) {
        config.quant = given ? KERN_QUANT_INT8 : KERN_QUANT_NONE;
        memset(config.whole, 0xff, sizeof config.whole);
        check_int(model_create(&config, &options, &made.model), ==, 0);
        check_int(model_files_open(folder, &made.files), ==, 0);
        model_stored_set_base(made.files, made.model, MODEL_STORAGE_INT8, KERN_BF16);
        check_int(model_files_check(made.files, made.model), ==, 0);
        seen[given] = identity_of_stored(&made, 1);
        check_uint(identity_of_stored(&made, 3), ==, seen[given]);
        model_files_close(made.files);
        model_destroy(made.model);
    }
    check_uint(seen[1], ==, seen[0]);
}

TEST_MAIN({"runs_have_the_bits_of_dequantised_weights", runs_have_the_bits_of_dequantised_weights},
          {"ranks_resume_on_the_same_base", ranks_resume_on_the_same_base},
          {"logits_are_those_of_transformers", logits_are_those_of_transformers},
          {"damaged_folders_are_refused", damaged_folders_are_refused},
          {"numbers_are_checked", numbers_are_checked},
          {"other_maps_are_read", other_maps_are_read},
          {"whole_modules_have_one_identity", whole_modules_have_one_identity})
