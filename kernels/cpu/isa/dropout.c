/* dropout.c: drops elements by random numbers of their positions. */
#include "kernels/cpu/isa/bodies.h"

enum { GROUPS = 16, BLOCK = 4 * GROUPS };

/* Computes core_rng_philox for GROUPS positions from `first` on; words[w][g] is word w of group
 * g. */
VF_INLINE void philox(uint64_t seed, uint64_t stream, uint64_t first, uint32_t words[4][GROUPS])
{
    uint32_t keys[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int g = 0; g < GROUPS; g++) {
        const uint64_t position = first + (uint64_t)g;
        words[0][g] = (uint32_t)position;
        words[1][g] = (uint32_t)(position >> 32);
        words[2][g] = (uint32_t)stream;
        words[3][g] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int g = 0; g < GROUPS; g++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * words[0][g];
            const uint64_t p1 = (uint64_t)0xCD9E8D57u * words[2][g];
            words[0][g] = (uint32_t)(p1 >> 32) ^ words[1][g] ^ keys[0];
            words[2][g] = (uint32_t)(p0 >> 32) ^ words[3][g] ^ keys[1];
            words[1][g] = (uint32_t)p1;
            words[3][g] = (uint32_t)p0;
        }
        keys[0] += 0x9E3779B9u;
        keys[1] += 0xBB67AE85u;
    }
}

/* Factors of BLOCK elements; 0 if dropped. */
VF_INLINE void factors_of(const struct kern_dropout_arguments *a, uint64_t first,
                          float factors[BLOCK])
{
    const float kept = 1.0f / (1.0f - a->rate);
    uint32_t words[4][GROUPS];
    philox(*a->seed, a->stream, first / 4, words);
    for (int g = 0; g < GROUPS; g++) {
        for (int w = 0; w < 4; w++) {
            const float unit = (float)(words[w][g] >> 8) * 0x1p-24f;
            factors[4 * g + w] = unit < a->rate ? 0.0f : kept;
        }
    }
}

VF_INLINE void dropout(const struct kern_dropout_arguments *a, enum kern_type type,
                       const int64_t range[2])
{
    const bool drops = *a->seed != 0;
    float factors[BLOCK];
    for (int64_t block = range[0]; block < range[1]; block += BLOCK) {
        const int64_t end = block + BLOCK < range[1] ? block + BLOCK : range[1];
        if (drops) {
            factors_of(a, (uint64_t)block, factors);
        }
        for (int64_t i = block; i < end; i += LANES) {
            const int64_t wide = end - i;
            const vf x = vf_get_part(type, a->x, i, wide);
            vf value = x;
            if (drops) {
                value *= vf_get_part(KERN_F32, factors, i - block, wide);
            }
            if (a->rest) {
                value = x - vf_rounded(type, value);
            }
            if (a->add != NULL) {
                value += vf_get_part(type, a->add, i, wide);
            }
            vf_put_part(type, a->y, i, value, wide);
        }
    }
}

void kern_dropout_elements(const struct kern_dropout_arguments *a, int64_t begin, int64_t end)
{
    const int64_t range[2] = {begin, end};
#define BODY(t) dropout(a, t, range)
    KERN_TYPE_CASES(a->type, BODY);
#undef BODY
}
