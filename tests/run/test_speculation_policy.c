/* test_speculation_policy.c: the policy speculates while norms are neutral, less often after wrong
 * guesses, and pauses if guesses are slower. */
#include <math.h>

#include "offload/run/speculation.h"
#include "tests/harness/test.h"

/* Seconds of simulated steps; `again`: deferred after a wrong guess. */
struct pace {
    double deferred, ahead, wrong, again;
};

struct tally {
    unsigned right, wrong, deferred;
    double lost;
    double seconds;
};

static bool next(struct run_speculation *guess, const struct pace *pace, bool neutral,
                 struct tally *tally)
{
    const bool guessed = run_speculation_next(guess);
    struct run_speculation_step step = {.guessed = guessed, .neutral = neutral, .steady = true};
    step.seconds = !guessed ? pace->deferred : neutral ? pace->ahead : pace->wrong;
    step.seconds += guess->last_wrong ? pace->again - pace->deferred : 0;
    tally->lost += run_speculation_note(guess, &step);
    tally->seconds += step.seconds;
    tally->right += guessed && neutral;
    tally->wrong += guessed && !neutral;
    tally->deferred += !guessed;
    return guessed;
}

static const struct pace usual = {.deferred = 1, .ahead = 0.7, .wrong = 1.1, .again = 1.2};

/* If norms are neutral from the start, only the first steps do not guess. */
static void neutral_runs_guess(void)
{
    struct run_speculation guess;
    struct tally tally = {0};
    run_speculation_init(&guess);
    for (int i = 0; i < 100; i++) {
        const bool guessed = next(&guess, &usual, true, &tally);
        check_true(guessed == (i >= RUN_SPECULATION_FIRST));
    }
    check_int(tally.wrong, ==, 0);
    check_double(tally.lost, ==, 0);
}

/* If norms are far below the limit, the policy guesses after one step. Later it defers two
 * steps, to measure them. */
static void far_norms_guess_at_once(void)
{
    struct run_speculation guess;
    run_speculation_init(&guess);
    for (int i = 0; i < 100; i++) {
        const bool probes = i == 1 + RUN_SPECULATION_TRUST || i == 2 + RUN_SPECULATION_TRUST;
        const bool guessed = run_speculation_next(&guess);
        const struct run_speculation_step step = {.guessed = guessed,
                                                  .neutral = true,
                                                  .far = true,
                                                  .steady = i > 0,
                                                  .seconds = guessed ? 0.7 : 1};
        check_true(guessed == (i > 0 && !probes));
        check_double(run_speculation_note(&guess, &step), ==, 0);
        check_double(guess.deferred_seconds, ==, i < 2 + RUN_SPECULATION_TRUST ? 0 : 1);
        check_int(guess.neutral, <=, RUN_SPECULATION_NEUTRAL_MAX);
    }
}

/* If steps cannot be measured, the policy defers two steps in vain and continues to guess. */
static void unsteady_runs_guess(void)
{
    struct run_speculation guess;
    unsigned guesses = 0;
    run_speculation_init(&guess);
    for (int i = 0; i < 500; i++) {
        const struct run_speculation_step step = {
            .guessed = run_speculation_next(&guess), .neutral = true, .far = true, .seconds = 1};
        guesses += step.guessed;
        check_double(run_speculation_note(&guess, &step), ==, 0);
    }
    check_uint(guesses, ==, 500 - 1 - RUN_SPECULATION_PROBES);
    check_double(guess.deferred_seconds, ==, 0);
}

/* Without a neutral norm the policy does not guess. */
static void clipped_runs_defer(void)
{
    struct run_speculation guess;
    struct tally tally = {0};
    run_speculation_init(&guess);
    for (int i = 0; i < 1000; i++) {
        (void)next(&guess, &usual, false, &tally);
    }
    check_int(tally.deferred, ==, 1000);
}

/* If every (n + 1)-th norm is not neutral, wrong guesses become rare. */
static void wrong_guesses_teach(void)
{
    for (int n = 1; n < 12; n++) {
        struct run_speculation guess;
        struct tally tally = {0};
        run_speculation_init(&guess);
        for (int i = 0; i < 1200; i++) {
            (void)next(&guess, &usual, i % (n + 1) != n, &tally);
        }
        check_int(tally.wrong, <=, 4 + 1200 / 60);
        check_double(tally.seconds, <=, 1200 * 1.01);
        check_double(fabs(tally.lost - tally.wrong * (0.1 + 0.2)), <=, 0.4);
    }
}

/* Right guesses reduce the number of neutral norms that are needed after a wrong guess. */
static void trust_comes_back(void)
{
    struct run_speculation guess;
    struct tally tally = {0};
    run_speculation_init(&guess);
    for (int i = 0; i < 20; i++) {
        (void)next(&guess, &usual, true, &tally);
    }
    (void)next(&guess, &usual, false, &tally);
    check_int(guess.needed, ==, 2);
    (void)next(&guess, &usual, true, &tally);
    (void)next(&guess, &usual, true, &tally);
    check_true(run_speculation_next(&guess));
    (void)next(&guess, &usual, false, &tally);
    check_int(guess.needed, ==, 4);
    for (int i = 0; i < 4 + 2 * RUN_SPECULATION_TRUST; i++) {
        (void)next(&guess, &usual, true, &tally);
    }
    check_int(guess.needed, ==, 1);
}

/* If right guesses are slower than deferring, the policy pauses. */
static void slow_guesses_pause(void)
{
    const struct pace slow = {.deferred = 1, .ahead = 1.2, .wrong = 1.2, .again = 1.2};
    struct run_speculation guess;
    struct tally tally = {0};
    run_speculation_init(&guess);
    for (int i = 0; i < 1000; i++) {
        (void)next(&guess, &slow, true, &tally);
    }
    check_int(tally.right, >, 4);
    check_int(tally.right, <, 100);
    check_double(tally.seconds, <=, 1000 * 1.02);
    check_int(tally.wrong, ==, 0);
}

/* A step is measured only after a step of the same kind. */
static void first_steps_are_not_measured(void)
{
    struct run_speculation guess;
    run_speculation_init(&guess);
    struct run_speculation_step step = {.neutral = true, .seconds = 50};
    check_double(run_speculation_note(&guess, &step), ==, 0);
    check_double(guess.deferred_seconds, ==, 0);
    step = (struct run_speculation_step){.neutral = true, .steady = true, .seconds = 1};
    check_double(run_speculation_note(&guess, &step), ==, 0);
    check_double(guess.deferred_seconds, ==, 1);
    step = (struct run_speculation_step){.guessed = true, .steady = true, .seconds = 1.5};
    check_double(run_speculation_note(&guess, &step), ==, 0.5);
    check_double(guess.speculative_seconds, ==, 0);
}

TEST_MAIN({"neutral_runs_guess", neutral_runs_guess},
          {"far_norms_guess_at_once", far_norms_guess_at_once},
          {"unsteady_runs_guess", unsteady_runs_guess}, {"clipped_runs_defer", clipped_runs_defer},
          {"wrong_guesses_teach", wrong_guesses_teach}, {"trust_comes_back", trust_comes_back},
          {"slow_guesses_pause", slow_guesses_pause},
          {"first_steps_are_not_measured", first_steps_are_not_measured})
