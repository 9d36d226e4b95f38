/* publish.h: gives a finished folder FOLDER.partial its name. An existing FOLDER stays: files are
 * moved into it one by one, so that nothing else in it (checkpoints, logs, the user's files) is
 * touched, and only renames within one file system are needed. A list in FOLDER.partial says that
 * its files are complete; if a process is killed in between, the next one continues with the
 * list. */
#ifndef OFFLOAD_MODEL_PUBLISH_H
#define OFFLOAD_MODEL_PUBLISH_H

#include <stdbool.h>

/* The file that makes a folder a checkpoint; it is moved last, and removed first when a folder is
 * emptied. */
#define MODEL_MANIFEST_NAME "manifest.json"

/* The list, a file in FOLDER.partial: entries with a NUL after each, and one NUL more at its end.
 * It names the files of the result and the files of FOLDER that will be replaced or removed, each
 * with inode, size and time. */
#define MODEL_PUBLISH_LIST ".tide-publish"

/* The mark: says that the files in FOLDER.partial belong to a run. It is removed last when a folder
 * is emptied, and is not published. */
#define MODEL_CLAIM_MARK ".tide-partial"

/* Returns 1 if the folder is empty, 0 if not, or -errno if it cannot be read. */
int model_folder_is_empty(const char *path);

/* Returns the length of a folder's path without trailing slashes: "out/" is the same folder as
 * "out". */
int model_folder_length(const char *folder);

/* Empty a folder that was not published: clear removes all files but its mark; remove removes all
 * files and then the folder, which stays if it has a folder in it. */
void model_folder_clear(const char *path);
void model_folder_remove(const char *path);

/* Returns 0 if the files in `path` can be moved into `folder` or `folder` does not exist, -EISDIR
 * if `folder` has a folder with a file's name, or another -errno, such as -EACCES, if `folder` is
 * not writable. Changes nothing. */
int model_publish_check(const char *path, const char *folder);

/* Makes the folder `path`, open as `fd`, durable and gives it the name `folder`. If FOLDER exists
 * and is not empty, this needs `replace` (-EEXIST without it): files of the same names are
 * replaced. If `path` has a model or adapters, FOLDER loses its files with names of either
 * ("config.json", "model.safetensors", "adapter_config.json", ...) for which `path` has no file.
 * FOLDER has no config.json (adapters: no adapter_config.json; a checkpoint: no manifest.json)
 * until all other files are there, so FOLDER is the old one, none, or the new one, and never a
 * mixture. */
int model_folder_publish(const char *path, int fd, const char *folder, bool replace);

/* Writes the list of the files of the result into `path`, so that model_publish_resume can move its
 * files to `folder`. */
int model_publish_keep(const char *path, int fd, const char *folder);
/* Returns whether the folder open as `fd` has such a list. */
bool model_publish_is_kept(int fd);

/* Finishes what a killed process began. Returns 0 if there is nothing to do, or 1 if the result was
 * published and `path` removed. Returns -EEXIST if files that were put into `folder` since then
 * would be replaced; -ENOENT if a file of the result is missing or changed. These two errors change
 * nothing. */
int model_publish_resume(const char *path, int fd, const char *folder);

#endif
