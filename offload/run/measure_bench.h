/* measure_bench.h: what measure_*.c share: limits on memory, and a device with a queue. The
 * caller's thread waits. */
#ifndef OFFLOAD_RUN_MEASURE_BENCH_H
#define OFFLOAD_RUN_MEASURE_BENCH_H

#include "core/dev/dev.h"
#include "kernels/table.h"
#include "offload/run/options.h"
#include "offload/run/shapes.h"

double run_measure_seconds_since(int64_t start_ns);

uint64_t run_measure_clamp(uint64_t value, uint64_t least, uint64_t most);

/* ---- limits ---- */

/* Returns the bytes of all weights and states. */
uint64_t run_measure_kept_bytes(const struct run_shapes *shapes, const struct run_options *options);

/* Like run_measure_spare, with another upper limit, a power of two. */
uint64_t run_measure_spare_within(const struct run_shapes *shapes,
                                  const struct run_options *options, uint64_t limit);

/* ---- a device to measure on ---- */

struct run_bench {
    struct dev_device *device; /* owned */
    struct kern_ops *ops;      /* owned */
    struct dev_queue *queue;   /* owned */
    void *memory;              /* owned; device memory */
};

/* The caller zeroes `bench` first, and closes it even after a failure. */
int run_bench_open(struct run_bench *bench, const char *name, const struct kern_options *kernels,
                   const struct dev_queue_options *queue, uint64_t bytes);
void run_bench_close(struct run_bench *bench);

/* Launches a command on `elements` elements. Sets *per_second to the elements per second of the
 * fastest round. */
int run_bench_time(struct run_bench *bench, const struct dev_command *command, uint64_t elements,
                   double *per_second);

#endif
