/* finetune_run.c: takes the steps, writes checkpoints, and continues from one. */
#include "tools/tide/finetune_run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tide/checkpoint.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "tools/text/data/feed.h"
#include "tools/tide/finetune_stop.h"

/* ---- checkpoints ---- */

/* What sets the learning rates of a run. */
struct rates {
    int64_t kind; /* enum schedule_kind */
    double lr;
    int64_t warmup;
    int64_t total;
};

/* What the engine does not keep of a run; stored as these bytes. Older versions end earlier. */
struct place {
    char mark[8];
    int64_t steps;
    int64_t skipped;
    double first_loss;
    double last_loss;
    struct finetune_data_place data;
    int64_t now;        /* from version 2 on */
    struct rates rates; /* from version 3 on */
};

/* Bytes of the versions, which begin with "tune 1", "tune 2" ... */
static const size_t place_bytes[] = {offsetof(struct place, now), offsetof(struct place, rates),
                                     sizeof(struct place)};
enum { PLACE_VERSION = sizeof place_bytes / sizeof place_bytes[0], PLACE_DATED = 2 };

static void write_mark(int version, char mark[8])
{
    memset(mark, 0, 8);
    snprintf(mark, 8, "tune %d", version);
}

static struct rates rates_of(const struct schedule *schedule)
{
    return (struct rates){.kind = schedule->kind,
                          .lr = schedule->lr,
                          .warmup = schedule->warmup,
                          .total = schedule->total};
}

static struct tide_checkpoint_options options_of(const struct finetune_run *run)
{
    return (struct tide_checkpoint_options){.struct_bytes = sizeof(struct tide_checkpoint_options),
                                            .directory = run->out,
                                            .keep = run->keep,
                                            .replace = run->replace,
                                            .later = !run->stopped};
}

/* The previous checkpoint, written during later steps, has failed if it has no final name. */
static void note_unpublished(struct finetune_run *run, int64_t newer)
{
    char path[4096];
    bool there = true;
    if (run->save_begun > 0 && run->save_begun != newer) {
        snprintf(path, sizeof path, "%s/checkpoint-%" PRId64, run->out, run->save_begun);
        there = access(path, F_OK) == 0;
    }
    if (!there) { /* the newer checkpoint may have removed it */
        snprintf(path, sizeof path, "%s/checkpoint-%" PRId64, run->out, newer);
        run->saves_failed += access(path, F_OK) != 0;
    }
    run->save_begun = 0;
}

static void note_failed(struct finetune_run *run, int64_t step, const char *why)
{
    run->saves_failed++;
    snprintf(run->save_problem, sizeof run->save_problem, "checkpoint-%" PRId64 ": %s", step, why);
}

static int write_checkpoint(struct finetune_run *run)
{
    struct tide_checkpoint_options options = options_of(run);
    struct place place = {.steps = run->steps,
                          .skipped = run->skipped,
                          .first_loss = run->first_loss,
                          .last_loss = run->last_loss,
                          .now = run->settings->now,
                          .rates = rates_of(&run->settings->schedule)};
    write_mark(PLACE_VERSION, place.mark);
    finetune_data_tell(run->data, &place.data);
    options.application = &place;
    options.application_bytes = sizeof place;
    int rc = tide_engine_checkpoint(run->engine, &options);
    finetune_live_end(run->live);
    note_unpublished(run, run->steps);
    run->saves++;
    if (rc != 0) {
        note_failed(run, run->steps, tide_last_error());
        return core_err_adopt(rc, tide_last_error());
    }
    run->save_begun = run->steps;
    run->save_problem[0] = '\0';
    return 0;
}

static bool is_due(const struct finetune_run *run, int64_t steps)
{
    return run->save_every > 0 && (run->save_owed || steps % run->save_every == 0);
}

static void request_checkpoint(struct finetune_run *run)
{
    const struct tide_checkpoint_options options = options_of(run);
    if (is_due(run, run->steps + 1)) {
        /* A failure happens again after the step, and is reported then. */
        (void)tide_engine_checkpoint_ahead(run->engine, &options);
    }
}

static void warn_of_checkpoint(const struct finetune_run *run)
{
    const int64_t next = (run->steps / run->save_every + 1) * run->save_every;
    char more[64] = "no other one is due";
    if (next <= run->settings->steps) {
        snprintf(more, sizeof more, "the next one is due after step %" PRId64, next);
    }
    core_log(CORE_LOG_WARN,
             "the checkpoint of step %" PRId64 " was not written: %s; the run continues, and %s",
             run->steps, core_err_message(), more);
}

static int write_due_checkpoint(struct finetune_run *run, bool skipped)
{
    const bool due = is_due(run, run->steps);
    const bool last = run->steps == run->settings->steps;
    run->save_owed = due && skipped && !last && !run->stopped;
    if (run->save_owed || (!due && !run->stopped)) {
        return 0;
    }
    int rc = write_checkpoint(run);
    if (rc == 0) {
        finetune_events_add(run->events, FINETUNE_EVENT_SAVE, "checkpoint-%" PRId64, run->steps);
    }
    if (rc == 0 || run->stopped) {
        return rc;
    }
    warn_of_checkpoint(run);
    return 0;
}

static void finish_checkpoint(struct finetune_run *run)
{
    if (tide_engine_checkpoint_wait(run->engine) != 0) {
        note_failed(run, run->save_begun, tide_last_error());
        run->save_begun = 0;
    }
}

/* Returns the version of the state, or 0 if tide finetune did not write it. */
static int read_place(const void *bytes, size_t count, struct place *out)
{
    for (int version = PLACE_VERSION; version > 0; version--) {
        char mark[8];
        write_mark(version, mark);
        if (count == place_bytes[version - 1] && memcmp(bytes, mark, sizeof mark) == 0) {
            *out = (struct place){.steps = 0};
            memcpy(out, bytes, count);
            return version;
        }
    }
    return 0;
}

int finetune_checkpoint_look(struct tide_context *context, const char *out,
                             struct finetune_settings *settings)
{
    struct place place;
    struct place kept;
    size_t bytes = 0;
    int version = 0;
    if (out != NULL && tide_checkpoint_peek(context, out, &kept, sizeof kept, &bytes) == 0) {
        version = read_place(&kept, bytes, &place);
    }
    if (version > 0) {
        settings->begun = place.steps;
        settings->place = place.data;
    }
    if (version >= PLACE_DATED) {
        settings->now = place.now;
        return 0;
    }
    /* The engine reports errors of the checkpoint when it resumes. */
    return text_feed_now(&settings->now);
}

/* Rows that contain the time must have that of the resumed checkpoint. */
static int check_now(const struct finetune_run *run, const struct place *place, bool dated,
                     const char *path)
{
    struct finetune_data_info info;
    finetune_data_describe(run->data, &info);
    if (info.dated == 0 || (dated && place->now == run->settings->now)) {
        return 0;
    }
    if (dated) {
        return core_err_set(
            -EINVAL,
            "%s belongs to a run that began at another time than the newer checkpoints in %s, and "
            "the chat template writes the time; remove the newer ones",
            path, run->out);
    }
    core_log(
        CORE_LOG_WARN,
        "%s has no start time (an earlier version of tide wrote it), and the chat template writes "
        "the time: rows are now made with the time of this start, or with SOURCE_DATE_EPOCH",
        path);
    return 0;
}

/* Returns whether rates depend on the length of the run. */
static bool counts_total(const struct rates *rates)
{
    return rates->kind == SCHEDULE_LINEAR || rates->kind == SCHEDULE_COSINE ||
           rates->kind == SCHEDULE_WSD || rates->kind == SCHEDULE_WARMUP_DECAY ||
           rates->kind == SCHEDULE_WARMUP_COSINE;
}

static void print_rates(const struct rates *rates, const struct rates *other, char text[160])
{
    int at = snprintf(text, 160, "--lr %g", rates->lr);
    if (rates->kind != other->kind) {
        at += snprintf(text + at, 160 - (size_t)at, " --schedule %s",
                       rates->kind >= 0 && rates->kind < SCHEDULE_KINDS
                           ? schedule_name((enum schedule_kind)rates->kind)
                           : "unknown");
    }
    if (rates->warmup != other->warmup) {
        at += snprintf(text + at, 160 - (size_t)at, " --warmup %" PRId64, rates->warmup);
    }
    if (rates->total != other->total) {
        snprintf(text + at, 160 - (size_t)at, " --steps %" PRId64, rates->total);
    }
}

/* A forgotten --lr is easily overlooked. */
static void warn_rates(const struct finetune_run *run, const struct rates *before)
{
    const struct rates now = rates_of(&run->settings->schedule);
    char was[160];
    char is[160];
    if (now.kind == before->kind && now.lr == before->lr && now.warmup == before->warmup &&
        (now.total == before->total || !counts_total(&now))) {
        return;
    }
    print_rates(before, &now, was);
    print_rates(&now, before, is);
    core_log(CORE_LOG_WARN,
             "the learning rate follows %s from now on; it followed %s before this run was resumed",
             is, was);
}

int finetune_checkpoint_resume(struct finetune_run *run, bool talks)
{
    struct tide_resumed resumed = {.struct_bytes = sizeof resumed};
    struct place place;
    int rc = tide_engine_resumed(run->engine, &resumed);
    if (rc != 0) {
        return core_err_adopt(rc, tide_last_error());
    }
    if (resumed.path == NULL) {
        return 0;
    }
    const int version = read_place(resumed.application, resumed.application_bytes, &place);
    if (version == 0) {
        return core_err_set(
            -EINVAL,
            "%s was not written by tide finetune: the position of its run in the data is unknown",
            resumed.path);
    }
    if (place.steps > run->settings->steps) {
        return core_err_set(-EINVAL,
                            "--steps %" PRId64 ", but %s is after step %" PRId64
                            "; request at least that many",
                            run->settings->steps, resumed.path, place.steps);
    }
    run->steps = run->begun = place.steps;
    run->skipped = place.skipped;
    run->first_loss = place.first_loss;
    run->last_loss = place.last_loss;
    finetune_events_add(run->events, FINETUNE_EVENT_RESUMED, "%s, after step %" PRId64,
                        resumed.path, run->steps);
    if (talks) {
        fprintf(stderr, "resumed from %s, after step %" PRId64 " of %" PRId64 "\n", resumed.path,
                run->steps, run->settings->steps);
    }
    if (version == PLACE_VERSION) {
        warn_rates(run, &place.rates);
    }
    rc = check_now(run, &place, version >= PLACE_DATED, resumed.path);
    if (rc == 0) {
        rc = finetune_data_seek(run->data, &place.data);
    }
    return rc == 0 ? 0 : core_err_prefix(rc, "cannot resume from %s", resumed.path);
}

/* ---- steps ---- */

/* Moves the message of libtide to core_err. */
static int adopt(int rc)
{
    return rc == 0 ? 0 : core_err_adopt(rc, tide_last_error());
}

static int evaluate(struct finetune_run *run, struct finetune_record *record)
{
    struct finetune_data_info info;
    const struct tide_batch *batches = NULL;
    double sum = 0;
    double margin = 0;
    uint64_t right = 0;
    uint64_t targets = 0;
    finetune_data_describe(run->eval, &info);
    int rc = finetune_data_rewind(run->eval);
    if (rc != 0) {
        return rc;
    }
    for (int64_t at = 0; at < info.micro_batches;) {
        int count = finetune_data_step(run->eval, &batches);
        if (count < 0) {
            return count;
        }
        for (int i = 0; i < count; i++) {
            struct tide_evaluation one = {.struct_bytes = sizeof one};
            rc = adopt(tide_engine_evaluate(run->engine, &batches[i], &one));
            if (rc != 0) {
                return rc;
            }
            sum += one.loss_sum;
            targets += one.targets;
            margin += one.reward_chosen_sum - one.reward_rejected_sum;
            right += one.reward_right;
        }
        at += count;
    }
    const double count = targets > 0 ? (double)targets : (double)NAN;
    record->eval_loss = sum / count;
    record->eval_margin = margin / count;
    record->eval_accuracy = (double)right / count;
    return 0;
}

static bool wants_evaluation(const struct finetune_run *run, int64_t step, bool last)
{
    return run->eval != NULL && (last || (run->eval_every > 0 && step % run->eval_every == 0));
}

static int set_betas(struct finetune_run *run, int64_t update)
{
    const struct schedule *schedule = &run->settings->schedule;
    return schedule->moves_beta
               ? tide_engine_betas(run->engine, schedule_beta1(schedule, update), schedule_beta2)
               : 0;
}

static int read_waits(const struct tide_engine *engine, struct finetune_record *record)
{
    for (unsigned i = 0; i < FINETUNE_WAITS; i++) {
        struct tide_engine_wait wait = {.struct_bytes = sizeof wait};
        int rc = tide_engine_wait_at(engine, i, &wait);
        if (rc != 0) {
            return rc;
        }
        record->waits[i] = wait.compute_seconds;
    }
    return 0;
}

static int read_drives(struct finetune_run *run, struct finetune_record *record)
{
    struct finetune_summary *sum = &run->summary;
    record->drive_count = run->settings->engine.store_count;
    for (unsigned i = 0; i < record->drive_count; i++) {
        struct tide_engine_drive drive = {.struct_bytes = sizeof drive};
        int rc = tide_engine_drive_at(run->engine, i, &drive);
        if (rc != 0) {
            return rc;
        }
        record->drives[i] = (struct finetune_drive){drive.directory, drive.read_bytes,
                                                    drive.write_bytes};
        sum->drives[i].directory = run->settings->engine.stores[i].directory;
        sum->drives[i].read_bytes += drive.read_bytes;
        sum->drives[i].write_bytes += drive.write_bytes;
    }
    sum->drive_count = record->drive_count;
    return 0;
}

/* *full: the step had the planned number of micro-batches. */
static int make_step(struct finetune_run *run, struct finetune_record *record, bool *full)
{
    const struct tide_engine_options *engine = &run->settings->engine;
    const struct tide_batch *batches = NULL;
    int count = finetune_data_step(run->data, &batches);
    if (count < 0) {
        return count;
    }
    *full = (unsigned)count == engine->accum * engine->ranks;
    *record = (struct finetune_record){
        .step.struct_bytes = sizeof record->step,
        .memory.struct_bytes = sizeof record->memory,
        .data_wait = finetune_data_wait(run->data),
        .pairs = engine->loss == TIDE_LOSS_DPO,
        .lr = schedule_lr(&run->settings->schedule, run->steps - run->skipped),
    };
    int rc = set_betas(run, run->steps - run->skipped);
    if (rc != 0) {
        return adopt(rc);
    }
    rc = tide_engine_step(run->engine, batches, (unsigned)count, record->lr, &record->step);
    if (rc != 0) {
        adopt(rc);
        return rc == -ECANCELED ? rc : core_err_prefix(rc, "step %" PRId64, run->steps + 1);
    }
    if ((rc = read_waits(run->engine, record)) != 0 || (rc = read_drives(run, record)) != 0 ||
        (rc = tide_engine_memory(run->engine, &record->memory)) != 0) {
        return adopt(rc);
    }
    /* The engine counts padding, too. */
    record->step.tokens = (uint64_t)finetune_data_tokens(run->data);
    return 0;
}

static int compare_reals(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Sorts at least one value. */
static double median_of(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_reals);
    return (values[count / 2] + values[(count - 1) / 2]) / 2;
}

/* Figures of the steps; arrays have settings->steps elements. */
struct steps {
    double *seconds;  /* owned */
    double *full;     /* owned, [run->full_steps]: seconds of steps with all micro-batches */
    uint64_t *tokens; /* owned */
};

/* The first step, which opens files and selects algorithms, is left out if there are others. */
static void summarize(struct finetune_run *run, struct steps *steps)
{
    const size_t made = (size_t)run->steps;
    const size_t begun = (size_t)run->begun;
    const size_t from = made > begun + 1 ? begun + 1 : begun;
    struct tide_engine_memory memory = {.struct_bytes = sizeof memory};
    struct tide_plan_info plan = {.struct_bytes = sizeof plan};
    double sum = 0;
    for (size_t i = from; i < made; i++) {
        sum += (double)steps->tokens[i];
    }
    if (made > begun) {
        run->summary.median_seconds = median_of(steps->seconds + from, made - from);
        run->summary.tokens_per_second = run->summary.median_seconds > 0
                                             ? sum / (double)(made - from) /
                                                   run->summary.median_seconds
                                             : 0;
    }
    if (run->full_steps > 0) {
        run->full_seconds = median_of(steps->full, run->full_steps);
    }
    if (tide_engine_memory(run->engine, &memory) == 0) {
        run->summary.peak_rss_gb = (double)memory.peak_bytes / 1e9;
        run->summary.peak_device_gb = (double)memory.device_bytes / 1e9;
    }
    if (tide_plan_describe(tide_engine_plan(run->engine), &plan) == 0) {
        run->summary.plan_host_gb = (double)plan.host_bytes / 1e9;
        run->summary.plan_device_gb = (double)plan.device_bytes / 1e9;
        /* The prediction for the more frequent kind of step. */
        const bool clipped = plan.timing == TIDE_TIMING_SPECULATIVE &&
                             2 * run->ahead < run->steps - run->begun;
        run->summary.plan_seconds = clipped ? plan.clipped_seconds : plan.step_seconds;
    }
    if (made > begun) { /* else there is nothing to summarize */
        finetune_log_summary(run->log, &run->summary);
    }
}

static int loop(struct finetune_run *run, struct steps *steps)
{
    int rc = 0;
    while (rc == 0 && run->steps < run->settings->steps && !run->stopped) {
        struct finetune_record record;
        bool full = false;
        request_checkpoint(run);
        rc = make_step(run, &record, &full);
        if (rc != 0) {
            break;
        }
        steps->seconds[run->steps] = record.step.seconds;
        steps->tokens[run->steps] = record.step.tokens;
        if (full && run->steps > run->begun) {
            steps->full[run->full_steps++] = record.step.seconds;
        }
        run->steps++;
        run->skipped += record.step.skipped != 0;
        run->ahead += record.step.guess_right != 0;
        run->first_loss = run->steps == 1 ? record.step.loss : run->first_loss;
        run->last_loss = record.step.loss;
        const bool last = run->steps == run->settings->steps;
        if (wants_evaluation(run, run->steps, last) && !finetune_stop_asked()) {
            rc = evaluate(run, &record);
            record.evaluated = rc == 0;
            run->eval_loss = record.evaluated ? record.eval_loss : run->eval_loss;
        }
        finetune_log_step(run->log, &record);
        finetune_live_step(run->live, &record);
        run->stopped = finetune_stop_asked() && !last;
        if (rc == 0) {
            rc = write_due_checkpoint(run, record.step.skipped != 0);
        }
    }
    return rc;
}

int finetune_run_steps(struct finetune_run *run)
{
    const size_t count = (size_t)run->settings->steps;
    struct steps steps = {.seconds = calloc(count, sizeof *steps.seconds),
                          .full = calloc(count, sizeof *steps.full),
                          .tokens = calloc(count, sizeof *steps.tokens)};
    int rc = steps.seconds != NULL && steps.full != NULL && steps.tokens != NULL
                 ? 0
                 : core_err_set(-ENOMEM, "no memory for the times of %zu steps", count);
    run->eval_loss = (double)NAN;
    if (rc == 0) {
        rc = loop(run, &steps);
        if (rc == 0) {
            finish_checkpoint(run);
        }
        summarize(run, &steps);
    }
    finetune_live_end(run->live);
    free(steps.seconds);
    free(steps.full);
    free(steps.tokens);
    return rc;
}
