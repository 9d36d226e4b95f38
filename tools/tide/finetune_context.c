/* finetune_context.c: shows log lines, progress and errors of libtide. */
#include "tools/tide/finetune_context.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "tools/text/data/spool.h"
#include "tools/tide/cli.h"
#include "tools/tide/finetune_stop.h"

static void keep_line(struct finetune_events *events, bool error, bool warning, const char *line)
{
    if (error || warning) {
        finetune_events_add(events, error ? FINETUNE_EVENT_ERROR : FINETUNE_EVENT_WARNING, "%s",
                            line);
    }
}

/* Keeps log lines of the command, which cli.c has printed. */
static void keep_own(void *user, enum core_log_level level, const char *line)
{
    keep_line(user, level == CORE_LOG_ERROR, level == CORE_LOG_WARN, line);
}

static void write_line(void *user, uint32_t level, const char *line)
{
    struct finetune_context *talk = user;
    static const char *const names[] = {"error", "warn", "info", "debug"};
    if (talk->refuses && level == TIDE_LOG_WARN) {
        return;
    }
    /* Overwrites the live line, which the next step prints again. */
    fprintf(stderr, "%stide: %s: ", talk->live.terminal ? "\r\033[K" : "", names[level]);
    cli_print_text(stderr, line, strlen(line));
    fputc('\n', stderr);
    keep_line(&talk->events, level == TIDE_LOG_ERROR, level == TIDE_LOG_WARN, line);
}

static int show_progress(void *user, const struct tide_progress *progress)
{
    struct finetune_context *talk = user;
    finetune_live_progress(&talk->live, progress);
    return talk->may_stop && finetune_stop_asked();
}

int finetune_context_init(struct finetune_context *talk, int verbose)
{
    static const enum tide_log_level levels[] = {TIDE_LOG_ERROR, TIDE_LOG_WARN, TIDE_LOG_INFO,
                                                 TIDE_LOG_DEBUG};
    finetune_live_init(&talk->live, stderr, verbose < 0, 0, 1);
    finetune_events_init(&talk->events);
    const struct tide_context_options options = {
        .struct_bytes = sizeof options,
        .log_level = levels[verbose < 2 ? verbose + 1 : 3],
        .log = write_line,
        .progress = show_progress,
        .user = talk,
    };
    int rc = tide_context_create(&options, &talk->context);
    if (rc != 0) {
        finetune_events_fini(&talk->events);
        return core_err_adopt(rc, tide_last_error());
    }
    cli_log_also(keep_own, &talk->events);
    return 0;
}

void finetune_context_fini(struct finetune_context *talk)
{
    finetune_live_end(&talk->live);
    tide_context_destroy(talk->context);
    cli_log_also(NULL, NULL);
    finetune_events_fini(&talk->events);
    talk->context = NULL;
}

/* Says what the path is instead of a model folder. */
static int refuse_kind(const char *path, const struct tide_inspection *found)
{
    const uint32_t what = found->what;
    const bool bare = found->files == 0; /* no store, but maybe kept bases, which `note` counts */
    if (what == TIDE_CHECKPOINT) {
        return core_err_set(-EINVAL,
                            "--model %s is a checkpoint; --resume continues its run, and `tide "
                            "export` converts it to a model folder",
                            path);
    }
    if (what == TIDE_STORE_FOLDER && bare && found->note[0] != '\0') {
        return core_err_set(-EINVAL, "--model %s has %s, but no model (there is no config.json)",
                            path, found->note);
    }
    if (what == TIDE_STORE_FOLDER && bare) {
        return core_err_set(-EINVAL,
                            "--model %s is empty: neither a model (there is no config.json) nor a "
                            "checkpoint (no manifest.json)",
                            path);
    }
    if (what == TIDE_STORE_FOLDER) {
        return core_err_set(-EINVAL, "--model %s is a store with the states of a run", path);
    }
    if (what == TIDE_BLOCKS_FOLDER) {
        return core_err_set(-EINVAL,
                            "--model %s is a block store, which a program made with libtide; "
                            "expected a Hugging Face folder (config.json and weights)",
                            path);
    }
    if (what == TIDE_ADAPTER_FOLDER) {
        return core_err_set(-EINVAL,
                            "--model %s is an adapter; give the folder of its base model, and "
                            "--adapter %s to continue with it",
                            path, path);
    }
    return core_err_set(
        -EINVAL,
        "--model %s is a file of tensors; expected a Hugging Face folder (config.json and weights)",
        path);
}

/* Recognizes "Qwen/Qwen3-0.6B" and "gpt2". */
static bool is_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');
    return path[0] != '.' && path[0] != '/' && path[0] != '~' &&
           (slash == NULL || (slash[1] != '\0' && strchr(slash + 1, '/') == NULL));
}

static int refuse_missing(const char *path)
{
    const char *slash = strchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    return is_hub_name(path)
               ? core_err_set(-ENOENT,
                              "--model %s does not exist; --model takes a folder, and tide "
                              "downloads nothing: hf download %s --local-dir %s",
                              path, path, name)
               : core_err_set(-ENOENT, "--model %s does not exist", path);
}

/* Names the folder of a config.json. */
static int refuse_file(const char *path)
{
    static const char config[] = "config.json";
    const char *slash = strrchr(path, '/');
    const bool in = strcmp(slash != NULL ? slash + 1 : path, config) == 0;
    return core_err_set(-EINVAL, "--model %s is a file; --model takes the folder%s%.*s", path,
                        in ? ": --model " : " of a model, which has config.json and weights",
                        !in             ? 0
                        : slash == NULL ? 1
                                        : (int)(slash - path + (slash == path)),
                        slash == NULL ? "." : path);
}

int finetune_context_inspect(struct finetune_context *talk, const char *path, bool weights,
                             struct tide_inspection *out)
{
    struct stat info;
    *out = (struct tide_inspection){.struct_bytes = sizeof *out};
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        return refuse_missing(path);
    }
    int rc = tide_inspect(talk->context, path, NULL, out);
    if (rc == -EINVAL && stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
        return refuse_file(path);
    }
    if (rc != 0) {
        return core_err_adopt(rc, tide_last_error());
    }
    if (out->what == TIDE_OTHER_FOLDER) {
        return core_err_set(-EINVAL, "--model %s: %s", path, out->problem);
    }
    if (out->what != TIDE_MODEL_FOLDER) {
        return refuse_kind(path, out);
    }
    /* config.json was understood, but the weights may be wrong. */
    const bool understood = out->parameters > 0;
    if (!out->verified && (weights || !understood)) {
        return core_err_set(-EINVAL, "--model %s: %s", path, out->problem);
    }
    if (!out->verified) {
        core_log(CORE_LOG_WARN, "planned from config.json alone; training needs weights: %s",
                 out->problem);
    }
    return 0;
}

static void show_reading(void *user, double part)
{
    enum { STEPS = 1000 };
    struct finetune_context *talk = user;
    const struct tide_progress progress = {.struct_bytes = sizeof progress,
                                           .phase = "count rows of data",
                                           .done = (uint64_t)(part * STEPS),
                                           .total = STEPS};
    if (core_clock_now_ns() - talk->reads_ns > INT64_C(1000000000)) {
        finetune_live_progress(&talk->live, &progress);
    }
}

int finetune_context_data(struct finetune_context *talk,
                          const struct finetune_data_options *options, struct finetune_data **out)
{
    struct finetune_data_options shown = *options;
    shown.progress = show_reading;
    shown.user = talk;
    talk->reads_ns = core_clock_now_ns();
    if (talk->live.stream != NULL && strcmp(options->path, "-") == 0) {
        fprintf(talk->live.stream,
                "standard input is first read to its end into an unnamed file in %s (TMPDIR "
                "chooses another folder)\n",
                text_spool_folder());
    }
    const int rc = finetune_data_open(&shown, out);
    finetune_live_end(&talk->live);
    return rc;
}

int finetune_exit_code(int rc)
{
    static const int given_wrong[] = {-EINVAL, -ENOENT,       -EEXIST, -ENOTDIR, -EISDIR,
                                      -EACCES, -EPERM,        -EROFS,  -ENOTSUP, -ENODEV,
                                      -EBUSY,  -ENAMETOOLONG, -E2BIG,  -ELOOP};
    for (size_t i = 0; i < sizeof given_wrong / sizeof given_wrong[0]; i++) {
        if (rc == given_wrong[i]) {
            return CLI_WRONG;
        }
    }
    return CLI_FAILED;
}
