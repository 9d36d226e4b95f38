/* mem_numa_none.c: the NUMA functions of a build without libnuma. */
#include <errno.h>

#include "core/base/err.h"
#include "core/base/mem_limits.h"

int core_mem_node_of(const void *address)
{
    (void)address;
    return core_err_set(-ENOTSUP, "this build has no libnuma: nodes of pages are unknown");
}

int core_mem_node_prefer(void *base, uint64_t bytes, int node)
{
    (void)base;
    (void)bytes;
    return core_err_set(-ENOTSUP, "this build has no libnuma: cannot request memory from node %d",
                        node);
}
