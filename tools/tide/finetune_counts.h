/* finetune_counts.h: which rows a run reads and how, what counting them found, and a file that keeps this
 * for the next run with the same files, model folder, options and build of tide, for as long as
 * core/json/cache.h says. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_COUNTS_H
#define TOOLS_TIDE_FINETUNE_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/json/cache.h"

struct tune_data_options {
    const char *path;   /* a file, a pattern, or "-": standard input, kept to be read again */
    const char *model;  /* the folder with the tokenizer */
    int64_t vocab;      /* ids lie below it */
    int64_t length_max; /* tokens of a row */
    bool cut;           /* longer rows are cut, and counted; else they are an error */
    unsigned batch;     /* rows of a micro-batch */
    unsigned step_max;  /* micro-batches of a step */
    bool pack;          /* several rows in one of `length_max`, each with its own attention */
    bool split;         /* what is longer than `length_max` goes on in a row of its own */
    bool skip_bad; /* rows that are wrong are left out, with a warning; else they are an error */
    bool train_on_all; /* every token; else what an assistant says and what completes a prompt */
    const char *chat_format; /* NULL: the model's own */
    bool drop_last;          /* rows that fill no micro-batch at an epoch's end are left out */
    bool shuffle;            /* else the order of the file */
    uint64_t seed;
    int64_t now;        /* the time that a chat template is given: see text_feed_options */
    uint64_t row_bytes; /* memory that one row may take (text_memory_init); 0: chosen */
    const char *cache;  /* a folder in which counts of large files are kept; NULL: none */
    int64_t steps;      /* that will be made: further rows are not looked at; 0: an epoch or more */
    /* Called while rows are counted, with how much of their bytes was read, 0 to 1. NULL: nobody asks. */
    void (*progress)(void *user, double part);
    void *user; /* handed to it */
};

/* Of an epoch, or of its beginning where fewer rows than that are trained on. */
struct tune_data_info {
    bool whole; /* all of the epoch */
    int64_t rows;
    int64_t longest; /* tokens of a row, at most length_max */
    int64_t tokens;
    int64_t targets;
    int64_t read;      /* rows of the file, without wrong ones */
    int64_t wrong;     /* rows left out */
    int64_t cut;       /* rows that were longer */
    int64_t untrained; /* dropped with nothing left to train on: cut rows, pieces of split ones */
    int64_t micro_batches;
    int64_t dated;      /* 1: rows depend on `now` */
    int64_t memory;     /* bytes that reading the rows takes, batches aside */
    int64_t row_memory; /* of these, a limit for one row */
};

enum { TUNE_COUNTS_BYTES = 16 << 20 }; /* files that are smaller altogether are counted anew */

struct tune_counts {
    char path[CORE_CACHE_PATH_BYTES]; /* "": nothing is kept */
    uint64_t key;
};

/* Where the counts of this data lie; `rows` is how many are looked at. What cannot be looked up, and
 * what is not a file, has no place. */
void tune_counts_place(const struct tune_data_options *options, int64_t rows,
                       struct tune_counts *out);
/* What was kept there; false where nothing was, or something else. Counts of rows that depend on the
 * time count for that time alone. */
bool tune_counts_find(const struct tune_counts *counts, int64_t now, struct tune_data_info *info);
/* A folder that cannot be written is no error: the log says it. */
void tune_counts_keep(const struct tune_counts *counts, int64_t now,
                      const struct tune_data_info *info);
/* So that the rows are counted again; whether anything was kept. */
bool tune_counts_forget(const struct tune_counts *counts);

#endif
