/* finetune_context.h: a context of libtide that prints messages beside the live line, and exit
 * codes of errors. Main thread; log lines come from any thread. */
#ifndef TOOLS_TIDE_FINETUNE_CONTEXT_H
#define TOOLS_TIDE_FINETUNE_CONTEXT_H

#include <tide/inspect.h>

#include "tools/tide/finetune_data.h"
#include "tools/tide/finetune_events.h"
#include "tools/tide/finetune_live.h"

struct finetune_context {
    struct tide_context *context; /* owned */
    struct finetune_live live;
    struct finetune_events events; /* for the log */
    int64_t reads_ns;              /* when counting of rows began */
    bool may_stop;                 /* a signal cancels creating the engine */
    bool refuses;                  /* the run will be refused: hides warnings of libtide */
};

/* `verbose`: see struct cli_common. `talk` must not move until fini. */
int finetune_context_init(struct finetune_context *talk, int verbose);
void finetune_context_fini(struct finetune_context *talk);

/* Inspects a model folder. Fails if it cannot be trained; without `weights`, only config.json must
 * be right, and other problems are warnings. */
int finetune_context_inspect(struct finetune_context *talk, const char *path, bool weights,
                             struct tide_inspection *out);

/* Calls finetune_data_open(); shows progress after a second. */
int finetune_context_data(struct finetune_context *talk,
                          const struct finetune_data_options *options, struct finetune_data **out);

/* Returns the enum cli_exit of a negative errno: CLI_WRONG for wrong input, else CLI_FAILED. The
 * caller returns CLI_NO_FIT itself, because -EFBIG is also an error of file systems. */
int finetune_exit_code(int rc);

#endif
