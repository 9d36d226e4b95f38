/* inputs.h: what compute reads besides parameters and activations: the step's tokens and labels, the
 * scale of the loss, the tables of RoPE; and what it hands back, the losses. They lie in the device's
 * memory beside the plan's buffers, with a copy on the host that steps are written into.
 * The engine's thread, while the compute queue rests. */
#ifndef OFFLOAD_RUN_INPUTS_H
#define OFFLOAD_RUN_INPUTS_H

#include "offload/model/batch.h"
#include "offload/model/run.h"
#include "offload/run/options.h"

struct dev_device;
struct dev_queue;

struct run_inputs {
    const struct model *model; /* borrowed */
    struct dev_device *device; /* borrowed */
    int64_t stall_limit_ns;
    int64_t rows, length;
    uint32_t micro_batches;
    bool rope;
    char *device_base; /* owned: dev_memory_free */
    char *host;        /* owned: of what changes from step to step */
    uint64_t step_bytes;
    uint64_t angles_bytes; /* each of cos and sin, behind the step's bytes */
    bool *positions;       /* owned, [micro_batches]: the batch brought its own */
    bool *starts;          /* owned, the same */
};

/* Bytes of the device's memory that they take. */
uint64_t run_inputs_bytes(const struct model *model, const struct run_options *options);

/* Computes the tables and sends them with `queue`. */
int run_inputs_init(struct run_inputs *inputs, const struct model *model,
                    const struct run_options *options, struct dev_device *device,
                    struct dev_queue *queue);
/* A zeroed one is fine. */
void run_inputs_fini(struct run_inputs *inputs);

/* Writes micro-batch `micro` into the host's copy, filled up to the shape with what is not learnt.
 * `batch` NULL: nothing but filling. *targets grows by those of the batch. -EINVAL names row and
 * place of what is wrong. */
int run_inputs_put(struct run_inputs *inputs, uint32_t micro, const struct model_batch *batch,
                   int64_t *targets);

/* Sends the host's copy to the device, with the factor of the summed loss. */
int run_inputs_send(struct run_inputs *inputs, struct dev_queue *queue, float scale);

/* Points a program at micro-batch `micro`. */
void run_inputs_bind(const struct run_inputs *inputs, uint32_t micro,
                     struct model_binding *binding);

/* Fetches the losses of the first `count` micro-batches and adds them up in their order. Waits. */
int run_inputs_losses(struct run_inputs *inputs, struct dev_queue *queue, uint32_t count,
                      struct kern_loss *out);

#endif
