/* measure_blocks.c: times the model's blocks and the expansion of stored weights, each alone,
 * within the budgets, and more than once, because a first round is slower. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "kernels/quant.h"
#include "offload/model/run.h"
#include "offload/run/measure.h"
#include "offload/run/measure_bench.h"

/* ---- the blocks of the model ---- */

/* A larger head or embedding is not run; its time follows from its flops. A layer above the budgets
 * is run over fewer tokens. */
static const uint64_t block_bytes_max = UINT64_C(1) << 30;
static const uint64_t less_bytes_max = UINT64_C(256) << 20;
static const double enough_seconds = 1;

struct stage {
    struct run_bench bench;
    struct model_binding binding;
};

static uint64_t place_array(uint64_t *total, uint64_t bytes)
{
    const uint64_t at = *total;
    *total += (bytes + 4095) / 4096 * 4096;
    return at;
}

/* Lays out the arrays of the block's steps. Returns their bytes; with `memory` NULL, binds
 * nothing. */
static uint64_t lay_out(const struct run_shapes *shapes, const struct run_options *options,
                        unsigned index, char *memory, struct model_binding *binding)
{
    const struct model *model = shapes->model;
    const struct model_block *block = &model->blocks[index];
    const struct model_program *program = shapes->programs[index];
    const uint64_t width = kern_type_bytes(options->type);
    const uint64_t act = program->in_bytes > program->out_bytes ? program->in_bytes
                                                                : program->out_bytes;
    const uint64_t tokens = (uint64_t)(options->rows * options->length) * sizeof(int32_t);
    const uint64_t angles = (uint64_t)(options->length * model->config.rope.rotary) * sizeof(float);
    const bool pairs = options->pairs > 0;
    uint64_t total = 0;
    const uint64_t weights = place_array(&total, block->elements * width);
    const struct plan_block_shape *shape = &shapes->blocks[index];
    const uint64_t grads = place_array(&total, shape->trained ? block->elements * width : 0);
    uint64_t lent[PLAN_BORROWS_MAX];
    for (uint32_t i = 0; i < shape->borrow_count; i++) {
        lent[i] = place_array(&total, shapes->blocks[shape->borrows[i]].elements * width);
    }
    const uint64_t sum = place_array(&total, shape->shared_elements * sizeof(float));
    const uint64_t bases[MODEL_BASE_COUNT] = {
        [MODEL_BASE_IN] = place_array(&total, act),
        [MODEL_BASE_OUT] = place_array(&total, act),
        [MODEL_BASE_GRAD] = place_array(&total, act),
        [MODEL_BASE_KEPT] = place_array(&total, program->kept_bytes),
        [MODEL_BASE_TEMP] = place_array(&total, run_shapes_kept_offset(program)),
        [MODEL_BASE_IDS] = place_array(&total, tokens),
        [MODEL_BASE_LABELS] = place_array(&total, tokens),
        [MODEL_BASE_COS] = place_array(&total, angles),
        [MODEL_BASE_SIN] = place_array(&total, angles),
        [MODEL_BASE_SCALE] = place_array(&total, sizeof(float)),
        [MODEL_BASE_LOSS] = place_array(&total, sizeof(struct kern_loss)),
        [MODEL_BASE_GAPS] = pairs ? place_array(&total, tokens) : 0,
        [MODEL_BASE_POSITIONS] = pairs ? place_array(&total, tokens) : 0,
    };
    if (memory == NULL) {
        return total;
    }
    const struct kern_grad none = {0};
    const struct kern_grad grad = {
        .out = memory + grads, .out_type = options->type, .first = true, .last = true};
    model_binding_set_flat(binding, block, index, options->type, memory + weights,
                           shape->trained ? &grad : &none);
    for (uint32_t i = 0; i < shape->borrow_count; i++) {
        model_binding_set_flat(binding, block, shape->borrows[i], options->type, memory + lent[i],
                               &none);
    }
    for (int b = 0; b < MODEL_BASE_COUNT; b++) {
        const bool absent = bases[b] == 0 && (b == MODEL_BASE_POSITIONS || b == MODEL_BASE_STARTS ||
                                              b == MODEL_BASE_GAPS || b == MODEL_BASE_PARAM);
        binding->base[b] = absent ? NULL : memory + bases[b];
    }
    for (unsigned i = 0; i < block->param_count; i++) {
        if (block->params[i].owner != index && block->params[i].trained) {
            binding->grads[i] = (struct kern_grad){
                .sum = (float *)(void *)(memory + sum), .first = true, .last = true};
        }
    }
    return total;
}

static uint64_t stage_bytes(const struct run_shapes *shapes, const struct run_options *options,
                            unsigned index)
{
    return lay_out(shapes, options, index, NULL, NULL) + shapes->scratch_bytes +
           (uint64_t)2 * DEV_ALIGN_BYTES;
}

static int stage_copy(struct stage *stage, enum dev_copy_direction direction, char *to,
                      const void *from, uint64_t bytes)
{
    const struct dev_copy move = {.direction = direction, .to = to, .from = from, .bytes = bytes};
    struct core_fence done = {0};
    int rc = dev_queue_copy(stage->bench.queue, &move, &done);
    return rc != 0 ? rc : core_fence_wait(done, -1);
}

/* Fills a GPU's memory with small numbers, because a GPU computes faster with zeros; ids, labels
 * and positions are 0. */
static int stage_fill(struct stage *stage, uint64_t bytes, uint64_t tokens)
{
    enum { PATTERN_BYTES = 1 << 20 };
    const enum model_base ids[] = {MODEL_BASE_IDS, MODEL_BASE_LABELS, MODEL_BASE_POSITIONS};
    uint16_t *pattern = malloc(PATTERN_BYTES);
    uint32_t random = 1;
    if (pattern == NULL) {
        return core_err_set(-ENOMEM, "no memory for the data to measure with");
    }
    for (size_t i = 0; i < PATTERN_BYTES / sizeof *pattern; i++) {
        random = random * UINT32_C(1664525) + UINT32_C(1013904223);
        pattern[i] = (uint16_t)(random >> 31 << 15 | (0x3c00U + (random >> 16 & 0xffU)));
    }
    char *const memory = stage->bench.memory;
    uint64_t done = bytes < PATTERN_BYTES ? bytes : PATTERN_BYTES;
    int rc = stage_copy(stage, DEV_COPY_UP, memory, pattern, done);
    for (; rc == 0 && done < bytes; done *= 2) {
        const uint64_t part = done < bytes - done ? done : bytes - done;
        rc = stage_copy(stage, DEV_COPY_WITHIN, memory + done, memory, part);
    }
    memset(pattern, 0, PATTERN_BYTES);
    for (int i = 0; i < 3; i++) {
        const bool there = stage->binding.base[ids[i]] != NULL;
        for (uint64_t at = 0; rc == 0 && there && at < tokens * sizeof(int32_t);
             at += PATTERN_BYTES) {
            const uint64_t left = tokens * sizeof(int32_t) - at;
            rc = stage_copy(stage, DEV_COPY_UP, (char *)stage->binding.base[ids[i]] + at, pattern,
                            left < PATTERN_BYTES ? left : PATTERN_BYTES);
        }
    }
    free(pattern);
    return rc;
}

/* Writes the gaps of pairs with full rows, which share the tokens that would exceed the length. */
static int stage_write_gaps(struct stage *stage, const struct run_options *options)
{
    enum { GAPS = 2 };
    const int64_t both = 2 * options->row_length - options->length;
    const int64_t shared = both > 0 ? both : 0;
    const int32_t gap[GAPS] = {(int32_t)shared, (int32_t)(shared + (options->length - shared) / 2)};
    char *const gaps = stage->binding.base[MODEL_BASE_GAPS];
    int rc = 0;
    for (int64_t pair = 0; rc == 0 && pair < options->pairs; pair++) {
        rc = stage_copy(stage, DEV_COPY_UP, gaps + (size_t)pair * sizeof gap, gap, sizeof gap);
    }
    return rc;
}

static int stage_open(struct stage *stage, const struct run_shapes *shapes,
                      const struct run_options *options, unsigned index)
{
    const uint64_t bytes = lay_out(shapes, options, index, NULL, NULL);
    const struct dev_queue_options queue = {.kind = DEV_QUEUE_COMPUTE,
                                            .depth = 1024,
                                            .threads = options->threads,
                                            .scratch_bytes = shapes->scratch_bytes};
    int rc = run_bench_open(&stage->bench, options->device, NULL, &queue, bytes);
    if (rc != 0) {
        return rc;
    }
    rc = model_binding_init(&stage->binding, shapes->model);
    if (rc != 0) {
        return rc;
    }
    (void)lay_out(shapes, options, index, stage->bench.memory, &stage->binding);
    if (dev_properties(stage->bench.device)->host_visible) {
        memset(stage->bench.memory, 0, bytes); /* token 0, weights of zero */
    } else {
        rc = stage_fill(stage, bytes, (uint64_t)(options->rows * options->length));
    }
    return rc == 0 ? stage_write_gaps(stage, options) : rc;
}

static int time_steps(struct stage *stage, const struct model_steps *steps, enum model_which which,
                      double *seconds)
{
    const int64_t start_ns = core_clock_now_ns();
    int rc = model_run_all(stage->bench.queue, steps, which, &stage->binding);
    if (rc != 0) {
        return rc;
    }
    rc = core_fence_wait(dev_queue_tail(stage->bench.queue), -1);
    *seconds = run_measure_seconds_since(start_ns);
    return rc;
}

/* Takes the fastest of a few rounds, or of two slow ones. */
static int measure_block(const struct run_shapes *shapes, const struct run_options *options,
                         unsigned index, struct run_rates *out)
{
    enum { TURNS = 3 };
    const struct model_program *program = shapes->programs[index];
    const enum model_block_kind kind = shapes->model->blocks[index].kind;
    const struct {
        const struct model_steps *steps;
        enum model_which which;
        double *best;
    } parts[] = {
        {&program->forward, MODEL_RUN_ALL, &out->forward_seconds[kind]},
        {&program->forward, MODEL_RUN_RECOMPUTE, &out->recompute_seconds[kind]},
        {&program->backward, MODEL_RUN_ALL, &out->backward_seconds[kind]},
    };
    struct stage stage = {0};
    const int64_t start_ns = core_clock_now_ns();
    int rc = stage_open(&stage, shapes, options, index);
    for (int turn = 0; rc == 0 && turn < TURNS; turn++) {
        const bool late = run_measure_seconds_since(start_ns) > enough_seconds;
        for (size_t i = 0; rc == 0 && i < sizeof parts / sizeof parts[0] && !(late && turn > 1);
             i++) {
            double seconds = 0;
            rc = time_steps(&stage, parts[i].steps, parts[i].which, &seconds);
            *parts[i].best = turn == 0 || seconds < *parts[i].best ? seconds : *parts[i].best;
        }
    }
    model_binding_fini(&stage.binding);
    run_bench_close(&stage.bench);
    return rc;
}

/* All budgets, if the tiers are one memory; otherwise at most DEVICE's. */
static uint64_t limit_of(const struct run_options *options)
{
    const uint64_t all = run_measure_budget_bytes(options);
    const uint64_t device = options->budgets.device_bytes;
    return options->budgets.device_is_host || all < device ? all : device;
}

/* Halves rows or pairs; with one left and `tokens`, the length. False: nothing can be halved. */
static bool halve(struct run_options *options, bool tokens)
{
    if (options->pairs > 1) {
        options->pairs /= 2;
        options->rows = 2 * options->pairs;
    } else if (options->pairs == 0 && options->rows > 1) {
        options->rows /= 2;
    } else if (tokens && options->length > 1) {
        options->length /= 2;
        options->row_length /= options->row_length > 1 ? 2 : 1;
    } else {
        return false;
    }
    return true;
}

/* Halves a layer's rows until it fits and takes at most less_bytes_max; if one row does not fit,
 * halves its tokens. Sets *out to NULL if one token does not fit. */
static int shrink(const struct run_shapes *shapes, unsigned layer, uint64_t limit,
                  struct run_options *options, struct run_shapes **out)
{
    struct run_shapes *fewer = NULL;
    uint64_t bytes = UINT64_MAX;
    int rc = 0;
    while (rc == 0 && (bytes > limit || bytes > less_bytes_max)) {
        if (!halve(options, bytes > limit)) {
            break;
        }
        run_shapes_destroy(fewer);
        fewer = NULL;
        rc = run_shapes_create(shapes->model, options, &fewer);
        bytes = rc == 0 ? stage_bytes(fewer, options, layer) : 0;
    }
    if (rc == 0 && bytes > limit) { /* not even one token fits */
        run_shapes_destroy(fewer);
        fewer = NULL;
    }
    if (rc == 0) {
        *out = fewer;
    }
    return rc;
}

static double ratio(double all, double part)
{
    return part > 0 ? all / part : 1;
}

/* Scales the time of shrink()'s rows by flops. If one token does not fit, no plan does, so nothing
 * is measured. */
static int measure_fewer_rows(const struct run_shapes *shapes, const struct run_options *options,
                              unsigned layer, uint64_t limit, struct run_rates *out)
{
    const enum model_block_kind kind = shapes->model->blocks[layer].kind;
    struct run_options less = *options;
    struct run_shapes *fewer = NULL;
    int rc = shrink(shapes, layer, limit, &less, &fewer);
    if (rc == 0 && fewer != NULL) {
        const struct model_program *all = shapes->programs[layer];
        const struct model_program *part = fewer->programs[layer];
        rc = measure_block(fewer, &less, layer, out);
        out->forward_seconds[kind] *= ratio(all->forward.flops, part->forward.flops);
        out->recompute_seconds[kind] *= ratio(all->recompute_flops, part->recompute_flops);
        out->backward_seconds[kind] *= ratio(all->backward.flops, part->backward.flops);
    }
    run_shapes_destroy(fewer);
    return rc;
}

int run_measure_blocks(const struct run_shapes *shapes, const struct run_options *options,
                       struct run_rates *out, bool *whole)
{
    const unsigned count = shapes->model->compute_count;
    const unsigned layer = count > 2 ? 1 : 0;
    const uint64_t limit = limit_of(options);
    *whole = stage_bytes(shapes, options, layer) <= limit;
    int rc = *whole ? measure_block(shapes, options, layer, out)
                    : measure_fewer_rows(shapes, options, layer, limit, out);
    const unsigned ends[] = {0, count - 1};
    for (int i = 0; i < 2 && rc == 0; i++) {
        const bool fits = stage_bytes(shapes, options, ends[i]) <= limit;
        if (fits && lay_out(shapes, options, ends[i], NULL, NULL) <= block_bytes_max) {
            rc = measure_block(shapes, options, ends[i], out);
        }
        *whole = *whole && fits;
    }
    const double seconds = out->forward_seconds[shapes->model->blocks[layer].kind];
    out->machine.flops = seconds > 0 ? shapes->programs[layer]->forward.flops / seconds : 1e9;
    return rc;
}

/* ---- stored weights ---- */

/* Returns the largest tensor of the first block in fewer bits, or NULL. */
static const struct model_stored_part *largest_part(const struct run_shapes *shapes)
{
    const struct model_stored_part *most = NULL;
    for (uint32_t b = 0; most == NULL && b < shapes->block_count; b++) {
        const struct model_stored *stored = shapes->stored[b];
        for (unsigned i = 0; stored != NULL && i < stored->count; i++) {
            const struct model_stored_part *part = &stored->parts[i];
            most = most == NULL || part->rows * part->cols > most->rows * most->cols ? part : most;
        }
    }
    return most;
}

/* Expands rows as wide as the largest stored tensor, within the spare memory. */
int run_measure_expand(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out)
{
    const struct model_stored_part *part = shapes->model != NULL ? largest_part(shapes) : NULL;
    const struct dev_queue_options queue = {.kind = DEV_QUEUE_COMPUTE, .threads = options->threads};
    /* no products are computed */
    const struct kern_options plain = {.products = KERN_PRODUCTS_PLAIN};
    const uint64_t spare = run_measure_spare(shapes, options);
    struct run_bench bench = {0};
    if (part == NULL) {
        out->expand_elements = 0;
        return 0;
    }
    const uint64_t width = kern_type_bytes(options->type);
    const uint64_t fitting = spare / ((uint64_t)part->cols * (width + 1)) + 1;
    struct kern_expand_arguments y = {.type = options->type,
                                      .quant = part->quant,
                                      .from = part->from,
                                      .rows = (int64_t)fitting,
                                      .cols = part->cols};
    const uint64_t elements = (uint64_t)(y.rows * y.cols);
    y.count = (int64_t)elements;
    const uint64_t stored = kern_quant_layout_of(y.quant, y.from, y.rows, y.cols).bytes;
    int rc = run_bench_open(&bench, options->device, &plain, &queue, stored + elements * width);
    if (rc == 0) {
        const struct dev_command command = {
            .op = KERN_EXPAND, .arguments = &y, .arguments_bytes = sizeof y};
        kern_quant_point(&y, bench.memory);
        y.y = (char *)bench.memory + stored;
        rc = run_bench_time(&bench, &command, elements, &out->expand_elements);
    }
    run_bench_close(&bench);
    return rc;
}
