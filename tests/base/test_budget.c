/* Tests the limit of a budget, also with competing threads, and its refusals. */
#include <errno.h>
#include <sched.h>

#include "core/base/budget.h"
#include "core/base/err.h"
#include "core/base/team.h"
#include "tests/harness/test.h"

/* A refusal states the numbers and charges nothing. */
static void budget_is_hard(void)
{
    struct core_budget budget;
    core_budget_init(&budget, "HOST", 1000);
    check_int(core_budget_take(&budget, 600, "weights"), ==, 0);
    check_int(core_budget_take(&budget, 401, "staging"), ==, -ENOMEM);
    check_string(core_err_message(), "staging does not fit in the HOST budget: limit 1000 bytes, "
                                     "used 600, requested 401, 1 missing");
    check_int(atomic_load(&budget.used_bytes), ==, 600);
    check_int(core_budget_take(&budget, 400, "staging"), ==, 0);
    check_int(atomic_load(&budget.used_bytes), ==, 1000);
    check_int(core_budget_take(&budget, UINT64_MAX, "everything"), ==, -ENOMEM);
    core_budget_give(&budget, 1000);
    check_int(atomic_load(&budget.used_bytes), ==, 0);
    check_int(core_budget_peak(&budget), ==, 1000);
    core_budget_init(&budget, "count", CORE_BUDGET_NONE);
    check_int(core_budget_take(&budget, UINT64_C(1) << 62, "much"), ==, 0);
}

struct contest {
    struct core_budget budget;
    _Atomic uint64_t most;
    _Atomic int refused;
};

static void contest_part(void *argument, unsigned index, unsigned count)
{
    struct contest *contest = argument;
    (void)count;
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t bytes = 1 + (i * 7 + index) % 50;
        if (core_budget_take(&contest->budget, bytes, "part") != 0) {
            contest->refused++;
            continue;
        }
        if (i % 16 == 0) {
            sched_yield();
        }
        uint64_t used = atomic_load(&contest->budget.used_bytes);
        if (used > contest->most) {
            contest->most = used;
        }
        core_budget_give(&contest->budget, bytes);
    }
}

static void budget_holds_under_threads(void)
{
    struct contest contest = {0};
    core_budget_init(&contest.budget, "tier", 60);
    struct core_team *team = NULL;
    check_int(core_team_create(&(struct core_team_options){.count = 4}, &team), ==, 0);
    core_team_run(team, contest_part, &contest);
    core_team_destroy(team);
    check_int(contest.most, <=, 60);
    check_int(core_budget_peak(&contest.budget), <=, 60);
    check_int(atomic_load(&contest.budget.used_bytes), ==, 0);
    test_note("%d refused", contest.refused);
}

TEST_MAIN({"budget_is_hard", budget_is_hard},
          {"budget_holds_under_threads", budget_holds_under_threads})
