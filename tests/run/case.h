/* case.h: makes small models with random weights and trains them with the plain trainer and with
 * the engine, whose results are compared bit by bit. */
#ifndef TESTS_RUN_CASE_H
#define TESTS_RUN_CASE_H

#include "offload/model/files.h"
#include "offload/run/engine.h"

enum { CASE_ROWS = 2, CASE_LENGTH = 16, CASE_STEPS_MAX = 8, CASE_MICRO_MAX = 80 };

/* What the batches of a step contain. */
enum case_rows {
    CASE_WHOLE,  /* whole rows: as many and as long as the shape allows */
    CASE_SHORT,  /* one row fewer, and shorter rows */
    CASE_PACKED, /* several documents per row, with positions; some tokens are not trained on */
    CASE_FEWER,  /* one micro-batch fewer than a step has */
    CASE_PAIRS,  /* every two rows begin with the same prompt; the second answer is shorter */
};

struct run_prepared;
struct case_model {
    char folder[512];
    enum case_rows rows;
    struct model *model;       /* owned */
    struct model_files *files; /* owned */
};

/* Makes the model of this name: "gpt2", "llama", "llama tied", "qwen3", "qwen3 tied", "deep",
 * "wide", "words", "words tied", "gpt2 words", or "llama, whole" or "llama tied, whole", whose
 * sizes are the same in every build. Models with "words" in their names have large tables of
 * tokens, whose rows begin anywhere in a page. Layers have more elements than a chunk of 64 Ki;
 * those of "wide" have more than 512 Ki. */
void case_model_make(struct case_model *made, const char *name);
/* Freezes the parameters whose names match these shell patterns. */
void case_model_freeze(struct case_model *made, const char *const *patterns, size_t count);
/* Like case_model_freeze(), but checkpoints leave out the frozen blocks. */
void case_model_freeze_base(struct case_model *made, const char *const *patterns, size_t count);
struct model_lora_options;
/* Adds adapters and freezes everything else. */
void case_model_adapt(struct case_model *made, const struct model_lora_options *lora);
void case_model_free(struct case_model *made);

struct case_outcome {
    double loss[CASE_STEPS_MAX];
    double norm[CASE_STEPS_MAX];
    /* of pairs: mean rewards, and the share of pairs whose chosen row has the larger one */
    double chosen[CASE_STEPS_MAX], rejected[CASE_STEPS_MAX], rights[CASE_STEPS_MAX];
    bool skipped[CASE_STEPS_MAX];
    /* whether the update was speculative; this member and the next two are not compared */
    bool guessed[CASE_STEPS_MAX];
    bool right[CASE_STEPS_MAX];
    uint64_t guess_bytes[CASE_STEPS_MAX];
    unsigned steps;
    uint64_t state_hash;  /* hash of weights, and of masters and moments of trained blocks */
    uint64_t weight_hash; /* hash of the weights alone */
    /* groups of 256 elements whose first moments are all 0; counted only in runs of the engine with
     * fp32 moments; not compared */
    uint64_t still_groups;
    bool under_way; /* whether the last save continued after its call; not compared */
    /* bytes that ranks received from others, counted by core/coll and summed over all ranks; this
     * member and the next five are not compared */
    uint64_t received_bytes;
    uint64_t summed_bytes; /* the part of received_bytes that reductions received */
    uint64_t gather_bytes; /* bytes as the steps report them */
    uint64_t reduce_bytes;
    uint64_t gather_between_bytes, reduce_between_bytes;
    char message[1024]; /* message of the error that ended the run, or ""; not compared */
};

/* Returns the options of a small bf16 run of AdamW with clipping; the planner chooses all
 * places. */
struct run_options case_options(void);
/* Adds a store of 1 GiB with one path in the test's directory, on the I/O back end `io`. */
void case_store(struct run_options *options, const char *io);
/* Returns high rates, for plans without a measurement. */
const struct run_rates *case_rates(void);

/* Take `steps` steps with seeded random rows; an error fails the test. */
void case_run_plain(const struct case_model *made, const struct run_options *options,
                    unsigned steps, struct case_outcome *out);
void case_run_engine(const struct case_model *made, const struct run_options *options,
                     unsigned steps, struct case_outcome *out);
/* Like case_run_engine(), but returns the first error. `out` has the results of the steps before
 * it. */
int case_try_engine(const struct case_model *made, const struct run_options *options,
                    unsigned steps, struct case_outcome *out);

/* A part of a run: the steps [first, end), counted from 0, which may save checkpoints. The run
 * writes the results of these steps to *out and keeps those of earlier steps there. */
struct case_part {
    unsigned first, end;
    const char *resume;                  /* a checkpoint's folder; NULL: the model's files */
    const char *trace;                   /* a file for its timeline; NULL: none */
    const struct run_save_options *save; /* NULL: none */
    unsigned save_after;                 /* number of steps before the first save */
    bool save_on;                        /* whether to save after every later step, too */
    bool later;                          /* whether saves continue during the next step */
    bool ahead;                          /* whether saves are announced before their step */
    /* bit n: step n has a single target per micro-batch, and so a norm many times that of the
     * others */
    uint64_t loud;
    uint64_t evaluated; /* bit n: a batch is evaluated after step n */
};
int case_try_part(const struct case_model *made, const struct run_options *options,
                  const struct case_part *part, struct case_outcome *out);
/* Like case_try_part(), but an error fails the test with a message that names `what`. */
void case_run_part(const struct case_model *made, const struct run_options *options,
                   const struct case_part *part, struct case_outcome *out, const char *what);
/* Sets the DEVICE budget to about the smallest one that has a plan. Fails the test unless the
 * block's weights come by sections with this budget and whole with 128 MiB. `check`, unless NULL,
 * is called with every plan tried that has sections of the block. */
void case_squeeze(const struct case_model *made, struct run_options *options, unsigned block,
                  void (*check)(const struct case_model *made,
                                const struct run_prepared *prepared));
/* Returns a new shelf for a run's checkpoints; the caller closes it. */
struct store_shelf *case_shelf_open(void);

/* Compares the losses and norms of all steps. */
void case_check_losses(const struct case_outcome *a, const struct case_outcome *b,
                       const char *what);
/* Compares everything except the members marked as not compared. */
void case_check_equal(const struct case_outcome *a, const struct case_outcome *b, const char *what);

/* Returns the next number of a seeded sequence. */
uint64_t case_random(uint64_t *state);
/* Fills `ids` with the CASE_ROWS * CASE_LENGTH random tokens of micro-batch `micro` of step `step`,
 * and returns a batch that borrows them. */
struct model_batch case_batch(const struct case_model *made, unsigned step, unsigned micro,
                              int32_t *ids);

#endif
