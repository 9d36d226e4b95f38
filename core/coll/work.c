/* work.c: parts of arrays, their sums, and messages. */
#include "core/coll/work.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/coll/sum.h"

const char *coll_op_name(enum coll_op op)
{
    static const char *const names[COLL_OPS] = {"gather", "reduce-scatter", "all-reduce",
                                                "broadcast", "barrier"};
    return (unsigned)op < COLL_OPS ? names[op] : "unknown";
}

const char *coll_type_name(enum coll_type type)
{
    static const char *const names[COLL_TYPES] = {"fp32", "bf16", "fp16", "fp64", "bytes", "int4"};
    return (unsigned)type < COLL_TYPES ? names[type] : "unknown";
}

size_t coll_type_bytes(enum coll_type type)
{
    static const size_t bytes[COLL_TYPES] = {4, 2, 2, 8, 1, sizeof(float) + COLL_CODES / 2};
    return (unsigned)type < COLL_TYPES ? bytes[type] : 0;
}

uint64_t coll_border(uint64_t count, unsigned world, unsigned r)
{
    uint64_t more = count % world;
    return count / world * r + (r < more ? r : more);
}

unsigned coll_sharers(const struct coll *coll, const struct coll_work *work)
{
    return work->op == COLL_GATHER && work->within > 0 ? work->within : coll->world;
}

bool coll_takes_part(const struct coll *coll, const struct coll_work *work, unsigned r)
{
    const unsigned ranks = coll_sharers(coll, work);
    return r / ranks == coll->rank / ranks;
}

void coll_part(const struct coll *coll, const struct coll_work *work, unsigned r, uint64_t *begin,
               uint64_t *end)
{
    const unsigned ranks = coll_sharers(coll, work);
    const unsigned i = r % ranks;
    *begin = work->borders != NULL ? work->borders[i] : coll_border(work->count, ranks, i);
    *end = work->borders != NULL ? work->borders[i + 1] : coll_border(work->count, ranks, i + 1);
}

uint64_t coll_part_bytes(const struct coll *coll, const struct coll_work *work, unsigned r,
                         uint64_t *at)
{
    uint64_t begin;
    uint64_t end;
    coll_part(coll, work, r, &begin, &end);
    *at = begin * coll_type_bytes(work->type);
    return (end - begin) * coll_type_bytes(work->type);
}

void coll_work_sum(const struct coll_work *work, const struct coll_terms *terms, void *to)
{
    unsigned char *sums = (unsigned char *)to + terms->before * coll_type_bytes(work->type);
    if (work->within > 0) {
        coll_sum_groups(work->type, terms->from, terms->ranks, work->within, terms->first,
                        terms->count, sums);
        return;
    }
    if (work->type != COLL_INT4) {
        coll_sum(work->type, terms->from, terms->ranks, terms->first, terms->count, sums);
        return;
    }
    const uint64_t done = terms->before * COLL_CODES;
    const uint64_t left = work->sum_count - done;
    const uint64_t most = terms->count * COLL_CODES;
    coll_sum_codes(work->sum_type, terms->from, terms->ranks, terms->first,
                   left < most ? left : most,
                   (unsigned char *)to + done * coll_type_bytes(work->sum_type));
}

/* ---- Messages that back ends share ---- */

/* Writes a command as "all-reduce of 64 fp32". Returns `text`. */
static const char *work_print(const struct coll_work *work, char *text, size_t bytes)
{
    if (work->op == COLL_BARRIER) {
        snprintf(text, bytes, "barrier");
    } else {
        const int length = snprintf(text, bytes, "%s of %" PRIu64 " %s", coll_op_name(work->op),
                                    work->count, coll_type_name(work->type));
        assert(length > 0 && (size_t)length < bytes);
        if (work->type == COLL_INT4) {
            snprintf(text + length, bytes - (size_t)length, " to %s",
                     coll_type_name(work->sum_type));
        }
        if (work->op == COLL_BROADCAST) {
            snprintf(text + length, bytes - (size_t)length, " from rank %u", work->root);
        }
        if (work->within > 0) {
            snprintf(text + length, bytes - (size_t)length, " within %u ranks", work->within);
        }
    }
    return text;
}

int coll_fail_differs(uint64_t number, const struct coll_work *first, unsigned rank,
                      const struct coll_work *other)
{
    char texts[2][96];
    (void)work_print(first, texts[0], sizeof texts[0]);
    (void)work_print(other, texts[1], sizeof texts[1]);
    return core_err_set(
        -EPROTO, "collective %" PRIu64 " differs: rank 0 calls %s, rank %u calls %s%s", number,
        texts[0], rank, texts[1], strcmp(texts[0], texts[1]) == 0 ? " with other borders" : "");
}

int coll_fail_left(uint64_t number, const struct coll_work *work, unsigned rank)
{
    char text[96];
    return core_err_set(-EPIPE, "rank %u left before collective %" PRIu64 " (%s)", rank, number,
                        work_print(work, text, sizeof text));
}

int coll_fail_missing(uint64_t number, const struct coll_work *work,
                      const struct coll_missing *missing, int64_t waited_ns)
{
    char ranks[128];
    char text[96];
    char others[32] = "";
    if (missing->count > COLL_MISSING_MAX) {
        snprintf(others, sizeof others, " and %u others", missing->count - COLL_MISSING_MAX);
    }
    snprintf(ranks, sizeof ranks, "rank%s %s%s", missing->count == 1 ? "" : "s", missing->list,
             others);
    return core_err_set(-ETIMEDOUT, "%s did not reach collective %" PRIu64 " (%s) within %.3f s",
                        ranks, number, work_print(work, text, sizeof text),
                        (double)waited_ns / 1e9);
}

void coll_missing_add(struct coll_missing *missing, unsigned rank)
{
    const size_t length = strlen(missing->list);
    if (missing->count++ < COLL_MISSING_MAX) {
        snprintf(missing->list + length, sizeof missing->list - length, "%s%u",
                 length > 0 ? ", " : "", rank);
    }
}

uint64_t coll_work_bytes(const struct coll_work *work, uint64_t count)
{
    return count * coll_type_bytes(work->type);
}

void coll_copy(void *to, const void *from, uint64_t bytes)
{
    if (bytes > 0 && to != from) {
        memmove(to, from, bytes);
    }
}

unsigned coll_other(const struct coll *coll, unsigned i)
{
    return (coll->rank + 1 + i) % coll->world;
}
