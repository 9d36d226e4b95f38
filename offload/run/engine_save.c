/* engine_save.c: saves a run as a checkpoint: as updates write it while steps go on, or by reading
 * out block after block. */
#include <errno.h>

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

/* A range of another process's rank. */
static int write_piece(void *context, uint64_t first, uint64_t count,
                       const struct store_arrays *streams)
{
    const struct block_writer *writer = context;
    return store_checkpoint_put(writer->checkpoint, writer->block, first, count, streams);
}

/* Writes a block: each rank writes its part or, if all ranks hold the same, the first rank writes all. */
static int write_block(struct run_engine *engine, struct store_checkpoint_write *checkpoint,
                       uint32_t block)
{
    const struct run_engine_options *given = &engine->given;
    const uint32_t parts = given->options->stage >= 1 ? engine->world : 1;
    struct block_writer writer = {checkpoint, block};
    const struct run_take_states taker = {write_states, written_tail, wait_written, &writer};
    int rc = 0;
    if (!given->model->flat->list[block].trained) {
        if (given->model->flat->base_apart) {
            return 0;
        }
        return run_engine_weights(engine, block, write_weights, &writer);
    }
    for (uint32_t r = 0; rc == 0 && r < parts; r++) {
        rc = engine->workers[r].rank != NULL
                 ? run_rank_states(engine->workers[r].rank, block, &taker)
                 : run_engine_rank_states(engine, r, block, write_piece, &writer);
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
    return store_checkpoint_finish(checkpoint);
}

/* Writes frozen blocks, which no update writes. */
static int write_frozen(struct run_engine *engine, struct store_checkpoint_write *checkpoint)
{
    const struct blocks *blocks = engine->given.model->flat;
    const uint32_t parts = engine->given.options->stage == 3 ? engine->world : 1;
    for (uint32_t b = 0; b < blocks->count; b++) {
        struct block_writer writer = {checkpoint, b};
        if (blocks->list[b].trained || blocks->base_apart) {
            continue;
        }
        int rc = run_engine_quiesce(engine);
        for (uint32_t r = 0; rc == 0 && r < parts; r++) {
            rc = run_rank_weights(engine->workers[r].rank, b, write_weights, &writer);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
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
    const struct core_err kept = core_err_keep(write_blocks(engine, checkpoint));
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
