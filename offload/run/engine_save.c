/* engine_save.c: saves a checkpoint: updates write it, or the engine reads states out block by
 * block. */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/coll/peers.h"
#include "offload/run/checkpoint.h"
#include "offload/run/checkpoint_writer.h"
#include "offload/run/engine_internal.h"

/* ---- reading out ---- */

struct block_writer {
    struct store_checkpoint_write *checkpoint;
    uint32_t block;
    bool here; /* for merge_sums: the sender of the sums writes into this process's files */
};

static int write_states(void *context, const struct adam_arrays *arrays)
{
    const struct block_writer *writer = context;
    const struct store_arrays streams = run_checkpoint_streams(arrays);
    return store_checkpoint_put_begin(writer->checkpoint, writer->block, arrays->first,
                                      arrays->count, &streams);
}

static uint64_t written_tail(void *context)
{
    const struct block_writer *writer = context;
    return store_checkpoint_put_tail(writer->checkpoint);
}

static int wait_written(void *context, uint64_t point)
{
    const struct block_writer *writer = context;
    return store_checkpoint_put_wait(writer->checkpoint, point);
}

static int write_weights(void *context, uint64_t first, uint64_t count, const void *weights)
{
    const struct block_writer *writer = context;
    const struct store_arrays streams = {
        .at = {[STORE_STREAM_WEIGHTS] = (char *)(uintptr_t)weights}};
    return store_checkpoint_put(writer->checkpoint, writer->block, first, count, &streams);
}

/* Returns the number of ranks that write a block: all, if each holds a part; 1, if all hold the
 * same; 0, if checkpoints do not contain the block. */
static uint32_t writers_of(const struct run_engine *engine, uint32_t block)
{
    const struct blocks *blocks = engine->given.model->flat;
    const bool trained = blocks->list[block].trained;
    if (!trained && blocks->base_apart) {
        return 0;
    }
    return engine->given.options->stage >= (trained ? 1 : 3) ? engine->world : 1;
}

/* Writes the part of a block that a rank of this process has, while no rank works. `leads`: also
 * weights that all ranks hold. */
static int write_part(struct run_engine *engine, struct run_rank *rank,
                      struct store_checkpoint_write *checkpoint, uint32_t block, bool leads)
{
    struct block_writer writer = {.checkpoint = checkpoint, .block = block};
    const struct run_take_states taker = {write_states, written_tail, wait_written, &writer};
    const bool trained = engine->given.model->flat->list[block].trained;
    const int rc = trained ? run_rank_states(rank, block, &taker) : 0;
    const bool whole = leads && engine->given.options->stage < 3;
    return rc == 0 && (!trained || whole) ? run_rank_weights(rank, block, write_weights, &writer)
                                          : rc;
}

static int merge_sums(void *context, uint64_t first, uint64_t count,
                      const struct store_arrays *sums)
{
    const struct block_writer *writer = context;
    store_checkpoint_merge(writer->checkpoint, writer->block, first, count, sums, writer->here);
    return 0;
}

/* ---- several processes ---- */

uint32_t run_engine_leader_of(const struct run_engine *engine, uint32_t rank)
{
    struct coll_host host = {.first = 0};
    if (engine->given.local) {
        coll_peers_host(engine->given.peers, rank, &host);
    }
    return host.first;
}

/* LEADERS: first processes of machines with separate parts; MEMBERS: the rest. */
enum which { LEADERS = 1, MEMBERS = 2, OTHERS = 3 };

static bool is_among(const struct run_engine *engine, uint32_t rank, enum which which)
{
    return (run_engine_leader_of(engine, rank) == rank ? LEADERS : MEMBERS) & which;
}

/* Waits for the replies of ranks in `which` that are below `called`. Returns `rc` if it is an
 * error, else the first error in a reply. */
static int wait_others(struct run_engine *engine, enum which which, uint32_t called, int rc)
{
    struct core_err first = core_err_keep(rc);
    struct run_reply reply;
    for (uint32_t r = 1; r < called; r++) {
        rc = is_among(engine, r, which) ? run_remote_reply(engine->given.peers, r, &reply) : 0;
        first = first.code != 0 ? first : core_err_keep(rc);
    }
    return core_err_first(&first, 0);
}

static int call_others(struct run_engine *engine, enum which which, enum run_call call,
                       const void *arguments, size_t bytes)
{
    uint32_t called = 1;
    int rc = 0;
    for (; rc == 0 && called < engine->world; called += rc == 0) {
        rc = is_among(engine, called, which)
                 ? run_remote_call(engine->given.peers, called, call, arguments, bytes)
                 : 0;
    }
    return wait_others(engine, which, called, rc);
}

/* `ranks` is 0 if checkpoints have no parts. */
static struct store_part part_of(const struct run_engine *engine, uint32_t leader)
{
    struct store_part part = {.ranks = 0};
    for (uint32_t r = 0; engine->given.local && r < engine->world; r++) {
        part.ranks |= (uint64_t)(run_engine_leader_of(engine, r) == leader) << r;
    }
    if (engine->given.local && part.ranks == UINT64_MAX >> (STORE_PART_RANKS - engine->world)) {
        part.ranks = 0; /* one machine has all ranks */
    }
    part.states_of = engine->given.options->stage >= 1 ? engine->world : 1;
    part.weights_of = engine->given.options->stage == 3 ? engine->world : 1;
    return part;
}

/* Every part has the whole block's checksums. */
static int send_sums(struct run_engine *engine, struct store_checkpoint_write *checkpoint,
                     uint32_t block)
{
    const struct store_arrays sums = store_checkpoint_sums(checkpoint, block, 0);
    const uint64_t elements = engine->given.model->flat->list[block].elements;
    uint32_t called = 1;
    int rc = 0;
    for (; rc == 0 && called < engine->world; called += rc == 0) {
        rc = is_among(engine, called, LEADERS)
                 ? run_remote_sums(engine->given.peers, called, engine->piece, block, &sums,
                                   elements)
                 : 0;
    }
    return wait_others(engine, LEADERS, called, rc);
}

static int write_parts(struct run_engine *engine, struct store_checkpoint_write *checkpoint,
                       uint32_t block)
{
    struct block_writer writer = {.checkpoint = checkpoint, .block = block};
    struct coll_peers *peers = engine->given.peers;
    const uint32_t writers = writers_of(engine, block);
    uint32_t called = 1;
    int rc = 0;
    if (writers == 0) {
        return 0;
    }
    for (; rc == 0 && called < engine->world; called += rc == 0) {
        if (called < writers || is_among(engine, called, LEADERS)) {
            rc = run_remote_call(peers, called, RUN_CALL_SAVE_BLOCK, &block, sizeof block);
        }
    }
    if (rc == 0) {
        rc = write_part(engine, engine->workers[0].rank, checkpoint, block,
                        part_of(engine, 0).ranks != 0);
    }
    struct core_err first = core_err_keep(rc);
    for (uint32_t r = 1; r < called; r++) {
        if (r >= writers && !is_among(engine, r, LEADERS)) {
            continue;
        }
        writer.here = run_engine_leader_of(engine, r) == 0;
        rc = run_remote_pieces(peers, r, engine->piece, merge_sums, &writer);
        first = first.code != 0 ? first : core_err_keep(rc);
    }
    return first.code != 0 ? core_err_first(&first, 0) : send_sums(engine, checkpoint, block);
}

static int write_block(struct run_engine *engine, struct store_checkpoint_write *checkpoint,
                       uint32_t block)
{
    int rc = 0;
    if (engine->given.peers != NULL) {
        return write_parts(engine, checkpoint, block);
    }
    for (uint32_t r = 0; rc == 0 && r < writers_of(engine, block); r++) {
        rc = write_part(engine, engine->workers[r].rank, checkpoint, block, false);
    }
    return rc;
}

static int write_blocks(struct run_engine *engine, struct store_checkpoint_write *checkpoint)
{
    const struct run_engine_options *given = &engine->given;
    const uint32_t blocks = given->model->flat->count;
    for (uint32_t b = 0; b < blocks; b++) {
        int rc = write_block(engine, checkpoint, b);
        if (rc == 0 && given->progress != NULL) {
            rc = given->progress(given->user, "checkpoint", b + 1, blocks);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* Other processes open their leader's files once these files exist. */
static int join_all(struct run_engine *engine, const struct run_save_options *options,
                    struct store_checkpoint_write *checkpoint)
{
    const char *directory = store_shelf_directory(options->shelf);
    struct run_remote_save save = {.keep = options->keep,
                                   .position = run_engine_position(engine),
                                   .application_bytes = options->application_bytes};
    int rc = 0;
    save.position.products = NULL; /* a pointer to this process's memory */
    for (int turn = 0; rc == 0 && turn < 2; turn++) {
        const enum which which = turn == 0 ? LEADERS : MEMBERS;
        uint32_t called = 1;
        for (; rc == 0 && called < engine->world; called += rc == 0) {
            if (is_among(engine, called, which)) {
                save.leads = which == LEADERS;
                save.part = part_of(engine, called);
                rc = run_remote_save(engine->given.peers, called, &save,
                                     save.leads ? directory : store_checkpoint_folder(checkpoint),
                                     options->application);
            }
        }
        rc = wait_others(engine, which, called, rc);
    }
    return rc;
}

/* The first process publishes when all have sealed their files; then leaders publish their parts,
 * and older checkpoints are removed. */
static int write_all(struct run_engine *engine, const struct run_save_options *options,
                     struct store_checkpoint_write *checkpoint)
{
    const bool parts = engine->given.local || engine->given.options->stage >= 1;
    if (engine->given.peers == NULL || !parts) {
        const int rc = write_blocks(engine, checkpoint);
        return rc == 0 ? store_checkpoint_finish(checkpoint) : rc;
    }
    int rc = join_all(engine, options, checkpoint);
    if (rc == 0) {
        rc = write_blocks(engine, checkpoint);
    }
    const struct core_err kept = core_err_keep(rc);
    const uint32_t seals = rc == 0;
    rc = core_err_first(&kept,
                        call_others(engine, OTHERS, RUN_CALL_SAVE_END, &seals, sizeof seals));
    if (rc == 0) {
        rc = store_checkpoint_complete(checkpoint);
    }
    if (rc == 0) {
        rc = store_checkpoint_publish(checkpoint);
    }
    if (rc == 0) {
        rc = call_others(engine, LEADERS, RUN_CALL_SAVE_PUBLISH, "", 0);
    }
    if (rc == 0) {
        store_checkpoint_rotate(checkpoint);
        rc = call_others(engine, LEADERS, RUN_CALL_SAVE_ROTATE, "", 0);
    }
    return rc;
}

static int write_frozen(struct run_engine *engine, struct store_checkpoint_write *checkpoint)
{
    const struct blocks *blocks = engine->given.model->flat;
    for (uint32_t b = 0; b < blocks->count; b++) {
        if (blocks->list[b].trained || blocks->base_apart) {
            continue;
        }
        int rc = run_engine_quiesce(engine);
        if (rc == 0) {
            rc = write_block(engine, checkpoint, b);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* ---- in the other processes ---- */

int run_engine_save_join(struct run_engine *engine, const char *folder,
                         struct store_checkpoint_write **out)
{
    const struct run_options *run = engine->given.options;
    const struct store_checkpoint_options wanted = {.backend = run_options_file_io(run)};
    const struct run_position nowhere = {.run = 0};
    struct store_manifest manifest;
    run_checkpoint_describe(run, engine->given.model->flat, &nowhere, &manifest);
    return store_checkpoint_join(&wanted, folder, &manifest, out);
}

int run_engine_save_lead(struct run_engine *engine, struct store_shelf *shelf,
                         const struct run_remote_save *save, const void *application,
                         struct store_checkpoint_write **out)
{
    const struct run_options *run = engine->given.options;
    const struct store_checkpoint_options wanted = {.shelf = shelf,
                                                    .source = engine->given.folder,
                                                    .config = &engine->given.model->config,
                                                    .keep = save->keep,
                                                    .backend = run_options_file_io(run)};
    struct store_manifest manifest;
    run_checkpoint_describe(run, engine->given.model->flat, &save->position, &manifest);
    manifest.part = save->part;
    const int rc = store_manifest_set_application(&manifest, application, save->application_bytes);
    if (rc != 0) {
        store_manifest_fini(&manifest);
        return rc;
    }
    return store_checkpoint_begin(&wanted, &manifest, out);
}

int run_engine_save_part(struct run_engine *engine, struct store_checkpoint_write *checkpoint,
                         uint32_t block, bool leads)
{
    return write_part(engine, run_engine_own(engine), checkpoint, block, leads);
}

/* ---- opening ---- */

/* Describes the run `steps_ahead` steps from now. */
static int describe(const struct run_engine *engine, const struct run_save_options *options,
                    unsigned steps_ahead, struct store_manifest *out)
{
    struct store_manifest manifest = {.step = 0};
    struct run_position position = run_engine_position(engine);
    position.steps += steps_ahead;
    run_checkpoint_describe(engine->given.options, engine->given.model->flat, &position, &manifest);
    int rc = store_manifest_set_application(&manifest, options->application,
                                            options->application_bytes);
    if (rc != 0) {
        store_manifest_fini(&manifest);
        return rc;
    }
    *out = manifest;
    return 0;
}

static int begin_checkpoint(struct run_engine *engine, const struct run_save_options *options,
                            unsigned steps_ahead, struct store_checkpoint_write **out)
{
    const struct store_checkpoint_options wanted = {
        .shelf = options->shelf,
        .source = options->source,
        .config = &engine->given.model->config,
        .keep = options->keep,
        .backend = run_options_file_io(engine->given.options),
        .recipe = options->recipe,
    };
    struct store_manifest manifest = {.step = 0};
    int rc = run_engine_release_checkpoint(engine); /* the new checkpoint may replace the adopted
                                                     * one's files */
    if (rc != 0) {
        return rc;
    }
    rc = describe(engine, options, steps_ahead, &manifest);
    if (rc != 0) {
        return rc;
    }
    manifest.part = part_of(engine, 0);
    return store_checkpoint_begin(&wanted, &manifest, out);
}

/* Opens a checkpoint of the step `steps_ahead` after the last one. */
static int open_writer(struct run_engine *engine, const struct run_save_options *options,
                       unsigned steps_ahead)
{
    struct store_checkpoint_write *checkpoint = NULL;
    int rc = begin_checkpoint(engine, options, steps_ahead, &checkpoint);
    if (rc != 0) {
        return rc;
    }
    rc = write_frozen(engine, checkpoint);
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        return core_err_first(&kept, store_checkpoint_end(checkpoint));
    }
    run_checkpoint_writer_open(engine->writer, checkpoint, engine->steps + steps_ahead);
    return 0;
}

static void for_writing_ranks(struct run_engine *engine, void (*call)(struct run_rank *rank))
{
    for (uint32_t r = 0; r < engine->world; r++) {
        struct run_rank *rank = engine->workers[r].rank;
        if (run_rank_writes_states(rank)) {
            call(rank);
        }
    }
}

/* ---- the ways to save ---- */

bool run_engine_save_is_open(const struct run_engine *engine)
{
    return engine->writer != NULL && run_checkpoint_writer_is_open(engine->writer);
}

int run_engine_save_wait(struct run_engine *engine)
{
    if (!run_engine_save_is_open(engine)) {
        return 0;
    }
    int rc = run_rank_save_due(engine->workers[0].rank) ? run_engine_drain(engine)
                                                        : run_engine_quiesce(engine);
    const struct core_err kept = core_err_keep(rc);
    for (uint32_t r = 0; r < engine->world; r++) {
        run_rank_save_forget(engine->workers[r].rank);
    }
    return core_err_first(&kept, run_checkpoint_writer_wait(engine->writer));
}

/* A failed earlier save is only logged. */
static void end_earlier(struct run_engine *engine)
{
    if (run_engine_save_wait(engine) != 0) {
        core_log(CORE_LOG_WARN, "the previous checkpoint was not written: %s", core_err_message());
    }
}

static int announce(struct run_engine *engine, const struct run_save_options *options)
{
    if (engine->writer == NULL) {
        return 0;
    }
    engine->defers = true;
    /* The next step still writes the earlier checkpoint; the announced one is opened after that
     * step. */
    if (run_engine_save_is_open(engine) && !run_rank_updates_inside(engine->workers[0].rank)) {
        return 0;
    }
    end_earlier(engine);
    int rc = open_writer(engine, options, 1);
    if (rc == 0) {
        for_writing_ranks(engine, run_rank_save_next);
    }
    return rc;
}

/* Uses the announced checkpoint, or opens one. Sets *writes to whether updates write it. */
static int find_or_open(struct run_engine *engine, const struct run_save_options *options,
                        bool *writes)
{
    struct run_rank *rank = engine->workers[0].rank;
    *writes = engine->writer != NULL &&
              run_checkpoint_writer_awaits(engine->writer, engine->steps) &&
              run_rank_saved_step(rank);
    if (*writes) {
        return 0;
    }
    end_earlier(engine);
    if (engine->writer == NULL || !run_rank_can_save(rank)) {
        return 0;
    }
    int rc = open_writer(engine, options, 0);
    if (rc == 0) {
        for_writing_ranks(engine, run_rank_save_pending);
        *writes = true;
    }
    return rc;
}

static int accept(struct run_engine *engine, const struct run_save_options *options)
{
    struct store_manifest manifest = {.step = 0};
    int rc = describe(engine, options, 0, &manifest);
    return rc != 0 ? rc : run_checkpoint_writer_accept(engine->writer, &manifest);
}

static int read_out(struct run_engine *engine, const struct run_save_options *options)
{
    struct store_checkpoint_write *checkpoint = NULL;
    int rc = run_engine_drain(engine);
    if (rc != 0) {
        return rc;
    }
    rc = begin_checkpoint(engine, options, 0, &checkpoint);
    if (rc != 0) {
        return rc;
    }
    const struct core_err kept = core_err_keep(write_all(engine, options, checkpoint));
    return core_err_first(&kept, store_checkpoint_end(checkpoint));
}

int run_engine_save(struct run_engine *engine, const struct run_save_options *options,
                    enum run_save_when when)
{
    bool writes = false;
    if (when == RUN_SAVE_NEXT_STEP) {
        return announce(engine, options);
    }
    int rc = find_or_open(engine, options, &writes);
    if (rc != 0) {
        return rc;
    }
    rc = writes ? accept(engine, options) : read_out(engine, options);
    return rc != 0 || when == RUN_SAVE_LATER ? rc : run_engine_save_wait(engine);
}
