/* checkpoint_save.c: a run written as a checkpoint: with the updates that make it, or read out block after
 * block. */
#include <errno.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "offload/run/checkpoint.h"
#include "offload/run/saving.h"

/* ---- read out ---- */

struct putting {
    struct store_checkpoint_write *checkpoint;
    uint32_t block;
};

static int put_states(void *context, const struct adam_arrays *arrays)
{
    const struct putting *putting = context;
    const struct store_arrays streams = run_rank_streams(arrays);
    return store_checkpoint_put_begin(putting->checkpoint, putting->block, arrays->first,
                                      arrays->count, &streams);
}

static uint64_t put_tail(void *context)
{
    const struct putting *putting = context;
    return store_checkpoint_put_tail(putting->checkpoint);
}

static int put_wait(void *context, uint64_t point)
{
    const struct putting *putting = context;
    return store_checkpoint_put_wait(putting->checkpoint, point);
}

static int put_weights(void *context, uint64_t first, uint64_t count, const void *weights)
{
    const struct putting *putting = context;
    const struct store_arrays streams = {
        .at = {[STORE_STREAM_WEIGHTS] = (char *)(uintptr_t)weights}};
    return store_checkpoint_put(putting->checkpoint, putting->block, first, count, &streams);
}

/* Every rank's part of a block; where ranks hold the same, one of them. */
static int put_block(struct run_engine *engine, struct store_checkpoint_write *checkpoint,
                     uint32_t block)
{
    const struct run_engine_options *given = run_engine_given(engine);
    const bool trained = given->model->blocks[block].trained;
    const uint32_t world = run_engine_world(engine);
    const uint32_t parts = given->options->stage >= 1 && trained ? world : 1;
    struct putting putting = {checkpoint, block};
    const struct run_take_states taker = {put_states, put_tail, put_wait, &putting};
    int rc = 0;
    if (!trained) {
        return run_engine_weights(engine, block, put_weights, &putting);
    }
    for (uint32_t r = 0; rc == 0 && r < parts; r++) {
        rc = run_rank_states(run_engine_rank(engine, r), block, &taker);
    }
    return rc;
}

static int put_all(struct run_engine *engine, struct store_checkpoint_write *checkpoint)
{
    const struct run_engine_options *given = run_engine_given(engine);
    const uint32_t blocks = given->model->block_count;
    int rc = 0;
    for (uint32_t b = 0; rc == 0 && b < blocks; b++) {
        rc = put_block(engine, checkpoint, b);
        if (rc == 0 && given->progress != NULL) {
            rc = given->progress(given->user, "checkpoint", b + 1, blocks);
        }
    }
    return rc;
}

/* Drained, block after block. */
static int read_out(struct run_engine *engine, struct store_checkpoint_write *checkpoint)
{
    int rc = put_all(engine, checkpoint);
    rc = rc != 0 ? rc : store_checkpoint_finish(checkpoint);
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, store_checkpoint_end(checkpoint));
}

/* What no update makes goes there now. */
static int put_frozen(struct run_engine *engine, struct store_checkpoint_write *checkpoint)
{
    const struct run_engine_options *given = run_engine_given(engine);
    const struct model *model = given->model;
    const uint32_t parts = given->options->stage == 3 ? run_engine_world(engine) : 1;
    int rc = 0;
    for (uint32_t b = 0; rc == 0 && b < model->block_count; b++) {
        struct putting putting = {checkpoint, b};
        if (model->blocks[b].trained) {
            continue;
        }
        rc = run_engine_quiesce(engine);
        for (uint32_t r = 0; rc == 0 && r < parts; r++) {
            rc = run_rank_weights(run_engine_rank(engine, r), b, put_weights, &putting);
        }
    }
    return rc;
}

/* ---- one that is written with updates ---- */

/* The run as it is, or will be after `ahead` steps. */
static int describe(struct run_engine *engine, const struct run_checkpoint_options *options,
                    unsigned ahead, struct store_manifest *out)
{
    const struct run_engine_options *given = run_engine_given(engine);
    struct store_manifest manifest = {.step = 0};
    struct run_position position = run_engine_position(engine);
    position.steps += ahead;
    int rc = run_checkpoint_describe(given->options, given->model, &position, &manifest);
    rc = rc != 0 ? rc
                 : store_manifest_set_application(&manifest, options->application,
                                                  options->application_bytes);
    if (rc != 0) {
        store_manifest_fini(&manifest);
        return rc;
    }
    *out = manifest;
    return 0;
}

static int begin(struct run_engine *engine, const struct run_checkpoint_options *options,
                 unsigned ahead, struct store_checkpoint_write **out)
{
    const struct run_engine_options *given = run_engine_given(engine);
    const struct store_checkpoint_options wanted = {
        .shelf = options->shelf,
        .model = given->model,
        .source = options->source,
        .keep = options->keep,
        .backend = run_options_file_io(given->options),
        .recipe = options->recipe,
    };
    struct store_manifest manifest = {.step = 0};
    int rc = run_engine_release_checkpoint(engine); /* of one that may be written over */
    rc = rc != 0 ? rc : describe(engine, options, ahead, &manifest);
    return rc != 0 ? rc : store_checkpoint_begin(&wanted, &manifest, out);
}

static uint32_t lanes(struct run_engine *engine)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < run_engine_world(engine); r++) {
        count += run_rank_writes_states(run_engine_rank(engine, r));
    }
    return count;
}

/* Each rank that puts its part. */
static void for_lanes(struct run_engine *engine, void (*call)(struct run_rank *rank))
{
    for (uint32_t r = 0; r < run_engine_world(engine); r++) {
        struct run_rank *rank = run_engine_rank(engine, r);
        if (run_rank_writes_states(rank)) {
            call(rank);
        }
    }
}

/* Opens the checkpoint behind `ahead` more steps for the lanes of all ranks. */
static int open_for_lanes(struct run_engine *engine, const struct run_checkpoint_options *options,
                          unsigned ahead)
{
    struct store_checkpoint_write *checkpoint = NULL;
    int rc = begin(engine, options, ahead, &checkpoint);
    rc = rc != 0 ? rc : put_frozen(engine, checkpoint);
    if (rc == 0) {
        run_saving_open(run_engine_saving(engine), checkpoint,
                        run_engine_position(engine).steps + ahead, lanes(engine));
        return 0;
    }
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, store_checkpoint_end(checkpoint));
}

bool run_checkpoint_open(struct run_engine *engine)
{
    struct run_saving *saving = run_engine_saving(engine);
    return saving != NULL && run_saving_is_open(saving);
}

int run_checkpoint_wait(struct run_engine *engine)
{
    if (!run_checkpoint_open(engine)) {
        return 0;
    }
    int rc = run_rank_save_due(run_engine_rank(engine, 0)) ? run_engine_drain(engine)
                                                           : run_engine_quiesce(engine);
    bool stuck = false;
    for (uint32_t r = 0; r < run_engine_world(engine); r++) {
        struct run_rank *rank = run_engine_rank(engine, r);
        const int ended = run_rank_save_wait(rank);
        rc = rc != 0 ? rc : ended;
        stuck = stuck || run_rank_save_stuck(rank);
    }
    /* A lane that stands still may yet put something. */
    const int closed = stuck ? 0 : run_saving_close(run_engine_saving(engine));
    return rc != 0 ? rc : closed;
}

static void end_last(struct run_engine *engine)
{
    if (run_checkpoint_wait(engine) != 0) {
        core_log(CORE_LOG_WARN, "the checkpoint before this one was not written: %s",
                 core_err_sentence());
    }
}

int run_checkpoint_ahead(struct run_engine *engine, const struct run_checkpoint_options *options)
{
    if (run_engine_saving(engine) == NULL) {
        return 0;
    }
    run_engine_defer_next(engine);
    /* What is left of the last one goes out under this step; asked for behind it, this one follows. */
    if (run_checkpoint_open(engine) && !run_rank_updates_inside(run_engine_rank(engine, 0))) {
        return 0;
    }
    end_last(engine);
    int rc = open_for_lanes(engine, options, 1);
    if (rc == 0) {
        for_lanes(engine, run_rank_save_next);
    }
    return rc;
}

/* The one that was opened ahead of the step that is done, or one for the update that is pending. *there:
 * whether there is one. */
static int open_or_found(struct run_engine *engine, const struct run_checkpoint_options *options,
                         bool *there)
{
    struct run_saving *saving = run_engine_saving(engine);
    struct run_rank *rank = run_engine_rank(engine, 0);
    *there = saving != NULL && run_saving_awaits(saving, run_engine_position(engine).steps) &&
             run_rank_saved_step(rank);
    if (*there) {
        return 0;
    }
    end_last(engine);
    if (saving == NULL || !run_rank_can_save(rank)) {
        return 0;
    }
    int rc = open_for_lanes(engine, options, 0);
    if (rc == 0) {
        for_lanes(engine, run_rank_save_pending);
    }
    *there = rc == 0;
    return rc;
}

/* It is wanted, and nothing more than what was asked for will follow. */
static int seal(struct run_engine *engine, const struct run_checkpoint_options *options)
{
    struct store_manifest manifest = {.step = 0};
    int rc = describe(engine, options, 0, &manifest);
    if (rc != 0) {
        return rc;
    }
    run_saving_tell(run_engine_saving(engine), &manifest);
    for (uint32_t r = 0; rc == 0 && r < run_engine_world(engine); r++) {
        struct run_rank *rank = run_engine_rank(engine, r);
        rc = run_rank_writes_states(rank) ? run_rank_save_seal(rank) : 0;
    }
    return rc;
}

int run_checkpoint_later(struct run_engine *engine, const struct run_checkpoint_options *options)
{
    struct store_checkpoint_write *checkpoint = NULL;
    bool there = false;
    int rc = open_or_found(engine, options, &there);
    if (rc != 0 || there) {
        return rc != 0 ? rc : seal(engine, options);
    }
    rc = run_engine_drain(engine);
    rc = rc != 0 ? rc : begin(engine, options, 0, &checkpoint);
    return rc != 0 ? rc : read_out(engine, checkpoint);
}

int run_checkpoint_save(struct run_engine *engine, const struct run_checkpoint_options *options)
{
    int rc = run_checkpoint_later(engine, options);
    return rc != 0 ? rc : run_checkpoint_wait(engine);
}
