/* out.h: whether a run may write its model to --out: the folder is new, empty, the run's own, or
 * may be overwritten. Checked before anything long begins. The main thread. */
#ifndef TOOLS_TIDE_OUT_H
#define TOOLS_TIDE_OUT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct cli_out {
    const char *path;  /* value of --out */
    const char *model; /* the folder of the model that is trained; NULL: nothing is trained */
    bool overwrite;
    bool resume;
    bool claimed; /* --out is locked, and the results of a killed run have been moved there */
};

/* Writes the path of the output folder to `whole`. Resolves ".", ".." and a symbolic link at the
 * end of the path, because the model is written beside the folder itself first. Returns 0, or
 * -errno with a message. */
int cli_out_resolve(const char *path, char whole[PATH_MAX]);

/* Returns 0 if --out can be used, or -errno with a message. Call it before anything long begins. */
int cli_out_check(const struct cli_out *out);

/* Returns how many steps the model in a folder was trained, as its note says (see
 * model_folder_note). Returns 0 if there is no note, or if a file has changed since. */
int64_t cli_out_steps(const char *path);

#endif
