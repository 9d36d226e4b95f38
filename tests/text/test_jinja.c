/* Compares chat templates with jinja2 (tests/oracle/chat_templates.py), and tests errors and
 * limits. */
#include "tools/text/jinja/jinja.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"

static int render(const char *source, const struct jinja_limits *limits,
                  const struct jinja_variable *variables, size_t count, char *out, size_t bytes)
{
    struct jinja_template *template = NULL;
    struct jinja_run *run = NULL;
    struct jinja_rendering rendering;
    int code = jinja_template_create(source, strlen(source), "t", &template);
    code = code == 0 ? jinja_run_create(limits, &run) : code;
    code = code == 0 ? jinja_render(template, run, variables, count, 1, &rendering) : code;
    snprintf(out, bytes, "%s", code == 0 ? rendering.text : core_err_message());
    jinja_run_destroy(run);
    jinja_template_destroy(template);
    return code;
}

static void check_result(const char *name, const struct jinja_template *template,
                         struct jinja_run *run, const struct core_json_value *input,
                         const struct core_json_value *want, int64_t now)
{
    struct jinja_variable variables[32];
    size_t count = 0;
    struct core_json_member member;
    for (bool any = core_json_first(input, &member); any; any = core_json_next(&member)) {
        variables[count++] = (struct jinja_variable){
            .name = member.key, .kind = JINJA_VARIABLE_JSON, .json = member.value};
    }
    struct jinja_rendering got;
    int code = jinja_render(template, run, variables, count, now, &got);
    const bool refused = core_json_kind(want) == CORE_JSON_NULL;
    if (code == -ENOTSUP) {
        return;
    }
    if ((code != 0) != refused) {
        test_fail(__FILE__, __LINE__, "%s: %s", name,
                  code != 0 ? core_err_message() : "was not refused");
    }
    if (refused) {
        check_contains(core_err_message(), name);
        return;
    }
    size_t bytes;
    const char *text = core_json_string(core_json_at(want, 0), &bytes);
    const struct core_json_value *spans = core_json_at(want, 1);
    if (got.bytes != bytes || memcmp(got.text, text, bytes) != 0) {
        test_fail(__FILE__, __LINE__, "%s: \"%s\" instead of \"%s\"", name, got.text, text);
    }
    check_uint(got.generated_count * 2, ==, core_json_count(spans));
    for (size_t i = 0; i < got.generated_count; i++) {
        check_int(got.generated[i].begin, ==, core_json_integer(core_json_at(spans, 2 * i)));
        check_int(got.generated[i].end, ==, core_json_integer(core_json_at(spans, 2 * i + 1)));
    }
}

/* What jinja2 renders without variables. */
struct row {
    const char *source;
    const char *want;
};

static void check_rendered(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char out[600];
        const int code = render(rows[i].source, NULL, NULL, 0, out, sizeof out);
        if (code != -ENOTSUP && (code != 0 || strcmp(out, rows[i].want) != 0)) {
            test_fail(__FILE__, __LINE__, "%s: \"%s\" instead of \"%s\"", rows[i].source, out,
                      rows[i].want);
        }
    }
}

/* `want`: a part of the message. */
static void check_refused(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char out[600];
        const int code = render(rows[i].source, NULL, NULL, 0, out, sizeof out);
        if (code == 0 || (code != -ENOTSUP && strstr(out, rows[i].want) == NULL)) {
            test_fail(__FILE__, __LINE__, "%s: \"%s\" instead of \"%s\"", rows[i].source, out,
                      rows[i].want);
        }
    }
}

/* Templates render or refuse conversations like jinja2. */
static void fixture(void)
{
    char path[4096];
    struct core_json *doc = NULL;
    struct jinja_run *run = NULL;
    setenv("TZ", "UTC", 1);
    snprintf(path, sizeof path, "%s/text/fixtures/templates.json", test_root());
    check_int(core_json_load(path, NULL, &doc), ==, 0);
    check_int(jinja_run_create(NULL, &run), ==, 0);
    const struct core_json_value *root = core_json_root(doc);
    const struct core_json_value *inputs = core_json_find(root, "inputs");
    const struct core_json_value *templates = core_json_find(root, "templates");
    const int64_t now = core_json_integer(core_json_find(root, "now"));
    check_uint(core_json_count(templates), >=, 60);
    for (size_t i = 0; i < core_json_count(templates); i++) {
        size_t bytes;
        struct jinja_template *template = NULL;
        const struct core_json_value *one = core_json_at(templates, i);
        const struct core_json_value *results = core_json_find(one, "results");
        const char *name = core_json_string(core_json_find(one, "name"), NULL);
        const char *source = core_json_string(core_json_find(one, "source"), &bytes);
        int code = jinja_template_create(source, bytes, name, &template);
        check_true(code == 0 || core_json_kind(core_json_at(results, 0)) == CORE_JSON_NULL);
        for (size_t k = 0; code == 0 && k < core_json_count(inputs); k++) {
            check_result(name, template, run, core_json_at(inputs, k), core_json_at(results, k),
                         now);
        }
        jinja_template_destroy(template);
    }
    jinja_run_destroy(run);
    core_json_destroy(doc);
}

/* An error names the source and the line. */
static void errors_have_lines(void)
{
    static const struct {
        const char *source;
        const char *says;
    } cases[] = {
        {"a\nb{{ 1 +\n }}", "t:3: expected an expression"},
        {"\n{% include 'x' %}", "t:2: {% include %} is not supported"},
        {"{% import 'x' as y %}", "{% import %} is not supported"},
        {"{% frob %}", "t:1: expected a statement, found 'frob'"},
        {"\n\n{% if 1 %}\n\n", "t:3: the block that begins here is not closed with {% endif %}"},
        {"\n{{ 'x", "t:2: a string is not closed"},
        {"{{ x", "t:1: the tag is not closed with }}"},
        {"{# x", "the comment is not closed"},
        {"{% raw %}x", "{% raw %} is not closed"},
        {"{{ 1 ? 2 }}", "unexpected character ?"},
        {"{{ (1] }}", "unexpected ']'"},
        {"{{ 99999999999999999999 }}", "too large"},
        {"\n{{ x.y }}", "t:2: 'x' is undefined"},
        {"{{ 1 // 0 }}", "division by zero"},
        {"{{ 9223372036854775807 + 1 }}", "does not fit into 64 bits"},
        {"{{ 'a' | frob }}", "unknown filter 'frob'"},
        {"{{ 1 is frob }}", "unknown test 'frob'"},
        {"{{ 'a' | upper(1) }}", "upper takes 0 arguments, but 1 were given"},
        {"{{ 'a' | trim(x=1) }}", "trim has no argument 'x'"},
        {"{{ raise_exception('no ' ~ 'way') }}", "t:1: the template raised an exception: no way"},
        {"{{ [].append(1) }}", "method append of 'list' is not supported"},
        {"{{ 'a'.encode() }}", "encode"},
        {"{{ x[] }}", "t:1: expected an index"},
        {"{% break %}", "only in loops"},
        {"{{ 5() }}", "'int' cannot be called"},
        {"{% set x.y = 1 %}", "only attributes of a namespace"},
        {"{{ namespace(_x=1) }}", "begins with _"},
        {"{{ range(1000000) }}", "more than 100000"},
        {"{{ '\\N{DASH}' }}", "names of characters"},
        {"{{ {}[[]] }}", "cannot be a key"},
        {"{{ range | tojson }}", "cannot be written as JSON"},
        {"{{ ['a'] | map('upper\\0\\0\\0') }}", "unknown filter 'upper"},
        {"{{ [1] | select('odd\\0\\0\\0') }}", "unknown test 'odd"},
        {"\xFF", "byte 0 of the template is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[600];
        check_int(render(cases[i].source, NULL, NULL, 0, text, sizeof text), <, 0);
        check_contains(text, cases[i].says);
    }
}

/* A template without an end, or with too much output, is an error. */
static void bounds(void)
{
    static const char *const sources[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'a' * 99999999999 }}",
        "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x "
        "* 2 "
        "%}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% "
        "endfor "
        "%}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(900) %}{% set ns.x = [ns.x] %}{% endfor "
        "%}{{ ns.x }}",
        "{{ 'a'.rjust(99999999999) }}",
        "{% for i in range(99999) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' * 9999 }}{% "
        "endfor "
        "%}",
        "{{ 2 ** 99999 }}",
    };
    const struct jinja_limits limits = {.steps = 300000, .bytes = 8 << 20};
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        char text[600];
        int code = render(sources[i], &limits, NULL, 0, text, sizeof text);
        if (code != -E2BIG && code != -EINVAL) {
            test_fail(__FILE__, __LINE__, "%s: %d %s", sources[i], code, text);
        }
        check_contains(text, "t:1: ");
    }
    char *deep = malloc(300000);
    check_true(deep != NULL);
    for (size_t i = 0; i < 100000; i++) {
        memcpy(deep + 3 * i, i < 50000 ? "{{(" : "(((", 3);
    }
    struct jinja_template *template = NULL;
    check_int(jinja_template_create(deep, 299999, "deep", &template), <, 0);
    memset(deep, '-', 299999);
    memcpy(deep, "{{ ", 3);
    memcpy(deep + 299999 - 4, "1 }}", 4);
    check_int(jinja_template_create(deep, 299999, "deep", &template), ==, -E2BIG);
    free(deep);
    check_int(jinja_template_create("", JINJA_SOURCE_BYTES_MAX + 1, "big", &template), ==, -E2BIG);
}

static const char life_source[] =
    "{% macro m(x, y=2) %}{{ x | tojson }}{% endmacro %}{% for a in messages[:1] %}{% generation %}"
    "{{ m(a) ~ a.content.split() | sort }}{% endgeneration %}{% endfor %}";

static int life(void)
{
    struct core_json *doc = NULL;
    char text[200];
    int code = core_json_parse("[{\"content\": \"b a\"}]", 20, "m", NULL, &doc);
    if (code != 0) {
        return code;
    }
    const struct jinja_variable variables[] = {
        {.name = "messages",
         .kind = JINJA_VARIABLE_JSON,
         .json = core_json_root(doc),
         .items_max = 1},
        {.name = "content", .kind = JINJA_VARIABLE_TEXT, .text = "x"},
        {.name = "x", .kind = JINJA_VARIABLE_BOOL, .truth = true},
        {.name = "y", .kind = JINJA_VARIABLE_NONE}};
    code = render(life_source, NULL, variables, 4, text, sizeof text);
    if (code == 0) {
        check_string(text, "{\"content\": \"b a\"}['a', 'b']");
    }
    core_json_destroy(doc);
    return code;
}

/* Integers of data that do not fit into 64 bits are refused; JSON makes them reals. */
static void large_integers(void)
{
    static const char json[] = "[1e20, 9223372036854775807, 9223372036854775808]";
    struct core_json *doc = NULL;
    char out[300];
    check_int(core_json_parse(json, strlen(json), "m", NULL, &doc), ==, 0);
    struct jinja_variable x = {
        .name = "x", .kind = JINJA_VARIABLE_JSON, .json = core_json_root(doc), .items_max = 2};
    check_int(render("{{ x }}", NULL, &x, 1, out, sizeof out), ==, 0);
    check_string(out, "[1e+20, 9223372036854775807]");
    x.items_max = 0;
    check_int(render("{{ x }}", NULL, &x, 1, out, sizeof out), ==, -EINVAL);
    check_contains(out, "an integer beyond 64 bits, about 9.22337e+18, is not supported");
    core_json_destroy(doc);
}

/* Kept values are rendered like new ones; a value that is too large is refused. */
static void kept(void)
{
    static const char json[] = "[{\"content\": \"a\"}, {\"content\": [1, {\"b\": null}]}, 3]";
    static const char source[] = "{{ messages }}{{ (messages + [4]) | length }}{{ messages[1:] }}";
    const struct jinja_limits small = {.steps = 2};
    struct core_json *doc = NULL;
    struct jinja_template *template = NULL;
    struct jinja_run *runs[2] = {NULL, NULL};
    check_int(core_json_parse(json, strlen(json), "m", NULL, &doc), ==, 0);
    check_int(jinja_template_create(source, strlen(source), "t", &template), ==, 0);
    check_int(jinja_run_create(NULL, &runs[0]), ==, 0);
    check_int(jinja_run_create(NULL, &runs[1]), ==, 0);
    check_int(jinja_run_keep(runs[1], core_json_root(doc)), ==, 0);
    for (size_t items = 0; items < 5; items++) {
        struct jinja_rendering out[2];
        const struct jinja_variable messages = {.name = "messages",
                                                .kind = JINJA_VARIABLE_JSON,
                                                .json = core_json_root(doc),
                                                .items_max = items};
        for (int i = 0; i < 2; i++) {
            check_int(jinja_render(template, runs[i], &messages, 1, 0, &out[i]), ==, 0);
        }
        check_string(out[1].text, out[0].text);
    }
    check_int(jinja_run_keep(runs[1], NULL), ==, 0);
    jinja_run_destroy(runs[1]);
    check_int(jinja_run_create(&small, &runs[1]), ==, 0);
    check_int(jinja_run_keep(runs[1], core_json_root(doc)), ==, -E2BIG);
    jinja_run_destroy(runs[0]);
    jinja_run_destroy(runs[1]);
    jinja_template_destroy(template);
    core_json_destroy(doc);
}

/* Times have no time zone, as in transformers. */
static void times(void)
{
    static const struct {
        const char *source;
        const char *want;
    } rows[] = {
        {"{{ strftime_now('[%Z%z] %f %%Z %Y %') }}", "[] 000000 %Z 1970 %"},
        {"{{ strftime_now('%Z') }}{{ strftime_now('') }}.", "."},
    };
    char out[300];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        check_int(render(rows[i].source, NULL, NULL, 0, out, sizeof out), ==, 0);
        check_string(out, rows[i].want);
    }
    char source[700];
    snprintf(source, sizeof source, "{{ strftime_now('%0600d') }}", 1);
    check_int(render(source, NULL, NULL, 0, out, sizeof out), ==, -EINVAL);
    check_contains(out, "the time cannot be written in that format");
}

/* Operations are charged for work that is proportional to their operands. */
static void counts_work(void)
{
    static const char *const operations[] = {
        "s.find('b')",
        "s.rfind('b')",
        "s.find(t)",
        "s.rfind(t)",
        "s.count('b')",
        "s.count(t)",
        "s.count('')",
        "'b' in s",
        "t in s",
        "s.split('b')",
        "s.rsplit('b', 1)",
        "s.split()",
        "s.rsplit(None, 1)",
        "s.splitlines()",
        "s.partition('b')",
        "s.rpartition(t)",
        "s.startswith(s)",
        "s.endswith(('x', s))",
        "s.strip('ba')",
        "s.lstrip('a')",
        "s.rstrip('a')",
        "s.replace('b', '')",
        "s.removeprefix(s)",
        "s.removesuffix(s)",
        "s.isalpha()",
        "s.isupper()",
        "s.isascii()",
        "s == r",
        "s < r",
        "s != r",
        "[s].index(r)",
        "[s].count(r)",
        "s[200000]",
        "s[9:10]",
        "s[99998]",
        "s | length",
        "s | wordcount",
        "s | trim('a')",
        "b | int",
        "s | truncate(5)",
        "s.upper()",
        "s | tojson",
        "s | e",
        "s.title()",
        "s is upper",
        "s | first",
        "[s, r] | unique",
        "[s, r] | sort",
        "[s, r] | min",
        "{s: 1}[r]",
        "[{'k': s}] | selectattr('k', 'equalto', r) | list",
        "'%99999d' % 1",
        "s.zfill(100009)",
        "s.center(100009)",
        "s.ljust(100009)",
        "[s, s] | join",
        "['x'] | map(attribute=dots) | list",
        "['x'] | groupby(dots)",
        "'%s' | format(s)",
    };
    const struct jinja_limits limits = {.steps = 200000};
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        char source[1000];
        char out[1000];
        snprintf(source, sizeof source,
                 "{%% set s = 'a' * 100000 %%}{%% set r = 'a' * 99999 ~ 'a' %%}"
                 "{%% set t = 'a' * 40000 ~ 'b' %%}{%% set b = ' ' * 100000 %%}"
                 "{%% set dots = '0' ~ '.0' * 10000 %%}"
                 "{%% for i in range(1000) %%}{%% if (%s) is none %%}{%% endif %%}{%% endfor %%}",
                 operations[i]);
        if (render(source, &limits, NULL, 0, out, sizeof out) != -E2BIG) {
            test_fail(__FILE__, __LINE__, "%s is not counted: %s", operations[i], out);
        }
    }
}

/* Loops over characters and writes are charged. */
static void counts_characters(void)
{
    static const struct {
        const char *source;
        uint64_t steps;
    } rows[] = {
        {"{{ ('a '*50000)|title|length }}", 150000},
        {"{{ ('a '*50000).upper()|length }}", 150000},
        {"{{ ('a '*50000)|tojson|length }}", 150000},
        {"{{ ('<'*100000)|e|length }}", 150000},
        {"{{ ('a '*50000)|wordcount }}", 90000},
        {"{{ ('a'*100000).isalpha() }}", 90000},
        {"{{ ('a'*100000).splitlines()|length }}", 90000},
        {"{{ [[0, 0, 0, 0, 0, 0, 0, 0] * 1000]|tojson|length }}", 20000},
        {"{% set ns = namespace(t=[0]) %}{% for i in range(60) %}{% set ns.t = [ns.t, ns.t] %}"
         "{% endfor %}{{ ns.t|tojson|length }}",
         50000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char out[600];
        const struct jinja_limits limits = {.steps = rows[i].steps};
        if (render(rows[i].source, &limits, NULL, 0, out, sizeof out) != -E2BIG) {
            test_fail(__FILE__, __LINE__, "%s ends within %llu steps: %s", rows[i].source,
                      (unsigned long long)rows[i].steps, out);
        }
        check_contains(out, "does not end within");
    }
}

/* The work of strip() is the sum of the lengths, not their product. */
static void strips_sets(void)
{
    static const struct {
        const char *source;
        const char *want;
    } rows[] = {
        {"{{ ('a'*100000).strip('b'*100000 ~ 'a')|length }}", "0"},
        {"{{ ('a'*100000).lstrip('b'*100000 ~ 'a')|length }}", "0"},
        {"{{ ('a'*100000).rstrip('b'*100000 ~ 'a')|length }}", "0"},
        {"{{ 'é𝄞xé'.strip('𝄞é') }}", "x"},
        {"{{ 'éxè'.strip('é') }}", "xè"},
        {"{{ 'xéy'.strip('') }}", "xéy"},
    };
    const struct jinja_limits limits = {.steps = 400000};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char out[600];
        check_int(render(rows[i].source, &limits, NULL, 0, out, sizeof out), ==, 0);
        check_string(out, rows[i].want);
    }
}

/* Searches give Python's results, and end soon on long texts. */
static void searches(void)
{
    static const struct {
        const char *source;
        const char *want;
    } rows[] = {
        {"{{ ('a'*10000000).rfind('a'*5000000 ~ 'b') }}", "-1"},
        {"{{ ('a'*10000000).find('a'*5000000 ~ 'b') }}", "-1"},
        {"{{ ('a'*10000000).rfind('a'*5000000) }}", "5000000"},
        {"{{ ('ab'*1000).rfind('ba'*20) }} {{ ('ab'*1000).find('ba'*20) }}", "1959 1"},
        {"{{ ('x' ~ 'abcabd'*9 ~ 'abcabcabdabcabdabcabc').find('abcabcabdabcabdabcabc') }}", "55"},
        {"{{ ('abcabcabdabcabdabcabc' ~ 'abc'*9).rfind('abcabcabdabcabdabcabc') }}", "0"},
        {"{{ ('ab'*40).count('ab'*10) }} {{ ('ab'*40).split('ba'*9) | length }}", "4 5"},
        {"{{ ('ab'*40).rsplit('ab'*9, 2) | length }} {{ 'b'*20 in 'a' ~ 'b'*20 }}", "3 True"},
        {"{{ ''.rfind('') }} {{ 'ab'.rfind('') }} {{ 'ab'.find('') }} {{ 'ab'.rfind('b', 0, 1) }}",
         "0 2 0 -1"},
        {"{{ 'abc'[1::9223372036854775807] }}{{ [1, 2, 3][1::9223372036854775807] }}", "b[2]"},
        {"{{ 'abc'[1::-9223372036854775807] }}{{ 'abc'[::-1] }}", "bcba"},
        {"{{ 'aaa'.rsplit('aa') }} {{ 'aaa'.split('aa') }}", "['a', ''] ['', 'a']"},
        {"{{ (1e999).is_integer() }} {{ (2.0).is_integer() }} {{ 'ab'.endswith(('b', 1)) }}",
         "False True True"},
        {"{{ '%.1f' % -0.0 }} {{ '%.1f' % -0.04 }} {{ '%d' % -0.0 }}", "-0.0 -0.0 0"},
    };
    char out[300];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        check_int(render(rows[i].source, NULL, NULL, 0, out, sizeof out), ==, 0);
        check_string(out, rows[i].want);
    }
    check_int(render("{{ '%d' % 1e300 }}", NULL, NULL, 0, out, sizeof out), ==, -EINVAL);
    check_contains(out, "the result does not fit into 64 bits");
    check_int(render("{{ 'ab'.startswith((1, 'a')) }}", NULL, NULL, 0, out, sizeof out), ==,
              -EINVAL);
    check_contains(out, "expected a str or a tuple of str, not int");
    check_int(render("{{ '%#x' % 255 }}", NULL, NULL, 0, out, sizeof out), ==, -EINVAL);
    check_contains(out, "the format '%#' is not supported");
}

/* Generators, views and ranges are no lists. A generator can be iterated once. */
static void generators(void)
{
    static const struct row rows[] = {
        {"{{ ([1]|map('string')|list) }}{% if []|select %}yes{% endif %}{% if not []|reverse "
         "%}no{% endif %}",
         "['1']yes"},
        {"{% set g = ['b', 'a']|map('upper') %}{{ g|first }}{{ g|list }}{{ g|list }}{{ g|first is "
         "defined }}",
         "B['A'][]False"},
        {"{% set g = [1, 2]|select %}{{ 3 in g }}{{ g|list }}", "False[]"},
        {"{% set g = [1, 2]|select %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% "
         "endfor %}",
         "12"},
        {"{{ ([1]|map('string'))[0] is defined }}{{ ([1]|unique) == [1] }}{{ range(2) == [0, 1] "
         "}}{{ range(2) == range(0, 2) }}",
         "FalseFalseFalseTrue"},
        {"{% set d = {'a': 1} %}{{ d.keys() }}{{ d.values() }}{{ d.items() }}{{ {}.items() }}{{ "
         "d.items()|length }}{{ d.keys()|last }}",
         "dict_keys(['a'])dict_values([1])dict_items([('a', 1)])dict_items([])1a"},
        {"{{ {}.keys() is sequence }}{{ {}.keys() is iterable }}{{ range(3) is sequence }}{{ [] | "
         "map('upper') is sequence }}{{ range(5)[1:3]|list }}{{ range(5)[-1] }}",
         "FalseTrueTrueFalse[1, 2]4"},
        {"{{ [3, 1]|map('string')|reverse }}{{ 2 in range(3) }}{{ {}.values() == [] }}{{ "
         "range(4)|length }}{{ range(0) or 'none' }}",
         "['1', '3']TrueFalse4none"},
    };
    static const struct row refused[] = {
        {"{{ [1]|map('string') }}", "'generator' cannot be written as text"},
        {"{{ [1]|select|length }}", "a value of type 'generator' has no length"},
        {"{{ ([1]|select)[:1] }}", "a value of type 'generator' has no slices"},
        {"{{ ([1]|select) + [1] }}", "+ is not defined between generator and list"},
        {"{{ [1]|batch(2)|last }}", "a generator has no last element"},
        {"{{ [1]|reverse|tojson }}", "a value of type generator cannot be written as JSON"},
        {"{{ {}.items()|tojson }}", "a value of type dict_items cannot be written as JSON"},
        {"{{ {}.keys()[1:] }}", "a value of type 'dict_keys' has no slices"},
        {"{{ range(3) + [1] }}", "+ is not defined between range and list"},
        {"{{ [1]|select ~ '' }}", "'generator' cannot be written as text"},
        {"{% set a, b = [1]|select %}", "cannot unpack 1 values to a different number of names"},
        {"{% set x = 7 %}{{ x[:2] }}", "a value of type 'int' has no slices"},
        {"{% set x = 2.5 %}{{ x[1:] }}", "a value of type 'float' has no slices"},
        {"{% set x = true %}{{ x[1:] }}", "a value of type 'bool' has no slices"},
        {"{% set x = none %}{{ x[1:] }}", "a value of type 'NoneType' has no slices"},
        {"{% set x = {} %}{{ x[1:] }}", "a value of type 'dict' has no slices"},
        {"{{ y[1:] }}", "'y' is undefined"},
    };
    check_rendered(rows, sizeof rows / sizeof rows[0]);
    check_refused(refused, sizeof refused / sizeof refused[0]);
}

/* The else part of a loop, and an if that is evaluated during the loop. */
static void loops(void)
{
    static const struct row rows[] = {
        {"a{% set x %}bc{% endset %}", "a"}, /* ends with its own text */
        {"{% for x in [1, 2] %}{% continue %}{% else %}none{% endfor %}", "none"},
        {"{% for x in [1, 2] %}{% break %}{% else %}none{% endfor %}", "none"},
        {"{% for x in [1, 2] %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% else %}none{% endfor "
         "%}",
         "12"},
        {"{% for x in [1] if x > 1 %}{% else %}none{% endfor %}", "none"},
        {"{% set ns = namespace(n=0) %}{% for x in [1, 2, 3] if ns.n < 2 %}{% set ns.n = ns.n + 1 "
         "%}{{ x }}{% endfor %}",
         "12"},
        {"{% set ns = namespace(n=0) %}{% for x in [1, 2, 3] if ns.n < 2 %}{{ loop.last }}{% set "
         "ns.n = ns.n + 1 %}{{ x }}{% endfor %}",
         "False1False2True3"},
        {"{% set ns = namespace(n=0) %}{% for x in [1, 2, 3] if ns.n < 2 %}{{ loop.length }}{% set "
         "ns.n = ns.n + 1 %}{{ x }}{{ loop.revindex }}{{ loop.nextitem }}{% endfor %}",
         "31323223331"},
        {"{% for x in [1, 2] if x in [2] recursive %}{{ x }}{{ loop([2, 3]) if loop.depth < 3 }}{% "
         "endfor %}",
         "222"},
    };
    static const struct row refused[] = {
        {"{% set g = [1, 2]|select %}{% for x in g %}{% break %}{% endfor %}{{ g|list }}",
         "using the rest of a generator is not supported"},
        {"{% for x in [1] %}{{ loop([]) }}{% endfor %}",
         "only a recursive loop can be called, with its items"},
        {"{% for x in [1] %}{% for y in loop %}{% endfor %}{% endfor %}",
         "a value of type 'LoopContext' has no elements"},
    };
    check_rendered(rows, sizeof rows / sizeof rows[0]);
    check_refused(refused, sizeof refused / sizeof refused[0]);
}

/* Filters of strings take the values of other types that Python takes. */
static void other_types(void)
{
    static const struct row rows[] = {
        {"{{ [3, 1]|truncate(5)|length }}{{ {'a': 1}|truncate(1, true, '', 0) }}{{ x|truncate(3) "
         "}}{{ 'abc def'|truncate(6, leeway=0) }}",
         "2{'a': 1}abc..."},
    };
    static const struct row refused[] = {
        {"{{ [3, 1]|truncate(1, true, '', 0) }}", "truncate cannot shorten a value of type 'list'"},
        {"{{ range(9)|truncate(3) }}", "truncate cannot shorten a value of type 'range'"},
        {"{{ 7|truncate }}", "a value of type 'int' has no length"},
        {"{{ [1]|select|truncate }}", "a value of type 'generator' has no length"},
        {"{{ none|truncate }}", "a value of type 'NoneType' has no length"},
        {"{{ [1]|indent }}", "+ is not defined between list and str"},
        {"{{ 7|indent }}", "+ is not defined between int and str"},
        {"{{ x|indent }}", "'x' is undefined"},
        {"{{ {}|indent(2, true) }}", "+ is not defined between dict and str"},
    };
    check_rendered(rows, sizeof rows / sizeof rows[0]);
    check_refused(refused, sizeof refused / sizeof refused[0]);
}

/* Numbers are computed exactly as in Python, or refused. */
static void numbers(void)
{
    static const struct row rows[] = {
        {"{{ true|abs }} {{ -3|abs }} {{ (-0.5)|abs }} {{ false|abs }} {{ -true }}",
         "1 3 0.5 0 -1"},
        {"{% set big = 1234567890123456789 %}{{ big|round(-1) }} {{ big|round(-18) }} {{ "
         "25|round(-1) }} {{ 35|round(-1) }} {{ (-25)|round(-1) }} {{ 5|round(-1) }} {{ "
         "7|round(-30) }} {{ big|round(2, 'floor') }}",
         "1234567890123456790 1000000000000000000 20 40 -20 0 0 1.2345678901234568e+18"},
        {"{{ 25.000000000000004|round(-1) }} {{ 5.0|round(-1) }} {{ 5.1|round(-1) }} {{ -0.2|round "
         "}} {{ (-0.2)|round(0, 'ceil') }} {{ 1e-25|round(22) }} {{ 1234.5|round(-2) }} {{ "
         "0.5|round }} {{ 123e20|round(-20) }} {{ 2.675|round(2) }}",
         "30.0 0.0 10.0 -0.0 0.0 0.0 1200.0 0.0 1.23e+22 2.67"},
        {"{{ 1.0 // 0.1 }} {{ -0.0 % 3 }} {{ 7.5 // -2 }} {{ -7.5 % 2 }} {{ 0.0 // -3 }} {{ 5 % -3 "
         "}}",
         "9.0 0.0 -4.0 0.5 -0.0 -1"},
        {"{{ 9007199254740993 == 9007199254740992.0 }} {{ 9007199254740993 > 9007199254740992.0 }} "
         "{{ 2 < 2.5 < 3 }} {{ -3 > -3.5 }} {{ 1e300 > 5 }} {{ true == 1.0 }}",
         "False True True True True True"},
        {"{{ '0x_1f'|int(0, 16) }} {{ '+_1'|int(7) }} {{ '1_.5'|float }} {{ '1_0.5'|float }} {{ ' "
         "-12\\n'|int }} {{ '0b1'|int(0, 2) }} {{ '0o7'|int(0, 8) }} {{ '0x'|int(3, 16) }} {{ "
         "'0x0x1'|int(3, 16) }} {{ '-z'|int(0, 36) }} {{ '1e3'|int }} {{ 'inf'|int }} {{ "
         "'nan'|int(2) }} {{ '+ 1'|int(4) }} {{ '-9223372036854775808'|int }}",
         "31 7 0.0 10.5 -12 1 7 3 3 -35 1000 0 2 4 -9223372036854775808"},
        {"{{ ('0' * 90 ~ '12')|int }} {{ ('a' * 200)|int(5) }} {{ ('1' * 30)|float }}",
         "12 5 1.111111111111111e+29"},
    };
    static const struct row refused[] = {
        {"{{ 1e300|int }}", "the result does not fit into 64 bits"},
        {"{{ ('9' * 30)|int }}",
         "the number 999999999999999999999999999999 does not fit into 64 bits"},
        {"{{ '1e300'|int }}", "the result does not fit into 64 bits"},
        {"{% set x = 1e999 %}{{ x|int }}", "the result does not fit into 64 bits"},
        {"{{ '١٢'|int }}", "digits beyond ASCII are not supported in numbers"},
        {"{{ '7'|int(0, 0) }}", "int with base=0 is not supported"},
        {"{{ 9007199254740993 / 3 }}", "dividing numbers of more than 53 bits is not supported"},
        {"{{ 0.0 ** -1 }}", "0 ** -1 has no result that is a float"},
        {"{{ (-8) ** 0.5 }}", "-8 ** 0.5 has no result that is a float"},
        {"{{ 10.0 ** 400 }}", "10 ** 400 has no result that is a float"},
        {"{{ 0 ** -1 }}", "0 ** -1 has no result that is a float"},
        {"{{ ('nan'|float) == 1 }}", "comparing nan is not supported"},
        {"{{ 1 < ('nan'|float) }}", "comparing nan is not supported"},
    };
    check_rendered(rows, sizeof rows / sizeof rows[0]);
    check_refused(refused, sizeof refused / sizeof refused[0]);
}

/* Arguments that Python does not take are refused. */
static void arguments(void)
{
    static const struct row rows[] = {
        {"{{ 'abc'.find('', 3) }} {{ 'abc'.find('', 4) }} {{ 'abc'.find('', 2, 1) }} {{ "
         "'abc'.rfind('', 99) }} {{ 'abc'.count('', 4) }} {{ 'abc'.count('', 3) }} {{ "
         "'abc'.startswith('', 4) }} {{ 'abc'.endswith(('', 'x'), 2, 1) }} {{ 'abc'.find('c', -1) "
         "}} {{ 'abc'.find('b', -99, 99) }}",
         "3 -1 -1 -1 0 1 False False 2 1"},
        {"{{ 7|replace(7, 8) }} {{ 'aaa'|replace('a', 'b', true) }} {{ 'aaa'|replace('a', 'b', "
         "none) }} {{ 'aaa'.replace('a', 'b', -1) }} {{ 'a b'.split(sep=' ', maxsplit=1) }} {{ "
         "'a'.splitlines(keepends=true) }} {{ {'a': 1}.get('b', 2) }}",
         "8 baa bbb bbb ['a', 'b'] ['a'] 2"},
    };
    static const struct row refused[] = {
        {"{{ 'a'.find(sub='a') }}", "find: the argument '-sub' is missing"},
        {"{{ {}.get(key='a') }}", "get: the argument '-key' is missing"},
        {"{{ 'a'.replace(1, 'b') }}", "old must be a str, found 'int'"},
        {"{{ 'a'.replace('a', 'b', 1.5) }}", "count must be an int, found 'float'"},
        {"{{ 'a'.center() }}", "center: the argument '-width' is missing"},
        {"{{ 'a'.zfill() }}", "zfill: the argument '-width' is missing"},
        {"{{ 'a'.center(5, '**') }}", "fillchar must be one character"},
        {"{{ 'a'|center(3, width=4) }}", "center: the argument 'width' is given twice"},
        {"{{ ','.join() }}", "join: the argument '-iterable' is missing"},
        {"{{ 1 is eq }}", "eq: the argument '-other' is missing"},
        {"{{ 1 is in }}", "in: the argument 'seq' is missing"},
        {"{{ [].index() }}", "index: the argument '-value' is missing"},
        {"{{ joiner()(1) }}", "a joiner takes no arguments"},
        {"{{ cycler('a', b=1).next() }}", "cycler has no argument 'b'"},
        {"{{ dict([], []) }}", "dict takes at most one argument without a name"},
        {"{{ dict(x) }}", "'x' is undefined"},
        {"{% for x in [1] %}{{ loop.cycle(a=1) }}{% endfor %}", "cycle has no argument 'a'"},
        {"{{ [1]|batch }}", "batch: the argument 'linecount' is missing"},
        {"{{ range() }}", "range: the argument '-start' is missing"},
        {"{{ 'a'|attr }}", "attr: the argument 'name' is missing"},
    };
    check_rendered(rows, sizeof rows / sizeof rows[0]);
    check_refused(refused, sizeof refused / sizeof refused[0]);
}

/* A test has the arguments that Jinja's grammar gives it. */
static void tests_of_tests(void)
{
    static const struct row rows[] = {
        {"{{ 1 is eq(1) is true }} {{ 4 is divisibleby 2 is true }} {{ (1 is odd) is true }} {{ 1 "
         "is not none or false }} {{ 'a' if 1 is defined else 'b' }} {{ 1 is odd and 2 is even }}",
         "True True True True a True"},
    };
    static const struct row refused[] = {
        {"{{ 1 is odd is true }}", "a test cannot follow another test: use brackets"},
        {"{{ 1 is not none is not string }}", "a test cannot follow another test: use brackets"},
        {"{{ 1 is defined if true else 2 }}", "expected }}, found 'true'"},
        {"{{ 1 is odd in [true] }}", "'in' is undefined"},
    };
    check_rendered(rows, sizeof rows / sizeof rows[0]);
    check_refused(refused, sizeof refused / sizeof refused[0]);
}

/* Formats of strings by % and format(). */
static void formats(void)
{
    static const struct row rows[] = {
        {"{{ '{:.3}|{:.3}|{:.3}|{:.3}|{:.1}|{:.4}|{:.0}'.format(2.0, 100.0, 1234.5, 0.00001234, "
         "9.96, 12.0, 3.0) }} {{ '{:5}|{:>5}|{:d}|{}|{!s:>6}'.format(true, false, true, true, "
         "true) }}",
         "2.0|1e+02|1.23e+03|1.23e-05|1e+01|12.0|3e+00     1|    0|1|True|  True"},
        {"{{ '{:<05}|{:05}|{:05}|{:*<05}|{:^7}|{:=+5}'.format(3, 'a', -3, 3, 2.5, 3) }} {{ "
         "'{0[k]}{0[a b]}{1.x}'.format({'k': 1, 'a b': 2}, {'x': 3}) }} {{ "
         "'{:,}|{:,.2f}|{:.1%}'.format(1234567, 1234.5, 0.5) }}",
         "30000|a0000|-0003|3****|  2.5  |+   3 123 1,234,567|1,234.50|50.0%"},
        {"{{ '%05s|%-05d|%+ d|%05d|%5.1f|%s' % ('a', 3, 4, -5, 2.25, [1]) }} {{ '%s'|format({'a': "
         "1}) }} {{ '%(a)s'|format(a=1) }} {{ '%s %%' % 'x' }} {{ '{:e}'.format(12345) }}",
         "    a|3    |+4|-0005|  2.2|[1] {'a': 1} 1 x % 1.234500e+04"},
    };
    static const struct row refused[] = {
        {"{{ '{:>5}'.format(none) }}", "this format is not defined for a value of type NoneType"},
        {"{{ '{:s}'.format(5) }}", "this format is not defined for a value of type int"},
        {"{{ '{:.3}'.format(5) }}", "a format of an int with a precision is not supported"},
        {"{{ '{:,}'.format('a') }}", "this format is not defined for a value of type str"},
        {"{{ '{:+}'.format('a') }}", "this format is not defined for a value of type str"},
        {"{{ '{:=5}'.format('a') }}", "this format is not defined for a value of type str"},
        {"{{ '{} {0}'.format(1, 2) }}", "format has fields with and without numbers"},
        {"{{ '{0} {}'.format(1, 2) }}", "format has fields with and without numbers"},
        {"{{ '{:{}}'.format(1, 2) }}", "the field ':{' is not supported"},
        {"{{ '{!x}'.format(1) }}", "the field '!x' is not supported"},
        {"{{ '{!rr}'.format(1) }}", "the field '!rr' is not supported"},
        {"{{ '{:.}'.format(1.5) }}", "the format '.' is not supported"},
        {"{{ '{:>5}'.format([1]) }}", "this format is not defined for a value of type list"},
        {"{{ '{0[}'.format([1]) }}", "the field '0[' is not complete"},
        {"{{ '%.3d' % 5 }}", "a format of an int with a precision is not supported"},
        {"{{ '%a' % 'é' }}", "the format '%a' is not supported"},
        {"{{ '%5%' % () }}", "a format has more conversions than values"},
        {"{{ 'x'|format({}) }}", "a format has fewer conversions than values"},
        {"{{ '%(a)s'|format({'a': 1}) }}", "%(name) needs a dict, or is not closed"},
        {"{{ 'x' % ({},) }}", "a format has fewer conversions than values"},
        {"{{ '%s'|format(1, a=2) }}", "format takes values with or without names, not both"},
        {"{{ '{:010,}'.format(5) }}", "the format '010,' is not supported"},
        {"{{ '{:.300f}'.format(5.5) }}", "a precision above 200 is not supported"},
    };
    check_rendered(rows, sizeof rows / sizeof rows[0]);
    check_refused(refused, sizeof refused / sizeof refused[0]);
}

/* Attributes that tide lacks are refused; they are not undefined. */
static void attributes(void)
{
    static const struct row rows[] = {
        {"{{ (1, 2).count(1) }}{{ [1].copy() }}{{ {'pop': 1}['pop'] }}{{ none is sameas none }}{{ "
         "1 is sameas 1 }}{{ [] is sameas [] }}{{ 'a' is sameas 'b' }}{{ 1 is sameas 1.0 }}",
         "1[1]1TrueTrueFalseFalseFalse"},
    };
    static const struct row refused[] = {
        {"{{ (7).real }}", "the attribute or method real of 'int' is not supported"},
        {"{{ true.real }}", "the attribute or method real of 'bool' is not supported"},
        {"{{ 2.5.imag }}", "the attribute or method imag of 'float' is not supported"},
        {"{{ 'a'.isprintable() }}",
         "the attribute or method isprintable of 'str' is not supported"},
        {"{{ range(3).start }}", "the attribute or method start of 'range' is not supported"},
        {"{{ (1, 2).copy() }}", "'copy' is undefined"},
        {"{% macro m() %}{% endmacro %}{{ m.name }}",
         "the attribute or method name of 'Macro' is not supported"},
        {"{{ cycler(1, 2).items }}", "the attribute or method items of 'Cycler' is not supported"},
        {"{{ {}.fromkeys([1]) }}", "the attribute or method fromkeys of 'dict' is not supported"},
        {"{% set x = [1] %}{{ {(1, x): 2} }}", "'list' cannot be a key of a dict"},
        {"{% set x = [1] %}{{ x in {} }}", "'list' cannot be a key of a dict"},
        {"{% set x = {} %}{{ x in {}.keys() }}", "'dict' cannot be a key of a dict"},
        {"{{ [{}]|unique|list }}", "'dict' cannot be a key of a dict"},
        {"{{ [1] is filter }}", "'list' cannot be a key of a dict"},
        {"{{ {} is test }}", "'dict' cannot be a key of a dict"},
        {"{{ 'ab' is sameas 'ab' }}", "sameas of two equal values of type str is not supported"},
    };
    check_rendered(rows, sizeof rows / sizeof rows[0]);
    check_refused(refused, sizeof refused / sizeof refused[0]);
}

/* Results of escape and safe are not escaped again. */
static void markups(void)
{
    static const struct row rows[] = {
        {"{{ '<'|e }}{{ '<'|e|e }}{{ '<'|e|forceescape }}{{ '<'|safe|e }}{{ ('<'|e) is escaped "
         "}}{{ '<' is escaped }}{{ ['<'|safe] }}{{ ('a'|safe) == 'a' }}{{ ('a'|safe) is string }}",
         "&lt;&lt;&amp;lt;<TrueFalse[Markup('<')]TrueTrue"},
        {"{{ '<'|e ~ '<' }}{{ ' <'|e|trim|e }}{{ 'a'|e|upper|string }}{{ [1]|tojson|safe }}{{ "
         "'<a>'|safe|tojson }}{{ ['<'|e, 'b']|join('>') }}{{ '<'|e|replace('l', 'L')|e }}{{ "
         "'ab'|e|list }}{{ 'ab'|safe|length }}{{ {'a'|safe: 1}.a }}{{ '7'|safe|int }}",
         "&lt;<&lt;A[1]\"<a>\"&lt;>b&amp;Lt;['a', 'b']217"},
    };
    static const struct row refused[] = {
        {"{{ '<' + ('<'|e) }}", "+ is not defined between str and Markup"},
        {"{{ ('<'|e) + '<' }}", "+ is not defined between Markup and str"},
        {"{{ ('%s'|safe) % '<' }}", "% is not defined between Markup and str"},
        {"{{ ('<'|e)[0] }}", "items of a result of escape or safe are not supported"},
        {"{{ ('<'|e)[1:] }}", "a value of type 'Markup' has no slices"},
        {"{{ ('<'|e).upper() }}", "the attribute or method upper of 'Markup' is not supported"},
        {"{{ ('ab'|safe)|reverse }}", "reverse of a result of escape or safe is not supported"},
        {"{{ ('%s'|safe)|format(1) }}", "format of a result of escape or safe is not supported"},
    };
    check_rendered(rows, sizeof rows / sizeof rows[0]);
    check_refused(refused, sizeof refused / sizeof refused[0]);
}

/* Keys of sort, min, max and map; arguments of tojson. */
static void keys(void)
{
    static const struct row rows[] = {
        {"{{ [none, none]|sort }}{{ [{'a': 1}, {}]|map(attribute='b')|list|sort }}{{ ['b', "
         "'A']|sort }}{{ [{'a': 2, 'b': 1}, {'a': 1, 'b': "
         "2}]|sort(attribute='a,b')|map(attribute='a')|list }}",
         "[None, None][Undefined, Undefined]['A', 'b'][1, 2]"},
        {"{{ [{'a': {'b': 1}}, {}]|map(attribute='a.b', default='-')|list }}{{ [1, "
         "2]|map(attribute=none)|list }}{{ [[1], [2]]|sum(start=[]) }}",
         "[1, '-'][1, 2][1, 2]"},
        {"{{ [1, 2]|tojson(indent=true) }}{{ [1, 2]|tojson(indent=-1) }}{{ [1]|tojson(indent=0) "
         "}}{{ {1.5: 1, none: 2, true: 3}|tojson }}",
         "[\n 1,\n 2\n][\n1,\n2\n][\n1\n]{\"1.5\": 1, \"null\": 2, \"true\": 3}"},
        {"{{ [{'a,b': 2}, {'a,b': 1}]|min(attribute='a,b') }}", "{'a,b': 1}"},
    };
    static const struct row refused[] = {
        {"{{ [none, 1]|sort }}", "NoneType and int cannot be ordered"},
        {"{{ [none, none]|min }}", "NoneType and NoneType cannot be ordered"},
        {"{{ ['a']|sum(start='') }}", "sum cannot add strings: use join"},
        {"{{ {'a': 1}|dictsort(by='x') }}", "dictsort sorts by key or value only"},
        {"{{ ['a']|map(attribute='b', c=1)|list }}", "map has no argument 'c'"},
        {"{{ ['a']|map(default=1)|list }}", "map: the argument 'attribute' is missing"},
        {"{{ ['a']|map|list }}", "map: the argument 'attribute' is missing"},
        {"{{ [1]|tojson(indent=1.5) }}", "* is not defined between str and float"},
        {"{{ [1]|tojson(separators=(1, 2)) }}", "separators are two strings"},
        {"{{ [1]|tojson(separators=',') }}", "separators are two strings"},
    };
    check_rendered(rows, sizeof rows / sizeof rows[0]);
    check_refused(refused, sizeof refused / sizeof refused[0]);
}

/* A failed allocation is an error; nothing leaks. */
static void out_of_memory(void)
{
    struct jinja_template *template = NULL;
    check_int(test_fail_nth(life), >=, 5);
    check_int(jinja_template_create(life_source, strlen(life_source), "t", &template), ==, 0);
    check_true(jinja_template_generates(template));
    jinja_template_destroy(template);
}

TEST_MAIN({"fixture", fixture}, {"errors_have_lines", errors_have_lines}, {"bounds", bounds},
          {"times", times}, {"counts_work", counts_work}, {"counts_characters", counts_characters},
          {"strips_sets", strips_sets}, {"searches", searches}, {"kept", kept},
          {"large_integers", large_integers}, {"generators", generators}, {"loops", loops},
          {"other_types", other_types}, {"numbers", numbers}, {"arguments", arguments},
          {"tests_of_tests", tests_of_tests}, {"formats", formats}, {"attributes", attributes},
          {"markups", markups}, {"keys", keys},

          {"out_of_memory", out_of_memory})
