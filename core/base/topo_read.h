/* topo_read.h: what topo.c calls to read a machine; no other file includes it. A source fills
 * nodes, processors, core_of and devices in any order into a zeroed struct whose core_of is all
 * CORE_TOPO_NO_CORE; topo.c sorts the result and applies limits. */
#ifndef CORE_BASE_TOPO_READ_H
#define CORE_BASE_TOPO_READ_H

#include "core/base/topo.h"

int core_topo_read_hwloc(enum core_topo_from from, const char *text, struct core_topo *topo);
int core_topo_read_sysfs(const char *root, struct core_topo *topo);

/* Adds one; beyond the maximum it is dropped, and NULL is returned. */
struct core_topo_node *core_topo_node_add(struct core_topo *topo, int number);
struct core_topo_device *core_topo_device_add(struct core_topo *topo, enum core_topo_kind kind,
                                              const char *name);
/* Normalises a PCI address in any notation to "0000:3b:00.0". 0, or -EINVAL without a sentence. */
int core_topo_bus_write(const char *from, char *bus, size_t bytes);
/* Block devices that store nothing: loop, ram, zram and the like. */
int core_topo_is_drive(const char *name);

#endif
