/* world.c: fills in the shared small model. */
#include "tests/plan/world.h"

#include <stdio.h>

#include "core/base/err.h"
#include "tests/harness/test.h"

void world_init(struct world *world, bool tied, uint32_t micros)
{
    static const char *const layers[LAYERS] = {"layer.0", "layer.1", "layer.2",
                                               "layer.3", "layer.4", "layer.5"};
    *world = (struct world){0};
    for (uint32_t b = 0; b < BLOCKS; b++) {
        struct plan_block_shape *shape = &world->shapes[b];
        bool layer = b > 0 && b + 1 < BLOCKS;
        *shape = (struct plan_block_shape){
            .elements = (layer ? 5 : 8) * UNIT,
            .out_bytes = b + 1 < BLOCKS ? 4096 : 0,
            .kept_bytes = layer ? 65536 : 0,
            .forward_bytes = 8192,
            .backward_bytes = 16384,
            .forward_flops = layer ? 2e9 : 1e8,
            .recompute_flops = layer ? 2e9 : 1e8,
            .backward_flops = layer ? 4e9 : 2e8,
            .backward_reads_weights = b > 0,
            .trained = true,
            .format = {
                .weight_bytes = 2, .master_bytes = 2, .m_bytes = 4, .v_bytes = 4, .grad_bytes = 2}};
        if (b == 0 || b + 1 == BLOCKS) {
            shape->name = b == 0 ? "embedding" : "head";
        } else {
            shape->name = layers[b - 1];
        }
    }
    if (tied) {
        world->shapes[BLOCKS - 1].elements = 128;
        world->shapes[BLOCKS - 1].borrow_count = 1;
        world->shapes[BLOCKS - 1].shared_elements = 7 * UNIT;
    }
    world->input = (struct plan_input){
        .blocks = world->shapes,
        .block_count = BLOCKS,
        .compute_count = BLOCKS,
        .wishes = {.micro_batches = micros, .may_clip = true, .chunk_elements = 2 * UNIT},
        .budgets = {.device_bytes = UINT64_C(1) << 40,
                    .host_bytes = UINT64_C(1) << 40,
                    .store_bytes = UINT64_C(1) << 40},
        .rates = {.read_bytes = 2e9,
                  .write_bytes = 2e9,
                  .mixed_bytes = 2e9,
                  .up_bytes = 20e9,
                  .down_bytes = 20e9,
                  .flops = 1e12,
                  .update_elements = 1e9,
                  .sums_elements = 5e9,
                  .round_elements = 5e9,
                  .command_seconds = 2e-6}};
}

void world_add_data(struct world *world, uint32_t block, uint64_t elements)
{
    struct plan_block_shape *shape = &world->shapes[block];
    const uint32_t data = world->input.block_count++;
    world->shapes[data] = (struct plan_block_shape){
        .name = "data", .elements = elements, .format = shape->format};
    shape->borrows[shape->borrow_count++] = data;
}

void world_set_grad_bytes(struct world *world, uint8_t bytes)
{
    for (int b = 0; b < BLOCKS; b++) {
        world->shapes[b].format.grad_bytes = bytes;
    }
}

uint64_t world_parameters(const struct world *world)
{
    uint64_t sum = 0;
    for (int b = 0; b < BLOCKS; b++) {
        sum += world->shapes[b].elements;
    }
    return sum;
}

struct plan *world_plan(const struct world *world)
{
    struct plan *plan = NULL;
    int rc = plan_create(&world->input, &plan);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "no plan (%d): %s", rc, core_err_message());
    }
    return plan;
}

uint32_t world_digit(uint32_t *variant, uint32_t base)
{
    uint32_t value = *variant % base;
    *variant /= base;
    return value;
}

void world_mix_formats(struct world *world)
{
    for (int b = 1; b < BLOCKS; b += 2) {
        struct plan_format *format = &world->shapes[b].format;
        format->weight_bytes = 4;
        format->master_bytes = 0;
        format->grad_bytes = world->input.wishes.micro_batches > 1 ? format->grad_bytes : 4;
    }
}

void world_lend(struct world *world, uint64_t number)
{
    static const enum plan_where states[] = {PLAN_WHERE_AUTO, PLAN_WHERE_HOST, PLAN_WHERE_STORE};
    uint32_t v = (uint32_t)number;
    world_init(world, false, 1);
    world->input.application = true;
    world->input.budgets.device_is_host = true;
    for (int b = 0; b < BLOCKS; b++) {
        struct plan_block_shape *shape = &world->shapes[b];
        shape->out_bytes = shape->kept_bytes = shape->forward_bytes = shape->backward_bytes = 0;
        shape->forward_flops = shape->recompute_flops = shape->backward_flops = 0;
    }
    world->input.wishes.may_clip = world_digit(&v, 2);
    world->input.wishes.grads = world_digit(&v, 2) ? PLAN_WHERE_HOST : PLAN_WHERE_AUTO;
    world->input.wishes.states = states[world_digit(&v, 3)];
    world->input.wishes.chunk_elements = (1 + world_digit(&v, 3)) * UNIT;
    world->input.wishes.state_slots = 1 + world_digit(&v, 3);
    world->input.block_count = world->input.compute_count = 1 + world_digit(&v, BLOCKS);
    if (world_digit(&v, 2)) {
        world_mix_formats(world);
    }
}
