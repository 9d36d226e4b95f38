/* body_squares.h: sums of squares in double, for the norm. */
#ifndef CPU_ADAM_BODY_SQUARES_H
#define CPU_ADAM_BODY_SQUARES_H

#include "cpu_adam/body_convert.h"
#include "cpu_adam/ops.h"

__attribute__((unused)) static void squares(const void *x, enum core_update_type type,
                                            uint64_t count, double lanes[ADAM_NORM_LANES])
{
    enum { SUMS = ADAM_NORM_LANES / V_DOUBLES, EACH = V_LANES / V_DOUBLES };
    vd sum[SUMS];
    for (int k = 0; k < SUMS; k++) {
        sum[k] = d_load(lanes + k * V_DOUBLES);
    }
    for (uint64_t i = 0; i < count; i += ADAM_NORM_LANES) {
        for (int k = 0; k < SUMS / EACH; k++) {
            d_add_squares(sum + k * EACH, load_any(x, type, i + (uint64_t)(k * V_LANES)));
        }
    }
    for (int k = 0; k < SUMS; k++) {
        d_store(lanes + k * V_DOUBLES, sum[k]);
    }
}

#endif
