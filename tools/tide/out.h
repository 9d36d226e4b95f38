/* out.h: whether a run may write to --out: new, empty, the run's own, or with --overwrite. The main
 * thread. */
#ifndef TOOLS_TIDE_OUT_H
#define TOOLS_TIDE_OUT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct cli_out {
    const char *path;  /* of --out */
    const char *model; /* folder of the model to train; NULL: nothing is trained */
    bool overwrite;
    bool resume;
    bool claimed; /* --out is locked; what a killed run had moved in part is complete in it */
};

/* Writes the path of the output folder to `whole`, without ".", ".." or a link at the end, because
 * the model is first written beside the folder. */
int cli_out_resolve(const char *path, char whole[PATH_MAX]);

/* Returns -errno if what is at --out, or a missing parent, forbids its use; does not check
 * permissions. Call it before anything long. */
int cli_out_check(const struct cli_out *out);

/* Returns the steps of the model in a folder by its note (see model_folder_note); 0: no note, or a
 * changed file. */
int64_t cli_out_steps(const char *path);

#endif
