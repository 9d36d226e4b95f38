/* model.h: a model as a row of blocks with their parameters: what a config means for a family's
 * tables. A block's parameters lie in one flat array, each at a multiple of MODEL_ALIGN_ELEMENTS;
 * what is between them is padding that stays zero. Nothing here depends on the length of rows or on
 * where anything lies. Immutable once created; any thread. */
#ifndef OFFLOAD_MODEL_MODEL_H
#define OFFLOAD_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/model/config.h"
#include "offload/model/family.h"

/* A group of 8-bit moments, so that an update may be cut where one parameter is trained otherwise
 * than the next. */
enum { MODEL_ALIGN_ELEMENTS = 256, MODEL_PARAMS_MAX = 16, MODEL_BLOCK_NAME_BYTES = 24 };

/* One tensor of the files: rows [first_row, first_row + rows) of a parameter. */
struct model_part {
    char *name;        /* owned by the model */
    const char *other; /* static: a name that files may have instead; NULL: none */
    int64_t first_row;
    int64_t rows;
};

struct model_param {
    enum model_role role;
    int64_t rows;
    int64_t cols;
    uint64_t offset;   /* elements, in the flat array of `owner` */
    uint64_t elements; /* rows * cols */
    unsigned owner;    /* block whose array holds it: its own, or for a tied head the embedding's */
    bool vector;       /* one dimension in files; cols is 1. A matrix may have one column, too */
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
    unsigned param_count; /* a borrowed one comes last */
    uint64_t elements;    /* of the flat array, padding included */
    bool trained;         /* any parameter of its own is */
    int64_t window;
    double scale;
    unsigned like; /* the first block with the same programs; itself where it is the first */
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

/* The block's parameter of a role; -1 where it has none. */
int model_block_param(const struct model_block *block, enum model_role role);
/* "wte", "qkv", ...: for messages and listings. */
const char *model_role_name(enum model_role role);

/* A run of elements of a block's flat array to which weight decay applies alike. */
struct model_run {
    uint64_t begin;
    uint64_t end;
    bool decay;
    bool trained;
};
/* The run that holds element `at` and ends where the block does or either property changes;
 * padding goes with what is in front of it. Runs in order cover the array. */
struct model_run model_block_run(const struct model_block *block, uint64_t at);

/* Whether element `at` begins a run whose gradient nobody computes (padding, a frozen parameter);
 * *end is where that property changes. */
bool model_block_gap(const struct model_block *block, uint64_t at, uint64_t *end);

#endif
