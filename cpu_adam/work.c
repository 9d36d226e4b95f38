/* work.c: shares of an array to the members of a team; the last, incomplete group on a copy. */
#include "cpu_adam/work.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "core/base/cpus.h"
#include "core/base/err.h"
#include "cpu_adam/format.h"
#include "cpu_adam/fp_mode.h"

enum { GRAIN = 16384 }; /* elements; shares of casts, axpy and scale begin at its multiples */

void adam_work_init(struct adam_work *work, struct core_team *team, unsigned mask)
{
    adam_ops_init(&work->ops, mask);
    work->team = team;
}

struct job {
    const struct adam_work *work;
    const void *arguments;
    uint64_t count;
    uint64_t grain;
    void (*part)(const struct job *job, uint64_t begin, uint64_t end);
    _Atomic uint64_t *bad_count; /* of finite: relaxed, read after the team has returned */
    _Atomic uint64_t *first_bad;
};

static void job_part(void *argument, unsigned index, unsigned count)
{
    const struct job *job = argument;
    uint64_t begin;
    uint64_t end;
    core_team_share(job->count, job->grain, index, count, &begin, &end);
    if (begin < end) {
        const uint64_t mode = adam_fp_begin();
        job->part(job, begin, end);
        adam_fp_end(mode);
    }
}

static void job_run(struct job *job)
{
    if (job->work->team == NULL || job->count <= job->grain) {
        job_part(job, 0, 1);
    } else {
        core_team_run(job->work->team, job_part, job);
    }
}

static int check_type(const char *what, enum core_vec_type type)
{
    if (type != CORE_VEC_F32 && type != CORE_VEC_BF16 && type != CORE_VEC_FP16) {
        return core_err_set(-EINVAL, "%s takes fp32, bf16 or fp16 numbers, not type %d", what,
                            (int)type);
    }
    return 0;
}

static int check_array(const char *what, const void *x, enum core_vec_type type, uint64_t count)
{
    int rc = check_type(what, type);
    if (rc != 0 || count == 0) {
        return rc;
    }
    const size_t bytes = adam_type_bytes(type);
    if (x == NULL || (uintptr_t)x % bytes != 0) {
        return core_err_set(-EINVAL, "%s has an array at %p, which is not a multiple of %zu bytes",
                            what, x, bytes);
    }
    if (count > UINT64_MAX / 16 || (uintptr_t)x > UINTPTR_MAX - count * bytes) {
        return core_err_set(-EINVAL, "%s has an array of %" PRIu64 " elements, which is too long",
                            what, count);
    }
    return 0;
}

static const void *at(const void *x, enum core_vec_type type, uint64_t index)
{
    return (const unsigned char *)x + index * adam_type_bytes(type);
}

static void *at_writable(void *x, enum core_vec_type type, uint64_t index)
{
    return (unsigned char *)x + index * adam_type_bytes(type);
}

static double tile_sum(const struct adam_ops *ops, const struct core_vec_norm *norm, uint64_t begin,
                       uint64_t end)
{
    double lanes[ADAM_NORM_LANES] = {0};
    const uint64_t whole = (end - begin) / CORE_VEC_GROUP * CORE_VEC_GROUP;
    if (whole > 0) {
        ops->squares(at(norm->x, norm->type, begin), norm->type, whole, lanes);
    }
    if (begin + whole < end) {
        float rest[CORE_VEC_GROUP] = {0};
        memcpy(rest, at(norm->x, norm->type, begin + whole),
               (end - begin - whole) * adam_type_bytes(norm->type));
        ops->squares(rest, norm->type, CORE_VEC_GROUP, lanes);
    }
    for (int half = ADAM_NORM_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lanes[i] += lanes[i + half];
        }
    }
    return lanes[0];
}

static void norm_part(const struct job *job, uint64_t begin, uint64_t end)
{
    const struct core_vec_norm *norm = job->arguments;
    for (uint64_t i = begin; i < end; i += CORE_VEC_TILE) {
        const uint64_t stop = end - i < CORE_VEC_TILE ? end : i + CORE_VEC_TILE;
        norm->sums[i / CORE_VEC_TILE] = tile_sum(&job->work->ops, norm, i, stop);
    }
}

int adam_work_norm(const struct adam_work *work, const struct core_vec_norm *norm)
{
    int rc = check_array("a norm", norm->x, norm->type, norm->count);
    if (rc != 0) {
        return rc;
    }
    if (norm->first % CORE_VEC_TILE != 0) {
        return core_err_set(-EINVAL,
                            "a norm begins at element %" PRIu64 ", which is not a multiple of %d",
                            norm->first, CORE_VEC_TILE);
    }
    if (norm->sums == NULL && norm->count > 0) {
        return core_err_set(-EINVAL, "a norm of %" PRIu64 " elements has no table of sums",
                            norm->count);
    }
    struct job job = {.work = work,
                      .arguments = norm,
                      .count = norm->count,
                      .grain = CORE_VEC_TILE,
                      .part = norm_part};
    job_run(&job);
    return 0;
}

double adam_norm_total(const double *sums, uint64_t count)
{
    double total = 0.0;
    for (uint64_t i = 0; i < count; i++) {
        total += sums[i];
    }
    return total;
}

uint64_t adam_norm_bad_tile(const double *sums, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!isfinite(sums[i])) {
            return i;
        }
    }
    return count;
}

static void cast_part(const struct job *job, uint64_t begin, uint64_t end)
{
    struct core_vec_cast cast = *(const struct core_vec_cast *)job->arguments;
    cast.from = at(cast.from, cast.from_type, begin);
    cast.to = at_writable(cast.to, cast.to_type, begin);
    cast.count = (end - begin) / CORE_VEC_GROUP * CORE_VEC_GROUP;
    job->work->ops.cast(&cast);
    const uint64_t rest = end - begin - cast.count;
    if (rest > 0) {
        float from[CORE_VEC_GROUP] = {0};
        float to[CORE_VEC_GROUP];
        memcpy(from, at(cast.from, cast.from_type, cast.count),
               rest * adam_type_bytes(cast.from_type));
        struct core_vec_cast last = cast;
        last.from = from;
        last.to = to;
        last.count = CORE_VEC_GROUP;
        job->work->ops.cast(&last);
        memcpy(at_writable(cast.to, cast.to_type, cast.count), to,
               rest * adam_type_bytes(cast.to_type));
    }
}

static bool overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    return (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

int adam_work_cast(const struct adam_work *work, const struct core_vec_cast *cast)
{
    int rc = check_array("a cast", cast->from, cast->from_type, cast->count);
    rc = rc != 0 ? rc : check_array("a cast", cast->to, cast->to_type, cast->count);
    if (rc != 0) {
        return rc;
    }
    const size_t from_bytes = adam_type_bytes(cast->from_type);
    const size_t to_bytes = adam_type_bytes(cast->to_type);
    const bool in_place = cast->from == cast->to && from_bytes == to_bytes;
    if (cast->count > 0 && !in_place &&
        overlap(cast->from, cast->count * from_bytes, cast->to, cast->count * to_bytes)) {
        return core_err_set(-EINVAL, "a cast of %" PRIu64 " elements has overlapping arrays",
                            cast->count);
    }
    struct job job = {
        .work = work, .arguments = cast, .count = cast->count, .grain = GRAIN, .part = cast_part};
    job_run(&job);
    return 0;
}

static void axpy_part(const struct job *job, uint64_t begin, uint64_t end)
{
    struct core_vec_axpy axpy = *(const struct core_vec_axpy *)job->arguments;
    axpy.y += begin;
    axpy.x = at(axpy.x, axpy.x_type, begin);
    axpy.count = (end - begin) / CORE_VEC_GROUP * CORE_VEC_GROUP;
    job->work->ops.axpy(&axpy);
    const uint64_t rest = end - begin - axpy.count;
    if (rest > 0) {
        float x[CORE_VEC_GROUP] = {0};
        float y[CORE_VEC_GROUP] = {0};
        memcpy(x, at(axpy.x, axpy.x_type, axpy.count), rest * adam_type_bytes(axpy.x_type));
        memcpy(y, axpy.y + axpy.count, rest * sizeof *y);
        struct core_vec_axpy last = axpy;
        last.x = x;
        last.y = y;
        last.count = CORE_VEC_GROUP;
        job->work->ops.axpy(&last);
        memcpy(axpy.y + axpy.count, y, rest * sizeof *y);
    }
}

int adam_work_axpy(const struct adam_work *work, const struct core_vec_axpy *axpy)
{
    int rc = check_array("an axpy", axpy->x, axpy->x_type, axpy->count);
    rc = rc != 0 ? rc : check_array("an axpy", axpy->y, CORE_VEC_F32, axpy->count);
    if (rc != 0) {
        return rc;
    }
    if (axpy->count > 0 && overlap(axpy->x, axpy->count * adam_type_bytes(axpy->x_type), axpy->y,
                                   axpy->count * sizeof *axpy->y)) {
        return core_err_set(-EINVAL, "an axpy of %" PRIu64 " elements has overlapping arrays",
                            axpy->count);
    }
    struct job job = {
        .work = work, .arguments = axpy, .count = axpy->count, .grain = GRAIN, .part = axpy_part};
    job_run(&job);
    return 0;
}

static void scale_part(const struct job *job, uint64_t begin, uint64_t end)
{
    struct core_vec_scale scale = *(const struct core_vec_scale *)job->arguments;
    scale.x = at_writable(scale.x, scale.type, begin);
    scale.count = (end - begin) / CORE_VEC_GROUP * CORE_VEC_GROUP;
    job->work->ops.scale(&scale);
    const uint64_t rest = end - begin - scale.count;
    if (rest > 0) {
        float x[CORE_VEC_GROUP] = {0};
        void *from = at_writable(scale.x, scale.type, scale.count);
        memcpy(x, from, rest * adam_type_bytes(scale.type));
        struct core_vec_scale last = scale;
        last.x = x;
        last.count = CORE_VEC_GROUP;
        job->work->ops.scale(&last);
        memcpy(from, x, rest * adam_type_bytes(scale.type));
    }
}

int adam_work_scale(const struct adam_work *work, const struct core_vec_scale *scale)
{
    int rc = check_array("a scale", scale->x, scale->type, scale->count);
    if (rc != 0) {
        return rc;
    }
    struct job job = {.work = work,
                      .arguments = scale,
                      .count = scale->count,
                      .grain = GRAIN,
                      .part = scale_part};
    job_run(&job);
    return 0;
}

static uint64_t count_bad(const struct adam_ops *ops, const struct core_vec_finite *finite,
                          uint64_t begin, uint64_t end)
{
    const void *x = at(finite->x, finite->type, begin);
    const uint64_t whole = (end - begin) / CORE_VEC_GROUP * CORE_VEC_GROUP;
    uint64_t bad = ops->count_bad(x, finite->type, whole);
    if (begin + whole < end) {
        float rest[CORE_VEC_GROUP] = {0};
        memcpy(rest, at(x, finite->type, whole),
               (end - begin - whole) * adam_type_bytes(finite->type));
        bad += ops->count_bad(rest, finite->type, CORE_VEC_GROUP);
    }
    return bad;
}

/* Halves the range that holds the first bad element. */
static uint64_t find_bad(const struct adam_ops *ops, const struct core_vec_finite *finite,
                         uint64_t begin, uint64_t end)
{
    while (end - begin > 1) {
        const uint64_t middle = begin + (end - begin) / 2;
        if (count_bad(ops, finite, begin, middle) > 0) {
            end = middle;
        } else {
            begin = middle;
        }
    }
    return begin;
}

static void finite_part(const struct job *job, uint64_t begin, uint64_t end)
{
    const struct core_vec_finite *finite = job->arguments;
    const uint64_t bad = count_bad(&job->work->ops, finite, begin, end);
    if (bad == 0) {
        return;
    }
    atomic_fetch_add_explicit(job->bad_count, bad, memory_order_relaxed);
    const uint64_t found = find_bad(&job->work->ops, finite, begin, end);
    uint64_t first = atomic_load_explicit(job->first_bad, memory_order_relaxed);
    while (found < first &&
           !atomic_compare_exchange_weak_explicit(job->first_bad, &first, found,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

int adam_work_finite(const struct adam_work *work, const struct core_vec_finite *finite,
                     struct adam_finite *out)
{
    int rc = check_array("a search for non-finite numbers", finite->x, finite->type, finite->count);
    if (rc != 0) {
        return rc;
    }
    _Atomic uint64_t bad_count = 0;
    _Atomic uint64_t first_bad = finite->count;
    struct job job = {.work = work,
                      .arguments = finite,
                      .count = finite->count,
                      .grain = GRAIN,
                      .part = finite_part,
                      .bad_count = &bad_count,
                      .first_bad = &first_bad};
    job_run(&job);
    *out = (struct adam_finite){.bad_count = bad_count, .first_bad = first_bad};
    return 0;
}
