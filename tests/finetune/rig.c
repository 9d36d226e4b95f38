/* Runs a command in a separate process, with its streams in files. */
#include "tests/finetune/rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/json/json.h"
#include "tests/harness/test.h"

enum { TURNS = 8, PATH_BYTES = 512 };

char *rig_out;
char *rig_err;
const char *rig_program = "tests/finetune/tide_paper";

const char *rig_path(const char *name)
{
    static char paths[TURNS][PATH_BYTES];
    static unsigned turn;
    char *path = paths[turn++ % TURNS];
    snprintf(path, PATH_BYTES, "%s/%s", test_directory(), name);
    return path;
}

const char *rig_read(const char *name)
{
    static char *text;
    size_t bytes = 0;
    free(text);
    text = NULL;
    check_int(core_file_read(rig_path(name), 1 << 22, &text, &bytes), ==, 0);
    return text;
}

bool rig_has(const char *name)
{
    struct stat info;
    return stat(rig_path(name), &info) == 0;
}

void rig_wait_for_text(const char *name)
{
    for (int i = 0; i < 2400 && (!rig_has(name) || rig_read(name)[0] == '\0'); i++) {
        usleep(50000);
    }
    check_true(rig_read(name)[0] != '\0');
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

void rig_remove(const char *name)
{
    check_int(nftw(rig_path(name), remove_one, 16, FTW_DEPTH | FTW_PHYS), ==, 0);
}

int rig_newest(const char *folder, int before, bool *inside)
{
    int newest = before;
    DIR *list = opendir(rig_path(folder));
    *inside = false;
    for (const struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        int step = 0;
        int end = 0;
        if (sscanf(entry->d_name, "checkpoint-%d%n", &step, &end) == 1) {
            *inside = *inside || strcmp(entry->d_name + end, ".partial") == 0;
            newest = entry->d_name[end] == '\0' && step > newest ? step : newest;
        }
    }
    if (list != NULL) {
        closedir(list);
    }
    return newest;
}

void rig_rows(void)
{
    char rows[7 * 48];
    size_t at = 0;
    for (int row = 1; row <= 7; row++) {
        at += (size_t)snprintf(rows + at, sizeof rows - at,
                               "{\"input_ids\": [%d, 2, 3, 4, 5, 6, 7, 8]}\n", row);
    }
    test_file("d.jsonl", rows, at);
}

static void redirect(int to, const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || dup2(fd, to) < 0) {
        _exit(126);
    }
}

static void split(const char *arguments, char *text, size_t bytes, char **argv, size_t room)
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
}

static int start(int input, const char *setting, const char *arguments)
{
    char words[4096];
    char program[PATH_BYTES];
    char *argv[64];
    const char *root = getenv("TIDE_BUILD_ROOT");
    const bool whole = rig_program[0] == '/';
    snprintf(program, sizeof program, "%s%s%s",
             whole          ? ""
             : root != NULL ? root
                            : "build",
             whole ? "" : "/", rig_program);
    argv[0] = program;
    split(arguments, words, sizeof words, argv + 1, 63);
    test_directory();
    pid_t child = fork();
    check_true(child >= 0);
    if (child == 0) {
        if (input < 0) {
            redirect(0, "/dev/null");
        } else if (dup2(input, 0) < 0) {
            _exit(126);
        }
        redirect(1, rig_path("out.txt"));
        redirect(2, rig_path("err.txt"));
        if (setting != NULL) {
            putenv((char *)(uintptr_t)setting);
        }
        execv(program, argv);
        _exit(127);
    }
    return child;
}

int rig_start(const char *setting, const char *arguments)
{
    return start(-1, setting, arguments);
}

int rig_start_reader(const char *arguments, int *rows)
{
    enum { PIPE_BYTES = 4096 };
    static const char blank[2 * PIPE_BYTES];
    int ends[2];
    signal(SIGPIPE, SIG_IGN);
    check_int(pipe2(ends, O_CLOEXEC), ==, 0);
    check_int(fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES), ==, PIPE_BYTES);
    const int child = start(ends[0], NULL, arguments);
    close(ends[0]);
    check_int(write(ends[1], blank, sizeof blank), ==, sizeof blank);
    *rows = ends[1];
    return child;
}

int rig_wait(int child)
{
    int status = 0;
    size_t bytes = 0;
    check_int(waitpid(child, &status, 0), ==, child);
    rig_end();
    check_int(core_file_read(rig_path("out.txt"), 1 << 22, &rig_out, &bytes), ==, 0);
    check_int(core_file_read(rig_path("err.txt"), 1 << 22, &rig_err, &bytes), ==, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

int rig_run(const char *setting, const char *arguments)
{
    return rig_wait(rig_start(setting, arguments));
}

void rig_end(void)
{
    free(rig_out);
    free(rig_err);
    rig_out = rig_err = NULL;
}

void rig_expect(int line, int code, int wanted)
{
    if (code != wanted) {
        test_fail(__FILE__, line, "it ends with %d, not %d: %s", code, wanted, rig_err);
    }
}

void rig_train_begin(void)
{
    rig_program = "tools/tide";
    rig_rows();
    mkdir(rig_path("store"), 0700);
    if (!rig_has("rates.json")) {
        expect(0, "plan --model %M --store %T/store --save-rates %T/rates.json -q");
    }
}

void rig_make_pairs(void)
{
    static const char config[] =
        "{\"eos_token\": \"<|endoftext|>\", \"chat_template\": \"{% for m in messages %}{{ m.role "
        "}}: {{ m.content }}\\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}\"}";
    static const char pairs[] =
        "{\"prompt\": \"2 + 2 =\", \"chosen\": \" 4\", \"rejected\": \" 22\"}\n"
        "{\"chosen\": \"up is up\", \"rejected\": \"up is down\"}\n"
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"?\"}], \"chosen\": [{\"role\": "
        "\"assistant\", \"content\": \"!\"}], \"rejected\": [{\"role\": \"assistant\", "
        "\"content\": \"...\"}]}\n"
        "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"z\"}\n"
        "{\"prompt\": \"x\", \"chosen\": \"y y\", \"rejected\": \"y\"}\n";
    static const char texts[] = "{\"text\": \"a b\"}\n{\"text\": \"c d\"}\n";
    char path[512];
    char *tokenizer = NULL;
    size_t bytes = 0;
    test_file("pairs.jsonl", pairs, strlen(pairs));
    test_file("texts.jsonl", texts, strlen(texts));
    if (!rig_has("pairs")) {
        rig_program = "tools/tide_make_case";
        expect(0, "%T/pairs --hidden 32 --layers 2 --heads 4 --kv-heads 2 --inner 48 --vocab 704 "
                  "--rows 1 -q");
        rig_program = "tools/tide";
    }
    snprintf(path, sizeof path, "%s/text/fixtures/gpt2.json", test_root());
    check_int(core_file_read(path, 1 << 22, &tokenizer, &bytes), ==, 0);
    test_file("pairs/model/tokenizer.json", tokenizer, bytes);
    test_file("pairs/model/tokenizer_config.json", config, strlen(config));
    free(tokenizer);
}

void rig_same_file(const char *one, const char *other, const char *name)
{
    char *texts[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0};
    const char *const folders[2] = {one, other};
    for (int i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folders[i], name);
        check_int(core_file_read(rig_path(path), 1 << 24, &texts[i], &bytes[i]), ==, 0);
    }
    check_uint(bytes[0], ==, bytes[1]);
    check_memory(texts[0], texts[1], bytes[0]);
    free(texts[0]);
    free(texts[1]);
}

void rig_same_model(const char *one, const char *other)
{
    rig_same_file(one, other, "model.safetensors");
}

void rig_same_adapter(const char *one, const char *other)
{
    rig_same_file(one, other, "adapter_model.safetensors");
    rig_same_file(one, other, "adapter_config.json");
}

size_t rig_entries(const char *name)
{
    size_t count = 0;
    DIR *folder = opendir(rig_path(name));
    check_true(folder != NULL);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(folder);
    return count;
}

double rig_number(const char *log, size_t line, const char *key)
{
    char *text = strdup(rig_read(log));
    char *rest = text;
    char *at = strsep(&rest, "\n");
    for (size_t i = 0; i < line; i++) {
        at = strsep(&rest, "\n");
    }
    struct core_json *doc = NULL;
    check_true(at != NULL);
    check_int(core_json_parse(at, strlen(at), log, NULL, &doc), ==, 0);
    const struct core_json_value *found = core_json_root(doc);
    for (const char *name = key; found != NULL && name != NULL;) {
        char member[64];
        const char *dot = strchr(name, '.');
        snprintf(member, sizeof member, "%.*s", (int)strcspn(name, "."), name);
        found = core_json_find(found, member);
        name = dot != NULL ? dot + 1 : NULL;
    }
    if (found == NULL) {
        test_fail(__FILE__, __LINE__, "line %zu of %s has no %s", line, log, key);
    }
    const double value = core_json_real(found);
    core_json_destroy(doc);
    free(text);
    return value;
}

void rig_chat_model(void)
{
    char path[512];
    char *tokenizer = NULL;
    size_t bytes = 0;
    rig_program = "tools/tide_make_case";
    expect(0,
           "%T/chat --hidden 64 --layers 1 --heads 4 --kv-heads 2 --inner 64 --vocab 768 --rows 1");
    rig_program = "tools/tide";
    snprintf(path, sizeof path, "%s/text/fixtures/gpt2.json", test_root());
    check_int(core_file_read(path, 1 << 22, &tokenizer, &bytes), ==, 0);
    test_file("chat/model/tokenizer.json", tokenizer, bytes);
    free(tokenizer);
}
