/* test_update.c: the update's lane on a plain list of blocks: terms of groups, and blocks whose
 * gradients are not finite. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/bell.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/dev/dev.h"
#include "offload/plan/plan.h"
#include "offload/run/lane_update.h"
#include "offload/run/runtime.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

enum { GROUPS = 5 };

/* A plan with its memory, and an update with its blocks. */
struct bench {
    struct case_model made;
    struct run_options options;
    struct run_prepared *prepared;
    struct dev_device *device;
    struct run_memory memory;
    struct blocks *blocks;
    struct adam_group groups[GROUPS];
    struct core_bell bell;
    struct run_update *update;
};

/* Creates blocks whose arrays belong to the groups in turn. */
static struct blocks *make_blocks(const struct plan_input *input)
{
    static const uint64_t sizes[] = {256, 300, 1024, 2000, 40};
    struct blocks *blocks = NULL;
    uint32_t number = 0;
    check_int(blocks_create(&blocks), ==, 0);
    for (uint32_t b = 0; b < input->block_count; b++) {
        const uint64_t elements = input->blocks[b].elements;
        char name[32];
        snprintf(name, sizeof name, "block %" PRIu32, b);
        check_int(blocks_add(blocks, name), ==, 0);
        for (uint64_t first = 0, end = 0; (end + 255) / 256 * 256 < elements; number++) {
            const uint64_t at = (end + 255) / 256 * 256;
            const uint64_t size = sizes[number % 5] < elements - at ? sizes[number % 5]
                                                                    : elements - at;
            check_int(blocks_add_array(blocks, size, number % GROUPS, true, &first), ==, 0);
            end = first + size;
        }
        blocks_pad(blocks);
        check_uint(blocks->list[b].elements, ==, elements);
    }
    check_int(blocks_finish(blocks, "paper", 0), ==, 0);
    return blocks;
}

static void bench_open(struct bench *bench)
{
    case_model_make(&bench->made, "llama");
    bench->options = case_options();
    bench->options.may_skip = true;
    check_int(
        run_prepared_create(bench->made.model, &bench->options, case_rates(), &bench->prepared), ==,
        0);
    const struct plan *plan = bench->prepared->plan;
    const struct dev_options size = {.memory_bytes = plan_tier_bytes(plan, PLAN_DEVICE) +
                                                     (1 << 20)};
    check_int(dev_open("cpu", &size, &bench->device), ==, 0);
    const struct run_memory_options where = {.plan = plan, .device = bench->device};
    check_int(run_memory_init(&bench->memory, &where), ==, 0);
    bench->blocks = make_blocks(&bench->prepared->input);
    for (size_t i = 0; i < GROUPS; i++) {
        bench->groups[i] = bench->options.group;
        bench->groups[i].lr = 1e-3 * (double)(i + 1);
        bench->groups[i].beta1 = 0.1 * (double)(i + 1);
        bench->groups[i].decay = 0.01 * (double)i;
        bench->groups[i].step = 1;
    }
    core_bell_init(&bench->bell);
    const struct run_update_options options = {.blocks = bench->blocks,
                                               .options = &bench->options,
                                               .groups = bench->groups,
                                               .group_count = GROUPS,
                                               .input = &bench->prepared->input,
                                               .plan = plan,
                                               .memory = &bench->memory,
                                               .bell = &bench->bell};
    check_int(run_update_create(&options, &bench->update), ==, 0);
}

static void bench_close(struct bench *bench)
{
    run_update_destroy(bench->update);
    blocks_destroy(bench->blocks);
    run_memory_fini(&bench->memory);
    dev_close(bench->device);
    run_prepared_destroy(bench->prepared);
    case_model_free(&bench->made);
}

/* What check_piece() expects; pieces are checked up to element `at`. */
struct expected {
    const struct bench *bench;
    const struct block *block;
    double scale;
    uint64_t at;
    unsigned groups_seen;
};

static int check_piece(void *context, const struct core_update_args *piece)
{
    struct expected *expected = context;
    const struct block *block = expected->block;
    size_t run = 0;
    check_uint(piece->first, ==, expected->at);
    while (block->runs[run].end <= piece->first) {
        run++;
    }
    check_uint(piece->first + piece->count, <=, block->runs[run].end);
    const struct adam_group group = expected->bench->groups[block->runs[run].group];
    expected->groups_seen |= 1u << block->runs[run].group;
    struct core_update_scalars scalars;
    check_int(adam_scalars(CORE_UPDATE_ADAMW, &group, expected->scale, &scalars), ==, 0);
    check_memory(&piece->scalars, &scalars, sizeof scalars);
    expected->at += piece->count;
    return 0;
}

static const struct plan_command *find(const struct bench *bench, enum plan_op op, uint32_t *from)
{
    const struct plan_tape *tape = plan_tape(bench->prepared->plan, PLAN_NEXT, PLAN_NEXT);
    while (*from < tape->count) {
        const struct plan_command *command = &tape->commands[(*from)++];
        if (command->op == op) {
            return command;
        }
    }
    return NULL;
}

static void pieces_have_their_groups_terms(void)
{
    struct bench bench;
    bench_open(&bench);
    for (unsigned step = 1; step <= 2; step++) {
        const struct run_update_terms terms = {bench.groups, 0.5 * step};
        unsigned groups_seen = 0;
        for (size_t i = 0; i < GROUPS; i++) {
            bench.groups[i].step = step;
            bench.groups[i].lr /= 2;
        }
        run_update_set_deferred(bench.update, &terms);
        run_update_set_speculative(bench.update, &terms);
        const struct plan_command *command = NULL;
        for (uint32_t from = 0; (command = find(&bench, PLAN_UPDATE, &from)) != NULL;) {
            const struct adam_arrays arrays = run_update_chunk(bench.update, command);
            struct expected expected = {.bench = &bench,
                                        .block = &bench.blocks->list[command->block],
                                        .scale = terms.scale,
                                        .at = arrays.first};
            check_int(run_update_pieces(bench.update, command, check_piece, &expected), ==, 0);
            check_uint(expected.at, ==, arrays.first + arrays.count);
            groups_seen |= expected.groups_seen;
        }
        check_uint(groups_seen, ==, (1u << GROUPS) - 1);
    }
    bench_close(&bench);
}

/* The last tile that is not finite names its block. */
static void bad_tiles_name_their_blocks(void)
{
    struct bench bench;
    uint32_t from = 0;
    bench_open(&bench);
    const struct plan_command *norm = find(&bench, PLAN_NORM, &from);
    check_true(norm != NULL);
    const struct run_lane lane = run_update_lane(bench.update);
    double *sums = (double *)(void *)run_memory_of(&bench.memory, norm, PLAN_AS_TILE_SUMS);
    uint64_t all = 0;
    for (uint32_t b = 0; b < bench.blocks->count; b++) {
        all += (bench.blocks->list[b].elements + CORE_UPDATE_TILE - 1) / CORE_UPDATE_TILE;
    }
    uint64_t first = 0;
    for (uint32_t b = 0; b < bench.blocks->count; b++) {
        const uint64_t count = (bench.blocks->list[b].elements + CORE_UPDATE_TILE - 1) /
                               CORE_UPDATE_TILE;
        for (int last = 0; last < 2 && count > 0; last++) {
            struct core_fence fence;
            memset(sums, 0, all * sizeof *sums);
            for (uint64_t i = 0; i < first; i++) {
                sums[i] = (double)INFINITY;
            }
            sums[last ? first + count - 1 : first] = (double)NAN;
            check_int(lane.submit(lane.context, norm, &fence), ==, 0);
            check_int(core_fence_wait(fence, -1), ==, 0);
            const struct run_verdict verdict = run_update_verdict(bench.update);
            check_true(!verdict.finite);
            check_uint(verdict.bad_block, ==, b);
        }
        first += count;
    }
    bench_close(&bench);
}

static uint64_t scalars_made;

int __real_adam_scalars(enum core_update_rule rule, const struct adam_group *group,
                        double gradient_scale, struct core_update_scalars *out);
int __wrap_adam_scalars(enum core_update_rule rule, const struct adam_group *group,
                        double gradient_scale, struct core_update_scalars *out);
int __wrap_adam_scalars(enum core_update_rule rule, const struct adam_group *group,
                        double gradient_scale, struct core_update_scalars *out)
{
    scalars_made++;
    return __real_adam_scalars(rule, group, gradient_scale, out);
}

/* With many blocks and groups, a block checks and keeps only the terms of its own group:
 * computed terms and memory have limits. */
static void many_blocks(void)
{
    enum { BLOCKS = 100000, MANY_GROUPS = 1000, BLOCK_BYTES_MAX = 16384 };
    static struct adam_group groups[MANY_GROUPS];
    const struct run_options options = case_options();
    struct blocks *blocks = NULL;
    struct run_update *update = NULL;
    struct core_bell bell;
    core_bell_init(&bell);
    check_int(blocks_create(&blocks), ==, 0);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        char name[64];
        uint64_t first = 0;
        snprintf(name, sizeof name, "parameter %" PRIu32, b);
        check_int(blocks_add(blocks, name), ==, 0);
        check_int(blocks_add_array(blocks, 1 + b % 1000, b % MANY_GROUPS, true, &first), ==, 0);
    }
    check_int(blocks_finish(blocks, "paper", 0), ==, 0);
    for (size_t i = 0; i < MANY_GROUPS; i++) {
        groups[i] = options.group;
        groups[i].step = 1;
    }
    groups[MANY_GROUPS - 1].beta1 = 2;
    const struct run_update_options wanted = {.blocks = blocks,
                                              .options = &options,
                                              .groups = groups,
                                              .group_count = MANY_GROUPS,
                                              .bell = &bell};
    check_int(run_update_create(&wanted, &update), ==,
              -EINVAL); /* the last group has a block and a wrong beta1 */
    groups[MANY_GROUPS - 1].beta1 = 0.9;
    const uint64_t before = run_runtime_used_bytes();
    const int64_t start_ns = core_clock_now_ns();
    scalars_made = 0;
    check_int(run_update_create(&wanted, &update), ==, 0);
    const uint64_t after = run_runtime_used_bytes();
    test_note("%d blocks in %d groups: %.2f s, %" PRIu64 " bytes each, %" PRIu64 " terms", BLOCKS,
              MANY_GROUPS, (double)(core_clock_now_ns() - start_ns) / 1e9,
              after > before ? (after - before) / BLOCKS : 0, scalars_made);
    check_uint(scalars_made, >=, BLOCKS);
    check_uint(scalars_made, <=, 2 * (BLOCKS + MANY_GROUPS));
    check_uint(after, <=, before + (uint64_t)BLOCKS * BLOCK_BYTES_MAX);
    run_update_destroy(update);
    blocks_destroy(blocks);
}

TEST_MAIN({"pieces_have_their_groups_terms", pieces_have_their_groups_terms},
          {"bad_tiles_name_their_blocks", bad_tiles_name_their_blocks},
          {"many_blocks", many_blocks})
