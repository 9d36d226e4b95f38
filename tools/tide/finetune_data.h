/* finetune_data.h: the rows of a file as the micro-batches of steps, epoch after epoch. What a step
 * holds depends on the options alone. Main thread; rows are prepared by a thread of the feed's. */
#ifndef TOOLS_TIDE_FINETUNE_DATA_H
#define TOOLS_TIDE_FINETUNE_DATA_H

#include <stdbool.h>
#include <tide/engine.h>

struct tune_data;

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

/* Reads once through the rows that will be trained on: how long the longest is, and, for a run told in
 * epochs, how many there are. Paths are borrowed until close. -EINVAL where a row is wrong or too
 * long, and where there is nothing to train on. */
int tune_data_open(const struct tune_data_options *options, struct tune_data **out);
void tune_data_close(struct tune_data *data);

void tune_data_describe(const struct tune_data *data, struct tune_data_info *out);
/* Bytes that the data takes while the run goes on. */
uint64_t tune_data_memory(const struct tune_data *data);

/* The micro-batches of the next step, borrowed until the next call: up to `step_max` of one epoch.
 * Returns how many, or -errno. After an epoch's last the next one begins. */
int tune_data_step(struct tune_data *data, const struct tide_batch **batches);

/* Tokens of that step, without what only fills rows up. */
int64_t tune_data_tokens(const struct tune_data *data);
/* Seconds in which its rows were waited for; those of the first step after opening do not count. */
double tune_data_wait(const struct tune_data *data);

/* From the first row of the first epoch again. */
int tune_data_rewind(struct tune_data *data);

/* Where in the rows the next step begins: plain bytes, to be stored. */
struct tune_data_place {
    uint64_t word[8];
};
void tune_data_tell(const struct tune_data *data, struct tune_data_place *out);
/* Goes on there. -EINVAL where the file or what is read of it is not the same. */
int tune_data_seek(struct tune_data *data, const struct tune_data_place *place);

/* Steps of `epochs` epochs, each of which ends with a step of its own. */
int64_t tune_data_steps(const struct tune_data_info *info, unsigned step_max, double epochs);

#endif
