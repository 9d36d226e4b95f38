/* rates.c: runs a layer and the head forward and back, updates a chunk, copies, and asks each drive;
 * all twice, for the first time makes primitives and touches pages. */
#include "offload/run/rates.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "aio/measure.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/dev/dev.h"
#include "cpu_adam/work.h"
#include "kernels/table.h"
#include "offload/model/run.h"

/* What is measured with, at most; less where the budgets are small, for measuring has to stay in them
 * too. */
enum { UPDATE_ELEMENTS_MAX = 4 << 20, UPDATE_ELEMENTS_MIN = 64 << 10, COPY_BYTES_MAX = 16 << 20 };
enum { COPY_BYTES_MIN = 1 << 20, DEPTH_MIN = 4, DRIVE_TURNS = 3 };

/* A head or embedding above this is not run; its flops count at a layer's speed. */
static const uint64_t block_bytes_max = UINT64_C(1) << 30;
static const double enough_seconds = 1;
static const double slow_bytes_per_s = 5e8;   /* no NVMe drive is */
static const double memory_bytes_per_s = 8e9; /* of a drive that is memory */
static const double command_seconds = 3e-6;

static double seconds_since(int64_t start_ns)
{
    return (double)(core_clock_now_ns() - start_ns) * 1e-9;
}

/* ---- compute ---- */

/* A device of its own with one block on it. */
struct stage {
    struct dev_device *device;
    struct kern_ops *ops;
    struct dev_queue *queue;
    char *memory;
    struct model_binding binding;
};

static uint64_t cut(uint64_t *total, uint64_t bytes)
{
    const uint64_t at = *total;
    *total += (bytes + 4095) / 4096 * 4096;
    return at;
}

/* Lays out everything that the block's steps touch; with `memory` NULL only adds up. */
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
    uint64_t total = 0;
    const uint64_t weights = cut(&total, block->elements * width);
    const uint64_t grads = cut(&total, block->elements * width);
    const uint64_t lent = cut(
        &total, shapes->blocks[index].borrows != PLAN_NONE ? model->blocks[0].elements * width : 0);
    const uint64_t sum = cut(&total, shapes->blocks[index].shared_elements * sizeof(float));
    const uint64_t bases[MODEL_BASE_COUNT] = {
        [MODEL_BASE_IN] = cut(&total, act),
        [MODEL_BASE_OUT] = cut(&total, act),
        [MODEL_BASE_GRAD] = cut(&total, act),
        [MODEL_BASE_KEPT] = cut(&total, program->kept_bytes),
        [MODEL_BASE_TEMP] = cut(&total, run_shapes_kept_offset(program)),
        [MODEL_BASE_IDS] = cut(&total, tokens),
        [MODEL_BASE_LABELS] = cut(&total, tokens),
        [MODEL_BASE_COS] = cut(&total, angles),
        [MODEL_BASE_SIN] = cut(&total, angles),
        [MODEL_BASE_SCALE] = cut(&total, sizeof(float)),
        [MODEL_BASE_LOSS] = cut(&total, sizeof(struct kern_loss)),
    };
    if (memory == NULL) {
        return total;
    }
    const struct kern_grad grad = {
        .out = memory + grads, .out_type = options->type, .first = true, .last = true};
    model_binding_set_flat(binding, block, options->type, memory + weights, &grad);
    for (int b = 0; b < MODEL_BASE_COUNT; b++) {
        const bool absent = b == MODEL_BASE_POSITIONS || b == MODEL_BASE_STARTS ||
                            b == MODEL_BASE_PARAM;
        binding->base[b] = absent ? NULL : memory + bases[b];
    }
    for (unsigned i = 0; i < block->param_count; i++) {
        if (block->params[i].owner != index) {
            binding->weights[i] = memory + lent + block->params[i].offset * width;
            binding->grads[i] = (struct kern_grad){
                .sum = (float *)(void *)(memory + sum), .first = true, .last = true};
        }
    }
    return total;
}

static void stage_close(struct stage *stage)
{
    dev_queue_destroy(stage->queue);
    if (stage->device != NULL) {
        if (stage->memory != NULL) {
            dev_memory_free(stage->device, stage->memory);
        }
        kern_ops_detach(stage->ops);
        dev_close(stage->device);
    }
}

static int stage_open(struct stage *stage, const struct run_shapes *shapes,
                      const struct run_options *options, unsigned index)
{
    const uint64_t bytes = lay_out(shapes, options, index, NULL, NULL);
    const struct dev_options device = {.memory_bytes = bytes + shapes->scratch_bytes +
                                                       (size_t)2 * DEV_ALIGN_BYTES};
    const struct dev_queue_options queue = {.kind = DEV_QUEUE_COMPUTE,
                                            .depth = 1024,
                                            .threads = options->threads,
                                            .scratch_bytes = shapes->scratch_bytes};
    void *memory = NULL;
    int rc = dev_open(options->device, &device, &stage->device);
    rc = rc != 0 ? rc : kern_ops_attach(stage->device, NULL, &stage->ops);
    rc = rc != 0 ? rc : dev_queue_create(stage->device, &queue, &stage->queue);
    rc = rc != 0 ? rc : dev_memory_alloc(stage->device, bytes, &memory);
    if (rc != 0) {
        return rc;
    }
    stage->memory = memory;
    if (dev_properties(stage->device)->host_visible) {
        memset(memory, 0, bytes); /* ids and labels of token 0, weights of zero */
    }
    (void)lay_out(shapes, options, index, stage->memory, &stage->binding);
    return 0;
}

static int timed(struct stage *stage, const struct model_steps *steps, enum model_which which,
                 double *seconds)
{
    const int64_t start_ns = core_clock_now_ns();
    struct model_cursor cursor = {0};
    struct core_fence done = {0};
    int rc;
    while ((rc = model_run(stage->queue, steps, which, &stage->binding, NULL, &cursor, &done)) ==
           -EAGAIN) {
        rc = core_fence_wait(dev_queue_tail(stage->queue), -1);
        if (rc != 0) {
            return rc;
        }
    }
    rc = rc != 0 ? rc : core_fence_wait(dev_queue_tail(stage->queue), -1);
    *seconds = seconds_since(start_ns);
    return rc;
}

/* The best of a few turns: the first makes primitives, and others may disturb. */
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
            rc = timed(&stage, parts[i].steps, parts[i].which, &seconds);
            *parts[i].best = turn <= 1 || seconds < *parts[i].best ? seconds : *parts[i].best;
        }
    }
    stage_close(&stage);
    return rc;
}

static int measure_compute(const struct run_shapes *shapes, const struct run_options *options,
                           struct run_rates *out)
{
    const unsigned count = shapes->model->block_count;
    const unsigned layer = count > 2 ? 1 : 0;
    int rc = measure_block(shapes, options, layer, out);
    const unsigned ends[] = {0, count - 1};
    for (int i = 0; i < 2 && rc == 0; i++) {
        if (lay_out(shapes, options, ends[i], NULL, NULL) <= block_bytes_max) {
            rc = measure_block(shapes, options, ends[i], out);
        }
    }
    const double seconds = out->forward_seconds[shapes->model->blocks[layer].kind];
    out->machine.flops = seconds > 0 ? shapes->programs[layer]->forward.flops / seconds : 1e9;
    return rc;
}

/* ---- the update, sums, copies ---- */

/* A quarter of what a run may take. */
static uint64_t spare_bytes(const struct run_options *options)
{
    const struct plan_budgets *budgets = &options->budgets;
    uint64_t bytes = budgets->host_bytes + budgets->device_bytes;
    if (budgets->joint_bytes > 0 && budgets->joint_bytes < bytes) {
        bytes = budgets->joint_bytes;
    }
    return bytes / 4;
}

static uint64_t within(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* Parameters that the update is measured with. */
static uint64_t update_elements(const struct run_options *options)
{
    const struct plan_format format = run_options_format(options);
    const uint64_t each = 8 + plan_state_bytes(&format, CORE_VEC_TILE) / CORE_VEC_TILE;
    return within(spare_bytes(options) / each, UPDATE_ELEMENTS_MIN, UPDATE_ELEMENTS_MAX) /
           CORE_VEC_TILE * CORE_VEC_TILE;
}

static int time_update(struct adam *adam, const struct adam_arrays *arrays, double *per_second)
{
    int rc = 0;
    for (int turn = 0; rc == 0 && turn < 3; turn++) {
        const int64_t start_ns = core_clock_now_ns();
        rc = adam_step(adam, arrays, 0, arrays->count, 1, NULL);
        *per_second = (double)arrays->count / seconds_since(start_ns);
    }
    return rc;
}

static void carve(const struct plan_format *format, enum core_vec_master master, char *memory,
                  struct adam_arrays *arrays)
{
    const uint64_t n = arrays->count;
    char *states = memory + n * 4;
    char *g = states + plan_state_bytes(format, n);
    arrays->g = g;
    arrays->w16 = master == CORE_VEC_MASTER_F32 ? NULL : (uint16_t *)(void *)memory;
    arrays->lo16 = master == CORE_VEC_MASTER_SPLIT ? (uint16_t *)(void *)states : NULL;
    arrays->w32 = master == CORE_VEC_MASTER_F32 ? (float *)(void *)memory : (float *)(void *)states;
    arrays->m = states + plan_state_offset(format, PLAN_M, n);
    arrays->v = states + plan_state_offset(format, PLAN_V, n);
    arrays->m_scale = (float *)(void *)(states + plan_state_offset(format, PLAN_M_SCALE, n));
    arrays->v_scale = (float *)(void *)(states + plan_state_offset(format, PLAN_V_SCALE, n));
}

/* Checksums a second of one processor, over memory that is not in its caches. */
static double hash_rate(const void *memory, uint64_t bytes)
{
    const int64_t start_ns = core_clock_now_ns();
    volatile uint64_t sum = core_hash(memory, bytes, 1);
    (void)sum;
    return (double)bytes / seconds_since(start_ns);
}

static int measure_update(const struct run_options *options, struct plan_rates *out)
{
    const struct plan_format format = run_options_format(options);
    const enum core_vec_master master = run_options_master(options);
    struct adam_group group = options->group;
    struct adam *adam = NULL;
    struct core_team *team = NULL;
    struct core_region region = {0};
    const uint64_t elements = update_elements(options);
    struct adam_arrays arrays = {.count = elements};
    double *sums = calloc(elements / CORE_VEC_TILE, sizeof *sums);
    group.step = 1;
    const struct core_region_options memory = {
        .name = "the measured update", .bytes = elements * 8 + plan_state_bytes(&format, elements)};
    int rc = sums != NULL ? core_team_create(&(struct core_team_options){.name = "rates",
                                                                         .count = options->threads},
                                             &team)
                          : core_err_set(-ENOMEM, "no memory to measure the update");
    rc = rc != 0 ? rc : core_region_alloc(&memory, &region);
    if (rc == 0) {
        const struct adam_options made = {.rule = options->rule,
                                          .master = master,
                                          .gradients = run_options_gradients(options),
                                          .moments = options->moments,
                                          .count = elements,
                                          .groups = &group,
                                          .groups_count = 1,
                                          .team = team};
        carve(&format, master, (char *)region.base, &arrays);
        rc = adam_create(&made, &adam);
    }
    rc = rc != 0 ? rc : time_update(adam, &arrays, &out->update_elements);
    if (rc == 0) {
        struct adam_work work;
        adam_work_init(&work, team, CORE_CPU_ALL);
        const struct core_vec_norm norm = {
            .x = arrays.g, .type = run_options_gradients(options), .count = elements, .sums = sums};
        const int64_t start_ns = core_clock_now_ns();
        rc = adam_work_norm(&work, &norm);
        out->sums_elements = (double)elements / seconds_since(start_ns);
    }
    if (rc == 0) {
        out->hash_bytes = hash_rate(region.base, region.bytes) * options->threads;
    }
    adam_destroy(adam);
    core_region_free(&region);
    core_team_destroy(team);
    free(sums);
    return rc;
}

static int measure_copies(const struct run_options *options, struct plan_rates *out)
{
    const uint64_t bytes = within(spare_bytes(options) / 4, COPY_BYTES_MIN, COPY_BYTES_MAX);
    const struct dev_options size = {.memory_bytes = 3 * bytes};
    struct dev_device *device = NULL;
    struct dev_rates rates;
    int rc = dev_open(options->device, &size, &device);
    rc = rc != 0 ? rc : dev_rates_measure(device, bytes, &rates);
    if (rc == 0) {
        out->up_bytes = rates.up;
        out->down_bytes = rates.down;
        out->round_elements = rates.within / 4;
        out->coll_bytes = rates.within;
        out->shared_cores = strcmp(dev_properties(device)->kind, "cpu") == 0;
    }
    dev_close(device);
    return rc;
}

/* ---- drives ---- */

/* The directory itself, or the nearest one above it that is there. */
static int measure_directory(const char *directory, const struct run_options *run,
                             struct aio_rates *out)
{
    const uint64_t blocks = spare_bytes(run) / (4 * AIO_BLOCK_DEFAULT_BYTES);
    const struct aio_measure_options options = {
        .backend = run->io, .depth = (uint32_t)within(blocks, DEPTH_MIN, AIO_DEPTH_DEFAULT)};
    char path[4096];
    struct stat info;
    snprintf(path, sizeof path, "%s", directory);
    while (stat(path, &info) != 0 && errno == ENOENT) {
        char *slash = strrchr(path, '/');
        if (slash == NULL || slash == path) {
            snprintf(path, sizeof path, slash == NULL ? "." : "/");
            break;
        }
        *slash = '\0';
    }
    /* A drive that seems this slow may just be busy with files that were removed: it is asked again,
     * and the best of each rate counts. */
    struct aio_rates best = {0};
    int rc = 0;
    for (int turn = 0; rc == 0 && turn < DRIVE_TURNS && best.mixed_bytes_per_s < slow_bytes_per_s;
         turn++) {
        struct aio_rates rates;
        rc = aio_measure_path(path, &options, &rates);
        if (rc == 0) {
            best.read_bytes_per_s = fmax(best.read_bytes_per_s, rates.read_bytes_per_s);
            best.write_bytes_per_s = fmax(best.write_bytes_per_s, rates.write_bytes_per_s);
            best.mixed_bytes_per_s = fmax(best.mixed_bytes_per_s, rates.mixed_bytes_per_s);
        }
    }
    *out = best;
    return rc;
}

static int measure_drives(const struct run_options *options, struct plan_rates *out)
{
    const bool memory = options->io != NULL && strcmp(options->io, "mem") == 0;
    out->read_bytes = out->write_bytes = out->mixed_bytes = 0;
    for (unsigned i = 0; i < options->store_count; i++) {
        const struct store_path *path = &options->stores[i];
        struct aio_rates rates = {memory_bytes_per_s, memory_bytes_per_s, memory_bytes_per_s, 0};
        int rc = memory || path->disk != NULL ? 0
                                              : measure_directory(path->directory, options, &rates);
        if (rc != 0) {
            return rc;
        }
        out->read_bytes += rates.read_bytes_per_s;
        out->write_bytes += rates.write_bytes_per_s;
        out->mixed_bytes += rates.mixed_bytes_per_s;
    }
    if (options->store_count == 0) { /* nothing will be asked of them */
        out->read_bytes = out->write_bytes = out->mixed_bytes = memory_bytes_per_s;
    }
    return 0;
}

int run_rates_measure(const struct run_shapes *shapes, const struct run_options *options,
                      struct run_rates *out)
{
    struct run_rates rates = {.machine = {.command_seconds = command_seconds}};
    int rc = measure_drives(options, &rates.machine);
    rc = rc != 0 ? rc : measure_copies(options, &rates.machine);
    rc = rc != 0 ? rc : measure_update(options, &rates.machine);
    rc = rc != 0 ? rc : measure_compute(shapes, options, &rates);
    if (rc == 0) {
        *out = rates;
    }
    return rc;
}
