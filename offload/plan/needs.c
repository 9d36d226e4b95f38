/* needs.c: the set, what is least in it, and the sentence of a refusal. */
#include "offload/plan/needs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/base/err.h"

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

/* ---- the sentence ---- */

struct sentence {
    char text[1024];
    size_t used;
};

static void say(struct sentence *sentence, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say(struct sentence *sentence, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int wrote = vsnprintf(sentence->text + sentence->used, sizeof sentence->text - sentence->used,
                          format, list);
    va_end(list);
    sentence->used += wrote > 0 ? (size_t)wrote : 0;
    sentence->used = sentence->used < sizeof sentence->text ? sentence->used
                                                            : sizeof sentence->text - 1;
}

/* Of all ranks, which share the budgets of their process; rounded up, as a flag takes it. */
static uint64_t mib(const struct plan_input *input, uint64_t bytes)
{
    return (bytes * (input->world > 0 ? input->world : 1) + (1 << 20) - 1) >> 20;
}

/* One tier more, the others as they are. */
static bool say_alone(struct sentence *sentence, const struct plan_input *input,
                      const struct plan_needs *needs, enum plan_tier tier)
{
    static const char *const others[] = {[PLAN_DEVICE] = "host and store",
                                         [PLAN_HOST] = "device and store",
                                         [PLAN_STORE] = "device and host"};
    const struct plan_budgets *budgets = &input->budgets;
    const struct plan_need given = {
        {[PLAN_DEVICE] = budgets->device_bytes,
         [PLAN_HOST] = budgets->host_bytes > budgets->advice_spare_bytes
                           ? budgets->host_bytes - budgets->advice_spare_bytes
                           : 0,
         [PLAN_STORE] = budgets->store_bytes}};
    struct plan_need need;
    if (!plan_needs_least(needs, tier, &given, budgets->joint_bytes, &need)) {
        return false;
    }
    uint64_t spare = tier == PLAN_HOST ? budgets->advice_spare_bytes : 0;
    say(sentence, " %s %" PRIu64 "M with %s as they are;",
        tier == PLAN_DEVICE ? "device"
        : tier == PLAN_HOST ? "host"
                            : "store",
        mib(input, need.bytes[tier] + spare), others[tier]);
    return true;
}

static void say_together(struct sentence *sentence, const struct plan_input *input,
                         const struct plan_need *need)
{
    const uint64_t host = need->bytes[PLAN_HOST] + input->budgets.advice_spare_bytes;
    say(sentence, " device %" PRIu64 "M, host %" PRIu64 "M and store %" PRIu64 "M",
        mib(input, need->bytes[PLAN_DEVICE]), mib(input, host),
        mib(input, need->bytes[PLAN_STORE]));
    if (input->budgets.joint_bytes > 0) {
        say(sentence, " (%" PRIu64 "M of memory together)",
            mib(input, need->bytes[PLAN_DEVICE]) + mib(input, host));
    }
}

int plan_needs_refuse(const struct plan_input *input, const struct plan_needs *needs)
{
    const struct plan_budgets *budgets = &input->budgets;
    struct sentence sentence = {.used = 0};
    struct plan_need least = {{0}};
    say(&sentence, "it cannot fit into device %" PRIu64 "M, host %" PRIu64 "M, store %" PRIu64 "M",
        mib(input, budgets->device_bytes), mib(input, budgets->host_bytes),
        mib(input, budgets->store_bytes));
    if (budgets->joint_bytes > 0) {
        say(&sentence, " (%" PRIu64 "M of memory together)", mib(input, budgets->joint_bytes));
    }
    say(&sentence, "; what would do:");
    bool any = say_alone(&sentence, input, needs, PLAN_HOST);
    any |= say_alone(&sentence, input, needs, PLAN_DEVICE);
    any |= say_alone(&sentence, input, needs, PLAN_STORE);
    if (plan_needs_together(needs, budgets->store_bytes, &least) ||
        plan_needs_together(needs, UINT64_MAX, &least)) {
        say(&sentence, any ? " the least memory is" : "");
        say_together(&sentence, input, &least);
    }
    return core_err_set(-EFBIG, "%s", sentence.text);
}
