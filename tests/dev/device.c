/* device.c: see device.h. */
#include "tests/dev/device.h"

#include <errno.h>

#include "tests/harness/test.h"

struct dev_device *device_open(size_t memory_bytes)
{
    struct dev_device *device = NULL;
    check_int(dev_open("cpu", &(struct dev_options){.memory_bytes = memory_bytes}, &device), ==, 0);
    return device;
}

struct dev_queue *device_queue(struct dev_device *device, enum dev_queue_kind kind, uint32_t depth)
{
    struct dev_queue *queue = NULL;
    struct dev_queue_options options = {.kind = kind, .depth = depth, .threads = 2};
    check_int(dev_queue_create(device, &options, &queue), ==, 0);
    return queue;
}

void *device_alloc(struct dev_device *device, size_t bytes)
{
    void *memory = NULL;
    check_int(dev_memory_alloc(device, bytes, &memory), ==, 0);
    return memory;
}

void device_wait(struct core_fence fence)
{
    check_int(core_fence_wait(fence, 20000000000), ==, 0);
}

struct core_fence device_submit(struct dev_queue *queue, const struct dev_copy *copy)
{
    struct core_fence fence = {0};
    int rc;
    do {
        rc = dev_queue_copy(queue, copy, &fence);
    } while (rc == -EAGAIN);
    check_int(rc, ==, 0);
    return fence;
}

struct core_fence device_copy(struct dev_queue *queue, enum dev_copy_direction direction, void *to,
                              const void *from, size_t bytes)
{
    const struct dev_copy copy = {.direction = direction, .to = to, .from = from, .bytes = bytes};
    return device_submit(queue, &copy);
}
