/* save.h: writes a model folder for transformers and safetensors: shards of weights with their
 * index, config.json with the type of the weights, and the other files of the folder that the model
 * came from (tokenizer, generation settings). For a model with adapters it writes a PEFT folder:
 * one file with the trained tensors, in fp32, and adapter_config.json instead of config.json. Files
 * are created in FOLDER.partial at full size, so that a full disk is detected at the beginning;
 * finish makes them durable and moves them to FOLDER. Threads may write ranges that do not
 * overlap. */
#ifndef OFFLOAD_MODEL_SAVE_H
#define OFFLOAD_MODEL_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/model/dtype.h"
#include "offload/model/model.h"

struct model_claim;
struct model_save;

struct model_save_options {
    const char *folder;    /* the result */
    const char *source;    /* folder whose other files are copied; NULL: none */
    enum model_dtype type; /* type of the weights in the files; without effect on adapters */
    uint64_t shard_bytes;  /* maximum size of a shard with several tensors; 0: 5 GB */
    bool replace;   /* a model in FOLDER is replaced; otherwise FOLDER must be missing or empty */
    uint64_t run;   /* number of the run, written beside the model; 0: none */
    uint64_t steps; /* number of steps that the run has taken */
    uint64_t base;  /* for adapters: identity of the base model (files.h); 0: not known yet */
    const char *base_folder; /* for adapters: the folder of the base model; NULL: unknown */
    /* borrowed until close: the caller's claim on FOLDER (claim.h); NULL: none */
    struct model_claim *claim;
};

/* Creates the files. Returns -EEXIST, -ENOSPC or another -errno, with a message that names the
 * file. */
int model_save_open(const struct model *model, const struct model_save_options *options,
                    struct model_save **out);

/* Writes elements [begin, begin + count) of a block's flat array, of type `type`. */
int model_save_put(struct model_save *save, unsigned block, uint64_t begin, uint64_t count,
                   enum model_dtype type, const void *from);

/* Makes all files durable, reads the weights back from the drive (-EBADMSG if they differ) and
 * moves the files to FOLDER. Returns -EINVAL if elements are missing. If only the move fails,
 * FOLDER.partial stays, complete, and the next claim on FOLDER moves it. After -EEXIST, or if the
 * list of its files could not be written, that claim removes it instead, and the message says so.
 * The caller still closes the object. */
int model_save_finish(struct model_save *save);
/* Removes the written files, unless finish has verified all of them. Accepts NULL. */
void model_save_close(struct model_save *save);

#endif
