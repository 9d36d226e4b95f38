/* check.h: declarations that the files of check_adam share: the variants, random numbers and
 * comparison of bits. One thread. */
#ifndef TESTS_ADAM_CHECK_H
#define TESTS_ADAM_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu_adam/adam.h"

enum {
    CHECK_VARIANTS = 4,
    CHECK_ROOM = 1024,    /* elements of an array under test, including those around it */
    CHECK_SIZE_MAX = 260, /* sizes below 511 are tested up to this one */
};

struct check_variant {
    const char *name;
    unsigned mask; /* the instructions that the variant may use (enum core_cpu_flag) */
};

/* Every variant that is verified and benchmarked has a line here. */
extern const struct check_variant check_variants[CHECK_VARIANTS];
/* Returns whether this machine can run the variant. */
bool check_present(const struct check_variant *variant);

/* The step between checked sizes; set by CHECK_ADAM_STEP on emulated machines. */
extern uint64_t check_size_step;
/* If set, no number can overflow. Overflow gives NaN, whose sign differs between machines. */
extern bool check_small_only;

uint32_t check_random_word(void);
/* Returns mostly ordinary numbers over 40 binades; one in 16 is a limit of a format, or, if
 * `with_bad`, perhaps an infinity or NaN. */
float check_random_float(bool with_bad);

/* Check that all bits are equal, where all NaN count as equal. check_numbers() compares CHECK_ROOM
 * numbers, or as many codes of 8 bits. */
void check_floats(const char *what, const float *a, const float *b, uint64_t count);
void check_numbers(const char *what, enum core_update_type type, const void *a, const void *b);

/* Checks the tile sums of every variant and type, for sizes up to CHECK_SIZE_MAX at changing
 * alignments. */
void check_norms(void);

/* Prints nanoseconds per element for every rule, format and variant, on one thread. */
int check_bench(void);

#endif
