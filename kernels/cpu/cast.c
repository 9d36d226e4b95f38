/* cast.c: arrays of fp32, bf16 and fp16 from one type to another, by tiles over the queue's team. */
#include "kernels/cpu/cast.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "core/base/team.h"

enum { TILE = 1024 };

static size_t type_bytes(enum core_vec_type type)
{
    return type == CORE_VEC_F32 ? 4 : 2;
}

static void widen(enum core_vec_type type, const void *from, size_t count, float *to)
{
    if (type == CORE_VEC_F32) {
        memcpy(to, from, count * sizeof *to);
    } else if (type == CORE_VEC_BF16) {
        core_bf16_widen(from, count, to);
    } else {
        core_fp16_widen(from, count, to);
    }
}

static void narrow(enum core_vec_type type, const float *from, size_t count, void *to)
{
    if (type == CORE_VEC_F32) {
        memcpy(to, from, count * sizeof *from);
    } else if (type == CORE_VEC_BF16) {
        core_bf16_narrow(from, count, to);
    } else {
        core_fp16_narrow(from, count, to);
    }
}

static void cast_part(void *argument, unsigned index, unsigned count)
{
    const struct core_vec_cast *a = argument;
    const unsigned char *from = a->from;
    unsigned char *to = a->to;
    uint64_t begin, end;
    core_team_share(a->count, TILE, index, count, &begin, &end);
    while (begin < end) {
        float tile[TILE];
        size_t elements = end - begin < TILE ? (size_t)(end - begin) : TILE;
        widen(a->from_type, from + begin * type_bytes(a->from_type), elements, tile);
        narrow(a->to_type, tile, elements, to + begin * type_bytes(a->to_type));
        begin += elements;
    }
}

int kern_cpu_cast(const struct dev_launch *where, const struct core_vec_cast *a)
{
    if ((unsigned)a->from_type > CORE_VEC_FP16 || (unsigned)a->to_type > CORE_VEC_FP16) {
        return core_err_set(-EINVAL, "op cast reads and writes fp32, bf16 and fp16");
    }
    struct core_vec_cast copy = *a;
    core_team_run(where->team, cast_part, &copy);
    return 0;
}
