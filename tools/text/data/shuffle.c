/* shuffle.c: permutes a range by a Feistel network and an array by Fisher-Yates, with numbers of
 * Philox. */
#include "tools/text/data/shuffle.h"

#include "core/base/rng.h"

enum { ROUNDS = 6, STREAMS = 2, STREAM_RANGE = 0, STREAM_ARRAY = 1 };

/* Returns the image of `value` under a permutation of 0 ... 2^(2 half) - 1. */
static uint64_t network(uint64_t seed, uint64_t epoch, unsigned half, uint64_t value)
{
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = value >> half;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const struct core_rng_words drawn = core_rng_philox(seed, epoch * STREAMS + STREAM_RANGE,
                                                            round << 32 | right);
        const uint64_t next = left ^ (drawn.word[0] & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

uint64_t text_shuffle_at(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index)
{
    unsigned half = 1;
    while (half < 32 && (UINT64_C(1) << (2 * half)) < count) {
        half++;
    }
    /* The network permutes at most 4 x `count` values, so a few repetitions are enough. */
    do {
        index = network(seed, epoch, half, index);
    } while (index >= count);
    return index;
}

/* Returns one of 0 ... count - 1, count <= 2^32: the upper part of word * count / 2^64. */
static uint64_t below(struct core_rng_words drawn, uint64_t count)
{
    return (drawn.word[1] * count + (drawn.word[0] * count >> 32)) >> 32;
}

void text_shuffle_mix(uint64_t seed, uint64_t epoch, uint64_t window, uint64_t *items, size_t count)
{
    for (uint64_t i = count; i > 1; i--) {
        const uint64_t other = below(
            core_rng_philox(seed, epoch * STREAMS + STREAM_ARRAY, window << 32 | (i - 1)), i);
        const uint64_t kept = items[i - 1];
        items[i - 1] = items[other];
        items[other] = kept;
    }
}
