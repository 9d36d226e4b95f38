/* manifest.h: the description of a checkpoint: run, step, parameters, blocks, and checksums of
 * files other than streams. The text ends in its own checksum. docs/checkpoint-format.md names
 * every key. A plain value, without locks. */
#ifndef OFFLOAD_STORE_MANIFEST_H
#define OFFLOAD_STORE_MANIFEST_H

#include <stddef.h>

#include "offload/store/image.h"

enum {
    /* A manifest has the lowest version with its features. 4: part of a checkpoint; 3: frozen
     * blocks are in the base model; 2: weights of some blocks have another type than the run; 1:
     * none of these */
    STORE_MANIFEST_VERSION = 4,
    STORE_PARAMETERS_MAX = 64,
    STORE_PARAMETER_BYTES = 64,
    STORE_FILES_MAX = 4096,
    STORE_FILE_NAME_BYTES = 256,
    STORE_APPLICATION_BYTES_MAX = 1 << 20,
    STORE_MANIFEST_BYTES_MAX = 256 << 20,
};

/* A parameter of the run, as text: {"beta1", "0.9"}. */
struct store_parameter {
    char name[STORE_PARAMETER_BYTES];
    char value[STORE_PARAMETER_BYTES];
};

/* Parameters of a run with adapters, from which a checkpoint is exported. */
#define STORE_LORA_ALPHA   "lora_alpha"
#define STORE_LORA_RSLORA  "lora_rslora"
#define STORE_LORA_DROPOUT "lora_dropout"

/* A file other than the streams: config.json, the tokenizer's. */
struct store_file {
    char name[STORE_FILE_NAME_BYTES];
    uint64_t bytes;
    uint64_t hash; /* XXH3-64 */
};

/* the loss scale of fp16 */
struct store_scale {
    double value;
    uint64_t steps;
    uint64_t last_overflow;
    uint32_t hysteresis_left;
};

/* A part of a checkpoint: the cuts of the `ranks` of one machine; other ranges of the files are
 * empty. A block's weights are divided among `weights_of` ranks, its other streams among
 * `states_of` (plan_shard_border); 1: each part has all cuts. */
enum { STORE_PART_RANKS = 64 };
struct store_part {
    uint64_t ranks; /* bit r: rank r. 0: this is a whole checkpoint */
    uint32_t states_of, weights_of;
};

struct store_manifest {
    uint64_t run;     /* the same number in all checkpoints of a run, even after resuming */
    uint64_t step;    /* steps done, including skipped ones */
    uint64_t updates; /* steps that were not skipped; of an application's optimizer: all steps */
    struct store_scale scale;
    struct store_parameter parameters[STORE_PARAMETERS_MAX];
    uint32_t parameter_count;
    struct plan_format format;
    char weight_dtype[8];        /* the run's type of weights (BLOCK_WEIGHTS_OF_RUN) */
    const struct blocks *blocks; /* borrowed from the run, or `parsed` */
    struct blocks *parsed;    /* owned: the parsed blocks; group and runs are not in a manifest */
    uint64_t base;            /* identity of the base model, with base_apart (blocks.h) */
    struct store_file *files; /* owned */
    uint32_t file_count;
    struct store_file sums; /* sums.safetensors */
    struct store_part part;
    void *application; /* owned: bytes of the application */
    size_t application_bytes;
};

int store_manifest_set_application(struct store_manifest *manifest, const void *bytes,
                                   size_t count);
/* Returns the value of a parameter; NULL: there is none. */
const char *store_manifest_parameter(const struct store_manifest *manifest, const char *name);

/* Prints the manifest; the caller frees the text. Returns -EFBIG if the text is too long to be
 * read. */
int store_manifest_print(const struct store_manifest *manifest, char **text, size_t *bytes);
/* Returns -EBADMSG if the text is not what was written, -ENOTSUP for another version, -EINVAL for
 * missing or impossible values; with a message that names `source`. */
int store_manifest_parse(const char *text, size_t bytes, const char *source,
                         struct store_manifest *out);
/* Returns -EBADMSG if the text's tensors are not those of `blocks`, the blocks of the model in
 * config.json. */
int store_manifest_check_tensors(const char *text, size_t bytes, const char *source,
                                 const struct blocks *blocks);
/* Accepts a zeroed struct. */
void store_manifest_fini(struct store_manifest *manifest);

#endif
