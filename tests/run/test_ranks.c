/* test_ranks.c: ranks as threads: losses close to those of one rank, bits that do not depend on
 * the stage, and few bytes between ranks. */
#include <stdio.h>

#include "offload/model/adapter.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

enum { STEPS = 3, MICRO_BATCHES = 4 }; /* of all ranks */

static struct run_options options_of(uint32_t world, uint32_t stage, enum kern_type type)
{
    struct run_options options = case_options();
    options.world = world;
    options.stage = world > 1 ? stage : 0;
    options.micro_batches = MICRO_BATCHES / world;
    options.type = type;
    options.threads = 1;
    return options;
}

static void in_store(struct run_options *options)
{
    options->wishes.weights = PLAN_WHERE_STORE;
    options->wishes.states = PLAN_WHERE_STORE;
    case_store(options, "mem");
}

static void check_near(const struct case_outcome *a, const struct case_outcome *b, double bound,
                       const char *what)
{
    for (unsigned s = 0; s < a->steps; s++) {
        const double loss = fabs(a->loss[s] - b->loss[s]) / fabs(a->loss[s]);
        const double norm = fabs(a->norm[s] - b->norm[s]) / fabs(a->norm[s]);
        if (!(loss <= bound) || !(norm <= bound)) {
            test_fail(__FILE__, __LINE__, "%s: step %u is apart by %.3g in loss, %.3g in norm",
                      what, s + 1, loss, norm);
        }
    }
}

/* Compares worlds and stages with one rank. `lora` may be NULL. */
static void compare(const char *family, enum kern_type type, double bound,
                    const struct model_lora_options *lora)
{
    struct case_model made;
    struct case_outcome alone;
    case_model_make(&made, family);
    if (lora != NULL) {
        case_model_adapt(&made, lora);
    }
    const struct run_options one = options_of(1, 0, type);
    case_run_engine(&made, &one, STEPS, &alone);
    for (uint32_t world = 2; world <= 4; world *= 2) {
        struct case_outcome first = {.steps = 0};
        for (uint32_t stage = 0; stage <= 3; stage += TEST_STRIDE(3)) {
            char name[120];
            struct case_outcome outcome;
            struct case_outcome stored;
            struct run_options options = options_of(world, stage, type);
            snprintf(name, sizeof name, "%s, %u ranks, stage %u", family, world, stage);
            case_run_engine(&made, &options, STEPS, &outcome);
            check_near(&alone, &outcome, bound, name);
            if (stage == 0) {
                first = outcome;
            }
            for (unsigned s = 0; s < STEPS; s++) {
                check_true(first.loss[s] == outcome.loss[s] && first.norm[s] == outcome.norm[s]);
            }
            in_store(&options);
            case_run_engine(&made, &options, STEPS, &stored);
            case_check_equal(&outcome, &stored, name);
        }
    }
    case_model_free(&made);
}

/* In fp32 only the order of sums differs from one rank. Under a sanitizer one family is enough:
 * ranks treat families alike. */
static void fp32(void)
{
    compare("llama", KERN_F32, 1e-5, NULL);
    if (!TEST_SLOW) {
        compare("qwen3 tied", KERN_F32, 1e-5, NULL);
    }
}

/* In bf16 a rank rounds its gradient before the gradients are added. */
static void bf16(void)
{
    compare("llama tied", KERN_BF16, 2e-2, NULL);
    if (!TEST_SLOW) {
        compare("gpt2", KERN_BF16, 2e-2, NULL);
    }
}

/* Dropped elements depend on the micro-batch, not on the rank. */
static void lora(void)
{
    if (TEST_RACES) {
        test_skip("threads share adapters as they share other blocks");
    }
    static const char *const saved[] = {"lm_head"};
    const struct model_lora_options options = {
        .rank = 3, .alpha = 6, .dropout = 0.3, .saved = saved, .saved_count = 1, .seed = 3};
    compare("llama", KERN_F32, 1e-5, &options);
    if (!TEST_SLOW) {
        compare("llama", KERN_BF16, 2e-2, &options);
    }
}

/* A rank computes whole pairs; loss and margin are means over the pairs of all ranks. */
static void pairs(void)
{
    if (TEST_RACES) {
        test_skip("ranks treat pairs as other rows");
    }
    const struct model_lora_options lora = {.rank = 3, .alpha = 6, .seed = 3};
    struct case_model made;
    struct case_outcome alone;
    struct case_outcome both;
    case_model_make(&made, "llama");
    case_model_adapt(&made, &lora);
    made.rows = CASE_PAIRS;
    for (uint32_t world = 1; world <= 2; world++) {
        struct run_options options = options_of(world, 2, KERN_F32);
        options.pairs = CASE_ROWS / 2;
        options.rows = 2 * options.pairs;
        options.row_length = CASE_LENGTH;
        options.length = 2 * CASE_LENGTH;
        options.beta = 0.5;
        case_run_engine(&made, &options, STEPS, world == 1 ? &alone : &both);
    }
    check_near(&alone, &both, 1e-5, "pairs on two ranks");
    for (unsigned s = 0; s < STEPS; s++) {
        const double margin = alone.chosen[s] - alone.rejected[s];
        check_double(fabs(both.chosen[s] - both.rejected[s] - margin), <=, 1e-6);
        check_true(alone.rights[s] == both.rights[s]);
    }
    case_model_free(&made);
}

/* Repeated runs have the same bits. */
static void again(void)
{
    struct case_model made;
    struct case_outcome first;
    struct case_outcome second;
    case_model_make(&made, "llama");
    for (uint32_t stage = TEST_STRIDE(2) - 1; stage <= 3; stage += TEST_STRIDE(2)) {
        const struct run_options options = options_of(4, stage, KERN_BF16);
        case_run_engine(&made, &options, STEPS, &first);
        case_run_engine(&made, &options, STEPS, &second);
        case_check_equal(&first, &second, "twice the same");
    }
    case_model_free(&made);
}

/* Checks that steps report the bytes that ranks received. In stages 1 and 2 no step reports the
 * gathering at the end of the run. */
static void check_counted(const struct case_outcome *outcome, const struct run_options *options)
{
    const uint64_t gathered = outcome->received_bytes - outcome->summed_bytes;
    const double reduced = (double)outcome->reduce_bytes / (double)outcome->summed_bytes;
    const bool all = options->stage == 0 || options->stage == 3;
    check_double(reduced, >=, 1);
    check_double(reduced, <=, 1 + 1e-3); /* a part of an uneven array is rounded up */
    check_uint(outcome->gather_bytes, ==, all ? gathered : gathered / STEPS * (STEPS - 1));
}

/* Ranks receive at most the bytes of an all-reduce of the 16-bit gradients; in stage 3, 1.5
 * times as many. Blocks that are still in a slot are gathered once. */
static void traffic(void)
{
    if (TEST_SLOW) {
        test_skip("the plain build counts the bytes");
    }
    static const double promised[] = {1, 1, 1, 1.5};
    enum { WORLD = 4 };
    struct case_model made;
    case_model_make(&made, "llama");
    uint64_t elements = 0;
    for (unsigned b = 0; b < made.model->block_count; b++) {
        elements += made.model->blocks[b].elements;
    }
    /* A rank receives the parts of the other three. */
    const double all_reduce = 2.0 * (WORLD - 1) * (double)elements * 2 * STEPS;
    for (uint32_t stage = 0; stage <= 3; stage++) {
        for (uint32_t micros = 1; micros <= 2; micros++) {
            struct run_options options = options_of(WORLD, stage, KERN_BF16);
            struct case_outcome outcome;
            options.micro_batches = micros;
            options.wishes.order = PLAN_ORDER_LAYER;
            case_run_engine(&made, &options, STEPS, &outcome);
            const double times = (double)outcome.received_bytes / all_reduce;
            test_note("stage %u: %.3f of an all-reduce's bytes", stage, times);
            check_double(times, <=, promised[stage] * 1.02);
            check_double(times, >=, promised[stage] * 0.6);
            check_counted(&outcome, &options);
        }
    }
    case_model_free(&made);
}

/* Weights gathered in 8 bits give similar losses with little more than half of the bytes, and
 * repeatable bits. */
static void packed(void)
{
    struct case_model made;
    struct case_outcome exact;
    struct case_outcome memory;
    struct case_outcome other;
    case_model_make(&made, "llama");
    for (uint32_t world = TEST_SLOW ? 3 : 2; world <= 3; world++) {
        struct run_options options = options_of(world, 3, world == 2 ? KERN_FP16 : KERN_BF16);
        options.micro_batches = 1;
        options.wishes.weight_slots = 2;
        case_run_engine(&made, &options, STEPS, &exact);
        options.packs = true;
        case_run_engine(&made, &options, STEPS, &memory);
        check_near(&exact, &memory, 2e-2, "packed");
        check_true(exact.loss[STEPS - 1] != memory.loss[STEPS - 1]);
        const double gathered = (double)(exact.received_bytes - exact.summed_bytes);
        check_uint(memory.gather_bytes, ==, memory.received_bytes - memory.summed_bytes);
        test_note("%.3f of the bytes", (double)memory.gather_bytes / gathered);
        check_double((double)memory.gather_bytes, >, 0.5 * gathered);
        /* some weights are gathered again */
        check_double((double)memory.gather_bytes, <, 0.7 * gathered);
        case_run_engine(&made, &options, STEPS, &other);
        case_check_equal(&memory, &other, "packed again");
        in_store(&options);
        case_run_engine(&made, &options, STEPS, &other);
        case_check_equal(&memory, &other, "packed from the store");
    }
    struct run_options options = options_of(2, 3, KERN_F32);
    case_run_engine(&made, &options, STEPS, &exact);
    options.packs = true;
    case_run_engine(&made, &options, STEPS, &other);
    case_check_equal(&exact, &other, "fp32");
    case_model_free(&made);
}

/* Groups of ranks that keep a copy of the weights do not change bits, and send fewer bytes
 * between nodes. */
static void grouped(void)
{
    static const enum plan_order orders[] = {PLAN_ORDER_LAYER, PLAN_ORDER_MICRO};
    struct case_model made;
    struct case_outcome all;
    struct case_outcome groups;
    case_model_make(&made, "llama tied, whole"); /* bytes are counted */
    for (unsigned i = TEST_SLOW ? 3 : 0; i < 6; i++) {
        struct run_options options = options_of(4, 3, i == 2 ? KERN_F32 : KERN_BF16);
        options.local = 2;
        options.packs = i == 1 || i == 4;
        options.micro_batches = i < 3 ? 1 : 2;
        options.wishes.order = orders[i % 2];
        options.wishes.weight_slots = 2;
        if (i >= 3) {
            in_store(&options);
        }
        case_run_engine(&made, &options, STEPS, &all);
        options.within = 2;
        case_run_engine(&made, &options, STEPS, &groups);
        case_check_equal(&all, &groups, "in groups");
        test_note("case %u: %" PRIu64 " of %" PRIu64 " bytes between nodes", i,
                  groups.gather_between_bytes, all.gather_between_bytes);
        check_uint(all.gather_between_bytes, >, groups.gather_between_bytes);
        check_uint(groups.gather_between_bytes, >, 0);
        check_uint(all.reduce_between_bytes, ==, groups.reduce_between_bytes);
        check_uint(all.reduce_bytes, >, all.reduce_between_bytes);
        check_uint(groups.gather_bytes, <, all.gather_bytes);
        check_counted(&groups, &options);
    }
    case_model_free(&made);
}

/* Gradients reduced in 4 bits give similar losses with a quarter of the bytes (an eighth in fp32),
 * and repeatable bits. */
static void coded(void)
{
    struct case_model made;
    struct case_outcome exact;
    struct case_outcome memory;
    struct case_outcome other;
    case_model_make(&made, "llama tied");
    for (uint32_t stage = TEST_SLOW ? 3 : 1; stage <= 3; stage++) {
        const bool halves = stage != 2;
        struct run_options options = options_of(stage == 3 ? 3 : 2, stage,
                                                halves ? KERN_BF16 : KERN_F32);
        options.micro_batches = stage == 1 ? 2 : 1;
        case_run_engine(&made, &options, STEPS, &exact);
        options.codes = true;
        case_run_engine(&made, &options, STEPS, &memory);
        check_near(&exact, &memory, 5e-2, "codes");
        /* The largest element of a group has a code, so no group becomes zero. */
        check_uint(memory.still_groups, ==, exact.still_groups);
        check_true(exact.loss[STEPS - 1] != memory.loss[STEPS - 1]);
        const double part = (double)memory.summed_bytes / (double)exact.summed_bytes;
        test_note("stage %u: %.4f of the bytes", stage, part);
        check_double(part, >, halves ? 0.25 : 0.125);
        check_double(part, <, halves ? 0.27 : 0.14);
        check_counted(&memory, &options);
        case_run_engine(&made, &options, STEPS, &other);
        case_check_equal(&memory, &other, "codes again");
        in_store(&options);
        case_run_engine(&made, &options, STEPS, &other);
        case_check_equal(&memory, &other, "codes with a store");
    }
    case_model_free(&made);
}

/* If ranks of a node add gradients first, half of the bytes pass between nodes, with similar
 * losses and repeatable bits. */
static void fast(void)
{
    struct case_model made;
    struct case_outcome exact;
    struct case_outcome memory;
    struct case_outcome other;
    case_model_make(&made, "llama tied, whole"); /* bytes are counted */
    for (uint32_t stage = TEST_SLOW ? 3 : 0; stage <= 3; stage++) {
        struct run_options options = options_of(4, stage, KERN_BF16);
        options.local = 2;
        options.micro_batches = stage == 1 ? 2 : 1;
        case_run_engine(&made, &options, STEPS, &exact);
        options.fast = true;
        case_run_engine(&made, &options, STEPS, &memory);
        check_near(&exact, &memory, 5e-2, "fast");
        check_true(exact.loss[STEPS - 1] != memory.loss[STEPS - 1]);
        const double part = (double)memory.reduce_between_bytes /
                            (double)exact.reduce_between_bytes;
        test_note("stage %u: %.4f of the bytes between nodes", stage, part);
        check_double(part, >, 0.5 - 1e-2);
        check_double(part, <, 0.5 + 1e-2); /* not exactly half: the tiles' sums of squares stay
                                            * exact */
        check_uint(memory.reduce_bytes, ==, exact.reduce_bytes);
        check_counted(&memory, &options);
        case_run_engine(&made, &options, STEPS, &other);
        case_check_equal(&memory, &other, "fast again");
        in_store(&options);
        case_run_engine(&made, &options, STEPS, &other);
        case_check_equal(&memory, &other, "fast with a store");
    }
    struct run_options options = options_of(4, 2, KERN_BF16);
    case_run_engine(&made, &options, STEPS, &exact);
    options.fast = true;
    case_run_engine(&made, &options, STEPS, &other);
    case_check_equal(&exact, &other, "one node");
    case_model_free(&made);
}

TEST_MAIN({"fp32", fp32}, {"bf16", bf16}, {"lora", lora}, {"pairs", pairs}, {"again", again},
          {"traffic", traffic}, {"packed", packed}, {"coded", coded}, {"grouped", grouped},
          {"fast", fast})
