/* pass.c: updates a range in runs of equal scalars, whole groups, and stages of 8-bit moments. */
#include "cpu_adam/pass.h"

#include <assert.h>
#include <string.h>

#include "cpu_adam/format.h"

/* Returns the pointer plus `bytes`; NULL stays NULL. */
static void *further(const void *at, uint64_t bytes)
{
    return at == NULL ? NULL : (unsigned char *)(uintptr_t)at + bytes;
}

struct core_update_args adam_pass_from(const struct core_update_args *arrays, uint64_t from)
{
    struct core_update_args u = *arrays;
    const uint64_t by = from - u.first;
    const uint64_t blocks = from / CORE_UPDATE_Q8_BLOCK - u.first / CORE_UPDATE_Q8_BLOCK;
    u.first = from;
    u.count -= by;
    u.w16 = further(u.w16, by * sizeof *u.w16);
    u.lo16 = further(u.lo16, by * sizeof *u.lo16);
    u.w32 = further(u.w32, by * sizeof *u.w32);
    u.g = further(u.g, by * adam_type_bytes(u.gradients));
    u.m = further(u.m, by * adam_type_bytes(u.moments));
    u.v = further(u.v, by * adam_type_bytes(u.moments));
    u.m_scale = further(u.m_scale, blocks * sizeof *u.m_scale);
    u.v_scale = further(u.v_scale, blocks * sizeof *u.v_scale);
    return u;
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (to != NULL && from != NULL) {
        memcpy(to, from, bytes);
    }
}

/* Updates less than a group, in copies padded with zeros. */
static unsigned update_part(const struct adam_pass *pass, const struct core_update_args *u,
                            uint64_t count)
{
    struct {
        float w32[CORE_UPDATE_GROUP];
        float g[CORE_UPDATE_GROUP];
        float m[CORE_UPDATE_GROUP];
        float v[CORE_UPDATE_GROUP];
        uint16_t w16[CORE_UPDATE_GROUP];
        uint16_t lo16[CORE_UPDATE_GROUP];
    } part;
    memset(&part, 0, sizeof part);
    const size_t at = u->first % CORE_UPDATE_GROUP;
    const size_t wide = count * sizeof(float);
    const size_t half = count * sizeof(uint16_t);
    const size_t g_bytes = adam_type_bytes(u->gradients);
    const size_t moment_bytes = adam_type_bytes(u->moments);
    unsigned char *const g = (unsigned char *)part.g + at * g_bytes;
    unsigned char *const m = (unsigned char *)part.m + at * moment_bytes;
    unsigned char *const v = (unsigned char *)part.v + at * moment_bytes;
    copy(part.w16 + at, u->w16, half);
    copy(part.lo16 + at, u->lo16, half);
    copy(part.w32 + at, u->w32, wide);
    copy(g, u->g, count * g_bytes);
    copy(m, u->m, count * moment_bytes);
    copy(v, u->v, count * moment_bytes);

    struct core_update_args whole = *u;
    whole.first -= at;
    whole.count = CORE_UPDATE_GROUP;
    whole.w16 = part.w16;
    whole.lo16 = part.lo16;
    whole.w32 = part.w32;
    whole.g = part.g;
    whole.m = part.m;
    whole.v = part.v;
    const unsigned met = pass->ops->update[u->rule](&whole, pass->lanes);

    copy(u->w16, part.w16 + at, half);
    copy(u->lo16, part.lo16 + at, half);
    copy(u->w32, part.w32 + at, wide);
    copy(u->m, m, count * moment_bytes);
    copy(u->v, v, count * moment_bytes);
    return met;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Updates a run of equal scalars: the end of a group, whole groups, and the start of a group. */
static unsigned update_run(const struct adam_pass *pass, const struct core_update_args *arrays,
                           uint64_t begin, uint64_t end)
{
    unsigned met = 0;
    const uint64_t into = begin % CORE_UPDATE_GROUP;
    if (into != 0) {
        const struct core_update_args u = adam_pass_from(arrays, begin);
        const uint64_t count = least(CORE_UPDATE_GROUP - into, end - begin);
        met |= update_part(pass, &u, count);
        begin += count;
    }
    if (end - begin >= CORE_UPDATE_GROUP) {
        struct core_update_args u = adam_pass_from(arrays, begin);
        u.count = (end - begin) / CORE_UPDATE_GROUP * CORE_UPDATE_GROUP;
        met |= pass->ops->update[u.rule](&u, pass->lanes);
        begin += u.count;
    }
    if (begin < end) {
        const struct core_update_args u = adam_pass_from(arrays, begin);
        met |= update_part(pass, &u, end - begin);
    }
    return met;
}

static size_t run_of(const struct adam_pass *pass, uint64_t index)
{
    size_t low = 0;
    size_t high = pass->runs_count - 1;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (pass->runs[middle].end > index) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* `arrays` may be staged copies. */
static unsigned update_runs(const struct adam_pass *pass, const struct core_update_args *arrays,
                            uint64_t begin, uint64_t end)
{
    unsigned met = 0;
    struct core_update_args u = *arrays;
    for (size_t run = run_of(pass, begin); begin < end; run++) {
        assert(run < pass->runs_count);
        const uint64_t stop = least(end, pass->runs[run].end);
        if (begin < stop) {
            u.scalars = pass->scalars[pass->runs[run].group];
            met |= update_run(pass, &u, begin, stop);
            begin = stop;
        }
    }
    return met;
}

static uint64_t whole_blocks(uint64_t count)
{
    return (count + CORE_UPDATE_Q8_BLOCK - 1) / CORE_UPDATE_Q8_BLOCK * CORE_UPDATE_Q8_BLOCK;
}

/* Codes are used in place or, if the array ends within a block, in `codes` with zeros after
 * `count`. */
static struct adam_q8 q8_stage(const struct core_update_args *u, uint64_t count,
                               uint8_t codes[2][ADAM_STAGE], float *m, float *v)
{
    struct adam_q8 q8 = {
        .first = u->first,
        .count = whole_blocks(count),
        .m_code = u->m,
        .v_code = u->v,
        .m_scale = u->m_scale,
        .v_scale = u->v_scale,
        .m = m,
        .v = v,
        .seed = u->seed,
        .stream = u->stream,
    };
    if (q8.count != count) {
        memset(codes, 0, 2 * ADAM_STAGE);
        copy(codes[0], q8.m_code, count);
        copy(codes[1], q8.v_code, count);
        q8.m_code = codes[0];
        q8.v_code = codes[1];
    }
    return q8;
}

void adam_q8_read(const struct adam_ops *ops, const struct core_update_args *arrays, uint64_t begin,
                  uint64_t end, float *m, float *v)
{
    uint8_t codes[2][ADAM_STAGE];
    const struct core_update_args u = adam_pass_from(arrays, begin);
    const struct adam_q8 q8 = q8_stage(&u, end - begin, codes, m, v);
    ops->q8_decode(&q8);
}

void adam_q8_write(const struct adam_ops *ops, const struct core_update_args *arrays,
                   uint64_t begin, uint64_t end, bool chance, float *m, float *v)
{
    uint8_t codes[2][ADAM_STAGE];
    const uint64_t count = end - begin;
    const struct core_update_args u = adam_pass_from(arrays, begin);
    struct adam_q8 q8 = q8_stage(&u, count, codes, m, v);
    q8.nearest = !chance;
    for (uint64_t i = count; i < q8.count; i++) {
        if (m != NULL) {
            m[i] = 0.0f;
        }
        if (v != NULL) {
            v[i] = 0.0f;
        }
    }
    ops->q8_encode(&q8);
    if (q8.count != count) {
        copy(m != NULL ? u.m : NULL, codes[0], count);
        copy(v != NULL ? u.v : NULL, codes[1], count);
    }
}

/* Updates a block that runs share or that the array's end cuts. */
static unsigned update_staged(const struct adam_pass *pass, uint64_t begin, uint64_t end)
{
    _Alignas(64) float m[ADAM_STAGE];
    _Alignas(64) float v[ADAM_STAGE];
    float *const m_used = pass->arrays.m != NULL ? m : NULL;
    float *const v_used = pass->arrays.v != NULL ? v : NULL;
    adam_q8_read(pass->ops, &pass->arrays, begin, end, m_used, v_used);
    struct core_update_args u = adam_pass_from(&pass->arrays, begin);
    u.moments = CORE_UPDATE_F32;
    u.m = m_used;
    u.v = v_used;
    const unsigned met = update_runs(pass, &u, begin, end);
    adam_q8_write(pass->ops, &pass->arrays, begin, end, true, m_used, v_used);
    return met;
}

/* Returns the end of whole blocks with equal scalars; `begin` if the first block is cut. */
static uint64_t q8_run_end(const struct adam_pass *pass, uint64_t begin, uint64_t end)
{
    const uint64_t stop = least(end, pass->runs[run_of(pass, begin)].end);
    return stop / CORE_UPDATE_Q8_BLOCK * CORE_UPDATE_Q8_BLOCK;
}

static unsigned update_q8(const struct adam_pass *pass, uint64_t begin, uint64_t end)
{
    unsigned met = 0;
    while (begin < end) {
        const uint64_t stop = q8_run_end(pass, begin, end);
        if (stop > begin) {
            struct core_update_args u = pass->arrays;
            u.scalars = pass->scalars[pass->runs[run_of(pass, begin)].group];
            met |= update_run(pass, &u, begin, stop);
            begin = stop;
        } else {
            const uint64_t one = least(end, begin + CORE_UPDATE_Q8_BLOCK);
            met |= update_staged(pass, begin, one);
            begin = one;
        }
    }
    return met;
}

unsigned adam_pass_range(const struct adam_pass *pass, uint64_t begin, uint64_t end)
{
    if (pass->arrays.moments == CORE_UPDATE_Q8) {
        return update_q8(pass, begin, end);
    }
    return update_runs(pass, &pass->arrays, begin, end);
}
