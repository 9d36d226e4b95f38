/* mem_limits.h: how much memory this process may use, lock and take as huge pages, and the nodes of
 * pages. Any thread. `root` is as in sysfile.h. */
#ifndef CORE_BASE_MEM_LIMITS_H
#define CORE_BASE_MEM_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/cpus.h"

#define CORE_MEM_UNLIMITED UINT64_MAX

struct core_mem_limits {
    uint64_t total_bytes;       /* MemTotal of the machine */
    uint64_t available_bytes;   /* MemAvailable */
    uint64_t cgroup_bytes;      /* the lowest limit of our cgroup and those above it */
    uint64_t cgroup_used_bytes; /* used in that cgroup, without page cache that can be dropped */
    uint64_t usable_bytes;      /* the smaller of available memory and what remains in the
                                 * cgroups */
    uint64_t memlock_bytes;     /* RLIMIT_MEMLOCK, soft */
    uint64_t locked_bytes;      /* locked by this process: VmLck */
    uint64_t pinned_bytes;      /* pinned by this process for a device or a ring: VmPin */
    bool memlock_ignored;       /* CAP_IPC_LOCK: the kernel does not apply memlock_bytes */
    char cgroup[256];           /* the cgroup that cgroup_bytes limits; "" if there is none */
};

/* Reads the limits of the machine, of the cgroups (v1 and v2) and of the process. Limits that
 * cannot be read count as unlimited. Returns 0, or -errno with a message if /proc/meminfo cannot be
 * read. */
int core_mem_limits(const char *root, struct core_mem_limits *out);

/* Returns the bytes that may still be locked or pinned. */
uint64_t core_mem_lockable(const struct core_mem_limits *limits);

struct core_hugetlb {
    uint64_t page_bytes;
    uint64_t total_count;
    uint64_t free_count; /* if `node` is < 0, without pages that are reserved for mappings */
};

/* Reads the pool of hugetlb pages of one size, on one node or (node < 0) on all. Returns -ENOENT,
 * without a message, if the kernel has no such pool. */
int core_mem_hugetlb(const char *root, int node, uint64_t page_bytes, struct core_hugetlb *out);

/* Sets *out to the nodes from which this process may take memory; only node 0 if the kernel does
 * not report them. */
void core_mem_nodes(const char *root, struct core_cpus *out);

/* Returns the node of the page at `address`; -ENOENT if it was not touched, -ENOTSUP in a build
 * without libnuma. */
int core_mem_node_of(const void *address);

/* Requests that [base, base + bytes), whole pages, be allocated on `node` while it has free pages.
 * Returns 0, or -errno with a message: -ENOTSUP in a build without libnuma. */
int core_mem_node_prefer(void *base, uint64_t bytes, int node);

#endif
