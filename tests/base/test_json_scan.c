/* Tests the token scanner against RFC 8259. */
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/rng.h"
#include "core/base/utf8.h"
#include "core/json/scan.h"
#include "tests/harness/test.h"

/* Scans a copy without spare bytes, so that ASan detects reads beyond the text. */
static int scan_all(const char *text, size_t bytes, bool lenient, size_t *tokens)
{
    char *copy = malloc(bytes > 0 ? bytes : 1);
    check_true(copy != NULL);
    memcpy(copy, text, bytes);
    struct core_json_scan scan;
    struct core_json_token token = {.kind = CORE_JSON_TOKEN_NULL};
    if (lenient) {
        core_json_scan_init_lenient(&scan, copy, bytes, "t.json");
    } else {
        core_json_scan_init(&scan, copy, bytes, "t.json");
    }
    int code = 0;
    size_t count = 0;
    do {
        code = core_json_scan_next(&scan, &token);
        count++;
    } while (code == 0 && token.kind != CORE_JSON_TOKEN_END);
    free(copy);
    if (tokens != NULL) {
        *tokens = count;
    }
    return code;
}

static void accepts(void)
{
    static const char *const good[] = {
        "{}",
        "[]",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1",
        "-1.5e+3",
        "1E5",
        "0.5",
        "\"\"",
        " [ ] ",
        "[1,2,3]",
        "{\"a\":1,\"b\":[{},[]]}",
        "\"\\u00e9\\ud83d\\ude00\\n\\/\"",
        "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\"",
        "[\"12345678\",\"1234567\\\"\"]",
        "\t\r\n{\"k\" : null}\n",
        "9223372036854775807",
        "-9223372036854775808",
        "1e308",
        "1e-999",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (scan_all(good[i], strlen(good[i]), false, NULL) != 0) {
            test_fail(__FILE__, __LINE__, "%s: %s", good[i], core_err_message());
        }
    }
}

/* Invalid or incomplete JSON is refused with position and reason. */
static void refuses(void)
{
    static const struct {
        const char *text;
        const char *message;
    } bad[] = {
        {"", "1:1: found the end of the text; expected a value"},
        {"{", "1:2: found the end of the text; expected a key"},
        {"[", "1:2: found the end of the text; expected a value"},
        {"[1", "found the end of the text; expected a comma or ]"},
        {"[1}", "1:3: found }; expected a comma or ]"},
        {"{\"a\":1]", "1:7: found ]; expected a comma or }"},
        {"[1,]", "1:3: a comma with nothing after it"},
        {"{\"a\":1,}", "1:7: a comma with nothing after it"},
        {"{\"a\" 1}", "1:6: found 1; expected : after key \"a\""},
        {"{a:1}", "1:2: found a; expected a key in double quotes"},
        {"{\n 'a':1}", "2:2: found '; expected a key in double quotes"},
        {"[1 2]", "1:4: found 2; expected a comma"},
        {"1 2", "1:3: found 2 after the end"},
        {"{} x", "found x after the end"},
        {"01", "unnecessary 0"},
        {"-", "a digit is missing"},
        {"1.", "a digit is missing"},
        {".5", "found .; expected a value"},
        {"1e", "a digit is missing"},
        {"1e+", "a digit is missing"},
        {"+1", "found +; expected a value"},
        {"1e309", "larger than the largest number"},
        {"-1e400", "larger than the largest number"},
        {"NaN", "found NaN; expected a value"},
        {"Infinity", "found Infinity; expected a value"},
        {"True", "lower case"},
        {"nul", "found nul; expected a value"},
        {"\"", "never closed"},
        {"\"abc", "1:1: this string is never closed"},
        {"\"a\nb\"", "1:1: this string is not closed before the end of its line"},
        {"\"\x01\"", "1:2: byte 0x01 in a string"},
        {"\"\\x\"", "1:2: unknown escape"},
        {"\"\\u12g4\"", "four hexadecimal digits"},
        {"\"\\u12\"", "four hexadecimal digits"},
        {"\"\\", "1:1: this string is never closed"},
        {"\"\x80\"", "invalid UTF-8 (byte 0x80)"},
        {"\"\xc0\xaf\"", "invalid UTF-8"},
        {"\"\xed\xa0\x80\"", "invalid UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "invalid UTF-8"},
        {"\"\xe2\x82\"", "invalid UTF-8"},
        {"\"\xf5\x80\x80\x80\"", "invalid UTF-8"},
        {"[1,\n2,\n  oops]", "3:3: found oops"},
        {"// c\n1", "1:1: found /; expected a value"},
        {"\xEF\xBB\xBF{}", "1:1: found \xEF\xBB\xBF"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_int(scan_all(bad[i].text, strlen(bad[i].text), false, NULL), ==, -EINVAL);
        if (strncmp(core_err_message(), "t.json:", 7) != 0 ||
            strstr(core_err_message(), bad[i].message) == NULL) {
            test_fail(__FILE__, __LINE__, "%s gives \"%s\" without \"%s\"", bad[i].text,
                      core_err_message(), bad[i].message);
        }
    }
    check_int(scan_all("[\0]", 3, false, NULL), ==, -EINVAL);
    check_contains(core_err_message(), "t.json:1:2: found byte 0x00");
    static const char whole[] = "{\"a\":[1.5e+3,\"\\ud83d\\ude00\xc3\xa9\",true,null],\"b\":{}}";
    for (size_t i = 0; i < sizeof whole - 1; i++) {
        check_int(scan_all(whole, i, false, NULL), ==, -EINVAL);
    }
}

/* Depth is limited, and deep text does not exhaust the stack. */
static void depth(void)
{
    static char text[200001];
    memset(text, '[', 100000);
    memset(text + 100000, ']', 100000);
    check_int(scan_all(text + 100000 - 512, 1024, false, NULL), ==, 0);
    check_int(scan_all(text + 100000 - 513, 1026, false, NULL), ==, -EINVAL);
    check_contains(core_err_message(), "t.json:1:513: nested deeper than 512 levels");
    check_int(scan_all(text, 200000, false, NULL), ==, -EINVAL);
}

/* Comments, trailing commas and a byte order mark become spaces; positions stay. */
static void lenient(void)
{
    char text[] = "\xEF\xBB\xBF{ // one, \"x\"\n \"a\": [1, 2, /* three\n, */ ], # two\n"
                  "\"url\": \"http://x/#/*,]\",\n}//end";
    struct core_json_scan scan;
    struct core_json_token token;
    core_json_scan_init_lenient(&scan, text, sizeof text - 1, "t.json");
    do {
        check_int(core_json_scan_next(&scan, &token), ==, 0);
    } while (token.kind != CORE_JSON_TOKEN_END);
    check_uint(strlen(text), ==, sizeof text - 1);
    check_int(scan_all(text, sizeof text - 1, false, NULL), ==, 0);
    check_true(strchr(text, '/') == strstr(text, "//x/#"));
    check_true(strstr(text, "\"url\": \"http://x/#/*,]\" \n}     ") != NULL);
    check_contains(text, "[1, 2  ");
    static const char *const bad[] = {"[,]",  "{,}", "[1,,2]", "[1,,]",
                                      "/* x", "/",   "{} /x",  "[1 /*/ 2]"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_int(scan_all(bad[i], strlen(bad[i]), true, NULL), ==, -EINVAL);
    }
}

/* Skipping a value leads to the next token. */
static void skips(void)
{
    static const char text[] = "{\"a\":{\"x\":[1,{\"y\":2}]},\"b\":[[],[]],\"c\":7}";
    struct core_json_scan scan;
    struct core_json_token token;
    core_json_scan_init(&scan, text, sizeof text - 1, "t.json");
    check_int(core_json_scan_next(&scan, &token), ==, 0);
    check_int(core_json_scan_next(&scan, &token), ==, 0);
    check_int(core_json_scan_skip(&scan, &token), ==, 0);
    check_int(core_json_scan_next(&scan, &token), ==, 0);
    check_true(core_json_token_equals(&token, "b", 1));
    check_int(core_json_scan_next(&scan, &token), ==, 0);
    check_int(core_json_scan_skip(&scan, &token), ==, 0);
    check_int(core_json_scan_next(&scan, &token), ==, 0);
    check_true(core_json_token_equals(&token, "c", 1));
    check_int(core_json_scan_next(&scan, &token), ==, 0);
    check_int(core_json_scan_skip(&scan, &token), ==, 0);
    check_int(core_json_token_integer(&token), ==, 7);
    check_int(core_json_scan_next(&scan, &token), ==, 0);
    check_int(token.kind, ==, CORE_JSON_TOKEN_OBJECT_END);
}

static struct core_json_token only_token(const char *text)
{
    struct core_json_scan scan;
    struct core_json_token token;
    core_json_scan_init(&scan, text, strlen(text), "t.json");
    check_int(core_json_scan_next(&scan, &token), ==, 0);
    return token;
}

/* Escapes are decoded, half of a surrogate pair as U+FFFD; short buffers are respected. */
static void strings(void)
{
    static const struct {
        const char *json;
        const char *plain;
    } cases[] = {
        {"\"plain\"", "plain"},
        {"\"a\\n\\t\\b\\f\\r\\\"\\\\\\/\"", "a\n\t\b\f\r\"\\/"},
        {"\"\\u0041\\u00e9\\u20ac\"", "A\xc3\xa9\xe2\x82\xac"},
        {"\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80"},
        {"\"\\uD83D\\uDE00x\"", "\xf0\x9f\x98\x80x"},
        {"\"\\ud83dx\"", "\xef\xbf\xbdx"},
        {"\"\\ude00\\ud83d\"", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\"\\ud83d\\u0041\"", "\xef\xbf\xbd"
                               "A"},
        {"\"\\uffff\\udbff\\udfff\"", "\xef\xbf\xbf\xf4\x8f\xbf\xbf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct core_json_token token = only_token(cases[i].json);
        char out[64] = {0};
        size_t bytes = strlen(cases[i].plain);
        check_uint(core_json_token_string(&token, out, sizeof out), ==, bytes);
        check_string(out, cases[i].plain);
        check_true(bytes <= token.bytes);
        check_true(core_json_token_equals(&token, cases[i].plain, bytes));
        check_true(!core_json_token_equals(&token, cases[i].plain, bytes - 1));
        check_true(!core_json_token_equals(&token, "completely different text", 25));
        memset(out, 'z', sizeof out);
        check_uint(core_json_token_string(&token, out, 2), ==, bytes);
        check_true(out[2] == 'z');
    }
    struct core_json_token nul = only_token("\"a\\u0000b\"");
    char out[4] = "zzz";
    check_uint(core_json_token_string(&nul, out, 4), ==, 3);
    check_memory(out, "a\0b", 3);
}

/* Integers within int64 are exact; others are reals. */
static void integers(void)
{
    struct core_json_token token = only_token("9223372036854775807");
    check_int(token.kind, ==, CORE_JSON_TOKEN_INTEGER);
    check_int(core_json_token_integer(&token), ==, INT64_MAX);
    token = only_token("-9223372036854775808");
    check_int(core_json_token_integer(&token), ==, INT64_MIN);
    token = only_token("9223372036854775808");
    check_int(token.kind, ==, CORE_JSON_TOKEN_REAL);
    check_double(core_json_token_real(&token), ==, 0x1p63);
    token = only_token("-9223372036854775809");
    check_int(token.kind, ==, CORE_JSON_TOKEN_REAL);
    token = only_token("-42");
    check_int(core_json_token_integer(&token), ==, -42);
    check_double(core_json_token_real(&token), ==, -42);
}

/* Reals are rounded as by strtod, whatever the locale. */
static void reals(void)
{
    for (uint32_t i = 0; i < (TEST_SLOW ? 20000 : 200000); i++) {
        char text[64];
        struct core_rng_words random = core_rng_philox(7, 0, i);
        const uint32_t *state = random.word;
        int digits = 1 + (int)(state[0] % 19);
        int exponent = (int)(state[1] % 620) - 310;
        exponent = i % 2 == 0 ? exponent % 30 : exponent;
        uint64_t whole = (uint64_t)state[2] << 32 | state[3];
        snprintf(text, sizeof text, "%s%" PRIu64 ".%0*u%s%d", i % 3 == 0 ? "-" : "",
                 whole % 1000000007u, digits % 9 + 1, state[1] % 10, i % 5 == 0 ? "E+" : "e",
                 i % 5 == 0 ? abs(exponent) % 290 : exponent % 290);
        struct core_json_token token = only_token(text);
        check_int(token.kind, ==, CORE_JSON_TOKEN_REAL);
        check_double(core_json_token_real(&token), ==, strtod(text, NULL));
    }
    const char *before = setlocale(LC_NUMERIC, NULL);
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") != NULL || setlocale(LC_NUMERIC, "fr_FR.UTF-8")) {
        struct core_json_token token = only_token("1.2345678901234567e-200");
        check_double(core_json_token_real(&token), ==, 1.2345678901234567e-200);
    }
    setlocale(LC_NUMERIC, before);
}

/* Sequences are valid if table 3-7 of the Unicode standard lists them. */
static void utf8(void)
{
    for (uint32_t code = 0; code < 0x120000; code++) {
        unsigned char text[4] = {
            (unsigned char)(0xF0 | code >> 18), (unsigned char)(0x80 | (code >> 12 & 63)),
            (unsigned char)(0x80 | (code >> 6 & 63)), (unsigned char)(0x80 | (code & 63))};
        bool good = code >= 0x10000 && code <= 0x10FFFF;
        check_int(core_utf8_sequence((const char *)text, 4), ==, good ? 4 : 0);
        check_int(core_utf8_sequence((const char *)text, 3), ==, 0);
        if (code < 0x10000) {
            unsigned char three[3] = {(unsigned char)(0xE0 | code >> 12), text[2], text[3]};
            three[1] = (unsigned char)(0x80 | (code >> 6 & 63));
            good = code >= 0x800 && (code < 0xD800 || code > 0xDFFF);
            check_int(core_utf8_sequence((const char *)three, 3), ==, good ? 3 : 0);
        }
    }
    for (int c = 0; c < 256; c++) {
        char text = (char)c;
        check_int(core_utf8_sequence(&text, 1), ==, c < 0x80);
        char two[2] = {text, (char)0xBF};
        check_int(core_utf8_sequence(two, 2), ==, c < 0x80 ? 1 : c >= 0xC2 && c <= 0xDF ? 2 : 0);
    }
    check_int(core_utf8_sequence("", 0), ==, 0);
}

static void places(void)
{
    static const char text[] = "ab\n\nc\xc3\xa9x";
    static const size_t lines[] = {1, 1, 1, 2, 3, 3, 3, 3};
    static const size_t columns[] = {1, 2, 3, 1, 1, 2, 3, 4};
    for (size_t i = 0; i < 8; i++) {
        struct core_json_place place = core_json_place_of(text, i);
        check_uint(place.line, ==, lines[i]);
        check_uint(place.column, ==, columns[i]);
    }
}

/* Scans a vocabulary of 10 MiB, as in tokenizer.json, and prints the time. */
static void large(void)
{
    size_t room = (size_t)11 << 20;
    char *text = malloc(room);
    check_true(text != NULL);
    size_t bytes = (size_t)sprintf(text, "{\"model\":{\"vocab\":{\n");
    size_t count = 0;
    for (; bytes < (size_t)10 << 20; count++) {
        bytes += (size_t)sprintf(text + bytes, "      \"\xc4\xa0tok%zx\": %zu,\n",
                                 count * 2654435761u, count);
    }
    bytes += (size_t)sprintf(text + bytes, "      \"end\": 0}}}");
    struct timespec begin;
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    size_t tokens = 0;
    int code = scan_all(text, bytes, false, &tokens);
    clock_gettime(CLOCK_MONOTONIC, &end);
    free(text);
    check_int(code, ==, 0);
    check_uint(tokens, ==, 2 * count + 11);
    test_note("%zu bytes, %zu tokens in %.1f ms", bytes, tokens,
              (double)(end.tv_sec - begin.tv_sec) * 1e3 +
                  (double)(end.tv_nsec - begin.tv_nsec) * 1e-6);
}

TEST_MAIN({"accepts", accepts}, {"refuses", refuses}, {"depth", depth}, {"lenient", lenient},
          {"skips", skips}, {"strings", strings}, {"integers", integers}, {"reals", reals},
          {"utf8", utf8}, {"places", places}, {"large", large})
