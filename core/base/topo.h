/* topo.h: the machine's nodes with their processors and memory, its cores, and its GPUs and drives
 * with the node each is attached to; and where a rank's memory and threads should go. The topology
 * is read once at start: from the live system, from a file or string that describes another
 * machine, or from a folder with copies of /proc and /sys. It does not change afterwards. */
#ifndef CORE_BASE_TOPO_H
#define CORE_BASE_TOPO_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/cpus.h"

enum {
    CORE_TOPO_NODES_MAX = 64,
    CORE_TOPO_DEVICES_MAX = 256,
    CORE_TOPO_NAME_BYTES = 32,
    CORE_TOPO_NO_CORE = 0xffff,
};

struct core_topo_node {
    int number;            /* the kernel's number of the node */
    uint64_t bytes;        /* bytes of memory; 0: none, or unknown */
    struct core_cpus cpus; /* those that we may use; empty if the node has only memory (CXL), or
                            * only processors that we may not use */
};

enum core_topo_kind { CORE_TOPO_GPU, CORE_TOPO_DRIVE };

struct core_topo_device {
    enum core_topo_kind kind;
    char name[CORE_TOPO_NAME_BYTES]; /* a drive's name is as in /sys/block; a GPU's is its bus id */
    char bus[16];                    /* "0000:3b:00.0"; "" if it is not on a PCI bus */
    int node;                        /* the node it is attached to; -1: any, or unknown */
};

struct core_topo {
    uint32_t node_count;
    uint32_t device_count;
    uint32_t core_count;
    struct core_cpus cpus;           /* all processors that we may use */
    uint16_t core_of[CORE_CPUS_MAX]; /* the core of a processor, or CORE_TOPO_NO_CORE */
    struct core_topo_node nodes[CORE_TOPO_NODES_MAX]; /* sorted by number */
    /* GPUs by bus id, then drives by name */
    struct core_topo_device devices[CORE_TOPO_DEVICES_MAX];
    char source[64]; /* the source of the data: "hwloc 2.9", "sysfs" */
};

/* Finds a node by its number. Returns NULL if there is none. */
const struct core_topo_node *core_topo_node_find(const struct core_topo *topo, int number);
/* Normalises a PCI address ("3b:00.0", "00000000:3B:00.0") to "0000:3b:00.0". Returns 0, or -EINVAL
 * without a message. */
int core_topo_bus_write(const char *from, char *bus, size_t bytes);
/* Finds a GPU or drive by its name, or by its bus id in any of these notations. Returns NULL if
 * there is none. */
const struct core_topo_device *core_topo_device_find(const struct core_topo *topo,
                                                     const char *name);
/* Sets *out to one processor of each core of `cpus`. */
void core_topo_cores(const struct core_topo *topo, const struct core_cpus *cpus,
                     struct core_cpus *out);

/* Finds the drive that holds `path` and writes its name as in /sys/block: "nvme0n1", even if the
 * path is on a partition. Returns -ENOENT with a message if the path is not on a block device of
 * its own (tmpfs, overlay, a network). */
int core_topo_drive_of(const char *path, char *name, size_t bytes);

/* ---- placement ---- */

struct core_topo_wish {
    uint32_t rank;  /* index among the ranks of this machine */
    uint32_t ranks; /* number of ranks on this machine */
    /* [ranks] the node of each rank's GPU, -1: unknown; NULL: no rank has a GPU. */
    const int *beside;
};

struct core_topo_share {
    int node;
    struct core_cpus cpus; /* this rank's processors of the node: whole cores */
};

struct core_topo_place {
    uint32_t share_count;
    struct core_topo_share shares[CORE_TOPO_NODES_MAX]; /* the first one is the home node */
};

/* Decides where the memory and the threads of one rank go. Calls that differ only in `rank` give
 * shares that do not overlap, unless a node has more ranks than cores. Only nodes with processors
 * and memory are used; if there are none, those with processors. A rank's home is the node of its
 * GPU; if the GPU or its node is unknown, ranks take the nodes in turn. Nodes that are not the home
 * of a rank are distributed in turn. Returns -EINVAL for an invalid rank or number of ranks, and if
 * no node has processors. */
int core_topo_decide(const struct core_topo *topo, const struct core_topo_wish *wish,
                     struct core_topo_place *out);

#endif
