/* finetune_flags.h: the flags that `tide finetune` and `tide plan` share. Each row of the table
 * describes a flag. Parsing, --help and the warning "flag wins over file" use the table. Main
 * thread. */
#ifndef TOOLS_TIDE_FINETUNE_FLAGS_H
#define TOOLS_TIDE_FINETUNE_FLAGS_H

#include <stddef.h>
#include <tide/engine.h>

#include "tools/tide/cli.h"
#include "tools/tide/paths.h"

enum { FINETUNE_OPTIONS_MAX = 80 };

/* The most steps of a run (the time of each is kept), and the most micro-batches of a step (as in
 * the engine). */
enum { FINETUNE_STEPS_MAX = 100 * 1000 * 1000, FINETUNE_ACCUM_MAX = 1 << 14 };

/* The values of the flags. A flag that was not given has its default from the table, or 0. */
struct finetune_flags {
    struct cli_given given; /* one bit for each row of the table; copied from struct cli_parsed */
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
    const char *rendezvous; /* where torchrun's processes meet; NULL: at MASTER_PORT + 1 */
    uint64_t tile_bytes, device_memory, host_memory, data_memory;
    struct cli_texts store;
    int numa;   /* the index in "auto|off" */
    int gather; /* enum tide_gather */
    int reduce; /* enum tide_reduce */
    int64_t gather_within;
    bool make_store;
    const char *place, *io, *rates, *trace;
    /* of `tide plan`: the machine to plan for, whose file also has its drives */
    const char *machine;

    bool overwrite;
    const char *eval_data;
    int64_t eval_every;
    const char *log, *csv, *tensorboard;

    int64_t save_every, keep;
    bool resume, checkpoint_local;
};

/* A key of ds_config.json that sets the same thing as a flag, and where its value is kept. */
struct finetune_flag_key {
    const char *key;
    size_t at, bytes; /* in struct tide_engine_options */
    bool of_schedule; /* `at` is in struct schedule instead */
};

struct finetune_flag {
    const char *name;
    enum cli_kind kind;
    size_t at;         /* in struct finetune_flags */
    const char *value; /* how --help names the value; of a CLI_CHOICE, the choices */
    double low, high;
    const char *standard; /* the default, parsed as a value; NULL: none */
    const char *shown;    /* the default for --help, if it is not a value; both NULL: required */
    const char *help;
    struct finetune_flag_key keys[3];
    bool trains; /* has no effect on a plan */
};

extern const struct finetune_flag finetune_flags_table[];
extern const size_t finetune_flags_count;

/* Returns whether a flag was on the command line; `at` is the offset of its member in struct
 * finetune_flags. */
bool finetune_flags_given(const struct finetune_flags *flags, size_t at);
#define FINETUNE_GIVEN(flags, member)                                                              \
    finetune_flags_given(flags, offsetof(struct finetune_flags, member))

/* Sets every flag to its default. */
void finetune_flags_init(struct finetune_flags *flags);

/* Fills `out` (room for FINETUNE_OPTIONS_MAX) with the table's rows as options that write into
 * `flags`, and returns their count. After cli_parse() the caller sets flags->given. */
size_t finetune_flags_options(struct finetune_flags *flags, struct cli_option *out);
/* Returns the row of one flag as an option, for another command. */
struct cli_option finetune_flags_option(struct finetune_flags *flags, const char *name);

/* Returns -1 if the command can continue, or CLI_WRONG after a message: a required flag is missing,
 * or two flags contradict each other. `trains`: --data and --out are required. */
int finetune_flags_check(const struct cli_command *command, const struct finetune_flags *flags,
                         bool trains);

/* Names of these flags in transformers, TRL, Axolotl, LLaMA-Factory and DeepSpeed. */
extern const struct cli_synonym finetune_flags_synonyms[];

/* Prints `more` options and those of the table for --help. */
void finetune_flags_print(const struct cli_option *more, size_t count, bool trains, bool verbose);

/* The files and folders that these flags read and write, for cli_paths_check(), without --log,
 * --csv, --tensorboard and --store. */
enum { FINETUNE_FLAGS_PATHS = 8 };
void finetune_flags_paths(const struct finetune_flags *flags,
                          struct cli_path paths[FINETUNE_FLAGS_PATHS]);

#endif
