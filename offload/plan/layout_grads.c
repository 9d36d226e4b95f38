/* layout_grads.c: buffers of gradients: sums over micro-batches, what is on its way down, what
 * waits for its update. */
#include <stddef.h>

#include "offload/plan/layout.h"

/* Sums of a micro-batch-major step, and stored gradients that are sums themselves, live from the
 * first micro-batch to the last. */
static bool lives_all_along(const struct plan_input *input, const struct plan_choice *choice,
                            bool is_sum)
{
    return choice->order == PLAN_ORDER_MICRO && input->wishes.micro_batches > 1 && is_sum;
}

struct need {
    uint64_t elements[PLAN_SIZE_COUNT];
    uint32_t counts[PLAN_SIZE_COUNT];
};

static struct need need_of(const struct plan_input *input, const struct plan_layout *layout,
                           uint32_t most)
{
    struct need need = {{0}, {0}};
    for (uint32_t b = 0; b < input->block_count; b++) {
        if (input->blocks[b].trained) {
            int size = layout->blocks[b].size;
            uint64_t elements = input->blocks[b].elements;
            need.elements[size] = elements > need.elements[size] ? elements : need.elements[size];
            need.counts[size] += need.counts[size] < most;
        }
    }
    return need;
}

/* A buffer a block, or a ring that blocks take turns in. */
static int add_kind(struct plan_layout *layout, const struct plan_input *input, const char *name,
                    enum plan_tier tier, uint64_t width, uint32_t turns, size_t member,
                    struct plan_ring *ring)
{
    if (turns > 0) {
        struct need need = need_of(input, layout, turns);
        for (int size = 0; size < PLAN_SIZE_COUNT; size++) {
            need.elements[size] *= width;
        }
        return plan_layout_add_ring(layout, name, tier, need.elements, need.counts, ring);
    }
    int rc = 0;
    for (uint32_t b = 0; rc == 0 && b < input->block_count; b++) {
        if (input->blocks[b].trained) {
            uint16_t *index = (uint16_t *)(void *)((char *)&layout->blocks[b] + member);
            rc = plan_layout_add_of_block(layout, input, b, name, tier,
                                          input->blocks[b].elements * width, index);
        }
    }
    return rc;
}

static int add_shared_sum(struct plan_layout *layout, const struct plan_input *input)
{
    uint64_t elements = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        elements += plan_layout_shared(input, b);
    }
    return plan_layout_add(layout, "shared-sum", PLAN_DEVICE, elements * PLAN_SUM_BYTES,
                           &layout->shared_sum);
}

int plan_layout_add_gradients(struct plan_layout *layout, const struct plan_input *input,
                              const struct plan_choice *choice)
{
    bool direct = input->budgets.device_is_host;
    bool is_sum = !plan_layout_has_sums(input);
    uint64_t width = input->format.grad_bytes;
    bool at_once = choice->timing == PLAN_TIMING_INSIDE;
    enum plan_tier tier = (enum plan_tier)layout->places[0].grads;
    uint32_t stored = at_once && !(direct && lives_all_along(input, choice, is_sum))
                          ? choice->gradient_slots
                          : 0;
    int rc = add_kind(layout, input, "g", tier, width, stored,
                      offsetof(struct plan_block_layout, gradient), &layout->gradients);
    if (rc == 0 && !direct) {
        rc = add_kind(layout, input, "gdown", PLAN_DEVICE, width,
                      lives_all_along(input, choice, is_sum) ? 0 : choice->sum_slots,
                      offsetof(struct plan_block_layout, gradient_device),
                      &layout->gradients_device);
    }
    if (rc == 0 && plan_layout_has_sums(input)) {
        rc = add_kind(layout, input, "sum", PLAN_DEVICE, PLAN_SUM_BYTES,
                      lives_all_along(input, choice, true) ? 0 : choice->sum_slots,
                      offsetof(struct plan_block_layout, sum), &layout->sums);
    }
    return rc == 0 ? add_shared_sum(layout, input) : rc;
}
