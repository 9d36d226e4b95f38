/* save_folder.h: the folder around the weights, private to save.c and to checkpoints: begun under
 * another name and filled with what belongs beside the weights; publish.h gives it its name. */
#ifndef OFFLOAD_MODEL_SAVE_FOLDER_H
#define OFFLOAD_MODEL_SAVE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/model/dtype.h"

/* The file that makes a folder a checkpoint; it is moved last and removed first. */
#define MODEL_MANIFEST_NAME "manifest.json"

struct model_claim;
struct model_config;

/* FOLDER.partial without a file in it but its mark, locked and open. `claim`, which may be NULL, is one on it where
 * it holds. *path is the caller's to free. 0, -EEXIST where FOLDER is there, not
 * empty, and may not be replaced, or where FOLDER.partial is not a run's, -ENOTDIR where it is no folder,
 * -EINVAL where it is a link or ends in a dot, or -EBUSY where another process writes it. */
int model_folder_begin(const char *folder, bool replace, const struct model_claim *claim,
                       char **path, int *fd);

/* A folder that is begun, for those that put files into it. */
struct model_folder {
    const char *path; /* borrowed */
    int fd;
};

/* Copies what is neither weights nor config.json from `source`, and writes config.json with `type`
 * as the type of the weights and with `tie_word_embeddings` as the model has it. */
int model_folder_copy(const struct model_folder *folder, const char *source,
                      const struct model_config *config, enum model_dtype type);

/* Writes a small file durably, and reads it back from the drive: -EBADMSG where that gives other bytes. */
int model_folder_write(const struct model_folder *folder, const char *name, const char *text,
                       size_t bytes);

#define MODEL_NOTE ".tide-model"

/* A file whose sum (core_file_sum) is known. */
struct model_sum {
    const char *name; /* borrowed */
    uint64_t sum;
};

struct model_note {
    uint64_t run;
    uint64_t steps;
    const struct model_sum *sums; /* borrowed; of other files the sum is read */
    size_t sum_count;
};

/* Notes in MODEL_NOTE whose model it is and after how many steps: a line `tide-model 2 RUN STEPS` (the run
 * in hex), then size, time of change (`seconds.nanoseconds`), sum (in hex) and name of each file of the folder,
 * a line each. A file that has neither this time nor this sum was changed or replaced by somebody else. Written
 * when all others are. Version 1 had no sums. */
int model_folder_note(const struct model_folder *folder, const struct model_note *note);

/* Sets the sentence for a file of `bytes` that could not be written, and returns `code`; where the disk is
 * full it has what is needed and what is free. */
int model_folder_failed(const struct model_folder *folder, const char *name, int code,
                        uint64_t bytes);

#endif
