/* layout_acts.c: buffers of activations: boundaries, what backward needs, gradients of boundaries. */
#include <stdio.h>

#include "offload/plan/layout.h"

static int add_numbered(struct plan_layout *layout, const char *what, uint32_t block,
                        uint32_t micro, enum plan_tier tier, uint64_t bytes, uint16_t *out)
{
    char name[32];
    snprintf(name, sizeof name, "%s(%u.%u)", what, block, micro);
    return plan_layout_add(layout, name, tier, PLAN_FOR_ACTIVATIONS, bytes, out);
}

static uint64_t widest_boundary(const struct plan_input *input)
{
    uint64_t widest = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        uint64_t bytes = input->blocks[b].out_bytes;
        widest = bytes > widest ? bytes : widest;
    }
    return plan_round_up(widest, PLAN_ALIGN_BYTES);
}

/* One boundary of one micro-batch: on the DEVICE for good, or PLAN_ACT_TURN boundaries' worth that
 * take turns there while the others wait in HOST or STORE. */
static int add_boundary(struct plan_layout *layout, const struct plan_input *input,
                        const struct plan_choice *choice, uint32_t i)
{
    uint32_t b = i / layout->in_flight;
    uint32_t micro = i % layout->in_flight;
    uint32_t before = i - PLAN_ACT_TURN * layout->in_flight;
    bool stored = choice->acts == PLAN_ACTS_STORE;
    bool offloaded = choice->acts == PLAN_ACTS_HOST || stored;
    bool turns = b >= PLAN_ACT_TURN;
    uint64_t widest = widest_boundary(input);
    int rc = 0;
    if (offloaded && turns) {
        layout->acts[i] = layout->acts[before];
    } else {
        rc = add_numbered(layout, "act", b, micro, PLAN_DEVICE,
                          offloaded ? widest : input->blocks[b].out_bytes, &layout->acts[i]);
    }
    if (rc == 0 && offloaded && !(stored && input->budgets.device_is_host)) {
        if (stored && turns) {
            layout->acts_host[i] = layout->acts_host[before];
        } else {
            rc = add_numbered(layout, "act", b, micro, PLAN_HOST, widest, &layout->acts_host[i]);
        }
    }
    if (rc == 0 && stored) {
        rc = add_numbered(layout, "act", b, micro, PLAN_STORE,
                          plan_round_up(input->blocks[b].out_bytes, PLAN_EXTENT_BYTES),
                          &layout->acts_store[i]);
    }
    return rc;
}

int plan_layout_add_acts(struct plan_layout *layout, const struct plan_input *input,
                         const struct plan_choice *choice)
{
    uint32_t in_flight = layout->in_flight;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < (input->block_count - 1) * in_flight; i++) {
        rc = add_boundary(layout, input, choice, i);
    }
    for (uint32_t i = 0; rc == 0 && i < in_flight; i++) {
        rc = add_numbered(layout, "dact", 0, i, PLAN_DEVICE, widest_boundary(input),
                          &layout->out_grads[i]);
    }
    for (uint32_t i = 0; rc == 0 && i < input->block_count * in_flight; i++) {
        bool kept = layout->places[i / in_flight].kept;
        rc = add_numbered(layout, "kept", i / in_flight, i % in_flight, PLAN_DEVICE,
                          kept ? plan_layout_kept_bytes(input, i / in_flight) : 0,
                          &layout->kept[i]);
    }
    return rc;
}
