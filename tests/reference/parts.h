/* parts.h: the contents of a plain trainer; private to this folder. */
#ifndef TESTS_REFERENCE_PARTS_H
#define TESTS_REFERENCE_PARTS_H

#include "cpu_adam/norm.h"
#include "offload/model/run.h"
#include "tests/reference/plain.h"

struct dev_queue;

/* A part of the device's memory. */
struct plain_part {
    char *memory; /* owned: dev_memory_free */
    uint64_t bytes;
};

struct plain {
    const struct model *model; /* borrowed */
    struct dev_device *device; /* borrowed */
    struct plain_options options;
    struct kern_ops *ops;    /* owned */
    struct dev_queue *queue; /* owned */
    struct core_team *team;  /* owned: for the update */
    struct adam_norm norm;
    struct adam **adams;             /* owned, [blocks] */
    struct model_program **programs; /* owned if block->like is the block; else borrowed */
    struct model_binding binding;    /* of the block that computes now */
    uint64_t *offsets;               /* owned, [blocks + 1]: elements before a block's array */
    double *tile_sums;               /* owned */
    uint64_t tile_count;
    uint64_t steps; /* steps done */

    struct plain_part weights;
    struct plain_part lo16; /* bf16: low halves of the masters */
    struct plain_part w32;  /* fp16: the masters */
    struct plain_part m;
    struct plain_part v;
    struct plain_part grads;      /* in the shape's type */
    struct plain_part sums;       /* fp32; for several micro-batches of 16-bit gradients */
    struct plain_part tied_head;  /* fp32 [vocab][hidden], the head's sum of a tied table */
    struct plain_part tied_table; /* the embedding's sum, for several micro-batches */
    struct plain_part boundary;   /* outputs of the blocks before the head, and one gradient */
    /* kept activations of every layer, or of one layer if recomputed */
    struct plain_part kept;
    struct plain_part temp;
    struct plain_part inputs; /* of one micro-batch: ids, labels, positions, starts */
    struct plain_part angles; /* cos and sin */
    struct plain_part losses; /* struct kern_loss, and the scale */
    uint64_t scratch_bytes;   /* of the queue */

    struct plain_time times[KERN_OP_COUNT];
    int64_t update_ns;
};

/* Returns the address of a block's array in a part. */
char *plain_at(const struct plain *plain, const struct plain_part *part, unsigned block,
               size_t element_bytes);

/* Computes the norm, clips, and updates with the gradients. Sets grad_norm and skipped of *out. */
int plain_update(struct plain *plain, double lr, struct plain_result *out);

#endif
