/* Tests files beside a tokenizer.json, compared with transformers (folders.json of
 * tests/oracle/tokenizer_folders.py). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"
#include "tests/text/model_folder.h"
#include "tools/text/data/chat.h"
#include "tools/text/data/encode.h"
#include "tools/text/data/row.h"
#include "tools/text/tokenizer/special.h"
#include "tools/text/tokenizer/tokenizer.h"

static void put(const char *folder, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    test_file(path, text, strlen(text));
}

static void put_json(const char *folder, const char *name, const struct core_json_value *value)
{
    char text[4000];
    char path[600];
    if (value == NULL || core_json_kind(value) == CORE_JSON_NULL) {
        snprintf(path, sizeof path, "%s/%s/%s", test_directory(), folder, name);
        unlink(path);
        return;
    }
    core_json_print(value, text, sizeof text);
    check_true(strlen(text) + 1 < sizeof text);
    put(folder, name, text);
}

static void check_ids(const struct text_tokenizer *tokenizer, const struct core_json_value *row)
{
    struct text_scratch *scratch = NULL;
    const struct core_json_value *texts = core_json_find(row, "texts");
    check_int(text_scratch_create(tokenizer, &scratch), ==, 0);
    for (size_t i = 0; i < core_json_count(texts); i++) {
        size_t bytes;
        struct text_encoding encoding;
        const char *text = core_json_string(core_json_at(texts, i), &bytes);
        const struct core_json_value *ids = core_json_at(core_json_find(row, "ids"), i);
        check_int(text_tokenizer_encode(scratch, text, bytes, TEXT_ENCODE_SPECIAL, &encoding), ==,
                  0);
        bool same = encoding.count == core_json_count(ids);
        for (size_t k = 0; k < encoding.count && same; k++) {
            same = encoding.ids[k] == (uint64_t)core_json_integer(core_json_at(ids, k));
        }
        if (!same) {
            test_note("%s", text);
        }
        check_true(same);
    }
    text_scratch_destroy(scratch);
}

static void as_transformers(void)
{
    char path[4096];
    struct core_json *doc = NULL;
    snprintf(path, sizeof path, "%s/text/fixtures/folders.json", test_root());
    check_int(core_json_load(path, NULL, &doc), ==, 0);
    const struct core_json_value *rows = core_json_root(doc);
    for (size_t i = 0; i < core_json_count(rows); i++) {
        struct text_tokenizer *tokenizer = NULL;
        struct text_special special;
        struct core_json_member member;
        const struct core_json_value *row = core_json_at(rows, i);
        const char *folder = model_folder_make(
            "case", core_json_string(core_json_find(row, "family"), NULL));
        test_note("%s", core_json_string(core_json_find(row, "name"), NULL));
        put_json("case", "tokenizer_config.json", core_json_find(row, "config"));
        put_json("case", "special_tokens_map.json", core_json_find(row, "map"));
        int code = text_tokenizer_load(folder, &tokenizer);
        if (code == -ENOTSUP) {
            test_note("%s", core_err_message());
            continue;
        }
        check_int(code, ==, 0);
        check_uint(text_tokenizer_size(tokenizer), ==,
                   (uint64_t)core_json_integer(core_json_find(row, "size")));
        check_ids(tokenizer, row);
        check_int(text_special_load(folder, &special), ==, 0);
        const struct core_json_value *named = core_json_find(row, "special");
        for (bool any = core_json_first(named, &member); any; any = core_json_next(&member)) {
            const char *content = text_special_find(&special, member.key);
            check_true(content != NULL);
            check_string(content, core_json_string(member.value, NULL));
        }
        check_true(text_special_find(&special, "none_token") == NULL);
        text_special_fini(&special);
        text_tokenizer_destroy(tokenizer);
    }
    core_json_destroy(doc);
}

static void refuses(void)
{
    static const struct {
        const char *file;
        const char *text;
        const char *says;
    } cases[] = {
        {"tokenizer_config.json", "[]", "tokenizer_config.json: must be an object"},
        {"tokenizer_config.json", "{", "tokenizer_config.json"},
        {"tokenizer_config.json", "{\"eos_token\": 3}",
         "eos_token: is an integer; expected a string or an object"},
        {"tokenizer_config.json", "{\"eos_token\": {\"content\": 3}}", "eos_token: is an object"},
        {"tokenizer_config.json", "{\"eos_token\": {\"content\": \"a\", \"lstrip\": 3}}", "lstrip"},
        {"tokenizer_config.json", "{\"extra_special_tokens\": 3}",
         "extra_special_tokens: must be a list"},
        {"tokenizer_config.json", "{\"additional_special_tokens\": [\"a\", 3]}",
         "additional_special_tokens[1]: is an integer"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": []}",
         "added_tokens_decoder: must be an object of ids"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"x\": {\"content\": \"a\"}}}",
         "added_tokens_decoder.x is not an id"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"3\": \"a\"}}",
         "added_tokens_decoder.3: is a string"},
        {"tokenizer_config.json", "{\"split_special_tokens\": true}",
         "split_special_tokens: true is not supported"},
        {"special_tokens_map.json", "{\"pad_token\": []}",
         "special_tokens_map.json: pad_token: is an array"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[32];
        struct text_tokenizer *tokenizer = NULL;
        snprintf(name, sizeof name, "wrong%zu", i);
        const char *folder = model_folder_make(name, "gpt2");
        put(name, cases[i].file, cases[i].text);
        const int code = text_tokenizer_load(folder, &tokenizer);
        if (code != -EINVAL && code != -ENOTSUP) {
            test_fail(__FILE__, __LINE__, "%d: %s", code, cases[i].text);
        }
        check_contains(core_err_message(), name);
        check_contains(core_err_message(), cases[i].says);
    }
}

/* Contradictions that are not errors are reported, as are differences between transformers 4 and
 * 5. */
static void warns(void)
{
    static const struct {
        const char *family;
        const char *config;
        const char *says; /* NULL: no report */
    } cases[] = {
        {"mistral", "{\"tokenizer_class\": \"LlamaTokenizerFast\", \"bos_token\": \"<s>\"}", NULL},
        {"llama2", "{\"tokenizer_class\": \"LlamaTokenizerFast\", \"bos_token\": \"<s>\"}",
         "transformers 5 leaves out the normalizer"},
        {"llama2", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_eos_token\": true}",
         NULL},
        {"llama2",
         "{\"tokenizer_class\": \"LlamaTokenizer\", \"bos_token\": \"<s>\", \"eos_token\": "
         "\"</s>\", \"add_eos_token\": true}",
         "add_eos_token is true, but the post_processor of tokenizer.json differs"},
        {"llama2",
         "{\"tokenizer_class\": \"GemmaTokenizerFast\", \"bos_token\": \"<s>\", \"add_bos_token\": "
         "false}",
         "add_bos_token is false, but the post_processor of tokenizer.json differs"},
        {"gpt2", "{\"added_tokens_decoder\": {\"5\": {\"content\": \"<|endoftext|>\"}}}",
         "added_tokens_decoder gives \"<|endoftext|>\" the id 5; in tokenizer.json it has 7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct text_tokenizer *tokenizer = NULL;
        const char *folder = model_folder_make("odd", cases[i].family);
        put("odd", "tokenizer_config.json", cases[i].config);
        test_listen(CORE_LOG_WARN);
        int code = text_tokenizer_load(folder, &tokenizer);
        if (code == -ENOTSUP) {
            continue;
        }
        check_int(code, ==, 0);
        if (cases[i].says == NULL) {
            check_string(test_heard(), "");
        } else {
            check_contains(test_heard(), cases[i].says);
        }
        text_tokenizer_destroy(tokenizer);
    }
    test_listen_end();
}

/* A token may have an id beyond the embeddings; only rows with this token are errors. */
static void beyond(void)
{
    struct text_row row;
    struct text_tokenizer *tokenizer = NULL;
    struct text_encoder *encoder = NULL;
    struct text_sample sample = {0};
    static const char *const rows[] = {"{\"text\": \"abc\"}", "{\"text\": \"a<pad>b\"}"};
    const char *folder = model_folder_make("beyond", "gpt2");
    put("beyond", "tokenizer_config.json",
        "{\"pad_token\": \"<pad>\", \"eos_token\": \"<|endoftext|>\"}");
    check_int(text_tokenizer_load(folder, &tokenizer), ==, 0);
    const int64_t size = (int64_t)text_tokenizer_size(tokenizer);
    check_int(text_tokenizer_id(tokenizer, "<pad>", 5), ==, size - 1);
    check_int(text_tokenizer_check(tokenizer, (size_t)size - 1), ==, 0);
    check_int(text_tokenizer_check(tokenizer, (size_t)size - 2), ==, -EINVAL);
    check_contains(core_err_message(), "they belong to different models");
    text_tokenizer_destroy(tokenizer);
    check_int(text_encoder_create(folder, NULL, size - 1, 1, &encoder), ==, 0);
    for (size_t i = 0; i < 2; i++) {
        check_int(text_row_parse(rows[i], strlen(rows[i]), &row), ==, 0);
        check_int(text_encoder_encode(encoder, &row, TEXT_TRAIN_ALL, &sample), ==,
                  i == 0 ? 0 : -EINVAL);
        text_row_fini(&row);
    }
    check_contains(core_err_message(), "the token \"<pad>\" has id ");
    check_contains(core_err_message(), "it is in tokenizer_config.json");
    text_sample_fini(&sample);
    text_encoder_destroy(encoder);
}

/* Without tokenizer.json, the error names other files and the way to make a tokenizer.json. */
static void no_tokenizer(void)
{
    char folder[4096];
    struct core_json *doc = NULL;
    struct text_tokenizer *tokenizer = NULL;
    snprintf(folder, sizeof folder, "%s/bare", test_directory());
    mkdir(folder, 0700);
    check_int(text_special_read(folder, "tokenizer_config.json", &doc), ==, 0);
    check_true(doc == NULL);
    check_int(text_tokenizer_load(folder, &tokenizer), ==, -ENOENT);
    check_contains(core_err_message(), "bare has no tokenizer.json");
    put("bare", "tokenizer.model", "x");
    check_int(text_tokenizer_load(folder, &tokenizer), ==, -ENOENT);
    check_contains(core_err_message(), "bare has tokenizer.model, but no tokenizer.json");
    check_contains(core_err_message(), "AutoTokenizer");
    snprintf(folder, sizeof folder, "%s/none", test_directory());
    check_int(text_tokenizer_load(folder, &tokenizer), ==, -ENOENT);
    check_contains(core_err_message(), "none");
}

static void check_rendering(const char *folder, bool tools, const char *wanted)
{
    struct text_row row;
    struct text_chat *chat = NULL;
    struct jinja_run *run = NULL;
    struct jinja_rendering got;
    const char *json = tools ? "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
                               "\"tools\": [{\"name\": \"f\"}]}"
                             : "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}";
    check_int(text_row_parse(json, strlen(json), &row), ==, 0);
    check_int(jinja_run_create(NULL, &run), ==, 0);
    check_int(text_chat_load(folder, NULL, 1, &chat), ==, 0);
    if (wanted != NULL) {
        check_int(text_chat_render(chat, run, &row, 0, false, &got), ==, 0);
        check_string(got.text, wanted);
    } else {
        check_int(text_chat_render(chat, run, &row, 0, false, &got), ==, -ENOTSUP);
    }
    text_chat_destroy(chat);
    jinja_run_destroy(run);
    text_row_fini(&row);
}

/* Templates come from a list in the configuration, or from files, which replace the list. */
static void templates(void)
{
    const char *folder = model_folder_make("named", "gpt2");
    char path[4200];
    put("named", "tokenizer_config.json",
        "{\"image_token\": \"<i>\", \"chat_template\": ["
        "{\"name\": \"default\", \"template\": \"old\"}, "
        "{\"name\": \"default\", \"template\": \"list {{ image_token }}\"}, "
        "{\"name\": \"rag\", \"template\": \"{% broken\"}, "
        "{\"name\": \"tool_use\", \"template\": \"list tools\"}]}");
    check_rendering(folder, false, "list <i>");
    check_rendering(folder, true, "list tools");
    snprintf(path, sizeof path, "%s/additional_chat_templates", folder);
    mkdir(path, 0700);
    put("named", "additional_chat_templates/tool_use.jinja", "file tools");
    put("named", "additional_chat_templates/rag.jinja", "file rag");
    put("named", "additional_chat_templates/notes.txt", "no template");
    check_rendering(folder, true, "file tools");
    check_rendering(folder, false, NULL);
    check_contains(core_err_message(),
                   "of the model's chat templates (rag, tool_use) none is named default");
    put("named", "chat_template.jinja", "file {{ messages[0].content }}");
    check_rendering(folder, false, "file Hi");
    check_rendering(folder, true, "file tools");
    put("named", "additional_chat_templates/tool_use.jinja", "{% broken");
    struct text_chat *chat = NULL;
    check_int(text_chat_load(folder, NULL, 1, &chat), ==, -EINVAL);
    check_contains(core_err_message(), "additional_chat_templates/tool_use.jinja:1: ");
}

static const char *life_folder;

static int folder_life(void)
{
    struct text_chat *chat = NULL;
    struct text_tokenizer *tokenizer = NULL;
    int code = text_tokenizer_load(life_folder, &tokenizer);
    code = code == 0 ? text_chat_load(life_folder, NULL, 1, &chat) : code;
    text_tokenizer_destroy(tokenizer);
    text_chat_destroy(chat);
    return code;
}

/* A failed allocation is an error; nothing leaks. */
static void out_of_memory(void)
{
    life_folder = model_folder_make("life", "gpt2");
    put("life", "tokenizer.json",
        "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}, \"added_tokens\": []}");
    put("life", "tokenizer_config.json",
        "{\"tokenizer_class\": \"LlamaTokenizer\", \"bos_token\": \"<x>\", \"chat_template\": "
        "[{\"name\": \"default\", \"template\": \"t\"}], \"extra_special_tokens\": [\"y\"], "
        "\"added_tokens_decoder\": {\"2\": {\"content\": \"<x>\"}, \"1\": {\"content\": \"b\"}}}");
    check_int(test_fail_nth(folder_life), >=, 10);
}

/* A model has many named tokens, up to a limit. */
static void many_names(void)
{
    for (int count = 60; count <= 401; count += 341) {
        char *text = NULL;
        size_t bytes = 0;
        struct text_special special;
        FILE *file = open_memstream(&text, &bytes);
        fprintf(file, "{\"extra_special_tokens\": {");
        for (int i = 0; i < count; i++) {
            fprintf(file, "%s\"kind_%d_token\": \"<kind %d>\"", i > 0 ? ", " : "", i, i);
        }
        fprintf(file, "}}");
        fclose(file);
        test_file("tokenizer_config.json", text, bytes);
        free(text);
        const int code = text_special_load(test_directory(), &special);
        check_int(code, ==, count == 60 ? 0 : -E2BIG);
        if (code == 0) {
            check_string(text_special_find(&special, "kind_59_token"), "<kind 59>");
            text_special_fini(&special);
        } else {
            check_contains(core_err_message(), "more than 400 named tokens");
        }
    }
}

TEST_MAIN({"many_names", many_names}, {"as_transformers", as_transformers}, {"refuses", refuses},
          {"warns", warns}, {"beyond", beyond}, {"no_tokenizer", no_tokenizer},
          {"templates", templates}, {"out_of_memory", out_of_memory})
