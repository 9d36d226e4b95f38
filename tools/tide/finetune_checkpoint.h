/* finetune_checkpoint.h: a run's checkpoints in its output folder: when they are due, what of the run
 * goes into them besides the engine's, and going on from one. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_CHECKPOINT_H
#define TOOLS_TIDE_FINETUNE_CHECKPOINT_H

#include "tools/tide/finetune_run.h"

/* Before a step: says so where one is due behind it. */
void tune_checkpoint_ahead(struct tune_run *run);

/* After a step: writes a checkpoint where one is due, or where a signal ends the run. A step that was
 * skipped leaves it to the next one. One that was due and failed is told, and the run goes on; one for a
 * signal is an error. */
int tune_checkpoint_step(struct tune_run *run, bool skipped);

/* After the last step: waits for a checkpoint that is still being written. Why the last one that was due is not
 * there, if it is not, the run says then. */
void tune_checkpoint_end(struct tune_run *run);

/* The time that a run's rows depend on: that kept by the checkpoints in `out`, which a run with
 * --resume goes on from (NULL: none), or else that of this moment (text_feed_now). */
int tune_checkpoint_now(struct tide_context *context, const char *out, int64_t *now);

/* Sets the run to where the engine began, and says which checkpoint that was. */
int tune_checkpoint_resume(struct tune_run *run, bool talks);

#endif
