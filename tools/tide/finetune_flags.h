/* finetune_flags.h: the flags that `tide finetune` and `tide plan` share, as they were typed. What
 * was not given holds CORE_CFG_NONE, NaN, -1, TUNE_SIZE_NONE or NULL. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_FLAGS_H
#define TOOLS_TIDE_FINETUNE_FLAGS_H

#include "tools/tide/cli.h"
#include "tools/tide/paths.h"

#define TUNE_SIZE_NONE UINT64_MAX

enum { TUNE_OPTIONS_MAX = 64 };

/* Steps of a run, whose times are kept, and micro-batches of a step, as many as the engine takes. */
enum { TUNE_STEPS_MAX = 100 * 1000 * 1000, TUNE_ACCUM_MAX = 1 << 14 };

struct tune_flags {
    const char *model, *data, *out, *config;
    int64_t steps;
    double epochs;
    int64_t length, batch, accum, seed;
    bool measure;
    bool shuffle, pack, split;
    int on_bad_row; /* the index in "stop|skip" */
    int train_on;   /* the index in "completion|all" */
    const char *chat_format;

    double lr, eps, decay, clip;
    const char *betas;
    int schedule; /* the index in "constant|linear|cosine|wsd" */
    int64_t warmup;
    int precision; /* enum tide_precision */
    int optimizer; /* enum tide_optimizer */
    int moments;   /* enum tide_moments */
    bool gradients_fp32;
    struct cli_texts frozen;

    const char *device;
    int64_t threads, ranks, zero;
    uint64_t tile_bytes, device_bytes, host_bytes, data_bytes;
    struct cli_texts stores;
    bool make_store;
    const char *place, *io, *rates, *trace;

    bool overwrite;
    const char *eval_data;
    int64_t eval_every;
    const char *log, *csv, *tensorboard;

    int64_t save_every, keep;
    bool resume;
};

/* Every flag as not given. */
void tune_flags_init(struct tune_flags *flags);

/* Fills `out` (room for TUNE_OPTIONS_MAX) with options that write into `flags`; the count. */
size_t tune_flags_options(struct tune_flags *flags, struct cli_option *out);

/* -1 to go on; CLI_WRONG after a message about a flag without which nothing can be done, or about two
 * that contradict each other. */
int tune_flags_check(const struct cli_command *command, const struct tune_flags *flags,
                     bool trains);

/* What these flags are called in transformers, TRL, Axolotl, LLaMA-Factory and DeepSpeed. */
extern const struct cli_synonym tune_flags_synonyms[];

/* Shown instead of a table of options: three of them a line. */
extern const char tune_flags_help[];

/* What these flags read and write, for cli_paths_check. */
enum { TUNE_FLAGS_PATHS = 7 };
void tune_flags_paths(const struct tune_flags *flags, struct cli_path paths[TUNE_FLAGS_PATHS]);

#endif
