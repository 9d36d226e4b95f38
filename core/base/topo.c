/* topo.c: finds nodes, devices and cores in a topology. */
#include "core/base/topo.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int core_topo_bus_write(const char *from, char *bus, size_t bytes)
{
    unsigned domain = 0;
    unsigned number;
    unsigned device;
    unsigned function;
    int end = 0;
    if (sscanf(from, "%8x:%2x:%2x.%1x%n", &domain, &number, &device, &function, &end) != 4) {
        domain = 0;
        if (sscanf(from, "%2x:%2x.%1x%n", &number, &device, &function, &end) != 3) {
            return -EINVAL;
        }
    }
    if (from[end] != '\0') {
        return -EINVAL;
    }
    snprintf(bus, bytes, "%04x:%02x:%02x.%x", domain, number, device, function);
    return 0;
}

const struct core_topo_node *core_topo_node_find(const struct core_topo *topo, int number)
{
    for (uint32_t i = 0; i < topo->node_count; i++) {
        if (topo->nodes[i].number == number) {
            return &topo->nodes[i];
        }
    }
    return NULL;
}

const struct core_topo_device *core_topo_device_find(const struct core_topo *topo, const char *name)
{
    char bus[16] = "";
    bool is_bus = core_topo_bus_write(name, bus, sizeof bus) == 0;
    for (uint32_t i = 0; i < topo->device_count; i++) {
        const struct core_topo_device *device = &topo->devices[i];
        if (strcmp(device->name, name) == 0 || (is_bus && strcmp(device->bus, bus) == 0)) {
            return device;
        }
    }
    return NULL;
}

void core_topo_cores(const struct core_topo *topo, const struct core_cpus *cpus,
                     struct core_cpus *out)
{
    struct core_cpus set = {0};
    struct core_cpus seen = {0};
    for (unsigned cpu = 0; cpu < CORE_CPUS_MAX; cpu++) {
        unsigned core = topo->core_of[cpu];
        if (core_cpus_has(cpus, cpu) && core < topo->core_count && !core_cpus_has(&seen, core)) {
            core_cpus_add(&seen, core);
            core_cpus_add(&set, cpu);
        }
    }
    *out = set;
}
