/* finetune_checkpoint.c: the bytes of the application, and when they are written. */
#include "tools/tide/finetune_checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <tide/checkpoint.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "tools/text/data/feed.h"

static const char mark[8] = "tune 2";
static const char mark_undated[8] = "tune 1"; /* ends before `now` */

/* Where the run is, besides what the engine knows; stored as it is. */
struct place {
    char mark[8];
    int64_t steps;
    int64_t skipped;
    double first_loss;
    double last_loss;
    struct tune_data_place data;
    int64_t now;
};

static struct tide_checkpoint_options options_of(const struct tune_run *run)
{
    return (struct tide_checkpoint_options){.struct_bytes = sizeof(struct tide_checkpoint_options),
                                            .directory = run->out,
                                            .keep = run->keep,
                                            .replace = run->replace,
                                            .later = !run->stopped};
}

/* One that was written under later steps has its name by now, or never will. */
static void settle(struct tune_run *run, int64_t newer)
{
    char path[4096];
    bool there = true;
    if (run->save_begun > 0 && run->save_begun != newer) {
        snprintf(path, sizeof path, "%s/checkpoint-%" PRId64, run->out, run->save_begun);
        there = access(path, F_OK) == 0;
    }
    if (!there) { /* one that is written at once may have taken its place already */
        snprintf(path, sizeof path, "%s/checkpoint-%" PRId64, run->out, newer);
        run->saves_failed += access(path, F_OK) != 0;
    }
    run->save_begun = 0;
}

static void note_failed(struct tune_run *run, int64_t step, const char *why)
{
    run->saves_failed++;
    snprintf(run->save_problem, sizeof run->save_problem, "checkpoint-%" PRId64 ": %s", step, why);
}

static int save(struct tune_run *run)
{
    struct tide_checkpoint_options options = options_of(run);
    struct place place = {.steps = run->steps,
                          .skipped = run->skipped,
                          .first_loss = run->first_loss,
                          .last_loss = run->last_loss,
                          .now = run->settings->now};
    memcpy(place.mark, mark, sizeof place.mark);
    tune_data_tell(run->data, &place.data);
    options.application = &place;
    options.application_bytes = sizeof place;
    int rc = tide_engine_checkpoint(run->engine, &options);
    tune_live_end(run->live);
    settle(run, run->steps);
    run->saves++;
    if (rc != 0) {
        note_failed(run, run->steps, tide_last_error());
        return core_err_adopt(rc, tide_last_error());
    }
    run->save_begun = run->steps;
    run->save_problem[0] = '\0';
    return 0;
}

static bool is_due(const struct tune_run *run, int64_t steps)
{
    return run->save_every > 0 && (run->save_owed || steps % run->save_every == 0);
}

void tune_checkpoint_ahead(struct tune_run *run)
{
    const struct tide_checkpoint_options options = options_of(run);
    if (is_due(run, run->steps + 1)) {
        /* What fails here is told when it fails again behind the step. */
        (void)tide_engine_checkpoint_ahead(run->engine, &options);
    }
}

int tune_checkpoint_step(struct tune_run *run, bool skipped)
{
    const bool due = is_due(run, run->steps);
    const bool last = run->steps == run->settings->steps;
    run->save_owed = due && skipped && !last && !run->stopped;
    if (run->save_owed || (!due && !run->stopped)) {
        return 0;
    }
    int rc = save(run);
    if (rc == 0) {
        tune_events_add(run->events, TUNE_EVENT_SAVE, "checkpoint-%" PRId64, run->steps);
    }
    if (rc == 0 || run->stopped) {
        return rc;
    }
    core_log(CORE_LOG_WARN,
             "there is no checkpoint of step %" PRId64 ": %s; the run goes on, and the next one is "
             "due after step %" PRId64,
             run->steps, core_err_sentence(), run->steps + run->save_every);
    return 0;
}

void tune_checkpoint_end(struct tune_run *run)
{
    if (tide_engine_checkpoint_wait(run->engine) != 0) {
        note_failed(run, run->save_begun, tide_last_error());
        run->save_begun = 0;
    }
}

/* Takes the bytes of a checkpoint; false where tide finetune did not write them. *dated: with a time. */
static bool read_place(const void *bytes, size_t count, struct place *out, bool *dated)
{
    *dated = count == sizeof *out && memcmp(bytes, mark, sizeof mark) == 0;
    const bool undated = count == offsetof(struct place, now) &&
                         memcmp(bytes, mark_undated, sizeof mark_undated) == 0;
    if (*dated || undated) {
        *out = (struct place){.steps = 0};
        memcpy(out, bytes, count);
    }
    return *dated || undated;
}

int tune_checkpoint_now(struct tide_context *context, const char *out, int64_t *now)
{
    struct place place;
    struct place kept;
    size_t bytes = 0;
    bool dated = false;
    if (out != NULL && tide_checkpoint_peek(context, out, &kept, sizeof kept, &bytes) == 0 &&
        read_place(&kept, bytes, &place, &dated) && dated) {
        *now = place.now;
        return 0;
    }
    return text_feed_now(now); /* what is wrong with a checkpoint is said when it is resumed */
}

/* The rows were read with the time of one checkpoint, and the engine resumed from another one. */
static int check_now(const struct tune_run *run, const struct place *place, bool dated,
                     const char *path)
{
    struct tune_data_info info;
    tune_data_describe(run->data, &info);
    if (info.dated == 0 || (dated && place->now == run->settings->now)) {
        return 0;
    }
    if (dated) {
        return core_err_set(-EINVAL,
                            "%s is of a run that began at another time than the newer checkpoints "
                            "in %s, and the chat template writes the time; remove the newer ones",
                            path, run->out);
    }
    core_log(CORE_LOG_WARN,
             "%s keeps no time (an earlier tide wrote it), and the chat template writes the time: "
             "rows are now made with the time of this start, or with SOURCE_DATE_EPOCH",
             path);
    return 0;
}

int tune_checkpoint_resume(struct tune_run *run, bool talks)
{
    struct tide_resumed resumed = {.struct_bytes = sizeof resumed};
    struct place place;
    bool dated = false;
    int rc = tide_engine_resumed(run->engine, &resumed);
    if (rc != 0) {
        return core_err_adopt(rc, tide_last_error());
    }
    if (resumed.path == NULL) {
        if (talks) {
            fprintf(stderr, "there is no checkpoint in %s: the run begins with the model\n",
                    run->out);
        }
        return 0;
    }
    if (!read_place(resumed.application, resumed.application_bytes, &place, &dated)) {
        return core_err_set(-EINVAL,
                            "%s was not written by tide finetune: where in the data its "
                            "run was is not known",
                            resumed.path);
    }
    run->steps = run->begun = place.steps;
    run->skipped = place.skipped;
    run->first_loss = place.first_loss;
    run->last_loss = place.last_loss;
    tune_events_add(run->events, TUNE_EVENT_RESUMED, "%s, after step %" PRId64, resumed.path,
                    run->steps);
    if (talks) {
        fprintf(stderr, "resumed from %s, after step %" PRId64 " of %" PRId64 "\n", resumed.path,
                run->steps, run->settings->steps);
    }
    rc = check_now(run, &place, dated, resumed.path);
    if (rc == 0) {
        rc = tune_data_seek(run->data, &place.data);
    }
    return rc == 0 ? 0 : core_err_prefix(rc, "cannot resume from %s", resumed.path);
}
