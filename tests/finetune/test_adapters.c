/* Tests `tide finetune --adapter` with the real engine and a tiny Llama. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/json/json.h"
#include "tests/finetune/rig.h"
#include "tests/harness/test.h"

static char *read_file(const char *path, size_t *bytes)
{
    char *text = NULL;
    check_int(core_file_read(path, 1 << 22, &text, bytes), ==, 0);
    return text;
}

static size_t entries_like(const char *begin)
{
    size_t count = 0;
    DIR *folder = opendir(test_directory());
    check_true(folder != NULL);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        count += strncmp(entry->d_name, begin, strlen(begin)) == 0;
    }
    closedir(folder);
    return count;
}

#define LORA                                                                                       \
    "--lora 4 --lora-alpha 6 --lora-dropout 0.25 --lora-targets q_proj,v_proj "                    \
    "--modules-to-save lm_head "

/* A run that continues from a PEFT folder begins with the fp32 masters of that folder. */
static void continued(void)
{
    rig_train_begin();
    expect(0, TRAIN_SMALL LORA "--steps 2 --out %T/one -q");
    expect(0, TRAIN_SMALL "--adapter %T/one --lr 0 --steps 1 --out %T/same -q");
    rig_same_adapter("one", "same");
    check_contains(rig_read("one/adapter_config.json"), "\"tide_base\": \"");
    expect(0, TRAIN_SMALL "--adapter %T/one --steps 3 --out %T/memory -q");
    expect(0, TRAIN_SMALL "--adapter %T/one --steps 3 --out %T/drive -q --store %T/store "
                          "--place weights=store,states=store,acts=recompute");
    rig_same_adapter("memory", "drive");
    expect(0, TRAIN_SMALL "--adapter %T/one --steps 2 --save-every 1 --out %T/parts -q");
    expect(0, TRAIN_SMALL "--adapter %T/one --steps 3 --save-every 1 --out %T/parts -q --resume");
    rig_same_adapter("memory", "parts");
    expect(2,
           TRAIN_SMALL "--lora 8 --lora-targets q_proj,v_proj --modules-to-save lm_head --steps 4 "
                       "--out %T/parts -q --resume");
    check_contains(rig_err, "other adapters (--lora, --lora-targets, --lora-dora)");
    expect(2, TRAIN_SMALL "--lora 8 --lora-targets nope --out %T/nope");
    check_contains(rig_err,
                   "\"tide inspect --tensors\" with the folder of --model lists all names");
    rig_end();
}

/* The files of an adapter do not depend on the stage of ZeRO. */
static void ranks(void)
{
    rig_train_begin();
    expect(0, TRAIN_SMALL LORA "--ranks 2 --steps 3 --out %T/zero-0 -q");
    for (int stage = TEST_SLOW ? 3 : 1; stage <= 3; stage++) {
        char words[300];
        char name[16];
        snprintf(name, sizeof name, "zero-%d", stage);
        snprintf(words, sizeof words, "%s%s%d%s%s", TRAIN_SMALL LORA,
                 "--ranks 2 --steps 3 -q --zero ", stage, " --out %T/", name);
        expect(0, words);
        rig_same_adapter("zero-0", name);
    }
    rig_end();
}

/* Returns whether vLLM can adapt modules with this name. */
static bool is_vllm_module(const char *name, size_t length)
{
    static const char *const modules[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                          "gate_proj", "up_proj", "down_proj"};
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        if (strlen(modules[i]) == length && strncmp(modules[i], name, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Returns what is wrong with a tensor of an adapter; NULL: nothing. */
static const char *vllm_tensor(const struct core_json_member *tensor, int64_t rank)
{
    static const char prefix[] = "base_model.model.";
    const char *name = tensor->key;
    const char *a = strstr(name, ".lora_A.weight");
    const char *b = strstr(name, ".lora_B.weight");
    const char *end = a != NULL ? a : b;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0 || end == NULL ||
        strlen(end) != sizeof ".lora_A.weight" - 1) {
        return "tensor name";
    }
    const char *last = end;
    while (last[-1] != '.') {
        last--;
    }
    const struct core_json_value *shape = core_json_find(tensor->value, "shape");
    const struct core_json_value *ranks = core_json_at(shape, a != NULL ? 0 : 1);
    return !is_vllm_module(last, (size_t)(end - last))                       ? "module"
           : core_json_count(shape) != 2 || core_json_integer(ranks) != rank ? "shape"
                                                                             : NULL;
}

/* Returns the rule of vLLM 0.26 that a PEFT folder breaks; NULL: none. See its config/lora.py,
 * lora/peft_helper.py and lora/lora_model.py. */
static const char *vllm_refuses(const char *folder, int64_t rank_max)
{
    char path[200];
    struct core_json *config = NULL;
    struct core_json *tensors = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    check_int(core_json_load(rig_path(path), NULL, &config), ==, 0);
    const struct core_json_value *root = core_json_root(config);
    const int64_t rank = core_json_integer(core_json_find(root, "r"));
    const struct core_json_value *targets = core_json_find(root, "target_modules");
    const struct core_json_value *saved = core_json_find(root, "modules_to_save");
    const char *broken = rank < 1                                                    ? "r"
                         : rank > rank_max                                           ? "rank"
                         : !(core_json_real(core_json_find(root, "lora_alpha")) > 0) ? "lora_alpha"
                         : core_json_count(targets) == 0 ? "target_modules"
                         : strcmp(core_json_string(core_json_find(root, "bias"), &bytes), "none") !=
                                 0
                             ? "bias"
                         : core_json_kind(saved) != CORE_JSON_NULL          ? "modules_to_save"
                         : core_json_bool(core_json_find(root, "use_dora")) ? "use_dora"
                                                                            : NULL;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    char *file = read_file(rig_path(path), &bytes);
    uint64_t header;
    memcpy(&header, file, sizeof header);
    check_int(core_json_parse(file + sizeof header, header, path, NULL, &tensors), ==, 0);
    struct core_json_member tensor;
    bool more = core_json_first(core_json_root(tensors), &tensor);
    for (; broken == NULL && more; more = core_json_next(&tensor)) {
        if (strcmp(tensor.key, "__metadata__") != 0) {
            broken = vllm_tensor(&tensor, rank);
        }
    }
    core_json_destroy(tensors);
    core_json_destroy(config);
    free(file);
    return broken;
}

/* vLLM can load what a run writes, except with options that docs/adapters.md names. */
static void for_vllm(void)
{
    static const struct {
        const char *flags;
        const char *breaks;
    } cases[] = {
        {"--lora 4", NULL},
        {"--lora 16 --lora-rslora --lora-dropout 0.1 --lora-targets q_proj,v_proj", NULL},
        {"--lora 2 --lora-targets down_proj --lora-dora", "use_dora"},
        {"--lora 2 --lora-targets o_proj --modules-to-save lm_head", "modules_to_save"},
    };
    rig_train_begin();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[300];
        snprintf(words, sizeof words, "%s%s%s", TRAIN_SMALL,
                 "--steps 1 --out %T/served --overwrite -q ", cases[i].flags);
        expect(0, words);
        const char *broken = vllm_refuses("served", 16);
        check_true((broken == NULL) == (cases[i].breaks == NULL));
        check_true(broken == NULL || strcmp(broken, cases[i].breaks) == 0);
    }
    expect(0, TRAIN_SMALL "--steps 1 --out %T/served --overwrite -q --lora 9");
    check_true(vllm_refuses("served", 16) == NULL);
    check_true(strcmp(vllm_refuses("served", 8), "rank") == 0);
    rig_end();
}

/* A checkpoint of an adapter is exported as a PEFT folder, or merged into its base. */
static void exported(void)
{
    static const char *const precisions[] = {"bf16", "fp16", "fp32"};
    rig_train_begin();
    for (size_t i = 0; i < 3; i += TEST_SLOW ? 3 : 1) {
        char words[400];
        snprintf(words, sizeof words, "%s%s%s%s", TRAIN_SMALL LORA,
                 "--steps 2 --save-every 2 --out %T/run --overwrite -q --lora-rslora --precision ",
                 precisions[i], " --optimizer lion");
        expect(0, words);
        expect(0, "export %T/run/checkpoint-2 --out %T/peft --overwrite");
        rig_same_file("run", "peft", "adapter_model.safetensors");
    }
    const char *config = rig_read("peft/adapter_config.json");
    check_contains(config, "\"base_model_name_or_path\": null");
    check_contains(config, "\"tide_base\": \"");
    check_contains(config, "\"lora_alpha\": 6.0");
    check_contains(config, "\"use_rslora\": true");
    check_contains(config, "\"lm_head\"");
    expect(0, TRAIN_SMALL "--adapter %T/peft --steps 1 --out %T/longer -q");
    expect(0, "export --merge %M %T/run --out %T/merged");
    expect(0, "export --merge %M %T/run/checkpoint-2 --out %T/at-once");
    rig_same_model("merged", "at-once");
    check_uint(entries_like("at-once.adapter-"), ==, 0);
    expect(2, "export --merge %T/run %T/run/checkpoint-2 --out %T/never");
    expect(2, "export %T/peft --out %T/never");
    check_contains(rig_err, "peft is not a checkpoint: it has no manifest.json; name a folder");
    check_contains(rig_err, "(tide export --merge BASE ADAPTER)");
    expect(2, "export %T/none --out %T/never");
    check_contains(rig_err, "the checkpoint ");
    expect(2, "plan --model %T/peft");
    check_contains(rig_err, "peft is an adapter; give the folder of its base model, and --adapter");
    check_uint(entries_like("never"), ==, 0);
    rig_end();
}

/* Flags that contradict the folder are refused with a message that names the flag and the file. */
static void contradicted(void)
{
    static const struct {
        const char *flags;
        const char *says[2];
    } odd[] = {
        {"--lora 8", {"lora_rank 8 (--lora) contradicts \"r\": 4 in ", "one/adapter_config.json"}},
        {"--lora-alpha 8",
         {"lora_alpha 8 (--lora-alpha) contradicts \"lora_alpha\": 6", "one/adapter"}},
        {"--lora-rslora", {"(--lora-rslora) contradicts \"use_rslora\": false", "one/adapter"}},
        {"--lora-dora", {"(--lora-dora) contradicts \"use_dora\": false", "one/adapter"}},
        {"--lora-targets q_proj",
         {"v_proj.weight, which lora_targets (--lora-targets) does not name", "one"}},
        {"--lora-targets all-linear",
         {"(--lora-targets) names model.layers.0.self_attn.k_proj", "one"}},
        {"--modules-to-save model.norm", {"(--modules-to-save) names model.norm.weight", "one"}},
        {"--freeze a", {"--adapter and --freeze exclude each other", ""}},
        {"--adapter %T/none", {"none/adapter_config.json", "No such file"}},
    };
    rig_train_begin();
    expect(0, TRAIN_SMALL LORA "--steps 1 --out %T/one -q --overwrite");
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i += TEST_SLOW ? 3 : 1) {
        char words[300];
        snprintf(words, sizeof words, "%s%s%s", TRAIN_SMALL,
                 "--steps 1 --out %T/never --adapter %T/one ", odd[i].flags);
        check_int(rig_run(NULL, words), !=, 0);
        check_contains(rig_err, odd[i].says[0]);
        check_contains(rig_err, odd[i].says[1]);
        check_true(!rig_has("never"));
    }
    /* Another program may have written an invalid dropout. */
    check_int(mkdir(rig_path("mad"), 0700), ==, 0);
    const char *config = rig_read("one/adapter_config.json");
    const char *rate = strstr(config, "\"lora_dropout\": ");
    check_true(rate != NULL);
    char changed[4096];
    const int length = snprintf(changed, sizeof changed, "%.*s\"lora_dropout\": 1.5%s",
                                (int)(rate - config), config, rate + strcspn(rate, ",}\n"));
    test_file("mad/adapter_config.json", changed, (size_t)length);
    check_int(
        link(rig_path("one/adapter_model.safetensors"), rig_path("mad/adapter_model.safetensors")),
        ==, 0);
    expect(2, "plan --model %M --rates %T/rates.json --adapter %T/mad");
    check_contains(rig_err, "mad/adapter_config.json");
    check_contains(rig_err, "lora_dropout: found 1.5; expected 0 to 0.999");
    expect(4, "inspect %T/mad");
    config = rig_read("one/adapter_config.json");
    const char *alpha = strstr(config, "\"lora_alpha\": ");
    check_true(alpha != NULL);
    const int all = snprintf(changed, sizeof changed, "%.*s\"lora_alpha\": 0%s",
                             (int)(alpha - config), config, alpha + strcspn(alpha, ",}\n"));
    test_file("mad/adapter_config.json", changed, (size_t)all);
    expect(2, "plan --model %M --rates %T/rates.json --adapter %T/mad");
    check_contains(rig_err, "mad/adapter_config.json: lora_alpha is 0: ");
    expect(2, "plan --model %M --rates %T/rates.json --adapter %T/one --lora 8");
    check_contains(rig_err, "lora_rank 8 (--lora) contradicts");
    expect(0, "plan --model %M --rates %T/rates.json --adapter %T/one --lora 4 --lora-alpha 6 "
              "--lora-targets q_proj,v_proj --modules-to-save lm_head");
    check_contains(rig_out, "3.2K of them trained");
    rig_end();
}

static void copy_file(const char *from, const char *name, const char *to)
{
    char path[700];
    char *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/model/fixtures/llama/%s", from, name);
    text = read_file(path, &bytes);
    test_file(to, text, bytes);
    free(text);
}

/* An adapter of another base is refused. */
static void of_another_base(void)
{
    size_t bytes;
    rig_train_begin();
    mkdir(rig_path("base"), 0700);
    copy_file(test_root(), "config.json", "base/config.json");
    copy_file(test_root(), "model.safetensors", "base/model.safetensors");
    char *weights = read_file(rig_path("base/model.safetensors"), &bytes);
    weights[bytes - 1] ^= 1;
    test_file("base/model.safetensors", weights, bytes);
    free(weights);
    expect(0, TRAIN_SMALL "--lora 2 --steps 1 --out %T/mine -q");
    check_int(
        rig_run(NULL, TRAIN_SMALL "--model %T/base --adapter %T/mine --steps 1 --out %T/never"), !=,
        0);
    check_contains(rig_err, "mine is an adapter of another base model: its base is ");
    const char *config = rig_read("mine/adapter_config.json");
    char hash[17];
    snprintf(hash, sizeof hash, "%.16s", strstr(config, "\"tide_base\": \"") + 14);
    check_contains(rig_err, hash);
    check_contains(rig_err, ", this one is ");
    check_true(!rig_has("never"));
    expect(2, "export --merge %T/base %T/mine --out %T/never");
    check_contains(rig_err, hash);
    check_true(!rig_has("never"));
    expect(0, "export --merge %M %T/mine --out %T/with_mine");
    expect(0, TRAIN_SMALL "--model %T/base --lora 2 --steps 1 --out %T/theirs -q");
    expect(0, TRAIN_SMALL "--model %T/base --adapter %T/theirs --steps 1 --out %T/more -q");
    expect(2, "plan --model %M/../gpt2 --adapter %T/mine --rates %T/rates.json");
    check_contains(rig_err, "mine does not fit ");
    rig_end();
}

/* The configuration of an adapter in a model's folder is not copied: transformers would load an
 * adapter from the new folder. */
static void beside_an_old_configuration(void)
{
    static const char old[] = "{\"peft_type\": \"LORA\", \"r\": 77}";
    rig_train_begin();
    mkdir(rig_path("base"), 0700);
    copy_file(test_root(), "config.json", "base/config.json");
    copy_file(test_root(), "model.safetensors", "base/model.safetensors");
    test_file("base/adapter_config.json", old, strlen(old));
    test_file("base/notes.txt", old, strlen(old));
    expect(0, TRAIN_SMALL "--model %T/base --lora 2 --steps 1 --out %T/adapter -q");
    check_contains(rig_read("adapter/adapter_config.json"), "\"r\": 2");
    expect(0, TRAIN_SMALL "--model %T/base --steps 1 --out %T/whole -q");
    check_true(rig_has("whole/notes.txt"));
    check_true(!rig_has("whole/adapter_config.json"));
    rig_end();
}

/* Magnitudes of DoRA are written, continued and exported. */
static void with_magnitudes(void)
{
    rig_train_begin();
    expect(0, TRAIN_SMALL "--lora 2 --lora-dora --lora-targets q_proj,down_proj --steps 2 "
                          "--save-every 2 --out %T/dora -q --base nf4");
    check_contains(rig_read("dora/adapter_config.json"), "\"use_dora\": true");
    expect(0, "inspect %T/dora");
    check_contains(rig_out, ": adapter\n  DoRA of rank 2, alpha 4: 4 tensors adapted\n");
    expect(0, "inspect --json %T/dora");
    check_contains(rig_out, "\"what\": \"adapter\"");
    check_contains(rig_out,
                   "\"rank\": 2,\n  \"alpha\": 4.0,\n  \"rslora\": false,\n  \"dora\": true,\n"
                   "  \"adapted\": 4,\n  \"saved\": 0\n}");
    /* A finished run reports another form of its base, too. */
    expect(0, TRAIN_SMALL "--lora 2 --lora-dora --lora-targets q_proj,down_proj --steps 2 "
                          "--resume --out %T/dora --base int8");
    check_contains(rig_err, "base was nf4 before this run was resumed and is int8 now: ");
    check_contains(rig_out, "/dora: 2 steps, left as it was");
    expect(0, TRAIN_SMALL "--adapter %T/dora --lr 0 --steps 1 --out %T/dora-same -q --base nf4");
    rig_same_adapter("dora", "dora-same");
    expect(0, "export %T/dora/checkpoint-2 --out %T/dora-peft");
    rig_same_file("dora", "dora-peft", "adapter_model.safetensors");
    expect(0, TRAIN_SMALL "--adapter %T/dora --lora-dropout 0.1 --steps 1 --out %T/dora-drops -q");
    check_contains(rig_read("dora-drops/adapter_config.json"), "\"lora_dropout\": 0.1");
    rig_end();
}

/* A checkpoint of trained weights on a quantised base cannot be exported; the resumed run saves the
 * model. */
static void trained_weights_alone(void)
{
    static const char message[] =
        "alone/checkpoint-1 cannot be exported: the checkpoint has only trained weights";
    rig_train_begin();
#define ALONE TRAIN_SMALL "--base nf4 --freeze *layers* -q --out %T/alone "
    expect(0, ALONE "--steps 1 --save-every 1");
    expect(2, "export %T/alone/checkpoint-1 --out %T/none");
    check_contains(rig_err, message);
    check_true(strstr(strstr(rig_err, "cannot be exported") + 1, "cannot be exported") == NULL);
    check_contains(rig_err, "; resume the run to save it");
    check_true(!rig_has("none"));
    rig_remove("alone/model.safetensors");
    expect(0, ALONE "--steps 1 --resume");
    check_true(rig_has("alone/model.safetensors"));
#undef ALONE
    rig_end();
}

/* A folder that AWQ quantised is refused; the message tells which model to give. */
static void quantised(void)
{
    static const char *const commands[] = {
        TRAIN_SMALL "--model %T/awq --lora 2 --base nf4 --steps 1 --out %T/never",
        "plan --model %T/awq --lora 2 --rates %T/rates.json",
        "export --merge %T/awq %T/small --out %T/never",
    };
    char text[4096];
    rig_train_begin();
    expect(0, TRAIN_SMALL "--lora 2 --steps 1 --out %T/small -q");
    mkdir(rig_path("awq"), 0700);
    copy_file(test_root(), "model.safetensors", "awq/model.safetensors");
    copy_file(test_root(), "config.json", "awq/config.json");
    snprintf(text, sizeof text, "{\"quantization_config\": {\"quant_method\": \"awq\"}, %s",
             strchr(rig_read("awq/config.json"), '{') + 1);
    test_file("awq/config.json", text, strlen(text));
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        expect(2, commands[i]);
        check_contains(rig_err, "quantised by \"awq\", which tide does not read; give the model");
        check_true(!rig_has("never"));
    }
    expect(4, "inspect %T/awq");
    check_contains(rig_out, "WRONG: ");
    check_contains(rig_out, "quantised by \"awq\"");
    rig_end();
}

/* A folder that bitsandbytes quantised can be the base. */
static void of_bitsandbytes(void)
{
#define FOLDER "%M/../../../run/bnb/llama_nested "
#define BNB    TRAIN_SMALL "--model " FOLDER
    rig_train_begin();
    expect(0, "inspect " FOLDER);
    check_contains(rig_out, ", nf4+bfloat16\n");
    check_contains(rig_out, "verified");
    check_true(strstr(rig_out, "not part of the model") == NULL);
    expect(0, "plan --model " FOLDER "--lora 2 --batch 1 --seq-len 8 --rates %T/rates.json");
    expect(0, BNB "--lora 2 --steps 2 --save-every 1 --out %T/bnb -q");
    expect(0, BNB
           "--lora 2 --base nf4 --steps 2 --out %T/bnb-same -q --store %T/bnb-store --make-store "
           "--place weights=store -v");
    rig_same_adapter("bnb", "bnb-same");
    expect(0, BNB "--lora 2 --steps 3 --save-every 1 --out %T/bnb -q --resume");
    expect(0, BNB "--adapter %T/bnb --steps 1 --out %T/bnb-on -q");
    expect(0, "export %T/bnb/checkpoint-3 --out %T/bnb-peft");
    rig_same_file("bnb", "bnb-peft", "adapter_model.safetensors");
    expect(2, BNB "--lora 2 --base int8 --steps 1 --out %T/never");
    check_contains(rig_err, "base int8 (--base): the weights of ");
    check_contains(rig_err, " are quantised to nf4 already; leave it out");
    expect(2, BNB "--steps 1 --out %T/never");
    check_contains(rig_err, " are quantised (nf4), and such weights cannot be trained: train ");
    expect(2,
           BNB "--lora 2 --lora-targets q_proj --modules-to-save o_proj --steps 1 --out %T/never");
    check_contains(rig_err, "(--modules-to-save) matches model.layers.0.self_attn.o_proj.weight, "
                            "which is quantised in ");
    expect(2, "export --merge " FOLDER "%T/bnb --out %T/never");
    check_contains(rig_err, "an adapter is merged into the model that they were made from");
    check_true(!rig_has("never"));
    rig_end();
#undef FOLDER
#undef BNB
}

/* A base in 4 bits is kept beside the store for the next run, unless a flag forbids that. */
static void kept_base(void)
{
#define KEPT_PLAN                                                                                  \
    "plan --model %M --batch 1 --seq-len 8 --rates %T/rates.json --lora 2 --base nf4 "             \
    "--store %T/store --place weights=store "
    static const char line[] = TRAIN_SMALL "--lora 2 --base nf4 --steps 1 --store %T/store "
                                           "--place weights=store --overwrite -v ";
    char words[400];
    char inspect[400] = "";
    char inspect_json[420];
    rig_train_begin();
    snprintf(words, sizeof words, "%s--out %%T/without --no-keep-base", line);
    expect(0, words);
    check_true(strstr(rig_err, "tide-base-") == NULL);
    expect(0, KEPT_PLAN);
    check_contains(rig_out, " GB beside the first store, which the first run writes");
    expect(0, KEPT_PLAN "--no-keep-base --json");
    check_contains(rig_out, "\"kept_base\": {\n    \"bytes\": 0,");
    snprintf(words, sizeof words, "%s--out %%T/first", line);
    expect(0, words);
    check_contains(rig_err, "kept the nf4 base in ");
    const char *path = strstr(rig_err, "kept the nf4 base in ") + strlen("kept the nf4 base in ");
    snprintf(inspect, sizeof inspect, "inspect %.*s", (int)strcspn(path, " "), path);
    snprintf(words, sizeof words, "%s--out %%T/second", line);
    expect(0, words);
    check_contains(rig_err, "the nf4 base is read from ");
    expect(0, KEPT_PLAN);
    check_contains(rig_out,
                   " GB beside the first store, kept by an earlier run and read from there");
    rig_same_adapter("without", "first");
    rig_same_adapter("without", "second");
    expect(0, inspect);
    check_contains(rig_out, ": base of adapters, kept by a run for later ones\n  nf4+bf16, ");
    check_contains(rig_out, "fixtures/llama\n");
    check_contains(rig_out, "verified: every byte");
    snprintf(inspect_json, sizeof inspect_json, "%s --json", inspect);
    expect(0, inspect_json);
    check_contains(rig_out, "\"what\": \"base\"");
    check_contains(rig_out, "\"precision\": \"nf4+bf16\"\n}");
    expect(0, "inspect %T/store");
    check_contains(rig_out, ": store that no run uses, with 1 kept base\n");
    rig_end();
}

TEST_MAIN({"continued", continued}, {"beside_an_old_configuration", beside_an_old_configuration},
          {"with_magnitudes", with_magnitudes}, {"trained_weights_alone", trained_weights_alone},
          {"ranks", ranks}, {"quantised", quantised}, {"of_bitsandbytes", of_bitsandbytes},
          {"kept_base", kept_base}, {"for_vllm", for_vllm}, {"exported", exported},
          {"contradicted", contradicted}, {"of_another_base", of_another_base})
