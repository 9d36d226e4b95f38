/* Tests the effect of memory budgets and thrift. */
#include <errno.h>
#include <stdio.h>

#include "offload/plan/candidate.h"
#include "offload/plan/climb.h"
#include "offload/plan/policy.h"
#include "offload/plan/print.h"
#include "tests/harness/test.h"
#include "tests/plan/world.h"

static const uint64_t mib = 1 << 20;

/* Processor and drive have about the same work if everything is in the store. */
static void world_of_layers(struct world *world, bool clip)
{
    world_init(world, false, 1);
    for (int b = 0; b < BLOCKS; b++) {
        bool layer = b > 0 && b + 1 < BLOCKS;
        world->shapes[b].elements = (layer ? 64 : 96) * UNIT;
        world->shapes[b].kept_bytes = layer ? 16 * mib : 0;
        world->shapes[b].out_bytes = b + 1 < BLOCKS ? mib : 0;
        world->shapes[b].forward_bytes = world->shapes[b].backward_bytes = 4 * mib;
    }
    world->input.budgets.device_is_host = true;
    world->input.rates.shared_cores = true;
    world->input.rates.hash_bytes = 20e9;
    world->input.rates.flops = 1.2e11;
    world->input.wishes.chunk_elements = 0;
    world->input.wishes.may_clip = clip;
    world->input.wishes.may_split = true;
}

struct point {
    double seconds;
    uint64_t bytes;
    uint64_t written;
};

/* Returns false if the model does not fit. */
static bool plan_point(const struct world *world, struct point *out)
{
    struct plan *plan = NULL;
    int rc = plan_create(&world->input, &plan);
    if (rc != 0) {
        check_int(rc, ==, -EFBIG);
        return false;
    }
    *out = (struct point){.seconds = plan_predicted(plan)->step_seconds,
                          .bytes = plan_tier_bytes(plan, PLAN_DEVICE) +
                                   plan_tier_bytes(plan, PLAN_HOST),
                          .written = plan_predicted(plan)->store_write_bytes};
    plan_destroy(plan);
    return true;
}

/* Checks budgets from 8 MiB to `most`, which is more than the model needs. */
static void check_curve(struct world *world, const char *name, uint64_t most)
{
    struct point last = {.seconds = HUGE_VAL};
    struct point first = {.seconds = 0};
    double best = HUGE_VAL;
    double worst = 0;
    int points = 0;
    for (double bytes = 8.0 * (double)mib; bytes < (double)most;
         bytes *= TEST_COUNT(11, 20) / 10.0) {
        world->input.budgets.joint_bytes = (uint64_t)bytes;
        struct point point;
        if (!plan_point(world, &point)) {
            check_int(points, ==, 0); /* a model that fits also fits in more memory */
            continue;
        }
        first = points++ == 0 ? point : first;
        check_int(point.bytes, <=, (uint64_t)bytes);
        worst = fmax(worst, point.seconds / best);
        if (point.seconds > best * 1.01) {
            test_fail(__FILE__, __LINE__, "%s: %.4f s in %.0f MiB, %.4f s in less", name,
                      point.seconds, bytes / (double)mib, best);
        }
        best = fmin(best, point.seconds);
        last = point;
    }
    test_note("%s: %d budgets, %.3f s to %.3f s, at most %.2f %% slower for more", name, points,
              first.seconds, last.seconds, 100 * (worst - 1));
    check_int(points, >, TEST_COUNT(8, 2));
    check_double(last.seconds, <, first.seconds * 0.9);
    check_int(last.written, ==, 0);
}

static void more_memory_is_no_slower(void)
{
    for (int clip = TEST_COUNT(0, 1); clip < 2; clip++) {
        struct world world;
        world_of_layers(&world, clip);
        check_curve(&world, clip ? "clipped" : "not clipped", 1500 * mib);
        world.input.wishes.micro_batches = 3;
        check_curve(&world, clip ? "clipped, three micro-batches" : "three micro-batches",
                    2000 * mib);
    }
}

/* A thrifty plan saves memory for a limited loss of time. */
static void thrift_saves_memory(void)
{
    if (TEST_SLOW) {
        test_skip("it is about numbers");
    }
    for (int clip = 0; clip < 2; clip++) {
        struct world world;
        struct point fastest;
        struct point thrifty;
        struct point generous;
        world_of_layers(&world, clip);
        world.input.wishes.weights = world.input.wishes.states = PLAN_WHERE_STORE;
        check_true(plan_point(&world, &fastest));
        world.input.wishes.thrift = 0.03;
        check_true(plan_point(&world, &thrifty));
        world.input.wishes.thrift = 0.2;
        check_true(plan_point(&world, &generous));
        test_note("%s: %.3f s in %.0f MiB; %.3f s in %.0f MiB; %.3f s in %.0f MiB",
                  clip ? "clipped" : "not clipped", fastest.seconds,
                  (double)fastest.bytes / (double)mib, thrifty.seconds,
                  (double)thrifty.bytes / (double)mib, generous.seconds,
                  (double)generous.bytes / (double)mib);
        check_double(thrifty.seconds, <=, fastest.seconds * 1.03);
        check_double(generous.seconds, <=, fastest.seconds * 1.2);
        check_double((double)thrifty.bytes, <, (double)fastest.bytes * 0.98);
        check_int(generous.bytes, <, thrifty.bytes);
        check_int(thrifty.written, <=, fastest.written);
        check_int(generous.written, <=, fastest.written);
    }
}

/* If the processor limits a step, thrift leaves memory for a slower drive. */
static void thrift_leaves_slack(void)
{
    if (TEST_SLOW) {
        test_skip("it is about numbers");
    }
    for (int clip = 0; clip < 2; clip++) {
        struct world world;
        struct point fastest;
        struct plan *plan = NULL;
        struct plan *slower = NULL;
        struct plan_needs needs = {.count = 0};
        world_of_layers(&world, clip);
        world.input.wishes.weights = world.input.wishes.states = PLAN_WHERE_STORE;
        world.input.rates.flops /= 1.7;
        world.input.wishes.thrift = 0.03;
        check_int(plan_create(&world.input, &plan), ==, 0);
        world.input.wishes.thrift = 0;
        world.input.rates.read_bytes *= 0.9;
        world.input.rates.write_bytes *= 0.9;
        world.input.rates.mixed_bytes *= 0.9;
        check_true(plan_point(&world, &fastest));
        check_int(plan_candidate_create(&world.input, &plan->choice, &needs, &slower), ==, 0);
        test_note("%s: %.3f s, and %.3f s of %.3f s with a slower drive", clip ? "clipped" : "not",
                  plan_predicted(plan)->step_seconds, plan_predicted(slower)->step_seconds,
                  fastest.seconds);
        check_double(plan_predicted(slower)->step_seconds, <=, fastest.seconds * 1.031);
        plan_destroy(slower);
        plan_destroy(plan);
    }
}

/* Returns the bytes of the plan's state slots. */
static uint64_t staged(const struct world *world)
{
    struct plan *plan = NULL;
    uint64_t bytes = 0;
    check_int(plan_create(&world->input, &plan), ==, 0);
    if (plan != NULL) {
        const struct plan_layout *layout = plan->layout;
        bytes = layout->buffers[layout->state_slots[0]].bytes *
                plan_layout_slots(layout->state_slots);
    }
    plan_destroy(plan);
    return bytes;
}

/* Thrift keeps state slots for rates.window_bytes, within limits; a plan without thrift does not
 * depend on that number. */
static void thrift_keeps_drives_busy(void)
{
    for (int clip = 0; clip < 2; clip++) {
        struct world world;
        world_of_layers(&world, clip);
        world.input.wishes.weights = world.input.wishes.states = PLAN_WHERE_STORE;
        world.input.wishes.thrift = 0.2;
        const uint64_t least = staged(&world);
        world.input.rates.window_bytes = 2.0 * (double)least;
        const uint64_t kept = staged(&world);
        test_note("%s: %.1f MiB staged, %.1f MiB with a window of twice that",
                  clip ? "clipped" : "not", (double)least / (double)mib,
                  (double)kept / (double)mib);
        check_int(kept, >=, 2 * least);
        world.input.rates.window_bytes = 1e15;
        check_int(staged(&world), <, 1000 * mib);
        world.input.wishes.thrift = 0;
        const uint64_t given = staged(&world);
        world.input.rates.window_bytes = 0;
        check_int(given, ==, staged(&world));
    }
}

/* Thrift does not move data from memory to the drive. */
static void thrift_does_not_wear_drives(void)
{
    struct world world;
    struct point thrifty;
    world_of_layers(&world, true);
    world.input.wishes.thrift = 1;
    check_true(plan_point(&world, &thrifty));
    check_int(thrifty.written, ==, 0);
    struct plan *plan = NULL;
    world.input.wishes.thrift = -0.1;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    world.input.wishes.thrift = (double)NAN;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
}

TEST_MAIN({"more_memory_is_no_slower", more_memory_is_no_slower},
          {"thrift_saves_memory", thrift_saves_memory},
          {"thrift_leaves_slack", thrift_leaves_slack},
          {"thrift_keeps_drives_busy", thrift_keeps_drives_busy},
          {"thrift_does_not_wear_drives", thrift_does_not_wear_drives})
