/* Tests the document tree and the writer. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/rng.h"
#include "core/json/json.h"
#include "core/json/write.h"
#include "tests/harness/test.h"

static struct core_json *parse_with(const char *text, bool lenient)
{
    struct core_json *doc = NULL;
    const struct core_json_options options = {.lenient = lenient};
    if (core_json_parse(text, strlen(text), "t.json", &options, &doc) != 0) {
        test_fail(__FILE__, __LINE__, "%s: %s", text, core_err_message());
    }
    return doc;
}

static struct core_json *parse(const char *text)
{
    return parse_with(text, false);
}

/* Values are read by kind; members keep the order of the file. */
static void values(void)
{
    struct core_json *doc = parse(
        "{\"z\":1,\"a\":[true,null,\"x\\u0000y\",2.5,-7],\"m\":{\"k\":5e8}}");
    const struct core_json_value *root = core_json_root(doc);
    check_string(core_json_source(doc), "t.json");
    check_int(core_json_kind(root), ==, CORE_JSON_OBJECT);
    check_uint(core_json_count(root), ==, 3);
    static const char *const order[] = {"z", "a", "m"};
    struct core_json_member member;
    size_t seen = 0;
    for (bool any = core_json_first(root, &member); any; any = core_json_next(&member)) {
        check_string(member.key, order[seen++]);
        check_uint(member.key_bytes, ==, 1);
    }
    check_uint(seen, ==, 3);
    const struct core_json_value *array = core_json_find(root, "a");
    check_uint(core_json_count(array), ==, 5);
    check_true(core_json_bool(core_json_at(array, 0)));
    check_int(core_json_kind(core_json_at(array, 1)), ==, CORE_JSON_NULL);
    size_t bytes = 0;
    check_memory(core_json_string(core_json_at(array, 2), &bytes), "x\0y", 4);
    check_uint(bytes, ==, 3);
    check_double(core_json_real(core_json_at(array, 3)), ==, 2.5);
    check_double(core_json_real(core_json_at(array, 4)), ==, -7);
    check_int(core_json_integer(core_json_at(array, 4)), ==, -7);
    check_true(core_json_at(array, 5) == NULL);
    check_true(core_json_find(root, "none") == NULL);
    check_true(core_json_find(array, "none") == NULL);
    check_true(core_json_at(root, 0) == NULL);
    check_uint(core_json_count(core_json_find(root, "z")), ==, 0);
    check_true(!core_json_first(array, &member));
    core_json_destroy(doc);
    core_json_destroy(NULL);
}

/* Typed lookups accept suitable values and report the position of others. */
static void typed(void)
{
    struct core_json *doc = parse("{\n \"i\": 5e8, \"f\": 1.5, \"b\": true,\n \"s\": \"x\", "
                                  "\"n\": null, \"o\": {\"p\": [1,\n {\"q\": \"s\\u0000\"}]}}");
    const struct core_json_value *root = core_json_root(doc);
    int64_t integer = 0;
    double real = 0;
    bool truth = false;
    const char *text = NULL;
    const struct core_json_value *value = NULL;
    check_int(core_json_get_integer(doc, root, "i", &integer), ==, 0);
    check_int(integer, ==, 500000000);
    check_int(core_json_get_real(doc, root, "i", &real), ==, 0);
    check_int(core_json_get_bool(doc, root, "b", &truth), ==, 0);
    check_true(truth);
    check_int(core_json_get_string(doc, root, "s", &text), ==, 0);
    check_string(text, "x");
    check_int(core_json_get_integer(doc, root, "f", &integer), ==, -EINVAL);
    check_string(core_err_message(), "t.json:2:12: f: found 1.5; expected an integer");
    check_int(integer, ==, 500000000);
    check_int(core_json_get_integer(doc, root, "none", &integer), ==, -ENOENT);
    check_string(core_err_message(), "t.json:1:1: none: missing; expected an integer");
    check_int(core_json_get_bool(doc, root, "n", &truth), ==, -ENOENT);
    check_string(core_err_message(), "t.json:3:12: n: found null; expected true or false");
    check_int(core_json_get_real(doc, root, "s", &real), ==, -EINVAL);
    check_contains(core_err_message(), "found \"x\"; expected a number");
    check_int(core_json_get(doc, root, "o", CORE_JSON_ARRAY, &value), ==, -EINVAL);
    check_int(core_json_get(doc, root, "o", CORE_JSON_OBJECT, &value), ==, 0);
    check_int(core_json_get(doc, value, "p", CORE_JSON_ARRAY, &value), ==, 0);
    check_int(core_json_get_string(doc, core_json_at(value, 1), "q", &text), ==, -EINVAL);
    check_contains(core_err_message(), "t.json:4:3: o.p[1].q: the string holds a NUL");
    check_int(core_json_get_string(doc, core_json_at(value, 1), "r", &text), ==, -ENOENT);
    check_contains(core_err_message(), "t.json:4:2: o.p[1].r: missing");
    struct core_json_site site;
    check_int(core_json_locate(doc, value, NULL, 0, &site), ==, 0);
    check_string(site.path, "o.p[0]");
    check_uint(site.place.line, ==, 3);
    check_int(core_json_locate(doc, value, NULL, 2, &site), ==, -ENOENT);
    core_json_destroy(doc);
}

/* Integers beyond int64 (in model_max_length of tokenizers) become the nearest reals. */
static void big_integers(void)
{
    static const char *const texts[] = {
        "1000000000000000019884624838656",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
        "-123456789012345678901234567890",
        "99999999999999999999999",
        "10000000000000000000",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "[%s, 7, 1e20, 9e0]", texts[i]);
        struct core_json *doc = parse(text);
        const struct core_json_value *first = core_json_at(core_json_root(doc), 0);
        check_int(core_json_kind(first), ==, CORE_JSON_REAL);
        check_double(core_json_real(first), ==, strtod(texts[i], NULL));
        check_int(core_json_integer(core_json_at(core_json_root(doc), 1)), ==, 7);
        for (size_t k = 0; k < 4; k++) {
            check_int(core_json_is_large(core_json_at(core_json_root(doc), k)), ==, k == 0);
        }
        int64_t integer = 0;
        check_true(!core_json_as_integer(first, &integer));
        core_json_destroy(doc);
    }
    char digits[400];
    memset(digits, '9', sizeof digits);
    struct core_json *doc = NULL;
    check_int(core_json_parse(digits, sizeof digits, "t.json", NULL, &doc), ==, -EINVAL);
    check_contains(core_err_message(), "larger than the largest number");
}

/* The message about a duplicate key has both lines, even if a key is escaped. */
static void duplicates(void)
{
    struct core_json *doc = parse("{\"a\":{\"x\":1},\"b\":[{\"x\":1},{\"x\":2}],\"x\":3}");
    core_json_destroy(doc);
    static const char text[] = "{\n\"x\": {\"x\": 1},\n\"y\": {\"k\": 1,\n  \"l\": {\"k\": 2},\n"
                               "  \"\\u006b\": 3}}";
    check_int(core_json_parse(text, sizeof text - 1, "t.json", NULL, &doc), ==, -EINVAL);
    check_string(core_err_message(), "t.json:5:3: duplicate key \"\\u006b\", first on line 3; "
                                     "keep one of the two");
}

/* Half of a surrogate pair is refused; a whole pair is accepted. */
static void halves(void)
{
    static const struct {
        const char *text;
        const char *says; /* NULL: no error */
    } cases[] = {
        {"[\"\\ud83d\\ude00\", \"\\\\ud800\", \"\\\\\\\\udc00\"]", NULL},
        {"[\"a\",\n \"\\ud83d\\ude00\\ud800x\"]",
         "t.json:2:15: \\ud800 is one half of a surrogate pair"},
        {"[\"\\uDE00\"]", "t.json:1:3: \\ude00 is one half"},
        {"[\"\\ud83d\\u0041\"]", "t.json:1:3: \\ud83d is one half"},
        {"{\"\\\\\\ud83d\": 1}", "t.json:1:5: \\ud83d is one half"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct core_json *doc = NULL;
        const int code = core_json_parse(cases[i].text, strlen(cases[i].text), "t.json", NULL,
                                         &doc);
        check_int(code, ==, cases[i].says == NULL ? 0 : -EINVAL);
        if (cases[i].says != NULL) {
            check_contains(core_err_message(), cases[i].says);
        }
        core_json_destroy(doc);
    }
}

/* Lenient parsing accepts more, and positions stay those of the file. */
static void lenient(void)
{
    static const char text[] = "{ // c\n /* \n */ \"a\": \"x\", # d\n \"b\": [1,],\n}";
    struct core_json *doc = NULL;
    check_int(core_json_parse(text, sizeof text - 1, "t.json", NULL, &doc), ==, -EINVAL);
    doc = parse_with(text, true);
    bool truth = false;
    check_int(core_json_get_bool(doc, core_json_root(doc), "a", &truth), ==, -EINVAL);
    check_contains(core_err_message(), "t.json:3:5: a: found \"x\"");
    check_uint(core_json_count(core_json_find(core_json_root(doc), "b")), ==, 1);
    core_json_destroy(doc);
}

/* Errors name the file and the reason. */
static void files(void)
{
    struct core_json *doc = NULL;
    const char *path = test_file("a.json", "{\"a\": 1}", 8);
    check_int(core_json_load(path, NULL, &doc), ==, 0);
    check_string(core_json_source(doc), path);
    core_json_destroy(doc);
    check_int(core_json_load(test_directory(), NULL, &doc), ==, -EISDIR);
    check_contains(core_err_message(), "is a directory");
    check_int(core_json_load("/nonexistent/x.json", NULL, &doc), ==, -ENOENT);
    check_contains(core_err_message(), "/nonexistent/x.json cannot be opened");
    const struct core_json_options small = {.bytes_max = 7};
    check_int(core_json_load(path, &small, &doc), ==, -E2BIG);
    check_contains(core_err_message(), "has 8 bytes; the limit is 7");
    check_int(core_json_load("/dev/zero", &small, &doc), ==, -E2BIG);
    check_contains(core_err_message(), "larger than the limit of 7 bytes");
    path = test_file("empty.json", "", 0);
    check_int(core_json_load(path, NULL, &doc), ==, -EINVAL);
    check_contains(core_err_message(), "end of the text");
    char *text = NULL;
    size_t bytes = 0;
    check_int(core_file_read("/proc/self/status", 1 << 20, &text, &bytes), ==, 0);
    check_true(bytes > 100 && text[bytes] == '\0' && strlen(text) == bytes);
    free(text);
    if (geteuid() != 0) {
        check_int(chmod(path, 0), ==, 0);
        check_int(core_json_load(path, NULL, &doc), ==, -EACCES);
    }
}

/* A deep tree can be searched; a long path is cut in messages. */
static void deep(void)
{
    char text[1100] = {0};
    memset(text, '[', 511);
    strcpy(text + 511, "{}");
    memset(text + 513, ']', 511);
    struct core_json *doc = parse(text);
    const struct core_json_value *value = core_json_root(doc);
    for (int i = 0; i < 511; i++) {
        value = core_json_at(value, 0);
    }
    struct core_json_site site;
    check_int(core_json_locate(doc, value, "k", 0, &site), ==, -ENOENT);
    check_uint(site.place.column, ==, 512);
    check_string(site.path + sizeof site.path - 4, "...");
    core_json_destroy(doc);
}

/* A document is written to memory on one line, or to a file, indented. */
static void writes(void)
{
    struct core_json_write write;
    core_json_write_init_text(&write);
    write.nan_is_null = true;
    core_json_write_object_begin(&write, NULL);
    core_json_write_string(&write, "s", "q\"\\\n\x01\x7f\xc3\xa9\xff!");
    core_json_write_string(&write, "none", NULL);
    core_json_write_string_bytes(&write, "z", "a\0b", 3);
    core_json_write_array_begin(&write, "a");
    core_json_write_integer(&write, NULL, INT64_MIN);
    core_json_write_unsigned(&write, NULL, UINT64_MAX);
    core_json_write_real(&write, NULL, 0.1);
    core_json_write_real(&write, NULL, 1);
    core_json_write_real(&write, NULL, HUGE_VAL);
    core_json_write_array_end(&write);
    core_json_write_object_begin(&write, "o");
    core_json_write_object_end(&write);
    core_json_write_bool(&write, "t", true);
    core_json_write_null(&write, "u");
    core_json_write_object_end(&write);
    check_int(core_json_write_end(&write), ==, 0);
    check_string(write.text,
                 "{\"s\":\"q\\\"\\\\\\n\\u0001\\u007f\xc3\xa9\xef\xbf\xbd!\",\"none\":null,"
                 "\"z\":\"a\\u0000b\",\"a\":[-9223372036854775808,18446744073709551615,0.1,1.0,"
                 "null],\"o\":{},\"t\":true,\"u\":null}\n");
    struct core_json *doc = parse(write.text);
    core_json_write_fini(&write);
    char path[300];
    snprintf(path, sizeof path, "%s/w.json", test_directory());
    FILE *file = fopen(path, "w");
    core_json_write_init_file(&write, file);
    write.indent = 2;
    core_json_write_value(&write, NULL, core_json_find(core_json_root(doc), "a"));
    check_int(core_json_write_end(&write), ==, 0);
    core_json_write_value(&write, NULL, core_json_find(core_json_root(doc), "o"));
    check_int(core_json_write_end(&write), ==, 0);
    fclose(file);
    core_json_write_fini(&write);
    core_json_destroy(doc);
    char *text = NULL;
    size_t bytes = 0;
    check_int(core_file_read(path, 4096, &text, &bytes), ==, 0);
    check_string(text, "[\n  -9223372036854775808,\n  1.8446744073709552e+19,\n  0.1,\n  1.0,\n"
                       "  null\n]\n{}\n");
    free(text);
}

/* Text that is already JSON is written unchanged. */
static void write_verbatim(void)
{
    struct core_json_write write;
    core_json_write_init_text(&write);
    core_json_write_object_begin(&write, NULL);
    core_json_write_verbatim(&write, "a", "[1, 2]");
    core_json_write_integer(&write, "b", 3);
    core_json_write_object_end(&write);
    check_int(core_json_write_end(&write), ==, 0);
    check_string(write.text, "{\"a\":[1, 2],\"b\":3}\n");
    core_json_write_fini(&write);
}

/* Errors of a writer are stored and reported at the end. */
static void write_failures(void)
{
    struct core_json_write write;
    core_json_write_init_text(&write);
    core_json_write_object_begin(&write, NULL);
    core_json_write_real(&write, "loss", (double)NAN);
    core_json_write_object_end(&write);
    check_int(core_json_write_end(&write), ==, -EDOM);
    check_contains(core_err_message(), "NaN of loss");
    core_json_write_fini(&write);
    core_json_write_init_text(&write);
    write.bytes_max = 10;
    core_json_write_string(&write, NULL, "0123456789");
    check_int(core_json_write_end(&write), ==, -EFBIG);
    core_json_write_fini(&write);
    FILE *full = fopen("/dev/full", "w");
    if (full == NULL) {
        test_skip("no /dev/full here");
    }
    core_json_write_init_file(&write, full);
    core_json_write_bool(&write, NULL, false);
    check_int(core_json_write_end(&write), ==, -ENOSPC);
    check_contains(core_err_message(), "cannot be written");
    fclose(full);
}

static void reals_round_trip(void)
{
    const size_t rounds = TEST_SLOW ? 10000 : 100000;
    struct core_json_write write;
    core_json_write_init_text(&write);
    core_json_write_array_begin(&write, NULL);
    double *values_written = malloc(rounds * sizeof(double));
    check_true(values_written != NULL);
    size_t count = 0;
    for (uint32_t i = 0; count < rounds; i++) {
        struct core_rng_words random = core_rng_philox(3, 0, i);
        uint64_t bits = (uint64_t)random.word[0] << 32 | random.word[1];
        double value;
        memcpy(&value, &bits, sizeof value);
        if (value - value != 0) {
            continue;
        }
        values_written[count++] = value;
        core_json_write_real(&write, NULL, value);
    }
    core_json_write_array_end(&write);
    check_int(core_json_write_end(&write), ==, 0);
    struct core_json *doc = parse(write.text);
    core_json_write_fini(&write);
    for (size_t i = 0; i < count; i++) {
        double read = core_json_real(core_json_at(core_json_root(doc), i));
        check_memory(&read, &values_written[i], sizeof read);
    }
    free(values_written);
    core_json_destroy(doc);
}

/* Values are printed for messages, cut between characters. */
static void prints(void)
{
    struct core_json *doc = parse("{\"a\": [1, \"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\"]}");
    char text[16];
    core_json_print(core_json_root(doc), text, sizeof text);
    check_string(text, "{\"a\":[1,\"\xc3\xa9...");
    core_json_print(core_json_at(core_json_find(core_json_root(doc), "a"), 0), text, sizeof text);
    check_string(text, "1");
    check_string(core_json_kind_name(CORE_JSON_OBJECT), "an object");
    int code = core_json_refuse(doc, core_json_root(doc), "a", 0, -ERANGE, "no %d", 7);
    check_int(code, ==, -ERANGE);
    check_string(core_err_message(), "t.json:1:2: a: no 7");
    core_json_destroy(doc);
}

TEST_MAIN({"values", values}, {"typed", typed}, {"big_integers", big_integers},
          {"duplicates", duplicates}, {"halves", halves}, {"lenient", lenient}, {"files", files},
          {"deep", deep}, {"writes", writes}, {"write_verbatim", write_verbatim},
          {"write_failures", write_failures}, {"reals_round_trip", reals_round_trip},
          {"prints", prints})
