/* what_if.c: a table of parts with their rates and budgets. */
#include "offload/run/what_if.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

enum { RATES_MAX = 7 };

/* which machines have a part */
enum owner { ANY, CARD, NO_CARD, RANKS, STORE };

struct part {
    const char *name;
    enum owner owner;
    bool computes;           /* also shortens the seconds of blocks */
    size_t rates[RATES_MAX]; /* offsets in struct plan_rates */
    unsigned rate_count;
    bool device_size, host_size; /* the part is this budget, not a rate */
};

#define RATE(field) offsetof(struct plan_rates, field)

static const struct part parts[] = {
    {"drives",
     STORE,
     false,
     {RATE(read_bytes), RATE(write_bytes), RATE(mixed_bytes)},
     3,
     false,
     false},
    {"links to the GPU",
     CARD,
     false,
     {RATE(up_bytes), RATE(down_bytes), RATE(both_bytes)},
     3,
     false,
     false},
    {"rate of host memory",
     CARD,
     false,
     {RATE(update_elements), RATE(sums_elements), RATE(memory_bytes)},
     3,
     false,
     false},
    {"processors",
     NO_CARD,
     true,
     {RATE(flops), RATE(update_elements), RATE(sums_elements), RATE(round_elements), RATE(io_bytes),
      RATE(pack_elements), RATE(code_elements)},
     7,
     false,
     false},
    {"GPU",
     CARD,
     true,
     {RATE(flops), RATE(round_elements), RATE(card_update_elements), RATE(card_sums_elements)},
     4,
     false,
     false},
    {"size of GPU memory", CARD, false, {0}, 0, true, false},
    {"size of host memory", ANY, false, {0}, 0, false, true},
    {"network between ranks",
     RANKS,
     false,
     {RATE(coll_bytes), RATE(within_bytes)},
     2,
     false,
     false},
};
enum { PARTS = sizeof parts / sizeof parts[0] };

static bool has(const struct plan_input *input, enum owner owner)
{
    switch (owner) {
    case ANY: return true;
    case CARD: return !input->budgets.device_is_host;
    case NO_CARD: return input->budgets.device_is_host;
    case RANKS: return input->world > 1;
    case STORE: return input->budgets.store_bytes > 0;
    }
    return false;
}

static const struct part *part_at(const struct plan_input *input, unsigned index)
{
    unsigned seen = 0;
    for (size_t i = 0; i < PARTS; i++) {
        if (has(input, parts[i].owner) && seen++ == index) {
            return &parts[i];
        }
    }
    return NULL;
}

const char *run_what_if_part(const struct run_prepared *prepared, unsigned index)
{
    const struct part *part = part_at(&prepared->input, index);
    return part != NULL ? part->name : NULL;
}

/* On the CPU device both tiers are host memory. */
static void enlarge(struct plan_budgets *budgets, const struct part *part)
{
    if (part->device_size || (part->host_size && budgets->device_is_host)) {
        budgets->device_bytes *= 2;
    }
    if (part->host_size) {
        budgets->host_bytes *= 2;
        budgets->joint_bytes *= 2;
    }
}

int run_what_if(const struct run_prepared *prepared, unsigned index, double *seconds)
{
    struct plan_input input = prepared->input;
    const struct part *part = part_at(&input, index);
    struct plan *plan = NULL;
    if (part == NULL) {
        return core_err_set(-ENOENT, "part %u does not exist", index);
    }
    struct plan_block_shape *blocks = malloc(input.block_count * sizeof *blocks);
    if (blocks == NULL) {
        return core_err_set(-ENOMEM, "no memory for the shapes of %u blocks", input.block_count);
    }
    memcpy(blocks, input.blocks, input.block_count * sizeof *blocks);
    for (uint32_t b = 0; part->computes && b < input.block_count; b++) {
        blocks[b].forward_seconds /= 2;
        blocks[b].recompute_seconds /= 2;
        blocks[b].backward_seconds /= 2;
    }
    for (unsigned i = 0; i < part->rate_count; i++) {
        *(double *)(void *)((char *)&input.rates + part->rates[i]) *= 2;
    }
    enlarge(&input.budgets, part);
    input.blocks = blocks;
    int rc = plan_create(&input, &plan);
    if (rc == 0) {
        *seconds = plan_predicted(plan)->step_seconds;
    }
    plan_destroy(plan);
    free(blocks);
    return rc;
}
