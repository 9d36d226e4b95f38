/* save.h: writes a model folder that transformers and safetensors load: shards of weights with
 * their index, config.json with the type of the weights that are there, and every other file of the
 * folder that the model came from (tokenizer, generation settings).
 * Everything goes to FOLDER.partial, at full size from the start, so that a disk that is too small
 * is found at the beginning; finish makes it durable and renames it to FOLDER. Putting is
 * thread-safe for ranges that do not overlap. */
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
    const char *folder;    /* to be made */
    const char *source;    /* folder whose other files are copied; NULL: none */
    enum model_dtype type; /* of the weights in the files */
    uint64_t shard_bytes;  /* a shard ends before it would be larger; 0: 5 GB */
    bool replace;          /* a FOLDER that exists is replaced; else it is an error */
    uint64_t run;          /* number of the run whose model it is, noted beside it; 0: of none */
    uint64_t steps;        /* that the run had made */
    /* On FOLDER, which no other process writes until it is dropped (claim.h); NULL: none is held. */
    const struct model_claim *claim;
};

/* -EEXIST, -ENOSPC, ...: the sentence names the file. */
int model_save_open(const struct model *model, const struct model_save_options *options,
                    struct model_save **out);

/* Elements [begin, begin + count) of a block's flat array, of type `type`. */
int model_save_put(struct model_save *save, unsigned block, uint64_t begin, uint64_t count,
                   enum model_dtype type, const void *from);

/* Makes everything durable, reads the weights back from the drive (-EBADMSG where they are not what was put)
 * and gives the folder its name; -EINVAL where elements are missing. Where only the last fails, FOLDER.partial
 * stays, complete, and the next claim on FOLDER moves it there. The object stays the caller's to close. */
int model_save_finish(struct model_save *save);
/* Without finish before it, what was written is removed. NULL is fine. */
void model_save_close(struct model_save *save);

/* Bytes of all files that the weights will take. */
uint64_t model_save_bytes(const struct model_save *save);

#endif
