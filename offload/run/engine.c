/* engine.c: one rank on the caller's thread. */
#include "offload/run/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/hash.h"

struct run_engine {
    struct run_engine_options given;
    struct run_rank *rank; /* owned */
    struct run_scale scale;
    uint64_t steps;
    int error; /* of the call after which nothing can go on */
};

/* A number that tells this run from every other on this machine. */
static uint64_t run_number(const struct run_engine *engine)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed[] = {(uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, (uint64_t)getpid(),
                             (uint64_t)(uintptr_t)engine};
    return core_hash(seed, sizeof seed, 0);
}

int run_engine_create(const struct run_engine_options *options, struct run_engine **out)
{
    struct run_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        return core_err_set(-ENOMEM, "no memory for an engine");
    }
    engine->given = *options;
    run_scale_init(&engine->scale, &options->options->scale);
    const struct run_rank_options rank = {
        .options = options->options,
        .shapes = options->planned->shapes,
        .input = &options->planned->input,
        .plan = options->planned->plan,
        .run = run_number(engine),
        .trace = options->trace,
        .progress = options->progress,
        .user = options->user,
    };
    int rc = run_rank_create(&rank, &engine->rank);
    rc = rc != 0 ? rc : run_rank_load(engine->rank, options->files);
    if (rc != 0) {
        char sentence[CORE_ERR_SENTENCE_BYTES];
        snprintf(sentence, sizeof sentence, "%s", core_err_sentence());
        run_engine_destroy(engine);
        return core_err_adopt(rc, sentence);
    }
    *out = engine;
    return 0;
}

void run_engine_destroy(struct run_engine *engine)
{
    if (engine == NULL) {
        return;
    }
    run_rank_destroy(engine->rank);
    free(engine);
}

int run_engine_step(struct run_engine *engine, const struct model_batch *batches, uint32_t count,
                    double lr, struct run_step *out)
{
    const bool scaled = engine->given.options->type == KERN_FP16;
    struct run_step step = {.step = engine->steps + 1,
                            .loss_scale = scaled ? engine->scale.value : 1};
    struct run_result result;
    int64_t targets = 0;
    int rc = engine->error != 0
                 ? core_err_set(engine->error, "the run ended with an error before this step")
                 : run_rank_feed(engine->rank, batches, count, &targets);
    if (rc != 0) {
        return rc; /* nothing has begun: other batches may do */
    }
    rc = run_rank_step(engine->rank, lr, step.loss_scale, targets, &result);
    rc = rc == 0 && scaled ? run_scale_step(&engine->scale, result.skipped) : rc;
    if (rc != 0) {
        engine->error = rc;
        return rc;
    }
    engine->steps++;
    step.loss = result.targets > 0 ? result.loss_sum / (double)result.targets : 0;
    step.norm = result.norm;
    step.skipped = result.skipped;
    step.targets = result.targets;
    step.traffic = run_rank_traffic_take(engine->rank);
    step.stats = run_rank_stats_take(engine->rank);
    *out = step;
    return 0;
}

int run_engine_evaluate(struct run_engine *engine, const struct model_batch *batch,
                        struct kern_loss *out)
{
    if (engine->error != 0) {
        return core_err_set(engine->error, "the run ended with an error before this evaluation");
    }
    return run_rank_evaluate(engine->rank, batch, out);
}

struct run_rank *run_engine_rank(struct run_engine *engine, uint32_t rank)
{
    return rank == 0 ? engine->rank : NULL;
}
