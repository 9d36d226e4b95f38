/* norm.c: shares the tiles of an array among a team and sums the squares of each. */
#include "cpu_adam/norm.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/err.h"
#include "cpu_adam/format.h"
#include "cpu_adam/fp_mode.h"

void adam_norm_init(struct adam_norm *norm, struct core_team *team, unsigned mask)
{
    adam_ops_init(&norm->ops, mask);
    norm->team = team;
}

static int check_array(const struct core_squares_args *of)
{
    if (of->type != CORE_UPDATE_F32 && of->type != CORE_UPDATE_BF16 &&
        of->type != CORE_UPDATE_FP16) {
        return core_err_set(-EINVAL, "norm of type %d; expected fp32, bf16 or fp16", (int)of->type);
    }
    if (of->first % CORE_UPDATE_TILE != 0) {
        return core_err_set(-EINVAL, "norm starts at element %" PRIu64 ", not a multiple of %d",
                            of->first, CORE_UPDATE_TILE);
    }
    if (of->count == 0) {
        return 0;
    }
    const size_t bytes = adam_type_bytes(of->type);
    if (of->x == NULL || (uintptr_t)of->x % bytes != 0) {
        return core_err_set(-EINVAL, "norm of an array at %p, not aligned to %zu bytes", of->x,
                            bytes);
    }
    if (of->count > UINT64_MAX / 16 || (uintptr_t)of->x > UINTPTR_MAX - of->count * bytes) {
        return core_err_set(-EINVAL, "norm of %" PRIu64 " elements exceeds the address space",
                            of->count);
    }
    if (of->sums == NULL) {
        return core_err_set(-EINVAL, "norm of %" PRIu64 " elements has no array of sums",
                            of->count);
    }
    return 0;
}

/* Elements begin .. end - 1 of one tile; the last, incomplete group is padded with zeros. */
static double tile_sum(const struct adam_ops *ops, const struct core_squares_args *of,
                       uint64_t begin, uint64_t end)
{
    double lanes[ADAM_NORM_LANES] = {0};
    const size_t bytes = adam_type_bytes(of->type);
    const unsigned char *x = (const unsigned char *)of->x + begin * bytes;
    const uint64_t whole = (end - begin) / CORE_UPDATE_GROUP * CORE_UPDATE_GROUP;
    const uint64_t rest = end - begin - whole;
    if (whole > 0) {
        ops->squares(x, of->type, whole, lanes);
    }
    if (rest > 0) {
        float padded[CORE_UPDATE_GROUP] = {0};
        memcpy(padded, x + whole * bytes, rest * bytes);
        ops->squares(padded, of->type, CORE_UPDATE_GROUP, lanes);
    }
    for (int half = ADAM_NORM_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lanes[i] += lanes[i + half];
        }
    }
    return lanes[0];
}

struct norm_call {
    const struct adam_norm *norm;
    const struct core_squares_args *of;
};

static void norm_share(void *argument, unsigned index, unsigned count)
{
    const struct norm_call *call = argument;
    const struct core_squares_args *of = call->of;
    uint64_t begin;
    uint64_t end;
    core_team_share(of->count, CORE_UPDATE_TILE, index, count, &begin, &end);
    if (begin >= end) {
        return;
    }
    const uint64_t mode = adam_fp_begin();
    for (uint64_t i = begin; i < end; i += CORE_UPDATE_TILE) {
        const uint64_t stop = end - i < CORE_UPDATE_TILE ? end : i + CORE_UPDATE_TILE;
        of->sums[i / CORE_UPDATE_TILE] = tile_sum(&call->norm->ops, of, i, stop);
    }
    adam_fp_end(mode);
}

int adam_norm_sums(const struct adam_norm *norm, const struct core_squares_args *of)
{
    int rc = check_array(of);
    if (rc != 0) {
        return rc;
    }
    struct norm_call call = {norm, of};
    if (norm->team == NULL || of->count <= CORE_UPDATE_TILE) {
        norm_share(&call, 0, 1);
    } else {
        core_team_run(norm->team, norm_share, &call);
    }
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
