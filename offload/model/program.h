/* program.h: what a device does for one block: the family's table of ops, read down for forward and
 * up for backward, with every size, stride and offset resolved for one shape of micro-batch.
 * Saved activations ("kept") are those that backward reads; temporaries share memory by lifetime.
 * So the bytes and products of a block are exact and known before anything runs. A program depends
 * on shape, type and tile size alone, never on budgets or placement. Immutable once created. */
#ifndef OFFLOAD_MODEL_PROGRAM_H
#define OFFLOAD_MODEL_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kern.h"
#include "offload/model/model.h"
#include "offload/model/program_step.h"

/* Where `backward` of a head starts from IN: its forward steps are in it, and `forward` is for the
 * loss without gradients. Every other backward needs kept activations: those that forward left, or
 * those that the steps of forward marked `recompute` bring back from IN. */
struct model_program {
    struct model_shape shape;
    struct model_steps forward;
    struct model_steps backward;
    struct model_steps logits; /* of a head: IN to [tokens][vocab] at OUT; else empty */
    uint64_t kept_bytes;
    uint64_t in_bytes;
    uint64_t out_bytes; /* 0 for a head */
    double recompute_flops;
};

int model_program_create(const struct model *model, unsigned block, const struct model_shape *shape,
                         struct model_program **out);
void model_program_destroy(struct model_program *program);

/* Scratch that a queue of `threads` on this kind of device needs for any of these steps, with
 * gradients that go where `grad` says (its pointers are looked at for NULL alone). */
size_t model_steps_scratch_bytes(const struct model_steps *steps, const char *kind,
                                 unsigned threads, const struct kern_grad *grad);
/* For any step of the program. */
size_t model_program_scratch_bytes(const struct model_program *program, const char *kind,
                                   unsigned threads, const struct kern_grad *grad);

#endif
