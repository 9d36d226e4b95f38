/* case.h: small models with random weights, made where a test runs, and a training run over each:
 * the plain step's and the engine's, with everything that bits are compared by. */
#ifndef TESTS_RUN_CASE_H
#define TESTS_RUN_CASE_H

#include "offload/model/files.h"
#include "offload/run/engine.h"

enum { CASE_ROWS = 2, CASE_LENGTH = 16, CASE_STEPS_MAX = 8, CASE_MICRO_MAX = 80 };

/* What rows the steps over a model get. */
enum case_rows {
    CASE_WHOLE,  /* as many and as long as the shape's */
    CASE_SHORT,  /* one row less, and shorter */
    CASE_PACKED, /* several documents a row, with positions; some tokens are not learnt */
    CASE_FEWER,  /* one micro-batch less than a step's */
};

struct case_model {
    char folder[512];
    enum case_rows rows;
    struct model *model;       /* owned */
    struct model_files *files; /* owned */
};

/* "gpt2", "llama", "llama tied", "qwen3", "qwen3 tied", "deep", "wide". Blocks of more than one chunk
 * of 64 Ki; of the last one of 512 Ki. */
void case_model_make(struct case_model *made, const char *name);
/* The same with what these shell patterns name frozen. */
void case_model_freeze(struct case_model *made, const char *const *patterns, size_t count);
void case_model_free(struct case_model *made);

/* What a run ends with. */
struct case_outcome {
    double loss[CASE_STEPS_MAX];
    double norm[CASE_STEPS_MAX];
    bool skipped[CASE_STEPS_MAX];
    bool guessed
        [CASE_STEPS_MAX]; /* updates ahead of the norm; with the two behind it not compared */
    bool right[CASE_STEPS_MAX];
    uint64_t guess_bytes[CASE_STEPS_MAX];
    unsigned steps;
    uint64_t state_hash;     /* of weights, master and moments of all blocks */
    uint64_t weight_hash;    /* of weights alone */
    bool under_way;          /* a save went on when it had been asked for; not compared */
    uint64_t received_bytes; /* from other ranks, by all of them */
    char sentence[1024];     /* of the error that ended it; "" where there was none */
};

/* Options of a small bf16 run of AdamW with clipping, everything where the planner wants it. */
struct run_options case_options(void);
/* Ample rates and budgets, for plans that are not measured. */
const struct run_rates *case_rates(void);

/* `steps` steps over seeded random rows. */
void case_run_plain(const struct case_model *made, const struct run_options *options,
                    unsigned steps, struct case_outcome *out);
void case_run_engine(const struct case_model *made, const struct run_options *options,
                     unsigned steps, struct case_outcome *out);
/* 0, or the first error of create or a step, with `out` up to there. */
int case_try_engine(const struct case_model *made, const struct run_options *options,
                    unsigned steps, struct case_outcome *out);

/* A part of a run: steps [first, end), from a checkpoint or from the files, with one saved. `out` gets
 * what these steps did, and keeps what is in front of them. */
struct case_part {
    unsigned first, end;
    const char *resume;                  /* a checkpoint's folder; NULL: the files */
    const struct run_save_options *save; /* NULL: none */
    unsigned save_after;                 /* steps */
    bool save_on;                        /* and after every one that follows */
    bool later;                          /* the save goes on under the next step */
    bool ahead;                          /* and was said before its step */
    uint64_t loud;      /* bit n: few targets in step n + 1, and so a norm many times the others' */
    uint64_t evaluated; /* bit n: a batch is evaluated after step n + 1 */
};
int case_try_part(const struct case_model *made, const struct run_options *options,
                  const struct case_part *part, struct case_outcome *out);
/* The same; an error fails the test, saying `what` was tried. */
void case_run_part(const struct case_model *made, const struct run_options *options,
                   const struct case_part *part, struct case_outcome *out, const char *what);
/* A fresh shelf for a run's checkpoints; to be closed. */
struct store_shelf *case_shelf_open(void);

void case_check_equal(const struct case_outcome *a, const struct case_outcome *b, const char *what);

/* The next of a seeded sequence. */
uint64_t case_random(uint64_t *state);
/* Micro-batch `micro` of step `step`. */
struct model_batch case_batch(const struct case_model *made, unsigned step, unsigned micro,
                              int32_t *ids);

#endif
