/* guess.c: a count of calm steps and an account of seconds. */
#include "offload/run/guess.h"

#include <math.h>

/* Weight of the newest step in a mean, and what remains of the account from step to step. */
static const double newest = 0.25;
static const double remains = 0.98;

void run_guess_init(struct run_guess *guess)
{
    *guess = (struct run_guess){.needed = RUN_GUESS_FIRST};
}

/* Whether the next step is deferred so that the account has what to compare with. */
static bool looks_next(const struct run_guess *guess)
{
    return guess->deferred == 0 && guess->streak >= RUN_GUESS_TRUST &&
           guess->looks < RUN_GUESS_LOOKS;
}

bool run_guess_next(const struct run_guess *guess)
{
    return guess->rest == 0 && !looks_next(guess) && guess->calm >= guess->needed;
}

static void mean(double *mean, double seconds)
{
    *mean = *mean > 0 ? *mean + newest * (seconds - *mean) : seconds;
}

/* Means of the two kinds of step that repeat. */
static void measure(struct run_guess *guess, const struct run_guess_step *step)
{
    const bool alike = step->steady && guess->last_guessed == step->guessed && !guess->last_wrong;
    if (alike && !step->guessed) {
        mean(&guess->deferred, step->seconds);
    } else if (alike && step->calm) {
        mean(&guess->ahead, step->seconds);
    }
}

/* A wrong guess costs in its own step, and in the next one, which does its update again. */
static double lost_in(const struct run_guess *guess, const struct run_guess_step *step)
{
    const bool pays = (step->guessed && !step->calm) || guess->last_wrong;
    const double usual = step->guessed && step->calm && guess->ahead > 0 ? guess->ahead
                                                                         : guess->deferred;
    return pays && step->steady && usual > 0 ? fmax(step->seconds - usual, 0) : 0;
}

/* Won, or lost where right guesses turn out slower. */
static double won_in(const struct run_guess *guess, const struct run_guess_step *step)
{
    const bool right = step->guessed && step->calm && guess->last_guessed && !guess->last_wrong;
    return right && step->steady && guess->deferred > 0 ? guess->deferred - step->seconds : 0;
}

static void count(struct run_guess *guess, const struct run_guess_step *step)
{
    guess->calm = step->calm ? guess->calm + (step->far ? 2 : 1) : 0;
    guess->calm = guess->calm < RUN_GUESS_CALM_MAX ? guess->calm : RUN_GUESS_CALM_MAX;
    if (!step->guessed) {
        return;
    }
    if (!step->calm) {
        guess->needed = guess->needed < RUN_GUESS_CALM_MAX / 2 ? guess->needed * 2
                                                               : RUN_GUESS_CALM_MAX;
        guess->streak = 0;
    } else if (++guess->streak % RUN_GUESS_TRUST == 0) {
        guess->needed = guess->needed > 1 ? guess->needed / 2 : 1;
    }
}

double run_guess_note(struct run_guess *guess, const struct run_guess_step *step)
{
    const double lost = lost_in(guess, step);
    guess->balance = guess->balance * remains + won_in(guess, step) - lost;
    guess->looks += looks_next(guess) && !step->guessed;
    measure(guess, step);
    count(guess, step);
    guess->rest -= guess->rest > 0;
    if (guess->deferred > 0 && guess->balance < -guess->deferred / 2) {
        guess->rest = RUN_GUESS_REST;
        guess->balance = 0;
    }
    guess->last_guessed = step->guessed;
    guess->last_wrong = step->guessed && !step->calm;
    return lost;
}
