/* finetune_counts.h: how a run reads rows, their counts, and a file that keeps the counts for later
 * runs with equal files, model folder, options and build of tide (core/json/cache.h). Main
 * thread. */
#ifndef TOOLS_TIDE_FINETUNE_COUNTS_H
#define TOOLS_TIDE_FINETUNE_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/json/cache.h"

/* Position of the next step in the rows: plain bytes for a checkpoint. */
struct finetune_data_place {
    uint64_t word[8];
};

struct finetune_data_options {
    const char *path;   /* a file, a pattern, or "-": standard input */
    const char *model;  /* folder with the tokenizer */
    int64_t vocab;      /* ids must be below it */
    int64_t length_max; /* most tokens of a row */
    bool cut;           /* cut and count longer rows; without it and `split` they are errors */
    unsigned batch;     /* rows of a micro-batch; with `pairs`, pairs */
    unsigned step_max;  /* most micro-batches of a step */
    bool pack;          /* several rows in one of `length_max`, without attention between them */
    bool split;         /* continue longer rows in further rows */
    /* every row has `chosen` and `rejected`. A batch has two rows for each pair: chosen, rejected,
     * chosen ... Excludes pack, split and train_on_all. */
    bool pairs;
    bool skip_bad; /* skip bad rows with a warning; else they are errors */
    /* every token; else replies of the assistant, completions and whole texts */
    bool train_on_all;
    const char *chat_format; /* NULL: the model's own */
    bool drop_last; /* leave out rows at the end of an epoch that do not fill a micro-batch */
    bool shuffle;   /* else in the order of the file */
    uint64_t seed;
    int64_t now;        /* see text_feed_options */
    uint64_t row_bytes; /* memory limit of a row (text_memory_init); 0: chosen */
    const char *cache;  /* folder for counts of large files; NULL: none */
    int64_t steps;      /* steps of the run; 0: count an epoch */
    /* steps made before a resume, perhaps with other ranks and batches; the run continues at
     * `place`; 0: the run begins */
    int64_t begun;
    struct finetune_data_place place;
    /* Called while rows are counted, with the share of bytes read, 0 to 1; may be NULL. */
    void (*progress)(void *user, double part);
    void *user;
};

/* Figures of an epoch, or of the beginning that is trained on. */
struct finetune_data_info {
    bool whole;           /* of the whole epoch */
    int64_t rows;         /* in batches; with `pairs`, pairs */
    int64_t longest;      /* tokens of the longest row, cut to length_max */
    int64_t longest_pair; /* with `pairs`: largest tide_pair_length() */
    int64_t tokens;       /* with `pairs`, of both rows */
    int64_t targets;      /* trained tokens; with `pairs`, pairs */
    int64_t read;         /* rows of the file, bad ones excluded */
    int64_t wrong;        /* bad rows, left out */
    int64_t cut;          /* rows or pairs cut to length_max */
    int64_t untrained;    /* rows or pieces without trained tokens, dropped */
    int64_t equal;        /* pairs with equal answers */
    int64_t micro_batches;
    int64_t batch;      /* rows (or pairs) of a micro-batch: as requested, or all */
    int64_t dated;      /* 1: rows may depend on `now` */
    int64_t memory;     /* bytes for reading the rows, batches excluded */
    int64_t row_memory; /* part of `memory` for one row */
};

enum { FINETUNE_COUNTS_BYTES = 16 << 20 }; /* smaller data is counted again */

struct finetune_counts {
    char path[CORE_CACHE_PATH_BYTES]; /* "": counts are not kept */
    uint64_t key;
};

/* Writes key and path of the file for the counts of `rows` rows. The path is "" without a cache,
 * for small data, and for data that cannot be identified, such as a pipe. */
void finetune_counts_place(const struct finetune_data_options *options, int64_t rows,
                           struct finetune_counts *out);
/* Reads the kept counts; false: none, or unusable. Counts that depend on the time need an equal
 * `now`. */
bool finetune_counts_find(const struct finetune_counts *counts, int64_t now,
                          struct finetune_data_info *info);
/* A failure is logged and is not an error. */
void finetune_counts_keep(const struct finetune_counts *counts, int64_t now,
                          const struct finetune_data_info *info);
/* Removes the file, so that rows are counted again. Returns whether there was one. */
bool finetune_counts_forget(const struct finetune_counts *counts);

#endif
