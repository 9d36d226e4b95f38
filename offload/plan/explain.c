/* explain.c: prints the table of bytes and the explanations below it. */
#include "offload/plan/explain.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "offload/plan/layout.h"
#include "offload/plan/print.h"

enum { LINE_BYTES = 256 };

/* A resource that is busy for less than this share is not the bottleneck. */
static const double busy_share = 0.85;

struct talk {
    void (*line)(void *user, const char *text);
    void *user;
};

static void say(const struct talk *talk, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say(const struct talk *talk, const char *format, ...)
{
    char text[LINE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    talk->line(talk->user, text);
}

static double gb(uint64_t bytes)
{
    return (double)bytes / 1e9;
}

static void say_bytes(const struct talk *talk, const struct plan_input *input,
                      const struct plan *plan)
{
    uint64_t totals[PLAN_TIER_COUNT] = {0};
    say(talk, "%-12s %10s %10s %10s", "GB", "device", "host", "store");
    for (int c = 0; c < PLAN_CONSUMER_COUNT; c++) {
        double each[PLAN_TIER_COUNT] = {0};
        for (int t = 0; t < PLAN_TIER_COUNT; t++) {
            uint64_t bytes = plan_consumer_bytes(input, plan, (enum plan_tier)t,
                                                 (enum plan_consumer)c);
            each[t] = gb(bytes);
            totals[t] += bytes;
        }
        say(talk, "%-12s %10.3f %10.3f %10.3f", plan_consumer_name((enum plan_consumer)c),
            each[PLAN_DEVICE], each[PLAN_HOST], each[PLAN_STORE]);
    }
    say(talk, "%-12s %10.3f %10.3f %10.3f", "together", gb(totals[PLAN_DEVICE]),
        gb(totals[PLAN_HOST]), gb(totals[PLAN_STORE]));
    say(talk, "%-12s %10.3f %10.3f %10.3f", "budget", gb(input->budgets.device_bytes),
        gb(input->budgets.host_bytes), gb(input->budgets.store_bytes));
    if (input->budgets.joint_bytes > 0) {
        say(talk, "device and host together %.3f of %.3f GB",
            gb(totals[PLAN_DEVICE] + totals[PLAN_HOST]), gb(input->budgets.joint_bytes));
    }
}

static void say_places(const struct talk *talk, const struct plan_input *input,
                       const struct plan *plan)
{
    uint32_t weights[PLAN_TIER_COUNT] = {0};
    uint64_t chunks = 0;
    uint64_t resident = 0;
    uint32_t on_card = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        const struct plan_block_place *place = plan_block_place(plan, b);
        weights[place->weights]++;
        chunks += place->chunk_count;
        resident += place->resident_chunks;
        on_card += plan_layout_of(plan)->blocks[b].on_card;
    }
    say(talk, "weights of %u blocks in device, %u in host, %u in store", weights[PLAN_DEVICE],
        weights[PLAN_HOST], weights[PLAN_STORE]);
    say(talk, "states: %llu of %llu chunks of %llu parameters stay in memory",
        (unsigned long long)resident, (unsigned long long)chunks,
        (unsigned long long)plan_chunk_elements(plan));
    if (on_card > 0) {
        say(talk,
            "states and gradients of %u blocks stay in device memory, where the card updates them",
            on_card);
    }
    say(talk, "gradients wait in %s",
        plan_tier_name((enum plan_tier)plan_block_place(plan, input->block_count - 1)->grads));
    say(talk, "activations %s, micro-batches %s, updates %s",
        plan_acts_name(plan_chosen_acts(plan)), plan_order_name(plan_chosen_order(plan)),
        plan_timing_name(plan_chosen_timing(plan)));
}

const char *plan_bottleneck_print(const struct plan_prediction *predicted, char *text, size_t bytes)
{
    double busy = predicted->resource_seconds[predicted->bottleneck];
    double share = predicted->step_seconds > 0 ? busy / predicted->step_seconds : 0;
    const char *name = plan_resource_name(predicted->bottleneck);
    if (share >= busy_share) {
        snprintf(text, bytes, "the %s, %.0f %% busy", name, share * 100);
    } else {
        snprintf(text, bytes, "no single bottleneck; the %s %.0f %% busy", name, share * 100);
    }
    return text;
}

static void say_step(const struct talk *talk, const struct plan *plan)
{
    const struct plan_prediction *predicted = plan_predicted(plan);
    char text[LINE_BYTES];
    say(talk, "step %.3f s; bottleneck: %s", predicted->step_seconds,
        plan_bottleneck_print(predicted, text, sizeof text));
    for (int r = 0; r < PLAN_R_COUNT; r++) {
        if (predicted->resource_seconds[r] > 0) {
            say(talk, "  %-15s %8.3f s", plan_resource_name((enum plan_resource)r),
                predicted->resource_seconds[r]);
        }
    }
    say(talk, "a step reads %.3f GB from the store and writes %.3f GB to it (wear)",
        gb(predicted->store_read_bytes), gb(predicted->store_write_bytes));
    say(talk, "a step copies %.3f GB up and %.3f GB down", gb(predicted->up_bytes),
        gb(predicted->down_bytes));
}

void plan_explain(const struct plan_input *input, const struct plan *plan,
                  void (*line)(void *user, const char *text), void *user)
{
    const struct talk talk = {line, user};
    say_bytes(&talk, input, plan);
    say_places(&talk, input, plan);
    say_step(&talk, plan);
}

/* Which of two steps writes more, in words. */
static const char *rest_of(const struct plan *plan, const struct plan_alternative *alternative)
{
    return alternative->store_write_bytes > plan_predicted(plan)->store_write_bytes
               ? "writes more to the drives"
           : alternative->timing == PLAN_TIMING_SPECULATIVE
               ? "faster only while norms stay below the limit"
               : "no better";
}

const char *plan_alternative_print(const struct plan_input *input, const struct plan *plan,
                                   const struct plan_alternative *alternative, char *text,
                                   size_t bytes)
{
    static const double notable = 0.003; /* of a step */
    static const double notable_gb = 0.001;
    const struct plan_budgets *budgets = &input->budgets;
    const double ratio = alternative->step_seconds / plan_predicted(plan)->step_seconds;
    const double taken = (double)(alternative->device_bytes + alternative->host_bytes) / 1e9;
    const double takes = (double)(plan_tier_bytes(plan, PLAN_DEVICE) + budgets->device_taken_bytes +
                                  plan_tier_bytes(plan, PLAN_HOST) + budgets->host_taken_bytes) /
                         1e9;
    char memory[48] = "";
    if (taken > takes + notable_gb || taken < takes - notable_gb) {
        snprintf(memory, sizeof memory, ", %.3f GB %s memory", fabs(taken - takes),
                 taken > takes ? "more" : "less");
    }
    if (ratio > 1 + notable) {
        snprintf(text, bytes, "%.3g %% slower%s", (ratio - 1) * 100, memory);
    } else if (ratio < 1 - notable) {
        snprintf(text, bytes, "%.3g %% faster%s%s%s", (1 - ratio) * 100, memory,
                 taken > takes ? "" : ", ", taken > takes ? "" : rest_of(plan, alternative));
    } else {
        snprintf(text, bytes, "as fast%s%s%s", memory, taken > takes + notable_gb ? "" : ", ",
                 taken > takes + notable_gb ? "" : rest_of(plan, alternative));
    }
    return text;
}
