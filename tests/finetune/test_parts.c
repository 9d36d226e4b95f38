/* Tests parts of the commands. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/json/write.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"
#include "tools/tide/cli.h"
#include "tools/tide/finetune_context.h"
#include "tools/tide/finetune_data.h"
#include "tools/tide/finetune_settings.h"
#include "tools/tide/plan_text.h"

static struct finetune_record record_of(uint64_t step, double seconds)
{
    return (struct finetune_record){
        .step = {.step = step,
                 .loss = 2.5,
                 .grad_norm = 1,
                 .loss_scale = 1,
                 .tokens = 100,
                 .seconds = seconds},
        .waits = {[TIDE_WAIT_UPDATE] = seconds / 4},
        .memory = {.rss_bytes = 1000000000},
        .lr = 1e-3,
    };
}

/* Opens a terminal of `columns` columns, whose output can be read from *other. */
static FILE *open_terminal(unsigned short columns, int *other)
{
    *other = posix_openpt(O_RDWR | O_NOCTTY);
    if (*other < 0 || grantpt(*other) != 0 || unlockpt(*other) != 0) {
        test_skip("no pseudo-terminals here");
    }
    int fd = open(ptsname(*other), O_RDWR | O_NOCTTY);
    check_int(fd, >=, 0);
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    check_int(ioctl(fd, TIOCSWINSZ, &size), ==, 0);
    return fdopen(fd, "w");
}

static const char *said(int other)
{
    static char text[4096];
    ssize_t got = read(other, text, sizeof text - 1);
    check_int(got, >, 0);
    text[got] = '\0';
    return text;
}

static int64_t set_ns; /* for core_clock_now_ns(); 0: the real time */

int64_t __real_core_clock_now_ns(void);
int64_t __wrap_core_clock_now_ns(void);
int64_t __wrap_core_clock_now_ns(void)
{
    return set_ns != 0 ? set_ns : __real_core_clock_now_ns();
}

static volatile sig_atomic_t caught;

static void count_signal(int number)
{
    (void)number;
    caught = caught + 1;
}

/* GNU timeout sends a signal twice: a repeated signal within a second is ignored, a later one ends
 * the process. */
static void repeated_signals(void)
{
    int status = 0;
    int ends[2];
    char survived = 0;
    check_int(pipe(ends), ==, 0);
    const pid_t child = fork();
    check_int(child, >=, 0);
    if (child == 0) {
        set_ns = 5000000000;
        for (int i = 1; i <= 2; i++) {
            cli_signal_catch(SIGTERM, count_signal);
            raise(SIGTERM);
            raise(SIGTERM);
            set_ns += 999999999;
            raise(SIGTERM);
            if (caught != i) {
                _exit(caught);
            }
        }
        set_ns++;
        if (write(ends[1], "y", 1) == 1) {
            raise(SIGTERM);
        }
        _exit(0);
    }
    check_int(waitpid(child, &status, 0), ==, child);
    close(ends[1]);
    check_int(read(ends[0], &survived, 1), ==, 1); /* the child survived the copies */
    close(ends[0]);
    check_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    signal(SIGHUP, SIG_IGN);
    cli_signal_catch(SIGHUP, count_signal);
    raise(SIGHUP);
    signal(SIGHUP, SIG_DFL);
    check_int(caught, ==, 0);
}

/* On a terminal, a line is overwritten and cut to the terminal's width. */
static void terminal(void)
{
    struct finetune_live live;
    int other = -1;
    setenv("TERM", "xterm", 1);
    FILE *stream = open_terminal(40, &other);
    finetune_live_init(&live, stream, false, 90, 1);
    check_true(live.terminal);
    struct finetune_record record = record_of(1, 8);
    finetune_live_step(&live, &record);
    check_string(said(other), "\r\033[Kstep 1/90  loss 2.5000  12 tok/s");
    for (uint64_t i = 2; i <= 30; i++) {
        record = record_of(i, 2);
        finetune_live_step(&live, &record);
        const char *text = said(other);
        check_contains(text, "\r\033[Kstep ");
        check_true(strchr(text, '\n') == NULL);
        check_uint(strlen(text), <=, 4 + 39);
    }
    finetune_live_end(&live);
    check_string(said(other), "\r\n");
    finetune_live_end(&live); /* without a live line */
    char byte;
    fclose(stream);
    check_int(read(other, &byte, 1), <=, 0);
    close(other);
    stream = open_terminal(120, &other);
    finetune_live_init(&live, stream, false, 90, 1);
    record = record_of(58, 50); /* the first step of a resumed run */
    finetune_live_step(&live, &record);
    said(other);
    record = record_of(59, 2);
    finetune_live_step(&live, &record);
    said(other);
    record = record_of(60, 2);
    finetune_live_step(&live, &record);
    check_string(said(other),
                 "\r\033[Kstep 60/90  loss 2.5000  50 tok/s  ETA 1:00  25 % stalled on "
                 "the update");
    const struct tide_progress progress = {.phase = "load", .done = 1, .total = 4};
    finetune_live_progress(&live, &progress);
    check_string(said(other), "\r\033[Kload: 25 %");
    fclose(stream);
    close(other);
}

/* Without a terminal, a line is printed every N steps and after evaluations; with -q, none. */
static void pipe_lines(void)
{
    char *text = NULL;
    size_t bytes = 0;
    struct finetune_live live;
    FILE *stream = tmpfile();
    check_true(stream != NULL);
    finetune_live_init(&live, stream, false, 10, 4);
    for (uint64_t i = 1; i <= 10; i++) {
        struct finetune_record record = record_of(i, 1);
        record.evaluated = i == 6;
        record.eval_loss = 3;
        finetune_live_step(&live, &record);
    }
    const struct tide_progress progress = {.phase = "save", .done = 1, .total = 4};
    finetune_live_progress(&live, &progress);
    finetune_live_progress(&live, &progress);
    rewind(stream);
    text = calloc(1, 4096);
    bytes = fread(text, 1, 4095, stream);
    check_uint(bytes, >, 0);
    static const char *const lines[] = {
        "step 1/10", "step 4/10",  "step 6/10", "eval loss 3.0000\n",
        "step 8/10", "step 10/10", "save ..."};
    const char *at = text;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        at = strstr(at, lines[i]);
        check_true(at != NULL);
    }
    check_true(strstr(text, "step 2/10") == NULL && strchr(text, '\r') == NULL);
    check_true(strstr(strstr(text, "save ...") + 1, "save ...") == NULL);
    free(text);
    fclose(stream);
    stream = tmpfile();
    finetune_live_init(&live, stream, true, 10, 1);
    struct finetune_record record = record_of(1, 1);
    finetune_live_step(&live, &record);
    finetune_live_progress(&live, &progress);
    check_int(ftell(stream), ==, 0);
    fclose(stream);
}

static void clocks(void)
{
    char text[32];
    check_string(finetune_live_clock(0.4, text, sizeof text), "0:00");
    check_string(finetune_live_clock(61, text, sizeof text), "1:01");
    check_string(finetune_live_clock(3600 * 25 + 62, text, sizeof text), "25:01:02");
    check_string(finetune_live_clock((double)NAN, text, sizeof text), "0:00");
    check_string(finetune_live_clock(-5, text, sizeof text), "0:00");
}

/* The exit code is 2 for wrong input, and 1 for other errors. */
static void exit_codes(void)
{
    check_int(finetune_exit_code(-EFBIG), ==, 1);
    check_int(finetune_exit_code(-EINVAL), ==, 2);
    check_int(finetune_exit_code(-ENOENT), ==, 2);
    check_int(finetune_exit_code(-EEXIST), ==, 2);
    check_int(finetune_exit_code(-EROFS), ==, 2);
    check_int(finetune_exit_code(-EPERM), ==, 2);
    check_int(finetune_exit_code(-EIO), ==, 1);
    check_int(finetune_exit_code(-ENOSPC), ==, 1);
    check_int(finetune_exit_code(-ENOMEM), ==, 1);
    check_int(finetune_exit_code(-EDOM), ==, 1);
}

/* Choices have the names that flags take. */
static void names(void)
{
    check_string(cli_plan_place_name(TIDE_STORE), "store");
    check_string(cli_plan_acts_name(TIDE_ACTS_KEEP), "keep");
    check_string(cli_plan_acts_name(TIDE_ACTS_RECOMPUTE), "recompute");
    check_string(cli_plan_acts_name(TIDE_ACTS_STORE), "store");
    check_string(cli_plan_order_name(TIDE_ORDER_LAYER), "layer");
    check_string(cli_plan_order_name(TIDE_ORDER_MICRO), "micro");
    check_string(cli_plan_timing_name(TIDE_TIMING_DEFERRED), "deferred");
    check_string(cli_plan_timing_name(TIDE_TIMING_INSIDE), "inside");
    check_string(cli_plan_timing_name(TIDE_TIMING_SPLIT), "split");
    check_string(cli_plan_timing_name(TIDE_TIMING_SPECULATIVE), "speculative");
    check_string(cli_plan_timing_name(TIDE_TIMING_SPECULATIVE + 1), "?");
    const struct tide_plan_info info = {.step_seconds = 0.5, .store_write_bytes = 12000000};
    check_double(cli_plan_wear_tb(&info), ==, 12000000 / 0.5 * 86400 / 1e12);
    check_int(cli_rate_digits(0), ==, 0);
    check_int(cli_rate_digits(25000), ==, 0);
    check_int(cli_rate_digits(2.5), ==, 1);
    check_int(cli_rate_digits(0.04), ==, 3);
    const struct tide_plan_info unknown = {.store_write_bytes = 1};
    check_double(cli_plan_wear_tb(&unknown), ==, 0);
}

/* The error of an unusable model tells what is at the path. */
static void models(void)
{
    char path[512];
    struct finetune_context talk;
    struct tide_inspection model;
    check_int(finetune_context_init(&talk, -1), ==, 0);
    snprintf(path, sizeof path, "%s/model/fixtures/llama", test_root());
    check_int(finetune_context_inspect(&talk, path, true, &model), ==, 0);
    check_int(model.vocab, ==, 72);
    snprintf(path, sizeof path, "%s/model/fixtures/llama/model.safetensors", test_root());
    check_int(finetune_context_inspect(&talk, path, true, &model), ==, -EINVAL);
    check_contains(core_err_message(), "is a file of tensors");
    snprintf(path, sizeof path, "%s/model/fixtures/llama/config.json", test_root());
    check_int(finetune_context_inspect(&talk, path, true, &model), ==, -EINVAL);
    check_contains(core_err_message(), "is a file; --model takes the folder: --model ");
    check_contains(core_err_message(), "/model/fixtures/llama");
    check_true(strstr(strstr(core_err_message(), "folder"), "config.json") == NULL);
    test_file("notes.txt", "some lines", 10);
    check_int(finetune_context_inspect(&talk, test_path("notes.txt"), true, &model), ==, -EINVAL);
    check_contains(core_err_message(),
                   "is a file; --model takes the folder of a model, which has ");
    check_int(finetune_context_inspect(&talk, "/nonexistent", true, &model), ==, -ENOENT);
    check_int(finetune_context_inspect(&talk, "some/model-1b", true, &model), ==, -ENOENT);
    check_contains(core_err_message(), "hf download some/model-1b --local-dir model-1b");
    check_int(mkdir(test_path("other"), 0700), ==, 0);
    test_file("other/notes", "x", 1);
    check_int(finetune_context_inspect(&talk, test_path("other"), true, &model), ==, -EINVAL);
    check_contains(core_err_message(), "other is neither a model (there is no config.json)");
    test_file("manifest.json", "{}", 2);
    check_int(finetune_context_inspect(&talk, test_directory(), false, &model), ==, -EINVAL);
    check_contains(core_err_message(), "is a checkpoint; --resume continues its run");
    struct finetune_data *data = NULL;
    struct finetune_data_options rows = {.vocab = 100, .length_max = 16, .batch = 1, .step_max = 1};
    rows.path = test_file("rows.jsonl", "{\"input_ids\": [1, 2]}\n", 22);
    check_int(finetune_context_data(&talk, &rows, &data), ==, 0);
    finetune_data_close(data);
    rows.path = "/nonexistent";
    check_int(finetune_context_data(&talk, &rows, &data), ==, -ENOENT);
    finetune_context_fini(&talk);
}

static const char *rows_path;

static int data_life(void)
{
    struct finetune_data *data = NULL;
    const struct tide_batch *batches = NULL;
    int rc = finetune_data_open(
        &(struct finetune_data_options){
            .path = rows_path, .vocab = 100, .length_max = 16, .batch = 2, .step_max = 2},
        &data);
    if (rc == 0) {
        rc = finetune_data_step(data, &batches);
        rc = rc > 0 ? 0 : rc;
    }
    finetune_data_close(data);
    return rc;
}

static int log_life(void)
{
    struct finetune_log *log = NULL;
    struct finetune_record record = record_of(1, 1);
    int rc = finetune_log_open(&(struct finetune_log_options){.json_path = "/dev/null",
                                                              .csv_path = "/dev/null",
                                                              .csv_monitor = true,
                                                              .board_folder = test_directory()},
                               &log);
    if (rc == 0) {
        finetune_log_step(log, &record);
    }
    int closed = finetune_log_close(log);
    return rc != 0 ? rc : closed;
}

static const char *config_path;

static int settings_life(void)
{
    struct finetune_settings settings;
    struct finetune_flags flags;
    const struct tide_inspection model = {.vocab = 72, .hidden = 32, .positions = 64};
    finetune_flags_init(&flags);
    flags.config = config_path;
    int rc = finetune_settings_init(&settings, &flags, &model);
    if (rc == 0) {
        finetune_settings_fini(&settings);
    }
    return rc;
}

static int talk_life(void)
{
    struct finetune_context talk;
    int rc = finetune_context_init(&talk, 0);
    if (rc == 0) {
        finetune_context_fini(&talk);
    }
    return rc;
}

/* A failed allocation is an error and leaks nothing. */
static void short_of_memory(void)
{
    static const char rows[] = "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 2, 3]}\n";
    static const char config[] =
        "{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"WarmupLR\"}}";
    rows_path = test_file("rows.jsonl", rows, strlen(rows));
    config_path = test_file("ds.json", config, strlen(config));
    check_int(data_life(), ==, 0);
    check_int(settings_life(), ==, 0);
    check_uint(test_fail_nth(data_life), >=, 5);
    check_uint(test_fail_nth(log_life), >=, 5);
    check_uint(test_fail_nth(settings_life), >=, 5);
    check_int(talk_life(), ==, 0);
}

static void keep_line(void *user, enum core_log_level level, const char *line)
{
    check_int(level, ==, CORE_LOG_WARN);
    snprintf(user, 64, "%s", line);
}

/* Counts and bytes have suitable units. */
static void numbers(void)
{
    static const struct {
        uint64_t number;
        const char *count;
        const char *bytes;
    } cases[] = {
        {0, "0.0K", "0.0 KB"},
        {1234, "1.2K", "1.2 KB"},
        {684900, "684.9K", "0.7 MB"},
        {158200000, "158.2M", "0.158 GB"},
        {4020000000, "4.02B", "4.020 GB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[CLI_NUMBER_BYTES];
        check_string(cli_count_print(cases[i].number, out), cases[i].count);
        check_string(cli_bytes_print(cases[i].number, out), cases[i].bytes);
    }
}

/* Warnings go to a function of cli_log_also() until it is removed. */
static void lines_kept(void)
{
    char kept[64] = "";
    char name[] = "x";
    char *argv[] = {name, NULL};
    const struct cli_command command = {.name = "test", .arguments = "X", .arguments_max = 1};
    struct cli_parsed parsed;
    check_int(cli_parse(&command, NULL, 0, 1, argv, &parsed), ==, -1);
    cli_log_also(keep_line, kept);
    core_log(CORE_LOG_WARN, "one %d", 1);
    cli_log_also(NULL, NULL);
    core_log(CORE_LOG_WARN, "two");
    core_log_bind(NULL);
    check_string(kept, "one 1");
}

/* The error names a log that cannot be opened. */
static void no_log(void)
{
    struct finetune_log *log = NULL;
    struct finetune_log_options options = {.json_path = test_directory()};
    check_int(finetune_log_open(&options, &log), ==, -EISDIR);
    check_contains(core_err_message(), test_directory());
    options = (struct finetune_log_options){.json_path = "/dev/null",
                                            .csv_path = "/nonexistent/x.csv"};
    check_int(finetune_log_open(&options, &log), ==, -ENOENT);
    check_contains(core_err_message(), "/nonexistent/x.csv cannot be written");
    options = (struct finetune_log_options){.csv_path = "/dev/null/x/y.csv", .csv_monitor = true};
    check_int(finetune_log_open(&options, &log), ==, -ENOTDIR);
    check_contains(core_err_message(), "/dev/null/x cannot be created");
    options = (struct finetune_log_options){.board_folder = "/dev/null"};
    check_int(finetune_log_open(&options, &log), ==, -ENOTDIR);
    check_contains(core_err_message(), "/dev/null");
    check_int(finetune_log_close(NULL), ==, 0);
}

/* A command whose JSON was not written fails. */
static void json_that_is_lost(void)
{
    const struct cli_command command = {.name = "test"};
    for (int full = 0; full < 2; full++) {
        struct core_json_write json;
        FILE *file = fopen(full ? "/dev/full" : "/dev/null", "w");
        check_true(file != NULL);
        core_json_write_init_file(&json, file);
        core_json_write_object_begin(&json, NULL);
        core_json_write_object_end(&json);
        check_int(cli_close_json(&command, &json, CLI_WRONG), ==, full ? CLI_FAILED : CLI_WRONG);
        (void)fclose(file);
    }
}

TEST_MAIN({"terminal", terminal}, {"pipe_lines", pipe_lines}, {"clocks", clocks},
          {"exit_codes", exit_codes}, {"repeated_signals", repeated_signals}, {"names", names},
          {"models", models}, {"short_of_memory", short_of_memory}, {"lines_kept", lines_kept},
          {"no_log", no_log}, {"numbers", numbers}, {"json_that_is_lost", json_that_is_lost})
