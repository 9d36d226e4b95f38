/* Tests expressions for PCRE2, with the character classes of the tokenizer's table. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tests/harness/test.h"
#include "tools/text/tokenizer/pcre.h"
#include "tools/text/tokenizer/regex.h"

static struct token_unicode *unicode;

/* Writes every `stride`-th character as UTF-8, without surrogates. */
static char *all_points(uint32_t stride, size_t *bytes)
{
    char *text = malloc(0x110000 * 4 / stride + 8);
    check_true(text != NULL);
    *bytes = 0;
    for (uint32_t point = 1; point < 0x110000; point += stride) {
        if (point < 0xD800 || point >= 0xE000) {
            *bytes += token_point_write(point, text + *bytes);
        }
    }
    return text;
}

static bool has(uint32_t point, const char *category)
{
    static char last[4];
    static uint64_t kinds;
    if (strcmp(last, category) != 0) {
        snprintf(last, sizeof last, "%s", category);
        kinds = token_kinds_named(category, strlen(category));
    }
    return (kinds >> token_kind_of(unicode, point) & 1) != 0;
}

static bool flagged(uint32_t point, unsigned flag)
{
    return (token_flags_of(unicode, point) & flag) != 0;
}

static bool letter(uint32_t point)
{
    return has(point, "L");
}

static bool no_letter(uint32_t point)
{
    return !has(point, "L");
}

static bool other(uint32_t point)
{
    return !letter(point) && !flagged(point, TOKEN_FLAG_SPACE) && !has(point, "Nd");
}

static bool capital_or_digit(uint32_t point)
{
    return has(point, "Lu") || has(point, "Nd");
}

static bool word(uint32_t point)
{
    return flagged(point, TOKEN_FLAG_WORD);
}

static bool no_word_or_number(uint32_t point)
{
    return !word(point) || has(point, "N");
}

static bool punctuation(uint32_t point)
{
    return has(point, "P");
}

static bool mark(uint32_t point)
{
    return has(point, "P") || has(point, "S");
}

static bool printed(uint32_t point)
{
    return !has(point, "Cc") && !has(point, "Cn") && !has(point, "Cs") && !has(point, "Zl") &&
           !has(point, "Zp");
}

static bool seen(uint32_t point)
{
    return printed(point) && !flagged(point, TOKEN_FLAG_SPACE);
}

static bool blank(uint32_t point)
{
    return point == '\t' || has(point, "Zs");
}

static bool no_other(uint32_t point)
{
    return !other(point);
}

/* An expression matches the characters for which `is` returns true. */
static void classes(void)
{
    static const struct {
        const char *regex;
        bool (*is)(uint32_t point);
    } cases[] = {
        {"\\p{L}", letter},
        {"\\p{^L}", no_letter},
        {"\\PL", no_letter},
        {"[\\P{L}]", no_letter},
        {"[^\\s\\p{L}\\d]", other},
        {"[\\d\\p{Lu}]", capital_or_digit},
        {"\\w", word},
        {"[\\W\\p{N}]", no_word_or_number},
        {"[[:punct:]]", mark},
        {"[^[:^punct:]]", mark},
        {"\\p{Punct}", punctuation},
        {"[[:graph:]]", seen},
        {"[[:print:]]", printed},
        {"[[:blank:]]", blank},
        {"[^\\p{White_Space}\\p{Digit}\\p{L}]", other},
        {"[[:space:][:digit:]\\p{L}]", no_other},
    };
    size_t bytes;
    char *text = all_points(TEST_SLOW ? 37 : 3, &bytes);
    check_int(token_unicode_create(&unicode), ==, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *regex = NULL;
        size_t length = 0;
        size_t bounds[2] = {0, 0};
        struct token_pcre *pcre = NULL;
        struct token_pcre_scratch *scratch = NULL;
        check_int(token_regex_translate(unicode, cases[i].regex, strlen(cases[i].regex), "test",
                                        &regex, &length),
                  ==, 0);
        int code = token_pcre_create(regex, length, "test", &pcre);
        core_charge_free(regex);
        if (code == -ENOTSUP) {
            test_note("%s", core_err_message());
            break;
        }
        check_int(code, ==, 0);
        check_int(token_pcre_scratch_create(&scratch), ==, 0);
        int found = token_pcre_find(pcre, scratch, text, bytes, 0, bounds);
        unsigned size;
        for (size_t at = 0; at < bytes; at += size) {
            const uint32_t point = token_point(text + at, &size);
            const bool matches = found == 1 && bounds[0] == at;
            if (matches != cases[i].is(point)) {
                test_fail(__FILE__, __LINE__, "%s and U+%04X", cases[i].regex, point);
            }
            if (matches) {
                found = token_pcre_find(pcre, scratch, text, bytes, at + size, bounds);
            }
        }
        token_pcre_scratch_destroy(scratch);
        token_pcre_destroy(pcre);
    }
    token_unicode_destroy(unicode);
    free(text);
}

/* Returns whether this build knows names of scripts. Without PCRE2, names are refused later. */
static bool knows_scripts(void)
{
    struct token_pcre *pcre = NULL;
    const int code = token_pcre_create("a", 1, "test", &pcre);
    check_true(code == 0 || code == -ENOTSUP);
    token_pcre_destroy(pcre);
    return code == 0;
}

/* Constructs are translated, unchanged, or refused with their place. */
static void translates(void)
{
    static const struct {
        const char *regex;
        const char *wanted; /* NULL: refused */
        const char *says;
    } cases[] = {
        {"a+?b{2,}|(?=x)\\n\\.", "a+?b{2,}|(?=x)\\n\\.", NULL},
        {"(?i)\\p{Zl}[\\p{Zl}]", "(?i)(?-i:[\\x{2028}])[\\x{2028}]", NULL},
        {"(?i:\\p{Zl})\\p{Zl}", "(?i:(?-i:[\\x{2028}]))[\\x{2028}]", NULL},
        {"(?m-i:.)(?<a>b)", "(?s-i:.)(?<a>b)", NULL},
        {"(a|b){2}+c{,3}d{2}?{x}", "(?:(a|b){2})+c{0,3}(?:d{2})?{x}", NULL},
        {"\\u0061{2}+", "(?:\\x{0061}{2})+", NULL},
        {"[[:xdigit:]\\]^-[:ascii:]]\\", "[[:xdigit:]\\]^-[:ascii:]]\\", NULL},
        {"[[:cntrl:]]", "[\\x{0}-\\x{1F}\\x{7F}-\\x{9F}]", NULL},
        {"[a", "[a", NULL},
        {"\\p{Zl}[^\\p{Zp}]", "[\\x{2028}][^\\x{2029}]", NULL},
        {"ab\\h", NULL, "character 2: \\h is not supported"},
        {"\u00E9\u00E9\\h", NULL, "character 2: \\h is not supported"},
        {"[\\H]", NULL, "character 1: \\h"},
        {"[a&&b]", NULL, "character 2: a class of characters must not contain another class or &&"},
        {"[a[bc]]", NULL, "character 2: a class of characters must not contain another class"},
        {"[^]a]", NULL, "character 2: a class of characters is empty"},
        {"[[:alpha:]]", NULL, "character 1: a class of this name"},
        {"[[:^blank:]]", NULL, "character 1: a class of this name"},
        {"[[::]]", NULL, "character 1: a class of this name"},
        {"a\\p{Nothing}", NULL, "character 1: \\p supports general categories"},
        {"[\\p{Alphabetic}]", NULL, "character 1: \\p supports"},
        {"\\p{", NULL, "character 0: \\p supports"},
    };
    check_int(token_unicode_create(&unicode), ==, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *regex = NULL;
        size_t length = 0;
        const bool named = cases[i].says != NULL && strstr(cases[i].says, "\\p supports") != NULL &&
                           strchr(cases[i].regex, '}') != NULL;
        if (named && !knows_scripts()) {
            continue;
        }
        const int code = token_regex_translate(unicode, cases[i].regex, strlen(cases[i].regex),
                                               "t.json: pre_tokenizer", &regex, &length);
        if (cases[i].wanted != NULL) {
            check_int(code, ==, 0);
            check_string(regex, cases[i].wanted);
            check_uint(length, ==, strlen(regex));
        } else {
            check_int(code, ==, -ENOTSUP);
            check_contains(core_err_message(), "t.json: pre_tokenizer");
            check_contains(core_err_message(), cases[i].says);
        }
        core_charge_free(regex);
    }
    token_unicode_destroy(unicode);
}

TEST_MAIN({"classes", classes}, {"translates", translates})
