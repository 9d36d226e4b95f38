/* body_array.h: squares, casts, axpy, scale and the count of non-finite numbers. */
#ifndef CPU_ADAM_BODY_ARRAY_H
#define CPU_ADAM_BODY_ARRAY_H

#include <stddef.h>

#include "core/base/half.h"
#include "cpu_adam/body_convert.h"
#include "cpu_adam/ops.h"

__attribute__((unused)) static void squares(const void *x, enum core_vec_type type, uint64_t count,
                                            double lanes[ADAM_NORM_LANES])
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

__attribute__((unused)) static void cast(const struct core_vec_cast *in)
{
    const struct core_vec_cast c = *in;
    for (uint64_t i = 0; i < c.count; i += V_LANES) {
        store_any(c.to, c.to_type, i, load_any(c.from, c.from_type, i));
    }
}

__attribute__((unused)) static void axpy(const struct core_vec_axpy *in)
{
    const struct core_vec_axpy a = *in;
    const vf factor = v_set(a.a);
    for (uint64_t i = 0; i < a.count; i += V_LANES) {
        v_store(a.y + i, v_fma(load_any(a.x, a.x_type, i), factor, v_load(a.y + i)));
    }
}

__attribute__((unused)) static void scale(const struct core_vec_scale *in)
{
    const struct core_vec_scale s = *in;
    const vf factor = v_set(s.a);
    for (uint64_t i = 0; i < s.count; i += V_LANES) {
        store_any(s.x, s.type, i, v_mul(load_any(s.x, s.type, i), factor));
    }
}

/* Counts in lanes; a group count fits 32 bits long before it could wrap. */
__attribute__((unused)) static uint64_t count_bad(const void *x, enum core_vec_type type,
                                                  uint64_t count)
{
    uint64_t total = 0;
    for (uint64_t begin = 0; begin < count; begin += CORE_VEC_TILE) {
        const uint64_t end = count - begin < CORE_VEC_TILE ? count : begin + CORE_VEC_TILE;
        vu bad = u_set(0);
        for (uint64_t i = begin; i < end; i += V_LANES) {
            vu size = u_and(v_bits(load_any(x, type, i)), u_set(0x7fffffffu));
            vu over = u_sub(u_set(0x7f7fffffu), size); /* wraps for what is not finite */
            bad = u_add(bad, u_shr(over, 31));
        }
        float lanes[V_LANES];
        v_store(lanes, v_float(bad));
        for (int k = 0; k < V_LANES; k++) {
            total += core_f32_bits(lanes[k]);
        }
    }
    return total;
}

#endif
