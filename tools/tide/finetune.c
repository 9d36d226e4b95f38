/* finetune.c: `tide finetune`: fine-tunes a model larger than memory and writes a Hugging Face
 * folder. The main thread. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "tools/tide/commands.h"
#include "tools/tide/finetune_context.h"
#include "tools/tide/finetune_data.h"
#include "tools/tide/finetune_run.h"
#include "tools/tide/finetune_stop.h"
#include "tools/tide/finetune_world.h"
#include "tools/tide/out.h"
#include "tools/tide/paths.h"
#include "tools/tide/plan_text.h"

/* close_job() closes this in any state. */
struct job {
    const struct cli_command *command;
    struct finetune_flags flags;
    struct cli_common common;
    struct finetune_settings settings;
    struct tide_world *world; /* borrowed; NULL: this process is alone */
    struct finetune_context talk;
    struct finetune_data *data; /* owned */
    struct finetune_data *eval; /* owned */
    struct finetune_log *log;   /* owned */
    FILE *fifos[2];             /* owned; --log and --csv if they are FIFOs, else NULL */
    struct tide_engine *engine; /* owned */
    struct finetune_run run;
    bool unfit; /* the plan was refused: exit code 3 */
    bool begun;
    bool trained;
    bool made_out;      /* --out was created for the log */
    int64_t there;      /* steps of the model in --out; 0: none, or it may be replaced */
    char out[PATH_MAX]; /* --out without links */
};

/* During the steps, -EINVAL means a bad row; their other errors, and all later errors, are failures
 * of the run. */
static int report_failure(struct job *job, int rc)
{
    int code = job->unfit ? CLI_NO_FIT : finetune_exit_code(rc);
    if (job->begun && (job->trained || rc != -EINVAL)) {
        code = CLI_FAILED;
    }
    finetune_live_end(&job->talk.live);
    return cli_fail(job->command, code, NULL);
}

static void undo_claim(void *context)
{
    tide_folder_unclaim(context);
}

/* Locks --out, and checks it before and after: another run may have written there. */
static int claim_out(struct job *job)
{
    struct cli_out out = {.path = job->flags.out,
                          .model = job->flags.model,
                          .overwrite = job->flags.overwrite,
                          .resume = job->flags.resume};
    int rc = cli_out_check(&out);
    if (rc != 0) {
        return rc;
    }
    finetune_stop_early(undo_claim, job->talk.context);
    rc = tide_folder_claim(job->talk.context, job->flags.out);
    out.claimed = true;
    if (rc != 0) {
        return core_err_adopt(rc, tide_last_error());
    }
    rc = cli_out_check(&out);
    if (rc != 0) {
        return rc;
    }
    job->there = out.resume && !out.overwrite ? cli_out_steps(out.path) : 0;
    return 0;
}

static int open_data(struct job *job, const char *path, bool trains, struct finetune_data **out)
{
    const struct finetune_data_options options = finetune_settings_data(&job->settings, path,
                                                                        trains);
    return finetune_context_data(&job->talk, &options, out);
}

static const char *csv_flag(const struct finetune_flags *flags)
{
    return flags->csv != NULL ? "--csv" : "csv_monitor.output_path";
}

static const char *board_flag(const struct finetune_flags *flags)
{
    return flags->tensorboard != NULL ? "--tensorboard" : "tensorboard.output_path";
}

/* Opening an output may truncate it, so it must not be an input. */
static int check_outputs(const struct job *job)
{
    const struct finetune_flags *flags = &job->flags;
    const struct finetune_settings *settings = &job->settings;
    struct cli_path paths[3 + FINETUNE_FLAGS_PATHS] = {
        {CLI_PATH_WRITTEN, "--log", flags->log},
        {CLI_PATH_WRITTEN, csv_flag(flags), settings->csv},
        {CLI_PATH_WRITTEN, board_flag(flags), settings->board},
    };
    finetune_flags_paths(flags, paths + 3);
    return cli_paths_check(paths, sizeof paths / sizeof paths[0]);
}

/* Returns whether `path` is a file of --out, which need not exist. */
static bool is_in_out(const struct job *job, const char *path)
{
    char folder[PATH_MAX];
    char name[PATH_MAX];
    if (path == NULL || cli_path_join(folder, path, "", "") != 0) {
        return false;
    }
    cli_path_cut_name(folder, name);
    return cli_path_is_same(folder, job->flags.out);
}

/* The run creates --out before its files. */
static enum cli_path_shape shape_of(const struct job *job, const char *path,
                                    enum cli_path_shape shape)
{
    return access(job->flags.out, F_OK) != 0 && is_in_out(job, path) ? CLI_PATH_FILE_DEEP : shape;
}

/* Checks early whether outputs, which are created later, can be created. */
static int check_writable(const struct job *job)
{
    const struct finetune_flags *flags = &job->flags;
    const struct {
        const char *flag, *path;
        enum cli_path_shape shape;
    } paths[] = {
        {"--log", flags->log, shape_of(job, flags->log, CLI_PATH_FILE)},
        {csv_flag(flags), job->settings.csv,
         flags->csv != NULL ? shape_of(job, flags->csv, CLI_PATH_FILE) : CLI_PATH_FILE_DEEP},
        {"--trace", flags->trace, shape_of(job, flags->trace, CLI_PATH_FILE_LAST)},
        {board_flag(flags), job->settings.board, CLI_PATH_FOLDER},
    };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        const int rc = cli_path_try(paths[i].flag, paths[i].path, paths[i].shape);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static struct finetune_log_options log_options(struct job *job)
{
    return (struct finetune_log_options){.json_path = job->flags.log,
                                         .csv_path = job->settings.csv,
                                         .csv_monitor = job->flags.csv == NULL,
                                         .board_folder = job->settings.board,
                                         .append = job->flags.resume,
                                         .events = &job->talk.events};
}

/* A FIFO without a reader is refused early. FIFOs stay open: otherwise their readers would see the
 * end of the file before the log opens them. */
static int hold_fifos(struct job *job)
{
    const char *const paths[] = {job->flags.log, job->settings.csv};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (paths[i] != NULL && core_file_is_fifo(paths[i])) {
            const int rc = core_file_open_output(paths[i], true, &job->fifos[i]);
            if (rc != 0) {
                return rc;
            }
        }
    }
    return 0;
}

/* Warns if the data does not fill a micro-batch, or gives the first ranks more micro-batches than
 * the others. */
static void warn_of_shape(const struct job *job, const struct finetune_data_info *info)
{
    const struct tide_engine_options *engine = &job->settings.engine;
    const int64_t even = (info->micro_batches + engine->ranks - 1) / engine->ranks;
    if (info->rows < engine->batch) {
        const char *kind = engine->loss == TIDE_LOSS_DPO ? "pair" : "row";
        core_log(CORE_LOG_WARN,
                 info->batch == info->rows
                     ? "%s has %" PRId64 " %s%s and a micro-batch takes %" PRIu32
                       ": --batch %" PRId64 " is used, which gives the same result"
                     : "%s has %" PRId64 " %s%s and a micro-batch takes %" PRIu32
                       ": the missing ones are computed as padding; --batch %" PRId64
                       " takes less time and memory",
                 job->flags.data, info->rows, kind, info->rows == 1 ? "" : "s", engine->batch,
                 info->rows);
    }
    if (even < engine->accum && even < info->micro_batches) {
        core_log(CORE_LOG_WARN,
                 "%s has %" PRId64 " micro-batches and a step takes %" PRIu32
                 ", those of rank 0 first; --accum %" PRId64
                 " shares them more evenly and takes less time",
                 job->flags.data, info->micro_batches, engine->accum * engine->ranks, even);
    }
}

static int open_inputs(struct job *job)
{
    struct finetune_data_info info;
    const char *resume = job->flags.resume ? job->flags.out : NULL;
    const struct finetune_log_options log = log_options(job);
    int rc = check_outputs(job);
    if (rc != 0 || (rc = claim_out(job)) != 0 || (rc = check_writable(job)) != 0 ||
        (rc = finetune_log_check(&log)) != 0 || (rc = hold_fifos(job)) != 0 ||
        (rc = finetune_checkpoint_look(job->talk.context, resume, &job->settings)) != 0) {
        return rc;
    }
    if (job->flags.eval_data != NULL && strcmp(job->flags.eval_data, "-") == 0 &&
        strcmp(job->flags.data, "-") == 0) {
        return core_err_set(
            -EINVAL,
            "--data and --eval-data cannot both be standard input; give a file for one of them");
    }
    rc = open_data(job, job->flags.data, true, &job->data);
    if (rc != 0) {
        return rc;
    }
    /* Not refused yet: the engine first says whether the checkpoint is of this model. */
    job->talk.refuses = job->settings.begun > 0 &&
                        finetune_data_seek(job->data, &job->settings.place) != 0;
    finetune_data_describe(job->data, &info);
    const struct tide_engine_options *engine = &job->settings.engine;
    warn_of_shape(job, &info);
    int64_t steps = job->settings.steps > 0
                        ? job->settings.steps
                        : finetune_data_steps(&info, engine->accum * engine->ranks,
                                              job->settings.epochs);
    rc = finetune_settings_fit(&job->settings, &info, steps);
    if (rc != 0) {
        return rc;
    }
    job->settings.engine.application_bytes = finetune_data_memory(job->data);
    if (job->flags.eval_data != NULL) {
        rc = open_data(job, job->flags.eval_data, false, &job->eval);
        if (rc != 0) {
            return rc;
        }
        job->settings.engine.application_bytes += finetune_data_memory(job->eval);
        finetune_data_describe(job->eval, &info);
        if ((uint64_t)info.longest_pair > engine->pair_length) {
            job->settings.engine.pair_length = (uint64_t)info.longest_pair;
        }
    }
    return 0;
}

/* Files of an earlier run are replaced only when this run begins. */
static int open_log(struct job *job)
{
    const struct finetune_log_options options = log_options(job);
    /* A failure to create the folder happens again with the file, and is reported then. */
    job->made_out = (is_in_out(job, options.json_path) || is_in_out(job, options.csv_path)) &&
                    mkdir(job->flags.out, 0777) == 0;
    int rc = finetune_log_open(&options, &job->log);
    job->run.log = job->log;
    return rc;
}

static int open_engine(struct job *job)
{
    job->talk.may_stop = true;
    job->settings.engine.saves = job->flags.save_every > 0;
    job->settings.engine.world = job->world;
    job->settings.engine.checkpoint_local = job->flags.checkpoint_local;
    job->settings.engine.resume = job->flags.resume ? job->flags.out : NULL;
    int rc = tide_engine_create(job->talk.context, &job->settings.engine, &job->engine);
    job->unfit = rc == -EFBIG;
    job->talk.may_stop = false;
    finetune_live_end(&job->talk.live);
    if (rc == 0 && job->common.verbose >= 0) {
        cli_plan_print_short(tide_engine_plan(job->engine), &job->settings.engine, stderr);
    }
    if (rc == 0) {
        rc = tide_engine_save_reserve(job->engine, job->flags.out,
                                      job->flags.overwrite || job->flags.resume);
    }
    return rc == 0 ? 0 : core_err_adopt(rc, tide_last_error());
}

/* Removes the cached rates if the plan was far off. Steps of tiny models, or of fewer micro-batches
 * than planned, say nothing about rates. */
static void judge_rates(const struct job *job)
{
    enum { STEPS_MIN = 2 };
    const double wrong = 1.25;
    const double least_seconds = 0.02;
    const struct finetune_summary *sum = &job->run.summary;
    const double full = job->run.full_seconds;
    const double ratio = sum->plan_seconds > 0 ? full / sum->plan_seconds : 1;
    const bool measured = job->settings.engine.rates == NULL && job->settings.engine.cache != NULL;
    if (measured && job->run.full_steps >= STEPS_MIN && (ratio > wrong || ratio < 1 / wrong) &&
        fabs(full - sum->plan_seconds) > least_seconds &&
        tide_plan_forget(tide_engine_plan(job->engine)) == 0 && job->common.verbose >= 0) {
        fprintf(stderr, "the plan was off by %.0f %%; the next run measures the rates again\n",
                100 * fabs(ratio - 1));
    }
}

/* Returns whether this run trained nothing, and the existing model has at least as many steps. */
static bool keeps_existing_model(const struct job *job)
{
    return job->run.steps == job->run.begun && job->there > 0 && job->there >= job->run.steps;
}

/* Prints figures to stderr, and the result to stdout. */
static void print_outcome(const struct job *job)
{
    const struct finetune_run *run = &job->run;
    const struct finetune_summary *sum = &run->summary;
    if (job->common.verbose >= 0 && run->steps == run->begun) {
        fprintf(stderr,
                "the run is already finished, after step %" PRId64 " of %" PRId64
                ": nothing was trained; to train again, give --overwrite without --resume\n",
                run->steps, job->settings.steps);
    } else if (job->common.verbose >= 0) {
        fprintf(stderr,
                "planned: %.3g s per step, %.3f GB of memory; measured: %.3g s (median), %.3f GB "
                "(peak), %.*f tokens/s\n",
                sum->plan_seconds, sum->plan_host_gb + sum->plan_device_gb, sum->median_seconds,
                sum->peak_rss_gb, cli_rate_digits(sum->tokens_per_second), sum->tokens_per_second);
    }
    if (keeps_existing_model(job)) {
        printf("%s: %" PRId64 " step%s, left as it was\n", job->flags.out, job->there,
               job->there == 1 ? "" : "s");
        return;
    }
    printf("%s: %" PRId64 " step%s, loss %.4f -> %.4f", job->flags.out, run->steps,
           run->steps == 1 ? "" : "s", run->first_loss, run->last_loss);
    if (run->skipped > 0) {
        printf(", %" PRId64 " skipped for overflow", run->skipped);
    }
    if (isfinite(run->eval_loss)) {
        printf(", eval loss %.4f", run->eval_loss);
    }
    if (run->saves_failed > 0) {
        printf(", %" PRId64 " of %" PRId64 " checkpoints not written", run->saves_failed,
               run->saves);
    }
    printf("\n");
}

/* Refuses to replace the model in --out by one with fewer steps. A run without steps to take keeps
 * that model. */
static int check_steps(const struct job *job)
{
    const int64_t steps = job->settings.steps;
    return job->there <= steps || job->run.begun == steps
               ? 0
               : core_err_set(-EINVAL,
                              "--steps %" PRId64 ", but the model in %s is after step %" PRId64
                              "; request at least that many, or give --overwrite",
                              steps, job->flags.out, job->there);
}

/* Returns whether the last due checkpoint and the model of the last step exist. Without any
 * checkpoint the model is enough, because only training again would give one. */
static bool has_finished(const struct job *job)
{
    const int64_t steps = job->settings.steps;
    const int64_t every = job->flags.save_every;
    const int64_t due = every > 0 ? steps - steps % every : 0;
    return (job->run.begun == 0 || job->run.begun >= due) && job->there == steps;
}

static int train(struct job *job)
{
    job->run = (struct finetune_run){
        .settings = &job->settings,
        .engine = job->engine,
        .data = job->data,
        .eval = job->eval,
        .live = &job->talk.live,
        .eval_every = job->flags.eval_every,
        .out = job->flags.out,
        .save_every = job->flags.save_every,
        .keep = (uint32_t)job->flags.keep,
        .replace = job->flags.overwrite,
        .events = &job->talk.events,
    };
    int rc = job->flags.resume ? finetune_checkpoint_resume(&job->run, job->common.verbose >= 0)
                               : 0;
    if (rc != 0 || (rc = check_steps(job)) != 0 || (rc = open_log(job)) != 0) {
        return rc;
    }
    if (has_finished(job)) {
        job->run.steps = job->run.begun = job->there;
    } else if (job->flags.resume && job->run.begun == 0 && job->common.verbose >= 0) {
        fprintf(stderr, "no checkpoint in %s: the run begins with the model\n", job->flags.out);
    }
    finetune_log_begin(job->log, &(struct finetune_log_head){
                                     .plan = tide_engine_plan(job->engine),
                                     .engine = &job->settings.engine,
                                     .steps = job->settings.steps,
                                     .begun = job->run.begun,
                                     .eval_every = job->run.eval_every,
                                     .save_every = job->run.save_every,
                                 });
    job->begun = true;
    rc = finetune_run_steps(&job->run);
    if (rc != 0 || job->run.stopped) {
        return rc;
    }
    job->trained = true;
    if (keeps_existing_model(job)) {
        print_outcome(job);
        return 0;
    }
    rc = tide_engine_save(job->engine, job->flags.out, 1);
    finetune_live_end(&job->talk.live);
    if (rc != 0) {
        const bool kept = job->run.begun > 0 || job->run.saves > job->run.saves_failed;
        return core_err_set(rc, "%s%s%s%s", tide_last_error(), kept ? "; the checkpoints in " : "",
                            kept ? job->flags.out : "",
                            kept ? " are complete: without this problem, the same command with "
                                   "--resume continues from the newest one"
                                 : "");
    }
    print_outcome(job);
    judge_rates(job);
    rc = tide_engine_trace(job->engine);
    if (rc != 0) {
        rc = core_err_adopt(rc, tide_last_error());
    }
    if (job->run.save_problem[0] == '\0') {
        return rc;
    }
    if (rc != 0) {
        core_log(CORE_LOG_ERROR, "%s", core_err_message());
    }
    return core_err_set(-EIO, "the model is in %s, but the last checkpoint was not written: %s",
                        job->flags.out, job->run.save_problem);
}

/* Removes what open_log() created in --out, so that the command can be repeated. */
static void remove_made_out(const struct job *job)
{
    const char *const paths[] = {job->flags.log, job->settings.csv};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (is_in_out(job, paths[i])) {
            unlink(paths[i]);
        }
    }
    rmdir(job->flags.out);
}

/* Failures of the log were reported before; they set the exit code here. */
static int close_job(struct job *job, int code)
{
    tide_engine_destroy(job->engine);
    finetune_data_close(job->eval);
    finetune_data_close(job->data);
    if (finetune_log_close(job->log) != 0 && code == CLI_DONE) {
        code = CLI_FAILED;
    }
    if (job->made_out && job->run.steps == 0) {
        remove_made_out(job);
    }
    for (size_t i = 0; i < sizeof job->fifos / sizeof job->fifos[0]; i++) {
        if (job->fifos[i] != NULL) {
            fclose(job->fifos[i]);
        }
    }
    finetune_settings_fini(&job->settings);
    finetune_context_fini(&job->talk);
    return code;
}

static int run_job(struct job *job)
{
    struct tide_inspection model;
    int rc = cli_out_resolve(job->flags.out, job->out);
    job->flags.out = job->out;
    if (rc != 0 || (rc = finetune_world_count(job->world, &job->flags)) != 0 ||
        (rc = finetune_context_inspect(&job->talk, job->flags.model, true, &model)) != 0 ||
        (rc = finetune_settings_init(&job->settings, &job->flags, &model)) != 0 ||
        (rc = open_inputs(job)) != 0) {
        /* from here on, a signal must not use the context */
        finetune_stop_begin();
        return report_failure(job, rc);
    }
    job->talk.live.steps = (uint64_t)job->settings.steps;
    job->talk.live.print_every = (uint64_t)job->settings.print_every;
    finetune_stop_begin();
    rc = open_engine(job);
    if (rc == 0) {
        rc = train(job);
    }
    if (rc == -ECANCELED) {
        finetune_live_end(&job->talk.live);
        return cli_fail(job->command, CLI_INTERRUPTED,
                        job->flags.resume
                            ? "stopped by a signal before the first step; checkpoints are unchanged"
                            : "stopped by a signal before the first step; nothing was trained");
    }
    if (rc != 0) {
        return report_failure(job, rc);
    }
    if (job->run.stopped) {
        return cli_fail(job->command, CLI_INTERRUPTED,
                        "stopped by a signal after step %" PRId64 " of %" PRId64
                        "; %s/checkpoint-%" PRId64
                        " has the complete state: --resume continues from there, and `tide export` "
                        "converts it to a model",
                        job->run.steps, job->settings.steps, job->flags.out, job->run.steps);
    }
    return CLI_DONE;
}

static int run_first(const struct cli_command *command, int argc, char **argv,
                     struct tide_world *world)
{
    struct job job = {.command = command, .world = world};
    struct cli_option options[FINETUNE_OPTIONS_MAX];
    struct cli_parsed parsed = {.count = 0};
    finetune_flags_init(&job.flags);
    size_t count = finetune_flags_options(&job.flags, options);
    int code = cli_parse(command, options, count, argc, argv, &parsed);
    job.flags.given = parsed.given;
    code = code >= 0 ? code : finetune_flags_check(command, &job.flags, true);
    if (code >= 0) {
        return code;
    }
    job.common = parsed.common;
    if (finetune_context_init(&job.talk, job.common.verbose) != 0) {
        return cli_fail(command, CLI_FAILED, NULL);
    }
    if (world != NULL && job.common.verbose >= 0) {
        finetune_world_print(world);
    }
    code = close_job(&job, run_job(&job));
    return cli_close(command, code);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct tide_world *world = NULL;
    finetune_stop_early(NULL, NULL);
    int code = finetune_world_open(command, argc, argv, &world);
    if (code >= 0) {
        return code;
    }
    code = run_first(command, argc, argv, world);
    finetune_stop_world(NULL);
    finetune_world_close(world, code);
    return code;
}

static void print_options(bool verbose)
{
    finetune_flags_print(NULL, 0, true, verbose);
}

const struct cli_command cli_command_finetune = {
    .name = "finetune",
    .summary = "fine-tune a model larger than memory; writes a Hugging Face folder",
    .usage = "--model DIR --data FILE --out DIR [OPTIONS]",
    .print_options = print_options,
    .example = "tide finetune --model Qwen3-4B --data rows.jsonl --out tuned --store /nvme",
    .synonyms = finetune_flags_synonyms,
    .run = run,
};
