/* Tests how the limits of memory are read, mostly on invented machines. */
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>

#include "core/base/err.h"
#include "core/base/mem_limits.h"
#include "core/base/sysfile.h"
#include "tests/base/machine.h"
#include "tests/harness/test.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static const char meminfo[] = "MemTotal:       65536000 kB\nMemFree:         1000000 kB\n"
                              "MemAvailable:   60000000 kB\nBuffers: 5 kB\n";

static struct core_mem_limits limits_of(const char *root)
{
    struct core_mem_limits limits;
    check_int(core_mem_limits(root, &limits), ==, 0);
    return limits;
}

static void machine_without_cgroup(void)
{
    const char *root = machine_root("plain");
    machine_file(root, "/proc/meminfo", meminfo);
    struct core_mem_limits limits = limits_of(root);
    check_uint(limits.total_bytes, ==, 65536000 * KIB);
    check_uint(limits.available_bytes, ==, 60000000 * KIB);
    check_uint(limits.usable_bytes, ==, 60000000 * KIB);
    check_uint(limits.cgroup_bytes, ==, CORE_MEM_UNLIMITED);
    check_string(limits.cgroup, "");
    machine_file(root, "/proc/meminfo", "MemTotal: 8 kB\nMemFree: 4 kB\n");
    check_uint(limits_of(root).usable_bytes, ==, 4096);
}

/* In cgroup v2, all levels up to the root limit the usable memory; the lowest limit is reported.
 * Inactive page cache does not count as used. */
static void cgroup_v2_is_nested(void)
{
    const char *root = machine_root("v2");
    machine_file(root, "/proc/meminfo", meminfo);
    machine_file(root, "/proc/self/cgroup", "0::/slurm/job_7/step_0\n");
    machine_file(root, "/sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
    machine_file(root, "/sys/fs/cgroup/slurm/job_7/memory.max", "8589934592\n");
    machine_file(root, "/sys/fs/cgroup/slurm/job_7/memory.current", "3221225472\n");
    machine_file(root, "/sys/fs/cgroup/slurm/job_7/memory.stat",
                 "anon 5\nfile 7\nslab_inactive_file 9\ninactive_file 1073741824\n");
    machine_file(root, "/sys/fs/cgroup/slurm/memory.max", "10737418240\n");
    machine_file(root, "/sys/fs/cgroup/slurm/memory.current", "10000000000\n");
    struct core_mem_limits limits = limits_of(root);
    check_uint(limits.cgroup_bytes, ==, 8 * GIB);
    check_uint(limits.cgroup_used_bytes, ==, 2 * GIB);
    check_string(limits.cgroup, "/slurm/job_7");
    check_uint(limits.usable_bytes, ==, 10 * GIB - UINT64_C(10000000000));
}

/* In a container the path in /proc is outside the mount, whose root has the limit. */
static void cgroup_v1_in_a_container(void)
{
    const char *root = machine_root("v1");
    machine_file(root, "/proc/meminfo", meminfo);
    machine_file(root, "/proc/self/cgroup",
                 "11:cpu,cpuacct:/docker/abc\n9:memory:/docker/abc\n0::/docker/abc\n");
    machine_file(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n");
    machine_file(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
    machine_file(root, "/sys/fs/cgroup/memory/memory.stat",
                 "inactive_file 999999999\ntotal_inactive_file 536870912\n");
    struct core_mem_limits limits = limits_of(root);
    check_uint(limits.cgroup_bytes, ==, 4 * GIB);
    check_uint(limits.usable_bytes, ==, 3 * GIB + 512 * MIB);
    check_string(limits.cgroup, "/");
    machine_file(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    check_uint(limits_of(root).cgroup_bytes, ==, CORE_MEM_UNLIMITED);
    machine_file(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
    check_uint(limits_of(root).usable_bytes, ==, 0);
}

/* Without free descriptors the error is not "missing". */
static void no_more_files(void)
{
    struct rlimit before;
    struct core_mem_limits limits;
    check_int(getrlimit(RLIMIT_NOFILE, &before), ==, 0);
    const struct rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
    check_int(setrlimit(RLIMIT_NOFILE, &none), ==, 0);
    const int rc = core_mem_limits("", &limits);
    check_int(setrlimit(RLIMIT_NOFILE, &before), ==, 0);
    check_int(rc, ==, -EMFILE);
    check_contains(core_err_message(), "/proc/meminfo cannot be read: Too many open files");
}

/* Broken lines are skipped; the error of a missing meminfo names the file. */
static void broken_files(void)
{
    const char *root = machine_root("broken");
    struct core_mem_limits limits;
    check_int(core_mem_limits(root, &limits), ==, -ENOENT);
    check_contains(core_err_message(), "/proc/meminfo cannot be read");
    machine_file(root, "/proc/meminfo", "MemTotal: many kB\nMemAvailable:\n");
    machine_file(root, "/proc/self/cgroup", "0:\n:::\nx\n0::\n0::relative\n");
    machine_file(root, "/proc/self/status", "VmLck:\t 64 kB\nVmPin:\t 128 kB\nCapEff:\tzz\n");
    limits = limits_of(root);
    check_uint(limits.usable_bytes, ==, CORE_MEM_UNLIMITED);
    check_uint(limits.locked_bytes, ==, 65536);
    check_uint(limits.pinned_bytes, ==, 131072);
    check_true(!limits.memlock_ignored);
}

/* The larger of locked and pinned memory is subtracted from the limit, which CAP_IPC_LOCK lifts. */
static void lockable(void)
{
    struct core_mem_limits limits = {.memlock_bytes = 100, .locked_bytes = 30, .pinned_bytes = 60};
    check_uint(core_mem_lockable(&limits), ==, 40);
    limits.pinned_bytes = 200;
    check_uint(core_mem_lockable(&limits), ==, 0);
    limits.memlock_ignored = true;
    check_uint(core_mem_lockable(&limits), ==, CORE_MEM_UNLIMITED);
    limits = (struct core_mem_limits){.memlock_bytes = CORE_MEM_UNLIMITED};
    check_uint(core_mem_lockable(&limits), ==, CORE_MEM_UNLIMITED);
    const char *root = machine_root("capable");
    machine_file(root, "/proc/meminfo", meminfo);
    machine_file(root, "/proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
    check_true(limits_of(root).memlock_ignored);
}

/* Pools of huge pages have a total and a number per node; reserved pages are not free. */
static void hugetlb_pools(void)
{
    const char *root = machine_root("huge");
    machine_file(root, "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
    machine_file(root, "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "300\n");
    machine_file(root, "/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "100\n");
    const char *node = "/sys/devices/system/node/node1/hugepages/hugepages-1048576kB";
    char path[128];
    snprintf(path, sizeof path, "%s/nr_hugepages", node);
    machine_file(root, path, "4\n");
    snprintf(path, sizeof path, "%s/free_hugepages", node);
    machine_file(root, path, "3\n");
    struct core_hugetlb pool;
    check_int(core_mem_hugetlb(root, -1, 2 * MIB, &pool), ==, 0);
    check_int(pool.total_count, ==, 512);
    check_int(pool.free_count, ==, 200);
    check_int(core_mem_hugetlb(root, 1, GIB, &pool), ==, 0);
    check_int(pool.page_bytes, ==, GIB);
    check_int(pool.total_count, ==, 4);
    check_int(pool.free_count, ==, 3);
    check_int(core_mem_hugetlb(root, 0, GIB, &pool), ==, -ENOENT);
    machine_file(root, "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "lots\n");
    check_int(core_mem_hugetlb(root, -1, 2 * MIB, &pool), ==, -ENOENT);
}

/* The nodes have memory, and the process may use them. */
static void nodes_allowed(void)
{
    struct core_cpus nodes;
    char text[32];
    const char *root = machine_root("nodes");
    core_mem_nodes(root, &nodes);
    core_cpus_print(&nodes, text, sizeof text);
    check_string(text, "0");
    machine_file(root, "/sys/devices/system/node/has_memory", "0,2-3\n");
    core_mem_nodes(root, &nodes);
    core_cpus_print(&nodes, text, sizeof text);
    check_string(text, "0,2-3");
    machine_file(root, "/proc/self/status", "Mems_allowed:\tff\nMems_allowed_list:\t1-2\nX:\n");
    core_mem_nodes(root, &nodes);
    core_cpus_print(&nodes, text, sizeof text);
    check_string(text, "2");
}

static void live(void)
{
    struct core_mem_limits limits = limits_of("");
    check_true(limits.usable_bytes <= limits.available_bytes);
    check_true(limits.available_bytes <= limits.total_bytes);
    test_note("usable %" PRIu64 " MiB, cgroup \"%s\"", limits.usable_bytes / MIB, limits.cgroup);
}

/* Tests the functions that read files of the kernel. */
static void kernel_files(void)
{
    const char *root = machine_root("files");
    machine_file(root, "/a", "hello\n\n");
    machine_file(root, "/n1", "42\n");
    machine_file(root, "/n2", "42 x\n");
    machine_file(root, "/n3", "99999999999999999999\n");
    machine_file(root, "/c", "always [madvise] never\n");
    char text[8];
    check_int(core_sysfile_text(text, sizeof text, root, "/%s", "a"), ==, 5);
    check_string(text, "hello");
    check_int(core_sysfile_text(text, 3, root, "/a"), ==, 2);
    check_string(text, "he");
    check_int(core_sysfile_text(text, sizeof text, root, "/absent"), ==, -ENOENT);
    check_int(core_sysfile_text(text, sizeof text, root, "/%5000d", 1), ==, -ENAMETOOLONG);
    check_int(core_sysfile_text(text, sizeof text, root, "/"), ==, -EISDIR);
    int64_t number = 7;
    check_int(core_sysfile_number(&number, root, "/n%d", 1), ==, 0);
    check_int(number, ==, 42);
    check_int(core_sysfile_number(&number, root, "/n2"), ==, -EINVAL);
    check_int(core_sysfile_number(&number, root, "/n3"), ==, -EINVAL);
    check_int(core_sysfile_number(&number, root, "/absent"), ==, -ENOENT);
    check_int(number, ==, 42);
    check_int(core_sysfile_choice(text, sizeof text, root, "/c"), ==, 0);
    check_string(text, "madvise");
    check_int(core_sysfile_choice(text, sizeof text, root, "/a"), ==, -EINVAL);
    check_int(core_sysfile_choice(text, sizeof text, root, "/absent"), ==, -ENOENT);
    uint64_t field = 0;
    check_int(core_sysfile_field("ab: 1\nb: 2 kB\n", "b:", &field), ==, 0);
    check_int(field, ==, 2048);
    check_int(core_sysfile_field("b: -3", "b:", &field), ==, -ENOENT);
    check_int(core_sysfile_field("", "b:", &field), ==, -ENOENT);
}

TEST_MAIN({"machine_without_cgroup", machine_without_cgroup},
          {"cgroup_v2_is_nested", cgroup_v2_is_nested},
          {"cgroup_v1_in_a_container", cgroup_v1_in_a_container}, {"no_more_files", no_more_files},
          {"broken_files", broken_files}, {"lockable", lockable}, {"hugetlb_pools", hugetlb_pools},
          {"nodes_allowed", nodes_allowed}, {"live", live}, {"kernel_files", kernel_files})
