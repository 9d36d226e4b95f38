/* case.h: trains small random models with the plain trainer and with the engine, and compares
 * the bits of their results. */
#ifndef TESTS_RUN_CASE_H
#define TESTS_RUN_CASE_H

#include "offload/model/files.h"
#include "offload/run/engine.h"

enum { CASE_ROWS = 2, CASE_LENGTH = 16, CASE_STEPS_MAX = 8, CASE_MICRO_MAX = 80 };

enum case_rows {
    CASE_WHOLE,  /* as many and as long as the shape allows */
    CASE_SHORT,  /* one row fewer, and shorter rows */
    CASE_PACKED, /* several documents per row; some tokens are not trained on */
    CASE_FEWER,  /* one micro-batch fewer than a step has */
    CASE_PAIRS,  /* pairs with a common prompt; the second answer is shorter */
};

struct run_prepared;
struct case_model {
    char folder[512];
    enum case_rows rows;
    struct model *model;       /* owned */
    struct model_files *files; /* owned */
};

/* Makes the model `name` of the table in case_model.c. Models with "words" in their names have
 * large tables of tokens, whose rows begin anywhere in a page. Layers have more than 64 Ki
 * elements, those of "wide" more than 512 Ki. */
void case_model_make(struct case_model *made, const char *name);
/* Freezes the parameters whose names match the shell patterns. */
void case_model_freeze(struct case_model *made, const char *const *patterns, size_t count);
/* Freezes parameters and leaves their blocks out of checkpoints. */
void case_model_freeze_base(struct case_model *made, const char *const *patterns, size_t count);
struct model_lora_options;
/* Adds adapters and freezes everything else. */
void case_model_adapt(struct case_model *made, const struct model_lora_options *lora);
void case_model_free(struct case_model *made);

struct case_outcome {
    double loss[CASE_STEPS_MAX];
    double norm[CASE_STEPS_MAX];
    /* of pairs: mean rewards, and the share of pairs that prefer the chosen row */
    double chosen[CASE_STEPS_MAX], rejected[CASE_STEPS_MAX], rights[CASE_STEPS_MAX];
    bool skipped[CASE_STEPS_MAX];
    /* whether the update was speculative; not compared, like the next two members */
    bool guessed[CASE_STEPS_MAX];
    bool right[CASE_STEPS_MAX];
    uint64_t guess_bytes[CASE_STEPS_MAX];
    unsigned steps;
    uint64_t state_hash;  /* of weights, and of masters and moments of trained blocks */
    uint64_t weight_hash; /* of weights alone */
    /* groups of 256 elements whose first moments are all 0; counted only by the engine with fp32
     * moments; not compared */
    uint64_t still_groups;
    bool under_way; /* whether the last save continued after its call; not compared */
    /* bytes that ranks received from others, summed over ranks; not compared, like the next five
     * members */
    uint64_t received_bytes;
    uint64_t summed_bytes; /* the part that reductions received */
    uint64_t gather_bytes; /* as the steps report them */
    uint64_t reduce_bytes;
    uint64_t gather_between_bytes, reduce_between_bytes;
    char message[1024]; /* error of creating or running the engine, or ""; not compared */
};

/* Returns the options of a small bf16 run of AdamW with clipping and automatic placement. */
struct run_options case_options(void);
/* Adds a store of 1 GiB with one path in the test's directory. */
void case_store(struct run_options *options, const char *io);
/* Returns high rates that need no measurement. */
const struct run_rates *case_rates(void);

/* Take `steps` steps with seeded random rows; an error fails the test. */
void case_run_plain(const struct case_model *made, const struct run_options *options,
                    unsigned steps, struct case_outcome *out);
void case_run_engine(const struct case_model *made, const struct run_options *options,
                     unsigned steps, struct case_outcome *out);
/* Returns the first error; `out` has the results of the steps before it. */
int case_try_engine(const struct case_model *made, const struct run_options *options,
                    unsigned steps, struct case_outcome *out);

/* The steps [first, end) of a run, counted from 0. Results of earlier steps stay in *out. */
struct case_part {
    unsigned first, end;
    const char *resume; /* checkpoint's folder; NULL: the model's files */
    const char *trace;  /* file for the timeline; NULL: none */
    const struct run_save_options *save;
    unsigned save_after; /* steps before the first save */
    bool save_on;        /* whether to save after later steps, too */
    bool later;          /* whether saves continue during the next step */
    bool ahead;          /* whether saves are announced before their step */
    /* bit n: step n has a single target per micro-batch, and so a much larger norm */
    uint64_t loud;
    uint64_t evaluated; /* bit n: evaluate a batch after step n */
};
int case_try_part(const struct case_model *made, const struct run_options *options,
                  const struct case_part *part, struct case_outcome *out);
/* Fails the test on an error, with a message that names `what`. */
void case_run_part(const struct case_model *made, const struct run_options *options,
                   const struct case_part *part, struct case_outcome *out, const char *what);
/* Sets the smallest DEVICE budget, within 32 KiB, for which there is a plan. Fails the test unless
 * that plan reads the block by sections, and a plan for 128 MiB reads it whole. Calls `check`,
 * unless NULL, for each tried plan that reads the block by sections. */
void case_squeeze(const struct case_model *made, struct run_options *options, unsigned block,
                  void (*check)(const struct case_model *made,
                                const struct run_prepared *prepared));
/* Returns a new shelf for checkpoints; the caller closes it. */
struct store_shelf *case_shelf_open(void);

void case_check_losses(const struct case_outcome *a, const struct case_outcome *b,
                       const char *what);
/* Compares the members that are not marked as not compared. */
void case_check_equal(const struct case_outcome *a, const struct case_outcome *b, const char *what);

uint64_t case_random(uint64_t *state);
/* Fills `ids` with CASE_ROWS * CASE_LENGTH random tokens, and returns a batch that borrows them. */
struct model_batch case_batch(const struct case_model *made, unsigned step, unsigned micro,
                              int32_t *ids);

#endif
