/* Tests `tide tokenize`. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/file.h"
#include "tests/harness/test.h"

static char *said; /* of the last command */

static int run(const char *arguments)
{
    char line[2000];
    size_t bytes;
    const char *root = getenv("TIDE_BUILD_ROOT");
    snprintf(line, sizeof line, "cd '%s' && '%s/tools/tide' tokenize %s >said 2>&1",
             test_directory(), root != NULL ? root : "build", arguments);
    const int status = system(line);
    free(said);
    snprintf(line, sizeof line, "%s/said", test_directory());
    check_int(core_file_read(line, 1 << 20, &said, &bytes), ==, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256;
}

static char *read_out(const char *name)
{
    char path[4096];
    char *text = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", test_directory(), name);
    check_int(core_file_read(path, 1 << 20, &text, &bytes), ==, 0);
    return text;
}

static void make_files(void)
{
    static const char config[] = "{\"eos_token\": \"<|endoftext|>\", \"chat_template\": \"{% for m "
                                 "in messages %}{{ m.role }}:"
                                 "{{ m.content }}{{ eos_token }}{% endfor %}{% if "
                                 "add_generation_prompt %}assistant:{% endif "
                                 "%}\"}";
    static const char rows[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
        "\"content\": \"a\\nb\"}]}\n{\"text\": \"abc\"}\n";
    static const char bad[] = "{\"text\": \"abc\"}\n{\"messages\": 3}\n";
    char path[4096];
    char *tokenizer = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "%s/text/fixtures/gpt2.json", test_root());
    check_int(core_file_read(path, 1 << 24, &tokenizer, &bytes), ==, 0);
    snprintf(path, sizeof path, "%s/model", test_directory());
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/model/config.json", test_directory());
    unlink(path); /* left by an earlier case */
    test_file("model/tokenizer.json", tokenizer, bytes);
    test_file("model/tokenizer_config.json", config, strlen(config));
    test_file("rows.jsonl", rows, strlen(rows));
    test_file("bad.jsonl", bad, strlen(bad));
    free(tokenizer);
}

/* Rows are shown as tokens, with trained ones in brackets. */
static void shows(void)
{
    make_files();
    check_int(run("--model model --data rows.jsonl"), ==, 0);
    check_contains(said, ":[a][\\n\n][b][<|endoftext|>]\n");
    check_contains(said, "user:");
    check_contains(said, "2: ");
    check_int(run("--model model --data rows.jsonl --show 1 --train-on all"), ==, 0);
    check_contains(said, "1: ");
    check_contains(said, "[:]");
    check_true(strstr(said, "2: ") == NULL);
}

/* Written rows of ids can be read again; without a model, ids are shown as numbers. */
static void writes(void)
{
    make_files();
    check_int(run("--model model --data rows.jsonl --out a.jsonl"), ==, 0);
    check_int(run("--data a.jsonl --out b.jsonl"), ==, 0);
    char *first = read_out("a.jsonl");
    char *second = read_out("b.jsonl");
    check_string(first, second);
    check_contains(first, "{\"input_ids\":[");
    free(first);
    free(second);
    check_int(run("--data a.jsonl --show 2"), ==, 0);
    check_contains(said, " [");
    check_int(run("--data a.jsonl --out -"), ==, 0);
    check_contains(said, "\"labels\":[-100,");
    check_int(run("--data a.jsonl --out /nonexistent/x"), ==, 2);
    check_contains(said, "/nonexistent/x cannot be written");
}

/* --stats counts rows, documents, and split and bad rows. */
static void counts(void)
{
    make_files();
    check_int(run("--model model --data rows.jsonl --stats --seq-len 64 --pack"), ==, 0);
    check_contains(said, "rows read                     2\n");
    check_contains(said, "documents                     2  of ");
    check_contains(said, "rows of 64                    1  (packed, ");
    check_contains(said, "####");
    check_int(run("--model model --data rows.jsonl --stats --seq-len 3 --split"), ==, 0);
    check_contains(said, "split                     ");
    check_int(run("--model model --data bad.jsonl --stats --on-bad-row skip"), ==, 0);
    check_contains(said, "  invalid, skipped            1\n");
    check_contains(said, "skipped: bad.jsonl:2: messages: is not a list of messages");
}

/* A pair is shown as two rows and counted once. */
static void pairs(void)
{
    static const char rows[] = "{\"prompt\": \"ab\", \"chosen\": \"!\", \"rejected\": \"??\"}\n"
                               "{\"chosen\": \"Hi\\n+\", \"rejected\": \"Hi\\n-\"}\n"
                               "{\"prompt\": \"ab\", \"chosen\": \"=\", \"rejected\": \"=\"}\n";
    make_files();
    test_file("pairs.jsonl", rows, strlen(rows));
    check_int(run("--model model --data pairs.jsonl --loss dpo --show 2"), ==, 0);
    check_contains(said, "1 chosen: 4 tokens, 2 trained on\nab[!][<|endoftext|>]\n\n"
                         "1 rejected: 5 tokens, 3 trained on\nab[?][?][<|endoftext|>]\n\n"
                         "2 chosen: 5 tokens, 2 trained on\nHi\\n\n[+][<|endoftext|>]\n\n"
                         "2 rejected: 5 tokens, 2 trained on\nHi\\n\n[-][<|endoftext|>]\n");
    check_true(strstr(said, "3 chosen") == NULL);
    check_int(run("--model model --data pairs.jsonl --loss dpo --stats"), ==, 0);
    check_contains(said, "rows read                     3\n");
    check_contains(said, "pairs                         3  (1 with the same tokens twice)\n");
    check_contains(said, "documents                     6  of ");
}

/* Wrong usage and bad rows exit with 2 and name the place. */
static void refuses(void)
{
    static const struct {
        const char *arguments;
        const char *says;
    } cases[] = {
        {"", "--data FILE, the rows to read, is missing"},
        {"--data rows.jsonl --pack", "--pack needs --seq-len"},
        {"--data rows.jsonl --split", "--split needs --seq-len"},
        {"--data none.jsonl", "none.jsonl cannot be opened"},
        {"--data rows.jsonl", "needs a model folder"},
        {"--model model --data bad.jsonl --stats", "bad.jsonl:2: messages: is not a list"},
        {"--model model --data rows.jsonl --chat-format x", "--chat-format: unknown format \"x\""},
        {"--data empty.jsonl --data empty.jsonl",
         "empty.jsonl and what follows it: no tokens to train on: 0 rows were read, 0 of them were "
         "invalid"},
        {"--data /dev/zero", "/dev/zero is a device; expected a regular file, or \"-\""},
        {"--model nowhere --data rows.jsonl", "nowhere"},
        {"--model model --data rows.jsonl --train-on none", "none"},
        {"--model model --data rows.jsonl --loss dpo", "rows.jsonl:1: the row has no chosen and "},
        {"--data rows.jsonl --loss dpo --pack --seq-len 8",
         "--loss dpo cannot be used with --pack"},
        {"--data rows.jsonl --loss dpo --split --seq-len 8", "dpo cannot be used with --split"},
        {"--data rows.jsonl --loss dpo --out x.jsonl", "--loss dpo cannot be used with --out"},
        {"--data rows.jsonl --loss dpo --train-on all", "dpo cannot be used with --train-on all"},
        {"--model model --data 'ro*.jsonl' --out ./rows.jsonl",
         "would overwrite the file of --data "},
        {"--model model --data rows.jsonl --out model/tokenizer.json",
         "would overwrite a file that --model model reads"},
        {"--model model --data - --out rows.jsonl <rows.jsonl",
         "--out rows.jsonl would overwrite the file of --data -"},
        {"--model model --data rows.jsonl --data bad.jsonl --out bad.jsonl",
         "overwrite the file of --data bad.jsonl"},
    };
    make_files();
    test_file("empty.jsonl", "", 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_int(run(cases[i].arguments), ==, 2);
        check_contains(said, cases[i].says);
    }
    /* The file is unchanged. */
    check_int(run("--model model --data rows.jsonl"), ==, 0);
}

/* Ids without an embedding are refused, in rows and in the tokenizer. */
static void beyond_the_model(void)
{
    static const char rows[] = "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 70000]}\n";
    make_files();
    test_file("ids.jsonl", rows, strlen(rows));
    test_file("model/config.json", "{\"vocab_size\": 65000}", 21);
    check_int(run("--model model --data ids.jsonl --stats"), ==, 2);
    check_contains(said, "ids.jsonl:2: input_ids: 70000 is outside the vocabulary of 65000");
    test_file("padded.jsonl", "{\"input_ids\": [64999, 1]}\n", 26);
    check_int(run("--model model --data padded.jsonl"), ==, 0);
    check_contains(said, "<64999>"); /* the tokenizer has no such id */
    check_int(run("--model model --data ids.jsonl --stats --on-bad-row skip"), ==, 0);
    check_contains(said, "  invalid, skipped            1\n");
    test_file("model/config.json", "{\"vocab_size\": 70}", 18);
    check_int(run("--model model --data rows.jsonl"), ==, 2);
    check_contains(said, "the model has 70 embeddings");
    test_file("model/config.json", "{", 1);
    check_int(run("--model model --data rows.jsonl"), ==, 2);
    check_contains(said, "model/config.json:1:");
}

/* --help fits on a screen; standard input is accepted. */
static void helps(void)
{
    make_files();
    check_int(run("--help"), ==, 0);
    size_t lines = 0;
    for (const char *at = said; *at != '\0'; at++) {
        lines += *at == '\n';
    }
    check_uint(lines, <=, 24);
    check_contains(said, "Example:");
    check_int(run("--model model --data - --shuffle --seed 3 <rows.jsonl"), ==, 0);
    check_contains(said, "2: ");
}

/* If the command fails, an existing output is unchanged, and no other file is left. */
static void keeps_what_was_there(void)
{
    make_files();
    test_file("kept.jsonl", "mine\n", 5);
    check_int(run("--model model --data bad.jsonl --out kept.jsonl"), ==, 2);
    char *text = read_out("kept.jsonl");
    check_string(text, "mine\n");
    free(text);
    check_int(run("--model model --data rows.jsonl --out kept.jsonl && ls -a >ls && chmod 600 "
                  "kept.jsonl && ln -s kept.jsonl link.jsonl"),
              ==, 0);
    char *files = read_out("ls");
    check_true(strstr(files, "kept.jsonl.") == NULL);
    free(files);
    check_int(run("--model model --data rows.jsonl --out link.jsonl && test -L link.jsonl"), ==, 0);
    char *first = read_out("kept.jsonl");
    check_contains(first, "{\"input_ids\":[");
    check_int(run("--model model --data rows.jsonl --out model/ids.jsonl"), ==, 0);
    char *second = read_out("model/ids.jsonl");
    check_string(first, second);
    free(first);
    free(second);
    check_int(run("--model model --data rows.jsonl --out model/ids.jsonl"), ==, 2);
    check_contains(said, "would overwrite a file that --model model reads");
}

/* A link to a missing file can be the output, unless that file would be an input. */
static void follows_links_to_nothing(void)
{
    char far[4200];
    make_files();
    snprintf(far, sizeof far, "%s/late.jsonl", test_directory());
    check_int(symlink("late.jsonl", test_path("near")), ==, 0);
    check_int(symlink("./near", test_path("nearer")), ==, 0);
    check_int(symlink("loop", test_path("loop")), ==, 0);
    check_int(symlink(far, test_path("far")), ==, 0);
    static const char *const links[] = {"near", "nearer", "far"};
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        char command[300];
        snprintf(command, sizeof command,
                 "--model model --data rows.jsonl --data 'l*.jsonl' --out %s", links[i]);
        check_int(run(command), ==, 2);
        check_contains(said, "would ");
        check_int(access(far, F_OK), ==, -1);
        snprintf(command, sizeof command, "--model model --data rows.jsonl --out %s && test -L %s",
                 links[i], links[i]);
        check_int(run(command), ==, 0);
        char *text = read_out("late.jsonl");
        check_contains(text, "{\"input_ids\":[");
        free(text);
        check_int(unlink(far), ==, 0);
    }
    check_int(run("--model model --data rows.jsonl --out loop"), ==, 2);
    check_contains(said, "loop cannot be written: Too many levels of symbolic links");
    check_int(run("--model model --data rows.jsonl --out $(printf '%0300d' 1)"), ==, 2);
    check_contains(said, "File name too long");
}

static void full_device(void)
{
    make_files();
    check_int(run("--model model --data rows.jsonl --out /dev/full"), ==, 1);
    check_contains(said, "/dev/full cannot be written: No space left on device");
    check_int(mkfifo(test_path("fifo"), 0600), ==, 0);
    check_int(run("--model model --data rows.jsonl --out fifo"), ==, 2);
    check_contains(said, "fifo cannot be written: it is a FIFO that no process reads");
}

/* The default seed is 42, as in tide finetune. */
static void shuffles_as_training(void)
{
    char rows[4000] = "";
    make_files();
    for (size_t i = 0; i < 50; i++) {
        snprintf(rows + strlen(rows), 64, "{\"input_ids\": [%zu, 1]}\n", i);
    }
    test_file("many.jsonl", rows, strlen(rows));
    check_int(run("--data many.jsonl --shuffle --out a.jsonl"), ==, 0);
    check_int(run("--data many.jsonl --shuffle --seed 42 --out b.jsonl"), ==, 0);
    char *first = read_out("a.jsonl");
    char *second = read_out("b.jsonl");
    check_string(first, second);
    free(first);
    free(second);
}

/* Bytes of a row cannot control the terminal. */
static void steers_no_terminal(void)
{
    static const char role[] = "{\"messages\": [{\"role\": \"k\\u001b[2J\\u009b1m\\u202e\\nx\", "
                               "\"content\": \"a\"}]}\n";
    static const char text[] = "{\"text\": \"a\\u001b[31m\\u007f\\u0085b\"}\n";
    make_files();
    test_file("role.jsonl", role, strlen(role));
    test_file("text.jsonl", text, strlen(text));
    check_int(run("--model model --data role.jsonl"), ==, 2);
    check_contains(said, "role: unknown role \"k\\x1b[2J\\u009b1m\\u202e\\nx\"");
    check_int(run("--model model --data role.jsonl --data rows.jsonl --on-bad-row skip"), ==, 0);
    check_contains(said, "\"k\\x1b[2J");
    check_true(strchr(said, '\x1b') == NULL);
    check_int(run("--model model --data text.jsonl"), ==, 0);
    check_contains(said, "\\x1b");
    for (const char *at = said; *at != '\0'; at++) {
        check_true(*at == '\n' || ((unsigned char)*at >= 0x20 && *at != 0x7F));
    }
}

/* An error names the encoding of a file, or the line that is not UTF-8. */
static void names_encodings(void)
{
    static const struct {
        const char *bytes;
        size_t count;
        const char *says;
    } files[] = {
        {"\xFF\xFE{\0\"\0", 6,
         "odd.jsonl is UTF-16, but tide reads UTF-8: iconv -f UTF-16 -t UTF-8"},
        {"\xFE\xFF\0{\0\"", 6, "iconv -f UTF-16 "},
        {"{\0\"\0", 4, "iconv -f UTF-16LE "},
        {"\0{\0\"", 4, "iconv -f UTF-16BE "},
        {"\xFF\xFE\0\0{\0\0\0", 8, "iconv -f UTF-32 "},
        {"{\"input_ids\": [1, 2]}\n{\"text\": \"a\xE9\"}\n", 38, "odd.jsonl:2:12: "},
        {"{\"input_ids\": [1, 2]}\n{\"text\": \"a\xE9\"}\n", 38, "UTF-8"},
    };
    make_files();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        test_file("odd.jsonl", files[i].bytes, files[i].count);
        check_int(run("--model model --data odd.jsonl --stats"), ==, 2);
        check_contains(said, files[i].says);
    }
}

/* Templates get the time of SOURCE_DATE_EPOCH in UTC. */
static void keeps_the_time(void)
{
    static const char config[] =
        "{\"eos_token\": \"<|endoftext|>\", \"chat_template\": \"{% for m in "
        "messages %}{{ strftime_now('%d %b %Y %H:%M:%S') }}{{ m.content }}"
        "{% endfor %}\"}";
    make_files();
    test_file("model/tokenizer_config.json", config, strlen(config));
    check_int(run("--help >/dev/null; export TZ=UTC-5 SOURCE_DATE_EPOCH=1700000000; tide() { "
                  "\"$TIDE_BUILD_ROOT/tools/tide\" tokenize \"$@\"; }; tide --model model --data "
                  "rows.jsonl --stats --show 1 --train-on all"),
              ==, 0);
    check_contains(said, "chat template's time  2023-11-14 22:13:20");
    check_int(
        run("--help >/dev/null; SOURCE_DATE_EPOCH=now \"$TIDE_BUILD_ROOT/tools/tide\" tokenize "
            "--model model --data rows.jsonl"),
        ==, 2);
    check_contains(said, "SOURCE_DATE_EPOCH: \"now\" is not a number of seconds");
}

static unsigned files_like(const char *begin)
{
    unsigned count = 0;
    DIR *dir = opendir(test_directory());
    check_true(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        count += strncmp(entry->d_name, begin, strlen(begin)) == 0;
    }
    closedir(dir);
    return count;
}

/* Starts a command with output to kept.jsonl, writes a row, and waits for the temporary file. *rows
 * is for more rows. */
static pid_t start_waiting(bool ignores, int *rows)
{
    static const char row[] = "{\"input_ids\": [1, 2, 3]}\n";
    const char *root = getenv("TIDE_BUILD_ROOT");
    char tide[4096];
    int ends[2];
    snprintf(tide, sizeof tide, "%s/tools/tide", root != NULL ? root : "build");
    check_int(pipe(ends), ==, 0);
    const pid_t child = fork();
    check_true(child >= 0);
    if (child == 0) {
        char *whole = realpath(tide, NULL);
        if (whole == NULL || chdir(test_directory()) != 0 || dup2(ends[0], 0) < 0) {
            _exit(3);
        }
        close(ends[0]);
        close(ends[1]);
        signal(SIGHUP, ignores ? SIG_IGN : SIG_DFL);
        execl(whole, "tide", "tokenize", "--data", "-", "--out", "kept.jsonl", (char *)NULL);
        _exit(3);
    }
    close(ends[0]);
    check_int(write(ends[1], row, sizeof row - 1), ==, (ssize_t)sizeof row - 1);
    for (int n = 0; n < 2400 && files_like("kept.jsonl.") == 0; n++) {
        usleep(25000);
    }
    check_uint(files_like("kept.jsonl."), ==, 1);
    *rows = ends[1];
    return child;
}

/* A signal ends the command without a leftover file, unless the signal is ignored. */
static void leaves_nothing_behind(void)
{
#ifdef __SANITIZE_THREAD__
    test_skip("its runtime holds a signal back while the C library reads");
#endif
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    make_files();
    test_file("kept.jsonl", "mine", 4);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        int rows;
        int status = 0;
        const pid_t child = start_waiting(i == 0, &rows);
        check_int(i == 0 ? kill(child, SIGHUP) : 0, ==, 0);
        check_int(kill(child, signals[i]), ==, 0);
        check_int(waitpid(child, &status, 0), ==, child);
        check_true(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
        check_uint(files_like("kept.jsonl."), ==, 0);
        close(rows);
    }
    char *kept = read_out("kept.jsonl");
    check_string(kept, "mine");
    free(kept);
}

/* A folder that takes the output's name meanwhile is kept, and no other file is left. */
static void name_is_taken(void)
{
    int rows;
    int status = 0;
    make_files();
    (void)unlink(test_path("kept.jsonl"));
    const pid_t child = start_waiting(false, &rows);
    check_int(mkdir(test_path("kept.jsonl"), 0700), ==, 0);
    close(rows);
    check_int(waitpid(child, &status, 0), ==, child);
    check_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    check_uint(files_like("kept.jsonl."), ==, 0);
    check_int(rmdir(test_path("kept.jsonl")), ==, 0);
}

/* A run removes the temporary file of a killed run, but not that of a running one. */
static void takes_over(void)
{
    int rows;
    int status = 0;
    make_files();
    test_file("kept.jsonl", "mine", 4);
    const pid_t child = start_waiting(false, &rows);
    check_int(run("--model model --data rows.jsonl --out kept.jsonl"), ==, 2);
    check_contains(said, "another run writes kept.jsonl");
    check_int(kill(child, SIGKILL), ==, 0);
    check_int(waitpid(child, &status, 0), ==, child);
    close(rows);
    check_uint(files_like("kept.jsonl."), ==, 1);
    check_int(run("--model model --data rows.jsonl --out a.jsonl"), ==, 0);
    check_int(run("--model model --data rows.jsonl --out kept.jsonl"), ==, 0);
    check_uint(files_like("kept.jsonl."), ==, 0);
    char *kept = read_out("kept.jsonl");
    char *wanted = read_out("a.jsonl");
    check_string(kept, wanted);
    free(kept);
    free(wanted);
}

TEST_MAIN({"leaves_nothing_behind", leaves_nothing_behind}, {"takes_over", takes_over},
          {"name_is_taken", name_is_taken}, {"shows", shows}, {"writes", writes},
          {"counts", counts}, {"pairs", pairs}, {"refuses", refuses}, {"helps", helps},
          {"beyond_the_model", beyond_the_model}, {"keeps_what_was_there", keeps_what_was_there},
          {"follows_links_to_nothing", follows_links_to_nothing}, {"full_device", full_device},
          {"shuffles_as_training", shuffles_as_training},
          {"steers_no_terminal", steers_no_terminal}, {"names_encodings", names_encodings},
          {"keeps_the_time", keeps_the_time})
