/* Tests the log, the table and the event files of a run. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/json/write.h"
#include "tests/harness/test.h"
#include "tools/tide/event_file.h"
#include "tools/tide/finetune_log.h"

static struct finetune_record record_of(uint64_t step)
{
    struct finetune_record record = {
        .step = {.step = step,
                 .loss = 2.5,
                 .grad_norm = (double)INFINITY,
                 .loss_scale = 1,
                 .skipped = 7,
                 .tokens = 100,
                 .seconds = 2,
                 .guess_wrong = 1,
                 .guess_bytes = 1ULL << 40},
        .waits = {[TIDE_WAIT_COPY] = 0.5},
        .memory = {.rss_bytes = 1500000000},
        .lr = 1e-3,
    };
    finetune_figures_derive(&record);
    return record;
}

static double figure_of(const struct finetune_record *record, const char *group, const char *key)
{
    const struct finetune_figure *figure = NULL;
    for (size_t i = 0; (figure = finetune_figure_at(i)) != NULL; i++) {
        const bool same = group == NULL
                              ? figure->group == NULL
                              : figure->group != NULL && strcmp(figure->group, group) == 0;
        if (same && strcmp(figure->key, key) == 0) {
            check_true(finetune_figure_known(figure, record));
            return finetune_figure_value(figure, record);
        }
    }
    test_fail(__FILE__, __LINE__, "there is no figure %s", key);
}

/* Figures have the record's values and different tags. */
static void figures(void)
{
    struct finetune_record record = record_of(9);
    check_double(figure_of(&record, NULL, "step"), ==, 9);
    check_double(figure_of(&record, NULL, "loss"), ==, 2.5);
    check_double(figure_of(&record, NULL, "skipped"), ==, 1);
    check_double(figure_of(&record, NULL, "tokens_per_second"), ==, 50);
    check_double(figure_of(&record, NULL, "rss_gb"), ==, 1.5);
    check_double(figure_of(&record, "wait", "copy"), ==, 0.5);
    check_double(figure_of(&record, "wait", "other"), ==, 0);
    check_double(figure_of(&record, "guesses", "wrong"), ==, 1);
    check_double(figure_of(&record, "guesses", "bytes"), ==, (double)(1ULL << 40));
    record.step.ranks = 2;
    record.step.slowest_rank = 1;
    record.step.imbalance_seconds = 0.25;
    record.step.gather_bytes = 7;
    record.step.reduce_bytes = 5;
    record.step.gather_between_bytes = 4;
    record.step.reduce_between_bytes = 3;
    check_double(figure_of(&record, "ranks", "slowest"), ==, 1);
    check_double(figure_of(&record, "ranks", "imbalance"), ==, 0.25);
    check_double(figure_of(&record, "ranks", "gather_bytes"), ==, 7);
    check_double(figure_of(&record, "ranks", "reduce_bytes"), ==, 5);
    check_double(figure_of(&record, "ranks", "gather_between_bytes"), ==, 4);
    check_double(figure_of(&record, "ranks", "reduce_between_bytes"), ==, 3);
    record.evaluated = true;
    record.eval_loss = 3;
    check_double(figure_of(&record, NULL, "eval_loss"), ==, 3);
    record.pairs = true;
    record.step.reward_chosen = 0.5;
    record.step.reward_rejected = -0.25;
    record.step.reward_accuracy = 0.75;
    record.eval_margin = 2;
    record.eval_accuracy = 1;
    record.step.seconds = 0;
    finetune_figures_derive(&record);
    check_double(figure_of(&record, NULL, "reward_chosen"), ==, 0.5);
    check_double(figure_of(&record, NULL, "reward_rejected"), ==, -0.25);
    check_double(figure_of(&record, NULL, "reward_margin"), ==, 0.75);
    check_double(figure_of(&record, NULL, "reward_accuracy"), ==, 0.75);
    check_double(figure_of(&record, NULL, "eval_reward_margin"), ==, 2);
    check_double(figure_of(&record, NULL, "eval_reward_accuracy"), ==, 1);
    check_double(record.tokens_per_second, ==, 0);
    for (size_t i = 1; finetune_figure_at(i) != NULL; i++) {
        check_true(strlen(finetune_figure_at(i)->tag) <= EVENT_TAG_BYTES_MAX);
        for (size_t j = 1; j < i; j++) {
            check_true(strcmp(finetune_figure_at(i)->tag, finetune_figure_at(j)->tag) != 0);
        }
        check_uint(i, <, EVENT_VALUES_MAX);
    }
}

/* The table has named columns; figures that are missing or not finite are empty. */
static void table(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    const struct finetune_record record = record_of(9);
    finetune_figures_print_names(stream);
    finetune_figures_print(stream, &record);
    fclose(stream);
    check_contains(text, "step,loss,grad_norm,lr,loss_scale,skipped,tokens,seconds,");
    check_contains(text, ",wait_other,wait_data,guesses_right,guesses_wrong,");
    check_contains(text, ",rss_gb,eval_loss,ranks_slowest,ranks_imbalance,ranks_gather_bytes,"
                         "ranks_reduce_bytes,ranks_gather_between_bytes,"
                         "ranks_reduce_between_bytes,reward_chosen,reward_rejected,reward_margin,"
                         "reward_accuracy,eval_reward_margin,eval_reward_accuracy\n"
                         "9,2.5,,0.001,1,1,100,2,50,");
    check_contains(text, ",0,1,1099511627776,0,1.5,,,,,,,,,,,,,\n");
    free(text);
}

static void *add_many(void *user)
{
    for (int i = 0; i < 100; i++) {
        finetune_events_add(user, FINETUNE_EVENT_WARNING, "number %d", i);
    }
    return NULL;
}

/* Events of several threads are written once; too many events are only counted. */
static void events(void)
{
    struct finetune_events list;
    struct core_json_write json;
    pthread_t threads[2];
    finetune_events_init(&list);
    finetune_events_add(NULL, FINETUNE_EVENT_SAVE, "nobody wants it");
    for (int i = 0; i < 2; i++) {
        check_int(pthread_create(&threads[i], NULL, add_many, &list), ==, 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    core_json_write_init_text(&json);
    core_json_write_object_begin(&json, NULL);
    finetune_events_write(&list, &json);
    core_json_write_object_end(&json);
    check_int(core_json_write_end(&json), ==, 0);
    check_contains(json.text, "{\"kind\":\"warning\",\"text\":\"number 0\"}");
    check_contains(json.text, "\"text\":\"168 more in this step\"}]}");
    core_json_write_fini(&json);
    core_json_write_init_text(&json);
    core_json_write_object_begin(&json, NULL);
    finetune_events_write(&list, &json);
    finetune_events_write(NULL, &json);
    core_json_write_object_end(&json);
    check_int(core_json_write_end(&json), ==, 0);
    check_string(json.text, "{}\n");
    core_json_write_fini(&json);
    finetune_events_fini(&list);
}

/* The checksum is that of RFC 3720. */
static void sums(void)
{
    unsigned char zeros[32] = {0};
    check_uint(event_file_crc("123456789", 9), ==, 0xE3069283);
    check_uint(event_file_crc(zeros, sizeof zeros), ==, 0x8A9136AA);
    check_uint(event_file_crc("", 0), ==, 0);
}

static uint64_t little(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        value = value << 8 | at[i];
    }
    return value;
}

static uint32_t masked(const unsigned char *at, size_t count)
{
    uint32_t crc = event_file_crc(at, count);
    return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

/* Returns the next record of a file, whose frame it checks; NULL at the end. */
static const unsigned char *next_record(const unsigned char **at, const unsigned char *end,
                                        size_t *count)
{
    if (*at == end) {
        return NULL;
    }
    check_true(end - *at >= 16);
    *count = (size_t)little(*at, 8);
    check_uint(little(*at + 8, 4), ==, masked(*at, 8));
    check_true((size_t)(end - *at) >= *count + 16);
    const unsigned char *record = *at + 12;
    check_uint(little(record + *count, 4), ==, masked(record, *count));
    *at += *count + 16;
    return record;
}

static char *read_all(const char *path, size_t *bytes)
{
    static char *text;
    check_int(core_file_read(path, 1 << 20, &text, bytes), ==, 0);
    return text;
}

/* Returns the file whose name sorts last in a folder. */
static const char *last_file(const char *folder)
{
    static char path[1024];
    struct dirent **names;
    const int count = scandir(folder, &names, NULL, alphasort);
    check_int(count, >, 2);
    snprintf(path, sizeof path, "%s/%s", folder, names[count - 1]->d_name);
    for (int i = 0; i < count; i++) {
        free(names[i]);
    }
    free(names);
    return path;
}

static bool holds(const unsigned char *record, size_t count, const void *part, size_t bytes)
{
    for (size_t i = 0; i + bytes <= count; i++) {
        if (memcmp(record + i, part, bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* An event file has framed protobuf records: the version, the step of a restart, and the steps. */
static void records(void)
{
    static const unsigned char start[] = {0x10, 0x03, 0x3A, 0x02, 0x08, 0x01};
    static const unsigned char value[] = {0x10, 0xAC, 0x02, 0x2A, 0x0D, 0x0A, 0x0B, 0x0A, 0x04,
                                          'l',  'o',  's',  's',  0x15, 0x00, 0x00, 0x20, 0x40};
    char folder[512];
    struct event_file *file = NULL;
    size_t bytes = 0;
    size_t count = 0;
    snprintf(folder, sizeof folder, "%s/a/b/c", test_directory());
    check_int(event_file_open(folder, &file), ==, 0);
    check_int(event_file_restart(file, 3), ==, 0);
    event_file_begin(file, 300);
    event_file_value(file, "loss", 2.5);
    check_int(event_file_end(file), ==, 0);
    char *text = read_all(last_file(folder), &bytes); /* still open */
    check_contains(last_file(folder), "/a/b/c/events.out.tfevents.");
    check_int(event_file_close(file), ==, 0);
    check_int(event_file_close(NULL), ==, 0);
    const unsigned char *at = (const unsigned char *)text;
    const unsigned char *end = at + bytes;
    const unsigned char *record = next_record(&at, end, &count);
    check_true(record[0] == 0x09 && holds(record, count,
                                          "\x1a\x0d"
                                          "brain.Event:2",
                                          15));
    record = next_record(&at, end, &count);
    check_true(holds(record, count, start, sizeof start) && count == 9 + sizeof start);
    record = next_record(&at, end, &count);
    check_true(holds(record, count, value, sizeof value) && count == 9 + sizeof value);
    check_true(next_record(&at, end, &count) == NULL);
    free(text);
}

/* Names of event files sort by creation, even within a second. */
static void order_of_files(void)
{
    char folder[512];
    char before[1024] = "";
    snprintf(folder, sizeof folder, "%s/order", test_directory());
    for (int i = 0; i < 5; i++) {
        struct event_file *file = NULL;
        check_int(event_file_open(folder, &file), ==, 0);
        check_int(strcmp(last_file(folder), before), >, 0);
        snprintf(before, sizeof before, "%s", last_file(folder));
        check_int(event_file_close(file), ==, 0);
    }
}

/* A refused run leaves no event file; files of other runs stay. */
static void refused(void)
{
    char folder[512];
    struct event_file *file = NULL;
    struct finetune_log *log = NULL;
    snprintf(folder, sizeof folder, "%s/refused", test_directory());
    check_int(event_file_open(folder, &file), ==, 0);
    check_int(event_file_close(file), ==, 0);
    check_int(event_file_open(folder, &file), ==, 0);
    check_uint(test_entries(folder), ==, 2);
    event_file_discard(file);
    event_file_discard(NULL);
    check_uint(test_entries(folder), ==, 1);
    check_int(finetune_log_open(&(struct finetune_log_options){.board_folder = folder}, &log), ==,
              0);
    check_uint(test_entries(folder), ==, 2);
    check_int(finetune_log_close(log), ==, 0);
    check_uint(test_entries(folder), ==, 1);
}

/* Errors name folders that cannot be used. */
static void no_folder(void)
{
    struct event_file *file = NULL;
    char path[1200];
    const char *plain = test_file("plain", "x", 1);
    check_int(event_file_open(plain, &file), ==, -ENOTDIR);
    check_contains(core_err_message(), plain);
    snprintf(path, sizeof path, "%s/below", plain);
    check_int(event_file_open(path, &file), ==, -ENOTDIR);
    memset(path, 'y', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    check_int(event_file_open(path, &file), ==, -ENAMETOOLONG);
    check_int(event_file_open("", &file), ==, -ENOENT);
    path[500] = '\0';
    check_int(event_file_open(path, &file), <, 0);
    snprintf(path, sizeof path, "%s/locked", test_directory());
    check_int(mkdir(path, 0500), ==, 0);
    if (geteuid() != 0) {
        check_int(event_file_open(path, &file), ==, -EACCES);
        check_contains(core_err_message(), "cannot be written");
    }
}

/* Writes 20 steps to files that can grow to `bytes`; returns the result of closing the log. */
static int full_drive(struct finetune_log_options options, uint64_t bytes)
{
    struct finetune_log *log = NULL;
    test_limit_files(bytes);
    check_int(finetune_log_open(&options, &log), ==, 0);
    finetune_log_begin(log, &(struct finetune_log_head){.steps = 20});
    for (uint64_t i = 1; i <= 20; i++) {
        struct finetune_record record = record_of(i);
        finetune_log_step(log, &record);
    }
    finetune_log_summary(log, &(struct finetune_summary){.median_seconds = 1});
    const int rc = finetune_log_close(log);
    test_limit_files(UINT64_MAX);
    return rc;
}

/* If the drive becomes full, the error names the file, and steps continue. */
static void full_drives(void)
{
    static const char *const names[] = {"f.jsonl", "f.csv", "board"};
    char path[512];
    for (int kind = 0; kind < 3; kind++) {
        snprintf(path, sizeof path, "%s/%s", test_directory(), names[kind]);
        const struct finetune_log_options options = {.json_path = kind == 0 ? path : NULL,
                                                     .csv_path = kind == 1 ? path : NULL,
                                                     .board_folder = kind == 2 ? path : NULL};
        for (uint64_t bytes = 0; bytes < 1500; bytes += 50) {
            check_int(full_drive(options, bytes), ==, -EFBIG);
            check_contains(core_err_message(), names[kind]);
            check_contains(core_err_message(), "cannot be written");
        }
        check_int(full_drive(options, UINT64_MAX), ==, 0);
    }
}

/* A new run replaces the files of an earlier one; a refused run does not. */
static void earlier_files(void)
{
    static const char lines[] = "{\"step\":9,\"loss\":1.0}\n";
    static const char rows[] = "step,loss,grad_norm,lr,loss_scale\n9,1,1,1,1\n";
    const char *path = test_file("earlier.jsonl", lines, strlen(lines));
    const char *table = test_file("earlier.csv", rows, strlen(rows));
    const struct finetune_log_options options = {.json_path = path, .csv_path = table};
    for (int turn = 0; turn < 2; turn++) {
        struct finetune_log *log = NULL;
        check_int(finetune_log_open(&options, &log), ==, 0);
        if (turn > 0) {
            finetune_log_begin(log, &(struct finetune_log_head){.steps = 4});
        }
        check_int(finetune_log_close(log), ==, 0);
        size_t bytes = 0;
        char *json = read_all(path, &bytes);
        check_string(json, turn == 0 ? lines : "");
        free(json);
        char *csv = read_all(table, &bytes);
        check_true(turn == 0 ? strcmp(csv, rows) == 0
                             : strncmp(csv, "step,", 5) == 0 && strstr(csv, "9,1") == NULL);
        free(csv);
    }
}

/* A log or a table that no run has written is refused and stays as it is, with and without a
 * resume. What a killed run leaves is accepted. */
static void foreign_files(void)
{
    static const struct {
        const char *log, *table;
        size_t bytes;
        int rc;
    } cases[] = {
        {"{\"step\":12,\"loss\":null,", "step,loss,grad_norm,lr,loss_scale", 23, 0},
        {"{\"step\":1", "step,loss", 9, 0},
        {"{", "s", 1, 0},
        {"", "", 0, 0},
        {"{\"text\": \"a\"}\n{\"text\"", "text,label\na,1\nb,2", 18, -EEXIST},
        {"{\"step\":1,\"action\":1}", "step,loss,accuracy\n1,2", 21, -EEXIST},
        {"{\"step\":,\"loss\":1}", "step;loss;grad_norm;lr", 18, -EEXIST},
        {"\0\0\0", "\0\0\0", 3, -EEXIST},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        const char *texts[2] = {cases[i / 2].log, cases[i / 2].table};
        for (int file = 0; file < 2; file++) {
            struct finetune_log *log = NULL;
            const char *path = test_file("foreign", texts[file], cases[i / 2].bytes);
            const struct finetune_log_options options = {.json_path = file == 0 ? path : NULL,
                                                         .csv_path = file == 1 ? path : NULL,
                                                         .append = i % 2 == 1};
            const int rc = finetune_log_check(&options);
            const int opened = finetune_log_open(&options, &log);
            if (rc != cases[i / 2].rc || opened != rc) {
                test_fail(__FILE__, __LINE__, "%s: %d and %d", texts[file], rc, opened);
            }
            check_int(finetune_log_close(log), ==, 0);
            if (rc != 0) {
                size_t bytes = 0;
                check_contains(core_err_message(), file == 0 ? "--log " : "--csv ");
                check_contains(core_err_message(), "name another file");
                char *text = read_all(path, &bytes);
                check_uint(bytes, ==, cases[i / 2].bytes);
                check_memory(text, texts[file], bytes);
                free(text);
            }
        }
    }
}

/* A log or a table belongs to one run at a time. */
static void one_run(void)
{
    const struct finetune_log_options cases[] = {{.json_path = test_path("one.jsonl")},
                                                 {.csv_path = test_path("one.csv")}};
    for (size_t i = 0; i < 2; i++) {
        struct finetune_log *log = NULL;
        struct finetune_log *second = NULL;
        check_int(finetune_log_check(&cases[i]), ==, 0);
        check_int(access(test_path(i == 0 ? "one.jsonl" : "one.csv"), F_OK), ==, -1);
        check_int(finetune_log_open(&cases[i], &log), ==, 0);
        check_int(finetune_log_check(&cases[i]), ==, -EBUSY);
        check_contains(core_err_message(), ": a running process writes there; name another file");
        check_int(finetune_log_open(&cases[i], &second), ==, -EBUSY);
        check_int(finetune_log_close(log), ==, 0);
        check_int(finetune_log_open(&cases[i], &second), ==, 0);
        check_int(finetune_log_close(second), ==, 0);
    }
}

/* A run has a head in its log; a resumed run adds another head. */
static void heads(void)
{
    struct tide_engine_options engine;
    struct tide_plan *plan = NULL;
    struct finetune_log *log = NULL;
    size_t bytes = 0;
    tide_engine_options_init(&engine, sizeof engine);
    engine.model = "m";
    check_int(tide_plan_create(NULL, &engine, &plan), ==, 0);
    const char *path = test_file("head.jsonl", "", 0);
    for (int turn = 0; turn < 2; turn++) {
        check_int(finetune_log_open(
                      &(struct finetune_log_options){.json_path = path, .append = turn > 0}, &log),
                  ==, 0);
        finetune_log_begin(log,
                           &(struct finetune_log_head){
                               .plan = plan, .engine = &engine, .steps = 4, .begun = 2 * turn});
        for (uint64_t i = 1; i <= 2; i++) {
            struct finetune_record record = record_of(2 * (uint64_t)turn + i);
            finetune_log_step(log, &record);
        }
        check_int(finetune_log_close(log), ==, 0);
    }
    tide_plan_destroy(plan);
    char *text = read_all(path, &bytes);
    const char *first = strstr(text, "\"run\":{");
    check_true(first != NULL && first < strstr(text, "{\"step\":2,"));
    const char *again = strstr(first + 1, "\"run\":{");
    check_true(again != NULL && again > strstr(text, "{\"step\":3,"));
    check_contains(again, "\"steps\":4,\"begun\":2,");
    check_true(strstr(again + 1, "\"run\":{") == NULL);
    free(text);
}

TEST_MAIN({"figures", figures}, {"table", table}, {"events", events}, {"sums", sums},
          {"records", records}, {"order_of_files", order_of_files}, {"refused", refused},
          {"no_folder", no_folder}, {"full_drives", full_drives}, {"earlier_files", earlier_files},
          {"foreign_files", foreign_files}, {"one_run", one_run}, {"heads", heads})
