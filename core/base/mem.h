/* mem.h: regions of host memory, mapped once, on the largest available pages, near a NUMA node if
 * requested, and touched unless lazy. */
#ifndef CORE_BASE_MEM_H
#define CORE_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct core_team;

enum core_pages {
    CORE_PAGES_AUTO, /* in a request: CORE_PAGES_2M */
    CORE_PAGES_4K,   /* base pages of any size */
    CORE_PAGES_THP,  /* transparent huge pages */
    CORE_PAGES_2M,   /* hugetlb pages */
    CORE_PAGES_1G,
};

/* A part of a region, from `begin` to the next part. Team members [first, end) touch its pages, so
 * that the kernel allocates them on these members' nodes. A page (transparent ones: 2 MiB) belongs
 * to the part of its first byte. */
struct core_region_part {
    uint64_t begin;
    unsigned first, end;
};

struct core_region_options {
    const char *name; /* used in messages; NULL: "memory" */
    uint64_t bytes;   /* rounded up to whole pages */
    bool prefer_node;
    int node;              /* read if prefer_node is set */
    enum core_pages pages; /* largest kind to try */
    bool lazy;             /* pages are allocated at first use */
    /* borrowed during the call: touches the pages; NULL: the caller touches them */
    struct core_team *team;
    /* In ascending order, from 0 on. NULL: any member touches any page. */
    const struct core_region_part *parts;
    size_t part_count;
};

/* A mapped region. All zero: none. */
struct core_region {
    unsigned char *base;   /* owned; aligned to 2 MiB, or to a page if it is smaller */
    uint64_t bytes;        /* the requested size */
    uint64_t mapped_bytes; /* the size in whole pages */
    uint64_t huge_bytes;   /* bytes on pages of at least 2 MiB; 0: none or unknown */
    enum core_pages pages;
    int node; /* -1: none requested, or not granted */
    bool touched;
};

/* Maps a region of zeros, which a forked child does not get, and touches it unless `lazy`. Falls
 * back to smaller pages, and from the preferred node to any, with warnings for costly fallbacks.
 * -ENOMEM: the cgroup or the machine has too little memory. */
int core_region_alloc(const struct core_region_options *options, struct core_region *out);

/* Unmaps the memory and zeroes *region. Accepts a zeroed *region. */
void core_region_free(struct core_region *region);

/* Returns "4 KiB", "2 MiB transparent", "2 MiB", "1 GiB" or "none". */
const char *core_pages_name(enum core_pages pages);

#endif
