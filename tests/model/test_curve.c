/* test_curve.c: fifty steps of training compared with PyTorch's (tests/oracle/model_curve.py). */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "tests/harness/test.h"
#include "tests/model/fixture.h"
#include "tests/reference/plain.h"
#include "tools/text/data/feed.h"

enum { STEPS = 50, BATCH = 2, LENGTH = 24 };

static void take_rows(struct text_feed *feed, int32_t *ids)
{
    struct text_batch row;
    for (int i = 0; i < BATCH; i++) {
        check_int(text_feed_next(feed, &row), ==, 1);
        check_int(row.length, ==, LENGTH);
        memcpy(ids + (size_t)i * LENGTH, row.ids, LENGTH * sizeof *ids);
    }
}

static void follow(const char *name)
{
    char path[600];
    struct fixture fixture;
    struct dev_device *device = NULL;
    struct plain *plain = NULL;
    struct text_feed *feed = NULL;
    int32_t ids[BATCH * LENGTH];
    const struct model_batch batch = {.rows = BATCH, .length = LENGTH, .ids = ids};
    const struct dev_options memory = {.memory_bytes = 64 << 20};
    const struct plain_options options = {
        .shape = {.rows = BATCH, .length = LENGTH, .type = KERN_F32},
        .decay_all = true,
        .threads = 2,
        .rule = CORE_UPDATE_ADAMW,
        .group = {.lr = 1e-3,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .eps = 1e-8,
                  .decay = 0.01,
                  .bias_correction = true},
        .clip = 1.0,
    };
    fixture_open(&fixture, name);
    check_int(dev_open("cpu", &memory, &device), ==, 0);
    check_int(plain_create(fixture.model, device, &options, &plain), ==, 0);
    check_int(plain_load(plain, fixture.files), ==, 0);
    snprintf(path, sizeof path, "%s/model/curve/data.jsonl", test_root());
    const char *files[] = {path};
    const struct text_feed_options read = {
        .files = files, .files_count = 1, .seq_len = LENGTH, .batch_rows = 1};
    check_int(text_feed_open(&read, NULL, &feed), ==, 0);
    snprintf(path, sizeof path, "%s/model/curve/%s.txt", test_root(), name);
    FILE *expected = fopen(path, "r");
    check_true(expected != NULL);
    double apart = 0.0;
    for (int step = 0; step < STEPS; step++) {
        struct plain_result result;
        double loss;
        double norm;
        check_int(fscanf(expected, "%lf %lf", &loss, &norm), ==, 2);
        take_rows(feed, ids);
        check_int(plain_step(plain, &batch, 1e-3, &result), ==, 0);
        check_double(fabs(result.loss - loss), <, 1e-4 * loss);
        check_double(fabs(result.grad_norm - norm), <, 1e-4 * norm);
        apart = fmax(apart, fabs(result.loss - loss) / loss);
    }
    test_note("%s: losses are within %.2g of PyTorch's", name, apart);
    fclose(expected);
    text_feed_close(feed);
    plain_destroy(plain);
    dev_close(device);
    fixture_close(&fixture);
}

/* A Llama's losses and norms in fp32 agree with PyTorch's. */
static void llama(void)
{
    follow("llama");
}

/* GPT-2's head is tied: the gradients of the table's two uses are added. */
static void gpt2(void)
{
    follow("gpt2");
}

/* Qwen3 has a tied head and normalised attention heads. */
static void qwen3(void)
{
    follow("qwen3");
}

TEST_MAIN({"llama", llama}, {"gpt2", gpt2}, {"qwen3", qwen3})
