/* Proves that edges suffice: in orders that they allow, commands read what program order reads. */
#include <stdlib.h>

#include "tests/harness/test.h"
#include "tests/plan/model.h"
#include "tests/plan/order.h"
#include "tests/plan/world.h"

/* Runs the tapes in an order drawn from the seed (0: program order); writes one digest per
 * command. */
static void run_shuffled(struct model *model, uint64_t seed, uint64_t *digests)
{
    struct order order = {.tape_count = model->tape_count};
    uint32_t total = model_first_number(model, model->tape_count) - 1;
    for (uint32_t b = 0; b < plan_buffer_count(model->plan); b++) {
        memset(model->versions[b], 0, (model->border_counts[b] + 1) * sizeof(uint32_t));
    }
    for (uint32_t t = 0; t < model->tape_count; t++) {
        order.tapes[t] = model->tapes[t];
    }
    order_begin(&order);
    uint32_t program_tape = 0;
    uint32_t program_index = 0;
    for (uint32_t done = 0; done < total; done++) {
        int chosen = -1;
        if (seed == 0) {
            while (program_index == model->tapes[program_tape]->count) {
                program_tape++;
                program_index = 0;
            }
            chosen = model->tapes[program_tape]->commands[program_index++].queue;
            check_true(order_ready(&order, chosen));
        } else {
            chosen = order_draw(&order, seed, done);
        }
        if (chosen < 0) {
            test_fail(__FILE__, __LINE__, "seed %" PRIu64 ": nothing can run after %u of %u", seed,
                      done, total);
        }
        uint32_t number = model_first_number(model, order.tape[chosen]) + order.index[chosen];
        digests[number] = model_run(model, order_at(&order, chosen), number);
        order_done(&order, chosen);
    }
}

static void check_interleavings(const struct plan *plan, const enum plan_kind *kinds, int seeds)
{
    struct model model = {.plan = plan, .tape_count = 3};
    enum plan_kind before = PLAN_KIND_COUNT;
    for (uint32_t t = 0; t < 3; t++) {
        model.tapes[t] = plan_tape(plan, before, kinds[t]);
        check_true(model.tapes[t] != NULL);
        before = kinds[t];
    }
    model_init(&model);
    uint32_t total = model_first_number(&model, 3);
    uint64_t *expected = calloc(total, sizeof *expected);
    uint64_t *got = calloc(total, sizeof *got);
    run_shuffled(&model, 0, expected);
    for (int seed = 1; seed <= seeds; seed++) {
        run_shuffled(&model, (uint64_t)seed, got);
        for (uint32_t n = 1; n < total; n++) {
            if (got[n] != expected[n]) {
                test_fail(__FILE__, __LINE__, "seed %d: command %u read something else", seed, n);
            }
        }
    }
    free(expected);
    free(got);
    model_fini(&model);
}

static void edges_are_sufficient(void)
{
    for (int variant = 0; variant < 32; variant++) {
        struct world world;
        world_init(&world, variant & 1, variant & 2 ? 3 : 1);
        struct plan_wishes *wishes = &world.input.wishes;
        wishes->acts = (enum plan_acts)(PLAN_ACTS_KEEP + variant / 8);
        wishes->order = variant & 2 && variant & 4 ? PLAN_ORDER_MICRO : PLAN_ORDER_LAYER;
        bool inside = (variant / 4 + variant / 8) % 2 == 1;
        wishes->may_clip = !inside;
        wishes->timing = inside ? PLAN_TIMING_INSIDE : PLAN_TIMING_DEFERRED;
        wishes->weights = variant % 3 == 0 ? PLAN_WHERE_HOST : PLAN_WHERE_STORE;
        wishes->states = variant % 5 == 0 ? PLAN_WHERE_HOST : PLAN_WHERE_STORE;
        wishes->weight_slots = 2 + (uint32_t)variant % 3;
        wishes->state_slots = 1 + (uint32_t)variant % 4;
        world.input.budgets.device_is_host = variant & 4;
        struct plan *plan = world_plan(&world);
        const enum plan_kind deferred[] = {PLAN_FIRST, PLAN_NEXT, PLAN_NEXT};
        const enum plan_kind plain[] = {PLAN_FIRST, PLAN_FIRST, PLAN_FIRST};
        const enum plan_kind drained[] = {PLAN_FIRST, PLAN_DRAIN, PLAN_EVAL};
        const enum plan_kind evaluated[] = {PLAN_FIRST, PLAN_EVAL, PLAN_FIRST};
        int seeds = TEST_COUNT(40, 4);
        check_interleavings(plan, inside ? plain : deferred, seeds);
        check_interleavings(plan, inside ? evaluated : drained, seeds);
        plan_destroy(plan);
    }
}

/* Tests the test: most missing edges cause a wrong read in some order. */
static void missing_edges_are_noticed(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.wishes.weights = PLAN_WHERE_STORE;
    world.input.wishes.states = PLAN_WHERE_STORE;
    struct plan *plan = world_plan(&world);
    struct model model = {.plan = plan, .tape_count = 1};
    const struct plan_tape *whole = plan_tape(plan, PLAN_NEXT, PLAN_NEXT);
    struct plan_tape cut = *whole;
    cut.commands = malloc(whole->count * sizeof *cut.commands);
    model.tapes[0] = &cut;
    memcpy(cut.commands, whole->commands, whole->count * sizeof *cut.commands);
    model_init(&model);
    uint64_t *expected = calloc(whole->count + 1, sizeof *expected);
    uint64_t *got = calloc(whole->count + 1, sizeof *got);
    run_shuffled(&model, 0, expected);
    int edges = 0;
    int noticed = 0;
    for (uint32_t i = 0; i < whole->count; i += 3) {
        for (int e = 0; e < PLAN_EDGE_MAX; e++) {
            if (whole->commands[i].edges[e].queue == PLAN_Q_COUNT ||
                whole->commands[i].edges[e].count <= 0) {
                continue;
            }
            edges++;
            cut.commands[i].edges[e].queue = PLAN_Q_COUNT;
            bool wrong = false;
            for (uint64_t seed = 1; seed <= 60 && !wrong; seed++) {
                run_shuffled(&model, seed, got);
                wrong = memcmp(got, expected, (whole->count + 1) * sizeof *got) != 0;
            }
            noticed += wrong;
            cut.commands[i] = whole->commands[i];
        }
    }
    test_note("%d of %d edges were missed when they were gone", noticed, edges);
    check_int(edges, >, 20);
    check_int(noticed, >=, edges * 8 / 10);
    free(expected);
    free(got);
    model_fini(&model);
    free(cut.commands);
    plan_destroy(plan);
}

TEST_MAIN({"edges_are_sufficient", edges_are_sufficient},
          {"missing_edges_are_noticed", missing_edges_are_noticed})
