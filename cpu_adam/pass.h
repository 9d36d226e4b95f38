/* pass.h: updates a range, which it cuts at the ends of runs and at multiples of CORE_UPDATE_GROUP.
 * Private to cpu_adam. A cut block of 8-bit moments is updated in fp32 copies. A team's members
 * call with their own ranges; there is no state. */
#ifndef CPU_ADAM_PASS_H
#define CPU_ADAM_PASS_H

#include <stddef.h>

#include "cpu_adam/adam.h"
#include "cpu_adam/ops.h"

struct adam_pass {
    const struct adam_ops *ops;     /* borrowed */
    struct core_update_args arrays; /* its scalars are not read */
    const struct adam_run *runs;    /* borrowed, ascending; the last ends at or after the range */
    size_t runs_count;
    const struct core_update_scalars *scalars; /* borrowed, by group */
    double *lanes; /* borrowed: sums of squares of the tile's gradients; NULL: not summed */
};

/* Updates elements of global index begin .. end - 1, which the arrays hold. With 8-bit moments
 * `begin` starts a block, and `end` ends a block or the array. Returns enum
 * core_nonfinite_flags. */
unsigned adam_pass_range(const struct adam_pass *pass, uint64_t begin, uint64_t end);

/* Returns the arrays with element 0 at global index `from`. */
struct core_update_args adam_pass_from(const struct core_update_args *arrays, uint64_t from);

enum { ADAM_STAGE = 1024 };

/* Decodes 8-bit moments of begin .. end - 1 to fp32 in `m` and `v`, which have room for whole
 * blocks; at most ADAM_STAGE elements. One may be NULL. adam_q8_write encodes them, and rounds
 * stochastically (`chance`) or to nearest. */
void adam_q8_read(const struct adam_ops *ops, const struct core_update_args *arrays, uint64_t begin,
                  uint64_t end, float *m, float *v);
void adam_q8_write(const struct adam_ops *ops, const struct core_update_args *arrays,
                   uint64_t begin, uint64_t end, bool chance, float *m, float *v);

#endif
