/* test_predict.c: logits of a row's last token are close to the plain trainer's, and do not
 * depend on dropout. */
#include <errno.h>
#include <stdlib.h>

#include "core/base/half.h"
#include "core/dev/dev.h"
#include "offload/model/adapter.h"
#include "tests/harness/test.h"
#include "tests/reference/plain.h"
#include "tests/run/case.h"

static void plain_last_logits(const struct case_model *made, const int32_t *ids, float *out)
{
    const struct dev_options memory = {.memory_bytes = 256 << 20};
    const struct plain_options options = {
        .shape = {.rows = 1, .length = CASE_LENGTH, .type = KERN_BF16}, .threads = 2};
    const struct model_batch batch = {.rows = 1, .length = CASE_LENGTH, .ids = ids};
    const size_t vocab = (size_t)made->model->config.vocab;
    struct dev_device *device = NULL;
    struct plain *plain = NULL;
    uint16_t *logits = calloc(vocab * CASE_LENGTH, sizeof *logits);
    check_true(logits != NULL);
    check_int(dev_open("cpu", &memory, &device), ==, 0);
    check_int(plain_create(made->model, device, &options, &plain), ==, 0);
    check_int(plain_load(plain, made->files), ==, 0);
    check_int(plain_logits(plain, &batch, logits), ==, 0);
    for (size_t i = 0; i < vocab; i++) {
        out[i] = core_bf16_to_f32(logits[(CASE_LENGTH - 1) * vocab + i]);
    }
    plain_destroy(plain);
    dev_close(device);
    free(logits);
}

static void logits_of(const char *name)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct run_engine *engine = NULL;
    struct run_options options = case_options();
    int32_t ids[CASE_ROWS * CASE_LENGTH];
    case_model_make(&made, name);
    const size_t vocab = (size_t)made.model->config.vocab;
    float *expected = calloc(vocab, sizeof *expected);
    float *got = calloc(vocab, sizeof *got);
    check_true(expected != NULL && got != NULL);
    (void)case_batch(&made, 0, 0, ids);
    plain_last_logits(&made, ids, expected);
    options.wishes.weights = PLAN_WHERE_STORE;
    case_store(&options, "mem");
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    const struct run_engine_options create = {
        .prepared = prepared, .options = &options, .model = made.model, .files = made.files};
    check_int(run_engine_create(&create, &engine), ==, 0);
    check_int(run_engine_logits(engine, ids, CASE_LENGTH, got), ==, 0);
    for (size_t i = 0; i < vocab; i++) {
        check_double(fabs((double)got[i] - (double)expected[i]), <=,
                     0.01 + 0.01 * fabs((double)expected[i]));
    }
    check_int(run_engine_logits(engine, ids, CASE_LENGTH + 1, got), ==, -EINVAL);
    check_int(run_engine_logits(engine, ids, 1, got), ==, 0);
    run_engine_destroy(engine);
    run_prepared_destroy(prepared);
    free(expected);
    free(got);
    case_model_free(&made);
}

static void untied(void)
{
    logits_of("llama");
}

static void tied(void)
{
    logits_of("qwen3 tied");
}

/* A step that changes no weight, but draws other random numbers, does not change the logits. */
static void without_dropout(void)
{
    const struct model_lora_options lora = {.rank = 4, .alpha = 8, .dropout = 0.5, .seed = 3};
    const struct run_options options = case_options();
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct run_engine *engine = NULL;
    struct run_step step;
    int32_t ids[CASE_ROWS * CASE_LENGTH];
    float *logits[2];
    case_model_make(&made, "llama");
    case_model_adapt(&made, &lora);
    const size_t vocab = (size_t)made.model->config.vocab;
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    const struct run_engine_options create = {
        .prepared = prepared, .options = &options, .model = made.model, .files = made.files};
    check_int(run_engine_create(&create, &engine), ==, 0);
    for (unsigned s = 0; s < 3; s++) {
        const struct model_batch batch = case_batch(&made, s, 0, ids);
        check_int(run_engine_step(engine, &batch, 1, s < 2 ? 1e-2 : 0.0, &step), ==, 0);
        if (s > 0) {
            logits[s - 1] = calloc(vocab, sizeof *logits[s - 1]);
            (void)case_batch(&made, 9, 0, ids);
            check_int(run_engine_logits(engine, ids, CASE_LENGTH, logits[s - 1]), ==, 0);
        }
    }
    check_memory(logits[0], logits[1], vocab * sizeof *logits[0]);
    free(logits[0]);
    free(logits[1]);
    run_engine_destroy(engine);
    run_prepared_destroy(prepared);
    case_model_free(&made);
}

TEST_MAIN({"untied", untied}, {"tied", tied}, {"without_dropout", without_dropout})
