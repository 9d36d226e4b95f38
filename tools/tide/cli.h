/* cli.h: options, messages, tables and exit codes of all commands. The main thread; any
 * thread may print log lines. */
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
    void *out;         /* borrowed; the default before parsing, then the value */
    const char *value; /* name of the value in the help: "N"; NULL for flags */
    const char *help;
    double low, high;    /* range of numbers; both 0: no limit */
    const char *choices; /* "bf16|fp16|fp32" */
    const char *shown;   /* the default in the help; NULL: not shown */
};

/* -q, -v and colours; set by cli_parse(). */
struct cli_common {
    int verbose; /* -1: quiet; else the number of -v after the last -q */
    bool color;  /* on stdout */
};

/* The name of an option in other programs. */
struct cli_synonym {
    const char *theirs; /* "learning-rate", for --learning-rate and --learning_rate */
    const char *ours;   /* the flag of tide ("--lr X"), or why there is none */
};

struct cli_command {
    const char *program;   /* "ds_nvme_bench"; NULL: tide */
    const char *name;      /* "config"; NULL: the program has no subcommands */
    const char *summary;   /* one line */
    const char *arguments; /* "FILE"; NULL: none */
    size_t arguments_min, arguments_max;
    const char *example; /* a command line, perhaps with its result */
    const char *usage;   /* "--model DIR [OPTIONS]"; NULL: generated */
    /* Prints the options for --help; NULL: a line for each option. */
    void (*print_options)(bool verbose);
    const struct cli_synonym *synonyms; /* ends with a row of NULL; NULL: none */
    int (*run)(const struct cli_command *command, int argc, char **argv); /* an enum cli_exit */
};

/* Bit i: option i of the table was on the command line. */
struct cli_given {
    uint64_t bits[CLI_OPTIONS_MAX / 64];
};

struct cli_parsed {
    struct cli_common common;
    struct cli_given given;
    char **arguments; /* borrowed: the positional arguments, at the front of argv */
    size_t count;
};

/* Parses argv, which begins after the name of the subcommand, and binds the log to stderr. "-" and
 * "_" are equal in names. Returns -1 to continue, or the exit code after --help or an error. */
int cli_parse(const struct cli_command *command, const struct cli_option *options, size_t count,
              int argc, char **argv, struct cli_parsed *out);

/* Finds the value of an option before cli_parse() runs; NULL: none. */
const char *cli_find(int argc, char **argv, const char *name);

/* Returns whether an argument is -q, -v or letters like -vv. */
bool cli_is_loudness(const char *word);
/* Returns the `verbose` of these arguments, before they are parsed. */
int cli_loudness(int argc, char **argv);

bool cli_is_given(const struct cli_given *given, size_t index);

/* Parses `text` into option->out; a CLI_FLAG ignores `text`. */
int cli_take(const struct cli_option *option, const char *text);

/* Also sends the lines of the command's log to `write`; NULL ends this. */
void cli_log_also(void (*write)(void *user, enum core_log_level level, const char *line),
                  void *user);

/* Prints "tide NAME: message" (or "PROGRAM: message") to stderr; `format` NULL: the message of
 * core_err. Returns `code`. */
int cli_fail(const struct cli_command *command, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Calls `handler` for the next signal of this number. A signal at least a second later has its
 * default effect; earlier ones are ignored as copies. If the signal is ignored (nohup), it stays
 * ignored. */
void cli_signal_catch(int number, void (*handler)(int number));

/* Writes a text that may come from data. Control characters, bytes that are not UTF-8, and
 * characters that change the direction of a line are written like \x1b or \u202e, so that no row,
 * name or template can control the terminal. Messages, log lines and tables use this. */
void cli_print_text(FILE *stream, const char *text, size_t bytes);

/* Flushes stdout. Returns `code`, or CLI_FAILED with a message if the output could not be written;
 * no message if the reader of a pipe has closed it. */
int cli_close(const struct cli_command *command, int code);

struct core_json_write;
/* Ends the JSON on stdout and its writer. Returns the same as cli_close(). */
int cli_close_json(const struct cli_command *command, struct core_json_write *json, int code);

/* Returns whether to colour this stream: it is a terminal, TERM is set and not "dumb", and NO_COLOR
 * is unset or empty. */
bool cli_color(FILE *stream);

/* A table of text. Cells are copied; the last one of a line is not padded. */
struct cli_table;
int cli_table_create(size_t columns, struct cli_table **out);
void cli_table_destroy(struct cli_table *table);
/* `cells` has a text for each column; NULL: empty. */
int cli_table_add(struct cli_table *table, const char *const *cells);
/* `indent` begins every line. */
void cli_table_print(const struct cli_table *table, FILE *stream, const char *indent);

enum { CLI_NUMBER_BYTES = 32 };

/* Formats a number for people into `out`, which is returned: parameters as "684.9K", "158.2M",
 * "4.02B"; bytes in GB, or in MB or KB below 0.1 GB. */
const char *cli_count_print(uint64_t count, char out[CLI_NUMBER_BYTES]);
const char *cli_bytes_print(uint64_t bytes, char out[CLI_NUMBER_BYTES]);

/* Returns the decimals of a rate, so that a slow run does not show 0. */
int cli_rate_digits(double rate);

/* Calls `run` with the arguments of main() and returns its result. If the stack limit is below
 * CORE_THREAD_STACK_BYTES, `run` is on a new thread with such a stack, and this thread blocks all
 * signals. Returns CLI_FAILED if that thread cannot be started. */
int cli_main(int (*run)(int argc, char **argv), int argc, char **argv);

#endif
