/* cpu.c: helpers of the CPU device's ops. */
#include "kernels/cpu/cpu.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "core/base/team.h"
#include "kernels/cpu/product_dnnl.h"

enum { SCRATCH_GRAIN = 64 };

int kern_cpu_need(const struct dev_launch *where, enum kern_op op, size_t bytes)
{
    if (where->scratch_bytes >= bytes) {
        return 0;
    }
    return core_err_set(-ENOMEM, "op %s needs %zu bytes of scratch, but its queue has %zu",
                        kern_op_name(op), bytes, where->scratch_bytes);
}

size_t kern_cpu_round(size_t bytes)
{
    return core_round_up(bytes, SCRATCH_GRAIN);
}

void *kern_cpu_take(char **scratch, size_t bytes)
{
    char *taken = *scratch;
    *scratch = taken + kern_cpu_round(bytes);
    return taken;
}

struct spread {
    int64_t total;
    int64_t grain;
    kern_cpu_range *part;
    const void *argument;
};

static void spread_part(void *argument, unsigned index, unsigned count)
{
    const struct spread *spread = argument;
    uint64_t begin = 0;
    uint64_t end = 0;
    core_team_share((uint64_t)spread->total, (uint64_t)spread->grain, index, count, &begin, &end);
    if (begin < end) {
        spread->part(spread->argument, (int64_t)begin, (int64_t)end);
    }
}

void kern_cpu_spread(const struct dev_launch *where, int64_t total, int64_t grain,
                     kern_cpu_range *part, const void *argument)
{
    struct spread spread = {total, grain, part, argument};
    if (total <= grain) {
        spread_part(&spread, 0, 1);
    } else {
        core_team_run(where->team, spread_part, &spread);
    }
}

void kern_cpu_part_rows(int64_t rows, int64_t index, int64_t *begin, int64_t *end)
{
    uint64_t first = 0;
    uint64_t last = 0;
    core_team_share((uint64_t)rows, 1, (unsigned)index, KERN_CPU_PARTS, &first, &last);
    *begin = (int64_t)first;
    *end = (int64_t)last;
}

void kern_cpu_parts_finish(const struct kern_isa *isa, float *parts, int64_t width,
                           const struct kern_grad *grad)
{
    for (int64_t part = 1; part < KERN_CPU_PARTS; part++) {
        const float *add = parts + part * width;
        for (int64_t i = 0; i < width; i++) {
            parts[i] += add[i];
        }
    }
    const struct kern_finish finish = kern_finish_grad(grad, width);
    const int64_t at[2] = {0, 0};
    const int64_t size[2] = {1, width};
    isa->finish(&finish, parts, width, at, size);
}

int kern_cpu_product(const struct dev_launch *where, const struct kern_product *product,
                     void *scratch)
{
    const struct kern_cpu *cpu = where->context;
    if (product->m == 0 || product->n == 0) {
        return 0;
    }
    if (cpu->dnnl != NULL && kern_product_dnnl_takes(cpu->dnnl, product)) {
        return kern_product_dnnl(cpu->dnnl, cpu->isa, where->team, product, scratch);
    }
    kern_product_plain(cpu->isa, where->team, product, scratch);
    return 0;
}

size_t kern_cpu_product_bytes(enum kern_type type, int64_t m, int64_t n, int64_t k,
                              unsigned threads)
{
    size_t most = kern_product_dnnl_bytes(type, m, n, k, threads);
    for (unsigned i = 0; i < kern_isa_count(); i++) {
        const size_t bytes = kern_product_plain_bytes(kern_isa_at(i), type, m, n, k, threads);
        most = bytes > most ? bytes : most;
    }
    return kern_cpu_round(most);
}
