/* test_pieces.c: components of a run, each separately: micro-batches, blocks, programs, shards,
 * timelines, manifests. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "offload/model/batch.h"
#include "offload/plan/layout.h"
#include "offload/plan/shard.h"
#include "offload/plan/trace.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

/* ---- micro-batches ---- */

static const struct model_config config = {.vocab = 10, .positions = 8, .length_max = 8};

static void refuse_batch(const struct model_batch *batch, const char *word)
{
    check_int(model_batch_check(batch, &config), ==, -EINVAL);
    check_contains(core_err_message(), word);
}

/* Numbers out of bounds are refused, with their row and index. */
static void batches_are_checked(void)
{
    int32_t ids[8] = {0, 9, 1, 2, 3, 4, 5, 6};
    int32_t labels[8] = {0, -100, 1, 2, 3, 4, 5, 9};
    int32_t positions[8] = {0, 1, 2, 3, 0, 1, 2, 7};
    int32_t starts[8] = {0, 0, 2, 2, 0, 1, 1, 3};
    const struct model_batch batch = {.rows = 2,
                                      .length = 4,
                                      .ids = ids,
                                      .labels = labels,
                                      .positions = positions,
                                      .starts = starts};
    check_int(model_batch_check(&batch, &config), ==, 0);
    ids[5] = 10;
    refuse_batch(&batch, "input_ids: token 10 at index 1 of row 1");
    ids[5] = -1;
    refuse_batch(&batch, "input_ids: token -1");
    ids[5] = 4;
    labels[2] = 10;
    refuse_batch(&batch, "labels: 10 at index 2 of row 0");
    labels[2] = -99;
    refuse_batch(&batch, "labels: -99");
    labels[2] = 1;
    positions[7] = 8;
    refuse_batch(&batch, "position 8 at index 3 of row 1");
    positions[7] = 7;
    starts[3] = 1; /* documents are in order */
    refuse_batch(&batch, "the document at index 3 of row 0");
    starts[3] = 2;
    starts[5] = 2; /* a document begins no later than its tokens */
    refuse_batch(&batch, "the document at index 1 of row 1");
    const struct model_batch longer = {.rows = 1, .length = 9, .ids = ids};
    refuse_batch(&longer, "rows of 9 tokens are longer than the 8 positions");
}

/* A token predicts the label of the next token in the same row and document. */
static void labels_are_shifted(void)
{
    static const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int32_t labels[] = {1, 2, -100, 4, 5, 6, 7, 8};
    static const int32_t starts[] = {0, 0, 0, 0, 0, 0, 2, 2};
    static const int32_t plain[] = {2, 3, 4, -100, 6, 7, 8, -100};
    static const int32_t packed[] = {2, -100, 4, -100, 6, -100, 8, -100};
    struct model_batch batch = {.rows = 2, .length = 4, .ids = ids};
    int32_t out[8];
    check_int(model_batch_shift(&batch, out), ==, 6);
    check_memory(out, plain, sizeof plain);
    batch.labels = labels;
    batch.starts = starts;
    check_int(model_batch_shift(&batch, out), ==, 4);
    check_memory(out, packed, sizeof packed);
    memcpy(out, labels, sizeof out); /* in place */
    batch.labels = out;
    check_int(model_batch_shift(&batch, out), ==, 4);
    check_memory(out, packed, sizeof packed);
}

/* ---- blocks and programs ---- */

/* Trained parameters and padding cover a block. */
static void gaps_cover_a_block(void)
{
    static const char *const patterns[] = {"*.mlp.*"};
    for (int frozen = 0; frozen < 2; frozen++) {
        struct case_model made;
        case_model_make(&made, "qwen3"); /* norms of heads: 40 elements, padded */
        if (frozen == 1) {
            case_model_freeze(&made, patterns, 1);
        }
        const struct model_block *block = &made.model->blocks[1];
        const struct block *flat = &made.model->flat->list[1];
        uint64_t trained = 0;
        size_t run = 0;
        for (uint64_t at = 0; at < flat->elements;) {
            uint64_t end = 0;
            const bool gap = block_gap(flat, at, &end);
            check_true(end > at && end <= flat->elements);
            trained += gap ? 0 : end - at;
            for (uint64_t e = at; e < end && !gap; e++) {
                run += e >= flat->runs[run].end;
            }
            while (run < flat->run_count && flat->runs[run].end <= end) {
                run++;
            }
            at = end;
        }
        uint64_t right = 0;
        for (unsigned i = 0; i < block->param_count; i++) {
            const struct model_param *param = &block->params[i];
            right += param->owner == 1 ? param->elements : 0;
            check_uint(param->offset % BLOCKS_ALIGN_ELEMENTS, ==, 0);
        }
        check_uint(trained, ==, right);
        check_uint(trained, <, block->elements);
        case_model_free(&made);
    }
}

/* A binding points at parameters, except borrowed ones. */
static void programs_and_bindings(void)
{
    struct case_model made;
    struct model_program *program = NULL;
    static float sums[1];
    static char weights[1];
    case_model_make(&made, "llama tied");
    const struct model_block *head = &made.model->blocks[made.model->block_count - 1];
    const struct model_shape shape = {.rows = 2, .length = 16, .type = KERN_BF16};
    check_int(model_program_create(made.model, made.model->block_count - 1, &shape, &program), ==,
              0);
    struct model_binding binding;
    const struct kern_grad grad = {.sum = sums, .first = true};
    check_int(model_binding_init(&binding, made.model), ==, 0);
    model_binding_set_flat(&binding, head, made.model->block_count - 1, KERN_BF16, weights, &grad);
    for (unsigned i = 0; i < head->param_count; i++) {
        const struct model_param *param = &head->params[i];
        const bool own = param->part_count > 0;
        check_true(binding.weights[i] == (own ? weights + param->offset * 2 : NULL));
        check_true(binding.grads[i].sum == (own ? sums + param->offset : NULL));
        check_true(binding.grads[i].first == own);
    }
    const size_t one = model_steps_scratch_bytes(&program->backward, "cpu", 1, &grad);
    check_uint(one, >, 0);
    check_uint(model_steps_scratch_bytes(&program->backward, "cpu", 4, &grad), >=, one);
    model_binding_clear(&binding);
    check_true(binding.weights[0] == NULL && binding.grads[0].sum == NULL);
    model_binding_fini(&binding);
    model_program_destroy(program);
    model_program_destroy(NULL);
    /* These dimensions hold for any width of the model. */
    const struct model_config *whole = &made.model->config;
    check_int(whole->hidden, ==, whole->heads * whole->head_dim);
    check_int(model_dim(whole, MODEL_DIM_HIDDEN), ==, whole->hidden);
    check_int(model_dim(whole, MODEL_DIM_HEAD), ==, whole->head_dim);
    check_int(model_dim(whole, MODEL_DIM_QKV), ==,
              whole->hidden + 2 * whole->kv_heads * whole->head_dim);
    check_int(model_dim(whole, MODEL_DIM_UP), ==, 2 * whole->inner);
    check_string(model_safetensors_path(model_files_shard(made.files, 0)) + strlen(made.folder) + 1,
                 "model.safetensors");
    case_model_free(&made);
}

/* Qwen's windows are used from a layer on, if config.json says so. */
static void qwen_windows(void)
{
    static const struct {
        const char *text;
        int64_t window;
        bool second; /* whether layer 1 has a window */
        int rc;
    } rows[] = {
        {"{\"use_sliding_window\": true, \"sliding_window\": 64, \"max_window_layers\": 1}", 64,
         true, 0},
        {"{\"use_sliding_window\": true, \"sliding_window\": 64, \"max_window_layers\": 2}", 64,
         false, 0},
        {"{\"use_sliding_window\": false, \"sliding_window\": 64, \"max_window_layers\": 0}", 0,
         false, 0},
        {"{\"use_sliding_window\": true, \"sliding_window\": null, \"max_window_layers\": 0}", 0,
         false, 0},
        {"{\"use_sliding_window\": true, \"sliding_window\": 0}", 0, false, -EINVAL},
        {"{\"use_sliding_window\": 3}", 0, false, -EINVAL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct core_json *doc = NULL;
        struct model_config read = {.layers = 2};
        check_int(core_json_parse(rows[i].text, strlen(rows[i].text), "config.json", NULL, &doc),
                  ==, 0);
        check_int(model_finish_qwen(doc, &read), ==, rows[i].rc);
        if (rows[i].rc == 0) {
            check_int(read.window, ==, rows[i].window);
            check_true(read.sliding[1] == rows[i].second);
        }
        core_json_destroy(doc);
    }
}

/* ---- shards ---- */

/* From stage 1 on, the ranks' spans of states cover a block. */
static void shards(void)
{
    struct plan_block_shape block = {.elements = 5 * PLAN_CUT_ELEMENTS + 77};
    for (uint32_t stage = 0; stage <= 3; stage++) {
        for (uint32_t world = 1; world <= 4; world++) {
            uint64_t next = 0;
            uint64_t most = 0;
            struct plan_input input = {
                .blocks = &block, .block_count = 1, .world = world, .stage = stage};
            check_true(plan_shards_states(&input) == (world > 1 && stage >= 1));
            check_true(plan_shards_weights(&input) == (world > 1 && stage >= 3));
            for (input.rank = 0; input.rank < world; input.rank++) {
                const struct plan_span span = plan_state_span(&input, 0);
                check_uint(span.first, ==, stage > 0 ? next : 0);
                check_uint(span.first % PLAN_CUT_ELEMENTS, ==, 0);
                next += span.count;
                most = span.count > most ? span.count : most;
                check_uint(plan_weight_most(&input, 0), ==,
                           stage == 3 ? plan_state_most(&input, 0) : block.elements);
            }
            check_uint(next, ==, stage > 0 ? block.elements : block.elements * world);
            check_uint(plan_state_most(&input, 0), ==, most);
        }
    }
}

/* ---- timelines ---- */

static struct core_json *read_json(const char *path)
{
    struct core_json *doc = NULL;
    int rc = core_json_load(path, NULL, &doc);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "%d: %s", rc, core_err_message());
    }
    return doc;
}

/* Timelines are valid JSON, without commands of earlier tapes. */
static void timelines(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct plan_trace *timeline = NULL;
    const struct run_options options = case_options();
    char path[2][600];
    struct stat files[2];
    case_model_make(&made, "gpt2");
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    const struct plan_block_shape thirsty = {.forward_bytes = 8192, .backward_bytes = 4096};
    check_uint(plan_layout_temporary_bytes(&thirsty), ==, 8192); /* both passes use it */
    check_uint(plan_layout_of(prepared->plan)->places[0].weights, ==,
               plan_block_place(prepared->plan, 0)->weights);
    const struct plan_tape *tape = plan_tape(prepared->plan, PLAN_KIND_COUNT, PLAN_FIRST);
    for (int kept = 0; kept < 2; kept++) {
        snprintf(path[kept], sizeof path[kept], "%s/timeline %d.json", test_directory(), kept);
        check_int(plan_trace_create(kept == 1 ? 1 : 2, 1, tape->count, &timeline), ==, 0);
        plan_trace_push(timeline, tape);
        plan_trace_push(timeline, tape);
        plan_trace_withdraw(timeline);
        plan_trace_push(timeline, tape);
        for (uint32_t i = 0; i < tape->count; i++) {
            const int64_t begin_ns = INT64_C(1) << 40;
            plan_trace_watch(timeline, 0, &tape->commands[i], 1, 2); /* outside the timeline */
            plan_trace_watch(timeline, 1, &tape->commands[i], begin_ns + 1000 * i,
                             begin_ns + 1000 * i + 500);
        }
        check_int(plan_trace_write(timeline, &prepared->input, path[kept]), ==, 0);
        check_int(plan_trace_write(timeline, &prepared->input, "/nowhere/t.json"), ==, -ENOENT);
        check_contains(core_err_message(), "/nowhere/t.json");
        plan_trace_destroy(timeline);
        core_json_destroy(read_json(path[kept]));
        check_int(stat(path[kept], &files[kept]), ==, 0);
    }
    plan_trace_destroy(NULL);
    check_int(files[1].st_size, >, files[0].st_size + 20 * (int64_t)tape->count);
    check_int(plan_trace_predict(&prepared->input, prepared->plan, 2, path[0]), ==, 0);
    core_json_destroy(read_json(path[0]));
    check_int(plan_trace_predict(&prepared->input, prepared->plan, 2, "/nowhere/t.json"), ==,
              -ENOENT);
    run_prepared_destroy(prepared);
    case_model_free(&made);
}

/* ---- manifests ---- */

/* Expects a warning about a resumed run's matrix products; NULL: none. */
static void check_products_warning(const struct store_manifest *manifest,
                                   const struct run_engine *engine, const char *text)
{
    test_listen(CORE_LOG_WARN);
    run_checkpoint_compare_products(manifest, run_engine_position(engine).products);
    check_uint(test_heard_lines(""), ==, text != NULL ? 1 : 0);
    if (text != NULL) {
        check_contains(test_heard(), text);
    }
    test_listen_end();
}

/* A run may resume from its own manifest, but not from that of another format or model. */
static void positions_and_manifests(void)
{
    struct case_model made;
    struct case_model other;
    struct run_prepared *prepared = NULL;
    struct run_engine *engine = NULL;
    struct run_step step;
    int32_t ids[CASE_ROWS * CASE_LENGTH];
    struct run_options options = case_options();
    case_model_make(&made, "llama");
    case_model_make(&other, "llama tied");
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    const struct run_engine_options engine_options = {
        .prepared = prepared, .options = &options, .model = made.model, .files = made.files};
    check_int(run_engine_create(&engine_options, &engine), ==, 0);
    for (unsigned s = 0; s < 3; s++) {
        const struct model_batch batch = case_batch(&made, s, 0, ids);
        check_int(run_engine_step(engine, &batch, 1, 1e-3, &step), ==, 0);
    }
    const struct run_position position = run_engine_position(engine);
    check_uint(position.steps, ==, 3);
    check_uint(position.updates, ==, 3);
    check_true(position.run != 0);
    struct store_manifest manifest = {.step = 0};
    run_checkpoint_describe(&options, made.model->flat, &position, &manifest);
    check_uint(manifest.step, ==, 3);
    check_uint(manifest.run, ==, position.run);
    check_true(manifest.blocks->hash != other.model->flat->hash);
    check_int(run_checkpoint_check(&manifest, made.model->flat, &options), ==, 0);
    check_int(run_checkpoint_check(&manifest, other.model->flat, &options), ==, -EINVAL);
    struct run_options wrong = options;
    wrong.type = KERN_FP16;
    check_int(run_checkpoint_check(&manifest, made.model->flat, &wrong), ==, -EINVAL);
    check_true(core_err_message()[0] != '\0');
    wrong = options;
    wrong.rule = CORE_UPDATE_LION;
    check_int(run_checkpoint_check(&manifest, made.model->flat, &wrong), ==, -EINVAL);
    check_true(position.products == NULL); /* the device is the CPU */
    check_true(store_manifest_parameter(&manifest, "products") == NULL);
    check_products_warning(&manifest, engine, NULL);
    store_manifest_fini(&manifest);
    struct run_position on_a_card = position;
    on_a_card.products = "cuBLASLt 130002, driver 13000, NVIDIA H200";
    run_checkpoint_describe(&options, made.model->flat, &on_a_card, &manifest);
    check_string(store_manifest_parameter(&manifest, "products"), on_a_card.products);
    check_int(run_checkpoint_check(&manifest, made.model->flat, &options), ==, 0);
    check_products_warning(&manifest, engine,
                           "computed by cuBLASLt 130002, driver 13000, NVIDIA H200 before this run "
                           "was resumed and are computed by the CPU now");
    store_manifest_fini(&manifest);
    check_uint(run_checkpoint_shape(test_directory()).threads, ==, 0); /* no checkpoint there */
    run_engine_destroy(engine);
    run_prepared_destroy(prepared);
    case_model_free(&made);
    case_model_free(&other);
}

/* If the betas are 0, those of the options apply. */
static double third_loss(const struct case_model *made, double beta1, double beta2)
{
    struct run_prepared *prepared = NULL;
    struct run_engine *engine = NULL;
    struct run_step step = {.loss = 0};
    int32_t ids[CASE_ROWS * CASE_LENGTH];
    struct run_options options = case_options();
    check_int(run_prepared_create(made->model, &options, case_rates(), &prepared), ==, 0);
    const struct run_engine_options engine_options = {
        .prepared = prepared, .options = &options, .model = made->model, .files = made->files};
    check_int(run_engine_create(&engine_options, &engine), ==, 0);
    if (beta1 > 0) {
        run_engine_betas(engine, beta1, beta2);
    }
    for (unsigned s = 0; s < 3; s++) {
        const struct model_batch batch = case_batch(made, s, 0, ids);
        check_int(run_engine_step(engine, &batch, 1, 1e-3, &step), ==, 0);
    }
    run_engine_destroy(engine);
    run_prepared_destroy(prepared);
    return step.loss;
}

/* The options' betas apply until others are set. */
static void betas_are_set(void)
{
    struct case_model made;
    const struct run_options options = case_options();
    case_model_make(&made, "llama");
    const double usual = third_loss(&made, 0, 0);
    check_double(third_loss(&made, options.group.beta1, options.group.beta2), ==, usual);
    check_true(third_loss(&made, 0.5, options.group.beta2) != usual);
    check_true(third_loss(&made, options.group.beta1, 0.5) != usual);
    case_model_free(&made);
}

TEST_MAIN({"batches_are_checked", batches_are_checked}, {"labels_are_shifted", labels_are_shifted},
          {"gaps_cover_a_block", gaps_cover_a_block},
          {"programs_and_bindings", programs_and_bindings}, {"qwen_windows", qwen_windows},
          {"shards", shards}, {"timelines", timelines},
          {"positions_and_manifests", positions_and_manifests}, {"betas_are_set", betas_are_set})
