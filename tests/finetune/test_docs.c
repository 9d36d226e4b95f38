/* Runs the commands of two guides on a small model. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/file.h"
#include "tests/harness/test.h"

/* Runs a shell command in the test's folder, with the programs of this build first in PATH. */
static int run_shell(const char *line)
{
    static char script[4096];
    const char *root = getenv("TIDE_BUILD_ROOT");
    snprintf(script, sizeof script, "PATH=\"$(realpath '%s')/tools:$PATH\" && cd '%s' && %s",
             root != NULL ? root : "build", test_directory(), line);
    int status = system(script);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256;
}

static void prepare(void)
{
    static const char config[] = "{\"train_batch_size\": 4, \"bf16\": {\"enabled\": true}}\n";
    test_file("ds_config.json", config, strlen(config));
    check_int(run_shell("tide_make_case case --hidden 64 --layers 2 --heads 4 --kv-heads 2 "
                        "--inner 128 --vocab 256 --seq-len 32 --rows 24 --tied 2>&1"),
              ==, 0);
    check_int(run_shell("ln -s case/model Qwen3-4B && ln -s case/rows.jsonl rows.jsonl && "
                        "mkdir store"),
              ==, 0);
}

/* Returns the next command of a code block, in one line and with /nvme replaced; NULL at the
 * end. */
static char *next_command(char **rest)
{
    static char command[2048];
    size_t length = 0;
    for (char *line; (line = strsep(rest, "\n")) != NULL;) {
        if (length == 0 && strncmp(line, "tide ", 5) != 0) {
            continue;
        }
        for (; *line != '\0' && length + 8 < sizeof command; line++) {
            if (strncmp(line, "/nvme", 5) == 0) {
                memcpy(command + length, "store", 5);
                length += 5;
                line += 4;
            } else {
                command[length++] = *line;
            }
        }
        command[length] = '\0';
        if (command[length - 1] != '\\') {
            return command;
        }
        length--;
    }
    return NULL;
}

/* Runs a guide's lines that begin with "tide ", in order; returns their number. */
static unsigned run_guide(const char *name)
{
    char path[512];
    char *text = NULL;
    size_t bytes = 0;
    unsigned count = 0;
    check_int(run_shell("rm -rf tuned"), ==, 0); /* of an earlier guide */
    snprintf(path, sizeof path, "%s/../docs/%s", test_root(), name);
    check_int(core_file_read(path, 1 << 20, &text, &bytes), ==, 0);
    char *rest = text;
    for (char *command; (command = next_command(&rest)) != NULL; count++) {
        char line[2100];
        const bool trains = strncmp(command, "tide finetune", 13) == 0;
        char out[64] = "";
        snprintf(line, sizeof line, "%s >said.txt 2>&1", command);
        if (run_shell(line) != 0) {
            run_shell("sed 's/^/# /' said.txt");
            test_fail(__FILE__, __LINE__, "%s", command);
        }
        if (trains) {
            check_int(sscanf(strstr(command, "--out "), "--out %63s", out), ==, 1);
            snprintf(line, sizeof line, "tide inspect %s >/dev/null", out);
            check_int(run_shell(line), ==, 0);
        }
    }
    free(text);
    return count;
}

/* The commands of two guides work. */
static void commands(void)
{
    prepare();
    check_uint(run_guide("finetune.md"), >=, 6);
    check_uint(run_guide("report.md"), ==, 2);
    check_int(run_shell("grep -q '\"plan\":{\"known\":true' run.html"), ==, 0);
}

/* tide_make_case writes a consistent model and refuses impossible shapes. */
static void made_cases(void)
{
    check_int(run_shell("tide_make_case odd --heads 3 2>/dev/null"), ==, 2);
    check_int(run_shell("tide_make_case no/such/folder 2>/dev/null"), ==, 1);
    check_int(
        run_shell("tide_make_case one --hidden 32 --layers 1 --inner 48 --vocab 64 --rows 2 && "
                  "tide_make_case two --hidden 32 --layers 1 --inner 48 --vocab 64 --rows 2 "
                  "--seed 1 && tide inspect one/model >/dev/null"),
        ==, 0);
    check_int(run_shell("cmp -s one/rows.jsonl two/rows.jsonl"), ==, 1);
    check_int(run_shell("cmp -s one/model/model.safetensors two/model/model.safetensors"), ==, 1);
}

/* Returns the text of said.txt; the caller frees it. */
static char *read_said(void)
{
    char path[4096];
    char *said = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/said.txt", test_directory());
    check_int(core_file_read(path, 1 << 20, &said, &bytes), ==, 0);
    return said;
}

/* A tiny model with a tokenizer made from chats learns the replies. */
static void made_chats(void)
{
    static const char rows[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"What is a tier?\"}, "
        "{\"role\": \"assistant\", \"content\": \"A place for 3 bytes \\u00e9.\"}]}\n";
    test_file("talk.jsonl", rows, strlen(rows));
    check_int(run_shell("tide_make_case chat --chat talk.jsonl --hidden 64 --layers 1 --inner 96 "
                        "--vocab 300 --rows 1"),
              ==, 0);
    check_int(run_shell("tide tokenize --model chat/model --data talk.jsonl >said.txt"), ==, 0);
    char *said = read_said();
    check_contains(said, "[A][ place][ for][ 3][ bytes][ ][");
    free(said);
    check_int(run_shell("tide_demo_reply chat/model --tokens 6 'What is a tier?' >said.txt"), ==,
              0);
    said = read_said();
    check_contains(said, "> What is a tier?\n");
    check_true(strstr(said, "A place") == NULL);
    free(said);
    check_int(
        run_shell("tide finetune -q --model chat/model --data talk.jsonl --out learnt --steps "
                  "60 --lr 1e-2 --batch 1 >said.txt && tide_demo_reply learnt 'What is a "
                  "tier?' >said.txt"),
        ==, 0);
    said = read_said();
    check_string(said, "> What is a tier?\nA place for 3 bytes \303\251.\n");
    free(said);
    check_int(run_shell("tide_make_case chat --chat none.jsonl 2>/dev/null"), ==, 1);
    check_int(run_shell("tide_make_case chat --chat talk.jsonl --vocab 264 2>/dev/null"), ==, 1);
    check_int(run_shell("tide_make_case chat --chat talk.jsonl --vocab 128 2>/dev/null"), ==, 2);
    check_int(run_shell("tide_demo_reply chat 'Hello' 2>/dev/null"), ==, 2);
}

TEST_MAIN({"commands", commands}, {"made_cases", made_cases}, {"made_chats", made_chats})
