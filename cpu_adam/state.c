/* state.c: writes and reads master weights and moments as fp32. */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "cpu_adam/description.h"
#include "cpu_adam/format.h"
#include "cpu_adam/fp_mode.h"
#include "cpu_adam/pass.h"

static int check_value(const struct adam *adam, enum adam_value value)
{
    if ((value == ADAM_VALUE_M && !adam_has_m(adam->options.rule)) ||
        (value == ADAM_VALUE_V && !adam_has_v(adam->options.rule))) {
        return core_err_set(-ENOTSUP, "%s has no moment %s", adam_rule_name(adam->options.rule),
                            value == ADAM_VALUE_M ? "m" : "v");
    }
    return 0;
}

/* Returns x, but for a NaN the quiet NaN of its sign. */
static float canonical(float x)
{
    const uint32_t bits = core_f32_bits(x);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return is_nan ? core_f32_from_bits((bits & 0x80000000u) | 0x7fc00000u) : x;
}

static void master_set(const struct core_update_args *u, uint64_t i, float x)
{
    if (u->master == CORE_UPDATE_MASTER_SPLIT) {
        x = canonical(x);
        u->w16[i] = core_f32_to_bf16_away(x);
        u->lo16[i] = (uint16_t)core_f32_bits(x);
        return;
    }
    u->w32[i] = x;
    if (u->master == CORE_UPDATE_MASTER_BF16) {
        u->w16[i] = core_f32_to_bf16(x);
    } else if (u->master == CORE_UPDATE_MASTER_FP16) {
        u->w16[i] = core_f32_to_fp16(x);
    }
}

/* Writes stage by stage, rounded to nearest. */
static void write_q8(const struct adam *adam, const struct core_update_args *u, bool is_m,
                     const float *in)
{
    for (uint64_t i = 0; i < u->count; i += ADAM_STAGE) {
        const uint64_t count = u->count - i < ADAM_STAGE ? u->count - i : ADAM_STAGE;
        const uint64_t begin = u->first + i;
        float x[ADAM_STAGE];
        memcpy(x, in + i, count * sizeof *x);
        adam_q8_write(&adam->ops, u, begin, begin + count, false, is_m ? x : NULL, is_m ? NULL : x);
    }
}

/* Not inlined, so that no arithmetic leaves adam_fp_begin() .. adam_fp_end(). */
__attribute__((noinline)) static void write_values(const struct adam *adam,
                                                   const struct core_update_args *u,
                                                   enum adam_value value, const float *in)
{
    void *moment = value == ADAM_VALUE_M ? u->m : u->v;
    if (value == ADAM_VALUE_MASTER) {
        for (uint64_t i = 0; i < u->count; i++) {
            master_set(u, i, in[i]);
        }
    } else if (u->moments == CORE_UPDATE_Q8) {
        write_q8(adam, u, value == ADAM_VALUE_M, in);
    } else if (u->moments == CORE_UPDATE_BF16) {
        for (uint64_t i = 0; i < u->count; i++) {
            ((uint16_t *)moment)[i] = core_f32_to_bf16(in[i]);
        }
    } else {
        memcpy(moment, in, u->count * sizeof *in);
    }
}

static float split_value(uint32_t high, uint32_t low)
{
    return core_f32_from_bits((high << 16) + low - (low < 0x8000u ? 0 : 0x10000u));
}

static float master_get(const struct core_update_args *u, uint64_t i)
{
    return u->master != CORE_UPDATE_MASTER_SPLIT ? u->w32[i] : split_value(u->w16[i], u->lo16[i]);
}

float adam_master_value(const struct adam_arrays *arrays, uint64_t i)
{
    return arrays->lo16 == NULL ? arrays->w32[i] : split_value(arrays->w16[i], arrays->lo16[i]);
}

uint16_t adam_master_low(float x)
{
    const bool same = core_f32_to_bf16(x) == core_f32_to_bf16_away(x);
    return same ? (uint16_t)core_f32_bits(x) : 0x7fff;
}

static void read_q8(const struct adam *adam, const struct core_update_args *u, bool is_m,
                    float *out)
{
    for (uint64_t i = 0; i < u->count; i += ADAM_STAGE) {
        const uint64_t count = u->count - i < ADAM_STAGE ? u->count - i : ADAM_STAGE;
        const uint64_t begin = u->first + i;
        float x[ADAM_STAGE];
        adam_q8_read(&adam->ops, u, begin, begin + count, is_m ? x : NULL, is_m ? NULL : x);
        memcpy(out + i, x, count * sizeof *x);
    }
}

__attribute__((noinline)) static void read_values(const struct adam *adam,
                                                  const struct core_update_args *u,
                                                  enum adam_value value, float *out)
{
    const void *moment = value == ADAM_VALUE_M ? u->m : u->v;
    if (value == ADAM_VALUE_MASTER) {
        for (uint64_t i = 0; i < u->count; i++) {
            out[i] = master_get(u, i);
        }
    } else if (u->moments == CORE_UPDATE_Q8) {
        read_q8(adam, u, value == ADAM_VALUE_M, out);
    } else if (u->moments == CORE_UPDATE_BF16) {
        core_bf16_widen(moment, u->count, out);
    } else {
        memcpy(out, moment, u->count * sizeof *out);
    }
}

static int bind(struct adam *adam, const struct adam_arrays *arrays, enum adam_value value,
                const uint64_t range[2], struct core_update_args *out)
{
    int rc = adam_check_arrays(adam, arrays, range[0], range[1], false);
    if (rc != 0) {
        return rc;
    }
    rc = check_value(adam, value);
    if (rc != 0) {
        return rc;
    }
    const struct core_update_args all = adam_bind(adam, arrays);
    *out = adam_pass_from(&all, range[0]);
    out->count = range[1] - range[0];
    return 0;
}

int adam_state_write(struct adam *adam, const struct adam_arrays *arrays, enum adam_value value,
                     uint64_t begin, uint64_t end, const float *in)
{
    struct core_update_args u;
    int rc = bind(adam, arrays, value, (const uint64_t[]){begin, end}, &u);
    if (rc != 0 || begin == end) {
        return rc;
    }
    const uint64_t mode = adam_fp_begin();
    write_values(adam, &u, value, in);
    adam_fp_end(mode);
    return 0;
}

int adam_state_read(struct adam *adam, const struct adam_arrays *arrays, enum adam_value value,
                    uint64_t begin, uint64_t end, float *out)
{
    struct core_update_args u;
    int rc = bind(adam, arrays, value, (const uint64_t[]){begin, end}, &u);
    if (rc != 0 || begin == end) {
        return rc;
    }
    const uint64_t mode = adam_fp_begin();
    read_values(adam, &u, value, out);
    adam_fp_end(mode);
    return 0;
}
