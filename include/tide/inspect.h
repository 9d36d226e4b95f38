/* inspect.h: what is in a model folder, a safetensors file, a checkpoint or a store, and whether it fits
 * together. C17 and C++; the rules of tide.h hold. */
#ifndef TIDE_INSPECT_H
#define TIDE_INSPECT_H

#include <stddef.h>
#include <stdint.h>
#include <tide/tide.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tide_inspected {
    TIDE_MODEL_FOLDER, /* config.json and weights */
    TIDE_SAFETENSORS,  /* one file */
    TIDE_CHECKPOINT,   /* of a run: weights and optimizer states */
    TIDE_STORE_FOLDER, /* a directory given as a store, with what a run has in it or left there */
    TIDE_OTHER_FOLDER, /* none of these, as the problem says */
};

/* Sizes are 0 and texts empty where the path has no such thing (a file alone has no family). */
struct tide_inspection {
    size_t struct_bytes;
    uint32_t what;     /* enum tide_inspected */
    uint32_t verified; /* 1: the files hold together, and the model has all its tensors */
    char problem[512]; /* what is wrong, where `verified` is 0 */
    char family[32];   /* "llama" */
    char dtype[32];    /* of the weights, as config.json says: "bfloat16" */
    uint64_t files;    /* of weights; of a store: extent files */
    uint64_t tensors;
    uint64_t bytes; /* of all tensors; of a store: of its files */
    /* Of a model. */
    uint64_t parameters; /* a tied table counts once */
    int64_t vocab;
    int64_t hidden;
    int64_t layers;
    int64_t heads;
    int64_t kv_heads;
    int64_t head_dim;
    int64_t inner;
    int64_t positions;
    uint32_t tied;
    /* Of a checkpoint; `tensors` and `bytes` are those of all its streams. */
    uint64_t step;
    uint64_t updates; /* steps but for the skipped ones */
    char optimizer[16];
    char precision[16];
    /* Of a checkpoint and of a store: the number of the run, the same in both. */
    uint64_t run;
    /* Of a store. */
    uint64_t process; /* that made it, by the number it had */
    uint32_t
        in_use;     /* 1: a running process has it; 0: what is there was left by one that is gone */
    uint32_t path;  /* which of its run's --store this is, from 0 */
    uint32_t paths; /* and how many these are */
};

/* The strings live during the call that hands it over. */
struct tide_tensor {
    size_t struct_bytes;
    const char *name;
    const char *file;
    const char *dtype; /* "BF16" */
    uint32_t dimensions;
    uint64_t shape[8];
    uint64_t bytes;
};

struct tide_inspect_options {
    size_t struct_bytes;
    /* Gets each tensor on the calling thread, in the order of the files; NULL: not wanted. It must
     * not call tide. */
    void (*tensor)(void *user, const struct tide_tensor *tensor);
    void *user;
};

/* Looks at headers and config.json; weights are not read. A checkpoint is read whole and compared with
 * its checksums, reporting progress as "verify". Of a store the headers and sizes of its files are
 * looked at (the checksums of what is in them are in the memory of the run alone), and a run that has it
 * does not notice. What can be opened but does not hold
 * together is no error: `verified` is 0 and `problem` says why. -ENOENT, -EACCES ... for a path that
 * cannot be read; -EINVAL for one that is neither. `options` may be NULL. */
TIDE_API int tide_inspect(struct tide_context *context, const char *path,
                          const struct tide_inspect_options *options, struct tide_inspection *out);

#ifdef __cplusplus
}
#endif

#endif
