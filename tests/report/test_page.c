/* Tests the page of a run; drawing.js tests its drawings. */
#include <stdio.h>
#include <stdlib.h>

#include "core/json/json.h"
#include "tests/harness/test.h"
#include "tools/report/log.h"
#include "tools/report/page.h"
#include "tools/report/run.h"

static char *page;
static size_t page_bytes;
static struct core_json *doc;

static void make_page(const char *text)
{
    struct report_run run;
    const char *path = test_file("p.jsonl", text, strlen(text));
    check_int(report_log_read(path, &run), ==, 0);
    free(page);
    core_json_destroy(doc);
    page = NULL;
    doc = NULL;
    FILE *stream = open_memstream(&page, &page_bytes);
    check_int(report_page_write(stream, &run), ==, 0);
    fclose(stream);
    report_run_fini(&run);
    const char *from = strstr(page, "id=\"run\">");
    check_true(from != NULL);
    from += strlen("id=\"run\">");
    const char *end = strchr(from, '<');
    check_true(end != NULL && strncmp(end, "</script>", 9) == 0);
    check_int(core_json_parse(from, (size_t)(end - from), "data", NULL, &doc), ==, 0);
}

static void end_page(void)
{
    free(page);
    core_json_destroy(doc);
    page = NULL;
    doc = NULL;
}

static const struct core_json_value *find(const char *group, const char *key)
{
    const struct core_json_value *root = core_json_root(doc);
    return core_json_find(group != NULL ? core_json_find(root, group) : root, key);
}

static const struct core_json_value *figure(const char *name, const char *part)
{
    return core_json_find(core_json_find(find(NULL, "figures"), name), part);
}

static double at(const struct core_json_value *list, size_t index)
{
    return core_json_real(core_json_at(list, index));
}

static bool is_null_at(const struct core_json_value *list, size_t index)
{
    return core_json_kind(core_json_at(list, index)) == CORE_JSON_NULL;
}

static const char log_text[] =
    "{\"step\":1,\"loss\":8,\"seconds\":4,\"wait\":{\"copy\":1},\"run\":{\"time\":"
    "\"2026-01-02T03:04:05Z\",\"steps\":3,\"clip\":1.0,\"device_bytes\":10,\"host_bytes\":20},"
    "\"plan\":{\"asked\":{\"model\":\"m/<b>x\",\"ranks\":2,\"precision\":\"fp16\"},"
    "\"parameters\":158e6,\"tiers\":{\"device_bytes\":11e6,\"host_bytes\":21e6},\"parts\":[{"
    "\"tier\":\"store\",\"what\":\"states\",\"bytes\":3e7}],\"step\":{\"seconds\":0.5,"
    "\"bottleneck\":\"drive & more\"}},\"events\":[{\"kind\":\"warning\",\"text\":"
    "\"</script>\\u0001\\u00e9\"}]}\n"
    "{\"step\":2,\"loss\":null,\"seconds\":0.5,\"eval_loss\":3,\"reward_chosen\":0.25,"
    "\"reward_rejected\":-0.5,\"reward_margin\":0.75,\"reward_accuracy\":0.5,"
    "\"eval_reward_margin\":2,\"eval_reward_accuracy\":1}\n"
    "{\"step\":3,\"loss\":2.5,\"seconds\":0.25}\n{\"median_seconds\":0.5,\"peak_rss_gb\":0.5}\n";

/* The page has the data of the log, and null for missing values. */
static void data(void)
{
    make_page(log_text);
    check_string(core_json_string(find(NULL, "name"), NULL), "<b>x");
    check_int(core_json_integer(find(NULL, "first")), ==, 1);
    check_int(core_json_integer(find(NULL, "last")), ==, 3);
    check_int(core_json_integer(find(NULL, "buckets")), ==, 3);
    check_double(core_json_real(find(NULL, "first_loss")), ==, 8);
    check_double(core_json_real(find(NULL, "last_loss")), ==, 2.5);
    check_double(core_json_real(find(NULL, "best_eval")), ==, 3);
    check_double(core_json_real(find(NULL, "median_seconds")), ==, 0.5);
    check_double(core_json_real(find("summary", "peak_rss_gb")), ==, 0.5);
    check_double(core_json_real(find("plan", "seconds")), ==, 0.5);
    check_double(core_json_real(find("plan", "taken_host")), ==, 20);
    check_double(core_json_real(find("plan", "device_bytes")), ==, 11e6);
    check_int(core_json_kind(find("plan", "store_bytes")), ==, CORE_JSON_NULL);
    check_string(core_json_string(find("plan", "bottleneck"), NULL), "drive & more");
    const struct core_json_value *part = core_json_at(find("plan", "parts"), 0);
    check_double(core_json_real(core_json_find(part, "bytes")), ==, 3e7);
    const struct core_json_value *event = core_json_at(find(NULL, "events"), 0);
    check_string(core_json_string(core_json_find(event, "text"), NULL), "</script>\x01\xc3\xa9");
    const struct core_json_value *loss = figure("loss", "sum");
    check_uint(core_json_count(loss), ==, 3);
    check_double(at(loss, 0), ==, 8);
    check_true(is_null_at(loss, 1));
    check_double(at(loss, 2), ==, 2.5);
    check_double(at(figure("loss", "odd"), 1), ==, 1);
    check_double(at(figure("compute", "sum"), 0), ==, 3);
    check_double(at(figure("wait_copy", "sum"), 0), ==, 1);
    check_double(core_json_real(core_json_find(figure("seconds", "whole"), "sum")), ==, 4.75);
    check_uint(core_json_count(figure("rss", "sum")), ==, 0);
    static const struct {
        const char *name;
        double value;
    } rewards[] = {{"chosen", 0.25},  {"rejected", -0.5}, {"margin", 0.75},
                   {"accuracy", 0.5}, {"eval_margin", 2}, {"eval_accuracy", 1}};
    for (size_t i = 0; i < sizeof rewards / sizeof rewards[0]; i++) {
        check_double(at(figure(rewards[i].name, "sum"), 1), ==, rewards[i].value);
    }
    end_page();
}

/* Steps in a bucket keep minimum, maximum, sum and number. */
static void points(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    for (int step = 1; step <= 961; step++) {
        fprintf(stream, "{\"step\":%d,\"loss\":%d}\n", step, step % 3);
    }
    fclose(stream);
    make_page(text);
    free(text);
    check_int(core_json_integer(find(NULL, "width")), ==, 3);
    check_int(core_json_integer(find(NULL, "buckets")), ==, 321);
    check_double(at(figure("loss", "low"), 0), ==, 0);
    check_double(at(figure("loss", "high"), 0), ==, 2);
    check_double(at(figure("loss", "sum"), 0), ==, 3);
    check_double(at(figure("loss", "count"), 0), ==, 3);
    check_double(at(figure("loss", "count"), 320), ==, 1);
    check_double(at(figure("rss", "count"), 0), ==, 0);
    end_page();
}

/* The page loads nothing from outside, and texts of a log do not become markup. */
static void alone(void)
{
    static const char *const outside[] = {"http:",   "https:", "src=",           "url(",
                                          "@import", "fetch(", "XMLHttpRequest", "localStorage"};
    make_page(log_text);
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        if (strstr(page, outside[i]) != NULL) {
            test_fail(__FILE__, __LINE__, "the page has %s", outside[i]);
        }
    }
    check_contains(page, "<title>&lt;b>x \xc2\xb7 tide report</title>");
    check_contains(page, "\\u003c/script>");
    check_contains(page, "</script></body></html>\n");
    end_page();
}

/* Small and odd logs have a page. */
static void small_and_odd(void)
{
    static const char *const texts[] = {
        "{\"step\":1}\n",
        "{\"step\":9007199254740992,\"loss\":1}\n",
        "{\"step\":1,\"loss\":1e308,\"lr\":1e308}\n{\"step\":2,\"loss\":-1e308,\"lr\":-1}\n",
        "{\"step\":1,\"loss\":null}\n{\"step\":1000000000,\"loss\":null}\n",
        "{\"step\":5,\"seconds\":1e-9,\"wait\":{\"copy\":5}}\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        make_page(texts[i]);
        check_true(find(NULL, "figures") != NULL);
        check_int(core_json_kind(find(NULL, "summary")), ==, CORE_JSON_NULL);
    }
    end_page();
}

TEST_MAIN({"data", data}, {"points", points}, {"alone", alone}, {"small_and_odd", small_and_odd})
