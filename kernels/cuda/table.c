/* table.c: the table of CUDA ops, their scratch and their context. */
#include "kernels/cuda/table.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/product_lt.h"

/* Returns -ENOMEM with a message if the queue's scratch is too small. */
static int need(const struct dev_launch *where, enum kern_op op, size_t bytes)
{
    if (where->scratch_bytes >= bytes) {
        return 0;
    }
    return core_err_set(-ENOMEM, "op %s needs %zu bytes of scratch, but its queue has %zu",
                        kern_op_name(op), bytes, where->scratch_bytes);
}

#define LAUNCH(id, name, type) DEV_OP_LAUNCH(kern_cuda_##name, type)
KERN_CUDA_OPS(LAUNCH)

#define LAUNCH_WITH(id, name, type)                                                                \
    static size_t name##_bytes(const void *arguments)                                              \
    {                                                                                              \
        return kern_cuda_##name##_bytes(arguments);                                                \
    }                                                                                              \
    static int kern_cuda_##name##_launch(const struct dev_launch *where, const void *arguments)    \
    {                                                                                              \
        const int rc = need(where, id, name##_bytes(arguments));                                   \
        return rc == 0 ? kern_cuda_##name(where, arguments) : rc;                                  \
    }
KERN_CUDA_SCRATCH_OPS(LAUNCH_WITH)

#define ROW(id, name, type) {id, #name, sizeof(struct type), kern_cuda_##name##_launch},
static const struct dev_op rows[] = {KERN_CUDA_OPS(ROW) KERN_CUDA_SCRATCH_OPS(ROW)};

#define BYTES(id, name, type) [id] = name##_bytes,
static size_t (*const bytes_of[KERN_OP_COUNT])(const void *) = {KERN_CUDA_SCRATCH_OPS(BYTES)};

const struct dev_op *kern_cuda_rows(size_t *count)
{
    *count = sizeof rows / sizeof rows[0];
    return rows;
}

size_t kern_cuda_scratch_bytes(enum kern_op op, const void *arguments)
{
    assert(op < KERN_OP_COUNT);
    return bytes_of[op] != NULL ? bytes_of[op](arguments) : 0;
}

/* TIDE_ATTENTION disables Hopper kernels that fault (docs/cuda.md): "mma" both, "mma-forward" or
 * "mma-gradient" one. */
static int choose_attention(struct kern_cuda *cuda)
{
    const char *wanted = getenv("TIDE_ATTENTION");
    if (wanted == NULL) {
        return 0;
    }
    const bool both = strcmp(wanted, "mma") == 0;
    const bool forward = both || strcmp(wanted, "mma-forward") == 0;
    const bool gradient = both || strcmp(wanted, "mma-gradient") == 0;
    if (!forward && !gradient) {
        return core_err_set(-EINVAL,
                            "invalid TIDE_ATTENTION \"%s\" (expected mma, mma-forward or "
                            "mma-gradient, or unset)",
                            wanted);
    }
    if (forward) {
        cuda->sm90 = KERN_SM90_LEFT_OUT;
    }
    if (gradient) {
        cuda->sm90_grad = KERN_SM90_LEFT_OUT;
    }
    return 0;
}

/* TIDE_PRODUCTS=plain: products without cuBLASLt and tensor cores, to find a fault's cause. */
static int choose_products(const struct kern_options *options, bool *plain)
{
    const char *wanted = getenv("TIDE_PRODUCTS");
    if (wanted != NULL && strcmp(wanted, "plain") != 0) {
        return core_err_set(-EINVAL, "invalid TIDE_PRODUCTS \"%s\" (expected plain, or unset)",
                            wanted);
    }
    *plain = wanted != NULL || options->products == KERN_PRODUCTS_PLAIN;
    return 0;
}

int kern_cuda_create(const struct kern_options *options, struct kern_cuda **out)
{
    struct kern_cuda *cuda = calloc(1, sizeof *cuda);
    if (cuda == NULL) {
        return core_err_set(-ENOMEM, "no memory for the ops of a CUDA device");
    }
    bool plain = false;
    int rc = choose_attention(cuda);
    if (rc == 0) {
        rc = choose_products(options, &plain);
    }
    if (rc != 0) {
        kern_cuda_destroy(cuda);
        return rc;
    }
    if (!plain) {
        rc = kern_lt_create(&cuda->lt);
        if (rc == -ENOTSUP) {
            core_log(CORE_LOG_WARN, "%s; products run without tensor cores and are slow",
                     core_err_message());
        } else if (rc != 0) {
            kern_cuda_destroy(cuda);
            return rc;
        }
    }
    snprintf(cuda->description, sizeof cuda->description, "%s",
             cuda->lt != NULL ? kern_lt_describe(cuda->lt) : "plain products");
    *out = cuda;
    return 0;
}

void kern_cuda_destroy(struct kern_cuda *cuda)
{
    if (cuda != NULL) {
        kern_lt_destroy(cuda->lt);
        free(cuda);
    }
}

const char *kern_cuda_describe(const struct kern_cuda *cuda)
{
    return cuda->description;
}
