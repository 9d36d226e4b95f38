/* test_guess.c: when updates go ahead of their norms: not at first, while steps stay calm, less often
 * after wrong guesses, and not while time speaks against it. */
#include <math.h>

#include "offload/run/guess.h"
#include "tests/harness/test.h"

/* Seconds of steps in a made-up run. */
struct pace {
    double deferred, ahead, wrong, again;
};

struct tally {
    unsigned right, wrong, deferred;
    double lost;
    double seconds;
};

static bool next(struct run_guess *guess, const struct pace *pace, bool calm, struct tally *tally)
{
    const bool guessed = run_guess_next(guess);
    struct run_guess_step step = {.guessed = guessed, .calm = calm, .steady = true};
    step.seconds = !guessed ? pace->deferred : calm ? pace->ahead : pace->wrong;
    step.seconds += guess->last_wrong ? pace->again - pace->deferred : 0;
    tally->lost += run_guess_note(guess, &step);
    tally->seconds += step.seconds;
    tally->right += guessed && calm;
    tally->wrong += guessed && !calm;
    tally->deferred += !guessed;
    return guessed;
}

static const struct pace usual = {.deferred = 1, .ahead = 0.7, .wrong = 1.1, .again = 1.2};

/* Calm from the start: all but the first steps guess. */
static void calm_runs_guess(void)
{
    struct run_guess guess;
    struct tally tally = {0};
    run_guess_init(&guess);
    for (int i = 0; i < 100; i++) {
        const bool guessed = next(&guess, &usual, true, &tally);
        check_true(guessed == (i >= RUN_GUESS_FIRST));
    }
    check_int(tally.wrong, ==, 0);
    check_double(tally.lost, ==, 0);
}

/* Calm by far: a guess behind one step, and one look at deferred steps later, so that the account of
 * seconds has what to compare with. */
static void far_norms_guess_at_once(void)
{
    struct run_guess guess;
    run_guess_init(&guess);
    for (int i = 0; i < 100; i++) {
        const bool looks = i == 1 + RUN_GUESS_TRUST || i == 2 + RUN_GUESS_TRUST;
        const bool guessed = run_guess_next(&guess);
        const struct run_guess_step step = {.guessed = guessed,
                                            .calm = true,
                                            .far = true,
                                            .steady = i > 0,
                                            .seconds = guessed ? 0.7 : 1};
        check_true(guessed == (i > 0 && !looks));
        check_double(run_guess_note(&guess, &step), ==, 0);
        check_double(guess.deferred, ==, i < 2 + RUN_GUESS_TRUST ? 0 : 1);
        check_int(guess.calm, <=, RUN_GUESS_CALM_MAX);
    }
}

/* Where something lies between all steps none can be measured: it is tried twice, and guessed on. */
static void unsteady_runs_guess(void)
{
    struct run_guess guess;
    unsigned guesses = 0;
    run_guess_init(&guess);
    for (int i = 0; i < 500; i++) {
        const struct run_guess_step step = {
            .guessed = run_guess_next(&guess), .calm = true, .far = true, .seconds = 1};
        guesses += step.guessed;
        check_double(run_guess_note(&guess, &step), ==, 0);
    }
    check_uint(guesses, ==, 500 - 1 - RUN_GUESS_LOOKS);
    check_double(guess.deferred, ==, 0);
}

/* Never calm: never a guess. */
static void clipped_runs_defer(void)
{
    struct run_guess guess;
    struct tally tally = {0};
    run_guess_init(&guess);
    for (int i = 0; i < 1000; i++) {
        (void)next(&guess, &usual, false, &tally);
    }
    check_int(tally.deferred, ==, 1000);
}

/* Calm for n steps, then not, again and again: wrong guesses become rare, and what they cost is known
 * and small. */
static void wrong_guesses_teach(void)
{
    for (int n = 1; n < 12; n++) {
        struct run_guess guess;
        struct tally tally = {0};
        run_guess_init(&guess);
        for (int i = 0; i < 1200; i++) {
            (void)next(&guess, &usual, i % (n + 1) != n, &tally);
        }
        check_int(tally.wrong, <=, 4 + 1200 / 60);
        check_double(tally.seconds, <=, 1200 * 1.01);
        check_double(fabs(tally.lost - tally.wrong * (0.1 + 0.2)), <=, 0.4);
    }
}

/* After many right guesses one calm step is enough again. */
static void trust_comes_back(void)
{
    struct run_guess guess;
    struct tally tally = {0};
    run_guess_init(&guess);
    for (int i = 0; i < 20; i++) {
        (void)next(&guess, &usual, true, &tally);
    }
    (void)next(&guess, &usual, false, &tally);
    check_int(guess.needed, ==, 2);
    (void)next(&guess, &usual, true, &tally);
    (void)next(&guess, &usual, true, &tally);
    check_true(run_guess_next(&guess));
    (void)next(&guess, &usual, false, &tally);
    check_int(guess.needed, ==, 4);
    for (int i = 0; i < 4 + 2 * RUN_GUESS_TRUST; i++) {
        (void)next(&guess, &usual, true, &tally);
    }
    check_int(guess.needed, ==, 1);
}

/* Right guesses that are slower than deferring end, and are tried again after a rest. */
static void slow_guesses_rest(void)
{
    const struct pace slow = {.deferred = 1, .ahead = 1.2, .wrong = 1.2, .again = 1.2};
    struct run_guess guess;
    struct tally tally = {0};
    run_guess_init(&guess);
    for (int i = 0; i < 1000; i++) {
        (void)next(&guess, &slow, true, &tally);
    }
    check_int(tally.right, >, 4);
    check_int(tally.right, <, 100);
    check_double(tally.seconds, <=, 1000 * 1.02);
    check_int(tally.wrong, ==, 0);
}

/* What is not measured beside its like is not counted. */
static void first_steps_are_not_measured(void)
{
    struct run_guess guess;
    run_guess_init(&guess);
    struct run_guess_step step = {.calm = true, .seconds = 50};
    check_double(run_guess_note(&guess, &step), ==, 0);
    check_double(guess.deferred, ==, 0);
    step = (struct run_guess_step){.calm = true, .steady = true, .seconds = 1};
    check_double(run_guess_note(&guess, &step), ==, 0);
    check_double(guess.deferred, ==, 1);
    step = (struct run_guess_step){.guessed = true, .steady = true, .seconds = 1.5};
    check_double(run_guess_note(&guess, &step), ==, 0.5);
    check_double(guess.ahead, ==, 0);
}

TEST_MAIN({"calm_runs_guess", calm_runs_guess},
          {"far_norms_guess_at_once", far_norms_guess_at_once},
          {"unsteady_runs_guess", unsteady_runs_guess}, {"clipped_runs_defer", clipped_runs_defer},
          {"wrong_guesses_teach", wrong_guesses_teach}, {"trust_comes_back", trust_comes_back},
          {"slow_guesses_rest", slow_guesses_rest},
          {"first_steps_are_not_measured", first_steps_are_not_measured})
