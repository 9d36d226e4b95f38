/* cpus.h: sets of logical processors, and the processor's instruction sets. Any thread. */
#ifndef CORE_BASE_CPUS_H
#define CORE_BASE_CPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CORE_CPUS_MAX = 1024 };

struct core_cpus {
    uint64_t bits[CORE_CPUS_MAX / 64];
};

void core_cpus_add(struct core_cpus *set, unsigned cpu);
bool core_cpus_has(const struct core_cpus *set, unsigned cpu);
unsigned core_cpus_count(const struct core_cpus *set);
/* Returns the n-th member from 0, modulo the size of the set; -ENOENT for an empty set. */
int core_cpus_nth(const struct core_cpus *set, unsigned n);

/* Sets *out to the processors that this thread may run on. Returns 0, or -errno with a message. */
int core_cpus_allowed(struct core_cpus *out);
/* Binds the calling thread. Returns 0, or -errno with a message. */
int core_cpus_bind_self(const struct core_cpus *set);

/* Parses the kernel's list form, "0-3,8,10-11". Returns 0, or -EINVAL with a message. */
int core_cpus_parse(const char *text, struct core_cpus *out);
/* Writes the list form. Returns its full length, as snprintf does. */
int core_cpus_print(const struct core_cpus *set, char *text, size_t bytes);

enum core_cpu_flag {
    CORE_CPU_AVX2 = 1 << 0,        /* with FMA and F16C */
    CORE_CPU_AVX512 = 1 << 1,      /* F, BW, DQ, VL */
    CORE_CPU_AVX512_VNNI = 1 << 2, /* 8-bit products */
    CORE_CPU_AVX512_BF16 = 1 << 3,
    CORE_CPU_AMX_BF16 = 1 << 4,
    CORE_CPU_NEON = 1 << 8,
};
enum { CORE_CPU_ALL = 0x7fffffff };

/* Returns the flags of `mask` that the processor has, the operating system allows and TIDE_ISA
 * permits (all up to the flag that it names). CORE_CPU_AVX512 implies CORE_CPU_AVX2, and higher x86
 * flags imply CORE_CPU_AVX512, so a variant tests only its own flag. */
unsigned core_cpu_flags(unsigned mask);
bool core_cpu_flags_limited(void);
/* Writes the names, such as "avx2 avx512", or "none". Returns text. */
const char *core_cpu_flags_print(unsigned flags, char *text, size_t bytes);

#endif
