/* finetune_counts.h: what counting the rows of large files found, kept for the next run with the same
 * files, model folder, options and build of tide, for as long as core/json/cache.h says. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_COUNTS_H
#define TOOLS_TIDE_FINETUNE_COUNTS_H

#include "core/json/cache.h"
#include "tools/tide/finetune_data.h"

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
