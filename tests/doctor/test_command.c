/* Tests `tide doctor`. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "core/json/json.h"
#include "tests/harness/test.h"

static char shown[1 << 16]; /* output of the last run */

/* Starts `BEFORE tide doctor ARGUMENTS` in the test's folder. Runs wait for the drive, so several
 * are started together. */
static FILE *start(const char *before, const char *arguments)
{
    char command[2048];
    const char *root = getenv("TIDE_BUILD_ROOT");
    snprintf(command, sizeof command, "cd '%s' && %s '%s/tools/tide' doctor %s", test_directory(),
             before, root != NULL ? root : "build", arguments);
    FILE *pipe = popen(command, "r");
    check_true(pipe != NULL);
    return pipe;
}

/* Waits for a run and returns the exit code; the output is in `shown`. */
static int finish(FILE *pipe)
{
    size_t bytes = fread(shown, 1, sizeof shown - 1, pipe);
    shown[bytes] = '\0';
    int status = pclose(pipe);
    check_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int run(const char *arguments)
{
    return finish(start("", arguments));
}

/* Text in a pipe has counts and no colours; -q prints only problems. */
static void text(void)
{
    if (TEST_RACES) {
        test_skip("the case of --json has the same threads");
    }
    FILE *loud = start("", "");
    FILE *quiet = start("", "-q");
    int code = finish(loud);
    check_true(code == 0 || code == 1);
    check_contains(shown, "\nok    store    .: ");
    check_contains(shown, " fail\n");
    check_true(strchr(shown, '\033') == NULL);
    check_true((strstr(shown, "\nfail ") != NULL) == (code == 1));
    check_true(strstr(shown, "fix:") == NULL || strstr(shown, "\nwarn ") != NULL ||
               strstr(shown, "\nfail ") != NULL);
    finish(quiet);
    check_true(strstr(shown, "ok  ") == NULL);
}

static void check_finding(const struct core_json_value *finding, int64_t counts[3])
{
    static const char *const keys[] = {"verdict", "topic",  "subject", "text",
                                       "cure",    "figure", "value"};
    static const char *const verdicts[] = {"ok", "warn", "fail"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        check_true(core_json_find(finding, keys[i]) != NULL);
    }
    const char *verdict = core_json_string(core_json_find(finding, "verdict"), NULL);
    for (int i = 0; i < 3; i++) {
        counts[i] += strcmp(verdict, verdicts[i]) == 0;
    }
}

/* --json prints one object, whose counts match its findings. */
static void json(void)
{
    int64_t counts[3] = {0};
    int code = run("--json --store . --store=.");
    struct core_json *document = NULL;
    check_int(core_json_parse(shown, strlen(shown), "doctor", NULL, &document), ==, 0);
    const struct core_json_value *top = core_json_root(document);
    const struct core_json_value *findings = core_json_find(top, "findings");
    const struct core_json_value *said = core_json_find(top, "counts");
    check_int(core_json_integer(core_json_find(top, "schema_version")), ==, 1);
    for (size_t i = 0; i < core_json_count(findings); i++) {
        check_finding(core_json_at(findings, i), counts);
    }
    check_int(counts[0], ==, core_json_integer(core_json_find(said, "ok")));
    check_int(counts[1], ==, core_json_integer(core_json_find(said, "warn")));
    check_int(counts[2], ==, core_json_integer(core_json_find(said, "fail")));
    check_int(code, ==, counts[2] > 0 ? 1 : 0);
    check_contains(shown, "\"free_bytes\"");
    check_contains(shown, "\"read_bytes_per_second\"");
    core_json_destroy(document);
}

/* Wrong usage exits with 2 and a message. */
static void wrong_usage(void)
{
    check_int(run("--store nowhere 2>&1"), ==, 2);
    check_contains(shown, "--store nowhere does not exist; mkdir -p 'nowhere'");
    check_int(run("--store nowhere 2>/dev/null"), ==, 2);
    check_string(shown, "");
    check_int(run("--store /etc/passwd 2>&1"), ==, 2);
    check_contains(shown, "is not a folder");
    check_int(run("--stor . 2>&1"), ==, 2);
    check_contains(shown, "did you mean --store?");
    check_int(run("extra 2>&1"), ==, 2);
    check_contains(shown, "unexpected argument \"extra\"");
    check_int(run("--store '' 2>&1"), ==, 2);
    check_contains(shown, "--store is empty; it needs a value: DIR");
    check_int(run("--store \"it's\" 2>&1"), ==, 2);
    check_contains(shown, "mkdir -p 'it'\\''s'");
    check_int(run("--store $(printf 'x%.0s' $(seq 300)) 2>&1"), ==, 2);
    check_contains(shown, "File name too long");
    check_int(run("--store 2>&1"), ==, 2);
}

/* A failing store gives exit code 1 and says what to do. */
static void failing_store(void)
{
    if (TEST_RACES) {
        test_skip("the case of --json has the same threads");
    }
    check_int(run("--store /proc"), ==, 1);
    check_contains(shown, "\nfail  store    /proc: ");
    check_contains(shown, "\n      fix:     ");
}

static int count_shown(const char *text)
{
    int count = 0;
    for (const char *at = shown; (at = strstr(at, text)) != NULL; at++) {
        count++;
    }
    return count;
}

/* Output that cannot be written is a failure, except to a closed pipe. */
static void full_output(void)
{
    if (TEST_RACES) {
        test_skip("it is about what is written, and by one thread");
    }
    FILE *full[] = {start("", "--json 2>&1 >/dev/full"), start("", "2>&1 >/dev/full")};
    for (int i = 0; i < 2; i++) {
        check_int(finish(full[i]), ==, 1);
        check_int(count_shown("cannot be written"), ==, 1);
    }
    if (TEST_SLOW) {
        return; /* sanitizers find nothing more in the runs below */
    }
    FILE *early_json = start("", "--json 2>left.json | head -n 1; cat left.json");
    FILE *early = start("", "2>left | head -n 1; cat left");
    FILE *small = start("ulimit -f 0 &&", "");
    int code = finish(small);
    check_true(code == 0 || code == 1);
    finish(early_json);
    check_true(strncmp(shown, "{\n", 2) == 0);
    check_int(count_shown("cannot be written"), ==, 0);
    finish(early);
    check_int(count_shown("cannot be written"), ==, 0);
}

/* --help fits on a screen and has an example. */
static void help(void)
{
    check_int(run("--help"), ==, 0);
    check_contains(shown, "Example:\n  tide doctor --store ");
    int lines = 0;
    for (const char *at = shown; *at != '\0'; at++) {
        lines += *at == '\n';
    }
    check_int(lines, <=, 24);
}

TEST_MAIN({"text", text}, {"json", json}, {"wrong_usage", wrong_usage},
          {"failing_store", failing_store}, {"full_output", full_output}, {"help", help})
