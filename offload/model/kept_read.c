/* kept_read.c: reads parts of a kept base with a team, and removes a damaged file. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/team.h"
#include "offload/model/kept_internal.h"

/* A range of a block that a team reads in pieces. */
struct team_read {
    const struct model_kept *kept;
    const struct model_kept_block *block;
    uint64_t begin, end;
    uint8_t *to;
    _Atomic uint64_t next; /* relaxed: the team's return orders all members' writes */
    _Atomic int rc;        /* the first error; 0: none */
    uint64_t failed_at;    /* byte of the file where `rc` arose */
};

static int read_part(const struct team_read *range, uint64_t at, uint8_t *buffer)
{
    const uint64_t begin = at > range->begin ? at : range->begin;
    const uint64_t end = at + KEPT_PIECE_BYTES < range->end ? at + KEPT_PIECE_BYTES : range->end;
    uint8_t *to = range->to + (begin - range->begin);
    const uint64_t padded = model_kept_rounded(range->block->bytes) - at;
    const uint64_t whole = padded < KEPT_PIECE_BYTES ? padded : KEPT_PIECE_BYTES;
    const bool straight = begin == at && end - at == whole && (uintptr_t)to % KEPT_PAGE_BYTES == 0;
    int rc = model_kept_read_piece(range->kept->fd, range->block, range->kept->sums, at,
                                   straight ? to : buffer);
    if (rc == 0 && !straight) {
        memcpy(to, buffer + (begin - at), end - begin);
    }
    return rc;
}

static void read_parts(void *argument, unsigned index, unsigned count)
{
    struct team_read *range = argument;
    uint8_t *buffer = aligned_alloc(KEPT_PAGE_BYTES, KEPT_PIECE_BYTES);
    int rc = buffer != NULL ? 0 : -ENOMEM;
    uint64_t failed_at = 0;
    (void)index;
    (void)count;
    while (rc == 0 && atomic_load_explicit(&range->rc, memory_order_relaxed) == 0) {
        const uint64_t at = atomic_fetch_add_explicit(&range->next, KEPT_PIECE_BYTES,
                                                      memory_order_relaxed);
        if (at >= range->end) {
            break;
        }
        rc = read_part(range, at, buffer);
        failed_at = range->block->offset + at;
    }
    int none = 0;
    if (rc != 0 && atomic_compare_exchange_strong(&range->rc, &none, rc)) {
        range->failed_at = failed_at;
    }
    free(buffer);
}

void model_kept_drop(struct model_kept *kept)
{
    if (kept != NULL && !kept->writes &&
        !atomic_exchange_explicit(&kept->dropped, true, memory_order_relaxed)) {
        if (model_kept_is_named(kept, kept->fd, model_kept_name(kept))) {
            (void)unlinkat(kept->folder, model_kept_name(kept), 0);
        }
        core_log(CORE_LOG_WARN, "removed %s: the next run makes the base from the model's files",
                 kept->path);
    }
}

static int read_range(struct model_kept *kept, struct team_read *range, struct core_team *team)
{
    atomic_init(&range->next, range->begin / KEPT_PIECE_BYTES * KEPT_PIECE_BYTES);
    atomic_init(&range->rc, 0);
    if (team != NULL && range->end - range->begin > KEPT_PIECE_BYTES) {
        core_team_run(team, read_parts, range);
    } else {
        read_parts(range, 0, 1);
    }
    const int rc = atomic_load_explicit(&range->rc, memory_order_relaxed);
    if (rc == 0 || rc == -ENOMEM) {
        return rc == 0 ? 0 : core_err_set(rc, "no memory to read %s", kept->path);
    }
    core_err_set(rc, "%s: the MiB from byte %" PRIu64 " on %s%s", kept->path, range->failed_at,
                 rc == -EBADMSG ? "does not match its checksum" : "cannot be read: ",
                 rc == -EBADMSG ? "" : strerror(-rc));
    core_log(CORE_LOG_WARN, "%s; this run makes the rest of the base from the model's files",
             core_err_message());
    model_kept_drop(kept);
    return rc;
}

int model_kept_read(struct model_kept *kept, unsigned block, uint64_t begin, uint64_t bytes,
                    void *to, struct core_team *team)
{
    const struct model_kept_block *found = model_kept_find(kept, block);
    assert(found != NULL);
    const uint64_t left = found->bytes > begin ? found->bytes - begin : 0;
    const uint64_t count = left < bytes ? left : bytes;
    struct team_read range = {
        .kept = kept, .block = found, .begin = begin, .end = begin + count, .to = to};
    int rc = count > 0 ? read_range(kept, &range, team) : 0;
    if (rc == 0) {
        memset((char *)to + count, 0, bytes - count);
    }
    return rc;
}

int model_kept_read_tensor(struct model_kept *kept, const char *name, void *to)
{
    const struct model *model = kept->options.model;
    for (unsigned b = 0; b < model->block_count; b++) {
        const struct model_stored *stored = kept->options.stored[b];
        for (unsigned i = 0; stored != NULL && i < stored->count; i++) {
            const struct model_stored_part *part = &stored->parts[i];
            const uint64_t end = i + 1 < stored->count ? part[1].offset_bytes : stored->bytes;
            if (strcmp(part->name, name) == 0 && model_kept_has(kept, b)) {
                return model_kept_read(kept, b, part->offset_bytes, end - part->offset_bytes, to,
                                       NULL);
            }
        }
    }
    return -ENOENT;
}
