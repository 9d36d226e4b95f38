/* body_philox.h: Philox-4x32-10 in lanes; core_rng_philox() is the reference. */
#ifndef CPU_ADAM_BODY_PHILOX_H
#define CPU_ADAM_BODY_PHILOX_H

#include "core/base/vec.h"
#include "cpu_adam/vec.h"

/* Ten rounds for V_LANES counters that follow each other from `position`, a multiple of V_LANES. */
V_INLINE void philox(uint64_t seed, uint64_t stream, uint64_t position, vu word[4])
{
    vu c0 = u_add(u_set((uint32_t)position), u_lanes());
    vu c1 = u_set((uint32_t)(position >> 32));
    vu c2 = u_set((uint32_t)stream);
    vu c3 = u_set((uint32_t)(stream >> 32));
    uint32_t k0 = (uint32_t)seed;
    uint32_t k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        vu high0;
        vu low0;
        vu high1;
        vu low1;
        u_multiply(c0, 0xD2511F53u, &high0, &low0);
        u_multiply(c2, 0xCD9E8D57u, &high1, &low1);
        c0 = u_xor3(high1, c1, u_set(k0));
        c2 = u_xor3(high0, c3, u_set(k1));
        c1 = low1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    word[0] = c0;
    word[1] = c1;
    word[2] = c2;
    word[3] = c3;
}

/* 16 random bits for each element of the group at global index `first`, as pairs. Elements
 * 256 q + 2 j and 256 q + 2 j + 1, j below 64, have the low and the high half of word j / 16 of
 * position 16 q + j % 16; the 128 elements behind them have those of the same words turned left by
 * eight bits. */
V_INLINE void group_chances(uint64_t seed, uint64_t stream, uint64_t first, vu *chance)
{
    enum { PARTS = 16 / V_LANES, WORDS = 4 * PARTS };
    for (int part = 0; part < PARTS; part++) {
        vu word[4];
        philox(seed, stream, first / 16 + (uint64_t)(part * V_LANES), word);
        for (int w = 0; w < 4; w++) {
            chance[w * PARTS + part] = word[w];
            chance[w * PARTS + part + WORDS] = u_or(u_shl(word[w], 8), u_shr(word[w], 24));
        }
    }
}

#endif
