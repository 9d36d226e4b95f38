/* transfer.h: the lanes that move bytes: copies between HOST and DEVICE, and a drive's queues. Each
 * queue of the tape that moves has one of these. The engine's thread submits. */
#ifndef OFFLOAD_RUN_TRANSFER_H
#define OFFLOAD_RUN_TRANSFER_H

#include "offload/run/executor.h"
#include "offload/run/memory.h"
#include "offload/store/store.h"

struct dev_queue;

struct run_copy {
    const struct run_memory *memory; /* borrowed, as all here */
    struct dev_queue *queue;
};
struct run_lane run_copy_lane(struct run_copy *copy);

struct run_io {
    const struct run_memory *memory; /* borrowed, as all here */
    struct store *store;
    struct aio_queue *queue;
    const struct plan *plan;
    unsigned done; /* requests of the command in work that the drive's queue has taken */
};
struct run_lane run_io_lane(struct run_io *io);

#endif
