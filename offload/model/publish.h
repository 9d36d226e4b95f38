/* publish.h: gives a finished FOLDER.partial its name. Files are renamed one by one into an
 * existing FOLDER. A list in FOLDER.partial says that its files are complete; after a kill, the
 * next process continues with the list. */
#ifndef OFFLOAD_MODEL_PUBLISH_H
#define OFFLOAD_MODEL_PUBLISH_H

#include <stdbool.h>

/* The file that makes a folder a checkpoint; moved last, removed first. */
#define MODEL_MANIFEST_NAME "manifest.json"

/* The list in FOLDER.partial: the files of the result, and those of FOLDER to be replaced or
 * removed, with inode, size and time. Each entry ends with a NUL, and the list with one more. */
#define MODEL_PUBLISH_LIST ".tide-publish"

/* The mark: the files in FOLDER.partial belong to a run. It is removed last, and is no part of the
 * result. */
#define MODEL_CLAIM_MARK ".tide-partial"

/* Returns 1 if the folder is empty, 0 if not, or -errno if it cannot be read. */
int model_folder_is_empty(const char *path);

/* Returns a path's length without trailing slashes: "out/" is "out". */
int model_folder_length(const char *folder);

/* Empty an unpublished folder: clear keeps the mark; remove also removes the folder, unless a
 * folder is in it. */
void model_folder_clear(const char *path);
void model_folder_remove(const char *path);

/* Checks that the files in `path` can be moved into `folder`, if that exists. Changes nothing. */
int model_publish_check(const char *path, const char *folder);

/* Makes the folder `path`, open as `fd`, durable and names it `folder`. A FOLDER that is not empty
 * needs `replace` (-EEXIST without it); its files of equal names are replaced. If `path` has a
 * model or adapters, FOLDER also loses its other model files ("config.json", "model.safetensors",
 * "adapter_config.json", ...). The config.json (adapters: adapter_config.json; a checkpoint:
 * manifest.json) is missing until the other files are there, so that programs do not load a mixture
 * of old and new files. */
int model_folder_publish(const char *path, int fd, const char *folder, bool replace);

/* Writes the list of the result's files into `path`, for model_publish_resume. */
int model_publish_keep(const char *path, int fd, const char *folder);
/* Returns whether the folder open as `fd` has a list. */
bool model_publish_is_kept(int fd);

/* Finishes what a stopped process began. Returns 0 if there was nothing to do, 1 if the result was
 * published and `path` removed. Changes nothing and returns -EEXIST if newer files in `folder`
 * would be replaced, or -ENOENT if the result is incomplete because files are missing or
 * changed. */
int model_publish_resume(const char *path, int fd, const char *folder);

#endif
