/* pass.h: updates any range. The range is cut at the borders of parameter groups and divided into
 * whole groups of CORE_UPDATE_GROUP elements; a block of 8-bit moments that such a border cuts is
 * updated in fp32 copies. Each member of a team calls with its own range; there is no state.
 * Private to cpu_adam. */
#ifndef CPU_ADAM_PASS_H
#define CPU_ADAM_PASS_H

#include <stddef.h>

#include "cpu_adam/adam.h"
#include "cpu_adam/ops.h"

struct adam_pass {
    const struct adam_ops *ops;     /* borrowed */
    struct core_update_args arrays; /* its scalars are not read */
    const struct adam_run *runs;    /* borrowed, ascending; the last one ends at or after the
                                     * range */
    size_t runs_count;
    const struct core_update_scalars *scalars; /* borrowed, by group */
    double *lanes; /* borrowed: the sums of squares of the gradients' tile; NULL: not summed */
};

/* Updates the elements of global index begin .. end - 1, which are in the arrays. With 8-bit
 * moments `begin` must be the first element of a block, and `end` the end of a block or of the
 * whole array. Returns enum core_nonfinite_flags. */
unsigned adam_pass_range(const struct adam_pass *pass, uint64_t begin, uint64_t end);

/* Returns the arrays with element 0 at global index `from`. */
struct core_update_args adam_pass_from(const struct core_update_args *arrays, uint64_t from);

enum { ADAM_STAGE = 1024 };

/* Decodes the 8-bit moments of begin .. end - 1 to fp32 in `m` and `v`, which have room for whole
 * blocks, at most ADAM_STAGE elements; one of them may be NULL. adam_q8_write encodes
 * them again; `chance` false rounds to nearest. */
void adam_q8_read(const struct adam_ops *ops, const struct core_update_args *arrays, uint64_t begin,
                  uint64_t end, float *m, float *v);
void adam_q8_write(const struct adam_ops *ops, const struct core_update_args *arrays,
                   uint64_t begin, uint64_t end, bool chance, float *m, float *v);

#endif
