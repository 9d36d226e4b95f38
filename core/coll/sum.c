/* sum.c: fp32 sums, by tiles that stay in the L1 cache. */
#include "core/coll/sum.h"

#include <assert.h>
#include <string.h>

#include "core/base/half.h"

enum { TILE = 1024 };

static void widen(enum coll_type type, const void *from, uint64_t first, size_t count, float *to)
{
    if (type == COLL_F32) {
        memcpy(to, (const float *)from + first, count * sizeof *to);
    } else if (type == COLL_BF16) {
        core_bf16_widen((const uint16_t *)from + first, count, to);
    } else {
        core_fp16_widen((const uint16_t *)from + first, count, to);
    }
}

static void narrow(enum coll_type type, const float *from, size_t count, void *to, uint64_t first)
{
    if (type == COLL_F32) {
        memcpy((float *)to + first, from, count * sizeof *from);
    } else if (type == COLL_BF16) {
        core_bf16_narrow(from, count, (uint16_t *)to + first);
    } else {
        core_fp16_narrow(from, count, (uint16_t *)to + first);
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

static void sum_tile(enum coll_type type, const void *const *from, unsigned ranks, uint64_t first,
                     size_t count, float *sums)
{
    float next[TILE];
    widen(type, from[0], first, count, sums);
    for (unsigned rank = 1; rank < ranks; rank++) {
        widen(type, from[rank], first, count, next);
        for (size_t i = 0; i < count; i++) {
            sums[i] += next[i];
        }
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
    for (uint64_t done = 0; done < count;) {
        size_t tile = count - done < TILE ? (size_t)(count - done) : TILE;
        sum_tile(type, from, ranks, first + done, tile, sums);
        narrow(type, sums, tile, to, done);
        done += tile;
    }
}

void coll_sum_groups(enum coll_type type, const void *const *from, unsigned ranks, unsigned within,
                     uint64_t first, uint64_t count, void *to)
{
    float sums[TILE];
    float group[TILE];
    float rounded[TILE]; /* values of `type` */
    assert(type <= COLL_FP16 && within > 0 && ranks > 0 && ranks % within == 0);
    for (uint64_t done = 0; done < count;) {
        size_t tile = count - done < TILE ? (size_t)(count - done) : TILE;
        for (unsigned rank = 0; rank < ranks; rank += within) {
            sum_tile(type, from + rank, within, first + done, tile, group);
            narrow(type, group, tile, rounded, 0);
            widen(type, rounded, 0, tile, rank == 0 ? sums : group);
            for (size_t i = 0; rank > 0 && i < tile; i++) {
                sums[i] += group[i];
            }
        }
        narrow(type, sums, tile, to, done);
        done += tile;
    }
}

static const void *group_at(const void *groups, uint64_t index)
{
    return (const unsigned char *)groups + index * coll_type_bytes(COLL_INT4);
}

void coll_sum_codes(enum coll_type type, const void *const *from, unsigned ranks, uint64_t first,
                    uint64_t count, void *to)
{
    float sums[COLL_CODES];
    float next[COLL_CODES];
    assert(type <= COLL_FP16 && ranks > 0);
    for (uint64_t done = 0; done < count; done += COLL_CODES, first++) {
        const size_t some = count - done < COLL_CODES ? (size_t)(count - done) : COLL_CODES;
        coll_codes_decode(group_at(from[0], first), sums);
        for (unsigned rank = 1; rank < ranks; rank++) {
            coll_codes_decode(group_at(from[rank], first), next);
            for (size_t i = 0; i < COLL_CODES; i++) {
                sums[i] += next[i];
            }
        }
        narrow(type, sums, some, to, done);
    }
}
