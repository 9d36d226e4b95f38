/* optimizer_device.c: weights and gradients on a device. The update works on copies in host memory.
 * The application's thread calls, except run_optimizer_device_wait. */
#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/size.h"
#include "core/dev/dev.h"
#include "offload/run/optimizer_internal.h"

enum {
    COPIES_MAX = 32 /* if a queue is full, a copy waits until at most 32 are in flight */
};

/* This process's part of a parameter. */
struct moved {
    char *on_device; /* weights; borrowed from the application */
    char *weights;   /* in `region` */
    char *gradient;  /* in `region` */
    bool behind;     /* the device's weights are older than the host's */
};

struct run_optimizer_device {
    struct dev_device *device; /* owned */
    struct core_region region; /* owned */
    bool pinned;
    struct dev_queue *up;     /* owned */
    struct dev_queue *down;   /* owned */
    struct moved *moved;      /* owned, [parameters] */
    struct core_fence *taken; /* owned, [blocks]: last copy of a gradient */
    struct core_fence *shown; /* owned, [blocks]: last copy of weights */
};

static uint64_t weights_bytes(const struct run_optimizer *optimizer, size_t parameter)
{
    const struct run_lent_block *block = &optimizer->lent.blocks[optimizer->block_of[parameter]];
    return optimizer->parts[parameter]->count * (block->master == CORE_UPDATE_MASTER_F32 ? 4 : 2);
}

static uint64_t gradient_bytes(const struct run_optimizer *optimizer, size_t parameter)
{
    const struct run_lent_block *block = &optimizer->lent.blocks[optimizer->block_of[parameter]];
    return optimizer->parts[parameter]->count * (block->gradients == CORE_UPDATE_F32 ? 4 : 2);
}

uint64_t run_optimizer_device_bytes(const struct run_optimizer *optimizer)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < optimizer->parameter_count; i++) {
        if (optimizer->parts[i] != NULL) {
            bytes += core_round_up(weights_bytes(optimizer, i), DEV_ALIGN_BYTES) +
                     core_round_up(gradient_bytes(optimizer, i), DEV_ALIGN_BYTES);
        }
    }
    return bytes;
}

/* ---- copies ---- */

/* If the queue is full, waits for older copies. */
static int queue_copy(struct dev_queue *queue, const struct dev_copy *copy, struct core_fence *out)
{
    for (;;) {
        int rc = dev_queue_copy(queue, copy, out);
        if (rc != -EAGAIN) {
            return rc;
        }
        struct core_fence older = dev_queue_tail(queue);
        older.value -= older.value > COPIES_MAX ? COPIES_MAX : 0;
        rc = core_fence_wait(older, -1);
        if (rc != 0) {
            return rc;
        }
    }
}

static int copy_weights_down(struct run_optimizer *optimizer, size_t parameter, void *const *stream)
{
    struct run_optimizer_device *device = optimizer->device;
    const struct dev_copy down = {.direction = DEV_COPY_DOWN,
                                  .to = device->moved[parameter].weights,
                                  .from = device->moved[parameter].on_device,
                                  .bytes = weights_bytes(optimizer, parameter),
                                  .foreign = true,
                                  .stream = stream};
    struct core_fence unused;
    return queue_copy(device->down, &down, &unused);
}

int run_optimizer_device_take(struct run_optimizer *optimizer, size_t parameter, bool waits,
                              const char **gradient)
{
    struct run_optimizer_device *device = optimizer->device;
    struct core_fence *taken = &device->taken[optimizer->block_of[parameter]];
    const struct dev_copy down = {.direction = DEV_COPY_DOWN,
                                  .to = device->moved[parameter].gradient,
                                  .from = *gradient,
                                  .bytes = gradient_bytes(optimizer, parameter),
                                  .foreign = true,
                                  .stream = &optimizer->stream};
    int rc = queue_copy(device->down, &down, taken);
    if (rc == 0 && waits) {
        rc = core_fence_wait(*taken, -1);
    }
    if (rc == 0) {
        *gradient = device->moved[parameter].gradient;
    }
    return rc;
}

void run_optimizer_device_note(struct run_optimizer *optimizer, size_t parameter)
{
    optimizer->device->moved[parameter].behind = optimizer->parts[parameter] != NULL;
}

int run_optimizer_device_show(struct run_optimizer *optimizer, size_t parameter)
{
    struct run_optimizer_device *device = optimizer->device;
    struct moved *moved = &device->moved[parameter];
    if (!moved->behind || optimizer->submitted[parameter] > optimizer->steps) {
        return 0;
    }
    const struct dev_copy up = {.direction = DEV_COPY_UP,
                                .to = moved->on_device,
                                .from = moved->weights,
                                .bytes = weights_bytes(optimizer, parameter),
                                .foreign = true,
                                .stream = &optimizer->stream};
    const int rc = queue_copy(device->up, &up, &device->shown[optimizer->block_of[parameter]]);
    moved->behind = rc != 0;
    return rc;
}

int run_optimizer_device_read(struct run_optimizer *optimizer, size_t parameter)
{
    int rc = copy_weights_down(optimizer, parameter, &optimizer->stream);
    if (rc == 0) {
        rc = core_fence_wait(dev_queue_tail(optimizer->device->down), -1);
    }
    optimizer->device->moved[parameter].behind &= rc != 0;
    return rc;
}

static int wait_for(struct run_optimizer *optimizer, struct core_fence fence)
{
    int rc = core_fence_poll(fence);
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    rc = run_executor_drive_until(optimizer->rank->executor, fence, 0);
    return rc != 0 ? rc : core_fence_wait(fence, -1);
}

int run_optimizer_device_wait(struct run_optimizer *optimizer, uint32_t block)
{
    const struct run_optimizer_device *device = optimizer->device;
    int rc = wait_for(optimizer, device->taken[block]);
    return rc != 0 ? rc : wait_for(optimizer, device->shown[block]);
}

/* ---- open and close ---- */

static int open_device(struct run_optimizer *optimizer, const char *name)
{
    struct run_optimizer_device *device = optimizer->device;
    const struct core_region_options region = {.name = "weights and gradients of a device",
                                               .bytes = run_optimizer_device_bytes(optimizer)};
    int rc = dev_open(name, &(struct dev_options){.memory_bytes = DEV_ALIGN_BYTES},
                      &device->device);
    if (rc != 0) {
        return rc;
    }
    rc = core_region_alloc(&region, &device->region);
    if (rc != 0) {
        return rc;
    }
    device->pinned = dev_host_register(device->device, device->region.base,
                                       device->region.mapped_bytes) == 0;
    if (!device->pinned) {
        core_log(CORE_LOG_WARN, "%s; copies of weights and gradients are slow", core_err_message());
    }
    const struct dev_queue_options up = {.kind = DEV_QUEUE_UP, .bell = &optimizer->rank->bell};
    const struct dev_queue_options down = {.kind = DEV_QUEUE_DOWN, .bell = &optimizer->rank->bell};
    rc = dev_queue_create(device->device, &up, &device->up);
    return rc == 0 ? dev_queue_create(device->device, &down, &device->down) : rc;
}

static int move_parts(struct run_optimizer *optimizer)
{
    struct run_optimizer_device *device = optimizer->device;
    char *at = (char *)device->region.base;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < optimizer->parameter_count; i++) {
        struct run_lent_part *part = optimizer->parts[i];
        if (part == NULL) {
            continue;
        }
        char *gradient = at + core_round_up(weights_bytes(optimizer, i), DEV_ALIGN_BYTES);
        device->moved[i] = (struct moved){part->weights, at, gradient, false};
        part->weights = at;
        at = gradient + core_round_up(gradient_bytes(optimizer, i), DEV_ALIGN_BYTES);
        rc = copy_weights_down(optimizer, i, NULL);
    }
    return rc != 0 ? rc : core_fence_wait(dev_queue_tail(device->down), -1);
}

int run_optimizer_device_open(struct run_optimizer *optimizer, const char *name)
{
    const size_t blocks = optimizer->blocks->count;
    struct run_optimizer_device *device = calloc(1, sizeof *device);
    if (device == NULL) {
        return core_err_set(-ENOMEM, "no memory for a device");
    }
    optimizer->device = device;
    device->moved = calloc(optimizer->parameter_count, sizeof *device->moved);
    device->taken = calloc(blocks, sizeof *device->taken);
    device->shown = calloc(blocks, sizeof *device->shown);
    if (device->moved == NULL || device->taken == NULL || device->shown == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu parameters", optimizer->parameter_count);
    }
    int rc = open_device(optimizer, name);
    return rc != 0 ? rc : move_parts(optimizer);
}

void run_optimizer_device_stop(struct run_optimizer_device *device)
{
    if (device != NULL) {
        dev_queue_destroy(device->up);
        dev_queue_destroy(device->down);
        device->up = NULL;
        device->down = NULL;
    }
}

void run_optimizer_device_close(struct run_optimizer_device *device)
{
    if (device == NULL) {
        return;
    }
    if (device->pinned) {
        dev_host_unregister(device->device, device->region.base);
    }
    core_region_free(&device->region);
    dev_close(device->device);
    free(device->moved);
    free(device->taken);
    free(device->shown);
    free(device);
}
