/* finetune_context.h: libtide's talk on stderr, beside the live line, and what its errors are to a
 * shell. Main thread; log lines come from any. */
#ifndef TOOLS_TIDE_FINETUNE_CONTEXT_H
#define TOOLS_TIDE_FINETUNE_CONTEXT_H

#include <tide/inspect.h>

#include "tools/tide/finetune_data.h"
#include "tools/tide/finetune_events.h"
#include "tools/tide/finetune_live.h"

struct tune_context {
    struct tide_context *context; /* owned */
    struct tune_live live;
    struct tune_events events; /* warnings of libtide and of ours, for the log */
    int64_t reads_ns;          /* when the rows of data began to be counted */
    bool may_stop; /* a signal ends what libtide does; not so once there is something to save */
};

/* `verbose` as in struct cli_common. Stays where it is until fini. */
int tune_context_init(struct tune_context *talk, int verbose);
void tune_context_fini(struct tune_context *talk);

/* A model folder that holds together, or -errno. Without `weights` its config.json is enough, and
 * what is wrong with the rest is a warning. */
int tune_context_inspect(struct tune_context *talk, const char *path, bool weights,
                         struct tide_inspection *out);

/* Opens data, and shows how far counting its rows is where that takes more than a second. */
int tune_context_data(struct tune_context *talk, const struct tune_data_options *options,
                      struct tune_data **out);

/* The enum cli_exit of a negative errno: what the caller gave wrong is 2. A file
 * system's -EFBIG is 1: only the caller knows of a plan that does not fit, which is 3. */
int tune_exit_code(int rc);

#endif
