/* finetune_run.c: step, tell, evaluate; step. */
#include "tools/tide/finetune_run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "tools/tide/finetune_checkpoint.h"
#include "tools/tide/finetune_stop.h"

/* Sentences of libtide end where all others do. */
static int adopt(int rc)
{
    return rc == 0 ? 0 : core_err_adopt(rc, tide_last_error());
}

static int evaluate(struct tune_run *run, double *loss)
{
    struct tune_data_info info;
    const struct tide_batch *batches = NULL;
    double sum = 0;
    uint64_t targets = 0;
    tune_data_describe(run->eval, &info);
    int rc = tune_data_rewind(run->eval);
    for (int64_t at = 0; at < info.micro_batches && rc == 0;) {
        int count = tune_data_step(run->eval, &batches);
        rc = count < 0 ? count : 0;
        for (int i = 0; i < count && rc == 0; i++) {
            struct tide_evaluation one = {.struct_bytes = sizeof one};
            rc = adopt(tide_engine_evaluate(run->engine, &batches[i], &one));
            sum += one.loss_sum;
            targets += one.targets;
        }
        at += count;
    }
    if (rc == 0) {
        *loss = targets > 0 ? sum / (double)targets : (double)NAN;
    }
    return rc;
}

static bool wants_evaluation(const struct tune_run *run, int64_t step, bool last)
{
    return run->eval != NULL && (last || (run->eval_every > 0 && step % run->eval_every == 0));
}

/* For a schedule that moves betas, those of the next update. */
static int set_betas(struct tune_run *run, int64_t update)
{
    const struct schedule *schedule = &run->settings->schedule;
    return schedule->moves_beta
               ? tide_engine_betas(run->engine, schedule_beta1(schedule, update), schedule_beta2)
               : 0;
}

static int read_waits(const struct tide_engine *engine, struct tune_record *record)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < TUNE_WAITS; i++) {
        struct tide_engine_wait wait = {.struct_bytes = sizeof wait};
        rc = tide_engine_wait_at(engine, i, &wait);
        record->waits[i] = wait.compute_seconds;
    }
    return rc;
}

static int make_step(struct tune_run *run, struct tune_record *record)
{
    const struct tide_batch *batches = NULL;
    int count = tune_data_step(run->data, &batches);
    if (count < 0) {
        return count;
    }
    *record = (struct tune_record){
        .step.struct_bytes = sizeof record->step,
        .memory.struct_bytes = sizeof record->memory,
        .data_wait = tune_data_wait(run->data),
        .lr = schedule_lr(&run->settings->schedule, run->steps - run->skipped),
    };
    int rc = set_betas(run, run->steps - run->skipped);
    rc = rc != 0
             ? rc
             : tide_engine_step(run->engine, batches, (unsigned)count, record->lr, &record->step);
    record->step.tokens = (uint64_t)tune_data_tokens(
        run->data); /* the engine counts padding, too */
    if (rc == 0 && (rc = read_waits(run->engine, record)) == 0) {
        rc = tide_engine_memory(run->engine, &record->memory);
    }
    return adopt(rc);
}

static int compare_reals(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The first step is left out where there are others: it opens files and finds its algorithms. */
static void summarize(struct tune_run *run, double *seconds, const uint64_t *tokens)
{
    const size_t made = (size_t)run->steps;
    const size_t begun = (size_t)run->begun;
    const size_t from = made > begun + 1 ? begun + 1 : begun;
    struct tide_engine_memory memory = {.struct_bytes = sizeof memory};
    struct tide_plan_info plan = {.struct_bytes = sizeof plan};
    double sum = 0;
    for (size_t i = from; i < made; i++) {
        sum += (double)tokens[i];
    }
    if (made > begun) {
        qsort(seconds + from, made - from, sizeof *seconds, compare_reals);
        run->summary.median_seconds = (seconds[from + (made - from) / 2] +
                                       seconds[from + (made - from - 1) / 2]) /
                                      2;
        run->summary.tokens_per_second = run->summary.median_seconds > 0
                                             ? sum / (double)(made - from) /
                                                   run->summary.median_seconds
                                             : 0;
    }
    if (tide_engine_memory(run->engine, &memory) == 0) {
        run->summary.peak_rss_gb = (double)memory.peak_bytes / 1e9;
        run->summary.peak_device_gb = (double)memory.device_bytes / 1e9;
    }
    if (tide_plan_describe(tide_engine_plan(run->engine), &plan) == 0) {
        run->summary.plan_host_gb = (double)plan.host_bytes / 1e9;
        run->summary.plan_device_gb = (double)plan.device_bytes / 1e9;
        /* As the plan says of the kind of step that was in the majority. */
        const bool clipped = plan.timing == TIDE_TIMING_SPECULATIVE &&
                             2 * run->ahead < run->steps - run->begun;
        run->summary.plan_seconds = clipped ? plan.clipped_seconds : plan.step_seconds;
    }
    if (made > begun) { /* else the log has the one of the run that did it */
        tune_log_summary(run->log, &run->summary);
    }
}

static int loop(struct tune_run *run, double *seconds, uint64_t *tokens)
{
    int rc = 0;
    while (rc == 0 && run->steps < run->settings->steps && !run->stopped) {
        struct tune_record record;
        tune_checkpoint_ahead(run);
        rc = make_step(run, &record);
        if (rc != 0) {
            break;
        }
        seconds[run->steps] = record.step.seconds;
        tokens[run->steps] = record.step.tokens;
        run->steps++;
        run->skipped += record.step.skipped != 0;
        run->ahead += record.step.guess_right != 0;
        run->first_loss = run->steps == 1 ? record.step.loss : run->first_loss;
        run->last_loss = record.step.loss;
        const bool last = run->steps == run->settings->steps;
        if (wants_evaluation(run, run->steps, last) && !tune_stop_asked()) {
            rc = evaluate(run, &record.eval_loss);
            record.evaluated = rc == 0;
            run->eval_loss = record.evaluated ? record.eval_loss : run->eval_loss;
        }
        tune_log_step(run->log, &record);
        tune_live_step(run->live, &record);
        run->stopped = tune_stop_asked() && !last;
        if (rc == 0) {
            rc = tune_checkpoint_step(run, record.step.skipped != 0);
        }
    }
    return rc;
}

int tune_run_steps(struct tune_run *run)
{
    const size_t steps = (size_t)run->settings->steps;
    double *seconds = calloc(steps, sizeof *seconds);
    uint64_t *tokens = calloc(steps, sizeof *tokens);
    int rc = seconds != NULL && tokens != NULL
                 ? 0
                 : core_err_set(-ENOMEM, "no memory for the times of %zu steps", steps);
    run->eval_loss = (double)NAN;
    if (rc == 0) {
        rc = loop(run, seconds, tokens);
        if (rc == 0) {
            tune_checkpoint_end(run);
        }
        summarize(run, seconds, tokens);
    }
    tune_live_end(run->live);
    free(seconds);
    free(tokens);
    return rc;
}
