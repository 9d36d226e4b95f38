/* paths.h: whether a command may write to the paths it was given. Checked before any file is
 * opened, because opening an output truncates it. The main thread. */
#ifndef TOOLS_TIDE_PATHS_H
#define TOOLS_TIDE_PATHS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum cli_path_kind {
    CLI_PATH_WRITTEN, /* an output: a file, or a folder for files */
    /* the output folder of a run; other outputs may be in it, but not in its checkpoints */
    CLI_PATH_MADE,
    CLI_PATH_READ, /* an input: a file or a pattern; "-" is standard input */
    CLI_PATH_KEPT, /* an input folder: no output may overwrite one of its files */
};

struct cli_path {
    enum cli_path_kind kind;
    const char *flag; /* the flag in messages: "--log" */
    const char *path; /* borrowed; NULL: not given */
};

/* Returns 0, or -errno with a message that names flags and paths. -EINVAL: an output is also
 * another output or an input, is a CLI_PATH_KEPT folder or one of its files, or has a name that the
 * run itself uses in its CLI_PATH_MADE folder. Existing files are compared by device and inode,
 * files to be created by folder and name. Devices and pipes are not checked. */
int cli_paths_check(const struct cli_path *paths, size_t count);

enum cli_path_shape {
    CLI_PATH_FILE,
    CLI_PATH_FILE_LAST, /* opened at the end of a run; the reader of a FIFO may be gone by then */
    CLI_PATH_FILE_DEEP, /* missing parent folders will be created */
    CLI_PATH_FOLDER,    /* a folder; missing parents will be created, too */
};

/* Returns 0 if `path` could be written, or -errno with a message; creates nothing. Refuses sockets
 * and block devices, and FIFOs as CLI_PATH_FILE_LAST. Does not find out whether a process reads a
 * FIFO. NULL is allowed. */
int cli_path_try(const char *flag, const char *path, enum cli_path_shape shape);

/* Returns whether two paths lead to the same file or folder, which may not exist yet. */
bool cli_path_is_same(const char *one, const char *other);

/* Paths as text, of at most PATH_MAX bytes. */

/* Writes the three parts one after the other. Returns 0, or -ENAMETOOLONG without a message. */
int cli_path_join(char *out, const char *one, const char *between, const char *other);
/* Cuts off the last name and writes it to `name`; leaves "." or "/" if nothing was before it. */
void cli_path_cut_name(char *path, char name[PATH_MAX]);
/* Removes slashes from the end, but keeps "/" itself. */
void cli_path_cut_slashes(char *path);

#endif
