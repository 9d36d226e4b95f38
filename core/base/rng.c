/* rng.c: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"). */
#include "core/base/rng.h"

struct core_rng_words core_rng_philox(uint64_t seed, uint64_t stream, uint64_t position)
{
    uint32_t c0 = (uint32_t)position;
    uint32_t c1 = (uint32_t)(position >> 32);
    uint32_t c2 = (uint32_t)stream;
    uint32_t c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed;
    uint32_t k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (struct core_rng_words){{c0, c1, c2, c3}};
}

float core_rng_unit(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}
