/* Tests plans of large models: they fit into small memory, and predicted steps are near the
 * machines' limits. */
#include <stdlib.h>

#include "core/base/err.h"
#include "offload/plan/plan.h"
#include "offload/plan/sim.h"
#include "tests/harness/test.h"

enum { BIG_BLOCKS_MAX = 40, TOKENS = 1024 };

struct big {
    const char *name;
    uint32_t layers;
    uint64_t layer_elements;
    uint64_t table_elements;
    uint64_t hidden;
    uint64_t inner;
    bool tied;
    uint64_t joint_bytes;
};

static const struct big bigs[] = {
    {"158M in 1 GB", 12, 9437184, 24576000, 768, 3072, false, 1000000000},
    {"1.1B in 3 GiB", 22, 44044288, 65536000, 2048, 5632, false, UINT64_C(3) << 30},
    {"4B in 12 GiB", 36, 100930560, 388956160, 2560, 9728, true, UINT64_C(12) << 30},
};

static void fill_blocks(const struct big *big, struct plan_block_shape *blocks)
{
    for (uint32_t b = 0; b < big->layers + 2; b++) {
        bool head = b == big->layers + 1;
        uint64_t own = head && big->tied ? big->hidden : big->table_elements;
        double work = 2.0 * TOKENS * (double)(head ? big->table_elements : big->layer_elements);
        bool layer = b > 0 && !head;
        blocks[b] = (struct plan_block_shape){
            .name = layer ? "layer" : "end",
            .elements = layer ? big->layer_elements : own,
            .borrow_count = head && big->tied,
            .shared_elements = head && big->tied ? big->table_elements : 0,
            .out_bytes = head ? 0 : TOKENS * big->hidden * 2,
            .kept_bytes = layer ? TOKENS * (9 * big->hidden + 3 * big->inner) * 2 : 0,
            .forward_bytes = TOKENS * 3 * big->inner * 2,
            .backward_bytes = TOKENS * 4 * big->inner * 2,
            .forward_flops = b == 0 ? 1e6 : work,
            .recompute_flops = b == 0 ? 1e6 : work,
            .backward_flops = b == 0 ? 1e6 : work * (head ? 3 : 2),
            .backward_reads_weights = b > 0,
            .trained = true,
            .format = {
                .weight_bytes = 2, .master_bytes = 2, .m_bytes = 4, .v_bytes = 4, .grad_bytes = 2}};
    }
}

static struct plan_input input_of(const struct big *big, const struct plan_block_shape *blocks,
                                  bool clip)
{
    return (struct plan_input){.blocks = blocks,
                               .block_count = big->layers + 2,
                               .compute_count = big->layers + 2,
                               .wishes = {.micro_batches = 1,
                                          .may_clip = clip,
                                          .may_split = true,
                                          .acts = PLAN_ACTS_RECOMPUTE,
                                          .weights = PLAN_WHERE_STORE,
                                          .states = PLAN_WHERE_STORE},
                               .budgets = {.device_bytes = big->joint_bytes,
                                           .host_bytes = big->joint_bytes,
                                           .joint_bytes = big->joint_bytes,
                                           .store_bytes = UINT64_C(100) << 30,
                                           .host_taken_bytes = 64 << 20,
                                           .device_is_host = true},
                               .rates = {.read_bytes = 2e9,
                                         .write_bytes = 2e9,
                                         .mixed_bytes = 4e9,
                                         .up_bytes = 8e9,
                                         .down_bytes = 8e9,
                                         .flops = 7e11,
                                         .update_elements = 0.5e9,
                                         .sums_elements = 3e9,
                                         .round_elements = 2e9,
                                         .command_seconds = 5e-6,
                                         .shared_cores = true}};
}

struct load {
    double cores;
    double drive;
};

static double longer(const struct load *load)
{
    return load->cores > load->drive ? load->cores : load->drive;
}

/* Returns a lower bound of the step's time. With deferred updates a step has two parts: forward
 * with updates, and backward. */
static double bound_of(const struct plan_input *input, const struct plan_tape *tape, bool deferred)
{
    struct load parts[2] = {{0, 0}, {0, 0}};
    int part = 0;
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        bool io = command->op == PLAN_READ || command->op == PLAN_WRITE;
        part = deferred && (part == 1 || command->op == PLAN_BWD);
        if (io) {
            parts[part].drive += (double)command->bytes / input->rates.mixed_bytes;
        } else {
            parts[part].cores += plan_sim_alone(&input->rates, command);
        }
    }
    return longer(&parts[0]) + longer(&parts[1]);
}

static void check_big(const struct big *big, bool clip)
{
    struct plan_block_shape blocks[BIG_BLOCKS_MAX];
    struct plan *plan = NULL;
    fill_blocks(big, blocks);
    struct plan_input input = input_of(big, blocks, clip);
    int rc = plan_create(&input, &plan);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "%s: %s", big->name, core_err_message());
    }
    enum plan_kind kind = plan_chosen_timing(plan) == PLAN_TIMING_INSIDE ? PLAN_FIRST : PLAN_NEXT;
    const struct plan_tape *tape = plan_tape(plan, kind, kind);
    double bound = bound_of(&input, tape, clip);
    double step = plan_predicted(plan)->step_seconds;
    uint64_t bytes = plan_tier_bytes(plan, PLAN_DEVICE) + plan_tier_bytes(plan, PLAN_HOST);
    test_note("%s%s: %.2f GB, step %.2f s of at least %.2f s, %u commands", big->name,
              clip ? " clipped" : "", (double)bytes / 1e9, step, bound, tape->count);
    check_int(bytes + input.budgets.host_taken_bytes, <=, big->joint_bytes);
    check_double(step, <=, bound * 1.15);
    plan_destroy(plan);
}

static void large_models_fit_small_memory(void)
{
    for (size_t i = 0; i < TEST_COUNT(sizeof bigs / sizeof bigs[0], 1); i++) {
        check_big(&bigs[i], true);
        check_big(&bigs[i], false);
    }
}

/* STORE takes little more than the bytes of many small blocks. */
static void many_small_blocks(void)
{
    enum { MANY = TEST_COUNT(10000, 1500), ELEMENTS = 20000 };
    struct plan_block_shape *blocks = calloc(MANY, sizeof *blocks);
    struct plan *plan = NULL;
    check_true(blocks != NULL);
    for (uint32_t b = 0; b < MANY; b++) {
        blocks[b] = (struct plan_block_shape){
            .name = "block",
            .elements = ELEMENTS + b % 7 * 256,
            .trained = true,
            .format = {.master_bytes = 2, .m_bytes = 4, .v_bytes = 4}};
    }
    struct plan_input input = input_of(&bigs[0], blocks, false);
    input.block_count = input.compute_count = MANY;
    input.application = true;
    input.budgets.device_bytes = input.budgets.host_bytes = UINT64_C(1) << 40;
    input.budgets.joint_bytes = 0;
    input.wishes = (struct plan_wishes){
        .micro_batches = 1, .states = PLAN_WHERE_STORE, .state_slots = 4, .chunk_elements = 65536};
    check_int(plan_create(&input, &plan), ==, 0);
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < MANY; b++) {
        bytes += blocks[b].elements * 10;
    }
    const uint64_t store = plan_tier_bytes(plan, PLAN_STORE);
    check_uint(store, >=, bytes);
    check_uint(store, <=, bytes + bytes / 50);
    const struct plan_tape *tape = plan_tape(plan, PLAN_KIND_COUNT, PLAN_FIRST);
    uint64_t updates = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < tape->count; i++) {
        updates += tape->commands[i].op == PLAN_UPDATE;
        last = tape->commands[i].op == PLAN_UPDATE && tape->commands[i].block > last
                   ? tape->commands[i].block
                   : last;
    }
    check_uint(updates, ==, MANY);
    check_uint(last, ==, MANY - 1);
    plan_destroy(plan);
    free(blocks);
}

TEST_MAIN({"many_small_blocks", many_small_blocks},
          {"large_models_fit_small_memory", large_models_fit_small_memory})
