/* explain.c: describes the bottleneck and the alternatives. */
#include "offload/plan/explain.h"

#include <math.h>
#include <stdio.h>

#include "offload/plan/layout.h"
#include "offload/plan/print.h"

static const double busy_share = 0.85;

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

/* Returns the reason if an alternative is neither slower nor larger. */
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
    /* smaller differences are not mentioned */
    static const double notable = 0.003;
    static const double notable_gb = 0.001;
    const double ratio = alternative->step_seconds / plan_predicted(plan)->step_seconds;
    const double taken = (double)(alternative->device_bytes + alternative->host_bytes) / 1e9;
    const double takes = (double)(plan_tier_bytes(plan, PLAN_DEVICE) +
                                  plan_layout_taken(input, plan_layout_of(plan), PLAN_DEVICE) +
                                  plan_tier_bytes(plan, PLAN_HOST) +
                                  plan_layout_taken(input, plan_layout_of(plan), PLAN_HOST)) /
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
