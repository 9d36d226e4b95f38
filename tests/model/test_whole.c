/* test_whole.c: compares whole models with transformers (tests/oracle/model_fixtures.py), and
 * different methods with each other. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "tests/harness/test.h"
#include "tests/model/fixture.h"
#include "tests/reference/plain.h"

enum { THREADS = 2 };

struct trainer {
    struct dev_device *device;
    struct plain *plain;
};

static void trainer_open(struct trainer *trainer, const struct model *model,
                         const struct model_files *files, struct plain_options options)
{
    const struct dev_options memory = {.memory_bytes = 256 << 20};
    options.threads = options.threads > 0 ? options.threads : THREADS;
    options.rule = CORE_UPDATE_ADAMW;
    if (!(options.group.beta2 > 0.0)) {
        options.group = (struct adam_group){
            .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .bias_correction = true};
    }
    *trainer = (struct trainer){0};
    int rc = dev_open("cpu", &memory, &trainer->device);
    rc = rc != 0 ? rc : plain_create(model, trainer->device, &options, &trainer->plain);
    rc = rc != 0 ? rc : plain_load(trainer->plain, files);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "%s", core_err_message());
    }
}

static void trainer_close(struct trainer *trainer)
{
    plain_destroy(trainer->plain);
    dev_close(trainer->device);
}

static struct model_batch batch_of(const struct fixture *fixture)
{
    struct model_batch batch = {0};
    batch.ids = fixture_ids(fixture, &batch.rows, &batch.length);
    return batch;
}

static struct plain_options options_of(const struct model_batch *batch, enum kern_type type)
{
    return (struct plain_options){
        .shape = {.rows = batch->rows, .length = batch->length, .type = type}};
}

/* Returns `count` elements of `type` as floats; the caller frees them. */
static float *floats_of(const void *data, enum kern_type type, size_t count)
{
    float *out = malloc((count + 1) * sizeof *out);
    check_true(out != NULL);
    model_convert(out, MODEL_F32, data, model_dtype_of(type), count);
    return out;
}

/* Returns a part's gradient, in the file's order. */
static float *part_grad(const struct plain *plain, const struct model *model, unsigned block,
                        const struct model_param *param, const struct model_part *part,
                        enum kern_type type)
{
    float *flat = floats_of(plain_grads(plain, block), type, model->blocks[block].elements);
    const size_t count = (size_t)(part->rows * param->cols);
    float *out = malloc(count * sizeof *out);
    for (int64_t row = 0; row < part->rows; row++) {
        for (int64_t col = 0; col < param->cols; col++) {
            const int64_t to = param->transposed ? col * part->rows + row : row * param->cols + col;
            out[to] = flat[param->offset + (uint64_t)((part->first_row + row) * param->cols + col)];
        }
    }
    free(flat);
    return out;
}

static double allowed(const struct fixture *fixture, enum kern_type type, const char *name,
                      double fp32)
{
    char key[200];
    size_t count;
    if (type == KERN_F32) {
        return fp32;
    }
    snprintf(key, sizeof key, "bf16.%s", name);
    float *theirs = fixture_floats(fixture, key, &count);
    const double distance = (double)theirs[0];
    free(theirs);
    return distance;
}

struct score {
    double logits;     /* largest error relative to the allowed one */
    double grads;      /* largest error relative to the allowed one */
    double matrices;   /* `grads` for gradients that are matrices */
    double mean_grads; /* mean error relative to the allowed one */
    char worst[160];
};

static void compare_grads(const struct fixture *fixture, const struct plain *plain,
                          enum kern_type type, struct score *score)
{
    double sum = 0.0;
    size_t parts = 0;
    for (unsigned b = 0; b < fixture->model->block_count; b++) {
        const struct model_block *block = &fixture->model->blocks[b];
        for (unsigned p = 0; p < block->param_count; p++) {
            for (unsigned k = 0; k < block->params[p].part_count; k++) {
                const struct model_part *part = &block->params[p].parts[k];
                char name[160];
                size_t count;
                snprintf(name, sizeof name, "grad.%s", part->name);
                float *truth = fixture_floats(fixture, name, &count);
                float *ours = part_grad(plain, fixture->model, b, &block->params[p], part, type);
                const double ratio = fixture_distance(ours, truth, count) /
                                     allowed(fixture, type, name, 1e-4);
                sum += ratio;
                parts++;
                if (part->rows > 1 && block->params[p].cols > 1 && ratio > score->matrices) {
                    score->matrices = ratio;
                }
                if (ratio > score->grads) {
                    score->grads = ratio;
                    snprintf(score->worst, sizeof score->worst, "%s", name);
                }
                free(truth);
                free(ours);
            }
        }
    }
    score->mean_grads = sum / (double)parts;
}

static struct score compare(const char *name, enum kern_type type)
{
    struct fixture fixture;
    struct trainer trainer;
    struct score score = {0};
    struct plain_result result;
    size_t count;
    fixture_open(&fixture, name);
    const struct model_batch batch = batch_of(&fixture);
    trainer_open(&trainer, fixture.model, fixture.files, options_of(&batch, type));
    float *truth = fixture_floats(&fixture, "logits", &count);
    float *loss = fixture_floats(&fixture, "loss", &(size_t){0});
    void *raw = malloc(count * sizeof(float));
    check_int(plain_logits(trainer.plain, &batch, raw), ==, 0);
    float *ours = floats_of(raw, type, count);
    score.logits = fixture_distance(ours, truth, count) / allowed(&fixture, type, "logits", 1e-5);
    check_int(plain_backward(trainer.plain, &batch, &result), ==, 0);
    check_int(result.targets, ==, batch.rows * (batch.length - 1));
    const double apart = fabs(result.loss - (double)loss[0]) / (double)loss[0];
    check_double(apart, <, type == KERN_F32 ? 1e-5 : 1e-2);
    compare_grads(&fixture, trainer.plain, type, &score);
    struct kern_loss again;
    check_int(plain_evaluate(trainer.plain, &batch, &again), ==, 0);
    check_int(again.count, ==, result.targets);
    check_double(fabs(again.sum / (double)again.count - result.loss), <=, 1e-6 * result.loss);
    free(ours);
    free(raw);
    free(loss);
    free(truth);
    free((void *)(uintptr_t)batch.ids);
    trainer_close(&trainer);
    fixture_close(&fixture);
    return score;
}

/* In fp32, logits and gradients are close to transformers' in double precision. */
static void fp32(void)
{
    for (size_t i = 0; i < fixture_count; i++) {
        const struct score score = compare(fixture_names[i], KERN_F32);
        test_note("%s: logits %.3f, gradients %.3f of what is allowed (%s)", fixture_names[i],
                  score.logits, score.grads, score.worst);
        check_double(score.logits, <, 1.0);
        check_double(score.grads, <, 1.0);
    }
}

/* In bf16, logits and, on average, gradients are as close to the exact values as those of
 * transformers in bf16. The worst gradient is usually a short vector, and depends on chance. */
static void bf16(void)
{
    for (size_t i = 0; i < fixture_count; i++) {
        const struct score score = compare(fixture_names[i], KERN_BF16);
        test_note("%s: logits %.3f, gradients %.3f on average, %.3f (%s) of transformers' distance",
                  fixture_names[i], score.logits, score.mean_grads, score.grads, score.worst);
        check_double(score.logits, <=, 1.0);
        check_double(score.mean_grads, <=, 1.0);
        check_double(score.matrices, <=, 1.5);
        check_double(score.grads, <=, 2.0);
    }
}

/* Returns the gradients and working weights of all blocks; the caller frees them. */
static char *snapshot(const struct trainer *trainer, const struct model *model, enum kern_type type,
                      size_t *bytes)
{
    size_t room = 0;
    *bytes = 0;
    for (unsigned b = 0; b < model->block_count; b++) {
        room += 2 * model->blocks[b].elements * kern_type_bytes(type);
    }
    char *all = malloc(room);
    check_true(all != NULL);
    for (unsigned b = 0; b < model->block_count; b++) {
        const size_t part = model->blocks[b].elements * kern_type_bytes(type);
        memcpy(all + *bytes, plain_grads(trainer->plain, b), part);
        memcpy(all + *bytes + part, plain_weights(trainer->plain, b), part);
        *bytes += 2 * part;
    }
    return all;
}

/* Takes two steps. Returns the final gradients and weights; *result is the second step's. */
static char *two_steps(const struct fixture *fixture, struct plain_options options,
                       struct plain_result *result, size_t *bytes)
{
    struct trainer trainer;
    struct model_batch batch = batch_of(fixture);
    struct model_batch parts[2] = {batch, batch};
    const unsigned count = options.micro_batches > 0 ? options.micro_batches : 1;
    options.shape.rows = batch.rows / count;
    options.shape.length = batch.length;
    options.clip = 1.0;
    for (unsigned i = 0; i < count; i++) {
        parts[i].rows = options.shape.rows;
        parts[i].ids = batch.ids + i * options.shape.rows * batch.length;
    }
    trainer_open(&trainer, fixture->model, fixture->files, options);
    for (int i = 0; i < 2; i++) {
        check_int(plain_step(trainer.plain, parts, 1e-3, result), ==, 0);
    }
    char *all = snapshot(&trainer, fixture->model, options.shape.type, bytes);
    free((void *)(uintptr_t)batch.ids);
    trainer_close(&trainer);
    return all;
}

static void same_bits(const char *name, struct plain_options a, struct plain_options b)
{
    struct fixture fixture;
    struct plain_result left;
    struct plain_result right;
    size_t left_bytes;
    size_t right_bytes;
    fixture_open(&fixture, name);
    char *one = two_steps(&fixture, a, &left, &left_bytes);
    char *two = two_steps(&fixture, b, &right, &right_bytes);
    check_uint(left_bytes, ==, right_bytes);
    check_memory(one, two, left_bytes);
    check_memory(&left.loss, &right.loss, sizeof left.loss);
    check_memory(&left.grad_norm, &right.grad_norm, sizeof left.grad_norm);
    free(one);
    free(two);
    fixture_close(&fixture);
}

static const char *const some[] = {"gpt2", "llama3", "qwen3", "mistral"};
enum { SOME = 4 };

/* Recomputed activations give the bits of kept ones, and so does a repeated run. */
static void recompute(void)
{
    static const enum kern_type types[] = {KERN_F32, KERN_BF16, KERN_FP16};
    for (int i = 0; i < SOME; i++) {
        for (int t = 0; t < 3; t++) {
            struct plain_options keep = {.shape = {.type = types[t]},
                                         .loss_scale = 64.0,
                                         .micro_batches = 1 + (unsigned)i % 2};
            struct plain_options again = keep;
            again.recompute = true;
            same_bits(some[i], keep, again);
            same_bits(some[i], keep, keep);
        }
    }
}

/* Tiles change loss and norm within rounding. */
static void tiles(void)
{
    for (int i = 0; i < SOME; i++) {
        struct fixture fixture;
        struct plain_result whole;
        struct plain_result tiled;
        size_t bytes;
        struct plain_options options = {.shape = {.type = KERN_F32}};
        fixture_open(&fixture, some[i]);
        char *one = two_steps(&fixture, options, &whole, &bytes);
        options.shape.tile_bytes = 4096; /* less than the table, 72 x 32 x 4 */
        char *two = two_steps(&fixture, options, &tiled, &bytes);
        check_double(fabs(whole.loss - tiled.loss), <, 1e-5 * whole.loss);
        check_double(fabs(whole.grad_norm - tiled.grad_norm), <, 1e-5 * whole.grad_norm);
        free(one);
        free(two);
        fixture_close(&fixture);
        struct plain_options again = options;
        again.recompute = true;
        same_bits(some[i], options, again);
    }
}

/* Two micro-batches give the loss and norm of one step within rounding. */
static void micro_batches(void)
{
    for (int i = 0; i < SOME; i++) {
        struct fixture fixture;
        struct plain_result one;
        struct plain_result two;
        size_t bytes;
        struct plain_options options = {.shape = {.type = KERN_F32}};
        fixture_open(&fixture, some[i]);
        free(two_steps(&fixture, options, &one, &bytes));
        options.micro_batches = 2;
        free(two_steps(&fixture, options, &two, &bytes));
        check_double(fabs(one.loss - two.loss), <, 1e-5 * one.loss);
        check_double(fabs(one.grad_norm - two.grad_norm), <, 1e-5 * one.grad_norm);
        check_int(one.targets, ==, two.targets);
        fixture_close(&fixture);
    }
}

/* Two documents packed into a row give the loss and gradients of separate rows. */
static void documents(void)
{
    for (int i = 0; i < SOME; i++) {
        struct fixture fixture;
        struct trainer apart;
        struct trainer packed;
        struct plain_result left;
        struct plain_result right;
        fixture_open(&fixture, some[i]);
        struct model_batch rows = batch_of(&fixture);
        struct model_batch row = {.rows = 1, .length = 2 * rows.length / 2, .ids = rows.ids};
        int32_t positions[64];
        int32_t starts[64];
        rows.rows = 2;
        rows.length /= 2;
        for (int32_t t = 0; t < row.length; t++) {
            starts[t] = t < rows.length ? 0 : (int32_t)rows.length;
            positions[t] = t - starts[t];
        }
        row.positions = positions;
        row.starts = starts;
        trainer_open(&apart, fixture.model, fixture.files, options_of(&rows, KERN_F32));
        trainer_open(&packed, fixture.model, fixture.files, options_of(&row, KERN_F32));
        check_int(plain_backward(apart.plain, &rows, &left), ==, 0);
        check_int(plain_backward(packed.plain, &row, &right), ==, 0);
        check_int(left.targets, ==, right.targets);
        check_double(fabs(left.loss - right.loss), <=, 1e-6 * left.loss);
        for (unsigned b = 0; b < fixture.model->block_count; b++) {
            check_double(fixture_distance(plain_grads(packed.plain, b), plain_grads(apart.plain, b),
                                          fixture.model->blocks[b].elements),
                         <, 1e-5);
        }
        free((void *)(uintptr_t)rows.ids);
        trainer_close(&apart);
        trainer_close(&packed);
        fixture_close(&fixture);
    }
}

/* Labels of -100 are not targets. A step without targets succeeds. */
static void ignored(void)
{
    struct fixture fixture;
    struct trainer trainer;
    struct plain_result first_row;
    struct plain_result some_of_it;
    fixture_open(&fixture, "llama");
    struct model_batch batch = batch_of(&fixture);
    int32_t labels[64];
    check_int(batch.rows, ==, 2);
    batch.rows = 1;
    trainer_open(&trainer, fixture.model, fixture.files, options_of(&batch, KERN_F32));
    check_int(plain_step(trainer.plain, &batch, 1e-3, &first_row), ==, 0);
    trainer_close(&trainer);
    batch.rows = 2;
    trainer_open(&trainer, fixture.model, fixture.files, options_of(&batch, KERN_F32));
    for (int64_t t = 0; t < batch.rows * batch.length; t++) {
        labels[t] = t < batch.length ? batch.ids[t] : -100;
    }
    batch.labels = labels;
    check_int(plain_step(trainer.plain, &batch, 1e-3, &some_of_it), ==, 0);
    check_int(some_of_it.targets, ==, first_row.targets);
    check_double(fabs(some_of_it.loss - first_row.loss), <, 1e-6);
    check_double(fabs(some_of_it.grad_norm - first_row.grad_norm), <, 1e-5 * first_row.grad_norm);
    for (int64_t t = 0; t < batch.rows * batch.length; t++) {
        labels[t] = -100;
    }
    check_int(plain_step(trainer.plain, &batch, 1e-3, &some_of_it), ==, 0);
    check_int(some_of_it.targets, ==, 0);
    check_double(some_of_it.loss, ==, 0.0);
    check_double(some_of_it.grad_norm, ==, 0.0);
    free((void *)(uintptr_t)batch.ids);
    trainer_close(&trainer);
    fixture_close(&fixture);
}

/* Frozen parameters keep their bits; the others change. */
static void frozen(void)
{
    struct fixture fixture;
    struct trainer trainer;
    struct model *model = NULL;
    struct plain_result result;
    static const char *const names[] = {"model.embed_tokens.weight", "model.layers.0.*",
                                        "*.post_attention_layernorm.weight"};
    const struct model_options options = {.frozen = names, .frozen_count = 3};
    fixture_open(&fixture, "llama");
    struct model_batch batch = batch_of(&fixture);
    check_int(model_create(&fixture.config, &options, &model), ==, 0);
    trainer_open(&trainer, model, fixture.files, options_of(&batch, KERN_BF16));
    check_int(plain_step(trainer.plain, &batch, 1e-2, &result), ==, 0);
    for (unsigned b = 0; b < model->block_count; b++) {
        const struct model_block *block = &model->blocks[b];
        uint16_t *before = malloc(block->elements * 2);
        check_int(
            model_files_read(fixture.files, block, 0, block->elements, MODEL_BF16, before, NULL),
            ==, 0);
        const uint16_t *after = plain_weights(trainer.plain, b);
        for (unsigned p = 0; p < block->param_count; p++) {
            const struct model_param *param = &block->params[p];
            if (param->owner != b) {
                continue;
            }
            const bool same = memcmp(before + param->offset, after + param->offset,
                                     param->elements * 2) == 0;
            check_true(same == !param->trained);
        }
        free(before);
    }
    free((void *)(uintptr_t)batch.ids);
    trainer_close(&trainer);
    model_destroy(model);
    fixture_close(&fixture);
}

/* Rows that the model cannot use are refused. */
static void bad_rows(void)
{
    struct fixture fixture;
    struct trainer trainer;
    struct plain_result result;
    fixture_open(&fixture, "gpt2");
    struct model_batch batch = batch_of(&fixture);
    int32_t *ids = (int32_t *)(uintptr_t)batch.ids;
    int32_t wrong[64] = {0};
    trainer_open(&trainer, fixture.model, fixture.files, options_of(&batch, KERN_F32));
    ids[batch.length + 3] = 72;
    check_int(plain_step(trainer.plain, &batch, 1e-3, &result), ==, -EINVAL);
    check_contains(core_err_message(),
                   "token 72 at index 3 of row 1 is outside the vocabulary of 72");
    ids[batch.length + 3] = -1;
    check_int(plain_step(trainer.plain, &batch, 1e-3, &result), ==, -EINVAL);
    ids[batch.length + 3] = 1;
    batch.labels = wrong;
    wrong[1] = 999;
    check_int(plain_step(trainer.plain, &batch, 1e-3, &result), ==, -EINVAL);
    check_contains(core_err_message(), "labels: 999 at index 1 of row 0");
    batch.labels = NULL;
    batch.positions = wrong;
    check_int(plain_step(trainer.plain, &batch, 1e-3, &result), ==, -EINVAL);
    batch.positions = NULL;
    wrong[1] = 2;
    batch.starts = wrong;
    check_int(plain_step(trainer.plain, &batch, 1e-3, &result), ==, -EINVAL);
    batch.starts = NULL;
    batch.length--;
    check_int(plain_step(trainer.plain, &batch, 1e-3, &result), ==, -EINVAL);
    const struct model_shape shape = {.rows = 1, .length = 25, .type = KERN_F32};
    struct model_program *program = NULL;
    check_int(model_program_create(fixture.model, 0, &shape, &program), ==, -EINVAL);
    check_contains(core_err_message(), "rows of 25 tokens are longer than the 24 positions");
    free(ids);
    trainer_close(&trainer);
    fixture_close(&fixture);
}

/* The used device memory is the total of plain_memory(), apart from alignment. */
static void memory(void)
{
    for (int i = 0; i < SOME; i++) {
        struct fixture fixture;
        struct trainer trainer;
        struct dev_memory report;
        fixture_open(&fixture, some[i]);
        const struct model_batch batch = batch_of(&fixture);
        trainer_open(&trainer, fixture.model, fixture.files, options_of(&batch, KERN_BF16));
        dev_memory_report(trainer.device, &report);
        const struct plain_bytes bytes = plain_memory(trainer.plain);
        check_uint(report.used_bytes, >=, bytes.total);
        check_uint(report.used_bytes, <, bytes.total + (size_t)report.count * DEV_ALIGN_BYTES);
        check_int(plain_op_time(trainer.plain, KERN_LINEAR).ns, ==, 0);
        check_int(plain_update_ns(trainer.plain), ==, 0);
        free((void *)(uintptr_t)batch.ids);
        trainer_close(&trainer);
        fixture_close(&fixture);
    }
}

TEST_MAIN({"fp32", fp32}, {"bf16", bf16}, {"recompute", recompute}, {"tiles", tiles},
          {"micro_batches", micro_batches}, {"documents", documents}, {"ignored", ignored},
          {"frozen", frozen}, {"bad_rows", bad_rows}, {"memory", memory})
