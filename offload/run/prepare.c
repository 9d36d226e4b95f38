/* prepare.c: makes shapes, rates, budgets and the plan. */
#include "offload/run/prepare.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "offload/plan/layout.h"
#include "offload/run/lane_update.h"
#include "offload/run/rank.h"

static double at_least_one(double factor)
{
    return factor > 1 ? factor : 1;
}

static void set_seconds(struct run_prepared *prepared, double factor)
{
    const struct model *model = prepared->shapes->model;
    for (unsigned b = 0; b < model->compute_count; b++) {
        struct plan_block_shape *shape = &prepared->shapes->blocks[b];
        const enum model_block_kind kind = model->blocks[b].kind;
        shape->forward_seconds = prepared->rates.forward_seconds[kind] * factor;
        shape->recompute_seconds = prepared->rates.recompute_seconds[kind] * factor;
        shape->backward_seconds = prepared->rates.backward_seconds[kind] * factor;
    }
}

/* Local ranks work at the same time. They share drives and, with more threads than processors, also
 * the processors. */
static void share(struct plan_rates *rates, const struct run_options *options)
{
    const double ranks = at_least_one(options->drive_ranks);
    const double crowding = at_least_one(options->crowding);
    double *const of_drives[] = {&rates->read_bytes, &rates->write_bytes, &rates->mixed_bytes};
    double *const of_cores[] = {&rates->update_elements, &rates->sums_elements,
                                &rates->flops,           &rates->up_bytes,
                                &rates->down_bytes,      &rates->round_elements,
                                &rates->pack_elements,   &rates->code_elements};
    const size_t cores = sizeof of_cores / sizeof of_cores[0];
    for (size_t i = 0; i < sizeof of_drives / sizeof of_drives[0]; i++) {
        *of_drives[i] /= ranks;
    }
    /* Without shared cores only the first two rates use the processors. */
    for (size_t i = 0; i < (rates->shared_cores ? cores : 2); i++) {
        *of_cores[i] /= crowding;
    }
}

/* The plan is for the slowest rank, for which the others wait. */
static void slow_down(struct plan_rates *rates, double straggler)
{
    double *const own[] = {
        &rates->read_bytes,     &rates->write_bytes,          &rates->mixed_bytes,
        &rates->up_bytes,       &rates->down_bytes,           &rates->both_bytes,
        &rates->flops,          &rates->update_elements,      &rates->memory_bytes,
        &rates->sums_elements,  &rates->card_update_elements, &rates->card_sums_elements,
        &rates->round_elements, &rates->pack_elements,        &rates->code_elements};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        *own[i] /= straggler;
    }
}

/* Plans no updates on a card that cannot update all parameters (run_update_splits_q8_block). */
static int restrict_card(struct run_prepared *prepared, const struct model *model,
                         const struct run_options *options)
{
    struct plan_input *input = &prepared->input;
    if (!run_update_splits_q8_block(model->flat, options)) {
        return 0;
    }
    input->rates.card_update_elements = 0;
    if (input->wishes.states == PLAN_WHERE_DEVICE && !input->budgets.device_is_host) {
        return core_err_set(-EINVAL,
                            "states in DEVICE with 8-bit moments: parameters of this model with "
                            "different decay share blocks of %d moments, which a card cannot "
                            "update",
                            CORE_UPDATE_Q8_BLOCK);
    }
    return 0;
}

/* Keeps tapes from growing with the number of micro-batches. */
static void group_micro_batches(struct run_prepared *prepared, const struct run_options *options,
                                uint32_t groups_max)
{
    const uint32_t group = (options->micro_batches + groups_max - 1) / groups_max;
    for (uint32_t b = 0; b < prepared->shapes->model->block_count; b++) {
        prepared->blocks[b] = run_shapes_grouped(&prepared->shapes->blocks[b], group);
    }
    prepared->input.group = group;
    prepared->input.wishes.micro_batches = (options->micro_batches + group - 1) / group;
}

static uint64_t weight_bytes(const struct plan_block_shape *shape)
{
    return shape->elements * shape->format.weight_bytes;
}

/* Returns whether weights that other blocks borrow can be loaded by sections. If their block
 * computes, it must work with rows. */
static bool can_lend_sections(const struct run_prepared *prepared, uint32_t block)
{
    return block >= prepared->shapes->model->compute_count ||
           prepared->blocks[block].rows_bytes > 0;
}

struct sectioning {
    uint64_t whole_max_bytes; /* selects blocks with more bytes of weights */
    bool trained;             /* selects blocks with trained weights, too */
};

/* Blocks that are not selected load whole, and what they borrow cannot be loaded by rows. Returns
 * how many blocks have sections. */
static uint32_t choose_sections(struct run_prepared *prepared, const struct sectioning *sectioning)
{
    uint32_t count = 0;
    for (uint32_t b = 0; b < prepared->shapes->block_count; b++) {
        struct plan_block_shape *shape = &prepared->blocks[b];
        const struct plan_block_shape *source = &prepared->blocks[shape->source];
        if (weight_bytes(source) <= sectioning->whole_max_bytes ||
            (source->trained && !sectioning->trained) ||
            (shape->source != b && !can_lend_sections(prepared, shape->source))) {
            shape->sections = NULL;
        }
        for (uint32_t i = 0; i < shape->borrow_count; i++) {
            if (shape->sections == NULL || shape->source != shape->borrows[i]) {
                prepared->blocks[shape->borrows[i]].rows_bytes = 0;
            }
        }
        count += shape->sections != NULL;
    }
    return count;
}

static uint64_t layer_bytes(const struct run_prepared *prepared)
{
    const struct plan_block_shape *blocks = prepared->shapes->blocks;
    uint64_t bytes = weight_bytes(&blocks[1]);
    for (uint32_t i = 0; i < blocks[1].borrow_count; i++) {
        bytes += weight_bytes(&blocks[blocks[1].borrows[i]]);
    }
    return bytes;
}

/* Prefers whole blocks to sections, which are read more often. By sections: frozen weights larger
 * than a layer, then all frozen ones, then all weights. Larger groups come before smaller ones,
 * which need longer tapes but less memory for activations. Packed weights are gathered whole. */
static int plan_groups(struct run_prepared *prepared, const struct run_options *options)
{
    enum { GROUPS = 2 };
    static const uint32_t groups_max[GROUPS] = {RUN_OPTIONS_GROUPS, 8 * RUN_OPTIONS_GROUPS};
    const struct sectioning sectionings[] = {
        {UINT64_MAX, false}, {layer_bytes(prepared), false}, {0, false}, {0, true}};
    const bool smaller = options->micro_batches > groups_max[0] &&
                         options->wishes.order != PLAN_ORDER_LAYER;
    const size_t ways = options->packs ? 1 : sizeof sectionings / sizeof sectionings[0];
    /* blocks with sections in the last plan */
    uint32_t last[GROUPS] = {UINT32_MAX, UINT32_MAX};
    int rc = -EFBIG;
    for (size_t s = 0; s < ways; s++) {
        for (size_t g = 0; rc == -EFBIG && g < (smaller ? GROUPS : 1); g++) {
            group_micro_batches(prepared, options, groups_max[g]);
            const uint32_t count = choose_sections(prepared, &sectionings[s]);
            prepared->input.wishes.order = g > 0 ? PLAN_ORDER_MICRO : options->wishes.order;
            rc = count != last[g] ? plan_create(&prepared->input, &prepared->plan) : rc;
            last[g] = count;
        }
    }
    return rc;
}

static int find_rates(struct run_prepared *prepared, const struct run_options *options,
                      const struct run_rates *rates)
{
    if (rates != NULL) {
        prepared->rates = *rates;
        return 0;
    }
    int rc = run_rates_measure(prepared->shapes, options, &prepared->rates);
    if (options->coll_bytes > 0) {
        prepared->rates.machine.coll_bytes = options->coll_bytes;
        prepared->rates.machine.within_bytes = options->within_bytes;
    }
    /* Callers would take a drive's -EFBIG for a plan that does not fit. */
    return rc == -EFBIG ? -EIO : rc;
}

static int make_plan(struct run_prepared *prepared, const struct model *model,
                     const struct run_options *options)
{
    const int64_t start_ns = core_clock_now_ns();
    const double straggler = at_least_one(options->straggler);
    set_seconds(prepared, prepared->rates.machine.shared_cores
                              ? straggler * at_least_one(options->crowding)
                              : straggler);
    prepared->input = run_shapes_input(prepared->shapes, options, &prepared->rates.machine);
    share(&prepared->input.rates, options);
    slow_down(&prepared->input.rates, straggler);
    prepared->input.blocks = prepared->blocks;
    prepared->input.budgets.device_taken_bytes += run_rank_device_bytes(prepared->shapes, options);
    int rc = restrict_card(prepared, model, options);
    if (rc != 0) {
        return rc;
    }
    rc = plan_groups(prepared, options);
    prepared->plan_seconds = (double)(core_clock_now_ns() - start_ns) * 1e-9;
    return rc;
}

int run_prepared_create(const struct model *model, const struct run_options *options,
                        const struct run_rates *rates, struct run_prepared **out)
{
    struct run_prepared *prepared = calloc(1, sizeof *prepared);
    if (prepared == NULL) {
        return core_err_set(-ENOMEM, "no memory for a plan");
    }
    int rc = run_shapes_create(model, options, &prepared->shapes);
    if (rc != 0) {
        goto fail;
    }
    prepared->blocks = calloc(model->block_count, sizeof *prepared->blocks);
    if (prepared->blocks == NULL) {
        rc = core_err_set(-ENOMEM, "no memory for the shapes of %u blocks", model->block_count);
        goto fail;
    }
    rc = find_rates(prepared, options, rates);
    if (rc != 0) {
        goto fail;
    }
    rc = make_plan(prepared, model, options);
    if (rc != 0) {
        goto fail;
    }
    *out = prepared;
    return 0;
fail:;
    const struct core_err kept = core_err_keep(rc);
    run_prepared_destroy(prepared);
    return core_err_first(&kept, 0);
}

void run_prepared_destroy(struct run_prepared *prepared)
{
    if (prepared == NULL) {
        return;
    }
    plan_destroy(prepared->plan);
    free(prepared->blocks);
    run_shapes_destroy(prepared->shapes);
    free(prepared);
}

uint64_t run_prepared_bytes(const struct run_prepared *prepared, enum plan_tier tier)
{
    return plan_tier_bytes(prepared->plan, tier) +
           plan_layout_taken(&prepared->input, plan_layout_of(prepared->plan), tier);
}
