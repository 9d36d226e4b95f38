/* topo_read.h: reads the topology of this machine, or of a described one. */
#ifndef CORE_BASE_TOPO_READ_H
#define CORE_BASE_TOPO_READ_H

#include <stdbool.h>

#include "core/base/topo.h"

enum core_topo_from {
    CORE_TOPO_LIVE,      /* this machine: hwloc, else sysfs */
    CORE_TOPO_XML,       /* a file that lstopo wrote */
    CORE_TOPO_SYNTHETIC, /* a string, "pack:2 numa:1 core:8 pu:2" */
    CORE_TOPO_SYSFS,     /* /proc and /sys below a folder; "": this machine's */
};

/* `text` is the file, the string or the folder. `allowed` limits the processors; NULL: those of
 * this thread on this machine, else all. -ENOTSUP: an XML file or a string, in a build without
 * hwloc. */
int core_topo_create(enum core_topo_from from, const char *text, const struct core_cpus *allowed,
                     struct core_topo **out);
void core_topo_destroy(struct core_topo *topo);

/* Returns -EINVAL, with a message, if parts of a topology contradict each other. */
int core_topo_check(const struct core_topo *topo);

/* ---- sources: topo_hwloc.c and topo_sysfs.c ----
 * A source fills nodes, processors, core_of and devices in any order into a struct that is zeroed,
 * except that core_of is all CORE_TOPO_NO_CORE; topo_read.c sorts the result and applies limits. */

int core_topo_read_hwloc(enum core_topo_from from, const char *text, struct core_topo *topo);
int core_topo_read_sysfs(const char *root, struct core_topo *topo);

/* Add an item and return it; NULL beyond the maximum or for a negative number. */
struct core_topo_node *core_topo_node_add(struct core_topo *topo, int number);
struct core_topo_device *core_topo_device_add(struct core_topo *topo, enum core_topo_kind kind,
                                              const char *name);
/* Returns false for block devices that are not drives (loop, ram, zram, sr, fd, nbd, dax). */
bool core_topo_is_drive(const char *name);

#endif
