/* engine.c: ranks side by side. One rank works on the caller's thread; of several each has a queue
 * whose thread does what is asked of all of them at once. */
#include "offload/run/engine_parts.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/queue.h"
#include "core/coll/coll.h"
#include "offload/run/saving.h"

/* Engines with such a rank: kept. */
static _Atomic(struct run_engine *) lost_engines;

/* ---- orders to all ranks ---- */

static int run_job(void *context, const void *arguments)
{
    struct run_engine_worker *member = context;
    const struct run_engine_job *job = arguments;
    int rc = job->work(job->engine, member, job->arguments);
    if (rc != 0) {
        run_rank_abort(member->rank, rc); /* the others must not wait for this one */
    }
    return rc;
}

/* Waits for a rank as long as it gets on; each of its own waits ends before that. */
static int wait_member(struct run_engine *engine, uint32_t index, struct core_fence done)
{
    const struct run_engine_worker *member = &engine->members[index];
    const int64_t limit_ns = 2 * run_options_stall_ns(&member->options);
    uint64_t before;
    uint64_t now = run_rank_pulse(member->rank);
    int rc;
    do {
        before = now;
        rc = core_fence_wait(done, limit_ns);
        now = run_rank_pulse(member->rank);
    } while (rc == -ETIMEDOUT && core_fence_poll(done) == 0 && now != before);
    if (rc == -ETIMEDOUT && core_fence_poll(done) == 0) {
        engine->lost = true;
        rc = core_err_set(-ETIMEDOUT, "rank %u has not got on for %.1f s", index,
                          (double)limit_ns / 1e9);
        for (uint32_t r = 0; r < engine->world; r++) {
            run_rank_abort(engine->members[r].rank, rc);
        }
    }
    return rc;
}

int run_engine_call_ranks(struct run_engine *engine, run_engine_work *work, const void *arguments,
                          size_t arguments_bytes)
{
    struct core_fence done[RUN_RANKS_MAX] = {{0}};
    int rc = 0;
    if (engine->world == 1) {
        return work(engine, &engine->members[0], arguments);
    }
    assert(arguments_bytes <= sizeof engine->arguments);
    memcpy(engine->arguments, arguments, arguments_bytes);
    engine->asked = (struct run_engine_job){work, engine, engine->arguments};
    for (uint32_t r = 0; rc == 0 && r < engine->world; r++) {
        const struct core_job one = {.run = run_job,
                                     .context = &engine->members[r],
                                     .arguments = &engine->asked,
                                     .arguments_bytes = sizeof engine->asked};
        rc = core_queue_submit(engine->members[r].queue, &one, &done[r]);
    }
    for (uint32_t r = 0; r < engine->world; r++) {
        int ended = engine->lost ? -ETIMEDOUT : wait_member(engine, r, done[r]);
        rc = rc != 0 ? rc : ended;
    }
    return rc;
}

/* ---- making ---- */

/* A number that tells this run from every other on this machine. */
static uint64_t run_number(const struct run_engine *engine)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed[] = {(uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, (uint64_t)getpid(),
                             (uint64_t)(uintptr_t)engine};
    return core_hash(seed, sizeof seed, 0);
}

/* How extents are spread over several stores: by what is known of their drives, for all ranks alike.
 * Rates from a file do not say it. */
static int weigh_stores(const struct run_engine *engine, double drive_bytes[STORE_PATHS_MAX])
{
    const struct run_prepared *planned = engine->given.planned;
    const unsigned count = engine->given.options->store_count;
    bool known = true;
    for (unsigned i = 0; i < count; i++) {
        drive_bytes[i] = planned->rates.drive_bytes[i];
        known = known && drive_bytes[i] > 0;
    }
    return known || count == 1 || plan_tier_bytes(planned->plan, PLAN_STORE) == 0
               ? 0
               : run_rates_weigh(planned->shapes, engine->given.options, drive_bytes);
}

static int make_rank(struct run_engine *engine, uint32_t index, uint64_t run)
{
    struct run_engine_worker *member = &engine->members[index];
    const struct run_engine_options *given = &engine->given;
    const struct run_prepared *planned = given->planned;
    int rc = 0;
    member->options = *given->options;
    member->options.rank = index;
    for (unsigned i = 0; i < member->options.store_count; i++) {
        struct store_path *path = &member->options.stores[i];
        path->weight = path->weight > 0 ? path->weight : engine->drive_bytes[i];
    }
    if (index > 0) {
        rc = run_prepared_create(given->model, &member->options, &planned->rates, &member->planned);
        planned = member->planned;
    }
    if (rc == 0 && engine->world > 1) {
        const struct core_queue_options queue = {.name = "rank", .depth = 4};
        rc = core_queue_create(&queue, &member->queue);
    }
    if (rc != 0) {
        return rc;
    }
    const struct run_rank_options rank = {
        .options = &member->options,
        .shapes = planned->shapes,
        .input = &planned->input,
        .plan = planned->plan,
        .saving = engine->saving,
        .meeting = engine->meeting,
        .run = run,
        .trace = index == 0 ? given->trace : NULL,
        .progress = index == 0 ? given->progress : NULL,
        .user = given->user,
    };
    rc = run_rank_create(&rank, &member->rank);
    return rc == -EFBIG ? -EIO
                        : rc; /* a file system's limit; only a plan that does not fit is -EFBIG */
}

/* A loss scale that was asked for by number stays, whatever the checkpoint has. */
static void resume_scale(struct run_engine *engine, double value)
{
    const double fixed = engine->scale.options.fixed;
    if (fixed > 0 && fixed != value && engine->given.options->type == KERN_FP16) {
        core_log(CORE_LOG_WARN,
                 "the loss scale is %g, as asked for; it was %g before this run was resumed", fixed,
                 value);
    }
    engine->scale.value = fixed > 0 ? fixed : value;
}

/* Ranks that planned for themselves have to do the same together (docs/decisions/032), or collectives
 * would wait for each other for ever. */
static int compare_plans(const struct run_engine *engine)
{
    const uint64_t first = plan_hash(engine->given.planned->plan);
    for (uint32_t r = 1; r < engine->world; r++) {
        const uint64_t hash = plan_hash(engine->members[r].planned->plan);
        if (hash != first) {
            return core_err_set(-EINVAL,
                                "rank %" PRIu32 " plans other common work than rank 0: %016" PRIx64
                                ", not %016" PRIx64,
                                r, hash, first);
        }
    }
    return 0;
}

/* Every rank opens the checkpoint for itself: it reads its own parts. */
static int resume(struct run_engine *engine, struct run_engine_worker *member)
{
    struct store_checkpoint *checkpoint = NULL;
    int rc = store_checkpoint_open(engine->given.checkpoint, run_options_file_io(&member->options),
                                   NULL, &checkpoint);
    rc = rc != 0 ? rc : run_rank_resume(member->rank, checkpoint);
    if (rc == 0 && member == &engine->members[0]) {
        const struct store_manifest *manifest = store_checkpoint_manifest(checkpoint);
        engine->run = manifest->run;
        engine->steps = manifest->step;
        resume_scale(engine, manifest->scale.value);
        engine->scale.steps = manifest->scale.steps;
        engine->scale.last_overflow = manifest->scale.last_overflow;
        engine->scale.hysteresis_left = manifest->scale.hysteresis_left;
    }
    const int closed = store_checkpoint_close(checkpoint);
    return rc != 0 ? rc : closed;
}

static int load(struct run_engine *engine, struct run_engine_worker *member, const void *arguments)
{
    (void)arguments;
    return engine->given.checkpoint != NULL ? resume(engine, member)
                                            : run_rank_load(member->rank, engine->given.files);
}

static int make(struct run_engine *engine)
{
    engine->run = run_number(engine);
    if (engine->world > RUN_RANKS_MAX) {
        return core_err_set(-EINVAL, "%u ranks in one process; 1 to %d are possible", engine->world,
                            RUN_RANKS_MAX);
    }
    engine->members = calloc(engine->world, sizeof *engine->members);
    if (engine->members == NULL) {
        return core_err_set(-ENOMEM, "no memory for %u ranks", engine->world);
    }
    int rc = engine->world > 1 ? coll_meeting_create(engine->world, &engine->meeting) : 0;
    if (rc == 0 && engine->given.options->wishes.saves) {
        rc = run_saving_create(&engine->saving);
    }
    rc = rc != 0 ? rc : weigh_stores(engine, engine->drive_bytes);
    for (uint32_t r = 0; rc == 0 && r < engine->world; r++) {
        rc = make_rank(engine, r, engine->run);
    }
    rc = rc != 0 ? rc : compare_plans(engine);
    if (rc != 0) {
        return rc;
    }
    rc = run_engine_call_ranks(engine, load, "", 0);
    if (engine->given.damaged != NULL) {
        *engine->given.damaged = rc != 0 && engine->given.checkpoint != NULL;
    }
    return rc;
}

int run_engine_create(const struct run_engine_options *options, struct run_engine **out)
{
    struct run_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        return core_err_set(-ENOMEM, "no memory for an engine");
    }
    engine->given = *options;
    engine->world = options->options->world > 0 ? options->options->world : 1;
    run_scale_init(&engine->scale, &options->options->scale);
    run_engine_betas(engine, options->options->group.beta1, options->options->group.beta2);
    run_speculation_init(&engine->guess);
    int rc = make(engine);
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        run_engine_destroy(engine);
        return core_err_first(&kept, 0);
    }
    *out = engine;
    return 0;
}

bool run_engine_destroy(struct run_engine *engine)
{
    if (engine == NULL) {
        return true;
    }
    if (engine->lost) {
        core_log(CORE_LOG_WARN, "a rank does not answer: what it works with is not freed");
    }
    const uint32_t members = engine->members != NULL && !engine->lost ? engine->world : 0;
    for (uint32_t r = 0; r < members; r++) {
        core_queue_destroy(engine->members[r].queue);
    }
    for (uint32_t r = 0; r < members; r++) {
        engine->lost = !run_rank_destroy(engine->members[r].rank) || engine->lost;
    }
    if (engine->lost) {
        engine->next_lost = atomic_exchange_explicit(&lost_engines, engine, memory_order_relaxed);
        return false;
    }
    for (uint32_t r = 0; r < members; r++) {
        run_prepared_destroy(engine->members[r].planned);
    }
    run_saving_destroy(engine->saving);
    coll_meeting_destroy(engine->meeting);
    free(engine->members);
    free(engine);
    return true;
}

/* ---- steps ---- */

static int step_rank(struct run_engine *engine, struct run_engine_worker *member,
                     const void *arguments)
{
    (void)engine;
    return run_rank_step(member->rank, arguments, &member->result);
}

/* Each rank gets its run of micro-batches. */
static int feed(struct run_engine *engine, const struct model_batch *batches, uint32_t count,
                int64_t *targets)
{
    const uint32_t each = engine->given.options->micro_batches;
    *targets = 0;
    if (count > each * engine->world) {
        return core_err_set(-EINVAL, "%u micro-batches are more than the %u of a step", count,
                            each * engine->world);
    }
    for (uint32_t r = 0; r < engine->world; r++) {
        struct run_engine_worker *member = &engine->members[r];
        const uint32_t first = r * each < count ? r * each : count;
        const uint32_t own = count - first < each ? count - first : each;
        int rc = run_rank_feed(member->rank, batches + first, own, &member->targets);
        if (rc != 0) {
            return rc;
        }
        *targets += member->targets;
    }
    return 0;
}

static void gather_step(struct run_engine *engine, struct run_step *step)
{
    double loss_sum = 0;
    for (uint32_t r = 0; r < engine->world; r++) {
        struct run_engine_worker *member = &engine->members[r];
        const struct plan_traffic traffic = run_rank_traffic_take(member->rank);
        const struct run_stats stats = run_rank_stats_take(member->rank);
        loss_sum += member->result.loss_sum;
        step->guess_bytes += member->result.guess_bytes;
        plan_traffic_add(&step->traffic, &traffic);
        step->stats = r == 0 ? stats : step->stats;
    }
    step->loss = step->targets > 0 ? loss_sum / (double)step->targets : 0;
    step->norm = engine->members[0].result.norm;
    step->skipped = engine->members[0].result.skipped;
    step->guessed = engine->members[0].result.guessed;
    step->guess_right = step->guessed && engine->members[0].result.norm_neutral;
}

/* Whether the next update goes ahead of its norm: the first rank's time and verdict speak for all. */
static bool next_guess(const struct run_engine *engine)
{
    const struct run_options *options = engine->given.options;
    if (engine->defers || run_rank_save_due(engine->members[0].rank)) {
        return false;
    }
    return options->guesses_given ? engine->steps < 64 && options->guesses >> engine->steps & 1
                                  : run_speculation_next(&engine->guess);
}

static double note_guess(struct run_engine *engine, int64_t start_ns)
{
    const struct run_result *result = &engine->members[0].result;
    const double clip = engine->given.options->clip;
    const struct run_speculation_step step = {
        .guessed = result->guessed,
        .neutral = result->norm_neutral,
        .far = result->norm_neutral && result->norm < clip / 2,
        .steady = result->steady,
        .seconds = (double)(core_clock_now_ns() - start_ns) * 1e-9};
    return run_speculation_note(&engine->guess, &step);
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
    int rc = engine->error != 0
                 ? core_err_set(engine->error, "the run ended with an error before this step")
                 : feed(engine, batches, count, &step.targets);
    if (rc != 0) {
        return rc; /* nothing has begun: other batches may do */
    }
    const struct run_step_request order = {.lr = lr,
                                           .betas = {engine->betas[0], engine->betas[1]},
                                           .loss_scale = step.loss_scale,
                                           .targets = step.targets,
                                           .guess = next_guess(engine)};
    const int64_t start_ns = core_clock_now_ns();
    rc = run_engine_call_ranks(engine, step_rank, &order, sizeof order);
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
