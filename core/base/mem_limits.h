/* mem_limits.h: how much memory this process may use, lock and take as huge pages, and the nodes of
 * pages. `root` is as in sysfile.h. Any thread. */
#ifndef CORE_BASE_MEM_LIMITS_H
#define CORE_BASE_MEM_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/cpus.h"

#define CORE_MEM_UNLIMITED UINT64_MAX

struct core_mem_limits {
    uint64_t total_bytes;       /* MemTotal of the machine */
    uint64_t available_bytes;   /* MemAvailable */
    uint64_t cgroup_bytes;      /* lowest limit of our cgroup and those above */
    uint64_t cgroup_used_bytes; /* used in that cgroup, without page cache that can be dropped */
    uint64_t usable_bytes;      /* the smaller of available memory and the cgroups' remainder */
    uint64_t memlock_bytes;     /* RLIMIT_MEMLOCK, soft */
    uint64_t locked_bytes;      /* locked by this process: VmLck */
    uint64_t pinned_bytes;      /* VmPin: pinned for devices or rings */
    bool memlock_ignored;       /* the process has CAP_IPC_LOCK */
    char cgroup[256];           /* the cgroup of cgroup_bytes; "": none */
};

/* Reads the limits of the machine, the cgroups and the process. An unreadable limit counts as none.
 * Returns 0, or -errno with a message if /proc/meminfo cannot be read. */
int core_mem_limits(const char *root, struct core_mem_limits *out);

/* Returns how much more may be locked or pinned. */
uint64_t core_mem_lockable(const struct core_mem_limits *limits);

struct core_hugetlb {
    uint64_t page_bytes;
    uint64_t total_count;
    uint64_t free_count; /* on all nodes: without pages reserved for mappings */
};

/* Reads the pool of hugetlb pages of one size, on one node or (node < 0) on all. Returns -ENOENT
 * without a message if there is none. */
int core_mem_hugetlb(const char *root, int node, uint64_t page_bytes, struct core_hugetlb *out);

/* Sets *out to the nodes from which this process may take memory; node 0 if they are unknown. */
void core_mem_nodes(const char *root, struct core_cpus *out);

/* Returns the node of a page; -ENOENT: not touched, -ENOTSUP: built without libnuma. */
int core_mem_node_of(const void *address);

/* Makes the kernel prefer `node` for pages of [base, base + bytes) that are touched later. `base`
 * is aligned to a page. -ENOTSUP: built without libnuma. */
int core_mem_node_prefer(void *base, uint64_t bytes, int node);

#endif
