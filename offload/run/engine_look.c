/* engine_look.c: what is asked of a run between its steps: losses and logits of other batches, its weights,
 * where it is. */
#include "core/base/err.h"
#include "offload/run/engine_parts.h"

static int evaluate_rank(struct run_engine *engine, struct run_engine_worker *member,
                         const void *arguments)
{
    const struct model_batch *batch = member == &engine->members[0] ? arguments : NULL;
    return run_rank_evaluate(member->rank, batch, &member->loss);
}

int run_engine_evaluate(struct run_engine *engine, const struct model_batch *batch,
                        struct kern_loss *out)
{
    if (engine->error != 0) {
        return core_err_set(engine->error, "the run ended with an error before this evaluation");
    }
    int rc = run_rank_check(engine->members[0].rank, batch);
    if (rc != 0) {
        return rc;
    }
    rc = run_engine_call_ranks(engine, evaluate_rank, batch, sizeof *batch);
    engine->error = rc;
    if (rc == 0) {
        *out = engine->members[0].loss;
    }
    return rc;
}

struct logits_order {
    const int32_t *ids;
    int64_t length;
    float *out;
};

static int logits_rank(struct run_engine *engine, struct run_engine_worker *member,
                       const void *arguments)
{
    const struct logits_order *order = arguments;
    return member == &engine->members[0]
               ? run_rank_logits(member->rank, order->ids, order->length, order->out)
               : run_rank_evaluate(member->rank, NULL, &member->loss);
}

int run_engine_logits(struct run_engine *engine, const int32_t *ids, int64_t length, float *out)
{
    const struct model_batch batch = {.rows = 1, .length = length, .ids = ids};
    const struct logits_order order = {ids, length, out};
    if (engine->error != 0) {
        return core_err_set(engine->error, "the run ended with an error before this");
    }
    int rc = run_rank_check(engine->members[0].rank, &batch);
    if (rc == 0) {
        rc = run_engine_call_ranks(engine, logits_rank, &order, sizeof order);
        engine->error = rc;
    }
    return rc;
}

static int drain_rank(struct run_engine *engine, struct run_engine_worker *member,
                      const void *arguments)
{
    (void)engine;
    (void)arguments;
    return run_rank_drain(member->rank);
}

int run_engine_drain(struct run_engine *engine)
{
    int rc = engine->error != 0
                 ? core_err_set(engine->error, "the run ended with an error before this")
                 : run_engine_call_ranks(engine, drain_rank, "", 0);
    engine->error = rc;
    return rc;
}

int run_engine_trace(struct run_engine *engine)
{
    int rc = engine->given.trace != NULL ? run_engine_drain(engine) : 0;
    return rc != 0 ? rc : run_rank_trace(run_engine_rank(engine, 0));
}

int run_engine_release_checkpoint(struct run_engine *engine)
{
    int rc = 0;
    for (uint32_t r = 0; rc == 0 && r < run_engine_world(engine); r++) {
        rc = run_rank_release_checkpoint(run_engine_rank(engine, r));
    }
    return rc;
}

static int rest_rank(struct run_engine *engine, struct run_engine_worker *member,
                     const void *arguments)
{
    (void)engine;
    (void)arguments;
    return run_rank_quiesce(member->rank);
}

int run_engine_quiesce(struct run_engine *engine)
{
    int rc = engine->error != 0
                 ? core_err_set(engine->error, "the run ended with an error before this")
                 : run_engine_call_ranks(engine, rest_rank, "", 0);
    engine->error = rc;
    return rc;
}

void run_engine_defer_next(struct run_engine *engine)
{
    engine->defers = true;
}

struct run_saving *run_engine_saving(struct run_engine *engine)
{
    return engine->saving;
}

int run_engine_weights(struct run_engine *engine, uint32_t block, run_take_weights *take,
                       void *context)
{
    const struct run_options *options = engine->given.options;
    const uint32_t parts = options->stage == 3 ? engine->world : 1; /* else each rank has all */
    int rc = run_engine_drain(engine);
    for (uint32_t r = 0; rc == 0 && r < parts; r++) {
        rc = run_rank_weights(engine->members[r].rank, block, take, context);
    }
    return rc;
}

struct run_position run_engine_position(const struct run_engine *engine)
{
    return (struct run_position){.run = engine->run,
                                 .steps = engine->steps,
                                 .updates = run_rank_updates(engine->members[0].rank),
                                 .scale = engine->scale,
                                 .products = run_rank_products(engine->members[0].rank)};
}

const struct run_engine_options *run_engine_given(const struct run_engine *engine)
{
    return &engine->given;
}

uint32_t run_engine_world(const struct run_engine *engine)
{
    return engine->world;
}

struct run_rank *run_engine_rank(struct run_engine *engine, uint32_t rank)
{
    return rank < engine->world ? engine->members[rank].rank : NULL;
}
