/* save.h: writes a model folder for transformers: shards with their index, config.json, and the
 * source folder's other files (tokenizer, generation settings). For adapters it writes a PEFT
 * folder: one file of trained fp32 tensors, and adapter_config.json. Files are created in
 * FOLDER.partial at full size, so that a full disk is usually detected at the beginning; finish
 * makes them durable and moves them to FOLDER. Threads may write disjoint ranges. */
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
    const char *source;    /* folder with config.json and other files to copy; NULL: none */
    enum model_dtype type; /* type of weights in files; without effect on adapters */
    uint64_t shard_bytes;  /* limit of a shard with several tensors; 0: 5 GB */
    bool replace;   /* replaces a model in FOLDER, which otherwise must be missing or empty */
    uint64_t run;   /* number of the run, for MODEL_NOTE (save_folder.h); 0: no note */
    uint64_t steps; /* steps that the run has taken */
    uint64_t base;  /* for adapters: the base's identity (files.h); 0: not known yet */
    const char *base_folder; /* for adapters: the base's folder; NULL: unknown */
    /* borrowed until close: claim on FOLDER (claim.h); NULL: none */
    struct model_claim *claim;
};

/* Creates the files in FOLDER.partial. */
int model_save_open(const struct model *model, const struct model_save_options *options,
                    struct model_save **out);

/* Writes elements [begin, begin + count) of a block's flat array. */
int model_save_put(struct model_save *save, unsigned block, uint64_t begin, uint64_t count,
                   enum model_dtype type, const void *from);

/* Makes files durable, reads the weights back from the drive (-EBADMSG if they differ) and moves
 * the files to FOLDER. Fails if elements are missing. If only the move fails, FOLDER.partial stays;
 * the message says whether the next claim on FOLDER moves or removes it. The caller still closes
 * the object. */
int model_save_finish(struct model_save *save);
/* Removes the files, unless finish has verified them. Accepts NULL. */
void model_save_close(struct model_save *save);

#endif
