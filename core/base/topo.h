/* topo.h: the machine's nodes, cores, GPUs and drives, and where a rank's memory and threads should
 * go. A topology is read once, from the live system, a description of another machine, or copies of
 * /proc and /sys. */
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
    int number;            /* the kernel's number */
    uint64_t bytes;        /* 0: none, or unknown */
    struct core_cpus cpus; /* those that we may use; may be empty */
};

enum core_topo_kind { CORE_TOPO_GPU, CORE_TOPO_DRIVE };

struct core_topo_device {
    enum core_topo_kind kind;
    char name[CORE_TOPO_NAME_BYTES]; /* a drive's name is as in /sys/block; a GPU's is its bus id */
    char bus[16];                    /* "0000:3b:00.0"; "": not on a PCI bus */
    int node;                        /* -1: any, or unknown */
};

struct core_topo {
    uint32_t node_count;
    uint32_t device_count;
    uint32_t core_count;
    struct core_cpus cpus;           /* those that we may use */
    uint16_t core_of[CORE_CPUS_MAX]; /* the core of a processor, or CORE_TOPO_NO_CORE */
    struct core_topo_node nodes[CORE_TOPO_NODES_MAX]; /* sorted by number */
    /* GPUs by bus id, then drives by name */
    struct core_topo_device devices[CORE_TOPO_DEVICES_MAX];
    char source[64]; /* "hwloc 2.9", "sysfs" */
};

/* Finds a node by its number. Returns NULL if there is none. */
const struct core_topo_node *core_topo_node_find(const struct core_topo *topo, int number);
/* Normalises a PCI address ("3b:00.0", "00000000:3B:00.0") to "0000:3b:00.0". Returns 0, or -EINVAL
 * without a message. */
int core_topo_bus_write(const char *from, char *bus, size_t bytes);
/* Finds a GPU or drive by name or bus id. Returns NULL if there is none. */
const struct core_topo_device *core_topo_device_find(const struct core_topo *topo,
                                                     const char *name);
/* Sets *out to one processor of each core of `cpus`. */
void core_topo_cores(const struct core_topo *topo, const struct core_cpus *cpus,
                     struct core_cpus *out);

/* Writes the name in /sys/block of the drive, not the partition, that holds `path`. -ENOENT: `path`
 * is missing, or not on a block device (tmpfs, overlay, a network). */
int core_topo_drive_of(const char *path, char *name, size_t bytes);

/* ---- placement ---- */

struct core_topo_wish {
    uint32_t rank;  /* index on this machine */
    uint32_t ranks; /* ranks on this machine */
    /* [ranks] the node of a rank's GPU, -1: unknown; NULL: no GPUs */
    const int *beside;
};

struct core_topo_share {
    int node;
    struct core_cpus cpus; /* whole cores of the node */
};

struct core_topo_place {
    uint32_t share_count;
    struct core_topo_share shares[CORE_TOPO_NODES_MAX]; /* the first is the home node */
};

/* Decides where a rank's memory and threads go. Shares of ranks overlap only if a node has more
 * ranks than cores. Nodes with processors and memory are used; if there are none, those with
 * processors. A rank's home is the node of its GPU; ranks without such a node take homes in turn.
 * Nodes that are nobody's home are distributed over the ranks in turn. */
int core_topo_decide(const struct core_topo *topo, const struct core_topo_wish *wish,
                     struct core_topo_place *out);

#endif
