/* Pages: whole, without anything from outside, and drawn within their frames whatever the log holds. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "tests/harness/test.h"
#include "tools/report/chart.h"
#include "tools/report/chart_shape.h"
#include "tools/report/log.h"
#include "tools/report/page.h"
#include "tools/report/panels.h"

static char *page;
static size_t page_bytes;

static void make_page(const char *text)
{
    struct report_run run;
    const char *path = test_file("p.jsonl", text, strlen(text));
    check_int(report_log_read(path, &run), ==, 0);
    free(page);
    page = NULL;
    FILE *stream = open_memstream(&page, &page_bytes);
    report_page_write(stream, &run);
    fclose(stream);
    report_run_fini(&run);
}

/* Elements are closed in the order in which they were opened. */
static void check_nesting(void)
{
    static const char *const empty[] = {"meta", "link", "path", "!doctype"};
    char open[64][16];
    size_t depth = 0;
    for (const char *at = page; (at = strchr(at, '<')) != NULL;) {
        char name[16] = "";
        const bool end = at[1] == '/';
        const bool script = strncmp(at, "<script>", 8) == 0;
        sscanf(at + 1 + end, "%15[a-z0-9!]", name);
        at += 1;
        bool alone = false;
        for (size_t i = 0; i < 4; i++) {
            alone |= strcmp(name, empty[i]) == 0;
        }
        if (end) {
            check_uint(depth, >, 0);
            check_string(name, open[--depth]);
        } else if (!alone) {
            check_uint(depth, <, 64);
            snprintf(open[depth++], sizeof open[0], "%s", name);
        }
        if (script) {
            at = strstr(at, "</script>");
            check_true(at != NULL);
        }
    }
    check_uint(depth, ==, 0);
}

/* Coordinates of all paths lie in 0..1000, and no number is one that is none. */
static void check_paths(void)
{
    for (const char *at = page; (at = strstr(at, " d=\"")) != NULL;) {
        for (at += 4; *at != '"';) {
            char *end = NULL;
            const double value = strtod(at, &end);
            if (end != at) {
                check_true(value >= -0.5 && value <= 1000.5);
                at = end;
            } else {
                check_true(strchr("MLHVZh ", *at) != NULL);
                at++;
            }
        }
    }
    check_true(strstr(page, "nan") == NULL && strstr(page, "inf,") == NULL);
}

static void check_page(void)
{
    static const char *const outside[] = {"http:",   "https:", "src=",           "url(",
                                          "@import", "fetch(", "XMLHttpRequest", "localStorage"};
    check_nesting();
    check_paths();
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        if (strstr(page, outside[i]) != NULL) {
            test_fail(__FILE__, __LINE__, "the page has %s", outside[i]);
        }
    }
    const char *from = strstr(page, "id=\"values\">");
    check_true(from != NULL);
    from += strlen("id=\"values\">");
    struct core_json *doc = NULL;
    check_int(
        core_json_parse(from, (size_t)(strstr(from, "</script>") - from), "values", NULL, &doc), ==,
        0);
    core_json_destroy(doc);
}

static const char plan[] =
    ",\"run\":{\"time\":\"2026-01-02T03:04:05Z\",\"steps\":3,\"clip\":1.0,\"device_bytes\":10,"
    "\"host_bytes\":20},\"plan\":{\"asked\":{\"model\":\"m/<b>x\",\"ranks\":2,\"zero_stage\":3,"
    "\"batch\":8,\"accum\":2,\"seq_len\":64,\"precision\":\"fp16\"},\"parameters\":158e6,\"tiers\":"
    "{"
    "\"device_bytes\":11e6,\"host_bytes\":21e6,\"store_bytes\":31e6},\"parts\":[{\"tier\":"
    "\"store\","
    "\"what\":\"states\",\"bytes\":3e7},{\"tier\":\"host\",\"what\":\"slots\",\"bytes\":1e7}],"
    "\"step\":{\"seconds\":0.5,\"tokens_per_second\":100,\"bottleneck\":\"drive & more\","
    "\"store_read_bytes\":14e6}},\"events\":[{\"kind\":\"warning\",\"text\":\"<i>careful</i>\"}]";

/* A run with everything has every panel, and nothing of its texts becomes markup. */
static void whole(void)
{
    char text[4096];
    snprintf(
        text, sizeof text,
        "{\"step\":1,\"loss\":8,\"grad_norm\":2,\"lr\":1e-4,\"loss_scale\":65536,\"tokens\":50,"
        "\"seconds\":4,\"tokens_per_second\":12,\"store_read_bytes\":14000000,\"wait\":{"
        "\"copy\":1},\"guesses\":{\"right\":0,\"wrong\":1,\"seconds\":0.2},\"rss_gb\":0.03%s}\n"
        "{\"step\":2,\"loss\":null,\"grad_norm\":null,\"seconds\":0.5,\"eval_loss\":3}\n"
        "{\"step\":3,\"loss\":2.5,\"grad_norm\":500,\"seconds\":0.5,\"guesses\":{\"right\":1},"
        "\"events\":[{\"kind\":\"save\",\"text\":\"c-1\"},{\"kind\":\"save\",\"text\":\"c-2\"},"
        "{\"kind\":\"resumed\",\"text\":\"c-2\"}]}\n{\"median_seconds\":0.5}\n",
        plan);
    make_page(text);
    check_page();
    static const char *const parts[] = {"<h1>&lt;b&gt;x</h1>",
                                        "id=\"loss\"",
                                        "id=\"norm\"",
                                        "id=\"lr\"",
                                        "id=\"scale\"",
                                        "id=\"time\"",
                                        "id=\"bytes\"",
                                        "id=\"memory\"",
                                        "id=\"guesses\"",
                                        "id=\"lost\"",
                                        "id=\"causes\"",
                                        "id=\"plan\"",
                                        "id=\"tiers\"",
                                        "id=\"events\"",
                                        "class=\"odd\"",
                                        "class=\"limit\"",
                                        "clip limit <b>1",
                                        "drive &amp; more",
                                        "&lt;i&gt;careful&lt;/i&gt;",
                                        "class=\"resumed\"",
                                        "2 ranks, ZeRO 3",
                                        "c-1 \xe2\x80\xa6 c-2 (2)",
                                        "of 3, all in",
                                        "<span>Eval loss</span><b>3</b>",
                                        "class=\"dots read\""};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        check_contains(page, parts[i]);
    }
}

/* One step, nothing but numbers of steps, odd values: there is a page. */
static void small_and_odd(void)
{
    static const char *const texts[] = {
        "{\"step\":1}\n",
        "{\"step\":9007199254740992,\"loss\":1}\n",
        "{\"step\":1,\"loss\":0,\"seconds\":0,\"lr\":0}\n",
        "{\"step\":1,\"loss\":1e308,\"lr\":1e308}\n{\"step\":2,\"loss\":-1e308,\"lr\":-1}\n",
        "{\"step\":1,\"loss\":null}\n{\"step\":1000000000,\"loss\":null}\n",
        "{\"step\":1,\"grad_norm\":1e-30}\n{\"step\":2,\"grad_norm\":1e30}\n",
        "{\"step\":5,\"seconds\":1e-9,\"wait\":{\"copy\":5}}\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        make_page(texts[i]);
        check_page();
    }
    make_page("{\"step\":1}\n");
    check_true(strstr(page, "<figure") == NULL);
    check_contains(page, "No warnings, no saves.");
}

/* The limits of a chart are lines on it, and values far above the others are cut and told. */
static void cut(void)
{
    char text[8192] = "";
    for (int i = 1; i <= 60; i++) {
        const size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "{\"step\":%d,\"seconds\":%d}\n", i, i == 1 ? 90 : 1);
    }
    make_page(text);
    check_page();
    check_contains(page, "Cut at the top: up to 90.0 s.");
}

/* Panels that have nothing to say are not there; places of steps are the middles of their buckets. */
static void parts_alone(void)
{
    struct report_run run;
    char *text = NULL;
    size_t bytes = 0;
    check_int(report_run_init(&run, "x", 11, 20), ==, 0);
    check_double(report_shape_place(&run, 11), ==, 0.05);
    check_double(report_shape_place(&run, 20), ==, 0.95);
    FILE *stream = open_memstream(&text, &bytes);
    const struct report_chart chart = {.id = "a",
                                       .title = "A",
                                       .about = "b",
                                       .series = {{REPORT_LOSS, "l", "read", false}},
                                       .count = 1,
                                       .limit = (double)NAN};
    check_true(!report_chart_write(stream, &run, &chart));
    report_panels_charts(stream, &run);
    report_panels_causes(stream, &run);
    report_panels_plan(stream, &run);
    report_panels_tiers(stream, &run);
    fflush(stream);
    check_uint(bytes, ==, 0);
    struct report_values values = {.step = 12};
    for (int i = 0; i < REPORT_FIGURES; i++) {
        values.of[i] = (double)NAN;
    }
    values.of[REPORT_LOSS] = 4;
    report_run_add(&run, &values);
    check_double(report_bucket_mean(&run.figures[1][REPORT_LOSS]), ==, 4);
    check_true(report_chart_write(stream, &run, &chart));
    struct report_scale scale;
    report_scale_linear(&scale, 0, 8, 4);
    report_shape_lines(stream, &run, &chart, &scale);
    report_shape_stack(stream, &run, &chart, &scale);
    report_run_event(&run, 12, "error", "e");
    report_panels_events(stream, &run);
    fclose(stream);
    check_contains(text, "M150.0 500.0h.01");
    check_contains(text, "<tr class=\"error\"><td>12</td>");
    free(text);
    report_run_fini(&run);
    free(page);
    page = NULL;
}

TEST_MAIN({"whole", whole}, {"small_and_odd", small_and_odd}, {"cut", cut},
          {"parts_alone", parts_alone})
