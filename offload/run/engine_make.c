/* engine_make.c: makes ranks, compares what they found and planned, and loads weights and
 * states. */
#include "offload/run/engine_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/queue.h"
#include "core/coll/coll.h"
#include "core/coll/peers.h"
#include "offload/model/kept.h"
#include "offload/run/checkpoint_writer.h"
#include "offload/run/parts.h"

/* All ranks spread extents by the same rates of drives. A file of rates lacks these, so they are
 * measured. */
static int weigh_stores(const struct run_engine *engine, double drive_bytes[STORE_PATHS_MAX])
{
    const struct run_prepared *prepared = engine->given.prepared;
    const unsigned count = engine->given.options->store_count;
    bool known = true;
    for (unsigned i = 0; i < count; i++) {
        drive_bytes[i] = prepared->rates.drive_bytes[i];
        known = known && drive_bytes[i] > 0;
    }
    if (known || count == 1 || plan_tier_bytes(prepared->plan, PLAN_STORE) == 0) {
        return 0;
    }
    const int rc = run_rates_weigh(prepared->shapes, engine->given.options, drive_bytes);
    return rc == -EFBIG ? -EIO : rc; /* only the planner's -EFBIG means that nothing fits */
}

int run_engine_make_rank(struct run_engine *engine, uint32_t index, uint64_t run)
{
    struct run_engine_worker *worker = &engine->workers[index];
    const struct run_engine_options *given = &engine->given;
    const struct run_prepared *prepared = given->prepared;
    int rc = 0;
    worker->options = *given->options;
    worker->options.rank = index;
    for (unsigned i = 0; i < worker->options.store_count; i++) {
        struct store_path *path = &worker->options.stores[i];
        path->weight = path->weight > 0 ? path->weight : engine->drive_bytes[i];
    }
    if (index != given->options->rank) {
        rc = run_prepared_create(given->model, &worker->options, &prepared->rates,
                                 &worker->prepared);
        prepared = worker->prepared;
    }
    if (rc == 0 && engine->world > 1 && given->peers == NULL) {
        const struct core_queue_options queue = {.name = "rank", .depth = 4};
        rc = core_queue_create(&queue, &worker->queue);
    }
    if (rc != 0) {
        return rc;
    }
    const struct run_rank_options rank = {
        .options = &worker->options,
        .shapes = prepared->shapes,
        .input = &prepared->input,
        .plan = prepared->plan,
        .writer = engine->writer,
        .meeting = engine->meeting,
        .peers = engine->given.peers,
        .run = run,
        .trace = index == 0 ? given->trace : NULL,
        .progress = index == 0 ? given->progress : NULL,
        .user = given->user,
    };
    rc = run_rank_create(&rank, &worker->rank);
    /* Callers would take a file system's -EFBIG for a plan that does not fit. */
    return rc == -EFBIG ? -EIO : rc;
}

/* A fixed loss scale overrides the checkpoint's. */
static void resume_scale(struct run_engine *engine, double value)
{
    const double fixed = engine->scale.options.fixed;
    if (fixed > 0 && fixed != value && engine->given.options->type == KERN_FP16) {
        core_log(CORE_LOG_WARN,
                 "the loss scale is fixed at %g; it was %g before this run was resumed", fixed,
                 value);
    }
    engine->scale.value = fixed > 0 ? fixed : value;
}

/* Ranks with different collectives would wait for each other forever (docs/decisions/067). */
static int compare_plan(const struct run_engine *engine, uint32_t rank, uint64_t hash)
{
    const uint64_t first = plan_hash(engine->given.prepared->plan);
    return hash == first
               ? 0
               : core_err_set(-EINVAL,
                              "rank %" PRIu32
                              " has planned other collective work than rank 0: %016" PRIx64
                              " instead of %016" PRIx64,
                              rank, hash, first);
}

static int check_part(const struct run_engine *engine, const struct run_engine_worker *worker,
                      const struct store_part *part)
{
    const struct run_prepared *prepared = worker->prepared != NULL ? worker->prepared
                                                                   : engine->given.prepared;
    const uint64_t missing = run_part_needs(part, engine->given.model->flat, &prepared->input) &
                             ~part->ranks;
    unsigned first = 0;
    if (part->ranks == 0 || missing == 0) { /* 0: the checkpoint is not in parts */
        return 0;
    }
    while ((missing >> first & 1) == 0) {
        first++;
    }
    return core_err_set(
        -ENODATA,
        "%s on this machine lacks the data that rank %u wrote and this rank needs; resume with "
        "--checkpoint-local and processes on all machines that have its parts",
        engine->given.checkpoint, first);
}

/* The run's state comes from the first rank's manifest. */
static int resume_rank(struct run_engine *engine, struct run_engine_worker *worker)
{
    struct store_checkpoint *checkpoint = NULL;
    int rc = store_checkpoint_open(engine->given.checkpoint, run_options_file_io(&worker->options),
                                   NULL, &checkpoint);
    if (rc != 0) {
        return rc;
    }
    worker->sums_hash = store_checkpoint_manifest(checkpoint)->sums.hash;
    rc = check_part(engine, worker, &store_checkpoint_manifest(checkpoint)->part);
    if (rc == 0) {
        rc = run_rank_resume(worker->rank, checkpoint, engine->given.files, engine->sums);
    }
    if (rc == 0 && worker == &engine->workers[0]) {
        const struct store_manifest *manifest = store_checkpoint_manifest(checkpoint);
        engine->run = manifest->run;
        engine->steps = manifest->step;
        resume_scale(engine, manifest->scale.value);
        engine->scale.steps = manifest->scale.steps;
        engine->scale.last_overflow = manifest->scale.last_overflow;
        engine->scale.hysteresis_left = manifest->scale.hysteresis_left;
        engine->base = manifest->base;
    }
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, store_checkpoint_close(checkpoint));
}

int run_engine_load_rank(struct run_engine *engine, struct run_engine_worker *worker,
                         const void *arguments)
{
    (void)arguments;
    return engine->given.checkpoint != NULL
               ? resume_rank(engine, worker)
               : run_rank_load(worker->rank, engine->given.files, engine->sums);
}

static int make_threads(struct run_engine *engine)
{
    int rc = engine->world > 1 ? coll_meeting_create(engine->world, &engine->meeting) : 0;
    if (rc != 0) {
        return rc;
    }
    if (engine->given.options->wishes.saves) {
        rc = run_checkpoint_writer_create(engine->world, &engine->writer);
        if (rc != 0) {
            return rc;
        }
    }
    for (uint32_t r = 0; rc == 0 && r < engine->world; r++) {
        rc = run_engine_make_rank(engine, r, engine->run);
    }
    for (uint32_t r = 1; rc == 0 && r < engine->world; r++) {
        rc = compare_plan(engine, r, plan_hash(engine->workers[r].prepared->plan));
    }
    return rc;
}

/* Machines may have different model files. */
static int compare_model(const struct run_engine *engine, uint32_t rank,
                         const struct run_reply *reply, uint64_t weights_hash)
{
    if (reply->blocks_hash != engine->given.model->flat->hash) {
        return core_err_set(-EINVAL, "rank %" PRIu32 " finds another model in %s than rank 0", rank,
                            engine->given.folder);
    }
    return reply->weights_hash == weights_hash
               ? 0
               : core_err_set(-EINVAL,
                              "rank %" PRIu32 " finds other weights in %s than rank 0: give all "
                              "machines the same files",
                              rank, engine->given.folder);
}

/* Processes make their ranks at the same time. */
static int make_processes(struct run_engine *engine)
{
    const struct run_engine_options *given = &engine->given;
    const struct run_remote_job job = {.options = given->options,
                                       .rates = &given->prepared->rates,
                                       .drive_bytes = engine->drive_bytes,
                                       .run = engine->run,
                                       .model = given->folder,
                                       .model_options = given->model_options,
                                       .adapter = given->peft != NULL ? given->peft->folder : NULL,
                                       .checkpoint = given->checkpoint};
    struct run_reply reply;
    uint64_t weights_hash = 0;
    uint32_t called = 1;
    int rc = 0;
    engine->piece = malloc(RUN_PIECE_BYTES);
    if (engine->piece == NULL) {
        return core_err_set(-ENOMEM, "no memory for pieces of other ranks' weights");
    }
    for (; rc == 0 && called < engine->world; called += rc == 0) {
        rc = run_remote_create(given->peers, called, &job);
    }
    engine->called = rc == 0;
    if (rc == 0) {
        rc = run_engine_make_rank(engine, 0, engine->run);
    }
    if (rc == 0) {
        rc = model_files_sample(given->files, &weights_hash);
    }
    struct core_err first = core_err_keep(rc);
    for (uint32_t r = 1; r < called; r++) {
        rc = run_engine_wait_remote(engine, r, &reply);
        if (rc == 0) {
            rc = compare_model(engine, r, &reply, weights_hash);
        }
        if (rc == 0) {
            rc = compare_plan(engine, r, reply.plan_hash);
        }
        first = first.code != 0 ? first : core_err_keep(rc);
    }
    return core_err_first(&first, 0);
}

static int make_ranks(struct run_engine *engine)
{
    if (engine->world > RUN_RANKS_MAX) {
        return core_err_set(-EINVAL, "world size %u is out of range 1..%d", engine->world,
                            RUN_RANKS_MAX);
    }
    engine->workers = calloc(engine->world, sizeof *engine->workers);
    if (engine->workers == NULL) {
        return core_err_set(-ENOMEM, "no memory for %u ranks", engine->world);
    }
    int rc = weigh_stores(engine, engine->drive_bytes);
    if (rc != 0) {
        return rc;
    }
    return engine->given.peers != NULL ? make_processes(engine) : make_threads(engine);
}

static int compare_checkpoints(const struct run_engine *engine)
{
    int rc = 0;
    for (uint32_t r = 1; rc == 0 && engine->given.peers != NULL && r < engine->world; r++) {
        rc = run_engine_compare_checkpoint(engine, r, engine->workers[r].sums_hash,
                                           engine->workers[0].sums_hash);
    }
    return rc;
}

int run_engine_make(struct run_engine *engine)
{
    const struct model *model = engine->given.model;
    const bool apart = model != NULL && model->flat->base_apart;
    int rc = make_ranks(engine);
    rc = rc == 0 && apart ? run_engine_base_open(engine) : rc;
    const bool known = engine->kept != NULL && model_kept_is_read(engine->kept);
    if (rc == 0 && apart && !known) {
        rc = model_sums_create(model, &engine->sums);
    }
    if (rc != 0) {
        return rc;
    }
    rc = run_engine_complete_parts(engine);
    bool damaged = rc == -ENODATA || rc == -EBADMSG || rc == -EIO;
    if (rc == 0) {
        rc = run_engine_call_ranks(engine, RUN_CALL_LOAD, "", 0);
        rc = rc == 0 ? compare_checkpoints(engine) : rc;
        damaged = rc != 0 && engine->given.checkpoint != NULL;
    }
    if (engine->given.damaged != NULL) {
        *engine->given.damaged = damaged;
    }
    if (rc != 0 || !apart) {
        return rc;
    }
    rc = run_engine_base_identify(engine);
    if (!known) { /* a finished file stays; an unfinished one is removed */
        run_engine_base_close(engine);
    }
    return rc;
}
