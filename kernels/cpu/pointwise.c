/* pointwise.c: ops on independent tokens, rows or elements. */
#include "kernels/cpu/cpu.h"

enum { TOKEN_GRAIN = 4, ROW_GRAIN = 4, ELEMENT_GRAIN = 16384 };

#define POINTWISE(name, total, grain)                                                              \
    struct name##_job {                                                                            \
        const struct kern_isa *isa;                                                                \
        const struct kern_##name##_arguments *a;                                                   \
    };                                                                                             \
    static void name##_range(const void *argument, int64_t begin, int64_t end)                     \
    {                                                                                              \
        const struct name##_job *job = argument;                                                   \
        job->isa->name(job->a, begin, end);                                                        \
    }                                                                                              \
    size_t kern_cpu_##name##_bytes(const struct kern_##name##_arguments *a, unsigned threads)      \
    {                                                                                              \
        (void)a;                                                                                   \
        (void)threads;                                                                             \
        return 0;                                                                                  \
    }                                                                                              \
    int kern_cpu_##name(const struct dev_launch *where, const struct kern_##name##_arguments *a)   \
    {                                                                                              \
        const struct name##_job job = {kern_cpu_isa(where), a};                                    \
        kern_cpu_spread(where, a->total, grain, name##_range, &job);                               \
        return 0;                                                                                  \
    }

POINTWISE(rope, tokens, TOKEN_GRAIN)
POINTWISE(act, tokens, TOKEN_GRAIN)
POINTWISE(act_grad, tokens, TOKEN_GRAIN)
POINTWISE(add, count, ELEMENT_GRAIN)
POINTWISE(dropout, count, ELEMENT_GRAIN)
POINTWISE(magnitude, rows, ROW_GRAIN)
POINTWISE(columns, tokens, TOKEN_GRAIN)
