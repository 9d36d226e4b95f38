/* codes.h: numbers as codes of 4 bits. A group of COLL_CODES numbers is one element of COLL_INT4:
 * an fp32 scale (the largest magnitude) and a byte for each pair of numbers i (low half) and i +
 * COLL_CODES / 2. Each half is the code, -7 to 7, plus 8. Pure; any thread. */
#ifndef CORE_COLL_CODES_H
#define CORE_COLL_CODES_H

#include "core/coll/coll.h"

enum { COLL_CODES = 256 };

/* Returns the number of groups for `count` numbers; zeros fill the last one. */
uint64_t coll_codes_groups(uint64_t count);

/* Writes the groups of `count` numbers of fp32, bf16 or fp16, rounded to the nearest code, ties to
 * even. A group whose magnitudes are all below 1e-36 becomes zero; one with a number that is not
 * finite becomes NaN. */
void coll_codes_encode(enum coll_type type, const void *from, uint64_t count, void *groups);

void coll_codes_decode(const void *group, float *to);

#endif
