/* test_speculation.c: a run with right, wrong and no guesses ends with the bits of a run that
 * defers its updates. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/test.h"
#include "tests/run/case.h"

enum { STEPS = 3, KINDS = 3, PATTERNS = KINDS * KINDS * KINDS };

/* The planner chooses fields that are 0. */
struct way {
    const char *name;
    enum plan_where weights, states, grads;
    enum plan_acts acts;
    enum plan_order order;
    uint32_t micro_batches;
    uint32_t state_slots;
    uint64_t host_bytes; /* 0: enough for everything */
};

static const struct way ways[] = {
    {.name = "all in STORE",
     .weights = PLAN_WHERE_STORE,
     .states = PLAN_WHERE_STORE,
     .acts = PLAN_ACTS_RECOMPUTE},
    {.name = "all in STORE, one state slot, micro-batch by micro-batch",
     .weights = PLAN_WHERE_STORE,
     .states = PLAN_WHERE_STORE,
     .order = PLAN_ORDER_MICRO,
     .micro_batches = 3,
     .state_slots = 1},
    {.name = "states in STORE", .weights = PLAN_WHERE_HOST, .states = PLAN_WHERE_STORE},
    {.name = "states in STORE, weights in DEVICE, layer by layer",
     .weights = PLAN_WHERE_DEVICE,
     .states = PLAN_WHERE_STORE,
     .order = PLAN_ORDER_LAYER,
     .micro_batches = 2},
    {.name = "weights in STORE", .weights = PLAN_WHERE_STORE, .states = PLAN_WHERE_HOST},
    {.name = "all in HOST", .weights = PLAN_WHERE_HOST, .states = PLAN_WHERE_HOST},
    {.name = "all in DEVICE",
     .weights = PLAN_WHERE_DEVICE,
     .states = PLAN_WHERE_DEVICE,
     .grads = PLAN_WHERE_DEVICE,
     .acts = PLAN_ACTS_KEEP},
    {.name = "some of everything", .host_bytes = TEST_COUNT(5, 3) << 20},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

static struct run_options options_of(const struct way *way)
{
    struct run_options options = case_options();
    options.micro_batches = way->micro_batches > 0 ? way->micro_batches : 1;
    options.wishes.weights = way->weights;
    options.wishes.states = way->states;
    options.wishes.grads = way->grads;
    options.wishes.acts = way->acts;
    options.wishes.order = way->order;
    options.wishes.state_slots = way->state_slots;
    case_store(&options, "mem");
    options.budgets.host_bytes = way->host_bytes > 0 ? way->host_bytes : options.budgets.host_bytes;
    options.guesses_given = true;
    return options;
}

static void run(const struct case_model *made, const struct run_options *options,
                const struct case_part *part, struct case_outcome *out, const char *name)
{
    *out = (struct case_outcome){.steps = 0};
    case_run_part(made, options, part, out, name);
}

/* Returns a limit between the norms of quiet and loud steps. */
static double limit_between(const struct case_model *made, const struct run_options *options)
{
    const struct case_part part = {.end = STEPS, .loud = 5};
    struct run_options open = *options;
    struct case_outcome outcome;
    open.clip = 0;
    run(made, &open, &part, &outcome, "measuring norms");
    check_double(outcome.norm[0], >, 1.5 * outcome.norm[1]);
    check_double(outcome.norm[2], >, 1.5 * outcome.norm[1]);
    return outcome.norm[1] * 1.25;
}

/* A digit of a pattern. */
enum kind { DEFERS, GUESSES_RIGHT, GUESSES_WRONG };

/* Some of the steps that do not guess are loud. */
static struct case_part part_of(unsigned pattern, uint64_t *guesses)
{
    struct case_part part = {.end = STEPS};
    unsigned left = pattern;
    *guesses = 0;
    for (unsigned s = 0; s < STEPS; s++, left /= KINDS) {
        const enum kind kind = (enum kind)(left % KINDS);
        const bool loud = kind == DEFERS ? (pattern + s) % 2 == 0 : kind == GUESSES_WRONG;
        *guesses |= (uint64_t)(kind != DEFERS) << s;
        part.loud |= (uint64_t)loud << s;
    }
    return part;
}

/* Results without guesses, for mixtures of loud and quiet steps. */
struct expected {
    struct case_outcome outcomes[1 << STEPS];
    bool known[1 << STEPS];
};

static const struct case_outcome *deferred(const struct case_model *made,
                                           const struct run_options *options,
                                           const struct case_part *part, struct expected *expected)
{
    struct run_options plain = *options;
    plain.wishes.timing = PLAN_TIMING_DEFERRED;
    if (!expected->known[part->loud]) {
        run(made, &plain, part, &expected->outcomes[part->loud], "deferred");
        expected->known[part->loud] = true;
    }
    return &expected->outcomes[part->loud];
}

/* Checks that a pattern's guesses do not change the results, and that the run reports these
 * guesses. */
static void hold(const struct case_model *made, const struct run_options *options, unsigned pattern,
                 struct expected *expected, const char *what)
{
    struct run_options ahead = *options;
    struct case_part part = part_of(pattern, &ahead.guesses);
    const struct case_outcome *wanted = deferred(made, options, &part, expected);
    const bool in_store = options->wishes.weights == PLAN_WHERE_STORE ||
                          options->wishes.states == PLAN_WHERE_STORE;
    struct case_outcome got;
    char name[240];
    snprintf(name, sizeof name, "%s, pattern %u", what, pattern);
    ahead.wishes.timing = PLAN_TIMING_SPECULATIVE;
    part.evaluated = pattern % 4 == 0 ? 2 : 0;
    run(made, &ahead, &part, &got, name);
    case_check_equal(wanted, &got, name);
    for (unsigned s = 0; s < STEPS; s++) {
        const bool guessed = (ahead.guesses >> s & 1) != 0;
        const bool wrong = guessed && (part.loud >> s & 1) != 0;
        check_true(got.guessed[s] == guessed && got.right[s] == (guessed && !wrong));
        check_true(got.guess_bytes[s] == 0 || wrong);
        check_true(got.guess_bytes[s] > 0 || !wrong || !in_store);
        check_true(!wanted->guessed[s] && wanted->guess_bytes[s] == 0);
    }
}

static void every_pattern(void)
{
    struct case_model made;
    case_model_make(&made, "llama tied");
    for (int w = 0; w < WAYS; w++) {
        struct expected expected = {.known = {false}};
        struct run_options options = options_of(&ways[w]);
        options.clip = limit_between(&made, &options);
        for (unsigned pattern = TEST_SLOW ? (unsigned)w : 0; pattern < PATTERNS;
             pattern += TEST_COUNT(1, TEST_RACES ? 14 : 9)) {
            hold(&made, &options, pattern, &expected, ways[w].name);
        }
    }
    case_model_free(&made);
}

/* Right, wrong, deferred; all wrong; all right; wrong, right, wrong; deferred, wrong, right. */
static const unsigned some[] = {7, 26, 13, 23, 15};

static void every_family(void)
{
    static const char *const families[] = {"gpt2", "llama", "qwen3", "qwen3 tied"};
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f += TEST_COUNT(1, 4)) {
        struct case_model made;
        struct expected expected = {.known = {false}};
        struct run_options options = options_of(&ways[f % WAYS]);
        case_model_make(&made, families[f]);
        options.clip = limit_between(&made, &options);
        for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
            hold(&made, &options, some[i], &expected, families[f]);
        }
        case_model_free(&made);
    }
}

/* ---- overflow ---- */

/* Returns a loss scale with which loud steps overflow and quiet steps do not. */
static double scale_between(const struct case_model *made, const struct run_options *options)
{
    struct run_options probe = *options;
    double low = 1024;
    double high = 1e9;
    probe.wishes.timing = PLAN_TIMING_DEFERRED;
    while (high > 1.1 * low) {
        const struct case_part loud = {.end = 2, .loud = 2};
        struct case_outcome outcome;
        probe.scale.fixed = sqrt(low * high);
        run(made, &probe, &loud, &outcome, "looking for a scale");
        if (outcome.skipped[1] && !outcome.skipped[0]) {
            return probe.scale.fixed;
        }
        *(outcome.skipped[0] ? &high : &low) = probe.scale.fixed;
    }
    test_fail(__FILE__, __LINE__, "no loss scale makes a loud step overflow");
}

/* Steps that overflow have the bits of deferred updates, too. */
static void overflows(void)
{
    static const int places[] = {0, 2, 5, 7};
    struct case_model made;
    double scale = 0;
    case_model_make(&made, "llama tied");
    for (size_t p = 0; p < sizeof places / sizeof places[0]; p += TEST_COUNT(1, 2)) {
        struct expected expected = {.known = {false}};
        struct run_options options = options_of(&ways[places[p]]);
        options.type = KERN_FP16;
        options.may_skip = true;
        options.clip = p % 2 == 0 ? 0 : 1e6;
        options.budgets.host_bytes += options.budgets.host_bytes / 4;
        /* the scale fits all placements, which have the same bits */
        scale = p == 0 ? scale_between(&made, &options) : scale;
        options.scale.fixed = scale;
        for (unsigned pattern = 0; pattern < PATTERNS; pattern += TEST_COUNT(2, 9)) {
            hold(&made, &options, pattern, &expected, ways[places[p]].name);
        }
    }
    case_model_free(&made);
}

/* ---- ranks ---- */

static void ranks(void)
{
    struct case_model made;
    case_model_make(&made, "llama tied");
    for (uint32_t stage = 0; stage <= 3; stage++) {
        for (int w = TEST_COUNT(0, (int)(stage % 2) * 4); w < WAYS; w += TEST_COUNT(2, 8)) {
            struct expected expected = {.known = {false}};
            struct run_options options = options_of(&ways[w]);
            char name[120];
            options.world = 2;
            options.stage = stage;
            options.micro_batches = 2;
            options.threads = 1;
            snprintf(name, sizeof name, "stage %u, %s", stage, ways[w].name);
            options.clip = limit_between(&made, &options);
            for (size_t i = stage % 2; i < sizeof some / sizeof some[0]; i += TEST_COUNT(2, 4)) {
                hold(&made, &options, some[i], &expected, name);
            }
        }
    }
    case_model_free(&made);
}

/* ---- the policy in a run ---- */

/* The farther the limit is above the norms, the earlier a run guesses; below them it does not
 * guess. */
static void a_calm_run_guesses(void)
{
    const struct case_part part = {.end = CASE_STEPS_MAX};
    struct case_model made;
    struct case_outcome wanted;
    struct case_outcome got;
    struct run_options options = options_of(&ways[0]);
    case_model_make(&made, "llama tied");
    options.clip = 1e6;
    options.guesses_given = false;
    options.wishes.timing = PLAN_TIMING_DEFERRED;
    run(&made, &options, &part, &wanted, "deferred");
    options.wishes.timing = PLAN_TIMING_SPECULATIVE;
    run(&made, &options, &part, &got, "guessing");
    case_check_equal(&wanted, &got, "a calm run");
    check_true(!got.guessed[0] && got.guessed[1] && got.right[1] && got.guessed[2] && got.right[2]);
    options.clip = fmax(wanted.norm[0], wanted.norm[1]) * 1.1;
    run(&made, &options, &part, &got, "guessing below a near limit");
    check_true(wanted.norm[0] > options.clip / 2);
    check_true(!got.guessed[0] && !got.guessed[1] && got.guessed[2]);
    options.clip = 1e-3;
    run(&made, &options, &part, &got, "clipped");
    for (unsigned s = 0; s < CASE_STEPS_MAX; s++) {
        check_true(!got.guessed[s]);
    }
    case_model_free(&made);
}

TEST_MAIN({"every_pattern", every_pattern}, {"every_family", every_family},
          {"overflows", overflows}, {"ranks", ranks}, {"a_calm_run_guesses", a_calm_run_guesses})
