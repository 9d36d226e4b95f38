/* table.c: which kinds of device have ops, and who brings them. */
#include "kernels/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "kernels/cpu/table.h"

struct kern_ops {
    struct kern_cpu *cpu; /* owned; NULL for other kinds */
};

static int attach_cpu(struct dev_device *device, const struct kern_options *options,
                      struct kern_ops *ops)
{
    int rc = kern_cpu_create(options, &ops->cpu);
    if (rc != 0) {
        return rc;
    }
    size_t count = 0;
    const struct dev_op *rows = kern_cpu_rows(&count);
    return dev_ops_register(device, rows, count, ops->cpu);
}

int kern_ops_attach(struct dev_device *device, const struct kern_options *options,
                    struct kern_ops **out)
{
    const struct kern_options defaults = {0};
    const char *kind = dev_properties(device)->kind;
    if (strcmp(kind, "cpu") != 0) {
        return core_err_set(-ENOTSUP, "this build has no ops for devices of kind %s", kind);
    }
    struct kern_ops *ops = calloc(1, sizeof *ops);
    if (ops == NULL) {
        return core_err_set(-ENOMEM, "no memory for the ops of %s", kind);
    }
    int rc = attach_cpu(device, options != NULL ? options : &defaults, ops);
    if (rc != 0) {
        kern_ops_detach(ops);
        return rc;
    }
    *out = ops;
    return 0;
}

void kern_ops_detach(struct kern_ops *ops)
{
    if (ops != NULL) {
        kern_cpu_destroy(ops->cpu);
        free(ops);
    }
}

const char *kern_ops_describe(const struct kern_ops *ops)
{
    return kern_cpu_describe(ops->cpu);
}

size_t kern_scratch_bytes(const char *kind, enum kern_op op, const void *arguments,
                          unsigned threads)
{
    return strcmp(kind, "cpu") == 0 ? kern_cpu_scratch_bytes(op, arguments, threads) : 0;
}
