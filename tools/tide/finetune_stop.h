/* finetune_stop.h: Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 (from mpirun) end the process early in a
 * run; later, they request a stop after the current step, and a second signal of one kind, at least
 * a second later, ends the process. Signals that are ignored (nohup) stay ignored. Global state,
 * because signals belong to the process. */
#ifndef TOOLS_TIDE_FINETUNE_STOP_H
#define TOOLS_TIDE_FINETUNE_STOP_H

#include <stdbool.h>

/* Until the next call of this or of finetune_stop_begin(), a signal calls `undo`, which must be
 * safe in a signal handler, and ends the process. NULL: nothing to undo. */
void finetune_stop_early(void (*undo)(void *context), void *context);
/* From now on, a first signal of each kind only requests a stop, even at the end, when the work is
 * done. */
void finetune_stop_begin(void);

struct tide_world;
/* From now on finetune_stop_asked() is also true if another process was asked. Call this with NULL
 * before the world is closed. */
void finetune_stop_world(const struct tide_world *world);

/* Returns whether a stop was requested. Any thread. */
bool finetune_stop_asked(void);

#endif
