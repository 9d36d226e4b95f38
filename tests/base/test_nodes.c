/* test_nodes.c: regions on a simulated machine with several NUMA nodes. */
#include <errno.h>
#include <numaif.h>

#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/base/mem_limits.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"

static struct {
    int prefer_error;              /* of mbind; 0: none */
    int look_error;                /* of move_pages */
    int page_node;                 /* of the sampled pages */
    unsigned long asked;           /* nodes of the last mbind */
    struct core_mem_limits limits; /* usable_bytes 0: those of this machine */
} system_says;

void __wrap_core_mem_nodes(const char *root, struct core_cpus *out);
int __wrap_core_mem_limits(const char *root, struct core_mem_limits *out);
int __real_core_mem_limits(const char *root, struct core_mem_limits *out);
long __wrap_mbind(void *base, unsigned long bytes, int mode, const unsigned long *nodes,
                  unsigned long nodes_max, unsigned flags);
long __wrap_move_pages(int process, unsigned long count, void **pages, const int *nodes,
                       int *status, int flags);

void __wrap_core_mem_nodes(const char *root, struct core_cpus *out)
{
    (void)root;
    *out = (struct core_cpus){{0}};
    core_cpus_add(out, 0);
    core_cpus_add(out, 1);
    core_cpus_add(out, 5);
}

int __wrap_core_mem_limits(const char *root, struct core_mem_limits *out)
{
    if (system_says.limits.usable_bytes == 0) {
        return __real_core_mem_limits(root, out);
    }
    *out = system_says.limits;
    return 0;
}

long __wrap_mbind(void *base, unsigned long bytes, int mode, const unsigned long *nodes,
                  unsigned long nodes_max, unsigned flags)
{
    (void)base;
    (void)flags;
    check_true(bytes > 0 && mode == MPOL_PREFERRED && nodes_max > 64);
    system_says.asked = nodes[0];
    errno = system_says.prefer_error;
    return errno != 0 ? -1 : 0;
}

long __wrap_move_pages(int process, unsigned long count, void **pages, const int *nodes,
                       int *status, int flags)
{
    (void)pages;
    (void)nodes;
    (void)flags;
    check_true(process == 0 && count == 1);
    *status = system_says.page_node;
    errno = system_says.look_error;
    return errno != 0 ? -1 : 0;
}

/* Checks that a region requested on `node` is on `found`, and that the log has `line` (NULL:
 * nothing). */
static void check_region(int node, int found, const char *line)
{
    struct core_region region = {0};
    const struct core_region_options options = {.name = "masters",
                                                .bytes = 3 << 20,
                                                .pages = CORE_PAGES_4K,
                                                .prefer_node = true,
                                                .node = node};
    test_listen(CORE_LOG_WARN);
    check_int(core_region_alloc(&options, &region), ==, 0);
    test_listen_end();
    check_int(region.node, ==, found);
    check_int(test_heard_lines(""), ==, line != NULL);
    check_contains(test_heard(), line != NULL ? line : "");
    memset(region.base, 1, region.bytes);
    core_region_free(&region);
}

/* Whatever the kernel refuses, the region is allocated, with at most one warning. */
static void nodes(void)
{
    system_says.page_node = 0;
    check_region(0, 0, NULL);
    check_uint(system_says.asked, ==, 1);
    check_region(3, -1, "masters: node 3 cannot be used by this process (0-1,5)");
    system_says.prefer_error = EPERM;
    check_region(0, -1,
                 "cannot request memory from node 0: Operation not permitted; memory is "
                 "taken from any node");
    system_says.prefer_error = 0;
    system_says.page_node = 1;
    check_region(0, -1, "sampled pages are not on node 0, which was full");
    system_says.look_error = ENOSYS; /* the request then counts as fulfilled */
    check_region(0, 0, NULL);
    system_says.look_error = 0;
}

/* A refusal states the numbers of the machine or of the cgroup, whichever has less memory. */
static void room(void)
{
    struct core_region region = {0};
    const struct core_region_options options = {
        .name = "masters", .bytes = 3 << 20, .pages = CORE_PAGES_4K};
    system_says.limits = (struct core_mem_limits){
        .usable_bytes = 1 << 20, .available_bytes = 1 << 20, .total_bytes = 8 << 20};
    check_int(core_region_alloc(&options, &region), ==, -ENOMEM);
    check_string(core_err_message(), "masters needs 3145728 bytes; the machine has 1048576 "
                                     "available of 8388608");
    system_says.limits.available_bytes = 4 << 20;
    system_says.limits.cgroup_bytes = 2 << 20;
    check_int(core_region_alloc(&options, &region), ==, -ENOMEM);
    check_contains(core_err_message(), "has 1048576 left of its limit of 2097152");
    check_true(region.base == NULL);
    system_says.limits = (struct core_mem_limits){0};
}

TEST_MAIN({"nodes", nodes}, {"room", room})
