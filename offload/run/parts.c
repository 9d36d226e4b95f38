/* parts.c: moves pieces of cuts, each followed by a byte: whether the piece is valid. */
#include "offload/run/parts.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/coll/peers.h"
#include "offload/plan/shard.h"
#include "offload/run/remote.h"

/* Returns the ranks, as bits, whose shards overlap a span; 0 if `of` is 0 or 1. */
static uint64_t ranks_of_span(uint32_t of, uint64_t elements, struct plan_span need)
{
    uint64_t ranks = 0;
    for (uint32_t r = 0; of > 1 && r < of; r++) {
        const uint64_t first = plan_shard_border(elements, of, r);
        const struct plan_span shard = {first, plan_shard_border(elements, of, r + 1) - first};
        ranks |= (uint64_t)(plan_span_overlap(shard, need).count > 0) << r;
    }
    return ranks;
}

uint64_t run_part_needs(const struct store_part *part, const struct blocks *blocks,
                        const struct plan_input *input)
{
    uint64_t ranks = 0;
    for (uint32_t b = 0; b < blocks->count; b++) {
        const uint64_t elements = blocks->list[b].elements;
        const bool trained = blocks->list[b].trained;
        if (trained || !blocks->base_apart) {
            ranks |= ranks_of_span(part->weights_of, elements, plan_weight_span(input, b));
        }
        if (trained) {
            ranks |= ranks_of_span(part->states_of, elements, plan_state_span(input, b));
        }
    }
    return ranks;
}

/* Cuts that move at once. */
struct piece {
    uint64_t cuts;
    struct plan_span span;
    uint64_t bytes;
};

/* Returns a piece of as many cuts as fit; a cut has at most 256 KiB. */
static struct piece piece_at(const struct store_image *image, const struct run_part_move *move,
                             uint64_t cut)
{
    const enum store_stream stream = (enum store_stream)move->stream;
    const uint64_t elements = image->blocks->list[move->block].elements;
    struct piece piece = {.span = {.first = cut * PLAN_CUT_ELEMENTS}};
    while (cut + piece.cuts < move->cut + move->cuts) {
        const struct store_cut next = store_image_cut(image, stream, move->block, cut + piece.cuts);
        if (piece.bytes + next.bytes >= RUN_PIECE_BYTES) {
            break;
        }
        piece.bytes += next.bytes;
        piece.cuts++;
    }
    const uint64_t end = (cut + piece.cuts) * PLAN_CUT_ELEMENTS;
    piece.span.count = (end < elements ? end : elements) - piece.span.first;
    return piece;
}

static struct store_arrays arrays_of(const struct run_part_move *move, void *memory)
{
    struct store_arrays arrays = {{NULL}};
    arrays.at[move->stream] = memory;
    return arrays;
}

static int read_piece(const struct run_part_move *move, const struct piece *piece,
                      struct store_checkpoint *have, void *memory)
{
    const struct store_arrays arrays = arrays_of(move, memory);
    return have != NULL ? store_checkpoint_read(have, move->block, piece->span.first,
                                                piece->span.count, &arrays)
                        : core_err_set(-EPROTO, "no part of a checkpoint is open");
}

static int write_piece(const struct run_part_move *move, const struct piece *piece,
                       struct store_checkpoint_write *out, void *memory)
{
    const struct store_arrays arrays = arrays_of(move, memory);
    return store_checkpoint_put(out, move->block, piece->span.first, piece->span.count, &arrays);
}

int run_part_give(struct coll_peers *peers, const struct run_part_move *move,
                  struct store_checkpoint *have, void *memory)
{
    const struct store_image *image = store_checkpoint_image(have);
    struct core_err first = core_err_keep(0);
    for (uint64_t cut = move->cut; cut < move->cut + move->cuts;) {
        const struct piece piece = piece_at(image, move, cut);
        first = first.code != 0 ? first : core_err_keep(read_piece(move, &piece, have, memory));
        ((char *)memory)[piece.bytes] = first.code == 0;
        const int rc = coll_peers_send(peers, move->to, memory, piece.bytes + 1);
        if (rc != 0) {
            return rc;
        }
        cut += piece.cuts;
    }
    return core_err_first(&first, 0);
}

int run_part_take(struct coll_peers *peers, const struct run_part_move *move,
                  struct store_checkpoint_write *out, void *memory)
{
    const struct store_image *image = store_checkpoint_write_image(out);
    struct core_err first = core_err_keep(0);
    for (uint64_t cut = move->cut; cut < move->cut + move->cuts;) {
        const struct piece piece = piece_at(image, move, cut);
        size_t got = 0;
        int rc = coll_peers_receive(peers, move->from, memory, RUN_PIECE_BYTES, &got);
        if (rc != 0) {
            return rc;
        }
        if (got != piece.bytes + 1 || ((const char *)memory)[piece.bytes] == 0) {
            rc = core_err_set(-EIO, "rank %u did not send a valid piece of the checkpoint",
                              move->from);
        } else if (first.code == 0) {
            rc = write_piece(move, &piece, out, memory);
        }
        first = first.code != 0 ? first : core_err_keep(rc);
        cut += piece.cuts;
    }
    return core_err_first(&first, 0);
}

int run_part_copy(const struct run_part_move *move, struct store_checkpoint *have,
                  struct store_checkpoint_write *out, void *memory)
{
    const struct store_image *image = store_checkpoint_write_image(out);
    int rc = 0;
    for (uint64_t cut = move->cut; rc == 0 && cut < move->cut + move->cuts;) {
        const struct piece piece = piece_at(image, move, cut);
        rc = read_piece(move, &piece, have, memory);
        if (rc == 0) {
            rc = write_piece(move, &piece, out, memory);
        }
        cut += piece.cuts;
    }
    return rc;
}

int run_part_begin(const struct run_part_begin *with, struct store_checkpoint_write **out)
{
    const struct run_engine_options *given = with->given;
    const struct store_checkpoint_options wanted = {.shelf = with->shelf,
                                                    .source = given->folder,
                                                    .config = &given->model->config,
                                                    .backend = run_options_file_io(given->options)};
    struct store_manifest manifest = {.step = 0};
    const int rc = store_manifest_parse(with->manifest, with->manifest_bytes,
                                        "the checkpoint of the first process", &manifest);
    if (rc != 0) {
        return rc;
    }
    free(manifest.files); /* they are listed again */
    manifest.files = NULL;
    manifest.file_count = 0;
    manifest.part = with->part;
    return store_checkpoint_begin(&wanted, &manifest, out);
}
