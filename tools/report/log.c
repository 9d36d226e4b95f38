/* log.c: the first pass finds the steps that count; the second one reads their figures. */
#include "tools/report/log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "tools/report/line.h"

enum { LINE_BYTES_MAX = 1 << 20, TURNS_MAX = 1 << 16 };

/* Lines with increasing steps. A turn ends where the run was resumed from an earlier step. */
struct turn {
    uint64_t line;
    uint64_t first;
    uint64_t counts_below; /* steps from this one on were repeated by a later turn */
};

struct reader {
    const char *path;
    FILE *file; /* owned */
    char *text; /* owned; LINE_BYTES_MAX + 1 */
    struct report_line line;
    bool ended;         /* the line had its newline */
    struct turn *turns; /* owned */
    size_t turn_count, turn_room;
    uint64_t first, last, lines; /* steps; complete lines */
    bool torn;
};

/* Returns 1; 0 at the end of the file; -errno. */
static int next_line(struct reader *reader)
{
    size_t bytes = 0;
    int letter = 0;
    while ((letter = getc_unlocked(reader->file)) != EOF && letter != '\n') {
        if (bytes == LINE_BYTES_MAX) {
            return core_err_set(-EINVAL,
                                "%s:%" PRIu64
                                ": is longer than %d bytes; the file is not a log of tide finetune",
                                reader->path, reader->line.number + 1, LINE_BYTES_MAX);
        }
        reader->text[bytes++] = (char)letter;
    }
    if (ferror(reader->file)) {
        return core_err_set(-EIO, "%s cannot be read: %s", reader->path, strerror(errno));
    }
    reader->ended = letter == '\n';
    reader->text[bytes] = '\0';
    reader->line.bytes = bytes;
    reader->line.number++;
    return letter == '\n' || bytes > 0;
}

static bool is_blank(const struct report_line *line)
{
    return line->text[strspn(line->text, " \t\r")] == '\0' && strlen(line->text) == line->bytes;
}

static int add_turn(struct reader *reader, uint64_t step)
{
    if (reader->turn_count == reader->turn_room) {
        const size_t room = reader->turn_room * 2 + 16;
        struct turn *more = room <= TURNS_MAX ? realloc(reader->turns, room * sizeof *more) : NULL;
        if (more == NULL) {
            return core_err_set(room <= TURNS_MAX ? -ENOMEM : -EINVAL,
                                "%s:%" PRIu64 ": the log has more than %zu resumes", reader->path,
                                reader->line.number, reader->turn_count);
        }
        reader->turns = more;
        reader->turn_room = room;
    }
    reader->turns[reader->turn_count++] = (struct turn){
        .line = reader->line.number, .first = step, .counts_below = UINT64_MAX};
    return 0;
}

/* A run that was killed may leave the last line incomplete. */
static int first_pass(struct reader *reader)
{
    struct report_values values = {.step = 0};
    enum report_line_kind kind = REPORT_LINE_STEP;
    uint64_t before = UINT64_MAX;
    bool more = false;
    int rc = 0;
    while ((rc = next_line(reader)) > 0) {
        if (is_blank(&reader->line)) {
            continue;
        }
        rc = report_line_read(&reader->line, &kind, &values, &more);
        if (rc != 0 && !reader->ended) {
            reader->torn = true;
            rc = 0;
            break;
        }
        if (rc == 0 && kind == REPORT_LINE_STEP) {
            rc = values.step <= before ? add_turn(reader, values.step) : 0;
            reader->first = reader->last == 0 || values.step < reader->first ? values.step
                                                                             : reader->first;
            /* not the highest step: a resume discards later steps */
            reader->last = before = values.step;
        }
        if (rc != 0) {
            return rc;
        }
        reader->lines = reader->line.number;
    }
    if (rc == 0 && reader->last == 0) {
        return core_err_set(-EINVAL, "%s has no step yet", reader->path);
    }
    return rc;
}

/* A step counts if no later turn repeated it. */
static void settle_turns(struct reader *reader)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = reader->turn_count; i > 0; i--) {
        reader->turns[i - 1].counts_below = least;
        least = reader->turns[i - 1].first < least ? reader->turns[i - 1].first : least;
    }
}

static int take_line(struct reader *reader, size_t *turn, struct report_run *run)
{
    struct report_values values = {.step = 0};
    enum report_line_kind kind = REPORT_LINE_STEP;
    bool more = false;
    int rc = report_line_read(&reader->line, &kind, &values, &more);
    while (*turn + 1 < reader->turn_count && reader->turns[*turn + 1].line <= reader->line.number) {
        ++*turn;
    }
    if (rc != 0) {
        return rc;
    }
    const bool step = kind == REPORT_LINE_STEP;
    const bool counts = !step || values.step < reader->turns[*turn].counts_below;
    run->repeated += !counts;
    run->summary.known &= !step;
    if (step && counts) {
        report_run_add(run, &values);
    }
    return more ? report_head_take(&reader->line, kind, step ? values.step : run->last, run) : 0;
}

static void forget_plan(struct report_plan *plan)
{
    const double none = (double)NAN;
    double *const reals[] = {
        &plan->ranks,       &plan->zero_stage,   &plan->batch,        &plan->accum,
        &plan->length,      &plan->parameters,   &plan->device_bytes, &plan->host_bytes,
        &plan->store_bytes, &plan->seconds,      &plan->rate,         &plan->read,
        &plan->write,       &plan->up,           &plan->down,         &plan->steps,
        &plan->clip,        &plan->taken_device, &plan->taken_host,
    };
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        *reals[i] = none;
    }
}

static int second_pass(struct reader *reader, struct report_run *run)
{
    size_t turn = 0;
    int rc = 0;
    forget_plan(&run->plan);
    run->restarts = reader->turn_count - 1;
    run->torn = reader->torn;
    rewind(reader->file);
    reader->line.number = 0;
    while (rc == 0 && reader->line.number < reader->lines && (rc = next_line(reader)) > 0) {
        rc = is_blank(&reader->line) ? 0 : take_line(reader, &turn, run);
    }
    report_run_end(run);
    return rc < 0 ? rc : 0;
}

static int open_log(struct reader *reader)
{
    struct stat info;
    if (stat(reader->path, &info) != 0) {
        return core_err_set(-errno, "%s: %s", reader->path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return core_err_set(-EINVAL,
                            "%s is not a file; the log is read twice, so it cannot be a pipe",
                            reader->path);
    }
    reader->file = fopen(reader->path, "re");
    if (reader->file == NULL) {
        return core_err_set(-errno, "%s: %s", reader->path, strerror(errno));
    }
    reader->text = malloc(LINE_BYTES_MAX + 1);
    reader->line.text = reader->text;
    return reader->text != NULL ? 0 : core_err_set(-ENOMEM, "no memory for a line");
}

int report_log_read(const char *path, struct report_run *out)
{
    struct reader reader = {.path = path, .line = {.path = path}};
    struct report_run run = {0};
    int rc = open_log(&reader);
    if (rc == 0) {
        rc = first_pass(&reader);
    }
    if (rc == 0) {
        settle_turns(&reader);
        rc = report_run_init(&run, path, reader.first, reader.last);
        if (rc == 0) {
            rc = second_pass(&reader, &run);
        }
    }
    if (reader.file != NULL) {
        fclose(reader.file);
    }
    free(reader.text);
    free(reader.turns);
    if (rc != 0) {
        report_run_fini(&run);
        return rc;
    }
    *out = run;
    return 0;
}
