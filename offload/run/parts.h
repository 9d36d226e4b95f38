/* parts.h: moves ranges of a checkpoint in parts (store_part) to a machine that lacks them. That
 * machine writes a new part from its own files and from what others send; the new part replaces the
 * old one when it is verified. Keeps no state. Called by the thread that serves calls, or by the
 * application's. */
#ifndef OFFLOAD_RUN_PARTS_H
#define OFFLOAD_RUN_PARTS_H

#include "offload/run/engine.h"
#include "offload/store/checkpoint.h"

struct coll_peers;

/* Returns the saving ranks whose data a rank of this run needs, as bits. `part` says how the data
 * is divided; its `ranks` are not read. `input` is the needing rank's. */
uint64_t run_part_needs(const struct store_part *part, const struct blocks *blocks,
                        const struct plan_input *input);

/* Cuts of one stream of a block, to move between files of two machines, or of one. */
struct run_part_move {
    uint32_t from, to;
    uint32_t stream, block;
    uint64_t cut, cuts; /* the first one, and their number */
};

/* Sends the cuts in pieces through `memory` of RUN_PIECE_BYTES. After an error of reading, sends
 * the rest as invalid pieces. */
int run_part_give(struct coll_peers *peers, const struct run_part_move *move,
                  struct store_checkpoint *have, void *memory);
/* Receives and writes the pieces. After an error of writing, drops the rest. */
int run_part_take(struct coll_peers *peers, const struct run_part_move *move,
                  struct store_checkpoint_write *out, void *memory);
/* Copies cuts of this machine's files. */
int run_part_copy(const struct run_part_move *move, struct store_checkpoint *have,
                  struct store_checkpoint_write *out, void *memory);

/* for run_part_begin: the checkpoint of `manifest`, and the part's ranks */
struct run_part_begin {
    const struct run_engine_options *given; /* borrowed, like every pointer here */
    struct store_shelf *shelf;
    const char *manifest; /* text */
    size_t manifest_bytes;
    struct store_part part;
};
int run_part_begin(const struct run_part_begin *with, struct store_checkpoint_write **out);

#endif
