/* follow.c: a process other than the first: makes a rank, and executes the first process's calls.
 * Opens the model, checkpoints and stores itself. Runs on the caller's thread, which is also the
 * rank's. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/coll/peers.h"
#include "offload/model/config_read.h"
#include "offload/plan/shard.h"
#include "offload/run/checkpoint.h"
#include "offload/run/engine.h"
#include "offload/run/measure.h"
#include "offload/run/parts.h"
#include "offload/run/prepare.h"
#include "offload/run/remote.h"
#include "offload/run/runtime.h"

struct follower {
    struct coll_peers *peers; /* borrowed */
    void *memory;             /* owned, RUN_PIECE_BYTES: arguments, or data to send */
    void *job;                /* owned: arguments of CREATE, to which `made` points */
    struct run_remote_made made;
    struct model_peft *peft;       /* owned; NULL: the run begins without adapters */
    struct model *model;           /* owned */
    struct model_files *files;     /* owned */
    struct run_prepared *prepared; /* owned */
    struct run_engine *engine;     /* owned; NULL: none was created */
    /* `save` is this machine's own part; false: another process's files */
    bool leads;
    /* owned: the shelf of this machine's part; may be NULL */
    struct store_shelf *shelf;
    struct store_checkpoint_write *save; /* owned; NULL: none is being written */
    struct store_checkpoint *have;       /* owned: a part to read from; may be NULL */
    void *batches;                       /* owned: for a received micro-batch */
    size_t batch_bytes;
};

/* False: a thread still uses the engine's memory. */
static bool destroy_engine(struct follower *follower)
{
    if (!run_engine_destroy(follower->engine)) {
        return false;
    }
    (void)store_checkpoint_close(follower->have);
    (void)store_checkpoint_end(follower->save);
    store_shelf_close(follower->shelf);
    follower->engine = NULL;
    run_prepared_destroy(follower->prepared);
    model_files_close(follower->files);
    model_peft_close(follower->peft);
    model_destroy(follower->model);
    free(follower->job);
    free(follower->batches);
    *follower = (struct follower){.peers = follower->peers, .memory = follower->memory};
    return true;
}

static int open_model(struct follower *follower)
{
    struct run_remote_made *made = &follower->made;
    struct model_config config;
    int rc = model_config_load(made->model, &config);
    if (rc != 0) {
        return rc;
    }
    if (made->adapter != NULL) {
        rc = model_peft_open(made->adapter, &follower->peft);
        if (rc != 0) {
            return rc;
        }
        model_peft_options(follower->peft, &made->lora);
        made->lora.dropout = made->options.lora.dropout;
    }
    rc = model_create(&config, &made->model_options, &follower->model);
    if (rc != 0) {
        return rc;
    }
    rc = model_files_open(made->model, &follower->files);
    if (rc != 0) {
        return rc;
    }
    model_stored_set_base(follower->files, follower->model, made->options.base, made->options.type);
    if (follower->peft != NULL) {
        model_files_add_adapter(follower->files, follower->peft);
    }
    return model_files_check(follower->files, follower->model);
}

static int create_engine(struct follower *follower, size_t bytes, struct run_reply *reply)
{
    enum { ARRAYS = 4 };
    struct run_remote_made *made = &follower->made;
    follower->job = malloc(bytes);
    if (follower->job == NULL) {
        return core_err_set(-ENOMEM, "no memory for a rank");
    }
    memcpy(follower->job, follower->memory, bytes);
    int rc = run_remote_read_job(follower->job, bytes, made);
    if (rc != 0) {
        return rc;
    }
    const struct run_options *options = &made->options;
    follower->batch_bytes = ARRAYS * (size_t)(options->rows * options->length) * sizeof(int32_t);
    follower->batches = malloc(follower->batch_bytes);
    if (follower->batches == NULL) {
        return core_err_set(-ENOMEM, "no memory for a micro-batch");
    }
    rc = open_model(follower);
    if (rc != 0) {
        return rc;
    }
    rc = run_prepared_create(follower->model, options, &made->rates, &follower->prepared);
    if (rc == 0) {
        rc = model_files_sample(follower->files, &reply->weights_hash);
    }
    if (rc != 0) {
        return rc;
    }
    const struct run_engine_options engine = {.prepared = follower->prepared,
                                              .options = options,
                                              .model = follower->model,
                                              .files = follower->files,
                                              .checkpoint = made->checkpoint,
                                              .folder = made->model,
                                              .peers = follower->peers};
    reply->plan_hash = plan_hash(follower->prepared->plan);
    reply->blocks_hash = follower->model->flat->hash;
    return run_engine_create_remote(&engine, made, &follower->engine);
}

/* Receives all micro-batches, even after an invalid one. */
static int feed(struct follower *follower, struct run_reply *reply)
{
    struct run_rank *rank = run_engine_own(follower->engine);
    struct core_err first = core_err_keep(0);
    uint32_t count;
    memcpy(&count, follower->memory, sizeof count);
    for (uint32_t i = 0; i < count; i++) {
        struct model_batch batch;
        int rc = run_remote_batch(follower->peers, follower->batches, follower->batch_bytes,
                                  &batch);
        if (rc != 0) {
            return rc;
        }
        if (batch.ids == NULL) {
            rc = core_err_set(-EINVAL, "a micro-batch is larger than the engine's");
        } else {
            rc = run_rank_feed(rank, i, count, &batch, &reply->targets);
        }
        first = first.code != 0 ? first : core_err_keep(rc);
    }
    if (count == 0) {
        first = core_err_keep(run_rank_feed(rank, 0, 0, NULL, &reply->targets));
    }
    return core_err_first(&first, 0);
}

/* ---- weights ---- */

struct sender {
    const struct follower *follower;
    uint32_t block;
};

static int send_range(const struct sender *sender, uint64_t first, uint64_t count,
                      const struct store_arrays *arrays)
{
    const struct follower *follower = sender->follower;
    const struct plan_format *format = &follower->prepared->input.blocks[sender->block].format;
    return run_remote_send_range(follower->peers, follower->memory, format, arrays, first, count);
}

static int send_weights(void *context, uint64_t first, uint64_t count, const void *weights)
{
    const struct store_arrays arrays = {
        .at = {[STORE_STREAM_WEIGHTS] = (char *)(uintptr_t)weights}};
    return count > 0 ? send_range(context, first, count, &arrays) : 0;
}

static int send_block(struct follower *follower, struct run_reply *reply)
{
    (void)reply;
    struct sender sender = {.follower = follower};
    struct run_rank *rank = run_engine_own(follower->engine);
    const struct store_arrays nothing = {{NULL}};
    memcpy(&sender.block, follower->memory, sizeof sender.block);
    const struct core_err kept = core_err_keep(
        run_rank_weights(rank, sender.block, send_weights, &sender));
    return core_err_first(&kept, send_range(&sender, 0, 0, &nothing));
}

/* Sends masters as weights of 4 bytes. */
static int send_floats(void *context, uint64_t first, uint64_t count, const void *floats)
{
    const struct follower *follower = context;
    const struct plan_format format = {.weight_bytes = sizeof(float)};
    const struct store_arrays arrays = {.at = {[STORE_STREAM_WEIGHTS] = (char *)(uintptr_t)floats}};
    return count > 0 ? run_remote_send_range(follower->peers, follower->memory, &format, &arrays,
                                             first, count)
                     : 0;
}

static int send_nothing(const struct follower *follower)
{
    const struct plan_format format = {.weight_bytes = 1};
    const struct store_arrays nothing = {{NULL}};
    return run_remote_send_range(follower->peers, follower->memory, &format, &nothing, 0, 0);
}

static int send_masters(struct follower *follower, struct run_reply *reply)
{
    (void)reply;
    uint32_t block;
    memcpy(&block, follower->memory, sizeof block);
    const struct core_err kept = core_err_keep(
        run_engine_rank_masters(run_engine_own(follower->engine), block, send_floats, follower));
    return core_err_first(&kept, send_nothing(follower));
}

static int send_sums(struct follower *follower, struct run_reply *reply)
{
    (void)reply;
    const struct model_sums *sums = run_engine_sums(follower->engine);
    const struct plan_format format = {.weight_bytes = sizeof(uint64_t)};
    const size_t count = sums != NULL ? model_sums_count(sums) : 0;
    uint64_t *values = calloc(count > 0 ? count : 1, sizeof *values);
    int rc = values != NULL ? 0 : core_err_set(-ENOMEM, "no memory for the sums of a base model");
    for (size_t i = 0; rc == 0 && i < count; i++) {
        values[i] = model_sums_get(sums, i);
    }
    if (rc == 0 && count > 0) {
        const struct store_arrays arrays = {.at = {[STORE_STREAM_WEIGHTS] = (char *)values}};
        rc = run_remote_send_range(follower->peers, follower->memory, &format, &arrays, 0, count);
    }
    free(values);
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, send_nothing(follower));
}

/* ---- checkpoints ---- */

/* Refuses a directory with another run's checkpoints (-EEXIST): they must not be replaced. */
static int check_shelf(const char *directory, uint64_t run)
{
    char path[4096];
    uint64_t step = 0;
    const int rc = run_checkpoint_find_foreign(directory, run, &step);
    if (rc <= 0) {
        return rc;
    }
    store_shelf_path(directory, step, path, sizeof path);
    return core_err_set(-EEXIST,
                        "%s belongs to another run; remove the checkpoints in %s on this machine",
                        path, directory);
}

/* Opens a directory's shelf unless it is open. */
static int switch_shelf(struct follower *follower, const char *directory)
{
    if (follower->shelf != NULL && store_shelf_is(follower->shelf, directory)) {
        return 0;
    }
    store_shelf_close(follower->shelf);
    follower->shelf = NULL;
    return store_shelf_open(directory, &follower->shelf);
}

static int open_shelf(struct follower *follower, const char *directory, uint64_t run)
{
    const int rc = switch_shelf(follower, directory);
    return rc == 0 ? check_shelf(directory, run) : rc;
}

static int lead_save(struct follower *follower, const struct run_remote_save *save,
                     const char *directory)
{
    const int rc = open_shelf(follower, directory, save->position.run);
    return rc != 0 ? rc
                   : run_engine_save_lead(follower->engine, follower->shelf, save,
                                          directory + strlen(directory) + 1, &follower->save);
}

static int begin_save(struct follower *follower, struct run_reply *reply)
{
    struct run_remote_save save;
    const char *folder = (const char *)follower->memory + sizeof save;
    (void)reply;
    memcpy(&save, follower->memory, sizeof save);
    (void)store_checkpoint_end(follower->save);
    follower->save = NULL;
    follower->leads = save.leads;
    return save.leads ? lead_save(follower, &save, folder)
                      : run_engine_save_join(follower->engine, folder, &follower->save);
}

static int save_block(struct follower *follower, struct run_reply *reply)
{
    (void)reply;
    const struct store_arrays nothing = {{NULL}};
    uint32_t block;
    memcpy(&block, follower->memory, sizeof block);
    const struct plan_input *input = &follower->prepared->input;
    const bool trained = follower->model->flat->list[block].trained;
    const struct plan_span span = trained ? plan_state_span(input, block)
                                          : plan_weight_span(input, block);
    int rc = follower->save != NULL
                 ? run_engine_save_part(follower->engine, follower->save, block, follower->leads)
                 : core_err_set(-EPROTO, "no checkpoint is being written");
    if (rc == 0 && span.count > 0) {
        const struct store_arrays sums = store_checkpoint_sums(follower->save, block, span.first);
        rc = run_remote_send_sums(follower->peers, follower->memory, &sums, span.first, span.count);
    }
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept,
                          run_remote_send_sums(follower->peers, follower->memory, &nothing, 0, 0));
}

static int save_sums(struct follower *follower, struct run_reply *reply)
{
    struct store_arrays sums;
    uint32_t block;
    (void)reply;
    memcpy(&block, follower->memory, sizeof block);
    const int rc = run_remote_receive_sums(follower->peers, follower->memory, &sums);
    if (rc == 0 && follower->save != NULL) {
        store_checkpoint_set_sums(follower->save, block, &sums);
    }
    return rc;
}

static int drop_save(struct follower *follower)
{
    const int rc = store_checkpoint_end(follower->save);
    follower->save = NULL;
    return rc;
}

/* A leader's part stays open until older parts are removed. */
static int end_save(struct follower *follower, struct run_reply *reply)
{
    uint32_t seals;
    (void)reply;
    memcpy(&seals, follower->memory, sizeof seals);
    if (!seals || follower->save == NULL) {
        return drop_save(follower);
    }
    const int rc = follower->leads ? store_checkpoint_complete(follower->save)
                                   : store_checkpoint_seal(follower->save);
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, rc != 0 || !follower->leads ? drop_save(follower) : 0);
}

static int publish_save(struct follower *follower, struct run_reply *reply)
{
    (void)reply;
    return follower->save != NULL ? store_checkpoint_publish(follower->save)
                                  : core_err_set(-EPROTO, "no part to publish");
}

static int rotate_save(struct follower *follower, struct run_reply *reply)
{
    (void)reply;
    if (follower->save != NULL) {
        store_checkpoint_rotate(follower->save);
    }
    return drop_save(follower);
}

/* ---- parts that are completed ---- */

/* Opens a checkpoint's shelf, if this machine has it. Opening completes a part whose renaming was
 * interrupted. */
static int switch_shelf_of(struct follower *follower, const char *folder)
{
    char directory[4096];
    const char *slash = strrchr(folder, '/');
    if (slash == NULL || (size_t)(slash - folder) >= sizeof directory) {
        return core_err_set(-EPROTO, "%s is not the folder of a checkpoint", folder);
    }
    memcpy(directory, folder, (size_t)(slash - folder));
    directory[slash - folder] = '\0';
    return access(directory, F_OK) == 0 ? switch_shelf(follower, directory) : 0;
}

static int open_part(struct follower *follower, struct run_reply *reply)
{
    const char *folder = follower->memory;
    (void)store_checkpoint_close(follower->have);
    follower->have = NULL;
    int rc = switch_shelf_of(follower, folder);
    if (rc == 0) {
        rc = store_checkpoint_open(folder, run_options_file_io(&follower->made.options), NULL,
                                   &follower->have);
    }
    if (rc == 0) {
        const struct store_manifest *manifest = store_checkpoint_manifest(follower->have);
        reply->part = manifest->part;
        reply->sums_hash = manifest->sums.hash;
    }
    return rc;
}

static int begin_part(struct follower *follower, size_t bytes)
{
    const struct run_remote_made *made = &follower->made;
    const struct run_engine_options given = {
        .options = &made->options, .model = follower->model, .folder = made->model};
    const char *directory = (const char *)follower->memory + sizeof(struct store_part);
    const char *text = directory + strlen(directory) + 1;
    struct run_part_begin with = {
        .given = &given,
        .manifest = text,
        .manifest_bytes = bytes - (size_t)(text - (const char *)follower->memory)};
    struct store_manifest manifest = {.step = 0};
    memcpy(&with.part, follower->memory, sizeof with.part);
    int rc = store_manifest_parse(text, with.manifest_bytes, directory, &manifest);
    if (rc == 0) {
        rc = open_shelf(follower, directory, manifest.run);
    }
    store_manifest_fini(&manifest);
    (void)store_checkpoint_end(follower->save);
    follower->save = NULL;
    follower->leads = true;
    with.shelf = follower->shelf;
    return rc == 0 ? run_part_begin(&with, &follower->save) : rc;
}

static int give_part(struct follower *follower, struct run_reply *reply)
{
    struct run_part_move move;
    (void)reply;
    memcpy(&move, follower->memory, sizeof move);
    return follower->have != NULL
               ? run_part_give(follower->peers, &move, follower->have, follower->memory)
               : core_err_set(-EPROTO, "no part of a checkpoint is open");
}

static int take_part(struct follower *follower, struct run_reply *reply)
{
    struct run_part_move move;
    (void)reply;
    memcpy(&move, follower->memory, sizeof move);
    if (follower->save == NULL) {
        return core_err_set(-EPROTO, "no part of a checkpoint is being written");
    }
    return move.from == move.to
               ? run_part_copy(&move, follower->have, follower->save, follower->memory)
               : run_part_take(follower->peers, &move, follower->save, follower->memory);
}

typedef int follower_work(struct follower *follower, struct run_reply *reply);
static follower_work *const works[RUN_CALL_END] = {
    [RUN_CALL_FEED] = feed,
    [RUN_CALL_WEIGHTS] = send_block,
    [RUN_CALL_MASTERS] = send_masters,
    [RUN_CALL_SUMS] = send_sums,
    [RUN_CALL_SAVE] = begin_save,
    [RUN_CALL_SAVE_BLOCK] = save_block,
    [RUN_CALL_SAVE_SUMS] = save_sums,
    [RUN_CALL_SAVE_END] = end_save,
    [RUN_CALL_SAVE_PUBLISH] = publish_save,
    [RUN_CALL_SAVE_ROTATE] = rotate_save,
    [RUN_CALL_PART] = open_part,
    [RUN_CALL_PART_GIVE] = give_part,
    [RUN_CALL_PART_TAKE] = take_part,
};

static int measure(struct follower *follower)
{
    struct run_remote_measure with;
    struct plan_rates rates;
    memcpy(&with, follower->memory, sizeof with);
    const struct run_coll_ranks ranks = {.first = coll_peers_rank(follower->peers),
                                         .count = 1,
                                         .world = coll_peers_world(follower->peers),
                                         .within = with.within,
                                         .peers = follower->peers};
    return run_measure_coll(&ranks, with.bytes, &rates);
}

static int serve(struct follower *follower, enum run_call call, size_t bytes,
                 struct run_reply *reply)
{
    if (call == RUN_CALL_CREATE) {
        return create_engine(follower, bytes, reply);
    }
    if (call == RUN_CALL_DESTROY) {
        return destroy_engine(follower)
                   ? 0
                   : core_err_set(-ETIMEDOUT, "a rank did not return: its memory is not freed");
    }
    if (call == RUN_CALL_MEASURE) {
        return measure(follower);
    }
    if (follower->engine == NULL) {
        return core_err_set(-EPROTO, "call %d needs an engine, and none was created", (int)call);
    }
    if (call == RUN_CALL_PART_BEGIN) {
        return begin_part(follower, bytes);
    }
    if (call == RUN_CALL_LOAD) { /* loading opens the part again; it may be complete then */
        (void)store_checkpoint_close(follower->have);
        follower->have = NULL;
    }
    if (call < RUN_CALL_RANKS) {
        return run_engine_serve(follower->engine, call, follower->memory, reply);
    }
    return works[call](follower, reply);
}

static int answer(struct follower *follower, int rc, struct run_reply *reply)
{
    const unsigned rank = coll_peers_rank(follower->peers);
    const struct core_err failed = core_err_keep(rc);
    reply->code = rc;
    if (rc != 0) {
        const bool named = strncmp(failed.message, "rank ", strlen("rank ")) == 0;
        if (!named) {
            core_err_prefix(rc, "rank %u on %s", rank, coll_peers_at(follower->peers, rank)->host);
        }
        snprintf(reply->message, sizeof reply->message, "%s", core_err_message());
    }
    reply->used_bytes = run_runtime_used_bytes();
    reply->peak_bytes = run_runtime_peak_bytes();
    return run_remote_answer(follower->peers, reply);
}

int run_follow(struct coll_peers *peers, int *code)
{
    struct follower follower = {.peers = peers, .memory = malloc(RUN_PIECE_BYTES)};
    enum run_call call = RUN_CALL_END;
    size_t bytes = 0;
    if (follower.memory == NULL) {
        return core_err_set(-ENOMEM, "no memory for a rank");
    }
    int rc = run_remote_next(peers, follower.memory, &call, &bytes);
    while (rc == 0 && call != RUN_CALL_END) {
        struct run_reply reply = {.code = 0};
        rc = serve(&follower, call, bytes, &reply);
        rc = answer(&follower, rc, &reply);
        if (rc == 0) {
            rc = run_remote_next(peers, follower.memory, &call, &bytes);
        }
    }
    if (rc == 0) {
        memcpy(code, follower.memory, sizeof *code);
    }
    const struct core_err kept = core_err_keep(rc);
    if (destroy_engine(&follower)) {
        free(follower.memory);
    }
    return core_err_first(&kept, 0);
}
