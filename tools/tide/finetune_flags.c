/* finetune_flags.c: the flags of training and planning, one row each. */
#include "tools/tide/finetune_flags.h"

#include <assert.h>
#include <string.h>

#include "core/config/config.h"
#include "tools/tide/schedule.h"

static const double most = 1e15;

#define AT(member) offsetof(struct finetune_flags, member)
#define ENGINE(key_, member)                                                                       \
    {                                                                                              \
        key_, offsetof(struct tide_engine_options, member),                                        \
            sizeof((struct tide_engine_options *)0)->member, false                                 \
    }
#define SCHEDULE(key_, member)                                                                     \
    {                                                                                              \
        key_, offsetof(struct schedule, member), sizeof((struct schedule *)0)->member, true        \
    }
/* beta1 and beta2, which are adjacent members. */
#define BETAS(key_)                                                                                \
    {                                                                                              \
        key_, offsetof(struct tide_engine_options, beta1), 2 * sizeof(double), false               \
    }
_Static_assert(offsetof(struct tide_engine_options, beta2) ==
                   offsetof(struct tide_engine_options, beta1) + sizeof(double),
               "both betas at once");

#define NO_KEY                                                                                     \
    {                                                                                              \
        {                                                                                          \
            NULL, 0, 0, false                                                                      \
        }                                                                                          \
    }

/* clang-format off */
const struct finetune_flag finetune_flags_table[] = {
    {"model", CLI_TEXT, AT(model), "DIR", 0, 0, NULL, NULL, "Hugging Face folder of the model", NO_KEY, false},
    {"data", CLI_FILES, AT(data), "FILE", 0, 0, NULL, NULL, "rows to train on: JSON lines, .gz, .zst, a pattern, or - for standard input", NO_KEY, false},
    {"out", CLI_TEXT, AT(out), "DIR", 0, 0, NULL, NULL, "folder for the trained model and the checkpoints", NO_KEY, true},
    {"config", CLI_TEXT, AT(config), "FILE", 0, 0, NULL, "none", "a ds_config.json; flags win over it", NO_KEY, false},
    {"seq-len", CLI_INTEGER, AT(length), "N", 2, 1 << 24, NULL, "longest row", "tokens per row; longer rows are cut; without --data: 1024 or the model's limit", NO_KEY, false},
    {"steps", CLI_INTEGER, AT(steps), "N", 1, FINETUNE_STEPS_MAX, NULL, "epochs", "optimizer steps of the run", NO_KEY, false},
    {"epochs", CLI_REAL, AT(epochs), "X", 1e-9, 1e9, "1", NULL, "passes over the data, instead of --steps", NO_KEY, false},
    {"batch", CLI_INTEGER, AT(batch), "ROWS", 1, 1 << 20, "8", NULL, "rows per micro-batch", {ENGINE("train_micro_batch_size_per_gpu", batch)}, false},
    {"accum", CLI_INTEGER, AT(accum), "N", 1, FINETUNE_ACCUM_MAX, "1", NULL, "micro-batches per step (gradient accumulation)", {ENGINE("gradient_accumulation_steps", accum)}, false},
    {"seed", CLI_INTEGER, AT(seed), "N", 0, most, "42", NULL, "seed of all random numbers", NO_KEY, false},
    {"shuffle", CLI_FLAG, AT(shuffle), NULL, 0, 0, NULL, "no", "shuffle the rows by --seed; else file order", NO_KEY, false},
    {"pack", CLI_FLAG, AT(pack), NULL, 0, 0, NULL, "no", "pack examples into --seq-len tokens", NO_KEY, false},
    {"split", CLI_FLAG, AT(split), NULL, 0, 0, NULL, "no", "continue long rows in further rows instead of cutting them", NO_KEY, false},
    {"on-bad-row", CLI_CHOICE, AT(on_bad_row), "stop|skip", 0, 0, "stop", NULL, "what to do with a row that cannot be used", NO_KEY, false},
    {"train-on", CLI_CHOICE, AT(train_on), "completion|all", 0, 0, "completion", NULL, "which tokens are trained on", NO_KEY, false},
    {"loss", CLI_CHOICE, AT(loss), "tokens|dpo", 0, 0, "tokens", NULL, "dpo: rows are pairs of answers, chosen and rejected", NO_KEY, false},
    {"beta", CLI_REAL, AT(dpo_beta), "X", 1e-9, 1e6, "0.1", NULL, "with --loss dpo: factor by which differences of log probabilities are multiplied", NO_KEY, false},
    {"chat-format", CLI_TEXT, AT(chat_format), "NAME", 0, 0, NULL, "model's", "chat template: chatml, llama3, llama2, mistral, alpaca, vicuna", NO_KEY, false},
    {"lr", CLI_REAL, AT(lr), "X", 0, 1e9, "5e-5", NULL, "peak learning rate", {SCHEDULE("optimizer.params.lr", lr), SCHEDULE("scheduler.params.warmup_max_lr", lr)}, false},
    {"schedule", CLI_CHOICE, AT(schedule), "constant|linear|cosine|wsd", 0, 0, "constant", NULL, "schedule of the learning rate", {SCHEDULE("scheduler.type", kind)}, false},
    {"warmup", CLI_INTEGER, AT(warmup), "N", 0, most, "0", NULL, "steps in which the learning rate rises from 0", {SCHEDULE("scheduler.params.warmup_num_steps", warmup)}, false},
    {"optimizer", CLI_CHOICE, AT(optimizer), "adamw|adam|lion|adagrad|sgd", 0, 0, "adamw", NULL, "update rule", {ENGINE("optimizer.type", optimizer)}, false},
    {"betas", CLI_TEXT, AT(betas), "A,B", 0, 0, "0.9,0.999", NULL, "decay of the moments; the first is SGD's momentum; lion: 0.9,0.99", {BETAS("optimizer.params.betas"), ENGINE("optimizer.params.momentum", beta1)}, false},
    {"eps", CLI_REAL, AT(eps), "X", 0, 1e9, "1e-8", NULL, "added to the denominator of the update; adagrad: 1e-10", {ENGINE("optimizer.params.eps", eps)}, false},
    {"weight-decay", CLI_REAL, AT(decay), "X", 0, 1e9, "0", NULL, "weight decay of all but norms and biases", {ENGINE("optimizer.params.weight_decay", decay)}, false},
    {"clip", CLI_REAL, AT(clip), "X", 0, most, "1", "1; 0: off", "largest norm of the gradient", {ENGINE("gradient_clipping", clip)}, false},
    {"fp32-grads", CLI_FLAG, AT(gradients_fp32), NULL, 0, 0, NULL, "no", "sum and keep gradients in fp32", {ENGINE("data_types.grad_accum_dtype", gradients_fp32)}, false},
    {"precision", CLI_CHOICE, AT(precision), "bf16|fp16|fp32", 0, 0, "bf16", NULL, "working precision; master weights are exact", {ENGINE("bf16.enabled", precision), ENGINE("fp16.enabled", precision)}, false},
    {"moments", CLI_CHOICE, AT(moments), "fp32|bf16|8bit", 0, 0, "fp32", NULL, "precision of the optimizer's moments", {ENGINE("bf16.bf16_optimizer_states", moments), ENGINE("optimizer.params.fp32_optimizer_states", moments)}, false},
    {"freeze", CLI_TEXTS, AT(freeze), "PATTERN", 0, 0, NULL, "none", "tensors that are not trained; repeatable", NO_KEY, false},
    {"lora", CLI_INTEGER, AT(lora), "R", 1, 1 << 16, NULL, "none", "train adapters of rank R (LoRA); the model is frozen", NO_KEY, false},
    {"lora-alpha", CLI_REAL, AT(lora_alpha), "X", 1e-9, 1e9, NULL, "twice R", "adapters are scaled by X / R", NO_KEY, false},
    {"lora-dropout", CLI_REAL, AT(lora_dropout), "X", 0, 0.999, "0", NULL, "probability with which an input of an adapter is dropped", NO_KEY, false},
    {"lora-dora", CLI_FLAG, AT(lora_dora), NULL, 0, 0, NULL, "no", "train the norms of adapted rows, too (DoRA)", NO_KEY, false},
    {"lora-rslora", CLI_FLAG, AT(lora_rslora), NULL, 0, 0, NULL, "no", "scale adapters by X / sqrt(R) instead", NO_KEY, false},
    {"lora-targets", CLI_TEXT, AT(lora_targets), "NAMES|all-linear", 0, 0, "all-linear", NULL, "linear layers that get adapters, separated by commas: q_proj,v_proj", NO_KEY, false},
    {"modules-to-save", CLI_TEXT, AT(modules_to_save), "NAMES", 0, 0, NULL, "none", "modules that are trained whole beside adapters", NO_KEY, false},
    {"adapter", CLI_TEXT, AT(adapter), "DIR", 0, 0, NULL, "none", "continue with the adapters of a PEFT folder; it sets rank, alpha and targets", NO_KEY, false},
    {"base", CLI_CHOICE, AT(base), "bf16|int8|nf4", 0, 0, NULL, "--precision", "keep frozen layers in fewer bits", NO_KEY, false},
    {"no-keep-base", CLI_FLAG, AT(no_keep_base), NULL, 0, 0, NULL, "no", "neither write nor read a kept int8 or nf4 base in --store", NO_KEY, true},
    {"dev", CLI_TEXT, AT(dev), "cpu|cuda[:N,..]", 0, 0, NULL, "cpu", "device that computes; with several ranks, a card for each", NO_KEY, false},
    {"threads", CLI_INTEGER, AT(threads), "N", 1, 1024, NULL, "all", "threads that compute and update, shared by the ranks of a machine", NO_KEY, false},
    {"numa", CLI_CHOICE, AT(numa), "auto|off", 0, 0, "auto", NULL, "place threads and memory on NUMA nodes", NO_KEY, false},
    {"ranks", CLI_INTEGER, AT(ranks), "N", 1, 64, "1", NULL, "data-parallel ranks: threads of this process, or processes of mpirun, srun or torchrun", NO_KEY, false},
    {"rendezvous", CLI_TEXT, AT(rendezvous), "HOST:PORT", 0, 0, NULL, "MASTER_ADDR, MASTER_PORT + 1", "where torchrun's processes meet", NO_KEY, true},
    {"zero", CLI_INTEGER, AT(zero), "0|1|2|3", 0, 3, "0", NULL, "ranks hold shards of: states (1), gradients (2), weights (3)", {ENGINE("zero_optimization.stage", zero_stage)}, false},
    {"gather", CLI_CHOICE, AT(gather), "exact|int8", 0, 0, "exact", NULL, "with --zero 3: how ranks send each other weights; int8 halves the bytes and rounds", {ENGINE("zero_optimization.zero_quantized_weights", gather)}, false},
    {"gather-within", CLI_INTEGER, AT(gather_within), "N", 1, 64, NULL, "all ranks", "with --zero 3: groups of N ranks keep a copy of the weights, from which backward gathers", {ENGINE("zero_optimization.zero_hpz_partition_size", gather_within)}, false},
    {"reduce", CLI_CHOICE, AT(reduce), "exact|int4|fast", 0, 0, "exact", NULL, "how ranks send each other gradients; int4 (--zero 1 to 3) sends a quarter of the bytes and rounds, fast adds inside nodes first, on GPUs with NCCL", {ENGINE("zero_optimization.zero_quantized_gradients", reduce)}, false},
    {"place", CLI_TEXT, AT(place), "weights=device|host|store,states=...,grads=...,acts=keep|...", 0, 0, NULL, "auto", "request a tier for each kind of data", {ENGINE("zero_optimization.offload_param.device", weights), ENGINE("zero_optimization.offload_optimizer.device", states), ENGINE("activation_checkpointing.cpu_checkpointing", acts)}, false},
    {"device-memory", CLI_SIZE, AT(device_memory), "SIZE", 0, 0, NULL, "free", "limit of GPU memory (on the CPU device: of the host memory in which it computes)", NO_KEY, false},
    {"host-memory", CLI_SIZE, AT(host_memory), "SIZE", 0, 0, NULL, "free", "limit of host memory", NO_KEY, false},
    {"data-memory", CLI_SIZE, AT(data_memory), "SIZE", 0, 0, NULL, "half of free", "memory limit of one row while it is tokenized; at most 1GiB by default", NO_KEY, false},
    {"store", CLI_TEXTS, AT(store), "DIR[:SIZE]", 0, 0, NULL, "none", "folder on a drive, and its limit; repeatable", {ENGINE("zero_optimization.offload_param.nvme_path", store_count), ENGINE("zero_optimization.offload_optimizer.nvme_path", store_count)}, false},
    {"tile-bytes", CLI_SIZE, AT(tile_bytes), "SIZE", 0, 0, NULL, "no limit", "larger weights are multiplied in tiles; changes rounding", NO_KEY, false},
    {"io", CLI_TEXT, AT(io), "uring|libaio|threads|mem", 0, 0, NULL, "probed", "how drives are accessed", NO_KEY, false},
    {"make-store", CLI_FLAG, AT(make_store), NULL, 0, 0, NULL, "no", "create missing store folders, and remove them at the end", NO_KEY, false},
    {"rates", CLI_TEXT, AT(rates), "FILE", 0, 0, NULL, "cached", "read the rates of a machine from a file", NO_KEY, false},
    {"measure", CLI_FLAG, AT(measure), NULL, 0, 0, NULL, "no", "measure the rates again", NO_KEY, false},
    {"trace", CLI_TEXT, AT(trace), "FILE", 0, 0, NULL, "none", "write a timeline of some steps, for Perfetto", NO_KEY, false},
    {"eval-data", CLI_FILES, AT(eval_data), "FILE", 0, 0, NULL, "none", "rows to evaluate on", NO_KEY, true},
    {"eval-every", CLI_INTEGER, AT(eval_every), "N", 1, most, NULL, "at the end", "steps between evaluations", NO_KEY, true},
    {"save-every", CLI_INTEGER, AT(save_every), "N", 1, most, NULL, "never", "steps between checkpoints", NO_KEY, true},
    {"keep", CLI_INTEGER, AT(keep), "N", 1, most, "2", NULL, "number of newest checkpoints to keep", NO_KEY, true},
    {"resume", CLI_FLAG, AT(resume), NULL, 0, 0, NULL, "no", "continue from the newest checkpoint in --out", NO_KEY, true},
    {"checkpoint-local", CLI_FLAG, AT(checkpoint_local), NULL, 0, 0, NULL, "no", "each machine keeps its part of a checkpoint on a drive of its own", NO_KEY, true},
    {"overwrite", CLI_FLAG, AT(overwrite), NULL, 0, 0, NULL, "no", "replace the model in --out; with --resume: also one of another run", NO_KEY, true},
    {"log", CLI_TEXT, AT(log), "FILE.jsonl", 0, 0, NULL, "none", "one JSON object per step", NO_KEY, true},
    {"csv", CLI_TEXT, AT(csv), "FILE", 0, 0, NULL, "none", "one line per step", NO_KEY, true},
    {"tensorboard", CLI_TEXT, AT(tensorboard), "DIR", 0, 0, NULL, "none", "event files for TensorBoard", NO_KEY, true},
};
/* clang-format on */
enum { ROWS = sizeof finetune_flags_table / sizeof finetune_flags_table[0] };
_Static_assert(ROWS <= FINETUNE_OPTIONS_MAX - 8, "callers add options of their own");
const size_t finetune_flags_count = ROWS;

#define QUANTIZATION "--base int8|nf4, for frozen layers: --lora R, or --freeze PATTERN"
#define SPLIT        "tide does not split the data: --eval-data FILE"
#define ANSWERS      "only answers are trained on, unless --train-on all is given"

const struct cli_synonym finetune_flags_synonyms[] = {
    {"learning-rate", "--lr X"},
    {"max-lr", "--lr X"},
    {"lr-rate", "--lr X"},
    {"batch-size", "--batch ROWS (rows per micro-batch)"},
    {"micro-batch-size", "--batch ROWS (rows per micro-batch)"},
    {"per-device-train-batch-size", "--batch ROWS (rows per micro-batch)"},
    {"per-gpu-train-batch-size", "--batch ROWS (rows per micro-batch)"},
    {"train-micro-batch-size-per-gpu", "--batch ROWS (rows per micro-batch)"},
    {"train-batch-size", "--batch ROWS (per micro-batch) and --accum N (micro-batches per step)"},
    {"global-batch-size", "--batch ROWS (per micro-batch) and --accum N (micro-batches per step)"},
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
    {"datasets", "--data FILE"},
    {"dataset-path", "--data FILE"},
    {"train-file", "--data FILE"},
    {"train-data", "--data FILE"},
    {"data-path", "--data FILE"},
    {"eval-dataset", "--eval-data FILE"},
    {"validation-file", "--eval-data FILE"},
    {"eval-file", "--eval-data FILE"},
    {"val-data", "--eval-data FILE"},
    {"eval-steps", "--eval-every N"},
    {"eval-strategy", "--eval-every N"},
    {"eval-interval", "--eval-every N"},
    {"evals-per-epoch", "--eval-every N (a number of steps)"},
    {"val-size", SPLIT},
    {"val-set-size", SPLIT},
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
    {"stage", "--zero 0|1|2|3 (for preferences: --loss dpo)"},
    {"rl", "--loss dpo"},
    {"device", "--dev cpu|cuda[:N]"},
    {"num-threads", "--threads N"},
    {"nproc-per-node", "--ranks N"},
    {"num-gpus", "--ranks N"},
    {"num-processes", "--ranks N"},
    {"packing", "--pack"},
    {"sample-packing", "--pack"},
    {"neat-packing", "--pack"},
    {"train-on-inputs", "--train-on all"},
    {"train-on-prompt", "--train-on all"},
    {"assistant-only-loss", ANSWERS},
    {"completion-only-loss", ANSWERS},
    {"chat-template", "--chat-format NAME"},
    {"template", "--chat-format NAME"},
    {"prompt-template", "--chat-format NAME"},
    {"logging-dir", "--tensorboard DIR"},
    {"use-tensorboard", "--tensorboard DIR"},
    {"report-to", "--log FILE.jsonl, --csv FILE or --tensorboard DIR"},
    {"logging-steps", "\"steps_per_print\" in a --config FILE sets how often progress is printed; "
                      "--log FILE.jsonl has every step"},
    {"plot-loss", "--log FILE.jsonl, then tide report FILE.jsonl"},
    {"wandb-project",
     "no figure leaves this machine: --log FILE.jsonl, --csv FILE or --tensorboard DIR"},
    {"freeze-layers", "--freeze PATTERN"},
    {"freeze-parameters", "--freeze PATTERN"},
    {"unfrozen-parameters", "--freeze PATTERN for all others"},
    {"random-seed", "--seed N"},
    {"data-seed", "--seed N"},
    {"lora-r", "--lora R"},
    {"lora-rank", "--lora R"},
    {"lora-target", "--lora-targets NAMES"},
    {"lora-target-modules", "--lora-targets NAMES"},
    {"lora-modules-to-save", "--modules-to-save NAMES"},
    {"use-rslora", "--lora-rslora"},
    {"use-dora", "--lora-dora"},
    {"use-lora", "--lora R"},
    {"use-peft", "--lora R"},
    {"adapter-name-or-path", "--adapter DIR"},
    {"adapter-path", "--adapter DIR"},
    {"lora-model-dir", "--adapter DIR"},
    {"finetuning-type", "--lora R for adapters, or nothing to train all weights"},
    {"load-in-4bit", QUANTIZATION},
    {"load-in-8bit", QUANTIZATION},
    {"quantization-bit", QUANTIZATION},
    {"quantization", QUANTIZATION},
    {"local-rank", "ranks come from mpirun, srun or torchrun; --ranks N starts ranks as threads"},
    {NULL, NULL},
};

static struct cli_option option_of(const struct finetune_flag *row, struct finetune_flags *flags)
{
    return (struct cli_option){
        .name = row->name,
        .kind = row->kind,
        .out = (char *)flags + row->at,
        .value = row->value,
        .help = row->help,
        .low = row->low,
        .high = row->high,
        .choices = row->kind == CLI_CHOICE ? row->value : NULL,
        .shown = row->shown != NULL ? row->shown : row->standard,
    };
}

void finetune_flags_init(struct finetune_flags *flags)
{
    *flags = (struct finetune_flags){.model = NULL};
    for (size_t i = 0; i < ROWS; i++) {
        const struct cli_option option = option_of(&finetune_flags_table[i], flags);
        const char *standard = finetune_flags_table[i].standard;
        const int rc = standard != NULL ? cli_take(&option, standard) : 0;
        assert(rc == 0);
        (void)rc;
    }
}

size_t finetune_flags_options(struct finetune_flags *flags, struct cli_option *out)
{
    for (size_t i = 0; i < ROWS; i++) {
        out[i] = option_of(&finetune_flags_table[i], flags);
    }
    return ROWS;
}

struct cli_option finetune_flags_option(struct finetune_flags *flags, const char *name)
{
    size_t i = 0;
    while (strcmp(finetune_flags_table[i].name, name) != 0) {
        i++;
        assert(i < ROWS);
    }
    return option_of(&finetune_flags_table[i], flags);
}

bool finetune_flags_given(const struct finetune_flags *flags, size_t at)
{
    size_t i = 0;
    while (finetune_flags_table[i].at != at) {
        i++;
        assert(i < ROWS);
    }
    return cli_is_given(&flags->given, i);
}

enum { ITEM_BYTES = 160, ITEMS_MAX = FINETUNE_OPTIONS_MAX };

/* Writes "--name VALUE [default]". */
static void write_item(const struct cli_option *option, const char *shown, char out[ITEM_BYTES])
{
    snprintf(out, ITEM_BYTES, "--%s%s%s [%s]", option->name, option->value != NULL ? " " : "",
             option->value != NULL ? option->value : "", shown);
}

/* Returns whether the short help leaves the flag out: it is a detail of --lora, --loss or --freeze,
 * or for few machines. */
static bool is_detail(const struct finetune_flag *row)
{
    return strncmp(row->name, "lora-", 5) == 0 || row->at == AT(modules_to_save) ||
           row->at == AT(dpo_beta) || row->at == AT(adapter) || row->at == AT(base) ||
           row->at == AT(no_keep_base) || row->at == AT(checkpoint_local) ||
           row->at == AT(gather) || row->at == AT(gather_within) || row->at == AT(reduce) ||
           row->at == AT(rendezvous) || strcmp(row->name, "numa") == 0;
}

/* Some of the next few items may be moved up to fill a line. */
static void print_items(char (*items)[ITEM_BYTES], size_t count)
{
    enum { WIDTH = 84, NEXT = 5 };
    for (size_t i = 0; i < count; i++) {
        size_t column = strlen(items[i]);
        if (column > 0) {
            printf("  %s", items[i]);
            for (size_t k = i + 1; k < count && k <= i + NEXT; k++) {
                if (items[k][0] != '\0' && column + 3 + strlen(items[k]) <= WIDTH) {
                    column += (size_t)printf("   %s", items[k]);
                    items[k][0] = '\0';
                }
            }
            printf("\n");
        }
    }
}

void finetune_flags_print(const struct cli_option *more, size_t count, bool trains, bool verbose)
{
    static const char *const others[] = {"-q quiet", "-v verbose", "-h [-v] help"};
    char items[ITEMS_MAX][ITEM_BYTES];
    size_t used = 0;
    for (size_t i = 0; i < count + ROWS; i++) {
        const struct finetune_flag *row = i < count ? NULL : &finetune_flags_table[i - count];
        const struct cli_option option = row == NULL ? more[i] : option_of(row, NULL);
        const char *shown = row != NULL || option.shown != NULL ? option.shown
                            : option.kind == CLI_FLAG           ? "no"
                                                                : "none";
        if (shown == NULL || (row != NULL && row->trains && !trains) ||
            (row != NULL && !verbose && is_detail(row))) {
            continue;
        }
        write_item(&option, shown, items[used]);
        if (verbose) {
            printf("  %s\n      %s\n", items[used], option.help);
        } else {
            used++;
        }
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(items[used++], ITEM_BYTES, "%s", others[i]);
    }
    print_items(items, used);
}

/* Returns -1 to continue, or CLI_WRONG after a message. */
static int check_loss(const struct cli_command *command, const struct finetune_flags *flags)
{
    if (flags->loss != TIDE_LOSS_DPO) {
        return FINETUNE_GIVEN(flags, dpo_beta)
                   ? cli_fail(command, CLI_WRONG, "--beta needs --loss dpo")
                   : -1;
    }
    const char *other = flags->pack            ? "--pack: a pair is two rows"
                        : flags->split         ? "--split: it compares whole answers"
                        : flags->train_on == 1 ? "--train-on all: it compares answers, not prompts"
                        : flags->modules_to_save != NULL
                            ? "--modules-to-save: its reference is the model without "
                              "what is trained"
                            : NULL;
    if (other != NULL) {
        return cli_fail(command, CLI_WRONG, "--loss dpo cannot be used with %s", other);
    }
    return FINETUNE_GIVEN(flags, lora) || flags->adapter != NULL
               ? -1
               : cli_fail(command, CLI_WRONG,
                          "--loss dpo needs --lora R or --adapter DIR: its reference is the model "
                          "without adapters");
}

int finetune_flags_check(const struct cli_command *command, const struct finetune_flags *flags,
                         bool trains)
{
    const char *missing = flags->model == NULL            ? "--model DIR"
                          : trains && flags->data == NULL ? "--data FILE"
                          : trains && flags->out == NULL  ? "--out DIR"
                                                          : NULL;
    if (missing != NULL) {
        return cli_fail(command, CLI_WRONG, "%s is missing; see tide %s --help", missing,
                        command->name);
    }
    if (FINETUNE_GIVEN(flags, steps) && FINETUNE_GIVEN(flags, epochs)) {
        return cli_fail(command, CLI_WRONG,
                        "--steps and --epochs exclude each other; give one of them");
    }
    if ((flags->pack || flags->split) && !FINETUNE_GIVEN(flags, length)) {
        return cli_fail(command, CLI_WRONG, "--%s needs --seq-len N, the length of its rows",
                        flags->pack ? "pack" : "split");
    }
    const bool adapters = FINETUNE_GIVEN(flags, lora) || flags->adapter != NULL;
    if (!adapters) {
        const char *needs = FINETUNE_GIVEN(flags, lora_alpha)        ? "lora-alpha"
                            : FINETUNE_GIVEN(flags, lora_dropout)    ? "lora-dropout"
                            : FINETUNE_GIVEN(flags, lora_dora)       ? "lora-dora"
                            : FINETUNE_GIVEN(flags, lora_rslora)     ? "lora-rslora"
                            : FINETUNE_GIVEN(flags, lora_targets)    ? "lora-targets"
                            : FINETUNE_GIVEN(flags, modules_to_save) ? "modules-to-save"
                                                                     : NULL;
        if (needs != NULL) {
            return cli_fail(command, CLI_WRONG, "--%s needs --lora R, the rank of adapters", needs);
        }
    } else if (flags->freeze.count > 0) {
        return cli_fail(command, CLI_WRONG,
                        "--%s and --freeze exclude each other: with adapters the whole model is "
                        "frozen, except --modules-to-save NAMES",
                        flags->adapter != NULL ? "adapter" : "lora");
    }
    if (FINETUNE_GIVEN(flags, eval_every) && flags->eval_data == NULL) {
        return cli_fail(command, CLI_WRONG, "--eval-every needs --eval-data FILE");
    }
    return check_loss(command, flags);
}

void finetune_flags_paths(const struct finetune_flags *flags,
                          struct cli_path paths[FINETUNE_FLAGS_PATHS])
{
    const struct cli_path all[FINETUNE_FLAGS_PATHS] = {
        {CLI_PATH_WRITTEN, "--trace", flags->trace},
        {CLI_PATH_MADE, "--out", flags->out},
        {CLI_PATH_KEPT, "--model", flags->model},
        {CLI_PATH_KEPT, "--adapter", flags->adapter},
        {CLI_PATH_READ, "--data", flags->data},
        {CLI_PATH_READ, "--eval-data", flags->eval_data},
        {CLI_PATH_READ, "--config", flags->config},
        {CLI_PATH_READ, "--rates", flags->rates},
    };
    memcpy(paths, all, sizeof all);
}
