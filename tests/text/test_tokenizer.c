/* test_tokenizer.c: compares tokenizers with the `tokenizers` package
 * (tests/oracle/tokenizer_check.py), and tests errors in files. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/json/json.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"
#include "tools/text/tokenizer/tokenizer.h"

static const char *const families[] = {"gpt2",   "llama3",   "qwen2",     "tekken",
                                       "o200k",  "deepseek", "starcoder", "nested",
                                       "llama2", "mistral",  "plain",     "nfd"};
enum { FAMILIES = sizeof families / sizeof families[0] };

struct subject {
    struct text_tokenizer *tokenizer;
    struct text_scratch *scratch;
};

/* Opens a family, or returns false if this build cannot. */
static bool open_family(const char *name, struct subject *out)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/text/fixtures/%s.json", test_root(), name);
    int code = text_tokenizer_load(path, &out->tokenizer);
    if (code == -ENOTSUP) {
        check_contains(core_err_message(), "built without");
        test_note("%s", core_err_message());
        return false;
    }
    if (code != 0) {
        test_note("%s", core_err_message());
    }
    check_int(code, ==, 0);
    check_int(text_scratch_create(out->tokenizer, &out->scratch), ==, 0);
    return true;
}

static void close_family(struct subject *subject)
{
    text_scratch_destroy(subject->scratch);
    text_tokenizer_destroy(subject->tokenizer);
}

static struct core_json *rows_of(const char *name)
{
    char path[4096];
    struct core_json *doc = NULL;
    snprintf(path, sizeof path, "%s/text/fixtures/%s.rows.json", test_root(), name);
    check_int(core_json_load(path, NULL, &doc), ==, 0);
    return doc;
}

static void check_ids(const char *name, const struct core_json_value *row,
                      const struct text_encoding *encoding)
{
    const struct core_json_value *ids = core_json_at(row, 1);
    bool same = core_json_count(ids) == encoding->count;
    for (size_t i = 0; i < encoding->count && same; i++) {
        same = core_json_integer(core_json_at(ids, i)) == (int64_t)encoding->ids[i];
    }
    if (!same) {
        char text[200];
        core_json_print(core_json_at(row, 0), text, sizeof text);
        test_fail(__FILE__, __LINE__, "%s: other ids for %s", name, text);
    }
}

static void check_row(const char *name, struct text_scratch *scratch,
                      const struct core_json_value *row)
{
    size_t bytes;
    size_t want_bytes;
    size_t back_bytes;
    const char *back;
    struct text_encoding encoding;
    const char *text = core_json_string(core_json_at(row, 0), &bytes);
    const char *want = core_json_string(core_json_at(row, 3), &want_bytes);
    check_int(text_tokenizer_encode(scratch, text, bytes, TEXT_ENCODE_SPECIAL, &encoding), ==, 0);
    check_ids(name, row, &encoding);
    size_t framed = encoding.count;
    check_int(text_tokenizer_encode(scratch, text, bytes, 0, &encoding), ==, 0);
    check_int(framed - encoding.count, ==, core_json_integer(core_json_at(row, 2)));
    uint32_t *ids = malloc((encoding.count + 1) * sizeof *ids);
    check_true(ids != NULL);
    for (size_t i = 0; i < encoding.count; i++) {
        ids[i] = encoding.ids[i];
    }
    check_int(text_tokenizer_decode(scratch, ids, encoding.count, false, &back, &back_bytes), ==,
              0);
    check_uint(back_bytes, ==, want_bytes);
    check_memory(back, want, want_bytes);
    free(ids);
}

/* Ids and decoded text are those of the `tokenizers` package. */
static void fixtures(void)
{
    for (size_t k = 0; k < FAMILIES; k++) {
        struct subject subject;
        if (!open_family(families[k], &subject)) {
            continue;
        }
        struct core_json *doc = rows_of(families[k]);
        const struct core_json_value *rows = core_json_root(doc);
        check_uint(core_json_count(rows), >, 200);
        for (size_t i = 0; i < core_json_count(rows); i++) {
            check_row(families[k], subject.scratch, core_json_at(rows, i));
        }
        core_json_destroy(doc);
        close_family(&subject);
    }
}

/* Spans of tokens cover the text in order, and do not change ids. */
static void spans_cover_the_text(void)
{
    static const char text[] = "Hello  wörld, it's 1234 的一是 \xF0\x9F\x98\x80!\n<|eot_id|> x";
    static const char *const names[] = {"llama3", "tekken", "gpt2"};
    for (size_t k = 0; k < 3; k++) {
        struct subject subject;
        struct text_encoding encoding;
        uint32_t ids[200];
        check_true(open_family(names[k], &subject));
        check_int(text_tokenizer_encode(subject.scratch, text, sizeof text - 1, 0, &encoding), ==,
                  0);
        check_true(encoding.spans == NULL && encoding.count < 200);
        size_t count = encoding.count;
        memcpy(ids, encoding.ids, count * sizeof *ids);
        check_int(text_tokenizer_encode(subject.scratch, text, sizeof text - 1, TEXT_ENCODE_SPANS,
                                        &encoding),
                  ==, 0);
        check_uint(encoding.count, ==, count);
        check_memory(encoding.ids, ids, count * sizeof *ids);
        uint32_t at = 0;
        for (size_t i = 0; i < count; i++) {
            check_uint(encoding.spans[i].begin, ==, at);
            at = encoding.spans[i].end;
        }
        check_uint(at, ==, sizeof text - 1);
        close_family(&subject);
    }
}

/* Tests names, ids and special tokens. */
static void tokens_have_names(void)
{
    struct subject subject;
    const char *text;
    size_t bytes;
    check_true(open_family("llama3", &subject));
    const struct text_added *added = text_tokenizer_added(subject.tokenizer, 0);
    check_true(added != NULL && added->special);
    check_string(added->content, "<|begin_of_text|>");
    check_int(text_tokenizer_id(subject.tokenizer, added->content, added->bytes), ==, added->id);
    check_int(text_tokenizer_id(subject.tokenizer, "no such", 7), ==, -1);
    const char *token = text_tokenizer_token(subject.tokenizer, added->id, &bytes);
    check_uint(bytes, ==, added->bytes);
    check_memory(token, added->content, bytes);
    size_t size = text_tokenizer_size(subject.tokenizer);
    check_true(text_tokenizer_token(subject.tokenizer, (uint32_t)size, &bytes) == NULL);
    check_true(text_tokenizer_added(subject.tokenizer, 2) == NULL);
    uint32_t ids[3] = {added->id, 0, added->id};
    ids[1] = (uint32_t)text_tokenizer_id(subject.tokenizer, "a", 1);
    check_int(text_tokenizer_decode(subject.scratch, ids, 3, true, &text, &bytes), ==, 0);
    check_string(text, "a");
    check_int(text_tokenizer_decode(subject.scratch, ids, 3, false, &text, &bytes), ==, 0);
    check_string(text, "<|begin_of_text|>a<|begin_of_text|>");
    ids[1] = (uint32_t)size;
    check_int(text_tokenizer_decode(subject.scratch, ids, 3, true, &text, &bytes), ==, -ERANGE);
    check_contains(core_err_message(), "is not a token");
    check_int(text_tokenizer_check(subject.tokenizer, size), ==, 0);
    check_int(text_tokenizer_check(subject.tokenizer, size - 1), ==, -EINVAL);
    check_contains(core_err_message(), "embeddings");
    close_family(&subject);
}

/* A Metaspace decoder drops the first token's spaces unless nothing was prepended. The texts are
 * those of the `tokenizers` package. */
static void metaspace(void)
{
    static const struct {
        const char *keys;
        const char *texts[3];
    } rows[] = {
        {"\"prepend_scheme\":\"always\"", {"ab   a", "\xC3\xA9 ", "\xC3\xA9  a"}},
        {"\"prepend_scheme\":\"first\"", {"ab   a", "\xC3\xA9 ", "\xC3\xA9  a"}},
        {"\"prepend_scheme\":\"never\"", {"  ab   a", " \xC3\xA9 ", "\xC3\xA9  a"}},
        {"\"add_prefix_space\":true", {"ab   a", "\xC3\xA9 ", "\xC3\xA9  a"}},
        {"\"add_prefix_space\":false", {"  ab   a", " \xC3\xA9 ", "\xC3\xA9  a"}},
    };
    static const uint32_t ids[3][3] = {{0, 1, 0}, {2, 3, 2}, {3, 0}};
    static const size_t counts[3] = {3, 3, 2};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char json[512];
        struct subject subject;
        const int bytes = snprintf(
            json, sizeof json,
            "{\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",%s},\"model\":{"
            "\"vocab\":{"
            "\"\\u2581\\u2581a\":0,\"b\\u2581\":1,\"\\u2581\":2,\"\\u00e9\":3},\"merges\":[]}}",
            rows[i].keys);
        check_int(text_tokenizer_parse(json, (size_t)bytes, "t.json", NULL, &subject.tokenizer), ==,
                  0);
        check_int(text_scratch_create(subject.tokenizer, &subject.scratch), ==, 0);
        for (size_t k = 0; k < 3; k++) {
            const char *text = NULL;
            size_t length = 0;
            check_int(
                text_tokenizer_decode(subject.scratch, ids[k], counts[k], false, &text, &length),
                ==, 0);
            check_string(text, rows[i].texts[k]);
        }
        close_family(&subject);
    }
}

/* Ids missing in the vocabulary may be added tokens; others decode to nothing. */
static void holes(void)
{
    static const char json[] =
        "{\"added_tokens\":[{\"id\":2,\"content\":\"b\"}],\"model\":{\"vocab\":{\"a\":0,\"b\":2},"
        "\"merges\":[]}}";
    struct text_tokenizer *tokenizer = NULL;
    struct text_scratch *scratch = NULL;
    struct text_encoding encoding;
    check_int(text_tokenizer_parse(json, sizeof json - 1, "t.json", NULL, &tokenizer), ==, 0);
    check_uint(text_tokenizer_size(tokenizer), ==, 3);
    check_int(text_scratch_create(tokenizer, &scratch), ==, 0);
    check_int(text_tokenizer_encode(scratch, "ba", 2, 0, &encoding), ==, 0);
    check_uint(encoding.count, ==, 2);
    check_uint(encoding.ids[0], ==, 2);
    check_uint(encoding.ids[1], ==, 0);
    const uint32_t ids[] = {0, 1, 2};
    const char *text = NULL;
    size_t bytes = 0;
    check_int(text_tokenizer_decode(scratch, ids, 3, false, &text, &bytes), ==, 0);
    check_uint(bytes, ==, 4);
    check_int(memcmp(text, "a  b", 4), ==, 0);
    text_scratch_destroy(scratch);
    text_tokenizer_destroy(tokenizer);
}

static void put_instead(char *json, const char *old, const char *new)
{
    char *at = strstr(json, old);
    check_true(at != NULL && strlen(old) == strlen(new));
    memcpy(at, new, strlen(new));
}

/* An empty prefix, an empty suffix and an unused unknown token do not change ids. */
static void nothings(void)
{
    char path[4096];
    char *json = NULL;
    size_t bytes = 0;
    struct subject subject;
    snprintf(path, sizeof path, "%s/text/fixtures/gpt2.json", test_root());
    check_int(core_file_read(path, 1 << 20, &json, &bytes), ==, 0);
    put_instead(json, "\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"\"  ");
    put_instead(json, "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"\"  ");
    put_instead(json, "\"unk_token\":null", "\"unk_token\":\"??\"");
    check_int(text_tokenizer_parse(json, bytes, "t.json", NULL, &subject.tokenizer), ==, 0);
    check_int(text_scratch_create(subject.tokenizer, &subject.scratch), ==, 0);
    struct core_json *doc = rows_of("gpt2");
    for (size_t i = 0; i < core_json_count(core_json_root(doc)); i++) {
        check_row("gpt2", subject.scratch, core_json_at(core_json_root(doc), i));
    }
    core_json_destroy(doc);
    close_family(&subject);
    free(json);
}

/* Checks a case of odd_pipelines.json: a whole file, or two parts with the vocabulary between
 * them. */
static void check_odd(const char *vocab, const struct core_json_value *odd, size_t index)
{
    char name[60];
    char *json = NULL;
    struct subject subject = {0};
    struct text_encoding encoding;
    const struct core_json_value *parts = core_json_find(odd, "parts");
    const struct core_json_value *rows = core_json_find(odd, "rows");
    const bool whole = core_json_count(parts) == 1;
    const char *after = whole ? "" : core_json_string(core_json_at(parts, 1), NULL);
    const int bytes = asprintf(&json, "%s%s%s", core_json_string(core_json_at(parts, 0), NULL),
                               whole ? "" : vocab, after);
    snprintf(name, sizeof name, "odd_pipelines.json: %zu", index);
    const int code = text_tokenizer_parse(json, (size_t)bytes, name, NULL, &subject.tokenizer);
    if (code == -ENOTSUP) {
        check_contains(core_err_message(), "built without");
    } else {
        if (code != 0) {
            test_note("%s", core_err_message());
        }
        check_int(code, ==, 0);
        check_int(text_scratch_create(subject.tokenizer, &subject.scratch), ==, 0);
    }
    for (size_t i = 0; code == 0 && i < core_json_count(rows); i++) {
        size_t length;
        const struct core_json_value *row = core_json_at(rows, i);
        const char *text = core_json_string(core_json_at(row, 0), &length);
        check_int(text_tokenizer_encode(subject.scratch, text, length, 0, &encoding), ==, 0);
        check_true(encoding.spans == NULL);
        check_ids(name, row, &encoding);
    }
    close_family(&subject);
    free(json);
}

/* Unusual pipelines give the results of the `tokenizers` package. */
static void odd_pipelines(void)
{
    char path[4096];
    struct core_json *doc = NULL;
    snprintf(path, sizeof path, "%s/text/fixtures/odd_pipelines.json", test_root());
    check_int(core_json_load(path, NULL, &doc), ==, 0);
    const char *vocab = core_json_string(core_json_find(core_json_root(doc), "vocab"), NULL);
    const struct core_json_value *cases = core_json_find(core_json_root(doc), "cases");
    check_uint(core_json_count(cases), >, 30);
    for (size_t i = 0; i < core_json_count(cases); i++) {
        check_odd(vocab, core_json_at(cases, i), i);
    }
    core_json_destroy(doc);
}

/* Text that is not UTF-8 is refused with the byte's index. */
static void bad_text(void)
{
    struct subject subject;
    struct text_encoding encoding;
    check_true(open_family("gpt2", &subject));
    check_int(text_tokenizer_encode(subject.scratch, "abcdefghij\xC3(", 12, 0, &encoding), ==,
              -EILSEQ);
    check_contains(core_err_message(), "byte 10 ");
    close_family(&subject);
}

/* Long texts do not take quadratic time. */
static void long_texts(void)
{
    static const char *const units[] = {
        "a", " ", "7", "\n", ".", "A", "的", "e\xCC\x81", "\xCC\x81\xCC\xA3", "a\n"};
    size_t bytes = TEST_COUNT(1 << 18, 1 << 13);
    char *text = malloc(bytes);
    check_true(text != NULL);
    for (size_t k = 0; k < FAMILIES; k++) {
        struct subject subject;
        if (!open_family(families[k], &subject)) {
            continue;
        }
        for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
            struct text_encoding encoding;
            size_t unit = strlen(units[u]);
            for (size_t i = 0; i < bytes / unit; i++) {
                memcpy(text + i * unit, units[u], unit);
            }
            check_int(
                text_tokenizer_encode(subject.scratch, text, bytes / unit * unit, 0, &encoding), ==,
                0);
        }
        close_family(&subject);
    }
    free(text);
}

static void *encode_rows(void *argument)
{
    const struct text_tokenizer *tokenizer = argument;
    struct text_scratch *scratch = NULL;
    uint64_t sum = 0;
    if (text_scratch_create(tokenizer, &scratch) != 0) {
        return NULL;
    }
    struct core_json *doc = rows_of("llama3");
    for (size_t i = 0; i < core_json_count(core_json_root(doc)); i++) {
        size_t bytes;
        struct text_encoding encoding;
        const char *text = core_json_string(core_json_at(core_json_at(core_json_root(doc), i), 0),
                                            &bytes);
        if (text_tokenizer_encode(scratch, text, bytes, 0, &encoding) == 0) {
            for (size_t k = 0; k < encoding.count; k++) {
                sum = sum * 31 + encoding.ids[k];
            }
        }
    }
    core_json_destroy(doc);
    text_scratch_destroy(scratch);
    return (void *)(uintptr_t)sum;
}

/* Threads can share a tokenizer. */
static void threads(void)
{
    struct subject subject;
    pthread_t thread[4];
    check_true(open_family("llama3", &subject));
    void *want = encode_rows(subject.tokenizer);
    check_true(want != NULL);
    for (size_t i = 0; i < 4; i++) {
        check_int(pthread_create(&thread[i], NULL, encode_rows, subject.tokenizer), ==, 0);
    }
    for (size_t i = 0; i < 4; i++) {
        void *got;
        pthread_join(thread[i], &got);
        check_true(got == want);
    }
    close_family(&subject);
}

#define MODEL "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

/* Errors in a file name the file and the key. */
static void bad_files(void)
{
    static const struct {
        const char *json;
        const char *says;
    } rows[] = {
        {"{\"model\":", "1:10: "},
        {"[]", "must be an object"},
        {"{}", "key \"model\" is missing"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "model.type is \"Unigram\""},
        {"{\"model\":{\"type\":\"WordPiece\"}}", "\"WordPiece\"; tide reads BPE"},
        {"{\"model\":{\"vocab\":[],\"merges\":[]}}", "model.vocab: must be an object"},
        {"{\"model\":{\"vocab\":{\"a\":0}}}", "model has no merges"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "id 0 belongs to two tokens"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"\\u0061\":1},\"merges\":[]}}", "duplicate key \"a\""},
        {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", "must be 0 or more"},
        {"{\"model\":{\"vocab\":{\"a\":99999999},\"merges\":[]}}", "ids go up to"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a c\"]}}",
         "model.merges[0]: \"c\" is not in model.vocab"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", "\"aa\" is not in"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}}", "one space between"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "[\"left\", \"right\"]"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"?\"}}",
         "model.unk_token: \"?\""},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"byte_fallback\":true},"
         "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}",
         "model.byte_fallback together with"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.5}}", "model.dropout"},
        {"{\"model\":" MODEL ",\"added_tokens\":[{\"id\":5,\"content\":\"x\"}]}",
         "is the next one"},
        {"{\"model\":" MODEL ",\"added_tokens\":[{\"id\":7,\"content\":\"\"}]}",
         "content is empty"},
        {"{\"model\":" MODEL ",\"added_tokens\":[{\"id\":0,\"content\":\"b\"}]}",
         "added_tokens[0]: \"b\" has id 0 here and 1"},
        {"{\"model\":" MODEL ",\"added_tokens\":[{\"id\":3,\"content\":\"x\"},"
         "{\"id\":3,\"content\":\"y\"}]}",
         "added_tokens[1]: \"y\" has id 3, but 4 is the next one"},
        {"{\"model\":" MODEL ",\"normalizer\":{\"type\":\"Nmt\"}}", "normalizer has a type"},
        {"{\"model\":" MODEL ",\"pre_tokenizer\":{\"type\":\"Odd\"}}", "read: Odd"},
        {"{\"model\":" MODEL ",\"pre_tokenizer\":{}}", "pre_tokenizer"},
        {"{\"model\":" MODEL ",\"decoder\":{\"type\":\"CTC\"}}", "decoder has a type"},
        {"{\"model\":" MODEL ",\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,"
         "\"stop\":0}}",
         "decoder has a negative start"},
        {"{\"model\":" MODEL ",\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\","
         "\"prepend_scheme\":1}}",
         "prepend_scheme"},
        {"{\"model\":" MODEL ",\"post_processor\":{\"type\":\"BertProcessing\"}}", "read: Bert"},
        {"{\"model\":" MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
         "{\"SpecialToken\":{\"id\":\"s\"}}],\"special_tokens\":{\"s\":{\"ids\":[7]}}}}",
         "no token has the id 7"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct text_tokenizer *tokenizer = NULL;
        int code = text_tokenizer_parse(rows[i].json, strlen(rows[i].json), "t.json", NULL,
                                        &tokenizer);
        if (code == 0) {
            test_fail(__FILE__, __LINE__, "accepted: %s", rows[i].json);
        }
        check_contains(core_err_message(), "t.json");
        check_contains(core_err_message(), rows[i].says);
    }
    struct text_tokenizer *tokenizer = NULL;
    check_int(text_tokenizer_load("/no/such/folder", &tokenizer), ==, -ENOENT);
}

static const char *life_json;

static int life(void)
{
    static const char text[] = "  Ab a<x>B\xC3\xA9 \xE2\x82\xAC ";
    struct text_tokenizer *tokenizer = NULL;
    struct text_scratch *scratch = NULL;
    struct text_encoding encoding;
    const char *back;
    size_t bytes;
    int rc = text_tokenizer_parse(life_json, strlen(life_json), "life", NULL, &tokenizer);
    if (rc != 0 || (rc = text_scratch_create(tokenizer, &scratch)) != 0 ||
        (rc = text_tokenizer_encode(scratch, text, sizeof text - 1,
                                    TEXT_ENCODE_SPECIAL | TEXT_ENCODE_SPANS, &encoding)) != 0) {
        goto cleanup;
    }
    uint32_t ids[64];
    check_uint(encoding.count, >, 6);
    check_uint(encoding.count, <, 64);
    memcpy(ids, encoding.ids, encoding.count * sizeof *ids);
    rc = text_tokenizer_decode(scratch, ids, encoding.count, false, &back, &bytes);
cleanup:
    text_scratch_destroy(scratch);
    text_tokenizer_destroy(tokenizer);
    return rc;
}

/* A failed allocation is an error; nothing leaks. */
static void out_of_memory(void)
{
#define LIFE(normalizers, pre_tokenizers, decoders, fallback)                                      \
    "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\xE2\x96\x81\":3,\"<0xE2>\":4,"             \
    "\"<0x82>\":5,\"<0xAC>\":6,\"?\":7},\"merges\":[\"a b\"],\"unk_token\":\"?\","                 \
    "\"byte_fallback\":" fallback "},"                                                             \
    "\"added_tokens\":[{\"id\":8,\"content\":\"<x>\",\"special\":true},"                           \
    "{\"id\":9,\"content\":\"ba\",\"normalized\":true}],"                                          \
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" normalizers                          \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"B\"},\"content\":\"b\"},"                     \
    "{\"type\":\"Prepend\",\"prepend\":\"a\"},{\"type\":\"Strip\"}]},"                             \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" pre_tokenizers "]},"            \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["                             \
    "{\"SpecialToken\":{\"id\":\"<x>\"}},{\"Sequence\":{}},{\"SpecialToken\":{\"id\":\"<x>\"}}],"  \
    "\"special_tokens\":{\"<x>\":{\"ids\":[8]}}},"                                                 \
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" decoders "]}}"
/* Without normal forms, which call the library for each code point: too slow here. */
#define LIFE_LOWER "{\"type\":\"Lowercase\"},"
#define LIFE_META                                                                                  \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+|[^\\\\s]\"},\"behavior\":\"Isolated\"},"  \
    "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"first\"}"
#define LIFE_BYTES "{\"type\":\"Digits\"},{\"type\":\"ByteLevel\"}"
#define LIFE_PIECES                                                                                \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"?\"},\"content\":\"!\"},"                     \
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"                                             \
    "{\"type\":\"Strip\",\"content\":\"a\",\"start\":1,\"stop\":1}"
    static const char *const lives[][2] = {
        {LIFE(LIFE_LOWER, LIFE_META, LIFE_PIECES, "true"),
         LIFE("", LIFE_META, LIFE_PIECES, "true")},
        {LIFE(LIFE_LOWER, LIFE_BYTES, "{\"type\":\"ByteLevel\"}", "false"),
         LIFE("", LIFE_BYTES, "{\"type\":\"ByteLevel\"}", "false")}};
    for (size_t i = 0; i < 2; i++) {
        struct text_tokenizer *tokenizer = NULL;
        life_json = lives[i][0];
        int rc = text_tokenizer_parse(life_json, strlen(life_json), "life", NULL, &tokenizer);
        text_tokenizer_destroy(tokenizer);
        life_json = lives[i][rc == -ENOTSUP]; /* Lowercase needs utf8proc */
        check_int(test_fail_nth(life), >=, 20);
    }
}

TEST_MAIN({"fixtures", fixtures}, {"odd pipelines", odd_pipelines},
          {"spans_cover_the_text", spans_cover_the_text}, {"tokens_have_names", tokens_have_names},
          {"metaspace", metaspace}, {"holes", holes}, {"nothings", nothings},
          {"bad_text", bad_text}, {"long_texts", long_texts}, {"threads", threads},
          {"bad_files", bad_files}, {"out_of_memory", out_of_memory})
