/* topo_add.c: adds the nodes and devices that a source of the topology finds. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/base/topo_read.h"

struct core_topo_node *core_topo_node_add(struct core_topo *topo, int number)
{
    if (topo->node_count == CORE_TOPO_NODES_MAX || number < 0) {
        return NULL;
    }
    struct core_topo_node *node = &topo->nodes[topo->node_count++];
    *node = (struct core_topo_node){.number = number};
    return node;
}

struct core_topo_device *core_topo_device_add(struct core_topo *topo, enum core_topo_kind kind,
                                              const char *name)
{
    if (topo->device_count == CORE_TOPO_DEVICES_MAX) {
        return NULL;
    }
    struct core_topo_device *device = &topo->devices[topo->device_count++];
    *device = (struct core_topo_device){.kind = kind, .node = -1};
    snprintf(device->name, sizeof device->name, "%s", name);
    return device;
}

bool core_topo_is_drive(const char *name)
{
    static const char *const empty[] = {"loop", "ram", "zram", "sr", "fd", "nbd", "dax"};
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        if (strncmp(name, empty[i], strlen(empty[i])) == 0) {
            return false;
        }
    }
    return true;
}
