/* Tests the reading of logs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "tests/harness/test.h"
#include "tools/report/line.h"
#include "tools/report/log.h"
#include "tools/report/run.h"

static const char *log_of(const char *text)
{
    return test_file("l.jsonl", text, strlen(text));
}

static void read_text(const char *text, struct report_run *run)
{
    int rc = report_log_read(log_of(text), run);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "%s", core_err_message());
    }
}

/* A step needs only its number. */
static void missing_fields(void)
{
    struct report_run run;
    read_text("{\"step\":1}\n{\"step\":2,\"loss\":null,\"seconds\":2.0,\"wait\":{\"copy\":0.5}}\n"
              "\n{\"step\":3,\"loss\":4,\"skipped\":true,\"unknown\":[{}]}\n",
              &run);
    check_uint(run.steps, ==, 3);
    check_uint(run.whole[REPORT_LOSS].count, ==, 1);
    check_uint(run.whole[REPORT_LOSS].odd, ==, 1);
    check_double(run.last_loss, ==, 4);
    check_double(run.whole[REPORT_COMPUTE].sum, ==, 1.5);
    check_double(run.whole[REPORT_SKIPPED].sum, ==, 1);
    check_uint(run.whole[REPORT_NORM].count, ==, 0);
    check_true(isnan(run.plan.clip) && !run.plan.known && !run.summary.known);
    check_double(report_run_seconds(&run, 0.5), ==, 2);
    report_run_fini(&run);
    report_run_fini(&run);
    report_run_fini(NULL);
}

static void heads(void)
{
    struct report_run run;
    read_text(
        "{\"step\":7,\"loss\":2,\"run\":{\"schema_version\":1,\"time\":\"2026-01-02T03:04:05Z\","
        "\"steps\":9,\"begun\":6,\"clip\":0.5,\"device_bytes\":10,\"host_bytes\":20},\"plan\":{"
        "\"asked\":{\"model\":\"m/x\",\"device\":\"cpu\",\"ranks\":2,\"precision\":\"bf16\"},"
        "\"parameters\":100,\"tiers\":{\"device_bytes\":11,\"host_bytes\":21,\"store_bytes\":31},"
        "\"parts\":[{\"tier\":\"store\",\"what\":\"states\",\"bytes\":31}],\"chosen\":{\"acts\":"
        "\"keep\"},\"step\":{\"seconds\":0.5,\"bottleneck\":\"drive\",\"store_read_bytes\":14}},"
        "\"events\":[{\"kind\":\"resumed\",\"text\":\"c-6\"},{\"kind\":\"save\",\"text\":\"c-7\"}]}"
        "\n"
        "{\"step\":8,\"eval_loss\":3.5,\"ranks\":{\"slowest\":1,\"gather_bytes\":7,\"reduce_"
        "bytes\":5},\"drives\":[{\"directory\":\"a\",\"read_bytes\":3,\"write_bytes\":4},"
        "{\"directory\":\"b\",\"write_bytes\":9,\"read_bytes\":null}]}\n"
        "{\"median_seconds\":0.25,\"peak_rss_gb\":1.5,\"drives\":[{\"read_bytes\":99}],\"events\":["
        "{"
        "\"kind\":\"warning\",\"text\":\"late\"}]}\n",
        &run);
    check_uint(run.first, ==, 7);
    check_uint(run.last, ==, 8);
    check_string(run.plan.time, "2026-01-02T03:04:05Z");
    check_double(run.plan.steps, ==, 9);
    check_double(run.plan.clip, ==, 0.5);
    check_double(run.plan.taken_host, ==, 20);
    check_string(run.plan.model, "m/x");
    check_double(run.plan.ranks, ==, 2);
    check_double(run.plan.store_bytes, ==, 31);
    check_uint(run.plan.part_count, ==, 1);
    check_string(run.plan.parts[0].what, "states");
    check_string(run.plan.acts, "keep");
    check_string(run.plan.bottleneck, "drive");
    check_double(run.plan.read, ==, 14);
    check_true(run.plan.known && run.summary.known);
    check_double(run.summary.peak_rss_gb, ==, 1.5);
    check_double(run.last_eval, ==, 3.5);
    check_double(run.whole[REPORT_GATHER].sum, ==, 7);
    check_double(run.whole[REPORT_REDUCE].sum, ==, 5);
    check_double(run.whole[REPORT_DRIVE].sum, ==, 7);
    check_uint(run.whole[REPORT_DRIVE].count, ==, 1);
    check_uint(run.whole[REPORT_DRIVE + 1].odd, ==, 1);
    check_uint(run.whole[REPORT_DRIVE_LAST].count, ==, 0);
    check_uint(run.event_count, ==, 3);
    check_string(run.events[0].kind, "resumed");
    check_uint(run.events[0].step, ==, 7);
    check_uint(run.events[2].step, ==, 8);
    report_run_fini(&run);
}

/* A repeated step counts once, with its last values. */
static void resumed(void)
{
    struct report_run run;
    read_text("{\"step\":1,\"loss\":10}\n{\"step\":2,\"loss\":20}\n{\"step\":3,\"loss\":30}\n"
              "{\"step\":4,\"loss\":40}\n{\"median_seconds\":1}\n"
              "{\"step\":2,\"loss\":2}\n{\"step\":3,\"loss\":3}\n",
              &run);
    check_uint(run.last, ==, 3);
    check_uint(run.steps, ==, 3);
    check_uint(run.repeated, ==, 3);
    check_uint(run.restarts, ==, 1);
    check_double(run.whole[REPORT_LOSS].sum, ==, 15);
    check_true(!run.summary.known);
    report_run_fini(&run);
    read_text("{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":1}\n{\"step\":3,\"loss\":1}\n"
              "{\"step\":3,\"loss\":2}\n{\"step\":2,\"loss\":5}\n{\"step\":3,\"loss\":7}\n",
              &run);
    check_uint(run.steps, ==, 3);
    check_double(run.whole[REPORT_LOSS].sum, ==, 13);
    check_uint(run.restarts, ==, 2);
    report_run_fini(&run);
}

/* An incomplete line is ignored at the end of a log, and an error elsewhere. */
static void torn(void)
{
    static const char whole[] = "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":2}";
    struct report_run run;
    for (size_t bytes = 20; bytes < sizeof whole - 1; bytes++) {
        check_int(report_log_read(test_file("t.jsonl", whole, bytes), &run), ==, 0);
        check_uint(run.steps, ==, 1);
        check_true(run.torn == (bytes > 20));
        report_run_fini(&run);
    }
    check_int(report_log_read(test_file("t.jsonl", whole, sizeof whole - 1), &run), ==, 0);
    check_uint(run.steps, ==, 2);
    check_true(!run.torn);
    report_run_fini(&run);
    check_int(report_log_read(log_of("{\"step\":1}\n{\"step\":2,\"lo\n{\"step\":3}\n"), &run), ==,
              -EINVAL);
    check_contains(core_err_message(), "l.jsonl:2:");
}

static void refused(void)
{
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"", "has no step yet"},
        {"\n\n", "has no step yet"},
        {"{\"median_seconds\":1}\n", "has no step yet"},
        {"[1]\n", "l.jsonl:1: not a JSON object"},
        {"hello\n", "l.jsonl:1:1:"},
        {"{\"step\":1}\n{\"a\":1}\n", "l.jsonl:2: has neither key \"step\" nor"},
        {"{\"step\":0}\n", "l.jsonl:1: key \"step\" is not a whole number of at least 1"},
        {"{\"step\":1.5}\n", "key \"step\" is not"},
        {"{\"step\":\"1\"}\n", "key \"step\" is not"},
        {"{\"step\":1}\n{\"step\":2,\"loss\":\"x\"}\n", "l.jsonl:2: key \"loss\" is not a number"},
        {"{\"step\":1,\"wait\":3}\n", "l.jsonl:1: key \"wait\" is not an object"},
        {"{\"step\":1,\"wait\":{\"copy\":[]}}\n", "l.jsonl:1: key \"wait.copy\" is not a number"},
        {"{\"step\":1,\"guesses\":{\"right\":{}}}\n", "key \"guesses.right\" is not a number"},
        {"{\"step\":1,\"run\":3}\n", "l.jsonl:1: key \"run\" is not an object"},
        {"{\"step\":1,\"run\":{\"clip\":\"x\"}}\n", "key \"run.clip\" is not a number"},
        {"{\"step\":1,\"plan\":{\"asked\":{\"model\":5}}}\n",
         "l.jsonl:1: key \"plan.asked.model\" is not a text"},
        {"{\"step\":1,\"plan\":{\"parts\":{}}}\n", "key \"plan.parts\" is not an array"},
        {"{\"step\":1,\"plan\":{\"parts\":[4]}}\n", "key \"plan.parts[]\" is not an object"},
        {"{\"step\":1,\"events\":[{\"kind\":5}]}\n", "key \"events[].kind\" is not a text"},
        {"{\"step\":1}\n{\"median_seconds\":\"x\"}\n", "l.jsonl:2: key \"median_seconds\" is not"},
        {"{\"step\":1,\"drives\":3}\n", "l.jsonl:1: key \"drives\" is not an array"},
        {"{\"step\":1,\"drives\":[3]}\n", "key \"drives[]\" is not an object"},
        {"{\"step\":1,\"drives\":[{\"read_bytes\":\"x\"}]}\n",
         "key \"drives[].read_bytes\" is not a number"},
        {"{\"step\":1} x\n", "l.jsonl:1:"},
    };
    struct report_run run;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int rc = report_log_read(log_of(cases[i].text), &run);
        if (rc != -EINVAL || strstr(core_err_message(), cases[i].message) == NULL) {
            test_fail(__FILE__, __LINE__, "%s: %d, %s", cases[i].text, rc, core_err_message());
        }
    }
    check_int(report_log_read("/nonexistent/x", &run), ==, -ENOENT);
    check_int(report_log_read(test_directory(), &run), ==, -EINVAL);
    check_contains(core_err_message(), "is not a file");
    char *wide = calloc(1, (1 << 20) + 16);
    memset(wide, ' ', (1 << 20) + 8);
    check_int(report_log_read(test_file("wide.jsonl", wide, (1 << 20) + 8), &run), ==, -EINVAL);
    check_contains(core_err_message(), "wide.jsonl:1: is longer than 1048576 bytes");
    free(wide);
}

/* The buckets of a long run are limited, and keep minima and maxima. */
static void long_run(void)
{
    const uint64_t steps = TEST_COUNT(200000, 20000);
    struct report_run run;
    char path[512];
    snprintf(path, sizeof path, "%s/long.jsonl", test_directory());
    FILE *file = fopen(path, "w");
    check_true(file != NULL);
    for (uint64_t i = 1; i <= steps; i++) {
        fprintf(file, "{\"step\":%" PRIu64 ",\"loss\":%d,\"seconds\":%s}\n", i,
                i == 777 ? 1000 : (int)(i % 10), i % 4 == 0 ? "3" : "1");
    }
    fclose(file);
    check_int(report_log_read(path, &run), ==, 0);
    check_uint(run.steps, ==, steps);
    check_uint(run.buckets, <=, REPORT_BUCKETS_MAX);
    check_uint(run.buckets, >, REPORT_BUCKETS_MAX / 2);
    check_double(run.whole[REPORT_LOSS].high, ==, 1000);
    const struct report_bucket *peak = &run.figures[(777 - 1) / run.width][REPORT_LOSS];
    check_double(peak->high, ==, 1000);
    check_double(peak->low, ==, 0);
    check_double(report_run_seconds(&run, 0.5), ==, 1);
    check_double(report_run_seconds(&run, 0.99), ==, 3);
    check_uint(run.time_count, <=, REPORT_TIMES_MAX);
    check_uint(run.time_count, >, REPORT_TIMES_MAX / 3);
    report_run_fini(&run);
    remove(path);
}

static void many_events(void)
{
    struct report_run run;
    check_int(report_run_init(&run, "x", 1, 1), ==, 0);
    for (int i = 0; i < REPORT_EVENTS_MAX + 5; i++) {
        report_run_event(&run, 1, "save", "c");
    }
    check_uint(run.event_count, ==, REPORT_EVENTS_MAX);
    check_uint(run.events_lost, ==, 5);
    report_run_end(&run);
    check_true(isnan(report_run_seconds(&run, 0.5)));
    report_run_fini(&run);
}

/* Randomly changed lines are refused or read. */
static void mutations(void)
{
    static const char line[] =
        "{\"step\":3,\"loss\":1.5,\"wait\":{\"copy\":1e-3,\"x\":[1,{}]},\"guesses\":{\"right\":1},"
        "\"run\":{\"clip\":1.0,\"time\":\"t\"},\"plan\":{\"asked\":{\"model\":\"m\"},\"parts\":[{"
        "\"tier\":\"host\",\"bytes\":5}]},\"events\":[{\"kind\":\"save\",\"text\":\"c\"}]}";
    unsigned read = 0;
    srand(1);
    for (int i = 0; i < TEST_COUNT(20000, 4000); i++) {
        char text[sizeof line];
        struct report_values values;
        enum report_line_kind kind = REPORT_LINE_STEP;
        bool more = false;
        struct report_run run;
        memcpy(text, line, sizeof line);
        for (int change = 0; change <= i % 3; change++) {
            text[(size_t)rand() % (sizeof line - 1)] = (char)rand();
        }
        const struct report_line one = {
            .path = "m", .number = 9, .text = text, .bytes = sizeof line - 1};
        check_int(report_run_init(&run, "m", 1, 9), ==, 0);
        int rc = report_line_read(&one, &kind, &values, &more);
        rc = rc == 0 && more ? report_head_take(&one, kind, 3, &run) : rc;
        check_true(rc == 0 || rc == -EINVAL);
        check_true(rc == 0 || strstr(core_err_message(), "9") != NULL);
        read += rc == 0;
        report_run_fini(&run);
    }
    check_uint(read, >, 100);
}

TEST_MAIN({"missing_fields", missing_fields}, {"heads", heads}, {"resumed", resumed},
          {"torn", torn}, {"refused", refused}, {"long_run", long_run},
          {"many_events", many_events}, {"mutations", mutations})
