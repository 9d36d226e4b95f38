/* expand.c: makes weights of a part of a stored tensor. */
#include "kernels/cpu/cpu.h"
#include "kernels/quant.h"

enum { GRAIN_ELEMENTS = 16384 };

struct expand_job {
    const struct kern_isa *isa;
    const struct kern_expand_arguments *a;
};

static void expand_range(const void *argument, int64_t begin, int64_t end)
{
    const struct expand_job *job = argument;
    job->isa->expand(job->a, begin, end);
}

size_t kern_cpu_expand_bytes(const struct kern_expand_arguments *a, unsigned threads)
{
    (void)a;
    (void)threads;
    return 0;
}

int kern_cpu_expand(const struct dev_launch *where, const struct kern_expand_arguments *a)
{
    const struct expand_job job = {kern_cpu_isa(where), a};
    const int64_t each = kern_quant_grain(a->quant, a->cols);
    const int64_t total = each > 0 ? (a->count + each - 1) / each : 0;
    kern_cpu_spread(where, total, each < GRAIN_ELEMENTS ? GRAIN_ELEMENTS / each : 1, expand_range,
                    &job);
    return 0;
}
