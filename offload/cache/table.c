/* table.c: finds blocks by name, in a hash table that grows. The cache's lock is held,
 * except in table_fini. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "offload/cache/cache_internal.h"

enum { BUCKETS_MIN = 64 };

static struct block **bucket_of(const struct cache *cache, uint64_t hash)
{
    return &cache->buckets[hash & (cache->bucket_count - 1)];
}

struct block *table_find(const struct cache *cache, const char *name)
{
    if (cache->bucket_count == 0) {
        return NULL;
    }
    const uint64_t hash = core_hash(name, strlen(name), 0);
    struct block *block = *bucket_of(cache, hash);
    while (block != NULL && (block->hash != hash || strcmp(block->name, name) != 0)) {
        block = block->next;
    }
    return block;
}

/* Keeps the average of blocks in a bucket at one or less. */
static int grow(struct cache *cache)
{
    const size_t count = cache->bucket_count > 0 ? 2 * cache->bucket_count : BUCKETS_MIN;
    struct block **before = cache->buckets;
    const size_t before_count = cache->bucket_count;
    if (cache->block_count < cache->bucket_count) {
        return 0;
    }
    struct block **buckets = calloc(count, sizeof *buckets);
    if (buckets == NULL) {
        return core_err_set(-ENOMEM, "out of memory for %zu blocks", count);
    }
    cache->buckets = buckets;
    cache->bucket_count = count;
    for (size_t i = 0; i < before_count; i++) {
        for (struct block *block = before[i], *next; block != NULL; block = next) {
            struct block **bucket = bucket_of(cache, block->hash);
            next = block->next;
            block->next = *bucket;
            *bucket = block;
        }
    }
    free(before);
    return 0;
}

struct block *table_add(struct cache *cache, const char *name)
{
    struct block *block = table_find(cache, name);
    if (block != NULL || grow(cache) != 0 || slots_reserve(cache) != 0) {
        return block;
    }
    const size_t bytes = strlen(name) + 1;
    block = calloc(1, sizeof *block + bytes);
    if (block == NULL) {
        (void)core_err_set(-ENOMEM, "out of memory for block %s", name);
        return NULL;
    }
    memcpy(block->name, name, bytes);
    block->hash = core_hash(name, bytes - 1, 0);
    block->due = BLOCK_NEVER;
    struct block **bucket = bucket_of(cache, block->hash);
    block->next = *bucket;
    *bucket = block;
    cache->block_count++;
    return block;
}

bool table_holds(const struct block *block)
{
    return block->slot != NULL || block->stored;
}

void table_settle(struct cache *cache, struct block *block)
{
    if (table_holds(block) || block->loading || block->mentions > 0 ||
        block->issued != block->served) {
        return;
    }
    struct block **at = bucket_of(cache, block->hash);
    while (*at != block) {
        at = &(*at)->next;
    }
    *at = block->next;
    cache->block_count--;
    aio_extent_free(cache->store, block->extent);
    free(block);
}

void table_fini(struct cache *cache)
{
    for (size_t i = 0; i < cache->bucket_count; i++) {
        for (struct block *block = cache->buckets[i], *next; block != NULL; block = next) {
            next = block->next;
            aio_extent_free(NULL, block->extent); /* the store is closed */
            free(block);
        }
    }
    free(cache->buckets);
}
