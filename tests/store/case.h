/* case.h: a small run of three blocks whose bytes follow from the step. Writes the run as a
 * checkpoint and compares a checkpoint with it. */
#ifndef TESTS_STORE_CASE_H
#define TESTS_STORE_CASE_H

#include "offload/store/checkpoint.h"

enum { CASE_BLOCKS = 3 };

/* Sets the format with this name: "bf16" is bf16 with a split master and moments of fp32, "fp16" is
 * fp16, "8bit" has moments of 8 bits. "mixed" is like "8bit", but block 0 has weights of fp32 and
 * block 1 of fp16. */
void case_format(const char *name, struct plan_format *format, char dtype[8]);

/* Sets the sizes of the blocks: 70000, 131072 and 128 elements, the last one frozen; with `small`,
 * a few hundred elements. */
void case_shrink(bool small);
/* Returns a list of blocks of one array each. All but the third are trained. */
struct blocks *case_blocks(const char *const *names, const uint64_t *elements, uint32_t count);
void case_set_format(const char *name);

/* Called when the code under test is entered and left; may be NULL. */
extern void (*case_guard)(bool inside);

/* Time limit for the I/O of one block of a checkpoint; 0: the default. */
extern int64_t case_limit_ns;

/* Writes the checkpoint of a step. */
int case_write(struct store_shelf *shelf, uint64_t step, uint32_t keep,
               const struct aio_backend *recipe);
/* Writes all the bytes of a step. */
int case_put(struct store_checkpoint_write *write, uint64_t step);
/* Opens a checkpoint and compares every byte. Returns 0 or the error of the refusal; a byte that
 * differs fails the case. */
int case_compare(const char *directory, uint64_t step);
/* Compares the newest checkpoint that verifies, and returns its step; 0: there is none. */
uint64_t case_newest(const char *directory);
/* Opens a new shelf in an empty folder. */
struct store_shelf *case_shelf(void);
/* Like case_shelf(), but in memory if possible, for cases that do not depend on a drive. */
struct store_shelf *case_shelf_in_memory(void);

#endif
