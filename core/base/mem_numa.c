/* mem_numa.c: the wrapper of libnuma. */
#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/mem_limits.h"

enum { BITS_PER_LONG = 8 * sizeof(unsigned long) };

int core_mem_node_of(const void *address)
{
    /* move_pages takes no pointer to const; without target nodes it changes nothing. */
    union {
        const void *seen;
        void *asked;
    } page = {.seen = address};
    int node = -1;
    if (move_pages(0, 1, &page.asked, NULL, &node, 0) != 0) {
        return -errno;
    }
    return node;
}

int core_mem_node_prefer(void *base, uint64_t bytes, int node)
{
    if (numa_available() < 0) {
        return core_err_set(-ENOSYS, "this kernel does not support memory policies");
    }
    if (node < 0 || node > numa_max_possible_node()) {
        return core_err_set(-EINVAL, "node %d is out of range 0..%d", node,
                            numa_max_possible_node());
    }
    /* libnuma would end the process if it cannot allocate a mask. */
    unsigned long mask[CORE_CPUS_MAX / BITS_PER_LONG] = {0};
    if (node >= CORE_CPUS_MAX) {
        return core_err_set(-EINVAL, "node %d is out of range; at most %d nodes are supported",
                            node, CORE_CPUS_MAX);
    }
    mask[(unsigned)node / BITS_PER_LONG] = 1ul << ((unsigned)node % BITS_PER_LONG);
    if (mbind(base, bytes, MPOL_PREFERRED, mask, CORE_CPUS_MAX + 1, 0) != 0) {
        int rc = -errno;
        return core_err_set(rc, "cannot request memory from node %d: %s", node, strerror(-rc));
    }
    return 0;
}
