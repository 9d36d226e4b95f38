/* finetune_run.h: takes the steps of a run, writes checkpoints, and continues from one. A
 * checkpoint also has the state of the run outside the engine. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_RUN_H
#define TOOLS_TIDE_FINETUNE_RUN_H

#include "tools/tide/finetune_data.h"
#include "tools/tide/finetune_live.h"
#include "tools/tide/finetune_log.h"
#include "tools/tide/finetune_settings.h"

struct finetune_run {
    const struct finetune_settings *settings; /* borrowed, as are all pointers here */
    struct tide_engine *engine;
    struct finetune_data *data;
    struct finetune_data *eval; /* NULL: none */
    struct finetune_log *log;
    struct finetune_live *live;
    int64_t eval_every; /* 0: after the last step */
    const char *out;    /* where checkpoints go */
    int64_t save_every; /* steps; 0: only at a signal */
    bool save_owed;     /* a due checkpoint is postponed because the step was skipped */
    uint32_t keep;
    bool replace; /* replace checkpoints of other runs in `out` */
    struct finetune_events *events;

    /* Results. */
    int64_t steps; /* steps made, including those before a resume */
    int64_t begun; /* those before the resume */
    int64_t skipped;
    int64_t ahead;       /* steps whose speculative update was right */
    size_t full_steps;   /* steps with all planned micro-batches, the first one excluded */
    double full_seconds; /* median of the times of these steps */
    double first_loss, last_loss, eval_loss;
    struct finetune_summary summary;
    bool stopped;       /* by a signal */
    int64_t save_begun; /* step of a checkpoint in progress; 0: none */
    int64_t saves, saves_failed;
    char save_problem[512]; /* why the last checkpoint was not written; "": no failure */
};

/* Trains until the last step or a signal. Computes the summary even after a failed step, and logs
 * it if a step was made. */
int finetune_run_steps(struct finetune_run *run);

/* Sets `begun`, `place` and `now` of the settings from the checkpoint in `out` (NULL: not resumed).
 * Without a checkpoint, or if it has no time, `now` is that of text_feed_now(). */
int finetune_checkpoint_look(struct tide_context *context, const char *out,
                             struct finetune_settings *settings);

/* Continues after the checkpoint from which the engine resumed, if any. `talks`: prints its
 * name. */
int finetune_checkpoint_resume(struct finetune_run *run, bool talks);

#endif
