/* hash.h: XXH3-64, the checksum of everything that leaves memory. */
#ifndef CORE_BASE_HASH_H
#define CORE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t core_hash(const void *data, size_t bytes, uint64_t seed);

/* Mixes up to four numbers (run, shard, block, generation) into a seed. */
uint64_t core_hash_seed(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

#endif
