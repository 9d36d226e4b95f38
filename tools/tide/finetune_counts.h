/* finetune_counts.h: which rows a run reads and how, the counts of these rows, and a file that
 * keeps the counts for later runs with the same files, model folder, options and build of tide.
 * core/json/cache.h says how long they are kept. Main thread. */
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
    const char *path;   /* a file, a pattern, or "-": standard input, kept to be read again */
    const char *model;  /* the folder with the tokenizer */
    int64_t vocab;      /* ids must be below it */
    int64_t length_max; /* most tokens of a row */
    bool cut;           /* cut and count longer rows; otherwise they are an error */
    unsigned batch;     /* rows of a micro-batch; with `pairs`, pairs */
    unsigned step_max;  /* most micro-batches of a step */
    bool pack;          /* several rows in one of `length_max`, each with its own attention */
    bool split;         /* continue longer rows in further rows */
    /* every row is a pair of answers, chosen and rejected. A batch of finetune_data_step() has two
     * rows for each pair: chosen, rejected, chosen ... Excludes pack, split and train_on_all. */
    bool pairs;
    bool skip_bad; /* skip bad rows with a warning; otherwise they are an error */
    /* train on every token; otherwise on replies of the assistant and completions */
    bool train_on_all;
    const char *chat_format; /* NULL: the model's own */
    bool drop_last; /* leave out the last rows of an epoch if they do not fill a micro-batch */
    bool shuffle;   /* otherwise rows keep the order of the file */
    uint64_t seed;
    int64_t now;        /* time for chat templates; see text_feed_options */
    uint64_t row_bytes; /* memory limit of one row (text_memory_init); 0: chosen */
    const char *cache;  /* folder for counts of large files; NULL: none */
    int64_t steps;      /* steps of the run: later rows are not counted; 0: count an epoch */
    /* A run that resumes has made `begun` of these steps, perhaps with other ranks and batches, and
     * continues at `place`. 0: the run begins with the first row. */
    int64_t begun;
    struct finetune_data_place place;
    /* Called while rows are counted, with the share of bytes that have been read, 0 to 1; may be
     * NULL. */
    void (*progress)(void *user, double part);
    void *user; /* passed to `progress` */
};

/* Figures of an epoch, or of its beginning if fewer rows are trained on. */
struct finetune_data_info {
    bool whole;           /* figures of the whole epoch */
    int64_t rows;         /* number of rows in batches; with `pairs`, the number of pairs */
    int64_t longest;      /* tokens of the longest row, at most length_max */
    int64_t longest_pair; /* with `pairs`: the largest tide_pair_length() */
    int64_t tokens;       /* with `pairs`, tokens of both rows */
    int64_t targets;      /* trained tokens; with `pairs`, the number of pairs */
    int64_t read;         /* rows of the file without bad ones */
    int64_t wrong;        /* bad rows, left out */
    int64_t cut;          /* rows longer than length_max */
    int64_t untrained;    /* rows or pieces dropped because nothing in them is trained on */
    int64_t equal;        /* pairs whose two answers have the same tokens */
    int64_t micro_batches;
    int64_t batch;      /* rows (or pairs) of a micro-batch: as requested, or all that there are */
    int64_t dated;      /* 1: rows depend on `now` */
    int64_t memory;     /* bytes that reading the rows takes, without batches */
    int64_t row_memory; /* part of `memory` that one row may take */
};

enum { FINETUNE_COUNTS_BYTES = 16 << 20 }; /* smaller data is counted again each time */

struct finetune_counts {
    char path[CORE_CACHE_PATH_BYTES]; /* "": counts are not kept */
    uint64_t key;
};

/* Writes key and path of the file for the counts of this data to *out; `rows` is how many rows are
 * counted. The path is "" without a cache, for small data, and for data that cannot be identified,
 * such as a pipe. */
void finetune_counts_place(const struct finetune_data_options *options, int64_t rows,
                           struct finetune_counts *out);
/* Reads the kept counts. Returns false if there are none or they are unusable. Counts that depend
 * on the time are valid only for the same `now`. */
bool finetune_counts_find(const struct finetune_counts *counts, int64_t now,
                          struct finetune_data_info *info);
/* Writes the counts. A failure is logged and is not an error. */
void finetune_counts_keep(const struct finetune_counts *counts, int64_t now,
                          const struct finetune_data_info *info);
/* Removes the file, so that the rows are counted again. Returns whether there was one. */
bool finetune_counts_forget(const struct finetune_counts *counts);

#endif
