/* norm.c: shares an array's tiles among a team and sums their squares. */
#include "cpu_adam/norm.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "core/base/err.h"
#include "cpu_adam/format.h"
#include "cpu_adam/fp_mode.h"

void adam_norm_init(struct adam_norm *norm, struct core_team *team, unsigned mask)
{
    adam_ops_init(&norm->ops, mask);
    norm->team = team;
}

static int check_type(enum core_update_type type)
{
    return type == CORE_UPDATE_F32 || type == CORE_UPDATE_BF16 || type == CORE_UPDATE_FP16
               ? 0
               : core_err_set(-EINVAL, "norm of type %d; expected fp32, bf16 or fp16", (int)type);
}

static int check_piece(const struct adam_norm_piece *piece, enum core_update_type type)
{
    const size_t bytes = adam_type_bytes(type);
    if (piece->count == 0) {
        return 0;
    }
    if (piece->x == NULL || (uintptr_t)piece->x % bytes != 0) {
        return core_err_set(-EINVAL, "the array of a norm, at %p, is not aligned to %zu bytes",
                            piece->x, bytes);
    }
    if (piece->count > UINT64_MAX / 16 ||
        (uintptr_t)piece->x > UINTPTR_MAX - piece->count * bytes) {
        return core_err_set(-EINVAL, "norm of %" PRIu64 " elements exceeds the address space",
                            piece->count);
    }
    return 0;
}

static int check_pieces(const struct adam_norm_pieces *of)
{
    int rc = check_type(of->type);
    if (rc != 0) {
        return rc;
    }
    if (of->first % CORE_UPDATE_TILE != 0) {
        return core_err_set(-EINVAL,
                            "the norm starts at element %" PRIu64 "; expected a multiple of %d",
                            of->first, CORE_UPDATE_TILE);
    }
    uint64_t end = 0;
    for (size_t i = 0; i < of->list_count; i++) {
        const struct adam_norm_piece *piece = &of->list[i];
        rc = check_piece(piece, of->type);
        if (rc != 0) {
            return rc;
        }
        if (piece->first < end) {
            return core_err_set(-EINVAL,
                                "a piece of a norm begins at element %" PRIu64
                                "; expected at least %" PRIu64,
                                piece->first, end);
        }
        end = piece->first + piece->count;
    }
    return of->count == 0 || of->sums != NULL
               ? 0
               : core_err_set(-EINVAL, "the norm of %" PRIu64 " elements has no array of sums",
                              of->count);
}

/* `begin` and `end` are indices in the array; an incomplete last group is padded with zeros. */
static void add_squares(const struct adam_ops *ops, enum core_update_type type,
                        const struct adam_norm_piece *piece, uint64_t begin, uint64_t end,
                        double lanes[ADAM_NORM_LANES])
{
    const size_t bytes = adam_type_bytes(type);
    const unsigned char *x = (const unsigned char *)piece->x + (begin - piece->first) * bytes;
    const uint64_t whole = (end - begin) / CORE_UPDATE_GROUP * CORE_UPDATE_GROUP;
    const uint64_t rest = end - begin - whole;
    if (whole > 0) {
        ops->squares(x, type, whole, lanes);
    }
    if (rest > 0) {
        float padded[CORE_UPDATE_GROUP] = {0};
        memcpy(padded, x + whole * bytes, rest * bytes);
        ops->squares(padded, type, CORE_UPDATE_GROUP, lanes);
    }
}

/* Returns the first piece that ends after `at`, or list_count. */
static size_t find_piece(const struct adam_norm_pieces *of, uint64_t at)
{
    size_t low = 0;
    size_t high = of->list_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const bool before = of->list[middle].first + of->list[middle].count <= at;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return low;
}

static double tile_sum(const struct adam_ops *ops, const struct adam_norm_pieces *of,
                       uint64_t begin, uint64_t end)
{
    double lanes[ADAM_NORM_LANES] = {0};
    for (size_t i = find_piece(of, begin); i < of->list_count && of->list[i].first < end; i++) {
        const struct adam_norm_piece *piece = &of->list[i];
        const uint64_t last = piece->first + piece->count;
        add_squares(ops, of->type, piece, piece->first > begin ? piece->first : begin,
                    last < end ? last : end, lanes);
    }
    return adam_lanes_total(lanes);
}

struct norm_call {
    const struct adam_norm *norm;
    const struct adam_norm_pieces *of;
};

static void norm_share(void *argument, unsigned index, unsigned count)
{
    const struct norm_call *call = argument;
    const struct adam_norm_pieces *of = call->of;
    uint64_t begin;
    uint64_t end;
    core_team_share(of->count, CORE_UPDATE_TILE, index, count, &begin, &end);
    if (begin >= end) {
        return;
    }
    const uint64_t mode = adam_fp_begin();
    for (uint64_t i = begin; i < end; i += CORE_UPDATE_TILE) {
        const uint64_t stop = end - i < CORE_UPDATE_TILE ? end : i + CORE_UPDATE_TILE;
        of->sums[i / CORE_UPDATE_TILE] = tile_sum(&call->norm->ops, of, of->first + i,
                                                  of->first + stop);
    }
    adam_fp_end(mode);
}

int adam_norm_sums_apart(const struct adam_norm *norm, const struct adam_norm_pieces *of)
{
    int rc = check_pieces(of);
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

int adam_norm_sums(const struct adam_norm *norm, const struct core_squares_args *of)
{
    const struct adam_norm_piece whole = {.x = of->x, .first = of->first, .count = of->count};
    const struct adam_norm_pieces pieces = {.list = &whole,
                                            .list_count = of->count > 0,
                                            .type = of->type,
                                            .first = of->first,
                                            .count = of->count,
                                            .sums = of->sums};
    return adam_norm_sums_apart(norm, &pieces);
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
    for (uint64_t i = count; i > 0; i--) {
        if (!isfinite(sums[i - 1])) {
            return i - 1;
        }
    }
    return count;
}
