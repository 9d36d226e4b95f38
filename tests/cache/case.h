/* case.h: a cache whose drive can fail, and blocks with known bytes. */
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
    uint32_t depth; /* 0: the default of the drive */
};

/* Opens a cache, or fails the case. A store in memory is freed at the end of the program. */
struct cache *case_open(const struct cache_case *given);

/* Returns memory at a multiple of 4 KiB. It is freed at the end of the program. */
unsigned char *case_memory(uint64_t bytes);

void case_fill(unsigned char *memory, uint64_t bytes, unsigned block, uint64_t version);
bool case_has(const unsigned char *memory, uint64_t bytes, unsigned block, uint64_t version);

/* Returns a name such as "block 7", valid until this thread's 16th call after this one. */
const char *case_name(unsigned block);

int case_put(struct cache *cache, unsigned block, const void *from, uint64_t bytes, bool through);
int case_get(struct cache *cache, unsigned block, void *to, uint64_t bytes,
             struct cache_result *out);
int case_drop(struct cache *cache, unsigned block);

/* Returns a number below `limit`. */
uint64_t case_random(uint64_t *seed, uint64_t limit);

#endif
