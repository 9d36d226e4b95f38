/* finetune_log.c: writes a run's JSONL and CSV files. Keys are a contract: docs/finetune.md. */
#include "tools/tide/finetune_log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json_write.h"
#include "core/base/log.h"

static const char *const waits[TIDE_WAIT_COUNT] = {
    [TIDE_WAIT_STORE_READ] = "store_read", [TIDE_WAIT_STORE_WRITE] = "store_write",
    [TIDE_WAIT_UPDATE] = "update",         [TIDE_WAIT_COPY] = "copy",
    [TIDE_WAIT_IMBALANCE] = "imbalance",   [TIDE_WAIT_OTHER] = "other",
};

struct tune_log {
    struct core_json_write json;
    FILE *json_file; /* owned; NULL: not wanted */
    FILE *csv_file;  /* owned; NULL: not wanted */
    char *json_path; /* owned */
    char *csv_path;  /* owned */
    int code;        /* the first failure */
};

static int open_file(const char *path, bool append, FILE **file, char **kept)
{
    if (path == NULL) {
        return 0;
    }
    *kept = strdup(path);
    *file = *kept != NULL ? fopen(path, append ? "ae" : "we") : NULL;
    if (*file == NULL) {
        return core_err_set(-errno, "%s cannot be written: %s", path, strerror(errno));
    }
    return 0;
}

static void print_header(FILE *file)
{
    fputs("step,loss,grad_norm,lr,loss_scale,skipped,tokens,seconds,tokens_per_second,"
          "store_read_bytes,store_write_bytes,h2d_bytes,d2h_bytes",
          file);
    for (int i = 0; i < TIDE_WAIT_COUNT; i++) {
        fprintf(file, ",wait_%s", waits[i]);
    }
    fputs(",wait_data,rss_gb,eval_loss\n", file);
}

static void note_failure(struct tune_log *log, const char *path, int cause)
{
    if (log->code == 0) {
        log->code = core_err_set(cause != 0 ? -cause : -EIO, "%s cannot be written: %s", path,
                                 strerror(cause != 0 ? cause : EIO));
        core_log(CORE_LOG_ERROR, "%s; the run goes on without it", core_err_sentence());
    }
}

/* Every line arrives at once, so that a run can be watched and loses nothing when it is killed. */
static void flush(struct tune_log *log, FILE **file, const char *path, int rc)
{
    errno = 0;
    if (rc != 0 || fflush(*file) != 0 || ferror(*file)) {
        note_failure(log, path, rc != 0 ? -rc : errno);
        fclose(*file);
        *file = NULL;
    }
}

int tune_log_open(const char *json_path, const char *csv_path, bool append, struct tune_log **out)
{
    struct tune_log *log = calloc(1, sizeof *log);
    if (log == NULL) {
        return core_err_set(-ENOMEM, "no memory for a log");
    }
    int rc = open_file(json_path, append, &log->json_file, &log->json_path);
    rc = rc != 0 ? rc : open_file(csv_path, append, &log->csv_file, &log->csv_path);
    if (rc != 0) {
        tune_log_close(log);
        return rc;
    }
    if (log->json_file != NULL) {
        core_json_write_init_file(&log->json, log->json_file);
        log->json.nan_is_null = true;
    }
    if (log->csv_file != NULL && ftell(log->csv_file) <= 0) {
        print_header(log->csv_file);
        flush(log, &log->csv_file, log->csv_path, 0);
    }
    *out = log;
    return 0;
}

int tune_log_close(struct tune_log *log)
{
    if (log == NULL) {
        return 0;
    }
    FILE *const files[] = {log->json_file, log->csv_file};
    const char *const paths[] = {log->json_path, log->csv_path};
    for (int i = 0; i < 2; i++) {
        if (files[i] != NULL && fclose(files[i]) != 0) {
            note_failure(log, paths[i], errno);
        }
    }
    int code = log->code;
    core_json_write_fini(&log->json);
    free(log->json_path);
    free(log->csv_path);
    free(log);
    return code;
}

static double rate_of(const struct tide_step *step)
{
    return step->seconds > 0 ? (double)step->tokens / step->seconds : 0;
}

static void write_guesses(struct core_json_write *json, const struct tide_step *step)
{
    core_json_write_object_begin(json, "guesses");
    core_json_write_unsigned(json, "right", step->guess_right);
    core_json_write_unsigned(json, "wrong", step->guess_wrong);
    core_json_write_unsigned(json, "bytes", step->guess_bytes);
    core_json_write_real(json, "seconds", step->guess_seconds);
    core_json_write_object_end(json);
}

static int write_json(struct core_json_write *json, const struct tune_record *record)
{
    const struct tide_step *step = &record->step;
    core_json_write_object_begin(json, NULL);
    core_json_write_unsigned(json, "step", step->step);
    core_json_write_real(json, "loss", step->loss);
    core_json_write_real(json, "grad_norm", step->grad_norm);
    core_json_write_real(json, "lr", record->lr);
    core_json_write_real(json, "loss_scale", step->loss_scale);
    core_json_write_bool(json, "skipped", step->skipped != 0);
    core_json_write_unsigned(json, "tokens", step->tokens);
    core_json_write_real(json, "seconds", step->seconds);
    core_json_write_real(json, "tokens_per_second", rate_of(step));
    core_json_write_unsigned(json, "store_read_bytes", step->store_read_bytes);
    core_json_write_unsigned(json, "store_write_bytes", step->store_write_bytes);
    core_json_write_unsigned(json, "h2d_bytes", step->up_bytes);
    core_json_write_unsigned(json, "d2h_bytes", step->down_bytes);
    core_json_write_object_begin(json, "wait");
    for (int i = 0; i < TIDE_WAIT_COUNT; i++) {
        core_json_write_real(json, waits[i], step->compute_wait[i]);
    }
    core_json_write_real(json, "data", record->data_wait);
    core_json_write_object_end(json);
    write_guesses(json, step);
    core_json_write_real(json, "rss_gb", (double)record->memory.rss_bytes / 1e9);
    if (record->evaluated) {
        core_json_write_real(json, "eval_loss", record->eval_loss);
    }
    core_json_write_object_end(json);
    return core_json_write_end(json);
}

static void write_real(FILE *file, double value, bool known)
{
    if (known && isfinite(value)) {
        fprintf(file, ",%.9g", value);
    } else {
        fputc(',', file);
    }
}

static void write_csv(FILE *file, const struct tune_record *record)
{
    const struct tide_step *step = &record->step;
    fprintf(file, "%" PRIu64, step->step);
    write_real(file, step->loss, true);
    write_real(file, step->grad_norm, true);
    write_real(file, record->lr, true);
    write_real(file, step->loss_scale, true);
    fprintf(file, ",%" PRIu32 ",%" PRIu64, step->skipped, step->tokens);
    write_real(file, step->seconds, true);
    write_real(file, rate_of(step), true);
    fprintf(file, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64, step->store_read_bytes,
            step->store_write_bytes, step->up_bytes, step->down_bytes);
    for (int i = 0; i < TIDE_WAIT_COUNT; i++) {
        write_real(file, step->compute_wait[i], true);
    }
    write_real(file, record->data_wait, true);
    write_real(file, (double)record->memory.rss_bytes / 1e9, true);
    write_real(file, record->eval_loss, record->evaluated);
    fputc('\n', file);
}

void tune_log_step(struct tune_log *log, const struct tune_record *record)
{
    if (log->json_file != NULL) {
        flush(log, &log->json_file, log->json_path, write_json(&log->json, record));
    }
    if (log->csv_file != NULL) {
        write_csv(log->csv_file, record);
        flush(log, &log->csv_file, log->csv_path, 0);
    }
}

void tune_log_summary(struct tune_log *log, const struct tune_summary *summary)
{
    struct core_json_write *json = &log->json;
    if (log->json_file == NULL) {
        return;
    }
    core_json_write_object_begin(json, NULL);
    core_json_write_real(json, "median_seconds", summary->median_seconds);
    core_json_write_real(json, "tokens_per_second", summary->tokens_per_second);
    core_json_write_real(json, "peak_rss_gb", summary->peak_rss_gb);
    core_json_write_real(json, "peak_device_gb", summary->peak_device_gb);
    core_json_write_real(json, "plan_host_gb", summary->plan_host_gb);
    core_json_write_real(json, "plan_device_gb", summary->plan_device_gb);
    core_json_write_real(json, "plan_seconds", summary->plan_seconds);
    core_json_write_object_end(json);
    flush(log, &log->json_file, log->json_path, core_json_write_end(json));
}
