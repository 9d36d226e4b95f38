/* finetune_stop.h: Ctrl-C and SIGTERM as a wish to stop after the step that runs. The second one ends
 * the process at once, as if nothing had been installed. Signals are a process's, so this is its one
 * state. */
#ifndef TOOLS_TIDE_FINETUNE_STOP_H
#define TOOLS_TIDE_FINETUNE_STOP_H

#include <stdbool.h>

/* Until the next call a signal ends the process at once, in order: nothing has been made yet but what
 * `undo` takes away, which a handler may call. NULL: nothing at all. */
void tune_stop_early(void (*undo)(void *context), void *context);
/* From here to tune_stop_end() signals are wishes. */
void tune_stop_begin(void);
void tune_stop_end(void); /* nothing where neither was called */

/* Has somebody asked? Any thread. */
bool tune_stop_asked(void);

#endif
