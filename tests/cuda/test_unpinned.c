/* Proves that a run whose host memory cannot be pinned says so once, and trains the same bits: copies
 * from memory that is not pinned are slow, never wrong. On the emulated card. */
#include <stdio.h>

#include "core/base/log.h"
#include "kernels/table.h"
#include "tests/dev/fake_cuda.h"
#include "tests/harness/test.h"
#include "tests/kernels/rig.h"
#include "tests/run/case.h"

enum { STEPS = 2 };

static unsigned warnings;
static char warned[512];

static void hear(void *context, enum core_log_level level, const char *line)
{
    (void)context;
    if (level == CORE_LOG_WARN && strstr(line, "pinned") != NULL) {
        warnings++;
        snprintf(warned, sizeof warned, "%s", line);
    }
}

static void unpinned_memory_is_told(void)
{
    struct case_model made;
    struct case_outcome pinned;
    struct case_outcome unpinned;
    struct run_options options = case_options();
    kern_ops_detach(NULL); /* named here, the ops of the library that comes first are taken */
    options.device = rig_machine();
    options.budgets.device_is_host = false;
    options.wishes.weights = PLAN_WHERE_HOST;
    options.wishes.states = PLAN_WHERE_HOST;
    case_model_make(&made, "llama");
    core_log_bind(&(struct core_log){.write = hear, .level = CORE_LOG_WARN});
    case_run_engine(&made, &options, STEPS, &pinned);
    check_uint(warnings, ==, 0);
    (void)rig_machine();
    fake_refuse_pins();
    case_run_engine(&made, &options, STEPS, &unpinned);
    check_uint(warnings, ==, 1);
    check_contains(warned, "is not pinned, so that copies wait: cuda:0: cudaHostRegister of");
    check_contains(warned, "ulimit -l");
    case_check_equal(&pinned, &unpinned, "pinned and not");
    core_log_bind(NULL);
    case_model_free(&made);
}

TEST_MAIN({"unpinned_memory_is_told", unpinned_memory_is_told})
