/* check.h: variants, random numbers and comparisons of check_adam. One thread. */
#ifndef TESTS_ADAM_CHECK_H
#define TESTS_ADAM_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu_adam/adam.h"

enum {
    CHECK_VARIANTS = 4,
    CHECK_ROOM = 1024,    /* elements of an array, including those around the tested ones */
    CHECK_SIZE_MAX = 260, /* sizes up to this one are tested, and a few more */
};

struct check_variant {
    const char *name;
    unsigned mask; /* instructions that the variant may use (enum core_cpu_flag) */
};

extern const struct check_variant check_variants[CHECK_VARIANTS];
/* Returns whether this machine can run the variant. */
bool check_present(const struct check_variant *variant);

/* Step between checked sizes; CHECK_ADAM_STEP sets it, for emulated machines. */
extern uint64_t check_size_step;
/* If set, numbers cannot overflow: the sign of the resulting NaN differs between machines. */
extern bool check_small_only;

uint32_t check_random_word(void);
/* Returns mostly ordinary numbers over 40 binades; one in 16 is special: 0, very small, very large
 * or, with `with_bad`, perhaps an infinity or NaN. */
float check_random_float(bool with_bad);

/* Check that bits are equal; all NaN count as equal. check_numbers() compares CHECK_ROOM numbers or
 * codes. */
void check_floats(const char *what, const float *a, const float *b, uint64_t count);
void check_numbers(const char *what, enum core_update_type type, const void *a, const void *b);

/* Checks the tile sums of the variants. */
void check_norms(void);

/* Prints nanoseconds per element on one thread. */
int check_bench(void);

#endif
