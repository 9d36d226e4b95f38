/* save_folder.h: makes the folder of a model or checkpoint under another name, and fills it with
 * the small files; publish.h names it. For offload/model and offload/store. */
#ifndef OFFLOAD_MODEL_SAVE_FOLDER_H
#define OFFLOAD_MODEL_SAVE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/model/dtype.h"

struct model_claim;
struct model_config;

/* Makes FOLDER.partial, empty but for its mark, locked and open. Uses `claim` (may be NULL) if it
 * is a valid claim on FOLDER; *own then has no lock. Refuses a FOLDER that is a file or a link,
 * ends in "." or "..", or is not empty and may not be replaced. Fails like model_claim_take(),
 * too. */
int model_folder_begin(const char *folder, bool replace, struct model_claim *claim,
                       struct model_claim *own);

/* A folder that is being filled. */
struct model_folder {
    const char *path; /* borrowed */
    int fd;
};

/* Copies the files of `source`, except weights, config.json, adapter_config.json, a checkpoint's
 * manifest and hidden files. With `config`, writes the source's config.json with `type` and
 * config->tied. */
int model_folder_copy(const struct model_folder *folder, const char *source,
                      const struct model_config *config, enum model_dtype type);

/* Writes a small file durably and reads it back. Returns -EBADMSG if the drive returned other
 * bytes. */
int model_folder_write(const struct model_folder *folder, const char *name, const char *text,
                       size_t bytes);

#define MODEL_NOTE ".tide-model"

/* A file with a known sum (core_file_sum). */
struct model_sum {
    const char *name; /* borrowed */
    uint64_t sum;
};

struct model_note {
    uint64_t run;
    uint64_t steps;
    const struct model_sum *sums; /* borrowed; other files' sums are computed */
    size_t sum_count;
};

/* Writes MODEL_NOTE, after all other files: a line `tide-model 2 RUN STEPS` (run in hex), then a
 * line for each regular file, except hidden ones and names with a newline: size, time of change
 * (`seconds.nanoseconds`), sum (in hex), name. A file with neither this time nor this sum was
 * changed since. Version 1 had no sums. */
int model_folder_note(const struct model_folder *folder, const struct model_note *note);

/* Sets the message for a file of `bytes` that could not be written, and returns `code`. On a full
 * disk it names the space needed and free. */
int model_folder_failed(const struct model_folder *folder, const char *name, int code,
                        uint64_t bytes);

#endif
