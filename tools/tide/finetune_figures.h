/* finetune_figures.h: the table of the figures of a step: key in the JSONL log, column in the CSV
 * table, and tag in TensorBoard. Any thread. */
#ifndef TOOLS_TIDE_FINETUNE_FIGURES_H
#define TOOLS_TIDE_FINETUNE_FIGURES_H

#include <stdbool.h>
#include <stdio.h>
#include <tide/engine.h>

struct core_json_write;

/* Reasons for waiting that have a figure of their own. */
enum { TUNE_WAITS = TIDE_WAIT_OTHER + 1 };

/* Everything known at the end of a step. */
struct tune_record {
    struct tide_step step;
    struct tide_engine_memory memory;
    double lr;
    double waits[TUNE_WAITS]; /* seconds that the device waited in this step, by enum tide_wait */
    double data_wait;         /* seconds before the step in which its rows were not ready */
    bool evaluated;           /* an evaluation followed this step */
    double eval_loss;
    /* Computed by tune_figures_derive(). */
    double tokens_per_second;
    double rss_gb;
};

enum tune_figure_kind {
    TUNE_FIGURE_REAL,  /* double */
    TUNE_FIGURE_WHOLE, /* uint64_t */
    TUNE_FIGURE_SHORT, /* uint32_t */
    TUNE_FIGURE_TRUTH, /* uint64_t; false if 0 */
};

struct tune_figure {
    const char *group; /* the object in the log that contains it; NULL: the top level */
    const char *key;
    const char *tag; /* tag in TensorBoard; NULL: none, as for the step itself */
    enum tune_figure_kind kind;
    size_t offset;    /* in struct tune_record */
    bool evaluations; /* written only after an evaluation */
};

/* Returns the figure at `index` in the order of the log, in which members of a group are adjacent;
 * NULL after the last. */
const struct tune_figure *tune_figure_at(size_t index);

void tune_figures_derive(struct tune_record *record);
/* Whether the record has this figure. */
bool tune_figure_known(const struct tune_figure *figure, const struct tune_record *record);
double tune_figure_value(const struct tune_figure *figure, const struct tune_record *record);

/* Writes all figures as members of the open object. */
void tune_figures_write(struct core_json_write *json, const struct tune_record *record);
/* Writes all figures as a row of the CSV table; or their names, as its first row. */
void tune_figures_print(FILE *file, const struct tune_record *record);
void tune_figures_print_names(FILE *file);

#endif
