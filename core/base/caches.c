/* caches.c: the sizes of processors' last-level caches, from /sys. */
#include "core/base/caches.h"

#include <stdlib.h>

#include "core/base/sysfile.h"

/* A cache is counted for the first processor of the set that uses it. */
uint64_t core_caches_bytes(const struct core_cpus *set, const char *root)
{
    enum { TEXT_BYTES = 4096 };
    char text[TEXT_BYTES];
    struct core_cpus counted = {0};
    uint64_t bytes = 0;
    for (unsigned cpu = 0; cpu < CORE_CPUS_MAX; cpu++) {
        struct core_cpus users = {0};
        if (!core_cpus_has(set, cpu) || core_cpus_has(&counted, cpu) ||
            core_sysfile_text(text, sizeof text, root,
                              "/sys/devices/system/cpu/cpu%u/cache/index3/size", cpu) <= 0) {
            continue;
        }
        char *unit = NULL;
        const uint64_t kib = strtoull(text, &unit, 10); /* "32768K" */
        if (*unit == 'K' &&
            core_sysfile_text(text, sizeof text, root,
                              "/sys/devices/system/cpu/cpu%u/cache/index3/shared_cpu_list",
                              cpu) > 0 &&
            core_cpus_parse(text, &users) == 0) {
            bytes += kib << 10;
            for (size_t i = 0; i < sizeof counted.bits / sizeof counted.bits[0]; i++) {
                counted.bits[i] |= users.bits[i];
            }
        }
    }
    return bytes;
}
