/* engine_save.c: saves a run as a checkpoint: as updates write it while steps go on, or by reading
 * out block after block. */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "offload/run/checkpoint.h"
#include "offload/run/checkpoint_writer.h"
#include "offload/run/engine_internal.h"

/* ---- reading out ---- */

/* Callbacks of run_rank_states and run_rank_weights. */
struct block_writer {
    struct store_checkpoint_write *checkpoint;
    uint32_t block;
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

/* The ranks that write a block: each one its part or, if all ranks hold the same, the first one all. */
static uint32_t writers_of(const struct run_engine *engine, uint32_t block)
{
    const struct blocks *blocks = engine->given.model->flat;
    const bool trained = blocks->list[block].trained;
    if (!trained && blocks->base_apart) {
        return 0;
    }
    return engine->given.options->stage >= (trained ? 1 : 3) ? engine->world : 1;
}

/* Writes what a rank of this process keeps of a block; nothing works meanwhile. */
static int write_part(struct run_engine *engine, struct run_rank *rank,
                      struct store_checkpoint_write *checkpoint, uint32_t block)
{
    struct block_writer writer = {checkpoint, block};
    const struct run_take_states taker = {write_states, written_tail, wait_written, &writer};
    return engine->given.model->flat->list[block].trained
               ? run_rank_states(rank, block, &taker)
               : run_rank_weights(rank, block, write_weights, &writer);
}

/* The checksums of what another process has written. */
static int merge_sums(void *context, uint64_t first, uint64_t count,
                      const struct store_arrays *sums)
{
    const struct block_writer *writer = context;
    store_checkpoint_merge(writer->checkpoint, writer->block, first, count, sums);
    return 0;
}

/* Calls all other processes, and waits for those that were called. Returns the first error. */
static int call_others(struct run_engine *engine, enum run_call call, const void *arguments,
                       size_t bytes)
{
    struct core_err first = core_err_keep(0);
    struct run_reply reply;
    uint32_t called = 1;
    int rc = 0;
    for (; rc == 0 && called < engine->world; called += rc == 0) {
        rc = run_remote_call(engine->given.peers, called, call, arguments, bytes);
    }
    first = core_err_keep(rc);
    for (uint32_t r = 1; r < called; r++) {
        rc = run_remote_reply(engine->given.peers, r, &reply);
        first = first.code != 0 ? first : core_err_keep(rc);
    }
    return core_err_first(&first, 0);
}

/* The processes write their parts of a block at the same time. */
static int write_parts(struct run_engine *engine, struct store_checkpoint_write *checkpoint,
                       uint32_t block)
{
    struct block_writer writer = {checkpoint, block};
    struct coll_peers *peers = engine->given.peers;
    const uint32_t writers = writers_of(engine, block);
    uint32_t called = 1;
    int rc = 0;
    for (; rc == 0 && called < writers; called += rc == 0) {
        rc = run_remote_call(peers, called, RUN_CALL_SAVE_BLOCK, &block, sizeof block);
    }
    rc = rc == 0 && writers > 0 ? write_part(engine, engine->workers[0].rank, checkpoint, block)
                                : rc;
    struct core_err first = core_err_keep(rc);
    for (uint32_t r = 1; r < called; r++) {
        rc = run_remote_pieces(peers, r, engine->piece, merge_sums, &writer);
        first = first.code != 0 ? first : core_err_keep(rc);
    }
    return core_err_first(&first, 0);
}

static int write_block(struct run_engine *engine, struct store_checkpoint_write *checkpoint,
                       uint32_t block)
{
    int rc = 0;
    if (engine->given.peers != NULL) {
        return write_parts(engine, checkpoint, block);
    }
    for (uint32_t r = 0; rc == 0 && r < writers_of(engine, block); r++) {
        rc = write_part(engine, engine->workers[r].rank, checkpoint, block);
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

/* Writes all blocks. Each process opens the files and writes its own parts; when all of them have sealed these, the
 * first one publishes the checkpoint. */
static int write_all(struct run_engine *engine, struct store_checkpoint_write *checkpoint)
{
    const char *folder = store_checkpoint_folder(checkpoint);
    const bool shared = engine->given.peers != NULL && engine->given.options->stage >= 1;
    int rc = shared ? call_others(engine, RUN_CALL_SAVE, folder, strlen(folder) + 1) : 0;
    if (rc == 0) {
        rc = write_blocks(engine, checkpoint);
    }
    if (shared) {
        const struct core_err kept = core_err_keep(rc);
        const uint32_t seals = rc == 0;
        rc = call_others(engine, RUN_CALL_SAVE_END, &seals, sizeof seals);
        rc = core_err_first(&kept, rc);
    }
    return rc == 0 ? store_checkpoint_finish(checkpoint) : rc;
}

/* Writes frozen blocks, which no update writes. */
static int write_frozen(struct run_engine *engine, struct store_checkpoint_write *checkpoint)
{
    const struct blocks *blocks = engine->given.model->flat;
    for (uint32_t b = 0; b < blocks->count; b++) {
        if (blocks->list[b].trained || blocks->base_apart) {
            continue;
        }
        int rc = run_engine_quiesce(engine);
        rc = rc == 0 ? write_block(engine, checkpoint, b) : rc;
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

int run_engine_save_part(struct run_engine *engine, struct store_checkpoint_write *checkpoint,
                         uint32_t block)
{
    return write_part(engine, run_engine_own(engine), checkpoint, block);
}

/* ---- opening ---- */

/* The manifest of the run as it is, or will be `steps_ahead` steps later. */
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

static int begin(struct run_engine *engine, const struct run_save_options *options,
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
    int rc = run_engine_release_checkpoint(engine); /* the new one may replace its files */
    if (rc != 0) {
        return rc;
    }
    rc = describe(engine, options, steps_ahead, &manifest);
    return rc != 0 ? rc : store_checkpoint_begin(&wanted, &manifest, out);
}

/* Opens the checkpoint of the step that is done, or of one `steps_ahead` later, for the ranks'
 * lanes. */
static int open_writer(struct run_engine *engine, const struct run_save_options *options,
                       unsigned steps_ahead)
{
    struct store_checkpoint_write *checkpoint = NULL;
    int rc = begin(engine, options, steps_ahead, &checkpoint);
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

/* An earlier checkpoint that was not written is a warning: the run goes on. */
static void end_earlier(struct run_engine *engine)
{
    if (run_engine_save_wait(engine) != 0) {
        core_log(CORE_LOG_WARN, "the previous checkpoint was not written: %s", core_err_message());
    }
}

/* Opens a checkpoint for the next step's update. */
static int announce(struct run_engine *engine, const struct run_save_options *options)
{
    if (engine->writer == NULL) {
        return 0;
    }
    engine->defers = true;
    /* The rest of the earlier checkpoint is written during the next step. This checkpoint is opened when
     * it is requested after that step. */
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

/* Uses the checkpoint that was announced before the last step, or opens one for the pending update.
 * *writes: updates write it. */
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
    rc = begin(engine, options, 0, &checkpoint);
    if (rc != 0) {
        return rc;
    }
    const struct core_err kept = core_err_keep(write_all(engine, checkpoint));
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
