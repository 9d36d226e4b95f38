/* plan.c: `tide plan`: prints what a run would need. The main thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/json/write.h"
#include "tools/text/data/feed.h"
#include "tools/tide/commands.h"
#include "tools/tide/finetune_context.h"
#include "tools/tide/finetune_data.h"
#include "tools/tide/finetune_settings.h"
#include "tools/tide/machines.h"
#include "tools/tide/paths.h"
#include "tools/tide/plan_json.h"
#include "tools/tide/plan_text.h"

struct wish {
    struct finetune_flags flags;
    bool json;
    bool tape;
    bool what_if;
    const char *rates_out;
    int64_t nodes;
    int64_t ranks_per_node;
    double straggler;
    char model[PATH_MAX]; /* the folder, if --model named its config.json */
};

/* Options of this command alone. The short help has those before SAVE_RATES. */
enum { JSON, TAPE, WHAT_IF, MACHINE, SAVE_RATES, NODES, RANKS_PER_NODE, STRAGGLER, OWN_OPTIONS };
enum { SHOWN_OPTIONS = SAVE_RATES };

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
        rc = cli_plan_write_json(&json, NULL, plan, options, wish->what_if);
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
    rc = cli_plan_print(plan, options, stdout);
    if (rc == 0 && wish->what_if) {
        rc = cli_plan_print_what_if(plan, stdout);
    }
    return rc == 0 ? CLI_DONE : cli_fail(command, CLI_FAILED, NULL);
}

static int check_written(const struct wish *wish)
{
    struct cli_path paths[1 + FINETUNE_FLAGS_PATHS] = {
        {CLI_PATH_WRITTEN, "--save-rates", wish->rates_out},
    };
    finetune_flags_paths(&wish->flags, paths + 1);
    int rc = cli_paths_check(paths, sizeof paths / sizeof paths[0]);
    if (rc != 0 || (rc = cli_path_try("--trace", wish->flags.trace, CLI_PATH_FILE_LAST)) != 0) {
        return rc;
    }
    return cli_path_try("--save-rates", wish->rates_out, CLI_PATH_FILE_LAST);
}

/* The values come from the file of --machine. */
static int check_excluded(const struct finetune_flags *flags)
{
    const struct {
        const char *name;
        bool given;
    } excluded[] = {
        {"--ranks (--ranks-per-node gives it)", FINETUNE_GIVEN(flags, ranks)},
        {"--rates", FINETUNE_GIVEN(flags, rates)},
        {"--store", FINETUNE_GIVEN(flags, store)},
        {"--dev", FINETUNE_GIVEN(flags, dev)},
    };
    for (size_t i = 0; i < sizeof excluded / sizeof excluded[0]; i++) {
        if (excluded[i].given) {
            return core_err_set(
                -EINVAL, "--machine cannot be combined with %s: the machine's file decides that",
                excluded[i].name);
        }
    }
    return 0;
}

/* Counts ranks: on each node, --ranks-per-node or one for each GPU. */
static int take_machine(struct wish *wish, struct cli_machine *machine)
{
    enum { RANKS_MAX = 4096 };
    int rc = check_excluded(&wish->flags);
    if (rc != 0) {
        return rc;
    }
    rc = cli_machine_find(wish->flags.machine, machine);
    if (rc != 0) {
        return rc;
    }
    const int64_t each = wish->ranks_per_node > 0 ? wish->ranks_per_node : machine->devices;
    if (each > RANKS_MAX || wish->nodes > RANKS_MAX / each) {
        return core_err_set(-EINVAL,
                            "%" PRId64 " nodes of %" PRId64 " ranks; at most %d ranks are possible",
                            wish->nodes, each, RANKS_MAX);
    }
    wish->flags.ranks = wish->nodes * each;
    return 0;
}

/* With --machine, --zero 3 is the default, unless --config is given. */
static void set_machine(const struct wish *wish, const struct cli_machine *machine,
                        struct tide_engine_options *engine)
{
    engine->machine = machine->path;
    engine->nodes = (uint64_t)wish->nodes;
    if (!FINETUNE_GIVEN(&wish->flags, zero) && wish->flags.config == NULL) {
        engine->zero_stage = 3;
    }
}

/* A config.json is enough for a plan. */
static void take_model_file(struct wish *wish)
{
    char name[PATH_MAX];
    struct stat info;
    const bool is_file = stat(wish->model, &info) == 0 && S_ISREG(info.st_mode);
    cli_path_cut_name(wish->model, name);
    if (is_file && strcmp(name, "config.json") == 0) {
        wish->flags.model = wish->model;
    }
}

static int make(const struct cli_command *command, struct wish *wish, struct finetune_context *talk)
{
    struct tide_inspection model;
    struct finetune_settings settings;
    struct cli_machine machine;
    struct tide_plan *plan = NULL;
    bool unfit = false;
    int rc = check_written(wish);
    if (rc != 0 || (wish->flags.machine != NULL && (rc = take_machine(wish, &machine)) != 0) ||
        (rc = finetune_context_inspect(talk, wish->flags.model, false, &model)) != 0 ||
        (rc = finetune_settings_init(&settings, &wish->flags, &model)) != 0) {
        return cli_fail(command, finetune_exit_code(rc), NULL);
    }
    rc = look_at_data(&wish->flags, talk, &settings);
    if (rc == 0) {
        settings.engine.trace = NULL; /* print() writes the simulated timeline */
        settings.engine.straggler = wish->straggler;
        if (wish->flags.machine != NULL) {
            set_machine(wish, &machine, &settings.engine);
        }
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

/* `wish` may be NULL for --help. */
static void own_options(struct wish *wish, struct cli_option out[OWN_OPTIONS])
{
    static struct wish none;
    struct wish *to = wish != NULL ? wish : &none;
    const struct cli_option options[OWN_OPTIONS] = {
        [JSON] = {"json", CLI_FLAG, &to->json, NULL, "print the plan as one JSON object", 0, 0,
                  NULL, NULL},
        [TAPE] = {"tape", CLI_FLAG, &to->tape, NULL, "print the commands of a step", 0, 0, NULL,
                  NULL},
        [WHAT_IF] = {"what-if", CLI_FLAG, &to->what_if, NULL,
                     "also plan with twice as much of each part of the machine", 0, 0, NULL, NULL},
        [SAVE_RATES] = {"save-rates", CLI_TEXT, &to->rates_out, "FILE",
                        "write the measured rates, for --rates on another machine", 0, 0, NULL,
                        NULL},
        [MACHINE] = {"machine", CLI_TEXT, &to->flags.machine, "NAME|FILE",
                     "plan for dgx-2, dgx-h100, ... or a file (and --nodes N)", 0, 0, NULL, NULL},
        [NODES] = {"nodes", CLI_INTEGER, &to->nodes, "N", "nodes of --machine", 1, 4096, NULL, "1"},
        [RANKS_PER_NODE] = {"ranks-per-node", CLI_INTEGER, &to->ranks_per_node, "N",
                            "ranks on a node of --machine", 1, 4096, NULL, "one per GPU"},
        [STRAGGLER] = {"straggler", CLI_REAL, &to->straggler, "X",
                       "the slowest rank takes X times as long as the others", 1, 1000, NULL, "1"},
    };
    memcpy(out, options, sizeof options);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct wish wish = {.nodes = 1, .straggler = 1};
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
    if (wish.flags.machine == NULL && (cli_is_given(&parsed.given, count + NODES) ||
                                       cli_is_given(&parsed.given, count + RANKS_PER_NODE))) {
        return cli_fail(command, CLI_WRONG, "--nodes and --ranks-per-node need --machine");
    }
    snprintf(wish.model, sizeof wish.model, "%s", wish.flags.model);
    take_model_file(&wish);
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
    finetune_flags_print(options, verbose ? OWN_OPTIONS : SHOWN_OPTIONS, false, verbose);
    if (verbose) {
        printf("  Other flags of tide finetune have no effect.\n");
    }
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
