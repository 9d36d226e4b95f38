/* ops.c: selects the variant. */
#include "cpu_adam/ops.h"

#include "core/base/cpus.h"

void adam_ops_init(struct adam_ops *ops, unsigned mask)
{
    const unsigned flags = core_cpu_flags(mask);
    (void)flags;
    adam_ops_fill_scalar(ops);
#if defined(__x86_64__)
    if ((flags & CORE_CPU_AVX2) != 0) {
        adam_ops_fill_avx2(ops);
    }
    if ((flags & CORE_CPU_AVX512) != 0) {
        adam_ops_fill_avx512(ops);
    }
#elif defined(__aarch64__)
    if ((flags & CORE_CPU_NEON) != 0) {
        adam_ops_fill_neon(ops);
    }
#endif
}
