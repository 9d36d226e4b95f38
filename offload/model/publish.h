/* publish.h: gives a finished folder FOLDER.partial its name. A FOLDER that is there stays: the files
 * are moved into it one by one, so that nothing else in it (checkpoints, logs, files of the user) is ever
 * touched, and no more than a rename of files within one file system is needed. A list in FOLDER.partial
 * says that its files are complete; whoever is killed in between leaves it, and the next one goes on. */
#ifndef OFFLOAD_MODEL_PUBLISH_H
#define OFFLOAD_MODEL_PUBLISH_H

#include <stdbool.h>

/* The list, a file in FOLDER.partial: entries with a NUL after each, and one NUL more at its end. It says which
 * files are the result's and which files of FOLDER they replace, each with inode, size and time. */
#define MODEL_PUBLISH_LIST ".tide-publish"

/* Says that what is in FOLDER.partial is a run's. It is the last file that goes when a folder is emptied,
 * and no part of what is published. */
#define MODEL_CLAIM_MARK ".tide-partial"

/* 1, 0, or a code where it cannot be read. */
int model_folder_is_empty(const char *path);

/* Removes the files in a folder that was not published, but its mark; that and the folder, too. */
void model_folder_clear(const char *path);
void model_folder_remove(const char *path);

/* Whether the files in `path` can be moved into `folder`, if that is there: -EISDIR where it has a folder
 * of a file's name, -EACCES ... where it cannot be written. Changes nothing. */
int model_publish_check(const char *path, const char *folder);

/* Makes the folder `path`, open as `fd`, durable and gives it the name `folder`. Where that is there and not
 * empty it needs `replace` (-EEXIST without it): then files of the same names are replaced, and files
 * named as tide names weights ("model.safetensors", ...) are removed where the new folder has none of that
 * name. FOLDER has no config.json (a checkpoint no manifest.json) until all other files are there, so
 * that it is the old one, none, or the new one, and never a mixture. */
int model_folder_publish(const char *path, int fd, const char *folder, bool replace);

/* Says in `path` that its files are complete, so that model_publish_resume gives them the name `folder`. */
int model_publish_keep(const char *path, int fd, const char *folder);
bool model_publish_is_kept(int fd);

/* Goes on where another process was killed. 0: there is nothing to do; 1: it was published, and `path`
 * is gone. -EEXIST: files that were put into `folder` since then would be replaced; -ENOENT: files that
 * were moved there are gone. Then nothing is changed. */
int model_publish_resume(const char *path, int fd, const char *folder);

#endif
