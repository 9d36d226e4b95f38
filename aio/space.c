/* space.c: takes the first fitting range of an ordered array of free ranges; shares units by
 * largest remaining credit. */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "aio/space.h"
#include "core/base/err.h"

struct aio_space {
    struct aio_range *free; /* owned, in order of offset, [room] */
    uint32_t count, room;
    uint32_t taken; /* ranges in use: each may become a free range */
    uint64_t free_bytes;
};

void aio_space_destroy(struct aio_space *space)
{
    if (space != NULL) {
        free(space->free);
        free(space);
    }
}

int aio_space_create(uint64_t begin, uint64_t bytes, struct aio_space **out)
{
    enum { ROOM = 16 };
    struct aio_space *space = calloc(1, sizeof *space);
    struct aio_range *ranges = calloc(ROOM, sizeof *ranges);
    if (space == NULL || ranges == NULL) {
        free(space);
        free(ranges);
        return core_err_set(-ENOMEM, "out of memory for the free ranges of a store");
    }
    space->free = ranges;
    space->room = ROOM;
    space->free_bytes = bytes;
    if (bytes > 0) {
        space->free[space->count++] = (struct aio_range){begin, bytes};
    }
    *out = space;
    return 0;
}

static int make_room(struct aio_space *space)
{
    if (space->count + space->taken + 1 < space->room) {
        return 0;
    }
    struct aio_range *more = realloc(space->free, 2 * (size_t)space->room * sizeof *more);
    if (more == NULL) {
        return core_err_set(-ENOMEM, "out of memory for the free ranges of a store");
    }
    space->free = more;
    space->room *= 2;
    return 0;
}

int aio_space_take(struct aio_space *space, uint64_t bytes, struct aio_range *out)
{
    uint32_t best = 0;
    if (space->count == 0) {
        return -ENOSPC;
    }
    int rc = make_room(space);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t i = 0; i < space->count; i++) {
        if (space->free[i].bytes >= bytes) {
            best = i;
            break;
        }
        best = space->free[i].bytes > space->free[best].bytes ? i : best;
    }
    struct aio_range *range = &space->free[best];
    struct aio_range got = {range->offset, range->bytes < bytes ? range->bytes : bytes};
    range->offset += got.bytes;
    range->bytes -= got.bytes;
    if (range->bytes == 0) {
        space->count--;
        memmove(range, range + 1, (space->count - best) * sizeof *range);
    }
    space->taken++;
    space->free_bytes -= got.bytes;
    *out = got;
    return 0;
}

void aio_space_give(struct aio_space *space, struct aio_range range)
{
    uint32_t at = 0;
    while (at < space->count && space->free[at].offset < range.offset) {
        at++;
    }
    struct aio_range *next = &space->free[at];
    struct aio_range *before = at > 0 ? next - 1 : NULL;
    bool joins_before = before != NULL && before->offset + before->bytes == range.offset;
    bool joins_next = at < space->count && range.offset + range.bytes == next->offset;
    assert(before == NULL || before->offset + before->bytes <= range.offset);
    assert(at == space->count || range.offset + range.bytes <= next->offset);
    space->free_bytes += range.bytes;
    space->taken--;
    if (joins_before && joins_next) {
        before->bytes += range.bytes + next->bytes;
        space->count--;
        memmove(next, next + 1, (space->count - at) * sizeof *next);
    } else if (joins_before) {
        before->bytes += range.bytes;
    } else if (joins_next) {
        next->offset = range.offset;
        next->bytes += range.bytes;
    } else {
        assert(space->count < space->room);
        memmove(next + 1, next, (space->count - at) * sizeof *next);
        *next = range;
        space->count++;
    }
}

void aio_space_split(struct aio_space *space, struct aio_range part)
{
    space->taken++;
    aio_space_give(space, part);
}

uint64_t aio_space_free_bytes(const struct aio_space *space)
{
    return space->free_bytes;
}

static void earn(const double *weights, double *credit, const uint64_t *free_units, unsigned count,
                 uint64_t units)
{
    double sum = 0;
    for (unsigned i = 0; i < count; i++) {
        sum += free_units[i] > 0 ? weights[i] : 0;
    }
    for (unsigned i = 0; i < count; i++) {
        if (free_units[i] > 0) {
            credit[i] += sum > 0 ? (double)units * weights[i] / sum : (double)units / count;
        }
    }
}

static unsigned richest(const double *credit, const uint64_t *free_units, const uint64_t *taken,
                        unsigned count)
{
    unsigned best = count;
    for (unsigned i = 0; i < count; i++) {
        if (taken[i] < free_units[i] && (best == count || credit[i] > credit[best])) {
            best = i;
        }
    }
    return best;
}

void aio_stripe_share(const double *weights, double *credit, const uint64_t *free_units,
                      unsigned count, uint64_t units, uint64_t *out)
{
    uint64_t left = units;
    earn(weights, credit, free_units, count, units);
    for (unsigned i = 0; i < count; i++) {
        uint64_t whole = credit[i] >= 1 ? (uint64_t)credit[i] : 0;
        whole = whole < free_units[i] ? whole : free_units[i];
        out[i] = whole < left ? whole : left;
        credit[i] -= (double)out[i];
        left -= out[i];
    }
    while (left > 0) {
        unsigned best = richest(credit, free_units, out, count);
        assert(best < count);
        out[best]++;
        credit[best] -= 1;
        left--;
    }
}
