/* Tests how the assistant's text is found in templates without {% generation %}. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/json/json.h"
#include "core/json/write.h"
#include "tests/harness/test.h"
#include "tests/text/model_folder.h"
#include "tools/text/data/chat.h"
#include "tools/text/data/row.h"
#include "tools/text/data/turns.h"
#include "tools/text/tokenizer/tokenizer.h"

struct bench {
    struct text_chat *chat;
    struct text_tokenizer *tokenizer;
    struct jinja_run *run;
    struct text_turns turns;
    struct text_row row;
    struct jinja_rendering whole;
    _Atomic bool said;
};

/* Makes a folder with these special tokens, or returns NULL if this build cannot read it. */
static const char *make_folder(const char *source, const struct core_json_value *special)
{
    struct core_json_write json;
    core_json_write_init_text(&json);
    core_json_write_object_begin(&json, NULL);
    core_json_write_string(&json, "chat_template", source);
    if (special != NULL) {
        core_json_write_value(&json, "additional_special_tokens", special);
    }
    core_json_write_object_end(&json);
    check_int(core_json_write_end(&json), ==, 0);
    const char *folder = model_folder("turns", "qwen2", json.text);
    core_json_write_fini(&json);
    return folder;
}

static void open_bench(struct bench *bench, const char *source,
                       const struct core_json_value *special)
{
    const char *folder = make_folder(source, special);
    *bench = (struct bench){0};
    if (folder == NULL) {
        test_skip("this build lacks what the tokenizer needs");
    }
    check_int(text_tokenizer_load(folder, &bench->tokenizer), ==, 0);
    check_int(text_chat_load(folder, NULL, 1, &bench->chat), ==, 0);
    check_int(jinja_run_create(NULL, &bench->run), ==, 0);
    check_int(text_turns_init(&bench->turns, &bench->said), ==, 0);
}

static void close_bench(struct bench *bench)
{
    text_turns_fini(&bench->turns);
    jinja_run_destroy(bench->run);
    text_chat_destroy(bench->chat);
    text_tokenizer_destroy(bench->tokenizer);
}

static int find(struct bench *bench, const char *json, size_t bytes)
{
    struct text_turns_whole asked = {.chat = bench->chat,
                                     .tokenizer = bench->tokenizer,
                                     .row = &bench->row,
                                     .text = &bench->whole};
    check_int(text_row_parse(json, bytes, &bench->row), ==, 0);
    check_int(text_chat_render(bench->chat, bench->run, &bench->row, 0, false, &bench->whole), ==,
              0);
    int code = text_turns_find(&bench->turns, &asked);
    text_row_fini(&bench->row);
    return code;
}

static bool is_wanted(const struct core_json_value *want, size_t index,
                      const struct jinja_span *span)
{
    return span->begin == (size_t)core_json_integer(core_json_at(want, 2 * index)) &&
           span->end == (size_t)core_json_integer(core_json_at(want, 2 * index + 1));
}

static void check_spans(const struct bench *bench, const struct core_json_value *template,
                        size_t conversation)
{
    const char *name = core_json_string(core_json_find(template, "name"), NULL);
    const struct core_json_value *want = core_json_at(core_json_find(template, "spans"),
                                                      conversation);
    bool same = core_json_count(want) == 2 * bench->turns.count;
    for (size_t i = 0; i < bench->turns.count && same; i++) {
        same = is_wanted(want, i, &bench->turns.spans[i]);
    }
    if (!same) {
        char got[2000] = "";
        for (size_t i = 0; i < bench->turns.count; i++) {
            const size_t at = strlen(got);
            snprintf(got + at, sizeof got - at, " %zu-%zu", bench->turns.spans[i].begin,
                     bench->turns.spans[i].end);
        }
        test_fail(__FILE__, __LINE__, "%s, conversation %zu: %s of:\n%s", name, conversation, got,
                  bench->whole.text);
    }
}

/* The trained parts are those of the fixture (tests/oracle/turns.py). */
static void fixture(void)
{
    char path[4096];
    struct core_json *doc = NULL;
    snprintf(path, sizeof path, "%s/text/fixtures/turns.json", test_root());
    check_int(core_json_load(path, NULL, &doc), ==, 0);
    const struct core_json_value *root = core_json_root(doc);
    const struct core_json_value *talks = core_json_find(root, "conversations");
    const struct core_json_value *all = core_json_find(root, "templates");
    check_uint(core_json_count(all), >=, 12);
    check_uint(core_json_count(talks), >=, 30);
    for (size_t i = 0; i < core_json_count(all); i++) {
        struct bench bench;
        const struct core_json_value *one = core_json_at(all, i);
        open_bench(&bench, core_json_string(core_json_find(one, "source"), NULL),
                   core_json_find(root, "special"));
        for (size_t k = 0; k < core_json_count(talks); k++) {
            struct core_json_write json;
            core_json_write_init_text(&json);
            core_json_write_object_begin(&json, NULL);
            core_json_write_value(&json, "messages", core_json_at(talks, k));
            core_json_write_object_end(&json);
            check_int(core_json_write_end(&json), ==, 0);
            check_int(find(&bench, json.text, json.bytes), ==, 0);
            check_spans(&bench, one, k);
            core_json_write_fini(&json);
        }
        if (atomic_load(&bench.said) != core_json_bool(core_json_find(one, "warns"))) {
            test_fail(__FILE__, __LINE__, "%s: %s said",
                      core_json_string(core_json_find(one, "name"), NULL),
                      atomic_load(&bench.said) ? "" : "nothing");
        }
        close_bench(&bench);
    }
    core_json_destroy(doc);
}

/* If the first messages are always rendered differently, a question is not taken for an answer. */
static void not_told(void)
{
    static const char json[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
        "\"content\": \"a\"}, {\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
        "\"content\": \"b\"}]}";
    struct bench bench;
    open_bench(&bench,
               "{{ messages | length }}{% for m in messages %}<{{ m.role }}>{{ m.content }}"
               "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
               NULL);
    check_int(find(&bench, json, strlen(json)), ==, 0);
    check_uint(bench.turns.count, ==, 0);
    check_true(atomic_load(&bench.said));
    close_bench(&bench);
    open_bench(&bench,
               "{% if messages | length == 3 %}{{ raise_exception('three') }}{% endif %}"
               "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
               "{% if add_generation_prompt %}<assistant>{% endif %}",
               NULL);
    check_int(find(&bench, json, strlen(json)), ==, -EINVAL);
    check_contains(core_err_message(), "messages[3]: the assistant's text cannot be located");
    close_bench(&bench);
}

TEST_MAIN({"fixture", fixture}, {"not_told", not_told})
