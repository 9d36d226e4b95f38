/* flow.c: cuts a range into pieces, several streams in turn, and moves each piece. */
#include "offload/store/flow.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "offload/plan/shard.h"
#include "offload/store/flow_parts.h"

uint64_t *store_flow_sums(struct store_flow *flow, enum store_stream stream)
{
    return flow->sums[stream];
}

int store_flow_direct_file(const struct store_flow *flow, enum store_stream stream)
{
    return flow->direct[stream] ? flow->fds[stream] : -1;
}

/* ---- one piece ---- */

/* Makes a piece of as many cuts as fit. */
static struct flow_piece piece_at(const struct store_flow *flow, enum store_stream stream,
                                  uint32_t block, uint64_t cut, uint64_t end)
{
    struct flow_piece piece = {.stream = stream, .block = block, .cut = cut};
    piece.offset = store_image_cut(flow->image, stream, block, cut).offset;
    while (cut < end) {
        const struct store_cut next = store_image_cut(flow->image, stream, block, cut++);
        if (piece.count > 0 && piece.padded_bytes + next.padded_bytes > flow->piece_bytes) {
            break;
        }
        piece.count++;
        piece.bytes += next.bytes;
        piece.padded_bytes += next.padded_bytes;
    }
    return piece;
}

/* Requests use the caller's memory directly if the file allows that and the bytes need no
 * padding. */
static char *place_of(const struct store_flow *flow, const struct flow_piece *piece, uint32_t turn)
{
    const bool aligned = !flow->direct[piece->stream] ||
                         (uintptr_t)piece->memory % AIO_ALIGN_BYTES == 0;
    return piece->memory != NULL && aligned && piece->bytes == piece->padded_bytes
               ? piece->memory
               : (char *)flow->buffers.base + turn * flow->piece_bytes;
}

static int mismatch(const struct store_flow *flow, const struct flow_piece *piece, uint64_t cut,
                    const uint64_t sums[2])
{
    return core_err_set(-EBADMSG,
                        "%s/%s.safetensors: elements from %" PRIu64 " of %s do not match their "
                        "checksum: %016" PRIx64 " was written, %016" PRIx64 " was read",
                        flow->name, store_stream_name(piece->stream), cut * PLAN_CUT_ELEMENTS,
                        flow->image->blocks[piece->block].name, sums[0], sums[1]);
}

/* Computes the checksums of what is written, or verifies those of what was read. */
static int sum_piece(struct store_flow *flow, const struct flow_piece *piece)
{
    uint64_t *sums = flow->sums[piece->stream] +
                     flow->image->first_cuts[piece->stream][piece->block];
    uint64_t done = 0;
    for (uint64_t c = piece->cut; c < piece->cut + piece->count; c++) {
        const struct store_cut cut = store_image_cut(flow->image, piece->stream, piece->block, c);
        const uint64_t sum = core_hash(piece->at + done, cut.padded_bytes, 0);
        if (flow->writes) {
            sums[c] = sum;
        } else if (sums[c] != sum) {
            return mismatch(flow, piece, c, (const uint64_t[]){sums[c], sum});
        }
        done += cut.padded_bytes;
    }
    return 0;
}

/* Waits for a piece in flight; verifies what was read and copies it to the caller. */
static int finish(struct store_flow *flow, struct flow_piece *piece)
{
    int rc = core_fence_wait_moving(piece->done, flow->still_ns);
    if (rc != 0 || flow->writes) {
        return rc;
    }
    rc = sum_piece(flow, piece);
    if (rc == 0 && piece->memory != NULL && piece->at != piece->memory) {
        memcpy(piece->memory, piece->at, piece->bytes);
    }
    return rc;
}

static int request(struct store_flow *flow, struct flow_piece *piece)
{
    if (!flow->writes) {
        return aio_queue_read(flow->queue, flow->files[piece->stream], piece->offset, piece->at,
                              piece->padded_bytes, &piece->done);
    }
    if (piece->at != piece->memory) {
        memcpy(piece->at, piece->memory, piece->bytes);
        memset(piece->at + piece->bytes, 0, piece->padded_bytes - piece->bytes);
    }
    (void)sum_piece(flow, piece);
    return aio_queue_write(flow->queue, flow->files[piece->stream], piece->offset, piece->at,
                           piece->padded_bytes, &piece->done);
}

/* ---- several pieces ---- */

/* Waits for everything in flight and keeps the first error. Afterwards nothing points into the
 * caller's memory, unless the drive has failed; then the memory is free once the flow is closed. */
static int fail(struct store_flow *flow, int rc)
{
    flow->failed = core_err_keep(rc);
    while (flow->finished < flow->begun) {
        const struct flow_piece *piece = &flow->pieces[flow->finished++ % STORE_FLOW_PIECES];
        (void)core_fence_wait_moving(piece->done, flow->still_ns);
    }
    return core_err_first(&flow->failed, 0);
}

/* A flow that has failed returns its error from every call. */
static int finish_until(struct store_flow *flow, uint64_t point)
{
    if (flow->failed.code != 0) {
        return core_err_first(&flow->failed, 0);
    }
    while (flow->finished < point) {
        int rc = finish(flow, &flow->pieces[flow->finished++ % STORE_FLOW_PIECES]);
        if (rc != 0) {
            return fail(flow, rc);
        }
    }
    return 0;
}

static int begin(struct store_flow *flow, const struct flow_piece *piece)
{
    const uint32_t turn = (uint32_t)(flow->begun % STORE_FLOW_PIECES);
    struct flow_piece *mine = &flow->pieces[turn];
    const bool full = flow->begun - flow->finished == STORE_FLOW_PIECES;
    int rc = finish_until(flow, flow->finished + (full ? 1 : 0));
    if (rc != 0) {
        return rc;
    }
    *mine = *piece;
    mine->at = place_of(flow, mine, turn);
    rc = request(flow, mine);
    if (rc != 0) {
        return fail(flow, rc);
    }
    flow->begun++;
    return 0;
}

/* ---- ranges ---- */

/* Moves all pieces of a stream between two cuts; `memory` NULL: into the flow's buffers. */
static int move_stream(struct store_flow *flow, enum store_stream stream, uint32_t block,
                       const uint64_t cuts[2], char *memory)
{
    int rc = 0;
    for (uint64_t cut = cuts[0]; rc == 0 && cut < cuts[1];) {
        struct flow_piece piece = piece_at(flow, stream, block, cut, cuts[1]);
        piece.memory = memory;
        rc = begin(flow, &piece);
        cut += piece.count;
        memory = memory != NULL ? memory + piece.bytes : NULL;
    }
    return rc;
}

int store_flow_begin(struct store_flow *flow, uint32_t block, uint64_t first, uint64_t count,
                     const struct store_arrays *arrays)
{
    const uint64_t end = first + count;
    const uint64_t cuts[2] = {first / PLAN_CUT_ELEMENTS,
                              (end + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS};
    assert(first % PLAN_CUT_ELEMENTS == 0 && end <= flow->image->blocks[block].elements &&
           (end % PLAN_CUT_ELEMENTS == 0 || end == flow->image->blocks[block].elements));
    int rc = finish_until(flow, flow->finished); /* whether it has failed */
    for (int s = 0; rc == 0 && s < STORE_STREAM_COUNT; s++) {
        if (arrays->at[s] != NULL && store_image_bytes(flow->image, (enum store_stream)s, block)) {
            rc = move_stream(flow, (enum store_stream)s, block, cuts, arrays->at[s]);
        }
    }
    return rc;
}

uint64_t store_flow_tail(const struct store_flow *flow)
{
    return flow->begun;
}

int store_flow_wait(struct store_flow *flow, uint64_t point)
{
    assert(point <= flow->begun);
    return finish_until(flow, point);
}

int store_flow_check(struct store_flow *flow, uint32_t block)
{
    const uint64_t elements = flow->image->blocks[block].elements;
    const uint64_t cuts[2] = {0, (elements + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS};
    int rc = 0;
    assert(!flow->writes);
    for (int s = 0; rc == 0 && s < STORE_STREAM_COUNT; s++) {
        if (store_image_bytes(flow->image, (enum store_stream)s, block) > 0) {
            rc = move_stream(flow, (enum store_stream)s, block, cuts, NULL);
        }
    }
    return rc == 0 ? finish_until(flow, flow->begun) : rc;
}

int store_flow_sync(struct store_flow *flow)
{
    int rc = finish_until(flow, flow->begun);
    for (int s = 0; rc == 0 && s < STORE_STREAM_COUNT; s++) {
        struct core_fence done = {0};
        if (flow->fds[s] >= 0) {
            rc = aio_queue_sync(flow->queue, 0, flow->files[s], &done);
            if (rc == 0) {
                rc = core_fence_wait_moving(done, flow->still_ns);
            }
        }
    }
    return rc;
}
