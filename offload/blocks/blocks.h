/* blocks.h: lists of blocks without their computation: names, tensors, and which elements have a
 * gradient and are updated alike. Built by one thread; constant after blocks_finish, when any
 * thread may read it. */
#ifndef OFFLOAD_BLOCKS_BLOCKS_H
#define OFFLOAD_BLOCKS_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* Arrays of a list that is not packed begin at multiples of this, the size of a block of 8-bit
     * moments, so that an update may be cut between arrays. */
    BLOCKS_ALIGN_ELEMENTS = 256,
    BLOCKS_NAME_BYTES_MAX = 255, /* of a block or a tensor, without the NUL */
    BLOCKS_FAMILY_BYTES = 32,    /* with the NUL */
    BLOCKS_MAX = 1 << 20,
};

/* A block has at most this many elements, so sizes in bytes stay far below 2^63. */
#define BLOCKS_ELEMENTS_MAX (UINT64_C(1) << 48)

/* Consecutive elements that are updated alike, up to `end`, exclusive, with the padding after them.
 * A block's runs cover it. */
struct block_run {
    uint64_t end;
    uint32_t group; /* index into the update's groups: rate, betas, decay */
};

/* Elements with a gradient; the others are padding or frozen. */
struct block_span {
    uint64_t begin;
    uint64_t end;
};

/* A tensor of the application or of the model's files: rows * cols elements from `first` on. */
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
    uint64_t elements; /* elements of the flat array, with padding */
    bool trained;      /* true: all its arrays are trained; false: none */
    enum block_weights weights;
    /* Owned by the list; set by blocks_finish. */
    const struct block_run *runs;
    const struct block_span *spans; /* ascending; they do not touch */
    const struct block_tensor *tensors;
    size_t run_count;
    size_t span_count;
    size_t tensor_count;
};

/* family of an application's parameters */
#define BLOCKS_APPLICATION "application"

struct blocks_text;

struct blocks {
    char family[BLOCKS_FAMILY_BYTES]; /* the blocks' family: "llama" */
    /* hash of shapes, names and frozen parts; a checkpoint must have the same hash */
    uint64_t hash;
    struct block *list; /* owned */
    uint32_t count;
    /* an array begins where the previous one ends; set before arrays are added */
    bool packed;
    bool base_apart; /* checkpoints have only trained blocks and the identity of a base model
                      * (model_sums_identity). Set by the list's creator */
    /* Private: runs, spans and tensors in the order of blocks, and names. */
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

/* Adds an empty block, to which the calls below add. Returns -EINVAL if the name does not have 1 to
 * 255 bytes of UTF-8, or the list has BLOCKS_MAX blocks. */
int blocks_add(struct blocks *blocks, const char *name);
/* Adds an array at the next multiple of BLOCKS_ALIGN_ELEMENTS or, in a packed list, at the next
 * element. Sets *first to its first element. An array without elements changes nothing. `trained`
 * must be the same for all arrays of a block. Returns -EINVAL if the block would exceed
 * BLOCKS_ELEMENTS_MAX. */
int blocks_add_array(struct blocks *blocks, uint64_t elements, uint32_t group, bool trained,
                     uint64_t *first);
/* Sets the type of the block's weights; the default is the run's. */
void blocks_set_weights(struct blocks *blocks, enum block_weights weights);
/* Pads the block to a multiple of BLOCKS_ALIGN_ELEMENTS. */
void blocks_pad(struct blocks *blocks);
/* Adds a tensor and a copy of its name. Sets *name, which may be NULL, to the copy, which lives as
 * long as the list. */
int blocks_add_tensor(struct blocks *blocks, const struct block_tensor *tensor, const char **name);
/* Completes the list. Returns -EINVAL if it has no block, or two blocks of the same name. */
int blocks_finish(struct blocks *blocks, const char *family, uint64_t hash);

/* ---- reading ---- */

/* Returns whether element `at` has no gradient. Sets *end to the first later element with the other
 * answer, or to the end of the block. */
bool block_gap(const struct block *block, uint64_t at, uint64_t *end);

#endif
