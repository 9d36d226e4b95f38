/* manifest.h: what a checkpoint says about itself: which run and step, what the run was made with, the
 * blocks of the model, and the sums that everything else is checked by. Its own text ends in its sum.
 * docs/checkpoint-format.md names every key. A value; no thread. */
#ifndef OFFLOAD_STORE_MANIFEST_H
#define OFFLOAD_STORE_MANIFEST_H

#include <stddef.h>

#include "offload/model/model.h"
#include "offload/store/image.h"

enum {
    STORE_MANIFEST_VERSION = 1,
    STORE_PARAMETERS_MAX = 64,
    STORE_PARAMETER_BYTES = 64,
    STORE_FILES_MAX = 4096,
    STORE_FILE_NAME_BYTES = 256,
    STORE_APPLICATION_BYTES_MAX = 1 << 20,
    STORE_MANIFEST_BYTES_MAX = 64 << 20,
};

/* Something a run was made with, in text: {"beta1", "0.9"}. */
struct store_parameter {
    char name[STORE_PARAMETER_BYTES];
    char value[STORE_PARAMETER_BYTES];
};

/* A file besides those of the streams: config.json, the tokenizer's. */
struct store_file {
    char name[STORE_FILE_NAME_BYTES];
    uint64_t bytes;
    uint64_t hash; /* XXH3-64 */
};

/* fp16's loss scale. */
struct store_scale {
    double value;
    uint64_t steps;
    uint64_t last_overflow;
    uint32_t hysteresis_left;
};

struct store_manifest {
    uint64_t run;     /* the same for all checkpoints of a run, resumed or not */
    uint64_t step;    /* steps done, skipped ones too */
    uint64_t updates; /* skipped ones not counted */
    struct store_scale scale;
    struct store_parameter parameters[STORE_PARAMETERS_MAX];
    uint32_t parameter_count;
    char family[32];
    uint64_t model_hash; /* store_manifest_model_hash */
    struct plan_format format;
    char weight_dtype[8];
    struct store_image_block *blocks; /* owned */
    uint32_t block_count;
    struct store_file *files; /* owned */
    uint32_t file_count;
    struct store_file sums; /* sums.safetensors */
    void *application;      /* owned: bytes of the application's own */
    size_t application_bytes;
};

/* Of names, shapes, places and what is frozen. */
uint64_t store_manifest_model_hash(const struct model *model);
/* Fills family, hash and blocks from a model. */
int store_manifest_set_model(struct store_manifest *manifest, const struct model *model);
int store_manifest_set_application(struct store_manifest *manifest, const void *bytes,
                                   size_t count);
/* The value of a parameter; NULL where it is not there. */
const char *store_manifest_parameter(const struct store_manifest *manifest, const char *name);

/* The text; the caller's to free. `model` for the table of its tensors. */
int store_manifest_print(const struct store_manifest *manifest, const struct model *model,
                         char **text, size_t *bytes);
/* -EBADMSG where the text is not what was written, -ENOTSUP for another version, -EINVAL for what
 * means nothing; each with a sentence that names `source`. */
int store_manifest_parse(const char *text, size_t bytes, const char *source,
                         struct store_manifest *out);
/* -EBADMSG where the table of tensors in the text is not that of `model`, also under a sum that fits. */
int store_manifest_check_tensors(const char *text, size_t bytes, const char *source,
                                 const struct model *model);
/* A zeroed one is fine. */
void store_manifest_fini(struct store_manifest *manifest);

#endif
