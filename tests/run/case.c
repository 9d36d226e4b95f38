/* case.c: runs plain trainers and engines, and hashes their states. */
#include "tests/run/case.h"
#include "core/coll/work.h"
#include "offload/run/engine_internal.h"
#include "offload/run/rank_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/dev/dev.h"
#include "offload/plan/layout.h"
#include "tests/harness/test.h"
#include "tests/reference/plain.h"

const struct run_rates *case_rates(void)
{
    static const struct run_rates rates = {
        .machine = {.read_bytes = 2e9,
                    .write_bytes = 2e9,
                    .mixed_bytes = 2.2e9,
                    .up_bytes = 8e9,
                    .down_bytes = 8e9,
                    .flops = 2e11,
                    .update_elements = 1e9,
                    .sums_elements = 4e9,
                    .card_update_elements = 4e10,
                    .card_sums_elements = 4e11,
                    .round_elements = 4e9,
                    .coll_bytes = 8e9,
                    .hash_bytes = 6e10,
                    .command_seconds = 2e-6,
                    .shared_cores = true},
    };
    return &rates;
}

struct run_options case_options(void)
{
    return (struct run_options){
        .device = "cpu",
        .threads = 2,
        .world = 1,
        .seed = 11,
        .rows = CASE_ROWS,
        .length = CASE_LENGTH,
        .micro_batches = 1,
        .type = KERN_BF16,
        .rule = CORE_UPDATE_ADAMW,
        .moments = CORE_UPDATE_F32,
        .group = {.lr = 1e-3,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .eps = 1e-8,
                  .decay = 0.01,
                  .bias_correction = true},
        .clip = 0.5,
        .scale = {.first = 65536, .least = 1, .window = 1000, .hysteresis = 2},
        .budgets = {.device_bytes = UINT64_C(1) << 30,
                    .host_bytes = UINT64_C(1) << 30,
                    .device_is_host = true},
        .wishes = {.chunk_elements = 65536},
    };
}

void case_store(struct run_options *options, const char *io)
{
    static char directory[700];
    snprintf(directory, sizeof directory, "%s/store", test_directory());
    options->io = io;
    options->stores[0] = (struct store_path){.directory = directory, .weight = 1};
    options->store_count = 1;
    options->budgets.store_bytes = UINT64_C(1) << 30;
}

struct model_batch case_batch(const struct case_model *made, unsigned step, unsigned micro,
                              int32_t *ids)
{
    uint64_t state = step * 64 + micro + 1;
    for (int i = 0; i < CASE_ROWS * CASE_LENGTH; i++) {
        ids[i] = (int32_t)(case_random(&state) % (uint64_t)made->model->config.vocab);
    }
    return (struct model_batch){.rows = CASE_ROWS, .length = CASE_LENGTH, .ids = ids};
}

enum { TOKENS = CASE_ROWS * CASE_LENGTH, SHORT_LENGTH = 11, DOCUMENT = 6 };

struct batches {
    int32_t ids[CASE_MICRO_MAX][TOKENS];
    int32_t labels[CASE_MICRO_MAX][TOKENS];
    int32_t positions[TOKENS];
    int32_t starts[TOKENS];
    struct model_batch list[CASE_MICRO_MAX];
    uint32_t count;
};

/* Cuts rows into documents of at most DOCUMENT tokens; every fifth token is not trained on. */
static void pack(struct batches *out, unsigned i)
{
    for (int t = 0; t < TOKENS; t++) {
        const int at = t % CASE_LENGTH;
        out->starts[t] = at / DOCUMENT * DOCUMENT;
        out->positions[t] = at - out->starts[t];
        out->labels[i][t] = t % 5 == 2 ? KERN_LABEL_IGNORED : out->ids[i][t];
    }
    out->list[i].labels = out->labels[i];
    out->list[i].positions = out->positions;
    out->list[i].starts = out->starts;
}

/* Makes pairs of rows with a common untrained prompt; the second row ends at ANSWER_END. */
static void pair(struct batches *out, unsigned i)
{
    enum { PROMPT = 6, ANSWER_END = 13 };
    for (int t = 0; t < TOKENS; t++) {
        const int at = t % CASE_LENGTH;
        const bool second = t / CASE_LENGTH % 2 == 1;
        out->ids[i][t] = second && at < PROMPT ? out->ids[i][t - CASE_LENGTH] : out->ids[i][t];
        out->labels[i][t] = at < PROMPT || (second && at >= ANSWER_END) ? KERN_LABEL_IGNORED
                                                                        : out->ids[i][t];
    }
    out->list[i].labels = out->labels[i];
}

/* Cuts a batch to the first `length` tokens of its first row. With `whole`, the rest becomes
 * padding, because the plain trainer takes only whole rows. */
static void shorten(struct batches *out, unsigned i, bool whole, int length)
{
    if (!whole) {
        out->list[i].rows = 1;
        out->list[i].length = length;
        return;
    }
    for (int t = 0; t < TOKENS; t++) {
        const bool there = t < length;
        out->ids[i][t] = there ? out->ids[i][t] : 0;
        out->labels[i][t] = there ? out->ids[i][t] : KERN_LABEL_IGNORED;
    }
    out->list[i].labels = out->labels[i];
}

/* A single target per micro-batch makes the norm much larger than that of other steps. */
static void make_loud(struct batches *batches, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        for (int t = 0; t < TOKENS; t++) {
            batches->labels[i][t] = t == 5 ? batches->ids[i][t] : KERN_LABEL_IGNORED;
        }
        batches->list[i].labels = batches->labels[i];
    }
}

static int evaluate(const struct case_model *made, struct run_engine *engine)
{
    int32_t ids[CASE_ROWS * CASE_LENGTH];
    struct kern_loss loss;
    const struct model_batch batch = case_batch(made, 1000, 0, ids);
    return run_engine_evaluate(engine, &batch, &loss);
}

/* With `whole`, padding brings the batches to the full shape and number. */
static void make_batches(const struct case_model *made, unsigned step, unsigned count, bool whole,
                         struct batches *out)
{
    const bool fewer = made->rows == CASE_FEWER;
    for (unsigned i = 0; i < count; i++) {
        out->list[i] = case_batch(made, step, i, out->ids[i]);
        if (made->rows == CASE_PACKED) {
            pack(out, i);
        } else if (made->rows == CASE_PAIRS) {
            pair(out, i);
        } else if (made->rows == CASE_SHORT) {
            shorten(out, i, whole, SHORT_LENGTH);
        } else if (fewer && whole && i + 1 == count) {
            shorten(out, i, true, 0);
        }
    }
    out->count = count - (fewer && !whole);
}

struct hashes {
    uint64_t weights;
    uint64_t states;
    struct plan_format format;
};

static void hash_window(const struct adam_arrays *arrays, size_t width, struct hashes *hashes)
{
    const void *weights = arrays->w16 != NULL ? (const void *)arrays->w16 : arrays->w32;
    hashes->weights = core_hash(weights, arrays->count * width, hashes->weights);
    hashes->states = core_hash(weights, arrays->count * width, hashes->states);
    const struct plan_format *format = &hashes->format;
    const uint64_t scales = format->q8_block > 0
                                ? (arrays->count + format->q8_block - 1) / format->q8_block * 4
                                : 0;
    const struct {
        const void *at;
        uint64_t bytes;
    } streams[] = {{arrays->lo16, arrays->count * 2},
                   {arrays->w16 != NULL ? arrays->w32 : NULL, arrays->count * 4},
                   {arrays->m, arrays->count * format->m_bytes},
                   {arrays->v, arrays->count * format->v_bytes},
                   {arrays->m_scale, scales},
                   {arrays->v_scale, scales}};
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        if (streams[i].at != NULL && streams[i].bytes > 0) {
            hashes->states = core_hash(streams[i].at, streams[i].bytes, hashes->states);
        }
    }
}

/* Of a frozen block, only the weights are hashed. */
static struct adam_arrays arrays_of(const struct case_model *made, const struct plain *plain,
                                    unsigned block)
{
    struct adam_arrays arrays = plain_arrays(plain, block);
    if (!made->model->blocks[block].trained) {
        arrays.lo16 = NULL;
        arrays.w32 = arrays.w16 != NULL ? NULL : arrays.w32;
        arrays.m = arrays.v = NULL;
    }
    return arrays;
}

void case_run_plain(const struct case_model *made, const struct run_options *options,
                    unsigned steps, struct case_outcome *out)
{
    struct dev_device *device = NULL;
    struct plain *plain = NULL;
    const struct dev_options memory = {.memory_bytes = 256 << 20};
    const struct plain_options plain_options = {
        .shape = {.rows = options->rows,
                  .length = options->length,
                  .row_length = options->row_length,
                  .type = options->type,
                  .tile_bytes = options->tile_bytes,
                  .pairs = options->pairs,
                  .beta = options->beta},
        .micro_batches = options->micro_batches,
        .decay_all = options->decay_all,
        .threads = options->threads,
        .rule = options->rule,
        .group = options->group,
        .clip = options->clip,
        .loss_scale = options->type == KERN_FP16 ? options->scale.fixed : 0,
    };
    *out = (struct case_outcome){.steps = steps};
    check_int(dev_open("cpu", &memory, &device), ==, 0);
    check_int(plain_create(made->model, device, &plain_options, &plain), ==, 0);
    check_int(plain_load(plain, made->files), ==, 0);
    for (unsigned s = 0; s < steps; s++) {
        struct batches batches;
        struct plain_result result = {0};
        make_batches(made, s, options->micro_batches, true, &batches);
        check_int(plain_step(plain, batches.list, options->group.lr, &result), ==, 0);
        out->loss[s] = result.loss;
        out->norm[s] = result.grad_norm;
        out->skipped[s] = result.skipped;
        out->chosen[s] = result.chosen;
        out->rejected[s] = result.rejected;
        out->rights[s] = result.right;
    }
    struct hashes hashes = {.format = run_options_format(options)};
    for (unsigned b = 0; b < made->model->block_count; b++) {
        const struct adam_arrays whole = arrays_of(made, plain, b);
        for (uint64_t at = 0; at < whole.count; at += options->wishes.chunk_elements) {
            struct adam_arrays part = whole;
            const uint64_t left = whole.count - at;
            part.count = left < options->wishes.chunk_elements ? left
                                                               : options->wishes.chunk_elements;
            part.w16 = whole.w16 != NULL ? whole.w16 + at : NULL;
            part.lo16 = whole.lo16 != NULL ? whole.lo16 + at : NULL;
            part.w32 = whole.w32 != NULL ? whole.w32 + at : NULL;
            part.m = whole.m != NULL ? (char *)whole.m + at * 4 : NULL;
            part.v = whole.v != NULL ? (char *)whole.v + at * 4 : NULL;
            hash_window(&part, kern_type_bytes(options->type), &hashes);
        }
    }
    out->state_hash = hashes.states;
    out->weight_hash = hashes.weights;
    plain_destroy(plain);
    dev_close(device);
}

struct hash_context {
    struct hashes hashes;
    size_t width;
    uint64_t chunk_elements;
    uint64_t still_groups;
};

/* Counts groups of 256 elements whose fp32 first moments are all zero. */
static uint64_t count_still(const float *m, uint64_t count)
{
    enum { GROUP = 256 };
    uint64_t still = 0;
    for (uint64_t at = 0; at < count; at += GROUP) {
        bool moved = false;
        for (uint64_t i = at; i < count && i < at + GROUP; i++) {
            moved = moved || m[i] != 0;
        }
        still += !moved;
    }
    return still;
}

static int hash_states(void *context, const struct adam_arrays *arrays)
{
    struct hash_context *hash = context;
    hash_window(arrays, hash->width, &hash->hashes);
    if (arrays->m != NULL && hash->hashes.format.m_bytes == sizeof(float)) {
        hash->still_groups += count_still(arrays->m, arrays->count);
    }
    return 0;
}

static int run_steps(const struct case_model *made, struct run_engine *engine,
                     const struct run_options *options, const struct case_part *part,
                     struct case_outcome *out)
{
    for (unsigned s = part->first; s < part->end; s++) {
        struct batches batches;
        struct run_step step;
        const uint32_t count = options->micro_batches * engine->world;
        make_batches(made, s, count, false, &batches);
        if ((part->loud >> s & 1) != 0) {
            make_loud(&batches, batches.count);
        }
        const bool saves = part->save != NULL &&
                           (s + 1 == part->save_after || (part->save_on && s >= part->save_after));
        int rc = saves && part->ahead ? run_engine_save(engine, part->save, RUN_SAVE_NEXT_STEP) : 0;
        rc = rc != 0
                 ? rc
                 : run_engine_step(engine, batches.list, batches.count, options->group.lr, &step);
        rc = rc == 0 && (part->evaluated >> s & 1) != 0 ? evaluate(made, engine) : rc;
        if (rc == 0 && saves) {
            rc = part->later ? run_engine_save(engine, part->save, RUN_SAVE_LATER)
                             : run_engine_save(engine, part->save, RUN_SAVE_NOW);
            out->under_way = run_engine_save_is_open(engine);
        }
        if (rc != 0) {
            return rc;
        }
        out->loss[s] = step.loss;
        out->norm[s] = step.norm;
        out->skipped[s] = step.skipped;
        out->chosen[s] = step.chosen;
        out->rejected[s] = step.rejected;
        out->rights[s] = step.right;
        out->guessed[s] = step.guessed;
        out->right[s] = step.guess_right;
        out->guess_bytes[s] = step.guess_bytes;
        out->gather_bytes += step.traffic.gather_bytes;
        out->reduce_bytes += step.traffic.reduce_bytes;
        out->gather_between_bytes += step.traffic.gather_between_bytes;
        out->reduce_between_bytes += step.traffic.reduce_between_bytes;
        out->steps = s + 1;
    }
    int rc = run_engine_save_wait(engine);
    return rc != 0 ? rc : run_engine_drain(engine);
}

static int hash_weights(void *context, uint64_t first, uint64_t count, const void *weights)
{
    struct hash_context *hash = context;
    const uint64_t each = hash->chunk_elements;
    for (uint64_t at = 0; at < count; at += each) {
        void *part = (char *)(uintptr_t)weights + at * hash->width;
        const uint64_t left = count - at;
        const struct adam_arrays arrays = {.first = first + at,
                                           .count = left < each ? left : each,
                                           .w16 = hash->width == 2 ? part : NULL,
                                           .w32 = hash->width == 4 ? part : NULL};
        hash_window(&arrays, hash->width, &hash->hashes);
    }
    return 0;
}

static void add_received(const struct run_rank *rank, struct case_outcome *out)
{
    for (int op = 0; rank->coll != NULL && op < COLL_OPS; op++) {
        const bool sums = op == COLL_REDUCE_SCATTER || op == COLL_ALL_REDUCE;
        const uint64_t bytes = atomic_load(&rank->coll->received_bytes[op]);
        out->received_bytes += bytes;
        out->summed_bytes += sums ? bytes : 0;
    }
}

static int hash_all(const struct case_model *made, struct run_engine *engine,
                    const struct run_options *options, struct case_outcome *out)
{
    struct hash_context hash = {.width = kern_type_bytes(options->type),
                                .chunk_elements = options->wishes.chunk_elements};
    hash.hashes.format = run_options_format(options);
    /* The shards in order form the block; in stage 0 the first rank's copy is hashed. */
    const uint32_t shards = options->stage > 0 ? engine->world : 1;
    for (unsigned b = 0; b < made->model->block_count; b++) {
        const bool trained = made->model->blocks[b].trained;
        const bool codes = made->model->config.quant != KERN_QUANT_NONE; /* not hashed */
        int weights = trained || codes ? 0 : run_engine_weights(engine, b, hash_weights, &hash);
        if (weights != 0) {
            return weights;
        }
        for (uint32_t r = 0; trained && r < shards; r++) {
            const struct run_take_states taker = {.take = hash_states, .context = &hash};
            int rc = run_rank_states(engine->workers[r].rank, b, &taker);
            if (rc != 0) {
                return rc;
            }
        }
    }
    for (uint32_t r = 0; r < engine->world; r++) {
        add_received(engine->workers[r].rank, out);
    }
    out->state_hash = hash.hashes.states;
    out->weight_hash = hash.hashes.weights;
    out->still_groups = hash.still_groups;
    return 0;
}

int case_try_part(const struct case_model *made, const struct run_options *options,
                  const struct case_part *part, struct case_outcome *out)
{
    struct run_prepared *prepared = NULL;
    struct run_engine *engine = NULL;
    int rc = run_prepared_create(made->model, options, case_rates(), &prepared);
    if (rc != 0) {
        return rc;
    }
    const struct run_engine_options engine_options = {.prepared = prepared,
                                                      .options = options,
                                                      .model = made->model,
                                                      .files = made->files,
                                                      .folder = made->folder,
                                                      .checkpoint = part->resume,
                                                      .trace = part->trace};
    rc = run_engine_create(&engine_options, &engine);
    rc = rc != 0 ? rc : run_steps(made, engine, options, part, out);
    rc = rc != 0 ? rc : hash_all(made, engine, options, out);
    snprintf(out->message, sizeof out->message, "%s", rc != 0 ? core_err_message() : "");
    run_engine_destroy(engine);
    run_prepared_destroy(prepared);
    return rc != 0 ? core_err_adopt(rc, out->message) : 0;
}

void case_run_part(const struct case_model *made, const struct run_options *options,
                   const struct case_part *part, struct case_outcome *out, const char *what)
{
    int rc = case_try_part(made, options, part, out);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "%s failed with %d: %s", what, rc, core_err_message());
    }
}

struct store_shelf *case_shelf_open(void)
{
    static unsigned number;
    char directory[600];
    struct store_shelf *shelf = NULL;
    snprintf(directory, sizeof directory, "%s/run %u", test_directory(), ++number);
    check_int(store_shelf_open(directory, &shelf), ==, 0);
    return shelf;
}

int case_try_engine(const struct case_model *made, const struct run_options *options,
                    unsigned steps, struct case_outcome *out)
{
    const struct case_part part = {.end = steps};
    *out = (struct case_outcome){0};
    return case_try_part(made, options, &part, out);
}

void case_run_engine(const struct case_model *made, const struct run_options *options,
                     unsigned steps, struct case_outcome *out)
{
    int rc = case_try_engine(made, options, steps, out);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "the run failed with %d: %s", rc, core_err_message());
    }
}

typedef void (*plan_check)(const struct case_model *made, const struct run_prepared *prepared);

/* Plans for a DEVICE budget. Returns whether the block comes by sections; sets *fits to whether
 * there is a plan. */
static bool plan_sections(const struct case_model *made, struct run_options *options,
                          uint64_t device_bytes, unsigned block, plan_check check, bool *fits)
{
    struct run_prepared *prepared = NULL;
    options->budgets.device_bytes = device_bytes;
    *fits = run_prepared_create(made->model, options, case_rates(), &prepared) == 0;
    if (!*fits) {
        return false;
    }
    const struct plan_layout *layout = plan_layout_of(prepared->plan);
    const bool sections = plan_layout_sectioned(&prepared->input, layout, block) != PLAN_NONE;
    if (sections && check != NULL) {
        check(made, prepared);
    }
    run_prepared_destroy(prepared);
    return sections;
}

void case_squeeze(const struct case_model *made, struct run_options *options, unsigned block,
                  plan_check check)
{
    enum { PRECISION_BYTES = 32 << 10 };
    uint64_t least = 0;
    uint64_t most = 128 << 20;
    bool fits = false;
    check_true(!plan_sections(made, options, most, block, check, &fits) && fits);
    while (most - least > PRECISION_BYTES) {
        const uint64_t middle = least + (most - least) / 2;
        (void)plan_sections(made, options, middle, block, check, &fits);
        *(fits ? &most : &least) = middle;
    }
    check_true(plan_sections(made, options, most, block, check, &fits));
}

void case_check_losses(const struct case_outcome *a, const struct case_outcome *b, const char *what)
{
    check_uint(a->steps, ==, b->steps);
    for (unsigned s = 0; s < a->steps; s++) {
        if (a->loss[s] != b->loss[s] || memcmp(&a->norm[s], &b->norm[s], sizeof a->norm[s]) != 0) {
            test_fail(__FILE__, __LINE__, "%s: step %u: loss %.17g and %.17g, norm %.17g and %.17g",
                      what, s + 1, a->loss[s], b->loss[s], a->norm[s], b->norm[s]);
        }
    }
}

void case_check_equal(const struct case_outcome *a, const struct case_outcome *b, const char *what)
{
    case_check_losses(a, b, what);
    for (unsigned s = 0; s < a->steps; s++) {
        const bool same = a->skipped[s] == b->skipped[s] && a->chosen[s] == b->chosen[s] &&
                          a->rejected[s] == b->rejected[s] && a->rights[s] == b->rights[s];
        if (!same) {
            test_fail(__FILE__, __LINE__, "%s: step %u: one is skipped, or pairs differ", what,
                      s + 1);
        }
    }
    if (a->weight_hash != b->weight_hash || a->state_hash != b->state_hash) {
        test_fail(__FILE__, __LINE__, "%s: losses are equal, %s differ", what,
                  a->weight_hash != b->weight_hash ? "weights" : "states");
    }
}
