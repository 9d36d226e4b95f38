/* finetune_flags.c: names, kinds and limits of the flags that training and planning share. */
#include "tools/tide/finetune_flags.h"

#include <math.h>
#include <string.h>

#include "core/base/cfg.h"

static const double most = 1e15;

const char tune_flags_help[] =
    "  --config FILE   a ds_config.json; flags win over it     [defaults in brackets]\n"
    "  --steps N | --epochs X [1]   --batch ROWS [8]   --accum N [1]   --seed N [42]\n"
    "  --seq-len N [the longest row; without data 1024 or the model's]   --shuffle [no]\n"
    "  --pack [no]: rows share --seq-len   --split [no]: long rows go on in the next\n"
    "  --on-bad-row skip [stop]   --train-on all [completion]   --chat-format NAME [own]\n"
    "  --lr X [5e-5]   --schedule constant|linear|cosine|wsd [constant]   --warmup N [0]\n"
    "  --optimizer adamw|adam|lion|adagrad|sgd [adamw]   --betas A,B [0.9,0.999]\n"
    "  --eps X [1e-8]   --weight-decay X [0]   --clip X [1], 0: off   --fp32-grads [no]\n"
    "  --precision bf16|fp16|fp32 [bf16]   --moments fp32|bf16|8bit [fp32]\n"
    "  --freeze PATTERN [none]   --dev cpu|cuda[:N] [cpu]   --threads N [all]\n"
    "  --ranks N [1]   --zero 0|1|2|3 [0]   --io uring|libaio|threads|mem [probed]\n"
    "  --device-memory SIZE, --host-memory SIZE [free]   --store DIR[:SIZE]   --make-store\n"
    "  --place weights=device|host|store,states=...,grads=...,acts=keep|recompute|...\n"
    "  --tile-bytes SIZE [no limit]   --trace FILE [none]   --rates FILE, --measure [kept]\n";

void tune_flags_init(struct tune_flags *flags)
{
    *flags = (struct tune_flags){
        .steps = CORE_CFG_NONE,
        .epochs = (double)NAN,
        .length = CORE_CFG_NONE,
        .batch = CORE_CFG_NONE,
        .accum = CORE_CFG_NONE,
        .seed = CORE_CFG_NONE,
        .lr = (double)NAN,
        .eps = (double)NAN,
        .decay = (double)NAN,
        .clip = (double)NAN,
        .schedule = -1,
        .warmup = CORE_CFG_NONE,
        .precision = -1,
        .optimizer = -1,
        .moments = -1,
        .threads = CORE_CFG_NONE,
        .ranks = CORE_CFG_NONE,
        .zero = CORE_CFG_NONE,
        .tile_bytes = TUNE_SIZE_NONE,
        .device_bytes = TUNE_SIZE_NONE,
        .host_bytes = TUNE_SIZE_NONE,
        .eval_every = CORE_CFG_NONE,
        .save_every = CORE_CFG_NONE,
        .keep = CORE_CFG_NONE,
    };
}

#define TEXT(flag, to, shows)                                                                      \
    {                                                                                              \
        .name = flag, .kind = CLI_TEXT, .out = &(to), .value = shows                               \
    }
#define FILES(flag, to)                                                                            \
    {                                                                                              \
        .name = flag, .kind = CLI_FILES, .out = &(to), .value = "FILE"                             \
    }
#define TEXTS(flag, to, shows)                                                                     \
    {                                                                                              \
        .name = flag, .kind = CLI_TEXTS, .out = &(to), .value = shows                              \
    }
#define SIZE(flag, to)                                                                             \
    {                                                                                              \
        .name = flag, .kind = CLI_SIZE, .out = &(to), .value = "SIZE"                              \
    }
#define TRUTH(flag, to)                                                                            \
    {                                                                                              \
        .name = flag, .kind = CLI_FLAG, .out = &(to)                                               \
    }
#define CHOICE(flag, to, all)                                                                      \
    {                                                                                              \
        .name = flag, .kind = CLI_CHOICE, .out = &(to), .value = all, .choices = all               \
    }
#define INTEGER(flag, to, from, up)                                                                \
    {                                                                                              \
        .name = flag, .kind = CLI_INTEGER, .out = &(to), .value = "N", .low = from, .high = up     \
    }
#define REAL(flag, to, from, up)                                                                   \
    {                                                                                              \
        .name = flag, .kind = CLI_REAL, .out = &(to), .value = "X", .low = from, .high = up        \
    }

size_t tune_flags_options(struct tune_flags *flags, struct cli_option *out)
{
    const struct cli_option options[] = {
        TEXT("model", flags->model, "DIR"),
        FILES("data", flags->data),
        TEXT("out", flags->out, "DIR"),
        TEXT("config", flags->config, "FILE"),
        INTEGER("steps", flags->steps, 1, TUNE_STEPS_MAX),
        REAL("epochs", flags->epochs, 1e-9, 1e9),
        INTEGER("seq-len", flags->length, 1, 1 << 24),
        INTEGER("batch", flags->batch, 1, 1 << 20),
        INTEGER("accum", flags->accum, 1, TUNE_ACCUM_MAX),
        INTEGER("seed", flags->seed, 0, most),
        TRUTH("shuffle", flags->shuffle),
        TRUTH("pack", flags->pack),
        TRUTH("split", flags->split),
        CHOICE("on-bad-row", flags->on_bad_row, "stop|skip"),
        CHOICE("train-on", flags->train_on, "completion|all"),
        TEXT("chat-format", flags->chat_format, "NAME"),
        REAL("lr", flags->lr, 0, 1e9),
        REAL("eps", flags->eps, 0, 1e9),
        REAL("weight-decay", flags->decay, 0, 1e9),
        REAL("clip", flags->clip, 0, most),
        TEXT("betas", flags->betas, "A,B"),
        CHOICE("schedule", flags->schedule, "constant|linear|cosine|wsd"),
        INTEGER("warmup", flags->warmup, 0, most),
        CHOICE("precision", flags->precision, "bf16|fp16|fp32"),
        CHOICE("optimizer", flags->optimizer, "adamw|adam|lion|adagrad|sgd"),
        CHOICE("moments", flags->moments, "fp32|bf16|8bit"),
        TRUTH("fp32-grads", flags->gradients_fp32),
        TEXTS("freeze", flags->frozen, "PATTERN"),
        TEXT("dev", flags->device, "cpu|cuda[:N]"),
        INTEGER("threads", flags->threads, 1, 1024),
        INTEGER("ranks", flags->ranks, 1, 1024),
        INTEGER("zero", flags->zero, 0, 3),
        SIZE("tile-bytes", flags->tile_bytes),
        SIZE("device-memory", flags->device_bytes),
        SIZE("host-memory", flags->host_bytes),
        TEXTS("store", flags->stores, "DIR[:SIZE]"),
        TRUTH("make-store", flags->make_store),
        TEXT("place", flags->place, "WHAT=WHERE,..."),
        TEXT("io", flags->io, "uring|libaio|threads|mem"),
        TEXT("rates", flags->rates, "FILE"),
        TRUTH("measure", flags->measure),
        TEXT("trace", flags->trace, "FILE"),
        TRUTH("overwrite", flags->overwrite),
        FILES("eval-data", flags->eval_data),
        INTEGER("eval-every", flags->eval_every, 1, most),
        TEXT("log", flags->log, "FILE.jsonl"),
        TEXT("csv", flags->csv, "FILE"),
        INTEGER("save-every", flags->save_every, 1, most),
        INTEGER("keep", flags->keep, 1, most),
        TRUTH("resume", flags->resume),
        TEXT("tensorboard", flags->tensorboard, "DIR"),
    };
    enum { COUNT = sizeof options / sizeof options[0] };
    _Static_assert(COUNT <= TUNE_OPTIONS_MAX - 8, "callers add some of their own");
    for (size_t i = 0; i < COUNT; i++) {
        out[i] = options[i];
    }
    return COUNT;
}

int tune_flags_check(const struct cli_command *command, const struct tune_flags *flags, bool trains)
{
    const char *missing = flags->model == NULL            ? "--model DIR"
                          : trains && flags->data == NULL ? "--data FILE"
                          : trains && flags->out == NULL  ? "--out DIR"
                                                          : NULL;
    if (missing != NULL) {
        return cli_fail(command, CLI_WRONG, "%s is missing; see tide %s --help", missing,
                        command->name);
    }
    if (flags->steps != CORE_CFG_NONE && !isnan(flags->epochs)) {
        return cli_fail(command, CLI_WRONG,
                        "--steps and --epochs both say how long to train; give one of them");
    }
    if ((flags->pack || flags->split) && flags->length == CORE_CFG_NONE) {
        return cli_fail(command, CLI_WRONG, "--%s needs --seq-len N: how long a row may be",
                        flags->pack ? "pack" : "split");
    }
    if (flags->eval_every != CORE_CFG_NONE && flags->eval_data == NULL) {
        return cli_fail(command, CLI_WRONG, "--eval-every needs --eval-data FILE");
    }
    return -1;
}

void tune_flags_paths(const struct tune_flags *flags, struct cli_path paths[TUNE_FLAGS_PATHS])
{
    const struct cli_path all[TUNE_FLAGS_PATHS] = {
        {CLI_PATH_WRITTEN, "--trace", flags->trace},
        {CLI_PATH_MADE, "--out", flags->out},
        {CLI_PATH_KEPT, "--model", flags->model},
        {CLI_PATH_READ, "--data", flags->data},
        {CLI_PATH_READ, "--eval-data", flags->eval_data},
        {CLI_PATH_READ, "--config", flags->config},
        {CLI_PATH_READ, "--rates", flags->rates},
    };
    memcpy(paths, all, sizeof all);
}
