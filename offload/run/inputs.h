/* inputs.h: the data that compute reads besides parameters and activations: the step's tokens and
 * labels, the scale of the loss, the tables of RoPE; and its results, the losses. They are in the
 * device's memory beside the plan's buffers. The inputs of a step are first written into a copy on
 * the host. Called by the thread of the rank, while the compute queue is idle. */
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
    int64_t pairs;      /* number of pairs of a micro-batch; 0: its rows are not pairs */
    int64_t row_length; /* tokens of a given row; positions are below this number */
    uint32_t micro_batches;
    bool rope;
    char *device_base; /* owned: dev_memory_free */
    char *host;        /* owned: the copy of what changes from step to step */
    uint64_t step_bytes;
    uint64_t angles_bytes; /* bytes of each of cos and sin, after the step's bytes */
    /* owned, [micro_batches]: whether the micro-batch has a batch; false: only padding */
    bool *given;
    /* owned, [micro_batches]: how many earlier micro-batches of the step are computed */
    uint32_t *places;
    bool *positions;         /* owned, [micro_batches]: whether the batch has positions */
    bool *starts;            /* owned, [micro_batches]: whether the batch has starts of documents */
    struct model_rows table; /* how micro-batches use the embedding's rows */
    /* owned, [micro_batches]: the used rows; NULL: the embedding's table is used whole. */
    struct model_rows_used *used;
    struct model_pages *ranges; /* owned: the ranges of `used` */
    int32_t *sorted;            /* owned: scratch of model_rows_use() for one micro-batch */
};

/* A part of the embedding's block that a command moves to its slot. */
struct run_rows_part {
    uint64_t from; /* first byte in the block */
    uint64_t to;   /* first byte in the slot, where the micro-batches of a group are side by side */
    uint64_t bytes;
};

/* The position of a command in the rows that it moves; zero at the beginning. */
struct run_rows_cursor {
    uint32_t micro; /* index of the micro-batch in the group */
    uint32_t range;
    uint64_t done; /* bytes of the range that were moved */
};

/* Returns the bytes of the device's memory that inputs take. */
uint64_t run_inputs_bytes(const struct model *model, const struct run_options *options);

/* Allocates the buffers, computes the tables of RoPE, and copies the tables to the device with
 * `queue`. */
int run_inputs_init(struct run_inputs *inputs, const struct model *model,
                    const struct run_options *options, struct dev_device *device,
                    struct dev_queue *queue);
/* From now on, a command gets only those rows of the embedding that its micro-batches use, not the
 * whole table. */
int run_inputs_use_rows(struct run_inputs *inputs);
/* Accepts a zeroed struct. */
void run_inputs_fini(struct run_inputs *inputs);

/* Writes `batch` into the host's copy as micro-batch `micro`, padded to the shape with tokens that
 * are not trained on; NULL: only padding. Call it for all micro-batches in order, or for the first
 * one alone. Adds the number of the batch's targets, or of its pairs with targets in both rows, to
 * *targets. Returns -EINVAL if the batch does not fit or has an invalid value. */
int run_inputs_write(struct run_inputs *inputs, uint32_t micro, const struct model_batch *batch,
                     int64_t *targets);

/* Returns whether a step computes micro-batch `micro`: it was given, or it is the last one, whose
 * backward completes the gradients. */
bool run_inputs_has(const struct run_inputs *inputs, uint32_t micro);

/* Copies the host's copy to the device, with the factor of the summed loss and the step's seed of
 * dropout (0: nothing is dropped). */
int run_inputs_send(struct run_inputs *inputs, struct dev_queue *queue, float scale, uint64_t seed);

/* Binds a program to micro-batch `micro`. */
void run_inputs_bind(const struct run_inputs *inputs, uint32_t micro,
                     struct model_binding *binding);

/* Binds the embedding's weights to the rows of micro-batch `micro`, which begin at `slot`. Does
 * nothing if the table is used whole. */
void run_inputs_bind_rows(const struct run_inputs *inputs, uint32_t micro, const char *slot,
                          struct model_binding *binding);
/* Sets *out to the part to move next for micro-batches [first, first + count); returns false if
 * there is none. The caller adds the moved bytes to cursor->done. */
bool run_inputs_next_rows(const struct run_inputs *inputs, uint32_t first, uint32_t count,
                          struct run_rows_cursor *cursor, struct run_rows_part *out);
/* Returns how many bytes all parts of these micro-batches have. */
uint64_t run_inputs_rows_bytes(const struct run_inputs *inputs, uint32_t first, uint32_t count);

/* Reads back the losses of the first `count` micro-batches, and waits for them. Sets *out to the
 * sum, in order, over the micro-batches that were computed. */
int run_inputs_losses(struct run_inputs *inputs, struct dev_queue *queue, uint32_t count,
                      struct kern_loss *out);

#endif
