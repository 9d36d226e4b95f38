/* speculation.c: counts neutral steps, and seconds gained and lost. */
#include "offload/run/speculation.h"

#include <math.h>

/* Weight of the newest step in a mean; share of the balance kept per step. */
static const double newest = 0.25;
static const double remains = 0.98;

void run_speculation_init(struct run_speculation *policy)
{
    *policy = (struct run_speculation){.needed = RUN_SPECULATION_FIRST};
}

/* Returns whether the next step is deferred, to compare guesses with it. */
static bool probes_next(const struct run_speculation *policy)
{
    return policy->deferred_seconds == 0 && policy->streak >= RUN_SPECULATION_TRUST &&
           policy->probes < RUN_SPECULATION_PROBES;
}

bool run_speculation_next(const struct run_speculation *policy)
{
    return policy->pause == 0 && !probes_next(policy) && policy->neutral >= policy->needed;
}

static void mean(double *mean, double seconds)
{
    *mean = *mean > 0 ? *mean + newest * (seconds - *mean) : seconds;
}

/* Updates a kind's mean if the step followed one of that kind. */
static void measure(struct run_speculation *policy, const struct run_speculation_step *step)
{
    const bool alike = step->steady && policy->last_guessed == step->guessed && !policy->last_wrong;
    if (alike && !step->guessed) {
        mean(&policy->deferred_seconds, step->seconds);
    } else if (alike && step->neutral) {
        mean(&policy->speculative_seconds, step->seconds);
    }
}

/* A wrong guess costs time in its own step, and in the next one, which repeats the update. */
static double lost_in(const struct run_speculation *policy, const struct run_speculation_step *step)
{
    const bool pays = (step->guessed && !step->neutral) || policy->last_wrong;
    const double usual = step->guessed && step->neutral && policy->speculative_seconds > 0
                             ? policy->speculative_seconds
                             : policy->deferred_seconds;
    return pays && step->steady && usual > 0 ? fmax(step->seconds - usual, 0) : 0;
}

/* Negative if a right guess was slower than a deferred step. */
static double won_in(const struct run_speculation *policy, const struct run_speculation_step *step)
{
    const bool right = step->guessed && step->neutral && policy->last_guessed &&
                       !policy->last_wrong;
    return right && step->steady && policy->deferred_seconds > 0
               ? policy->deferred_seconds - step->seconds
               : 0;
}

static void count(struct run_speculation *policy, const struct run_speculation_step *step)
{
    policy->neutral = step->neutral ? policy->neutral + (step->far ? 2 : 1) : 0;
    policy->neutral = policy->neutral < RUN_SPECULATION_NEUTRAL_MAX ? policy->neutral
                                                                    : RUN_SPECULATION_NEUTRAL_MAX;
    if (!step->guessed) {
        return;
    }
    if (!step->neutral) {
        policy->needed = policy->needed < RUN_SPECULATION_NEUTRAL_MAX / 2
                             ? policy->needed * 2
                             : RUN_SPECULATION_NEUTRAL_MAX;
        policy->streak = 0;
    } else if (++policy->streak % RUN_SPECULATION_TRUST == 0) {
        policy->needed = policy->needed > 1 ? policy->needed / 2 : 1;
    }
}

double run_speculation_note(struct run_speculation *policy, const struct run_speculation_step *step)
{
    const double lost = lost_in(policy, step);
    policy->balance_seconds = policy->balance_seconds * remains + won_in(policy, step) - lost;
    policy->probes += probes_next(policy) && !step->guessed;
    measure(policy, step);
    count(policy, step);
    policy->pause -= policy->pause > 0;
    if (policy->deferred_seconds > 0 && policy->balance_seconds < -policy->deferred_seconds / 2) {
        policy->pause = RUN_SPECULATION_PAUSE;
        policy->balance_seconds = 0;
    }
    policy->last_guessed = step->guessed;
    policy->last_wrong = step->guessed && !step->neutral;
    return lost;
}
