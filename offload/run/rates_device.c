/* rates_device.c: a device with kernels, one queue and one piece of memory, to time something on. */
#include "core/dev/dev.h"
#include "kernels/table.h"
#include "offload/run/rates_parts.h"

int run_rates_device_open(struct run_rates_device *on, const char *name,
                          const struct dev_options *device, const struct kern_options *kernels,
                          const struct dev_queue_options *queue, uint64_t bytes)
{
    int rc = dev_open(name, device, &on->device);
    rc = rc != 0 ? rc : kern_ops_attach(on->device, kernels, &on->ops);
    rc = rc != 0 ? rc : dev_queue_create(on->device, queue, &on->queue);
    return rc != 0 ? rc : dev_memory_alloc(on->device, bytes, &on->memory);
}

void run_rates_device_close(struct run_rates_device *on)
{
    dev_queue_destroy(on->queue);
    if (on->device != NULL) {
        if (on->memory != NULL) {
            dev_memory_free(on->device, on->memory);
        }
        kern_ops_detach(on->ops);
        dev_close(on->device);
    }
}
