/* case.h: checkpoints of a small run of three blocks, whose bytes follow from the step. */
#ifndef TESTS_STORE_CASE_H
#define TESTS_STORE_CASE_H

#include "offload/store/checkpoint.h"

enum { CASE_BLOCKS = 3 };

/* Sets a format. "bf16": bf16 with a split master, moments of fp32; "fp16"; "8bit": moments of 8
 * bits; "mixed": like "8bit", but block 0 has weights of fp32 and block 1 of fp16. */
void case_format(const char *name, struct plan_format *format, char dtype[8]);

/* Sets the blocks' sizes: 70000, 131072 and 128 (frozen) elements; `small`: 384, 256 and 128. */
void case_shrink(bool small);
/* Returns blocks of one array each. Blocks from the third on are frozen. */
struct blocks *case_blocks(const char *const *names, const uint64_t *elements, uint32_t count);
void case_set_format(const char *name);

/* Called with true before, and with false after, the code under test; may be NULL. */
extern void (*case_guard)(bool inside);

/* Time limit for a block's I/O; 0: the default. */
extern int64_t case_limit_ns;

int case_write(struct store_shelf *shelf, uint64_t step, uint32_t keep,
               const struct aio_backend *recipe);
int case_put(struct store_checkpoint_write *write, uint64_t step);
/* Returns 0 or the error of opening or verifying; a byte that differs fails the case. */
int case_compare(const char *directory, uint64_t step);
/* Compares the newest checkpoint that verifies and returns its step; 0: none. */
uint64_t case_newest(const char *directory);
struct store_shelf *case_shelf(void);
/* Like case_shelf(), in memory if possible. */
struct store_shelf *case_shelf_in_memory(void);

#endif
