/* finetune_figures.h: the figures of a step, said once: their keys in the JSONL log, their columns in
 * the table and their names in TensorBoard. Any thread. */
#ifndef TOOLS_TIDE_FINETUNE_FIGURES_H
#define TOOLS_TIDE_FINETUNE_FIGURES_H

#include <stdbool.h>
#include <stdio.h>
#include <tide/engine.h>

struct core_json_write;

/* Reasons of libtide that have a figure of their own. */
enum { TUNE_WAITS = TIDE_WAIT_OTHER + 1 };

/* What is known when a step has ended. */
struct tune_record {
    struct tide_step step;
    struct tide_engine_memory memory;
    double lr;
    double
        waits[TUNE_WAITS]; /* seconds in which the device waited in this step, by enum tide_wait */
    double data_wait;      /* seconds before the step in which its rows were not there yet */
    bool evaluated;        /* after this step */
    double eval_loss;
    /* Worked out of the others by tune_figures_derive(). */
    double tokens_per_second;
    double rss_gb;
};

enum tune_figure_kind {
    TUNE_FIGURE_REAL,  /* double */
    TUNE_FIGURE_WHOLE, /* uint64_t */
    TUNE_FIGURE_SHORT, /* uint32_t */
    TUNE_FIGURE_TRUTH, /* uint64_t, of which only 0 is false */
};

struct tune_figure {
    const char *group; /* the object in the log that holds it; NULL: the line's own */
    const char *key;
    const char *tag; /* in TensorBoard; NULL: none, it is the step itself */
    enum tune_figure_kind kind;
    size_t offset;    /* in struct tune_record */
    bool evaluations; /* only after an evaluation */
};

/* In the order of the log; members of a group stand together. The index-th; NULL beyond the last. */
const struct tune_figure *tune_figure_at(size_t index);

void tune_figures_derive(struct tune_record *record);
/* Is there such a figure in this record? */
bool tune_figure_known(const struct tune_figure *figure, const struct tune_record *record);
double tune_figure_value(const struct tune_figure *figure, const struct tune_record *record);

/* All figures as members of the object that is open. */
void tune_figures_write(struct core_json_write *json, const struct tune_record *record);
/* All of them as a row of a table, or their names as its first row. */
void tune_figures_print(FILE *file, const struct tune_record *record);
void tune_figures_print_names(FILE *file);

#endif
