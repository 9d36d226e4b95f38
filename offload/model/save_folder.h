/* save_folder.h: the folder around the weights, private to save.c and to checkpoints: begun under
 * another name, filled with what belongs beside the weights, and given its name at the end. */
#ifndef OFFLOAD_MODEL_SAVE_FOLDER_H
#define OFFLOAD_MODEL_SAVE_FOLDER_H

#include <stdbool.h>

#include "offload/model/dtype.h"

struct model_claim;
struct model_family;

/* 1, 0, or a code where it cannot be read. */
int model_folder_is_empty(const char *path);

/* FOLDER.partial without a file in it but its mark, locked and open. `claim`, which may be NULL, is one on it where
 * it holds. *path is the caller's to free. 0, -EEXIST where FOLDER is there, not
 * empty, and may not be replaced, or where FOLDER.partial is not a run's, -ENOTDIR where it is no folder,
 * -EINVAL where it is a link or ends in a dot, or -EBUSY where another process writes it. */
int model_folder_begin(const char *folder, bool replace, const struct model_claim *claim,
                       char **path, int *fd);

/* Copies what is neither weights nor config.json from `source`, and writes config.json with `type`
 * as the type of the weights. */
int model_folder_copy(int fd, const char *source, const struct model_family *family,
                      enum model_dtype type);

/* Writes a small file durably. */
int model_folder_write(int fd, const char *name, const char *text, size_t bytes);

/* Makes the folder durable, renames it and takes its mark away. */
int model_folder_publish(const char *path, int fd, const char *folder, bool replace);

/* Removes the files in a folder that was not published, but its mark; that and the folder, too. */
void model_folder_clear(const char *path);
void model_folder_remove(const char *path);

#endif
