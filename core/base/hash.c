/* hash.c: the door of xxhash. */
#include "core/base/hash.h"

#include <xxhash.h>

uint64_t core_hash(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

uint64_t core_hash_seed(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    const uint64_t words[4] = {a, b, c, d};
    return XXH3_64bits(words, sizeof words);
}
