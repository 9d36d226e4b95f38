/* lane_compute.h: the lane of forward, backward, expansion of weights, and updates of chunks that
 * stay on a GPU. Turns a command into steps on the device's compute queue. The rank's thread
 * submits. */
#ifndef OFFLOAD_RUN_LANE_COMPUTE_H
#define OFFLOAD_RUN_LANE_COMPUTE_H

#include "offload/run/executor.h"
#include "offload/run/inputs.h"
#include "offload/run/lane_update.h"
#include "offload/run/memory.h"
#include "offload/run/shapes.h"

struct run_compute {
    const struct run_shapes *shapes; /* borrowed, like all pointers here */
    const struct plan_input *input;
    const struct run_memory *memory;
    const struct run_inputs *inputs;
    struct run_update *update; /* for blocks that stay on the card */
    struct dev_queue *queue;
    struct model_binding *binding; /* of the micro-batch being submitted */
    enum kern_type type;           /* type of weights and activations */
    enum kern_type grad_type;      /* type of stored gradients */
    uint32_t micro_batches;
    uint64_t micro_first; /* this rank's first micro-batch, counted over all ranks */
    uint32_t group;       /* micro-batches of a command; at least 1 */
    uint64_t grad_stride; /* bytes from one micro-batch's boundary gradient to the next one's */
    /* Progress of the current command, which waits while a queue is full. */
    uint32_t done; /* micro-batches of the command */
    unsigned phase;
    uint64_t cleared; /* elements; gaps before this one were submitted */
    struct model_cursor cursor;
};

struct run_lane run_compute_lane(struct run_compute *compute);

#endif
