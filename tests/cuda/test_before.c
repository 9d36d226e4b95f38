/* Tests pinned memory, measured rates, events, and the size of a loss's logits, on the emulated
 * card. */
#include <stdio.h>

#include "kernels/table.h"
#include "offload/plan/plan.h"
#include "offload/run/prepare.h"
#include "offload/run/rates.h"
#include "offload/run/runtime.h"
#include "offload/run/shapes.h"
#include "tests/dev/fake_cuda.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"
#include "tests/kernels/rig.h"
#include "tests/run/case.h"

enum { STEPS = TEST_COUNT(2, 1) };

static void unpinned_memory_is_told(void)
{
    struct case_model made;
    struct case_outcome pinned;
    struct case_outcome unpinned;
    struct run_options options = case_options();
    kern_ops_detach(NULL); /* makes the linker take the ops of the first library */
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
    check_contains(test_heard(), "is not pinned: cuda:0: cudaHostRegister of");
    check_contains(test_heard(), "ulimit -l");
    case_check_equal(&pinned, &unpinned, "pinned and not");
    test_listen_end();
    case_model_free(&made);
}

static void measure_card(bool pairs)
{
    const struct model_lora_options lora = {.rank = 2, .alpha = 4};
    struct case_model made;
    struct run_shapes *shapes = NULL;
    struct run_rates rates = {.machine = {0}};
    struct run_options options = case_options();
    kern_ops_detach(NULL);
    options.device = rig_machine();
    options.budgets.device_is_host = false;
    case_model_make(&made, "gpt2");
    if (pairs) {
        case_model_adapt(&made, &lora);
        options.pairs = CASE_ROWS / 2;
        options.row_length = CASE_LENGTH;
        options.length = CASE_LENGTH + CASE_LENGTH / 2;
        options.beta = 0.5;
    }
    check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
    check_int(run_rates_measure(shapes, &options, &rates), ==, 0);
    const double numbers[] = {rates.machine.up_bytes,
                              rates.machine.down_bytes,
                              rates.machine.both_bytes,
                              rates.machine.memory_bytes,
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

/* Measuring gives positive rates and frees the card's memory. */
static void a_card_is_measured(void)
{
    measure_card(false);
    measure_card(true);
}

/* Returns the number of events that a run records. */
static unsigned events_of(struct case_model *made, const struct run_options *options,
                          unsigned steps)
{
    struct case_outcome outcome;
    (void)rig_machine();
    const unsigned before = fake_events_recorded();
    case_run_engine(made, options, steps, &outcome);
    return fake_events_recorded() - before;
}

/* Events are recorded per plan command, not per op. */
static void a_command_has_one_event(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct run_options options = case_options();
    if (TEST_SLOW) {
        test_skip("the steps are those of emulated_engine");
    }
    kern_ops_detach(NULL);
    options.device = rig_machine();
    options.budgets.device_is_host = false;
    options.wishes.weights = PLAN_WHERE_DEVICE;
    options.wishes.states = PLAN_WHERE_DEVICE;
    case_model_make(&made, "llama");
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    uint32_t longest = 0;
    for (int before = 0; before <= PLAN_KIND_COUNT; before++) {
        for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
            const struct plan_tape *tape = plan_tape(prepared->plan, (enum plan_kind)before,
                                                     (enum plan_kind)kind);
            longest = tape != NULL && tape->count > longest ? tape->count : longest;
        }
    }
    run_prepared_destroy(prepared);
    const unsigned step = events_of(&made, &options, 2) - events_of(&made, &options, 1);
    test_note("%u events in a step, %u commands in the longest tape", step, longest);
    check_uint(step, >, 0);
    check_uint(step, <=, longest + longest / 2);
    case_model_free(&made);
}

/* Other programs on the card do not change how the loss is computed. */
static void loss_ignores_other_programs(void)
{
    struct case_model made;
    uint64_t budgets[2];
    uint64_t logits[2];
    case_model_make(&made, "llama");
    for (int busy = 0; busy < 2; busy++) {
        struct run_options options = case_options();
        struct run_shapes *shapes = NULL;
        options.device = rig_machine();
        options.budgets.device_is_host = false;
        fake_memory_in_use(busy ? (size_t)2 << 30 : 0);
        check_int(run_runtime_card_bytes(options.device, &options.budgets.device_bytes,
                                         &options.card_bytes),
                  ==, 0);
        check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
        budgets[busy] = options.budgets.device_bytes;
        logits[busy] = shapes->programs[made.model->block_count - 1]->shape.logits_bytes;
        run_shapes_destroy(shapes);
    }
    check_uint(budgets[1], <, budgets[0]);
    check_uint(logits[0], ==, ((uint64_t)4 << 30) / 10);
    check_uint(logits[1], ==, logits[0]);
    case_model_free(&made);
}

TEST_MAIN({"loss_ignores_other_programs", loss_ignores_other_programs},
          {"unpinned_memory_is_told", unpinned_memory_is_told},
          {"a_card_is_measured", a_card_is_measured},
          {"a_command_has_one_event", a_command_has_one_event})
