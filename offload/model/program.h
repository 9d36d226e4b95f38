/* program.h: what a device does for one block: the family's table of ops, read down for forward and
 * up for backward, with every size, stride and offset resolved for one shape of micro-batch.
 * Saved activations ("kept") are those that backward reads; temporaries share memory by lifetime.
 * So the bytes and products of a block are exact and known before anything runs. A program depends
 * on shape, type and tile size alone, never on budgets or placement. Immutable once created. */
#ifndef OFFLOAD_MODEL_PROGRAM_H
#define OFFLOAD_MODEL_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kern.h"
#include "offload/model/model.h"

enum { MODEL_STEP_BYTES = 256, MODEL_PATCHES_MAX = 14, MODEL_GRADS_MAX = 2 };

struct model_shape {
    int64_t rows;          /* of a micro-batch */
    int64_t length;        /* tokens a row */
    enum kern_type type;   /* of weights and activations */
    uint64_t tile_bytes;   /* of weights in one product; larger linears go by tile; 0: no limit */
    uint64_t logits_bytes; /* of a card's scratch, for logits: kern_loss_arguments */
};

/* What a pointer of a step is relative to; the binding (run.h) has the addresses. */
enum model_base {
    MODEL_BASE_IN,   /* boundary activation from the block before */
    MODEL_BASE_OUT,  /* boundary activation to the block behind; of `logits`: the logits */
    MODEL_BASE_GRAD, /* gradient of OUT at the start of backward, of IN at its end */
    MODEL_BASE_KEPT,
    MODEL_BASE_TEMP,
    MODEL_BASE_PARAM, /* row 0 of parameter `param` */
    MODEL_BASE_IDS,
    MODEL_BASE_LABELS,
    MODEL_BASE_POSITIONS, /* may be NULL */
    MODEL_BASE_STARTS,    /* may be NULL */
    MODEL_BASE_COS,
    MODEL_BASE_SIN,
    MODEL_BASE_SCALE,
    MODEL_BASE_LOSS,
    MODEL_BASE_COUNT,
};

/* The pointer at `field` of the arguments is base + offset. */
struct model_patch {
    uint16_t field;
    uint8_t base;
    uint8_t param;
    uint64_t offset_bytes;
};

/* The struct kern_grad at `field` is that of parameter `param`, from element `offset` on. */
struct model_grad {
    uint16_t field;
    uint8_t param;
    uint64_t offset;
};

/* One launch. The step reads rows [row, row + rows) of `param`'s weights where rows > 0: what has
 * to be on the device for it. */
struct model_step {
    enum kern_op op;
    bool recompute; /* of forward: needed to get the kept activations back */
    uint8_t patch_count;
    uint8_t grad_count;
    uint8_t param;
    int64_t row;
    int64_t rows;
    double flops;    /* of products and attention */
    uint64_t reads;  /* buffers of the program, a bit each; for building and checking */
    uint64_t writes; /* the same; what is changed in place stands in both */
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
