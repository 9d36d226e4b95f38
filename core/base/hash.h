/* hash.h: XXH3-64, for checksums, fingerprints and hash tables. */
#ifndef CORE_BASE_HASH_H
#define CORE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t core_hash(const void *data, size_t bytes, uint64_t seed);

/* Hashes one number. To hash a struct, hash its members in turn, with the last hash as seed:
 * padding has no effect. */
static inline uint64_t core_hash_number(uint64_t number, uint64_t seed)
{
    return core_hash(&number, sizeof number, seed);
}

uint64_t core_hash_seed(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

#endif
