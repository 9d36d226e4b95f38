/* inspect.h: what a model folder, a safetensors file, a checkpoint or a store contains, and
 * whether it is complete. C17 and C++11; the rules of tide.h apply. */
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
    TIDE_STORE_FOLDER,   /* a directory with a run's store or with kept bases, or an empty one */
    TIDE_OTHER_FOLDER,   /* none of these; `problem` says what was looked for */
    TIDE_BLOCKS_FOLDER,  /* a directory with the files of a block store (blocks.h), or its parent */
    TIDE_ADAPTER_FOLDER, /* a PEFT folder: adapter_config.json and adapter_model.safetensors */
    TIDE_BASE_FILE,      /* a base in 8 or 4 bits that a run kept beside its store */
};

/* A number is 0 and a text is empty where it does not apply: a single file has no family. */
struct tide_inspection {
    size_t struct_bytes;
    uint32_t what;     /* enum tide_inspected */
    uint32_t verified; /* 1: all files are consistent and the model has all its tensors */
    char problem[512]; /* why `verified` is 0 */
    char family[32];   /* "llama" */
    char dtype[32];    /* type of the weights, as config.json names it: "bfloat16"; of a quantised
                        * folder "nf4+bfloat16" */
    uint64_t files;    /* files with weights; of a store or a block store: extent files */
    uint64_t tensors;  /* number of tensors; of a checkpoint: those of all its streams */
    uint64_t bytes;    /* size of all tensors; of a store: of its files */

    /* A model. */
    uint64_t parameters; /* an embedding that is tied to the head counts once */
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
    uint64_t updates; /* steps that were not skipped */
    char optimizer[16];
    char precision[16]; /* "bf16"; several as "bf16+fp32". Also of a base file: "nf4+bf16" */

    /* Only for a checkpoint, a store or a block store. */
    uint64_t run; /* number of the run, which its checkpoints and its store share; of a block store:
                   * its own number */

    /* Only for a store or a block store. */
    uint64_t process; /* process id of the run that made it */
    uint64_t in_use;  /* 1: that run is still alive; 0: the run is gone, its files remain */
    uint32_t path;    /* index of this directory among the run's stores */
    uint32_t paths;   /* number of the run's stores */

    /* Defects that training warns about and accepts: surplus tensors, a separate head; several are
     * separated by "; ". Of a base file: the model that it was made from. Of a directory with kept
     * bases and no run's files: how many bases it has, incomplete ones included. */
    char note[512];

    /* An adapter. */
    uint64_t rank;
    double alpha;
    uint64_t rslora;  /* 1: its scale is alpha / sqrt(rank), not alpha / rank */
    uint64_t dora;    /* 1: rows have magnitudes */
    uint64_t adapted; /* tensors of the base model that have low-rank adapters */
    uint64_t saved;   /* tensors that replace those of the base model */
};

/* One tensor. It and everything it points to are valid during the callback that receives it. */
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
    /* Receives each tensor on the calling thread, in the order of the files. It must not call a
     * tide function. NULL: tensors are not reported. */
    void (*tensor)(void *user, const struct tide_tensor *tensor);
    void *user; /* passed to the callback */
};

/* Inspects a path. Of a model, an adapter or a safetensors file only the headers and the JSON files
 * are read. A checkpoint is read completely and compared with its checksums; progress is reported
 * as "verify". A base file is read completely, too. Of a store or a block store the headers and the
 * sizes of its files are read, even if the path names one of its files. A process that uses the
 * store is not disturbed. The contents are not verified, because their checksums exist only in the
 * memory of that process. `options` may be NULL.
 * Warnings that a run would log are in `note`, and are not logged.
 * Returns 0 even if the contents are damaged or incomplete: then `verified` is 0 and `problem` says
 * why. Returns -EINVAL for a path that is neither a folder nor a file, or for a file of none of
 * these kinds; -ECANCELED; or the error of reading the path (-ENOENT, -EACCES ...). */
TIDE_API int tide_inspect(struct tide_context *context, const char *path,
                          const struct tide_inspect_options *options, struct tide_inspection *out);

#ifdef __cplusplus
}
#endif

#endif
