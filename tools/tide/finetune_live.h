/* finetune_live.h: the progress of a run on stderr: on a terminal, an overwritten line; in a pipe,
 * lines. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_LIVE_H
#define TOOLS_TIDE_FINETUNE_LIVE_H

#include <stdbool.h>
#include <stdio.h>

#include "tools/tide/finetune_log.h"

enum { FINETUNE_LIVE_RECENT = 16 };

struct finetune_live {
    FILE *stream; /* borrowed; NULL: quiet */
    bool terminal;
    uint64_t steps; /* of the run */
    /* in a pipe, steps between two lines; first, last and evaluated steps are printed, too */
    uint64_t print_every;

    /* Private. */
    bool open;  /* a line without its newline was printed */
    bool begun; /* this process has taken a step */
    /* seconds of the last steps, without the first step of this process */
    double recent[FINETUNE_LIVE_RECENT];
    uint64_t recent_count;
    char phase[64];
    unsigned percent;
};

void finetune_live_init(struct finetune_live *live, FILE *stream, bool quiet, uint64_t steps,
                        uint64_t print_every);
void finetune_live_step(struct finetune_live *live, const struct finetune_record *record);
/* Shows a long operation, such as "load"; on a terminal, with a share. */
void finetune_live_progress(struct finetune_live *live, const struct tide_progress *progress);
/* Ends the live line, so that what follows has a line of its own. */
void finetune_live_end(struct finetune_live *live);

/* Writes "1:02:03", "2:03" or "0:03". Returns `out`. */
const char *finetune_live_clock(double seconds, char *out, size_t bytes);

#endif
