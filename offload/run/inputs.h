/* inputs.h: what compute reads besides parameters and activations (tokens, labels, the loss's
 * scale, RoPE's tables), and the losses that it writes, in the device's memory. A step's inputs are
 * first written into a copy on the host. One thread at a time calls. */
#ifndef OFFLOAD_RUN_INPUTS_H
#define OFFLOAD_RUN_INPUTS_H

#include "offload/model/batch.h"
#include "offload/model/rows.h"
#include "offload/model/run.h"
#include "offload/run/options.h"

struct dev_device;
struct dev_queue;

struct run_inputs {
    const struct model *model; /* borrowed */
    struct dev_device *device; /* borrowed */
    int64_t stall_limit_ns;
    int64_t rows, length;
    int64_t pairs;      /* pairs of a micro-batch; 0: rows are not pairs */
    int64_t row_length; /* tokens of a given row; limits its positions */
    uint32_t micro_batches;
    bool rope;
    char *device_base; /* owned: dev_memory_free */
    char *host;        /* owned: a copy of what changes between steps */
    uint64_t step_bytes;
    uint64_t angles_bytes; /* of cos, and of sin, after the step's bytes */
    /* owned, [micro_batches]: false: only padding */
    bool *given;
    /* owned, [micro_batches]: number of earlier ones that are given */
    uint32_t *places;
    bool *positions; /* owned, [micro_batches]: whether positions are given */
    bool *starts;    /* owned, [micro_batches]: whether starts of documents are given */
    struct model_rows table;
    /* owned, [micro_batches]: used rows; NULL: all */
    struct model_rows_used *used;
    struct model_pages *ranges; /* owned: the ranges of `used` */
    int32_t *sorted;            /* owned: scratch of model_rows_use() */
};

/* A part of the embedding's block that moves to a slot. */
struct run_rows_part {
    uint64_t from; /* first byte in the block */
    uint64_t to;   /* first byte in the slot, which has a group's micro-batches side by side */
    uint64_t bytes;
};

/* Progress of a command that moves rows; zero at the beginning. */
struct run_rows_cursor {
    uint32_t micro; /* index in the group */
    uint32_t range;
    uint64_t done; /* moved bytes of the range */
};

uint64_t run_inputs_bytes(const struct model *model, const struct run_options *options);

/* Allocates the buffers, computes RoPE's tables, and copies them to the device. */
int run_inputs_init(struct run_inputs *inputs, const struct model *model,
                    const struct run_options *options, struct dev_device *device,
                    struct dev_queue *queue);
/* From now on, commands load only the embedding rows that their micro-batches use. */
int run_inputs_use_rows(struct run_inputs *inputs);
/* Accepts a zeroed struct. */
void run_inputs_fini(struct run_inputs *inputs);

/* Writes `batch` into the host's copy as micro-batch `micro`, padded with tokens that are not
 * trained on; NULL: only padding. Call it for all micro-batches in order, or for the first one
 * alone. Adds the number of targets, or of pairs with targets in both rows, to *targets. Returns
 * -EINVAL if the batch does not fit or has an invalid value. */
int run_inputs_write(struct run_inputs *inputs, uint32_t micro, const struct model_batch *batch,
                     int64_t *targets);

/* Returns whether a step computes micro-batch `micro`: a given one, or the last one, whose backward
 * completes the gradients. */
bool run_inputs_has(const struct run_inputs *inputs, uint32_t micro);

/* Copies the host's copy to the device, with the summed loss's factor and dropout's seed (0:
 * nothing is dropped). */
int run_inputs_send(struct run_inputs *inputs, struct dev_queue *queue, float scale, uint64_t seed);

/* Binds a program to micro-batch `micro`. */
void run_inputs_bind(const struct run_inputs *inputs, uint32_t micro,
                     struct model_binding *binding);

/* Binds the embedding's weights to micro-batch `micro`'s rows at `slot`, unless the table is used
 * whole. */
void run_inputs_bind_rows(const struct run_inputs *inputs, uint32_t micro, const char *slot,
                          struct model_binding *binding);
/* Sets *out to the next part to move for micro-batches [first, first + count); false: there is
 * none. The caller adds moved bytes to cursor->done. */
bool run_inputs_next_rows(const struct run_inputs *inputs, uint32_t first, uint32_t count,
                          struct run_rows_cursor *cursor, struct run_rows_part *out);
/* Returns the bytes of all parts of these micro-batches. */
uint64_t run_inputs_rows_bytes(const struct run_inputs *inputs, uint32_t first, uint32_t count);

/* Waits for the losses of the first `count` micro-batches. Sets *out to the sum, in order, of those
 * that were computed. */
int run_inputs_losses(struct run_inputs *inputs, struct dev_queue *queue, uint32_t count,
                      struct kern_loss *out);

#endif
