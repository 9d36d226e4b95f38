/* doctor.c: `tide doctor`: prints what tide_doctor finds. The main thread. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <tide/doctor.h>

#include "core/base/quote.h"
#include "core/json/write.h"
#include "tools/tide/commands.h"

/* Version of the object that --json prints (docs/doctor-json.md). */
enum { SCHEMA_VERSION = 1 };

static const char *const verdicts[] = {"ok", "warn", "fail"};

struct printer {
    struct cli_common common;
    struct core_json_write *json; /* borrowed; NULL: text */
    unsigned counts[3];
};

static void print_json(struct core_json_write *json, const struct tide_finding *finding)
{
    core_json_write_object_begin(json, NULL);
    core_json_write_string(json, "verdict", verdicts[finding->verdict]);
    core_json_write_string(json, "topic", finding->topic);
    core_json_write_string(json, "subject", finding->subject);
    core_json_write_string(json, "text", finding->text);
    core_json_write_string(json, "cure", finding->cure);
    if (finding->figure[0] != '\0') {
        core_json_write_string(json, "figure", finding->figure);
        core_json_write_real(json, "value", finding->value);
    } else {
        core_json_write_null(json, "figure");
        core_json_write_null(json, "value");
    }
    core_json_write_object_end(json);
}

/* Flushes lines, because measuring takes a while. */
static void print_line(const struct printer *printer, const struct tide_finding *finding)
{
    static const char *const colors[] = {"\033[32m", "\033[33m", "\033[31m"};
    if (printer->common.verbose < 0 && finding->verdict == TIDE_OK) {
        return;
    }
    bool color = printer->common.color;
    printf("%s%-4s%s  %-8s %s%s%s\n", color ? colors[finding->verdict] : "",
           verdicts[finding->verdict], color ? "\033[0m" : "", finding->topic, finding->subject,
           finding->subject[0] != '\0' ? ": " : "", finding->text);
    if (finding->cure[0] != '\0') {
        printf("      fix:     %s\n", finding->cure);
    }
    fflush(stdout);
}

static void print_finding(void *user, const struct tide_finding *finding)
{
    struct printer *printer = user;
    printer->counts[finding->verdict]++;
    if (printer->json != NULL) {
        print_json(printer->json, finding);
    } else {
        print_line(printer, finding);
    }
}

/* A missing folder is a mistake in the command, not a finding. */
static int check_stores(const struct cli_command *command, const struct cli_texts *stores)
{
    for (size_t i = 0; i < stores->count; i++) {
        struct stat info;
        char quoted[CORE_QUOTE_BYTES];
        const char *store = stores->items[i];
        if (stat(store, &info) == 0) {
            if (!S_ISDIR(info.st_mode)) {
                return cli_fail(command, CLI_WRONG, "--store %s is not a folder", store);
            }
        } else if (errno == ENOENT) {
            return cli_fail(command, CLI_WRONG, "--store %s does not exist; mkdir -p %s", store,
                            core_quote(store, quoted));
        } else if (errno != EACCES) {
            return cli_fail(command, CLI_WRONG, "--store %.200s: %s", store, strerror(errno));
        }
    }
    return -1;
}

static int run_doctor(const struct cli_command *command, const struct cli_texts *stores,
                      struct printer *printer)
{
    const struct tide_doctor_options options = {
        .struct_bytes = sizeof options,
        .stores = stores->items,
        .store_count = stores->count,
        .finding = print_finding,
        .user = printer,
    };
    int worst = tide_doctor(NULL, &options);
    if (worst < 0) {
        return cli_fail(command, CLI_FAILED, "%s", tide_last_error());
    }
    return worst == TIDE_FAIL ? CLI_FAILED : CLI_DONE;
}

static int look_json(const struct cli_command *command, const struct cli_texts *stores,
                     struct printer *printer)
{
    struct core_json_write json;
    core_json_write_init_file(&json, stdout);
    json.indent = 2;
    json.nan_is_null = true;
    printer->json = &json;
    core_json_write_object_begin(&json, NULL);
    core_json_write_integer(&json, "schema_version", SCHEMA_VERSION);
    core_json_write_string(&json, "version", tide_version());
    core_json_write_array_begin(&json, "findings");
    int code = run_doctor(command, stores, printer);
    core_json_write_array_end(&json);
    core_json_write_object_begin(&json, "counts");
    for (int i = 0; i < 3; i++) {
        core_json_write_unsigned(&json, verdicts[i], printer->counts[i]);
    }
    core_json_write_object_end(&json);
    core_json_write_object_end(&json);
    return cli_close_json(command, &json, code);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct cli_texts stores = {0};
    bool json = false;
    const struct cli_option options[] = {
        {.name = "store",
         .kind = CLI_TEXTS,
         .out = &stores,
         .value = "DIR",
         .help = "a folder for a run's states; may be repeated",
         .shown = "the current folder"},
        {.name = "json", .kind = CLI_FLAG, .out = &json, .help = "one JSON object"},
    };
    struct cli_parsed parsed;
    int code = cli_parse(command, options, sizeof options / sizeof options[0], argc, argv, &parsed);
    if (code < 0) {
        code = check_stores(command, &stores);
    }
    if (code >= 0) {
        return code;
    }
    if (stores.count == 0) {
        stores.items[stores.count++] = ".";
    }
    struct printer printer = {.common = parsed.common};
    if (json) {
        return cli_close(command, look_json(command, &stores, &printer));
    }
    code = run_doctor(command, &stores, &printer);
    if (parsed.common.verbose >= 0) {
        printf("\n%u ok, %u warn, %u fail\n", printer.counts[TIDE_OK], printer.counts[TIDE_WARN],
               printer.counts[TIDE_FAIL]);
    }
    return cli_close(command, code);
}

const struct cli_command cli_command_doctor = {
    .name = "doctor",
    .summary = "show what this machine can do and what would slow a run down",
    .example = "tide doctor --store /scratch/tide --store /scratch2/tide\n      one line per "
               "finding: ok, warn or fail, each with its fix; exit code 1 if one fails",
    .run = run,
};
