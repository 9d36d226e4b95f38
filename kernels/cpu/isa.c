/* isa.c: the instruction sets that this build has inner loops for. */
#include "kernels/cpu/isa.h"

#include <assert.h>
#include <stddef.h>

#include "core/base/cpus.h"

static const struct kern_isa *const sets[] = {
#if defined(__x86_64__)
    &kern_isa_avx512bf16,
    &kern_isa_avx512,
    &kern_isa_avx2,
#endif
    &kern_isa_base,
};

static unsigned widest(unsigned flags)
{
    unsigned index = 0;
    while (sets[index]->flag != 0 && (flags & sets[index]->flag) == 0) {
        index++;
    }
    return index;
}

unsigned kern_isa_count(void)
{
    return sizeof sets / sizeof sets[0] - widest(core_cpu_flags(CORE_CPU_ALL));
}

const struct kern_isa *kern_isa_at(unsigned index)
{
    assert(index < kern_isa_count());
    return sets[widest(core_cpu_flags(CORE_CPU_ALL)) + index];
}

const struct kern_isa *kern_isa_best(unsigned flags)
{
    return sets[widest(flags)];
}
