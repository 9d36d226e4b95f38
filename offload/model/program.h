/* program.h: the launches of one block: the family's table of ops, downwards for the forward pass
 * and upwards for the backward pass, with every size, stride and offset resolved for one shape of
 * micro-batch. Activations that backward reads are "kept"; temporaries share memory by lifetime. So
 * the bytes and operations of a block are known exactly before anything runs. A program depends
 * only on its block and its struct model_shape, never on placement. Immutable once created. */
#ifndef OFFLOAD_MODEL_PROGRAM_H
#define OFFLOAD_MODEL_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kern.h"
#include "offload/model/model.h"
#include "offload/model/program_step.h"

/* `backward` of a head starts from IN and contains its forward steps; a head's `forward` computes
 * the loss without gradients. The backward pass of other blocks needs kept activations: either
 * forward left them, or the forward steps marked `recompute` compute them again from IN. */
struct model_program {
    struct model_shape shape;
    struct model_steps forward;
    struct model_steps backward;
    struct model_steps logits; /* only for a head: IN to [tokens][vocab] at OUT; else empty */
    uint64_t kept_bytes;
    uint64_t in_bytes;
    uint64_t out_bytes;     /* 0 for a head */
    double recompute_flops; /* of the steps of forward that recomputation repeats */
};

int model_program_create(const struct model *model, unsigned block, const struct model_shape *shape,
                         struct model_program **out);
void model_program_destroy(struct model_program *program);

/* Halves the count in a step's arguments that is at step->halved, because only the policy's rows
 * are recomputed. Does nothing if step->halved is 0. */
void model_step_halve(const struct model_step *step, unsigned char *arguments);

/* Returns the maximum scratch of these steps for a queue of `threads` on this kind of device.
 * Gradients are as in `grad`, whose pointers are only compared with NULL. */
size_t model_steps_scratch_bytes(const struct model_steps *steps, const char *kind,
                                 unsigned threads, const struct kern_grad *grad);

#endif
