/* pinned.c: host memory for fast transfers. The caller's thread. */
#include <errno.h>
#include <stdlib.h>
#include <tide/blocks.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/dev/dev.h"
#include "offload/api/abi.h"
#include "offload/api/context.h"

struct tide_pinned {
    struct core_region region; /* owned */
    struct dev_device *device; /* owned; NULL: not pinned for a GPU */
    pid_t process;             /* the allocating process */
};

/* A driver's refusal to pin is not an error. */
static int pin(struct tide_pinned *pinned, const char *device)
{
    if (device == NULL || dev_is_cpu(device)) {
        return 0;
    }
    int rc = dev_open(device, &(struct dev_options){.memory_bytes = DEV_ALIGN_BYTES},
                      &pinned->device);
    if (rc == 0 &&
        dev_host_register(pinned->device, pinned->region.base, pinned->region.mapped_bytes) != 0) {
        core_log(CORE_LOG_WARN, "%s; copies from this memory are slow", core_err_message());
    }
    return rc;
}

static void pinned_free(struct tide_pinned *pinned)
{
    if (pinned->device != NULL) {
        dev_host_unregister(pinned->device, pinned->region.base);
        dev_close(pinned->device);
    }
    core_region_free(&pinned->region);
    free(pinned);
}

static int pinned_alloc(const char *device, uint64_t bytes, struct tide_pinned **out)
{
    struct tide_pinned *pinned = calloc(1, sizeof *pinned);
    if (pinned == NULL) {
        return core_err_set(-ENOMEM, "no memory for pinned memory");
    }
    pinned->process = getpid();
    int rc = core_region_alloc(
        &(struct core_region_options){.name = "pinned memory", .bytes = bytes}, &pinned->region);
    if (rc == 0) {
        rc = pin(pinned, device);
    }
    if (rc != 0) {
        pinned_free(pinned);
        return rc;
    }
    *out = pinned;
    return 0;
}

int tide_pinned_alloc(struct tide_context *context, const char *device, uint64_t bytes,
                      struct tide_pinned **out)
{
    const struct context_before before = context_enter(context);
    int rc = abi_pointer_check("`out`", out);
    if (rc == 0) {
        rc = pinned_alloc(device, bytes, out);
    }
    context_leave(&before);
    return rc;
}

void *tide_pinned_memory(const struct tide_pinned *pinned)
{
    return pinned != NULL ? pinned->region.base : NULL;
}

void tide_pinned_free(struct tide_pinned *pinned)
{
    if (pinned != NULL && pinned->process == getpid()) {
        pinned_free(pinned);
    }
}
