/* engine.c: creates an engine, takes its steps, and serves calls between steps. */
#include "offload/run/engine_internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/queue.h"
#include "core/coll/coll.h"
#include "offload/run/checkpoint_writer.h"
#include "offload/run/runtime.h"

/* Engines with a rank that did not return; not freed, because the rank may still use them. */
static _Atomic(struct run_engine *) lost_engines;

static run_engine_work step_rank, evaluate_rank, logits_rank, drain_rank, quiesce_rank,
    release_rank;

static run_engine_work *const works[RUN_CALL_RANKS] = {
    [RUN_CALL_LOAD] = run_engine_load_rank, [RUN_CALL_STEP] = step_rank,
    [RUN_CALL_EVALUATE] = evaluate_rank,    [RUN_CALL_LOGITS] = logits_rank,
    [RUN_CALL_DRAIN] = drain_rank,          [RUN_CALL_QUIESCE] = quiesce_rank,
    [RUN_CALL_RELEASE] = release_rank,
};

/* ---- creating and destroying ---- */

static int release_rank(struct run_engine *engine, struct run_engine_worker *worker,
                        const void *arguments)
{
    (void)engine;
    (void)arguments;
    return run_rank_release_checkpoint(worker->rank);
}

static struct run_engine *alloc_engine(const struct run_engine_options *options)
{
    struct run_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        core_err_set(-ENOMEM, "no memory for an engine");
        return NULL;
    }
    engine->given = *options;
    engine->works = works;
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
    int rc = run_engine_make(engine);
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

/* Other processes begin to destroy theirs first, because ranks wait for each other. */
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
    run_engine_base_close(engine);
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
    run_engine_base_check(engine, rc);
    worker->traffic = run_rank_traffic_take(worker->rank);
    run_rank_moved_take(worker->rank, &worker->moved);
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
    int rc = count == 0 ? run_rank_feed(worker->rank, 0, 0, NULL, &targets) : 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        rc = run_rank_feed(worker->rank, i, count, &batches[i], &targets);
    }
    if (rc != 0) {
        return rc;
    }
    worker->targets = targets;
    return 0;
}

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

/* The slowest rank is the one that waited least for the others. */
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
        for (size_t i = 0; i < STORE_PATHS_MAX; i++) {
            step->moved.paths[i].read_bytes += worker->moved.paths[i].read_bytes;
            step->moved.paths[i].write_bytes += worker->moved.paths[i].write_bytes;
        }
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

/* The first rank's times and verdicts decide whether all ranks speculate next. */
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
        return rc; /* nothing has begun, so the caller may try other batches */
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

/* An error ends the run. */
static int call_between_steps(struct run_engine *engine, enum run_call call, const void *arguments,
                              size_t arguments_bytes)
{
    if (engine->error != 0) {
        return core_err_set(engine->error, "the run ended with an error before this call");
    }
    engine->error = run_engine_call_ranks(engine, call, arguments, arguments_bytes);
    return engine->error;
}

/* The first rank evaluates; the others take part without a batch. */
static int evaluate_rank(struct run_engine *engine, struct run_engine_worker *worker,
                         const void *arguments)
{
    const struct model_batch *batch = worker == &engine->workers[0] ? arguments : NULL;
    int rc = run_rank_evaluate(worker->rank, batch, &worker->loss);
    run_engine_base_check(engine, rc);
    return rc;
}

int run_engine_evaluate(struct run_engine *engine, const struct model_batch *batch,
                        struct kern_loss *out)
{
    int rc = engine->error == 0 ? run_rank_check(engine->workers[0].rank, batch) : 0;
    if (rc != 0) {
        return rc; /* only the batch is wrong; the run continues */
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
    const int rc = worker == &engine->workers[0]
                       ? run_rank_logits(worker->rank, request->ids, request->length, request->out)
                       : run_rank_logits(worker->rank, NULL, 0, NULL);
    run_engine_base_check(engine, rc);
    return rc;
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

static int rank_weights(struct run_engine *engine, uint32_t rank, uint32_t block,
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

/* Reads the weights from the model's files, because the block keeps them in fewer bits. */
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
    const uint32_t parts = options->stage == 3 ? engine->world : 1; /* at other stages a rank has
                                                                     * all weights */
    int rc = run_engine_drain(engine);
    if (rc == 0 && engine->given.prepared->shapes->stored[block] != NULL) {
        return base_weights(engine, block, take, context);
    }
    for (uint32_t r = 0; rc == 0 && r < parts; r++) {
        rc = rank_weights(engine, r, block, take, context);
    }
    return rc;
}

struct master_taker {
    run_take_weights *take; /* borrowed, with its context */
    void *context;
    float *floats; /* borrowed, [MASTER_FLOATS] */
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
    rc = engine->workers != NULL ? run_engine_make_rank(engine, options->options->rank, made->run)
                                 : core_err_set(-ENOMEM, "no memory for %u ranks", engine->world);
    if (rc == 0 && options->model->flat->base_apart) {
        rc = run_engine_base_open(engine);
        if (rc == 0) {
            rc = model_sums_create(options->model, &engine->sums);
        }
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
    int rc = engine->works[call](engine, worker, arguments);
    if (rc != 0) {
        run_rank_abort(worker->rank, rc);
        return rc;
    }
    reply->result = worker->result;
    reply->loss = worker->loss;
    reply->traffic = worker->traffic;
    reply->moved = worker->moved;
    reply->sums_hash = worker->sums_hash;
    return 0;
}
