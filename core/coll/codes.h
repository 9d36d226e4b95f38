/* codes.h: numbers as codes of 4 bits. COLL_CODES numbers form a group, which is one element of
 * COLL_INT4. A group consists of an fp32 scale, the largest magnitude of its numbers, and one byte
 * for each pair of numbers i and i + COLL_CODES / 2, with the first one in the low half. Each half
 * is the code, -7 to 7, plus 8. Pure; any thread. */
#ifndef CORE_COLL_CODES_H
#define CORE_COLL_CODES_H

#include "core/coll/coll.h"

enum { COLL_CODES = 256 };

/* Returns the number of groups that `count` numbers take. Zeros fill the last group. */
uint64_t coll_codes_groups(uint64_t count);

/* Writes the groups of `count` numbers of fp32, bf16 or fp16. A number becomes the nearest code,
 * with ties to even. A group whose largest magnitude is below 1e-36 becomes zero. A group with a
 * number that is not finite becomes NaN. */
void coll_codes_encode(enum coll_type type, const void *from, uint64_t count, void *groups);

/* Writes the COLL_CODES numbers of a group. */
void coll_codes_decode(const void *group, float *to);

#endif
