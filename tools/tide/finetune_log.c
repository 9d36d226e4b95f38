/* finetune_log.c: writes the JSONL, CSV and event files of a run. Keys: docs/finetune.md. */
#include "tools/tide/finetune_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/json/write.h"
#include "tools/tide/event_file.h"
#include "tools/tide/plan_json.h"

struct finetune_log {
    struct core_json_write json;
    FILE *json_file;          /* owned; NULL: not wanted */
    FILE *csv_file;           /* owned; NULL: not wanted */
    struct event_file *board; /* owned; NULL: not wanted */
    char *json_path;          /* owned */
    char *csv_path;           /* owned */
    struct finetune_events *events;
    struct finetune_log_head head;
    bool append; /* keep the content */
    bool ran;    /* the run was not refused */
    bool began;  /* the first line was written */
    int rc;      /* the first failure */
};

/* A file of the options. */
struct target {
    const char *flag;
    const char *path;   /* NULL: not wanted */
    const char *what;   /* for messages */
    const char *begins; /* what every version writes first; '#': digits */
};

static struct target log_of(const struct finetune_log_options *options)
{
    return (struct target){"--log", options->json_path, "a log", "{\"step\":#,\"loss\":"};
}

static struct target table_of(const struct finetune_log_options *options)
{
    const char *flag = options->csv_monitor ? "csv_monitor.output_path" : "--csv";
    return (struct target){flag, options->csv_path, "a table", "step,loss,grad_norm,lr,"};
}

/* Returns whether the run may cut, empty and lock the file. Others, too, write to pipes, devices,
 * standard output and standard error. */
static bool is_own(const struct stat *info)
{
    struct stat stream;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fstat(fd, &stream) == 0 && stream.st_dev == info->st_dev &&
            stream.st_ino == info->st_ino) {
            return false;
        }
    }
    return S_ISREG(info->st_mode);
}

/* Also true for a shorter text, which a killed run may leave. */
static bool is_begin(const char *text, const char *begins)
{
    for (; *begins != '\0' && *text != '\0'; begins++) {
        const size_t same = *begins == '#' ? strspn(text, "0123456789") : *text == *begins;
        if (same == 0) {
            return false;
        }
        text += same;
    }
    return true;
}

static int refuse_used(const struct target *target)
{
    return core_err_set(
        -EBUSY, "%s %s: a running process writes there; name another file, or wait until it ends",
        target->flag, target->path);
}

/* Refuses a file that a process has locked, and other files than those of earlier runs. */
static int check_content(const struct target *target, int fd)
{
    enum { BEGIN_BYTES = 63 };
    char text[BEGIN_BYTES + 1] = "";
    if (flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return refuse_used(target);
    }
    const ssize_t got = core_file_read_at(fd, text, BEGIN_BYTES, 0);
    if (got < 0) {
        return core_err_set((int)got, "%s %s cannot be read: %s", target->flag, target->path,
                            strerror((int)-got));
    }
    return strlen(text) == (size_t)got && is_begin(text, target->begins)
               ? 0
               : core_err_set(-EEXIST,
                              "%s %s: the file there is not %s of tide finetune; name another "
                              "file, or move it away",
                              target->flag, target->path, target->what);
}

static int check_file(const struct target *target)
{
    struct stat info;
    if (target->path == NULL || stat(target->path, &info) != 0 || !is_own(&info)) {
        return 0;
    }
    const int fd = open(target->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return core_err_set(-errno, "%s %s cannot be read: %s", target->flag, target->path,
                            strerror(errno));
    }
    const int rc = check_content(target, fd);
    close(fd);
    return rc;
}

int finetune_log_check(const struct finetune_log_options *options)
{
    const struct target log = log_of(options);
    const struct target table = table_of(options);
    const int rc = check_file(&log);
    return rc == 0 ? check_file(&table) : rc;
}

/* A killed run may leave an incomplete last line. */
static void cut_torn_line(const char *path)
{
    struct stat info;
    const bool own = stat(path, &info) == 0 && is_own(&info);
    FILE *file = own ? fopen(path, "r+e") : NULL;
    if (file == NULL) {
        return;
    }
    off_t end = info.st_size;
    while (end > 0 && fseeko(file, end - 1, SEEK_SET) == 0 && getc(file) != '\n') {
        end--;
    }
    if (end < info.st_size && ftruncate(fileno(file), end) != 0) {
        core_log(CORE_LOG_WARN, "the end of %s is not a complete line: %s", path, strerror(errno));
    }
    fclose(file);
}

/* The lock ends with the file. Some file systems have no locks. */
static int lock_file(const struct target *target, int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && is_own(&info) && flock(fd, LOCK_EX | LOCK_NB) != 0 &&
                   errno == EWOULDBLOCK
               ? refuse_used(target)
               : 0;
}

/* Earlier lines stay until the run begins, because the run may be refused. */
static int open_file(const struct target *target, bool append, FILE **file, char **kept)
{
    if (target->path == NULL) {
        return 0;
    }
    *kept = strdup(target->path);
    int rc = *kept != NULL ? 0 : core_err_set(-ENOMEM, "no memory for a path");
    if (rc != 0 || (rc = check_file(target)) != 0 ||
        (rc = core_file_open_output(target->path, true, file)) != 0 ||
        (rc = lock_file(target, fileno(*file))) != 0) {
        return rc;
    }
    if (append) {
        cut_torn_line(target->path);
    }
    return 0;
}

/* Keeps `rc`, whose message is set, unless a failure came before. */
static void note_failure(struct finetune_log *log, int rc)
{
    if (log->rc == 0) {
        log->rc = rc;
        core_log(CORE_LOG_ERROR, "%s; the run continues without it", core_err_message());
    }
}

static int set_write_error(const char *path, int cause)
{
    cause = cause != 0 ? cause : EIO;
    return core_err_set(-cause, "%s cannot be written: %s", path, strerror(cause));
}

/* A killed run must lose nothing. */
static void flush(struct finetune_log *log, FILE **file, const char *path, int rc)
{
    errno = 0;
    if (rc != 0 || fflush(*file) != 0 || ferror(*file)) {
        note_failure(log, set_write_error(path, rc != 0 ? -rc : errno));
        fclose(*file);
        *file = NULL;
    }
}

static void check_board(struct finetune_log *log, int rc)
{
    if (rc != 0) {
        note_failure(log, rc);
        event_file_close(log->board);
        log->board = NULL;
    }
}

static int open_files(struct finetune_log *log, const struct finetune_log_options *options)
{
    const struct target json = log_of(options);
    const struct target csv = table_of(options);
    int rc = open_file(&json, options->append, &log->json_file, &log->json_path);
    if (rc == 0 && csv.path != NULL && options->csv_monitor) {
        const char *slash = strrchr(csv.path, '/');
        rc = slash != NULL ? core_file_make_folders(csv.path, (size_t)(slash - csv.path)) : 0;
    }
    if (rc == 0) {
        rc = open_file(&csv, options->append, &log->csv_file, &log->csv_path);
    }
    if (rc == 0 && options->board_folder != NULL) {
        rc = event_file_open(options->board_folder, &log->board);
    }
    return rc;
}

int finetune_log_open(const struct finetune_log_options *options, struct finetune_log **out)
{
    struct finetune_log *log = calloc(1, sizeof *log);
    if (log == NULL) {
        return core_err_set(-ENOMEM, "no memory for a log");
    }
    log->events = options->events;
    log->append = options->append;
    int rc = open_files(log, options);
    if (rc != 0) {
        finetune_log_close(log);
        return rc;
    }
    if (log->json_file != NULL) {
        core_json_write_init_file(&log->json, log->json_file);
        log->json.nan_is_null = true;
    }
    *out = log;
    return 0;
}

int finetune_log_close(struct finetune_log *log)
{
    if (log == NULL) {
        return 0;
    }
    FILE *const files[] = {log->json_file, log->csv_file};
    const char *const paths[] = {log->json_path, log->csv_path};
    for (int i = 0; i < 2; i++) {
        if (files[i] != NULL && fclose(files[i]) != 0) {
            note_failure(log, set_write_error(paths[i], errno));
        }
    }
    int rc = 0;
    if (log->ran) {
        rc = event_file_close(log->board);
    } else {
        event_file_discard(log->board); /* the run was refused */
    }
    if (rc != 0) {
        note_failure(log, rc);
    }
    rc = log->rc;
    core_json_write_fini(&log->json);
    free(log->json_path);
    free(log->csv_path);
    free(log);
    return rc;
}

/* Empties the file, unless the log appends. Returns whether the run writes its first lines. */
static bool begin_file(const struct finetune_log *log, FILE *file, const char *path)
{
    struct stat info;
    if (file == NULL || fstat(fileno(file), &info) != 0) {
        return false;
    }
    if (!log->append && is_own(&info) && info.st_size > 0 && ftruncate(fileno(file), 0) != 0) {
        core_log(CORE_LOG_WARN, "%s keeps the lines of an earlier run: %s", path, strerror(errno));
        return false;
    }
    return !log->append || info.st_size == 0;
}

void finetune_log_begin(struct finetune_log *log, const struct finetune_log_head *head)
{
    log->head = *head;
    log->ran = true;
    (void)begin_file(log, log->json_file, log->json_path);
    if (begin_file(log, log->csv_file, log->csv_path)) {
        finetune_figures_print_names(log->csv_file);
        flush(log, &log->csv_file, log->csv_path, 0);
    }
    if (log->board != NULL) {
        check_board(log, event_file_restart(log->board, (uint64_t)head->begun + 1));
    }
}

static void write_run(struct core_json_write *json, const struct finetune_log_head *head,
                      const struct tide_engine_memory *memory)
{
    char clock[32] = "";
    const time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts) != NULL) {
        strftime(clock, sizeof clock, "%Y-%m-%dT%H:%M:%SZ", &parts);
    }
    core_json_write_object_begin(json, "run");
    core_json_write_integer(json, "schema_version", FINETUNE_LOG_VERSION);
    core_json_write_string(json, "time", clock);
    core_json_write_integer(json, "steps", head->steps);
    core_json_write_integer(json, "begun", head->begun);
    core_json_write_integer(json, "eval_every", head->eval_every);
    core_json_write_integer(json, "save_every", head->save_every);
    core_json_write_real(json, "clip", head->engine->clip);
    core_json_write_unsigned(json, "device_bytes", memory->device_bytes);
    core_json_write_unsigned(json, "host_bytes", memory->host_bytes);
    core_json_write_object_end(json);
}

static void write_drives(struct core_json_write *json, const struct finetune_drive *drives,
                         size_t count)
{
    if (count == 0) {
        return;
    }
    core_json_write_array_begin(json, "drives");
    for (size_t i = 0; i < count; i++) {
        core_json_write_object_begin(json, NULL);
        core_json_write_string(json, "directory", drives[i].directory);
        core_json_write_unsigned(json, "read_bytes", drives[i].read_bytes);
        core_json_write_unsigned(json, "write_bytes", drives[i].write_bytes);
        core_json_write_object_end(json);
    }
    core_json_write_array_end(json);
}

/* The first line also describes the run. */
static int write_json(struct finetune_log *log, const struct finetune_record *record)
{
    struct core_json_write *json = &log->json;
    core_json_write_object_begin(json, NULL);
    finetune_figures_write(json, record);
    write_drives(json, record->drives, record->drive_count);
    if (!log->began && log->head.plan != NULL) {
        write_run(json, &log->head, &record->memory);
        cli_plan_write_json(json, "plan", log->head.plan, log->head.engine, false);
    }
    log->began = true;
    finetune_events_write(log->events, json);
    core_json_write_object_end(json);
    return core_json_write_end(json);
}

static int write_board(struct event_file *board, const struct finetune_record *record)
{
    const struct finetune_figure *figure = NULL;
    event_file_begin(board, record->step.step);
    for (size_t i = 0; (figure = finetune_figure_at(i)) != NULL; i++) {
        if (figure->tag != NULL && finetune_figure_known(figure, record)) {
            event_file_value(board, figure->tag, finetune_figure_value(figure, record));
        }
    }
    return event_file_end(board);
}

void finetune_log_step(struct finetune_log *log, struct finetune_record *record)
{
    finetune_figures_derive(record);
    if (log->json_file != NULL) {
        flush(log, &log->json_file, log->json_path, write_json(log, record));
    }
    if (log->csv_file != NULL) {
        finetune_figures_print(log->csv_file, record);
        flush(log, &log->csv_file, log->csv_path, 0);
    }
    if (log->board != NULL) {
        check_board(log, write_board(log->board, record));
    }
}

void finetune_log_summary(struct finetune_log *log, const struct finetune_summary *summary)
{
    struct core_json_write *json = &log->json;
    if (log->json_file == NULL) {
        return;
    }
    const struct {
        const char *key;
        double value;
    } figures[] = {
        {"median_seconds", summary->median_seconds},
        {"tokens_per_second", summary->tokens_per_second},
        {"peak_rss_gb", summary->peak_rss_gb},
        {"peak_device_gb", summary->peak_device_gb},
        {"plan_host_gb", summary->plan_host_gb},
        {"plan_device_gb", summary->plan_device_gb},
        {"plan_seconds", summary->plan_seconds},
    };
    core_json_write_object_begin(json, NULL);
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        core_json_write_real(json, figures[i].key, figures[i].value);
    }
    write_drives(json, summary->drives, summary->drive_count);
    finetune_events_write(log->events, json);
    core_json_write_object_end(json);
    flush(log, &log->json_file, log->json_path, core_json_write_end(json));
}
