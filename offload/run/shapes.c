/* shapes.c: computes the sizes and costs of blocks from their programs. */
#include "offload/run/shapes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "kernels/table.h"
#include "offload/plan/shard.h"

/* Most bytes of weights in one product of the head for one token. */
enum { ONE_TILE_BYTES = 8 << 20 };
/* Logits may use 1 / LOGITS_PART of a GPU's memory. With enough memory they are computed once, not
 * twice (kern_loss_arguments). */
enum { LOGITS_PART = 10 };

_Static_assert(BLOCKS_ALIGN_ELEMENTS % CORE_UPDATE_Q8_BLOCK == 0,
               "a block of 8-bit moments must not cross the beginning of a parameter");

uint64_t run_shapes_stride(uint64_t bytes)
{
    return core_round_up(bytes, PLAN_ALIGN_BYTES);
}

struct plan_block_shape run_shapes_grouped(const struct plan_block_shape *shape, uint32_t group)
{
    struct plan_block_shape grouped = *shape;
    if (group > 1) {
        const uint64_t whole = shape->elements * shape->format.weight_bytes;
        grouped.out_bytes = group * core_round_up(shape->out_bytes, PLAN_ALIGN_BYTES);
        grouped.rows_bytes = group * shape->rows_bytes < whole ? group * shape->rows_bytes : 0;
        grouped.forward_flops *= group;
        grouped.recompute_flops *= group;
        grouped.backward_flops *= group;
        grouped.forward_seconds *= group;
        grouped.recompute_seconds *= group;
        grouped.backward_seconds *= group;
    }
    return grouped;
}

uint64_t run_shapes_kept_offset(const struct model_program *program)
{
    return core_round_up(core_larger(program->forward.temp_bytes, program->backward.temp_bytes),
                         PLAN_ALIGN_BYTES);
}

struct model_rows run_shapes_rows(const struct model *model, const struct run_options *options)
{
    return model_rows_of(model, kern_type_bytes(options->type), options->rows * options->length,
                         options->pairs > 0 ? options->row_length : options->length);
}

_Static_assert((int)MODEL_BORROWS_MAX == (int)PLAN_BORROWS_MAX, "a plan has what a model borrows");

static void describe_borrows(const struct model *model, unsigned index,
                             struct plan_block_shape *shape)
{
    const struct model_block *block = &model->blocks[index];
    unsigned borrows[MODEL_BORROWS_MAX];
    shape->borrow_count = model_block_borrows(model, index, borrows);
    for (uint32_t i = 0; i < shape->borrow_count; i++) {
        shape->borrows[i] = borrows[i];
    }
    for (unsigned i = 0; i < block->param_count; i++) {
        const struct model_param *param = &block->params[i];
        shape->shared_elements += param->owner != index && param->trained ? param->elements : 0;
    }
}

static void describe_data(struct run_shapes *shapes, const struct run_options *options,
                          unsigned index)
{
    const struct model_block *block = &shapes->model->blocks[index];
    shapes->blocks[index] = (struct plan_block_shape){
        .name = block->name, .elements = block->elements, .format = run_options_format(options)};
}

static void describe(struct run_shapes *shapes, const struct run_options *options, unsigned index)
{
    const struct model_block *block = &shapes->model->blocks[index];
    const struct model_program *program = shapes->programs[index];
    struct plan_block_shape *shape = &shapes->blocks[index];
    const uint64_t kept_at = run_shapes_kept_offset(program);
    *shape = (struct plan_block_shape){
        .name = block->name,
        .elements = block->elements,
        .out_bytes = program->out_bytes,
        .kept_bytes = core_round_up(program->kept_bytes, PLAN_ALIGN_BYTES),
        .forward_bytes = kept_at,
        .backward_bytes = kept_at,
        .forward_flops = program->forward.flops,
        .recompute_flops = program->recompute_flops,
        .backward_flops = program->backward.flops,
        .backward_reads_weights = block->kind != MODEL_BLOCK_EMBEDDING,
        .trained = block->trained,
        .format = run_options_format(options),
    };
    if (block->kind == MODEL_BLOCK_EMBEDDING) {
        const struct model_rows rows = run_shapes_rows(shapes->model, options);
        const uint64_t bytes = (uint64_t)rows.pages_max * MODEL_PAGE_BYTES;
        shape->rows_bytes = bytes < block->elements * shape->format.weight_bytes ? bytes : 0;
    }
    describe_borrows(shapes->model, index, shape);
}

static int describe_stored(struct run_shapes *shapes, const struct run_options *options,
                           unsigned index)
{
    const struct model *model = shapes->model;
    struct plan_block_shape *shape = &shapes->blocks[index];
    const uint64_t width = shape->format.weight_bytes;
    int rc = model_stored_create(model, &model->blocks[index], options->base, options->type,
                                 &shapes->stored[index]);
    if (rc == 0 && shapes->stored[index] != NULL) {
        shape->stored_elements = (shapes->stored[index]->bytes + width - 1) / width;
    }
    return rc;
}

/* Returns the block whose array is loaded by sections for this block: of itself and the blocks that
 * lend to it, the largest frozen one that need not be loaded whole, else itself; PLAN_NONE for the
 * embedding. */
static uint32_t find_source(const struct run_shapes *shapes, unsigned index)
{
    const struct plan_block_shape *shape = &shapes->blocks[index];
    uint32_t source = shape->trained ? PLAN_NONE : index;
    if (shapes->model->blocks[index].kind == MODEL_BLOCK_EMBEDDING) {
        return PLAN_NONE;
    }
    for (uint32_t i = 0; i < shape->borrow_count; i++) {
        const uint32_t from = shape->borrows[i];
        const struct plan_block_shape *lender = &shapes->blocks[from];
        const bool enough = from == shapes->model->blocks[index].data || lender->rows_bytes > 0;
        if (!lender->trained && enough &&
            (source == PLAN_NONE || lender->elements > shapes->blocks[source].elements)) {
            source = from;
        }
    }
    return source != PLAN_NONE ? source : index;
}

static bool same_stored(const struct model_stored *a, const struct model_stored *b)
{
    bool same = a == NULL && b == NULL;
    if (a != NULL && b != NULL && a->count == b->count) {
        same = true;
        for (unsigned i = 0; same && i < a->count; i++) {
            same = a->parts[i].first == b->parts[i].first && a->parts[i].rows == b->parts[i].rows &&
                   a->parts[i].cols == b->parts[i].cols && a->parts[i].quant == b->parts[i].quant &&
                   a->parts[i].offset_bytes == b->parts[i].offset_bytes;
        }
    }
    return same;
}

/* Blocks with one program share sections, unless a folder has quantised only some of them. */
static int make_sections(struct run_shapes *shapes, unsigned index)
{
    const struct model_block *block = &shapes->model->blocks[index];
    struct plan_block_shape *shape = &shapes->blocks[index];
    struct model_sections **sections = &shapes->sections[index];
    const uint32_t source = find_source(shapes, index);
    if (source == PLAN_NONE) {
        return 0;
    }
    if (block->like != index &&
        same_stored(shapes->stored[source], shapes->stored[find_source(shapes, block->like)])) {
        *sections = shapes->sections[block->like];
    } else {
        const struct model_sections_source cut = {source, shapes->stored[source]};
        int rc = model_sections_create(block, &cut, shapes->programs[index], sections);
        if (rc != 0) {
            return rc;
        }
    }
    const struct plan_block_shape *from = &shapes->blocks[source];
    const uint64_t slot = shapes->stored[source] != NULL ? (*sections)->expanded_bytes
                                                         : (*sections)->bytes;
    if (slot < from->elements * from->format.weight_bytes) {
        shape->sections = *sections;
        shape->source = source;
    }
    return 0;
}

/* make_one adds what the logits of one token need. */
static void add_scratch(struct run_shapes *shapes, const struct model_program *program,
                        const char *kind, unsigned threads, const struct kern_grad *grad)
{
    const struct model_steps *const parts[] = {&program->forward, &program->backward};
    for (size_t i = 0; i < 2; i++) {
        shapes->scratch_bytes = core_larger(
            shapes->scratch_bytes, model_steps_scratch_bytes(parts[i], kind, threads, grad));
    }
}

static int make_one_sections(struct run_shapes *shapes, unsigned head)
{
    struct model_sections *sections = shapes->sections[head];
    int rc = model_sections_create_logits(&shapes->model->blocks[head], shapes->blocks[head].source,
                                          shapes->one, sections->bytes, &shapes->one_sections);
    if (rc == 0) {
        sections->bytes = shapes->one_sections->bytes;
    }
    return rc;
}

/* The table is read in tiles, because a product for one token would copy it whole. */
static int make_one(struct run_shapes *shapes, const struct run_options *options, const char *kind)
{
    const unsigned index = shapes->model->compute_count - 1;
    const struct plan_block_shape *head = &shapes->blocks[index];
    const bool less = head->sections != NULL && head->sections->bytes < ONE_TILE_BYTES;
    const struct model_shape shape = {.rows = 1,
                                      .length = 1,
                                      .type = options->type,
                                      .tile_bytes = less ? head->sections->bytes : ONE_TILE_BYTES};
    const struct kern_grad none = {0};
    int rc = model_program_create(shapes->model, index, &shape, &shapes->one);
    if (rc == 0 && head->sections != NULL) {
        rc = make_one_sections(shapes, index);
    }
    if (rc == 0) {
        shapes->scratch_bytes = core_larger(
            shapes->scratch_bytes,
            model_steps_scratch_bytes(&shapes->one->logits, kind, options->threads, &none));
    }
    return rc;
}

/* The memory for logits decides how the loss is computed, down to the last bits, so it must not
 * depend on the card's other users. */
static uint64_t logits_bytes(const struct run_options *options)
{
    const uint64_t bytes = options->card_bytes > 0 ? options->card_bytes
                                                   : options->budgets.device_bytes;
    return bytes / LOGITS_PART;
}

static struct kern_loss_parts loss_parts(const struct model *model,
                                         const struct run_options *options, const char *kind)
{
    const struct model_block *head = &model->blocks[model->compute_count - 1];
    const struct model_param *table = &head->params[model_block_param(head, MODEL_HEAD)];
    const int64_t tile = kern_tile_rows(table->rows, table->cols, options->type,
                                        options->tile_bytes);
    const struct kern_loss_arguments arguments = {
        .type = options->type,
        .tokens = options->rows * options->length,
        .vocab = table->rows,
        .width = table->cols,
        .tile = tile < table->rows ? tile : 0,
        .pairs = options->pairs,
    };
    return kern_loss_parts_of(kind, &arguments);
}

static int make_programs(struct run_shapes *shapes, const struct run_options *options)
{
    const struct model *model = shapes->model;
    struct model_shape shape = {.rows = options->rows,
                                .length = options->length,
                                .row_length = options->row_length,
                                .type = options->type,
                                .tile_bytes = options->tile_bytes,
                                .logits_bytes = logits_bytes(options),
                                .stride = run_shapes_rows(model, options).stride,
                                .pairs = options->pairs,
                                .beta = options->beta};
    float any = 0;
    const struct kern_grad grads[] = {
        {.out = &any, .out_type = options->type, .first = true, .last = true},
        {.out = &any, .out_type = options->type, .sum = &any},
        {.sum = &any, .out = &any, .out_type = KERN_F32, .first = true, .last = true},
    };
    char kind[16];
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(options->device, ":"), options->device);
    shape.loss_parts = loss_parts(model, options, kind);
    for (unsigned i = 0; i < model->compute_count; i++) {
        const unsigned like = model->blocks[i].like;
        int rc = 0;
        if (like != i) {
            shapes->programs[i] = shapes->programs[like];
            continue;
        }
        rc = model_program_create(model, i, &shape, &shapes->programs[i]);
        for (size_t g = 0; rc == 0 && g < sizeof grads / sizeof grads[0]; g++) {
            add_scratch(shapes, shapes->programs[i], kind, options->threads, &grads[g]);
        }
        if (rc != 0) {
            return rc;
        }
    }
    for (unsigned i = 0; i < model->block_count; i++) {
        (i < model->compute_count ? describe : describe_data)(shapes, options, i);
        int rc = describe_stored(shapes, options, i);
        if (rc != 0) {
            return rc;
        }
    }
    for (unsigned i = 0; i < model->compute_count; i++) {
        int rc = make_sections(shapes, i);
        if (rc != 0) {
            return rc;
        }
    }
    return make_one(shapes, options, kind);
}

int run_shapes_create(const struct model *model, const struct run_options *options,
                      struct run_shapes **out)
{
    struct run_shapes *shapes = calloc(1, sizeof *shapes);
    if (shapes == NULL) {
        return core_err_set(-ENOMEM, "no memory for the shapes of a model");
    }
    shapes->model = model;
    shapes->block_count = model->block_count;
    shapes->programs = calloc(model->block_count, sizeof(*shapes->programs));
    shapes->sections = calloc(model->block_count, sizeof(*shapes->sections));
    shapes->blocks = calloc(model->block_count, sizeof *shapes->blocks);
    shapes->stored = calloc(model->block_count, sizeof(*shapes->stored));
    int rc = shapes->programs != NULL && shapes->sections != NULL && shapes->blocks != NULL &&
                     shapes->stored != NULL
                 ? make_programs(shapes, options)
                 : core_err_set(-ENOMEM, "no memory for the shapes of %u blocks",
                                model->block_count);
    if (rc != 0) {
        run_shapes_destroy(shapes);
        return rc;
    }
    *out = shapes;
    return 0;
}

int run_shapes_create_lent(const struct blocks *blocks, const struct run_lent *lent,
                           const struct run_options *options, struct run_shapes **out)
{
    struct run_shapes *shapes = calloc(1, sizeof *shapes);
    if (shapes == NULL) {
        return core_err_set(-ENOMEM, "no memory for the shapes of an application");
    }
    shapes->block_count = blocks->count;
    shapes->blocks = calloc(blocks->count, sizeof *shapes->blocks);
    if (shapes->blocks == NULL) {
        run_shapes_destroy(shapes);
        return core_err_set(-ENOMEM, "no memory for the shapes of %u blocks", blocks->count);
    }
    for (uint32_t b = 0; b < blocks->count; b++) {
        struct plan_block_shape *shape = &shapes->blocks[b];
        *shape = (struct plan_block_shape){
            .name = blocks->list[b].name,
            .elements = blocks->list[b].elements,
            .trained = blocks->list[b].trained,
            .format = run_options_format_of(options, lent->blocks[b].master,
                                            lent->sums ? CORE_UPDATE_F32
                                                       : lent->blocks[b].gradients)};
    }
    *out = shapes;
    return 0;
}

void run_shapes_destroy(struct run_shapes *shapes)
{
    if (shapes == NULL) {
        return;
    }
    for (unsigned i = 0; shapes->programs != NULL && i < shapes->block_count; i++) {
        if (shapes->model->blocks[i].like == i) {
            model_program_destroy(shapes->programs[i]);
        }
    }
    for (unsigned i = shapes->block_count; shapes->sections != NULL && i-- > 0;) {
        const unsigned like = shapes->model->blocks[i].like;
        if (like == i || shapes->sections[i] != shapes->sections[like]) {
            model_sections_destroy(shapes->sections[i]);
        }
    }
    for (unsigned i = 0; shapes->stored != NULL && i < shapes->block_count; i++) {
        model_stored_destroy(shapes->stored[i]);
    }
    free(shapes->stored);
    model_program_destroy(shapes->one);
    model_sections_destroy(shapes->one_sections);
    free(shapes->programs);
    free(shapes->sections);
    free(shapes->blocks);
    free(shapes);
}

struct plan_input run_shapes_input(const struct run_shapes *shapes,
                                   const struct run_options *options,
                                   const struct plan_rates *rates)
{
    struct plan_input input = {
        .blocks = shapes->blocks,
        .block_count = shapes->block_count,
        .compute_count = shapes->model != NULL ? shapes->model->compute_count : shapes->block_count,
        .wishes = options->wishes,
        .budgets = options->budgets,
        .rates = *rates,
        .world = options->world,
        .rank = options->rank,
        .local = options->local,
        .stage = options->stage,
        .packs = options->packs,
        .codes = options->codes,
        .sums_within_nodes = options->fast,
        .within = options->within,
    };
    input.wishes.micro_batches = options->micro_batches;
    input.wishes.may_clip = options->clip > 0;
    input.wishes.may_skip = options->may_skip;
    return input;
}
