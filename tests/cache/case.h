/* case.h: a cache over a store in memory whose drive can fail, and blocks whose bytes follow from
 * number, size and version. */
#ifndef TESTS_CACHE_CASE_H
#define TESTS_CACHE_CASE_H

#include "offload/cache/cache.h"
#include "tests/aio/fault.h"
#include "tests/harness/test.h"

enum { MIB = 1 << 20 };

struct cache_case {
    uint64_t host_bytes, store_bytes;
    struct aio_fault *fault; /* NULL: none */
    const char *directory;   /* NULL: memory */
    bool no_sums;
    uint32_t depth; /* depth of the drive; 0: the default */
};

/* Opens a cache; an error fails the case. The disk of a store in memory is freed when the program
 * ends. */
struct cache *case_open(const struct cache_case *given);

/* Returns memory at a multiple of 4 KiB that is freed when the program ends. */
unsigned char *case_memory(uint64_t bytes);

/* Writes the bytes of a version of a block to `memory`. */
void case_fill(unsigned char *memory, uint64_t bytes, unsigned block, uint64_t version);
/* Returns whether `memory` has the bytes of a version of a block. */
bool case_has(const unsigned char *memory, uint64_t bytes, unsigned block, uint64_t version);

/* Returns the name of a block, such as "block 7", in one of a few static texts. */
const char *case_name(unsigned block);

/* Synchronous forms of the functions of the cache. */
int case_put(struct cache *cache, unsigned block, const void *from, uint64_t bytes, bool through);
int case_get(struct cache *cache, unsigned block, void *to, uint64_t bytes,
             struct cache_result *out);
int case_drop(struct cache *cache, unsigned block);

/* Returns a number below `limit` from a seed that the case keeps. */
uint64_t case_random(uint64_t *seed, uint64_t limit);

#endif
