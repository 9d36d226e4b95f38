/* team.c: a team on the node of given pages: asks the kernel, uses no library. */
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/cpus.h"
#include "core/base/log.h"
#include "cpu_adam/adam.h"

/* get_mempolicy(2): the node of the page at an address. */
static int node_of(const void *pages)
{
    enum { POLICY_NODE = 1, POLICY_ADDRESS = 2 };
    int node = -1;
#if defined(SYS_get_mempolicy)
    if (syscall(SYS_get_mempolicy, &node, NULL, 0UL, pages, POLICY_NODE | POLICY_ADDRESS) != 0) {
        node = -1;
    }
#else
    (void)pages;
#endif
    return node;
}

/* The processors of a node that this thread may use; false if the node is unknown or has none. */
static bool cpus_of(int node, struct core_cpus *out)
{
    char path[64];
    char text[4096] = "";
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    const bool has_line = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    struct core_cpus near;
    struct core_cpus allowed;
    if (!has_line || core_cpus_parse(text, &near) != 0 || core_cpus_allowed(&allowed) != 0) {
        return false;
    }
    *out = (struct core_cpus){0};
    for (unsigned cpu = 0; cpu < CORE_CPUS_MAX; cpu++) {
        if (core_cpus_has(&near, cpu) && core_cpus_has(&allowed, cpu)) {
            core_cpus_add(out, cpu);
        }
    }
    return core_cpus_count(out) > 0;
}

int adam_team_create(const void *pages, unsigned count, struct core_team **out)
{
    struct core_cpus cpus;
    const int node = node_of(pages);
    const bool is_near = node >= 0 && cpus_of(node, &cpus);
    if (!is_near) {
        core_log(CORE_LOG_DEBUG,
                 "the NUMA node of the pages at %p is unknown; the optimizer's threads "
                 "may run on all processors of the thread that creates them",
                 pages);
    }
    const struct core_team_options options = {
        .name = "adam",
        .count = count,
        .cpus = is_near ? &cpus : NULL,
    };
    return core_team_create(&options, out);
}
