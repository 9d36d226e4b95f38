/* mix.h: an op for tests of the order of commands: its result depends on each of its sources. */
#ifndef TESTS_DEV_MIX_H
#define TESTS_DEV_MIX_H

#include <stdint.h>

enum { MIX_SOURCES = 3 };

struct mix_arguments {
    uint64_t *to;
    const uint64_t *from[MIX_SOURCES];
    uint64_t value;
};

static inline uint64_t mix(const struct mix_arguments *a)
{
    uint64_t sum = a->value;
    for (int i = 0; i < MIX_SOURCES; i++) {
        sum = (sum ^ *a->from[i]) * 0x9e3779b97f4a7c15U;
    }
    return sum ^ (sum >> 29);
}

/* mix() in the form that streams call. */
static inline int run_mix(void *context, const void *arguments)
{
    (void)context;
    const struct mix_arguments *a = (const struct mix_arguments *)arguments;
    *a->to = mix(a);
    return 0;
}

#endif
