/* finetune_flags.h: the flags of `tide finetune` and `tide plan`, one row each, for parsing, --help
 * and warnings. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_FLAGS_H
#define TOOLS_TIDE_FINETUNE_FLAGS_H

#include <stddef.h>
#include <tide/engine.h>

#include "tools/tide/cli.h"
#include "tools/tide/paths.h"

enum { FINETUNE_OPTIONS_MAX = 80 };

/* Limits: steps of a run (their times are kept), and micro-batches of a step (as in the engine). */
enum { FINETUNE_STEPS_MAX = 100 * 1000 * 1000, FINETUNE_ACCUM_MAX = 1 << 14 };

/* Flags that were not given have their default, or 0. */
struct finetune_flags {
    struct cli_given given; /* bit i: row i of the table; from struct cli_parsed */
    const char *model, *data, *out, *config;
    int64_t steps;
    double epochs;
    int64_t length, batch, accum, seed;
    bool measure;
    bool shuffle, pack, split;
    int on_bad_row; /* the index in "stop|skip" */
    int train_on;   /* the index in "completion|all" */
    const char *chat_format;
    int loss; /* enum tide_loss */
    double dpo_beta;

    double lr, eps, decay, clip;
    const char *betas;
    int schedule; /* the index in "constant|linear|cosine|wsd" */
    int64_t warmup;
    int precision; /* enum tide_precision */
    int optimizer; /* enum tide_optimizer */
    int moments;   /* enum tide_moments */
    bool gradients_fp32;
    struct cli_texts freeze;
    int64_t lora;
    double lora_alpha, lora_dropout;
    const char *lora_targets, *modules_to_save, *adapter;
    bool lora_rslora, lora_dora, no_keep_base;
    int base;

    const char *dev;
    int64_t threads, ranks, zero;
    const char *rendezvous; /* of torchrun; NULL: MASTER_ADDR, MASTER_PORT + 1 */
    uint64_t tile_bytes, device_memory, host_memory, data_memory;
    struct cli_texts store;
    int numa;   /* the index in "auto|off" */
    int gather; /* enum tide_gather */
    int reduce; /* enum tide_reduce */
    int64_t gather_within;
    bool make_store;
    const char *place, *io, *rates, *trace;
    /* of `tide plan`: the machine to plan for, with its drives */
    const char *machine;

    bool overwrite;
    const char *eval_data;
    int64_t eval_every;
    const char *log, *csv, *tensorboard;

    int64_t save_every, keep;
    bool resume, checkpoint_local;
};

/* A key of ds_config.json for a flag, and where its value is kept. */
struct finetune_flag_key {
    const char *key;
    size_t at, bytes; /* in struct tide_engine_options */
    bool of_schedule; /* `at` is in struct schedule */
};

struct finetune_flag {
    const char *name;
    enum cli_kind kind;
    size_t at;         /* in struct finetune_flags */
    const char *value; /* name in --help; of a CLI_CHOICE, the choices */
    double low, high;
    const char *standard; /* the default as a value; NULL: none */
    const char *shown;    /* the default in --help if it is not a value */
    const char *help;
    struct finetune_flag_key keys[3];
    bool trains; /* has no effect on a plan */
};

extern const struct finetune_flag finetune_flags_table[];
extern const size_t finetune_flags_count;

/* Returns whether a flag was given; `at` is an offset in struct finetune_flags. */
bool finetune_flags_given(const struct finetune_flags *flags, size_t at);
#define FINETUNE_GIVEN(flags, member)                                                              \
    finetune_flags_given(flags, offsetof(struct finetune_flags, member))

void finetune_flags_init(struct finetune_flags *flags);

/* Fills `out` ([FINETUNE_OPTIONS_MAX]) with options that write into `flags`; returns their number.
 * Set flags->given after cli_parse(). */
size_t finetune_flags_options(struct finetune_flags *flags, struct cli_option *out);
/* Returns one flag as an option. */
struct cli_option finetune_flags_option(struct finetune_flags *flags, const char *name);

/* Returns -1 to continue, or CLI_WRONG after a message: a required flag is missing, or flags
 * contradict each other. `trains`: --data and --out are required. */
int finetune_flags_check(const struct cli_command *command, const struct finetune_flags *flags,
                         bool trains);

/* Names in transformers, TRL, Axolotl, LLaMA-Factory and DeepSpeed. */
extern const struct cli_synonym finetune_flags_synonyms[];

/* Prints `more` options and the table's for --help. */
void finetune_flags_print(const struct cli_option *more, size_t count, bool trains, bool verbose);

/* Paths that flags name, for cli_paths_check(), without --log, --csv, --tensorboard and --store. */
enum { FINETUNE_FLAGS_PATHS = 8 };
void finetune_flags_paths(const struct finetune_flags *flags,
                          struct cli_path paths[FINETUNE_FLAGS_PATHS]);

#endif
