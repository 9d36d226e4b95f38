/* Proves that narrow moments train as fp32 ones do: a small regression and a small classifier, the
 * mean of several seeds, end within 1 % of the fp32 loss. There are more noisy rows than the network
 * can learn by heart; where it can, 8-bit moments differ by more: docs/optimizers.md. */
#include <stdlib.h>

#include "core/base/half.h"
#include "core/base/rng.h"
#include "cpu_adam/adam.h"
#include "tests/harness/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 1 };
#else
enum { SEEDS = 3 };
#endif
enum {
    INPUTS = 24,
    HIDDEN = 24,
    CLASSES = 4,
    ROWS = 4096,
    BATCH = 32,
    STEPS = 1500,
    COUNT = HIDDEN * INPUTS + HIDDEN + CLASSES * HIDDEN + CLASSES,
};

/* A row's inputs, and what it shall become: numbers, or one class. */
struct row {
    float x[INPUTS];
    float y[CLASSES];
};

struct task {
    struct row rows[ROWS];
    bool classifies;
    uint64_t seed;
};

static float normal(uint64_t seed, uint64_t stream, uint64_t i)
{
    const struct core_rng_words w = core_rng_philox(seed, stream, i);
    const double u = (double)w.word[0] * 0x1p-32 + 0x1p-33;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * (double)core_rng_unit(w.word[1])));
}

/* Noisy answers of a teacher that a small network cannot match exactly. */
static void make_task(struct task *task, bool classifies, uint64_t seed)
{
    task->classifies = classifies;
    task->seed = seed;
    for (int r = 0; r < ROWS; r++) {
        struct row *row = &task->rows[r];
        float score[CLASSES] = {0};
        for (int i = 0; i < INPUTS; i++) {
            row->x[i] = normal(seed, 1, (uint64_t)(r * INPUTS + i));
        }
        int best = 0;
        for (int c = 0; c < CLASSES; c++) {
            for (int i = 0; i < INPUTS; i++) {
                const float w = normal(seed, 2, (uint64_t)(c * INPUTS + i));
                score[c] += w * row->x[i] * (1.0f + 0.5f * row->x[(i + c) % INPUTS]);
            }
            score[c] = score[c] / 5.0f + 0.7f * normal(seed, 3, (uint64_t)(r * CLASSES + c));
            best = score[c] > score[best] ? c : best;
        }
        for (int c = 0; c < CLASSES; c++) {
            row->y[c] = classifies ? (c == best ? 1.0f : 0.0f) : score[c];
        }
    }
}

struct layers {
    float *w1; /* [HIDDEN][INPUTS] */
    float *b1;
    float *w2; /* [CLASSES][HIDDEN] */
    float *b2;
};

static struct layers layers_of(float *p)
{
    return (struct layers){p, p + HIDDEN * INPUTS, p + HIDDEN * INPUTS + HIDDEN,
                           p + HIDDEN * INPUTS + HIDDEN + CLASSES * HIDDEN};
}

/* out: the answer less what it should be; returns the loss of the row. */
static double row_loss(const struct task *task, const struct row *row, float *out)
{
    double loss = 0.0;
    if (!task->classifies) {
        for (int c = 0; c < CLASSES; c++) {
            out[c] -= row->y[c];
            loss += 0.5 * (double)out[c] * (double)out[c];
        }
        return loss;
    }
    double sum = 0.0;
    for (int c = 0; c < CLASSES; c++) {
        sum += exp((double)out[c]);
    }
    for (int c = 0; c < CLASSES; c++) {
        const double share = exp((double)out[c]) / sum;
        loss -= (double)row->y[c] * log(share);
        out[c] = (float)share - row->y[c];
    }
    return loss;
}

/* Adds the row's gradient to `g` (NULL: none); returns its loss. */
static double row_pass(const struct task *task, const struct row *row, float *p, float *g)
{
    const struct layers w = layers_of(p);
    float h[HIDDEN];
    float out[CLASSES];
    for (int j = 0; j < HIDDEN; j++) {
        float sum = w.b1[j];
        for (int i = 0; i < INPUTS; i++) {
            sum += w.w1[j * INPUTS + i] * row->x[i];
        }
        h[j] = tanhf(sum);
    }
    for (int c = 0; c < CLASSES; c++) {
        out[c] = w.b2[c];
        for (int j = 0; j < HIDDEN; j++) {
            out[c] += w.w2[c * HIDDEN + j] * h[j];
        }
    }
    const double loss = row_loss(task, row, out);
    if (g == NULL) {
        return loss;
    }
    const struct layers d = layers_of(g);
    for (int j = 0; j < HIDDEN; j++) {
        float back = 0.0f;
        for (int c = 0; c < CLASSES; c++) {
            back += out[c] * w.w2[c * HIDDEN + j];
            d.w2[c * HIDDEN + j] += out[c] * h[j] / BATCH;
        }
        back *= (1.0f - h[j] * h[j]) / BATCH;
        d.b1[j] += back;
        for (int i = 0; i < INPUTS; i++) {
            d.w1[j * INPUTS + i] += back * row->x[i];
        }
    }
    for (int c = 0; c < CLASSES; c++) {
        d.b2[c] += out[c] / BATCH;
    }
    return loss;
}

struct run {
    float p[COUNT];
    float g[COUNT];
    float m[COUNT];
    float v[COUNT];
    float scale[2][COUNT / CORE_VEC_Q8_BLOCK + 1];
};

/* Linear decay to zero, so that the end is a place and not a cloud. */
static double train(const struct task *task, enum core_vec_type moments)
{
    static struct run run;
    struct adam_group group = {.lr = 1e-2,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .decay = 1e-3,
                               .step = 1,
                               .bias_correction = true};
    const struct adam_options options = {.rule = CORE_VEC_ADAMW,
                                         .master = CORE_VEC_MASTER_F32,
                                         .moments = moments,
                                         .count = COUNT,
                                         .groups = &group,
                                         .groups_count = 1,
                                         .seed = task->seed};
    const struct adam_arrays arrays = {.count = COUNT,
                                       .w32 = run.p,
                                       .g = run.g,
                                       .m = run.m,
                                       .v = run.v,
                                       .m_scale = run.scale[0],
                                       .v_scale = run.scale[1]};
    struct adam *adam = NULL;
    check_int(adam_create(&options, &adam), ==, 0);
    memset(&run, 0, sizeof run);
    for (int i = 0; i < HIDDEN * INPUTS + HIDDEN + CLASSES * HIDDEN; i++) {
        run.p[i] = 0.2f * normal(task->seed, 4, (uint64_t)i);
    }
    for (int step = 0; step < STEPS; step++) {
        memset(run.g, 0, sizeof run.g);
        for (int k = 0; k < BATCH; k++) {
            row_pass(task, &task->rows[(step * BATCH + k) % ROWS], run.p, run.g);
        }
        group.step = (uint64_t)step + 1;
        group.lr = 1e-2 * (1.0 - (double)step / STEPS);
        check_int(adam_group_set(adam, 0, &group), ==, 0);
        check_int(adam_step(adam, &arrays, 0, COUNT, 1.0, NULL), ==, 0);
    }
    adam_destroy(adam);
    double loss = 0.0;
    for (int r = 0; r < ROWS; r++) {
        loss += row_pass(task, &task->rows[r], run.p, NULL) / ROWS;
    }
    return loss;
}

static void compare(bool classifies)
{
    static struct task task;
    double loss[3] = {0};
    const enum core_vec_type types[] = {CORE_VEC_F32, CORE_VEC_BF16, CORE_VEC_Q8};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        make_task(&task, classifies, seed);
        for (int t = 0; t < 3; t++) {
            loss[t] += train(&task, types[t]) / SEEDS;
        }
    }
    test_note("final loss: fp32 %.5f, bf16 %.5f (%+.2f %%), 8-bit %.5f (%+.2f %%)", loss[0],
              loss[1], (loss[1] / loss[0] - 1) * 100, loss[2], (loss[2] / loss[0] - 1) * 100);
    check_double(fabs(loss[1] / loss[0] - 1.0), <, 0.01);
    check_double(fabs(loss[2] / loss[0] - 1.0), <, 0.01);
}

/* Least squares on noisy answers. */
static void regression(void)
{
    compare(false);
}

/* Cross entropy over four classes. */
static void classifier(void)
{
    compare(true);
}

TEST_MAIN({"regression", regression}, {"classifier", classifier})
