/* inspect.h: what a model folder, a safetensors file, a checkpoint or a store contains, and whether
 * it is complete. The rules of tide.h apply. */
#ifndef TIDE_INSPECT_H
#define TIDE_INSPECT_H

#include <stddef.h>
#include <stdint.h>
#include <tide/tide.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tide_inspected {
    TIDE_MODEL_FOLDER,   /* config.json and weights */
    TIDE_SAFETENSORS,    /* a single file */
    TIDE_CHECKPOINT,     /* a run's weights and optimizer states */
    TIDE_STORE_FOLDER,   /* a directory with a run's store or kept bases, or an empty one */
    TIDE_OTHER_FOLDER,   /* none of these; `problem` says more */
    TIDE_BLOCKS_FOLDER,  /* a directory with a block store's files (blocks.h), or its parent */
    TIDE_ADAPTER_FOLDER, /* a PEFT folder: adapter_config.json and adapter_model.safetensors */
    TIDE_BASE_FILE,      /* a base in 8 or 4 bits, kept beside a run's store */
};

/* Where a member does not apply, it is 0 or empty: a single file has no family. */
struct tide_inspection {
    size_t struct_bytes;
    uint32_t what;     /* enum tide_inspected */
    uint32_t verified; /* 1: files are consistent, and no tensor of the model is missing */
    char problem[512]; /* why `verified` is 0 */
    char family[32];   /* "llama" */
    char dtype[32];    /* as config.json names it: "bfloat16"; of a quantised folder
                        * "nf4+bfloat16" */
    uint64_t files;    /* safetensors files; of a store or a block store: extent files */
    uint64_t tensors;  /* of a checkpoint: those of all its streams */
    uint64_t bytes;    /* of all tensors; of a store, block store or base: of its files */

    /* A model. */
    uint64_t parameters; /* an embedding tied to the head counts once */
    int64_t vocab;
    int64_t hidden;
    int64_t layers;
    int64_t heads;
    int64_t kv_heads;
    int64_t head_dim;
    int64_t inner; /* width of the MLP */
    int64_t positions;
    uint64_t tied; /* 1: the head uses the embedding's weights */

    /* A checkpoint. */
    uint64_t step;    /* steps done */
    uint64_t updates; /* steps that were not skipped; after tide_optim_save: all steps */
    char optimizer[16];
    char precision[16]; /* "bf16"; several as "bf16+fp32". Also of a base file: "nf4+bf16" */

    /* Only for a checkpoint, a store or a block store. */
    /* number of the run, the same in its checkpoints; of a store or a block store: a number of the
     * process that made the files */
    uint64_t run;

    /* Only for a store or a block store. */
    uint64_t process; /* id of the process that made the files */
    uint64_t in_use;  /* 1: a process uses the files; 0: only the files remain */
    uint32_t path;    /* index of this directory among the run's stores */
    uint32_t paths;   /* number of the run's stores */

    /* Defects that training accepts with a warning, separated by "; ": surplus tensors, a separate
     * head. Of a base file: its model. Of a directory with only kept bases: how many, incomplete
     * ones included. */
    char note[512];

    /* An adapter. */
    uint64_t rank;
    double alpha;
    uint64_t rslora;  /* 1: its scale is alpha / sqrt(rank), not alpha / rank */
    uint64_t dora;    /* 1: rows have magnitudes */
    uint64_t adapted; /* tensors of the base model with low-rank adapters */
    uint64_t saved;   /* tensors that replace those of the base model */
};

/* One tensor; valid with all that it points to during the callback that receives it. */
struct tide_tensor {
    size_t struct_bytes;
    const char *name;
    const char *file;
    const char *dtype;     /* "BF16" */
    const uint64_t *shape; /* `dimensions` sizes */
    uint64_t dimensions;
    uint64_t bytes;
};

struct tide_inspect_options {
    size_t struct_bytes;
    /* Receives tensors on the calling thread, in the order of the files. Must not call a tide
     * function. NULL: tensors are not reported. */
    void (*tensor)(void *user, const struct tide_tensor *tensor);
    void *user; /* passed to the callback */
};

/* Inspects a path. `options` may be NULL.
 * - A model, an adapter or a safetensors file: reads only headers and JSON files.
 * - A checkpoint: reads all its data and compares checksums, with progress as "verify".
 * - A base file: reads it completely.
 * - A store or a block store: reads headers and sizes of its files, even if the path names one of
 *   them. Contents are not verified, because their checksums are in the memory of the process that
 *   uses the store; the process is not disturbed.
 * Warnings that a run would log are only in `note`. Returns 0 even if contents are damaged or
 * incomplete: then `verified` is 0 and `problem` says why. -EINVAL: the path is neither a folder
 * nor a file of these kinds. */
TIDE_API int tide_inspect(struct tide_context *context, const char *path,
                          const struct tide_inspect_options *options, struct tide_inspection *out);

#ifdef __cplusplus
}
#endif

#endif
