/* model.h: a model as a list of blocks, made from a config and its family's tables. Computing
 * blocks come first: the embedding, the layers, the head. A block's parameters are in one flat
 * array, each at a multiple of BLOCKS_ALIGN_ELEMENTS, with zero padding between them. A computing
 * block may borrow others, whose parameters it uses: a tied head borrows the block with the token
 * table. The frozen parameters of a partly frozen block are in a data block, which has no program,
 * so that the block's own array is all trained. Nothing here depends on the length of rows or on
 * placement. Immutable once created; any thread. */
#ifndef OFFLOAD_MODEL_MODEL_H
#define OFFLOAD_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/blocks/blocks.h"
#include "offload/model/adapter.h"
#include "offload/model/config.h"
#include "offload/model/family.h"

/* Groups of a model's runs (block_run.group). */
enum model_group { MODEL_GROUP_DECAY, MODEL_GROUP_PLAIN, MODEL_GROUP_COUNT };

/* One tensor of the files: `rows` rows of a parameter from first_row on. */
struct model_part {
    const char *name;  /* borrowed from the model's `flat` */
    const char *other; /* static: other name in files; NULL: none */
    int64_t first_row;
    int64_t rows;
    enum kern_quant quant; /* form in files */
    int64_t onto_row;      /* for an adapter: first row that it changes in the adapted parameter */
};

struct model_param {
    enum model_role role; /* for an adapter: role of the adapted parameter */
    enum model_adapter adapter;
    int64_t rows;
    int64_t cols;
    uint64_t offset;   /* elements, in the array of `owner` */
    uint64_t elements; /* rows * cols */
    unsigned owner;    /* block with the array */
    bool vector;       /* one-dimensional in files; cols is 1 */
    bool transposed;   /* the files hold [cols][rows] */
    bool decay;
    bool trained;
    uint64_t seed;       /* seed of an adapter's initial values */
    unsigned part_count; /* 0: borrowed; the owner has the parts */
    struct model_part parts[MODEL_PARTS_MAX];
};

enum model_block_kind {
    MODEL_BLOCK_EMBEDDING,
    MODEL_BLOCK_LAYER,
    MODEL_BLOCK_HEAD,
    MODEL_BLOCK_DATA /* has no program */
};

struct model_block {
    const char *name; /* "embedding", "layer 3", "head", "layer 3 frozen"; borrowed from `flat` */
    enum model_block_kind kind;
    int64_t layer;
    const struct model_block_table *table; /* static; NULL: a data block */
    struct model_param *params;            /* owned; borrowed ones included */
    unsigned param_count;                  /* at most 255 */
    unsigned data;                         /* data block of a computing block; 0: none */
    uint64_t elements;                     /* elements of the flat array, with padding */
    bool trained;
    int64_t window;
    double scale;
    unsigned like; /* index of the first block with equal programs */
};

/* A block borrows at most its data block and the owner of a tied token table. */
enum { MODEL_BORROWS_MAX = 2 };

struct model {
    struct model_config config;
    struct model_block *blocks; /* owned: embedding, layers, head; data blocks */
    struct blocks *flat;        /* owned: names, runs and tensors of the blocks */
    unsigned block_count;
    unsigned compute_count; /* blocks that compute */
    unsigned params_max;    /* most parameters of a block */
    struct model_lora lora;
    uint64_t parameters; /* elements without padding; tied ones count once */
    uint64_t trained_parameters;
};

struct model_options {
    /* Tensors whose names match one of these shell patterns are frozen. model_create() refuses a
     * pattern that matches no tensor, and patterns that match only some tensors of a parameter. */
    const char *const *frozen; /* borrowed during create */
    size_t frozen_count;
    /* Tensors in untrained blocks of this list are frozen, too. Borrowed during create; NULL:
     * none. */
    const struct blocks *frozen_as;
    bool base_apart; /* checkpoints have no frozen blocks (blocks.h) */
    /* Borrowed during create; NULL: no adapters. With adapters, all other parameters except those
     * of lora->saved are frozen; `frozen` and `frozen_as` have no effect, and `base_apart` is
     * implied. */
    const struct model_lora_options *lora;
};

/* `options` may be NULL. */
int model_create(const struct model_config *config, const struct model_options *options,
                 struct model **out);
void model_destroy(struct model *model);

/* Return the index of the parameter with this role, or of its adapter of this kind; -1: none. */
int model_block_param(const struct model_block *block, enum model_role role);
int model_block_adapter(const struct model_block *block, enum model_role role,
                        enum model_adapter adapter);
/* Lists the blocks that block `index` borrows, one with a trained parameter first; returns their
 * number. */
unsigned model_block_borrows(const struct model *model, unsigned index,
                             unsigned borrows[MODEL_BORROWS_MAX]);
/* Returns "token_table", "qkv", ... */
const char *model_role_name(enum model_role role);

#endif
