/* test_frozen.c: frozen blocks and parts of blocks have no states, gradients or updates; where
 * their weights are does not change a run's bits. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "offload/plan/layout.h"
#include "offload/run/engine_internal.h"
#include "offload/run/rank_internal.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

enum { STEPS = 3 };

static const char *const llama_embedding[] = {"model.embed_tokens.weight"};
static const char *const gpt2_embedding[] = {"*wte*", "*wpe*"};
static const char *const ends[] = {"model.embed_tokens.weight", "lm_head.weight",
                                   "model.norm.weight"};

struct way {
    const char *name;
    enum plan_where weights;
    enum plan_acts acts;
    enum plan_order order;
    uint32_t micro_batches;
    enum kern_type type;
    uint32_t world, stage;
    enum case_rows rows;
    const char *io;
};

static const struct way ways[] = {
    {"in STORE", PLAN_WHERE_STORE, PLAN_ACTS_RECOMPUTE, PLAN_ORDER_AUTO, 1, KERN_BF16, 1, 0,
     CASE_WHOLE, "threads"},
    {"in STORE, layer by layer", PLAN_WHERE_STORE, PLAN_ACTS_STORE, PLAN_ORDER_LAYER, 3, KERN_BF16,
     1, 0, CASE_PACKED, "mem"},
    {"in STORE, micro-batch by micro-batch", PLAN_WHERE_STORE, PLAN_ACTS_STORE, PLAN_ORDER_MICRO, 3,
     KERN_F32, 1, 0, CASE_SHORT, "mem"},
    {"in HOST", PLAN_WHERE_HOST, PLAN_ACTS_KEEP, PLAN_ORDER_AUTO, 3, KERN_BF16, 1, 0, CASE_FEWER,
     "mem"},
    {"groups of micro-batches", PLAN_WHERE_STORE, PLAN_ACTS_RECOMPUTE, PLAN_ORDER_AUTO,
     RUN_OPTIONS_GROUPS + 3, KERN_BF16, 1, 0, CASE_WHOLE, "mem"},
    {"two ranks, stage 2", PLAN_WHERE_STORE, PLAN_ACTS_RECOMPUTE, PLAN_ORDER_AUTO, 2, KERN_F32, 2,
     2, CASE_WHOLE, "mem"},
    {"two ranks, stage 3", PLAN_WHERE_STORE, PLAN_ACTS_RECOMPUTE, PLAN_ORDER_AUTO, 2, KERN_F32, 2,
     3, CASE_WHOLE, "mem"},
    {"groups of micro-batches, layer by layer", PLAN_WHERE_STORE, PLAN_ACTS_RECOMPUTE,
     PLAN_ORDER_LAYER, RUN_OPTIONS_GROUPS + 3, KERN_BF16, 1, 0, CASE_FEWER, "mem"},
    {"three ranks, stage 3, in HOST", PLAN_WHERE_HOST, PLAN_ACTS_KEEP, PLAN_ORDER_AUTO, 1,
     KERN_BF16, 3, 3, CASE_SHORT, "mem"},
};

/* Ways after the first WAYS are only for sections. */
enum { WAYS = 7 };

static struct run_options options_of(const struct way *way)
{
    struct run_options options = case_options();
    options.wishes.weights = way->weights;
    options.wishes.states = PLAN_WHERE_STORE;
    options.wishes.acts = way->acts;
    options.wishes.order = way->order;
    options.micro_batches = way->micro_batches;
    options.type = way->type;
    options.world = way->world;
    options.stage = way->stage;
    case_store(&options, way->io);
    return options;
}

static struct run_prepared *prepare(const struct case_model *made,
                                    const struct run_options *options)
{
    struct run_prepared *prepared = NULL;
    const int rc = run_prepared_create(made->model, options, case_rates(), &prepared);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "%s", core_err_message());
    }
    return prepared;
}

/* ---- plans ---- */

static void check_command(const struct plan_command *command)
{
    const bool boundary = command->streams == PLAN_ACT;
    const bool moves_weights = command->streams == PLAN_W16 || command->streams == 0;
    switch ((enum plan_op)command->op) {
    case PLAN_FWD:
    case PLAN_EXPAND:
    case PLAN_JOIN: break;
    case PLAN_BWD:
        check_true(plan_command_operand(command, PLAN_AS_GRAD) == NULL);
        check_true(plan_command_operand(command, PLAN_AS_SUM) == NULL);
        break;
    case PLAN_READ:
    case PLAN_H2D:
    case PLAN_GATHER: check_true(boundary || moves_weights); break;
    case PLAN_WRITE:
    case PLAN_D2H: check_true(boundary); break;
    case PLAN_REDUCE:
    case PLAN_ROUND:
    case PLAN_SUMS:
    case PLAN_NORM:
    case PLAN_UPDATE:
    case PLAN_OP_COUNT:
        test_fail(__FILE__, __LINE__, "%s of a frozen block",
                  plan_op_name((enum plan_op)command->op));
    }
}

/* Checks that the plan has no buffers or commands for states and gradients of frozen blocks. */
static void check_plan(const struct case_model *made, const struct run_prepared *prepared)
{
    const struct plan_layout *layout = plan_layout_of(prepared->plan);
    uint64_t store_bytes = 0;
    for (uint32_t b = 0; b < layout->count; b++) {
        store_bytes += layout->buffers[b].tier == PLAN_STORE ? layout->buffers[b].bytes : 0;
    }
    check_uint(store_bytes, <=, layout->tier_bytes[PLAN_STORE]);
    for (unsigned b = 0; b < made->model->block_count; b++) {
        const struct plan_block_layout *where = &layout->blocks[b];
        if (made->model->blocks[b].trained) {
            continue;
        }
        check_uint(where->states_memory, ==, PLAN_NONE);
        check_uint(where->states_store, ==, PLAN_NONE);
        check_uint(where->gradient, ==, PLAN_NONE);
        check_uint(where->gradient_store, ==, PLAN_NONE);
        check_uint(where->gradient_whole, ==, PLAN_NONE);
        check_uint(where->sum, ==, PLAN_NONE);
        check_uint(layout->places[b].chunk_count, ==, 0);
    }
    for (int before = 0; before <= PLAN_KIND_COUNT; before++) {
        for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
            const struct plan_tape *tape = plan_tape(prepared->plan, (enum plan_kind)before,
                                                     (enum plan_kind)kind);
            for (uint32_t i = 0; tape != NULL && i < tape->count; i++) {
                const struct plan_command *command = &tape->commands[i];
                if (command->block != PLAN_NONE && command->block < made->model->block_count &&
                    command->op != PLAN_NORM && !made->model->blocks[command->block].trained) {
                    check_command(command);
                }
            }
        }
    }
}

static void plans_have_nothing_for_it(void)
{
    static const char *const layer[] = {"model.layers.1.*", "lm_head.weight", "model.norm.weight"};
    static const char *const all_but_head[] = {"model.layers.*", "model.embed*"};
    static const struct {
        const char *const *patterns;
        size_t count;
    } cases[] = {{ends, 3}, {layer, 3}, {all_but_head, 2}};
    static const enum plan_where places[] = {PLAN_WHERE_AUTO, PLAN_WHERE_HOST, PLAN_WHERE_STORE};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t w = 0; w < 3; w++) {
            for (size_t g = 0; g < 3; g++) {
                struct case_model made;
                struct run_options options = options_of(&ways[w]);
                case_model_make(&made, "llama");
                case_model_freeze(&made, cases[i].patterns, cases[i].count);
                options.wishes.states = places[g];
                options.wishes.saves = true;
                options.clip = g == 0 ? 0 : options.clip;
                struct run_prepared *prepared = prepare(&made, &options);
                check_plan(&made, prepared);
                run_prepared_destroy(prepared);
                case_model_free(&made);
            }
        }
    }
}

static void checkpoints_have_its_weights_alone(void)
{
    struct case_model made;
    struct store_image image = {0};
    case_model_make(&made, "llama");
    case_model_freeze(&made, ends, 3);
    const struct run_options options = case_options();
    image.blocks = made.model->flat;
    image.format = run_options_format(&options);
    for (unsigned b = 0; b < made.model->block_count; b++) {
        const struct model_block *block = &made.model->blocks[b];
        check_uint(store_image_bytes(&image, STORE_STREAM_WEIGHTS, b), ==, 2 * block->elements);
        check_uint(store_image_bytes(&image, STORE_STREAM_MASTER, b), ==,
                   block->trained ? 2 * block->elements : 0);
        check_uint(store_image_bytes(&image, STORE_STREAM_M, b), ==,
                   block->trained ? 4 * block->elements : 0);
        check_uint(store_image_bytes(&image, STORE_STREAM_V, b), ==,
                   block->trained ? 4 * block->elements : 0);
    }
    case_model_free(&made);
}

/* ---- runs ---- */

/* Checks that a run on a frozen embedding, which most ways read by rows, has the bits of a run in
 * memory. Under a sanitizer, every second way from `first` on runs. */
static void run(const char *family, const char *const *patterns, size_t count, size_t first)
{
    for (size_t w = TEST_COUNT(0, first); w < WAYS; w += TEST_COUNT(1, 2)) {
        const struct way *way = &ways[w];
        struct case_model made;
        struct case_outcome whole;
        struct case_outcome rows;
        char name[160];
        snprintf(name, sizeof name, "%s, %s", family, way->name);
        case_model_make(&made, family);
        case_model_freeze(&made, patterns, count);
        made.rows = way->rows;
        struct run_options options = options_of(way);
        struct run_prepared *prepared = prepare(&made, &options);
        const struct plan_block_layout *where = &plan_layout_of(prepared->plan)->blocks[0];
        check_true((where->rows[0] != PLAN_NONE) == (way->world == 1 || way->stage < 3));
        check_plan(&made, prepared);
        run_prepared_destroy(prepared);
        case_run_engine(&made, &options, STEPS, &rows);
        options.wishes.weights = PLAN_WHERE_DEVICE;
        case_run_engine(&made, &options, STEPS, &whole);
        case_check_equal(&whole, &rows, name);
        if (way->world == 1) {
            case_run_plain(&made, &options, STEPS, &whole);
            case_check_equal(&whole, &rows, name);
        }
        case_model_free(&made);
    }
}

static void rows_have_the_same_bits(void)
{
    run("words", llama_embedding, 1, 0);
}

/* A frozen table of positions is read by rows, too. */
static void positions_too(void)
{
    run("gpt2 words", gpt2_embedding, 2, 1);
}

/* ---- blocks that are partly frozen ---- */

static void parts_have_the_same_bits(void)
{
    static const char *const llama[] = {"*.mlp.*", "*norm*"};
    static const char *const gpt2[] = {"*wpe*", "*.attn.*", "*.bias"};
    static const char *const tied[] = {"model.layers.1.mlp.*", "model.layers.0.*proj*"};
    static const struct {
        const char *family;
        const char *const *patterns;
        size_t count;
        unsigned data;
    } cases[] = {{"llama", llama, 2, 4}, {"gpt2", gpt2, 3, 4}, {"llama tied", tied, 2, 2}};
    for (size_t w = 0; w < WAYS; w += TEST_COUNT(1, 3)) {
        const size_t c = w % (sizeof cases / sizeof cases[0]);
        struct case_model made;
        struct case_outcome whole;
        struct case_outcome moved;
        char name[160];
        snprintf(name, sizeof name, "parts of %s, %s", cases[c].family, ways[w].name);
        case_model_make(&made, cases[c].family);
        case_model_freeze(&made, cases[c].patterns, cases[c].count);
        check_uint(made.model->block_count, ==, made.model->compute_count + cases[c].data);
        made.rows = ways[w].rows;
        struct run_options options = options_of(&ways[w]);
        struct run_prepared *prepared = prepare(&made, &options);
        check_plan(&made, prepared);
        run_prepared_destroy(prepared);
        case_run_engine(&made, &options, STEPS, &moved);
        options.wishes.weights = PLAN_WHERE_DEVICE;
        if (ways[w].world == 1) {
            case_run_plain(&made, &options, STEPS, &whole);
        } else {
            case_run_engine(&made, &options, STEPS, &whole);
        }
        case_check_equal(&whole, &moved, name);
        case_model_free(&made);
    }
}

/* The frozen part of a layer is read for forward and again for backward, unless a slot still has
 * it. */
static void parts_are_read_twice(void)
{
    static const char *const frozen[] = {"*proj*"};
    struct case_model made;
    struct run_options options = options_of(&ways[2]);
    case_model_make(&made, "llama");
    case_model_freeze(&made, frozen, 1);
    options.type = KERN_BF16;
    options.wishes.weight_slots = 2;
    struct run_prepared *prepared = prepare(&made, &options);
    const struct plan_layout *layout = plan_layout_of(prepared->plan);
    const uint32_t data = made.model->blocks[1].data;
    const uint64_t bytes = made.model->blocks[data].elements * 2;
    const uint32_t own_slot = layout->weights.buffers[PLAN_LAYER][0];
    const uint32_t data_slot = layout->weights.buffers[PLAN_LAYER_DATA][0];
    check_uint(layout->weights.counts[PLAN_LAYER_DATA], ==, 2);
    check_uint(layout->buffers[data_slot].bytes, >=, bytes);
    check_uint(layout->buffers[data_slot].bytes, <, bytes + 2 * PLAN_ALIGN_BYTES);
    check_uint(layout->buffers[own_slot].bytes, <, bytes / TEST_COUNT(50, 25));
    const struct plan_tape *tape = plan_tape(prepared->plan, PLAN_KIND_COUNT, PLAN_FIRST);
    uint64_t read[2] = {0, 0};
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        const bool reads = command->op == PLAN_READ && command->block >= data;
        read[reads && command->block == data] += reads ? command->bytes : 0;
    }
    /* Three layers have two slots: the first layer is read once forward and three times
     * backward, the other two together four times. */
    check_uint(options.micro_batches, ==, 3);
    check_uint(read[1], ==, 4 * bytes);
    check_uint(read[0], ==, (1 + 3) * bytes);
    run_prepared_destroy(prepared);
    case_model_free(&made);
}

/* ---- which bytes are read ---- */

static int by_number(const void *a, const void *b)
{
    return (int)(*(const int32_t *)a - *(const int32_t *)b);
}

/* Returns the bytes of the pages that contain a batch's rows. */
static uint64_t bytes_of(const struct case_model *made, const struct model_batch *batch,
                         uint64_t width)
{
    const uint64_t row = (uint64_t)made->model->config.hidden * width;
    uint64_t pages = 0;
    uint64_t end = 0;
    int32_t ids[CASE_ROWS * CASE_LENGTH];
    for (int t = 0; t < CASE_ROWS * CASE_LENGTH; t++) {
        ids[t] = batch->ids[t];
    }
    qsort(ids, CASE_ROWS * CASE_LENGTH, sizeof ids[0], by_number);
    for (int t = 0; t < CASE_ROWS * CASE_LENGTH; t++) {
        const uint64_t first = (uint64_t)ids[t] * row / 4096;
        const uint64_t after = ((uint64_t)ids[t] * row + row + 4095) / 4096;
        pages += after > end ? after - (first > end ? first : end) : 0;
        end = after > end ? after : end;
    }
    return pages * 4096;
}

/* The drive reads the pages of a batch's rows of a frozen embedding, once. */
static void only_used_rows_are_read(void)
{
    for (size_t w = 0; w < 2; w++) {
        struct case_model made;
        struct run_engine *engine = NULL;
        struct run_options options = options_of(&ways[w]);
        case_model_make(&made, "words");
        case_model_freeze(&made, llama_embedding, 1);
        struct run_prepared *prepared = prepare(&made, &options);
        const struct run_engine_options engine_options = {
            .prepared = prepared, .options = &options, .model = made.model, .files = made.files};
        const struct plan_layout *layout = plan_layout_of(prepared->plan);
        const uint64_t slot = layout->buffers[layout->blocks[0].rows[0]].bytes;
        const uint64_t most = UINT64_C(2) * CASE_ROWS * CASE_LENGTH * 4096;
        check_uint(prepared->input.blocks[0].rows_bytes, <=, most);
        check_uint(slot, <=, most);
        uint64_t planned = 0;
        const struct plan_tape *tape = plan_tape(prepared->plan, PLAN_KIND_COUNT, PLAN_FIRST);
        for (uint32_t i = 0; i < tape->count; i++) {
            planned += tape->commands[i].rows ? tape->commands[i].bytes : 0;
        }
        check_uint(planned, ==, options.micro_batches * prepared->input.blocks[0].rows_bytes);
        check_int(run_engine_create(&engine_options, &engine), ==, 0);
        struct store *store = engine->workers[0].rank->store;
        for (unsigned s = 0; s < STEPS; s++) {
            int32_t ids[3][CASE_ROWS * CASE_LENGTH];
            struct model_batch batches[3];
            struct run_step step;
            struct store_stats before;
            struct store_stats after;
            uint64_t used = 0;
            for (uint32_t m = 0; m < options.micro_batches; m++) {
                batches[m] = case_batch(&made, s, m, ids[m]);
                used += bytes_of(&made, &batches[m], 2);
            }
            check_int(run_engine_drain(engine), ==, 0);
            (void)run_rank_traffic_take(engine->workers[0].rank);
            store_stats_take(store, &before);
            check_int(run_engine_step(engine, batches, options.micro_batches, 1e-3, &step), ==, 0);
            check_int(run_engine_quiesce(engine), ==, 0);
            store_stats_take(store, &after);
            uint64_t other = 0; /* read besides rows by a step after a drain */
            tape = plan_tape(prepared->plan, s == 0 ? PLAN_KIND_COUNT : PLAN_DRAIN, PLAN_FIRST);
            for (uint32_t i = 0; i < tape->count; i++) {
                const struct plan_command *command = &tape->commands[i];
                other += command->op == PLAN_READ && !command->rows ? command->bytes : 0;
            }
            check_uint(used, <, planned);
            check_uint(step.traffic.store_read_bytes, ==, other + used);
            /* The drive also reads ahead for the next step, and moves chunks in whole pages. */
            const uint64_t told = step.traffic.store_read_bytes +
                                  run_rank_traffic_take(engine->workers[0].rank).store_read_bytes;
            check_uint(after.read_bytes - before.read_bytes, >=, told);
            check_uint(after.read_bytes - before.read_bytes, <,
                       told + UINT64_C(4096) * tape->count);
        }
        check_true(run_engine_destroy(engine));
        run_prepared_destroy(prepared);
        case_model_free(&made);
    }
}

/* ---- sections ---- */

static const char *const all_but_embedding[] = {"model.layers.*", "lm_head.weight",
                                                "model.norm.weight"};

static const char *const mlp_and_head[] = {"*.mlp.*", "lm_head.weight", "model.norm.weight"};

static const struct sectioned {
    const char *name;
    const char *family;
    const char *const *patterns;
    size_t count;
    unsigned block;
    uint64_t tile_bytes;
} sectioned[] = {
    {"a head", "words", ends, 3, 3, 64 << 10},
    {"a tied head", "words tied", llama_embedding, 1, 3, 64 << 10},
    {"layers", "wide", all_but_embedding, 3, 1, 64 << 10},
    {"parts of layers", "wide", mlp_and_head, 3, 1, 64 << 10},
    {"trained layers", "wide", ends, 3, 1, 64 << 10},
};

/* Checks that a section is smaller than a third of the largest block that has sections. */
static void check_sections(const struct case_model *made, const struct run_prepared *prepared)
{
    const struct plan_layout *layout = plan_layout_of(prepared->plan);
    const struct plan_input *input = &prepared->input;
    uint64_t largest = 0;
    for (unsigned block = 0; block < made->model->compute_count; block++) {
        const uint32_t source = plan_layout_sectioned(input, layout, block);
        if (source != PLAN_NONE) {
            const struct plan_block_shape *shape = &input->blocks[source];
            const uint64_t bytes = shape->elements * shape->format.weight_bytes;
            largest = bytes > largest ? bytes : largest;
        }
    }
    check_uint(3 * layout->buffers[layout->sections[0]].bytes, <, largest);
    check_plan(made, prepared);
}

/* Evaluates a batch and writes the logits after five tokens. Returns the sum of the losses. */
static double sample(const struct case_model *made, const struct run_options *options, float *out)
{
    struct run_engine *engine = NULL;
    struct run_prepared *prepared = prepare(made, options);
    const struct run_engine_options engine_options = {
        .prepared = prepared, .options = options, .model = made->model, .files = made->files};
    int32_t ids[CASE_ROWS * CASE_LENGTH];
    const struct model_batch batch = case_batch(made, 3, 0, ids);
    struct kern_loss loss;
    check_int(run_engine_create(&engine_options, &engine), ==, 0);
    check_int(run_engine_evaluate(engine, &batch, &loss), ==, 0);
    check_int(run_engine_logits(engine, ids, 5, out), ==, 0);
    check_true(run_engine_destroy(engine));
    run_prepared_destroy(prepared);
    return loss.sum;
}

static void run_sections(const struct sectioned *of, const struct way *way)
{
    struct case_model made;
    struct case_outcome whole;
    struct case_outcome sections;
    char name[160];
    struct run_options options = options_of(way);
    snprintf(name, sizeof name, "%s, %s", of->name, way->name);
    case_model_make(&made, of->family);
    case_model_freeze(&made, of->patterns, of->count);
    made.rows = way->rows;
    options.tile_bytes = of->tile_bytes;
    const size_t logits_bytes = (size_t)made.model->config.vocab * sizeof(float);
    float *logits[2] = {malloc(logits_bytes), malloc(logits_bytes)};
    check_true(logits[0] != NULL && logits[1] != NULL);
    if (options.world == 1) {
        case_run_plain(&made, &options, STEPS, &whole);
    } else {
        case_run_engine(&made, &options, STEPS, &whole);
    }
    const double loss = sample(&made, &options, logits[0]);
    check_double(loss, >, 0);
    case_squeeze(&made, &options, of->block, check_sections);
    case_run_engine(&made, &options, STEPS, &sections);
    case_check_equal(&whole, &sections, name);
    check_double(sample(&made, &options, logits[1]), ==, loss);
    check_true(memcmp(logits[0], logits[1], logits_bytes) == 0);
    free(logits[0]);
    free(logits[1]);
    case_model_free(&made);
}

static void sections_have_the_same_bits(void)
{
    static const struct {
        unsigned of, way;
    } pairs[] = {{1, 1}, {3, 8}, {0, 0}, {0, 2}, {0, 7}, {1, 3},
                 {2, 0}, {2, 6}, {3, 1}, {4, 3}, {4, 8}};
    for (size_t i = 0; i < TEST_COUNT(sizeof pairs / sizeof pairs[0], 2); i++) {
        run_sections(&sectioned[pairs[i].of], &ways[pairs[i].way]);
    }
}

/* With `sections` the resumed run has too little memory for the whole head. */
static void resume(const char *const *patterns, size_t count, bool sections)
{
    struct case_model made;
    struct case_outcome straight = {.steps = 0};
    struct case_outcome resumed = {.steps = 0};
    struct run_options options = options_of(&ways[1]);
    struct store_shelf *shelf = case_shelf_open();
    char folder[700];
    case_model_make(&made, "words");
    case_model_freeze(&made, patterns, count);
    options.wishes.saves = true;
    options.tile_bytes = sections ? 64 << 10 : 0;
    const struct run_save_options save = {.shelf = shelf, .keep = 2};
    const struct case_part all = {.end = 4, .evaluated = 2};
    const struct case_part first = {.end = 2, .save = &save, .save_after = 2, .evaluated = 2};
    case_run_part(&made, &options, &all, &straight, "a run");
    case_run_part(&made, &options, &first, &resumed, "its beginning");
    const struct case_part second = {
        .first = 2,
        .end = 4,
        .resume = store_shelf_path(store_shelf_directory(shelf), 2, folder, sizeof folder)};
    if (sections) {
        case_squeeze(&made, &options, made.model->compute_count - 1, check_sections);
    }
    case_run_part(&made, &options, &second, &resumed, "its end");
    case_check_equal(&straight, &resumed, "resumed");
    store_shelf_close(shelf);
    case_model_free(&made);
}

static void evaluated_and_resumed(void)
{
    static const char *const parts[] = {"*.mlp.*", "*norm*"};
    resume(ends, 3, false);
    resume(parts, 2, false);
    resume(ends, 3, true);
}

/* ---- checkpoints without the base ---- */

/* Changes a byte of a frozen tensor in the model's file. */
static void change_base(const struct case_model *made)
{
    char path[600];
    unsigned char byte = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", made->folder);
    FILE *file = fopen(path, "r+b");
    check_true(file != NULL && fseek(file, 100000, SEEK_SET) == 0);
    check_uint(fread(&byte, 1, 1, file), ==, 1);
    byte ^= 1;
    check_int(fseek(file, 100000, SEEK_SET), ==, 0);
    check_uint(fwrite(&byte, 1, 1, file), ==, 1);
    check_int(fclose(file), ==, 0);
}

/* A run on a frozen base resumes in another placement, but not on another base. */
static void checkpoints_name_their_base(void)
{
    static const char *const parts[] = {"*.mlp.*", "*norm*", "model.embed*"};
    static const struct {
        size_t save, resume;
    } pairs[] = {{0, 1}, {1, 3}, {5, 6}};
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p += TEST_COUNT(1, 2)) {
        struct case_model made;
        struct case_outcome straight = {.steps = 0};
        struct case_outcome resumed = {.steps = 0};
        struct store_manifest manifest = {.step = 0};
        struct run_options from = options_of(&ways[pairs[p].save]);
        struct store_shelf *shelf = case_shelf_open();
        char folder[700];
        char name[64];
        snprintf(name, sizeof name, "%s to %s", ways[pairs[p].save].name,
                 ways[pairs[p].resume].name);
        case_model_make(&made, "llama");
        case_model_freeze_base(&made, parts, 3);
        from.wishes.saves = true;
        from.micro_batches = 2;
        from.type = KERN_BF16;
        const struct run_save_options save = {.shelf = shelf, .keep = 2};
        const struct case_part all = {.end = 4};
        const struct case_part first = {.end = 2, .save = &save, .save_after = 2};
        case_run_part(&made, &from, &all, &straight, name);
        case_run_part(&made, &from, &first, &resumed, name);
        store_shelf_path(store_shelf_directory(shelf), 2, folder, sizeof folder);
        check_int(store_checkpoint_peek(folder, &manifest), ==, 0);
        check_true(manifest.blocks->base_apart && manifest.base != 0);
        struct store_image image = {0};
        check_int(
            store_image_init(&image, &manifest.format, manifest.weight_dtype, manifest.blocks), ==,
            0);
        for (unsigned b = 0; b < made.model->block_count; b++) {
            const bool trained = made.model->blocks[b].trained;
            check_uint(store_image_bytes(&image, STORE_STREAM_WEIGHTS, b), ==,
                       trained ? 2 * made.model->blocks[b].elements : 0);
        }
        store_image_fini(&image);
        struct run_options to = options_of(&ways[pairs[p].resume]);
        to.micro_batches = 2;
        to.type = KERN_BF16;
        const struct case_part second = {.first = 2, .end = 4, .resume = folder};
        case_run_part(&made, &to, &second, &resumed, name);
        case_check_equal(&straight, &resumed, name);
        change_base(&made);
        check_int(case_try_part(&made, &to, &second, &resumed), ==, -EINVAL);
        char identity[32];
        snprintf(identity, sizeof identity, "its base is %016" PRIx64, manifest.base);
        check_contains(resumed.message, "belongs to another base model");
        check_contains(resumed.message, identity);
        store_manifest_fini(&manifest);
        store_shelf_close(shelf);
        case_model_free(&made);
    }
}

TEST_MAIN({"sections_have_the_same_bits", sections_have_the_same_bits},
          {"plans_have_nothing_for_it", plans_have_nothing_for_it},
          {"checkpoints_have_its_weights_alone", checkpoints_have_its_weights_alone},
          {"rows_have_the_same_bits", rows_have_the_same_bits}, {"positions_too", positions_too},
          {"parts_have_the_same_bits", parts_have_the_same_bits},
          {"parts_are_read_twice", parts_are_read_twice},
          {"only_used_rows_are_read", only_used_rows_are_read},
          {"evaluated_and_resumed", evaluated_and_resumed},
          {"checkpoints_name_their_base", checkpoints_name_their_base})
