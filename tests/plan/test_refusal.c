/* Tests refusals: the budgets that a refusal names suffice, and slightly smaller ones do not. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "offload/plan/needs.h"
#include "tests/harness/test.h"
#include "tests/plan/world.h"

static const uint64_t mib = 1 << 20;

static void the_set_keeps_what_nothing_beats(void)
{
    struct plan_needs needs = {.count = 0};
    struct plan_need out;
    const struct plan_need any = {{1000, 1000, 1000}};
    check_true(!plan_needs_together(&needs, 1000, &out));
    plan_needs_note(&needs, &(struct plan_need){{10, 20, 30}});
    plan_needs_note(&needs, &(struct plan_need){{10, 20, 30}});
    check_int(needs.count, ==, 1);
    plan_needs_note(&needs, &(struct plan_need){{11, 20, 30}});
    check_int(needs.count, ==, 1);
    plan_needs_note(&needs, &(struct plan_need){{40, 5, 30}});
    plan_needs_note(&needs, &(struct plan_need){{5, 100, 0}});
    check_int(needs.count, ==, 3);
    check_true(plan_needs_least(&needs, PLAN_HOST, &any, 0, &out));
    check_int(out.bytes[PLAN_HOST], ==, 5);
    check_true(plan_needs_least(&needs, PLAN_HOST, &any, 44, &out));
    check_int(out.bytes[PLAN_HOST], ==, 20);
    check_true(plan_needs_least(&needs, PLAN_HOST, &(struct plan_need){{1000, 0, 29}}, 0, &out));
    check_int(out.bytes[PLAN_HOST], ==, 100);
    check_true(!plan_needs_least(&needs, PLAN_HOST, &(struct plan_need){{4, 0, 1000}}, 0, &out));
    check_true(plan_needs_together(&needs, 1000, &out));
    check_int(out.bytes[PLAN_DEVICE], ==, 10);
    check_true(plan_needs_together(&needs, 29, &out));
    check_int(out.bytes[PLAN_DEVICE], ==, 5);
    plan_needs_note(&needs, &(struct plan_need){{1, 1, 0}});
    check_int(needs.count, ==, 1);
    for (uint64_t i = 0; i < 2 * PLAN_NEEDS_MAX; i++) {
        plan_needs_note(&needs, &(struct plan_need){{2000 - i, 0, i}});
    }
    check_int(needs.count, ==, PLAN_NEEDS_MAX);
}

/* Budgets are in MiB. */
static int plans(const struct world *world, uint64_t device, uint64_t host, uint64_t store)
{
    struct plan_input input = world->input;
    struct plan *plan = NULL;
    input.budgets.device_bytes = device * mib;
    input.budgets.host_bytes = host * mib;
    input.budgets.store_bytes = store * mib;
    int rc = plan_create(&input, &plan);
    plan_destroy(plan);
    return rc;
}

/* Returns the number after a flag among the alternatives ("any one of"), or 0. */
static uint64_t alone(const char *message, const char *flag)
{
    const char *any = strstr(message, "any one of: ");
    const char *end = strstr(message, "; the least memory");
    const char *at = any != NULL ? strstr(any, flag) : NULL;
    return at != NULL && (end == NULL || at < end) ? strtoull(at + strlen(flag), NULL, 10) : 0;
}

/* Checks what the refusal of these budgets names. Returns the number of alternatives. */
static int check_refusal(const struct world *world, const char *name, uint64_t device,
                         uint64_t host, uint64_t store)
{
    char message[CORE_ERR_MESSAGE_BYTES];
    check_int(plans(world, device, host, store), ==, -EFBIG);
    snprintf(message, sizeof message, "%s", core_err_message());
    test_note("%s: %s", name, message);
    const uint64_t more[3] = {alone(message, "--device-memory "), alone(message, "--host-memory "),
                              alone(message, "--store DIR:")};
    /* The numbers are exact to 1 MiB, unless whole blocks and chunks must fit into STORE. */
    const uint64_t part = store < 100;
    const uint64_t fewer[3] = {1 + part * 6, 1 + part * 6, more[2] / 8};
    int named = 0;
    for (int t = 0; t < 3; t++) {
        if (more[t] == 0) {
            continue;
        }
        named++;
        check_int(plans(world, t == 0 ? more[0] : device, t == 1 ? more[1] : host,
                        t == 2 ? more[2] : store),
                  ==, 0);
        check_int(plans(world, t == 0 ? more[0] - fewer[0] : device,
                        t == 1 ? more[1] - fewer[1] : host, t == 2 ? more[2] - fewer[2] : store),
                  ==, -EFBIG);
    }
    const char *at = strstr(message, "; the least memory");
    uint64_t together[3] = {0};
    at = at != NULL ? strchr(at, ':') : NULL;
    check_true(at != NULL);
    check_int(
        sscanf(at, ": --device-memory %" SCNu64 "M --host-memory %" SCNu64 "M --store DIR:%" SCNu64,
               &together[0], &together[1], &together[2]),
        >=, 2);
    struct world larger = *world;
    larger.input.budgets.joint_bytes = world->input.budgets.joint_bytes > 0
                                           ? (together[0] + together[1]) * mib
                                           : 0;
    larger.input.blocks = larger.shapes;
    check_int(plans(&larger, together[0], together[1], together[2]), ==, 0);
    const uint64_t cut = 1 + 8 * part < together[1] ? 1 + 8 * part : together[1];
    check_int(plans(&larger, together[0], together[1] - cut, together[2]), ==, -EFBIG);
    const char *stored = strstr(message, "; with a drive, less is sufficient: ");
    check_true((stored != NULL) == (store == 0 && together[2] == 0));
    if (stored != NULL) {
        uint64_t drive[3] = {0};
        check_int(sscanf(strchr(stored, ':'),
                         ": --store DIR:%" SCNu64 "M --device-memory %" SCNu64
                         "M --host-memory %" SCNu64,
                         &drive[2], &drive[0], &drive[1]),
                  ==, 3);
        check_uint(drive[0] + drive[1], <, together[0] + together[1]);
        check_int(plans(&larger, drive[0], drive[1], drive[2]), ==, 0);
        check_int(plans(&larger, drive[0], drive[1], 0), ==, -EFBIG);
    }
    return named;
}

static void a_card_is_refused_with_what_would_do(void)
{
    struct world world;
    world_init(&world, false, 2);
    check_int(check_refusal(&world, "both too small", 1, 1, 1000), ==, 0);
    check_int(check_refusal(&world, "host too small", 100, 1, 1000), ==, 1);
    check_int(check_refusal(&world, "device too small", 1, 100, 1000), ==, 1);
    check_int(check_refusal(&world, "no store", 100, 20, 0), >=, 2);
    check_int(check_refusal(&world, "no store, both too small", 1, 1, 0), ==, 0);
    check_int(check_refusal(&world, "a small store", 100, 20, 8), >=, 2);
    world.input.wishes.weights = world.input.wishes.states = PLAN_WHERE_STORE;
    check_int(check_refusal(&world, "all in a small store", 100, 100, 8), ==, 1);
    world.input.wishes.grads = PLAN_WHERE_HOST;
    check_int(check_refusal(&world, "gradients in host", 100, 3, 1000), ==, 1);
}

static void the_processor_is_refused_with_what_would_do(void)
{
    struct world world;
    world_init(&world, true, 1);
    world.input.budgets.device_is_host = true;
    check_int(check_refusal(&world, "both too small", 1, 1, 1000), ==, 0);
    check_int(check_refusal(&world, "host too small", 6, 1, 1000), >=, 1);
    check_int(check_refusal(&world, "device too small", 1, 10, 1000), >=, 1);
    check_int(check_refusal(&world, "no store", 16, 16, 0), >=, 2);
    world.input.wishes.acts = PLAN_ACTS_KEEP;
    check_int(check_refusal(&world, "kept", 4, 4, 1000), >=, 0);
}

/* If DEVICE and HOST share a memory, a refusal names neither as a budget that suffices alone. */
static void one_memory_is_not_named_twice(void)
{
    struct world world;
    world_init(&world, true, 1);
    world.input.budgets.device_is_host = true;
    world.input.budgets.joint_bytes = 24 * mib;
    check_int(check_refusal(&world, "no store", 24, 24, 0), ==, 1);
    struct plan *plan = NULL;
    world.input.budgets.joint_bytes = mib;
    check_int(plan_create(&world.input, &plan), ==, -EFBIG);
    check_contains(core_err_message(), "of memory together)");
    check_int((int64_t)alone(core_err_message(), "--host-memory "), ==, 0);
}

static void refused(const struct world *world, const char *message)
{
    struct plan *plan = NULL;
    check_int(plan_create(&world->input, &plan), ==, -EINVAL);
    check_contains(core_err_message(), message);
}

/* A GPU can update states only beside weights and gradients. */
static void what_a_card_cannot_update_is_told(void)
{
    struct world good;
    world_init(&good, false, 1);
    good.input.rates.card_update_elements = good.input.rates.card_sums_elements = 1e10;
    good.input.wishes.states = PLAN_WHERE_DEVICE;
    struct world world = good;
    plan_destroy(world_plan(&world));
    world.input.wishes.weights = PLAN_WHERE_HOST;
    refused(&world, "weights and gradients are in DEVICE, too");
    world = good;
    world.input.wishes.grads = PLAN_WHERE_STORE;
    refused(&world, "weights and gradients are in DEVICE, too");
    world = good;
    world.input.wishes.timing = PLAN_TIMING_SPECULATIVE;
    refused(&world, "would keep them twice");
    world = good;
    world.input.world = 2;
    refused(&world, "with one rank, not with 2");
    world = good;
    world.input.rates.card_update_elements = 0;
    refused(&world, "the rates have no card_update_elements_per_second");
    world.input.wishes.states = PLAN_WHERE_AUTO;
    world.input.wishes.grads = PLAN_WHERE_DEVICE;
    refused(&world, "gradients stay in DEVICE only together with the states");
}

/* The message names budgets of all ranks together. */
static void ranks_are_told_together(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.world = 4;
    world.input.stage = 3;
    world.input.budgets.host_bytes = mib;
    struct plan *plan = NULL;
    check_int(plan_create(&world.input, &plan), ==, -EFBIG);
    check_contains(core_err_message(), "host 4M, ");
    uint64_t host = alone(core_err_message(), "--host-memory ");
    check_int(host, >, 4);
    world.input.budgets.host_bytes = host * mib / 4;
    plan = world_plan(&world);
    plan_destroy(plan);
}

TEST_MAIN({"what_a_card_cannot_update_is_told", what_a_card_cannot_update_is_told},
          {"the_set_keeps_what_nothing_beats", the_set_keeps_what_nothing_beats},
          {"a_card_is_refused_with_what_would_do", a_card_is_refused_with_what_would_do},
          {"the_processor_is_refused_with_what_would_do",
           the_processor_is_refused_with_what_would_do},
          {"one_memory_is_not_named_twice", one_memory_is_not_named_twice},
          {"ranks_are_told_together", ranks_are_told_together})
