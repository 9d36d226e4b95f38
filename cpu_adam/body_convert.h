/* body_convert.h: converts vectors from and to memory in fp32, bf16 and fp16. */
#ifndef CPU_ADAM_BODY_CONVERT_H
#define CPU_ADAM_BODY_CONVERT_H

#include "core/base/update_args.h"
#include "cpu_adam/vec.h"

V_INLINE vf load_any(const void *x, enum core_update_type type, uint64_t i)
{
    if (type == CORE_UPDATE_BF16) {
        return v_float(u_shl(u_load16((const uint16_t *)x + i), 16));
    }
    if (type == CORE_UPDATE_FP16) {
        return v_load_fp16((const uint16_t *)x + i);
    }
    return v_load((const float *)x + i);
}

/* Returns the bf16 of a, to nearest even, in the upper half of each lane. */
V_INLINE vu bf16_of(vf a)
{
    vu bits = v_bits(v_canonical(a));
    vu odd = u_and(u_shr(bits, 16), u_set(1));
    return u_add(bits, u_add(odd, u_set(0x7fff)));
}

enum { PAIR = 2 * V_LANES, GROUP_PAIRS = CORE_UPDATE_GROUP / PAIR };

/* PAIR elements: even ones in one vector, odd ones in the other. */
struct pair {
    vf even;
    vf odd;
};

struct pair_of_words {
    vu even;
    vu odd;
};

V_INLINE struct pair pair_of_halves(vu halves)
{
    return (struct pair){v_float(u_shl(halves, 16)), v_float(u_and(halves, u_set(0xffff0000u)))};
}

V_INLINE vu halves_of(vu even, vu odd)
{
    return u_pick(u_set(0xffffu), u_shr(even, 16), odd);
}

V_INLINE struct pair pair_load(const void *x, enum core_update_type type, uint64_t i)
{
    struct pair pair;
    if (type == CORE_UPDATE_BF16) {
        return pair_of_halves(u_load((const uint16_t *)x + i));
    }
    if (type == CORE_UPDATE_FP16) {
        v_load_pair_fp16((const uint16_t *)x + i, &pair.even, &pair.odd);
    } else {
        v_load_pair((const float *)x + i, &pair.even, &pair.odd);
    }
    return pair;
}

/* Rounds to bf16 stochastically: away from zero with a probability equal to the cut-off part. */
V_INLINE void pair_store_chance(uint16_t *to, struct pair a, vu chance)
{
    vu even = u_add(v_bits(v_canonical(a.even)), u_and(chance, u_set(0xffff)));
    vu odd = u_add(v_bits(v_canonical(a.odd)), u_shr(chance, 16));
    u_store(to, halves_of(even, odd));
}

#endif
