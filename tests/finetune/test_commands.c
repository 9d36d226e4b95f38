/* `tide finetune` and `tide plan` as users run them, over an engine of paper: exit codes, words,
 * files, and what happens when something fails in the middle. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "tests/harness/test.h"

static char *out_text; /* of the last run; freed by the next */
static char *err_text;
static char path_text[8][512];

static const char *path_in(const char *name)
{
    static unsigned turn;
    char *path = path_text[turn++ % 8];
    snprintf(path, sizeof path_text[0], "%s/%s", test_directory(), name);
    return path;
}

static const char *read_all(const char *path)
{
    static char *text;
    size_t bytes = 0;
    free(text);
    text = NULL;
    check_int(core_file_read(path, 1 << 20, &text, &bytes), ==, 0);
    return text;
}

static void redirect(int to, const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || dup2(fd, to) < 0) {
        _exit(126);
    }
}

/* Words with spaces between; %M is a model of the fixtures, %T the test's directory. */
static size_t split(const char *arguments, char *text, size_t bytes, char **argv, size_t room)
{
    size_t at = 0;
    for (const char *from = arguments; *from != '\0' && at + 1 < bytes; from++) {
        if (from[0] == '%' && (from[1] == 'M' || from[1] == 'T')) {
            at += (size_t)snprintf(text + at, bytes - at, "%s%s",
                                   from[1] == 'M' ? test_root() : test_directory(),
                                   from[1] == 'M' ? "/model/fixtures/llama" : "");
            from++;
        } else {
            text[at++] = *from;
        }
    }
    text[at] = '\0';
    size_t count = 0;
    for (char *word; count + 1 < room && (word = strsep(&text, " ")) != NULL;) {
        if (word[0] != '\0') {
            argv[count++] = word;
        }
    }
    argv[count] = NULL;
    return count;
}

/* Runs the command with `setting` ("NAME=value", NULL: none) in its environment. The exit code. */
static int run_with(const char *setting, const char *arguments)
{
    char words[4096];
    char program[512];
    char *argv[64];
    const char *root = getenv("TIDE_BUILD_ROOT");
    snprintf(program, sizeof program, "%s/tests/finetune/tide_paper",
             root != NULL ? root : "build");
    argv[0] = program;
    split(arguments, words, sizeof words, argv + 1, 63);
    test_directory();
    pid_t child = fork();
    check_true(child >= 0);
    if (child == 0) {
        redirect(0, "/dev/null");
        redirect(1, path_in("out"));
        redirect(2, path_in("err"));
        if (setting != NULL) {
            putenv((char *)(uintptr_t)setting);
        }
        execv(program, argv);
        _exit(127);
    }
    int status = 0;
    size_t bytes = 0;
    check_int(waitpid(child, &status, 0), ==, child);
    free(out_text);
    free(err_text);
    out_text = err_text = NULL;
    check_int(core_file_read(path_in("out"), 1 << 20, &out_text, &bytes), ==, 0);
    check_int(core_file_read(path_in("err"), 1 << 20, &err_text, &bytes), ==, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static int run(const char *arguments)
{
    return run_with(NULL, arguments);
}

static void expect_code(int line, int code, int wanted)
{
    if (code != wanted) {
        test_fail(__FILE__, line, "it ends with %d, not %d: %s", code, wanted, err_text);
    }
}

#define expect(wanted, arguments)           expect_code(__LINE__, run(arguments), wanted)
#define expect_with(wanted, set, arguments) expect_code(__LINE__, run_with(set, arguments), wanted)

/* Seven rows of eight tokens. */
static void write_rows(void)
{
    static const char rows[] = "{\"input_ids\": [1, 2, 3, 4, 5, 6, 7, 8]}\n"
                               "{\"input_ids\": [2, 2, 3, 4, 5, 6, 7, 8]}\n"
                               "{\"input_ids\": [3, 2, 3, 4, 5, 6, 7, 8]}\n"
                               "{\"input_ids\": [4, 2, 3, 4, 5, 6, 7, 8]}\n"
                               "{\"input_ids\": [5, 2, 3, 4, 5, 6, 7, 8]}\n"
                               "{\"input_ids\": [6, 2, 3, 4, 5, 6, 7, 8]}\n"
                               "{\"input_ids\": [7, 2, 3, 4, 5, 6, 7, 8]}\n";
    test_file("d.jsonl", rows, strlen(rows));
}

#define TRAIN "finetune --model %M --data %T/d.jsonl --batch 2 --accum 2 "

static bool is_there(const char *name)
{
    struct stat info;
    return stat(path_in(name), &info) == 0;
}

/* --help fits a screen, names every flag, and shows an example that is real. */
static void help(void)
{
    static const char *const flags[] = {
        "--config",      "--steps",
        "--epochs",      "--seq-len",
        "--batch",       "--accum",
        "--lr",          "--betas",
        "--eps",         "--weight-decay",
        "--schedule",    "--warmup",
        "--clip",        "--precision",
        "--seed",        "--dev",
        "--threads",     "--ranks",
        "--zero",        "--tile-bytes",
        "--rates",       "--device-memory",
        "--host-memory", "--store",
        "--place",       "--io",
        "--save-every",  "--keep",
        "--resume",      "--overwrite",
        "--eval-data",   "--eval-every",
        "--log",         "--csv",
        "--tensorboard", "--shuffle",
        "--optimizer",   "--moments",
        "--freeze",      "--trace",
        "--fp32-grads",  "--model",
        "--data",        "--out",
    };
    static const char *const commands[] = {"finetune --help", "plan --help"};
    for (size_t command = 0; command < 2; command++) {
        expect(0, commands[command]);
        check_contains(out_text, "Example:\n  tide ");
        size_t lines = 0;
        for (const char *line = out_text; *line != '\0'; lines++) {
            size_t length = strcspn(line, "\n");
            check_uint(length, <=, 86);
            line += length + 1;
        }
        check_uint(lines, <=, 24);
        for (size_t i = 0; i < sizeof flags / sizeof flags[0] && command == 0; i++) {
            check_contains(out_text, flags[i]);
        }
    }
}

/* Wrong flags and bad inputs end 2 before anything is done, and say what would be right. */
static void usage(void)
{
    static const struct {
        const char *arguments;
        const char *sentence;
    } cases[] = {
        {"finetune", "--model DIR is missing"},
        {"finetune --model %M", "--data FILE is missing"},
        {"finetune --model %M --data %T/d.jsonl", "--out DIR is missing"},
        {"plan", "--model DIR is missing"},
        {"finetune --modl x", "did you mean --model?"},
        {TRAIN "--out %T/o --save-every 5", "--save-every is not built yet"},
        {TRAIN "--out %T/o --keep 5", "--keep is not built yet"},
        {TRAIN "--out %T/o --resume", "--resume is not built yet"},
        {TRAIN "--out %T/o --tensorboard x", "--tensorboard is not built yet"},
        {TRAIN "--out %T/o --steps 1 --epochs 1", "--steps and --epochs both say"},
        {TRAIN "--out %T/o --steps 0", "--steps takes an integer from 1"},
        {TRAIN "--out %T/o --eval-every 2", "--eval-every needs --eval-data"},
        {TRAIN "--out %T/o --eval-data %T/none", "none"},
        {TRAIN "--out %T/o --lr -1", "--lr takes a number from 0"},
        {TRAIN "--out %T/o --lr nan", "--lr takes a number"},
        {TRAIN "--out %T/o --schedule step", "constant|linear|cosine|wsd"},
        {TRAIN "--out %T/o --zero 4", "--zero takes an integer from 0 to 3"},
        {TRAIN "--out %T/o --place acts=disk", "allowed: weights, states and grads"},
        {TRAIN "--out %T/o --place states=store", "give --store DIR"},
        {TRAIN "--out %T/o --config %T/none.json", "none.json"},
        {TRAIN "--out %T/o --seq-len 65", "up to 64 tokens"},
        {TRAIN "--out %T/o --log %T/no/such.jsonl", "such.jsonl cannot be written"},
        {TRAIN "--out %T/d.jsonl", "is a file, and a folder is to be written"},
        {TRAIN "--out %M", "is the model that is trained"},
        {TRAIN "--out %M --overwrite", "is the model that is trained"},
        {TRAIN "--out %T/full", "is there and not empty"},
        {"finetune --model %T/none --data %T/d.jsonl --out %T/o", "none"},
        {"finetune --model %M/model.safetensors --data %T/d.jsonl --out %T/o",
         "is a file of tensors"},
        {"finetune --model %M --data %T/none.jsonl --out %T/o", "none.jsonl"},
        {"finetune --model %M --data %T/empty.jsonl --out %T/o", "empty.jsonl"},
        {"finetune --model %M --data %T/high.jsonl --out %T/o", "high.jsonl:2"},
        {"finetune --model %M --data %T/label.jsonl --out %T/o", "label.jsonl:1"},
        {"finetune --model %M --data %T/long.jsonl --out %T/o", "--seq-len 64 cuts them"},
        {"plan --model %M --json --tape", "two outputs"},
    };
    char row[1024] = "{\"input_ids\": [1";
    write_rows();
    for (int i = 0; i < 70; i++) {
        size_t at = strlen(row);
        snprintf(row + at, sizeof row - at, ", 2%s", i == 69 ? "]}\n" : "");
    }
    test_file("long.jsonl", row, strlen(row));
    test_file("empty.jsonl", "\n", 1);
    test_file("high.jsonl", "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 72]}\n", 45);
    test_file("label.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1, 72]}\n", 41);
    mkdir(path_in("full"), 0700);
    test_file("full/mine", "keep", 4);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code = run(cases[i].arguments);
        if (code != 2 || strstr(err_text, cases[i].sentence) == NULL || out_text[0] != '\0') {
            test_fail(__FILE__, __LINE__, "%s ends with %d: %s%s", cases[i].arguments, code,
                      err_text, out_text);
        }
        check_true(!is_there("o"));
    }
    check_string(read_all(path_in("full/mine")), "keep");
    expect(0, TRAIN "--out %T/full --overwrite --steps 1 -q");
}

/* The log has a line a step with exactly these keys, and the summary last. */
static void log_keys(void)
{
    static const char *const keys[] = {"step",
                                       "loss",
                                       "grad_norm",
                                       "lr",
                                       "loss_scale",
                                       "skipped",
                                       "tokens",
                                       "seconds",
                                       "tokens_per_second",
                                       "store_read_bytes",
                                       "store_write_bytes",
                                       "h2d_bytes",
                                       "d2h_bytes",
                                       "wait",
                                       "guesses",
                                       "rss_gb"};
    static const char *const waits[] = {"store_read", "store_write", "update",
                                        "copy",       "imbalance",   "other"};
    static const char *const summary[] = {"median_seconds", "tokens_per_second", "peak_rss_gb",
                                          "peak_device_gb", "plan_host_gb",      "plan_device_gb",
                                          "plan_seconds"};
    write_rows();
    expect(0, TRAIN "--out %T/keys --epochs 1.5 --log %T/l.jsonl --csv %T/l.csv");
    char *text = strdup(read_all(path_in("l.jsonl")));
    size_t lines = 0;
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL && line[0] != '\0';) {
        struct core_json *doc = NULL;
        check_int(core_json_parse(line, strlen(line), "line", NULL, &doc), ==, 0);
        const struct core_json_value *root = core_json_root(doc);
        const bool last = lines++ == 3;
        const char *const *names = last ? summary : keys;
        const size_t count = last ? sizeof summary / sizeof summary[0]
                                  : sizeof keys / sizeof keys[0];
        struct core_json_member member;
        size_t at = 0;
        for (bool any = core_json_first(root, &member); any; any = core_json_next(&member)) {
            check_uint(at, <, count);
            check_string(member.key, names[at++]);
        }
        check_uint(at, ==, count);
        const struct core_json_value *wait = core_json_find(root, "wait");
        for (size_t i = 0; i < 6 && !last; i++) {
            check_true(core_json_find(wait, waits[i]) != NULL);
        }
        if (lines == 2) { /* not a number is no number of JSON */
            check_int(core_json_kind(core_json_find(root, "grad_norm")), ==, CORE_JSON_NULL);
        }
        if (last) {
            check_double(core_json_real(core_json_find(root, "median_seconds")), ==, 0.25);
            check_double(core_json_real(core_json_find(root, "plan_seconds")), ==, 0.5);
        }
        core_json_destroy(doc);
    }
    free(text);
    check_uint(lines, ==, 4);
    check_contains(read_all(path_in("l.csv")), "step,loss,grad_norm,lr,");
    check_contains(read_all(path_in("l.csv")), "\n3,2.66666667,1.5,5e-05,1,0,");
}

/* What arrives at the engine: rates of the schedule, micro-batches, the short end of an epoch. */
static void steps(void)
{
    static char notes[600];
    write_rows();
    snprintf(notes, sizeof notes, "TIDE_PAPER_NOTES=%s", path_in("notes"));
    expect_with(0, notes, TRAIN "--out %T/s --epochs 2 --lr 1 --schedule linear --warmup 2 -q");
    check_string(read_all(path_in("notes")), "0 2 2x8:1 2x8:3\n0.5 2 2x8:5 1x8:7\n"
                                             "1 2 2x8:1 2x8:3\n0.5 2 2x8:5 1x8:7\n");
    check_string(err_text, "");
    check_contains(out_text, "/s: 4 steps, loss 8.0000 -> 2.0000");
    check_string(read_all(path_in("s/steps")), "4");
}

/* A skipped step is no update: the schedule stays where it is. */
static void skipped(void)
{
    static char notes[600];
    write_rows();
    snprintf(notes, sizeof notes, "TIDE_PAPER_NOTES=%s", path_in("skips"));
    expect_with(0, notes,
                TRAIN
                "--out %T/k --steps 4 --lr 1 --schedule linear --precision fp16 --csv %T/k.csv");
    check_contains(read_all(path_in("skips")), "1 2 2x8:1 2x8:3\n0.75 2 ");
    check_contains(read_all(path_in("skips")), "\n0.75 2 2x8:1 2x8:3\n0.5 2 ");
    check_contains(err_text, "skipped: overflow");
    check_contains(out_text, "1 skipped for overflow");
}

/* Lines of talk go to stderr, the result to stdout; a line a step, and the plan before. */
static void talk(void)
{
    write_rows();
    expect(0, TRAIN "--out %T/t --steps 3 --eval-data %T/d.jsonl --eval-every 2 --log %T/t.jsonl");
    check_contains(err_text, "plan: 1.0M parameters; DEVICE 2.000 GB, HOST 1.000 GB");
    check_contains(err_text, "step 1/3  loss 8.0000");
    check_contains(err_text, "step 3/3  loss 2.6667");
    check_contains(err_text, "waits 40 % for reads of the store");
    check_contains(err_text, "planned: 0.5 s a step, 3.000 GB of memory; measured: 0.25 s");
    check_contains(out_text, "eval loss 3.0000\n");
    check_true(strstr(err_text, "\r") == NULL);
    check_contains(read_all(path_in("t.jsonl")), "\"eval_loss\":3.0}\n");
}

/* Where a call of the engine fails, the code says of what kind it was, and its sentence stands. */
static void faults(void)
{
    static const struct {
        const char *fault;
        int code;
        const char *sentence;
    } cases[] = {
        {"TIDE_PAPER_FAIL=create 1 5", 1, "paper: create 1 fails with 5"},
        {"TIDE_PAPER_FAIL=create 1 22", 2, "paper: create 1 fails with 22"},
        {"TIDE_PAPER_FAIL=create 1 27", 3, "paper: create 1 fails with 27"},
        {"TIDE_PAPER_FAIL=create 1 125", 130, "before the first step; nothing was trained"},
        {"TIDE_PAPER_FAIL=try 1 28", 1, "paper: try 1 fails with 28"},
        {"TIDE_PAPER_FAIL=step 1 5", 1, "paper: step 1 fails with 5"},
        {"TIDE_PAPER_FAIL=step 3 33", 1, "paper: step 3 fails with 33"},
        {"TIDE_PAPER_FAIL=evaluate 2 5", 1, "paper: evaluate 2 fails with 5"},
        {"TIDE_PAPER_FAIL=save 1 28", 1, "paper: save 1 fails with 28"},
    };
    write_rows();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_with(cases[i].code, cases[i].fault,
                    TRAIN
                    "--out %T/f --steps 4 --eval-data %T/d.jsonl --overwrite --log %T/f.jsonl");
        check_contains(err_text, cases[i].sentence);
        check_string(out_text, "");
        if (i == 6) { /* two steps were made, and their lines are there, with the summary */
            const char *log = read_all(path_in("f.jsonl"));
            check_contains(log, "{\"step\":2,");
            check_contains(log, "{\"median_seconds\":0.25,");
        }
    }
}

/* A signal ends the run after its step, with the model saved; the second one at once. */
static void signals(void)
{
    write_rows();
    expect_with(130, "TIDE_PAPER_SIGNAL=2 2", TRAIN "--out %T/i --steps 5");
    check_contains(err_text, "stopped by a signal after step 2 of 5; ");
    check_contains(err_text, "holds the weights of that step");
    check_string(read_all(path_in("i/steps")), "2");
    expect_with(130, "TIDE_PAPER_SIGNAL=1 15", TRAIN "--out %T/j --steps 5");
    check_string(read_all(path_in("j/steps")), "1");
    expect_with(0, "TIDE_PAPER_SIGNAL=5 2", TRAIN "--out %T/last --steps 5");
}

/* A log on a full disk does not end the run, but it does not end well either. */
static void full_disk(void)
{
    if (access("/dev/full", W_OK) != 0) {
        test_skip("no /dev/full here");
    }
    write_rows();
    expect(1, TRAIN "--out %T/d --steps 2 --log /dev/full");
    check_contains(err_text, "/dev/full cannot be written: No space left");
    check_string(read_all(path_in("d/steps")), "2");
    expect(1, TRAIN "--out %T/e --steps 2 --csv /dev/full");
}

/* A plan: for people, as JSON, as a tape, as files; exit 3 where it cannot fit. */
static void plans(void)
{
    static const char *const keys[] = {
        "schema_version", "asked",  "parameters", "trained_parameters", "tiers",
        "parts",          "chosen", "step",       "plan_seconds"};
    write_rows();
    expect(0, "plan --model %M --batch 2 --seq-len 16");
    check_contains(out_text, "1.0M parameters");
    check_contains(out_text, "1 x 2 rows of 16 tokens");
    check_contains(out_text, "weights  2.000 GB");
    check_contains(out_text, "bound by reads of the store");
    check_contains(out_text, "a day of it writes 2.1 TB");
    expect(0, "plan --model %M --data %T/d.jsonl --json --host-memory 1GiB");
    struct core_json *doc = NULL;
    check_int(core_json_parse(out_text, strlen(out_text), "out", NULL, &doc), ==, 0);
    struct core_json_member member;
    size_t at = 0;
    for (bool any = core_json_first(core_json_root(doc), &member); any;
         any = core_json_next(&member)) {
        check_uint(at, <, sizeof keys / sizeof keys[0]);
        check_string(member.key, keys[at++]);
    }
    check_uint(at, ==, sizeof keys / sizeof keys[0]);
    core_json_destroy(doc);
    check_contains(out_text, "\"seq_len\": 8");
    check_contains(out_text, "\"host_bytes\": 1073741824");
    expect(0, "plan --model %M --tape --trace %T/trace.json --save-rates %T/rates.json");
    check_string(out_text, "READ layer 0\nFWD layer 0\n");
    check_contains(read_all(path_in("trace.json")), "traceEvents");
    check_string(read_all(path_in("rates.json")), "{}\n");
    expect(3, "plan --model %M --host-memory 4K");
    check_contains(err_text, "--host-memory 1.0 MiB would do");
    check_string(out_text, "");
    expect(3, TRAIN "--out %T/p --host-memory 4K");
    check_true(!is_there("p"));
    expect_with(1, "TIDE_PAPER_FAIL=plan 1 5", "plan --model %M");
    expect(1, "plan --model %M --trace %T/no/where");
    expect(2, "plan --model %M --data %T/none");
    free(out_text);
    free(err_text);
    out_text = err_text = NULL;
}

TEST_MAIN({"help", help}, {"usage", usage}, {"log_keys", log_keys}, {"steps", steps},
          {"skipped", skipped}, {"talk", talk}, {"faults", faults}, {"signals", signals},
          {"full_disk", full_disk}, {"plans", plans})
