/* plain.h: a training step over a model that is wholly in the device's memory: forward, backward,
 * norm, clip, update, without overlap. The engine must give its bits, so it follows the numerics
 * contract:
 *   - fp32 weight gradients of a micro-batch start from zero; micro-batches are added in order, and
 *     the sum is rounded once
 *   - with several micro-batches, a tied table has one sum per use; head and embedding are added at
 *     the end, in this order
 *   - the norm is that of the rounded gradients, in tiles of CORE_UPDATE_TILE elements that begin
 *     with each block, added in the order of blocks
 *   - a block is an array of cpu_adam with the block's number
 * The host must see the device's memory. One thread calls. */
#ifndef TESTS_REFERENCE_PLAIN_H
#define TESTS_REFERENCE_PLAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu_adam/adam.h"
#include "offload/model/batch.h"
#include "offload/model/files.h"
#include "offload/model/program.h"
#include "offload/model/save.h"

struct dev_device;
struct plain;

struct plain_options {
    struct model_shape shape; /* of one micro-batch */
    unsigned micro_batches;   /* per step; 0: 1 */
    bool recompute;           /* instead of keeping activations */
    bool decay_all;           /* also norms and biases */
    unsigned threads;         /* 0: one per processor */
    enum core_update_rule rule;
    struct adam_group group;            /* `decay` applies only to parameters that decay */
    double clip;                        /* maximum of the norm; 0: none */
    double loss_scale;                  /* with fp16; 0: 1 */
    bool profile;                       /* time each op (slower) */
    const struct kern_options *kernels; /* borrowed by create; NULL: defaults */
};

struct plain_result {
    double loss;             /* mean over the step's targets */
    double grad_norm;        /* before clipping */
    int64_t targets;         /* tokens, or pairs */
    double chosen, rejected; /* mean rewards of pairs */
    double right;            /* share of pairs whose chosen row has the larger reward */
    bool skipped;            /* fp16: the norm was not finite */
};

/* Borrows `model` and `device`; no queue of the device may exist yet. Returns -ENOTSUP if the host
 * does not see the device's memory. */
int plain_create(const struct model *model, struct dev_device *device,
                 const struct plain_options *options, struct plain **out);
void plain_destroy(struct plain *plain);

/* Reads weights, zeroes moments and the count of steps. Call model_files_check first. */
int plain_load(struct plain *plain, const struct model_files *files);
/* Writes the working weights as a model folder, in the type of the shape; options->type is
 * ignored. */
int plain_save(struct plain *plain, const struct model_save_options *options);

/* Takes a step with [micro_batches] micro-batches of the shape. If the norm is not finite, the
 * weights stay: fp16 sets out->skipped; bf16 and fp32 return -EDOM with a message that names a
 * block. */
int plain_step(struct plain *plain, const struct model_batch *batches, double lr,
               struct plain_result *out);
/* Computes gradients and loss without the update. */
int plain_backward(struct plain *plain, const struct model_batch *batches,
                   struct plain_result *out);
/* Computes the loss of one micro-batch without gradients. */
int plain_evaluate(struct plain *plain, const struct model_batch *batch, struct kern_loss *out);
/* Writes logits [tokens][vocab] in the type of the shape. */
int plain_logits(struct plain *plain, const struct model_batch *batch, void *out);

/* Return a block's flat arrays, borrowed, of the shape's type: working weights, and gradients of
 * the last backward pass. */
const void *plain_weights(const struct plain *plain, unsigned block);
const void *plain_grads(const struct plain *plain, unsigned block);
/* Returns the arrays that an update of a block reads and writes; the window is the whole array. */
struct adam_arrays plain_arrays(const struct plain *plain, unsigned block);

/* Bytes allocated on the device. */
struct plain_bytes {
    uint64_t weights;
    uint64_t states; /* moments, and fp32 masters (fp16) or their low halves (bf16) */
    uint64_t grads;
    uint64_t activations; /* boundary, kept, temporary, scratch of the queue */
    uint64_t inputs;      /* with angles and losses */
    uint64_t total;
};
struct plain_bytes plain_memory(const struct plain *plain);

struct plain_time {
    int64_t ns;
    uint64_t launches;
    double flops;
};

/* Returns the number and time of an op's launches (options.profile). */
struct plain_time plain_op_time(const struct plain *plain, enum kern_op op);
/* Returns the nanoseconds of norms and updates, without steps whose norm was not finite. */
int64_t plain_update_ns(const struct plain *plain);

#endif
