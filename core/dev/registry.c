/* registry.c: the kinds of device that this build knows, and opening a device by its name. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/dev/backend.h"

struct kind {
    const char *name;
    const struct dev_backend *backend; /* NULL: not built in */
    const char *absent;                /* the cause, and the remedy */
};

static const struct kind kinds[] = {
    {"cpu", &dev_backend_cpu, NULL},
#if HAVE_CUDA
    {"cuda", &dev_backend_cuda, NULL},
#else
    {"cuda", NULL,
     DEV_CUDA_STATE "; install the CUDA 13 toolkit and build again with -Dcuda=enabled"},
#endif
};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0], NUMBER_MAX = 1023 };

const char *dev_kind_name(unsigned index)
{
    return index < KIND_COUNT ? kinds[index].name : NULL;
}

bool dev_kind_built(unsigned index)
{
    return index < KIND_COUNT && kinds[index].backend != NULL;
}

bool dev_is_cpu(const char *name)
{
    return strcspn(name, ":") == strlen("cpu") && strncmp(name, "cpu", strlen("cpu")) == 0;
}

int dev_kind_count(unsigned index)
{
    if (index >= KIND_COUNT) {
        return core_err_set(-EINVAL, "unknown device kind %u; there are %d kinds", index,
                            KIND_COUNT);
    }
    const struct kind *kind = &kinds[index];
    if (kind->backend == NULL) {
        return core_err_set(-ENOTSUP, "this build has no device %s: %s", kind->name, kind->absent);
    }
    return kind->backend->count();
}

/* Splits "cuda:1" into the index of its kind and its number; 0 or -EINVAL. */
static int parse_name(const char *name, unsigned *kind, unsigned *number)
{
    const char *colon = strchr(name, ':');
    size_t length = colon != NULL ? (size_t)(colon - name) : strlen(name);
    char *end = NULL;
    unsigned long value = 0;
    if (colon != NULL) {
        value = strtoul(colon + 1, &end, 10);
        if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || value > NUMBER_MAX) {
            return core_err_set(-EINVAL,
                                "expected a number from 0 to %d after ':' in device \"%s\"",
                                NUMBER_MAX, name);
        }
    }
    for (unsigned i = 0; i < KIND_COUNT; i++) {
        if (strlen(kinds[i].name) == length && strncmp(kinds[i].name, name, length) == 0) {
            *kind = i;
            *number = (unsigned)value;
            return 0;
        }
    }
    return core_err_set(-EINVAL, "unknown device \"%s\" (expected cpu, cuda or cuda:N)", name);
}

int dev_open(const char *name, const struct dev_options *options, struct dev_device **out)
{
    static const struct dev_options defaults = {0};
    unsigned kind = 0;
    unsigned number = 0;
    int rc = parse_name(name, &kind, &number);
    if (rc != 0) {
        return rc;
    }
    int count = dev_kind_count(kind);
    if (count < 0) {
        return count;
    }
    if (number >= (unsigned)count) {
        return core_err_set(-ENODEV,
                            "device %s:%u does not exist: this machine has %d of that kind",
                            kinds[kind].name, number, count);
    }
    return kinds[kind].backend->open(number, options != NULL ? options : &defaults, out);
}
