/* mem.h: host memory that is asked for once, at create time, with exact sizes.
 * Three things, each usable alone: a budget (how many bytes a tier may ever hold), a region (one
 * mapping with the best pages that the machine gives, near a node, already touched) and an arena
 * (named blocks cut out of a region). What the machine would allow is in mem_limits.h. */
#ifndef CORE_BASE_MEM_H
#define CORE_BASE_MEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/poison.h"

struct core_team;

/* ---- budget: the hard limit of a tier. Any thread. -------------------------------------------*/

#define CORE_BUDGET_NONE UINT64_MAX /* a limit that only counts */
enum { CORE_BUDGET_NAME_BYTES = 32 };

struct core_budget {
    char name[CORE_BUDGET_NAME_BYTES];
    uint64_t limit_bytes;
    _Atomic uint64_t used_bytes; /* never above limit_bytes; relaxed: it orders nothing else */
    _Atomic uint64_t peak_bytes; /* the highest `used_bytes` so far */
};

void core_budget_init(struct core_budget *budget, const char *name, uint64_t limit_bytes);

/* Charges `bytes` for `what`. -ENOMEM where they do not fit, with a sentence that has the budget's
 * name, limit, used and asked bytes; nothing is charged then. */
int core_budget_take(struct core_budget *budget, uint64_t bytes, const char *what);
/* Gives back what was taken; more than that is a defect (assert). */
void core_budget_give(struct core_budget *budget, uint64_t bytes);

uint64_t core_budget_used(const struct core_budget *budget);
uint64_t core_budget_peak(const struct core_budget *budget);
uint64_t core_budget_left(const struct core_budget *budget);

/* ---- region: one mapping. Made and freed by its owner, used by any thread. -------------------*/

/* Kinds of pages, the smaller the number the smaller the page. */
enum core_pages {
    CORE_PAGES_AUTO, /* as a wish: CORE_PAGES_2M */
    CORE_PAGES_4K,   /* the machine's base pages, also where they are larger */
    CORE_PAGES_THP,  /* 2 MiB pages that the kernel assembles (transparent huge pages) */
    CORE_PAGES_2M,   /* hugetlb pages reserved by the administrator */
    CORE_PAGES_1G,
};

struct core_region_options {
    const char *name;       /* for sentences and warnings; NULL: "memory" */
    uint64_t bytes;         /* what is needed; rounded up only to whole pages */
    bool prefer_node;       /* memory near `node` is wished for */
    int node;               /* read where prefer_node is set */
    enum core_pages pages;  /* the best kind to try; lower kinds follow by themselves */
    bool lazy;              /* do not touch: pages come at first use */
    struct core_team *team; /* borrowed during the call: touches in parallel; NULL: the caller */
    struct core_budget *budget; /* borrowed until core_region_free, charged with mapped_bytes before
                                   anything is mapped; NULL: none */
};

/* A value; read it, do not change it. All zero: no region. */
struct core_region {
    unsigned char *base;   /* owned; aligned to the page, and to 2 MiB from 2 MiB on */
    uint64_t bytes;        /* as asked */
    uint64_t mapped_bytes; /* as charged */
    uint64_t huge_bytes;   /* on pages of 2 MiB or more; 0 where untouched or not known */
    enum core_pages pages; /* what it got */
    int node;              /* the node wished for where sampled pages lie there; else -1 */
    bool touched;
    struct core_budget *budget; /* borrowed from the options; NULL: none */
};

/* Maps, advises (huge pages, not inherited by fork), asks for the node and touches. Falls back from
 * 1 GiB to 2 MiB hugetlb pages, transparent ones and base pages, and from the wished node to any;
 * each fallback that costs something is one line of warning. Contents are zero.
 * -ENOMEM with the numbers where the budget, the cgroup or the machine have less than asked;
 * -EINVAL for a size of zero or beyond 2^46. On failure *out is untouched. */
int core_region_alloc(const struct core_region_options *options, struct core_region *out);

/* Unmaps, gives the budget its bytes and zeroes *region. A zeroed region is fine. */
void core_region_free(struct core_region *region);

/* "4 KiB", "2 MiB transparent", "2 MiB", "1 GiB"; "none" for CORE_PAGES_AUTO. */
const char *core_pages_name(enum core_pages pages);

/* ---- arena: blocks cut out of a region. One thread, at create time. --------------------------*/

/* Bytes that stay poisoned behind each block: 0 unless the build has AddressSanitizer. */
#define CORE_ARENA_RED_BYTES (CORE_POISON_ON ? 128 : 0)
enum { CORE_ARENA_ALIGN = 64, CORE_ARENA_NAME_BYTES = 32 };

struct core_arena;

struct core_arena_block {
    char name[CORE_ARENA_NAME_BYTES];
    uint64_t offset; /* from the arena's base */
    uint64_t bytes;
};

/* `base` is borrowed, aligned to CORE_ARENA_ALIGN, and outlives the arena. */
int core_arena_create(const char *name, void *base, uint64_t bytes, uint32_t blocks_max,
                      struct core_arena **out);
void core_arena_destroy(struct core_arena *arena);

/* Cuts `bytes` behind the last block, or out of the first gap where they do not fit there. `align`
 * is a power of two, 0: CORE_ARENA_ALIGN. -ENOMEM with the arena's name, its bytes, the used and the
 * asked ones; -EINVAL for zero bytes or another align. Contents are as they were. */
int core_arena_cut(struct core_arena *arena, const char *name, uint64_t bytes, uint64_t align,
                   void **out);
/* Frees a block in any order; its bytes are poisoned until cut again. NULL is fine; anything that is
 * not the start of a block is a defect (assert). */
void core_arena_free(struct core_arena *arena, void *block);
/* Frees all blocks. */
void core_arena_reset(struct core_arena *arena);

/* Where the end moves when a block is cut behind `end`: a plan that adds its blocks up with this
 * knows the bytes that the arena needs. UINT64_MAX on overflow. */
uint64_t core_arena_after(uint64_t end, uint64_t bytes, uint64_t align);

/* The blocks in order of their offset; NULL from `index` = their count on. */
const struct core_arena_block *core_arena_at(const struct core_arena *arena, uint32_t index);
uint64_t core_arena_used(const struct core_arena *arena); /* red zones and gaps not counted */

#endif
