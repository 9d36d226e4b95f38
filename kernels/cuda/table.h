/* table.h: private to kernels/: the table of CUDA ops for kernels/table.c. */
#ifndef KERNELS_CUDA_TABLE_H
#define KERNELS_CUDA_TABLE_H

#include <stddef.h>

#include "core/dev/launch.h"
#include "kernels/kern.h"

struct kern_cuda;

/* Creates the context for the calling thread's current card. */
int kern_cuda_create(const struct kern_options *options, struct kern_cuda **out);
/* Accepts NULL. */
void kern_cuda_destroy(struct kern_cuda *cuda);
const char *kern_cuda_describe(const struct kern_cuda *cuda);

const struct dev_op *kern_cuda_rows(size_t *count);
size_t kern_cuda_scratch_bytes(enum kern_op op, const void *arguments);

#endif
