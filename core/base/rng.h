/* rng.h: Philox-4x32-10, which makes random numbers by position: the same (key, counter) gives the
 * same four words on every machine and device, in any order. No state. */
#ifndef CORE_BASE_RNG_H
#define CORE_BASE_RNG_H

#include <stdint.h>

struct core_rng_words {
    uint32_t word[4];
};

/* Returns the four words at a counter. `seed` is the key; `stream`, the upper half of the counter,
 * distinguishes uses; `position`, the lower half, counts within the stream. */
struct core_rng_words core_rng_philox(uint64_t seed, uint64_t stream, uint64_t position);

/* Returns a float in [0, 1) from the upper 24 bits of a word. */
float core_rng_unit(uint32_t word);

#endif
