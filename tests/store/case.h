/* case.h: a small run of three blocks whose bytes follow from the step, written as a checkpoint and
 * compared with one. */
#ifndef TESTS_STORE_CASE_H
#define TESTS_STORE_CASE_H

#include "offload/store/checkpoint.h"

enum { CASE_BLOCKS = 3 };

/* bf16 with a split master and moments of fp32 ("bf16"), fp16 ("fp16"), or of 8 bits ("8bit"). */
void case_format(const char *name, struct plan_format *format, char dtype[8]);

/* Blocks of 70000, 131072 and 128 elements (the last one frozen), or of a few hundred. */
void case_shrink(bool small);
void case_set_format(const char *name);

/* Told when the code under test is entered and left; NULL: nobody. */
extern void (*case_guard)(bool inside);

/* How long one block's I/O of a checkpoint may take; 0: as ever. */
extern int64_t case_limit_ns;

/* Writes the checkpoint of a step. */
int case_write(struct store_shelf *shelf, uint64_t step, uint32_t keep,
               const struct aio_backend *recipe);
/* Puts all the bytes of a step. */
int case_put(struct store_checkpoint_write *write, uint64_t step);
/* Opens it and compares every byte. 0, or what refused it; a byte that differs fails the case. */
int case_compare(const char *directory, uint64_t step);
/* The newest one that verifies, having compared it; 0: none. */
uint64_t case_newest(const char *directory);
/* The empty folder of a new shelf, open. */
struct store_shelf *case_shelf(void);

#endif
