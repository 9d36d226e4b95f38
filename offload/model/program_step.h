/* program_step.h: a program's steps: launches whose pointers are offsets from bases, for one shape
 * of micro-batch. Immutable once built. */
#ifndef OFFLOAD_MODEL_PROGRAM_STEP_H
#define OFFLOAD_MODEL_PROGRAM_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kern.h"

enum { MODEL_STEP_BYTES = 256, MODEL_PATCHES_MAX = 14, MODEL_GRADS_MAX = 2 };

struct model_shape {
    /* rows of a micro-batch; with pairs, 2 per pair: see kern_loss_arguments */
    int64_t rows;
    int64_t length; /* tokens per row */
    /* with pairs, tokens of a row before two rows are combined (batch.h); else 0 */
    int64_t row_length;
    enum kern_type type; /* type of weights and activations */
    /* limit for the weights of one product; larger linears are computed by tiles; 0: none */
    uint64_t tile_bytes;
    uint64_t logits_bytes; /* bytes of a GPU's scratch for logits: see kern_loss_arguments */
    /* elements between places in the embedding's table (model_rows_place); 0: ids are rows */
    int64_t stride;
    /* parts of a loss, so that rows of a frozen table can be fetched between steps; zero: one
     * step */
    struct kern_loss_parts loss_parts;
    int64_t pairs; /* pairs of chosen and rejected rows (DPO); 0: none */
    double beta;   /* beta of the loss of pairs */
};

/* Rows that a step computes. With pairs, the first half is the policy's; only its rows have
 * adapters and gradients. */
enum model_half { MODEL_HALF_BOTH, MODEL_HALF_POLICY, MODEL_HALF_REFERENCE };

/* Bases of pointers; the binding (run.h) has their addresses. */
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
    MODEL_BASE_STREAM, /* not an address: model_stream_of() */
    MODEL_BASE_COUNT,
};

/* The dropout seed of the training step (a uint64_t; 0: no dropout) is at this byte of
 * MODEL_BASE_SCALE. */
enum { MODEL_SCALE_SEED_AT = 8, MODEL_SCALE_BYTES = 16 };

/* Returns a number, as a pointer (MODEL_BASE_STREAM), that distinguishes the random numbers of
 * blocks and micro-batches (of all ranks); a step adds its weight's role. */
void *model_stream_of(unsigned block, uint64_t micro_batch);

/* The pointer at `field` of the arguments is base + offset. */
struct model_patch {
    uint16_t field;
    uint8_t base;
    uint8_t param;
    bool writes; /* writes or changes what is there; used while building */
    uint64_t offset_bytes;
};

/* The struct kern_grad at `field` is that of parameter `param`, from element `offset` on. */
struct model_grad {
    uint16_t field;
    uint8_t param;
    uint64_t offset;
};

/* One launch. With rows > 0 it reads rows [row, row + rows) of `param`'s weights, which must be on
 * the device. */
struct model_step {
    enum kern_op op;
    bool recompute; /* a forward step that recomputation repeats */
    uint8_t half;   /* enum model_half */
    /* place of the count that recomputation halves, because only the policy's rows are needed; 0:
     * none */
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
