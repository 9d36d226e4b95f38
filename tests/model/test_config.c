/* test_config.c: the meaning of a config.json, and refusals. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "offload/model/config_read.h"
#include "offload/model/family.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"
#include "tests/model/fixture.h"

static int parse(const char *text, struct model_config *out)
{
    struct core_json *doc = NULL;
    int rc = core_json_parse(text, strlen(text), "config.json", NULL, &doc);
    rc = rc != 0 ? rc : model_config_parse(doc, out);
    core_json_destroy(doc);
    return rc;
}

#define BNB ",\"quantization_config\":{\"quant_method\":\"bitsandbytes\","
#define NF4 "\"load_in_4bit\":true,\"bnb_4bit_quant_type\":\"nf4\""
#define LLAMA                                                                                      \
    "\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":2,"       \
    "\"num_attention_heads\":4,\"intermediate_size\":48"
#define MISTRAL                                                                                    \
    "\"model_type\":\"mistral\",\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":2,"     \
    "\"num_attention_heads\":8,\"intermediate_size\":48"
#define QWEN3                                                                                      \
    "\"model_type\":\"qwen3\",\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":3,"       \
    "\"num_attention_heads\":32,\"intermediate_size\":48"

/* Missing keys have transformers' defaults. */
static void defaults(void)
{
    struct model_config c;
    check_int(parse("{" LLAMA "}", &c), ==, 0);
    check_string(c.family->name, "llama");
    check_int(c.kv_heads, ==, 4);
    check_int(c.head_dim, ==, 8);
    check_int(c.positions, ==, 2048);
    check_true(!c.tied && !c.qkv_bias && !c.mlp_bias);
    check_double(c.rope.theta, ==, 10000.0);
    check_int(c.rope.kind, ==, KERN_ROPE_DEFAULT);
    check_int(c.dtype, ==, MODEL_OTHER);
    check_int(parse("{" MISTRAL "}", &c), ==, 0);
    check_int(c.kv_heads, ==, 8);
    check_int(model_config_window(&c, 1), ==, 4096);
    check_int(parse("{" MISTRAL ",\"sliding_window\":null}", &c), ==, 0);
    check_int(model_config_window(&c, 1), ==, 0);
    check_int(parse("{" QWEN3 "}", &c), ==, 0);
    check_int(c.head_dim, ==, 128);
    check_int(model_config_window(&c, 2), ==, 0);
    check_int(parse("{" QWEN3 ",\"num_key_value_heads\":null}", &c), ==, 0);
    check_int(c.kv_heads, ==, 32);
}

static void default_sizes(void)
{
    const struct {
        const char *family;
        int64_t vocab, hidden, layers, heads, kv_heads, head_dim, inner, positions;
    } cases[] = {
        {"gpt2", 50257, 768, 12, 12, 12, 64, 3072, 1024},
        {"llama", 32000, 4096, 32, 32, 32, 128, 11008, 2048},
        {"mistral", 32000, 4096, 32, 32, 8, 128, 14336, 131072},
        {"qwen2", 151936, 4096, 32, 32, 32, 128, 22016, 32768},
        {"qwen3", 151936, 4096, 32, 32, 32, 128, 22016, 32768},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config c;
        char text[64];
        snprintf(text, sizeof text, "{\"model_type\":\"%s\"}", cases[i].family);
        check_int(parse(text, &c), ==, 0);
        check_int(c.vocab, ==, cases[i].vocab);
        check_int(c.hidden, ==, cases[i].hidden);
        check_int(c.layers, ==, cases[i].layers);
        check_int(c.heads, ==, cases[i].heads);
        check_int(c.kv_heads, ==, cases[i].kv_heads);
        check_int(c.head_dim, ==, cases[i].head_dim);
        check_int(c.inner, ==, cases[i].inner);
        check_int(c.positions, ==, cases[i].positions);
        check_int(c.length_max, ==, cases[i].positions);
        check_int(c.padding_id, ==, -1);
    }
}

/* pad_token_id is padding in families whose table has padding_idx; -1 is the last row. */
static void padding(void)
{
    struct model_config c;
    check_int(parse("{" LLAMA ",\"pad_token_id\":0}", &c), ==, 0);
    check_int(c.padding_id, ==, 0);
    check_int(parse("{" MISTRAL ",\"pad_token_id\":-1}", &c), ==, 0);
    check_int(c.padding_id, ==, 63);
    check_int(parse("{" QWEN3 ",\"pad_token_id\":null}", &c), ==, 0);
    check_int(c.padding_id, ==, -1);
    check_int(parse("{\"model_type\":\"gpt2\",\"pad_token_id\":5}", &c), ==, 0);
    check_int(c.padding_id, ==, -1);
}

/* Rows may be as long as scaled positions. */
static void reach(void)
{
    static const struct {
        const char *scaling;
        int64_t length_max;
    } cases[] = {
        {"{\"type\":\"default\"}", 2048},
        {"{\"type\":\"linear\",\"factor\":2.5}", 5120},
        {"{\"type\":\"dynamic\",\"factor\":4.0}", 8192},
        {"{\"type\":\"yarn\",\"factor\":4.0}", 8192},
        {"{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":2048}", 8192},
        {"{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":512}", 2048},
        {"{\"type\":\"yarn\",\"original_max_position_embeddings\":512}", 2048},
        {"{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1,\"high_freq_factor\":4,"
         "\"original_max_position_embeddings\":1024}",
         8192},
        {"{\"type\":\"linear\",\"factor\":1e12}", INT32_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config c;
        char text[512];
        snprintf(text, sizeof text, "{" LLAMA ",\"rope_scaling\":%s}", cases[i].scaling);
        check_int(parse(text, &c), ==, 0);
        check_int(c.positions, ==, 2048);
        check_int(c.length_max, ==, cases[i].length_max);
    }
}

/* Windows per layer come from layer_types, or else from max_window_layers. */
static void windows(void)
{
    struct model_config c;
    check_int(parse("{" QWEN3 ",\"use_sliding_window\":true,\"sliding_window\":9,"
                    "\"max_window_layers\":2}",
                    &c),
              ==, 0);
    check_int(model_config_window(&c, 1), ==, 0);
    check_int(model_config_window(&c, 2), ==, 9);
    check_int(parse("{" QWEN3 ",\"use_sliding_window\":true,\"sliding_window\":9,\"layer_types\":"
                    "[\"sliding_attention\",\"full_attention\",\"full_attention\"]}",
                    &c),
              ==, 0);
    check_int(model_config_window(&c, 0), ==, 9);
    check_int(model_config_window(&c, 2), ==, 0);
    check_int(parse("{" MISTRAL ",\"sliding_window\":9,\"layer_types\":[\"attention\","
                    "\"sliding_attention\"]}",
                    &c),
              ==, 0);
    check_int(model_config_window(&c, 0), ==, 0);
    check_int(model_config_window(&c, 1), ==, 9);
    check_int(parse("{" MISTRAL ",\"layer_types\":null}", &c), ==, 0);
    check_int(model_config_window(&c, 0), ==, 4096);
}

/* Spellings of transformers 4 and 5 give one model. */
static void spellings(void)
{
    struct model_config old;
    struct model_config new;
    check_int(parse("{" LLAMA ",\"rope_theta\":5e5,\"torch_dtype\":\"bfloat16\",\"rope_scaling\":"
                    "{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
                    "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}",
                    &old),
              ==, 0);
    check_int(parse("{" LLAMA ",\"dtype\":\"bfloat16\",\"rope_parameters\":{\"rope_theta\":5e5,"
                    "\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
                    "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}",
                    &new),
              ==, 0);
    check_memory(&old, &new, sizeof old);
    check_int(new.rope.kind, ==, KERN_ROPE_LLAMA3);
    check_double(new.rope.theta, ==, 5e5);
    check_int(new.rope.original_max_positions, ==, 8192);
    check_int(new.dtype, ==, MODEL_BF16);
    check_int(parse("{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,"
                    "\"truncate\":false,\"beta_fast\":16,\"attention_factor\":0.7}}",
                    &old),
              ==, 0);
    check_int(old.rope.kind, ==, KERN_ROPE_YARN);
    check_int(old.rope.original_max_positions, ==, 2048);
    check_true(old.rope.exact_range);
    check_double(old.rope.beta_fast, ==, 16.0);
    check_int(parse("{" LLAMA ",\"rope_scaling\":null,\"rope_parameters\":{}}", &old), ==, 0);
}

/* Other spellings of the same values give the same configuration, as in transformers. */
static void equal_spellings(void)
{
    struct model_config plain;
    struct model_config other;
    check_int(parse("{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0}}", &plain), ==,
              0);
    check_int(
        parse("{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"mscale\":0,"
              "\"mscale_all_dim\":0.0,\"beta_fast\":0,\"beta_slow\":0,\"rope_type\":\"yarn\"}}",
              &other),
        ==, 0);
    check_memory(&plain, &other, sizeof plain);
    check_int(parse("{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4},"
                    "\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4.0}}",
                    &other),
              ==, 0);
    check_memory(&plain, &other, sizeof plain);
    check_int(
        parse("{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":8,\"hidden_size\":12,"
              "\"n_layer\":1,\"num_hidden_layers\":1,\"n_head\":2}",
              &other),
        ==, 0);
    check_int(other.hidden, ==, 12);
}

static void refuses(void)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {"[]", "config.json is not an object"},
        {"{}", "model_type is missing"},
        {"{\"model_type\":3}", "model_type"},
        {"{\"model_type\":\"bert\"}", "\"bert\" is unknown; known are gpt2, llama, mistral"},
        {"{" LLAMA ",\"pad_token_id\":64}", "pad_token_id: 64 is outside the vocabulary of 64"},
        {"{" LLAMA ",\"pad_token_id\":-65}", "pad_token_id: -65 is outside"},
        {"{" LLAMA ",\"pad_token_id\":[3]}", "pad_token_id"},
        {"{" LLAMA ",\"is_causal\":false}", "is_causal: attention to later tokens"},
        {"{" LLAMA ",\"add_cross_attention\":true}", "add_cross_attention: cross attention"},
        {"{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":null}", "hidden_size"},
        {"{" LLAMA ",\"hidden_act\":\"quick_gelu\"}", "\"quick_gelu\" is not supported"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"longrope\"}}", "\"longrope\" is not supported"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", "factor is missing"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":null,\"factor\":8}}",
         "factor: found 8, but rope_type is missing"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":-1}}", "factor"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}",
         "low_freq_factor is missing"},
        {"{" LLAMA ",\"rope_theta\":1e4,\"rope_parameters\":{\"rope_theta\":2e4}}",
         "rope_theta: found 10000 here and 20000 in rope_parameters"},
        {"{" LLAMA ",\"rope_theta\":1e4,\"rope_scaling\":{\"rope_theta\":2e4}}",
         "rope_theta: found 10000 here and 20000 in rope_scaling"},
        {"{" LLAMA ",\"rope_parameters\":{\"full_attention\":{}}}",
         "rope_parameters per layer type"},
        {"{" LLAMA ",\"rope_scaling\":{\"full_attention\":{}}}", "rope_scaling per layer type"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\"}}", "factor is missing"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":null}}", "factor is missing"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":null,"
         "\"original_max_position_embeddings\":null}}",
         "rope_scaling.original_max_position_embeddings: found null"},
        {"{" LLAMA ",\"original_max_position_embeddings\":null,\"rope_scaling\":"
         "{\"type\":\"yarn\",\"factor\":2,\"original_max_position_embeddings\":512}}",
         "original_max_position_embeddings: found null"},
        {"{" LLAMA ",\"rope_parameters\":{\"partial_rotary_factor\":0.5}}",
         "partial_rotary_factor"},
        {"{" LLAMA ",\"partial_rotary_factor\":0.5}", "partial_rotary_factor"},
        {"{" LLAMA
         ",\"rope_parameters\":{\"rope_type\":\"linear\",\"type\":\"yarn\",\"factor\":2}}",
         "rope_parameters.type: found \"yarn\" here and \"linear\" in rope_type"},
        {"{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2},"
         "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}",
         "rope_scaling: the content differs from rope_parameters"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}}",
         "config.json: factor of the RoPE scaling is 0.5"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"mscale\":-1}}", "mscale"},
        {"{" LLAMA ",\"rope_theta\":1.0}", "config.json: rope_theta is 1"},
        {"{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":8,\"n_embd\":8,\"n_layer\":1,"
         "\"n_head\":2,\"hidden_size\":16}",
         "hidden_size: found 16 here and 8 in n_embd"},
        {"{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":8,\"hidden_size\":true}",
         "hidden_size"},
        {"{" LLAMA ",\"num_key_value_heads\":3}", "num_key_value_heads"},
        {"{" LLAMA ",\"num_key_value_heads\":0}", "num_key_value_heads"},
        {"{" LLAMA ",\"head_dim\":7}", "heads of 7 elements"},
        {"{" LLAMA ",\"rms_norm_eps\":0}", "epsilon"},
        {"{" LLAMA ",\"max_position_embeddings\":null}", "max_position_embeddings"},
        {"{" LLAMA ",\"tie_word_embeddings\":null}", "tie_word_embeddings: found null"},
        {"{" LLAMA ",\"torch_dtype\":\"int8\"}", "\"int8\" are not supported"},
        {"{" LLAMA ",\"torch_dtype\":\"float16\",\"dtype\":\"bfloat16\"}", "torch_dtype"},
        {"{" LLAMA ",\"quantization_config\":{}}",
         "quantization_config: the weights are quantised, which tide does not read; give the "
         "model"},
        {"{" LLAMA ",\"quantization_config\":\"awq\"}", "the weights are quantised, which"},
        {"{" LLAMA ",\"quantization_config\":{\"quant_method\":4}}",
         "the weights are quantised, which"},
        {"{" LLAMA ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}}",
         "quantised by \"gptq\", which tide does not read; give the model that they were made "
         "from"},
        {"{" LLAMA ",\"quantization_config\":{\"quant_method\":\"awq\"}}", "quantised by \"awq\""},
        {"{" LLAMA ",\"quantization_config\":{\"quant_method\":\"bitsandbytes\"}}",
         "load_in_4bit: exactly one of load_in_4bit and load_in_8bit must be true"},
        {"{" LLAMA BNB "\"load_in_4bit\":true,\"load_in_8bit\":true}}", "must be true"},
        {"{" LLAMA BNB "\"load_in_4bit\":1}}", "load_in_4bit"},
        {"{" LLAMA BNB "\"load_in_4bit\":true}}",
         "bnb_4bit_quant_type: weights of the type \"fp4\" are not supported, only nf4"},
        {"{" LLAMA BNB NF4 ",\"bnb_4bit_quant_storage\":\"bfloat16\"}}",
         "codes that are stored as \"bfloat16\" are not supported"},
        {"{" LLAMA BNB NF4 ",\"bnb_4bit_use_double_quant\":\"no\"}}", "bnb_4bit_use_double_quant"},
        {"{" LLAMA BNB "\"load_in_8bit\":true,\"llm_int8_has_fp16_weight\":true}}",
         "llm_int8_has_fp16_weight: int8 layers with fp16 weights are not supported"},
        {"{" LLAMA BNB NF4 ",\"llm_int8_skip_modules\":\"lm_head\"}}", "llm_int8_skip_modules"},
        {"{" LLAMA BNB NF4 ",\"llm_int8_skip_modules\":[7]}}",
         "llm_int8_skip_modules[0]: a module's name was expected"},
        {"{" LLAMA ",\"per_layer_config\":{}}", "per_layer_config: this key is not supported"},
        {"{" LLAMA ",\"tie_word_embeddings\":\"yes\"}", "tie_word_embeddings"},
        {"{" LLAMA ",\"tie_word_embeddings\":true,\"tie_word_embeddings\":false}",
         "duplicate key \"tie_word_embeddings\""},
        {"{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":33,\"num_hidden_layers\":2,"
         "\"num_attention_heads\":4,\"intermediate_size\":48}",
         "do not divide the hidden size 33"},
        {"{\"model_type\":\"llama\",\"vocab_size\":1e12,\"hidden_size\":32}", "vocab_size"},
        {"{" MISTRAL ",\"sliding_window\":0}", "sliding_window"},
        {"{" MISTRAL ",\"layer_types\":[\"full_attention\"]}",
         "1 entries, but the model has 2 layers"},
        {"{" QWEN3 ",\"layer_types\":[\"full_attention\"]}", "3 layers"},
        {"{" QWEN3 ",\"layer_types\":[\"full_attention\",\"full_attention\",\"linear\"]}",
         "\"linear\" is not supported"},
        {"{" QWEN3
         ",\"layer_types\":[\"full_attention\",\"full_attention\",\"sliding_attention\"]}",
         "without a sliding_window"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config c;
        check_int(parse(cases[i].text, &c), ==, -EINVAL);
        check_contains(core_err_message(), cases[i].says);
    }
    struct model_config c;
    check_int(model_config_load("/nonexistent", &c), ==, -ENOENT);
    check_contains(core_err_message(), "/nonexistent/config.json");
}

/* config.json alone says which linear layers are quantised. */
static void quantised(void)
{
    static const struct {
        const char *text;
        enum kern_quant quant;
        unsigned whole[2]; /* tensors of each layer that are not quantised */
    } cases[] = {
        {"{" LLAMA ",\"quantization_config\":null}", KERN_QUANT_NONE, {0, 0}},
        {"{" LLAMA BNB NF4 "}}", KERN_QUANT_NF4_F32, {0, 0}},
        {"{" LLAMA BNB NF4 ",\"bnb_4bit_use_double_quant\":true}}", KERN_QUANT_NF4, {0, 0}},
        {"{" LLAMA BNB "\"load_in_4bit\":false,\"load_in_8bit\":true}}", KERN_QUANT_INT8, {0, 0}},
        {"{" LLAMA BNB NF4 ",\"llm_int8_skip_modules\":null}}", KERN_QUANT_NF4_F32, {0, 0}},
        {"{" LLAMA BNB NF4 ",\"llm_int8_skip_modules\":[\"lm_head\",\"q_proj\",\"roj\","
         "\"model.layers.1.mlp\"]}}",
         KERN_QUANT_NF4_F32,
         {7, 7}},
        {"{" LLAMA BNB NF4 ",\"llm_int8_skip_modules\":[\"v_proj\",\"model.layers.1.mlp\","
         "\"model.layers.1.m\",\"\"]}}",
         KERN_QUANT_NF4_F32,
         {1, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config c;
        check_int(parse(cases[i].text, &c), ==, 0);
        check_int(c.quant, ==, cases[i].quant);
        for (int layer = 0; layer < 2; layer++) {
            check_int(__builtin_popcountll(c.whole[layer]), ==, cases[i].whole[layer]);
        }
    }
}

/* A dropout of the file or the family is recorded. */
static void dropout(void)
{
    struct model_config c;
    check_int(parse("{" LLAMA ",\"attention_dropout\":0.0}", &c), ==, 0);
    check_string(c.dropouts, "");
    check_int(parse("{" LLAMA ",\"attention_dropout\":0.25}", &c), ==, 0);
    check_string(c.dropouts, "attention_dropout 0.25");
    check_int(parse("{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":8,\"n_embd\":8,"
                    "\"n_layer\":1,\"n_head\":2,\"resid_pdrop\":0}",
                    &c),
              ==, 0);
    check_string(c.dropouts, "embd_pdrop 0.1, attn_pdrop 0.1");
    check_int(c.inner, ==, 32);
    check_true(c.tied);
}

/* A factor without effect is reported. YaRN's factor may be null. */
static void rope_factors(void)
{
    struct model_config c;
    test_listen(CORE_LOG_WARN);
    check_int(parse("{" LLAMA ",\"rope_scaling\":{\"type\":\"default\",\"factor\":1}}", &c), ==, 0);
    check_string(test_heard(), "");
    check_int(parse("{" LLAMA ",\"rope_scaling\":{\"type\":\"default\",\"factor\":8}}", &c), ==, 0);
    test_listen_end();
    check_contains(test_heard(),
                   "config.json: rope_scaling.factor is 8, but the rope type \"default\"");
    check_int(c.rope.kind, ==, KERN_ROPE_DEFAULT);
    check_int(parse("{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":null,"
                    "\"original_max_position_embeddings\":512}}",
                    &c),
              ==, 0);
    check_double(c.rope.factor, ==, 0.0);
    check_int(c.rope.original_max_positions, ==, 512);
    check_int(parse("{" LLAMA ",\"original_max_position_embeddings\":256,\"rope_scaling\":"
                    "{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":512}}",
                    &c),
              ==, 0);
    check_int(c.rope.original_max_positions, ==, 256);
    check_int(parse("{" LLAMA ",\"original_max_position_embeddings\":null}", &c), ==, 0);
}

static void scales(void)
{
    struct model_config c;
    check_int(parse("{" LLAMA ",\"head_dim\":16}", &c), ==, 0);
    check_double(model_config_scale(&c, 1), ==, 0.25);
    c.scale_by_layer = true;
    check_double(model_config_scale(&c, 1), ==, 0.125);
    c.scale_scores = false;
    check_double(model_config_scale(&c, 0), ==, 1.0);
}

static void families(void)
{
    size_t count = 0;
    for (; model_family_at(count) != NULL; count++) {
        check_true(model_family_find(model_family_at(count)->name) == model_family_at(count));
    }
    check_uint(count, ==, 5);
    check_true(model_family_find("gemma") == NULL);
}

/* Configs written by transformers are accepted. */
static void fixtures(void)
{
    for (size_t i = 0; i < fixture_count; i++) {
        struct fixture fixture;
        fixture_open(&fixture, fixture_names[i]);
        fixture_close(&fixture);
    }
}

TEST_MAIN({"defaults", defaults}, {"default_sizes", default_sizes}, {"padding", padding},
          {"reach", reach}, {"windows", windows}, {"spellings", spellings},
          {"equal_spellings", equal_spellings}, {"refuses", refuses}, {"quantised", quantised},
          {"dropout", dropout}, {"rope_factors", rope_factors}, {"scales", scales},
          {"families", families}, {"fixtures", fixtures})
