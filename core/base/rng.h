/* rng.h: Philox-4x32-10, random numbers by position: a key and a counter give the same four words
 * on any machine and device. No state. */
#ifndef CORE_BASE_RNG_H
#define CORE_BASE_RNG_H

#include <stdint.h>

struct core_rng_words {
    uint32_t word[4];
};

/* Returns four words. The key is `seed`. The counter has `stream`, which distinguishes uses, in its
 * upper half and `position` in its lower half. */
struct core_rng_words core_rng_philox(uint64_t seed, uint64_t stream, uint64_t position);

/* Returns a float in [0, 1) from the upper 24 bits of a word. */
float core_rng_unit(uint32_t word);

#endif
