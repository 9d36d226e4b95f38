/* blocks.h: a list of blocks, without their computation: their names, which elements of their flat
 * arrays are updated alike, which have a gradient, and which tensors are in them. A model makes
 * such a list of its layers, an application of its parameters; updates, stores and checkpoints need
 * nothing else. Built by one thread, block by block; constant after blocks_finish, when any thread
 * may read it. */
#ifndef OFFLOAD_BLOCKS_BLOCKS_H
#define OFFLOAD_BLOCKS_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* Arrays begin at multiples of this. It is the size of a block of 8-bit moments, so that an
     * update may be cut between arrays of different groups. */
    BLOCKS_ALIGN_ELEMENTS = 256,
    BLOCKS_NAME_BYTES_MAX = 255, /* longest name of a block or a tensor, without the NUL */
    BLOCKS_FAMILY_BYTES = 32,    /* with the NUL */
    BLOCKS_MAX = 1 << 20,
};

/* No block has more elements than this, so sizes in bytes stay far below 2^63. */
#define BLOCKS_ELEMENTS_MAX (UINT64_C(1) << 48)

/* Consecutive elements that are updated alike: from the end of the previous run to `end`,
 * exclusive. Padding belongs to the run before it. The runs of a block cover it. */
struct block_run {
    uint64_t end;
    uint32_t group; /* index into the update's table of groups: rate, betas, decay */
};

/* Elements with a gradient. Elements outside of all spans are gaps: padding, or a whole frozen
 * block. */
struct block_span {
    uint64_t begin;
    uint64_t end;
};

/* A tensor of the application's or the model's files: rows * cols elements from `first` on. */
struct block_tensor {
    const char *name;
    uint64_t first;
    int64_t rows;
    int64_t cols;
    bool transposed; /* the files hold [cols][rows] */
};

enum block_weights {
    BLOCK_WEIGHTS_OF_RUN, /* the working precision of the run */
    BLOCK_WEIGHTS_BF16,
    BLOCK_WEIGHTS_FP16,
    BLOCK_WEIGHTS_FP32,
};

struct block {
    const char *name;
    uint64_t elements; /* number of elements of the flat array, padding included */
    bool trained;      /* all its arrays are trained; false: all are frozen */
    enum block_weights weights;
    /* Owned by the list; set by blocks_finish. */
    const struct block_run *runs;
    const struct block_span *spans; /* ascending; they do not touch */
    const struct block_tensor *tensors;
    size_t run_count;
    size_t span_count;
    size_t tensor_count;
};

/* the family of the parameters of an application's optimizer, which has no model */
#define BLOCKS_APPLICATION "application"

struct blocks_text;

struct blocks {
    char family[BLOCKS_FAMILY_BYTES]; /* name of the family that the blocks belong to: "llama" */
    /* hash of shapes, names and frozen parts; a checkpoint is loaded only if its hash is equal */
    uint64_t hash;
    struct block *list; /* owned */
    uint32_t count;
    /* each array begins where the previous one ends; set by the creator of the list before it adds
     * arrays */
    bool packed;
    bool base_apart; /* frozen blocks stay in the files of a base model: checkpoints have only
                      * trained blocks and the base's identity (model_sums_identity). Set by the
                      * creator of the list */
    /* Private: all runs, spans and tensors, in the order of their blocks, and all names. */
    struct block_run *runs;
    struct block_span *spans;
    struct block_tensor *tensors;
    struct blocks_text *text;
    size_t run_count, span_count, tensor_count;
    size_t list_room, run_room, span_room, tensor_room;
};

/* ---- creating a list ---- */

int blocks_create(struct blocks **out);
void blocks_destroy(struct blocks *blocks); /* Accepts NULL. */

/* Adds an empty block; the calls below add to it until the next one. Returns -EINVAL if the name
 * does not have 1 to 255 bytes of UTF-8, or if the list has BLOCKS_MAX blocks. */
int blocks_add(struct blocks *blocks, const char *name);
/* Adds an array at the next multiple of BLOCKS_ALIGN_ELEMENTS, or, if the list is packed, at the
 * next element. *first is set to its first element. An array without elements does not change the
 * block. `trained` must be the same for all arrays of a block. Returns -EINVAL if the block would
 * have more than BLOCKS_ELEMENTS_MAX elements. */
int blocks_add_array(struct blocks *blocks, uint64_t elements, uint32_t group, bool trained,
                     uint64_t *first);
/* Sets the type of the block's weights, if it is not that of the run. */
void blocks_set_weights(struct blocks *blocks, enum block_weights weights);
/* Pads the block to a multiple of BLOCKS_ALIGN_ELEMENTS. */
void blocks_pad(struct blocks *blocks);
/* Adds a tensor; its name is copied. *name is set to the copy, which lives as long as the list;
 * `name` may be NULL. */
int blocks_add_tensor(struct blocks *blocks, const struct block_tensor *tensor, const char **name);
/* Completes the list. Returns -EINVAL if it has no block, or two with the same name. */
int blocks_finish(struct blocks *blocks, const char *family, uint64_t hash);

/* ---- reading ---- */

/* Returns whether element `at` has no gradient. Sets *end to the next element for which the answer
 * differs, or to the end of the block. */
bool block_gap(const struct block *block, uint64_t at, uint64_t *end);

#endif
