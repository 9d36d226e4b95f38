/* Tests the reports of a plan. */
#include <stdio.h>

#include "core/base/clock.h"
#include "core/json/json.h"
#include "offload/plan/explain.h"
#include "offload/plan/print.h"
#include "offload/plan/trace.h"
#include "tests/harness/test.h"
#include "tests/plan/world.h"

static const char *timeline_path(void)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/timeline.json", test_directory());
    return path;
}

static struct core_json *parse_timeline(void)
{
    struct core_json *doc = NULL;
    check_int(core_json_load(timeline_path(), NULL, &doc), ==, 0);
    return doc;
}

static const char *member(const struct core_json_value *object, const char *key)
{
    const struct core_json_value *value = core_json_find(object, key);
    check_true(value != NULL);
    return core_json_string(value, NULL);
}

/* Measured durations are written unchanged, with names of op, block and queue. */
static void measured_times_are_drawn(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.rank = 0;
    char longest[256];
    memset(longest, '"', 255);
    longest[255] = '\0';
    world.shapes[1].name = "lay\"er\\";
    world.shapes[2].name = longest;
    struct plan *plan = world_plan(&world);
    const struct plan_tape *tape = plan_tape(plan, PLAN_KIND_COUNT, PLAN_FIRST);
    struct plan_trace *trace = NULL;
    size_t bars = 0;
    check_int(plan_trace_create(0, 1, tape->count, &trace), ==, 0);
    plan_trace_push(trace, tape);
    const int64_t start_ns = core_clock_now_ns();
    for (uint32_t i = 0; i < tape->count; i++) {
        if (i != 0) { /* the first command does not run */
            plan_trace_watch(trace, 0, &tape->commands[i], start_ns + i * INT64_C(1000000),
                             start_ns + i * INT64_C(1000000) + 500000);
        }
        bars += tape->commands[i].op != PLAN_JOIN;
    }
    check_int(plan_trace_write(trace, &world.input, timeline_path()), ==, 0);
    plan_trace_destroy(trace);
    struct core_json *doc = parse_timeline();
    const struct core_json_value *events = core_json_find(core_json_root(doc), "traceEvents");
    size_t seen = 0;
    size_t named = 0;
    size_t rows = 0;
    for (size_t i = 0; i < core_json_count(events); i++) {
        const struct core_json_value *event = core_json_at(events, i);
        if (strcmp(member(event, "ph"), "X") == 0) {
            check_double(core_json_real(core_json_find(event, "dur")), ==, 500);
            named += strcmp(member(event, "name"), "FWD lay\"er\\") == 0;
            named += strncmp(member(event, "name"), "FWD ", 4) == 0 &&
                     strcmp(member(event, "name") + 4, longest) == 0;
            check_true(core_json_find(core_json_find(event, "args"), "bytes") != NULL);
            seen++;
        } else if (strcmp(member(event, "name"), "thread_name") == 0) {
            check_int(core_json_integer(core_json_find(event, "tid")), ==, rows);
            check_string(member(core_json_find(event, "args"), "name"),
                         plan_queue_name((enum plan_queue)rows));
            rows++;
        }
    }
    check_int(rows, ==, PLAN_Q_COUNT);
    check_int(seen, ==, bars - 1);
    check_int(named, ==, 2);
    core_json_destroy(doc);
    plan_destroy(plan);
}

/* Ops during the compute queue's commands are bars of a separate row. Missing ops are reported. */
static void ops_are_drawn(void)
{
    enum { OPS = 8 };
    static const struct {
        const char *name;
        int begin_ms, end_ms;
    } ops[OPS] = {{"before", -50, -40},    {"norm", -1, 1},
                  {"matmul", 2, 6},        {"norm", 7, 8},
                  {"matmul", 8, 18},       {"later", 200, 210},
                  {"rope", 1000, 1000000}, {"after", 1000000, 1000001}};
    struct world world;
    world_init(&world, true, 1);
    struct plan *plan = world_plan(&world);
    const struct plan_tape *tape = plan_tape(plan, PLAN_KIND_COUNT, PLAN_FIRST);
    for (int full = 0; full < 2; full++) {
        struct plan_trace *trace = NULL;
        check_int(plan_trace_create(1, 2, tape->count, &trace), ==, 0);
        for (unsigned pushed = 1; pushed <= 6; pushed++) { /* two tapes may be in progress */
            plan_trace_push(trace, tape);
            check_int(plan_trace_wants_ops(trace), ==, pushed >= 2 && pushed <= 4);
        }
        const int64_t start_ns = core_clock_now_ns();
        for (uint32_t i = 0; i < tape->count; i++) {
            plan_trace_watch(trace, 1, &tape->commands[i], start_ns, start_ns + INT64_C(100000000));
        }
        for (size_t i = 0; i < OPS; i++) {
            plan_trace_op(trace, ops[i].name, start_ns + ops[i].begin_ms * INT64_C(1000000),
                          start_ns + ops[i].end_ms * INT64_C(1000000));
        }
        for (uint32_t i = OPS; full == 1 && i <= PLAN_TRACE_OPS_MAX; i++) {
            plan_trace_op(trace, "after", INT64_MAX - 1, INT64_MAX);
        }
        check_int(plan_trace_write(trace, &world.input, timeline_path()), ==, 0);
        plan_trace_destroy(trace);
        struct core_json *doc = parse_timeline();
        const struct core_json_value *root = core_json_root(doc);
        const struct core_json_value *events = core_json_find(root, "traceEvents");
        size_t bars = 0;
        for (size_t i = 0; i < core_json_count(events); i++) {
            const struct core_json_value *event = core_json_at(events, i);
            bars += strcmp(member(event, "ph"), "X") == 0 &&
                    core_json_integer(core_json_find(event, "tid")) == PLAN_Q_COUNT;
        }
        check_int(bars, ==, 4);
        const struct core_json_value *other = core_json_find(root, "otherData");
        const struct core_json_value *totals = core_json_find(other, "ops");
        static const struct {
            const char *name;
            int count;
            double us;
        } expected[] = {{"matmul", 2, 14000}, {"norm", 2, 3000}};
        check_int(core_json_count(totals), ==, 2);
        for (size_t i = 0; i < 2; i++) {
            const struct core_json_value *total = core_json_at(totals, i);
            check_string(member(total, "op"), expected[i].name);
            check_int(core_json_integer(core_json_find(total, "count")), ==, expected[i].count);
            check_double(core_json_real(core_json_find(total, "us")), ==, expected[i].us);
        }
        check_int(core_json_bool(core_json_find(other, "ops_complete")), ==, full == 0);
        core_json_destroy(doc);
    }
    plan_destroy(plan);
}

/* A simulated timeline has a bar per update and ends about when the steps do. */
static void predicted_times_are_drawn(void)
{
    struct world world;
    world_init(&world, true, 2);
    world.input.wishes.states = PLAN_WHERE_STORE;
    struct plan *plan = world_plan(&world);
    check_int(plan_trace_predict(&world.input, plan, 3, timeline_path()), ==, 0);
    struct core_json *doc = parse_timeline();
    const struct core_json_value *events = core_json_find(core_json_root(doc), "traceEvents");
    double end_us = 0;
    size_t updates = 0;
    for (size_t i = 0; i < core_json_count(events); i++) {
        const struct core_json_value *event = core_json_at(events, i);
        if (strcmp(member(event, "ph"), "X") == 0) {
            double begin_us = core_json_real(core_json_find(event, "ts"));
            end_us = fmax(end_us, begin_us + core_json_real(core_json_find(event, "dur")));
            updates += strcmp(member(event, "name"), "UPDATE embedding") == 0;
        }
    }
    check_int(updates, ==, 3 * plan_block_place(plan, 0)->chunk_count);
    check_double(end_us, >=, 3e6 * plan_predicted(plan)->step_seconds * 0.8);
    check_double(end_us, <=, 5e6 * plan_predicted(plan)->step_seconds);
    core_json_destroy(doc);
    plan_destroy(plan);
}

/* The bytes of the consumers add up to those of the tier and the runtime. */
static void consumers_add_up(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.wishes.weights = PLAN_WHERE_STORE;
    world.input.wishes.states = PLAN_WHERE_STORE;
    world.input.rates.flops = 8e12;
    world.input.budgets.device_taken_bytes = 5 << 20;
    world.input.budgets.joint_bytes = 1 << 30;
    struct plan *plan = world_plan(&world);
    for (int t = 0; t < PLAN_TIER_COUNT; t++) {
        uint64_t sum = 0;
        for (int c = 0; c < PLAN_CONSUMER_COUNT; c++) {
            sum += plan_consumer_bytes(&world.input, plan, (enum plan_tier)t,
                                       (enum plan_consumer)c);
        }
        uint64_t runtime = t == PLAN_DEVICE ? 5 << 20 : 0;
        check_int(sum, ==, plan_tier_bytes(plan, (enum plan_tier)t) + runtime);
    }
    check_int(plan_consumer_bytes(&world.input, plan, PLAN_HOST, PLAN_FOR_GRADIENTS), ==,
              2 * world_parameters(&world));
    plan_destroy(plan);
}

static void bottlenecks_have_words(void)
{
    struct plan_prediction predicted = {.step_seconds = 2, .bottleneck = PLAN_R_CORES};
    predicted.resource_seconds[PLAN_R_CORES] = 1.9;
    char text[128];
    check_string(plan_bottleneck_print(&predicted, text, sizeof text),
                 "the processor cores, 95 % busy");
    predicted.resource_seconds[PLAN_R_CORES] = 1;
    check_contains(plan_bottleneck_print(&predicted, text, sizeof text),
                   "no single bottleneck; the processor cores 50 % busy");
    check_string(plan_consumer_name(PLAN_FOR_SLOTS), "slots");
}

/* Alternatives differ from the chosen policy; the fastest is first. */
static void alternatives_have_reasons(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.wishes.weights = PLAN_WHERE_STORE;
    world.input.wishes.states = PLAN_WHERE_STORE;
    struct plan *plan = world_plan(&world);
    struct plan_alternative other;
    double seconds = 0;
    unsigned count = 0;
    char text[128];
    for (; plan_alternative(plan, count, &other); count++) {
        check_true(other.acts != plan_chosen_acts(plan) ||
                   other.timing != plan_chosen_timing(plan));
        check_double(other.step_seconds, >=, seconds);
        check_true(other.device_bytes + other.host_bytes > 0 && other.store_write_bytes > 0);
        seconds = other.step_seconds;
        check_true(plan_alternative_print(&world.input, plan, &other, text, sizeof text)[0] != 0);
    }
    check_int(count, >=, 3);
    const double step = plan_predicted(plan)->step_seconds;
    const uint64_t taken = plan_tier_bytes(plan, PLAN_DEVICE) +
                           world.input.budgets.device_taken_bytes +
                           plan_tier_bytes(plan, PLAN_HOST) + world.input.budgets.host_taken_bytes;
    other = (struct plan_alternative){.step_seconds = 1.25 * step,
                                      .host_bytes = taken + 2000000000};
    check_string(plan_alternative_print(&world.input, plan, &other, text, sizeof text),
                 "25 % slower, 2.000 GB more memory");
    other.step_seconds = 0.98 * step;
    check_string(plan_alternative_print(&world.input, plan, &other, text, sizeof text),
                 "2 % faster, 2.000 GB more memory");
    other.host_bytes = taken;
    other.store_write_bytes = plan_predicted(plan)->store_write_bytes + 1;
    check_string(plan_alternative_print(&world.input, plan, &other, text, sizeof text),
                 "2 % faster, writes more to the drives");
    other.step_seconds = step;
    other.store_write_bytes = 0;
    other.timing = PLAN_TIMING_SPECULATIVE;
    check_string(plan_alternative_print(&world.input, plan, &other, text, sizeof text),
                 "as fast, faster only while norms stay below the limit");
    other.timing = PLAN_TIMING_DEFERRED;
    check_string(plan_alternative_print(&world.input, plan, &other, text, sizeof text),
                 "as fast, no better");
    plan_destroy(plan);
}

/* The REDUCE of tile sums has no block. */
static void tapes_of_ranks_print(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.world = 2;
    world.input.stage = 1;
    struct plan *plan = world_plan(&world);
    const struct plan_tape *tape = plan_tape(plan, PLAN_KIND_COUNT, PLAN_FIRST);
    bool found = false;
    for (uint32_t i = 0; i < tape->count; i++) {
        char text[512];
        plan_print_command(&world.input, plan, &tape->commands[i], text, sizeof text);
        found |= strstr(text, "REDUCE tile sums ") != NULL;
    }
    check_true(found);
    plan_destroy(plan);
}

TEST_MAIN({"measured_times_are_drawn", measured_times_are_drawn}, {"ops_are_drawn", ops_are_drawn},
          {"predicted_times_are_drawn", predicted_times_are_drawn},
          {"consumers_add_up", consumers_add_up},
          {"bottlenecks_have_words", bottlenecks_have_words},
          {"alternatives_have_reasons", alternatives_have_reasons},
          {"tapes_of_ranks_print", tapes_of_ranks_print})
