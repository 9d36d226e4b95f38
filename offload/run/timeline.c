/* timeline.c: one array of times per recorded tape. */
#include "offload/run/timeline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "offload/plan/trace.h"

struct recorded {
    const struct plan_tape *tape; /* borrowed from the plan; NULL: not pushed yet */
    struct plan_time *times;      /* owned, [commands_max] */
};

struct run_timeline {
    uint64_t first;
    uint64_t pushed;
    uint32_t count;
    uint32_t commands_max;
    int64_t start_ns; /* the origin of times; 0: no tape yet */
    struct recorded recorded[];
};

int run_timeline_create(uint64_t first, uint32_t tapes, uint32_t commands_max,
                        struct run_timeline **out)
{
    struct run_timeline *timeline = calloc(1,
                                           sizeof *timeline + tapes * sizeof timeline->recorded[0]);
    if (timeline == NULL) {
        return core_err_set(-ENOMEM, "no memory for a timeline");
    }
    timeline->first = first;
    timeline->count = tapes;
    timeline->commands_max = commands_max;
    for (uint32_t i = 0; i < tapes; i++) {
        struct recorded *one = &timeline->recorded[i];
        one->times = calloc(commands_max > 0 ? commands_max : 1, sizeof *one->times);
        if (one->times == NULL) {
            run_timeline_destroy(timeline);
            return core_err_set(-ENOMEM, "no memory for a timeline of %u commands", commands_max);
        }
        for (uint32_t c = 0; c < commands_max; c++) {
            one->times[c] = (struct plan_time){.begin_seconds = 1, .end_seconds = 0}; /* none */
        }
    }
    *out = timeline;
    return 0;
}

void run_timeline_destroy(struct run_timeline *timeline)
{
    if (timeline == NULL) {
        return;
    }
    for (uint32_t i = 0; i < timeline->count; i++) {
        free(timeline->recorded[i].times);
    }
    free(timeline);
}

static struct recorded *find_tape(struct run_timeline *timeline, uint64_t tape)
{
    return tape >= timeline->first && tape - timeline->first < timeline->count
               ? &timeline->recorded[tape - timeline->first]
               : NULL;
}

void run_timeline_push(struct run_timeline *timeline, const struct plan_tape *tape)
{
    struct recorded *one = find_tape(timeline, timeline->pushed++);
    if (one != NULL) {
        one->tape = tape;
        timeline->start_ns = timeline->start_ns != 0 ? timeline->start_ns : core_clock_now_ns();
    }
}

void run_timeline_withdraw(struct run_timeline *timeline)
{
    struct recorded *one = find_tape(timeline, --timeline->pushed);
    if (one != NULL) {
        one->tape = NULL;
    }
}

void run_timeline_watch(void *user, uint64_t tape, const struct plan_command *command,
                        int64_t begin_ns, int64_t end_ns)
{
    struct run_timeline *timeline = user;
    struct recorded *one = find_tape(timeline, tape);
    if (one == NULL || one->tape == NULL) {
        return;
    }
    one->times[command - one->tape->commands] = (struct plan_time){
        .begin_seconds = (double)(begin_ns - timeline->start_ns) * 1e-9,
        .end_seconds = (double)(end_ns - timeline->start_ns) * 1e-9};
}

/* ---- writing ---- */

struct writing {
    FILE *file;
    const char *path; /* borrowed */
    int error;        /* the first errno; 0: none */
};

static void put_text(void *user, const char *text)
{
    struct writing *writing = user;
    if (fputs(text, writing->file) < 0 && writing->error == 0) {
        writing->error = errno;
    }
}

static int open_file(const char *path, struct writing *out)
{
    *out = (struct writing){.file = fopen(path, "we"), .path = path};
    const int error = errno;
    return out->file != NULL ? 0
                             : core_err_set(-error, "the timeline %s cannot be written: %s", path,
                                            strerror(error));
}

/* Removes a file that could not be written completely: it is not JSON. */
static int close_file(struct writing *writing)
{
    struct stat info;
    const bool regular = fstat(fileno(writing->file), &info) == 0 && S_ISREG(info.st_mode);
    if (fclose(writing->file) != 0 && writing->error == 0) {
        writing->error = errno;
    }
    if (writing->error != 0 && regular) {
        (void)unlink(writing->path);
    }
    return writing->error == 0
               ? 0
               : core_err_set(-writing->error, "the timeline %s cannot be written: %s",
                              writing->path, strerror(writing->error));
}

int run_timeline_write(const struct run_timeline *timeline, const struct plan_input *input,
                       const char *path)
{
    struct writing writing;
    int rc = open_file(path, &writing);
    if (rc != 0) {
        return rc;
    }
    const struct plan_trace_sink sink = {.put = put_text, .user = &writing};
    plan_trace_begin(input, &sink);
    for (uint32_t i = 0; i < timeline->count && timeline->recorded[i].tape != NULL; i++) {
        plan_trace_tape(input, &sink, timeline->recorded[i].tape, timeline->recorded[i].times);
    }
    plan_trace_end(&sink);
    return close_file(&writing);
}

int run_timeline_predict(const struct plan_input *input, const struct plan *plan, uint32_t steps,
                         const char *path)
{
    struct writing writing;
    int rc = open_file(path, &writing);
    if (rc != 0) {
        return rc;
    }
    const struct plan_trace_sink sink = {.put = put_text, .user = &writing};
    rc = plan_trace_predicted(input, plan, steps, &sink);
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, close_file(&writing));
}
