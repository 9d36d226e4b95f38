/* device.c: counts, describes and measures devices. The caller's thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <tide/tide.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "offload/api/abi.h"
#include "offload/api/context.h"

static int count_kind(const char *kind)
{
    if (kind == NULL) {
        return core_err_set(-EINVAL, "the kind of device is NULL");
    }
    const char *name;
    for (unsigned i = 0; (name = dev_kind_name(i)) != NULL; i++) {
        if (strcmp(name, kind) == 0) {
            return dev_kind_count(i);
        }
    }
    return core_err_set(-EINVAL, "unknown kind of device \"%s\" (expected cpu or cuda)", kind);
}

int tide_device_count(struct tide_context *context, const char *kind)
{
    const struct context_before before = context_enter(context);
    int count = count_kind(kind);
    context_leave(&before);
    return count;
}

/* `bytes`: budget of device memory. */
static int open_device(const char *name, size_t bytes, struct dev_device **out)
{
    if (name == NULL) {
        return core_err_set(-EINVAL, "the device's name is NULL");
    }
    return dev_open(name, &(struct dev_options){.memory_bytes = bytes}, out);
}

static int describe(const char *name, struct tide_device_info *out)
{
    struct dev_device *device = NULL;
    int rc = abi_struct_check("tide_device_info", out);
    if (rc != 0) {
        return rc;
    }
    rc = open_device(name, DEV_ALIGN_BYTES, &device);
    if (rc != 0) {
        return rc;
    }
    const struct dev_properties *properties = dev_properties(device);
    struct tide_device_info info = {
        .memory_total_bytes = properties->memory_total_bytes,
        .units = properties->units,
        .arch = properties->arch,
        .numa_node = properties->numa_node,
    };
    _Static_assert(sizeof info.name == DEV_NAME_BYTES, "names fit");
    _Static_assert(sizeof info.description == DEV_DESCRIPTION_BYTES, "descriptions fit");
    memcpy(info.name, properties->name, sizeof info.name);
    memcpy(info.description, properties->description, sizeof info.description);
    dev_close(device);
    return abi_struct_write("tide_device_info", &info, sizeof info, out);
}

int tide_device_describe(struct tide_context *context, const char *device,
                         struct tide_device_info *out)
{
    const struct context_before before = context_enter(context);
    int rc = describe(device, out);
    context_leave(&before);
    return rc;
}

static int measure(struct tide_context *context, const char *name, size_t bytes,
                   struct tide_device_rates *out)
{
    if (bytes == 0 || bytes > SIZE_MAX / 4) {
        return core_err_set(-EINVAL, "copies of %zu bytes cannot be measured", bytes);
    }
    int rc = abi_struct_check("tide_device_rates", out);
    if (rc != 0) {
        return rc;
    }
    rc = context_progress(context, "measure copies", 0, 1);
    if (rc != 0) {
        return rc;
    }
    struct dev_device *device = NULL;
    rc = open_device(name, 2 * bytes + DEV_ALIGN_BYTES, &device);
    if (rc != 0) {
        return rc;
    }
    struct dev_rates rates;
    rc = dev_rates_measure(device, bytes, &rates);
    dev_close(device);
    if (rc != 0) {
        return rc;
    }
    const struct tide_device_rates known = {
        .up = rates.up, .down = rates.down, .both = rates.both, .within = rates.within};
    rc = context_progress(context, "measure copies", 1, 1);
    if (rc != 0) {
        return rc;
    }
    return abi_struct_write("tide_device_rates", &known, sizeof known, out);
}

int tide_device_measure(struct tide_context *context, const char *device, size_t bytes,
                        struct tide_device_rates *out)
{
    const struct context_before before = context_enter(context);
    int rc = measure(context, device, bytes, out);
    context_leave(&before);
    return rc;
}
