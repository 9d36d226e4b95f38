/* ref.h: the optimizer of docs/optimizers.md, element by element. It is the reference for the
 * variants; of the code of cpu_adam it uses only adam_scalars(). */
#ifndef TESTS_ADAM_REF_H
#define TESTS_ADAM_REF_H

#include "cpu_adam/adam.h"

/* Does adam_step() with one group. Returns enum core_nonfinite_flags flags. */
unsigned ref_step(const struct adam_options *options, const struct adam_arrays *arrays,
                  uint64_t begin, uint64_t end, double gradient_scale);

enum { REF_FORMATS = 4 * 3 * 3 }; /* master x gradients x moments */

/* Returns the n-th combination of formats, with one group at step 3. */
struct adam_options ref_options(enum core_update_rule rule, int n);

/* Decodes the values begin to end - 1. */
void ref_read(const struct adam_options *options, const struct adam_arrays *arrays,
              enum adam_value value, uint64_t begin, uint64_t end, float *out);

float ref_load(const void *x, enum core_update_type type, uint64_t i);
void ref_store(void *x, enum core_update_type type, uint64_t i, float value);

/* Returns the sum of squares of the first `count` elements of a tile. */
double ref_tile_sum(const void *x, enum core_update_type type, uint64_t count);

#endif
