/* rates_card.c: how fast a card updates parameters in its own memory, and sums their squares. */
#include <errno.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/dev/dev.h"
#include "kernels/table.h"
#include "offload/run/rates_parts.h"

/* Launches behind one another, so that handing one over is nothing beside them. */
enum { LAUNCHES = 8, TURNS = 3, ELEMENTS_MIN = CORE_VEC_TILE };

/* A device of its own with one chunk on it. */
static int card_open(struct run_rates_device *card, const char *name, uint64_t bytes)
{
    const struct dev_options device = {.memory_bytes = bytes + DEV_ALIGN_BYTES};
    const struct dev_queue_options queue = {.kind = DEV_QUEUE_COMPUTE};
    const struct kern_options plain = {.products = KERN_PRODUCTS_PLAIN}; /* none is computed */
    return run_rates_device_open(card, name, &device, &plain, &queue, bytes);
}

/* Elements a second of the best turn; the first one wakes the card. */
static int time_op(struct run_rates_device *card, const struct dev_command *command,
                   uint64_t elements, double *per_second)
{
    int rc = 0;
    for (int turn = 0; rc == 0 && turn < TURNS; turn++) {
        const int64_t start_ns = core_clock_now_ns();
        struct core_fence done = {0};
        for (int i = 0; rc == 0 && i < LAUNCHES; i++) {
            rc = dev_queue_launch(card->queue, command, &done);
        }
        rc = rc != 0 ? rc : core_fence_wait(done, -1);
        const double rate = (double)elements * LAUNCHES / run_rates_since(start_ns);
        *per_second = turn == 0 || rate > *per_second ? rate : *per_second;
    }
    return rc;
}

/* The chunk's streams, one behind another at multiples of a tile. */
static struct core_vec_update lay_out(const struct run_options *options, char *memory,
                                      uint64_t elements)
{
    const struct plan_format format = run_options_format(options);
    const enum core_vec_master master = run_options_master(options);
    const bool split = master == CORE_VEC_MASTER_SPLIT;
    char *states = memory + elements * 4;
    char *g = states + plan_state_bytes(&format, elements);
    char *const m = states + plan_state_offset(&format, PLAN_M, elements);
    char *const v = states + plan_state_offset(&format, PLAN_V, elements);
    char *const m_scale = states + plan_state_offset(&format, PLAN_M_SCALE, elements);
    char *const v_scale = states + plan_state_offset(&format, PLAN_V_SCALE, elements);
    char *const w32 = master == CORE_VEC_MASTER_F32 ? memory : states;
    return (struct core_vec_update){
        .rule = options->rule,
        .master = master,
        .gradients = run_options_gradients(options),
        .moments = options->moments,
        .count = elements,
        .w16 = master != CORE_VEC_MASTER_F32 ? (uint16_t *)(void *)memory : NULL,
        .lo16 = split ? (uint16_t *)(void *)states : NULL,
        .w32 = split ? NULL : (float *)(void *)w32,
        .g = g,
        .m = format.m_bytes > 0 ? m : NULL,
        .v = format.v_bytes > 0 ? v : NULL,
        .m_scale = format.q8_block > 0 && format.m_bytes > 0 ? (float *)(void *)m_scale : NULL,
        .v_scale = format.q8_block > 0 && format.v_bytes > 0 ? (float *)(void *)v_scale : NULL,
        .seed = 1,
        .stream = 1,
    };
}

int run_rates_card(const struct run_shapes *shapes, const struct run_options *options,
                   struct plan_rates *out)
{
    const struct plan_format format = run_options_format(options);
    const uint64_t each = 8 + plan_state_bytes(&format, CORE_VEC_TILE) / CORE_VEC_TILE + 1;
    const uint64_t spare = run_rates_spare(shapes, options) / each;
    const uint64_t elements = (spare > ELEMENTS_MIN ? spare : ELEMENTS_MIN) / CORE_VEC_TILE *
                              CORE_VEC_TILE;
    const uint64_t sums_bytes = elements / CORE_VEC_TILE * sizeof(double);
    struct kern_update_arguments update = {.met = NULL};
    struct adam_group group = options->group;
    struct run_rates_device card = {0};
    const uint64_t bytes = elements * 4 + plan_state_bytes(&format, elements) + elements * 4;
    if (strncmp(options->device, "cpu", 3) == 0) {
        out->card_update_elements = out->card_sums_elements = 0;
        return 0;
    }
    group.step = 1;
    int rc = card_open(&card, options->device, bytes + sums_bytes);
    if (rc == 0) {
        update.update = lay_out(options, card.memory, elements);
        rc = adam_scalars(options->rule, &group, 1, &update.update.scalars);
    }
    const struct core_vec_norm norm = {.x = update.update.g,
                                       .type = run_options_gradients(options),
                                       .count = elements,
                                       .sums = (double *)(void *)((char *)card.memory + bytes)};
    const struct dev_command updates = {
        .op = KERN_UPDATE, .arguments = &update, .arguments_bytes = sizeof update};
    const struct dev_command sums = {
        .op = KERN_SQUARES, .arguments = &norm, .arguments_bytes = sizeof norm};
    rc = rc != 0 ? rc : time_op(&card, &updates, elements, &out->card_update_elements);
    rc = rc != 0 ? rc : time_op(&card, &sums, elements, &out->card_sums_elements);
    run_rates_device_close(&card);
    return rc;
}
