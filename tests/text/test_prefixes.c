/* Beginnings of a conversation that are told on the way through the whole: each is what rendering it
 * by itself says, whatever the template looks at, and templates of common shapes leave none untold. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/rng.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"
#include "tools/text/template/template.h"

enum { MESSAGES_MAX = 12, VARIABLES_MAX = 40 };

struct bench {
    struct text_template *template;
    struct text_template_run *runs[2];
    struct core_json *doc;
    struct text_template_variable variables[VARIABLES_MAX];
    size_t count; /* without the last two: messages and the prompt */
    size_t known; /* beginnings so far */
    size_t asked;
};

static void set_messages(struct bench *bench, const struct core_json_value *messages, size_t count,
                         bool prompt)
{
    bench->variables[bench->count] = (struct text_template_variable){
        .name = "messages", .kind = TEXT_TEMPLATE_JSON, .json = messages, .items_max = count};
    bench->variables[bench->count + 1] = (struct text_template_variable){
        .name = "add_generation_prompt", .kind = TEXT_TEMPLATE_BOOL, .truth = prompt};
}

static void check_prefix(struct bench *bench, const char *name, const struct core_json_value *list,
                         const struct text_rendering *whole,
                         const struct text_template_prefix *prefix)
{
    struct text_rendering part;
    bench->asked++;
    if (!prefix->known) {
        return;
    }
    bench->known++;
    set_messages(bench, list, prefix->messages, prefix->prompt);
    check_int(text_template_render(bench->template, bench->runs[1], bench->variables,
                                   bench->count + 2, 1, &part),
              ==, 0);
    size_t same = 0;
    while (same < part.bytes && same < whole->bytes && part.text[same] == whole->text[same]) {
        same++;
    }
    if (prefix->bytes != part.bytes || prefix->common != same) {
        test_fail(__FILE__, __LINE__,
                  "%s: %zu messages%s: %zu bytes, %zu in common, instead of %zu and %zu: %s\n%s",
                  name, prefix->messages, prefix->prompt ? " and the prompt" : "", prefix->bytes,
                  prefix->common, part.bytes, same, part.text, whole->text);
    }
}

/* All beginnings of one conversation. */
static void check_conversation(struct bench *bench, const char *name,
                               const struct core_json_value *list)
{
    struct text_rendering whole;
    struct text_template_prefix items[2 * MESSAGES_MAX];
    const size_t messages = core_json_count(list);
    set_messages(bench, list, 0, false);
    if (messages == 0 || text_template_render(bench->template, bench->runs[0], bench->variables,
                                              bench->count + 2, 1, &whole) != 0) {
        return;
    }
    struct text_template_prefixes asked = {.variables = bench->variables,
                                           .variables_count = bench->count + 2,
                                           .now = 1,
                                           .whole = &whole,
                                           .items = items};
    check_uint(messages, <=, MESSAGES_MAX);
    for (size_t i = 1; i <= messages; i++) {
        items[asked.count++] = (struct text_template_prefix){.messages = i, .prompt = false};
        items[asked.count++] = (struct text_template_prefix){.messages = i, .prompt = true};
    }
    check_int(text_template_run_keep(bench->runs[1], list), ==, 0);
    text_template_prefixes(bench->template, bench->runs[1], &asked);
    for (size_t i = 0; i < asked.count; i++) {
        check_prefix(bench, name, list, &whole, &items[i]);
    }
    check_int(text_template_run_keep(bench->runs[1], NULL), ==, 0);
}

static void open_bench(struct bench *bench, const char *source, size_t bytes, const char *name)
{
    bench->template = NULL;
    for (size_t i = 0; i < 2 && bench->runs[i] == NULL; i++) {
        check_int(text_template_run_create(NULL, &bench->runs[i]), ==, 0);
    }
    check_int(text_template_create(source, bytes, name, &bench->template), ==, 0);
}

static void close_bench(struct bench *bench)
{
    text_template_destroy(bench->template);
    bench->template = NULL;
}

static void end_bench(struct bench *bench)
{
    text_template_run_destroy(bench->runs[0]);
    text_template_run_destroy(bench->runs[1]);
    core_json_destroy(bench->doc);
}

/* The templates and conversations that rendering is checked with. */
static void fixture(void)
{
    char path[4096];
    struct bench bench = {0};
    snprintf(path, sizeof path, "%s/text/fixtures/templates.json", test_root());
    check_int(core_json_load(path, NULL, &bench.doc), ==, 0);
    const struct core_json_value *inputs = core_json_find(core_json_root(bench.doc), "inputs");
    const struct core_json_value *all = core_json_find(core_json_root(bench.doc), "templates");
    for (size_t i = 0; i < core_json_count(all); i++) {
        size_t bytes;
        struct text_template *template = NULL;
        const struct core_json_value *one = core_json_at(all, i);
        const char *name = core_json_string(core_json_find(one, "name"), NULL);
        const char *source = core_json_string(core_json_find(one, "source"), &bytes);
        if (text_template_create(source, bytes, name, &template) != 0) {
            continue; /* one that is to be refused */
        }
        text_template_destroy(template);
        open_bench(&bench, source, bytes, name);
        for (size_t k = 0; k < core_json_count(inputs); k++) {
            struct core_json_member member;
            bench.count = 0;
            for (bool any = core_json_first(core_json_at(inputs, k), &member); any;
                 any = core_json_next(&member)) {
                if (strcmp(member.key, "messages") != 0 &&
                    strcmp(member.key, "add_generation_prompt") != 0) {
                    bench.variables[bench.count++] = (struct text_template_variable){
                        .name = member.key, .kind = TEXT_TEMPLATE_JSON, .json = member.value};
                }
            }
            check_conversation(&bench, name, core_json_find(core_json_at(inputs, k), "messages"));
        }
        close_bench(&bench);
    }
    check_uint(bench.known, >, bench.asked / 4);
    end_bench(&bench);
}

#define MESSAGE(role, content) "{\"role\": \"" role "\", \"content\": \"" content "\"}"
static const char *const talks[] = {
    "[" MESSAGE("user", "a") "," MESSAGE("assistant", "b") "," MESSAGE("user", "cc") "," MESSAGE(
        "assistant", "d") "," MESSAGE("user", "e") "," MESSAGE("assistant", "b") "]",
    "[" MESSAGE("system", "s") "," MESSAGE("user", "a") "," MESSAGE("assistant", "b") "," MESSAGE(
        "user", "c") "," MESSAGE("tool", "t") "," MESSAGE("tool", "t") "," MESSAGE("assistant",
                                                                                   "d") "]",
    "[" MESSAGE("user", "a") "," MESSAGE("user", "a") "," MESSAGE("user", "a") "," MESSAGE(
        "assistant", "a") "," MESSAGE("system", "late") "," MESSAGE("assistant", "z") "]",
    "[" MESSAGE("assistant", "x") "]",
};
enum { TALKS = sizeof talks / sizeof talks[0] };

static void check_talks(struct bench *bench, const char *name, const char *source)
{
    open_bench(bench, source, strlen(source), name);
    for (size_t i = 0; i < TALKS; i++) {
        core_json_destroy(bench->doc);
        bench->doc = NULL;
        check_int(core_json_parse(talks[i], strlen(talks[i]), "talk", NULL, &bench->doc), ==, 0);
        check_conversation(bench, name, core_json_root(bench->doc));
    }
    close_bench(bench);
}

/* The shapes in which most templates are written leave nothing untold but the first message, where the
 * loop begins behind it. */
static void common_shapes(void)
{
    static const char *const sources[] = {
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}",
        "{{ bos }}{% if not add_generation_prompt is defined %}{% set add_generation_prompt = "
        "false "
        "%}{% endif %}{% if messages[0]['role'] == 'user' %}U{% endif %}{% for m in messages %}"
        "{% if loop.first %}*{% endif %}<{{ m.role }}>{{ m.content }}{% if loop.last %}!{% endif %}"
        "{% if loop.last and add_generation_prompt %}<assistant>{% endif %}{% endfor %}",
        "{% set ns = namespace(system='', turns=0) %}{% for m in messages %}{% if m.role == "
        "'first' "
        "%}{% set ns.system = m.content %}{% endif %}{% endfor %}[{{ ns.system }}]{% for m in "
        "messages %}{% set ns.turns = ns.turns + 1 %}{{ ns.turns }}{{ m.content }}{% endfor %}"
        "{{ ns.turns }}{% if add_generation_prompt %}+{% endif %}",
        "{% if messages | length > 0 and messages %}{% for m in messages %}{% if loop.last or "
        "messages[loop.index0 + 1].role != 'tool' %}.{% endif %}{% if loop.nextitem is defined and "
        "loop.nextitem.role == 'tool' %},{% endif %}{{ loop.changed(m.role) }}{{ m.content }}"
        "{% endfor %}{% endif %}{{ 'P' if add_generation_prompt else 'Q' }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        struct bench bench = {0};
        check_talks(&bench, sources[i], sources[i]);
        check_uint(bench.asked, ==, 2 * (6 + 7 + 6 + 1));
        check_uint(bench.known, ==, bench.asked);
        end_bench(&bench);
    }
    struct bench bench = {0};
    check_talks(
        &bench, "behind the first",
        "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% else %}"
        "{% set rest = messages %}{% endif %}{% for m in rest %}{{ m.content }}{{ loop.last }}"
        "{% endfor %}{{ add_generation_prompt }}");
    check_uint(bench.known, ==, bench.asked - 2);
    end_bench(&bench);
}

/* What sees how long the conversation is tells nothing, rather than something wrong. */
static void looks_ahead(void)
{
    static const char *const sources[] = {
        "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{{ messages[-1].content }}{% endfor %}",
        "{% set all = messages[:] %}{{ all | length }}{% for m in messages %}{{ m.content }}"
        "{% endfor %}",
        "{% for m in messages %}{{ loop.revindex }}{% endfor %}",
        "{% for m in messages %}{{ loop.length }}{% endfor %}",
        "{% for m in messages | reverse %}{{ m.content }}{% endfor %}",
        "{% set ns = namespace(m=messages) %}{{ ns.m | length }}{% for m in messages %}{{ "
        "m.content "
        "}}{% endfor %}",
        "{% macro f(x) %}{{ x | length }}{% endmacro %}{{ f(messages) }}{% for m in messages %}{{ "
        "m.content }}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        struct bench bench = {0};
        check_talks(&bench, sources[i], sources[i]);
        /* A whole of one message is known, and what comes before the first look. */
        check_uint(bench.known, <, bench.asked / 2);
        end_bench(&bench);
    }
}

static const char *const before[] = {
    "{% set ns = namespace(n=0, last=-1, s='') %}{% set c = cycler('x', 'y') %}{% set j = joiner() "
    "%}{% macro f(m) %}{{ m.content }}{{ messages[0].role }}{% endmacro %}{% macro g() %}"
    "{{ add_generation_prompt }}{% endmacro %}{% set list = messages %}{% set rest = messages[1:] "
    "%}",
};
static const char *const prologues[] = {
    "",
    "{% for m in messages %}{% if m.role == 'system' %}{% set ns.s = m.content %}{% endif %}{% "
    "endfor %}{{ ns.s }}",
    "{% for m in list %}{% set ns.n = ns.n + 1 %}{% endfor %}",
    "{% for m in messages[::-1] %}{% if m.role == 'user' and ns.last < 0 %}{% set ns.last = "
    "loop.index0 %}{% endif %}{% endfor %}",
    "{% if messages %}{% set list = messages[1:] %}{% endif %}",
    "{% if messages | length > 2 %}L{% else %}S{% endif %}",
    "{% set add_generation_prompt = add_generation_prompt %}",
    "{% if add_generation_prompt %}{% set ns.s = 'p' %}{% endif %}",
    "{% for m in messages %}{% if m.content == 'd' %}{% break %}{% endif %}{% set ns.s = 'q' %}{% "
    "endfor %}{{ ns.s }}",
    "{% for m in rest %}{% else %}empty{% endfor %}",
    "{% for m in messages %}{% if loop.last %}{% set ns.s = m.content %}{% endif %}{% endfor %}"
    "{{ ns.s }}",
    "{% for m in messages %}{{ c.next() }}{% endfor %}",
    "{% for m in messages %}{% set x = c.next() %}{% endfor %}",
    "{% if messages[3] is defined %}four{% endif %}{% if not list %}none{% endif %}",
    "{% with list = messages[2:] %}{% for m in list %}{% set ns.n = ns.n + 2 %}{% endfor %}{% "
    "endwith %}",
};
static const char *const heads[] = {
    "{% for m in messages %}",
    "{% for m in list %}",
    "{% for m in rest %}",
    "{% for m in messages[2:] %}",
    "{% for m in messages[0:] %}",
    "{% for m in messages if m.role != 'tool' %}",
    "{% if messages[0].role == 'user' %}{% for m in messages %}",
    "{% with y = 3 %}{% for m in list %}",
    "{% for z in [1, 2] %}{% for m in messages %}",
    "{% set b %}{% for m in messages %}",
};
static const char *const ends[] = {
    "{% endfor %}",
    "{% endfor %}",
    "{% endfor %}",
    "{% else %}none{% endfor %}",
    "{% endfor %}",
    "{% endfor %}",
    "{% endfor %}{% else %}{% for m in rest %}{{ m.content }}{% endfor %}{% endif %}",
    "{% endfor %}{{ y }}{% endwith %}",
    "{% endfor %}{% endfor %}",
    "{% endfor %}{% endset %}{{ b | upper }}",
};
static const char *const bodies[] = {
    "{{ m.role }}",
    "{{ m.content }}",
    "{{ f(m) }}",
    "{{ g() }}",
    "{% if loop.last %}!{% endif %}",
    "{% if not loop.last %},{% endif %}",
    "{% if loop.index0 + 1 < messages | length %};{% endif %}",
    "{{ messages[loop.index0 + 1].role }}",
    "{% if loop.index0 > 0 %}{{ messages[loop.index0 - 1].role }}{% endif %}",
    "{{ loop.nextitem }}",
    "{{ loop.previtem.role }}",
    "{{ loop.changed(m.role) }}",
    "{{ loop.cycle('1', '2') }}",
    "{{ c.next() }}{{ j() }}",
    "{% set ns.n = ns.n + 1 %}{{ ns.n }}",
    "{% set ns.s = m.content %}",
    "{{ ns.s }}{{ ns.last }}",
    "{% if m.role == 'tool' %}{% continue %}{% endif %}",
    "{% if m.content == 'cc' %}{% break %}{% endif %}",
    "{% for k in messages %}{% if k.content == m.content %}={% endif %}{% endfor %}",
    "{% if loop.last and add_generation_prompt %}P{% endif %}",
    "{% set list = messages[loop.index0:] %}{{ list[0].content }}",
    "{% if messages[2].content %}2{% endif %}",
    "{% if m == messages[-1] %}~{% endif %}",
    "{% set x = messages | selectattr('role', 'equalto', 'user') | list %}{{ x | length }}",
    "{% set ns.new = m.content %}",
    "{% set t %}{% for k in list %}{{ k.role }}{% endfor %}{% endset %}{{ t }}",
    "{{ loop.length }}",
    "{{ messages | map(attribute='role') | join }}",
    "{% if loop is defined and m in messages %}in{% endif %}",
};
static const char *const epilogues[] = {
    "",
    "{% if add_generation_prompt %}G{% endif %}",
    "{{ ns.n }}{{ ns.s }}{{ ns.new }}{{ c.next() }}{{ j() }}",
    "{{ messages | length }}",
    "{{ messages[-1].content }}{% set ns.s = 'over' %}{{ ns.s }}",
    "{% for m in messages %}{{ m.role }}{% endfor %}",
    "{% if list[1] %}{{ list[1].role }}{% endif %}{{ rest | length }}",
    "{% if messages[-1].role == 'user' %}{{ raise_exception('ends with a user') }}{% endif %}",
};

static size_t draw(uint64_t *at, size_t count)
{
    return core_rng_philox(5, 1, (*at)++).word[0] % count;
}
#define DRAW(list) list[draw(&at, sizeof list / sizeof *list)]

/* Whatever the template is put together of. */
static void any_template(void)
{
    uint64_t at = 0;
    struct bench bench = {0};
    for (int i = 0; i < TEST_COUNT(6000, 800) * (test_full() ? 20 : 1); i++) {
        char source[4000];
        const size_t head = draw(&at, sizeof heads / sizeof heads[0]);
        size_t bytes = (size_t)snprintf(source, sizeof source, "%s%s%s%s", before[0],
                                        DRAW(prologues), draw(&at, 3) == 0 ? DRAW(prologues) : "",
                                        heads[head]);
        for (size_t k = draw(&at, 5); k < 6; k++) {
            bytes += (size_t)snprintf(source + bytes, sizeof source - bytes, "%s", DRAW(bodies));
        }
        snprintf(source + bytes, sizeof source - bytes, "%s%s%s", ends[head], DRAW(epilogues),
                 draw(&at, 3) == 0 ? DRAW(epilogues) : "");
        check_talks(&bench, source, source);
    }
    check_uint(bench.known, >, bench.asked / 20);
    end_bench(&bench);
}

/* Where memory or steps run out on the way, nothing is told; what is told is right. */
static void out_of_bounds(void)
{
    static const char source[] =
        "{% set ns = namespace(n='') %}{% for m in messages %}{% set ns.n = "
        "ns.n ~ m.content %}{{ ns.n }}{% if loop.last %}{{ ns.n * 2 }}"
        "{% endif %}{% endfor %}{{ add_generation_prompt }}";
    for (uint64_t steps = 20; steps < 400; steps += 7) {
        struct bench bench = {0};
        const struct text_template_limits limits = {.steps = steps};
        struct text_template_run *run = NULL;
        struct text_rendering whole;
        struct text_template_prefix items[2] = {{.messages = 2}, {.messages = 4, .prompt = true}};
        open_bench(&bench, source, strlen(source), "t");
        check_int(core_json_parse(talks[0], strlen(talks[0]), "talk", NULL, &bench.doc), ==, 0);
        set_messages(&bench, core_json_root(bench.doc), 0, false);
        check_int(
            text_template_render(bench.template, bench.runs[0], bench.variables, 2, 1, &whole), ==,
            0);
        struct text_template_prefixes asked = {.variables = bench.variables,
                                               .variables_count = 2,
                                               .now = 1,
                                               .whole = &whole,
                                               .items = items,
                                               .count = 2};
        check_int(text_template_run_create(&limits, &run), ==, 0);
        if (text_template_run_keep(run, core_json_root(bench.doc)) == 0) {
            text_template_prefixes(bench.template, run, &asked);
        }
        check_int(text_template_run_keep(bench.runs[1], core_json_root(bench.doc)), ==, 0);
        for (size_t i = 0; i < 2; i++) {
            check_prefix(&bench, "t", core_json_root(bench.doc), &whole, &items[i]);
        }
        check_true(steps < 300 || items[1].known);
        check_true(steps > 30 || !items[0].known);
        text_template_run_destroy(run);
        close_bench(&bench);
        end_bench(&bench);
    }
}

static int life(void)
{
    struct core_json *doc = NULL;
    struct text_template *template = NULL;
    struct text_template_run *runs[2] = {NULL, NULL};
    struct text_rendering whole;
    struct text_template_prefix items[1] = {{.messages = 2}};
    struct text_template_variable messages = {.name = "messages", .kind = TEXT_TEMPLATE_JSON};
    static const char source[] =
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = "
        "ns.n + 1 %}{{ m.content }}{% endfor %}{{ ns.n }}";
    int code = core_json_parse(talks[0], strlen(talks[0]), "talk", NULL, &doc);
    code = code == 0 ? text_template_create(source, strlen(source), "t", &template) : code;
    for (size_t i = 0; i < 2 && code == 0; i++) {
        code = text_template_run_create(NULL, &runs[i]);
    }
    messages.json = doc != NULL ? core_json_root(doc) : NULL;
    code = code == 0 ? text_template_render(template, runs[0], &messages, 1, 1, &whole) : code;
    code = code == 0 ? text_template_run_keep(runs[1], messages.json) : code;
    if (code == 0) {
        struct text_template_prefixes asked = {.variables = &messages,
                                               .variables_count = 1,
                                               .now = 1,
                                               .whole = &whole,
                                               .items = items,
                                               .count = 1};
        text_template_prefixes(template, runs[1], &asked);
        code = items[0].known ? 0 : -ENOMEM;
    }
    text_template_run_destroy(runs[0]);
    text_template_run_destroy(runs[1]);
    text_template_destroy(template);
    core_json_destroy(doc);
    return code;
}

/* Memory that is refused on the way leaves beginnings untold and nothing behind. */
static void out_of_memory(void)
{
    check_int(test_fail_nth(life), >=, 5);
}

TEST_MAIN({"fixture", fixture}, {"common_shapes", common_shapes}, {"looks_ahead", looks_ahead},
          {"any_template", any_template}, {"out_of_bounds", out_of_bounds},
          {"out_of_memory", out_of_memory})
