/* finetune_context.h: a context of libtide whose messages go to stderr beside the live line, and
 * the exit codes of its errors. Main thread; log lines come from any thread. */
#ifndef TOOLS_TIDE_FINETUNE_CONTEXT_H
#define TOOLS_TIDE_FINETUNE_CONTEXT_H

#include <tide/inspect.h>

#include "tools/tide/finetune_data.h"
#include "tools/tide/finetune_events.h"
#include "tools/tide/finetune_live.h"

struct finetune_context {
    struct tide_context *context; /* owned */
    struct finetune_live live;
    struct finetune_events events; /* warnings of libtide and of the command, for the log */
    int64_t reads_ns;              /* time at which counting of rows began */
    bool may_stop; /* a signal cancels libtide's work: while the engine is created */
    bool refuses;  /* the run will be refused, so warnings of libtide are not shown */
};

/* `verbose` is that of struct cli_common. `talk` must not move until fini. Returns 0, or -errno
 * with a message. */
int finetune_context_init(struct finetune_context *talk, int verbose);
void finetune_context_fini(struct finetune_context *talk);

/* Inspects a model folder. Returns 0 if it is consistent, otherwise -errno with a message. Without
 * `weights`, config.json is enough, and other problems are warnings. */
int finetune_context_inspect(struct finetune_context *talk, const char *path, bool weights,
                             struct tide_inspection *out);

/* Calls finetune_data_open(), and shows progress if counting the rows takes more than a second. */
int finetune_context_data(struct finetune_context *talk,
                          const struct finetune_data_options *options, struct finetune_data **out);

/* Returns the enum cli_exit of a negative errno: CLI_WRONG for wrong input, otherwise CLI_FAILED. A
 * plan that does not fit (-EFBIG) is CLI_NO_FIT, which the caller must return itself, because file
 * systems use this error, too. */
int finetune_exit_code(int rc);

#endif
