/* program.h: the launches of one block: its family's table of ops, downwards for forward and
 * upwards for backward, with sizes, strides and offsets for one shape of micro-batch, so that bytes
 * and operations are known before anything runs. Arrays that both forward and backward use are
 * "kept"; temporaries share memory by lifetime. A program depends on its block and its struct
 * model_shape, not on placement. Immutable once created. */
#ifndef OFFLOAD_MODEL_PROGRAM_H
#define OFFLOAD_MODEL_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kern.h"
#include "offload/model/model.h"
#include "offload/model/program_step.h"

/* A head's `backward` starts from IN and contains forward; its `forward` computes the loss without
 * gradients. Other blocks need kept activations for backward: from forward, or from its steps
 * marked `recompute`, run again. */
struct model_program {
    struct model_shape shape;
    struct model_steps forward;
    struct model_steps backward;
    struct model_steps logits; /* a head's: IN to [tokens][vocab] at OUT; else empty */
    uint64_t kept_bytes;
    uint64_t in_bytes;
    uint64_t out_bytes;     /* 0 for a head */
    double recompute_flops; /* operations of forward steps that recomputation repeats */
};

int model_program_create(const struct model *model, unsigned block, const struct model_shape *shape,
                         struct model_program **out);
void model_program_destroy(struct model_program *program);

/* Halves the count at step->halved in a step's arguments, because only the policy's rows are
 * recomputed. Does nothing if step->halved is 0. */
void model_step_halve(const struct model_step *step, unsigned char *arguments);

/* Returns the scratch that the largest of these steps needs on a queue of `threads` on this kind of
 * device. Pointers of `grad` are only compared with NULL. */
size_t model_steps_scratch_bytes(const struct model_steps *steps, const char *kind,
                                 unsigned threads, const struct kern_grad *grad);

#endif
