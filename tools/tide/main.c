/* main.c: finds the subcommand and runs it. */
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/suggest.h"
#include "tools/tide/commands.h"
#include "tools/tide/version.h"

static const struct cli_command *const commands[] = {
    &cli_command_config,  &cli_command_doctor, &cli_command_export, &cli_command_finetune,
    &cli_command_inspect, &cli_command_plan,   &cli_command_report, &cli_command_tokenize,
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static const struct cli_command program = {.program = "tide"};
static char help_word[] = "--help";

static void print_help(FILE *stream)
{
    struct cli_table *table = NULL;
    fprintf(stream,
            "tide fine-tunes models larger than memory: parameters, gradients and optimizer\n"
            "states are kept in GPU memory, host memory and on NVMe drives.\n\n"
            "Usage: tide COMMAND [OPTIONS]\n\n");
    if (cli_table_create(2, &table) != 0) {
        return;
    }
    for (size_t i = 0; i < COMMANDS; i++) {
        cli_table_add(table, (const char *const[]){commands[i]->name, commands[i]->summary});
    }
    cli_table_add(table, (const char *const[]){"--version", "version, commit, compiler, backends"});
    cli_table_add(table, (const char *const[]){"--help", "this help; after a command, its help"});
    cli_table_print(table, stream, "  ");
    cli_table_destroy(table);
    fprintf(stream, "\nExample:\n  %s\n", commands[COMMANDS - 1]->example);
}

static int refuse_command(const char *name)
{
    struct core_suggest guess;
    core_suggest_init(&guess, name);
    for (size_t i = 0; i < COMMANDS; i++) {
        core_suggest_offer(&guess, commands[i]->name);
    }
    fprintf(stderr, "tide: unknown command %s%s; see tide --help\n", name,
            core_suggest_text(&guess));
    return CLI_WRONG;
}

/* Turns "tide -q config FILE" into "tide config -q FILE". */
static void name_first(int argc, char **argv)
{
    int at = 1;
    while (at < argc && cli_is_loudness(argv[at])) {
        at++;
    }
    for (char *name = argv[at]; at > 1 && at < argc; at--) {
        argv[at] = argv[at - 1];
        argv[at - 1] = name;
    }
}

static int tide_main(int argc, char **argv)
{
    /* A failed write, to a closed pipe or beyond a limit, must not end the process. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    /* oneDNN's OpenMP threads must not spin on processors of other threads, or have stacks as large
     * as the limit. */
    setenv("OMP_WAIT_POLICY", "passive", 0);
    setenv("OMP_STACKSIZE", "8M", 0);
    /* Large blocks go back to the system when they are freed, so that measured memory is in use. */
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    name_first(argc, argv);
    if (argc < 2) {
        print_help(stderr);
        return CLI_WRONG;
    }
    if (strcmp(argv[1], "help") == 0 && argc == 3) {
        argv[1] = argv[2]; /* "help config" is "config --help" */
        argv[2] = help_word;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return cli_close(&program, CLI_DONE);
    }
    if (strcmp(argv[1], "--version") == 0) {
        cli_print_version(stdout);
        return cli_close(&program, CLI_DONE);
    }
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i]->name) == 0) {
            if (argc == 3 && strcmp(argv[2], "--version") == 0) {
                cli_print_version(stdout);
                return cli_close(commands[i], CLI_DONE);
            }
            return commands[i]->run(commands[i], argc - 2, argv + 2);
        }
    }
    return refuse_command(argv[1]);
}

int main(int argc, char **argv)
{
    return cli_main(tide_main, argc, argv);
}
