/* residence.c: bisects how much of each kind of byte can stay in memory. */
#include "offload/plan/residence.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"

bool plan_residence_fits(const struct plan_input *input, const struct plan_layout *layout)
{
    const struct plan_budgets *budgets = &input->budgets;
    uint64_t device = layout->tier_bytes[PLAN_DEVICE] + budgets->device_taken_bytes;
    uint64_t host = layout->tier_bytes[PLAN_HOST] + budgets->host_taken_bytes;
    bool joint = budgets->joint_bytes == 0 || device + host <= budgets->joint_bytes;
    return joint && device <= budgets->device_bytes && host <= budgets->host_bytes &&
           layout->tier_bytes[PLAN_STORE] <= budgets->store_bytes;
}

static void places_of(const struct plan_input *input, const struct plan_choice *choice,
                      const struct plan_residence *residence, struct plan_block_place *places)
{
    uint64_t chunks_left = residence->state_chunks;
    for (uint32_t b = 0; b < input->block_count; b++) {
        places[b] = (struct plan_block_place){.weights = PLAN_STORE,
                                              .grads = (uint8_t)choice->grads,
                                              .states = (uint8_t)residence->states};
        if (b < residence->device_blocks) {
            places[b].weights = PLAN_DEVICE;
        } else if (b < residence->device_blocks + residence->host_blocks) {
            places[b].weights = PLAN_HOST;
        }
        if (input->blocks[b].trained) {
            uint64_t chunks = plan_chunk_count(plan_state_most(input, b), choice->chunk_elements);
            uint64_t resident = chunks < chunks_left ? chunks : chunks_left;
            places[b].chunk_count = (uint32_t)chunks;
            places[b].resident_chunks = (uint32_t)resident;
            chunks_left -= resident;
        }
    }
}

static uint64_t all_chunks(const struct plan_input *input, const struct plan_choice *choice)
{
    uint64_t count = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        if (input->blocks[b].trained) {
            count += plan_chunk_count(plan_state_most(input, b), choice->chunk_elements);
        }
    }
    return count;
}

int plan_residence_lay_out(const struct plan_input *input, const struct plan_choice *choice,
                           const struct plan_residence *residence, struct plan_layout **out)
{
    struct plan_block_place *places = calloc(input->block_count, sizeof *places);
    if (places == NULL) {
        return core_err_set(-ENOMEM, "no memory for the places of %u blocks", input->block_count);
    }
    places_of(input, choice, residence, places);
    int rc = plan_layout_create(input, choice, places, out);
    free(places);
    return rc;
}

/* The largest value of one number of `residence`, up to `most`, that still fits. */
static int grow_residence(const struct plan_input *input, const struct plan_choice *choice,
                          struct plan_residence *residence, int which, uint64_t most)
{
    uint64_t low = 0;
    uint64_t high = most;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        struct plan_residence tried = *residence;
        tried.device_blocks = which == 0 ? (uint32_t)middle : tried.device_blocks;
        tried.host_blocks = which == 1 ? (uint32_t)middle : tried.host_blocks;
        tried.state_chunks = which == 2 ? middle : tried.state_chunks;
        struct plan_layout *layout = NULL;
        int rc = plan_residence_lay_out(input, choice, &tried, &layout);
        if (rc != 0) {
            return rc;
        }
        bool fitted = plan_residence_fits(input, layout);
        plan_layout_destroy(layout);
        low = fitted ? middle : low;
        high = fitted ? high : middle - 1;
    }
    residence->device_blocks = which == 0 ? (uint32_t)low : residence->device_blocks;
    residence->host_blocks = which == 1 ? (uint32_t)low : residence->host_blocks;
    residence->state_chunks = which == 2 ? low : residence->state_chunks;
    return 0;
}

struct plan_residence plan_residence_least(const struct plan_input *input,
                                           const struct plan_choice *choice)
{
    const struct plan_wishes *wishes = &input->wishes;
    bool store = input->budgets.store_bytes > 0;
    bool whole = plan_shards_states(input) && !plan_shards_weights(input) &&
                 !input->budgets.device_is_host;
    struct plan_residence least = {.states = PLAN_HOST};
    if (wishes->weights == PLAN_WHERE_DEVICE) {
        least.device_blocks = input->block_count;
    } else if (wishes->weights == PLAN_WHERE_HOST || !store || whole) {
        least.host_blocks = input->block_count;
    }
    least.states = wishes->states == PLAN_WHERE_DEVICE ? PLAN_DEVICE : PLAN_HOST;
    if (wishes->states == PLAN_WHERE_HOST || wishes->states == PLAN_WHERE_DEVICE || !store) {
        least.state_chunks = all_chunks(input, choice);
    }
    return least;
}

int plan_residence_spend(const struct plan_input *input, const struct plan_choice *choice,
                         struct plan_residence *residence)
{
    uint32_t owners = input->block_count;
    int rc = 0;
    if (input->wishes.weights == PLAN_WHERE_AUTO) {
        residence->host_blocks = input->budgets.store_bytes > 0 ? 0 : residence->host_blocks;
        rc = grow_residence(input, choice, residence, 0, owners - residence->host_blocks);
        if (rc == 0 && input->budgets.store_bytes > 0) {
            rc = grow_residence(input, choice, residence, 1, owners - residence->device_blocks);
        }
    }
    if (rc == 0 && input->wishes.states == PLAN_WHERE_AUTO && input->budgets.store_bytes > 0) {
        rc = grow_residence(input, choice, residence, 2, all_chunks(input, choice));
    }
    return rc;
}
