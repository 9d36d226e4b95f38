/* ops.h: the inner loops of update and norm, as a table of functions: those of the processor's best
 * variant. Private to cpu_adam. Functions take whole groups: counts and `first` are multiples of
 * CORE_UPDATE_GROUP; norm.c and pass.c pad. Any thread. */
#ifndef CPU_ADAM_OPS_H
#define CPU_ADAM_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/update_args.h"

enum { ADAM_NORM_LANES = 32 }; /* partial sums of a tile: element i is in lane i % 32 */

/* Returns the sum of a tile's lanes; overwrites `lanes`. */
static inline double adam_lanes_total(double lanes[ADAM_NORM_LANES])
{
    for (int half = ADAM_NORM_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lanes[i] += lanes[i + half];
        }
    }
    return lanes[0];
}

/* Whole blocks of 8-bit moments and their fp32 values. `first` (global index of element 0) and
 * `count` are multiples of CORE_UPDATE_Q8_BLOCK. m is signed, v is not negative; either may be
 * NULL. */
struct adam_q8 {
    uint64_t first;
    uint64_t count;
    uint8_t *m_code;
    uint8_t *v_code;
    float *m_scale;
    float *v_scale;
    float *m;
    float *v;
    uint64_t seed;
    uint64_t stream;
    bool nearest; /* rounds to nearest, not stochastically */
};

struct adam_ops {
    const char *name;
    /* Returns enum core_nonfinite_flags. Adds the squares of the unscaled gradients to `lanes`,
     * unless NULL. */
    unsigned (*update[CORE_UPDATE_RULES])(const struct core_update_args *update, double *lanes);
    void (*q8_decode)(const struct adam_q8 *q8);
    void (*q8_encode)(const struct adam_q8 *q8);
    void (*squares)(const void *x, enum core_update_type type, uint64_t count,
                    double lanes[ADAM_NORM_LANES]);
};

/* Fills `ops` with the processor's best variant that `mask` (enum core_cpu_flag) allows; mask 0:
 * plain C. */
void adam_ops_init(struct adam_ops *ops, unsigned mask);

/* Call one of these only if the processor supports the variant. */
void adam_ops_fill_scalar(struct adam_ops *ops);
void adam_ops_fill_avx2(struct adam_ops *ops);
void adam_ops_fill_avx512(struct adam_ops *ops);
void adam_ops_fill_neon(struct adam_ops *ops);

#endif
