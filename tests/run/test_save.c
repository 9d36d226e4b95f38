/* test_save.c: checkpoints are saved while steps continue, without a change of bits, and resumed
 * with the bits of an uninterrupted run. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/test.h"
#include "tests/run/case.h"

enum { STEPS = 4, SAVED = 2 };

struct place {
    const char *name;
    enum plan_where weights, states;
};

static const struct place places[] = {
    {"all in STORE", PLAN_WHERE_STORE, PLAN_WHERE_STORE},
    {"states in STORE", PLAN_WHERE_HOST, PLAN_WHERE_STORE},
    {"weights in STORE", PLAN_WHERE_STORE, PLAN_WHERE_HOST},
    {"all in HOST", PLAN_WHERE_HOST, PLAN_WHERE_HOST},
    {"all in DEVICE", PLAN_WHERE_DEVICE, PLAN_WHERE_DEVICE},
};
enum { PLACES = sizeof places / sizeof places[0] };

static const struct {
    const char *name;
    enum plan_timing timing;
    double clip;
} timings[] = {{"deferred", PLAN_TIMING_DEFERRED, 0.5},
               {"inside", PLAN_TIMING_INSIDE, 0},
               {"split", PLAN_TIMING_SPLIT, 0},
               {"speculative, always right", PLAN_TIMING_SPECULATIVE, 1e6},
               {"speculative, always wrong", PLAN_TIMING_SPECULATIVE, 1e-3}};
enum { TIMINGS = sizeof timings / sizeof timings[0] };

static struct run_options options_of(int place, int timing)
{
    struct run_options options = case_options();
    options.clip = timings[timing].clip;
    options.wishes.timing = timings[timing].timing;
    options.wishes.may_split = true;
    options.wishes.weights = places[place].weights;
    options.wishes.states = places[place].states;
    options.wishes.saves = true;
    case_store(&options, "mem");
    options.guesses_given = true;
    options.guesses = 0xff;
    return options;
}

struct way {
    bool ahead;
    bool reads_out; /* no update can write the states */
    uint64_t evaluated;
};

/* Saves after SAVED steps with `from`; resumes with `to`. */
static void hold(const struct case_model *made, const struct run_options *from,
                 const struct run_options *to, const struct way *way, const char *name)
{
    char path[700];
    struct case_outcome whole = {.steps = 0};
    struct case_outcome saving = {.steps = 0};
    struct store_shelf *shelf = case_shelf_open();
    const struct run_save_options save = {.shelf = shelf, .keep = 1};
    const struct case_part all = {.end = STEPS};
    const struct case_part first = {.end = STEPS,
                                    .save = &save,
                                    .save_after = SAVED,
                                    .later = true,
                                    .ahead = way->ahead,
                                    .evaluated = way->evaluated};
    const struct case_part second = {
        .first = SAVED,
        .end = STEPS,
        .resume = store_shelf_path(store_shelf_directory(shelf), SAVED, path, sizeof path)};
    case_run_part(made, from, &all, &whole, name);
    case_run_part(made, from, &first, &saving, name);
    case_check_equal(&whole, &saving, name);
    if (saving.under_way == way->reads_out) {
        test_fail(__FILE__, __LINE__, "%s: the save %s", name,
                  way->reads_out ? "went on under the step" : "was read out");
    }
    struct case_outcome resumed = whole;
    case_run_part(made, to, &second, &resumed, name);
    case_check_equal(&whole, &resumed, name);
    store_shelf_close(shelf);
}

/* Saving changes no bit with any timing of updates, and another placement resumes with the same
 * bits. */
static void every_timing(void)
{
    static const char *const families[] = {"llama tied", "gpt2"};
    for (int t = 0; t < TIMINGS; t++) {
        struct case_model made;
        case_model_make(&made, families[t % 2]);
        for (int p = TEST_COUNT(0, t % 2); p < PLACES; p += TEST_COUNT(1, 2) * TEST_STRIDE(2)) {
            char name[200];
            const int next = (p + 2) % PLACES;
            const struct run_options from = options_of(p, t);
            struct run_options to = options_of(next, t);
            to.wishes.timing = PLAN_TIMING_DEFERRED;
            to.wishes.saves = false;
            snprintf(name, sizeof name, "%s, %s to %s", timings[t].name, places[p].name,
                     places[next].name);
            hold(&made, &from, &to, &(struct way){.ahead = true}, name);
        }
        case_model_free(&made);
    }
}

/* An evaluation or a missing announcement does not change a checkpoint; states without a pending
 * update are read out. */
static void looked_at_or_unannounced(void)
{
    struct case_model made;
    case_model_make(&made, "llama tied");
    for (int t = 0; t < TIMINGS; t += TEST_COUNT(1, 2) * TEST_STRIDE(2)) {
        const bool pends = timings[t].timing == PLAN_TIMING_DEFERRED;
        const bool right = timings[t].clip > 1;
        const bool inside = timings[t].clip == 0;
        const struct run_options options = options_of(0, t);
        hold(&made, &options, &options, &(struct way){.ahead = true, .evaluated = 2}, "looked at");
        hold(&made, &options, &options, &(struct way){.reads_out = right || inside},
             "not said ahead");
        hold(&made, &options, &options, &(struct way){.reads_out = true, .evaluated = 2},
             pends ? "looked at and not said ahead" : "the same");
    }
    case_model_free(&made);
}

/* A checkpoint has frozen blocks, although no update writes them. */
static void frozen(void)
{
    static const char *const patterns[] = {"*embed*", "*layers.1.*"};
    struct case_model made;
    case_model_make(&made, "llama");
    case_model_freeze(&made, patterns, 2);
    for (int t = TEST_COUNT(0, 1); t < TIMINGS; t += TEST_COUNT(1, 2)) {
        const struct run_options options = options_of(t % PLACES, t);
        hold(&made, &options, &options, &(struct way){.ahead = true}, timings[t].name);
        struct run_options ranks = options;
        ranks.world = 2;
        ranks.stage = 3;
        ranks.threads = 1;
        hold(&made, &ranks, &ranks, &(struct way){.ahead = true}, "two ranks");
    }
    case_model_free(&made);
}

/* Checkpoints keep narrow moments and a loss scale that changes. */
static void formats(void)
{
    struct case_model made;
    case_model_make(&made, "llama tied");
    for (int t = 0; t < TIMINGS; t += TEST_STRIDE(2)) {
        struct run_options options = options_of(t % 3, t);
        options.moments = t % 2 == 0 ? CORE_UPDATE_Q8 : CORE_UPDATE_BF16;
        hold(&made, &options, &options, &(struct way){.ahead = true}, timings[t].name);
    }
    for (int skips = 0; skips < 2; skips++) {
        struct run_options options = options_of(0, 3);
        options.type = KERN_FP16;
        options.may_skip = true;
        options.scale = (struct run_scale_options){.first = skips != 0 ? 4294967296.0 * 4096 : 1024,
                                                   .least = 1,
                                                   .window = 2,
                                                   .hysteresis = 1};
        hold(&made, &options, &options, &(struct way){.ahead = true, .reads_out = skips != 0},
             skips != 0 ? "a step that was skipped" : "fp16");
    }
    case_model_free(&made);
}

/* ---- ranks ---- */

static void set_ranks(struct run_options *options, uint32_t world, uint32_t stage)
{
    options->world = world;
    options->stage = stage;
    options->threads = 1;
    options->micro_batches = 4 / world;
}

/* Ranks write one set of files, from which as many ranks resume with the same bits. */
static void several_ranks(void)
{
    struct case_model made;
    case_model_make(&made, "llama tied");
    for (uint32_t stage = 0; stage <= 3; stage++) {
        for (int t = TEST_COUNT(0, (int)stage % 2); t < TIMINGS; t += TEST_COUNT(1, 4)) {
            char name[200];
            struct run_options options = options_of((int)(stage + (uint32_t)t) % PLACES, t);
            set_ranks(&options, 2, stage);
            snprintf(name, sizeof name, "two ranks, stage %u, %s", stage, timings[t].name);
            hold(&made, &options, &options, &(struct way){.ahead = true}, name);
        }
    }
    case_model_free(&made);
}

/* A run on another number of ranks has the saved states, and then the same losses but for the
 * order of sums. */
static void other_ranks(void)
{
    static const uint32_t worlds[][2] = {{1, 2}, {2, 4}, {4, 1}};
    struct case_model made;
    case_model_make(&made, "llama tied");
    for (uint32_t i = 0; i < 12; i += TEST_COUNT(1, 2) * TEST_STRIDE(2)) {
        const uint32_t *world = worlds[i % 3];
        const uint32_t stage = i / 3;
        char name[200];
        char path[700];
        struct store_shelf *shelf = case_shelf_open();
        const struct run_save_options save = {.shelf = shelf};
        const struct case_part first = {.end = SAVED, .save = &save, .save_after = SAVED};
        struct case_part second = {
            .first = SAVED,
            .end = SAVED,
            .resume = store_shelf_path(store_shelf_directory(shelf), SAVED, path, sizeof path)};
        struct run_options from = options_of((int)i % PLACES, (int)i % 2);
        struct run_options to = options_of((int)(i + 3) % PLACES, (int)i % 2);
        struct case_outcome saved = {.steps = 0};
        struct case_outcome whole = {.steps = 0};
        snprintf(name, sizeof name, "%u ranks of stage %u to %u", world[0], stage, world[1]);
        set_ranks(&from, world[0], world[0] > 1 ? stage : 0);
        set_ranks(&to, world[1], world[1] > 1 ? (stage + (world[0] > 1)) % 4 : 0);
        case_run_part(&made, &from, &first, &saved, name);
        case_run_part(&made, &from, &(struct case_part){.end = STEPS}, &whole, name);
        struct case_outcome arrived = saved;
        case_run_part(&made, &to, &second, &arrived, name);
        case_check_equal(&saved, &arrived, name);
        second.end = STEPS;
        case_run_part(&made, &to, &second, &arrived, name);
        for (unsigned s = SAVED; s < STEPS; s++) {
            check_double(fabs(arrived.loss[s] - whole.loss[s]), <, 2e-3 * whole.loss[s]);
            check_double(fabs(arrived.norm[s] - whole.norm[s]), <, 2e-2 * whole.norm[s]);
        }
        store_shelf_close(shelf);
    }
    case_model_free(&made);
}

/* ---- announced checkpoints that nobody asks for ---- */

/* An announced checkpoint that nobody asks for leaves nothing. */
static void not_asked_for(void)
{
    struct case_model made;
    case_model_make(&made, "llama tied");
    for (int t = 0; t < 3; t++) {
        struct run_prepared *prepared = NULL;
        struct run_engine *engine = NULL;
        struct store_shelf *shelf = case_shelf_open();
        const struct run_options options = options_of(0, t);
        const struct run_save_options save = {.shelf = shelf};
        check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
        const struct run_engine_options engine_options = {
            .prepared = prepared, .options = &options, .model = made.model, .files = made.files};
        check_int(run_engine_create(&engine_options, &engine), ==, 0);
        for (unsigned s = 0; s < 4; s++) {
            int32_t ids[CASE_ROWS * CASE_LENGTH];
            const struct model_batch batch = case_batch(&made, s, 0, ids);
            struct run_step step;
            check_int(s != 2 ? run_engine_save(engine, &save, RUN_SAVE_NEXT_STEP) : 0, ==, 0);
            check_int(run_engine_step(engine, &batch, 1, 1e-3, &step), ==, 0);
            check_int(s == 1 || s == 3 ? run_engine_save(engine, &save, RUN_SAVE_LATER) : 0, ==, 0);
        }
        check_int(run_engine_save_wait(engine), ==, 0);
        check_true(!run_engine_save_is_open(engine));
        check_int(run_engine_quiesce(engine), ==, 0);
        check_int(run_engine_save(engine, &save, RUN_SAVE_NEXT_STEP), ==, 0);
        run_engine_destroy(engine);
        run_prepared_destroy(prepared);
        uint64_t *steps = NULL;
        size_t count = 0;
        check_int(store_shelf_list(store_shelf_directory(shelf), &steps, &count), ==, 0);
        check_uint(count, ==, 2);
        check_uint(steps[0], ==, 2);
        check_uint(steps[1], ==, 4);
        free(steps);
        store_shelf_close(shelf);
    }
    case_model_free(&made);
}

TEST_MAIN({"every_timing", every_timing}, {"looked_at_or_unannounced", looked_at_or_unannounced},
          {"frozen", frozen}, {"formats", formats}, {"several_ranks", several_ranks},
          {"other_ranks", other_ranks}, {"not_asked_for", not_asked_for})
