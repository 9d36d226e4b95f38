/* device.h: the steps that every test of the CPU device begins with; each checks that it worked. */
#ifndef TESTS_DEV_DEVICE_H
#define TESTS_DEV_DEVICE_H

#include "core/dev/dev.h"

/* A CPU device with this budget. */
struct dev_device *device_open(size_t memory_bytes);
/* A queue of two threads. */
struct dev_queue *device_queue(struct dev_device *device, enum dev_queue_kind kind, uint32_t depth);
void *device_alloc(struct dev_device *device, size_t bytes);
/* Submits a copy without edges, again while the queue is full. */
struct core_fence device_copy(struct dev_queue *queue, enum dev_copy_direction direction, void *to,
                              const void *from, size_t bytes);
void device_wait(struct core_fence fence);

#endif
