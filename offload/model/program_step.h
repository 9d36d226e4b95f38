/* program_step.h: steps of a program: launches of ops whose pointers are offsets from bases, for
 * one shape of micro-batch. Immutable once a program is built. */
#ifndef OFFLOAD_MODEL_PROGRAM_STEP_H
#define OFFLOAD_MODEL_PROGRAM_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kern.h"

enum { MODEL_STEP_BYTES = 256, MODEL_PATCHES_MAX = 14, MODEL_GRADS_MAX = 2 };

struct model_shape {
    /* number of rows of a micro-batch; with pairs, 2 for each pair: see kern_loss_arguments */
    int64_t rows;
    int64_t length; /* tokens per row */
    /* with pairs, the tokens of each of the two rows that one row is made of; else 0 */
    int64_t row_length;
    enum kern_type type; /* type of weights and activations */
    /* maximum bytes of weights in one product; larger linears are computed by tiles; 0: no limit */
    uint64_t tile_bytes;
    uint64_t logits_bytes; /* bytes of a GPU's scratch for logits: see kern_loss_arguments */
    /* elements from one place in the embedding's table to the next (model_rows_place); 0: ids are
     * rows */
    int64_t stride;
    /* parts for a loss over a frozen table that is computed in several steps, so that rows of the
     * table can be fetched to the device between them; zero: one step */
    struct kern_loss_parts loss_parts;
    int64_t pairs; /* number of pairs of chosen and rejected rows (DPO); 0: rows of tokens */
    double beta;   /* beta of the loss of pairs */
};

/* Rows that a step computes. With pairs, the policy's rows are the first half; only they go through
 * adapters and have gradients. */
enum model_half { MODEL_HALF_BOTH, MODEL_HALF_POLICY, MODEL_HALF_REFERENCE };

/* Bases of the pointers of steps; the binding (run.h) has their addresses. */
enum model_base {
    MODEL_BASE_IN,   /* boundary activation from the block before */
    MODEL_BASE_OUT,  /* boundary activation to the next block; of `logits`: the logits */
    MODEL_BASE_GRAD, /* gradient of OUT at the start of backward, of IN at its end */
    MODEL_BASE_KEPT,
    MODEL_BASE_TEMP,
    MODEL_BASE_PARAM, /* row 0 of parameter `param` */
    MODEL_BASE_IDS,
    MODEL_BASE_LABELS,
    MODEL_BASE_POSITIONS, /* may be NULL */
    MODEL_BASE_STARTS,    /* may be NULL */
    MODEL_BASE_GAPS,      /* only with pairs */
    MODEL_BASE_COS,
    MODEL_BASE_SIN,
    MODEL_BASE_SCALE,
    MODEL_BASE_LOSS,
    MODEL_BASE_STREAM, /* not an address: the number of model_stream_of */
    MODEL_BASE_COUNT,
};

/* The seed of dropout for the training step (a uint64_t; 0: nothing is dropped) is at this byte
 * from MODEL_BASE_SCALE. */
enum { MODEL_SCALE_SEED_AT = 8, MODEL_SCALE_BYTES = 16 };

/* Returns a number, in the form of a pointer (MODEL_BASE_STREAM), that distinguishes the random
 * numbers of blocks and of micro-batches, which are counted over all ranks; a step adds the role of
 * its weight. */
void *model_stream_of(unsigned block, uint64_t micro_batch);

/* The pointer at `field` of the arguments is base + offset. */
struct model_patch {
    uint16_t field;
    uint8_t base;
    uint8_t param;
    bool writes; /* the step writes or changes what is there; used while building */
    uint64_t offset_bytes;
};

/* The struct kern_grad at `field` is that of parameter `param`, from element `offset` on. */
struct model_grad {
    uint16_t field;
    uint8_t param;
    uint64_t offset;
};

/* One launch. If rows > 0, the step reads rows [row, row + rows) of `param`'s weights, which must
 * be on the device. */
struct model_step {
    enum kern_op op;
    bool recompute; /* a forward step that recomputation repeats */
    uint8_t half;   /* enum model_half */
    /* where the arguments have the count that recomputation halves, because only the policy's rows
     * are needed; 0: none */
    uint16_t halved;
    uint8_t patch_count;
    uint8_t grad_count;
    uint8_t param;
    int64_t row;
    int64_t rows;
    double flops; /* operations of products and attention */
    struct model_patch patches[MODEL_PATCHES_MAX];
    struct model_grad grads[MODEL_GRADS_MAX];
    _Alignas(16) unsigned char arguments[MODEL_STEP_BYTES];
};

struct model_steps {
    struct model_step *list; /* owned */
    size_t count;
    uint64_t temp_bytes; /* at MODEL_BASE_TEMP */
    double flops;
};

#endif
