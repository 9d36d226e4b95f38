/* codes.c: codes of 4 bits, in loops that compilers vectorise. */
#include "core/coll/codes.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/base/half.h"

enum { HALF = COLL_CODES / 2, CODE_MAX = 7, CODE_ZERO = 8, GROUP_BYTES = sizeof(float) + HALF };

uint64_t coll_codes_groups(uint64_t count)
{
    return (count + COLL_CODES - 1) / COLL_CODES;
}

/* Returns the largest magnitude; infinity or NaN if there is one. */
static float largest(const float *values)
{
    uint32_t most = 0;
    for (int i = 0; i < COLL_CODES; i++) {
        const uint32_t bits = core_f32_bits(values[i]) & 0x7fffffffU;
        most = bits > most ? bits : most;
    }
    return core_f32_from_bits(most);
}

static void encode_group(const float *values, unsigned char *group)
{
    static const float magic = 12582912.0F; /* 1.5 * 2^23: adding it rounds to a whole number */
    static const float least = 1e-36F;
    const float most = largest(values);
    const bool counts = most >= least && isfinite(most);
    const float factor = counts ? (float)CODE_MAX / most : 0;
    const float scale = most < least ? 0 : isfinite(most) ? most : NAN;
    unsigned char codes[COLL_CODES];
    memcpy(group, &scale, sizeof scale);
    for (int i = 0; i < COLL_CODES; i++) {
        const float rounded = (values[i] * factor + magic) - magic;
        codes[i] = (unsigned char)((counts ? (int)rounded : 0) + CODE_ZERO);
    }
    for (int i = 0; i < HALF; i++) {
        group[sizeof scale + (size_t)i] = (unsigned char)(codes[i] | codes[i + HALF] << 4);
    }
}

void coll_codes_encode(enum coll_type type, const void *from, uint64_t count, void *groups)
{
    const size_t width = coll_type_bytes(type);
    unsigned char *to = groups;
    float values[COLL_CODES];
    assert(type == COLL_F32 || type == COLL_BF16 || type == COLL_FP16);
    for (uint64_t at = 0; at < count; at += COLL_CODES, to += GROUP_BYTES) {
        const size_t some = count - at < COLL_CODES ? (size_t)(count - at) : COLL_CODES;
        const char *first = (const char *)from + at * width;
        memset(values + some, 0, (COLL_CODES - some) * sizeof *values);
        if (type == COLL_F32) {
            memcpy(values, first, some * sizeof *values);
        } else {
            (type == COLL_BF16 ? core_bf16_widen : core_fp16_widen)(first, some, values);
        }
        encode_group(values, to);
    }
}

void coll_codes_decode(const void *group, float *to)
{
    const unsigned char *codes = (const unsigned char *)group + sizeof(float);
    float scale;
    memcpy(&scale, group, sizeof scale);
    const float unit = scale / (float)CODE_MAX;
    for (int i = 0; i < HALF; i++) {
        to[i] = (float)((codes[i] & 15) - CODE_ZERO) * unit;
        to[i + HALF] = (float)((codes[i] >> 4) - CODE_ZERO) * unit;
    }
}
