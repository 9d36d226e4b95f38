/* cli.c: parses options by a table, and prints help and messages. */
#include "tools/tide/cli.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/size.h"
#include "core/base/suggest.h"
#include "core/base/thread.h"
#include "core/json/write.h"

static void (*also)(void *user, enum core_log_level level, const char *line);
static void *also_user; /* borrowed */

static void write_line(void *user, enum core_log_level level, const char *line)
{
    (void)user;
    fprintf(stderr, "tide: %s: ", core_log_level_name(level));
    cli_print_text(stderr, line, strlen(line));
    fputc('\n', stderr);
    if (also != NULL) {
        also(also_user, level, line);
    }
}

void cli_log_also(void (*write)(void *user, enum core_log_level level, const char *line),
                  void *user)
{
    also = write;
    also_user = user;
}

static struct core_log sink = {.level = CORE_LOG_WARN, .write = write_line};

bool cli_color(FILE *stream)
{
    const char *no_color = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    return isatty(fileno(stream)) && (no_color == NULL || no_color[0] == '\0') &&
           terminal != NULL && strcmp(terminal, "dumb") != 0;
}

/* The result is valid until the next call. */
static const char *full_name(const struct cli_command *command)
{
    static char name[64];
    snprintf(name, sizeof name, "%s%s%s", command->program != NULL ? command->program : "tide",
             command->name != NULL ? " " : "", command->name != NULL ? command->name : "");
    return name;
}

int cli_fail(const struct cli_command *command, int code, const char *format, ...)
{
    char said[2 * CORE_ERR_MESSAGE_BYTES];
    const char *message = core_err_message();
    if (format != NULL) {
        va_list list;
        va_start(list, format);
        vsnprintf(said, sizeof said, format, list);
        va_end(list);
        message = said;
    }
    fflush(stdout);
    fprintf(stderr, "%s: ", full_name(command));
    cli_print_text(stderr, message, strlen(message));
    fputc('\n', stderr);
    return code;
}

struct caught {
    void (*_Atomic handler)(int number);
    _Atomic int64_t first_ns; /* time of the first signal; 0: none */
};

static struct caught caught[NSIG];

/* May run on several threads at once. Signals within a second are copies: GNU timeout signals the
 * process and its group. */
static void on_signal(int number)
{
    const int64_t copies_ns = 1000000000;
    const int error = errno;
    const int64_t now_ns = core_clock_now_ns();
    int64_t first_ns = 0;
    if (atomic_compare_exchange_strong(&caught[number].first_ns, &first_ns, now_ns)) {
        void (*handler)(int number) = atomic_load(&caught[number].handler);
        handler(number);
    } else if (now_ns - first_ns >= copies_ns) {
        signal(number, SIG_DFL);
        raise(number);
    }
    errno = error;
}

void cli_signal_catch(int number, void (*handler)(int number))
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction before;
    sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        atomic_store(&caught[number].handler, handler);
        atomic_store(&caught[number].first_ns, 0);
        sigaction(number, &action, NULL);
    }
}

/* Returns whether stdout is a pipe that its reader has closed (`head`): no message is needed. */
static bool reader_is_gone(void)
{
    struct pollfd end = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&end, 1, 0) == 1 && (end.revents & POLLERR) != 0;
}

int cli_close(const struct cli_command *command, int code)
{
    errno = 0;
    bool arrived = fflush(stdout) == 0 && !ferror(stdout);
    int cause = errno; /* 0 if an earlier write failed */
    if (arrived || code == CLI_FAILED) {
        return code; /* no failure, or it was reported */
    }
    if (reader_is_gone()) {
        return CLI_FAILED;
    }
    return cli_fail(command, CLI_FAILED, "standard output cannot be written%s%s",
                    cause != 0 ? ": " : "", cause != 0 ? strerror(cause) : "");
}

int cli_close_json(const struct cli_command *command, struct core_json_write *json, int code)
{
    int rc = core_json_write_end(json);
    core_json_write_fini(json);
    if (rc == 0) {
        return code;
    }
    core_err_prefix(rc, "standard output");
    return reader_is_gone() ? CLI_FAILED : cli_fail(command, CLI_FAILED, NULL);
}

static void print_options(const struct cli_option *options, size_t count)
{
    struct cli_table *table = NULL;
    if (cli_table_create(2, &table) != 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const struct cli_option *option = &options[i];
        const bool shown = option->shown != NULL && option->kind != CLI_FLAG;
        char name[96];
        char help[160];
        snprintf(name, sizeof name, "--%s%s%s", option->name, option->value != NULL ? " " : "",
                 option->value != NULL ? option->value : "");
        snprintf(help, sizeof help, "%s%s%s%s", option->help, shown ? " [" : "",
                 shown ? option->shown : "", shown ? "]" : "");
        cli_table_add(table, (const char *const[]){name, help});
    }
    cli_table_add(table, (const char *const[]){"-q, -v, -h, --help", "quiet, verbose, this help"});
    cli_table_print(table, stdout, "  ");
    cli_table_destroy(table);
}

static void print_help(const struct cli_command *command, const struct cli_option *options,
                       size_t count, bool verbose)
{
    printf("%s: %s\n\nUsage: ", full_name(command), command->summary);
    fputs(full_name(command), stdout);
    if (command->usage != NULL) {
        printf(" %s\n\n", command->usage);
    } else {
        printf("%s%s%s\n\n", count > 0 ? " [OPTIONS]" : "", command->arguments != NULL ? " " : "",
               command->arguments != NULL ? command->arguments : "");
    }
    if (command->print_options != NULL) {
        command->print_options(verbose);
    } else {
        print_options(options, count);
    }
    printf("\nExample:\n  %s\n", command->example);
}

static bool same_name(const char *option, const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char a = option[i] == '_' ? '-' : option[i];
        char b = name[i] == '_' ? '-' : name[i];
        if (a != b) {
            return false;
        }
    }
    return option[length] == '\0';
}

static const struct cli_synonym *find_synonym(const struct cli_command *command, const char *name)
{
    const struct cli_synonym *at = command->synonyms;
    while (at != NULL && at->theirs != NULL && !same_name(at->theirs, name, strlen(name))) {
        at++;
    }
    return at != NULL && at->theirs != NULL ? at : NULL;
}

static int refuse_unknown(const struct cli_command *command, const struct cli_option *options,
                          size_t count, const char *argument)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(argument, "="), argument);
    const struct cli_synonym *synonym = find_synonym(command, name);
    if (synonym != NULL) {
        return cli_fail(command, CLI_WRONG, "unknown option --%s: %s%s", name,
                        synonym->ours[0] == '-' ? "use " : "", synonym->ours);
    }
    struct core_suggest guess;
    core_suggest_init(&guess, name);
    for (size_t i = 0; i < count; i++) {
        core_suggest_offer(&guess, options[i].name);
    }
    char meant[96] = "";
    if (guess.best != NULL) {
        snprintf(meant, sizeof meant, " (did you mean --%s?)", guess.best);
    }
    return cli_fail(command, CLI_WRONG, "unknown option --%s%s; see %s --help", name, meant,
                    full_name(command));
}

static int take_integer(const struct cli_option *option, const char *text)
{
    char *end = NULL;
    errno = 0;
    int64_t value = strtoll(text, &end, 10);
    bool limited = option->low != 0 || option->high != 0;
    if (end == text || *end != '\0' || (errno != 0 && !limited)) {
        return core_err_set(-EINVAL, "--%s takes an integer, not \"%s\"", option->name, text);
    }
    if (limited && (errno != 0 || (double)value < option->low || (double)value > option->high)) {
        return core_err_set(-EINVAL,
                            "--%s takes an integer from %" PRId64 " to %" PRId64 ", not %s",
                            option->name, (int64_t)option->low, (int64_t)option->high, text);
    }
    *(int64_t *)option->out = value;
    return 0;
}

static int take_real(const struct cli_option *option, const char *text)
{
    char *end = NULL;
    double value = strtod(text, &end);
    bool limited = option->low != 0 || option->high != 0;
    if (end == text || *end != '\0' || value - value != 0) {
        return core_err_set(-EINVAL, "--%s takes a number, not \"%s\"", option->name, text);
    }
    if (limited && (value < option->low || value > option->high)) {
        return core_err_set(-EINVAL, "--%s takes a number from %.15g to %.15g, not %s",
                            option->name, option->low, option->high, text);
    }
    *(double *)option->out = value;
    return 0;
}

static int take_choice(const struct cli_option *option, const char *text)
{
    int index = 0;
    for (const char *at = option->choices; *at != '\0'; index++) {
        size_t length = strcspn(at, "|");
        if (strlen(text) == length && memcmp(at, text, length) == 0) {
            *(int *)option->out = index;
            return 0;
        }
        at += length + (at[length] == '|');
    }
    return core_err_set(-EINVAL, "--%s takes one of %s, not \"%s\"", option->name, option->choices,
                        text);
}

static const char files_hint[] = "to pass several files, use a pattern in quotes: 'part-*.jsonl'";

static int take_files(const struct cli_option *option, const char *text)
{
    const char **out = option->out;
    if (*out != NULL) {
        return core_err_set(-EINVAL, "--%s is given twice, \"%s\" and \"%s\"; %s", option->name,
                            *out, text, files_hint);
    }
    *out = text;
    return 0;
}

int cli_take(const struct cli_option *option, const char *text)
{
    if (option->kind != CLI_FLAG && text[0] == '\0') {
        return core_err_set(-EINVAL, "--%s is empty; it needs a value: %s", option->name,
                            option->value);
    }
    switch (option->kind) {
    case CLI_FLAG: *(bool *)option->out = true; return 0;
    case CLI_TEXT: *(const char **)option->out = text; return 0;
    case CLI_FILES: return take_files(option, text);
    case CLI_TEXTS: {
        struct cli_texts *texts = option->out;
        if (texts->count == CLI_TEXTS_MAX) {
            return core_err_set(-EINVAL, "--%s may be given at most %d times", option->name,
                                CLI_TEXTS_MAX);
        }
        texts->items[texts->count++] = text;
        return 0;
    }
    case CLI_INTEGER: return take_integer(option, text);
    case CLI_REAL: return take_real(option, text);
    case CLI_SIZE:
        return core_size_parse(text, option->out) != 0
                   ? core_err_prefix(-EINVAL, "--%s", option->name)
                   : 0;
    case CLI_CHOICE: return take_choice(option, text);
    }
    return -EINVAL;
}

/* The value may be the next argument. */
static int take_option(const struct cli_command *command, const struct cli_option *options,
                       size_t count, char **argv, int *index, struct cli_given *given)
{
    const char *name = argv[*index] + 2;
    size_t length = strcspn(name, "=");
    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    for (size_t i = 0; i < count; i++) {
        const struct cli_option *option = &options[i];
        if (!same_name(option->name, name, length)) {
            continue;
        }
        if (option->kind == CLI_FLAG && value != NULL) {
            return cli_fail(command, CLI_WRONG, "--%s takes no value", option->name);
        }
        if (option->kind != CLI_FLAG && value == NULL) {
            value = argv[*index + 1];
            if (value == NULL) {
                return cli_fail(command, CLI_WRONG, "--%s needs a value: %s", option->name,
                                option->value);
            }
            ++*index;
        }
        given->bits[i / 64] |= UINT64_C(1) << i % 64;
        return cli_take(option, value) != 0 ? cli_fail(command, CLI_WRONG, NULL) : -1;
    }
    return refuse_unknown(command, options, count, name);
}

/* Takes -q, -v, -vv, -qv ... */
static bool take_short(struct cli_common *common, const char *letters)
{
    for (; *letters != '\0'; letters++) {
        if (*letters == 'q') {
            common->verbose = -1;
        } else if (*letters == 'v') {
            common->verbose = common->verbose < 0 ? 1 : common->verbose + 1;
        } else {
            return false;
        }
    }
    return true;
}

/* `files`: --data takes a pattern, which the shell may have expanded. */
static int check_arguments(const struct cli_command *command, char **arguments, size_t count,
                           bool files)
{
    for (size_t i = 0; i < count; i++) {
        if (arguments[i][0] == '\0') {
            return cli_fail(command, CLI_WRONG, "an argument is empty; see %s --help",
                            full_name(command));
        }
    }
    if (count < command->arguments_min) {
        return cli_fail(command, CLI_WRONG, "%s is missing; see %s --help", command->arguments,
                        full_name(command));
    }
    if (count > command->arguments_max) {
        return command->arguments_max == 0
                   ? cli_fail(command, CLI_WRONG, "unexpected argument \"%s\"; %s%ssee %s --help",
                              arguments[0], files ? files_hint : "", files ? "; " : "",
                              full_name(command))
                   : cli_fail(command, CLI_WRONG,
                              "at most %zu argument%s allowed, but %zu were given; see %s --help",
                              command->arguments_max, command->arguments_max == 1 ? " is" : "s are",
                              count, full_name(command));
    }
    return -1;
}

const char *cli_find(int argc, char **argv, const char *name)
{
    const char *found = NULL;
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *text = strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2 : "";
        const size_t length = strcspn(text, "=");
        if (length > 0 && same_name(name, text, length)) {
            found = text[length] == '=' ? text + length + 1 : i + 1 < argc ? argv[++i] : found;
        }
    }
    return found;
}

bool cli_is_loudness(const char *word)
{
    return word[0] == '-' && word[1] != '\0' && word[1 + strspn(word + 1, "qv")] == '\0';
}

int cli_loudness(int argc, char **argv)
{
    struct cli_common common = {.verbose = 0};
    for (int i = 0; i < argc; i++) {
        if (cli_is_loudness(argv[i])) {
            take_short(&common, argv[i] + 1);
        }
    }
    return common.verbose;
}

bool cli_is_given(const struct cli_given *given, size_t index)
{
    return (given->bits[index / 64] >> index % 64 & 1) != 0;
}

int cli_parse(const struct cli_command *command, const struct cli_option *options, size_t count,
              int argc, char **argv, struct cli_parsed *out)
{
    struct cli_parsed parsed = {.arguments = argv, .common.color = cli_color(stdout)};
    bool only_arguments = false;
    assert(count <= CLI_OPTIONS_MAX);
    for (int i = 0; i < argc; i++) {
        char *argument = argv[i];
        int code = -1;
        if (only_arguments || argument[0] != '-' || argument[1] == '\0') {
            parsed.arguments[parsed.count++] = argument;
        } else if (strcmp(argument, "--") == 0) {
            only_arguments = true;
        } else if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            while (++i < argc) {
                if (argv[i][0] == '-') {
                    take_short(&parsed.common, argv[i] + 1);
                }
            }
            print_help(command, options, count, parsed.common.verbose > 0);
            return cli_close(command, CLI_DONE);
        } else if (strncmp(argument, "--", 2) == 0) {
            code = take_option(command, options, count, argv, &i, &parsed.given);
        } else if (!take_short(&parsed.common, argument + 1)) {
            code = cli_fail(command, CLI_WRONG, "unknown option %s; see %s --help", argument,
                            full_name(command));
        }
        if (code >= 0) {
            return code;
        }
    }
    static const enum core_log_level levels[] = {CORE_LOG_ERROR, CORE_LOG_WARN, CORE_LOG_INFO,
                                                 CORE_LOG_DEBUG};
    sink.level = levels[parsed.common.verbose < 2 ? parsed.common.verbose + 1 : 3];
    core_log_bind(&sink);
    *out = parsed;
    bool files = false;
    for (size_t i = 0; i < count; i++) {
        files = files || strcmp(options[i].name, "data") == 0;
    }
    return check_arguments(command, parsed.arguments, parsed.count, files);
}

/* ---- the main thread ---- */

struct main_call {
    int (*run)(int argc, char **argv);
    int argc;
    char **argv; /* borrowed from main() */
    int code;
};

static void *call_main(void *argument)
{
    struct main_call *call = argument;
    call->code = call->run(call->argc, call->argv);
    return NULL;
}

int cli_main(int (*run)(int argc, char **argv), int argc, char **argv)
{
    struct main_call call = {run, argc, argv, 0};
    struct rlimit limit;
    pthread_t thread;
    sigset_t all;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= CORE_THREAD_STACK_BYTES) {
        return run(argc, argv);
    }
    const int rc = core_thread_start(&thread, call_main, &call);
    if (rc != 0) {
        fprintf(stderr,
                "%s: the stack is limited to %llu KiB, and no thread of %d KiB can be started: %s; "
                "raise the limit: ulimit -s %d\n",
                argv[0], (unsigned long long)limit.rlim_cur >> 10, CORE_THREAD_STACK_BYTES >> 10,
                strerror(rc), CORE_THREAD_STACK_BYTES >> 10);
        return CLI_FAILED;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_join(thread, NULL);
    return call.code;
}
