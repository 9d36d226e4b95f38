/* paths.h: may a command write where it was told to? Asked before anything is opened, because a file
 * that is begun anew is gone. The main thread. */
#ifndef TOOLS_TIDE_PATHS_H
#define TOOLS_TIDE_PATHS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cli_path_kind {
    CLI_PATH_WRITTEN, /* a file, or a folder that files are put into */
    CLI_PATH_MADE,    /* the folder of a run: files may lie in it, but not in its checkpoints */
    CLI_PATH_READ,    /* a file or a pattern; "-" is standard input */
    CLI_PATH_KEPT,    /* a folder that is read: no file of it may be written over */
};

struct cli_path {
    enum cli_path_kind kind;
    const char *flag; /* "--log": how messages name it */
    const char *path; /* borrowed; NULL: not given */
};

/* -EINVAL, with both flags and the path, where one of them is written and is also another one, or is a
 * file of a folder that is kept. Files are told apart by what they are, not by their names; one that is yet
 * to be made, by its folder and its name. Devices and pipes do not count. */
int cli_paths_check(const struct cli_path *paths, size_t count);

enum cli_path_shape {
    CLI_PATH_FILE,
    CLI_PATH_FILE_DEEP, /* folders above it are made where they are missing */
    CLI_PATH_FOLDER,    /* and those above it */
};

/* Whether it could be written, without making it: 0, or -errno with the flag and the path. NULL is fine. */
int cli_path_try(const char *flag, const char *path, enum cli_path_shape shape);

/* The folder that a model is to be written to. */
struct cli_out {
    const char *path;  /* of --out */
    const char *model; /* that is trained; NULL: none is */
    bool overwrite;
    bool resume;
    bool claimed; /* --out is: what a run left that was killed has been moved there */
};

/* Resolves ".", ".." and a symbolic link to the folder that they lead to: the model is made beside it. */
int cli_out_resolve(const char *path, char whole[PATH_MAX]);

/* -EEXIST, -ENOTDIR ... where --out cannot be used, before anything long begins. */
int cli_out_check(const struct cli_out *out);

/* Steps of the model in a folder, as the note beside it says (see model_folder_note), where none of its files
 * was changed since; 0: there is no such model. */
int64_t cli_out_steps(const char *path);

#endif
