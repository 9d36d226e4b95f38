/* bench_plan.c: how long planning takes, and how near a plan comes to the limits of its machine.
 *
 *   bench_plan [NAME...]
 *
 * Prints for each case NAME_plan_s (time to plan), NAME_commands (of a step's tape), NAME_step_s
 * (predicted), NAME_bound_s (the longer of processor and drive time), NAME_ratio (step over bound),
 * NAME_device_gb and NAME_host_gb. The drive moves 2 GB per second; two cores do 700 GFLOP/s and
 * update 0.5e9 parameters per second. A card does 150 TFLOP/s and has links of 25 GB/s; its
 * machine's cores update 2e9 parameters per second, and its drive moves 6 GB/s. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "offload/plan/plan.h"
#include "offload/plan/sim.h"

enum { BLOCKS_MAX = 130 };

struct shape {
    const char *name;
    uint32_t layers;
    uint64_t hidden;
    uint64_t inner;
    uint64_t heads_elements;    /* heads x head size */
    uint64_t kv_heads_elements; /* key heads x head size */
    uint64_t vocab;
    uint32_t tied;
    uint32_t tokens; /* per micro-batch */
    uint32_t micros;
    uint32_t clip;
    double joint_gib;
    uint32_t all_on_drive;
    double card_gib; /* in addition to host memory; 0: the CPU device */
};

static const struct shape shapes[] = {
    {"llama_158m", 12, 768, 3072, 768, 768, 32000, 0, 1024, 1, 1, 1.0, 1, 0},
    {"llama_158m_noclip", 12, 768, 3072, 768, 768, 32000, 0, 1024, 1, 0, 1.0, 1, 0},
    {"llama_158m_accum8", 12, 768, 3072, 768, 768, 32000, 0, 1024, 8, 0, 1.0, 1, 0},
    {"llama_158m_drive", 12, 768, 3072, 768, 768, 32000, 0, 64, 1, 0, 1.0, 1, 0},
    {"llama_158m_host", 12, 768, 3072, 768, 768, 32000, 0, 1024, 1, 1, 5.0, 0, 0},
    {"llama_1100m", 22, 2048, 5632, 2048, 256, 32000, 0, 1024, 1, 1, 3.0, 1, 0},
    {"llama_1100m_noclip", 22, 2048, 5632, 2048, 256, 32000, 0, 1024, 1, 0, 3.0, 1, 0},
    {"llama_1100m_auto", 22, 2048, 5632, 2048, 256, 32000, 0, 1024, 1, 1, 3.0, 0, 0},
    {"qwen3_4b", 36, 2560, 9728, 4096, 1024, 151936, 1, 512, 1, 1, 12.0, 1, 0},
    {"qwen3_4b_noclip", 36, 2560, 9728, 4096, 1024, 151936, 1, 512, 1, 0, 12.0, 1, 0},
    {"qwen3_4b_auto", 36, 2560, 9728, 4096, 1024, 151936, 1, 512, 1, 1, 12.0, 0, 0},
    {"card_4b", 36, 2560, 9728, 4096, 1024, 151936, 1, 4096, 1, 1, 12.0, 1, 12.0},
    {"card_4b_noclip", 36, 2560, 9728, 4096, 1024, 151936, 1, 4096, 1, 0, 12.0, 1, 12.0},
    {"card_4b_auto", 36, 2560, 9728, 4096, 1024, 151936, 1, 4096, 1, 1, 24.0, 0, 16.0},
    {"card_4b_accum8", 36, 2560, 9728, 4096, 1024, 151936, 1, 4096, 8, 0, 24.0, 0, 16.0},
    {"hundred_layers", 100, 4096, 11008, 4096, 4096, 32000, 0, 1024, 1, 1, 100.0, 0, 0},
    {"hundred_layers_accum4", 100, 4096, 11008, 4096, 4096, 32000, 0, 1024, 4, 0, 100.0, 0, 0},
};

static void fill(const struct shape *shape, struct plan_block_shape *blocks)
{
    uint64_t h = shape->hidden;
    uint64_t layer = h * (2 * shape->heads_elements + 2 * shape->kv_heads_elements) +
                     3 * h * shape->inner + 2 * h;
    uint64_t table = shape->vocab * h;
    uint64_t tokens = shape->tokens;
    for (uint32_t b = 0; b < shape->layers + 2; b++) {
        bool head = b == shape->layers + 1;
        blocks[b] = (struct plan_block_shape){
            .elements = b == 0 ? table
                        : head ? (shape->tied ? 0 : table) + h
                               : layer,
            .name = b == 0 ? "embedding"
                    : head ? "head"
                           : "layer",
            .borrow_count = head && shape->tied,
            .shared_elements = head && shape->tied ? table : 0,
            .out_bytes = head ? 0 : tokens * h * 2,
            .kept_bytes = b > 0 && !head ? tokens * (9 * h + 3 * shape->inner) * 2 : 0,
            .forward_bytes = tokens * (head ? 4096 : 3 * shape->inner) * 2,
            .backward_bytes = tokens * (head ? 8192 : 4 * shape->inner) * 2,
            .forward_flops = b == 0 ? 1e6 : 2.0 * (double)(head ? table : layer) * (double)tokens,
            .recompute_flops = b == 0 || head ? 0 : 2.0 * (double)layer * (double)tokens,
            .backward_flops = b == 0 ? 1e6
                                     : (head ? 6.0 : 4.0) * (double)(head ? table : layer) *
                                           (double)tokens,
            .backward_reads_weights = b > 0,
            .trained = true,
            .format = {
                .weight_bytes = 2, .master_bytes = 2, .m_bytes = 4, .v_bytes = 4, .grad_bytes = 2}};
    }
}

/* Seconds in one half of a step. */
struct load {
    double cores;
    double drive;
};

/* Returns the longer of processor and drive time of the step. If updates are deferred, takes the
 * longer one of forward with the updates and the longer one of backward, and adds the two. */
static double bound_seconds(const struct plan_input *input, const struct plan_tape *tape,
                            bool deferred)
{
    struct load halves[2] = {{0, 0}, {0, 0}};
    int half = 0;
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        bool io = command->op == PLAN_READ || command->op == PLAN_WRITE;
        double alone = plan_sim_alone(&input->rates, command);
        half = deferred && (half == 1 || command->op == PLAN_BWD);
        halves[half].drive += io ? (double)command->bytes / input->rates.mixed_bytes : 0;
        bool copy = command->op == PLAN_H2D || command->op == PLAN_D2H;
        bool computes = input->rates.shared_cores ? !copy || input->budgets.device_is_host
                                                  : command->queue == PLAN_Q_COMPUTE;
        halves[half].cores += io || !computes ? 0 : alone;
    }
    return fmax(halves[0].cores, halves[0].drive) + fmax(halves[1].cores, halves[1].drive);
}

static int run(const struct shape *shape)
{
    struct plan_block_shape blocks[BLOCKS_MAX];
    fill(shape, blocks);
    uint64_t joint = (uint64_t)(shape->joint_gib * (1 << 30));
    struct plan_input input = {
        .blocks = blocks,
        .block_count = shape->layers + 2,
        .compute_count = shape->layers + 2,
        .wishes = {.micro_batches = shape->micros, .may_clip = shape->clip, .may_split = true},
        .budgets = {.device_bytes = joint,
                    .host_bytes = joint,
                    .joint_bytes = joint,
                    .store_bytes = UINT64_C(1) << 42,
                    .host_taken_bytes = 64 << 20,
                    .device_is_host = true},
        .rates = {.read_bytes = 2e9,
                  .write_bytes = 2e9,
                  .mixed_bytes = 2e9,
                  .up_bytes = 8e9,
                  .down_bytes = 8e9,
                  .flops = 7e11,
                  .update_elements = 0.5e9,
                  .sums_elements = 3e9,
                  .round_elements = 2e9,
                  .command_seconds = 5e-6,
                  .shared_cores = true}};
    if (shape->all_on_drive) {
        input.wishes.weights = input.wishes.states = PLAN_WHERE_STORE;
        input.wishes.acts = PLAN_ACTS_RECOMPUTE;
    }
    if (shape->card_gib > 0) {
        input.budgets.device_is_host = input.rates.shared_cores = false;
        input.budgets.joint_bytes = 0;
        input.budgets.device_bytes = (uint64_t)(shape->card_gib * (1 << 30));
        input.rates.flops = 1.5e14;
        input.rates.up_bytes = input.rates.down_bytes = 2.5e10;
        input.rates.read_bytes = input.rates.write_bytes = input.rates.mixed_bytes = 6e9;
        input.rates.update_elements = 2e9;
    }
    struct plan *plan = NULL;
    int64_t start_ns = core_clock_now_ns();
    int rc = plan_create(&input, &plan);
    double plan_s = (double)(core_clock_now_ns() - start_ns) / 1e9;
    if (rc != 0) {
        fprintf(stderr, "%s: %s\n", shape->name, core_err_message());
        return rc;
    }
    const struct plan_prediction *predicted = plan_predicted(plan);
    bool deferred = plan_chosen_timing(plan) == PLAN_TIMING_DEFERRED;
    bool inside = plan_chosen_timing(plan) == PLAN_TIMING_INSIDE;
    enum plan_kind kind = inside ? PLAN_FIRST : PLAN_NEXT;
    double bound = bound_seconds(&input, plan_tape(plan, kind, kind), deferred);
    printf("%s_plan_s %.3f s\n", shape->name, plan_s);
    printf("%s_commands %u commands\n", shape->name, plan_tape(plan, kind, kind)->count);
    printf("%s_step_s %.3f s\n", shape->name, predicted->step_seconds);
    printf("%s_bound_s %.3f s\n", shape->name, bound);
    printf("%s_ratio %.3f ratio\n", shape->name, predicted->step_seconds / bound);
    printf("%s_device_gb %.3f 1e9_bytes\n", shape->name,
           (double)plan_tier_bytes(plan, PLAN_DEVICE) / 1e9);
    printf("%s_host_gb %.3f 1e9_bytes\n", shape->name,
           (double)plan_tier_bytes(plan, PLAN_HOST) / 1e9);
    plan_destroy(plan);
    return 0;
}

int main(int argc, char **argv)
{
    int rc = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        bool wanted = argc < 2;
        for (int i = 1; i < argc; i++) {
            wanted = wanted || strcmp(argv[i], shapes[s].name) == 0;
        }
        rc = wanted && run(&shapes[s]) != 0 ? 1 : rc;
    }
    return rc;
}
