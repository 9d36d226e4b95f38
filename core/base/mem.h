/* mem.h: a region of host memory: one mapping of an exact size, made when its owner is created, on
 * the largest available pages, near a NUMA node if requested, and already touched unless it is
 * lazy. mem_limits.h tells how much memory the machine allows. */
#ifndef CORE_BASE_MEM_H
#define CORE_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct core_team;

/* Kinds of pages, from small to large. */
enum core_pages {
    CORE_PAGES_AUTO, /* in a request: the same as CORE_PAGES_2M */
    CORE_PAGES_4K,   /* the machine's base pages, even if they are larger */
    CORE_PAGES_THP,  /* 2 MiB pages that the kernel assembles (transparent huge pages) */
    CORE_PAGES_2M,   /* hugetlb pages reserved by the administrator */
    CORE_PAGES_1G,
};

/* A part of a region, from `begin` to the begin of the next part. Members [first, end) of the team
 * touch its pages, so that the kernel allocates them on the nodes where these members run. A page
 * belongs to the part of its first byte. */
struct core_region_part {
    uint64_t begin;
    unsigned first, end;
};

struct core_region_options {
    const char *name;      /* for messages and warnings; NULL: "memory" */
    uint64_t bytes;        /* requested size; rounded up only to whole pages */
    bool prefer_node;      /* whether to prefer memory on `node` */
    int node;              /* read if prefer_node is set */
    enum core_pages pages; /* the largest kind of pages to try; smaller kinds are tried after it */
    bool lazy;             /* do not touch: pages are allocated at first use */
    /* borrowed during the call: the team whose members touch the pages; NULL: the caller touches
     * them */
    struct core_team *team;
    /* In ascending order from 0 on; each part is touched by its own members of `team`. NULL: any
     * member touches any page. */
    const struct core_region_part *parts;
    size_t part_count;
};

/* A value that callers read but do not change. All zero: no region. */
struct core_region {
    unsigned char *base;   /* owned; aligned to 2 MiB if the region has at least 2 MiB, else to the
                            * page */
    uint64_t bytes;        /* the requested size */
    uint64_t mapped_bytes; /* the size in whole pages */
    uint64_t huge_bytes;   /* bytes on pages of 2 MiB or more; 0 if untouched or unknown */
    enum core_pages pages; /* the kind of pages that the region has */
    int node;              /* the preferred node; -1: none was requested, or not all
                            * sampled pages are on it */
    bool touched;
};

/* Maps the region, requests huge pages and the node, excludes the region from fork, and touches it.
 * Falls back from 1 GiB to 2 MiB hugetlb pages, transparent ones and base pages, and from the
 * preferred node to any; logs one warning for each fallback that costs something. The contents are
 * zero. Returns -ENOMEM with the numbers if the cgroup or the machine has less than requested, or
 * -EINVAL for a size of zero or beyond 2^46. On failure *out is untouched. */
int core_region_alloc(const struct core_region_options *options, struct core_region *out);

/* Unmaps the memory and zeroes *region. Accepts a zeroed *region. */
void core_region_free(struct core_region *region);

/* Returns "4 KiB", "2 MiB transparent", "2 MiB", "1 GiB", or "none" for CORE_PAGES_AUTO. */
const char *core_pages_name(enum core_pages pages);

#endif
