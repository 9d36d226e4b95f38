/* test_report.c: tests reports of invented measurements. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/json/json.h"
#include "tests/harness/test.h"
#include "tools/ds_nvme_bench/report.h"

static struct bench_result *result; /* result of one case; freed by the next case */

/* Fills in points of all operations at two depths, and the recommendation that follows from
 * them. */
static struct bench_report make(const char *dir)
{
    free(result);
    result = calloc(1, sizeof *result);
    check_true(result != NULL);
    result->target = (struct bench_target){.path = dir,
                                           .fd = -1,
                                           .direct = true,
                                           .file_bytes = 1 << 30,
                                           .backend = aio_backend_find("threads")};
    strcpy(result->target.fs.type, "ext4");
    for (int i = 0; i < 6; i++) {
        struct bench_point *point = &result->sweep.points[result->sweep.count++];
        point->params = (struct bench_params){.op = (enum bench_op)(i % 3),
                                              .block_bytes = 1 << 20,
                                              .depth = i < 3 ? 4 : 32,
                                              .threads = 1};
        point->count = 5;
        for (unsigned s = 0; s < 5; s++) {
            point->samples[s] = (i < 3 ? 1e9 : 2e9) + 1e6 * s;
        }
        point->median = bench_median(point->samples, 5);
        point->interval = bench_median_interval(point->samples, 5);
    }
    bench_sweep_recommend(&result->sweep);
    struct bench_report report = {.mode = "sweep", .results = result, .count = 1};
    report.recommends = true;
    report.recommendation = result->sweep.recommendation;
    report.params = 7e9;
    strcpy(report.environment.host, "a \"quoted\" host");
    return report;
}

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", test_directory(), name);
    return path;
}

static char *save(const struct bench_report *report, const char *name,
                  int (*write)(const struct bench_report *, FILE *))
{
    char *text = NULL;
    size_t bytes = 0;
    check_int(bench_report_save(report, path_of(name), write), ==, 0);
    check_int(core_file_read(path_of(name), 1 << 22, &text, &bytes), ==, 0);
    return text;
}

/* Checks that the object has the required keys of the schema, and no unknown key. */
static void check_keys(const struct core_json_value *schema, const struct core_json_value *object)
{
    struct core_json_member member;
    const struct core_json_value *required = core_json_find(schema, "required");
    const struct core_json_value *known = core_json_find(schema, "properties");
    for (size_t i = 0; i < core_json_count(required); i++) {
        const char *key = core_json_string(core_json_at(required, i), NULL);
        if (core_json_find(object, key) == NULL) {
            test_fail(__FILE__, __LINE__, "the report lacks %s", key);
        }
    }
    for (bool any = core_json_first(object, &member); any; any = core_json_next(&member)) {
        const struct core_json_value *what = core_json_find(known, member.key);
        if (what == NULL) {
            test_fail(__FILE__, __LINE__, "the schema does not know %s", member.key);
        }
        if (core_json_kind(member.value) == CORE_JSON_OBJECT) {
            check_keys(what, member.value);
        }
        for (size_t i = 0;
             i < core_json_count(member.value) && core_json_kind(member.value) == CORE_JSON_ARRAY;
             i++) {
            if (core_json_kind(core_json_at(member.value, i)) == CORE_JSON_OBJECT) {
                check_keys(core_json_find(what, "items"), core_json_at(member.value, i));
            }
        }
    }
}

/* The JSON report has the same numbers and documented keys. */
static void json_reads_back(void)
{
    struct bench_report report = make("/nvme");
    result->swapped = true;
    result->verified = true;
    result->swap = (struct bench_swap){.tensors = 2, .bytes = 4, .bytes_per_s = 5};
    report.rated_bytes = 600e12;
    free(save(&report, "r.json", bench_report_json));
    struct core_json *doc = NULL;
    struct core_json *schema = NULL;
    check_int(core_json_load(path_of("r.json"), NULL, &doc), ==, 0);
    const struct core_json_value *points = core_json_find(core_json_root(doc), "points");
    check_uint(core_json_count(points), ==, 6);
    const struct core_json_value *last = core_json_at(points, 5);
    check_double(core_json_real(core_json_find(last, "median")), ==, 2e9 + 2e6);
    check_uint(core_json_count(core_json_find(last, "samples")), ==, 5);
    const struct core_json_value *params = core_json_find(last, "params");
    check_string(core_json_string(core_json_find(params, "op"), NULL), "rw");
    check_int(core_json_integer(core_json_find(params, "queue_depth")), ==, 32);
    const struct core_json_value *host = core_json_find(core_json_root(doc), "host");
    check_string(core_json_string(core_json_find(host, "name"), NULL), "a \"quoted\" host");
    char path[512];
    snprintf(path, sizeof path, "%s/../docs/ds_nvme_bench.schema.json", test_root());
    check_int(core_json_load(path, NULL, &schema), ==, 0);
    check_keys(core_json_root(schema), core_json_root(doc));
    core_json_destroy(schema);
    core_json_destroy(doc);
}

/* A point is a line with the columns of the header; a path with commas is quoted. */
static void csv(void)
{
    struct bench_report report = make("/nv,me \"x\"");
    char *text = save(&report, "r.csv", bench_report_csv);
    unsigned lines = 0;
    unsigned commas = 0;
    unsigned head = 0;
    for (const char *at = text; *at != '\0'; at++) {
        commas += *at == ',';
        if (*at == '\n') {
            head = lines == 0 ? commas : head;
            check_uint(commas, ==, lines == 0 ? head : head + 1);
            lines++;
            commas = 0;
        }
    }
    check_uint(lines, ==, 7);
    check_contains(text, "\n\"/nv,me \"\"x\"\"\",read,threads,1048576,4,1,5,1002000000,");
    free(text);
}

/* Elements are closed, attributes are quoted, and no number is NaN. */
static void svg(void)
{
    struct bench_report report = make("/nvme");
    char *text = save(&report, "r.svg", bench_report_svg);
    int depth = 0;
    for (const char *at = strchr(text, '<'); at != NULL; at = strchr(at + 1, '<')) {
        const char *end = strchr(at, '>');
        check_true(end != NULL);
        unsigned quotes = 0;
        for (const char *c = at; c < end; c++) {
            quotes += *c == '"';
        }
        check_uint(quotes % 2, ==, 0);
        depth += at[1] == '/' ? -1 : end[-1] == '/' ? 0 : 1;
        check_int(depth, >=, 0);
    }
    check_int(depth, ==, 0);
    check_true(strstr(text, "nan") == NULL && strstr(text, "inf\"") == NULL);
    check_contains(text, "depth 32, 1 thread");
    free(text);
}

/* A picture has the name of its directory, and many depths. */
static void svg_of_many(void)
{
    struct bench_report report = make("/a<b>&c");
    for (unsigned i = 0; i < 40; i++) {
        struct bench_point *point = &result->sweep.points[result->sweep.count++];
        *point = result->sweep.points[0];
        point->params.depth = 100 + i;
    }
    char *text = save(&report, "r.svg", bench_report_svg);
    check_contains(text, ">/a&lt;b&gt;&amp;c</text>");
    check_contains(text, "depth 100, 1 thread");
    check_contains(text, "depth 139, 1 thread");
    free(text);
}

/* The emitted block has the keys and recommended values for DeepSpeed. */
static void config(void)
{
    struct bench_report report = make("/nvme");
    free(save(&report, "c.json", bench_report_config));
    struct core_json *doc = NULL;
    check_int(core_json_load(path_of("c.json"), NULL, &doc), ==, 0);
    const struct core_json_value *aio = core_json_find(core_json_root(doc), "aio");
    check_uint(core_json_count(aio), ==, 5);
    check_int(core_json_integer(core_json_find(aio, "block_size")), ==, 1 << 20);
    check_int(core_json_integer(core_json_find(aio, "queue_depth")), ==, 32);
    check_int(core_json_integer(core_json_find(aio, "intra_op_parallelism")), ==, 1);
    check_true(!core_json_bool(core_json_find(aio, "single_submit")));
    check_true(core_json_bool(core_json_find(aio, "overlap_events")));
    core_json_destroy(doc);
}

/* A configuration of the user is not replaced. */
static void what_gives_way(void)
{
    struct bench_report report = make("/nvme");
    free(save(&report, "c.json", bench_report_config));
    check_int(bench_report_replaceable(path_of("c.json")), ==, 0);
    check_int(bench_report_replaceable(path_of("none.json")), ==, 0);
    check_int(bench_report_replaceable("-"), ==, 0);
    check_int(bench_report_replaceable(test_file("empty.json", "", 0)), ==, 0);
    static const char *const precious[] = {"{\"aio\": {}, \"optimizer\": {}}", "[]", "notes"};
    for (size_t i = 0; i < sizeof precious / sizeof precious[0]; i++) {
        const char *path = test_file("ds_config.json", precious[i], strlen(precious[i]));
        check_int(bench_report_replaceable(path), ==, -EEXIST);
        check_contains(core_err_message(), "ds_config.json has more than an aio block");
    }
}

static char *table_of(const struct bench_report *report)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    check_true(out != NULL);
    bench_report_table(report, out);
    fclose(out);
    return text;
}

/* A single setting is not recommended. */
static void one_setting(void)
{
    struct bench_report report = make("/nvme");
    result->sweep.count = 2; /* reading and writing with one setting */
    bench_sweep_recommend(&result->sweep);
    report.recommendation = result->sweep.recommendation;
    check_string(report.recommendation.reason, "no other setting was measured");
    char *text = table_of(&report);
    check_true(strstr(text, "ecommended") == NULL);
    check_contains(text,
                   "With this setting it gives 1.00 GB/s reading, 1.00 GB/s writing; a sweep");
    check_contains(text, "at once (--op rw).");
    free(text);
    report.wants_mixed = true;
    text = table_of(&report);
    check_contains(text,
                   "at once, and every setting has too much in flight for them; give a larger "
                   "--io_size");
    free(text);
}

/* The table marks the recommendation; the verdict names the limit. */
static void table_and_verdict(void)
{
    char verdict[512];
    struct bench_report report = make("/nvme");
    for (unsigned op = 0; op < BENCH_OP_COUNT; op++) { /* a row is the sum of its operations */
        result->sweep.points[op].shorts = 10 + op;
        result->sweep.points[op].retries = 20 + op;
    }
    char *text = table_of(&report);
    check_contains(text, "33/63");
    check_contains(text, "<- recommended");
    check_contains(text, "queue depth 32, 1 thread (confidence high)");
    check_contains(text, "A model of 7B parameters");
    check_contains(text, "--tbw");
    free(text);
    check_double(bench_report_rate(&report, BENCH_READ), ==, 2e9 + 2e6);
    bench_report_verdict(&report, verdict, sizeof verdict);
    check_contains(verdict, "Settings matter here: the best setting is up to 2.0 times");
    check_contains(verdict, "With the recommended setting, the drive is the limit: it gives 2.00");
    check_true(strstr(verdict, "not your settings") == NULL);
    report.recommendation.gain = 1.05;
    bench_report_verdict(&report, verdict, sizeof verdict);
    check_contains(verdict, "Your drive, not your settings, is the limit");
    result->target.direct = false;
    bench_report_verdict(&report, verdict, sizeof verdict);
    check_contains(verdict, "the page cache");
    result->target.direct = true;
    result->device.found = result->device.block.spins = true;
    bench_report_verdict(&report, verdict, sizeof verdict);
    check_contains(verdict, "The limit is a spinning disk");
    struct bench_result *two = calloc(2, sizeof *two);
    check_true(two != NULL);
    two[0] = two[1] = *result;
    two[0].device.block.spins = false;
    two[1].target.path = "/second";
    report.results = two;
    report.count = 2;
    bench_report_verdict(&report, verdict, sizeof verdict);
    check_contains(verdict, "The limit of /second is a spinning disk");
    report.results = result;
    report.count = 1;
    free(two);
    result->sweep.count = 0;
    bench_report_verdict(&report, verdict, sizeof verdict);
    check_string(verdict, "");
    text = table_of(&report);
    check_contains(text, "No step time for a model");
    check_contains(text, "at once (--mode sweep or point).");
    free(text);
    result->verified = true;
    result->verify = (struct bench_verify){.bytes = 8192, .wrong = 1, .first_wrong = 4096};
    text = table_of(&report);
    check_contains(text, "1 pieces of 4 KiB");
    check_contains(text, "WRONG");
    free(text);
}

/* Directories on one drive count once, but separately if drives are unknown. */
static void drives(void)
{
    struct bench_report report = make("/nvme");
    struct bench_result *three = calloc(3, sizeof *three);
    check_true(three != NULL);
    report.results = three;
    report.count = 3;
    check_uint(bench_report_drives(&report), ==, 3);
    for (int i = 0; i < 3; i++) {
        three[i].device.found = true;
        strcpy(three[i].device.block.name, i == 1 ? "nvme1n1" : "nvme0n1");
    }
    check_uint(bench_report_drives(&report), ==, 2);
    free(three);
}

/* Only points that are slower by more than the tolerance are listed. */
static void compare(void)
{
    unsigned slower = 0;
    char *text = NULL;
    size_t bytes = 0;
    struct bench_report report = make("/nvme");
    free(save(&report, "base.json", bench_report_json));
    FILE *out = open_memstream(&text, &bytes);
    check_int(bench_report_comparable(path_of("base.json")), ==, 0);
    check_int(bench_report_compare(&report, path_of("base.json"), 0.1, out, &slower), ==, 0);
    check_uint(slower, ==, 0);
    result->sweep.points[5].median *= 0.85;
    check_int(bench_report_compare(&report, path_of("base.json"), 0.2, out, &slower), ==, 0);
    check_uint(slower, ==, 0);
    check_int(bench_report_compare(&report, path_of("base.json"), 0.1, out, &slower), ==, 0);
    check_uint(slower, ==, 1);
    result->sweep.count = 4; /* points that were not measured are reported */
    check_int(bench_report_compare(&report, path_of("base.json"), 0.1, out, &slower), ==, 0);
    fclose(out);
    check_contains(text, "Compared: 4 of the 6 points of ");
    check_contains(text, "slower: /nvme rw, 1024 KiB x 32 x 1: 1.70 GB/s, was 2.00 (-15.0 %)");
    free(text);
}

/* A file that is not a comparable report is refused with the reason. */
static void nothing_to_compare(void)
{
    static const struct {
        const char *text;
        const char *why;
    } bad[] = {{"{", "1:2"},
               {"[]", "schema_version"},
               {"{\"schema_version\": 2, \"points\": []}", "schema version 2"},
               {"{\"schema_version\": 1}", "points"},
               {"{\"schema_version\": 1, \"points\": [{\"dir\": 4}]}", "dir"}};
    unsigned slower = 0;
    struct bench_report report = make("/nvme");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *path = test_file("bad.json", bad[i].text, strlen(bad[i].text));
        check_int(bench_report_comparable(path), ==, -EINVAL);
        check_contains(core_err_message(), bad[i].why);
    }
    check_int(bench_report_comparable("/nowhere/b.json"), <, 0);
    free(save(&report, "base.json", bench_report_json));
    result->target.path = "/other";
    check_int(bench_report_compare(&report, path_of("base.json"), 0.1, stdout, &slower), ==,
              -EINVAL);
    check_contains(core_err_message(), "no point in common");
}

/* An output that cannot be written is refused before the measurements; a full disk is an error. */
static void where_to_write(void)
{
    struct bench_report report = make("/nvme");
    check_int(bench_report_writable("-"), ==, 0);
    check_int(bench_report_writable("here.json"), ==, access(".", W_OK) == 0 ? 0 : -errno);
    check_int(bench_report_writable(path_of("new.json")), ==, 0);
    check_int(bench_report_writable(test_directory()), ==, -EISDIR);
    check_int(bench_report_writable("/nowhere/b.json"), ==, -ENOENT);
    check_int(bench_report_save(&report, "/nowhere/b.json", bench_report_csv), ==, -ENOENT);
    struct stat info;
    if (stat("/dev/full", &info) == 0) {
        check_int(bench_report_save(&report, "/dev/full", bench_report_csv), <, 0);
        check_contains(core_err_message(), "/dev/full");
    }
    free(result);
    result = NULL;
}

TEST_MAIN({"json_reads_back", json_reads_back}, {"csv", csv}, {"svg", svg},
          {"svg_of_many", svg_of_many}, {"config", config}, {"what_gives_way", what_gives_way},
          {"one_setting", one_setting}, {"table_and_verdict", table_and_verdict},
          {"drives", drives}, {"compare", compare}, {"nothing_to_compare", nothing_to_compare},
          {"where_to_write", where_to_write})
