/* device.h: the first steps of tests of a device; each function checks that it succeeded. */
#ifndef TESTS_DEV_DEVICE_H
#define TESTS_DEV_DEVICE_H

#include "core/dev/dev.h"

/* Opens a CPU device with this budget of memory. */
struct dev_device *device_open(size_t memory_bytes);
/* Creates a queue; on the CPU it has two threads. */
struct dev_queue *device_queue(struct dev_device *device, enum dev_queue_kind kind, uint32_t depth);
void *device_alloc(struct dev_device *device, size_t bytes);
/* Two ways to submit a copy; a full queue is retried. */
struct core_fence device_submit(struct dev_queue *queue, const struct dev_copy *copy);
struct core_fence device_copy(struct dev_queue *queue, enum dev_copy_direction direction, void *to,
                              const void *from, size_t bytes);
void device_wait(struct core_fence fence);

#endif
