/* ops.h: the inner loops of the update and the norm, as a table of functions: plain C first, then
 * overwritten by the best variant of the processor. Every function takes whole groups: counts, and
 * `first` where there is one, are multiples of CORE_UPDATE_GROUP; norm.c and pass.c pad other
 * lengths. Any thread; no state. Private to cpu_adam. */
#ifndef CPU_ADAM_OPS_H
#define CPU_ADAM_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/update_args.h"

enum { ADAM_NORM_LANES = 32 }; /* partial sums of a tile: element i adds to lane i % 32 */

/* Returns the sum of the lanes of a tile. Changes `lanes`. */
static inline double adam_lanes_total(double lanes[ADAM_NORM_LANES])
{
    for (int half = ADAM_NORM_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lanes[i] += lanes[i + half];
        }
    }
    return lanes[0];
}

/* Whole blocks of 8-bit moments and their fp32 values in plain arrays. `first` is the global index
 * of element 0, a multiple of CORE_UPDATE_Q8_BLOCK; so is `count`. m is signed, v is not negative;
 * either may be NULL. */
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
    /* Returns enum core_nonfinite_flags. Also adds the squares of the unscaled gradients to
     * `lanes`, as `squares` does, unless `lanes` is NULL. */
    unsigned (*update[CORE_UPDATE_RULES])(const struct core_update_args *update, double *lanes);
    void (*q8_decode)(const struct adam_q8 *q8);
    void (*q8_encode)(const struct adam_q8 *q8);
    /* Adds squares to the 32 lanes of one tile. */
    void (*squares)(const void *x, enum core_update_type type, uint64_t count,
                    double lanes[ADAM_NORM_LANES]);
};

/* Fills `ops` with the best variant that the processor has and `mask` (enum core_cpu_flag) allows;
 * mask 0 gives plain C. */
void adam_ops_init(struct adam_ops *ops, unsigned mask);

/* There is one function per variant; call one only if the processor supports it. */
void adam_ops_fill_scalar(struct adam_ops *ops);
void adam_ops_fill_avx2(struct adam_ops *ops);
void adam_ops_fill_avx512(struct adam_ops *ops);
void adam_ops_fill_neon(struct adam_ops *ops);

#endif
