/* flow.c: cuts a range into pieces, a few streams after another, and sees each piece through. */
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

/* ---- one piece ---- */

/* As many cuts as fit into a piece. */
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

/* Requests go to the caller's memory where the file can, and where nothing but its bytes move. */
static char *place_of(const struct store_flow *flow, const struct flow_piece *piece, uint32_t turn)
{
    const bool aligned = !flow->direct[piece->stream] ||
                         (uintptr_t)piece->memory % AIO_ALIGN_BYTES == 0;
    return piece->memory != NULL && aligned && piece->bytes == piece->padded_bytes
               ? piece->memory
               : flow->buffers + turn * flow->piece_bytes;
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

/* Takes the sums of what goes out, or compares those of what has come. */
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

/* Waits for a piece that is under way; what was read is compared and handed over. */
static int finish(struct store_flow *flow, struct flow_piece *piece)
{
    if (!piece->busy) {
        return 0;
    }
    piece->busy = false;
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

static int begin(struct store_flow *flow, const struct flow_piece *piece)
{
    const uint32_t turn = flow->turn++ % STORE_FLOW_PIECES;
    struct flow_piece *mine = &flow->pieces[turn];
    int rc = finish(flow, mine);
    if (rc != 0) {
        return rc;
    }
    *mine = *piece;
    mine->at = place_of(flow, mine, turn);
    if (flow->writes) {
        if (mine->at != mine->memory) {
            memcpy(mine->at, mine->memory, mine->bytes);
            memset(mine->at + mine->bytes, 0, mine->padded_bytes - mine->bytes);
        }
        rc = sum_piece(flow, mine);
        rc = rc != 0 ? rc
                     : aio_queue_write(flow->queue, flow->files[mine->stream], mine->offset,
                                       mine->at, mine->padded_bytes, &mine->done);
    } else {
        rc = aio_queue_read(flow->queue, flow->files[mine->stream], mine->offset, mine->at,
                            mine->padded_bytes, &mine->done);
    }
    mine->busy = rc == 0;
    return rc;
}

/* ---- ranges ---- */

/* Nothing points into the caller's memory afterwards, unless the drive has failed: then it is free
 * once the flow is closed. */
static int finish_all(struct store_flow *flow, int rc)
{
    struct core_err first = core_err_keep(rc);
    for (uint32_t i = 0; i < STORE_FLOW_PIECES; i++) {
        struct flow_piece *piece = &flow->pieces[flow->turn++ % STORE_FLOW_PIECES];
        if (first.code == 0) {
            first = core_err_keep(finish(flow, piece));
        } else if (piece->busy) {
            piece->busy = false;
            (void)core_fence_wait_moving(piece->done, flow->still_ns);
        }
    }
    return core_err_first(&first, 0);
}

/* All pieces of a stream between two cuts; `memory` NULL: into buffers. */
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

static int move(struct store_flow *flow, uint32_t block, uint64_t first, uint64_t count,
                const struct store_arrays *arrays)
{
    const uint64_t end = first + count;
    const uint64_t cuts[2] = {first / PLAN_CUT_ELEMENTS,
                              (end + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS};
    assert(first % PLAN_CUT_ELEMENTS == 0 && end <= flow->image->blocks[block].elements &&
           (end % PLAN_CUT_ELEMENTS == 0 || end == flow->image->blocks[block].elements));
    int rc = 0;
    for (int s = 0; rc == 0 && s < STORE_STREAM_COUNT; s++) {
        if (arrays->at[s] != NULL && store_image_bytes(flow->image, (enum store_stream)s, block)) {
            rc = move_stream(flow, (enum store_stream)s, block, cuts, arrays->at[s]);
        }
    }
    return finish_all(flow, rc);
}

int store_flow_write(struct store_flow *flow, uint32_t block, uint64_t first, uint64_t count,
                     const struct store_arrays *arrays)
{
    assert(flow->writes);
    return move(flow, block, first, count, arrays);
}

int store_flow_read(struct store_flow *flow, uint32_t block, uint64_t first, uint64_t count,
                    const struct store_arrays *arrays)
{
    assert(!flow->writes);
    return move(flow, block, first, count, arrays);
}

int store_flow_check(struct store_flow *flow, uint32_t block)
{
    const uint64_t elements = flow->image->blocks[block].elements;
    const uint64_t cuts[2] = {0, (elements + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS};
    int rc = 0;
    for (int s = 0; rc == 0 && s < STORE_STREAM_COUNT; s++) {
        if (store_image_bytes(flow->image, (enum store_stream)s, block) > 0) {
            rc = move_stream(flow, (enum store_stream)s, block, cuts, NULL);
        }
    }
    return finish_all(flow, rc);
}

int store_flow_sync(struct store_flow *flow)
{
    int rc = 0;
    for (int s = 0; rc == 0 && s < STORE_STREAM_COUNT; s++) {
        struct core_fence done = {0};
        if (flow->fds[s] >= 0) {
            rc = aio_queue_sync(flow->queue, 0, flow->files[s], &done);
            rc = rc != 0 ? rc : core_fence_wait_moving(done, flow->still_ns);
        }
    }
    return rc;
}
