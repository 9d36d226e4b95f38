/* plain.c: creates the reference trainer, owns its memory, loads and saves weights. */
#include "tests/reference/plain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "kernels/table.h"
#include "tests/reference/parts.h"

char *plain_at(const struct plain *plain, const struct plain_part *part, unsigned block,
               size_t element_bytes)
{
    return part->memory + plain->offsets[block] * element_bytes;
}

static enum core_update_type vec_type_of(enum kern_type type)
{
    return type == KERN_F32    ? CORE_UPDATE_F32
           : type == KERN_BF16 ? CORE_UPDATE_BF16
                               : CORE_UPDATE_FP16;
}

/* ---- creating the reference ---- */

static int make_programs(struct plain *plain)
{
    const struct model *model = plain->model;
    const struct kern_grad direct = {
        .out = plain, .out_type = plain->options.shape.type, .first = true, .last = true};
    for (unsigned i = 0; i < model->compute_count; i++) {
        const unsigned like = model->blocks[i].like;
        if (like != i) {
            plain->programs[i] = plain->programs[like];
            continue;
        }
        int rc = model_program_create(model, i, &plain->options.shape, &plain->programs[i]);
        if (rc != 0) {
            return rc;
        }
        const struct model_program *program = plain->programs[i];
        const struct model_steps *const parts[] = {&program->forward, &program->backward,
                                                   &program->logits};
        for (size_t p = 0; p < 3; p++) {
            const size_t bytes = model_steps_scratch_bytes(
                parts[p], dev_properties(plain->device)->kind, plain->options.threads, &direct);
            plain->scratch_bytes = bytes > plain->scratch_bytes ? bytes : plain->scratch_bytes;
        }
    }
    return 0;
}

static int make_offsets(struct plain *plain)
{
    const struct model *model = plain->model;
    plain->offsets = calloc(model->block_count + 1, sizeof *plain->offsets);
    plain->adams = calloc(model->block_count, sizeof(*plain->adams));
    plain->programs = calloc(model->block_count, sizeof(*plain->programs));
    if (plain->offsets == NULL || plain->adams == NULL || plain->programs == NULL) {
        return core_err_set(-ENOMEM, "no memory for a trainer of %u blocks", model->block_count);
    }
    for (unsigned i = 0; i < model->block_count; i++) {
        const uint64_t elements = model->blocks[i].elements;
        plain->offsets[i + 1] = plain->offsets[i] + elements;
        plain->tile_count += (elements + CORE_UPDATE_TILE - 1) / CORE_UPDATE_TILE;
    }
    plain->tile_sums = calloc(plain->tile_count, sizeof *plain->tile_sums);
    return plain->tile_sums != NULL
               ? 0
               : core_err_set(-ENOMEM, "no memory for %" PRIu64 " tile sums", plain->tile_count);
}

static int make_part(struct plain *plain, struct plain_part *part, uint64_t bytes)
{
    void *memory = NULL;
    int rc = bytes > 0 ? dev_memory_alloc(plain->device, bytes, &memory) : 0;
    if (rc == 0) {
        part->memory = memory;
        part->bytes = bytes;
    }
    return rc;
}

static int make_parts(struct plain *plain)
{
    const struct model *model = plain->model;
    const struct model_shape *shape = &plain->options.shape;
    const unsigned layers = model->compute_count - 2;
    const bool several = plain->options.micro_batches > 1;
    const uint64_t elements = plain->offsets[model->block_count];
    const uint64_t element_bytes = kern_type_bytes(shape->type);
    const uint64_t tokens = (uint64_t)(shape->rows * shape->length);
    const uint64_t table_bytes = model->config.tied
                                     ? (uint64_t)(model->config.vocab * model->config.hidden) * 4
                                     : 0;
    uint64_t kept = 0;
    uint64_t most_kept = 0;
    uint64_t temp = 0;
    for (unsigned i = 0; i < model->compute_count; i++) {
        const struct model_program *program = plain->programs[i];
        const uint64_t temps[] = {program->forward.temp_bytes, program->backward.temp_bytes,
                                  program->logits.temp_bytes};
        kept += program->kept_bytes;
        most_kept = program->kept_bytes > most_kept ? program->kept_bytes : most_kept;
        for (size_t j = 0; j < 3; j++) {
            temp = temps[j] > temp ? temps[j] : temp;
        }
    }
    const bool rope = model->config.family->rope;
    const struct {
        struct plain_part *part;
        uint64_t bytes;
    } parts[] = {
        {&plain->weights, elements * element_bytes},
        {&plain->lo16, shape->type == KERN_BF16 ? elements * 2 : 0},
        {&plain->w32, shape->type == KERN_FP16 ? elements * 4 : 0},
        {&plain->m, plain->options.rule != CORE_UPDATE_ADAGRAD ? elements * 4 : 0},
        {&plain->v, plain->options.rule == CORE_UPDATE_ADAM ||
                            plain->options.rule == CORE_UPDATE_ADAMW ||
                            plain->options.rule == CORE_UPDATE_ADAGRAD
                        ? elements * 4
                        : 0},
        {&plain->grads, elements * element_bytes},
        {&plain->sums, several && shape->type != KERN_F32 ? elements * 4 : 0},
        {&plain->tied_head, table_bytes},
        {&plain->tied_table, several ? table_bytes : 0},
        {&plain->boundary, plain->programs[0]->out_bytes * (layers + 2)},
        {&plain->kept, plain->options.recompute ? most_kept : kept},
        {&plain->temp, temp},
        {&plain->inputs, tokens * sizeof(int32_t) * 4},
        {&plain->angles,
         rope ? (uint64_t)(model->config.length_max * model->config.rope.rotary) * sizeof(float)
              : 0},
        {&plain->losses, sizeof(struct kern_loss) + MODEL_SCALE_BYTES},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        int rc = make_part(plain, parts[i].part, parts[i].bytes);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int make_angles(struct plain *plain)
{
    const struct model_config *config = &plain->model->config;
    if (!config->family->rope) {
        return 0;
    }
    float *cosines = (float *)(void *)plain->angles.memory;
    float *sines = cosines + config->length_max * config->rope.rotary / 2;
    const struct model_shape *shape = &plain->options.shape;
    const int64_t length = shape->pairs > 0 ? shape->row_length : shape->length;
    return kern_rope_build(&config->rope, config->length_max, length, cosines, sines);
}

/* The optimizer's groups are 0 (decay) and 1 (no decay). */
static int make_adam(struct plain *plain, unsigned index)
{
    const struct block *block = &plain->model->flat->list[index];
    struct adam_run *runs = calloc(block->run_count, sizeof *runs);
    if (runs == NULL) {
        return core_err_set(-ENOMEM, "no memory for the runs of %s", block->name);
    }
    for (size_t i = 0; i < block->run_count; i++) {
        const bool decay = block->runs[i].group == MODEL_GROUP_DECAY || plain->options.decay_all;
        runs[i] = (struct adam_run){.end = block->runs[i].end, .group = decay ? 0 : 1};
    }
    struct adam_group groups[2] = {plain->options.group, plain->options.group};
    groups[0].step = groups[1].step = 1;
    groups[1].decay = 0.0;
    const enum kern_type type = plain->options.shape.type;
    const struct adam_options options = {
        .rule = plain->options.rule,
        .master = type == KERN_F32    ? CORE_UPDATE_MASTER_F32
                  : type == KERN_BF16 ? CORE_UPDATE_MASTER_SPLIT
                                      : CORE_UPDATE_MASTER_FP16,
        .gradients = vec_type_of(type),
        .moments = CORE_UPDATE_F32,
        .count = block->elements,
        .runs = runs,
        .runs_count = block->run_count,
        .groups = groups,
        .groups_count = 2,
        .number = index,
        .team = plain->team,
    };
    int rc = adam_create(&options, &plain->adams[index]);
    free(runs);
    return rc;
}

static int make_queue(struct plain *plain)
{
    const struct dev_queue_options options = {
        .kind = DEV_QUEUE_COMPUTE,
        .depth = 1024,
        .threads = plain->options.threads,
        .scratch_bytes = plain->scratch_bytes,
    };
    const struct core_team_options team = {.name = "update", .count = plain->options.threads};
    int rc = dev_queue_create(plain->device, &options, &plain->queue);
    rc = rc != 0 ? rc : core_team_create(&team, &plain->team);
    if (rc == 0) {
        adam_norm_init(&plain->norm, plain->team, CORE_CPU_ALL);
    }
    return rc;
}

static int make(struct plain *plain)
{
    int rc = make_offsets(plain);
    rc = rc != 0 ? rc : model_binding_init(&plain->binding, plain->model);
    rc = rc != 0 ? rc : kern_ops_attach(plain->device, plain->options.kernels, &plain->ops);
    rc = rc != 0 ? rc : make_programs(plain);
    rc = rc != 0 ? rc : make_queue(plain);
    rc = rc != 0 ? rc : make_parts(plain);
    rc = rc != 0 ? rc : make_angles(plain);
    for (unsigned i = 0; rc == 0 && i < plain->model->block_count; i++) {
        rc = make_adam(plain, i);
    }
    return rc;
}

int plain_create(const struct model *model, struct dev_device *device,
                 const struct plain_options *options, struct plain **out)
{
    if (!dev_properties(device)->host_visible) {
        return core_err_set(-ENOTSUP,
                            "a plain step needs a device whose memory the host sees; %s "
                            "is none",
                            dev_properties(device)->name);
    }
    struct plain *plain = calloc(1, sizeof *plain);
    if (plain == NULL) {
        return core_err_set(-ENOMEM, "no memory for a trainer");
    }
    plain->model = model;
    plain->device = device;
    plain->options = *options;
    plain->options.micro_batches = options->micro_batches > 0 ? options->micro_batches : 1;
    plain->options.threads = options->threads > 0 ? options->threads
                                                  : dev_properties(device)->units;
    int rc = make(plain);
    plain->options.kernels = NULL;
    if (rc != 0) {
        plain_destroy(plain);
        return rc;
    }
    *out = plain;
    return 0;
}

void plain_destroy(struct plain *plain)
{
    if (plain == NULL) {
        return;
    }
    dev_queue_destroy(plain->queue);
    for (unsigned i = 0; i < plain->model->block_count; i++) {
        if (plain->adams != NULL) {
            adam_destroy(plain->adams[i]);
        }
        if (plain->programs != NULL && plain->model->blocks[i].like == i) {
            model_program_destroy(plain->programs[i]);
        }
    }
    struct plain_part *const parts[] = {
        &plain->weights, &plain->lo16, &plain->w32,       &plain->m,          &plain->v,
        &plain->grads,   &plain->sums, &plain->tied_head, &plain->tied_table, &plain->boundary,
        &plain->kept,    &plain->temp, &plain->inputs,    &plain->angles,     &plain->losses};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        dev_memory_free(plain->device, parts[i]->memory);
    }
    core_team_destroy(plain->team);
    kern_ops_detach(plain->ops);
    model_binding_fini(&plain->binding);
    free(plain->tile_sums);
    free(plain->offsets);
    free(plain->programs);
    free(plain->adams);
    free(plain);
}

/* ---- files ---- */

/* Files keep adapters in fp32: loads the low halves of their masters. */
static int load_low_halves(const struct model_block *block, const struct model_files *files,
                           uint16_t *low)
{
    float *floats = malloc(block->elements * sizeof *floats);
    int rc = floats != NULL
                 ? model_files_read(files, block, 0, block->elements, MODEL_F32, floats, NULL)
                 : core_err_set(-ENOMEM, "no memory for adapters");
    for (uint64_t i = 0; rc == 0 && i < block->elements; i++) {
        low[i] = adam_master_low(floats[i]);
    }
    free(floats);
    return rc;
}

static int load_block(struct plain *plain, const struct model_files *files, unsigned index)
{
    const struct model_block *block = &plain->model->blocks[index];
    const struct adam_arrays arrays = plain_arrays(plain, index);
    const enum kern_type type = plain->options.shape.type;
    if (type != KERN_FP16) {
        int rc = model_files_read_block(
            files, block, model_dtype_of(type),
            plain_at(plain, &plain->weights, index, kern_type_bytes(type)), plain->team, NULL);
        const bool adapters = plain->model->lora.rank > 0 && block->trained;
        return rc == 0 && adapters && type == KERN_BF16 ? load_low_halves(block, files, arrays.lo16)
                                                        : rc;
    }
    int rc = model_files_read_block(files, block, MODEL_F32, arrays.w32, plain->team, NULL);
    return rc != 0 ? rc
                   : adam_state_write(plain->adams[index], &arrays, ADAM_VALUE_MASTER, 0,
                                      block->elements, arrays.w32);
}

int plain_load(struct plain *plain, const struct model_files *files)
{
    struct plain_part *const zeros[] = {&plain->lo16, &plain->m, &plain->v};
    for (size_t i = 0; i < 3; i++) {
        if (zeros[i]->bytes > 0) {
            memset(zeros[i]->memory, 0, zeros[i]->bytes);
        }
    }
    /* No op writes the gradient of padding. */
    memset(plain->grads.memory, 0, plain->grads.bytes);
    plain->steps = 0;
    for (unsigned i = 0; i < plain->model->block_count; i++) {
        int rc = load_block(plain, files, i);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int plain_save(struct plain *plain, const struct model_save_options *options)
{
    struct model_save_options exact = *options;
    struct model_save *save = NULL;
    exact.type = model_dtype_of(plain->options.shape.type);
    int rc = model_save_open(plain->model, &exact, &save);
    for (unsigned i = 0; rc == 0 && i < plain->model->block_count; i++) {
        rc = model_save_put(save, i, 0, plain->model->blocks[i].elements, exact.type,
                            plain_weights(plain, i));
    }
    rc = rc != 0 ? rc : model_save_finish(save);
    model_save_close(save);
    return rc;
}

/* ---- reading its data ---- */

const void *plain_weights(const struct plain *plain, unsigned block)
{
    return plain_at(plain, &plain->weights, block, kern_type_bytes(plain->options.shape.type));
}

const void *plain_grads(const struct plain *plain, unsigned block)
{
    return plain_at(plain, &plain->grads, block, kern_type_bytes(plain->options.shape.type));
}

struct adam_arrays plain_arrays(const struct plain *plain, unsigned block)
{
    const enum kern_type type = plain->options.shape.type;
    const struct plain_part *master = type == KERN_F32 ? &plain->weights : &plain->w32;
    void *weights = plain_at(plain, &plain->weights, block, kern_type_bytes(type));
    return (struct adam_arrays){
        .count = plain->model->blocks[block].elements,
        .w16 = type == KERN_F32 ? NULL : weights,
        .lo16 = plain->lo16.bytes > 0 ? (void *)plain_at(plain, &plain->lo16, block, 2) : NULL,
        .w32 = master->bytes > 0 ? (void *)plain_at(plain, master, block, 4) : NULL,
        .g = plain_grads(plain, block),
        .m = plain->m.bytes > 0 ? plain_at(plain, &plain->m, block, 4) : NULL,
        .v = plain->v.bytes > 0 ? plain_at(plain, &plain->v, block, 4) : NULL,
    };
}

struct plain_bytes plain_memory(const struct plain *plain)
{
    struct plain_bytes bytes = {
        .weights = plain->weights.bytes,
        .states = plain->lo16.bytes + plain->w32.bytes + plain->m.bytes + plain->v.bytes,
        .grads = plain->grads.bytes + plain->sums.bytes + plain->tied_head.bytes +
                 plain->tied_table.bytes,
        .activations = plain->boundary.bytes + plain->kept.bytes + plain->temp.bytes +
                       plain->scratch_bytes,
        .inputs = plain->inputs.bytes + plain->angles.bytes + plain->losses.bytes,
    };
    bytes.total = bytes.weights + bytes.states + bytes.grads + bytes.activations + bytes.inputs;
    return bytes;
}

struct plain_time plain_op_time(const struct plain *plain, enum kern_op op)
{
    return plain->times[op];
}

int64_t plain_update_ns(const struct plain *plain)
{
    return plain->update_ns;
}
