/* measure.c: times what devices and the update do: the blocks of the model, the update of a chunk,
 * sums of squares, copies. Each is measured in memory of its own, within the budgets, and more than
 * once: the first time creates primitives, touches pages and wakes a card. */
#include "offload/run/measure.h"
#include "offload/run/place.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/caches.h"
#include "core/base/clock.h"
#include "core/base/cpus.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/coll/sum.h"
#include "core/dev/dev.h"
#include "cpu_adam/norm.h"
#include "kernels/quant.h"
#include "kernels/table.h"
#include "offload/model/run.h"
#include "offload/run/lane_update.h"

static double seconds_since(int64_t start_ns)
{
    return (double)(core_clock_now_ns() - start_ns) * 1e-9;
}

/* ---- limits on memory and files ---- */

/* Limits of the file that a drive is measured with. */
static const uint64_t file_bytes_min = UINT64_C(64) << 20;
static const uint64_t file_bytes_max = UINT64_C(4) << 30;

/* The most memory that measuring takes, except the update's arrays; a small model is measured with
 * less. */
static const uint64_t spare_bytes_max = UINT64_C(256) << 20;
static const uint64_t small_bytes = UINT64_C(16) << 20;

/* Bytes of the weights and states of all blocks. */
static uint64_t kept_bytes(const struct run_shapes *shapes, const struct run_options *options)
{
    const struct plan_format format = run_options_format(options);
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < shapes->block_count; b++) {
        const uint64_t elements = shapes->blocks[b].elements;
        const uint64_t stored = shapes->blocks[b].stored_elements;
        bytes += (stored > 0 ? stored : elements) * format.weight_bytes +
                 (shapes->blocks[b].trained ? plan_state_bytes(&format, elements) : 0);
    }
    return bytes;
}

uint64_t run_measure_file_bytes(const struct run_shapes *shapes, const struct run_options *options)
{
    const uint64_t bytes = kept_bytes(shapes, options);
    uint64_t file = file_bytes_min;
    while (file < bytes && file < file_bytes_max) {
        file *= 2;
    }
    return file;
}

/* The budgets of HOST and DEVICE together. */
static uint64_t budget_bytes(const struct run_options *options)
{
    const struct plan_budgets *budgets = &options->budgets;
    const uint64_t bytes = budgets->host_bytes + budgets->device_bytes;
    const bool joint = budgets->joint_bytes > 0 && budgets->joint_bytes < bytes;
    return joint ? budgets->joint_bytes : bytes;
}

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* As run_measure_spare with another upper limit, a power of two. */
static uint64_t spare_within(const struct run_shapes *shapes, const struct run_options *options,
                             uint64_t limit)
{
    const uint64_t most = clamp(kept_bytes(shapes, options) / 6 + small_bytes, 0, limit);
    const uint64_t budget = budget_bytes(options) / 4;
    uint64_t spare = limit;
    while (spare > most && spare > small_bytes) {
        spare /= 2;
    }
    return spare < budget ? spare : budget;
}

uint64_t run_measure_spare(const struct run_shapes *shapes, const struct run_options *options)
{
    return spare_within(shapes, options, spare_bytes_max);
}

/* ---- a device to measure on ---- */

struct bench {
    struct dev_device *device;
    struct kern_ops *ops;
    struct dev_queue *queue;
    void *memory;
};

/* `bench` is zeroed before; the caller closes it even after a failure. */
static int bench_open(struct bench *bench, const char *name, const struct kern_options *kernels,
                      const struct dev_queue_options *queue, uint64_t bytes)
{
    const struct dev_options device = {.memory_bytes = bytes + queue->scratch_bytes +
                                                       (uint64_t)2 * DEV_ALIGN_BYTES};
    int rc = dev_open(name, &device, &bench->device);
    if (rc != 0) {
        return rc;
    }
    rc = kern_ops_attach(bench->device, kernels, &bench->ops);
    if (rc != 0) {
        return rc;
    }
    rc = dev_queue_create(bench->device, queue, &bench->queue);
    return rc != 0 ? rc : dev_memory_alloc(bench->device, bytes, &bench->memory);
}

static void bench_close(struct bench *bench)
{
    dev_queue_destroy(bench->queue);
    if (bench->device != NULL) {
        if (bench->memory != NULL) {
            dev_memory_free(bench->device, bench->memory);
        }
        kern_ops_detach(bench->ops);
        dev_close(bench->device);
    }
}

/* ---- the blocks of the model ---- */

/* A head or embedding larger than this is not run; its time follows from its flops at a layer's
 * speed. A layer that is larger than the budgets is run over so few rows that it takes at most
 * less_bytes_max. */
static const uint64_t block_bytes_max = UINT64_C(1) << 30;
static const uint64_t less_bytes_max = UINT64_C(256) << 20;
static const double enough_seconds = 1;

/* A device with one block on it. */
struct stage {
    struct bench bench;
    struct model_binding binding;
};

/* Adds an array to the layout and returns its offset. */
static uint64_t place_array(uint64_t *total, uint64_t bytes)
{
    const uint64_t at = *total;
    *total += (bytes + 4095) / 4096 * 4096;
    return at;
}

/* Lays out everything that the block's steps touch, and binds it. `memory` NULL: only adds up bytes. */
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
    const uint64_t grads = place_array(&total, block->elements * width);
    const struct plan_block_shape *shape = &shapes->blocks[index];
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
        /* Zeros: the whole row is one answer, which the other one does not see. */
        [MODEL_BASE_GAPS] = pairs ? place_array(&total, tokens) : 0,
        [MODEL_BASE_POSITIONS] = pairs ? place_array(&total, tokens) : 0,
    };
    if (memory == NULL) {
        return total;
    }
    const struct kern_grad none = {0};
    const struct kern_grad grad = {
        .out = memory + grads, .out_type = options->type, .first = true, .last = true};
    model_binding_set_flat(binding, block, index, options->type, memory + weights, &grad);
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

/* Bytes of a device that measuring a block takes. */
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

/* Fills a card's memory, because a card computes faster with zeros: numbers of about 0.01 of both
 * signs, in bf16 as in fp32; then ids and labels of token 0. */
static int stage_fill(struct stage *stage, uint64_t bytes, uint64_t tokens)
{
    enum { PATTERN_BYTES = 1 << 20 };
    const enum model_base ids[] = {MODEL_BASE_IDS, MODEL_BASE_LABELS};
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
    for (int i = 0; i < 2; i++) {
        for (uint64_t at = 0; rc == 0 && at < tokens * sizeof(int32_t); at += PATTERN_BYTES) {
            const uint64_t left = tokens * sizeof(int32_t) - at;
            rc = stage_copy(stage, DEV_COPY_UP, (char *)stage->binding.base[ids[i]] + at, pattern,
                            left < PATTERN_BYTES ? left : PATTERN_BYTES);
        }
    }
    free(pattern);
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
    int rc = bench_open(&stage->bench, options->device, NULL, &queue, bytes);
    if (rc != 0) {
        return rc;
    }
    rc = model_binding_init(&stage->binding, shapes->model);
    if (rc != 0) {
        return rc;
    }
    (void)lay_out(shapes, options, index, stage->bench.memory, &stage->binding);
    if (dev_properties(stage->bench.device)->host_visible) {
        memset(stage->bench.memory, 0, bytes); /* ids and labels of token 0, weights of zero */
        return 0;
    }
    return stage_fill(stage, bytes, (uint64_t)(options->rows * options->length));
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
    *seconds = seconds_since(start_ns);
    return rc;
}

/* The fastest of a few rounds: the first round creates primitives, and other programs may disturb
 * any. */
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
        const bool late = seconds_since(start_ns) > enough_seconds;
        for (size_t i = 0; rc == 0 && i < sizeof parts / sizeof parts[0] && !(late && turn > 1);
             i++) {
            double seconds = 0;
            rc = time_steps(&stage, parts[i].steps, parts[i].which, &seconds);
            *parts[i].best = turn <= 1 || seconds < *parts[i].best ? seconds : *parts[i].best;
        }
    }
    model_binding_fini(&stage.binding);
    bench_close(&stage.bench);
    return rc;
}

/* Bytes that a block may take while it is measured: all budgets if the tiers are one memory, else DEVICE's. */
static uint64_t limit_of(const struct run_options *options)
{
    const uint64_t all = budget_bytes(options);
    const uint64_t device = options->budgets.device_bytes;
    return options->budgets.device_is_host || all < device ? all : device;
}

/* Halves the number of rows or pairs; if one is left and `tokens`, halves its length. Returns false if nothing
 * can be halved. */
static bool halve(struct run_options *options, bool tokens)
{
    if (options->pairs > 1) {
        options->pairs /= 2;
        options->rows = 2 * options->pairs;
    } else if (options->pairs == 0 && options->rows > 1) {
        options->rows /= 2;
    } else if (tokens && options->length > 1) {
        options->length /= 2;
    } else {
        return false;
    }
    return true;
}

/* Halves the rows until a layer fits, and then the tokens of the one row. *out is NULL if not even a
 * layer over one token fits. */
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

/* Measures a layer over as many rows as fit; the time of all rows follows from their flops. Measures
 * nothing if not even one token fits: then no plan does. */
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
        out->recompute_seconds[kind] *= ratio(all->forward.flops, part->forward.flops);
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

/* ---- the update of a chunk ---- */

enum { UPDATE_ELEMENTS_MIN = 64 << 10, UPDATE_TURNS = 3 };
static const uint64_t update_bytes_max = UINT64_C(1) << 30; /* larger than every cache */

/* Bytes of a chunk with its gradients, the weights and gradients of at most four bytes each. */
static uint64_t chunk_bytes(const struct plan_format *format, uint64_t elements)
{
    return elements * 8 + plan_state_bytes(format, elements);
}

/* The streams of a chunk in `memory`: weights, states, gradients. */
static struct adam_arrays chunk_arrays(const struct plan_format *format, char *memory,
                                       uint64_t elements)
{
    char *states = memory + elements * 4;
    return run_update_arrays(format, 0, elements, memory, states,
                             states + plan_state_bytes(format, elements));
}

/* Of the processors that may be used. */
static uint64_t cache_bytes(void)
{
    struct core_cpus cpus;
    return core_cpus_allowed(&cpus) == 0 ? core_caches_bytes(&cpus, "") : 0;
}

/* Parameters that the update is measured with. They should not fit into caches into which those of the model do not
 * fit. */
static uint64_t update_elements(const struct run_shapes *shapes, const struct run_options *options)
{
    const struct plan_format format = run_options_format(options);
    const uint64_t each = 8 + plan_state_bytes(&format, CORE_UPDATE_TILE) / CORE_UPDATE_TILE;
    const uint64_t model = kept_bytes(shapes, options);
    const uint64_t most = model < budget_bytes(options) / 4 ? model : budget_bytes(options) / 4;
    const uint64_t least = 2 * cache_bytes() < most ? 2 * cache_bytes() : most;
    const uint64_t given = spare_within(shapes, options, update_bytes_max);
    const uint64_t spare = given > least ? given : least;
    return clamp(spare / each, UPDATE_ELEMENTS_MIN, update_bytes_max / each) / CORE_UPDATE_TILE *
           CORE_UPDATE_TILE;
}

/* An update of whole arrays. */
struct updating {
    struct adam *adam;
    const struct adam_arrays *arrays;
};

static int do_update(void *context)
{
    const struct updating *updating = context;
    return adam_step(updating->adam, updating->arrays, 0, updating->arrays->count, 1, NULL);
}

static int time_update(struct updating *updating, double *seconds)
{
    int rc = 0;
    for (int turn = 0; rc == 0 && turn < UPDATE_TURNS; turn++) {
        const int64_t start_ns = core_clock_now_ns();
        rc = do_update(updating);
        *seconds = seconds_since(start_ns);
    }
    return rc;
}

/* Bytes per second of copies that would stop the update: its loss of speed beside copies tells. On the CPU device
 * copies are work of the processor, which is counted otherwise. */
static int time_beside(const struct run_shapes *shapes, const struct run_options *options,
                       struct updating *updating, double alone, struct plan_rates *out)
{
    const double least_loss = 0.01; /* below it is noise: the update hardly uses memory */
    const struct run_beside with = {.work = do_update,
                                    .context = updating,
                                    .seconds = alone,
                                    .link_bytes = out->up_bytes,
                                    .spare_bytes = run_measure_spare(shapes, options)};
    double seconds = 0;
    double copied = 0;
    out->memory_bytes = 0;
    if (dev_is_cpu(options->device)) {
        return 0;
    }
    const int rc = run_measure_beside(options, &with, &seconds, &copied);
    const double loss = rc == 0 ? 1 - alone / seconds : 0;
    if (rc == 0 && copied > 0) {
        out->memory_bytes = copied / (loss > least_loss ? loss : least_loss);
    } else if (rc == 0) { /* no copy ended during so small an update: its own bytes tell */
        const struct plan_format format = run_options_format(options);
        out->memory_bytes = (double)updating->arrays->count / alone *
                            run_options_touched_bytes(&format);
    }
    return rc;
}

/* Warns if small budgets have made it so. */
static void tell_cache(const struct run_shapes *shapes, const struct run_options *options,
                       uint64_t bytes)
{
    const uint64_t cache = cache_bytes();
    if (bytes <= cache && kept_bytes(shapes, options) > cache) {
        core_log(CORE_LOG_WARN,
                 "the rate of the update is measured with %" PRIu64
                 " MiB, which fit into the processors' caches of %" PRIu64
                 " MiB: the plan may be too fast; a larger --host-memory measures with more",
                 bytes >> 20, cache >> 20);
    }
}

/* The number of threads to measure with. All ranks of this machine update at the same time and
 * share the rate of its memory, so it is the sum of their threads, but no more than there are
 * processors, and no less than this rank has. */
static unsigned crew_of(const struct run_options *options)
{
    struct core_cpus cpus;
    const unsigned processors = core_cpus_allowed(&cpus) == 0 ? core_cpus_count(&cpus) : 1;
    const double all = options->threads * (options->drive_ranks > 1 ? options->drive_ranks : 1);
    const unsigned crew = all < processors ? (unsigned)all : processors;
    return crew > options->threads ? crew : options->threads;
}

int run_measure_update(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out)
{
    const struct plan_format format = run_options_format(options);
    const uint64_t elements = update_elements(shapes, options);
    struct core_region_options memory = {.name = "the measured update",
                                         .bytes = chunk_bytes(&format, elements)};
    struct run_options alone = *options; /* on the machine, with the threads of all its ranks */
    struct run_place place;
    struct adam_group group = options->group;
    struct adam *adam = NULL;
    struct core_team *team = NULL;
    struct core_region region = {0};
    double *sums = calloc(elements / CORE_UPDATE_TILE, sizeof *sums);
    const unsigned crew = crew_of(options);
    const double own = (double)options->threads / crew;
    alone.rank = 0;
    alone.local = 1;
    alone.threads = crew;
    run_place_create(&alone, NULL, -1, &place);
    int rc = sums != NULL ? run_place_team(&place, "rates", crew, &team)
                          : core_err_set(-ENOMEM, "no memory to measure the update");
    if (rc != 0) {
        goto done;
    }
    memory.team = team; /* which touches the pages in turn, on all nodes */
    rc = core_region_alloc(&memory, &region);
    if (rc != 0) {
        goto done;
    }
    group.step = 1;
    const struct adam_options made = {.rule = options->rule,
                                      .master = run_options_master(options),
                                      .gradients = run_options_gradients(options),
                                      .moments = options->moments,
                                      .count = elements,
                                      .groups = &group,
                                      .groups_count = 1,
                                      .team = team};
    const struct adam_arrays arrays = chunk_arrays(&format, (char *)region.base, elements);
    rc = adam_create(&made, &adam);
    if (rc != 0) {
        goto done;
    }
    struct updating updating = {adam, &arrays};
    double seconds = 0;
    rc = time_update(&updating, &seconds);
    if (rc == 0) {
        rc = time_beside(shapes, options, &updating, seconds, out);
    }
    if (rc != 0) {
        goto done;
    }
    out->update_elements = (double)elements / seconds * own;
    out->memory_bytes *= own;
    tell_cache(shapes, options, memory.bytes);
    struct adam_norm norm;
    adam_norm_init(&norm, team, CORE_CPU_ALL);
    const struct core_squares_args squares = {
        .x = arrays.g, .type = run_options_gradients(options), .count = elements, .sums = sums};
    const int64_t start_ns = core_clock_now_ns();
    rc = adam_norm_sums(&norm, &squares);
    out->sums_elements = (double)elements / seconds_since(start_ns) * own;
done:
    adam_destroy(adam);
    core_region_free(&region);
    core_team_destroy(team);
    free(sums);
    return rc;
}

/* ---- codes ---- */

enum { CODE_TURNS = 3 };

/* Measures how many 16-bit numbers per second a collective's thread turns into codes: weights, and
 * gradients, which it also sums. */
static int measure_packing(uint64_t bytes, struct plan_rates *out)
{
    const uint64_t groups = bytes / sizeof(uint16_t) / COLL_CODES;
    const uint64_t count = groups * COLL_CODES;
    uint16_t *numbers = malloc(count * sizeof *numbers);
    uint8_t *codes = malloc(count * sizeof *numbers); /* larger than the codes of weights or of
                                                       * gradients */
    int rc = numbers != NULL && codes != NULL
                 ? 0
                 : core_err_set(-ENOMEM, "no memory to measure codes of numbers");
    for (uint64_t i = 0; rc == 0 && i < count; i++) {
        numbers[i] = (uint16_t)(0x3c00 + i % 1000); /* small numbers, whether read as bf16 or
                                                     * fp16 */
    }
    for (int turn = 0; rc == 0 && turn < CODE_TURNS; turn++) {
        const int64_t start_ns = core_clock_now_ns();
        kern_quant_pack(KERN_BF16, numbers, (int64_t)groups, COLL_CODES, codes);
        out->pack_elements = (double)count / seconds_since(start_ns);
        const int64_t middle_ns = core_clock_now_ns();
        coll_codes_encode(COLL_BF16, numbers, count, codes);
        coll_sum_codes(COLL_BF16, (const void *[]){codes}, 1, 0, count, numbers);
        out->code_elements = (double)count / seconds_since(middle_ns);
    }
    free(numbers);
    free(codes);
    return rc;
}

/* ---- copies ---- */

enum { COPY_BYTES_MIN = 1 << 20, COPY_BYTES_MAX = 16 << 20 };
enum {
    CARD_COPY_BYTES_MAX = 256 << 20
}; /* a link needs milliseconds for this, much more than for
                                           * a launch */

int run_measure_copies(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out)
{
    const bool host = dev_is_cpu(options->device);
    const uint64_t bytes = clamp(run_measure_spare(shapes, options) / 4, COPY_BYTES_MIN,
                                 host ? COPY_BYTES_MAX : CARD_COPY_BYTES_MAX);
    const struct dev_options size = {.memory_bytes = 3 * bytes};
    struct dev_device *device = NULL;
    struct dev_rates rates;
    int rc = dev_open(options->device, &size, &device);
    if (rc != 0) {
        return rc;
    }
    rc = dev_rates_measure(device, bytes, &rates);
    if (rc == 0) {
        out->up_bytes = rates.up;
        out->down_bytes = rates.down;
        out->both_bytes = host ? 0 : rates.both;
        out->round_elements = rates.within / 4;
        out->coll_bytes = host ? rates.within : rates.both; /* cards: at least over their links */
        out->shared_cores = host;
    }
    dev_close(device);
    if (rc == 0 && host && options->world > 1 && options->local == options->world &&
        options->coll_bytes == 0 && shapes->model != NULL) {
        rc = run_measure_coll(&(struct run_coll_ranks){.count = options->world,
                                                       .world = options->world,
                                                       .within = options->within},
                              bytes, out);
    }
    if (rc == 0 && options->world > 1 && host) {
        rc = measure_packing(bytes, out);
    }
    return rc;
}

/* ---- the ops of a card ---- */

/* So many launches in a row that the time to start them does not matter. */
enum { CARD_LAUNCHES = 8, CARD_TURNS = 3 };

/* Elements per second of the fastest round. */
static int time_op(struct bench *card, const struct dev_command *command, uint64_t elements,
                   double *per_second)
{
    for (int turn = 0; turn < CARD_TURNS; turn++) {
        const int64_t start_ns = core_clock_now_ns();
        struct core_fence done = {0};
        for (int i = 0; i < CARD_LAUNCHES; i++) {
            int rc = dev_queue_launch(card->queue, command, &done);
            if (rc != 0) {
                return rc;
            }
        }
        int rc = core_fence_wait(done, -1);
        if (rc != 0) {
            return rc;
        }
        const double rate = (double)elements * CARD_LAUNCHES / seconds_since(start_ns);
        *per_second = turn == 0 || rate > *per_second ? rate : *per_second;
    }
    return 0;
}

/* Times updates and sums over a chunk with `bytes` in the card's memory; the sums are stored after
 * the chunk. */
static int time_card(struct bench *card, const struct run_options *options, uint64_t elements,
                     struct plan_rates *out)
{
    const struct plan_format format = run_options_format(options);
    char *sums = (char *)card->memory + chunk_bytes(&format, elements);
    const struct adam_arrays arrays = chunk_arrays(&format, card->memory, elements);
    struct kern_update_arguments update = {.update = {.rule = options->rule,
                                                      .master = run_options_master(options),
                                                      .gradients = run_options_gradients(options),
                                                      .moments = options->moments,
                                                      .count = elements,
                                                      .w16 = arrays.w16,
                                                      .lo16 = arrays.lo16,
                                                      .w32 = arrays.w32,
                                                      .g = arrays.g,
                                                      .m = arrays.m,
                                                      .v = arrays.v,
                                                      .m_scale = arrays.m_scale,
                                                      .v_scale = arrays.v_scale,
                                                      .seed = 1,
                                                      .stream = 1}};
    const struct core_squares_args squares = {.x = arrays.g,
                                              .type = run_options_gradients(options),
                                              .count = elements,
                                              .sums = (double *)(void *)sums};
    const struct dev_command updates = {
        .op = KERN_UPDATE, .arguments = &update, .arguments_bytes = sizeof update};
    const struct dev_command sums_of_squares = {
        .op = KERN_SQUARES, .arguments = &squares, .arguments_bytes = sizeof squares};
    struct adam_group group = options->group;
    group.step = 1;
    int rc = adam_scalars(options->rule, &group, 1, &update.update.scalars);
    if (rc != 0) {
        return rc;
    }
    rc = time_op(card, &updates, elements, &out->card_update_elements);
    return rc != 0 ? rc : time_op(card, &sums_of_squares, elements, &out->card_sums_elements);
}

int run_measure_card(const struct run_shapes *shapes, const struct run_options *options,
                     struct plan_rates *out)
{
    const struct plan_format format = run_options_format(options);
    const uint64_t each = 8 + plan_state_bytes(&format, CORE_UPDATE_TILE) / CORE_UPDATE_TILE + 1;
    const uint64_t spare = run_measure_spare(shapes, options) / each;
    const uint64_t elements = (spare > CORE_UPDATE_TILE ? spare : CORE_UPDATE_TILE) /
                              CORE_UPDATE_TILE * CORE_UPDATE_TILE;
    const uint64_t sums_bytes = elements / CORE_UPDATE_TILE * sizeof(double);
    const struct dev_queue_options queue = {.kind = DEV_QUEUE_COMPUTE};
    const struct kern_options plain = {.products = KERN_PRODUCTS_PLAIN}; /* none is computed */
    struct bench card = {0};
    if (dev_is_cpu(options->device)) {
        out->card_update_elements = out->card_sums_elements = 0;
        return 0;
    }
    int rc = bench_open(&card, options->device, &plain, &queue,
                        chunk_bytes(&format, elements) + sums_bytes);
    if (rc == 0) {
        rc = time_card(&card, options, elements, out);
    }
    bench_close(&card);
    return rc;
}

/* ---- stored weights ---- */

/* The largest tensor of the first block that is stored in fewer bits; NULL: there is none. */
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

/* Expands part of a tensor again and again: as many rows as fit in the memory that measuring may
 * use. */
int run_measure_expand(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out)
{
    const struct model_stored_part *part = shapes->model != NULL ? largest_part(shapes) : NULL;
    const struct dev_queue_options queue = {.kind = DEV_QUEUE_COMPUTE, .threads = options->threads};
    const struct kern_options plain = {.products = KERN_PRODUCTS_PLAIN}; /* none is computed */
    const uint64_t spare = run_measure_spare(shapes, options);
    struct bench bench = {0};
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
    int rc = bench_open(&bench, options->device, &plain, &queue, stored + elements * width);
    if (rc == 0) {
        const struct dev_command command = {
            .op = KERN_EXPAND, .arguments = &y, .arguments_bytes = sizeof y};
        kern_quant_point(&y, bench.memory);
        y.y = (char *)bench.memory + stored;
        rc = time_op(&bench, &command, elements, &out->expand_elements);
    }
    bench_close(&bench);
    return rc;
}
