/* Tests what is trained on in rows of each format, and the errors of bad rows. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"
#include "tests/text/model_folder.h"
#include "tools/text/data/chat.h"
#include "tools/text/data/encode.h"
#include "tools/text/data/feed.h"
#include "tools/text/data/row.h"
#include "tools/text/tokenizer/tokenizer.h"

/* Writes a row's text with trained parts in brackets and ^ for NUL, or the error. */
static void show(struct text_encoder *encoder, const char *json, enum text_train_on train_on,
                 char *out, size_t bytes)
{
    struct text_row row;
    struct text_sample sample = {0};
    struct text_scratch *scratch = NULL;
    const struct text_tokenizer *tokenizer = text_encoder_tokenizer(encoder);
    check_int(text_scratch_create(tokenizer, &scratch), ==, 0);
    int code = text_row_parse(json, strlen(json), &row);
    if (code == 0) {
        code = text_encoder_encode(encoder, &row, train_on, &sample);
        text_row_fini(&row);
    }
    size_t length = 0;
    bool inside = false;
    for (size_t i = 0; code == 0 && i <= sample.count; i++) {
        const bool trained = i < sample.count && sample.labels[i] != TEXT_IGNORED;
        if (trained != inside) {
            length += (size_t)snprintf(out + length, bytes - length, trained ? "[" : "]");
            inside = trained;
        }
        if (i < sample.count) {
            size_t part;
            const char *text;
            check_int(text_tokenizer_decode(scratch, (const uint32_t *)&sample.ids[i], 1, false,
                                            &text, &part),
                      ==, 0);
            for (size_t k = 0; k < part && length + 1 < bytes; k++) {
                out[length++] = (char)(text[k] != '\0' ? text[k] : '^');
            }
            out[length] = '\0';
        }
    }
    if (code != 0) {
        snprintf(out, bytes, "%s", core_err_message());
    }
    text_sample_fini(&sample);
    text_scratch_destroy(scratch);
}

static const char qwen_config[] =
    "{\"eos_token\": \"<|im_end|>\", \"chat_template\": \"{% for m in messages %}<|im_start|>"
    "{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}{% if add_generation_prompt "
    "%}<|im_start|>"
    "assistant\\n{% endif %}\"}";

/* Rows have the expected text and trained parts. */
static void kinds(void)
{
    static const struct {
        const char *row;
        const char *want;
    } cases[] = {
        {"{\"prompt\": \"\", \"completion\": \"4\"}", "[4<|im_end|>]"}, /* an empty prompt */
        {"{\"text\": \"hello there\"}", "[hello there<|im_end|>]"},
        {"{\"text\": \"done<|im_end|>\"}", "[done<|im_end|>]"},
        {"{\"prompt\": \"2 + 2 =\", \"completion\": \" 4\"}", "2 + 2 =[ 4<|im_end|>]"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
         "\"content\": \"Yo\"}, {\"role\": \"user\", \"content\": \"?\"}, {\"role\": "
         "\"assistant\", "
         "\"content\": \"!\"}]}",
         "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[Yo<|im_end|>]\n<|im_start|>user\n"
         "?<|im_end|>\n<|im_start|>assistant\n[!<|im_end|>]\n"},
        {"{\"conversations\": [{\"from\": \"system\", \"value\": \"S\"}, {\"from\": \"human\", "
         "\"value\": \"Hi\"}, {\"from\": \"gpt\", \"value\": \"Yo\"}]}",
         "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
         "[Yo<|im_end|>]\n"},
        {"{\"system\": \"S\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
         "\"assistant\", \"content\": \"Yo\"}]}",
         "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
         "[Yo<|im_end|>]\n"},
        {"{\"prompt\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"completion\": [{\"role\": "
         "\"assistant\", \"content\": \"Yo\"}]}",
         "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[Yo<|im_end|>]\n"},
        {"{\"instruction\": \"Add\", \"input\": \"1 2\", \"output\": \"3\"}",
         "<|im_start|>user\nAdd\n\n1 2<|im_end|>\n<|im_start|>assistant\n[3<|im_end|>]\n"},
        {"{\"instruction\": \"Say\", \"input\": \"\", \"output\": \"x\"}",
         "<|im_start|>user\nSay<|im_end|>\n<|im_start|>assistant\n[x<|im_end|>]\n"},
        {"{\"system\": \"S\\u0001\", \"instruction\": \"A\\u0000B\", \"input\": \"C\\u0000D\", "
         "\"output\": \"E\\u0000F\"}",
         "<|im_start|>system\nS\x01<|im_end|>\n<|im_start|>user\nA^B\n\nC^D<|im_end|>\n"
         "<|im_start|>assistant\n[E^F<|im_end|>]\n"},
    };
    struct text_encoder *encoder = NULL;
    const char *folder = model_folder("qwen", "qwen2", qwen_config);
    if (folder == NULL) {
        test_skip("this build lacks what the tokenizer needs");
    }
    check_int(text_encoder_create(folder, NULL, 0, 1, &encoder), ==, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char got[2000] = "";
        show(encoder, cases[i].row, TEXT_TRAIN_COMPLETION, got, sizeof got);
        check_string(got, cases[i].want);
    }
    char got[2000] = "";
    show(encoder, cases[4].row, TEXT_TRAIN_ALL, got, sizeof got);
    check_string(got, "[<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n"
                      "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n!<|im_end|>\n]");
    show(encoder, "{\"text\": \"\"}", TEXT_TRAIN_COMPLETION, got, sizeof got);
    check_string(got, "text: is empty");
    text_encoder_destroy(encoder);
    encoder = NULL;
    check_int(text_encoder_create(folder, NULL, 10, 1, &encoder), ==, -EINVAL);
    check_int(text_encoder_create(folder, "frob", 0, 1, &encoder), ==, -EINVAL);
    check_contains(core_err_message(), "--chat-format: unknown format \"frob\" (one of chatml|");
}

/* An error in a row names the key. */
static void wrong_rows(void)
{
    static const struct {
        const char *row;
        const char *says;
    } cases[] = {
        {"{", "row:1:"},
        {"{}", "the row has none of input_ids, messages, "},
        {"{\"text\": 5}", "text: is an integer; expected a string"},
        {"{\"text\": null}", "the row has none of"},
        {"{\"prompt\": \"a\"}", "completion: is missing"},
        {"{\"completion\": \"a\"}", "prompt: is missing"},
        {"{\"prompt\": \"a\", \"completion\": [1]}", "completion: is an array"},
        {"{\"instruction\": \"a\"}", "output: is missing"},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"system\": 3}", "system: is an integer"},
        {"{\"text\": \"a\\ud800\"}", "row:1:12: \\ud800 is one half of a surrogate pair"},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"input\": 3}", "input: is an integer"},
        {"{\"messages\": []}", "messages: is not a list of messages, or is empty"},
        {"{\"messages\": {}}", "messages: is not a list"},
        {"{\"messages\": [3]}", "messages[0]: is an integer; expected an object"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"content\": \"b\"}]}",
         "messages[1]: role: is missing"},
        {"{\"messages\": [{\"role\": 1, \"content\": \"a\"}]}", "role: is not a string"},
        {"{\"messages\": [{\"role\": \"king\", \"content\": \"a\"}]}",
         "messages[0]: role: unknown role \"king\" (expected system, user, assistant, tool, "
         "developer, function, ipython, or sharegpt's human and gpt)"},
        {"{\"conversations\": [{\"from\": \"martian\", \"value\": \"a\"}]}",
         "conversations[0]: from: unknown role \"martian\""},
        {"{\"conversations\": [{\"from\": \"human\"}]}", "conversations[0]: value: is missing"},
        {"{\"conversations\": [{\"from\": \"human\", \"value\": 5}]}",
         "conversations[0]: value: is an integer"},
        {"{\"messages\": [{\"role\": \"user\"}]}", "content: is missing"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": 7}]}", "content: is an integer"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": 3}",
         "tools: is an"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": \"[\"}",
         "tools:1:"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"system\": 3}", "system: is"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": 3}",
         "chat_template_kwargs: is"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": "
         "{\"x\": 1, \"add_generation_prompt\": true}}",
         "chat_template_kwargs: add_generation_prompt cannot be set here"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct text_row row;
        if (text_row_parse(cases[i].row, strlen(cases[i].row), &row) != -EINVAL) {
            test_fail(__FILE__, __LINE__, "accepted: %s", cases[i].row);
        }
        check_contains(core_err_message(), cases[i].says);
    }
}

/* Messages are made uniform for templates. */
static void plain_messages(void)
{
    static const char json[] =
        "{\"tools\": \"[{\\\"a\\\": 1}]\", \"documents\": [1], \"chat_template_kwargs\": {\"x\": "
        "1}, "
        "\"conversations\": [{\"from\": \"gpt\", \"value\": \"v\", \"name\": null, \"reasoning\": "
        "\"r\"}, {\"role\": \"assistant\", \"tool_calls\": [1]}]}";
    struct text_row row;
    char text[500];
    check_int(text_row_parse(json, strlen(json), &row), ==, 0);
    core_json_print(row.messages, text, sizeof text);
    check_string(text, "[{\"thinking\":\"r\",\"role\":\"assistant\",\"content\":\"v\","
                       "\"reasoning\":\"r\",\"reasoning_content\":\"r\"},"
                       "{\"role\":\"assistant\",\"tool_calls\":[1]}]");
    check_uint(core_json_count(row.tools), ==, 1);
    check_uint(core_json_count(row.documents), ==, 1);
    check_uint(core_json_count(row.variables), ==, 1);
    text_row_fini(&row);
}

/* Too many members of chat_template_kwargs are refused. */
static void too_many_variables(void)
{
    struct text_row row;
    struct text_chat *chat = NULL;
    struct jinja_run *run = NULL;
    struct jinja_rendering rendering;
    check_int(jinja_run_create(NULL, &run), ==, 0);
    check_int(text_chat_load(NULL, "chatml", 1, &chat), ==, 0);
    for (int members = 64; members <= 65; members++) {
        char json[2000] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
                          "\"chat_template_kwargs\": {";
        for (int i = 0; i < members; i++) {
            const size_t at = strlen(json);
            snprintf(json + at, sizeof json - at, "%s\"k%d\": 1", i > 0 ? ", " : "", i);
        }
        strcat(json, "}}");
        check_int(text_row_parse(json, strlen(json), &row), ==, 0);
        check_int(text_chat_render(chat, run, &row, 0, false, &rendering), ==,
                  members > 64 ? -EINVAL : 0);
        text_row_fini(&row);
    }
    check_contains(core_err_message(), "chat_template_kwargs: has 65 members; the maximum is 64");
    text_chat_destroy(chat);
    jinja_run_destroy(run);
}

/* The named formats are rendered with their trained parts. */
static void formats(void)
{
    static const char json[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \"Sys\"}, {\"role\": \"user\", "
        "\"content\": \"Q1\"}, {\"role\": \"assistant\", \"content\": \"A1\"}, {\"role\": "
        "\"user\", "
        "\"content\": \"Q2\"}, {\"role\": \"assistant\", \"content\": \"A2\"}]}";
    static const struct {
        const char *name;
        const char *want;
        const char *first; /* the first generated text */
    } cases[] = {
        {"chatml",
         "<|im_start|>system\nSys<|im_end|>\n<|im_start|>user\nQ1<|im_end|>\n<|im_start|>"
         "assistant\n"
         "A1<|im_end|>\n<|im_start|>user\nQ2<|im_end|>\n<|im_start|>assistant\nA2<|im_end|>\n",
         "A1<|im_end|>"},
        {"llama3",
         "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nSys<|eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\nQ1<|eot_id|><|start_header_id|>assistant"
         "<|end_header_id|>\n\nA1<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nQ2<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\nA2<|eot_id|>",
         "A1<|eot_id|>"},
        {"llama2",
         "<s>[INST] <<SYS>>\nSys\n<</SYS>>\n\nQ1 [/INST] A1 </s><s>[INST] Q2 [/INST] A2 </s>",
         " A1 </s>"},
        {"mistral", "<s>[INST] Q1[/INST] A1</s>[INST] Sys\n\nQ2[/INST] A2</s>", " A1</s>"},
        {"alpaca",
         "Sys\n\n### Instruction:\nQ1\n\n### Response:\nA1\n\n### Instruction:\nQ2\n\n### "
         "Response:\n"
         "A2",
         "A1"},
        {"vicuna", "Sys USER: Q1 ASSISTANT: A1</s>USER: Q2 ASSISTANT: A2</s>", " A1</s>"},
    };
    struct text_row row;
    struct jinja_run *run = NULL;
    struct text_chat *chat = NULL;
    check_int(jinja_run_create(NULL, &run), ==, 0);
    check_int(text_row_parse(json, strlen(json), &row), ==, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct jinja_rendering got;
        check_int(text_chat_load(NULL, cases[i].name, 1, &chat), ==, 0);
        check_int(text_chat_render(chat, run, &row, 0, false, &got), ==, 0);
        check_string(got.text, cases[i].want);
        check_uint(got.generated_count, ==, 2);
        const size_t bytes = got.generated[0].end - got.generated[0].begin;
        check_uint(bytes, ==, strlen(cases[i].first));
        check_memory(got.text + got.generated[0].begin, cases[i].first, bytes);
        check_int(text_chat_render(chat, run, &row, 2, true, &got), ==, 0);
        check_true(strncmp(got.text, cases[i].want, strcspn(cases[i].want, "1")) == 0 || i == 3);
        text_chat_destroy(chat);
        check_contains(text_chat_formats(), cases[i].name);
        check_true(text_chat_format(cases[i].name) != NULL);
    }
    check_true(text_chat_format("none") == NULL);
    check_int(text_chat_load(NULL, NULL, 1, &chat), ==, 0);
    struct jinja_rendering got;
    check_int(text_chat_render(chat, run, &row, 0, false, &got), ==, -ENOTSUP);
    check_contains(core_err_message(), "--chat-format chatml|");
    check_true(text_chat_template(chat, true) == NULL &&
               text_chat_token(chat, "bos_token") == NULL);
    check_true(text_chat_token(chat, "frob") == NULL);
    check_int(text_chat_end(chat), ==, -1);
    text_chat_destroy(chat);
    text_row_fini(&row);
    jinja_run_destroy(run);
}

/* Templates and tokens are found in several places of a model folder. */
static void folders(void)
{
    struct text_chat *chat = NULL;
    static const char config[] =
        "{\"bos_token\": {\"content\": \"<b>\"}, \"chat_template\": [{\"name\": \"default\", "
        "\"template\": \"plain\"}, {\"name\": \"tool_use\", \"template\": \"tools\"}]}";
    const char *folder = model_folder("lists", "gpt2", config);
    test_file("lists/generation_config.json", "{\"eos_token_id\": [7, 8]}", 24);
    test_file("lists/special_tokens_map.json", "{\"bos_token\": \"no\", \"pad_token\": \"<p>\"}",
              39);
    check_true(folder != NULL);
    check_int(text_chat_load(folder, NULL, 1, &chat), ==, 0);
    check_string(text_chat_token(chat, "bos_token"), "no"); /* as in transformers */
    check_string(text_chat_token(chat, "pad_token"), "<p>");
    check_int(text_chat_end(chat), ==, 7);
    check_true(text_chat_template(chat, true) != text_chat_template(chat, false));
    text_chat_destroy(chat);
    test_file("lists/chat_template.jinja", "{{ 'file' }}", 12);
    check_int(text_chat_load(folder, NULL, 1, &chat), ==, 0);
    check_true(text_chat_template(chat, true) == text_chat_template(chat, false));
    text_chat_destroy(chat);
    test_file("lists/chat_template.jinja", "{{", 2);
    check_int(text_chat_load(folder, NULL, 1, &chat), ==, -EINVAL);
    check_contains(core_err_message(), "lists/chat_template.jinja:1: ");
    folder = model_folder("broken", "gpt2", "{\"chat_template\": [{\"name\": \"x\"}]}");
    check_int(text_chat_load(folder, NULL, 1, &chat), ==, -EINVAL);
    check_contains(core_err_message(), "chat_template[0]: has no name or no template");
    folder = model_folder("broken", "gpt2", "{\"chat_template\": 3}");
    check_int(text_chat_load(folder, NULL, 1, &chat), ==, -EINVAL);
    test_file("broken/tokenizer_config.json", "[]", 2);
    check_int(text_chat_load(folder, NULL, 1, &chat), ==, -EINVAL);
}

/* A template that writes earlier messages differently when others follow causes a warning, and
 * common text determines the trained parts. */
static void ambiguous(void)
{
    static const char config[] =
        "{\"eos_token\": \"<|im_end|>\", \"chat_template\": \"{% for m in messages %}{% if "
        "m.role == 'assistant' %}<a>{% if loop.last %}<think>{% endif %}{{ m.content }}<|im_end|>"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<a><think>no"
        "{% endif %}\"}";
    static const char json[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": "
        "\"assistant\", \"content\": \"A1\"}, {\"role\": \"user\", "
        "\"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"A2\"}]}";
    const char *folder = model_folder("ambiguous", "qwen2", config);
    struct text_encoder *encoder = NULL;
    char got[1000] = "";
    if (folder == NULL) {
        test_skip("this build lacks what the tokenizer needs");
    }
    test_listen(CORE_LOG_WARN);
    check_int(text_encoder_create(folder, NULL, 0, 1, &encoder), ==, 0);
    show(encoder, json, TEXT_TRAIN_COMPLETION, got, sizeof got);
    test_listen_end();
    check_contains(test_heard(), "{% generation %} in the template would mark it");
    check_contains(got, "A2<|im_end|>]");
    text_encoder_destroy(encoder);
    const char *files[] = {test_file("chat.jsonl", json, strlen(json))};
    const struct text_feed_options options = {.files = files,
                                              .files_count = 1,
                                              .seq_len = 64,
                                              .batch_rows = 1,
                                              .model = folder,
                                              .epochs = 1};
    struct text_feed *feed = NULL;
    struct text_batch batch;
    check_int(text_feed_open(&options, NULL, &feed), ==, 0);
    check_int(text_feed_next(feed, &batch), ==, 1);
    check_int(batch.targets, >=, 3);
    check_int(text_feed_next(feed, &batch), ==, 0);
    text_feed_close(feed);
    struct text_feed_options bare = options;
    bare.model = NULL;
    check_int(text_feed_open(&bare, NULL, &feed), ==, 0);
    check_int(text_feed_next(feed, &batch), ==, -ENOTSUP);
    check_contains(core_err_message(), "needs a model folder");
    text_feed_close(feed);
    bare.model = "/nonexistent";
    bare.on_bad_row = TEXT_BAD_SKIP;
    check_int(text_feed_open(&bare, NULL, &feed), ==, 0);
    check_int(text_feed_next(feed, &batch), ==, -ENOENT);
    text_feed_close(feed);
}

/* A template that marks the assistant's text, and one that does not, have the same trained
 * tokens. */
static void long_chat(void)
{
    static const char *const turns[] = {
        "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}",
        "{{ m.content }}<|im_end|>",
    };
    enum { TURNS = 30 };
    static char json[TURNS * 120];
    static char got[2][TURNS * 60];
    size_t bytes = (size_t)snprintf(json, sizeof json, "{\"messages\": [");
    for (int i = 0; i < TURNS; i++) {
        bytes += (size_t)snprintf(json + bytes, sizeof json - bytes,
                                  "%s{\"role\": \"%s\", \"content\": \"turn %d\"}",
                                  i > 0 ? "," : "", i % 2 == 0 ? "user" : "assistant", i);
    }
    snprintf(json + bytes, sizeof json - bytes, "]}");
    for (size_t i = 0; i < 2; i++) {
        char config[1000];
        struct text_encoder *encoder = NULL;
        snprintf(config, sizeof config,
                 "{\"eos_token\": \"<|im_end|>\", \"chat_template\": \"{%% for m in messages %%}"
                 "{%% if m.role == 'assistant' %%}<a>%s{%% else %%}<u>{{ m.content }}{%% endif %%}"
                 "{%% endfor %%}{%% if add_generation_prompt %%}<a>{%% endif %%}\"}",
                 turns[i]);
        const char *folder = model_folder("long", "qwen2", config);
        if (folder == NULL) {
            test_skip("this build lacks what the tokenizer needs");
        }
        check_int(text_encoder_create(folder, NULL, 0, 1, &encoder), ==, 0);
        show(encoder, json, TEXT_TRAIN_COMPLETION, got[i], sizeof got[i]);
        text_encoder_destroy(encoder);
        check_string(got[i], got[0]);
    }
    check_contains(got[0], "<u>turn 28<a>[turn 29<|im_end|>]");
    check_contains(got[0], "<u>turn 0<a>[turn 1<|im_end|>]<u>");
}

/* Keeping the conversation does not change how its first messages are rendered. */
static void beginnings(void)
{
    static const char json[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
        "\"content\": \"a\"}, {\"role\": \"user\", \"content\": \"r\"}]}";
    struct text_chat *chat = NULL;
    struct text_row row;
    struct jinja_rendering parts[2];
    struct jinja_run *runs[2] = {NULL, NULL};
    check_int(text_chat_load(NULL, "chatml", 1, &chat), ==, 0);
    check_int(text_row_parse(json, strlen(json), &row), ==, 0);
    for (size_t i = 0; i < 2; i++) {
        check_int(jinja_run_create(NULL, &runs[i]), ==, 0);
    }
    check_int(jinja_run_keep(runs[1], row.messages), ==, 0);
    for (size_t messages = 0; messages <= 3; messages++) {
        for (size_t i = 0; i < 2; i++) {
            check_int(text_chat_render(chat, runs[i], &row, messages, messages == 1, &parts[i]), ==,
                      0);
        }
        check_string(parts[1].text, parts[0].text);
    }
    check_contains(parts[0].text, "r<|im_end|>");
    jinja_run_destroy(runs[0]);
    jinja_run_destroy(runs[1]);
    text_row_fini(&row);
    text_chat_destroy(chat);
}

static const char *life_folder;

static int life(void)
{
    static const char chat[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, "
        "{\"role\": \"assistant\", \"content\": \"Yo\"}], \"tools\": \"[]\"}";
    static const char *const rows[] = {
        "{\"text\": \"hello\"}", "{\"instruction\": \"a\", \"output\": \"b\", \"input\": \"c\"}",
        chat, "{\"prompt\": \"a\", \"completion\": \"b\"}"};
    return model_folder_encode(life_folder, rows, 4, text_row_parse);
}

/* A failed allocation is an error; nothing leaks. */
static void out_of_memory(void)
{
    life_folder = model_folder("life", "gpt2", qwen_config);
    check_true(life_folder != NULL);
    check_int(test_fail_nth(life), >=, 20);
}

TEST_MAIN({"kinds", kinds}, {"wrong_rows", wrong_rows}, {"plain_messages", plain_messages},
          {"too_many_variables", too_many_variables}, {"formats", formats}, {"folders", folders},
          {"ambiguous", ambiguous}, {"long_chat", long_chat}, {"beginnings", beginnings},
          {"out_of_memory", out_of_memory})
