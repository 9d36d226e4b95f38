/* table.h: the CPU device's ops for kernels/table.c; private to kernels/. */
#ifndef KERNELS_CPU_TABLE_H
#define KERNELS_CPU_TABLE_H

#include <stddef.h>

#include "core/dev/launch.h"
#include "kernels/kern.h"

struct kern_cpu;

/* Creates the context. Any thread. */
int kern_cpu_create(const struct kern_options *options, struct kern_cpu **out);
/* Accepts NULL. */
void kern_cpu_destroy(struct kern_cpu *cpu);
const char *kern_cpu_describe(const struct kern_cpu *cpu);

const struct dev_op *kern_cpu_rows(size_t *count);
size_t kern_cpu_scratch_bytes(enum kern_op op, const void *arguments, unsigned threads);
struct kern_loss_parts kern_cpu_loss_parts(const struct kern_loss_arguments *a);

#endif
