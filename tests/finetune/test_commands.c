/* Tests `tide finetune` and `tide plan` with an engine that trains nothing. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/json/json.h"
#include "tests/finetune/rig.h"
#include "tests/harness/test.h"

#define RUN_M   "finetune --model %T/m --data %T/d.jsonl --out %T/o "
#define RUN_HAD "finetune --model %T/m --data %T/d.jsonl --resume --out %T/had "
#define DEEP    "finetune --model %M --data %T/d.jsonl --out %T/deep --overwrite --batch 2 "

/* --help fits on a screen; with -v, it explains the flags. */
static void help(void)
{
    static const char *const flags[] = {
        "--config",     "--steps",         "--epochs",      "--seq-len",
        "--batch",      "--accum",         "--lr",          "--betas",
        "--eps",        "--weight-decay",  "--schedule",    "--warmup",
        "--clip",       "--precision",     "--seed",        "--dev",
        "--threads",    "--ranks",         "--zero",        "--tile-bytes",
        "--rates",      "--device-memory", "--host-memory", "--store",
        "--make-store", "--place",         "--io",          "--save-every",
        "--keep",       "--resume",        "--overwrite",   "--eval-data",
        "--eval-every", "--log",           "--csv",         "--tensorboard",
        "--shuffle",    "--optimizer",     "--moments",     "--freeze",
        "--trace",      "--fp32-grads",    "--model",       "--data",
        "--out",        "--lora",
    };
    static const char *const commands[] = {"finetune --help", "plan --help"};
    for (size_t command = 0; command < 2; command++) {
        expect(0, commands[command]);
        check_contains(rig_out, "Example:\n  tide ");
        size_t lines = 0;
        for (const char *line = rig_out; *line != '\0'; lines++) {
            size_t length = strcspn(line, "\n");
            check_uint(length, <=, 86);
            line += length + 1;
        }
        check_uint(lines, <=, 24);
        for (size_t i = 0; i < sizeof flags / sizeof flags[0] && command == 0; i++) {
            check_contains(rig_out, flags[i]);
        }
    }
    expect(0, "finetune --help -v");
    check_contains(rig_out, "replace the model in --out; with --resume: also one of another run");
    check_contains(rig_out, "  --pack [no]\n      pack examples into --seq-len tokens\n");
    check_contains(rig_out, "  --lora-alpha X [twice R]\n      adapters are scaled by X / R\n");
    check_contains(rig_out, "  --modules-to-save NAMES [none]\n");
    check_contains(rig_out, "  --base bf16|int8|nf4 [--precision]\n");
    expect(0, "plan -v --help");
    check_contains(rig_out, "  --tape [no]\n      print the commands of a step\n");
    check_contains(rig_out, "  --nodes N [1]\n      nodes of --machine\n");
    check_contains(rig_out, "  --save-rates FILE [none]\n");
    check_true(strstr(rig_out, "--save-every") == NULL);
}

/* Wrong flags and bad inputs are refused with an exit code of 2 and a message. */
static void usage(void)
{
    static const struct {
        const char *arguments;
        const char *message;
    } cases[] = {
        {"finetune", "--model DIR is missing"},
        {"finetune --model %M", "--data FILE is missing"},
        {"finetune --model %M --data %T/d.jsonl", "--out DIR is missing"},
        {"plan", "--model DIR is missing"},
        {"finetune --modl x", "did you mean --model?"},
        {"finetune --learning_rate 1", "unknown option --learning_rate: use --lr X"},
        {"finetune --local_rank 0",
         "unknown option --local_rank: ranks come from mpirun, srun or torchrun; --ranks N"},
        {"plan --per-device-train-batch-size=4", "use --batch ROWS"},
        {"finetune --use-dora", "use --lora-dora"},
        {"finetune --neat_packing true", "use --pack"},
        {"finetune --rl dpo", "use --loss dpo"},
        {"finetune --val_set_size 0.1", "tide does not split the data: --eval-data FILE"},
        {"finetune --lora-r 8", "use --lora R"},
        {"finetune --adapter-name-or-path a", "use --adapter DIR"},
        {RUN_M "--adapter a --freeze b", "--adapter and --freeze exclude each other"},
        {RUN_M "--lora-alpha 16", "--lora-alpha needs --lora R"},
        {RUN_M "--loss dpo", "--loss dpo needs --lora R or --adapter DIR: its reference is"},
        {RUN_M "--lora 8 --beta 0.2", "--beta needs --loss dpo"},
        {RUN_M "--lora 8 --loss dpo --beta 0", "--beta takes a number from 1e-09"},
        {RUN_M "--lora 8 --loss dpo --seq-len 8 --pack", "--loss dpo cannot be used with --pack"},
        {RUN_M "--lora 8 --loss dpo --seq-len 8 --split", "dpo cannot be used with --split"},
        {RUN_M "--lora 8 --loss dpo --train-on all", "dpo cannot be used with --train-on all"},
        {RUN_M "--lora 8 --modules-to-save a --loss dpo", "cannot be used with --modules-to-save"},
        {RUN_M "--lora 8 --loss", "--loss needs a value"},
        {RUN_M "--lora 8 --loss kto", "--loss takes one of tokens|dpo"},
        {RUN_M "--lora 8 --freeze a", "--lora and --freeze exclude each other"},
        {"plan --model Qwen/Qwen3-0.6B",
         "tide downloads nothing: hf download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B"},
        {"plan --model %M --store %T/x:yy", "\"yy\" is not a size"},
        {"plan --model %M --store %T/d.jsonl", "/d.jsonl is not a folder"},
        {"plan --model %M --trace %T/no/such.json", "such.json cannot be written"},
        {"plan --model %M --batch 99999999999999999999",
         "--batch takes an integer from 1 to 1048576"},
        {"plan --model= --batch 1", "--model is empty; it needs a value: DIR"},
        {"export --out x", "CHECKPOINT is missing"},
        {"export --out x --merge a", "--merge needs two folders, BASE and ADAPTER; found 1"},
        {"export --out x a b", "expected one CHECKPOINT, or --merge BASE ADAPTER; found 2 folders"},
        {TRAIN "--out %T/o --save-every 0", "--save-every takes an integer from 1"},
        {TRAIN "--out %T/o --keep 0", "--keep takes an integer from 1 to 1000000000000000, not 0"},
        {TRAIN "--out %T/o --tensorboard %T/d.jsonl", "d.jsonl"},
        {TRAIN "--out %T/o --steps 1 --epochs 1", "--steps and --epochs exclude each other"},
        {TRAIN "--out %T/o --steps 0", "--steps takes an integer from 1"},
        {TRAIN "--out %T/o --steps 1000000000000000", "from 1 to 100000000, not 1000000000000000"},
        {TRAIN "--out %T/o --seq-len 1", "--seq-len takes an integer from 2"},
        {TRAIN "--out %T/o --ranks 65", "--ranks takes an integer from 1 to 64"},
        {TRAIN "--out %T/o --chat-format nope", "unknown format \"nope\""}, /* rows of ids */
        {TRAIN "--out %T/loop", "Too many levels of symbolic links"},
        {TRAIN "--out %T/lost", "is a symbolic link to nothing"},
        {TRAIN "--out %T/o --pack", "--pack needs --seq-len N"},
        {TRAIN "--out %T/o --split", "--split needs --seq-len N"},
        {TRAIN "--out %T/o --on-bad-row jump", "--on-bad-row takes one of stop|skip"},
        {TRAIN "--out %T/o --data %T/e.jsonl", "--data is given twice, \""},
        {TRAIN "--out %T/o part-b.jsonl",
         "unexpected argument \"part-b.jsonl\"; to pass several files, use a pattern in quotes"},
        {TRAIN "--out %T/o --eval-data a --eval-data b",
         "--eval-data is given twice, \"a\" and \"b\"; to pass several files, use a pattern in "
         "quotes"},
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
        {TRAIN "--out %T/o --trace %T/no/such.json", "such.json cannot be written"},
        {"finetune --model %M --data %T/none.jsonl --out %T/o --log %T/socket",
         "/socket is a socket; name a file"},
        {"finetune --model %M --data %T/none.jsonl --out %T/o --csv %T/full",
         "/full cannot be written: Is a directory"},
        {"plan --model %M --save-rates %T/socket", "/socket is a socket; name a file"},
        {TRAIN "--out %T/o --log -", "--log - does not mean standard output; name a file, or /dev"},
        {TRAIN "--out %T/o --csv=-", "--csv - does not mean standard output; name a file, or /dev"},
        {TRAIN "--out %T/o --trace -", "--trace - does not mean standard output; name a file, or"},
        {TRAIN "--out %T/o --tensorboard -", "--tensorboard - does not mean standard output; name"},
        {"plan --model %M --trace -",
         "--trace - does not mean standard output; name a file, or /d"},
        {"plan --model %M --save-rates -", "--save-rates - does not mean standard output; name a "},
        {TRAIN "--out %T/o --log %T/d.jsonl", "d.jsonl would overwrite the file of --data "},
        {"finetune --model %M --data %T/[d].jsonl --out %T/o --log %T/d.jsonl",
         "d.jsonl would overwrite the file of --data "},
        {TRAIN "--out %T/o --csv %T/./d.jsonl", "d.jsonl would overwrite the file of --data "},
        {TRAIN "--out %T/o --trace %T/d.jsonl", "d.jsonl would overwrite the file of --data "},
        {TRAIN "--out %T/d.jsonl", "is a file; expected a folder"},
        {TRAIN "--out %M", "is the model that is being trained"},
        {TRAIN "--out %M --overwrite", "is the model that is being trained"},
        {TRAIN "--out %T/full", "exists and is not empty"},
        {"finetune --model %T/none --data %T/d.jsonl --out %T/o", "none"},
        {"finetune --model %M/model.safetensors --data %T/d.jsonl --out %T/o",
         "is a file of tensors"},
        {"finetune --model %M --data %T/none.jsonl --out %T/o", "none.jsonl"},
        {"finetune --model %M --data %T/empty.jsonl --out %T/o", "empty.jsonl"},
        {"finetune --model %M --data %T/pipe --out %T/o", "/pipe is a pipe; expected a regular"},
        {TRAIN "--out %T/o --eval-data %T/pipe", "/pipe is a pipe; expected a regular file"},
        {TRAIN "--out %T/o --config %T/pipe", "/pipe is a FIFO; expected a regular file"},
        {TRAIN "--out %T/o --trace %T/pipe", "/pipe is a FIFO, and the run would write it only"},
        {"plan --model %M --trace %T/pipe", "--trace "},
        {"plan --model %M --save-rates %T/pipe", "/pipe is a FIFO, and the run would write it"},
        {"config %T/pipe", "/pipe is a FIFO; expected a regular file, or \"-\" for standard"},
        {"finetune --model %M --data %T/high.jsonl --out %T/o", "high.jsonl:2"},
        {"finetune --model %M --data %T/label.jsonl --out %T/o", "label.jsonl:1"},
        {"finetune --model %M --data %T/long.jsonl --out %T/o", "--seq-len 64 cuts them"},
        {"plan --model %M --json --tape", "exclude each other"},
    };
    char row[1024] = "{\"input_ids\": [1";
    rig_rows();
    for (int i = 0; i < 70; i++) {
        size_t at = strlen(row);
        snprintf(row + at, sizeof row - at, ", 2%s", i == 69 ? "]}\n" : "");
    }
    test_file("long.jsonl", row, strlen(row));
    test_file("empty.jsonl", "\n", 1);
    test_file("high.jsonl", "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 72]}\n", 45);
    test_file("label.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1, 72]}\n", 41);
    mkdir(rig_path("full"), 0700);
    test_file("full/mine", "keep", 4);
    check_int(mkfifo(rig_path("pipe"), 0600), ==, 0);
    check_int(mknod(rig_path("socket"), S_IFSOCK | 0600, 0), ==, 0);
    check_int(symlink("loop", rig_path("loop")), ==, 0);
    check_int(symlink("nothing", rig_path("lost")), ==, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code = rig_run(NULL, cases[i].arguments);
        if (code != 2 || strstr(rig_err, cases[i].message) == NULL || rig_out[0] != '\0') {
            test_fail(__FILE__, __LINE__, "%s ends with %d: %s%s", cases[i].arguments, code,
                      rig_err, rig_out);
        }
        check_true(!rig_has("o"));
    }
    check_string(rig_read("full/mine"), "keep");
    /* Cut rows are reported once; rows that are refused cause no such warning. */
    expect(2, "finetune --model %M --data %T/long.jsonl --out %T/o");
    check_true(strstr(rig_err, "warn") == NULL);
    expect(0, "finetune --model %M --data %T/long.jsonl --out %T/cut --seq-len 64 --batch 1");
    const char *warned = strstr(rig_err, "1 of 1 rows are cut to 64 tokens; --split keeps");
    check_true(warned != NULL && strstr(warned, "warn") == NULL);
    expect(0, "finetune --model %M --data %T/d.jsonl --out %T/wide --batch 9");
    check_contains(rig_err, "d.jsonl has 7 rows and a micro-batch takes 9: --batch 7 is used");
    test_file("one.jsonl", "{\"input_ids\": [1, 2]}\n", 22);
    expect(0, "finetune --model %M --data %T/one.jsonl --out %T/wide --overwrite --batch 9");
    check_contains(rig_err, "one.jsonl has 1 row and a micro-batch takes 9: ");
    expect(0, DEEP "--accum 5");
    check_true(strstr(rig_err, "a step takes") == NULL);
    expect(0, DEEP "--accum 2 --ranks 2");
    check_true(strstr(rig_err, "a step takes") == NULL);
    expect(0, DEEP "--accum 3 --ranks 2");
    check_contains(rig_err,
                   "d.jsonl has 4 micro-batches and a step takes 6, those of rank 0 first; ");
    check_contains(rig_err, "--accum 2 ");
    expect(0, TRAIN "--out %T/full --overwrite --steps 1 -q");
}

/* Starts a process that copies a FIFO to a file. The FIFO has a reader when this returns. */
static pid_t start_reader(const char *fifo, const char *copy)
{
    char text[1 << 12];
    const int from = open(rig_path(fifo), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const int to = open(rig_path(copy), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    check_true(from >= 0 && to >= 0);
    const pid_t child = fork();
    if (child == 0) {
        struct pollfd end = {.fd = from, .events = POLLIN};
        while (poll(&end, 1, -1) > 0 && (end.revents & POLLIN) != 0) {
            const ssize_t bytes = read(from, text, sizeof text);
            if (bytes < 0 || write(to, text, (size_t)bytes) != bytes) {
                _exit(1);
            }
        }
        _exit(0);
    }
    check_int(child, >, 0);
    close(from);
    close(to);
    return child;
}

/* A FIFO that no process reads is refused as a log; a FIFO that is read gets the log. */
static void fifos(void)
{
    char text[1 << 12];
    static const char *const cases[] = {
        TRAIN "--out %T/fifo --log %T/lines",
        TRAIN "--out %T/fifo --csv %T/lines",
        TRAIN "--out %T/fifo --resume --log %T/lines",
        "finetune --model %M --data %T/none.jsonl --out %T/fifo --log %T/lines",
    };
    rig_rows();
    check_int(mkfifo(rig_path("lines"), 0600), ==, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect(2, cases[i]);
        check_contains(rig_err, "lines cannot be written: it is a FIFO that no process reads; ");
    }
    const int reader = open(rig_path("lines"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    expect(0, TRAIN "--out %T/fifo --steps 1 --csv %T/lines");
    const ssize_t bytes = read(reader, text, sizeof text - 1);
    close(reader);
    text[bytes > 0 ? bytes : 0] = '\0';
    check_contains(text, "step,");
    check_contains(text, "\n1,");
    int status = 1;
    const pid_t child = start_reader("lines", "copy");
    expect(0, TRAIN "--out %T/fifo --overwrite --steps 2 --log %T/lines");
    check_true(waitpid(child, &status, 0) == child && status == 0);
    check_contains(rig_read("copy"), "\"step\":2");
}

/* Outputs that would overwrite an input or another output are refused. */
static void written(void)
{
    static const struct {
        const char *arguments;
        const char *first, *second; /* the message names these */
    } cases[] = {
        {"plan --model %T/m --trace %T/m/model.safetensors", "--trace ", "--model "},
        {"plan --model %T/m --trace %T/cached", "--trace ", "--model "},
        {"plan --model %T/m --data %T/d.jsonl --trace %T/hard.jsonl", "--trace ", "--data "},
        {"plan --model %T/m --data %T/d.jsonl --save-rates %T/d.jsonl", "--save-rates ", "--data "},
        {"plan --model %T/m --rates %T/r.json --save-rates %T/r.json", "--save-rates ", "--rates "},
        {"plan --model %T/m --config %T/r.json --trace %T/r.json", "--trace ", "--config "},
        {"plan --model %T/m --eval-data %T/d.jsonl --data %T/none --trace %T/d.jsonl", "--trace ",
         "--eval-data "},
        {"plan --model %T/m --trace %T/n --save-rates %T/./n", "--trace ", "--save-rates "},
        {RUN_M "--log %T/m/config.json", "--log ", "--model "},
        {RUN_M "--tensorboard %T/./m/", "--tensorboard ", "is the folder of --model "},
        {RUN_M "--csv %T/m/deep/x.csv", "--csv ", "--model "},
        {RUN_M "--log %T/f --csv %T/m/../f", "--log ", "--csv "},
        {RUN_M "--log %T/f --trace %T/f", "--log ", "--trace "},
        {RUN_M "--log %T/o", "--log ", "--out "},
        {RUN_M "--rates %T/r.json --csv %T/r.json", "--csv ", "--rates "},
        {"finetune --model %T/m --data %T/d.jsonl --resume --out %T/had --log "
         "%T/had/checkpoint-2/log",
         "--log ", "--out "},
        {RUN_HAD "--log %T/had/config.json", "--log ", "--out "},
        {RUN_HAD "--trace %T/had/model.safetensors", "--trace ", "--out "},
        {RUN_HAD "--log %T/had/model.safetensors.index.json", "--log ", "--out "},
        {RUN_HAD "--csv %T/had/.tide-lock", "--csv ", "--out "},
        {RUN_HAD "--log %T/had/generation_config.json", "--log ", "--out "},
        {RUN_HAD "--log %T/had.partial/log", "--log ", "--out "},
        {RUN_M "--log %T/o.partial/log", "--log ", "--out "},
        {RUN_M "--out %T/p --log %T/p.partial/log", "--log ", "--out "}, /* no p.partial yet */
        {RUN_M "--out %T/p --tensorboard %T/p.partial", "--tensorboard ", "--out "},
        {"finetune --model %T/m --data %T/d*.jsonl --out %T/o --log %T/dd.jsonl", "--log ",
         "--data "},
    };
    char line[2000];
    rig_rows();
    snprintf(line, sizeof line, "cp -r '%s/model/fixtures/llama' '%s/m' && chmod -R u+w '%s/m'",
             test_root(), test_directory(), test_directory());
    check_int(system(line), ==, 0);
    check_int(rename(rig_path("m/model.safetensors"), rig_path("cached")), ==, 0);
    check_int(symlink("../cached", rig_path("m/model.safetensors")), ==, 0);
    check_int(symlink("m/new.json", rig_path("dangling")), ==, 0);
    check_int(link(rig_path("d.jsonl"), rig_path("hard.jsonl")), ==, 0);
    check_int(mkdir(rig_path("had"), 0700) + mkdir(rig_path("had/checkpoint-2"), 0700), ==, 0);
    check_int(mkdir(rig_path("had.partial"), 0700), ==, 0);
    /* A killed run left only its partial folder. */
    check_int(mkdir(rig_path("o.partial"), 0700), ==, 0);
    test_file("m/generation_config.json", "{}", 2);
    check_int(mkdir(rig_path("m/deep"), 0700), ==, 0);
    test_file("m/deep/x.csv", "old", 3);
    test_file("r.json", "{}\n", 3);
    struct stat before;
    struct stat after;
    check_int(stat(rig_path("cached"), &before), ==, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int code = rig_run(NULL, cases[i].arguments);
        if (code != 2 || strstr(rig_err, cases[i].first) == NULL ||
            strstr(rig_err, cases[i].second) == NULL || strstr(rig_err, "; name ") == NULL) {
            test_fail(__FILE__, __LINE__, "%s ends with %d: %s", cases[i].arguments, code, rig_err);
        }
        check_true(!rig_has("o") && !rig_has("f") && !rig_has("n") && !rig_has("dd.jsonl"));
    }
    check_int(stat(rig_path("cached"), &after), ==, 0);
    check_true(before.st_size == after.st_size && before.st_mtime == after.st_mtime);
    check_int(rmdir(rig_path("o.partial")), ==, 0);
    check_contains(rig_read("d.jsonl"), "{\"input_ids\": [7, 2,");
    check_string(rig_read("r.json"), "{}\n");
    check_true(!rig_has("m/new.json") && !rig_has("had/checkpoint-2/log"));
    /* Several outputs may go to the same device. */
    expect(0, RUN_M "--steps 1 --log /dev/null --csv /dev/null --trace %T/t.json");
}

/* A run that is refused, or fails before its first step, leaves no output files. */
static void refused(void)
{
    static const char run_all[] = TRAIN "--steps 2 --out %T/again --log %T/w.jsonl --csv %T/w.csv "
                                        "--tensorboard %T/wb/one --trace %T/w.json";
    rig_rows();
    test_file("file", "", 0);
    mkdir(rig_path("folder"), 0700);
    expect(2, TRAIN "--out %T/again --tensorboard %T/file");
    check_contains(rig_err, "/file cannot be written: Not a directory");
    expect(2, TRAIN "--out %T/again --log %T/w.jsonl --csv %T/folder");
    check_contains(rig_err, "/folder cannot be written: Is a directory");
    check_true(!rig_has("again") && !rig_has("w.jsonl"));
    expect_with(1, "TIDE_PAPER_FAIL=create 1 5", run_all);
    expect_with(1, "TIDE_PAPER_FAIL=try 1 28", run_all);
    check_true(!rig_has("w.jsonl") && !rig_has("w.csv") && !rig_has("wb") && !rig_has("w.json"));
    expect(0, run_all);
    check_true(rig_has("w.jsonl") && rig_has("w.csv") && rig_has("wb/one"));
    expect(2, run_all);
    check_contains(rig_err, "exists and is not empty");
}

/* A file of the user is not taken for a log or a table, nor is one that a running process writes.
 * The data is not read before. */
static void kept_files(void)
{
    static const char foreign[] = "a file without a newline at its end";
    static const struct {
        const char *flags, *file;
        const char *message;
    } cases[] = {
        {"--log %T/mine", "mine", "/mine: the file there is not a log of tide finetune; name "},
        {"--csv %T/mine", "mine", "/mine: the file there is not a table of tide finetune; name "},
        {"--resume --log %T/mine", "mine", "--log "},
        {"--resume --csv %T/mine", "mine", "--csv "},
        {"--config %T/mine.json", "job/steps.csv", "csv_monitor.output_path "},
    };
    char text[2000];
    rig_rows();
    test_file("mine", foreign, strlen(foreign));
    mkdir(rig_path("job"), 0700);
    test_file("job/steps.csv", foreign, strlen(foreign));
    const int bytes = snprintf(text, sizeof text,
                               "{\"train_batch_size\": 4, \"csv_monitor\": {\"enabled\": true, "
                               "\"output_path\": \"%s\", \"job_name\": \"job\"}}",
                               test_directory());
    test_file("mine.json", text, (size_t)bytes);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text,
                 "finetune --model %%M --data %%T/none.jsonl --batch 2 --accum 2 --out %%T/kept %s",
                 cases[i].flags);
        expect(2, text);
        check_contains(rig_err, cases[i].message);
        check_string(rig_read(cases[i].file), foreign);
        check_true(!rig_has("kept"));
    }
    expect(0, TRAIN "--out %T/kept --steps 1 --log %T/kept.jsonl");
    const int used = open(rig_path("kept.jsonl"), O_RDONLY | O_CLOEXEC);
    check_true(used >= 0 && flock(used, LOCK_EX) == 0);
    expect(2, TRAIN "--out %T/kept --overwrite --steps 2 --log %T/kept.jsonl");
    check_contains(rig_err, "kept.jsonl: a running process writes there; name another file");
    check_contains(rig_read("kept.jsonl"), "{\"step\":1,");
    close(used);
    expect(0, TRAIN "--out %T/kept --overwrite --steps 2 --log %T/kept.jsonl");
    /* Standard error may be a file that has text already. */
    expect(0, TRAIN "--out %T/kept --overwrite --steps 1 --log /dev/stderr");
    check_contains(rig_err, "{\"median_seconds\":");
}

/* A run that ends without a step removes the folder that it made for its log. */
static void folder_of_the_log(void)
{
    static const char run[] = TRAIN "--out %T/lone --steps 2 --log %T/lone/run.jsonl "
                                    "--csv %T/lone/run.csv --trace %T/lone/trace.json";
    rig_rows();
    expect_with(1, "TIDE_PAPER_FAIL=create 1 5", run);
    check_true(!rig_has("lone"));
    expect_with(1, "TIDE_PAPER_FAIL=step 1 5", run);
    check_true(!rig_has("lone") && !rig_has("lone.partial"));
    expect_with(1, "TIDE_PAPER_FAIL=step 2 5", run);
    check_contains(rig_read("lone/run.jsonl"), "{\"step\":1,");
    check_contains(rig_read("lone/run.csv"), "\n1,");
    expect(2, run);
    check_contains(rig_err, "/lone exists and is not empty; name another folder, or give --over");
    rig_remove("lone");
    expect(0, run);
    check_true(rig_has("lone/steps") && rig_has("lone/run.jsonl") && rig_has("lone/run.csv"));
    /* Other folders are not created. */
    expect(2, TRAIN "--out %T/lacks --log %T/lacks/logs/run.jsonl");
    check_contains(rig_err, "lacks/logs/run.jsonl cannot be written: No such file or directory");
    check_true(!rig_has("lacks"));
}

/* The log has a line with these keys for each step, then the summary. */
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
                                       "rss_gb",
                                       "run",
                                       "plan"};
    static const char *const waits[] = {"store_read", "store_write", "update", "copy",
                                        "imbalance",  "other",       "data"};
    static const char *const summary[] = {"median_seconds", "tokens_per_second", "peak_rss_gb",
                                          "peak_device_gb", "plan_host_gb",      "plan_device_gb",
                                          "plan_seconds"};
    rig_rows();
    expect(0, TRAIN "--out %T/keys --epochs 1.5 --log %T/l.jsonl --csv %T/l.csv");
    char *text = strdup(rig_read("l.jsonl"));
    size_t lines = 0;
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL && line[0] != '\0';) {
        struct core_json *doc = NULL;
        check_int(core_json_parse(line, strlen(line), "line", NULL, &doc), ==, 0);
        const struct core_json_value *root = core_json_root(doc);
        const bool last = lines++ == 3;
        const char *const *names = last ? summary : keys;
        const size_t all = sizeof keys / sizeof keys[0];
        const size_t count = last ? sizeof summary / sizeof summary[0] : lines == 1 ? all : all - 2;
        struct core_json_member member;
        size_t at = 0;
        for (bool any = core_json_first(root, &member); any; any = core_json_next(&member)) {
            check_uint(at, <, count);
            check_string(member.key, names[at++]);
        }
        check_uint(at, ==, count);
        const struct core_json_value *wait = core_json_find(root, "wait");
        for (size_t i = 0; i < 7 && !last; i++) {
            check_true(core_json_find(wait, waits[i]) != NULL);
        }
        if (lines == 2) {
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
    check_contains(rig_read("l.csv"), "step,loss,grad_norm,lr,");
    check_contains(rig_read("l.csv"), "\n3,2.66666667,1.5,5e-05,1,0,");
}

/* Events between two steps are in the line of the next step. */
static void events(void)
{
    rig_rows();
    expect_with(0, "TIDE_PAPER_FAIL=checkpoint 2 28",
                TRAIN "--out %T/ev --steps 5 --save-every 1 --log %T/ev.jsonl");
    const char *log = rig_read("ev.jsonl");
    const char *second = strstr(log, "{\"step\":2,");
    const char *third = strstr(log, "{\"step\":3,");
    check_true(second != NULL && third != NULL);
    check_contains(second,
                   "\"events\":[{\"kind\":\"save\",\"text\":\"checkpoint-1\"}]}\n{\"step\":3");
    check_contains(third, "\"events\":[{\"kind\":\"warning\",\"text\":\"the checkpoint of step 2 "
                          "was not written: paper: checkpoint 2 fails with 28; the run continues");
    check_contains(log, "\"run\":{\"schema_version\":1,\"time\":\"2");
    check_contains(log, "\"steps\":5,\"begun\":0,\"eval_every\":0,\"save_every\":1,\"clip\":1.0,"
                        "\"device_bytes\":1990000000,\"host_bytes\":990000000}");
    check_contains(log, "\"plan\":{\"schema_version\":1,\"asked\":{\"model\":");
}

/* The monitors of ds_config.json write to DeepSpeed's paths; flags win. */
static void monitors(void)
{
    char config[8192];
    rig_rows();
    int bytes = snprintf(config, sizeof config,
                         "{\"train_batch_size\": 4, \"tensorboard\": {\"enabled\": true, "
                         "\"output_path\": \"%s/tb\", \"job_name\": \"one\"},\n\"csv_monitor\": "
                         "{\"enabled\": true, \"output_path\": \"%s/cs\", \"job_name\": \"two\"}}",
                         test_directory(), test_directory());
    test_file("mon.json", config, (size_t)bytes);
    expect(0, TRAIN "--out %T/mo --steps 2 --config %T/mon.json");
    check_contains(rig_read("cs/two/steps.csv"), "step,loss,");
    check_true(rig_has("tb/one"));
    check_true(strstr(rig_err, "wins over") == NULL);
    expect(0,
           TRAIN "--out %T/mp --steps 2 --config %T/mon.json --csv %T/m.csv --tensorboard %T/tb2");
    check_contains(rig_err, "--csv wins over csv_monitor.output_path");
    check_contains(rig_err, "--tensorboard wins over tensorboard.output_path");
    check_true(rig_has("tb2") && rig_has("m.csv"));
    static char wide[5000];
    memset(wide, 'x', sizeof wide - 1);
    bytes = snprintf(config, sizeof config,
                     "{\"train_batch_size\": 4, \"csv_monitor\": {\"enabled\": true, "
                     "\"output_path\": \"%s\"}}",
                     wide);
    test_file("wide.json", config, (size_t)bytes);
    expect(2, TRAIN "--out %T/mq --config %T/wide.json");
    check_contains(rig_err, "csv_monitor.output_path names a path of ");
}

/* The engine gets the scheduled learning rates and the micro-batches of the data. */
static void steps(void)
{
    static char notes[600];
    rig_rows();
    snprintf(notes, sizeof notes, "TIDE_PAPER_NOTES=%s", rig_path("notes"));
    expect_with(0, notes, TRAIN "--out %T/s --epochs 2 --lr 1 --schedule linear --warmup 2 -q");
    check_string(rig_read("notes"), "0 2 2x8:1 2x8:3\n0.5 2 2x8:5 1x8:7\n"
                                    "1 2 2x8:1 2x8:3\n0.5 2 2x8:5 1x8:7\n");
    check_string(rig_err, "");
    check_contains(rig_out, "/s: 4 steps, loss 8.0000 -> 2.0000");
    check_string(rig_read("s/steps"), "4");
}

/* A plan that was off is reported if enough whole steps were measured, unless --rates is given. */
static void rates(void)
{
    static const struct {
        const char *arguments;
        bool off;
    } cases[] = {
        {DEEP "--accum 2 --epochs 1", false}, /* one step after the first */
        {DEEP "--accum 2 --epochs 1.5", true},
        {DEEP "--accum 3 --epochs 2", false}, /* steps of 3, 1, 3, 1 micro-batches */
        {DEEP "--accum 3 --epochs 3", true},
        {DEEP "--accum 9 --epochs 3", true}, /* an epoch has 4 micro-batches, so 4 are planned */
        {DEEP "--accum 9 --ranks 2 --epochs 9", false},
        {DEEP "--accum 2 --epochs 9 --rates %T/rates.json", false},
    };
    rig_rows();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect(0, cases[i].arguments);
        const bool off = strstr(rig_err, "plan was off by 50 %") != NULL;
        if (off != cases[i].off) {
            test_fail(__FILE__, __LINE__, "%s: %s", cases[i].arguments, rig_err);
        }
    }
}

/* A skipped step does not advance the schedule. */
static void skipped(void)
{
    static char notes[600];
    rig_rows();
    snprintf(notes, sizeof notes, "TIDE_PAPER_NOTES=%s", rig_path("skips"));
    expect_with(0, notes,
                TRAIN
                "--out %T/k --steps 4 --lr 1 --schedule linear --precision fp16 --csv %T/k.csv");
    check_contains(rig_read("skips"), "1 2 2x8:1 2x8:3\n0.75 2 ");
    check_contains(rig_read("skips"), "\n0.75 2 2x8:1 2x8:3\n0.5 2 ");
    check_contains(rig_err, "skipped: overflow");
    check_contains(rig_out, "1 skipped for overflow");
}

/* Progress is printed to stderr, the result to stdout. */
static void talk(void)
{
    rig_rows();
    expect(0, TRAIN "--out %T/t --steps 3 --eval-data %T/d.jsonl --eval-every 2 --log %T/t.jsonl");
    check_contains(rig_err, "plan: 1.0M parameters; DEVICE 2.000 GB, HOST 1.000 GB");
    check_contains(rig_err, "step 1/3  loss 8.0000");
    check_contains(rig_err, "step 3/3  loss 2.6667");
    check_contains(rig_err, "40 % stalled on store reads");
    check_contains(rig_err, "planned: 0.5 s per step, 3.000 GB of memory; measured: 0.25 s");
    check_contains(rig_out, "eval loss 3.0000\n");
    check_true(strstr(rig_err, "\r") == NULL);
    check_contains(rig_read("t.jsonl"), "\"eval_loss\":3.0}\n");
}

/* If a call of the engine fails, the exit code depends on the error, and the message is printed. */
static void faults(void)
{
    static const struct {
        const char *fault;
        int code;
        const char *message;
    } cases[] = {
        {"TIDE_PAPER_FAIL=create 1 5", 1, "paper: create 1 fails with 5"},
        {"TIDE_PAPER_FAIL=create 1 22", 2, "paper: create 1 fails with 22"},
        {"TIDE_PAPER_FAIL=create 1 27", 3, "paper: create 1 fails with 27"},
        {"TIDE_PAPER_FAIL=create 1 125", 130, "before the first step; nothing was trained"},
        {"TIDE_PAPER_FAIL=try 1 28", 1, "paper: try 1 fails with 28"},
        {"TIDE_PAPER_FAIL=step 1 5", 1, "paper: step 1 fails with 5"},
        {"TIDE_PAPER_FAIL=step 3 33", 1, "tide finetune: step 3: paper: step 3 fails with 33"},
        {"TIDE_PAPER_FAIL=evaluate 2 5", 1, "paper: evaluate 2 fails with 5"},
        {"TIDE_PAPER_FAIL=save 1 28", 1, "paper: save 1 fails with 28"},
    };
    rig_rows();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_with(cases[i].code, cases[i].fault,
                    TRAIN
                    "--out %T/f --steps 4 --eval-data %T/d.jsonl --overwrite --log %T/f.jsonl");
        check_contains(rig_err, cases[i].message);
        check_string(rig_out, "");
        if (i == 6) {
            const char *log = rig_read("f.jsonl");
            check_contains(log, "{\"step\":2,");
            check_contains(log, "{\"median_seconds\":0.25,");
        }
    }
}

/* A failed checkpoint is reported, and the run continues. */
static void checkpoints(void)
{
    rig_rows();
    expect(0, TRAIN "--out %T/pa --steps 5 --save-every 2 --resume");
    check_contains(rig_err, "no checkpoint in ");
    check_true(rig_has("pa/checkpoint-2") && rig_has("pa/checkpoint-4") &&
               !rig_has("pa/checkpoint-5"));
    check_string(rig_read("pa/checkpoint-2"), "keep 2, replace 0");
    expect(0, TRAIN "--out %T/qa --steps 2 --save-every 1 --keep 7 --overwrite");
    check_string(rig_read("qa/checkpoint-1"), "keep 7, replace 1");
    expect_with(0, "TIDE_PAPER_FAIL=checkpoint 1 28", TRAIN "--out %T/ra --steps 4 --save-every 2");
    check_contains(rig_err,
                   "the checkpoint of step 2 was not written: paper: checkpoint 1 fails with 28");
    check_contains(rig_err, "28; the run continues, and the next one is due after step 4\n");
    check_contains(rig_out, ", 1 of 2 checkpoints not written");
    /* Step 2 is skipped, so its checkpoint is that of step 3. */
    expect_with(0, "TIDE_PAPER_FAIL=checkpoint 1 28",
                TRAIN "--out %T/rs --steps 4 --save-every 2 --precision fp16");
    check_contains(rig_err, "the checkpoint of step 3 was not written: ");
    check_contains(rig_err, "; the run continues, and the next one is due after step 4\n");
    expect_with(1, "TIDE_PAPER_FAIL=checkpoint 1 28", TRAIN "--out %T/rl --steps 5 --save-every 3");
    check_contains(rig_err, "the checkpoint of step 3 was not written: ");
    check_contains(rig_err, "; the run continues, and no other one is due\n");
    /* A failure of the last checkpoint is reported even with -q. */
    expect_with(1, "TIDE_PAPER_FAIL=checkpoint 2 28",
                TRAIN "--out %T/rb --steps 4 --save-every 2 -q");
    check_contains(rig_err, "the model is in ");
    check_contains(rig_err, "the last checkpoint was not written: checkpoint-4: paper: checkpoint "
                            "2 fails with 28");
    expect_with(1, "TIDE_PAPER_FAIL=trace 1 28", TRAIN "--out %T/rc --steps 2 --trace %T/rc.json");
    check_contains(rig_err, "paper: trace 1 fails with 28");
    check_true(rig_has("rc/steps"));
    check_true(!rig_has("ra/checkpoint-2") && rig_has("ra/checkpoint-4"));
    check_string(rig_read("ra/steps"), "4");
    expect_with(1, "TIDE_PAPER_FAIL=wait 1 28", TRAIN "--out %T/wa --steps 2 --save-every 2 -q");
    check_contains(rig_err,
                   "the last checkpoint was not written: checkpoint-2: paper: wait 1 fails");
    check_contains(rig_out, ", 1 of 1 checkpoints not written");
}

/* A signal ends the run after the step, with a checkpoint. In the last step or later it changes
 * nothing. */
static void signals(void)
{
    rig_rows();
    expect_with(130, "TIDE_PAPER_SIGNAL=2 2", TRAIN "--out %T/i --steps 5");
    check_contains(rig_err, "stopped by a signal after step 2 of 5; ");
    check_contains(rig_err, "checkpoint-2 has the complete state");
    check_true(rig_has("i/checkpoint-2") && !rig_has("i/steps"));
    expect_with(130, "TIDE_PAPER_SIGNAL=1 15", TRAIN "--out %T/j --steps 5");
    check_true(rig_has("j/checkpoint-1"));
    setenv("TIDE_PAPER_SIGNAL", "3 2", 1);
    expect_with(1, "TIDE_PAPER_FAIL=checkpoint 1 28", TRAIN "--out %T/ka --steps 5");
    unsetenv("TIDE_PAPER_SIGNAL");
    check_contains(rig_err, "paper: checkpoint 1 fails with 28");
    expect_with(0, "TIDE_PAPER_SIGNAL=5 2", TRAIN "--out %T/last --steps 5");
    expect_with(0, "TIDE_PAPER_SIGNAL=0 15", TRAIN "--out %T/late --steps 5");
    expect_with(0, "TIDE_PAPER_SIGNAL=-1 10", TRAIN "--out %T/later --steps 5");
}

/* A full disk for the log does not end the run, but changes the exit code to 1. */
static void full_disk(void)
{
    if (access("/dev/full", W_OK) != 0) {
        test_skip("no /dev/full here");
    }
    rig_rows();
    expect(1, TRAIN "--out %T/d --steps 2 --log /dev/full");
    check_contains(rig_err, "/dev/full cannot be written: No space left");
    check_string(rig_read("d/steps"), "2");
    expect(1, TRAIN "--out %T/e --steps 2 --csv /dev/full");
}

/* A plan is printed as text, JSON, or a tape; the exit code is 3 if the plan does not fit. */
static void plans(void)
{
    static const char *const keys[] = {
        "schema_version", "asked",  "parameters", "trained_parameters", "tiers",       "kept_base",
        "parts",          "chosen", "step",       "alternatives",       "plan_seconds"};
    rig_rows();
    expect(0, "plan --model %M --batch 2 --seq-len 16");
    check_contains(rig_out, "1.0M parameters");
    check_contains(rig_out, "1 x 2 rows of 16 tokens");
    check_contains(rig_out, "weights  2.000 GB");
    check_contains(rig_out, "bottleneck: reads of the store");
    check_contains(rig_out,
                   "instead of this: activations keep, update deferred: 0.5 s in 4.000 GB: "
                   "twice as slow");
    check_contains(rig_out, "2.1 TB written per day");
    expect(0, "plan --model %M --data %T/d.jsonl --json --host-memory 1GiB");
    struct core_json *doc = NULL;
    check_int(core_json_parse(rig_out, strlen(rig_out), "out", NULL, &doc), ==, 0);
    struct core_json_member member;
    size_t at = 0;
    for (bool any = core_json_first(core_json_root(doc), &member); any;
         any = core_json_next(&member)) {
        check_uint(at, <, sizeof keys / sizeof keys[0]);
        check_string(member.key, keys[at++]);
    }
    check_uint(at, ==, sizeof keys / sizeof keys[0]);
    core_json_destroy(doc);
    check_contains(rig_out, "\"seq_len\": 8");
    check_contains(rig_out, "\"host_bytes\": 1073741824");
    expect(0, "plan --model %M --data %T/d.jsonl --json --batch 2 --accum 16384");
    check_contains(rig_out, "\"accum\": 4,");
    expect(0, "plan --model %M --tape --trace %T/trace.json --save-rates %T/rates.json");
    check_string(rig_out, "READ layer 0\nFWD layer 0\n");
    check_contains(rig_read("trace.json"), "traceEvents");
    check_string(rig_read("rates.json"), "{}\n");
    expect(3, "plan --model %M --host-memory 4K");
    check_contains(rig_err, "--host-memory 1.0 MiB would do");
    check_string(rig_out, "");
    expect(3, TRAIN "--out %T/p --host-memory 4K");
    check_true(!rig_has("p"));
    expect_with(1, "TIDE_PAPER_FAIL=plan 1 5", "plan --model %M");
    expect(2, "plan --model %M --trace %T/no/where");
    expect(2, "plan --model %M --data %T/none");
    rig_end();
}

TEST_MAIN({"help", help}, {"usage", usage}, {"fifos", fifos}, {"written", written},
          {"refused", refused}, {"kept_files", kept_files},
          {"folder_of_the_log", folder_of_the_log}, {"log_keys", log_keys}, {"events", events},
          {"monitors", monitors}, {"steps", steps}, {"rates", rates}, {"skipped", skipped},
          {"talk", talk}, {"faults", faults}, {"checkpoints", checkpoints}, {"signals", signals},
          {"full_disk", full_disk}, {"plans", plans})
