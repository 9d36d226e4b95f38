/* report.c: `tide report`: makes an HTML page of a run's log. The main thread. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "tools/report/log.h"
#include "tools/report/page.h"
#include "tools/report/run.h"
#include "tools/tide/commands.h"
#include "tools/tide/finetune_context.h"
#include "tools/tide/paths.h"

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text);
    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

/* Finds the log of a folder that has one log. */
static int find_log(const char *folder, char *out)
{
    DIR *list = opendir(folder);
    unsigned count = 0;
    char names[256] = "";
    size_t at = 0;
    if (list == NULL) {
        return core_err_set(-errno, "%s: %s", folder, strerror(errno));
    }
    for (const struct dirent *entry; (entry = readdir(list)) != NULL;) {
        if (!ends_with(entry->d_name, ".jsonl")) {
            continue;
        }
        const int more = snprintf(names + at, sizeof names - at, "%s%s", count++ > 0 ? ", " : "",
                                  entry->d_name);
        at = more < 0 || (size_t)more >= sizeof names - at ? sizeof names - 1 : at + (size_t)more;
        snprintf(out, PATH_MAX - 8, "%s/%s", folder, entry->d_name);
    }
    closedir(list);
    if (count == 0) {
        return core_err_set(-EINVAL,
                            "%s has no log (*.jsonl); name the file that tide finetune --log wrote",
                            folder);
    }
    return count == 1 ? 0
                      : core_err_set(-EINVAL, "%s has %u logs (*.jsonl: %s); name one of them",
                                     folder, count, names);
}

static int log_of(const char *given, char *out)
{
    struct stat info;
    if (strlen(given) >= PATH_MAX / 2) {
        return core_err_set(-ENAMETOOLONG, "a path of %zu bytes is too long", strlen(given));
    }
    if (stat(given, &info) == 0 && S_ISDIR(info.st_mode)) {
        return find_log(given, out);
    }
    snprintf(out, PATH_MAX, "%s", given);
    return 0;
}

/* "runs/a.jsonl" becomes "runs/a.html"; log_of() left room. */
static void page_of(const char *log, char *out)
{
    const size_t length = strlen(log);
    const size_t stem = ends_with(log, ".jsonl") ? length - strlen(".jsonl") : length;
    memcpy(out, log, stem);
    memcpy(out + stem, ".html", sizeof ".html");
}

static int write_page(const struct report_run *run, const char *path)
{
    char part[PATH_MAX];
    const int length = snprintf(part, sizeof part, "%s.part-%ld", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof part) {
        return core_err_set(-ENAMETOOLONG, "a path of %zu bytes is too long", strlen(path));
    }
    FILE *out = fopen(part, "wxe");
    if (out == NULL) {
        return core_err_set(-errno, "%s cannot be written: %s", path, strerror(errno));
    }
    const int rc = report_page_write(out, run);
    errno = 0;
    bool failed = fflush(out) != 0 || ferror(out);
    int cause = errno != 0 ? errno : EIO;
    failed |= fclose(out) != 0;
    if (rc != 0) {
        unlink(part);
        return rc;
    }
    if (!failed && rename(part, path) != 0) {
        failed = true;
        cause = errno;
    }
    if (failed) {
        unlink(part);
        return core_err_set(-cause, "%s cannot be written: %s", path, strerror(cause));
    }
    return 0;
}

/* Devices, pipes and standard output are written directly. */
static int save_page(const struct report_run *run, const char *path)
{
    struct stat info;
    const bool plain = stat(path, &info) != 0 || S_ISREG(info.st_mode);
    const bool standard = strcmp(path, "-") == 0;
    if (plain && !standard) {
        return write_page(run, path);
    }
    FILE *out = stdout;
    int rc = standard ? 0 : core_file_open_output(path, false, &out);
    if (rc != 0) {
        return rc;
    }
    rc = report_page_write(out, run);
    if (standard) {
        return rc; /* the stream is checked at the end */
    }
    errno = 0;
    const bool failed = fflush(out) != 0 || ferror(out);
    const int cause = errno != 0 ? errno : EIO;
    fclose(out);
    if (rc != 0) {
        return rc;
    }
    return failed ? core_err_set(-cause, "%s cannot be written: %s", path, strerror(cause)) : 0;
}

enum { NUMBER_BYTES = 32 };

static void print_loss(double loss, char out[NUMBER_BYTES])
{
    if (isfinite(loss)) {
        snprintf(out, NUMBER_BYTES, "%.4g", loss);
    } else {
        snprintf(out, NUMBER_BYTES, "\xe2\x80\x93");
    }
}

/* Prints three digits, as page.js does: "250 ms". */
static void print_seconds(double seconds, char out[NUMBER_BYTES])
{
    static const struct {
        double from, unit;
        const char *name;
    } units[] = {{172800, 86400, "d"}, {5400, 3600, "h"},       {120, 60, "min"},
                 {0.9995, 1, "s"},     {0.0009995, 1e-3, "ms"}, {0, 1e-6, "us"}};
    size_t at = 0;
    if (!isfinite(seconds) || seconds == 0) {
        snprintf(out, NUMBER_BYTES, "%s", seconds == 0 ? "0 s" : "\xe2\x80\x93");
        return;
    }
    while (fabs(seconds) < units[at].from) {
        at++;
    }
    const double value = seconds / units[at].unit;
    const double size = fabs(value);
    const int digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
    snprintf(out, NUMBER_BYTES, "%.*f %s", digits, value, units[at].name);
}

static void print_outcome(const struct report_run *run, const char *path)
{
    char first[NUMBER_BYTES];
    char last[NUMBER_BYTES];
    char seconds[NUMBER_BYTES];
    print_loss(run->first_loss, first);
    print_loss(run->last_loss, last);
    print_seconds(report_run_seconds(run, 0.5), seconds);
    printf("%s: steps %" PRIu64 " to %" PRIu64 ", loss %s -> %s, %s per step\n", path, run->first,
           run->last, first, last, seconds);
}

static int make_report(const struct cli_command *command, const char *given, const char *out)
{
    char log[PATH_MAX];
    char page[PATH_MAX];
    struct report_run run = {0};
    int rc = log_of(given, log);
    if (rc != 0 || (rc = report_log_read(log, &run)) != 0) {
        return cli_fail(command, finetune_exit_code(rc), NULL);
    }
    if (out == NULL) {
        page_of(log, page);
        out = page;
    }
    const struct cli_path paths[] = {
        {CLI_PATH_WRITTEN, "--out", strcmp(out, "-") == 0 ? "/dev/stdout" : out},
        {CLI_PATH_READ, "RUN", log},
    };
    rc = cli_paths_check(paths, 2);
    if (rc == 0) {
        rc = save_page(&run, out);
    }
    if (rc == 0 && strcmp(out, "-") != 0) {
        print_outcome(&run, out);
    }
    report_run_fini(&run);
    return rc == 0 ? CLI_DONE : cli_fail(command, finetune_exit_code(rc), NULL);
}

static int run_report(const struct cli_command *command, int argc, char **argv)
{
    const char *out = NULL;
    const struct cli_option options[] = {
        {.name = "out",
         .kind = CLI_TEXT,
         .value = "FILE",
         .out = &out,
         .help = "the page; \"-\": standard output",
         .shown = "next to the log, as .html"},
    };
    struct cli_parsed parsed;
    int code = cli_parse(command, options, sizeof options / sizeof options[0], argc, argv, &parsed);
    if (code >= 0) {
        return code;
    }
    return cli_close(command, make_report(command, parsed.arguments[0], out));
}

const struct cli_command cli_command_report = {
    .name = "report",
    .summary = "make a page of charts from a run's log: loss, step time by cause, bytes by path",
    .arguments = "RUN",
    .arguments_min = 1,
    .arguments_max = 1,
    .example = "tide report run.jsonl --out run.html\n"
               "      RUN is what --log wrote, or a folder with one such file; the page needs no "
               "network",
    .run = run_report,
};
