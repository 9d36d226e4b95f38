/* finetune_live.h: the progress of a run on stderr: on a terminal, one line that is overwritten; in
 * a pipe, one line for each step. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_LIVE_H
#define TOOLS_TIDE_FINETUNE_LIVE_H

#include <stdbool.h>
#include <stdio.h>

#include "tools/tide/finetune_log.h"

enum { TUNE_LIVE_RECENT = 16 };

struct tune_live {
    FILE *stream; /* borrowed; NULL: quiet */
    bool terminal;
    uint64_t steps;       /* of the run */
    uint64_t print_every; /* steps between two lines in a pipe */

    /* Private. */
    bool open;                       /* a line has been printed without its newline */
    double recent[TUNE_LIVE_RECENT]; /* seconds of the last steps, without the first step */
    uint64_t recent_count;
    char phase[64];
    unsigned percent;
};

void tune_live_init(struct tune_live *live, FILE *stream, bool quiet, uint64_t steps,
                    uint64_t print_every);
void tune_live_step(struct tune_live *live, const struct tune_record *record);
/* Shows a long operation before the first step: "load", done of total. */
void tune_live_progress(struct tune_live *live, const struct tide_progress *progress);
/* Ends the live line, before anything else is written to the stream. */
void tune_live_end(struct tune_live *live);

/* "1:02:03", "2:03", "0:03". Returns `out`. */
const char *tune_live_clock(double seconds, char *out, size_t bytes);

#endif
