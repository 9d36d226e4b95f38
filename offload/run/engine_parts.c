/* engine_parts.c: completes each machine's part of a checkpoint (--checkpoint-local) before ranks
 * load. The first process decides which ranges move; each machine's first process moves them. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/coll/peers.h"
#include "offload/plan/shard.h"
#include "offload/run/engine_internal.h"
#include "offload/run/parts.h"

/* The data that a machine has, and the data that its ranks need. Bit r: written by rank r. */
struct machine {
    bool leads; /* first process of its machine; false: the rest is not set */
    bool present;
    uint64_t has, needs;
    char message[CORE_ERR_MESSAGE_BYTES]; /* why there is no part */
};

struct completing {
    struct run_engine *engine;           /* borrowed */
    struct store_checkpoint *have;       /* owned: the part of this machine */
    struct store_checkpoint_write *save; /* owned: the part being written; may be NULL */
    struct store_part part;              /* how ranges are divided among ranks */
    struct machine *machines;            /* owned, [world]: by rank of a machine's first process */
    uint64_t streamed_bytes;
};

static uint64_t all_ranks(uint32_t of)
{
    return UINT64_MAX >> (STORE_PART_RANKS - of);
}

/* ---- what machines have and need ---- */

int run_engine_compare_checkpoint(const struct run_engine *engine, uint32_t rank,
                                  uint64_t sums_hash, uint64_t first_hash)
{
    return sums_hash == first_hash
               ? 0
               : core_err_set(-EBADMSG,
                              "rank %" PRIu32 " on %s finds another checkpoint in %s than rank 0",
                              rank, coll_peers_at(engine->given.peers, rank)->host,
                              engine->given.checkpoint);
}

static void note_part(const struct completing *work, struct machine *machine,
                      const struct store_part *part)
{
    const uint32_t of = work->part.states_of > work->part.weights_of ? work->part.states_of
                                                                     : work->part.weights_of;
    machine->present = true;
    machine->has = part->ranks != 0 ? part->ranks : all_ranks(of);
}

/* A part that cannot be opened counts as missing. */
static int ask_machines(struct completing *work)
{
    struct run_engine *engine = work->engine;
    const struct store_manifest *mine = store_checkpoint_manifest(work->have);
    struct coll_peers *peers = engine->given.peers;
    const char *path = engine->given.checkpoint;
    struct plan_input input = engine->given.prepared->input;
    for (uint32_t r = 0; r < engine->world; r++) {
        const uint32_t leader = run_engine_leader_of(engine, r);
        input.rank = r;
        work->machines[leader].leads = true;
        work->machines[leader].needs |= run_part_needs(&work->part, engine->given.model->flat,
                                                       &input);
    }
    note_part(work, &work->machines[0], &mine->part);
    for (uint32_t r = 1; r < engine->world; r++) {
        struct machine *machine = &work->machines[r];
        struct run_reply reply;
        int rc = machine->leads ? run_remote_call(peers, r, RUN_CALL_PART, path, strlen(path) + 1)
                                : 0;
        if (rc != 0) {
            return rc;
        }
        rc = machine->leads ? run_remote_reply(peers, r, &reply) : 0;
        if (rc != 0 && coll_peers_error(peers) != 0) {
            return rc;
        }
        if (rc != 0) {
            snprintf(machine->message, sizeof machine->message, "%s", core_err_message());
        } else if (machine->leads) {
            rc = run_engine_compare_checkpoint(engine, r, reply.sums_hash, mine->sums.hash);
            if (rc != 0) {
                return rc;
            }
            note_part(work, machine, &reply.part);
        }
    }
    return 0;
}

/* Returns a machine with the data of a rank, preferably `machine`; -1: none. */
static int holder_of(const struct completing *work, uint32_t machine, unsigned rank)
{
    for (uint32_t i = 0; i < work->engine->world; i++) {
        const uint32_t m = (machine + i) % work->engine->world;
        if (work->machines[m].present && (work->machines[m].has >> rank & 1) != 0) {
            return (int)m;
        }
    }
    return -1;
}

static int check_holders(const struct completing *work, uint32_t machine, uint64_t ranks)
{
    const struct run_engine *engine = work->engine;
    for (unsigned r = 0; r < STORE_PART_RANKS; r++) {
        if ((ranks >> r & 1) != 0 && holder_of(work, machine, r) < 0) {
            const char *why = work->machines[machine].message;
            return core_err_set(-ENODATA,
                                "rank %" PRIu32 " on %s needs what rank %u wrote of %s, which no "
                                "machine of this run has%s%s",
                                machine, coll_peers_at(engine->given.peers, machine)->host, r,
                                engine->given.checkpoint, why[0] != '\0' ? ": " : "", why);
        }
    }
    return 0;
}

/* ---- moving ---- */

/* Moves a range between two processes; one may be this one. Both are called before either is waited
 * for, and exchange all pieces even after an error. */
static int move_range(struct completing *work, const struct run_part_move *move)
{
    struct run_engine *engine = work->engine;
    struct coll_peers *peers = engine->given.peers;
    struct run_reply reply;
    int rc = 0;
    if (move->from != 0 && move->from != move->to) {
        rc = run_remote_call(peers, move->from, RUN_CALL_PART_GIVE, move, sizeof *move);
    }
    if (rc == 0 && move->to != 0) {
        rc = run_remote_call(peers, move->to, RUN_CALL_PART_TAKE, move, sizeof *move);
    }
    if (rc != 0) {
        return rc;
    }
    if (move->to == 0) {
        rc = move->from == 0 ? run_part_copy(move, work->have, work->save, engine->piece)
                             : run_part_take(peers, move, work->save, engine->piece);
    } else if (move->from == 0) {
        rc = run_part_give(peers, move, work->have, engine->piece);
    }
    struct core_err first = core_err_keep(rc);
    if (move->from != 0 && move->from != move->to) { /* the sender's error says more */
        rc = run_remote_reply(peers, move->from, &reply);
        first = rc != 0 ? core_err_keep(rc) : first;
    }
    if (move->to != 0) {
        rc = run_remote_reply(peers, move->to, &reply);
        first = first.code != 0 ? first : core_err_keep(rc);
    }
    return core_err_first(&first, 0);
}

static void count_streamed(struct completing *work, const struct run_part_move *move)
{
    const struct store_image *image = store_checkpoint_image(work->have);
    for (uint64_t c = move->cut; move->from != move->to && c < move->cut + move->cuts; c++) {
        work->streamed_bytes +=
            store_image_cut(image, (enum store_stream)move->stream, move->block, c).bytes;
    }
}

/* Moves a stream's ranges to a machine. A stream that ranks do not divide comes from that machine's
 * own files or, if it has none, from the first machine. */
static int move_stream(struct completing *work, uint32_t machine, uint64_t ranks,
                       struct run_part_move *move)
{
    const struct store_image *image = store_checkpoint_image(work->have);
    const uint64_t elements = image->blocks->list[move->block].elements;
    const uint32_t of = move->stream == STORE_STREAM_WEIGHTS ? work->part.weights_of
                                                             : work->part.states_of;
    int rc = 0;
    move->to = machine;
    for (uint32_t r = 0; rc == 0 && r < of; r++) {
        const uint64_t first = plan_shard_border(elements, of, r);
        const uint64_t end = plan_shard_border(elements, of, r + 1);
        const int holder = of > 1                            ? holder_of(work, machine, r)
                           : work->machines[machine].present ? (int)machine
                                                             : 0;
        if (end == first || (of > 1 && (ranks >> r & 1) == 0)) {
            continue;
        }
        move->from = (uint32_t)holder;
        move->cut = first / PLAN_CUT_ELEMENTS;
        move->cuts = (end - first + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS;
        count_streamed(work, move);
        rc = move_range(work, move);
    }
    return rc;
}

static int move_all(struct completing *work, uint32_t machine, uint64_t ranks)
{
    const struct store_image *image = store_checkpoint_image(work->have);
    struct run_engine *engine = work->engine;
    int rc = 0;
    for (uint32_t b = 0; rc == 0 && b < image->blocks->count; b++) {
        struct run_part_move move = {.block = b};
        for (move.stream = 0; rc == 0 && move.stream < STORE_STREAM_COUNT; move.stream++) {
            if (store_image_bytes(image, (enum store_stream)move.stream, b) > 0) {
                rc = move_stream(work, machine, ranks, &move);
            }
        }
        if (rc == 0) {
            const struct store_arrays sums = store_checkpoint_read_sums(work->have, b);
            struct run_reply reply;
            if (machine == 0) {
                store_checkpoint_set_sums(work->save, b, &sums);
            } else {
                rc = run_remote_sums(engine->given.peers, machine, engine->piece, b, &sums,
                                     image->blocks->list[b].elements);
                rc = rc == 0 ? run_remote_reply(engine->given.peers, machine, &reply) : rc;
            }
        }
    }
    return rc;
}

/* ---- one machine ---- */

static int call_one(struct completing *work, uint32_t machine, enum run_call call,
                    const void *arguments, size_t bytes)
{
    struct coll_peers *peers = work->engine->given.peers;
    struct run_reply reply;
    const int rc = run_remote_call(peers, machine, call, arguments, bytes);
    return rc == 0 ? run_remote_reply(peers, machine, &reply) : rc;
}

/* The call's arguments are a struct store_part, the directory and the manifest. */
static int begin_part(struct completing *work, uint32_t machine, struct store_part part)
{
    const struct run_engine_options *given = &work->engine->given;
    const char *directory = store_shelf_directory(given->shelf);
    const size_t chars = strlen(directory) + 1;
    char *text = NULL;
    size_t bytes = 0;
    int rc = store_manifest_print(store_checkpoint_manifest(work->have), &text, &bytes);
    if (rc != 0) {
        return rc;
    }
    if (machine == 0) {
        rc = run_part_begin(&(struct run_part_begin){given, given->shelf, text, bytes, part},
                            &work->save);
    } else if (sizeof part + chars + bytes + PLAN_ALIGN_BYTES > RUN_PIECE_BYTES) {
        rc = core_err_set(-E2BIG, "the manifest of %s is too long to be sent", given->checkpoint);
    } else {
        char *all = malloc(sizeof part + chars + bytes);
        rc = all != NULL ? 0 : core_err_set(-ENOMEM, "no memory for a manifest");
        if (rc == 0) {
            memcpy(all, &part, sizeof part);
            memcpy(all + sizeof part, directory, chars);
            memcpy(all + sizeof part + chars, text, bytes);
            rc = call_one(work, machine, RUN_CALL_PART_BEGIN, all, sizeof part + chars + bytes);
        }
        free(all);
    }
    free(text);
    return rc;
}

/* Publishes the verified part, or drops it after an error. */
static int end_part(struct completing *work, uint32_t machine, int rc)
{
    const struct core_err kept = core_err_keep(rc);
    const uint32_t seals = rc == 0;
    if (machine == 0) {
        rc = seals ? store_checkpoint_complete(work->save) : 0;
        rc = rc == 0 && seals ? store_checkpoint_publish(work->save) : rc;
        const struct core_err own = core_err_keep(rc);
        rc = core_err_first(&own, store_checkpoint_end(work->save));
        work->save = NULL;
    } else {
        rc = call_one(work, machine, RUN_CALL_SAVE_END, &seals, sizeof seals);
        rc = rc == 0 && seals ? call_one(work, machine, RUN_CALL_SAVE_PUBLISH, "", 0) : rc;
        rc = rc == 0 && seals ? call_one(work, machine, RUN_CALL_SAVE_ROTATE, "", 0) : rc;
    }
    return core_err_first(&kept, rc);
}

static int complete_machine(struct completing *work, uint32_t machine)
{
    const struct run_engine *engine = work->engine;
    const struct machine *at = &work->machines[machine];
    const uint64_t has = at->present ? at->has : 0;
    const uint64_t ranks = has | at->needs;
    struct store_part part = work->part;
    if (at->present && ranks == has) {
        return 0;
    }
    int rc = check_holders(work, machine, ranks);
    if (rc != 0) {
        return rc;
    }
    part.ranks = ranks == work->part.ranks ? 0 : ranks; /* 0: the part is the whole checkpoint */
    work->streamed_bytes = 0;
    rc = begin_part(work, machine, part);
    if (rc != 0) {
        return rc;
    }
    rc = end_part(work, machine, move_all(work, machine, ranks));
    if (rc == 0) {
        core_log(CORE_LOG_INFO, "rank %" PRIu32 " on %s received %.3g GB of %s from other machines",
                 machine, coll_peers_at(engine->given.peers, machine)->host,
                 (double)work->streamed_bytes * 1e-9, engine->given.checkpoint);
    }
    return rc;
}

/* ---- all machines ---- */

static int complete_all(struct completing *work)
{
    const struct run_engine *engine = work->engine;
    int rc = store_checkpoint_open(engine->given.checkpoint,
                                   run_options_file_io(engine->given.options), NULL, &work->have);
    if (rc != 0) {
        return 0; /* ranks report the error when they load */
    }
    const uint32_t stage = engine->given.options->stage;
    work->part = store_checkpoint_manifest(work->have)->part;
    if (work->part.ranks == 0) { /* this machine has the whole checkpoint */
        work->part.states_of = stage >= 1 ? engine->world : 1;
        work->part.weights_of = stage == 3 ? engine->world : 1;
    }
    work->part.ranks = all_ranks(work->part.states_of > work->part.weights_of
                                     ? work->part.states_of
                                     : work->part.weights_of);
    rc = ask_machines(work);
    for (uint32_t r = 0; rc == 0 && r < engine->world; r++) {
        rc = work->machines[r].leads ? complete_machine(work, r) : 0;
    }
    return rc;
}

int run_engine_complete_parts(struct run_engine *engine)
{
    struct completing work = {.engine = engine};
    if (!engine->given.local || engine->given.peers == NULL || engine->given.checkpoint == NULL ||
        engine->given.shelf == NULL || engine->world > STORE_PART_RANKS) {
        return 0;
    }
    work.machines = calloc(engine->world, sizeof *work.machines);
    int rc = work.machines != NULL
                 ? complete_all(&work)
                 : core_err_set(-ENOMEM, "no memory for %" PRIu32 " machines", engine->world);
    const struct core_err kept = core_err_keep(rc);
    rc = core_err_first(&kept, store_checkpoint_close(work.have));
    free(work.machines);
    return rc;
}
