/* Tests the sizes, fallbacks, warnings and refusals of regions. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/base/mem_limits.h"
#include "core/base/poison.h"
#include "core/base/team.h"
#include "tests/harness/child.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"

#define MIB ((uint64_t)1 << 20)

/* ---- region ---- */

static void check_zero_and_writable(const struct core_region *region)
{
    for (uint64_t i = 0; i < region->bytes; i += 997) {
        check_int(region->base[i], ==, 0);
        region->base[i] = (unsigned char)i;
    }
    region->base[region->bytes - 1] = 1;
}

/* Mappings are rounded up to whole pages, and the pages are touched. */
static void region_is_exact(void)
{
    const uint64_t sizes[] = {1, 4096, 4097, 2 * MIB - 1, 2 * MIB, 3 * MIB + 1, 37 * MIB + 12345};
    struct core_team *team = NULL;
    check_int(core_team_create(&(struct core_team_options){.count = 3}, &team), ==, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct core_region region = {0};
        struct core_region_options options = {.name = "exact",
                                              .bytes = sizes[i],
                                              .pages = CORE_PAGES_THP,
                                              .team = i % 2 == 0 ? team : NULL};
        check_int(core_region_alloc(&options, &region), ==, 0);
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        check_int(region.bytes, ==, sizes[i]);
        check_int(region.mapped_bytes, ==, (sizes[i] + page - 1) / page * page);
        check_int((uintptr_t)region.base % (sizes[i] < 2 * MIB ? page : 2 * MIB), ==, 0);
        check_true(region.touched);
        check_true(region.huge_bytes <= region.mapped_bytes);
        unsigned char resident = 0;
        check_int(mincore(region.base + region.mapped_bytes - page, page, &resident), ==, 0);
        check_int(resident & 1, ==, 1);
        check_zero_and_writable(&region);
        core_region_free(&region);
        check_true(region.base == NULL);
        core_region_free(&region);
    }
    core_team_destroy(team);
}

/* Members touch separate parts, which cover the region. */
static void parts_cover_the_region(void)
{
    static const struct core_region_part parts[] = {{0, 0, 1},           {5000, 1, 3},
                                                    {5000, 0, 1},        {9 * MIB + 1, 0, 3},
                                                    {9 * MIB + 2, 2, 3}, {40 * MIB, 0, 1}};
    static const enum core_pages kinds[] = {CORE_PAGES_4K, CORE_PAGES_THP};
    struct core_team *team = NULL;
    check_int(core_team_create(&(struct core_team_options){.count = 3}, &team), ==, 0);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct core_region region = {0};
        const struct core_region_options options = {.name = "parts",
                                                    .bytes = 17 * MIB + 12345,
                                                    .pages = kinds[i],
                                                    .team = team,
                                                    .parts = parts,
                                                    .part_count = sizeof parts / sizeof parts[0]};
        check_int(core_region_alloc(&options, &region), ==, 0);
        const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        for (uint64_t at = 0; at < region.mapped_bytes; at += page) {
            unsigned char resident = 0;
            check_int(mincore(region.base + at, page, &resident), ==, 0);
            check_int(resident & 1, ==, 1);
        }
        check_zero_and_writable(&region);
        core_region_free(&region);
    }
    core_team_destroy(team);
}

/* A refusal of a size states the numbers. */
static void region_refuses_with_numbers(void)
{
    struct core_region region = {0};
    struct core_region_options options = {.name = "arena", .bytes = 0};
    check_int(core_region_alloc(&options, &region), ==, -EINVAL);
    options.bytes = UINT64_MAX;
    check_int(core_region_alloc(&options, &region), ==, -EINVAL);
    check_contains(core_err_message(), "18446744073709551615");
    struct core_mem_limits limits;
    check_int(core_mem_limits("", &limits), ==, 0);
    options.bytes = UINT64_C(1) << 45;
    if (limits.usable_bytes < options.bytes) {
        check_int(core_region_alloc(&options, &region), ==, -ENOMEM);
        check_contains(core_err_message(), "needs 35184372088832 bytes");
    }
    check_true(region.base == NULL);
}

static void region_can_be_lazy(void)
{
    struct core_region region = {0};
    struct core_region_options options = {
        .name = "lazy", .bytes = 64 * MIB, .pages = CORE_PAGES_4K, .lazy = true};
    check_int(core_region_alloc(&options, &region), ==, 0);
    check_true(!region.touched);
    unsigned char resident = 1;
    check_int(mincore(region.base, 1, &resident), ==, 0);
    check_int(resident & 1, ==, 0);
    check_zero_and_writable(&region);
    core_region_free(&region);
}

static int read_first(void *argument)
{
    const volatile unsigned char *base = argument;
    return *base;
}

/* A child does not inherit the mapping, so it cannot copy or share pinned pages. */
static void region_is_not_inherited(void)
{
    struct core_region region = {0};
    struct core_region_options options = {.name = "own", .bytes = 4 * MIB};
    check_int(core_region_alloc(&options, &region), ==, 0);
    check_int(test_child(read_first, region.base), !=, 0);
    core_region_free(&region);
}

static int without_huge_pages(void *argument)
{
    (void)argument;
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) {
        return 77;
    }
    test_listen(CORE_LOG_WARN);
    struct core_region region = {0};
    struct core_region_options options = {
        .name = "arena", .bytes = 8 * MIB, .pages = CORE_PAGES_THP};
    int rc = core_region_alloc(&options, &region);
    if (rc != 0 || region.pages != CORE_PAGES_4K || region.huge_bytes != 0 ||
        test_heard_lines("") != 1) {
        return 1;
    }
    region.base[8 * MIB - 1] = 1;
    core_region_free(&region);
    return strstr(test_heard(), "arena: only 0 of 8 MiB are on huge pages") != NULL ? 0 : 2;
}

static void no_huge_pages_is_one_warning(void)
{
    int rc = test_child(without_huge_pages, NULL);
    if (rc == 77) {
        test_skip("this kernel cannot switch huge pages off for a process");
    }
    check_int(rc, ==, 0);
}

static void empty_pool_is_one_warning(void)
{
    struct core_hugetlb pool;
    if (core_mem_hugetlb("", -1, 2 * MIB, &pool) == 0 && pool.free_count >= 4) {
        test_skip("this machine has free hugetlb pages");
    }
    test_listen(CORE_LOG_WARN);
    struct core_region region = {0};
    struct core_region_options options = {
        .name = "arena", .bytes = 8 * MIB, .pages = CORE_PAGES_2M};
    check_int(core_region_alloc(&options, &region), ==, 0);
    check_contains(test_heard(), "arena: 4 hugetlb pages of 2 MiB are needed, 0 of 0 are free");
    check_true(region.pages <= CORE_PAGES_THP);
    if (region.pages == CORE_PAGES_THP) {
        check_int(test_heard_lines(""), ==, 1);
    }
    core_region_free(&region);
    test_listen(CORE_LOG_WARN);
    options.pages = CORE_PAGES_AUTO;
    check_int(core_region_alloc(&options, &region), ==, 0);
    check_int(test_heard_lines(""), ==, region.pages == CORE_PAGES_THP ? 0 : 1);
    test_listen_end();
    core_region_free(&region);
}

/* Advice that madvise refuses, and the expected result. */
struct refused_advice {
    enum core_pages pages;
    unsigned advice;
    unsigned error;
    int wanted;       /* of the allocation */
    const char *says; /* text of the warning or the error; NULL: none */
};

static int forbid_advice(unsigned advice, unsigned error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, advice, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) | prctl(PR_SET_SECCOMP, 2, &program);
}

static int alloc_without_advice(void *argument)
{
    const struct refused_advice *refused = argument;
    struct core_region region = {0};
    const struct core_region_options options = {
        .name = "arena", .bytes = 8 * MIB, .pages = refused->pages};
    if (forbid_advice(refused->advice, refused->error) != 0) {
        return 77;
    }
    test_listen(CORE_LOG_WARN);
    check_int(core_region_alloc(&options, &region), ==, refused->wanted);
    test_listen_end();
    if (refused->wanted != 0) {
        check_contains(core_err_message(), refused->says);
        check_true(region.base == NULL);
        return 0;
    }
    if (refused->says != NULL) {
        check_contains(test_heard(), refused->says);
    }
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t at = 0; at < region.mapped_bytes; at += page) {
        unsigned char resident = 0;
        check_int(mincore(region.base + at, page, &resident), ==, 0);
        check_int(resident & 1, ==, 1);
    }
    check_true(region.touched);
    check_zero_and_writable(&region);
    core_region_free(&region);
    return 0;
}

/* Kernels without MADV_POPULATE_WRITE (before 5.14) or huge pages work. Pages that the kernel
 * cannot fill are an error. */
static void old_kernels_and_no_memory(void)
{
    static const struct refused_advice rows[] = {
        {CORE_PAGES_4K, MADV_POPULATE_WRITE, EINVAL, 0, NULL},
        {CORE_PAGES_THP, MADV_HUGEPAGE, EINVAL, 0,
         "arena: no huge pages; base pages are used and are slower"},
        {CORE_PAGES_THP, MADV_POPULATE_WRITE, ENOMEM, -ENOMEM,
         "arena: 8388608 bytes on pages of 2 MiB transparent cannot be touched: Cannot allocate"},
    };
    struct core_region region = {0};
    const struct core_region_options options = {
        .name = "arena", .bytes = 8 * MIB, .pages = CORE_PAGES_THP};
    check_int(core_region_alloc(&options, &region), ==, 0);
    const bool huge = region.pages == CORE_PAGES_THP;
    core_region_free(&region);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct refused_advice row = rows[i];
        if (!huge && i > 0) {
            test_skip("this machine has no transparent huge pages");
        }
        const int rc = test_child(alloc_without_advice, &row);
        if (rc == 77) {
            test_skip("this process cannot filter its own system calls");
        }
        check_int(rc, ==, 0);
    }
}

static void set_pool(int64_t count)
{
    FILE *file = fopen("/proc/sys/vm/nr_hugepages", "we");
    if (file != NULL) {
        fprintf(file, "%" PRId64, count);
        fclose(file);
    }
}

/* A region takes the hugetlb pages that it needs; if there are too few, it falls back with a
 * warning. */
static void hugetlb_pool_is_used(void)
{
    struct core_hugetlb pool = {0};
    if (getenv("TIDE_TEST_HUGETLB") == NULL || geteuid() != 0 ||
        core_mem_hugetlb("", -1, 2 * MIB, &pool) != 0 || pool.total_count != 0) {
        test_skip("changes the machine's pool: needs TIDE_TEST_HUGETLB=1, root and an empty pool");
    }
    set_pool(6);
    if (core_mem_hugetlb("", -1, 2 * MIB, &pool) != 0 || pool.free_count < 6) {
        set_pool(0);
        test_skip("the kernel gives no hugetlb pages");
    }
    test_listen(CORE_LOG_WARN);
    struct core_region first = {0};
    struct core_region second = {0};
    struct core_region_options options = {.name = "arena", .bytes = 7 * MIB};
    int rc = core_region_alloc(&options, &first);
    core_mem_hugetlb("", -1, 2 * MIB, &pool);
    int rc_second = core_region_alloc(&options, &second);
    enum core_pages pages = first.pages;
    uint64_t mapped_bytes = first.mapped_bytes;
    enum core_pages pages_second = second.pages;
    core_region_free(&first);
    core_region_free(&second);
    set_pool(0);
    test_listen_end();
    check_int(rc, ==, 0);
    check_int(rc_second, ==, 0);
    check_int(pages, ==, CORE_PAGES_2M);
    check_int(mapped_bytes, ==, 8 * MIB);
    check_int(pool.free_count, ==, 2);
    check_int(pages_second, <, CORE_PAGES_2M);
    check_contains(test_heard(), "4 hugetlb pages of 2 MiB are needed, 2 of 6 are free");
}

/* A region has its pages on the preferred node; a missing node causes one warning. */
static void region_has_a_node(void)
{
    struct core_cpus nodes;
    core_mem_nodes("", &nodes);
    struct core_region region = {0};
    struct core_region_options options = {
        .name = "near", .bytes = 4 * MIB, .prefer_node = true, .node = core_cpus_nth(&nodes, 0)};
    test_listen(CORE_LOG_WARN);
    check_int(core_region_alloc(&options, &region), ==, 0);
    check_int(region.node, ==, options.node);
    int node = core_mem_node_of(region.base + 3 * MIB);
    check_true(node == -ENOTSUP || node == options.node);
    core_region_free(&region);
    const int missing[] = {-7, 63, 5000};
    for (size_t i = 0; i < 3; i++) {
        test_listen(CORE_LOG_WARN);
        options.node = missing[i];
        check_int(core_region_alloc(&options, &region), ==, 0);
        check_int(region.node, ==, -1);
        check_int(test_heard_lines(""), ==, 1);
        check_contains(test_heard(), "cannot be used by this process (");
        core_region_free(&region);
    }
    test_listen_end();
}

/* A touched page has a node; an invalid node is refused with its number. */
static void nodes_of_pages(void)
{
    struct core_region region = {0};
    struct core_region_options options = {.name = "raw", .bytes = 4096, .lazy = true};
    check_int(core_region_alloc(&options, &region), ==, 0);
    int rc = core_mem_node_prefer(region.base, region.mapped_bytes, 0);
    if (rc == -ENOTSUP || rc == -ENOSYS) {
        core_region_free(&region);
        test_skip("%s", core_err_message());
    }
    check_int(rc, ==, 0);
    check_int(core_mem_node_of(region.base), ==, -ENOENT);
    region.base[0] = 1;
    check_int(core_mem_node_of(region.base), >=, 0);
    check_int(core_mem_node_prefer(region.base, region.mapped_bytes, 100000), ==, -EINVAL);
    check_contains(core_err_message(), "node 100000 is out of range");
    core_region_free(&region);
}

static void page_names(void)
{
    check_string(core_pages_name(CORE_PAGES_4K), "4 KiB");
    check_string(core_pages_name(CORE_PAGES_THP), "2 MiB transparent");
    check_string(core_pages_name(CORE_PAGES_2M), "2 MiB");
    check_string(core_pages_name(CORE_PAGES_1G), "1 GiB");
    check_string(core_pages_name(CORE_PAGES_AUTO), "none");
}

static int limited_memlock(void *argument)
{
    const uint64_t *bytes = argument;
    const struct rlimit limit = {*bytes, *bytes};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (geteuid() == 0 && test_child_drop_root() != 0)) {
        return 77;
    }
    struct core_mem_limits limits;
    struct core_region region = {0};
    struct core_region_options options = {.name = "arena", .bytes = 4 * MIB};
    if (core_mem_limits("", &limits) != 0 || limits.memlock_ignored ||
        core_mem_lockable(&limits) != *bytes) {
        return 1;
    }
    test_listen(CORE_LOG_WARN);
    int rc = core_region_alloc(&options, &region);
    core_region_free(&region);
    return rc == 0 ? 0 : 2;
}

/* Regions do not depend on the memlock limit, which is reported. */
static void small_memlock_still_works(void)
{
    uint64_t limits[] = {0, 65536};
    for (size_t i = 0; i < 2; i++) {
        int rc = test_child(limited_memlock, &limits[i]);
        if (rc == 77) {
            test_skip("this process cannot lower its limit or become another user");
        }
        check_int(rc, ==, 0);
    }
}

static int small_address_space(void *argument)
{
    (void)argument;
    const struct rlimit limit = {256 * MIB, 256 * MIB};
    setrlimit(RLIMIT_AS, &limit);
    struct core_region region = {0};
    struct core_region_options options = {.name = "arena", .bytes = 512 * MIB};
    int rc = core_region_alloc(&options, &region);
    bool named = strstr(core_err_message(), "arena: 536870912 bytes on pages of 4 KiB") != NULL;
    return rc == -ENOMEM && named ? 0 : 1;
}

/* The error of a failed mmap states the bytes and the kind of pages. */
static void mapping_refused_is_clean(void)
{
#if CORE_POISON_ON || defined(__SANITIZE_THREAD__)
    test_skip("a sanitizer needs its own address space");
#endif
    check_int(test_child(small_address_space, NULL), ==, 0);
}

TEST_MAIN({"region_is_exact", region_is_exact}, {"parts_cover_the_region", parts_cover_the_region},
          {"region_refuses_with_numbers", region_refuses_with_numbers},
          {"region_can_be_lazy", region_can_be_lazy},
          {"region_is_not_inherited", region_is_not_inherited},
          {"no_huge_pages_is_one_warning", no_huge_pages_is_one_warning},
          {"empty_pool_is_one_warning", empty_pool_is_one_warning},
          {"old_kernels_and_no_memory", old_kernels_and_no_memory},
          {"hugetlb_pool_is_used", hugetlb_pool_is_used}, {"region_has_a_node", region_has_a_node},
          {"nodes_of_pages", nodes_of_pages}, {"page_names", page_names},
          {"small_memlock_still_works", small_memlock_still_works},
          {"mapping_refused_is_clean", mapping_refused_is_clean})
