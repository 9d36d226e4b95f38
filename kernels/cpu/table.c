/* table.c: the CPU device's rows of the op table, and their scratch. */
#include "kernels/cpu/table.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/cpus.h"
#include "core/base/err.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/product_dnnl.h"

#define LAUNCH(id, name)                                                                           \
    DEV_OP_LAUNCH(kern_cpu_##name, kern_##name##_arguments)                                        \
    static size_t name##_bytes(const void *arguments, unsigned threads)                            \
    {                                                                                              \
        return kern_cpu_##name##_bytes(arguments, threads);                                        \
    }
KERN_CPU_OPS(LAUNCH)

#define ROW(id, name) {id, #name, sizeof(struct kern_##name##_arguments), kern_cpu_##name##_launch},
static const struct dev_op rows[] = {KERN_CPU_OPS(ROW)};

#define BYTES(id, name) [id] = name##_bytes,
static size_t (*const bytes_of[KERN_OP_COUNT])(const void *, unsigned) = {KERN_CPU_OPS(BYTES)};

const struct dev_op *kern_cpu_rows(size_t *count)
{
    *count = sizeof rows / sizeof rows[0];
    return rows;
}

size_t kern_cpu_scratch_bytes(enum kern_op op, const void *arguments, unsigned threads)
{
    assert(op < KERN_OP_COUNT);
    return bytes_of[op] != NULL ? bytes_of[op](arguments, threads) : 0;
}

int kern_cpu_create(const struct kern_options *options, struct kern_cpu **out)
{
    const unsigned flags = core_cpu_flags(options->cpu_flags != 0 ? options->cpu_flags
                                                                  : CORE_CPU_ALL);
    struct kern_cpu *cpu = calloc(1, sizeof *cpu);
    if (cpu == NULL) {
        return core_err_set(-ENOMEM, "no memory for the ops of the CPU device");
    }
    cpu->isa = kern_isa_best(flags);
    if (options->products != KERN_PRODUCTS_PLAIN) {
        const bool all = options->products == KERN_PRODUCTS_ONEDNN;
        int rc = kern_dnnl_create(flags, all, &cpu->dnnl);
        if (rc != 0 && all) {
            kern_cpu_destroy(cpu);
            return rc;
        }
    }
    snprintf(cpu->description, sizeof cpu->description, "blocked products (%s)%s%s", cpu->isa->name,
             cpu->dnnl != NULL ? ", " : "", cpu->dnnl != NULL ? kern_dnnl_describe(cpu->dnnl) : "");
    *out = cpu;
    return 0;
}

void kern_cpu_destroy(struct kern_cpu *cpu)
{
    if (cpu != NULL) {
        kern_dnnl_destroy(cpu->dnnl);
        free(cpu);
    }
}

const char *kern_cpu_describe(const struct kern_cpu *cpu)
{
    return cpu->description;
}
