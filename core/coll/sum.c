/* sum.c: tiles of sums that stay in the first cache. The bf16 loops are written so that compilers
 * vectorise them; they agree with half.h bit for bit. */
#include "core/coll/sum.h"

#include <assert.h>
#include <string.h>

#include "core/base/half.h"

enum { TILE = 1024 };

static void widen(enum coll_type type, const void *from, uint64_t first, size_t count, float *to)
{
    if (type == COLL_F32) {
        memcpy(to, (const float *)from + first, count * sizeof *to);
        return;
    }
    const uint16_t *half = (const uint16_t *)from + first;
    if (type == COLL_BF16) {
        for (size_t i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)half[i] << 16;
            memcpy(&to[i], &bits, sizeof bits);
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        to[i] = core_fp16_to_f32(half[i]);
    }
}

static uint16_t round_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
    uint32_t nan = (bits >> 16 & 0x8000U) | CORE_BF16_NAN;
    return (uint16_t)((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
}

static void narrow(enum coll_type type, const float *from, size_t count, void *to, uint64_t first)
{
    if (type == COLL_F32) {
        memcpy((float *)to + first, from, count * sizeof *from);
        return;
    }
    uint16_t *half = (uint16_t *)to + first;
    if (type == COLL_BF16) {
        for (size_t i = 0; i < count; i++) {
            half[i] = round_bf16(from[i]);
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        half[i] = core_f32_to_fp16(from[i]);
    }
}

static void sum_double(const void *const *from, unsigned ranks, uint64_t first, uint64_t count,
                       double *to)
{
    for (uint64_t i = 0; i < count; i++) {
        double sum = ((const double *)from[0])[first + i];
        for (unsigned rank = 1; rank < ranks; rank++) {
            sum += ((const double *)from[rank])[first + i];
        }
        to[i] = sum;
    }
}

void coll_sum(enum coll_type type, const void *const *from, unsigned ranks, uint64_t first,
              uint64_t count, void *to)
{
    assert(type < COLL_BYTE && ranks > 0);
    if (type == COLL_F64) {
        sum_double(from, ranks, first, count, to);
        return;
    }
    float sums[TILE];
    float next[TILE];
    for (uint64_t done = 0; done < count;) {
        size_t tile = count - done < TILE ? (size_t)(count - done) : TILE;
        widen(type, from[0], first + done, tile, sums);
        for (unsigned rank = 1; rank < ranks; rank++) {
            widen(type, from[rank], first + done, tile, next);
            for (size_t i = 0; i < tile; i++) {
                sums[i] += next[i];
            }
        }
        narrow(type, sums, tile, to, done);
        done += tile;
    }
}
