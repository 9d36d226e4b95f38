/* finetune_figures.h: the figures of a step: JSONL key, CSV column and TensorBoard tag. Any
 * thread. */
#ifndef TOOLS_TIDE_FINETUNE_FIGURES_H
#define TOOLS_TIDE_FINETUNE_FIGURES_H

#include <stdbool.h>
#include <stdio.h>
#include <tide/engine.h>

struct core_json_write;

enum { FINETUNE_WAITS = TIDE_WAIT_OTHER + 1 };

/* Bytes moved to and from a --store. */
struct finetune_drive {
    const char *directory;
    uint64_t read_bytes, write_bytes;
};

struct finetune_record {
    struct tide_step step;
    struct tide_engine_memory memory;
    double lr;
    /* seconds of the device's waits, by enum tide_wait */
    double waits[FINETUNE_WAITS];
    double data_wait; /* seconds of the wait for rows */
    bool evaluated;   /* an evaluation followed this step */
    double eval_loss;
    struct finetune_drive drives[TIDE_STORES_MAX]; /* in the order of --store */
    size_t drive_count;
    bool pairs; /* --loss dpo; the next two are set by an evaluation */
    double eval_margin;
    double eval_accuracy;
    /* Computed by finetune_figures_derive(). */
    double tokens_per_second;
    double rss_gb;
    double reward_margin;
};

enum finetune_figure_kind {
    FINETUNE_FIGURE_REAL,  /* double */
    FINETUNE_FIGURE_WHOLE, /* uint64_t */
    FINETUNE_FIGURE_SHORT, /* uint32_t */
    FINETUNE_FIGURE_TRUTH, /* uint64_t; false if 0 */
};

struct finetune_figure {
    const char *group; /* object in the log; NULL: the top level */
    const char *key;
    const char *tag; /* TensorBoard; NULL: none */
    enum finetune_figure_kind kind;
    size_t offset;    /* in struct finetune_record */
    bool evaluations; /* known only after an evaluation */
    bool ranks;       /* known only with several ranks */
    bool pairs;       /* known only with --loss dpo */
};

/* Returns a figure in the order of the log, where groups are contiguous; NULL after the last. */
const struct finetune_figure *finetune_figure_at(size_t index);

void finetune_figures_derive(struct finetune_record *record);
bool finetune_figure_known(const struct finetune_figure *figure,
                           const struct finetune_record *record);
double finetune_figure_value(const struct finetune_figure *figure,
                             const struct finetune_record *record);

/* Writes the record's figures as members of the open object. */
void finetune_figures_write(struct core_json_write *json, const struct finetune_record *record);
/* Write a row of the CSV table (unknown figures are empty) or the names of its columns. */
void finetune_figures_print(FILE *file, const struct finetune_record *record);
void finetune_figures_print_names(FILE *file);

#endif
