/* state.c: the bytes of each stream, and the state as plain fp32 numbers. */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "cpu_adam/description.h"
#include "cpu_adam/fp_mode.h"

uint64_t adam_stream_bytes(const struct adam *adam, enum adam_stream stream, uint64_t count)
{
    const struct adam_options *o = &adam->options;
    const bool is_split = o->master == CORE_VEC_MASTER_SPLIT;
    const bool has_m = adam_has_m(o->rule);
    const bool has_v = adam_has_v(o->rule);
    const uint64_t blocks = count / CORE_VEC_Q8_BLOCK + (count % CORE_VEC_Q8_BLOCK != 0);
    const uint64_t scales = o->moments == CORE_VEC_Q8 ? blocks * sizeof(float) : 0;
    switch (stream) {
    case ADAM_W16: return o->master != CORE_VEC_MASTER_F32 ? count * 2 : 0;
    case ADAM_LO16: return is_split ? count * 2 : 0;
    case ADAM_W32: return is_split ? 0 : count * 4;
    case ADAM_G: return count * adam_type_bytes(o->gradients);
    case ADAM_M: return has_m ? count * adam_type_bytes(o->moments) : 0;
    case ADAM_V: return has_v ? count * adam_type_bytes(o->moments) : 0;
    case ADAM_M_SCALE: return has_m ? scales : 0;
    case ADAM_V_SCALE: return has_v ? scales : 0;
    case ADAM_STREAMS:
    default: return 0;
    }
}

static int check_value(const struct adam *adam, enum adam_value value)
{
    if ((value == ADAM_VALUE_M && !adam_has_m(adam->options.rule)) ||
        (value == ADAM_VALUE_V && !adam_has_v(adam->options.rule))) {
        return core_err_set(-ENOTSUP, "%s keeps no moment %s", adam_rule_name(adam->options.rule),
                            value == ADAM_VALUE_M ? "m" : "v");
    }
    return 0;
}

static float canonical(float x)
{
    const uint32_t bits = core_f32_bits(x);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return is_nan ? core_f32_from_bits((bits & 0x80000000u) | 0x7fc00000u) : x;
}

static float master_get(const struct core_vec_update *u, uint64_t i)
{
    if (u->master != CORE_VEC_MASTER_SPLIT) {
        return u->w32[i];
    }
    const uint32_t low = (uint32_t)(int32_t)(int16_t)u->lo16[i];
    return core_f32_from_bits(((uint32_t)u->w16[i] << 16) + low);
}

static void master_set(const struct core_vec_update *u, uint64_t i, float x)
{
    if (u->master == CORE_VEC_MASTER_SPLIT) {
        x = canonical(x);
        u->w16[i] = core_f32_to_bf16_away(x);
        u->lo16[i] = (uint16_t)core_f32_bits(x);
        return;
    }
    u->w32[i] = x;
    if (u->master == CORE_VEC_MASTER_BF16) {
        u->w16[i] = core_f32_to_bf16(x);
    } else if (u->master == CORE_VEC_MASTER_FP16) {
        u->w16[i] = core_f32_to_fp16(x);
    }
}

/* Stage by stage; `out` or `in` is set, for m or for v. */
static void move_q8(const struct adam *adam, const struct core_vec_update *u, bool is_m, float *out,
                    const float *in)
{
    for (uint64_t i = 0; i < u->count; i += ADAM_STAGE) {
        const uint64_t count = u->count - i < ADAM_STAGE ? u->count - i : ADAM_STAGE;
        const uint64_t begin = u->first + i;
        float x[ADAM_STAGE];
        float *const m = is_m ? x : NULL;
        float *const v = is_m ? NULL : x;
        if (out != NULL) {
            adam_q8_read(&adam->ops, u, begin, begin + count, m, v);
            memcpy(out + i, x, count * sizeof *x);
        } else {
            memcpy(x, in + i, count * sizeof *x);
            adam_q8_write(&adam->ops, u, begin, begin + count, false, m, v);
        }
    }
}

/* The array of a moment as it lies in memory. */
static void *moment_of(const struct core_vec_update *u, enum adam_value value)
{
    return value == ADAM_VALUE_M ? u->m : u->v;
}

/* Arithmetic of the two below. Not inlined, so that it stands within the mode. */
__attribute__((noinline)) static void read_values(const struct adam *adam,
                                                  const struct core_vec_update *u,
                                                  enum adam_value value, float *out)
{
    const void *moment = moment_of(u, value);
    if (value == ADAM_VALUE_MASTER) {
        for (uint64_t i = 0; i < u->count; i++) {
            out[i] = master_get(u, i);
        }
    } else if (u->moments == CORE_VEC_Q8) {
        move_q8(adam, u, value == ADAM_VALUE_M, out, NULL);
    } else if (u->moments == CORE_VEC_BF16) {
        for (uint64_t i = 0; i < u->count; i++) {
            out[i] = core_bf16_to_f32(((const uint16_t *)moment)[i]);
        }
    } else {
        memcpy(out, moment, u->count * sizeof *out);
    }
}

__attribute__((noinline)) static void write_values(const struct adam *adam,
                                                   const struct core_vec_update *u,
                                                   enum adam_value value, const float *in)
{
    void *moment = moment_of(u, value);
    if (value == ADAM_VALUE_MASTER) {
        for (uint64_t i = 0; i < u->count; i++) {
            master_set(u, i, in[i]);
        }
    } else if (u->moments == CORE_VEC_Q8) {
        move_q8(adam, u, value == ADAM_VALUE_M, NULL, in);
    } else if (u->moments == CORE_VEC_BF16) {
        for (uint64_t i = 0; i < u->count; i++) {
            ((uint16_t *)moment)[i] = core_f32_to_bf16(in[i]);
        }
    } else {
        memcpy(moment, in, u->count * sizeof *in);
    }
}

/* The elements from `begin` to `end` of what `arrays` holds. */
static struct core_vec_update window(const struct adam *adam, const struct adam_arrays *arrays,
                                     uint64_t begin, uint64_t end)
{
    const struct core_vec_update all = adam_bind(adam, arrays);
    struct core_vec_update u = adam_pass_from(&all, begin);
    u.count = end - begin;
    return u;
}

int adam_state_read(struct adam *adam, const struct adam_arrays *arrays, enum adam_value value,
                    uint64_t begin, uint64_t end, float *out)
{
    int rc = adam_check_arrays(adam, arrays, begin, end, false);
    rc = rc != 0 ? rc : check_value(adam, value);
    if (rc != 0 || begin == end) {
        return rc;
    }
    const struct core_vec_update u = window(adam, arrays, begin, end);
    const uint64_t mode = adam_fp_begin();
    read_values(adam, &u, value, out);
    adam_fp_end(mode);
    return 0;
}

int adam_state_write(struct adam *adam, const struct adam_arrays *arrays, enum adam_value value,
                     uint64_t begin, uint64_t end, const float *in)
{
    int rc = adam_check_arrays(adam, arrays, begin, end, false);
    rc = rc != 0 ? rc : check_value(adam, value);
    if (rc != 0 || begin == end) {
        return rc;
    }
    const struct core_vec_update u = window(adam, arrays, begin, end);
    const uint64_t mode = adam_fp_begin();
    write_values(adam, &u, value, in);
    adam_fp_end(mode);
    return 0;
}
