/* mem_region.c: maps a region on the largest possible pages and touches it. The node is preferred,
 * not enforced: under a strict policy the kernel would kill the process when the node is full. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/mem_limits.h"
#include "core/base/size.h"
#include "core/base/sysfile.h"
#include "core/base/team.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14 */
#endif
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
/* small enough that members finish at about the same time, large enough to hide the cost of a
 * call */
#define SLICE_BYTES (4 * MIB)
enum { HUGE_SHIFT = 26, LOG2_2M = 21, LOG2_1G = 30, SAMPLES_MAX = 64 };

const char *core_pages_name(enum core_pages pages)
{
    static const char *const names[] = {"none", "4 KiB", "2 MiB transparent", "2 MiB", "1 GiB"};
    return names[pages];
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t page_bytes_of(enum core_pages pages)
{
    switch (pages) {
    case CORE_PAGES_1G: return GIB;
    case CORE_PAGES_2M: return 2 * MIB;
    case CORE_PAGES_AUTO:
    case CORE_PAGES_4K:
    case CORE_PAGES_THP: break;
    }
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- mapping ---- */

static void *map(uint64_t bytes, int more_flags)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more_flags,
                    -1, 0);
    return at != MAP_FAILED ? at : NULL;
}

/* Maps 2 MiB more than `bytes` and trims the ends, to align a region of at least 2 MiB. */
static unsigned char *map_aligned(uint64_t bytes)
{
    if (bytes < 2 * MIB) {
        return map(bytes, 0);
    }
    unsigned char *wide = map(bytes + 2 * MIB, 0);
    if (wide == NULL) {
        return NULL;
    }
    uint64_t front = core_round_up((uintptr_t)wide, 2 * MIB) - (uintptr_t)wide;
    if (front > 0) {
        munmap(wide, front);
    }
    if (front < 2 * MIB) {
        munmap(wide + front + bytes, 2 * MIB - front);
    }
    return wide + front;
}

static bool transparent_is_on(void)
{
    char choice[32];
    int rc = core_sysfile_choice(choice, sizeof choice, "",
                                 "/sys/kernel/mm/transparent_hugepage/enabled");
    return rc != 0 || strcmp(choice, "never") != 0;
}

/* Returns NULL, with errno set, on failure. */
static unsigned char *map_kind(enum core_pages pages, uint64_t mapped_bytes)
{
    switch (pages) {
    case CORE_PAGES_1G: return map(mapped_bytes, MAP_HUGETLB | LOG2_1G << HUGE_SHIFT);
    case CORE_PAGES_2M: return map(mapped_bytes, MAP_HUGETLB | LOG2_2M << HUGE_SHIFT);
    case CORE_PAGES_THP: {
        unsigned char *base = map_aligned(mapped_bytes);
        if (base != NULL && madvise(base, mapped_bytes, MADV_HUGEPAGE) != 0) {
            munmap(base, mapped_bytes);
            return NULL;
        }
        return base;
    }
    case CORE_PAGES_AUTO:
    case CORE_PAGES_4K: break;
    }
    return map_aligned(mapped_bytes);
}

static enum core_pages best_kind(const struct core_region_options *options)
{
    enum core_pages best = options->pages != CORE_PAGES_AUTO ? options->pages : CORE_PAGES_2M;
    if (options->bytes < GIB && best > CORE_PAGES_2M) {
        best = CORE_PAGES_2M;
    }
    return options->bytes < 2 * MIB ? CORE_PAGES_4K : best;
}

/* The kernel may kill a process that takes more pages than there are. */
static int check_room(const char *name, uint64_t bytes)
{
    struct core_mem_limits limits;
    if (core_mem_limits("", &limits) != 0 || bytes <= limits.usable_bytes) {
        return 0;
    }
    if (limits.usable_bytes == limits.available_bytes) {
        return core_err_set(-ENOMEM,
                            "%s needs %" PRIu64 " bytes; the machine has %" PRIu64
                            " available of %" PRIu64,
                            name, bytes, limits.available_bytes, limits.total_bytes);
    }
    return core_err_set(-ENOMEM,
                        "%s needs %" PRIu64 " bytes; cgroup %s has %" PRIu64
                        " left of its limit of %" PRIu64,
                        name, bytes, limits.cgroup, limits.usable_bytes, limits.cgroup_bytes);
}

/* Maps the region if this kind of pages is on and there is room. */
static int try_kind(const struct core_region_options *options, enum core_pages pages,
                    struct core_region *region)
{
    uint64_t mapped_bytes = core_round_up(options->bytes, page_bytes_of(pages));
    if (pages == CORE_PAGES_THP && !transparent_is_on()) {
        return core_err_set(-ENOMEM, "transparent huge pages are switched off");
    }
    if (pages <= CORE_PAGES_THP && !options->lazy) {
        int rc = check_room(options->name, mapped_bytes);
        if (rc != 0) {
            return rc;
        }
    }
    unsigned char *base = map_kind(pages, mapped_bytes);
    if (base == NULL) {
        int error = errno;
        return core_err_set(-ENOMEM, "%s: %" PRIu64 " bytes on pages of %s cannot be mapped: %s",
                            options->name, mapped_bytes, core_pages_name(pages), strerror(error));
    }
    region->base = base;
    region->mapped_bytes = mapped_bytes;
    region->pages = pages;
    return 0;
}

/* ---- touching ---- */

struct touch {
    const struct core_region_options *options;
    unsigned char *base;
    uint64_t bytes;
    uint64_t slice_bytes;
    uint64_t page_bytes;
    uint64_t whole_bytes;  /* the largest size that a page may have */
    _Atomic uint64_t next; /* the first byte not taken */
    _Atomic int error;     /* 0, or -errno of a slice */
};

/* madvise fills a slice without a fault per page. Before Linux 5.14 it returns EINVAL, and writes
 * touch the pages. */
static int touch_slice(unsigned char *at, uint64_t bytes, uint64_t page_bytes)
{
    if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0) {
        return 0;
    }
    if (errno != EINVAL) {
        return -errno;
    }
    for (uint64_t i = 0; i < bytes; i += page_bytes) {
        ((volatile unsigned char *)at)[i] = 0;
    }
    return 0;
}

static void touch_range(struct touch *touch, uint64_t begin, uint64_t end)
{
    const int rc = begin < end ? touch_slice(touch->base + begin, end - begin, touch->page_bytes)
                               : 0;
    if (rc != 0) {
        atomic_store_explicit(&touch->error, rc, memory_order_relaxed);
    }
}

static void touch_parts(void *argument, unsigned index, unsigned count)
{
    struct touch *touch = argument;
    const struct core_region_options *options = touch->options;
    (void)count;
    for (size_t i = 0; i < options->part_count; i++) {
        const struct core_region_part *part = &options->parts[i];
        const uint64_t next = i + 1 < options->part_count ? part[1].begin : touch->bytes;
        const uint64_t from = least(core_round_up(part->begin, touch->whole_bytes), touch->bytes);
        const uint64_t to = least(core_round_up(next, touch->whole_bytes), touch->bytes);
        if (index >= part->first && index < part->end && from < to) {
            uint64_t begin;
            uint64_t end;
            core_team_share(to - from, touch->whole_bytes, index - part->first,
                            part->end - part->first, &begin, &end);
            touch_range(touch, from + begin, from + end);
        }
    }
}

static void touch_slices(void *argument, unsigned index, unsigned count)
{
    struct touch *touch = argument;
    (void)index;
    (void)count;
    for (;;) {
        uint64_t begin = atomic_fetch_add_explicit(&touch->next, touch->slice_bytes,
                                                   memory_order_relaxed);
        if (begin >= touch->bytes || atomic_load_explicit(&touch->error, memory_order_relaxed)) {
            return;
        }
        touch_range(touch, begin, least(begin + touch->slice_bytes, touch->bytes));
    }
}

static int touch_region(const struct core_region_options *options, struct core_region *region)
{
    uint64_t page_bytes = page_bytes_of(region->pages);
    struct touch touch = {
        .options = options,
        .base = region->base,
        .bytes = region->mapped_bytes,
        .slice_bytes = page_bytes > SLICE_BYTES ? page_bytes : SLICE_BYTES,
        .page_bytes = page_bytes,
        .whole_bytes = region->pages == CORE_PAGES_THP ? 2 * MIB : page_bytes,
    };
    if (options->team == NULL) {
        touch_slices(&touch, 0, 1);
    } else {
        core_team_run(options->team, options->parts != NULL ? touch_parts : touch_slices, &touch);
    }
    const int rc = atomic_load_explicit(&touch.error, memory_order_relaxed);
    if (rc != 0) {
        return core_err_set(-ENOMEM, "%s: %" PRIu64 " bytes on pages of %s cannot be touched: %s",
                            options->name, region->mapped_bytes, core_pages_name(region->pages),
                            strerror(-rc));
    }
    region->touched = true;
    return 0;
}

/* ---- examining the result ---- */

/* Sums AnonHugePages over the region's mappings; UINT64_MAX: unknown. */
static uint64_t transparent_bytes(const struct core_region *region)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    if (file == NULL) {
        return UINT64_MAX;
    }
    uintptr_t first = (uintptr_t)region->base;
    uintptr_t last = first + region->mapped_bytes;
    char line[512];
    bool inside = false;
    uint64_t sum = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        char *end = NULL;
        uint64_t field = 0;
        uintptr_t begin = strtoul(line, &end, 16);
        if (end > line && *end == '-') {
            uintptr_t stop = strtoul(end + 1, NULL, 16);
            inside = begin < last && stop > first;
        } else if (inside && core_sysfile_field(line, "AnonHugePages:", &field) == 0) {
            sum += field;
        }
    }
    fclose(file);
    return sum < region->mapped_bytes ? sum : region->mapped_bytes;
}

static void count_huge(const char *name, struct core_region *region)
{
    if (region->pages >= CORE_PAGES_2M) {
        region->huge_bytes = region->mapped_bytes;
        return;
    }
    uint64_t possible = region->mapped_bytes / (2 * MIB) * (2 * MIB);
    uint64_t got = region->pages == CORE_PAGES_THP ? transparent_bytes(region) : 0;
    if (got == UINT64_MAX || region->pages != CORE_PAGES_THP) {
        return;
    }
    region->huge_bytes = got;
    if (got == 0) {
        region->pages = CORE_PAGES_4K;
    }
    if (got < possible / 8 * 7) {
        core_log(CORE_LOG_WARN,
                 "%s: only %" PRIu64 " of %" PRIu64
                 " MiB are on huge pages (memory is fragmented, or they are switched off); the "
                 "rest has %" PRIu64 " KiB pages and is slower",
                 name, got / MIB, possible / MIB, page_bytes_of(CORE_PAGES_4K) / 1024);
    }
}

/* Returns false, after a warning, if the node is refused. */
static bool ask_node(const struct core_region_options *options, const struct core_region *region)
{
    struct core_cpus nodes;
    core_mem_nodes("", &nodes);
    char text[64];
    core_cpus_print(&nodes, text, sizeof text);
    if (options->node < 0 || !core_cpus_has(&nodes, (unsigned)options->node)) {
        core_log(CORE_LOG_WARN,
                 "%s: node %d cannot be used by this process (%s); memory is taken from any node",
                 options->name, options->node, text);
        return false;
    }
    if (core_cpus_count(&nodes) == 1) {
        return true;
    }
    if (core_mem_node_prefer(region->base, region->mapped_bytes, options->node) != 0) {
        core_log(CORE_LOG_WARN, "%s: %s; memory is taken from any node", options->name,
                 core_err_message());
        return false;
    }
    return true;
}

/* Samples up to SAMPLES_MAX pages. Returns -1, after a warning, if some are on another node; else
 * the preferred node. */
static int look_node(const struct core_region_options *options, const struct core_region *region)
{
    uint64_t step = core_round_up(region->mapped_bytes / SAMPLES_MAX + 1,
                                  page_bytes_of(CORE_PAGES_4K));
    unsigned away = 0;
    unsigned seen = 0;
    for (uint64_t at = 0; at < region->mapped_bytes; at += step) {
        int node = core_mem_node_of(region->base + at);
        if (node == -ENOTSUP || node == -ENOSYS || node == -EPERM) {
            return options->node;
        }
        seen++;
        away += node != options->node;
    }
    if (away == 0) {
        return options->node;
    }
    core_log(CORE_LOG_WARN, "%s: %u of %u sampled pages are not on node %d, which was full",
             options->name, away, seen, options->node);
    return -1;
}

/* Logs the fallback from hugetlb pages, as a warning if they were requested or the machine has
 * some. */
static void report_pool(const struct core_region_options *options, enum core_pages wished)
{
    uint64_t page_bytes = page_bytes_of(wished);
    struct core_hugetlb pool = {0};
    core_mem_hugetlb("", -1, page_bytes, &pool);
    bool asked = options->pages >= CORE_PAGES_2M;
    core_log(pool.total_count > 0 || asked ? CORE_LOG_WARN : CORE_LOG_INFO,
             "%s: %" PRIu64 " hugetlb pages of %s are needed, %" PRIu64 " of %" PRIu64
             " are free; smaller or transparent pages are used",
             options->name, core_round_up(options->bytes, page_bytes) / page_bytes,
             core_pages_name(wished), pool.free_count, pool.total_count);
}

static int map_best(const struct core_region_options *options, struct core_region *region)
{
    enum core_pages best = best_kind(options);
    for (enum core_pages pages = best;; pages--) {
        int rc = try_kind(options, pages, region);
        if (rc == 0 || pages == CORE_PAGES_4K) {
            if (rc == 0 && pages <= CORE_PAGES_THP && best >= CORE_PAGES_2M) {
                report_pool(options, best);
            }
            if (rc == 0 && pages == CORE_PAGES_4K && best > pages) {
                core_log(CORE_LOG_WARN, "%s: no huge pages; base pages are used and are slower",
                         options->name);
            }
            return rc;
        }
    }
}

int core_region_alloc(const struct core_region_options *wishes, struct core_region *out)
{
    struct core_region_options options = *wishes;
    options.name = options.name != NULL ? options.name : "memory";
    if (options.bytes == 0 || options.bytes > UINT64_C(1) << 46) {
        return core_err_set(-EINVAL, "%s: %" PRIu64 " bytes is out of range", options.name,
                            options.bytes);
    }
    struct core_region region = {.bytes = options.bytes, .node = -1};
    int rc = map_best(&options, &region);
    if (rc != 0) {
        return rc;
    }
    madvise(region.base, region.mapped_bytes, MADV_DONTFORK);
    bool wished = options.prefer_node && ask_node(&options, &region);
    if (!options.lazy) {
        rc = touch_region(&options, &region);
        if (rc != 0) {
            core_region_free(&region);
            return rc;
        }
        count_huge(options.name, &region);
    }
    if (wished) {
        region.node = options.lazy ? options.node : look_node(&options, &region);
    }
    *out = region;
    return 0;
}

void core_region_free(struct core_region *region)
{
    if (region->base == NULL) {
        return;
    }
    int rc = munmap(region->base, region->mapped_bytes);
    assert(rc == 0);
    (void)rc;
    *region = (struct core_region){0};
}
