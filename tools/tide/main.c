/* main.c: finds the subcommand. */
#include <signal.h>
#include <string.h>

#include "core/base/guess.h"
#include "tools/tide/commands.h"
#include "tools/tide/version.h"

static const struct cli_command *const commands[] = {
    &cli_command_config,
    &cli_command_doctor,
    &cli_command_inspect,
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static const struct cli_command program = {.name = "(no command)"};

static void print_help(FILE *stream)
{
    struct cli_table *table = NULL;
    fprintf(stream, "tide trains models that do not fit: parameters, gradients and optimizer\n"
                    "states live in GPU memory, host memory and on NVMe drives.\n\n"
                    "Use: tide COMMAND [OPTIONS]\n\n");
    if (cli_table_create(2, &table) != 0) {
        return;
    }
    for (size_t i = 0; i < COMMANDS; i++) {
        cli_table_add(table, (const char *const[]){commands[i]->name, commands[i]->summary});
    }
    cli_table_add(table, (const char *const[]){"--version", "version, commit, compiler, backends"});
    cli_table_add(table, (const char *const[]){"--help", "this text; after a command, its own"});
    cli_table_print(table, stream, "  ");
    cli_table_destroy(table);
    fprintf(stream, "\nExample:\n  %s\n", commands[COMMANDS - 1]->example);
}

static int refuse_command(const char *name)
{
    struct core_guess guess;
    core_guess_init(&guess, name);
    for (size_t i = 0; i < COMMANDS; i++) {
        core_guess_offer(&guess, commands[i]->name);
    }
    fprintf(stderr, "tide: there is no command %s%s; see tide --help\n", name,
            core_guess_text(&guess));
    return CLI_WRONG;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of a write, not the end */
    if (argc < 2) {
        print_help(stderr);
        return CLI_WRONG;
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
            return commands[i]->run(commands[i], argc - 2, argv + 2);
        }
    }
    return refuse_command(argv[1]);
}
