/* Proves that training steps of the engine run over a card, the emulated one or one that is there: the
 * same bits wherever the bytes lie, and the losses of the CPU's plain step up to roundings. */
#include <errno.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "kernels/table.h"
#include "tests/harness/test.h"
#include "tests/kernels/rig.h"
#include "tests/run/case.h"

enum { STEPS = 2 };

static const struct way {
    const char *name;
    enum plan_where weights, states;
    enum plan_acts acts;
    bool store;
} ways[] = {
    {"all in DEVICE, kept", PLAN_WHERE_DEVICE, PLAN_WHERE_AUTO, PLAN_ACTS_KEEP, false},
    {"all in HOST, recomputed", PLAN_WHERE_HOST, PLAN_WHERE_HOST, PLAN_ACTS_RECOMPUTE, false},
    {"states in STORE", PLAN_WHERE_AUTO, PLAN_WHERE_STORE, PLAN_ACTS_RECOMPUTE, true},
    {"all in STORE", PLAN_WHERE_STORE, PLAN_WHERE_STORE, PLAN_ACTS_KEEP, true},
};

static struct run_options options_of(const struct way *way)
{
    static char directory[512];
    static unsigned count;
    struct run_options options = case_options();
    snprintf(directory, sizeof directory, "%.400s/store%u", test_directory(), count++);
    options.device = "cuda";
    options.budgets.device_is_host = false;
    options.wishes.weights = way->weights;
    options.wishes.states = way->states;
    options.wishes.acts = way->acts;
    if (way->store) {
        options.io = "mem";
        options.stores[0] = (struct store_path){.directory = directory, .weight = 1};
        options.store_count = 1;
        options.budgets.store_bytes = UINT64_C(1) << 30;
    }
    return options;
}

static void card_or_skip(void)
{
    struct dev_device *device = NULL;
    const struct dev_options options = {.memory_bytes = 1 << 20};
    const int rc = dev_open(rig_machine(), &options, &device);
    kern_ops_detach(NULL); /* named here, the ops of the library that comes first are taken */
    if (rc == -ENODEV || rc == -ENOTSUP) {
        test_skip("%s", core_err_sentence());
    }
    check_int(rc, ==, 0);
    dev_close(device);
}

static void family(const char *name)
{
    struct case_model made;
    struct case_outcome plain;
    struct case_outcome first;
    const struct run_options cpu = case_options();
    card_or_skip();
    case_model_make(&made, name);
    case_run_plain(&made, &cpu, STEPS, &plain);
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        struct case_outcome engine;
        (void)rig_machine();
        const struct run_options options = options_of(&ways[w]);
        case_run_engine(&made, &options, STEPS, &engine);
        for (unsigned s = 0; s < STEPS; s++) {
            test_note("%s, %s: step %u: loss %.6f, the CPU's %.6f", name, ways[w].name, s,
                      engine.loss[s], plain.loss[s]);
            check_double(fabs(engine.loss[s] - plain.loss[s]), <=, 0.01 * plain.loss[s]);
            check_double(fabs(engine.norm[s] - plain.norm[s]), <=, 0.05 * plain.norm[s]);
        }
        if (w == 0) {
            first = engine;
        }
        case_check_equal(&first, &engine, ways[w].name);
    }
    case_model_free(&made);
}

static void llama(void)
{
    family("llama");
}

static void gpt2(void)
{
    if (TEST_SLOW) {
        test_skip("one family is enough under a sanitizer");
    }
    family("gpt2");
}

static void qwen3_tied(void)
{
    if (TEST_SLOW) {
        test_skip("one family is enough under a sanitizer");
    }
    family("qwen3 tied");
}

TEST_MAIN({"llama", llama}, {"gpt2", gpt2}, {"qwen3_tied", qwen3_tied})
