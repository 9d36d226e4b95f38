/* paths.h: whether a command may write to its paths. Checked before files are opened, which would
 * truncate them. The main thread. */
#ifndef TOOLS_TIDE_PATHS_H
#define TOOLS_TIDE_PATHS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum cli_path_kind {
    CLI_PATH_WRITTEN, /* a file, or a folder for files */
    /* output folder of a run; may contain other outputs outside of checkpoints */
    CLI_PATH_MADE,
    CLI_PATH_READ, /* a file or a pattern; "-" is standard input */
    CLI_PATH_KEPT, /* an input folder, whose files no output may overwrite */
};

struct cli_path {
    enum cli_path_kind kind;
    const char *flag; /* "--log" */
    const char *path; /* borrowed; NULL: not given */
};

/* Returns 0 or -errno, naming flags and paths. -EINVAL: an output is another output or an input, is
 * a CLI_PATH_KEPT folder or one of its files, or has a name that the run uses in its CLI_PATH_MADE
 * folder. Compares device and inode, or folder and name of files to be created. Devices and pipes
 * are not checked. */
int cli_paths_check(const struct cli_path *paths, size_t count);

enum cli_path_shape {
    CLI_PATH_FILE,
    CLI_PATH_FILE_LAST, /* opened at the end of a run, when the reader of a FIFO may be gone */
    CLI_PATH_FILE_DEEP, /* missing parents are created */
    CLI_PATH_FOLDER,    /* a folder; missing parents are created */
};

/* Returns 0 if `path` could be written, or -errno; creates nothing. Refuses "-", sockets, block
 * devices, and FIFOs as CLI_PATH_FILE_LAST. Does not look for readers of a FIFO. NULL is
 * allowed. */
int cli_path_try(const char *flag, const char *path, enum cli_path_shape shape);

/* Returns whether two paths lead to one file or folder, which need not exist. */
bool cli_path_is_same(const char *one, const char *other);

/* Paths of at most PATH_MAX bytes. */

/* Writes the three parts. Returns 0, or -ENAMETOOLONG without a message. */
int cli_path_join(char *out, const char *one, const char *between, const char *other);
/* Moves the last name to `name`; leaves "." or "/" if nothing is before it. */
void cli_path_cut_name(char *path, char name[PATH_MAX]);
/* Removes final slashes; keeps "/". */
void cli_path_cut_slashes(char *path);

#endif
