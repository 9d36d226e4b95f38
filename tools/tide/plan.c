/* plan.c: `tide plan`: takes the options of a run and prints what it would need. The main thread. */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/write.h"
#include "tools/text/data/feed.h"
#include "tools/tide/commands.h"
#include "tools/tide/finetune_context.h"
#include "tools/tide/finetune_data.h"
#include "tools/tide/finetune_settings.h"
#include "tools/tide/paths.h"
#include "tools/tide/plan_json.h"
#include "tools/tide/plan_text.h"

struct wish {
    struct finetune_flags flags;
    bool json;
    bool tape;
    const char *rates_out;
};

/* Counts the rows of --data, if given, to find their length. */
static int look_at_data(const struct finetune_flags *flags, struct finetune_context *talk,
                        struct finetune_settings *settings)
{
    const struct tide_engine_options *engine = &settings->engine;
    struct finetune_data *data = NULL;
    struct finetune_data_info info = {0};
    int64_t steps = settings->steps;
    if (flags->data != NULL) {
        int rc = text_feed_now(&settings->now);
        if (rc != 0) {
            return rc;
        }
        const struct finetune_data_options options = finetune_settings_data(settings, flags->data,
                                                                            true);
        rc = finetune_context_data(talk, &options, &data);
        if (rc != 0) {
            return rc;
        }
        finetune_data_describe(data, &info);
        settings->engine.application_bytes = finetune_data_memory(data);
        finetune_data_close(data);
        steps = steps > 0
                    ? steps
                    : finetune_data_steps(&info, engine->accum * engine->ranks, settings->epochs);
    }
    return finetune_settings_fit(settings, &info, steps);
}

static int print(const struct cli_command *command, const struct wish *wish,
                 const struct tide_plan *plan, const struct tide_engine_options *options)
{
    int rc = wish->flags.trace != NULL ? tide_plan_trace(plan, wish->flags.trace) : 0;
    if (rc != 0 || (wish->rates_out != NULL && tide_plan_rates(plan, wish->rates_out) != 0)) {
        return cli_fail(command, CLI_FAILED, "%s", tide_last_error());
    }
    if (wish->json) {
        struct core_json_write json;
        core_json_write_init_file(&json, stdout);
        json.indent = 2;
        rc = cli_plan_write_json(&json, NULL, plan, options);
        if (rc != 0) {
            core_json_write_fini(&json);
            return cli_fail(command, CLI_FAILED, NULL);
        }
        return cli_close_json(command, &json, CLI_DONE);
    }
    if (wish->tape) {
        cli_plan_print_tape(plan, stdout);
        return CLI_DONE;
    }
    return cli_plan_print(plan, options, stdout) == 0 ? CLI_DONE
                                                      : cli_fail(command, CLI_FAILED, NULL);
}

static int check_written(const struct wish *wish)
{
    struct cli_path paths[1 + FINETUNE_FLAGS_PATHS] = {
        {CLI_PATH_WRITTEN, "--save-rates", wish->rates_out},
    };
    finetune_flags_paths(&wish->flags, paths + 1);
    int rc = cli_paths_check(paths, sizeof paths / sizeof paths[0]);
    if (rc != 0 || (rc = cli_path_try("--trace", wish->flags.trace, CLI_PATH_FILE)) != 0) {
        return rc;
    }
    return cli_path_try("--save-rates", wish->rates_out, CLI_PATH_FILE);
}

static int make(const struct cli_command *command, const struct wish *wish,
                struct finetune_context *talk)
{
    struct tide_inspection model;
    struct finetune_settings settings;
    struct tide_plan *plan = NULL;
    bool unfit = false;
    int rc = check_written(wish);
    if (rc != 0 || (rc = finetune_context_inspect(talk, wish->flags.model, false, &model)) != 0 ||
        (rc = finetune_settings_init(&settings, &wish->flags, &model)) != 0) {
        return cli_fail(command, finetune_exit_code(rc), NULL);
    }
    rc = look_at_data(&wish->flags, talk, &settings);
    if (rc == 0) {
        settings.engine.trace = NULL; /* nothing runs; the simulated timeline is written below */
        rc = tide_plan_create(talk->context, &settings.engine, &plan);
        unfit = rc == -EFBIG;
        finetune_live_end(&talk->live);
        if (rc != 0) {
            rc = core_err_adopt(rc, tide_last_error());
        }
    }
    int code = rc == 0 ? print(command, wish, plan, &settings.engine)
                       : cli_fail(command, unfit ? CLI_NO_FIT : finetune_exit_code(rc), NULL);
    tide_plan_destroy(plan);
    finetune_settings_fini(&settings);
    return code;
}

enum { OWN_OPTIONS = 3 };

/* Adds the options that `tide finetune` does not have. `wish` may be NULL for --help. */
static void own_options(struct wish *wish, struct cli_option out[OWN_OPTIONS])
{
    out[0] = (struct cli_option){.name = "json",
                                 .kind = CLI_FLAG,
                                 .out = wish != NULL ? &wish->json : NULL,
                                 .help = "print the plan as one JSON object"};
    out[1] = (struct cli_option){.name = "tape",
                                 .kind = CLI_FLAG,
                                 .out = wish != NULL ? &wish->tape : NULL,
                                 .help = "print the commands of a step"};
    out[2] = (struct cli_option){
        .name = "save-rates",
        .kind = CLI_TEXT,
        .out = wish != NULL ? &wish->rates_out : NULL,
        .value = "FILE",
        .help = "write the measured rates, for --rates on another machine"};
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct wish wish = {.json = false};
    struct finetune_context talk;
    struct cli_option options[FINETUNE_OPTIONS_MAX];
    struct cli_parsed parsed = {.count = 0};
    finetune_flags_init(&wish.flags);
    const size_t count = finetune_flags_options(&wish.flags, options);
    own_options(&wish, options + count);
    int code = cli_parse(command, options, count + OWN_OPTIONS, argc, argv, &parsed);
    wish.flags.given = parsed.given;
    code = code >= 0 ? code : finetune_flags_check(command, &wish.flags, false);
    if (code >= 0) {
        return code;
    }
    if (wish.json && wish.tape) {
        return cli_fail(command, CLI_WRONG,
                        "--json and --tape exclude each other; give one of them");
    }
    if (finetune_context_init(&talk, parsed.common.verbose) != 0) {
        return cli_fail(command, CLI_FAILED, NULL);
    }
    code = make(command, &wish, &talk);
    finetune_context_fini(&talk);
    return cli_close(command, code);
}

static void print_options(bool verbose)
{
    struct cli_option options[OWN_OPTIONS];
    own_options(NULL, options);
    finetune_flags_print(options, OWN_OPTIONS, false, verbose);
    printf("  Other flags of tide finetune have no effect.\n");
}

const struct cli_command cli_command_plan = {
    .name = "plan",
    .summary = "show memory per tier, step time and drive wear before you start",
    .usage = "--model DIR [--data FILE] [OPTIONS]",
    .print_options = print_options,
    .example = "tide plan --model Qwen3-4B --store /nvme --host-memory 8GiB --device-memory 4GiB\n "
               "     exit code 3 if the model does not fit; names the smallest sufficient budgets",
    .synonyms = finetune_flags_synonyms,
    .run = run,
};
