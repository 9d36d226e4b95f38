/* test_lora.c: adapters: training compared with PEFT (tests/oracle/lora.py) and TRL
 * (tests/oracle/dpo.py), and refusals. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/dev/dev.h"
#include "offload/model/peft.h"
#include "tests/harness/test.h"
#include "tests/model/fixture.h"
#include "tests/reference/plain.h"
#include "tools/text/data/feed.h"

enum { STEPS = 50, HALF_STEPS = 8, HALF_BATCH = 8, BATCH = 2, LENGTH = 24, NAMES_MAX = 4 };

struct lora_case {
    const char *name;
    const char *base;
    struct model_lora_options options;
    const char *targets[NAMES_MAX]; /* none: the linear layers */
    const char *saved[NAMES_MAX];
};

static const struct lora_case lora_cases[] = {
    {"llama", "llama", {.rank = 4, .alpha = 8}, {NULL}, {NULL}},
    {"llama_qv", "llama", {.rank = 2, .alpha = 3, .rslora = true}, {"q_proj", "v_proj"}, {NULL}},
    {"qwen2", "qwen2", {.rank = 3, .alpha = 6}, {"k_proj", "up_proj", "down_proj"}, {NULL}},
    {"qwen3", "qwen3", {.rank = 2, .alpha = 4}, {NULL}, {NULL}},
    {"gpt2", "gpt2", {.rank = 2, .alpha = 4}, {NULL}, {NULL}},
    {"mistral",
     "mistral",
     {.rank = 2, .alpha = 4},
     {"o_proj", "mlp.gate_proj"},
     {"model.norm", "lm_head"}},
    {"llama_dropout",
     "llama",
     {.rank = 2, .alpha = 4, .dropout = 0.25, .seed = 11},
     {"q_proj", "v_proj", "down_proj"},
     {NULL}},
    {"llama_dora",
     "llama",
     {.rank = 2, .alpha = 4, .dora = true},
     {"q_proj", "v_proj", "up_proj", "down_proj"},
     {NULL}},
    {"llama_dora_dropout",
     "llama",
     {.rank = 2, .alpha = 4, .dora = true, .dropout = 0.25, .seed = 11},
     {"q_proj", "v_proj", "up_proj", "down_proj"},
     {NULL}},
    {"gpt2_dora", "gpt2", {.rank = 2, .alpha = 3, .dora = true}, {"c_attn", "attn.c_proj"}, {NULL}},
};

static size_t names_count(const char *const *names)
{
    size_t count = 0;
    while (count < NAMES_MAX && names[count] != NULL) {
        count++;
    }
    return count;
}

/* Gives the fixture a model with adapters. */
static int adapt(struct fixture *fixture, const struct lora_case *one)
{
    struct model_lora_options lora = one->options;
    const struct model_options options = {.lora = &lora};
    lora.target_count = names_count(one->targets);
    lora.targets = lora.target_count > 0 ? one->targets : NULL;
    lora.saved = one->saved;
    lora.saved_count = names_count(one->saved);
    model_destroy(fixture->model);
    fixture->model = NULL;
    return model_create(&fixture->config, &options, &fixture->model);
}

struct trainer {
    struct fixture fixture;
    /* owned; NULL with START_INITIAL */
    struct model_peft *peft;
    struct dev_device *device;
    struct plain *plain;
};

/* A trainer's first adapters: initial, PEFT's first, or PEFT's after fp32 steps. */
enum start { START_INITIAL, START_PEFT, START_TRAINED };

/* Sets `path` to the folder of the adapters; with START_TRAINED, makes that folder. */
static void start_folder(const struct lora_case *one, enum start start, char path[700])
{
    static const char *const names[] = {"trained/" MODEL_ADAPTER_CONFIG,
                                        "trained/" MODEL_ADAPTER_FILE};
    static const char *const files[] = {"start/" MODEL_ADAPTER_CONFIG, "end.safetensors"};
    snprintf(path, 700, "%s/model/lora/%s/start", test_root(), one->name);
    if (start == START_TRAINED) {
        snprintf(path, 700, "%s", test_path("trained"));
        (void)mkdir(path, 0777);
    }
    for (size_t i = 0; start == START_TRAINED && i < 2; i++) {
        char file[700];
        snprintf(file, sizeof file, "%s/model/lora/%s/%s", test_root(), one->name, files[i]);
        (void)unlink(test_path(names[i]));
        check_int(symlink(file, test_path(names[i])), ==, 0);
    }
}

static void trainer_open(struct trainer *trainer, const struct lora_case *one, enum start start,
                         const struct plain_options *options)
{
    char path[700];
    const struct dev_options memory = {.memory_bytes = 64 << 20};
    struct fixture *fixture = &trainer->fixture;
    *trainer = (struct trainer){.device = NULL};
    fixture_open(fixture, one->base);
    check_int(adapt(fixture, one), ==, 0);
    if (start != START_INITIAL) {
        start_folder(one, start, path);
        check_int(model_peft_open(path, &trainer->peft), ==, 0);
        check_int(model_peft_check(trainer->peft, fixture->model), ==, 0);
        model_files_add_adapter(fixture->files, trainer->peft);
    }
    check_int(model_files_check(fixture->files, fixture->model), ==, 0);
    check_int(dev_open("cpu", &memory, &trainer->device), ==, 0);
    check_int(plain_create(fixture->model, trainer->device, options, &trainer->plain), ==, 0);
    check_int(plain_load(trainer->plain, fixture->files), ==, 0);
}

static void trainer_close(struct trainer *trainer)
{
    plain_destroy(trainer->plain);
    dev_close(trainer->device);
    fixture_close(&trainer->fixture);
    model_peft_close(trainer->peft);
}

static struct plain_options options_of(enum kern_type type)
{
    return (struct plain_options){
        .shape = {.rows = BATCH, .length = LENGTH, .type = type},
        .decay_all = true,
        .threads = 2,
        .rule = CORE_UPDATE_ADAMW,
        .group = {.lr = 1e-2,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .eps = 1e-8,
                  .decay = 0.01,
                  .bias_correction = true},
        .clip = 1.0,
    };
}

/* Returns the relative difference between a trainer's parameters and PEFT's final ones. */
static double distance_at_end(const struct trainer *trainer, const struct lora_case *one)
{
    char path[700];
    struct model_safetensors *end = NULL;
    double sum = 0.0;
    double norm = 0.0;
    size_t compared = 0;
    size_t theirs = 0;
    snprintf(path, sizeof path, "%s/model/lora/%s/end.safetensors", test_root(), one->name);
    check_int(model_safetensors_open(path, &end), ==, 0);
    for (unsigned b = 0; b < trainer->fixture.model->block_count; b++) {
        const struct model_block *block = &trainer->fixture.model->blocks[b];
        for (unsigned p = 0; p < block->param_count; p++) {
            const struct model_param *param = &block->params[p];
            for (unsigned k = 0; param->trained && k < param->part_count; k++) {
                const struct model_part *part = &param->parts[k];
                const bool adapter = param->adapter != MODEL_ADAPTER_NONE;
                const float *ours = plain_weights(trainer->plain, b);
                char name[300];
                ours += param->offset + (uint64_t)(part->first_row * param->cols);
                snprintf(name, sizeof name, "%s%s", adapter ? "" : MODEL_ADAPTER_PREFIX,
                         part->name);
                const struct model_tensor *tensor = model_safetensors_find(end, name);
                check_true(tensor != NULL);
                float *values = malloc(tensor->bytes);
                check_int(model_safetensors_read(end, tensor, 0, values, tensor->bytes), ==, 0);
                check_uint(tensor->bytes, ==, (uint64_t)(part->rows * param->cols) * 4);
                for (size_t i = 0; i < tensor->bytes / 4; i++) {
                    const double apart = (double)ours[i] - (double)values[i];
                    sum += apart * apart;
                    norm += (double)values[i] * (double)values[i];
                }
                free(values);
                compared++;
            }
        }
    }
    (void)model_safetensors_list(end, &theirs);
    check_uint(compared, ==, theirs);
    model_safetensors_close(end);
    return sqrt(sum / norm);
}

struct distance {
    /* largest relative differences; `end`: of the final adapters */
    double losses, norms, end;
};

/* Takes PEFT's fp32 steps, or the bf16 steps that follow them. */
static void follow(const struct lora_case *one, enum kern_type type, struct distance *out)
{
    const bool exact = type == KERN_F32;
    const double lr = exact ? 1e-2 : 1e-3;
    char path[700];
    struct trainer trainer;
    struct text_feed *feed = NULL;
    int32_t ids[HALF_BATCH * LENGTH];
    const int32_t count = exact ? BATCH : HALF_BATCH;
    const struct model_batch batch = {.rows = count, .length = LENGTH, .ids = ids};
    struct plain_options options = options_of(type);
    options.shape.rows = count;
    *out = (struct distance){0};
    trainer_open(&trainer, one, exact ? START_PEFT : START_TRAINED, &options);
    snprintf(path, sizeof path, "%s/model/curve/data.jsonl", test_root());
    const char *files[] = {path};
    const struct text_feed_options read = {
        .files = files, .files_count = 1, .seq_len = LENGTH, .batch_rows = count};
    check_int(text_feed_open(&read, NULL, &feed), ==, 0);
    char name[700];
    snprintf(name, sizeof name, "%s/model/lora/%s/%s.txt", test_root(), one->name,
             exact ? "curve" : "bf16");
    FILE *expected = fopen(name, "r");
    check_true(expected != NULL);
    double loss;
    double norm;
    int steps = 0;
    for (; fscanf(expected, "%lf %lf", &loss, &norm) == 2; steps++) {
        struct text_batch rows;
        struct plain_result result;
        check_int(text_feed_next(feed, &rows), ==, 1);
        memcpy(ids, rows.ids, (size_t)(count * LENGTH) * sizeof *ids);
        check_int(plain_step(trainer.plain, &batch, lr, &result), ==, 0);
        out->losses = fmax(out->losses, fabs(result.loss - loss) / loss);
        out->norms = fmax(out->norms, fabs(result.grad_norm - norm) / norm);
    }
    check_int(steps, ==, exact ? STEPS : HALF_STEPS);
    out->end = exact ? distance_at_end(&trainer, one) : 0.0;
    fclose(expected);
    text_feed_close(feed);
    trainer_close(&trainer);
}

/* fp32 steps end with PEFT's weights. */
static void peft(void)
{
    for (size_t i = 0; i < sizeof lora_cases / sizeof lora_cases[0]; i++) {
        struct distance apart;
        follow(&lora_cases[i], KERN_F32, &apart);
        test_note("%s: losses within %.2g, norms %.2g, final adapters %.2g of PEFT's",
                  lora_cases[i].name, apart.losses, apart.norms, apart.end);
        check_double(apart.losses, <, 1e-5);
        check_double(apart.end, <, 1e-4);
    }
}

/* Steps on a bf16 base stay within the bounds of full training (tests/oracle/finetune.py). */
static void peft_bf16(void)
{
    for (size_t i = 0; i < sizeof lora_cases / sizeof lora_cases[0]; i++) {
        struct distance apart;
        follow(&lora_cases[i], KERN_BF16, &apart);
        test_note("%s, bf16: losses within %.2g, norms %.2g of PEFT's", lora_cases[i].name,
                  apart.losses, apart.norms);
        check_double(apart.losses, <, 2e-3);
        check_double(apart.norms, <, 3e-2);
    }
}

enum { PAIR_STEPS = 20, PAIR_PROMPT = 8, PAIR_SHORT = 20 };

/* Makes two pairs from four rows; a pair's second row is the rejected answer, which is shorter. */
static void read_pairs(struct text_feed *feed, int32_t *ids, int32_t *labels)
{
    struct text_batch rows;
    check_int(text_feed_next(feed, &rows), ==, 1);
    check_int(rows.rows, ==, 2 * BATCH);
    memcpy(ids, rows.ids, 2 * BATCH * LENGTH * sizeof *ids);
    for (int row = 0; row < 2 * BATCH; row++) {
        const int length = row % 2 == 0 ? LENGTH : PAIR_SHORT;
        for (int t = 0; t < LENGTH; t++) {
            int32_t *id = &ids[row * LENGTH + t];
            *id = t >= length ? 0 : t < PAIR_PROMPT ? ids[(row - row % 2) * LENGTH + t] : *id;
            labels[row * LENGTH + t] = t < PAIR_PROMPT || t >= length ? KERN_LABEL_IGNORED : *id;
        }
    }
}

/* Returns the larger of `before` and the relative difference. The divisor is at least `least`:
 * small rewards of TRL have few exact digits. */
static double apart(double before, double ours, double theirs, double least)
{
    return fmax(before, fabs(ours - theirs) / fmax(fabs(theirs), least));
}

static void follow_pairs(const char *name, double dropout)
{
    struct lora_case one = lora_cases[0];
    char path[700];
    struct trainer trainer;
    struct text_feed *feed = NULL;
    int32_t ids[2 * BATCH * LENGTH];
    int32_t labels[2 * BATCH * LENGTH];
    struct plain_options options = options_of(KERN_F32);
    const struct model_batch batch = {
        .rows = 2 * BATCH, .length = LENGTH, .ids = ids, .labels = labels};
    for (size_t i = 0; strcmp(one.name, name) != 0; i++) {
        one = lora_cases[i];
    }
    one.options.dropout = dropout;
    options.shape.pairs = BATCH;
    options.shape.rows = 2 * BATCH;
    options.shape.row_length = LENGTH;
    /* The prompt's last token predicts both answers. */
    options.shape.length = LENGTH - 1 + PAIR_SHORT - PAIR_PROMPT;
    options.shape.beta = 0.25;
    options.recompute = true;
    trainer_open(&trainer, &one, START_PEFT, &options);
    snprintf(path, sizeof path, "%s/model/curve/data.jsonl", test_root());
    const char *files[] = {path};
    const struct text_feed_options read = {
        .files = files, .files_count = 1, .seq_len = LENGTH, .batch_rows = 2 * BATCH};
    check_int(text_feed_open(&read, NULL, &feed), ==, 0);
    snprintf(path, sizeof path, "%s/model/lora/%s/dpo.txt", test_root(), name);
    FILE *expected = fopen(path, "r");
    check_true(expected != NULL);
    double most[4] = {0};
    for (int step = 0; step < PAIR_STEPS; step++) {
        struct plain_result ours;
        double loss;
        double norm;
        double rewards[2];
        double right;
        check_int(
            fscanf(expected, "%lf %lf %lf %lf %lf", &loss, &norm, &rewards[0], &rewards[1], &right),
            ==, 5);
        read_pairs(feed, ids, labels);
        check_int(plain_step(trainer.plain, &batch, 3e-3, &ours), ==, 0);
        most[0] = apart(most[0], ours.loss, loss, 0);
        most[1] = apart(most[1], ours.grad_norm, norm, 0);
        most[2] = apart(most[2], ours.chosen, rewards[0], 1);
        most[3] = apart(most[3], ours.rejected, rewards[1], 1);
        /* With magnitudes, rounding makes the first step's rewards differ from 0. */
        check_true(ours.right == right || (step == 0 && one.options.dora));
    }
    test_note("%s: losses of pairs within %.2g, norms %.2g, rewards %.2g and %.2g of TRL's", name,
              most[0], most[1], most[2], most[3]);
    for (int i = 0; i < 4; i++) {
        check_double(most[i], <, 1e-5);
    }
    fclose(expected);
    text_feed_close(feed);
    trainer_close(&trainer);
}

/* Steps of direct preference optimization are TRL's. A dropout rate that drops nothing uses the
 * path with dropout. */
static void dpo(void)
{
    const double nothing = 1e-9;
    follow_pairs("llama", 0);
    follow_pairs("gpt2", nothing);
    follow_pairs("llama_dora", 0);
    follow_pairs("llama_dora", nothing);
}

/* Takes two steps from initial values; the caller frees the returned weights. */
static char *two_steps(const struct lora_case *one, struct plain_options options, size_t *bytes)
{
    struct trainer trainer;
    struct plain_result result;
    int64_t rows;
    int64_t length;
    struct model_batch parts[2] = {{0}};
    trainer_open(&trainer, one, START_INITIAL, &options);
    int32_t *ids = malloc(BATCH * LENGTH * sizeof *ids);
    for (int i = 0; i < BATCH * LENGTH; i++) {
        ids[i] = (i * 7 + i / 5) % (int32_t)trainer.fixture.config.vocab;
    }
    rows = options.shape.rows;
    length = options.shape.length;
    for (int i = 0; i < 2; i++) {
        parts[i] = (struct model_batch){
            .rows = rows, .length = length, .ids = ids + i * (BATCH - rows) * length};
    }
    for (int i = 0; i < 2; i++) {
        check_int(plain_step(trainer.plain, parts, 1e-2, &result), ==, 0);
    }
    const struct model *model = trainer.fixture.model;
    char *all = NULL;
    *bytes = 0;
    for (unsigned b = 0; b < model->block_count; b++) {
        const size_t part = model->blocks[b].elements * kern_type_bytes(options.shape.type);
        all = realloc(all, *bytes + part);
        check_true(all != NULL);
        memcpy(all + *bytes, plain_weights(trainer.plain, b), part);
        *bytes += part;
    }
    free(ids);
    trainer_close(&trainer);
    return all;
}

/* Recomputed activations give the bits of kept ones. */
static void recompute(void)
{
    static const enum kern_type types[] = {KERN_F32, KERN_BF16, KERN_FP16};
    for (size_t i = 0; i < sizeof lora_cases / sizeof lora_cases[0]; i++) {
        for (size_t t = i % 3; t < 3; t += TEST_SLOW ? 3 : 1) {
            size_t bytes;
            size_t again;
            struct plain_options options = options_of(types[t]);
            options.micro_batches = 1 + (unsigned)(i + t) % 2;
            options.shape.rows = BATCH / options.micro_batches;
            char *kept = two_steps(&lora_cases[i], options, &bytes);
            options.recompute = true;
            char *recomputed = two_steps(&lora_cases[i], options, &again);
            check_uint(bytes, ==, again);
            check_memory(kept, recomputed, bytes);
            free(kept);
            free(recomputed);
        }
    }
}

/* Programs have room for the arrays of adapters on all linear layers. */
static void all_linear(void)
{
    static const struct lora_case most[] = {
        {"", "qwen3", {.rank = 2, .alpha = 4, .dora = true}, {NULL}, {NULL}},
        {"", "qwen3", {.rank = 2, .alpha = 4, .dropout = 0.1}, {NULL}, {NULL}},
        {"", "gpt2", {.rank = 2, .alpha = 4, .dora = true}, {NULL}, {NULL}},
        {"", "gpt2", {.rank = 2, .alpha = 4, .dropout = 0.1}, {NULL}, {NULL}},
        {"", "qwen3", {.rank = 2, .alpha = 4, .dora = true, .dropout = 0.1}, {NULL}, {NULL}},
        {"", "gpt2", {.rank = 2, .alpha = 4, .dora = true, .dropout = 0.1}, {NULL}, {NULL}},
    };
    for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
        size_t bytes;
        struct plain_options options = options_of(KERN_F32);
        options.micro_batches = 1;
        options.shape.tile_bytes = 4096;
        free(two_steps(&most[i], options, &bytes));
    }
}

/* The initial A is uniform in +-1/sqrt(inputs) and depends on seed and name; the initial B is
 * zero. */
static void initial_values(void)
{
    enum { COUNT = 4000 };
    float whole[COUNT];
    float part[COUNT];
    double sum = 0.0;
    double squares = 0.0;
    model_adapter_fill(MODEL_ADAPTER_A, "a.lora_A.weight", 64, 5, 0, COUNT, whole);
    for (int i = 0; i < COUNT; i++) {
        sum += (double)whole[i];
        squares += (double)whole[i] * (double)whole[i];
        check_double(fabs((double)whole[i]), <=, 0.125);
    }
    check_double(fabs(sum / COUNT), <, 0.01);
    check_double(fabs(squares / COUNT - 0.125 * 0.125 / 3.0), <, 5e-4);
    model_adapter_fill(MODEL_ADAPTER_A, "a.lora_A.weight", 64, 5, 1001, 700, part);
    check_memory(part, whole + 1001, 700 * sizeof *part);
    model_adapter_fill(MODEL_ADAPTER_A, "a.lora_A.weight", 64, 6, 0, 8, part);
    check_true(memcmp(part, whole, 8 * sizeof *part) != 0);
    model_adapter_fill(MODEL_ADAPTER_A, "b.lora_A.weight", 64, 5, 0, 8, part);
    check_true(memcmp(part, whole, 8 * sizeof *part) != 0);
    model_adapter_fill(MODEL_ADAPTER_B, "a.lora_B.weight", 64, 5, 0, 8, part);
    for (int i = 0; i < 8; i++) {
        check_true(part[i] == 0.0f);
    }
}

/* Magnitudes begin with the norms of the rows, like PEFT's. */
static void initial_magnitudes(void)
{
    for (size_t i = 0; i < sizeof lora_cases / sizeof lora_cases[0]; i++) {
        struct trainer trainer;
        struct model_safetensors *start = NULL;
        char path[700];
        if (!lora_cases[i].options.dora) {
            continue;
        }
        const struct plain_options options = options_of(KERN_F32);
        trainer_open(&trainer, &lora_cases[i], START_INITIAL, &options);
        snprintf(path, sizeof path, "%s/model/lora/%s/start/%s", test_root(), lora_cases[i].name,
                 MODEL_ADAPTER_FILE);
        check_int(model_safetensors_open(path, &start), ==, 0);
        const struct model_block *layer = &trainer.fixture.model->blocks[1];
        const int index = model_block_adapter(layer, MODEL_QKV, MODEL_ADAPTER_MAGNITUDE);
        const struct model_param *param = &layer->params[index];
        for (unsigned k = 0; k < param->part_count; k++) {
            const struct model_part *part = &param->parts[k];
            const struct model_tensor *tensor = model_safetensors_find(start, part->name);
            check_true(tensor != NULL);
            const float *ours = (const float *)plain_weights(trainer.plain, 1) + param->offset +
                                part->first_row;
            float *theirs = malloc(tensor->bytes);
            check_int(model_safetensors_read(start, tensor, 0, theirs, tensor->bytes), ==, 0);
            for (int64_t r = 0; r < part->rows; r++) {
                check_double(fabs((double)ours[r] - (double)theirs[r]), <=,
                             1e-6 * (double)theirs[r]);
            }
            free(theirs);
        }
        model_safetensors_close(start);
        trainer_close(&trainer);
    }
}

/* Options that fit no layer or contradict each other are refused. */
static void refused(void)
{
    static const struct {
        struct lora_case one;
        const char *says;
    } odd[] = {
        {{"", "llama", {.rank = 4, .alpha = 8}, {"q_prj"}, {NULL}}, "q_prj"},
        {{"", "llama", {.rank = 4, .alpha = 8}, {"proj"}, {NULL}}, "proj"},
        {{"", "llama", {.rank = 4, .alpha = 8}, {"lm_head"}, {NULL}},
         "(--modules-to-save) with lm_head trains it whole"},
        {{"", "llama", {.rank = 4, .alpha = 8}, {"model.embed_tokens"}, {NULL}},
         "(--modules-to-save) with model.embed_tokens trains it whole"},
        {{"", "llama", {.rank = 4, .alpha = 8}, {"q_proj", ".*v_proj"}, {NULL}},
         "\".*v_proj\" is a regular expression"},
        {{"", "llama", {.rank = 70, .alpha = 8}, {NULL}, {NULL}},
         "lora_rank (--lora) is 70, more than the smaller dimension of "
         "model.layers.0.self_attn.k_proj.weight, "
         "which is 16"},
        {{"", "llama", {.rank = 4, .alpha = 8}, {NULL}, {"embed"}}, "no module \"embed\""},
        {{"", "llama", {.rank = 4, .alpha = 8}, {"o_proj"}, {"o_proj"}}, "both match"},
        {{"", "llama", {.rank = 4, .alpha = 8}, {"o_proj"}, {"q_proj"}}, "one array"},
        {{"", "gpt2", {.rank = 4, .alpha = 8}, {NULL}, {"wte"}}, "token table"},
        {{"", "gpt2", {.rank = 4, .alpha = 8}, {NULL}, {"lm_head"}}, "token table"},
    };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct fixture fixture;
        fixture_open(&fixture, odd[i].one.base);
        check_int(adapt(&fixture, &odd[i].one), ==, -EINVAL);
        check_contains(core_err_message(), odd[i].says);
        fixture_close(&fixture);
    }
}

/* Adapted layers follow from the tensors of a PEFT folder, whatever the form of
 * `target_modules`. */
static void target_forms(void)
{
    static const char *const forms[] = {
        "[\"q_proj\", \"v_proj\"]",
        "[\"v_proj\", \"self_attn.q_proj\", \"of_other_families\"]",
        "\".*\\\\.(q|v)_proj\"",
        "\"all-linear\", \"exclude_modules\": [\"k_proj\"]",
        "[\"q_proj\", \"v_proj\"], \"layers_to_transform\": [0, 1]",
    };
    struct fixture named;
    char folder[700]; /* has a link to a fixture, so no other case may use it */
    char from[700];
    char to[800];
    fixture_open(&named, "llama");
    check_int(adapt(&named, &lora_cases[1]), ==, 0);
    snprintf(from, sizeof from, "%s/model/lora/llama_qv/start/" MODEL_ADAPTER_FILE, test_root());
    snprintf(folder, sizeof folder, "%s/forms", test_directory());
    snprintf(to, sizeof to, "%s/" MODEL_ADAPTER_FILE, folder);
    (void)mkdir(folder, 0777);
    (void)unlink(to);
    check_int(symlink(from, to), ==, 0);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct fixture fixture;
        struct model_peft *peft = NULL;
        struct model_lora_options lora = {.seed = 0};
        const struct model_options options = {.lora = &lora};
        char text[400];
        const int length = snprintf(text, sizeof text,
                                    "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3, "
                                    "\"use_rslora\": true, \"target_modules\": %s}",
                                    forms[i]);
        test_file("forms/" MODEL_ADAPTER_CONFIG, text, (size_t)length);
        fixture_open(&fixture, "llama");
        model_destroy(fixture.model);
        check_int(model_peft_open(folder, &peft), ==, 0);
        model_peft_options(peft, &lora);
        check_int(model_create(&fixture.config, &options, &fixture.model), ==, 0);
        check_int(model_peft_check(peft, fixture.model), ==, 0);
        check_uint(fixture.model->flat->hash, ==, named.model->flat->hash);
        model_peft_close(peft);
        fixture_close(&fixture);
    }
    fixture_close(&named);
}

/* Writes a safetensors file with this header and `bytes` zeros. */
static void write_tensors(const char *header, size_t bytes)
{
    char text[1024] = {0};
    const uint64_t length = strlen(header);
    memcpy(text, &length, sizeof length);
    memcpy(text + sizeof length, header, length);
    check_uint(sizeof length + length + bytes, <=, sizeof text);
    (void)unlink(test_path(MODEL_ADAPTER_FILE));
    test_file(MODEL_ADAPTER_FILE, text, sizeof length + length + bytes);
}

#define MODULE "base_model.model.a.q_proj"
#define A_OF(type, shape, begin, end)                                                              \
    "\"" MODULE ".lora_A.weight\": {\"dtype\": \"" type "\", \"shape\": [" shape                   \
    "], \"data_offsets\": [" begin ", " end "]}"
#define B_OF(shape, begin, end)                                                                    \
    "\"" MODULE ".lora_B.weight\": {\"dtype\": \"F32\", \"shape\": [" shape                        \
    "], \"data_offsets\": [" begin ", " end "]}"

/* Tensors that cannot be adapters are refused by name. */
static void odd_tensors(void)
{
    static const struct {
        const char *header;
        size_t bytes;
        const char *says;
    } odd[] = {
        {"{" A_OF("F64", "2, 3", "0", "48") ", " B_OF("4, 2", "48", "80") "}", 80,
         "lora_A.weight has type F64; expected F32, F16 or BF16"},
        {"{" A_OF("F32", "2, 3", "0", "24") "}", 24, "a.q_proj.weight has no lora_B"},
        {"{" A_OF("F32", "3, 3", "0", "36") ", " B_OF("4, 3", "36", "84") "}", 84,
         "do not match rank 2"},
        {"{" A_OF("F32", "2, 3", "0", "24") ", " B_OF(
             "4, 2", "24", "56") ", \"" MODULE ".modules_to_save.weight\": {\"dtype\": \"F32\", "
                                 "\"shape\": [1], \"data_offsets\": [56, 60]}}",
         60, "a.q_proj.weight is both adapted and replaced"},
        {"{\"base_model.model.wte.lora_embedding_A\": {\"dtype\": \"F32\", \"shape\": [1], "
         "\"data_offsets\": [0, 4]}}",
         4, "wte.lora_embedding_A is not one of LoRA on a linear layer"},
        {"{\"base_model.model.n.weight\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": "
         "[0, 4]}, \"base_model.model.n.modules_to_save.weight\": {\"dtype\": \"F32\", "
         "\"shape\": [1], \"data_offsets\": [4, 8]}}",
         8, "are two names of one tensor"},
        {"{}", 0, "has no tensors"},
    };
    static const char config[] = "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3}";
    test_file(MODEL_ADAPTER_CONFIG, config, sizeof config - 1);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct model_peft *peft = NULL;
        write_tensors(odd[i].header, odd[i].bytes);
        check_int(model_peft_open(test_directory(), &peft), ==, -EINVAL);
        check_contains(core_err_message(), odd[i].says);
        check_true(peft == NULL);
    }
    static const char dora[] =
        "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3, \"use_dora\": "
        "true}";
    struct model_peft *peft = NULL;
    (void)unlink(test_path(MODEL_ADAPTER_CONFIG));
    test_file(MODEL_ADAPTER_CONFIG, dora, sizeof dora - 1);
    write_tensors("{" A_OF("F32", "2, 3", "0", "24") ", " B_OF(
                      "4, 2", "24", "56") ", \"" MODULE
                                          ".lora_magnitude_vector\": {\"dtype\": \"F32\", "
                                          "\"shape\": [3], \"data_offsets\": [56, 68]}}",
                  68);
    check_int(model_peft_open(test_directory(), &peft), ==, -EINVAL);
    check_contains(core_err_message(), "lora_magnitude_vector is not the number of rows of lora_B");
    (void)unlink(test_path(MODEL_ADAPTER_FILE));
}

/* Values of adapter_config.json that no run supports are refused. */
static void odd_configs(void)
{
    static const struct {
        const char *key;
        const char *value;
        const char *says; /* NULL: accepted */
    } odd[] = {
        {"lora_dropout", "1.5", "lora_dropout: found 1.5; expected 0 to 0.999"},
        {"lora_dropout", "-0.25", "lora_dropout: found -0.25; expected 0 to 0.999"},
        {"lora_dropout", "0.5", NULL},
        {"target_parameters", "\"mlp.experts.up_proj\"", "target_parameters: is not supported"},
        {"target_parameters", "[]", NULL},
        {"trainable_token_indices", "3", "trainable_token_indices: is not supported"},
        {"trainable_token_indices", "null", NULL},
        {"rank_pattern", "true", "rank_pattern: is not supported"},
        {"rank_pattern", "{}", NULL},
        {"kasa_config", "false", NULL},
        {"arrow_config", "\"\"", NULL},
    };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct model_peft *peft = NULL;
        char text[256];
        const int length = snprintf(text, sizeof text,
                                    "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3, "
                                    "\"%s\": %s}",
                                    odd[i].key, odd[i].value);
        (void)unlink(test_path(MODEL_ADAPTER_CONFIG));
        test_file(MODEL_ADAPTER_CONFIG, text, (size_t)length);
        write_tensors("{" A_OF("F32", "2, 3", "0", "24") ", " B_OF("4, 2", "24", "56") "}", 56);
        check_int(model_peft_open(test_directory(), &peft), ==, odd[i].says != NULL ? -EINVAL : 0);
        if (odd[i].says != NULL) {
            check_contains(core_err_message(), odd[i].says);
        }
        model_peft_close(peft);
    }
    (void)unlink(test_path(MODEL_ADAPTER_FILE));
}

static void other_adapters(void)
{
    struct lora_case less = lora_cases[0];
    struct lora_case more = lora_cases[1];
    struct lora_case saves = lora_cases[0];
    struct lora_case saves_not = lora_cases[5];
    less.targets[0] = "q_proj";
    more.targets[0] = more.targets[1] = NULL;
    saves.saved[0] = "lm_head";
    saves_not.saved[0] = NULL;
    const struct {
        const struct lora_case *one;
        const char *says;
    } odd[] = {
        {&less, "which lora_targets (--lora-targets) does not name"},
        {&more, "(--lora-targets) names model.layers.0.self_attn.k_proj.weight, which"},
        {&saves, "(--modules-to-save) names lm_head.weight, which"},
        {&saves_not, "lm_head.weight, which modules_to_save (--modules-to-save) does not name"}};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct fixture fixture;
        struct model_peft *peft = NULL;
        char path[700];
        fixture_open(&fixture, odd[i].one->base);
        check_int(adapt(&fixture, odd[i].one), ==, 0);
        snprintf(path, sizeof path, "%s/model/lora/%s/start", test_root(), odd[i].one->name);
        check_int(model_peft_open(path, &peft), ==, 0);
        check_int(model_peft_check(peft, fixture.model), ==, -EINVAL);
        check_contains(core_err_message(), odd[i].says);
        model_peft_close(peft);
        fixture_close(&fixture);
    }
}

/* Returns the error of reading the blocks as this type, or 0. */
static int read_all(const struct fixture *fixture, enum model_dtype type)
{
    int rc = 0;
    for (unsigned b = 0; rc == 0 && b < fixture->model->block_count; b++) {
        const struct model_block *block = &fixture->model->blocks[b];
        void *to = malloc(block->elements * model_dtype_bytes(type));
        rc = to != NULL
                 ? model_files_read(fixture->files, block, 0, block->elements, type, to, NULL)
                 : -ENOMEM;
        free(to);
    }
    return rc;
}

/* An infinity, a NaN, or a value that the read type cannot hold is refused. */
static void not_finite(void)
{
    static const struct {
        float value;
        bool refused[3]; /* F32, F16, BF16 */
    } odd[] = {{(float)INFINITY, {true, true, true}},
               {(float)NAN, {true, true, true}},
               {70000.0f, {false, true, false}},
               {-1.5f, {false, false, false}}};
    char path[700];
    char said[800];
    size_t bytes;
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct fixture fixture;
        struct model_peft *peft = NULL;
        start_folder(&lora_cases[0], START_TRAINED, path);
        snprintf(said, sizeof said, "%s/" MODEL_ADAPTER_FILE, path);
        char *file = NULL;
        check_int(core_file_read(said, 1 << 20, &file, &bytes), ==, 0);
        memcpy(file + bytes - sizeof odd[i].value, &odd[i].value, sizeof odd[i].value);
        (void)unlink(said);
        test_file("trained/" MODEL_ADAPTER_FILE, file, bytes);
        free(file);
        fixture_open(&fixture, lora_cases[0].base);
        check_int(adapt(&fixture, &lora_cases[0]), ==, 0);
        check_int(model_peft_open(path, &peft), ==, 0);
        model_files_add_adapter(fixture.files, peft);
        snprintf(said, sizeof said, "%s/" MODEL_ADAPTER_FILE ": element ", path);
        for (int type = MODEL_F32; type <= MODEL_BF16; type++) {
            check_int(read_all(&fixture, (enum model_dtype)type), ==,
                      odd[i].refused[type] ? -EINVAL : 0);
            if (odd[i].refused[type]) {
                check_contains(core_err_message(), said);
                check_contains(core_err_message(), "lora_B.weight is not finite");
            }
        }
        model_peft_close(peft);
        fixture_close(&fixture);
    }
}

TEST_MAIN({"peft", peft}, {"peft_bf16", peft_bf16}, {"dpo", dpo}, {"recompute", recompute},
          {"all_linear", all_linear}, {"initial_values", initial_values},
          {"initial_magnitudes", initial_magnitudes}, {"not_finite", not_finite},
          {"refused", refused}, {"target_forms", target_forms}, {"odd_tensors", odd_tensors},
          {"odd_configs", odd_configs}, {"other_adapters", other_adapters})
