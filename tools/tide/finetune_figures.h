/* finetune_figures.h: the table of the figures of a step: key in the JSONL log, column in the CSV
 * table, and tag in TensorBoard. Any thread. */
#ifndef TOOLS_TIDE_FINETUNE_FIGURES_H
#define TOOLS_TIDE_FINETUNE_FIGURES_H

#include <stdbool.h>
#include <stdio.h>
#include <tide/engine.h>

struct core_json_write;

/* Number of reasons for waiting; each has a figure. */
enum { FINETUNE_WAITS = TIDE_WAIT_OTHER + 1 };

/* Bytes moved to and from one --store. */
struct finetune_drive {
    const char *directory;
    uint64_t read_bytes, write_bytes;
};

/* Everything known at the end of a step. */
struct finetune_record {
    struct tide_step step;
    struct tide_engine_memory memory;
    double lr;
    /* seconds that the device waited in this step, by enum tide_wait */
    double waits[FINETUNE_WAITS];
    double data_wait; /* seconds that the step waited for its rows */
    bool evaluated;   /* an evaluation followed this step */
    double eval_loss;
    struct finetune_drive drives[TIDE_STORES_MAX]; /* in the order of --store */
    size_t drive_count;
    bool pairs; /* --loss dpo; the next two are known after an evaluation */
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
    const char *group; /* the object in the log that contains the figure; NULL: the top level */
    const char *key;
    const char *tag; /* tag in TensorBoard; NULL: none, as for the step itself */
    enum finetune_figure_kind kind;
    size_t offset;    /* in struct finetune_record */
    bool evaluations; /* written only after an evaluation */
    bool ranks;       /* written only with several ranks */
    bool pairs;       /* written only with --loss dpo */
};

/* Returns the figure at `index` in the order of the log, in which members of a group are adjacent;
 * NULL after the last. */
const struct finetune_figure *finetune_figure_at(size_t index);

void finetune_figures_derive(struct finetune_record *record);
/* Returns whether the record has this figure. */
bool finetune_figure_known(const struct finetune_figure *figure,
                           const struct finetune_record *record);
double finetune_figure_value(const struct finetune_figure *figure,
                             const struct finetune_record *record);

/* Writes the figures that the record has as members of the open object. */
void finetune_figures_write(struct core_json_write *json, const struct finetune_record *record);
/* Writes all figures as a row of the CSV table, with empty fields for those that the record does
 * not have; or their names, as the first row. */
void finetune_figures_print(FILE *file, const struct finetune_record *record);
void finetune_figures_print_names(FILE *file);

#endif
