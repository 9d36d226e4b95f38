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

/* Resolves ".", ".." and a symbolic link to the folder they lead to, because the model is written
 * beside that folder first. */
int cli_out_resolve(const char *path, char whole[PATH_MAX]);

/* Returns 0 if --out can be used, or -EEXIST, -ENOTDIR or another error. Called before anything
 * long begins. */
int cli_out_check(const struct cli_out *out);

/* Returns the steps of the model in a folder according to its note (see model_folder_note), if none
 * of its files has changed since; 0 if there is no such model. */
int64_t cli_out_steps(const char *path);

#endif
