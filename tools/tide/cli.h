/* cli.h: what all commands share: options, messages, tables, exit codes.
 * A subcommand is one file with one `const struct cli_command`, and one row in main.c. The main
 * thread only. */
#ifndef TOOLS_TIDE_CLI_H
#define TOOLS_TIDE_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/base/log.h"

enum cli_exit {
    CLI_DONE = 0,
    CLI_FAILED = 1,        /* I/O, device, out of space */
    CLI_WRONG = 2,         /* wrong usage or bad input */
    CLI_NO_FIT = 3,        /* a plan does not fit, or a regression was found */
    CLI_NOT_VERIFIED = 4,  /* verification failed */
    CLI_INTERRUPTED = 130, /* stopped by a signal */
};

enum cli_kind {
    CLI_FLAG,    /* bool */
    CLI_TEXT,    /* const char *; the last one counts */
    CLI_FILES,   /* const char *, a path or a pattern; at most once */
    CLI_TEXTS,   /* struct cli_texts; may be repeated */
    CLI_INTEGER, /* int64_t within low..high */
    CLI_REAL,    /* double within low..high */
    CLI_SIZE,    /* uint64_t: 4096, 512K, 1M, 24GiB, 24GB */
    CLI_CHOICE,  /* int: the index in `choices` */
};

enum { CLI_TEXTS_MAX = 64, CLI_OPTIONS_MAX = 128 };

struct cli_texts {
    const char *items[CLI_TEXTS_MAX]; /* borrowed from argv */
    size_t count;
};

struct cli_option {
    const char *name; /* "world", for --world */
    enum cli_kind kind;
    void *out;           /* borrowed; holds the default before parsing and the value after it */
    const char *value;   /* how the help names the value: "N"; NULL for flags */
    const char *help;    /* what it does */
    double low, high;    /* range of numbers; both 0: no limit */
    const char *choices; /* "bf16|fp16|fp32" */
    const char *shown;   /* the default, as the help shows it; NULL: not shown */
};

/* -q, -v and what the terminal can do; set by cli_parse(). */
struct cli_common {
    int verbose; /* -1 with -q, otherwise how often -v is given */
    bool color;  /* stdout shows colours */
};

/* The name of an option in other programs. */
struct cli_synonym {
    const char *theirs; /* "learning-rate", for --learning-rate and --learning_rate */
    const char *ours;   /* the flag of tide: "--lr X"; or why there is none */
};

struct cli_command {
    const char *program;   /* "ds_nvme_bench": a program of its own; NULL: tide */
    const char *name;      /* "config"; NULL where the program has no subcommands */
    const char *summary;   /* one line */
    const char *arguments; /* "FILE"; NULL: none */
    size_t arguments_min, arguments_max;
    const char *example; /* a real command line and its result */
    const char *usage;   /* "--model DIR [OPTIONS]"; NULL: from the options and arguments */
    /* Prints the options for --help, more of them with -v; NULL: one line for each option. */
    void (*print_options)(bool verbose);
    const struct cli_synonym *synonyms; /* ends with a row of NULL; NULL: none */
    int (*run)(const struct cli_command *command, int argc, char **argv); /* an enum cli_exit */
};

/* One bit for each option, in the order of the table: set if the option was on the command line. */
struct cli_given {
    uint64_t bits[CLI_OPTIONS_MAX / 64];
};

struct cli_parsed {
    struct cli_common common;
    struct cli_given given;
    char **arguments; /* borrowed: the positional arguments, moved to the front of argv */
    size_t count;
};

/* Parses argv, which begins after the name of the subcommand. In names of options, "-" and "_" are
 * the same. Returns -1 if the command can continue, otherwise the exit code: CLI_DONE after --help,
 * CLI_WRONG after a message. Binds the log to stderr. */
int cli_parse(const struct cli_command *command, const struct cli_option *options, size_t count,
              int argc, char **argv, struct cli_parsed *out);

/* Returns the value that cli_parse() will take for an option, for code that runs before it; NULL if
 * the option is not given. */
const char *cli_find(int argc, char **argv, const char *name);

/* Returns whether an argument is -q, -v, or several such letters: -vv. */
bool cli_is_loudness(const char *word);

bool cli_is_given(const struct cli_given *given, size_t index);

/* Parses `text` as a value of the option and writes it to option->out; a CLI_FLAG ignores `text`.
 * Returns 0, or -EINVAL with a message. */
int cli_take(const struct cli_option *option, const char *text);

/* Also sends the lines of the command's log to `write`; NULL ends this. */
void cli_log_also(void (*write)(void *user, enum core_log_level level, const char *line),
                  void *user);

/* Prints "tide NAME: message" (or "PROGRAM: message") to stderr; if `format` is NULL, the
 * message of core_err. Returns `code`, so that a command can end in `return cli_fail(...)`. */
int cli_fail(const struct cli_command *command, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Calls `handler` for the next signal of this number. The next one that comes at least a second
 * later has its default effect; those in between are copies of the first and are ignored. Signals
 * that were ignored when the program was started stay ignored. */
void cli_signal_catch(int number, void (*handler)(int number));

/* Writes a text that may come from data, so that a terminal can show it safely. Control characters,
 * bytes that are not UTF-8, and characters that change the direction of a line are written as \x1b
 * or \u202e, so that no row, name or template can control the terminal. All messages, log lines and
 * tables use this. */
void cli_print_text(FILE *stream, const char *text, size_t bytes);

/* Flushes stdout. Returns `code`, or CLI_FAILED with a message if the output could not be written.
 * There is no message if the reader of a pipe has closed it. */
int cli_close(const struct cli_command *command, int code);

struct core_json_write;
/* Ends the JSON written to stdout and its writer. Returns the same as cli_close(). */
int cli_close_json(const struct cli_command *command, struct core_json_write *json, int code);

/* Returns whether to colour this stream: it is a terminal, not a dumb one, and NO_COLOR is unset or
 * empty. */
bool cli_color(FILE *stream);

/* A table of text. Columns are as wide as their widest cell; lines do not end in spaces. Cells are
 * copied. */
struct cli_table;
int cli_table_create(size_t columns, struct cli_table **out);
void cli_table_destroy(struct cli_table *table);
/* `cells` has one text for each column; NULL is an empty cell. Returns 0, or -ENOMEM with a
 * message. */
int cli_table_add(struct cli_table *table, const char *const *cells);
/* Puts `indent` at the beginning of every line. */
void cli_table_print(const struct cli_table *table, FILE *stream, const char *indent);

enum { CLI_NUMBER_BYTES = 32 };

/* Formats a number for people into `out`, which is returned: parameters as "684.9K", "158.2M",
 * "4.02B"; bytes in GB, or in MB or KB below 0.1 GB. */
const char *cli_count_print(uint64_t count, char out[CLI_NUMBER_BYTES]);
const char *cli_bytes_print(uint64_t bytes, char out[CLI_NUMBER_BYTES]);

/* Returns the number of decimals with which a rate is printed, so that a slow run is not shown as
 * 0. */
int cli_rate_digits(double rate);

/* Calls `run` with the arguments of main() and returns its result. It runs on the calling thread
 * or, if the stack limit is below CORE_THREAD_STACK_BYTES, on a new thread with a stack of this
 * size, which then receives all signals. If that thread cannot be started, prints a message and
 * returns CLI_FAILED. */
int cli_main(int (*run)(int argc, char **argv), int argc, char **argv);

#endif
