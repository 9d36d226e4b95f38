/* Tests the kept counts of rows of large files. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <tide/tide.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/json/cache.h"
#include "tests/finetune/rows.h"
#include "tests/harness/test.h"
#include "tools/tide/finetune_counts.h"
#include "tools/tide/finetune_data.h"

static const char *commit = "0123456";

int tide_build_info(struct tide_build *out)
{
    out->version = tide_version();
    out->commit = commit;
    return 0;
}

static void count_call(void *user, double part)
{
    int *calls = user;
    *calls += part >= 0;
}

/* Opens the data and returns the counts; *counted tells whether rows were counted. */
static struct finetune_data_info open_counted(struct finetune_data_options *options, bool *counted)
{
    int calls = 0;
    struct finetune_data_info info;
    options->progress = count_call;
    options->user = &calls;
    struct finetune_data *data = rows_open(options);
    finetune_data_describe(data, &info);
    finetune_data_close(data);
    *counted = calls > 0;
    return info;
}

/* Returns a file that is large because of blank lines. */
static const char *large_file(int rows)
{
    const char *path = rows_file(rows, 5);
    FILE *file = fopen(path, "a");
    check_true(file != NULL);
    for (int i = 0; i < FINETUNE_COUNTS_BYTES / 4096; i++) {
        fprintf(file, "%*s\n", 4095, "");
    }
    fclose(file);
    return path;
}

/* Writes counts of nine rows; `numbers` begins with the value of `longest`, other keys follow. */
static void put_counts(const char *path, const char *numbers)
{
    FILE *file = fopen(path, "w");
    check_true(file != NULL);
    check_true(
        fprintf(
            file,
            "{\"whole\": 1, \"rows\": 9, \"longest_pair\": 0, \"longest\": %s, \"read\": 9, "
            "\"wrong\": 0, "
            "\"cut\": 0, \"untrained\": 0, \"equal\": 0, \"now\": 0, \"dated\": 0, \"memory\": 1, "
            "\"row_memory\": 9000000}",
            numbers) > 0);
    fclose(file);
}

/* Kept counts are used for the same files and options. */
static void counted_once(void)
{
    bool counted = false;
    char cache[4096];
    char pattern[4096];
    struct finetune_counts counts;
    snprintf(cache, sizeof cache, "%s/kept/tide", test_directory());
    struct finetune_data_options options = rows_options(large_file(9));
    options.cache = cache;
    const struct finetune_data_info first = open_counted(&options, &counted);
    check_true(counted);
    check_int(first.rows, ==, 9);
    check_int(first.whole, ==, true);
    const struct finetune_data_info second = open_counted(&options, &counted);
    check_true(!counted);
    check_int(second.whole, ==, true);
    check_int(second.rows, ==, 9);
    check_int(second.longest, ==, first.longest);
    check_int(second.tokens, ==, first.tokens);
    check_int(second.targets, ==, first.targets);
    check_int(second.read, ==, first.read);
    check_int(second.micro_batches, ==, first.micro_batches);
    options.length_max = 4;
    options.cut = true;
    check_int(open_counted(&options, &counted).cut, ==, 9);
    check_true(counted);
    options = rows_options(options.path);
    options.cache = cache;
    snprintf(pattern, sizeof pattern, "%s/row?.jsonl", test_directory());
    options.path = pattern;
    check_int(open_counted(&options, &counted).rows, ==, 9);
    open_counted(&options, &counted);
    check_true(!counted);
    finetune_counts_place(&options, INT64_MAX, &counts);
    FILE *file = fopen(counts.path, "w");
    check_true(file != NULL && fputs("{\"whole\": 1, \"rows\": \"many\"}", file) >= 0);
    fclose(file);
    open_counted(&options, &counted);
    check_true(counted);
    open_counted(&options, &counted);
    check_true(!counted);
    large_file(8);
    check_int(open_counted(&options, &counted).rows, ==, 8);
    check_true(counted);
}

/* Counts of another commit, old counts and impossible numbers are not used. */
static void counted_anew(void)
{
    bool counted = false;
    char other[CORE_CACHE_PATH_BYTES];
    struct finetune_counts counts;
    struct finetune_data_options options = rows_options(large_file(9));
    options.cache = test_directory();
    open_counted(&options, &counted);
    check_true(counted);
    commit = "0123457";
    finetune_counts_place(&options, INT64_MAX, &counts);
    snprintf(other, sizeof other, "%s", counts.path);
    open_counted(&options, &counted);
    check_true(counted);
    open_counted(&options, &counted);
    check_true(!counted);
    commit = "0123456";
    open_counted(&options, &counted);
    check_true(!counted);
    const time_t old = time(NULL) - (CORE_CACHE_DAYS + 1) * 86400L;
    check_int(utime(other, &(struct utimbuf){old, old}), ==, 0);
    finetune_counts_place(&options, INT64_MAX, &counts);
    check_int(utime(counts.path, &(struct utimbuf){old, old}), ==, 0);
    open_counted(&options, &counted);
    check_true(counted);
    check_int(access(other, F_OK), ==, -1); /* expired counts are removed */
    static const char *const wrong[] = {"5, \"tokens\": 46, \"targets\": 36",
                                        "46, \"tokens\": 45, \"targets\": 36",
                                        "5, \"tokens\": 45, \"targets\": 46"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        put_counts(counts.path, wrong[i]);
        check_int(open_counted(&options, &counted).longest, ==, 5);
        check_true(counted);
    }
    check_true(finetune_counts_forget(&counts));
    check_true(!finetune_counts_forget(&counts));
}

/* A row that contradicts the kept counts fails a run; the next run counts again. */
static void contradicted_once(void)
{
    bool counted = false;
    struct finetune_counts counts;
    const struct tide_batch *batches = NULL;
    struct finetune_data_options options = rows_options(large_file(9));
    options.cache = test_directory();
    finetune_counts_place(&options, INT64_MAX, &counts);
    put_counts(counts.path, "3, \"tokens\": 27, \"targets\": 18");
    struct finetune_data *data = rows_open(&options);
    check_int(finetune_data_step(data, &batches), ==, -EIO);
    check_contains(core_err_message(), counts.path);
    check_contains(core_err_message(), "is removed, so that the next run counts the rows of");
    check_contains(core_err_message(), "a row has 5 tokens, but the longest had 3 before");
    finetune_data_close(data);
    check_int(access(counts.path, F_OK), ==, -1);
    check_int(open_counted(&options, &counted).longest, ==, 5);
    check_true(counted);
    data = rows_open(&options);
    check_int(finetune_data_step(data, &batches), ==, 3);
    finetune_data_close(data);
}

static char said[1024];

static void hear(void *user, enum core_log_level level, const char *line)
{
    const size_t at = strlen(said);
    (void)user;
    if (level == CORE_LOG_WARN) {
        snprintf(said + at, sizeof said - at, "%s\n", line);
    }
}

/* The run that counts names bad rows; a later run reports their number. */
static void wrong_rows_are_told(void)
{
    bool counted = false;
    struct finetune_counts counts;
    struct finetune_data_options options = rows_options(large_file(9));
    FILE *file = fopen(options.path, "a");
    check_true(file != NULL && fputs("{\"wrong\": 1}\n", file) >= 0);
    fclose(file);
    options.cache = test_directory();
    options.skip_bad = true;
    finetune_counts_place(&options, INT64_MAX, &counts);
    const struct core_log *bound = core_log_bound();
    core_log_bind(&(struct core_log){.level = CORE_LOG_WARN, .write = hear});
    check_int(open_counted(&options, &counted).wrong, ==, 1);
    check_contains(said, "skipped: ");
    check_contains(said, "1 of 10 rows are invalid and skipped");
    check_true(counted && strstr(said, "they were listed") == NULL);
    said[0] = '\0';
    check_int(open_counted(&options, &counted).wrong, ==, 1);
    core_log_bind(bound);
    check_true(!counted && strstr(said, "skipped: ") == NULL);
    check_contains(said,
                   "1 of 10 rows are invalid and skipped; they were listed when they were counted");
    check_contains(said, counts.path);
}

/* Counts are not kept for small files, for pipes, or without a cache folder. */
static void counted_each_time(void)
{
    bool counted = false;
    char cache[4096];
    struct finetune_counts counts;
    struct finetune_data_info info = {0};
    struct finetune_data_options options = rows_options(rows_file(9, 5));
    options.cache = test_directory();
    finetune_counts_place(&options, INT64_MAX, &counts);
    check_string(counts.path, "");
    check_true(!finetune_counts_find(&counts, 0, &info));
    finetune_counts_keep(&counts, 0, &info);
    options.path = "-";
    finetune_counts_place(&options, INT64_MAX, &counts);
    check_string(counts.path, "");
    options.path = large_file(9);
    options.cache = NULL;
    finetune_counts_place(&options, INT64_MAX, &counts);
    check_string(counts.path, "");
    snprintf(cache, sizeof cache, "%s/tide", options.path);
    options.cache = cache;
    for (int i = 0; i < 2; i++) {
        check_int(open_counted(&options, &counted).rows, ==, 9);
        check_true(counted);
    }
}

/* Returns whether counts can be kept under *key. */
static bool has_place(const struct finetune_data_options *options, uint64_t *key)
{
    struct finetune_counts counts;
    finetune_counts_place(options, INT64_MAX, &counts);
    *key = counts.key;
    return counts.path[0] != '\0';
}

/* The key of counts changes with the files of the model that affect rows. */
static void model_belongs_to_the_key(void)
{
    enum { KEYS = 5 };
    uint64_t keys[KEYS];
    char model[4096];
    char folder[4200];
    struct finetune_data_options options = rows_options(large_file(9));
    options.cache = test_directory();
    check_true(has_place(&options, &keys[0]));
    snprintf(model, sizeof model, "%s/model", test_directory());
    options.model = model;
    check_true(!has_place(&options, &keys[1])); /* no such folder */
    check_int(mkdir(model, 0700), ==, 0);
    test_file("model/tokenizer.json", "{}", 2);
    check_true(has_place(&options, &keys[1]));
    snprintf(folder, sizeof folder, "%s/onnx", model);
    check_int(mkdir(folder, 0700), ==, 0);
    test_file("model/onnx/model.json", "{}", 2);
    uint64_t same = 0;
    check_true(has_place(&options, &same));
    check_uint(same, ==, keys[1]);
    test_file("model/tokenizer.json", "{ }", 3);
    check_true(has_place(&options, &keys[2]));
    snprintf(folder, sizeof folder, "%s/additional_chat_templates", model);
    check_int(mkdir(folder, 0700), ==, 0);
    test_file("model/additional_chat_templates/tools.jinja", "{{ a }}", 7);
    check_true(has_place(&options, &keys[3]));
    test_file("model/additional_chat_templates/tools.jinja", "{{ ab }}", 8);
    check_true(has_place(&options, &keys[4]));
    for (int i = 0; i < KEYS; i++) {
        for (int j = 0; j < i; j++) {
            check_true(keys[i] != keys[j]);
        }
    }
}

/* Counts are not kept if the data cannot be identified. */
static void unknown_files_have_no_counts(void)
{
    static char name[PATH_MAX];
    char pattern[4096];
    uint64_t key = 0;
    struct finetune_data_options options = rows_options(large_file(9));
    options.cache = test_directory();
    options.model = options.path;
    check_true(!has_place(&options, &key));
    memset(name, 'x', sizeof name - 1);
    options.model = name;
    check_true(!has_place(&options, &key));
    /* The folder can be opened, but the names below it are too long. */
    memset(name, '/', sizeof name - 1);
    check_true(!has_place(&options, &key));
    options.model = NULL;
    snprintf(pattern, sizeof pattern, "%s/none*.jsonl", test_directory());
    options.path = pattern;
    check_true(!has_place(&options, &key));
    snprintf(pattern, sizeof pattern, "%s/row*", test_directory());
    check_true(has_place(&options, &key));
    snprintf(name, sizeof name, "%s/rows", test_directory());
    check_int(mkdir(name, 0700), ==, 0);
    check_true(!has_place(&options, &key));
}

TEST_MAIN({"counted_once", counted_once}, {"counted_anew", counted_anew},
          {"contradicted_once", contradicted_once}, {"wrong_rows_are_told", wrong_rows_are_told},
          {"counted_each_time", counted_each_time},
          {"model_belongs_to_the_key", model_belongs_to_the_key},
          {"unknown_files_have_no_counts", unknown_files_have_no_counts})
