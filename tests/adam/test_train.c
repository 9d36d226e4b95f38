/* Tests that narrow moments train as well as fp32 moments, by the final loss of small networks. */
#include <stdlib.h>

#include "core/base/half.h"
#include "core/base/rng.h"
#include "cpu_adam/adam.h"
#include "tests/harness/test.h"

enum {
    SEEDS = TEST_SLOW ? 1 : 3,
    SEEDS_BY_HEART = 12,
    INPUTS = 24,
    HIDDEN_MAX = 40,
    CLASSES_MAX = 5,
    ROWS_MAX = 4096,
    BATCH = 32,
    COUNT_MAX = HIDDEN_MAX * INPUTS + HIDDEN_MAX + CLASSES_MAX * HIDDEN_MAX + CLASSES_MAX,
};

struct shape {
    int hidden;
    int classes;
    int rows;
    int steps;
    bool classifies;
};

/* Inputs and targets (numbers or one class). */
struct row {
    float x[INPUTS];
    float y[CLASSES_MAX];
};

struct task {
    struct row rows[ROWS_MAX];
    struct shape shape;
    uint64_t seed;
};

static float normal(uint64_t seed, uint64_t stream, uint64_t i)
{
    const struct core_rng_words w = core_rng_philox(seed, stream, i);
    const double u = (double)w.word[0] * 0x1p-32 + 0x1p-33;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * (double)core_rng_unit(w.word[1])));
}

/* Makes inputs, and a teacher's answers with noise. */
static void make_task(struct task *task, const struct shape *shape, uint64_t seed)
{
    const int classes = shape->classes;
    task->shape = *shape;
    task->seed = seed;
    for (int r = 0; r < task->shape.rows; r++) {
        struct row *row = &task->rows[r];
        float score[CLASSES_MAX] = {0};
        for (int i = 0; i < INPUTS; i++) {
            row->x[i] = normal(seed, 1, (uint64_t)(r * INPUTS + i));
        }
        int best = 0;
        for (int c = 0; c < classes; c++) {
            for (int i = 0; i < INPUTS; i++) {
                const float w = normal(seed, 2, (uint64_t)(c * INPUTS + i));
                score[c] += w * row->x[i] * (1.0f + 0.5f * row->x[(i + c) % INPUTS]);
            }
            score[c] = score[c] / 5.0f + 0.7f * normal(seed, 3, (uint64_t)(r * classes + c));
            best = score[c] > score[best] ? c : best;
        }
        for (int c = 0; c < classes; c++) {
            row->y[c] = shape->classifies ? (c == best ? 1.0f : 0.0f) : score[c];
        }
    }
}

struct layers {
    float *w1; /* [hidden][INPUTS] */
    float *b1;
    float *w2; /* [classes][hidden] */
    float *b2;
};

static struct layers layers_of(const struct shape *shape, float *p)
{
    float *const b1 = p + shape->hidden * INPUTS;
    float *const w2 = b1 + shape->hidden;
    return (struct layers){p, b1, w2, w2 + shape->classes * shape->hidden};
}

/* Replaces the answer in `out` with the loss's gradient; returns the loss. */
static double row_loss(const struct task *task, const struct row *row, float *out)
{
    const int classes = task->shape.classes;
    double loss = 0.0;
    if (!task->shape.classifies) {
        for (int c = 0; c < classes; c++) {
            out[c] -= row->y[c];
            loss += 0.5 * (double)out[c] * (double)out[c];
        }
        return loss;
    }
    double sum = 0.0;
    for (int c = 0; c < classes; c++) {
        sum += exp((double)out[c]);
    }
    for (int c = 0; c < classes; c++) {
        const double share = exp((double)out[c]) / sum;
        loss -= (double)row->y[c] * log(share);
        out[c] = (float)share - row->y[c];
    }
    return loss;
}

/* Adds the row's gradient to `g`, if any; returns the loss. */
static double row_pass(const struct task *task, const struct row *row, float *p, float *g)
{
    const int hidden = task->shape.hidden;
    const int classes = task->shape.classes;
    const struct layers w = layers_of(&task->shape, p);
    float h[HIDDEN_MAX];
    float out[CLASSES_MAX];
    for (int j = 0; j < hidden; j++) {
        float sum = w.b1[j];
        for (int i = 0; i < INPUTS; i++) {
            sum += w.w1[j * INPUTS + i] * row->x[i];
        }
        h[j] = tanhf(sum);
    }
    for (int c = 0; c < classes; c++) {
        out[c] = w.b2[c];
        for (int j = 0; j < hidden; j++) {
            out[c] += w.w2[c * hidden + j] * h[j];
        }
    }
    const double loss = row_loss(task, row, out);
    if (g == NULL) {
        return loss;
    }
    const struct layers d = layers_of(&task->shape, g);
    for (int j = 0; j < hidden; j++) {
        float back = 0.0f;
        for (int c = 0; c < classes; c++) {
            back += out[c] * w.w2[c * hidden + j];
            d.w2[c * hidden + j] += out[c] * h[j] / BATCH;
        }
        back *= (1.0f - h[j] * h[j]) / BATCH;
        d.b1[j] += back;
        for (int i = 0; i < INPUTS; i++) {
            d.w1[j * INPUTS + i] += back * row->x[i];
        }
    }
    for (int c = 0; c < classes; c++) {
        d.b2[c] += out[c] / BATCH;
    }
    return loss;
}

struct run {
    float p[COUNT_MAX];
    float g[COUNT_MAX];
    float m[COUNT_MAX];
    float v[COUNT_MAX];
    float scale[2][COUNT_MAX / CORE_UPDATE_Q8_BLOCK + 1];
};

/* Returns the final loss. The learning rate decays to zero, so that weights converge. The first
 * batch begins at row `from`. */
static double train(const struct task *task, enum core_update_type moments, int from)
{
    const struct shape *const shape = &task->shape;
    const int weights = shape->hidden * INPUTS + shape->hidden + shape->classes * shape->hidden;
    const uint64_t count = (uint64_t)(weights + shape->classes);
    static struct run run;
    struct adam_group group = {.lr = 1e-2,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .decay = 1e-3,
                               .step = 1,
                               .bias_correction = true};
    const struct adam_options options = {.rule = CORE_UPDATE_ADAMW,
                                         .master = CORE_UPDATE_MASTER_F32,
                                         .moments = moments,
                                         .count = count,
                                         .groups = &group,
                                         .groups_count = 1,
                                         .seed = task->seed};
    const struct adam_arrays arrays = {.count = count,
                                       .w32 = run.p,
                                       .g = run.g,
                                       .m = run.m,
                                       .v = run.v,
                                       .m_scale = run.scale[0],
                                       .v_scale = run.scale[1]};
    struct adam *adam = NULL;
    check_int(adam_create(&options, &adam), ==, 0);
    memset(&run, 0, sizeof run);
    for (int i = 0; i < weights; i++) {
        run.p[i] = 0.2f * normal(task->seed, 4, (uint64_t)i);
    }
    for (int step = 0; step < shape->steps; step++) {
        memset(run.g, 0, sizeof run.g);
        for (int k = 0; k < BATCH; k++) {
            row_pass(task, &task->rows[(from + step * BATCH + k) % shape->rows], run.p, run.g);
        }
        group.step = (uint64_t)step + 1;
        group.lr = 1e-2 * (1.0 - (double)step / shape->steps);
        check_int(adam_group_set(adam, 0, &group), ==, 0);
        check_int(adam_step(adam, &arrays, 0, count, 1.0, NULL), ==, 0);
    }
    adam_destroy(adam);
    double loss = 0.0;
    for (int r = 0; r < task->shape.rows; r++) {
        loss += row_pass(task, &task->rows[r], run.p, NULL) / shape->rows;
    }
    return loss;
}

static struct task task;

static void compare(bool classifies)
{
    const struct shape shape = {
        .hidden = 24, .classes = 4, .rows = 4096, .steps = 1500, .classifies = classifies};
    double loss[3] = {0};
    const enum core_update_type types[] = {CORE_UPDATE_F32, CORE_UPDATE_BF16, CORE_UPDATE_Q8};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        make_task(&task, &shape, seed);
        for (int t = 0; t < 3; t++) {
            loss[t] += train(&task, types[t], 0) / SEEDS;
        }
    }
    test_note("final loss: fp32 %.5f, bf16 %.5f (%+.2f %%), 8-bit %.5f (%+.2f %%)", loss[0],
              loss[1], (loss[1] / loss[0] - 1) * 100, loss[2], (loss[2] / loss[0] - 1) * 100);
    check_double(fabs(loss[1] / loss[0] - 1.0), <, 0.01);
    check_double(fabs(loss[2] / loss[0] - 1.0), <, 0.01);
}

static void regression(void)
{
    compare(false);
}

static void classifier(void)
{
    compare(true);
}

static void compare_by_heart(bool classifies)
{
    static const char *const names[] = {"fp32, half a batch later", "bf16", "8-bit"};
    const enum core_update_type types[] = {CORE_UPDATE_F32, CORE_UPDATE_BF16, CORE_UPDATE_Q8};
    const struct shape shape = {
        .hidden = 40, .classes = 5, .rows = 256, .steps = 1200, .classifies = classifies};
    double mean[3] = {0};
    double widest[3] = {0};
    if (TEST_SLOW) {
        test_skip("it is about numbers");
    }
    for (uint64_t seed = 1; seed <= SEEDS_BY_HEART; seed++) {
        make_task(&task, &shape, seed);
        const double fp32 = train(&task, CORE_UPDATE_F32, 0);
        for (int t = 0; t < 3; t++) {
            const double other = train(&task, types[t], t == 0 ? BATCH / 2 : 0) / fp32 - 1.0;
            mean[t] += other / SEEDS_BY_HEART;
            widest[t] = fmax(widest[t], fabs(other));
        }
    }
    for (int t = 0; t < 3; t++) {
        test_note("%s: mean %+.2f %%, at most %.2f %% away from fp32", names[t], mean[t] * 100,
                  widest[t] * 100);
        check_double(widest[t], <=, widest[0]);
        check_true(t == 0 || mean[t] < 0.01);
    }
}

/* On rows that the weights can memorise, narrow moments are about as good as fp32. */
static void regression_by_heart(void)
{
    compare_by_heart(false);
}

static void classifier_by_heart(void)
{
    compare_by_heart(true);
}

TEST_MAIN({"regression", regression}, {"classifier", classifier},
          {"regression_by_heart", regression_by_heart},
          {"classifier_by_heart", classifier_by_heart})
