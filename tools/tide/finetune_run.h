/* finetune_run.h: takes the steps of a run once everything is open, writes checkpoints, and
 * continues from one. A checkpoint also holds the state of the run that the engine does not keep.
 * Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_RUN_H
#define TOOLS_TIDE_FINETUNE_RUN_H

#include "tools/tide/finetune_data.h"
#include "tools/tide/finetune_live.h"
#include "tools/tide/finetune_log.h"
#include "tools/tide/finetune_settings.h"

struct finetune_run {
    const struct finetune_settings *settings; /* borrowed, as is every pointer here */
    struct tide_engine *engine;
    struct finetune_data *data;
    struct finetune_data *eval; /* NULL: none */
    struct finetune_log *log;
    struct finetune_live *live;
    int64_t eval_every; /* 0: after the last step only */
    const char *out;    /* where checkpoints go */
    int64_t save_every; /* steps between checkpoints; 0: only one at a signal */
    bool save_owed;     /* a due checkpoint was put off because its step was skipped */
    uint32_t keep;
    bool replace; /* replace checkpoints of other runs in `out` */
    struct finetune_events *events;

    /* Results. */
    int64_t steps; /* all steps made, including those before a resume */
    int64_t begun; /* steps before the resume */
    int64_t skipped;
    int64_t ahead;       /* steps whose speculative update was right */
    size_t full_steps;   /* steps with all planned micro-batches, without the first one */
    double full_seconds; /* median of the times of these steps */
    double first_loss, last_loss, eval_loss;
    struct finetune_summary summary;
    bool stopped;       /* by a signal */
    int64_t save_begun; /* step of the checkpoint that may still be in progress; 0: none */
    int64_t saves, saves_failed;
    char save_problem[512]; /* why the last due checkpoint is missing; "": it is not */
};

/* Trains until the last step or a signal. Computes the summary even after an error, and writes it
 * to the log if a step was made. Returns 0, or -errno with a message. */
int finetune_run_steps(struct finetune_run *run);

/* Sets `begun`, `place` and `now` of the settings, on which the run's rows depend, from the
 * checkpoint in `out` from which a resumed run continues (NULL: not resumed). Without a checkpoint,
 * or if it has no time, `now` is set by text_feed_now(). Returns 0, or -errno with a message. */
int finetune_checkpoint_look(struct tide_context *context, const char *out,
                             struct finetune_settings *settings);

/* Continues the run after the step of the checkpoint from which the engine resumed, if there is
 * one. `talks`: prints which one. Returns 0, or -errno with a message. */
int finetune_checkpoint_resume(struct finetune_run *run, bool talks);

#endif
