/* finetune_live.c: the live line: progress, loss, speed, remaining time and stalls. */
#include "tools/tide/finetune_live.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/tide/cli.h"

static const char *const causes[FINETUNE_WAITS] = {
    [TIDE_WAIT_STORE_READ] = "store reads", [TIDE_WAIT_STORE_WRITE] = "store writes",
    [TIDE_WAIT_UPDATE] = "the update",      [TIDE_WAIT_COPY] = "copies",
    [TIDE_WAIT_IMBALANCE] = "other ranks",  [TIDE_WAIT_OTHER] = "other work",
};

void finetune_live_init(struct finetune_live *live, FILE *stream, bool quiet, uint64_t steps,
                        uint64_t print_every)
{
    const char *terminal = getenv("TERM");
    *live = (struct finetune_live){.stream = quiet ? NULL : stream,
                                   .terminal = isatty(fileno(stream)) && terminal != NULL &&
                                               strcmp(terminal, "dumb") != 0,
                                   .steps = steps,
                                   .print_every = print_every > 0 ? print_every : 1};
}

const char *finetune_live_clock(double seconds, char *out, size_t bytes)
{
    uint64_t all = seconds >= 0 && seconds < 1e12 ? (uint64_t)llround(seconds) : 0;
    uint64_t hours = all / 3600;
    if (hours > 0) {
        snprintf(out, bytes, "%" PRIu64 ":%02u:%02u", hours, (unsigned)(all / 60 % 60),
                 (unsigned)(all % 60));
    } else {
        snprintf(out, bytes, "%u:%02u", (unsigned)(all / 60), (unsigned)(all % 60));
    }
    return out;
}

static size_t width_of(FILE *stream)
{
    struct winsize size = {0};
    return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col - 1u
                                                                             : 79;
}

/* Returns the bytes of the text that fit: if possible, whole parts, which two spaces separate. */
static size_t fitting(const char *text, size_t width)
{
    size_t end = strlen(text);
    if (end <= width) {
        return end;
    }
    for (size_t at = 0; at <= width && text[at] != '\0'; at++) {
        end = text[at] == ' ' && text[at + 1] == ' ' ? at : end;
    }
    return end < width ? end : width;
}

/* A wrapped line could not be overwritten. */
static void print_line(struct finetune_live *live, const char *text)
{
    if (live->terminal) {
        fprintf(live->stream, "\r\033[K%.*s", (int)fitting(text, width_of(live->stream)), text);
        live->open = true;
    } else {
        fprintf(live->stream, "%s\n", text);
    }
    fflush(live->stream);
}

void finetune_live_end(struct finetune_live *live)
{
    if (live->open) {
        fputc('\n', live->stream);
        fflush(live->stream);
        live->open = false;
    }
}

static double mean_seconds(const struct finetune_live *live)
{
    uint64_t count = live->recent_count < FINETUNE_LIVE_RECENT ? live->recent_count
                                                               : FINETUNE_LIVE_RECENT;
    double sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += live->recent[i];
    }
    return count > 0 ? sum / (double)count : 0;
}

/* Writes "41 % stalled on store reads"; below one percent, "no stalls". */
static void print_wait(const struct finetune_record *record, char *out, size_t bytes)
{
    const struct tide_step *step = &record->step;
    int most = 0;
    for (int i = 1; i < FINETUNE_WAITS; i++) {
        most = record->waits[i] > record->waits[most] ? i : most;
    }
    const char *cause = causes[most];
    double wait = record->waits[most];
    double seconds = step->seconds;
    /* The wait for rows is before the step. */
    if (record->data_wait > wait) {
        cause = "data";
        wait = record->data_wait;
        seconds += wait;
    }
    const double part = seconds > 0 ? wait / seconds : 0;
    if (part < 0.01) {
        snprintf(out, bytes, "no stalls");
    } else {
        snprintf(out, bytes, "%.0f %% stalled on %s", 100 * part, cause);
    }
}

/* A terminal gets fewer figures, so that they fit. */
static void print_figures(const struct finetune_live *live, const struct finetune_record *record,
                          char *out, size_t bytes)
{
    const struct tide_step *step = &record->step;
    const double rate = step->seconds > 0 ? (double)step->tokens / step->seconds : 0;
    const int digits = cli_rate_digits(rate);
    char pairs[64] = "";
    if (record->pairs) {
        snprintf(pairs, sizeof pairs, "  margin %.3g  right %.0f %%",
                 step->reward_chosen - step->reward_rejected, 100 * step->reward_accuracy);
    }
    if (live->terminal) {
        snprintf(out, bytes, "loss %.4f%s  %.*f tok/s", step->loss, pairs, digits, rate);
    } else {
        snprintf(out, bytes, "loss %.4f%s  norm %.3g  lr %.3g  %.*f tok/s", step->loss, pairs,
                 step->grad_norm, record->lr, digits, rate);
    }
}

void finetune_live_step(struct finetune_live *live, const struct finetune_record *record)
{
    const struct tide_step *step = &record->step;
    if (live->begun) { /* the first step opens files and selects algorithms */
        live->recent[live->recent_count++ % FINETUNE_LIVE_RECENT] = step->seconds;
    }
    live->begun = true;
    const bool due = live->terminal || step->step % live->print_every == 0 || step->step == 1 ||
                     step->step == live->steps || record->evaluated;
    if (live->stream == NULL || !due) {
        return;
    }
    char wait[64];
    char eta[32];
    char eval[80] = "";
    char figures[200];
    char text[480];
    uint64_t left = live->steps > step->step ? live->steps - step->step : 0;
    double pace = live->recent_count > 0 ? mean_seconds(live) : step->seconds;
    print_wait(record, wait, sizeof wait);
    finetune_live_clock((double)left * pace, eta, sizeof eta);
    if (record->evaluated) {
        const int used = snprintf(eval, sizeof eval, "  eval loss %.4f", record->eval_loss);
        if (record->pairs) {
            snprintf(eval + used, sizeof eval - (size_t)used, "  eval margin %.3g  right %.0f %%",
                     record->eval_margin, 100 * record->eval_accuracy);
        }
    }
    print_figures(live, record, figures, sizeof figures);
    snprintf(text, sizeof text, "step %" PRIu64 "/%" PRIu64 "  %s  ETA %s  %s%s%s", step->step,
             live->steps, figures, eta, wait, step->skipped != 0 ? "  skipped: overflow" : "",
             eval);
    print_line(live, text);
}

void finetune_live_progress(struct finetune_live *live, const struct tide_progress *progress)
{
    unsigned percent = 0;
    if (progress->total > 0 && progress->done <= progress->total) {
        percent = (unsigned)(100.0 * (double)progress->done / (double)progress->total);
    }
    const bool same = strncmp(live->phase, progress->phase, sizeof live->phase - 1) == 0;
    if (live->stream == NULL || (same && (!live->terminal || percent == live->percent))) {
        return; /* in a pipe, a phase is printed when it begins */
    }
    char text[128];
    snprintf(live->phase, sizeof live->phase, "%s", progress->phase);
    live->percent = percent;
    if (live->terminal && progress->total > 0) {
        snprintf(text, sizeof text, "%s: %u %%", progress->phase, percent);
    } else {
        snprintf(text, sizeof text, "%s ...", progress->phase);
    }
    print_line(live, text);
}
