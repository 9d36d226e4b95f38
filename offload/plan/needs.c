/* needs.c: keeps the set of least needs, and writes refusals. */
#include "offload/plan/needs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/base/err.h"
#include "offload/plan/shard.h"

static bool is_no_more(const struct plan_need *left, const struct plan_need *right)
{
    for (int t = 0; t < PLAN_TIER_COUNT; t++) {
        if (left->bytes[t] > right->bytes[t]) {
            return false;
        }
    }
    return true;
}

void plan_needs_note(struct plan_needs *needs, const struct plan_need *need)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < needs->count; i++) {
        if (is_no_more(&needs->members[i], need)) {
            return;
        }
    }
    for (uint32_t i = 0; i < needs->count; i++) {
        if (!is_no_more(need, &needs->members[i])) {
            needs->members[kept++] = needs->members[i];
        }
    }
    needs->count = kept;
    if (needs->count < PLAN_NEEDS_MAX) {
        needs->members[needs->count++] = *need;
    }
}

static uint64_t memory_of(const struct plan_need *need)
{
    return need->bytes[PLAN_DEVICE] + need->bytes[PLAN_HOST];
}

bool plan_needs_least(const struct plan_needs *needs, enum plan_tier tier,
                      const struct plan_need *most, uint64_t joint_bytes, struct plan_need *out)
{
    bool found = false;
    for (uint32_t i = 0; i < needs->count; i++) {
        const struct plan_need *need = &needs->members[i];
        struct plan_need limit = *most;
        limit.bytes[tier] = UINT64_MAX;
        bool fits = is_no_more(need, &limit) &&
                    (joint_bytes == 0 || memory_of(need) <= joint_bytes);
        if (fits && (!found || need->bytes[tier] < out->bytes[tier])) {
            *out = *need;
            found = true;
        }
    }
    return found;
}

bool plan_needs_together(const struct plan_needs *needs, uint64_t store_most, struct plan_need *out)
{
    bool found = false;
    for (uint32_t i = 0; i < needs->count; i++) {
        const struct plan_need *need = &needs->members[i];
        if (need->bytes[PLAN_STORE] <= store_most && (!found || memory_of(need) < memory_of(out))) {
            *out = *need;
            found = true;
        }
    }
    return found;
}

/* ---- the message ---- */

struct refusal {
    char text[1024];
    size_t used;
};

static void say(struct refusal *refusal, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say(struct refusal *refusal, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int wrote = vsnprintf(refusal->text + refusal->used, sizeof refusal->text - refusal->used,
                          format, list);
    va_end(list);
    refusal->used += wrote > 0 ? (size_t)wrote : 0;
    refusal->used = refusal->used < sizeof refusal->text ? refusal->used : sizeof refusal->text - 1;
}

/* Converts bytes of one rank to MiB of the shared budget. */
static uint64_t mib(const struct plan_input *input, uint64_t bytes)
{
    return (bytes * plan_sharing(input) + (1 << 20) - 1) >> 20;
}

/* ---- advice ---- */

static uint64_t least_alone(const struct plan_input *input, const struct plan_needs *needs,
                            enum plan_tier tier)
{
    const struct plan_budgets *budgets = &input->budgets;
    const struct plan_need given = {
        {[PLAN_DEVICE] = budgets->device_bytes,
         [PLAN_HOST] = budgets->host_bytes > budgets->advice_spare_bytes
                           ? budgets->host_bytes - budgets->advice_spare_bytes
                           : 0,
         [PLAN_STORE] = budgets->store_bytes}};
    const uint64_t spare = tier == PLAN_HOST ? budgets->advice_spare_bytes : 0;
    struct plan_need need;
    return plan_needs_least(needs, tier, &given, budgets->joint_bytes, &need)
               ? mib(input, need.bytes[tier] + spare)
               : 0;
}

static void need_to_mib(const struct plan_input *input, struct plan_need need,
                        uint64_t out[PLAN_TIER_COUNT])
{
    need.bytes[PLAN_HOST] += input->budgets.advice_spare_bytes;
    for (int tier = 0; tier < PLAN_TIER_COUNT; tier++) {
        out[tier] = mib(input, need.bytes[tier]);
    }
}

struct plan_advice plan_needs_advise(const struct plan_input *input, const struct plan_needs *needs)
{
    struct plan_advice advice = {.alone_mib = {0}};
    struct plan_need least;
    struct plan_need stored;
    for (int tier = 0; tier < PLAN_TIER_COUNT; tier++) {
        advice.alone_mib[tier] = least_alone(input, needs, (enum plan_tier)tier);
    }
    if (plan_needs_together(needs, input->budgets.store_bytes, &least) ||
        plan_needs_together(needs, UINT64_MAX, &least)) {
        need_to_mib(input, least, advice.together_mib);
        if (input->budgets.store_bytes == 0 && least.bytes[PLAN_STORE] == 0 &&
            plan_needs_together(needs, UINT64_MAX, &stored) &&
            memory_of(&stored) < memory_of(&least)) {
            need_to_mib(input, stored, advice.stored_mib);
        }
    }
    return advice;
}

/* What sets the budgets: flags, or an application's options (tide/optimizer.h). */
struct budget_name {
    enum plan_tier tier;
    const char *text;
};
static const struct budget_name flags[] = {
    {PLAN_HOST, "--host-memory "}, {PLAN_DEVICE, "--device-memory "}, {PLAN_STORE, "--store DIR:"}};
static const struct budget_name options[] = {{PLAN_HOST, "host_bytes "},
                                             {PLAN_STORE, "bytes of stores "}};

/* Names budgets that suffice alone. Returns whether there is one. */
static bool say_alone(struct refusal *refusal, const struct plan_advice *advice,
                      const struct budget_name *names, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        const uint64_t alone = advice->alone_mib[names[i].tier];
        if (alone > 0) {
            say(refusal, "; %s%s%" PRIu64 "M", any ? "" : "any one of: ", names[i].text, alone);
            any = true;
        }
    }
    return any;
}

int plan_needs_refuse(const struct plan_input *input, const struct plan_advice *advice)
{
    const struct plan_budgets *budgets = &input->budgets;
    const uint64_t *together = advice->together_mib;
    const uint64_t *stored = advice->stored_mib;
    struct refusal refusal = {.used = 0};
    say(&refusal, "the run cannot fit into ");
    if (input->application) {
        say(&refusal, "host %" PRIu64 "M, store %" PRIu64 "M", mib(input, budgets->host_bytes),
            mib(input, budgets->store_bytes));
        if (!say_alone(&refusal, advice, options, sizeof options / sizeof options[0]) &&
            together[PLAN_HOST] > 0) {
            say(&refusal, "; sufficient: %s%" PRIu64 "M and %s%" PRIu64 "M", options[0].text,
                together[PLAN_HOST], options[1].text, together[PLAN_STORE]);
        }
        return core_err_set(-EFBIG, "%s", refusal.text);
    }
    say(&refusal, "device %" PRIu64 "M, host %" PRIu64 "M, store %" PRIu64 "M",
        mib(input, budgets->device_bytes), mib(input, budgets->host_bytes),
        mib(input, budgets->store_bytes));
    if (budgets->joint_bytes > 0) {
        say(&refusal, " (%" PRIu64 "M of memory together)", mib(input, budgets->joint_bytes));
    }
    const bool any = say_alone(&refusal, advice, flags, sizeof flags / sizeof flags[0]);
    if (together[PLAN_HOST] > 0) {
        say(&refusal,
            "; the least memory%s: --device-memory %" PRIu64 "M --host-memory %" PRIu64 "M",
            any ? "" : " that is sufficient", together[PLAN_DEVICE], together[PLAN_HOST]);
        if (together[PLAN_STORE] > 0) {
            say(&refusal, " --store DIR:%" PRIu64 "M", together[PLAN_STORE]);
        }
        if (budgets->joint_bytes > 0) {
            say(&refusal, " (%" PRIu64 "M of memory together)",
                together[PLAN_DEVICE] + together[PLAN_HOST]);
        }
    }
    if (stored[PLAN_STORE] > 0) {
        say(&refusal,
            "; with a drive, less is sufficient: --store DIR:%" PRIu64 "M --device-memory %" PRIu64
            "M --host-memory %" PRIu64 "M",
            stored[PLAN_STORE], stored[PLAN_DEVICE], stored[PLAN_HOST]);
    }
    return core_err_set(-EFBIG, "%s", refusal.text);
}
