/* cpus.c: processor sets, and the processor's instruction sets (on x86 from cpuid). */
#include "core/base/cpus.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "core/base/err.h"
#include "core/base/log.h"

void core_cpus_add(struct core_cpus *set, unsigned cpu)
{
    if (cpu < CORE_CPUS_MAX) {
        set->bits[cpu / 64] |= UINT64_C(1) << (cpu % 64);
    }
}

bool core_cpus_has(const struct core_cpus *set, unsigned cpu)
{
    return cpu < CORE_CPUS_MAX && (set->bits[cpu / 64] >> (cpu % 64) & 1) != 0;
}

unsigned core_cpus_count(const struct core_cpus *set)
{
    unsigned count = 0;
    for (size_t i = 0; i < CORE_CPUS_MAX / 64; i++) {
        count += (unsigned)__builtin_popcountll(set->bits[i]);
    }
    return count;
}

int core_cpus_nth(const struct core_cpus *set, unsigned n)
{
    unsigned count = core_cpus_count(set);
    if (count == 0) {
        return -ENOENT;
    }
    n %= count;
    for (unsigned cpu = 0;; cpu++) {
        if (core_cpus_has(set, cpu) && n-- == 0) {
            return (int)cpu;
        }
    }
}

int core_cpus_allowed(struct core_cpus *out)
{
    size_t bytes = CPU_ALLOC_SIZE(CORE_CPUS_MAX);
    cpu_set_t *set = CPU_ALLOC(CORE_CPUS_MAX);
    if (set == NULL) {
        return core_err_set(-ENOMEM, "no memory for a processor set");
    }
    if (sched_getaffinity(0, bytes, set) != 0) {
        int rc = -errno;
        CPU_FREE(set);
        return core_err_set(rc, "sched_getaffinity failed: %s", strerror(-rc));
    }
    struct core_cpus found = {0};
    for (unsigned cpu = 0; cpu < CORE_CPUS_MAX; cpu++) {
        if (CPU_ISSET_S(cpu, bytes, set)) {
            core_cpus_add(&found, cpu);
        }
    }
    CPU_FREE(set);
    *out = found;
    return 0;
}

int core_cpus_bind_self(const struct core_cpus *wanted)
{
    size_t bytes = CPU_ALLOC_SIZE(CORE_CPUS_MAX);
    cpu_set_t *set = CPU_ALLOC(CORE_CPUS_MAX);
    if (set == NULL) {
        return core_err_set(-ENOMEM, "no memory for a processor set");
    }
    CPU_ZERO_S(bytes, set);
    for (unsigned cpu = 0; cpu < CORE_CPUS_MAX; cpu++) {
        if (core_cpus_has(wanted, cpu)) {
            CPU_SET_S(cpu, bytes, set);
        }
    }
    int rc = sched_setaffinity(0, bytes, set) != 0 ? -errno : 0;
    CPU_FREE(set);
    if (rc != 0) {
        char text[128];
        core_cpus_print(wanted, text, sizeof text);
        return core_err_set(rc, "cannot bind a thread to processors %s: %s", text, strerror(-rc));
    }
    return 0;
}

int core_cpus_parse(const char *text, struct core_cpus *out)
{
    struct core_cpus set = {0};
    const char *at = text;
    while (*at != '\0' && *at != '\n') {
        char *end = NULL;
        unsigned long first = strtoul(at, &end, 10);
        unsigned long last = first;
        if (end == at || *at == '-' || *at == '+') {
            return core_err_set(-EINVAL, "\"%s\" is not a list of processors such as 0-3,8", text);
        }
        if (*end == '-') {
            at = end + 1;
            last = strtoul(at, &end, 10);
        }
        if (end == at || last < first || last >= CORE_CPUS_MAX ||
            (*end != ',' && *end != '\0' && *end != '\n')) {
            return core_err_set(-EINVAL, "\"%s\" is not a list of processors such as 0-3,8", text);
        }
        for (unsigned long cpu = first; cpu <= last; cpu++) {
            core_cpus_add(&set, (unsigned)cpu);
        }
        at = *end == ',' ? end + 1 : end;
    }
    *out = set;
    return 0;
}

int core_cpus_print(const struct core_cpus *set, char *text, size_t bytes)
{
    int length = 0;
    if (bytes > 0) {
        text[0] = '\0';
    }
    for (unsigned cpu = 0; cpu < CORE_CPUS_MAX; cpu++) {
        if (!core_cpus_has(set, cpu)) {
            continue;
        }
        unsigned last = cpu;
        while (core_cpus_has(set, last + 1)) {
            last++;
        }
        size_t used = (size_t)length < bytes ? (size_t)length : bytes;
        char *to = text + used;
        const char *comma = length == 0 ? "" : ",";
        int wrote = last == cpu ? snprintf(to, bytes - used, "%s%u", comma, cpu)
                                : snprintf(to, bytes - used, "%s%u-%u", comma, cpu, last);
        length += wrote;
        cpu = last;
    }
    return length;
}

#if defined(__x86_64__)
static uint64_t enabled_state(void)
{
    uint32_t low = 0;
    uint32_t high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static unsigned machine_flags(void)
{
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    const unsigned fma = 1u << 12;
    const unsigned osxsave = 1u << 27;
    const unsigned f16c = 1u << 29;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & osxsave) == 0) {
        return 0;
    }
    const uint64_t state = enabled_state();
    const uint64_t ymm = 0x6;
    const uint64_t zmm = 0xe6;
    const uint64_t tiles = 0x60000;
    unsigned flags = 0;
    bool has_fma = (c & fma) != 0 && (c & f16c) != 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        return 0;
    }
    if (has_fma && (b >> 5 & 1) != 0 && (state & ymm) == ymm) {
        flags |= CORE_CPU_AVX2;
    }
    const unsigned skylake = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F DQ BW VL */
    if ((flags & CORE_CPU_AVX2) != 0 && (b & skylake) == skylake && (state & zmm) == zmm) {
        flags |= CORE_CPU_AVX512;
        flags |= (c >> 11 & 1) != 0 ? CORE_CPU_AVX512_VNNI : 0;
    }
    const bool amx = (d >> 22 & 1) != 0 && (d >> 24 & 1) != 0 && (state & tiles) == tiles;
    if ((flags & CORE_CPU_AVX512) != 0 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        flags |= (a >> 5 & 1) != 0 ? CORE_CPU_AVX512_BF16 : 0;
        flags |= amx ? CORE_CPU_AMX_BF16 : 0;
    }
    return flags;
}
#elif defined(__aarch64__)
static unsigned machine_flags(void)
{
    return CORE_CPU_NEON;
}
#else
static unsigned machine_flags(void)
{
    return 0;
}
#endif

static const struct {
    unsigned flag;
    const char *name;
} flag_names[] = {
    {CORE_CPU_AVX2, "avx2"},
    {CORE_CPU_AVX512, "avx512"},
    {CORE_CPU_AVX512_VNNI, "avx512_vnni"},
    {CORE_CPU_AVX512_BF16, "avx512_bf16"},
    {CORE_CPU_AMX_BF16, "amx_bf16"},
    {CORE_CPU_NEON, "neon"},
};

/* TIDE_ISA allows the flags up to the one that it names. */
static unsigned limit_flags(void)
{
    const char *text = getenv("TIDE_ISA");
    if (text == NULL || text[0] == '\0') {
        return CORE_CPU_ALL;
    }
    if (strcmp(text, "scalar") == 0) {
        return 0;
    }
    for (size_t i = 0; i < sizeof flag_names / sizeof flag_names[0]; i++) {
        if (strcmp(text, flag_names[i].name) == 0) {
            return 2 * flag_names[i].flag - 1;
        }
    }
    core_log(CORE_LOG_WARN,
             "TIDE_ISA is \"%s\", expected one of scalar, avx2, avx512, avx512_vnni, avx512_bf16, "
             "amx_bf16 or neon: all instructions of this processor are used",
             text);
    return CORE_CPU_ALL;
}

/* cpuid is slow in a virtual machine, so the flags are kept; concurrent first calls get the same
 * answer. */
unsigned core_cpu_flags(unsigned mask)
{
    enum { KNOWN = 1 << 30 }; /* marks a determined value */
    static _Atomic unsigned known;
    unsigned found = atomic_load_explicit(&known, memory_order_relaxed);
    if (found == 0) {
        found = KNOWN | (machine_flags() & limit_flags());
        atomic_store_explicit(&known, found, memory_order_relaxed);
    }
    return found & mask & ~(unsigned)KNOWN;
}

bool core_cpu_flags_limited(void)
{
    static _Atomic int known; /* 1: not limited, 2: limited */
    int found = atomic_load_explicit(&known, memory_order_relaxed);
    if (found == 0) {
        found = core_cpu_flags(CORE_CPU_ALL) == machine_flags() ? 1 : 2;
        atomic_store_explicit(&known, found, memory_order_relaxed);
    }
    return found == 2;
}

const char *core_cpu_flags_print(unsigned flags, char *text, size_t bytes)
{
    size_t used = 0;
    snprintf(text, bytes, "none");
    for (size_t i = 0; i < sizeof flag_names / sizeof flag_names[0]; i++) {
        if ((flags & flag_names[i].flag) != 0 && used < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used == 0 ? "" : " ",
                                     flag_names[i].name);
        }
    }
    return text;
}
