/* body_philox.h: computes Philox-4x32-10 in lanes; core_rng_philox() is the reference. */
#ifndef CPU_ADAM_BODY_PHILOX_H
#define CPU_ADAM_BODY_PHILOX_H

#include "core/base/update_args.h"
#include "cpu_adam/vec.h"

enum { PHILOX_ROUNDS = 10, PHILOX_PARTS = 16 / V_LANES, PHILOX_WORDS = 4 * PHILOX_PARTS };
struct philox {
    struct vw word[PHILOX_PARTS][4];
    vu key[2];
};

/* Sets 16 consecutive counters from first / 16 on; `first` is a multiple of CORE_UPDATE_GROUP. */
V_INLINE void philox_begin(struct philox *p, uint64_t seed, uint64_t stream, uint64_t first)
{
    for (int part = 0; part < PHILOX_PARTS; part++) {
        const uint64_t position = first / 16 + (uint64_t)(part * V_LANES);
        p->word[part][0] = w_spread(u_add(u_set((uint32_t)position), u_lanes()));
        p->word[part][1] = w_spread(u_set((uint32_t)(position >> 32)));
        p->word[part][2] = w_spread(u_set((uint32_t)stream));
        p->word[part][3] = w_spread(u_set((uint32_t)(stream >> 32)));
    }
    p->key[0] = u_set((uint32_t)seed);
    p->key[1] = u_set((uint32_t)(seed >> 32));
}

V_INLINE void philox_round(struct philox *p)
{
    for (int part = 0; part < PHILOX_PARTS; part++) {
        struct vw *word = p->word[part];
        const struct vw first = w_multiply(word[0], u_set(0xD2511F53u));
        const struct vw second = w_multiply(word[2], u_set(0xCD9E8D57u));
        word[0] = w_next(second, word[1], p->key[0]);
        word[2] = w_next(first, word[3], p->key[1]);
        word[1] = second;
        word[3] = first;
    }
    p->key[0] = u_add(p->key[0], u_set(0x9E3779B9u));
    p->key[1] = u_add(p->key[1], u_set(0xBB67AE85u));
}

/* Computes 16 random bits per element of the group at global index `first`, as pairs.
 * Elements 256 q + 2 j and 256 q + 2 j + 1, j below 64, get the low and high half of word j / 16 of
 * position 16 q + j % 16. The next 128 elements get halves of these words rotated left by eight
 * bits. */
V_INLINE void group_chances(uint64_t seed, uint64_t stream, uint64_t first, vu *chance)
{
    struct philox p;
    philox_begin(&p, seed, stream, first);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        philox_round(&p);
    }
    for (int part = 0; part < PHILOX_PARTS; part++) {
        for (int w = 0; w < 4; w++) {
            const vu word = w_words(p.word[part][w]);
            chance[w * PHILOX_PARTS + part] = word;
            chance[w * PHILOX_PARTS + part + PHILOX_WORDS] = u_or(u_shl(word, 8), u_shr(word, 24));
        }
    }
}

#endif
