/* table.c: attaches a device's ops, and asks its kind for their scratch. */
#include "kernels/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "kernels/cpu/table.h"
#if HAVE_CUDA
#include "kernels/cuda/table.h"
#endif

struct kind;

struct kern_ops {
    const struct kind *kind;
    struct kern_cpu *cpu;   /* owned; NULL for other kinds */
    struct kern_cuda *cuda; /* owned; NULL for other kinds */
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

#if HAVE_CUDA
static int attach_cuda(struct dev_device *device, const struct kern_options *options,
                       struct kern_ops *ops)
{
    int rc = kern_cuda_create(options, &ops->cuda);
    if (rc != 0) {
        return rc;
    }
    size_t count = 0;
    const struct dev_op *rows = kern_cuda_rows(&count);
    return dev_ops_register(device, rows, count, ops->cuda);
}

static const char *describe_cuda(const struct kern_ops *ops)
{
    return kern_cuda_describe(ops->cuda);
}

static void detach_cuda(struct kern_ops *ops)
{
    kern_cuda_destroy(ops->cuda);
}

static size_t scratch_cuda(enum kern_op op, const void *arguments, unsigned threads)
{
    (void)threads;
    return kern_cuda_scratch_bytes(op, arguments);
}

static struct kern_loss_parts whole_loss(const struct kern_loss_arguments *a)
{
    (void)a;
    return (struct kern_loss_parts){0};
}
#endif

static const char *describe_cpu(const struct kern_ops *ops)
{
    return kern_cpu_describe(ops->cpu);
}

static void detach_cpu(struct kern_ops *ops)
{
    kern_cpu_destroy(ops->cpu);
}

static const struct kind {
    const char *name;
    int (*attach)(struct dev_device *device, const struct kern_options *options,
                  struct kern_ops *ops);
    const char *(*describe)(const struct kern_ops *ops);
    void (*detach)(struct kern_ops *ops);
    size_t (*scratch)(enum kern_op op, const void *arguments, unsigned threads);
    struct kern_loss_parts (*loss_parts)(const struct kern_loss_arguments *a);
} kinds[] = {
    {"cpu", attach_cpu, describe_cpu, detach_cpu, kern_cpu_scratch_bytes, kern_cpu_loss_parts},
#if HAVE_CUDA
    {"cuda", attach_cuda, describe_cuda, detach_cuda, scratch_cuda, whole_loss},
#endif
};

static const struct kind *kind_of(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            return &kinds[i];
        }
    }
    return NULL;
}

int kern_ops_attach(struct dev_device *device, const struct kern_options *options,
                    struct kern_ops **out)
{
    const struct kern_options defaults = {0};
    const char *name = dev_properties(device)->kind;
    const struct kind *kind = kind_of(name);
    if (kind == NULL) {
        return core_err_set(-ENOTSUP, "this build has no ops for devices of kind %s", name);
    }
    struct kern_ops *ops = calloc(1, sizeof *ops);
    if (ops == NULL) {
        return core_err_set(-ENOMEM, "no memory for the ops of %s", name);
    }
    ops->kind = kind;
    int rc = kind->attach(device, options != NULL ? options : &defaults, ops);
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
        ops->kind->detach(ops);
        free(ops);
    }
}

const char *kern_ops_describe(const struct kern_ops *ops)
{
    return ops->kind->describe(ops);
}

size_t kern_scratch_bytes(const char *kind, enum kern_op op, const void *arguments,
                          unsigned threads)
{
    const struct kind *found = kind_of(kind);
    return found != NULL ? found->scratch(op, arguments, threads) : 0;
}

struct kern_loss_parts kern_loss_parts_of(const char *kind, const struct kern_loss_arguments *a)
{
    const struct kind *found = kind_of(kind);
    return found != NULL ? found->loss_parts(a) : (struct kern_loss_parts){0};
}
