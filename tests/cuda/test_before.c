/* Proves what a run does with a card before its steps, on the emulated one: host memory that cannot be
 * pinned is told once, and trains the same bits, for copies from it are slow and never wrong; a layer, the
 * embedding and the head are timed over numbers of its own. */
#include <stdio.h>

#include "kernels/table.h"
#include "offload/run/rates.h"
#include "offload/run/shapes.h"
#include "tests/dev/fake_cuda.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"
#include "tests/kernels/rig.h"
#include "tests/run/case.h"

enum { STEPS = 2 };

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
    test_listen(CORE_LOG_WARN);
    case_run_engine(&made, &options, STEPS, &pinned);
    check_uint(test_heard_lines("pinned"), ==, 0);
    (void)rig_machine();
    fake_refuse_pins();
    case_run_engine(&made, &options, STEPS, &unpinned);
    check_uint(test_heard_lines("pinned"), ==, 1);
    check_contains(test_heard(), "is not pinned, so that copies wait: cuda:0: cudaHostRegister of");
    check_contains(test_heard(), "ulimit -l");
    case_check_equal(&pinned, &unpinned, "pinned and not");
    test_listen_end();
    case_model_free(&made);
}

static void a_card_is_measured(void)
{
    struct case_model made;
    struct run_shapes *shapes = NULL;
    struct run_rates rates = {.machine = {0}};
    struct run_options options = case_options();
    kern_ops_detach(NULL);
    options.device = rig_machine();
    options.budgets.device_is_host = false;
    case_model_make(&made, "gpt2");
    check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
    check_int(run_rates_measure(shapes, &options, &rates), ==, 0);
    const double numbers[] = {rates.machine.up_bytes,
                              rates.machine.down_bytes,
                              rates.machine.flops,
                              rates.machine.card_update_elements,
                              rates.machine.card_sums_elements,
                              rates.forward_seconds[MODEL_BLOCK_EMBEDDING],
                              rates.backward_seconds[MODEL_BLOCK_LAYER],
                              rates.backward_seconds[MODEL_BLOCK_HEAD]};
    for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++) {
        check_true(isfinite(numbers[n]) && numbers[n] > 0);
    }
    check_true(!rates.machine.shared_cores);
    check_int(fake_live(), ==, 0);
    run_shapes_destroy(shapes);
    case_model_free(&made);
}

TEST_MAIN({"unpinned_memory_is_told", unpinned_memory_is_told},
          {"a_card_is_measured", a_card_is_measured})
