/* residence.c: finds by bisection how much of each kind of data stays in memory. */
#include "offload/plan/residence.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"

static bool store_holds(const struct plan_input *input, const struct plan_layout *layout)
{
    return layout->tier_bytes[PLAN_STORE] <= input->budgets.store_bytes;
}

bool plan_residence_fits(const struct plan_input *input, const struct plan_layout *layout)
{
    const struct plan_budgets *budgets = &input->budgets;
    uint64_t device = layout->tier_bytes[PLAN_DEVICE] +
                      plan_layout_taken(input, layout, PLAN_DEVICE);
    uint64_t host = layout->tier_bytes[PLAN_HOST] + plan_layout_taken(input, layout, PLAN_HOST);
    bool joint = budgets->joint_bytes == 0 || device + host <= budgets->joint_bytes;
    return joint && device <= budgets->device_bytes && host <= budgets->host_bytes &&
           store_holds(input, layout);
}

/* A block of which only rows are read is kept last, because keeping it saves little traffic. */
static uint32_t turn_of(const struct plan_input *input, uint32_t block)
{
    if (input->blocks[0].rows_bytes == 0) {
        return block;
    }
    return block > 0 ? block - 1 : input->block_count - 1;
}

static void places_of(const struct plan_input *input, const struct plan_choice *choice,
                      const struct plan_residence *residence, struct plan_block_place *places)
{
    uint64_t chunks_left = residence->state_chunks;
    for (uint32_t b = 0; b < input->block_count; b++) {
        places[b] = (struct plan_block_place){
            .weights = PLAN_STORE,
            .grads = (uint8_t)choice->grads,
            .states = (uint8_t)residence->states,
            .kept = choice->acts == PLAN_ACTS_KEEP ||
                    (b < input->compute_count &&
                     input->compute_count - b <= residence->kept_blocks),
            .pending = input->blocks[b].trained && plan_choice_leaves(choice, b)};
        bool on_card = b < residence->card_blocks && input->blocks[b].trained;
        const uint32_t turn = turn_of(input, b);
        if (input->application) {
            places[b].weights = PLAN_APPLICATION;
        } else if (turn < residence->device_blocks || on_card) {
            places[b].weights = PLAN_DEVICE;
        } else if (turn < residence->device_blocks + residence->host_blocks) {
            places[b].weights = PLAN_HOST;
        }
        if (input->blocks[b].trained) {
            uint64_t chunks = plan_chunk_count(plan_state_most(input, b), choice->chunk_elements);
            uint64_t resident = on_card || chunks < chunks_left ? chunks : chunks_left;
            places[b].chunk_count = (uint32_t)chunks;
            places[b].resident_chunks = (uint32_t)resident;
            chunks_left -= on_card ? 0 : resident;
            places[b].states = on_card ? PLAN_DEVICE : places[b].states;
            places[b].grads = on_card ? PLAN_DEVICE : places[b].grads;
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

enum number { DEVICE_BLOCKS, HOST_BLOCKS, STATE_CHUNKS, CARD_BLOCKS, KEPT_BLOCKS };

static void set_number(struct plan_residence *residence, enum number which, uint64_t value)
{
    switch (which) {
    case DEVICE_BLOCKS: residence->device_blocks = (uint32_t)value; break;
    case HOST_BLOCKS: residence->host_blocks = (uint32_t)value; break;
    case STATE_CHUNKS: residence->state_chunks = value; break;
    case CARD_BLOCKS: residence->card_blocks = (uint32_t)value; break;
    case KEPT_BLOCKS: residence->kept_blocks = (uint32_t)value; break;
    }
}

static uint64_t get_number(const struct plan_residence *residence, enum number which)
{
    switch (which) {
    case DEVICE_BLOCKS: return residence->device_blocks;
    case HOST_BLOCKS: return residence->host_blocks;
    case STATE_CHUNKS: return residence->state_chunks;
    case CARD_BLOCKS: return residence->card_blocks;
    case KEPT_BLOCKS: return residence->kept_blocks;
    }
    return 0;
}

/* *out: whether the layout `serves` with one count set to `value`. */
static int try_number(const struct plan_input *input, const struct plan_choice *choice,
                      const struct plan_residence *residence, enum number which, uint64_t value,
                      bool (*serves)(const struct plan_input *, const struct plan_layout *),
                      bool *out)
{
    struct plan_residence tried = *residence;
    struct plan_layout *layout = NULL;
    set_number(&tried, which, value);
    int rc = plan_residence_lay_out(input, choice, &tried, &layout);
    if (rc == 0) {
        *out = serves(input, layout);
        plan_layout_destroy(layout);
    }
    return rc;
}

/* Raises one count as far as it fits, up to `most`. */
static int grow_residence(const struct plan_input *input, const struct plan_choice *choice,
                          struct plan_residence *residence, enum number which, uint64_t most)
{
    uint64_t low = get_number(residence, which);
    uint64_t high = most;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        bool fitted;
        int rc = try_number(input, choice, residence, which, middle, plan_residence_fits, &fitted);
        if (rc != 0) {
            return rc;
        }
        low = fitted ? middle : low;
        high = fitted ? high : middle - 1;
    }
    set_number(residence, which, low);
    return 0;
}

/* Raises one count until `serves` is true, or to `most`. */
static int relieve_number(const struct plan_input *input, const struct plan_choice *choice,
                          struct plan_residence *residence, enum number which, uint64_t most,
                          bool (*serves)(const struct plan_input *, const struct plan_layout *))
{
    uint64_t low = get_number(residence, which);
    uint64_t high = most;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        bool holds;
        int rc = try_number(input, choice, residence, which, middle, serves, &holds);
        if (rc != 0) {
            return rc;
        }
        high = holds ? middle : high;
        low = holds ? low : middle + 1;
    }
    set_number(residence, which, low);
    return 0;
}

int plan_residence_relieve(const struct plan_input *input, const struct plan_choice *choice,
                           struct plan_residence *residence)
{
    int rc = 0;
    if (input->wishes.states == PLAN_WHERE_AUTO) {
        rc = relieve_number(input, choice, residence, STATE_CHUNKS, all_chunks(input, choice),
                            store_holds);
    }
    if (rc == 0 && input->wishes.weights == PLAN_WHERE_AUTO && !input->application) {
        rc = relieve_number(input, choice, residence,
                            residence->weights_to_device ? DEVICE_BLOCKS : HOST_BLOCKS,
                            input->block_count, store_holds);
    }
    return rc;
}

static bool host_holds(const struct plan_input *input, const struct plan_layout *layout)
{
    return layout->tier_bytes[PLAN_HOST] + plan_layout_taken(input, layout, PLAN_HOST) <=
           input->budgets.host_bytes;
}

int plan_residence_lighten(const struct plan_input *input, const struct plan_choice *choice,
                           struct plan_residence *residence)
{
    uint32_t most = choice->card_blocks;
    return most <= residence->card_blocks
               ? 0
               : relieve_number(input, choice, residence, CARD_BLOCKS, most, host_holds);
}

struct plan_residence plan_residence_least(const struct plan_input *input,
                                           const struct plan_choice *choice, unsigned defaults)
{
    const struct plan_wishes *wishes = &input->wishes;
    bool store = input->budgets.store_bytes > 0;
    bool whole = plan_shards_states(input) && !plan_shards_weights(input) &&
                 !input->budgets.device_is_host;
    bool to_device = (defaults & PLAN_WEIGHTS_TO_DEVICE) != 0 && wishes->weights == PLAN_WHERE_AUTO;
    struct plan_residence least = {.weights_to_device = to_device};
    if (wishes->weights == PLAN_WHERE_DEVICE || (to_device && !store)) {
        least.device_blocks = input->block_count;
    } else if (wishes->weights == PLAN_WHERE_HOST || !store || whole) {
        least.host_blocks = input->block_count;
    }
    bool states_to_device = (defaults & PLAN_STATES_TO_DEVICE) != 0 &&
                            wishes->states == PLAN_WHERE_AUTO;
    bool in_device = wishes->states == PLAN_WHERE_DEVICE || states_to_device;
    least.states = in_device && input->budgets.device_is_host ? PLAN_DEVICE : PLAN_HOST;
    least.card_blocks = in_device && !input->budgets.device_is_host ? input->block_count : 0;
    if (wishes->states == PLAN_WHERE_HOST || wishes->states == PLAN_WHERE_DEVICE || !store) {
        least.state_chunks = all_chunks(input, choice);
    }
    return least;
}

/* On the CPU device, states go where more chunks fit. */
static int grow_states(const struct plan_input *input, const struct plan_choice *choice,
                       struct plan_residence *residence)
{
    uint64_t most = all_chunks(input, choice);
    int rc = grow_residence(input, choice, residence, STATE_CHUNKS, most);
    if (rc != 0 || residence->state_chunks == most || !input->budgets.device_is_host) {
        return rc;
    }
    struct plan_residence other = *residence;
    other.states = PLAN_DEVICE;
    rc = grow_residence(input, choice, &other, STATE_CHUNKS, most);
    *residence = other.state_chunks > residence->state_chunks ? other : *residence;
    return rc;
}

static int keep(const struct plan_input *input, const struct plan_choice *choice,
                struct plan_residence *residence)
{
    bool may = choice->acts == PLAN_ACTS_RECOMPUTE && input->wishes.acts == PLAN_ACTS_AUTO;
    const uint64_t most = input->compute_count - choice->recomputed;
    return may ? grow_residence(input, choice, residence, KEPT_BLOCKS, most) : 0;
}

int plan_residence_spend(const struct plan_input *input, const struct plan_choice *choice,
                         struct plan_residence *residence)
{
    uint32_t owners = input->block_count;
    bool store = input->budgets.store_bytes > 0;
    int rc = choice->keeps_first ? keep(input, choice, residence) : 0;
    if (rc == 0 && choice->card_blocks > residence->card_blocks) {
        rc = grow_residence(input, choice, residence, CARD_BLOCKS, choice->card_blocks);
    }
    if (rc == 0 && input->wishes.weights == PLAN_WHERE_AUTO && !input->application) {
        bool in_memory = residence->host_blocks > 0;
        rc = grow_residence(input, choice, residence, DEVICE_BLOCKS, owners);
        if (rc == 0 && !in_memory) {
            rc = grow_residence(input, choice, residence, HOST_BLOCKS,
                                owners - residence->device_blocks);
        }
    }
    if (rc == 0 && input->wishes.states == PLAN_WHERE_AUTO && store) {
        rc = grow_states(input, choice, residence);
    }
    return rc == 0 && !choice->keeps_first ? keep(input, choice, residence) : rc;
}
