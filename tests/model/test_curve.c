/* test_curve.c: fifty steps of training against PyTorch's fifty (tests/oracle/model_curve.py). */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "offload/plain/plain.h"
#include "tests/harness/test.h"
#include "tests/model/fixture.h"
#include "tools/rows/rows.h"

enum { STEPS = 50, BATCH = 2, LENGTH = 24 };

static void take_rows(struct rows *rows, int32_t *ids)
{
    struct rows_row row;
    for (int i = 0; i < BATCH; i++) {
        int rc = rows_next(rows, &row);
        if (rc == 0) {
            check_int(rows_rewind(rows), ==, 0);
            rc = rows_next(rows, &row);
        }
        check_int(rc, ==, 1);
        check_uint(row.count, ==, LENGTH);
        memcpy(ids + (size_t)i * LENGTH, row.ids, row.count * sizeof *ids);
    }
}

static void follow(const char *name)
{
    char path[600];
    struct fixture fixture;
    struct dev_device *device = NULL;
    struct plain *plain = NULL;
    struct rows *rows = NULL;
    int32_t ids[BATCH * LENGTH];
    const struct model_batch batch = {.rows = BATCH, .length = LENGTH, .ids = ids};
    const struct dev_options memory = {.memory_bytes = 64 << 20};
    const struct plain_options options = {
        .shape = {.rows = BATCH, .length = LENGTH, .type = KERN_F32},
        .decay_all = true,
        .threads = 2,
        .rule = CORE_VEC_ADAMW,
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
    check_int(rows_open(path, NULL, &rows), ==, 0);
    snprintf(path, sizeof path, "%s/model/curve/%s.txt", test_root(), name);
    FILE *expected = fopen(path, "r");
    check_true(expected != NULL);
    double apart = 0.0;
    for (int step = 0; step < STEPS; step++) {
        struct plain_result result;
        double loss;
        double norm;
        check_int(fscanf(expected, "%lf %lf", &loss, &norm), ==, 2);
        take_rows(rows, ids);
        check_int(plain_step(plain, &batch, 1e-3, &result), ==, 0);
        check_double(fabs(result.loss - loss), <, 1e-4 * loss);
        check_double(fabs(result.grad_norm - norm), <, 1e-4 * norm);
        apart = fmax(apart, fabs(result.loss - loss) / loss);
    }
    test_note("%s: losses are within %.2g of PyTorch's", name, apart);
    fclose(expected);
    rows_close(rows);
    plain_destroy(plain);
    dev_close(device);
    fixture_close(&fixture);
}

/* The losses and norms of a Llama's fifty steps in fp32 are PyTorch's to 1e-4. */
static void llama(void)
{
    follow("llama");
}

/* The same for GPT-2, whose head is tied: two uses of a table, added up. */
static void gpt2(void)
{
    follow("gpt2");
}

/* The same for Qwen3, tied, with normalised heads. */
static void qwen3(void)
{
    follow("qwen3");
}

TEST_MAIN({"llama", llama}, {"gpt2", gpt2}, {"qwen3", qwen3})
