/* model.h: a model as a list of blocks with their parameters, made from a config and its family's tables.
 * A block's parameters are in one flat array, each at a multiple of MODEL_ALIGN_ELEMENTS, with padding
 * between them that stays zero. Nothing here depends on the length of rows or on placement. Immutable once
 * created; any thread. */
#ifndef OFFLOAD_MODEL_MODEL_H
#define OFFLOAD_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/model/config.h"
#include "offload/model/family.h"

/* A block of 8-bit moments, so that an update may be cut between parameters with different settings. */
enum { MODEL_ALIGN_ELEMENTS = 256, MODEL_PARAMS_MAX = 16, MODEL_BLOCK_NAME_BYTES = 24 };

/* One tensor of the files: rows [first_row, first_row + rows) of a parameter. */
struct model_part {
    char *name;        /* owned by the model */
    const char *other; /* static: another name in files; NULL: none */
    int64_t first_row;
    int64_t rows;
};

struct model_param {
    enum model_role role;
    int64_t rows;
    int64_t cols;
    uint64_t offset;   /* elements, in the flat array of `owner` */
    uint64_t elements; /* rows * cols */
    unsigned owner;    /* block whose array holds it: its own; for a tied head the embedding */
    bool vector;       /* one dimension in files; cols is 1 */
    bool transposed;   /* the files hold [cols][rows] */
    bool decay;
    bool trained; /* false: frozen */
    unsigned part_count;
    struct model_part parts[MODEL_PARTS_MAX];
};

enum model_block_kind { MODEL_BLOCK_EMBEDDING, MODEL_BLOCK_LAYER, MODEL_BLOCK_HEAD };

struct model_block {
    char name[MODEL_BLOCK_NAME_BYTES]; /* "embedding", "layer 3", "head" */
    enum model_block_kind kind;
    int64_t layer;
    const struct model_block_table *table; /* static */
    struct model_param params[MODEL_PARAMS_MAX];
    unsigned param_count; /* a borrowed parameter comes last */
    uint64_t elements;    /* of the flat array, padding included */
    bool trained;         /* any of its own parameters is trained */
    int64_t window;
    double scale;
    unsigned like; /* the first block with the same programs, which may be this one */
};

struct model {
    struct model_config config;
    struct model_block *blocks; /* owned: embedding, layers, head */
    unsigned block_count;
    uint64_t parameters; /* elements without padding, tied ones once */
    uint64_t trained_parameters;
};

struct model_options {
    /* Parameters whose names in files match one of these shell patterns are frozen. A parameter
     * made of several tensors is frozen whole or not at all. */
    const char *const *frozen; /* borrowed during create; NULL: none */
    size_t frozen_count;
};

/* `options` may be NULL. */
int model_create(const struct model_config *config, const struct model_options *options,
                 struct model **out);
void model_destroy(struct model *model);

/* The block's parameter of a role; -1: none. */
int model_block_param(const struct model_block *block, enum model_role role);
/* "wte", "qkv", ...: for messages and listings. */
const char *model_role_name(enum model_role role);

/* Consecutive elements of a block's flat array that agree in `trained` and in `decay`. */
struct model_run {
    uint64_t begin;
    uint64_t end;
    bool decay;
    bool trained;
};
/* The run from element `at` to the end of the block or the next change of either property. Padding belongs
 * to the parameter before it. Runs in order cover the array. */
struct model_run model_block_run(const struct model_block *block, uint64_t at);

/* Whether no gradient is computed for element `at`: padding, or a frozen parameter. *end is where that
 * changes. */
bool model_block_gap(const struct model_block *block, uint64_t at, uint64_t *end);

#endif
