/* main.c: reads the options, measures directories, and prints conclusions. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "tools/ds_nvme_bench/options.h"
#include "tools/ds_nvme_bench/progress.h"
#include "tools/ds_nvme_bench/report.h"
#include "tools/ds_nvme_bench/version.h"

/* Set by signals. A second signal of one kind, at least a second later, ends the process; scratch
 * files have no name. */
static volatile sig_atomic_t interrupted;
static volatile int stop;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
    stop = 1;
}

static void catch_signals(void)
{
    cli_signal_catch(SIGINT, on_signal);
    cli_signal_catch(SIGTERM, on_signal);
    cli_signal_catch(SIGHUP, on_signal);
}

/* Most errors about a named file or option are CLI_WRONG. */
static int code_of(int rc)
{
    switch (rc) {
    case -EINTR: return CLI_INTERRUPTED;
    case -EBADMSG: return CLI_NOT_VERIFIED;
    case -EINVAL:
    case -ENOENT:
    case -ENOTDIR:
    case -EEXIST:
    case -EISDIR:
    case -ELOOP:
    case -EACCES:
    case -EPERM:
    case -EROFS:
    case -ENOTSUP: return CLI_WRONG;
    default: return CLI_FAILED;
    }
}

/* ---- one directory ---- */

static int run_points(const struct bench_options *options, struct bench_result *result,
                      struct bench_progress *progress)
{
    struct bench_sweep_options sweep = options->sweep;
    sweep.target = &result->target;
    sweep.stop = &stop;
    sweep.progress = bench_progress_point;
    sweep.beat = bench_progress_beat;
    sweep.user = progress;
    sweep.budget_seconds /= options->dir_count;
    result->soaked = options->mode == BENCH_SOAK;
    return bench_sweep_run(&sweep, &result->sweep);
}

static struct bench_params first_setting(const struct bench_options *options)
{
    return (struct bench_params){.block_bytes = options->sweep.blocks[0],
                                 .depth = options->sweep.depths[0],
                                 .threads = options->sweep.threads[0]};
}

static int run_swap(const struct bench_options *options, struct bench_result *result,
                    struct bench_progress *progress)
{
    struct bench_swap_options swap = {.target = &result->target,
                                      .params = first_setting(options),
                                      .tensor_bytes = options->tensor_bytes,
                                      .passes = options->passes,
                                      .checksums = options->sweep.how.checksums,
                                      .stop = &stop,
                                      .progress = bench_progress_moved,
                                      .user = progress};
    result->swapped = true;
    return bench_swap_run(&swap, &result->swap);
}

static int run_verify(const struct bench_options *options, struct bench_result *result,
                      struct bench_progress *progress)
{
    struct bench_verify_options verify = {.target = &result->target,
                                          .params = first_setting(options),
                                          .passes = options->passes,
                                          .seed = 1,
                                          .stop = &stop,
                                          .progress = bench_progress_moved,
                                          .user = progress};
    result->verified = true;
    return bench_verify_run(&verify, &result->verify);
}

static int run_directory(const struct bench_options *options, const char *path,
                         struct bench_result *result)
{
    bool quiet = options->common.verbose < 0;
    struct bench_progress progress = {
        .path = path, .live = !quiet && cli_color(stderr), .plain = options->common.verbose > 0};
    struct bench_target_options target = {.path = path,
                                          .backend = options->backend,
                                          .bytes = options->io_bytes,
                                          .fill_seconds = 6.0 / options->dir_count,
                                          .stop = &stop,
                                          .progress = bench_progress_fill,
                                          .user = &progress};
    int rc = bench_target_open(&target, &result->target);
    if (rc == 0) {
        bench_device_read(&result->target, &result->device);
        int drive_node = result->device.found ? result->device.block.node : -1;
        int wanted = options->sweep.how.node;
        rc = bench_target_place(&result->target, wanted,
                                wanted == BENCH_NODE_AUTO ? drive_node : -1);
    }
    if (rc == 0) {
        switch (options->mode) {
        case BENCH_SWEEP:
        case BENCH_POINT:
        case BENCH_SOAK: rc = run_points(options, result, &progress); break;
        case BENCH_SWAP: rc = run_swap(options, result, &progress); break;
        case BENCH_VERIFY: rc = run_verify(options, result, &progress); break;
        }
    }
    bench_progress_clear(&progress);
    return rc;
}

/* ---- recommendation, files and comparison ---- */

/* Chooses one setting, because DeepSpeed has one aio block: the recommendation with the most bytes
 * in flight. */
static void recommend_for_all(struct bench_report *report)
{
    double most = 0;
    for (unsigned r = 0; r < report->count; r++) {
        const struct bench_recommendation *made = &report->results[r].sweep.recommendation;
        double in_flight = (double)made->block_bytes * made->depth * made->threads;
        if (report->results[r].sweep.count > 0 && in_flight > most) {
            most = in_flight;
            report->recommendation = *made;
            report->recommends = true;
        }
    }
}

static int write_files(const struct bench_options *options, const struct bench_report *report)
{
    int rc = options->json != NULL ? bench_report_save(report, options->json, bench_report_json)
                                   : 0;
    if (rc == 0 && options->csv != NULL) {
        rc = bench_report_save(report, options->csv, bench_report_csv);
    }
    if (rc == 0 && options->plot != NULL) {
        rc = bench_report_save(report, options->plot, bench_report_svg);
    }
    if (rc == 0 && options->config != NULL && report->recommends) {
        rc = bench_report_save(report, options->config, bench_report_config);
    }
    return rc;
}

/* Checks early, so that an error does not waste a minute of measuring. */
static int check_files(const struct bench_options *options)
{
    const char *const files[] = {options->json, options->csv, options->plot, options->config};
    int rc = options->baseline != NULL ? bench_report_comparable(options->baseline) : 0;
    for (size_t i = 0; rc == 0 && i < sizeof files / sizeof files[0]; i++) {
        rc = files[i] != NULL ? bench_report_writable(files[i]) : 0;
        for (size_t k = 0; rc == 0 && files[i] != NULL && k < i; k++) {
            if (files[k] != NULL && strcmp(files[i], files[k]) == 0) {
                rc = core_err_set(-EINVAL, "two of --json, --csv, --plot and --emit-config name %s",
                                  files[i]);
            }
        }
    }
    return rc == 0 && options->config != NULL ? bench_report_replaceable(options->config) : rc;
}

static bool stdout_is_taken(const struct bench_options *options)
{
    const char *const files[] = {options->json, options->csv, options->plot, options->config};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (files[i] != NULL && strcmp(files[i], "-") == 0) {
            return true;
        }
    }
    return false;
}

static int compare_with_baseline(const struct bench_options *options,
                                 const struct bench_report *report, FILE *out)
{
    unsigned slower = 0;
    int rc = bench_report_compare(report, options->baseline, options->tolerance, out, &slower);
    if (rc != 0) {
        return cli_fail(&bench_command, code_of(rc), NULL);
    }
    if (slower == 0) {
        fprintf(out, "\nNothing is more than %.0f %% slower than %s.\n", options->tolerance * 100,
                options->baseline);
    }
    return slower > 0 ? CLI_NO_FIT : CLI_DONE;
}

static int write_results(const struct bench_options *options, struct bench_report *report)
{
    FILE *out = stdout_is_taken(options) ? stderr : stdout;
    recommend_for_all(report);
    report->recommends = report->recommends && options->mode != BENCH_SOAK;
    bench_report_table(report, out);
    /* Compare before writing: an output may replace the baseline. */
    int code = options->baseline != NULL ? compare_with_baseline(options, report, out) : CLI_DONE;
    int rc = write_files(options, report);
    if (rc != 0) {
        return cli_fail(&bench_command, code_of(rc), NULL);
    }
    for (unsigned r = 0; r < report->count; r++) {
        if (report->results[r].verified && report->results[r].verify.wrong > 0) {
            return CLI_NOT_VERIFIED;
        }
    }
    return code;
}

static int run(const struct bench_options *options)
{
    struct bench_report report = {.mode = bench_mode_name(options->mode),
                                  .params = options->params,
                                  .wants_mixed = options->sweep.ops[BENCH_RW],
                                  .rated_bytes = options->rated_bytes};
    struct bench_result *results = calloc(options->dir_count, sizeof *results);
    if (results == NULL) {
        return cli_fail(&bench_command, CLI_FAILED, "no memory for the results");
    }
    int rc = check_files(options);
    for (unsigned d = 0; rc == 0 && d < options->dir_count; d++) {
        results[d].target.fd = -1;
        rc = run_directory(options, options->dirs[d], &results[d]);
    }
    int code = CLI_DONE;
    if (rc == 0) {
        bench_environment_read(&report.environment);
        report.results = results;
        report.count = options->dir_count;
        code = write_results(options, &report);
    } else {
        code = cli_fail(&bench_command, interrupted ? CLI_INTERRUPTED : code_of(rc), NULL);
    }
    for (unsigned d = 0; d < options->dir_count; d++) {
        bench_target_close(&results[d].target);
    }
    free(results);
    return cli_close(&bench_command, code);
}

static void print_version(void)
{
    static const char *const names[] = {"uring", "libaio", "threads"};
    printf("ds_nvme_bench %s\ncommit %s\ncompiler %s\nbackends:", bench_version(), bench_commit(),
           bench_compiler());
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (aio_backend_find(names[i]) != NULL) {
            printf(" %s", names[i]);
        }
    }
    printf("\n");
}

static int bench_main(int argc, char **argv)
{
    struct bench_options options;
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        print_version();
        return cli_close(&bench_command, CLI_DONE);
    }
    int code = bench_options_parse(argc - 1, argv + 1, &options);
    if (code >= 0) {
        return code;
    }
    catch_signals();
    return run(&options);
}

int main(int argc, char **argv)
{
    return cli_main(bench_main, argc, argv);
}
