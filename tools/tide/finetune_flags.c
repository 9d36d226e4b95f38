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
    "  --ranks N [1]   --zero 0|1|2|3 [0]   --io uring|libaio|threads|mem   --make-store\n"
    "  --device-memory, --host-memory, --data-memory SIZE [free]   --store DIR[:SIZE]\n"
    "  --place weights=device|host|store,states=...,grads=...,acts=keep|recompute|...\n"
    "  --tile-bytes SIZE [no limit]   --trace FILE [none]   --rates FILE, --measure [kept]\n";

#define NO_ADAPTERS                                                                                \
    "adapters are not built yet; all weights are trained, but for those that --freeze PATTERN "    \
    "names"
#define NO_QUANTIZATION                                                                            \
    "quantized weights are not built yet; --place weights=store keeps them out of memory"

const struct cli_synonym tune_flags_synonyms[] = {
    {"learning-rate", "--lr X"},
    {"max-lr", "--lr X"},
    {"lr-rate", "--lr X"},
    {"batch-size", "--batch ROWS (rows of a micro-batch)"},
    {"micro-batch-size", "--batch ROWS (rows of a micro-batch)"},
    {"per-device-train-batch-size", "--batch ROWS (rows of a micro-batch)"},
    {"per-gpu-train-batch-size", "--batch ROWS (rows of a micro-batch)"},
    {"train-micro-batch-size-per-gpu", "--batch ROWS (rows of a micro-batch)"},
    {"train-batch-size", "--batch ROWS (of a micro-batch) and --accum N (micro-batches of a step)"},
    {"global-batch-size",
     "--batch ROWS (of a micro-batch) and --accum N (micro-batches of a step)"},
    {"gradient-accumulation-steps", "--accum N"},
    {"gradient-accumulation", "--accum N"},
    {"grad-accum", "--accum N"},
    {"accumulation-steps", "--accum N"},
    {"num-train-epochs", "--epochs X"},
    {"num-epochs", "--epochs X"},
    {"n-epochs", "--epochs X"},
    {"max-steps", "--steps N"},
    {"num-steps", "--steps N"},
    {"total-steps", "--steps N"},
    {"iters", "--steps N"},
    {"max-seq-length", "--seq-len N"},
    {"max-seq-len", "--seq-len N"},
    {"max-length", "--seq-len N"},
    {"sequence-len", "--seq-len N"},
    {"sequence-length", "--seq-len N"},
    {"cutoff-len", "--seq-len N"},
    {"block-size", "--seq-len N"},
    {"model-max-length", "--seq-len N"},
    {"output-dir", "--out DIR"},
    {"output", "--out DIR"},
    {"overwrite-output-dir", "--overwrite"},
    {"model-name-or-path", "--model DIR"},
    {"model-name", "--model DIR"},
    {"base-model", "--model DIR"},
    {"model-path", "--model DIR"},
    {"dataset", "--data FILE"},
    {"dataset-path", "--data FILE"},
    {"train-file", "--data FILE"},
    {"train-data", "--data FILE"},
    {"data-path", "--data FILE"},
    {"eval-dataset", "--eval-data FILE"},
    {"validation-file", "--eval-data FILE"},
    {"eval-file", "--eval-data FILE"},
    {"val-data", "--eval-data FILE"},
    {"eval-steps", "--eval-every N"},
    {"eval-interval", "--eval-every N"},
    {"save-steps", "--save-every N"},
    {"save-interval", "--save-every N"},
    {"checkpoint-every", "--save-every N"},
    {"save-total-limit", "--keep N"},
    {"resume-from-checkpoint", "--resume (from the newest checkpoint in --out)"},
    {"resume-from", "--resume (from the newest checkpoint in --out)"},
    {"lr-scheduler-type", "--schedule constant|linear|cosine|wsd"},
    {"lr-scheduler", "--schedule constant|linear|cosine|wsd"},
    {"scheduler", "--schedule constant|linear|cosine|wsd"},
    {"warmup-steps", "--warmup N"},
    {"num-warmup-steps", "--warmup N"},
    {"warmup-ratio", "--warmup N (a number of steps)"},
    {"max-grad-norm", "--clip X"},
    {"grad-clip", "--clip X"},
    {"gradient-clipping", "--clip X"},
    {"clip-grad", "--clip X"},
    {"wd", "--weight-decay X"},
    {"adam-beta1", "--betas A,B"},
    {"adam-beta2", "--betas A,B"},
    {"beta1", "--betas A,B"},
    {"beta2", "--betas A,B"},
    {"adam-epsilon", "--eps X"},
    {"epsilon", "--eps X"},
    {"optim", "--optimizer adamw|adam|lion|adagrad|sgd"},
    {"bf16", "--precision bf16|fp16|fp32"},
    {"fp16", "--precision bf16|fp16|fp32"},
    {"mixed-precision", "--precision bf16|fp16|fp32"},
    {"torch-dtype", "--precision bf16|fp16|fp32"},
    {"dtype", "--precision bf16|fp16|fp32"},
    {"deepspeed", "--config FILE"},
    {"deepspeed-config", "--config FILE"},
    {"ds-config", "--config FILE"},
    {"gradient-checkpointing", "--place acts=recompute (acts=keep switches it off)"},
    {"activation-checkpointing", "--place acts=recompute (acts=keep switches it off)"},
    {"offload-optimizer", "--place states=host (or states=store with --store DIR)"},
    {"offload-optimizer-device", "--place states=host (or states=store with --store DIR)"},
    {"offload-param", "--place weights=host (or weights=store with --store DIR)"},
    {"offload-params", "--place weights=host (or weights=store with --store DIR)"},
    {"offload-param-device", "--place weights=host (or weights=store with --store DIR)"},
    {"nvme-path", "--store DIR"},
    {"offload-dir", "--store DIR"},
    {"offload-folder", "--store DIR"},
    {"zero-stage", "--zero 0|1|2|3"},
    {"stage", "--zero 0|1|2|3"},
    {"device", "--dev cpu|cuda[:N]"},
    {"num-threads", "--threads N"},
    {"nproc-per-node", "--ranks N"},
    {"num-gpus", "--ranks N"},
    {"num-processes", "--ranks N"},
    {"packing", "--pack"},
    {"sample-packing", "--pack"},
    {"train-on-inputs", "--train-on all"},
    {"chat-template", "--chat-format NAME"},
    {"template", "--chat-format NAME"},
    {"prompt-template", "--chat-format NAME"},
    {"logging-dir", "--tensorboard DIR"},
    {"report-to", "--log FILE.jsonl, --csv FILE or --tensorboard DIR"},
    {"logging-steps", "\"steps_per_print\" in a --config FILE sets the lines of progress; --log "
                      "FILE.jsonl has every step"},
    {"freeze-layers", "--freeze PATTERN"},
    {"freeze-parameters", "--freeze PATTERN"},
    {"random-seed", "--seed N"},
    {"data-seed", "--seed N"},
    {"lora", NO_ADAPTERS},
    {"lora-r", NO_ADAPTERS},
    {"lora-rank", NO_ADAPTERS},
    {"lora-alpha", NO_ADAPTERS},
    {"lora-dropout", NO_ADAPTERS},
    {"lora-target", NO_ADAPTERS},
    {"lora-targets", NO_ADAPTERS},
    {"lora-target-modules", NO_ADAPTERS},
    {"lora-rslora", NO_ADAPTERS},
    {"lora-dora", NO_ADAPTERS},
    {"modules-to-save", NO_ADAPTERS},
    {"use-lora", NO_ADAPTERS},
    {"use-peft", NO_ADAPTERS},
    {"adapter", NO_ADAPTERS},
    {"finetuning-type", NO_ADAPTERS},
    {"load-in-4bit", NO_QUANTIZATION},
    {"load-in-8bit", NO_QUANTIZATION},
    {"quantization-bit", NO_QUANTIZATION},
    {"base", NO_QUANTIZATION},
    {"quantization", NO_QUANTIZATION},
    {"local-rank", "a run starts its ranks itself: --ranks N"},
    {NULL, NULL},
};

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
        .data_bytes = TUNE_SIZE_NONE,
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
        SIZE("data-memory", flags->data_bytes),
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
