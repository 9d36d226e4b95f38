/* case.c: see case.h. */
#include "tests/cache/case.h"

#include <stdio.h>
#include <stdlib.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "core/base/hash.h"

struct cache *case_open(const struct cache_case *given)
{
    struct cache *cache = NULL;
    struct aio_store_path path = {.directory = given->directory,
                                  .bytes = given->store_bytes,
                                  .recipe = aio_fault_recipe(given->fault)};
    if (given->directory == NULL && given->store_bytes > 0) {
        static struct aio_mem_disk *disks[4096];
        static unsigned count;
        check_uint(count, <, 4096);
        check_int(aio_mem_create(given->store_bytes, &disks[count]), ==, 0);
        path.disk = disks[count++];
    }
    const struct cache_options options = {.host_bytes = given->host_bytes,
                                          .paths = &path,
                                          .path_count = given->store_bytes > 0 ? 1 : 0,
                                          .no_sums = given->no_sums,
                                          .drive = {.depth = given->depth}};
    int rc = cache_create(&options, &cache);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "no cache: %d: %s", rc, core_err_message());
    }
    return cache;
}

unsigned char *case_memory(uint64_t bytes)
{
    static void *all[4096];
    static unsigned count;
    check_uint(count, <, 4096);
    check_int(posix_memalign(&all[count], CACHE_ALIGN_BYTES, bytes), ==, 0);
    return all[count++];
}

static uint64_t word_at(uint64_t seed, uint64_t index)
{
    const uint64_t mixed = (seed + index) * UINT64_C(0x9e3779b97f4a7c15);
    return mixed ^ mixed >> 29;
}

/* The loop would take minutes under ThreadSanitizer. */
__attribute__((no_sanitize("thread"))) void case_fill(unsigned char *memory, uint64_t bytes,
                                                      unsigned block, uint64_t version)
{
    const uint64_t seed = core_hash_seed(block, version, bytes, 1);
    for (uint64_t i = 0; i < bytes; i += 8) {
        const uint64_t word = word_at(seed, i / 8);
        memcpy(memory + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

__attribute__((no_sanitize("thread"))) bool case_has(const unsigned char *memory, uint64_t bytes,
                                                     unsigned block, uint64_t version)
{
    const uint64_t seed = core_hash_seed(block, version, bytes, 1);
    for (uint64_t i = 0; i < bytes; i += 8) {
        const uint64_t word = word_at(seed, i / 8);
        if (memcmp(memory + i, &word, bytes - i < 8 ? bytes - i : 8) != 0) {
            return false;
        }
    }
    return true;
}

const char *case_name(unsigned block)
{
    static _Thread_local char texts[16][32];
    static _Thread_local unsigned turn;
    char *text = texts[turn++ % 16];
    snprintf(text, 32, "block %u", block);
    return text;
}

int case_put(struct cache *cache, unsigned block, const void *from, uint64_t bytes, bool through)
{
    return cache_put_now(
        cache, &(struct cache_request){
                   .name = case_name(block), .from = from, .bytes = bytes, .through = through});
}

int case_get(struct cache *cache, unsigned block, void *to, uint64_t bytes,
             struct cache_result *out)
{
    return cache_get_now(
        cache, &(struct cache_request){.name = case_name(block), .to = to, .bytes = bytes}, out);
}

int case_drop(struct cache *cache, unsigned block)
{
    return cache_drop(cache, case_name(block));
}

uint64_t case_random(uint64_t *seed, uint64_t limit)
{
    *seed = core_hash_seed(*seed, 7, 0, 0);
    return (*seed >> 16) % limit;
}
