/* engine.c: calls all ranks at once. The rank that is alone in its process works on the caller's thread; of
 * several, each has a queue whose thread does the work. */
#include "offload/run/engine_internal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/queue.h"
#include "core/coll/coll.h"
#include "core/coll/peers.h"
#include "offload/model/kept.h"
#include "offload/plan/shard.h"
#include "offload/run/checkpoint_writer.h"
#include "offload/run/runtime.h"

/* Engines with a rank that did not return: kept, because its thread uses them. */
static _Atomic(struct run_engine *) lost_engines;

/* ---- calls of all ranks ---- */

static run_engine_work load_rank, step_rank, evaluate_rank, logits_rank, drain_rank, quiesce_rank,
    release_rank;

static run_engine_work *const works[RUN_CALL_RANKS] = {
    [RUN_CALL_LOAD] = load_rank,         [RUN_CALL_STEP] = step_rank,
    [RUN_CALL_EVALUATE] = evaluate_rank, [RUN_CALL_LOGITS] = logits_rank,
    [RUN_CALL_DRAIN] = drain_rank,       [RUN_CALL_QUIESCE] = quiesce_rank,
    [RUN_CALL_RELEASE] = release_rank,
};

static int run_job(void *context, const void *arguments)
{
    struct run_engine_worker *worker = context;
    const struct run_engine_job *job = arguments;
    int rc = works[job->call](job->engine, worker, job->arguments);
    if (rc != 0) {
        run_rank_abort(worker->rank, rc); /* the others must not wait for this one */
    }
    return rc;
}

/* Waits for a rank as long as it makes progress. Each of the rank's own waits ends earlier. */
static int wait_worker(struct run_engine *engine, uint32_t index, struct core_fence done)
{
    const struct run_engine_worker *worker = &engine->workers[index];
    const int64_t limit_ns = 2 * run_options_stall_ns(&worker->options);
    uint64_t before;
    uint64_t now = run_rank_pulse(worker->rank);
    int rc;
    do {
        before = now;
        rc = core_fence_wait(done, limit_ns);
        now = run_rank_pulse(worker->rank);
    } while (rc == -ETIMEDOUT && core_fence_poll(done) == 0 && now != before);
    if (rc == -ETIMEDOUT && core_fence_poll(done) == 0) {
        engine->lost = true;
        rc = core_err_set(-ETIMEDOUT, "rank %u made no progress for %.1f s", index,
                          (double)limit_ns / 1e9);
        for (uint32_t r = 0; r < engine->world; r++) {
            run_rank_abort(engine->workers[r].rank, rc);
        }
    }
    return rc;
}

/* Waits for a rank of another process, and keeps its results. */
static int wait_remote(struct run_engine *engine, uint32_t index, struct run_reply *reply)
{
    struct run_engine_worker *worker = &engine->workers[index];
    int rc = run_remote_reply(engine->given.peers, index, reply);
    if (rc == 0) {
        worker->result = reply->result;
        worker->loss = reply->loss;
        worker->traffic = reply->traffic;
        worker->sums_hash = reply->sums_hash;
        worker->used_bytes = reply->used_bytes;
        worker->peak_bytes = reply->peak_bytes;
    }
    return rc;
}

/* All ranks get the call before the first one works at it. */
static int call_processes(struct run_engine *engine, enum run_call call, const void *arguments,
                          size_t arguments_bytes)
{
    struct run_engine_worker *own = &engine->workers[0];
    struct run_reply reply;
    int rc = 0;
    for (uint32_t r = 1; rc == 0 && r < engine->world; r++) {
        rc = run_remote_call(engine->given.peers, r, call, arguments, arguments_bytes);
    }
    if (rc != 0) {
        return rc; /* of the world */
    }
    rc = works[call](engine, own, arguments);
    if (rc != 0) {
        run_rank_abort(own->rank, rc);
    }
    struct core_err first = core_err_keep(rc);
    for (uint32_t r = 1; r < engine->world; r++) {
        rc = wait_remote(engine, r, &reply);
        first = first.code != 0 ? first : core_err_keep(rc);
    }
    return core_err_first(&first, 0);
}

int run_engine_call_ranks(struct run_engine *engine, enum run_call call, const void *arguments,
                          size_t arguments_bytes)
{
    struct core_fence done[RUN_RANKS_MAX] = {{0}};
    int rc = 0;
    if (engine->world == 1) {
        return works[call](engine, &engine->workers[0], arguments);
    }
    if (engine->given.peers != NULL) {
        return call_processes(engine, call, arguments, arguments_bytes);
    }
    assert(arguments_bytes <= sizeof engine->arguments);
    memcpy(engine->arguments, arguments, arguments_bytes);
    engine->job = (struct run_engine_job){call, engine, engine->arguments};
    for (uint32_t r = 0; rc == 0 && r < engine->world; r++) {
        const struct core_job one = {.run = run_job,
                                     .context = &engine->workers[r],
                                     .arguments = &engine->job,
                                     .arguments_bytes = sizeof engine->job};
        rc = core_queue_submit(engine->workers[r].queue, &one, &done[r]);
    }
    struct core_err first = core_err_keep(rc);
    for (uint32_t r = 0; r < engine->world; r++) {
        rc = engine->lost ? -ETIMEDOUT : wait_worker(engine, r, done[r]);
        if (rc != 0 && first.code == 0) {
            first = core_err_keep(rc);
        }
    }
    return core_err_first(&first, 0);
}

/* ---- making ---- */

/* The rate of each store's drive, in proportion to which extents are spread over the stores; the
 * same for all ranks. A file of rates does not have it: then it is measured. */
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
    return rc == -EFBIG ? -EIO : rc; /* a drive's -EFBIG is an I/O error; only the planner's own
                                      * means that nothing fits */
}

static int make_rank(struct run_engine *engine, uint32_t index, uint64_t run)
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
    /* -EFBIG from here is a file system's limit; callers take it for a plan that does not fit. */
    return rc == -EFBIG ? -EIO : rc;
}

/* A fixed loss scale overrides the one in the checkpoint. */
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

/* Each rank makes its own plan. Their common work must be the same (docs/decisions/032), or collectives
 * would wait for each other for ever. */
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

/* The first of the ranks that wrote a block whose range this rank needs and the part lacks; -1: none. */
static int missing_rank(const struct store_part *part, uint32_t of, uint64_t elements,
                        struct plan_span need)
{
    for (uint32_t r = 0; of > 1 && r < of; r++) {
        const uint64_t first = plan_shard_border(elements, of, r);
        const struct plan_span shard = {first, plan_shard_border(elements, of, r + 1) - first};
        if ((part->ranks >> r & 1) == 0 && plan_span_overlap(shard, need).count > 0) {
            return (int)r;
        }
    }
    return -1;
}

/* A part on the drive of a machine has only what its ranks had. */
static int check_part(const struct run_engine *engine, const struct run_engine_worker *worker,
                      const struct store_part *part)
{
    const struct run_prepared *prepared = worker->prepared != NULL ? worker->prepared
                                                                   : engine->given.prepared;
    const struct plan_input *input = &prepared->input;
    const struct blocks *blocks = engine->given.model->flat;
    for (uint32_t b = 0; part->ranks != 0 && b < blocks->count; b++) {
        const uint64_t elements = blocks->list[b].elements;
        const bool trained = blocks->list[b].trained;
        int missing = -1;
        if (trained || !blocks->base_apart) {
            missing = missing_rank(part, part->weights_of, elements, plan_weight_span(input, b));
        }
        if (missing < 0 && trained) {
            missing = missing_rank(part, part->states_of, elements, plan_state_span(input, b));
        }
        if (missing >= 0) {
            return core_err_set(
                -ENODATA,
                "%s on this machine lacks what rank %d wrote, which this rank needs; "
                "resume with the same ranks on the same machines",
                engine->given.checkpoint, missing);
        }
    }
    return 0;
}

/* Each rank opens the checkpoint, because it reads its own parts. What it says of the run is the first
 * rank's. */
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

static int load_rank(struct run_engine *engine, struct run_engine_worker *worker,
                     const void *arguments)
{
    (void)arguments;
    return engine->given.checkpoint != NULL
               ? resume_rank(engine, worker)
               : run_rank_load(worker->rank, engine->given.files, engine->sums);
}

static int add_sums(void *context, uint64_t first, uint64_t count,
                    const struct store_arrays *arrays)
{
    struct run_engine *engine = context;
    const char *from = arrays->at[STORE_STREAM_WEIGHTS];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t sum;
        memcpy(&sum, from + i * sizeof sum, sizeof sum);
        model_sums_add(engine->sums, first + i, sum);
    }
    return 0;
}

/* Adds what other processes have read of the base, if each has read a part. */
static int gather_sums(struct run_engine *engine)
{
    const bool parts = engine->given.peers != NULL && engine->given.options->stage == 3;
    int rc = 0;
    for (uint32_t r = 1; rc == 0 && parts && r < engine->world; r++) {
        rc = run_remote_call(engine->given.peers, r, RUN_CALL_SUMS, "", 0);
        if (rc == 0) {
            rc = run_remote_pieces(engine->given.peers, r, engine->piece, add_sums, engine);
        }
    }
    return rc;
}

/* The file in which the base is kept beside the first store. The first process writes it, because only that one finds
 * the identity; files are only read on other machines if a run wrote them there. */
static int open_kept(struct run_engine *engine)
{
    const struct run_options *options = engine->given.options;
    const struct run_prepared *prepared = engine->given.prepared;
    const bool quantised = options->base == MODEL_STORAGE_INT8 ||
                           options->base == MODEL_STORAGE_NF4;
    const bool memory = options->io != NULL && strcmp(options->io, "mem") == 0;
    if (!options->keep_base || !quantised || options->store_count == 0 || memory ||
        options->stores[0].directory == NULL || engine->given.folder == NULL) {
        return 0;
    }
    const uint64_t ranks = options->local > 0 ? options->local : 1;
    const uint64_t all = store_capacity(options->stores, options->store_count);
    const uint64_t used = plan_tier_bytes(prepared->plan, PLAN_STORE);
    const struct model_kept_options kept = {
        .directory = options->stores[0].directory,
        .folder = engine->given.folder,
        .model = engine->given.model,
        .files = engine->given.files,
        .stored = (const struct model_stored *const *)prepared->shapes->stored,
        .storage = options->base,
        .type = options->type,
        .writes = options->rank == 0,
        .room_bytes = all > used ? (all - used) * ranks : 0};
    int rc = model_kept_open(&kept, &engine->kept);
    model_files_set_kept(engine->given.files, engine->kept);
    return rc;
}

static void close_kept(struct run_engine *engine)
{
    if (engine->kept != NULL) {
        model_files_set_kept(engine->given.files, NULL);
        model_kept_close(engine->kept);
        engine->kept = NULL;
    }
}

/* Data of the kept base that does not match its checksums would fail the next run, too. */
static void check_kept(const struct run_engine *engine, int rc)
{
    if (rc == -EBADMSG && engine->kept != NULL &&
        strstr(core_err_message(), model_kept_path(engine->kept)) != NULL) {
        const struct core_err kept = core_err_keep(rc);
        model_kept_drop(engine->kept);
        (void)core_err_first(&kept, 0);
    }
}

/* Finds the identity of the base model from what was read of it, which must be that of the checkpoint, or of the
 * adapters to begin with. */
static int identify_base(struct run_engine *engine)
{
    const uint64_t base = engine->sums != NULL
                              ? model_sums_identity(engine->sums, engine->given.files)
                              : model_kept_identity(engine->kept);
    const struct model_peft *peft = engine->given.peft;
    if (engine->given.checkpoint == NULL && peft != NULL && peft->base != 0 && base != peft->base) {
        return core_err_set(-EINVAL,
                            "%s is an adapter of another base model: its base is %016" PRIx64
                            ", this one is %016" PRIx64,
                            peft->folder, peft->base, base);
    }
    if (engine->given.checkpoint != NULL && base != engine->base) {
        return core_err_set(-EINVAL,
                            "%s belongs to another base model: its base is %016" PRIx64
                            ", this one is %016" PRIx64,
                            engine->given.checkpoint, engine->base, base);
    }
    engine->base = base;
    model_kept_finish(engine->kept, base);
    return 0;
}

static int release_rank(struct run_engine *engine, struct run_engine_worker *worker,
                        const void *arguments)
{
    (void)engine;
    (void)arguments;
    return run_rank_release_checkpoint(worker->rank);
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
        rc = make_rank(engine, r, engine->run);
    }
    for (uint32_t r = 1; rc == 0 && r < engine->world; r++) {
        rc = compare_plan(engine, r, plan_hash(engine->workers[r].prepared->plan));
    }
    return rc;
}

/* Each process reads the model's configuration itself. */
static int compare_model(const struct run_engine *engine, uint32_t rank, uint64_t hash)
{
    return hash == engine->given.model->flat->hash
               ? 0
               : core_err_set(-EINVAL, "rank %" PRIu32 " finds another model in %s than rank 0",
                              rank, engine->given.folder);
}

/* All processes make their ranks at the same time. */
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
    rc = rc == 0 ? make_rank(engine, 0, engine->run) : rc;
    struct core_err first = core_err_keep(rc);
    for (uint32_t r = 1; r < called; r++) {
        rc = wait_remote(engine, r, &reply);
        rc = rc == 0 ? compare_model(engine, r, reply.blocks_hash) : rc;
        rc = rc == 0 ? compare_plan(engine, r, reply.plan_hash) : rc;
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

/* Processes on several machines may find different checkpoints at the same path. */
static int compare_checkpoints(const struct run_engine *engine)
{
    for (uint32_t r = 1; engine->given.peers != NULL && r < engine->world; r++) {
        if (engine->workers[r].sums_hash != engine->workers[0].sums_hash) {
            return core_err_set(-EBADMSG, "rank %" PRIu32 " on %s finds another checkpoint in %s",
                                r, coll_peers_at(engine->given.peers, r)->host,
                                engine->given.checkpoint);
        }
    }
    return 0;
}

static int make(struct run_engine *engine)
{
    const struct model *model = engine->given.model;
    const bool apart = model != NULL && model->flat->base_apart;
    int rc = make_ranks(engine);
    rc = rc == 0 && apart ? open_kept(engine) : rc;
    const bool known = engine->kept != NULL && model_kept_is_read(engine->kept);
    if (rc == 0 && apart && !known) {
        rc = model_sums_create(model, &engine->sums);
    }
    if (rc != 0) {
        return rc;
    }
    rc = run_engine_call_ranks(engine, RUN_CALL_LOAD, "", 0);
    rc = rc == 0 ? compare_checkpoints(engine) : rc;
    if (engine->given.damaged != NULL) {
        *engine->given.damaged = rc != 0 && engine->given.checkpoint != NULL;
    }
    if (rc != 0 || !apart) {
        return rc;
    }
    rc = known ? 0 : gather_sums(engine);
    rc = rc == 0 ? identify_base(engine) : rc;
    if (!known) { /* it has been written, or is removed */
        close_kept(engine);
    }
    return rc;
}

static struct run_engine *alloc_engine(const struct run_engine_options *options)
{
    struct run_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        core_err_set(-ENOMEM, "no memory for an engine");
        return NULL;
    }
    engine->given = *options;
    engine->world = options->options->world > 0 ? options->options->world : 1;
    return engine;
}

int run_engine_create(const struct run_engine_options *options, struct run_engine **out)
{
    struct run_engine *engine = alloc_engine(options);
    if (engine == NULL) {
        return -ENOMEM;
    }
    engine->run = run_rank_number(engine);
    run_scale_init(&engine->scale, &options->options->scale);
    run_engine_betas(engine, options->options->group.beta1, options->options->group.beta2);
    run_speculation_init(&engine->speculation);
    int rc = make(engine);
    if (!engine->lost) {
        model_sums_destroy(engine->sums);
        engine->sums = NULL;
    }
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        run_engine_destroy(engine);
        return core_err_first(&kept, 0);
    }
    *out = engine;
    return 0;
}

/* Ends the engines of the other processes, while this one's rank ends: they wait for each other. */
static void begin_destroy_remote(struct run_engine *engine)
{
    for (uint32_t r = 1; engine->called && r < engine->world; r++) {
        engine->called = run_remote_call(engine->given.peers, r, RUN_CALL_DESTROY, "", 0) == 0;
    }
}

static void end_destroy_remote(struct run_engine *engine)
{
    struct run_reply reply;
    for (uint32_t r = 1; engine->called && r < engine->world; r++) {
        if (run_remote_reply(engine->given.peers, r, &reply) != 0) {
            core_log(CORE_LOG_WARN, "%s", core_err_message());
        }
    }
}

bool run_engine_destroy(struct run_engine *engine)
{
    if (engine == NULL) {
        return true;
    }
    if (engine->lost) {
        core_log(CORE_LOG_WARN, "a rank did not return: its memory is not freed");
    }
    const uint32_t workers = engine->workers != NULL && !engine->lost ? engine->world : 0;
    begin_destroy_remote(engine);
    for (uint32_t r = 0; r < workers; r++) {
        core_queue_destroy(engine->workers[r].queue);
    }
    for (uint32_t r = 0; r < workers; r++) {
        engine->lost = !run_rank_destroy(engine->workers[r].rank) || engine->lost;
    }
    end_destroy_remote(engine);
    if (engine->lost) {
        engine->next_lost = atomic_exchange_explicit(&lost_engines, engine, memory_order_relaxed);
        return false;
    }
    for (uint32_t r = 0; r < workers; r++) {
        run_prepared_destroy(engine->workers[r].prepared);
    }
    run_checkpoint_writer_destroy(engine->writer);
    coll_meeting_destroy(engine->meeting);
    close_kept(engine);
    model_sums_destroy(engine->sums);
    free(engine->piece);
    free(engine->workers);
    free(engine);
    return true;
}

/* ---- steps ---- */

static int step_rank(struct run_engine *engine, struct run_engine_worker *worker,
                     const void *arguments)
{
    int rc = run_rank_step(worker->rank, arguments, &worker->result);
    check_kept(engine, rc);
    worker->traffic = run_rank_traffic_take(worker->rank);
    worker->stats = run_rank_stats_take(worker->rank);
    worker->result.wait_ns = worker->stats.ranks_wait_ns;
    return rc;
}

static int feed_remote(struct run_engine *engine, uint32_t index, const struct model_batch *batches,
                       uint32_t count)
{
    struct run_reply reply;
    int rc = run_remote_feed(engine->given.peers, index, batches, count);
    if (rc == 0) {
        rc = run_remote_reply(engine->given.peers, index, &reply);
    }
    if (rc == 0) {
        engine->workers[index].targets = reply.targets;
    }
    return rc;
}

static int feed_rank(struct run_engine_worker *worker, const struct model_batch *batches,
                     uint32_t count)
{
    int64_t targets = 0;
    for (uint32_t i = 0; i < worker->options.micro_batches; i++) {
        int rc = run_rank_feed(worker->rank, i, i < count ? &batches[i] : NULL, &targets);
        if (rc != 0) {
            return rc;
        }
    }
    worker->targets = targets;
    return 0;
}

/* Gives each rank its micro-batches. */
static int feed_ranks(struct run_engine *engine, const struct model_batch *batches, uint32_t count,
                      int64_t *targets)
{
    const uint32_t each = engine->given.options->micro_batches;
    *targets = 0;
    if (count > each * engine->world) {
        return core_err_set(-EINVAL, "a step has %u micro-batches; found %u", each * engine->world,
                            count);
    }
    for (uint32_t r = 0; r < engine->world; r++) {
        struct run_engine_worker *worker = &engine->workers[r];
        const uint32_t first = r * each < count ? r * each : count;
        const uint32_t own = count - first < each ? count - first : each;
        int rc = worker->rank != NULL ? feed_rank(worker, batches + first, own)
                                      : feed_remote(engine, r, batches + first, own);
        if (rc != 0) {
            return rc;
        }
        *targets += worker->targets;
    }
    return 0;
}

/* Collectives take every rank the same time, except that the slowest rank waits for nobody. */
static void compare_ranks(const struct run_engine *engine, struct run_step *step)
{
    int64_t sum_ns = 0;
    for (uint32_t r = 0; r < engine->world; r++) {
        const int64_t wait_ns = engine->workers[r].result.wait_ns;
        sum_ns += wait_ns;
        if (wait_ns < engine->workers[step->slowest].result.wait_ns) {
            step->slowest = r;
        }
    }
    step->imbalance_seconds = ((double)sum_ns / engine->world -
                               (double)engine->workers[step->slowest].result.wait_ns) *
                              1e-9;
}

static void gather_step(struct run_engine *engine, struct run_step *step)
{
    const double targets = step->targets > 0 ? (double)step->targets : 1;
    struct kern_loss loss = {0};
    for (uint32_t r = 0; r < engine->world; r++) {
        const struct run_engine_worker *worker = &engine->workers[r];
        loss.sum += worker->result.loss.sum;
        loss.chosen += worker->result.loss.chosen;
        loss.rejected += worker->result.loss.rejected;
        loss.right += worker->result.loss.right;
        step->guess_bytes += worker->result.guess_bytes;
        plan_traffic_add(&step->traffic, &worker->traffic);
    }
    compare_ranks(engine, step);
    step->stats = engine->workers[0].stats;
    step->loss = loss.sum / targets;
    step->chosen = loss.chosen / targets;
    step->rejected = loss.rejected / targets;
    step->right = (double)loss.right / targets;
    step->norm = engine->workers[0].result.norm;
    step->skipped = engine->workers[0].result.skipped;
    step->guessed = engine->workers[0].result.guessed;
    step->guess_right = step->guessed && engine->workers[0].result.norm_neutral;
}

/* Whether the next step speculates. The first rank's times and verdicts decide for all. */
static bool next_guess(const struct run_engine *engine)
{
    const struct run_options *options = engine->given.options;
    if (engine->defers || run_rank_save_due(engine->workers[0].rank)) {
        return false;
    }
    return options->guesses_given ? engine->steps < 64 && options->guesses >> engine->steps & 1
                                  : run_speculation_next(&engine->speculation);
}

static double note_guess(struct run_engine *engine, int64_t start_ns)
{
    const struct run_result *result = &engine->workers[0].result;
    const double clip = engine->given.options->clip;
    const struct run_speculation_step step = {
        .guessed = result->guessed,
        .neutral = result->norm_neutral,
        .far = result->norm_neutral && result->norm < clip / 2,
        .steady = result->steady,
        .seconds = (double)(core_clock_now_ns() - start_ns) * 1e-9};
    return run_speculation_note(&engine->speculation, &step);
}

void run_engine_betas(struct run_engine *engine, double beta1, double beta2)
{
    engine->betas[0] = beta1;
    engine->betas[1] = beta2;
}

int run_engine_step(struct run_engine *engine, const struct model_batch *batches, uint32_t count,
                    double lr, struct run_step *out)
{
    const bool scaled = engine->given.options->type == KERN_FP16;
    struct run_step step = {.step = engine->steps + 1,
                            .loss_scale = scaled ? engine->scale.value : 1};
    if (engine->error != 0) {
        return core_err_set(engine->error, "the run ended with an error before this step");
    }
    int rc = feed_ranks(engine, batches, count, &step.targets);
    if (rc != 0) {
        return rc; /* nothing has begun: the caller may try other batches */
    }
    const struct run_step_request request = {
        .lr = lr,
        .betas = {engine->betas[0], engine->betas[1]},
        .loss_scale = step.loss_scale,
        .targets = step.targets,
        .seed = model_lora_step_seed(&engine->given.model->lora, engine->steps),
        .guess = next_guess(engine)};
    const int64_t start_ns = core_clock_now_ns();
    rc = run_engine_call_ranks(engine, RUN_CALL_STEP, &request, sizeof request);
    if (rc == 0) {
        gather_step(engine, &step);
        step.guess_seconds = note_guess(engine, start_ns);
        rc = scaled ? run_scale_step(&engine->scale, step.skipped) : 0;
    }
    if (rc != 0) {
        engine->error = rc;
        return rc;
    }
    engine->defers = false;
    engine->steps++;
    *out = step;
    return 0;
}

/* ---- between steps ---- */

/* Calls all ranks unless the run has ended; an error ends it. */
static int call_between_steps(struct run_engine *engine, enum run_call call, const void *arguments,
                              size_t arguments_bytes)
{
    if (engine->error != 0) {
        return core_err_set(engine->error, "the run ended with an error before this call");
    }
    engine->error = run_engine_call_ranks(engine, call, arguments, arguments_bytes);
    return engine->error;
}

/* The first rank evaluates a batch; the others help with no batch of their own. */
static int evaluate_rank(struct run_engine *engine, struct run_engine_worker *worker,
                         const void *arguments)
{
    const struct model_batch *batch = worker == &engine->workers[0] ? arguments : NULL;
    int rc = run_rank_evaluate(worker->rank, batch, &worker->loss);
    check_kept(engine, rc);
    return rc;
}

int run_engine_evaluate(struct run_engine *engine, const struct model_batch *batch,
                        struct kern_loss *out)
{
    int rc = engine->error == 0 ? run_rank_check(engine->workers[0].rank, batch) : 0;
    if (rc != 0) {
        return rc; /* only the batch is wrong */
    }
    rc = call_between_steps(engine, RUN_CALL_EVALUATE, batch, sizeof *batch);
    if (rc == 0) {
        *out = engine->workers[0].loss;
    }
    return rc;
}

struct logits_request {
    const int32_t *ids;
    int64_t length;
    float *out;
};

static int logits_rank(struct run_engine *engine, struct run_engine_worker *worker,
                       const void *arguments)
{
    const struct logits_request *request = arguments;
    return worker == &engine->workers[0]
               ? run_rank_logits(worker->rank, request->ids, request->length, request->out)
               : run_rank_logits(worker->rank, NULL, 0, NULL);
}

int run_engine_logits(struct run_engine *engine, const int32_t *ids, int64_t length, float *out)
{
    const struct model_batch batch = {.rows = 1, .length = length, .ids = ids};
    const struct logits_request request = {ids, length, out};
    int rc = engine->error == 0 ? run_rank_check(engine->workers[0].rank, &batch) : 0;
    return rc != 0 ? rc : call_between_steps(engine, RUN_CALL_LOGITS, &request, sizeof request);
}

static int drain_rank(struct run_engine *engine, struct run_engine_worker *worker,
                      const void *arguments)
{
    (void)engine;
    (void)arguments;
    return run_rank_drain(worker->rank);
}

int run_engine_drain(struct run_engine *engine)
{
    return call_between_steps(engine, RUN_CALL_DRAIN, "", 0);
}

static int quiesce_rank(struct run_engine *engine, struct run_engine_worker *worker,
                        const void *arguments)
{
    (void)engine;
    (void)arguments;
    return run_rank_quiesce(worker->rank);
}

int run_engine_quiesce(struct run_engine *engine)
{
    return call_between_steps(engine, RUN_CALL_QUIESCE, "", 0);
}

struct weights_taker {
    run_take_weights *take;
    void *context;
};

static int take_piece(void *context, uint64_t first, uint64_t count,
                      const struct store_arrays *arrays)
{
    const struct weights_taker *taker = context;
    return taker->take(taker->context, first, count, arrays->at[STORE_STREAM_WEIGHTS]);
}

int run_engine_rank_weights(struct run_engine *engine, uint32_t rank, uint32_t block,
                            run_take_weights *take, void *context)
{
    struct weights_taker taker = {take, context};
    if (engine->workers[rank].rank != NULL) {
        return run_rank_weights(engine->workers[rank].rank, block, take, context);
    }
    int rc = run_remote_call(engine->given.peers, rank, RUN_CALL_WEIGHTS, &block, sizeof block);
    return rc != 0
               ? rc
               : run_remote_pieces(engine->given.peers, rank, engine->piece, take_piece, &taker);
}

/* The weights of a block that is kept in fewer bits, as the model's files have them. */
static int base_weights(const struct run_engine *engine, uint32_t block, run_take_weights *take,
                        void *context)
{
    enum { ELEMENTS = 1 << 20 };
    const struct model_block *from = &engine->given.model->blocks[block];
    const enum kern_type type = engine->given.options->type;
    char *buffer = malloc(ELEMENTS * kern_type_bytes(type));
    int rc = buffer != NULL ? 0 : core_err_set(-ENOMEM, "no memory to read %s", from->name);
    for (uint64_t at = 0; rc == 0 && at < from->elements; at += ELEMENTS) {
        const uint64_t left = from->elements - at;
        const uint64_t count = left < ELEMENTS ? left : ELEMENTS;
        rc = model_files_read(engine->given.files, from, at, count, model_dtype_of(type), buffer,
                              NULL);
        if (rc == 0) {
            rc = take(context, at, count, buffer);
        }
    }
    free(buffer);
    return rc;
}

int run_engine_weights(struct run_engine *engine, uint32_t block, run_take_weights *take,
                       void *context)
{
    const struct run_options *options = engine->given.options;
    const uint32_t parts = options->stage == 3 ? engine->world : 1; /* else each rank has all */
    int rc = run_engine_drain(engine);
    if (rc == 0 && engine->given.prepared->shapes->stored[block] != NULL) {
        return base_weights(engine, block, take, context);
    }
    for (uint32_t r = 0; rc == 0 && r < parts; r++) {
        rc = run_engine_rank_weights(engine, r, block, take, context);
    }
    return rc;
}

struct master_taker {
    run_take_weights *take; /* borrowed, with its context */
    void *context;
    float *floats; /* borrowed: MASTER_FLOATS */
};

enum { MASTER_FLOATS = 1 << 16 };

static int take_masters(void *context, const struct adam_arrays *arrays)
{
    const struct master_taker *taker = context;
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && at < arrays->count; at += MASTER_FLOATS) {
        const uint64_t left = arrays->count - at;
        const uint64_t count = left < MASTER_FLOATS ? left : MASTER_FLOATS;
        for (uint64_t i = 0; i < count; i++) {
            taker->floats[i] = adam_master_value(arrays, at + i);
        }
        rc = taker->take(taker->context, arrays->first + at, count, taker->floats);
    }
    return rc;
}

int run_engine_rank_masters(struct run_rank *rank, uint32_t block, run_take_weights *take,
                            void *context)
{
    struct master_taker taker = {take, context, malloc(MASTER_FLOATS * sizeof(float))};
    const struct run_take_states states = {.take = take_masters, .context = &taker};
    const int rc = taker.floats != NULL ? run_rank_states(rank, block, &states)
                                        : core_err_set(-ENOMEM, "no memory to read masters out");
    free(taker.floats);
    return rc;
}

int run_engine_masters(struct run_engine *engine, uint32_t block, run_take_weights *take,
                       void *context)
{
    const uint32_t parts = engine->given.options->stage >= 1 ? engine->world : 1;
    struct weights_taker taker = {take, context};
    int rc = run_engine_drain(engine);
    for (uint32_t r = 0; rc == 0 && r < parts; r++) {
        if (engine->workers[r].rank != NULL) {
            rc = run_engine_rank_masters(engine->workers[r].rank, block, take, context);
            continue;
        }
        rc = run_remote_call(engine->given.peers, r, RUN_CALL_MASTERS, &block, sizeof block);
        if (rc == 0) {
            rc = run_remote_pieces(engine->given.peers, r, engine->piece, take_piece, &taker);
        }
    }
    return rc;
}

int run_engine_trace(struct run_engine *engine)
{
    if (engine->given.trace == NULL) {
        return 0;
    }
    int rc = run_engine_drain(engine);
    return rc != 0 ? rc : run_rank_trace(engine->workers[0].rank);
}

int run_engine_release_checkpoint(struct run_engine *engine)
{
    return run_engine_call_ranks(engine, RUN_CALL_RELEASE, "", 0);
}

struct run_position run_engine_position(const struct run_engine *engine)
{
    return (struct run_position){.run = engine->run,
                                 .steps = engine->steps,
                                 .updates = run_rank_updates(engine->workers[0].rank),
                                 .scale = engine->scale,
                                 .base = engine->base,
                                 .products = run_rank_products(engine->workers[0].rank)};
}

void run_engine_memory(const struct run_engine *engine, uint64_t *used_bytes, uint64_t *peak_bytes)
{
    *used_bytes = run_runtime_used_bytes();
    *peak_bytes = run_runtime_peak_bytes();
    for (uint32_t r = 0; r < engine->world; r++) {
        *used_bytes += engine->workers[r].used_bytes;
        *peak_bytes += engine->workers[r].peak_bytes;
    }
}

/* ---- in the other processes ---- */

int run_engine_create_remote(const struct run_engine_options *options,
                             const struct run_remote_made *made, struct run_engine **out)
{
    struct run_engine *engine = alloc_engine(options);
    int rc = -ENOMEM;
    if (engine == NULL) {
        return rc;
    }
    memcpy(engine->drive_bytes, made->drive_bytes, sizeof engine->drive_bytes);
    engine->workers = calloc(engine->world, sizeof *engine->workers);
    rc = engine->workers != NULL ? make_rank(engine, options->options->rank, made->run)
                                 : core_err_set(-ENOMEM, "no memory for %u ranks", engine->world);
    if (rc == 0 && options->model->flat->base_apart) {
        rc = open_kept(engine);
        rc = rc == 0 ? model_sums_create(options->model, &engine->sums) : rc;
    }
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        run_engine_destroy(engine);
        return core_err_first(&kept, 0);
    }
    *out = engine;
    return 0;
}

const struct model_sums *run_engine_sums(const struct run_engine *engine)
{
    return engine->sums;
}

struct run_rank *run_engine_own(struct run_engine *engine)
{
    return engine->workers[engine->given.options->rank].rank;
}

int run_engine_serve(struct run_engine *engine, unsigned call, const void *arguments,
                     struct run_reply *reply)
{
    struct run_engine_worker *worker = &engine->workers[engine->given.options->rank];
    int rc = works[call](engine, worker, arguments);
    if (rc != 0) {
        run_rank_abort(worker->rank, rc);
        return rc;
    }
    reply->result = worker->result;
    reply->loss = worker->loss;
    reply->traffic = worker->traffic;
    reply->sums_hash = worker->sums_hash;
    return 0;
}
