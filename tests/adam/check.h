/* check.h: what the parts of check_adam share: the variants, the random numbers, the formats, and
 * comparison by bits. One thread. */
#ifndef TESTS_ADAM_CHECK_H
#define TESTS_ADAM_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu_adam/adam.h"

enum {
    CHECK_VARIANTS = 4,
    CHECK_ROOM = 1024,    /* elements of an array under test, with what lies around */
    CHECK_SIZE_MAX = 260, /* each size up to this */
};

struct check_variant {
    const char *name;
    unsigned mask; /* enum core_cpu_flag: what it may use */
};

/* A line more verifies a variant and benches it. */
extern const struct check_variant check_variants[CHECK_VARIANTS];
/* Whether this machine runs it. */
bool check_present(const struct check_variant *variant);

/* Between the sizes that are checked; CHECK_ADAM_STEP where the machine is emulated. */
extern uint64_t check_size_step;
/* Set: no numbers that could overflow, so that no NaN arises, whose sign machines choose. */
extern bool check_small_only;

uint32_t check_random_word(void);
/* Mostly ordinary numbers over 40 binades; sometimes the ends of the format. */
float check_random_float(bool with_bad);

/* Equal bits, NaN by class; CHECK_ROOM numbers, or as many codes. */
void check_floats(const char *what, const float *a, const float *b, uint64_t count);
void check_numbers(const char *what, enum core_update_type type, const void *a, const void *b);

/* In check_norm.c: the tile sums over all variants, types, sizes and alignments. */
void check_norms(void);

/* Nanoseconds an element of every rule, format and variant, on one thread. */
int check_bench(void);

#endif
