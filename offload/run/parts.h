/* parts.h: moves ranges of a checkpoint that is in parts (store_part) from a machine that has them
 * to one that lacks them. The receiving machine writes its part again under another name, from its
 * own files and from what others send; the new part replaces the old one when it is complete and
 * verified. Keeps no state. Called by the thread that serves calls, or by the application's. */
#ifndef OFFLOAD_RUN_PARTS_H
#define OFFLOAD_RUN_PARTS_H

#include "offload/run/engine.h"
#include "offload/store/checkpoint.h"

struct coll_peers;

/* Returns which ranks of the run that saved wrote the data that a rank of this run needs: bit r
 * stands for rank r. `part` says among how many ranks the data is divided; its `ranks` are not
 * read. `input` is the input of the rank that needs the data. */
uint64_t run_part_needs(const struct store_part *part, const struct blocks *blocks,
                        const struct plan_input *input);

/* Cuts of one stream of a block, from the files of one rank's machine to those of another, or of
 * the same one. */
struct run_part_move {
    uint32_t from, to;
    uint32_t stream, block;
    uint64_t cut, cuts; /* the first one, and their number */
};

/* Reads the cuts and sends them in pieces through `memory` of RUN_PIECE_BYTES. Sends all pieces
 * even after an error, marked as invalid. */
int run_part_give(struct coll_peers *peers, const struct run_part_move *move,
                  struct store_checkpoint *have, void *memory);
/* Receives the pieces and writes them. After an error the rest is received and dropped. */
int run_part_take(struct coll_peers *peers, const struct run_part_move *move,
                  struct store_checkpoint_write *out, void *memory);
/* Copies cuts of this machine's own files. */
int run_part_copy(const struct run_part_move *move, struct store_checkpoint *have,
                  struct store_checkpoint_write *out, void *memory);

/* What run_part_begin needs: the checkpoint that `manifest` describes, and the ranks of the
 * part. */
struct run_part_begin {
    const struct run_engine_options *given; /* borrowed, like every pointer here */
    struct store_shelf *shelf;
    const char *manifest; /* text */
    size_t manifest_bytes;
    struct store_part part;
};
int run_part_begin(const struct run_part_begin *with, struct store_checkpoint_write **out);

#endif
