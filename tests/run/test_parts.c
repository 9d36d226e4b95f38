/* test_parts.c: parts of a run, each separately: formats of streams, inputs of a step, files of
 * rates, memory of buffers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "core/dev/dev.h"
#include "core/json/json.h"
#include "offload/plan/layout.h"
#include "offload/plan/trace.h"
#include "offload/run/inputs.h"
#include "offload/run/runtime.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

/* ---- options ---- */

/* Bytes per element of streams depend on the precision, the optimizer and the moments. */
static void formats(void)
{
    static const struct {
        enum kern_type type;
        enum core_update_rule rule;
        enum core_update_type moments;
        bool fp32;
        struct plan_format format;
    } rows[] = {
        {KERN_BF16, CORE_UPDATE_ADAMW, CORE_UPDATE_F32, false, {2, 2, 4, 4, 2, 0}},
        {KERN_BF16, CORE_UPDATE_ADAM, CORE_UPDATE_BF16, false, {2, 2, 2, 2, 2, 0}},
        {KERN_BF16, CORE_UPDATE_ADAMW, CORE_UPDATE_Q8, true, {2, 2, 1, 1, 4, CORE_UPDATE_Q8_BLOCK}},
        {KERN_BF16, CORE_UPDATE_LION, CORE_UPDATE_F32, false, {2, 2, 4, 0, 2, 0}},
        {KERN_BF16, CORE_UPDATE_SGD, CORE_UPDATE_F32, false, {2, 2, 4, 0, 2, 0}},
        {KERN_BF16, CORE_UPDATE_ADAGRAD, CORE_UPDATE_F32, false, {2, 2, 0, 4, 2, 0}},
        {KERN_FP16, CORE_UPDATE_ADAMW, CORE_UPDATE_F32, false, {2, 4, 4, 4, 2, 0}},
        {KERN_FP16, CORE_UPDATE_ADAMW, CORE_UPDATE_F32, true, {2, 4, 4, 4, 4, 0}},
        {KERN_F32, CORE_UPDATE_ADAMW, CORE_UPDATE_F32, false, {4, 0, 4, 4, 4, 0}},
        {KERN_F32, CORE_UPDATE_SGD, CORE_UPDATE_BF16, true, {4, 0, 2, 0, 4, 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct run_options options = case_options();
        options.type = rows[i].type;
        options.rule = rows[i].rule;
        options.moments = rows[i].moments;
        options.gradients_fp32 = rows[i].fp32;
        const struct plan_format format = run_options_format(&options);
        const struct plan_format *right = &rows[i].format;
        check_int(format.weight_bytes, ==, right->weight_bytes);
        check_int(format.master_bytes, ==, right->master_bytes);
        check_int(format.m_bytes, ==, right->m_bytes);
        check_int(format.v_bytes, ==, right->v_bytes);
        check_int(format.grad_bytes, ==, right->grad_bytes);
        check_int(format.q8_block, ==, right->q8_block);
        check_int(run_options_gradients(&options), ==,
                  right->grad_bytes == 4      ? CORE_UPDATE_F32
                  : rows[i].type == KERN_FP16 ? CORE_UPDATE_FP16
                                              : CORE_UPDATE_BF16);
        check_int(run_options_master(&options), ==,
                  right->master_bytes == 0   ? CORE_UPDATE_MASTER_F32
                  : right->master_bytes == 2 ? CORE_UPDATE_MASTER_SPLIT
                                             : CORE_UPDATE_MASTER_FP16);
    }
}

/* ---- inputs ---- */

/* Inputs on a separate device. */
struct desk {
    struct case_model made;
    struct run_options options;
    struct dev_device *device;
    struct dev_queue *queue;
    struct run_inputs inputs;
};

static void desk_open(struct desk *desk, const char *family, uint32_t micro_batches)
{
    case_model_make(&desk->made, family);
    desk->options = case_options();
    desk->options.micro_batches = micro_batches;
    const struct dev_options size = {
        .memory_bytes = run_inputs_bytes(desk->made.model, &desk->options) + 4096};
    const struct dev_queue_options queue = {.kind = DEV_QUEUE_COMPUTE, .threads = 1};
    check_int(dev_open("cpu", &size, &desk->device), ==, 0);
    check_int(dev_queue_create(desk->device, &queue, &desk->queue), ==, 0);
    check_int(
        run_inputs_init(&desk->inputs, desk->made.model, &desk->options, desk->device, desk->queue),
        ==, 0);
}

static void desk_close(struct desk *desk)
{
    run_inputs_fini(&desk->inputs);
    run_inputs_fini(&desk->inputs); /* accepts a zeroed struct */
    dev_queue_destroy(desk->queue);
    dev_close(desk->device);
    case_model_free(&desk->made);
}

/* Sends the inputs and returns the binding with which compute reads a micro-batch. */
static struct model_binding sent(struct desk *desk, uint32_t micro, float scale)
{
    struct model_binding binding = {0};
    check_int(run_inputs_send(&desk->inputs, desk->queue, scale, 0), ==, 0);
    run_inputs_bind(&desk->inputs, micro, &binding);
    check_double(*(const float *)binding.base[MODEL_BASE_SCALE], ==, scale);
    return binding;
}

static const int32_t *array_of(const struct model_binding *binding, enum model_base base)
{
    return (const int32_t *)binding->base[base];
}

/* A short row is padded; padding is not trained on. */
static void short_rows_are_filled(void)
{
    static const int32_t ids[] = {7, 8, 9, 10, 11};
    static const int32_t labels[] = {7, KERN_LABEL_IGNORED, 9, 10, 11};
    struct desk desk;
    int64_t targets = 0;
    desk_open(&desk, "llama", 2);
    const struct model_batch plain = {.rows = 1, .length = 5, .ids = ids};
    const struct model_batch masked = {.rows = 1, .length = 5, .ids = ids, .labels = labels};
    check_int(run_inputs_write(&desk.inputs, 0, &plain, &targets), ==, 0);
    check_int(targets, ==, 4);
    check_int(run_inputs_write(&desk.inputs, 1, &masked, &targets), ==, 0);
    check_int(targets, ==, 4 + 3);
    for (uint32_t micro = 0; micro < 2; micro++) {
        const struct model_binding binding = sent(&desk, micro, 0.25f);
        const int32_t *got = array_of(&binding, MODEL_BASE_IDS);
        const int32_t *learnt = array_of(&binding, MODEL_BASE_LABELS);
        for (int i = 0; i < CASE_ROWS * CASE_LENGTH; i++) {
            const bool masked_out = micro == 1 && i == 0; /* this token would predict label 1 */
            check_int(got[i], ==, i < 5 ? ids[i] : 0);
            check_int(learnt[i], ==, i < 4 && !masked_out ? ids[i + 1] : KERN_LABEL_IGNORED);
        }
        check_true(binding.base[MODEL_BASE_POSITIONS] == NULL);
        check_true(binding.base[MODEL_BASE_STARTS] == NULL);
        check_true(binding.base[MODEL_BASE_COS] != NULL && binding.base[MODEL_BASE_SIN] != NULL);
    }
    desk_close(&desk);
}

/* The last token of a document predicts nothing; padding is a separate document. */
static void packed_rows(void)
{
    static const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int32_t starts[] = {0, 0, 0, 3, 3, 3, 3, 3};
    static const int32_t positions[] = {0, 1, 2, 0, 1, 2, 3, 4};
    struct desk desk;
    int64_t targets = 0;
    desk_open(&desk, "llama", 1);
    const struct model_batch batch = {
        .rows = 1, .length = 8, .ids = ids, .starts = starts, .positions = positions};
    check_int(run_inputs_write(&desk.inputs, 0, &batch, &targets), ==, 0);
    check_int(targets, ==, 2 + 4);
    const struct model_binding binding = sent(&desk, 0, 1);
    for (int i = 0; i < CASE_LENGTH; i++) {
        check_int(array_of(&binding, MODEL_BASE_STARTS)[i], ==, i < 8 ? starts[i] : 8);
        check_int(array_of(&binding, MODEL_BASE_POSITIONS)[i], ==, i < 8 ? positions[i] : 0);
        check_int(array_of(&binding, MODEL_BASE_LABELS)[i], ==,
                  i < 7 && i != 2 ? ids[i + 1] : KERN_LABEL_IGNORED);
    }
    /* a later batch may lack positions, or have no rows */
    targets = 0;
    check_int(run_inputs_write(&desk.inputs, 0, NULL, &targets), ==, 0);
    check_int(targets, ==, 0);
    const struct model_binding empty = sent(&desk, 0, 1);
    check_true(empty.base[MODEL_BASE_STARTS] == NULL);
    check_true(empty.base[MODEL_BASE_POSITIONS] == NULL);
    for (int i = 0; i < CASE_ROWS * CASE_LENGTH; i++) {
        check_int(array_of(&empty, MODEL_BASE_LABELS)[i], ==, KERN_LABEL_IGNORED);
    }
    desk_close(&desk);
}

/* Losses of the micro-batches that a step has are added. */
static void losses_are_added(void)
{
    struct desk desk;
    struct kern_loss sum;
    int64_t targets = 0;
    static const int32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const struct model_batch batch = {.rows = 1, .length = 8, .ids = ids};
    desk_open(&desk, "gpt2", 3);
    for (uint32_t micro = 0; micro < 3; micro++) {
        check_int(run_inputs_write(&desk.inputs, micro, micro != 1 ? &batch : NULL, &targets), ==,
                  0);
        check_true(run_inputs_has(&desk.inputs, micro) == (micro != 1));
        check_uint(desk.inputs.places[micro], ==, micro > 0);
    }
    for (uint32_t micro = 0; micro < 3; micro++) {
        struct model_binding binding = {0};
        run_inputs_bind(&desk.inputs, micro, &binding);
        check_true(binding.base[MODEL_BASE_COS] == NULL); /* GPT-2 learns its positions */
        *(struct kern_loss *)binding.base[MODEL_BASE_LOSS] = (struct kern_loss){
            .sum = 1.5 * (micro + 1), .count = micro + 10};
    }
    check_int(run_inputs_losses(&desk.inputs, desk.queue, 2, &sum), ==, 0);
    check_double(sum.sum, ==, 1.5);
    check_int(sum.count, ==, 10);
    check_int(run_inputs_losses(&desk.inputs, desk.queue, 3, &sum), ==, 0);
    check_double(sum.sum, ==, 6);
    check_int(sum.count, ==, 22);
    desk_close(&desk);
}

/* ---- rates ---- */

static char *text_of(const char *path)
{
    static char text[16384];
    FILE *file = fopen(path, "r");
    check_true(file != NULL);
    const size_t used = fread(text, 1, sizeof text - 1, file);
    text[used] = '\0';
    fclose(file);
    return text;
}

/* Checks that a file with `from` replaced is refused, with a message that names file and key. */
static void refuse_rates(const char *good, const char *from, const char *to, const char *word)
{
    char text[16384];
    struct run_rates rates;
    const char *at = strstr(good, from);
    check_true(at != NULL);
    const int length = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to,
                                at + strlen(from));
    const char *path = test_file("bad.json", text, (size_t)length);
    int rc = run_rates_read(path, &rates);
    if (rc == 0 || strstr(core_err_message(), "bad.json") == NULL ||
        strstr(core_err_message(), word) == NULL) {
        test_fail(__FILE__, __LINE__, "%s -> %s: %d: %s", from, to, rc, core_err_message());
    }
}

/* A file keeps the bits of rates. */
static void rates_in_a_file(void)
{
    struct run_rates rates = *case_rates();
    struct run_rates read;
    char path[600];
    memset(&read, 0xff, sizeof read);
    rates.machine.read_bytes = 1.0 / 3.0 * 1e10;
    rates.machine.shared_cores = false;
    rates.forward_seconds[1] = 1.0 / 7.0;
    rates.backward_seconds[2] = 2.0 / 7.0;
    snprintf(path, sizeof path, "%s/rates.json", test_directory());
    check_int(run_rates_write(path, &rates), ==, 0);
    check_int(run_rates_read(path, &read), ==, 0);
    check_double(read.machine.read_bytes, ==, rates.machine.read_bytes);
    check_double(read.machine.command_seconds, ==, rates.machine.command_seconds);
    check_double(read.forward_seconds[1], ==, rates.forward_seconds[1]);
    check_double(read.recompute_seconds[1], ==, 0);
    check_double(read.backward_seconds[2], ==, rates.backward_seconds[2]);
    check_true(!read.machine.shared_cores);
    char good[16384];
    snprintf(good, sizeof good, "%s", text_of(path));
    refuse_rates(good, "\"version\": 1", "\"version\": 99", "version");
    refuse_rates(good, "\"version\": 1,", "", "version");
    refuse_rates(good, "\"flops_per_second\"", "\"flops\"", "flops_per_second");
    refuse_rates(good, "\"write_bytes_per_second\": ", "\"write_bytes_per_second\": -",
                 "write_bytes_per_second");
    refuse_rates(good,
                 "\"command_seconds\": ", "\"command_seconds\": 0, \"x\": ", "command_seconds");
    refuse_rates(good, "\"command_seconds\": ", "\"command_seconds\": 1e-308, \"x\": ",
                 "command_seconds: 1e-308; expected seconds from 1e-12 to 1e6");
    refuse_rates(good,
                 "\"write_bytes_per_second\": ", "\"write_bytes_per_second\": 1e-308, \"x\": ",
                 "write_bytes_per_second: 1e-308; expected a number from 1 to 1e21");
    refuse_rates(
        good, "\"update_elements_per_second\": ", "\"update_elements_per_second\": 1e300, \"x\": ",
        "update_elements_per_second: 1e+300");
    refuse_rates(good, "\"shared_cores\": false", "\"shared_cores\": 3", "shared_cores");
    refuse_rates(good, "\"layer\": ", "\"layer\": -", "layer");
    refuse_rates(good, "{", "", "bad.json");
    check_int(run_rates_read("/nowhere/rates.json", &read), ==, -ENOENT);
    check_int(run_rates_write("/nowhere/rates.json", &rates), ==, -ENOENT);
    check_contains(core_err_message(), "/nowhere/rates.json");
}

/* Seconds of blocks may be missing. */
static void rates_without_seconds(void)
{
    static const char text[] = "{\"version\": 1, \"read_bytes_per_second\": 1e9,"
                               " \"write_bytes_per_second\": 1e9, \"mixed_bytes_per_second\": 1e9,"
                               " \"up_bytes_per_second\": 1e9, \"down_bytes_per_second\": 1e9,"
                               " \"flops_per_second\": 1e12, \"update_elements_per_second\": 1e9,"
                               " \"sums_elements_per_second\": 1e9,"
                               " \"round_elements_per_second\": 1e9, \"coll_bytes_per_second\": "
                               "1e9, \"hash_bytes_per_second\": 1e9,"
                               " \"command_seconds\": 1e-6,"
                               " \"shared_cores\": true}";
    struct run_rates read;
    memset(&read, 0xff, sizeof read);
    int rc = run_rates_read(test_file("few.json", text, sizeof text - 1), &read);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "%d: %s", rc, core_err_message());
    }
    check_double(read.machine.flops, ==, 1e12);
    check_double(read.forward_seconds[1], ==, 0);
    check_double(read.backward_seconds[0], ==, 0);
}

/* Measured rates are positive and finite. */
static void rates_are_measured(void)
{
    static const enum kern_type types[] = {KERN_BF16, KERN_FP16, KERN_F32};
    struct case_model made;
    case_model_make(&made, "qwen3 tied");
    for (size_t i = 0; i < TEST_COUNT(3, 1); i++) {
        struct run_shapes *shapes = NULL;
        struct run_rates rates = {.machine = {0}};
        struct run_options options = case_options();
        options.type = types[i];
        options.world = options.local = i == 0 ? 2 : 1; /* ranks measure collectives */
        if (i == 0) {
            options.stores[0] = (struct store_path){.directory = test_directory(), .weight = 1};
            options.store_count = 1;
        }
        check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
        check_int(run_rates_measure(shapes, &options, &rates), ==, 0);
        const double numbers[] = {rates.machine.read_bytes,      rates.machine.write_bytes,
                                  rates.machine.mixed_bytes,     rates.machine.up_bytes,
                                  rates.machine.down_bytes,      rates.machine.flops,
                                  rates.machine.update_elements, rates.machine.sums_elements,
                                  rates.machine.round_elements,  rates.machine.command_seconds,
                                  rates.machine.coll_bytes,      rates.forward_seconds[1],
                                  rates.backward_seconds[1]};
        for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++) {
            check_true(isfinite(numbers[n]) && numbers[n] > 0);
        }
        check_true(rates.machine.shared_cores);
        run_shapes_destroy(shapes);
    }
    run_shapes_destroy(NULL);
    case_model_free(&made);
}

/* Ranks divide drives, and also processors if these are fewer than threads. A straggler is slower
 * in its own work. */
static void ranks_share_this_machine(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct run_options options = case_options();
    const struct plan_rates *alone = &case_rates()->machine;
    case_model_make(&made, "qwen3 tied");
    options.drive_ranks = 4;
    options.crowding = 2;
    options.straggler = 1.25;
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    const struct plan_rates *shared = &prepared->input.rates;
    check_true(alone->shared_cores);
    check_double(shared->read_bytes, ==, alone->read_bytes / 4 / 1.25);
    check_double(shared->mixed_bytes, ==, alone->mixed_bytes / 4 / 1.25);
    check_double(shared->update_elements, ==, alone->update_elements / 2 / 1.25);
    check_double(shared->flops, ==, alone->flops / 2 / 1.25);
    check_double(shared->coll_bytes, ==, alone->coll_bytes);
    check_double(prepared->rates.machine.read_bytes, ==, alone->read_bytes);
    run_prepared_destroy(prepared);
    case_model_free(&made);
}

/* ---- shapes and plans ---- */

/* Shapes agree with programs, and a plan with the runtime's memory is within the budgets. */
static void shapes_and_plans(void)
{
    struct case_model made;
    struct run_shapes *shapes = NULL;
    struct run_prepared *prepared = NULL;
    struct run_options options = case_options();
    options.budgets.host_taken_bytes = 12345;
    case_model_make(&made, "llama tied");
    check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
    const struct plan_input input = run_shapes_input(shapes, &options, &case_rates()->machine);
    const unsigned last = made.model->compute_count - 1;
    check_uint(input.block_count, ==, made.model->block_count);
    check_uint(input.compute_count, ==, made.model->block_count);
    check_true(input.wishes.may_clip && !input.wishes.may_skip);
    check_uint(input.blocks[0].borrow_count, ==, 0);
    check_uint(input.blocks[last].borrow_count, ==, 1);
    check_uint(input.blocks[last].borrows[0], ==, 0);
    check_uint(input.blocks[last].shared_elements, ==,
               made.model->config.vocab * made.model->config.hidden);
    check_uint(input.blocks[1].out_bytes, ==,
               CASE_ROWS * CASE_LENGTH * made.model->config.hidden * 2);
    check_uint(input.blocks[last].out_bytes, ==, 0);
    check_uint(run_shapes_kept_offset(shapes->programs[1]), ==, input.blocks[1].forward_bytes);
    check_uint(input.blocks[1].forward_bytes, >=, shapes->programs[1]->forward.temp_bytes);
    check_true(!input.blocks[0].backward_reads_weights && input.blocks[1].backward_reads_weights);
    run_shapes_destroy(shapes);
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    check_uint(run_prepared_bytes(prepared, PLAN_HOST), ==,
               plan_tier_bytes(prepared->plan, PLAN_HOST) + 12345);
    check_uint(run_prepared_bytes(prepared, PLAN_DEVICE), >,
               plan_tier_bytes(prepared->plan, PLAN_DEVICE));
    check_uint(run_prepared_bytes(prepared, PLAN_DEVICE), <=, options.budgets.device_bytes);
    check_uint(run_prepared_bytes(prepared, PLAN_STORE), ==, 0);
    check_true(prepared->plan_seconds > 0);
    run_prepared_destroy(prepared);
    run_prepared_destroy(NULL);
    check_true(run_runtime_used_bytes() > 1 << 20);
    check_uint(run_runtime_peak_bytes(), >=, run_runtime_used_bytes() / 2);
    check_uint(run_runtime_bytes(made.model->block_count, &options), >, run_runtime_used_bytes());
    case_model_free(&made);
}

/* ---- memory ---- */

/* Buffers begin at pages, do not overlap, and are inside the memory that was taken. */
static void memory_by_buffer(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct run_options options = case_options();
    struct dev_device *device = NULL;
    struct run_memory memory;
    case_model_make(&made, "llama");
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    const struct plan *plan = prepared->plan;
    const struct dev_options size = {.memory_bytes = plan_tier_bytes(plan, PLAN_DEVICE) +
                                                     (1 << 20)};
    check_int(dev_open("cpu", &size, &device), ==, 0);
    const struct run_memory_options where = {.plan = plan, .device = device};
    check_int(run_memory_init(&memory, &where), ==, 0);
    for (uint32_t i = 0; i < plan_buffer_count(plan); i++) {
        const struct plan_buffer *one = plan_buffer(plan, i);
        const char *base = one->tier == PLAN_DEVICE ? memory.device_base
                                                    : (const char *)memory.host.base;
        const uint64_t most = plan_tier_bytes(plan, (enum plan_tier)one->tier);
        check_true(memory.at[i] == base + one->offset && one->offset + one->bytes <= most);
        check_uint((uintptr_t)memory.at[i] % 4096, ==, 0);
        for (uint32_t j = 0; j < i; j++) {
            const struct plan_buffer *other = plan_buffer(plan, j);
            check_true(other->tier != one->tier || other->offset + other->bytes <= one->offset ||
                       one->offset + one->bytes <= other->offset);
        }
    }
    struct plan_command command = {
        .operand_count = 2,
        .operands = {{.role = PLAN_AS_SLOT, .buffer = 1, .offset = 4096, .bytes = 64},
                     {.role = PLAN_AS_GRAD, .buffer = 0, .offset = 128, .bytes = 64}}};
    check_true(run_memory_of(&memory, &command, PLAN_AS_SLOT) == memory.at[1] + 4096);
    check_true(run_memory_slot_of(&memory, &command, PLAN_AS_SLOT) == memory.at[1]);
    check_true(run_memory_of(&memory, &command, PLAN_AS_GRAD) == memory.at[0] + 128);
    check_true(run_memory_of(&memory, &command, PLAN_AS_IN) == NULL);
    check_true(run_memory_slot_of(&memory, &command, PLAN_AS_IN) == NULL);
    run_memory_fini(&memory);
    run_memory_fini(&memory); /* accepts a zeroed struct */
    dev_close(device);
    run_prepared_destroy(prepared);
    case_model_free(&made);
}

/* Speculative commands write the other generation, until the two are swapped. */
static void memory_of_two_generations(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct run_options options = case_options();
    struct dev_device *device = NULL;
    struct run_memory memory;
    for (int twice = 0; twice < 2; twice++) {
        options.wishes.states = PLAN_WHERE_HOST;
        options.wishes.timing = twice ? PLAN_TIMING_SPECULATIVE : PLAN_TIMING_DEFERRED;
        case_model_make(&made, "llama");
        check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
        const struct plan *plan = prepared->plan;
        const struct dev_options size = {.memory_bytes = plan_tier_bytes(plan, PLAN_DEVICE) +
                                                         (1 << 20)};
        check_int(dev_open("cpu", &size, &device), ==, 0);
        const struct run_memory_options where = {.plan = plan, .device = device};
        check_int(run_memory_init(&memory, &where), ==, 0);
        check_true(run_memory_has_generations(&memory) == (twice != 0));
        const uint32_t states = plan_layout_of(plan)->blocks[1].states_memory;
        struct plan_command command = {
            .ahead = true,
            .operand_count = 1,
            .operands = {{.role = PLAN_AS_STATES, .buffer = states, .offset = 64, .bytes = 64}}};
        const char *old = run_memory_current(&memory, &command, PLAN_AS_STATES);
        const char *fresh = run_memory_of(&memory, &command, PLAN_AS_STATES);
        check_true((old != fresh) == (twice != 0));
        run_memory_swap_generations(&memory);
        check_true(run_memory_current(&memory, &command, PLAN_AS_STATES) == fresh);
        check_true(run_memory_of(&memory, &command, PLAN_AS_STATES) == old);
        command.ahead = false;
        check_true(run_memory_of(&memory, &command, PLAN_AS_STATES) == fresh);
        run_memory_fini(&memory);
        dev_close(device);
        run_prepared_destroy(prepared);
        case_model_free(&made);
    }
}

TEST_MAIN({"formats", formats}, {"memory_of_two_generations", memory_of_two_generations},
          {"short_rows_are_filled", short_rows_are_filled}, {"packed_rows", packed_rows},
          {"losses_are_added", losses_are_added}, {"rates_in_a_file", rates_in_a_file},
          {"rates_without_seconds", rates_without_seconds},
          {"rates_are_measured", rates_are_measured}, {"shapes_and_plans", shapes_and_plans},
          {"ranks_share_this_machine", ranks_share_this_machine},
          {"memory_by_buffer", memory_by_buffer})
