/* Proves that planning ends with a message and frees everything if an allocation fails. */
#include <errno.h>

#include "core/base/err.h"
#include "offload/plan/flow.h"
#include "offload/plan/trace.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"
#include "tests/plan/world.h"

static struct world world;

static int plan_life(void)
{
    struct plan *plan = NULL;
    int rc = plan_create(&world.input, &plan);
    if (rc == 0) {
        rc = plan_trace_predict(&world.input, plan, 2, "/dev/null");
    }
    plan_destroy(plan);
    return rc;
}

/* Limits the number of requests. */
static void lean_world(void)
{
    world_init(&world, true, 1);
    struct plan_wishes *wishes = &world.input.wishes;
    wishes->weights = wishes->states = PLAN_WHERE_STORE;
    wishes->acts = PLAN_ACTS_RECOMPUTE;
    wishes->order = PLAN_ORDER_LAYER;
    wishes->weight_slots = wishes->state_slots = 2;
    wishes->chunk_elements = 8 * UNIT;
}

static void every_request_fails_once(void)
{
    if (TEST_SLOW) {
        test_skip("the rank of ranks_plan_or_fail makes the same requests and more");
    }
    lean_world();
    unsigned failed = test_fail_nth(plan_life);
    test_note("%u requests", failed);
    check_int(failed, >=, 50);
}

static void ranks_plan_or_fail(void)
{
    for (uint32_t rank = TEST_COUNT(0, 1); rank < 2; rank++) {
        lean_world();
        world.input.world = 2;
        world.input.stage = 3;
        world.input.rank = rank;
        check_int(test_fail_nth(plan_life), >=, 50);
    }
}

/* Not everything fits into the budget. */
static void tight_world(void)
{
    world_init(&world, true, 1);
    world.input.budgets.host_bytes = 9 * world_parameters(&world);
    world.input.wishes.acts = PLAN_ACTS_RECOMPUTE;
    world.input.wishes.order = PLAN_ORDER_LAYER;
    world.input.wishes.chunk_elements = 8 * UNIT;
}

static int choice_life(void)
{
    struct plan *plan = NULL;
    const int rc = plan_create(&world.input, &plan);
    plan_destroy(plan);
    return rc;
}

static void a_search_ends(void)
{
    if (TEST_SLOW) {
        test_skip("the rank of ranks_plan_or_fail makes the same requests");
    }
    tight_world();
    const unsigned failed = test_fail_every(choice_life, 31);
    test_note("%u requests", failed);
    check_int(failed, >=, 500);
}

/* Returns 0 for a plan, or for a refusal that names budgets. */
static int refusal_life(void)
{
    struct plan *plan = NULL;
    const int rc = plan_create(&world.input, &plan);
    plan_destroy(plan);
    return rc == -EFBIG ? 0 : rc;
}

/* The store is too small; memory is large enough, or too small as well. */
static void a_small_store_ends(void)
{
    tight_world();
    world.input.wishes.state_slots = 2;
    world.input.wishes.weight_slots = 2;
    world.input.wishes.timing = PLAN_TIMING_DEFERRED;
    world.input.budgets.host_bytes = 16 * world_parameters(&world);
    world.input.budgets.store_bytes = 4 * world_parameters(&world);
    const unsigned fitting = test_fail_every(choice_life, 17);
    world.input.budgets.host_bytes = world_parameters(&world);
    world.input.budgets.advice_spare_bytes = 1 << 20;
    check_int(choice_life(), ==, -EFBIG);
    const unsigned refused = test_fail_every(refusal_life, 61);
    test_note("%u and %u requests", fitting, refused);
    check_int(fitting, >=, 100);
    check_int(refused, >=, 100);
}

static void a_thrifty_choice_ends(void)
{
    tight_world();
    world.input.budgets.host_bytes = UINT64_C(1) << 40;
    world.input.wishes.weights = world.input.wishes.states = PLAN_WHERE_STORE;
    world.input.wishes.weight_slots = 4;
    world.input.wishes.timing = PLAN_TIMING_DEFERRED;
    world.input.wishes.thrift = 0.5;
    const unsigned failed = test_fail_every(choice_life, 211);
    test_note("%u requests", failed);
    check_int(failed, >=, 100);
}

static int trace_life(void)
{
    struct plan_trace *trace = NULL;
    const int rc = plan_trace_create(0, 2, 8, &trace);
    plan_trace_destroy(trace);
    return rc;
}

static void a_timeline_ends(void)
{
    check_int(test_fail_nth(trace_life), ==, 4);
}

static int flow_life(void)
{
    struct plan *plan = NULL;
    struct plan_flow *flow = NULL;
    int rc = plan_create(&world.input, &plan);
    if (rc == 0) {
        rc = plan_flow_create(&world.input, plan, &flow);
    }
    plan_flow_destroy(flow);
    plan_destroy(plan);
    return rc;
}

static void flows_end(void)
{
    world_lend(&world, 1);
    world.input.wishes.states = PLAN_WHERE_STORE;
    check_int(test_fail_nth(flow_life), >=, 20);
}

TEST_MAIN({"a_search_ends", a_search_ends}, {"a_small_store_ends", a_small_store_ends},
          {"a_thrifty_choice_ends", a_thrifty_choice_ends}, {"a_timeline_ends", a_timeline_ends},
          {"flows_end", flows_end}, {"every_request_fails_once", every_request_fails_once},
          {"ranks_plan_or_fail", ranks_plan_or_fail})
