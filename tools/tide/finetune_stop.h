/* finetune_stop.h: Ctrl-C, SIGTERM and SIGHUP ask for a stop after the current step. The second one of a kind
 * ends the process at once, as if nothing had been installed. One that the process was started with as
 * ignored (nohup, a shell's background) stays ignored. Signals belong to the process, so this is its
 * only state. */
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
