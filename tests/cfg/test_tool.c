/* Tests the command `tide config`. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/json/json.h"
#include "tests/harness/test.h"

static char *out_text; /* of the last run */
static char *err_text;

static const char *path_in(const char *name)
{
    static char path[2][512];
    static unsigned turn;
    turn = 1 - turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", test_directory(), name);
    return path[turn];
}

static void redirect(int to, const char *path, int flags)
{
    int fd = open(path, flags, 0600);
    if (fd < 0 || dup2(fd, to) < 0) {
        _exit(126);
    }
    close(fd);
}

/* Runs `tide` with the words of `arguments`, standard input from `input`, and output to `output`
 * (NULL: to out_text). Returns the exit code. */
static int run_to(const char *arguments, const char *input, const char *output)
{
    char words[1024];
    char *argv[32] = {NULL};
    char program[512];
    const char *root = getenv("TIDE_BUILD_ROOT");
    snprintf(program, sizeof program, "%s/tools/tide", root != NULL ? root : "build");
    snprintf(words, sizeof words, "%s", arguments);
    argv[0] = program;
    char *rest = words;
    for (size_t i = 1; i < 31; i++) {
        argv[i] = strsep(&rest, " ");
    }
    test_directory();
    pid_t child = fork();
    check_true(child >= 0);
    if (child == 0) {
        redirect(0, input != NULL ? input : "/dev/null", O_RDONLY);
        redirect(1, output != NULL ? output : path_in("out"), O_WRONLY | O_CREAT | O_TRUNC);
        redirect(2, path_in("err"), O_WRONLY | O_CREAT | O_TRUNC);
        execv(program, argv);
        _exit(127);
    }
    int status = 0;
    check_int(waitpid(child, &status, 0), ==, child);
    check_true(WIFEXITED(status));
    size_t bytes = 0;
    free(out_text);
    free(err_text);
    out_text = NULL;
    err_text = NULL;
    check_int(
        core_file_read(output != NULL ? "/dev/null" : path_in("out"), 1 << 20, &out_text, &bytes),
        ==, 0);
    check_int(core_file_read(path_in("err"), 1 << 20, &err_text, &bytes), ==, 0);
    return WEXITSTATUS(status);
}

static int run(const char *arguments)
{
    return run_to(arguments, NULL, NULL);
}

static int run_config(const char *text, const char *options)
{
    char arguments[1024];
    snprintf(arguments, sizeof arguments, "config %s%s%s", options, options[0] != '\0' ? " " : "",
             test_file("c.json", text, strlen(text)));
    return run(arguments);
}

/* --help fits on a screen and has an example; --version names what was built in. */
static void help(void)
{
    static const char *const calls[] = {"--help", "-h", "config --help", "config -h"};
    for (size_t i = 0; i < 4; i++) {
        check_int(run(calls[i]), ==, 0);
        check_contains(out_text, "Example:\n  tide ");
        check_string(err_text, "");
        size_t count = 0;
        for (const char *at = out_text; *at != '\0'; at++) {
            count += *at == '\n';
        }
        check_uint(count, <=, 24);
    }
    check_int(run("help config"), ==, 0);
    check_contains(out_text, "Usage: tide config");
    check_int(run("config --version"), ==, 0);
    check_contains(out_text, "tide 0.");
    check_int(run("--version"), ==, 0);
    check_contains(out_text, "tide 0.");
    check_contains(out_text, "commit ");
    check_contains(out_text, "compiler ");
    check_contains(out_text, "device: cpu");
    check_contains(out_text, "xxhash");
}

/* Wrong usage exits with 2 and prints only to stderr. */
static void usage(void)
{
    static const struct {
        const char *arguments;
        const char *message;
    } cases[] = {
        {"confg", "unknown command confg (did you mean config?)"},
        {"config", "FILE is missing"},
        {"config a b", "at most 1 argument is allowed, but 2 were given"},
        {"config --jsn a", "unknown option --jsn (did you mean --json?)"},
        {"config --world", "--world needs a value: N"},
        {"config --world x a", "--world takes an integer, not \"x\""},
        {"config --world=0 a", "--world takes an integer from 1"},
        {"config --json=yes a", "--json takes no value"},
        {"config --lr fast a", "--lr takes a number"},
        {"config --precision int8 a", "--precision takes one of fp32|fp16|bf16"},
        {"config -x a", "unknown option -x"},
        {"-q", "unknown command -q"},
        {"help confg", "unknown command confg"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_int(run(cases[i].arguments), ==, 2);
        check_contains(err_text, cases[i].message);
        check_string(out_text, "");
    }
    check_int(run_to("config -q -", "/dev/null", NULL), ==, 2);
}

/* An invalid configuration exits with 2 and a message. */
static void codes(void)
{
    check_int(run_config("{\"train_batch_size\": 8}", ""), ==, 0);
    check_contains(out_text, "Defaulted");
    check_contains(out_text, "Resolved\n{");
    check_string(err_text, "");
    check_int(run_config("{\"train_batch_size\": 8}", "--world=3"), ==, 2);
    check_contains(err_text, "is not a multiple of gradient_accumulation_steps 1 x world size 3");
    check_int(run_config("{\"train_batch_size\": \"auto\"}", "--batch 2 --accum 3 --world 4 -q"),
              ==, 0);
    check_int(run_config("{\n\"train_batch_size\": 8,\n\"zero_optimization\": {\"stage\": 5}}", ""),
              ==, 2);
    check_contains(
        err_text, "c.json:3:23: zero_optimization.stage: found 5; allowed: an integer from 0 to 3");
    check_contains(out_text, "Refused");
    check_int(run_config("{", ""), ==, 2);
    check_int(run("config /"), ==, 2);
    check_contains(err_text, "/ is a directory");
    check_int(run("config /nonexistent"), ==, 2);
    check_int(run("config eyJ0cmFpbl9iYXRjaF9zaXplIjogOH0="), ==, 0);
    check_int(run("config eyJ0cmFpbl9iYXRjaF9zaXplIjogOH0"), ==, 0);
    check_int(run("config eyJiZjE2Ijp7fX0="), ==, 0); /* {"bf16":{}} */
    check_int(run("config eyJ0cmFpbl9iYXRjaF9zaXpl"), ==, 2);
    check_contains(err_text, "base64 text:1:2: this string is never closed");
    check_int(run_to("config -", test_file("in.json", "{\"train_batch_size\": 8}", 23), NULL), ==,
              0);
    check_contains(out_text, "standard input, for 1 rank");
    check_int(run("config --keys"), ==, 0);
    check_contains(out_text, "| `zero_optimization.stage` |");
}

/* Output to a full disk fails with exit code 1. */
static void full_disk(void)
{
    if (access("/dev/full", W_OK) != 0) {
        test_skip("no /dev/full here");
    }
    check_int(run_to("config --keys", NULL, "/dev/full"), ==, 1);
    check_contains(err_text, "No space left");
    check_int(run_to("--help", NULL, "/dev/full"), ==, 1);
    check_int(run_to("config eyJ0cmFpbl9iYXRjaF9zaXplIjogOH0=", NULL, "/dev/full"), ==, 1);
    check_contains(err_text, "standard output: JSON cannot be written: No space left");
}

/* --json has the schema of docs/config-json.md. Global options may come first. */
static void json(void)
{
    check_int(
        run_config("{\"train_batch_size\": 8, \"sparse_gradients\": false, \"typo\": 1}", "--json"),
        ==, 0);
    struct core_json *doc = NULL;
    check_int(core_json_parse(out_text, strlen(out_text), "out", NULL, &doc), ==, 0);
    const struct core_json_value *root = core_json_root(doc);
    const struct core_json_value *keys = core_json_find(root, "keys");
    const struct core_json_value *counts = core_json_find(root, "counts");
    check_int(core_json_integer(core_json_find(root, "schema_version")), ==, 1);
    check_true(core_json_bool(core_json_find(root, "valid")));
    check_int(core_json_integer(core_json_find(counts, "warning")), ==, 1);
    check_int(core_json_integer(core_json_find(counts, "refused")), ==, 0);
    check_string(core_json_string(core_json_find(core_json_at(keys, 0), "state"), NULL), "warning");
    check_int(core_json_integer(core_json_find(core_json_at(keys, 0), "line")), ==, 1);
    check_string(core_json_string(core_json_find(core_json_at(keys, 1), "key"), NULL),
                 "train_batch_size");
    check_int(core_json_integer(core_json_find(core_json_at(keys, 1), "value")), ==, 8);
    const struct core_json_value *resolved = core_json_find(root, "resolved");
    check_int(core_json_integer(core_json_find(resolved, "train_micro_batch_size_per_gpu")), ==, 8);
    core_json_destroy(doc);
    check_int(run_config("{\"train_batch_size\": 8}", "-q"), ==, 0);
    char before[1024];
    snprintf(before, sizeof before, "-q -v -q config %s", path_in("c.json"));
    char *quiet = strdup(out_text);
    check_int(run(before), ==, 0);
    check_string(out_text, quiet);
    free(quiet);
    check_int(run_config("{\"train_batch_size\": 0}", "--json"), ==, 2);
    check_contains(out_text, "\"valid\": false");
    check_contains(out_text, "\"resolved\": null");
    free(out_text);
    free(err_text);
    out_text = NULL;
    err_text = NULL;
}

TEST_MAIN({"help", help}, {"usage", usage}, {"codes", codes}, {"full_disk", full_disk},
          {"json", json})
