/* schedule.c: learning rates and betas, in the original order of operations, so that results have
 * the same bits. */
#include "tools/tide/schedule.h"

#include <assert.h>
#include <math.h>

static const double pi = 3.141592653589793;
const double schedule_beta2 = 0.99;

const char *schedule_name(enum schedule_kind kind)
{
    static const char *const names[SCHEDULE_KINDS] = {
        [SCHEDULE_CONSTANT] = "constant",
        [SCHEDULE_LINEAR] = "linear",
        [SCHEDULE_COSINE] = "cosine",
        [SCHEDULE_WSD] = "wsd",
        [SCHEDULE_LR_RANGE_TEST] = "LRRangeTest",
        [SCHEDULE_ONE_CYCLE] = "OneCycle",
        [SCHEDULE_WARMUP] = "WarmupLR",
        [SCHEDULE_WARMUP_DECAY] = "WarmupDecayLR",
        [SCHEDULE_WARMUP_COSINE] = "WarmupCosineLR",
    };
    return names[kind];
}

static int64_t at_least(int64_t least, int64_t value)
{
    return value > least ? value : least;
}

static double half_wave(double progress)
{
    return fmax(0.0, 0.5 * (1.0 + cos(pi * 0.5 * 2.0 * progress)));
}

static double part_after_warmup(const struct schedule *schedule, int64_t update)
{
    const int64_t rest = at_least(1, schedule->total - schedule->warmup);
    if (schedule->kind == SCHEDULE_LINEAR) {
        return fmax(0.0, (double)(schedule->total - update) / (double)rest);
    }
    if (schedule->kind == SCHEDULE_COSINE) {
        return half_wave((double)(update - schedule->warmup) / (double)rest);
    }
    if (schedule->kind == SCHEDULE_WSD) {
        int64_t into = update - (schedule->total - schedule->decay);
        if (into >= 0) {
            return into < schedule->decay ? half_wave((double)into / (double)schedule->decay) : 0.0;
        }
    }
    return 1.0;
}

static double transformers_lr(const struct schedule *schedule, int64_t update)
{
    return schedule->lr * (update < schedule->warmup
                               ? (double)update / (double)at_least(1, schedule->warmup)
                               : part_after_warmup(schedule, update));
}

static double range_test_lr(const struct schedule *schedule, int64_t update)
{
    double interval = (double)update / (double)schedule->range_steps;
    if (schedule->range_staircase) {
        interval = floor(interval);
    }
    return schedule->lr * (1 + schedule->range_rate * interval);
}

/* Returns 0 for the lowest rate, 1 for the highest. */
static double cycle_height(const struct schedule *schedule, int64_t update)
{
    const double first = (double)schedule->first_steps;
    const double second = (double)schedule->second_steps;
    const double size = first + second;
    const double ratio = first / size;
    const double cycle = floor(1 + (double)update / size);
    const double x = 1. + (double)update / size - cycle;
    const bool rising = x <= ratio;
    const double stairs = (double)(rising ? schedule->first_stairs : schedule->second_stairs);
    if (stairs <= 0) {
        return rising ? x / ratio : (x - 1) / (ratio - 1);
    }
    double inside = fmod((double)update, size);
    double position = inside <= first ? inside * stairs / first : (size - inside) * stairs / second;
    return floor(position) / stairs;
}

static double one_cycle_lr(const struct schedule *schedule, int64_t update)
{
    const int64_t size = schedule->first_steps + schedule->second_steps;
    if (update == 0) {
        return schedule->min_lr;
    }
    if (update - 1 < size) {
        return schedule->min_lr +
               (schedule->max_lr - schedule->min_lr) * cycle_height(schedule, update);
    }
    if (schedule->decay_steps == 0 || schedule->decay_rate == 0) {
        return schedule->min_lr;
    }
    double interval = (double)(update - size) / (double)schedule->decay_steps;
    return schedule->min_lr / (1 + schedule->decay_rate * interval);
}

double schedule_beta1(const struct schedule *schedule, int64_t update)
{
    const int64_t size = schedule->first_steps + schedule->second_steps;
    assert(update >= 0 && schedule->moves_beta);
    if (update == 0) {
        /* DeepSpeed begins with min_beta, then continues from max_beta. */
        return schedule->min_beta;
    }
    if (update - 1 < size) {
        return schedule->max_beta -
               (schedule->max_beta - schedule->min_beta) * cycle_height(schedule, update);
    }
    if (schedule->decay_steps == 0 || schedule->beta_decay_rate == 0) {
        return schedule->max_beta;
    }
    double interval = (double)(update - size) / (double)schedule->decay_steps;
    return schedule->max_beta * (1 + schedule->beta_decay_rate * interval);
}

/* DeepSpeed computes the rate of a warmup after an update, from the index of that update, so the
 * warmup begins with the second update. */
static double warmup_part(const struct schedule *schedule, int64_t last, int64_t steps)
{
    return schedule->log_warmup ? 1.0 / log((double)steps) * log((double)(last + 1))
                                : (double)last / (double)steps;
}

static double warmup_lr(const struct schedule *schedule, int64_t update)
{
    const int64_t steps = at_least(2, schedule->warmup);
    const int64_t last = update - 1;
    double part = 1.0;
    if (last < 0) {
        return schedule->min_lr;
    }
    if (last < steps) {
        part = warmup_part(schedule, last, steps);
    } else if (schedule->kind == SCHEDULE_WARMUP_DECAY) {
        part = fmax(0.0, (double)(schedule->total - last) /
                             (double)at_least(1, schedule->total - steps));
    }
    return schedule->min_lr + (schedule->lr - schedule->min_lr) * part;
}

static double warmup_cosine_lr(const struct schedule *schedule, int64_t update)
{
    const int64_t steps = at_least(2, schedule->warmup);
    const int64_t last = update - 1;
    if (last < 0) {
        return 0.0;
    }
    if (last < steps) {
        double part = warmup_part(schedule, last, steps);
        return schedule->lr *
               (schedule->warmup_min_ratio + part * (1. - schedule->warmup_min_ratio));
    }
    double progress = fmin(1.0, (double)(last - steps + 1) /
                                    (double)at_least(1, schedule->total - steps));
    double part = (1 + cos(pi * progress)) / 2;
    return schedule->lr *
           fmax(0.0, schedule->cos_min_ratio + (1. - schedule->cos_min_ratio) * part);
}

double schedule_lr(const struct schedule *schedule, int64_t update)
{
    assert(update >= 0 && schedule->kind < SCHEDULE_KINDS);
    switch (schedule->kind) {
    case SCHEDULE_CONSTANT:
    case SCHEDULE_LINEAR:
    case SCHEDULE_COSINE:
    case SCHEDULE_WSD: return transformers_lr(schedule, update);
    case SCHEDULE_LR_RANGE_TEST: return range_test_lr(schedule, update);
    case SCHEDULE_ONE_CYCLE: return one_cycle_lr(schedule, update);
    case SCHEDULE_WARMUP:
    case SCHEDULE_WARMUP_DECAY: return warmup_lr(schedule, update);
    case SCHEDULE_WARMUP_COSINE: return warmup_cosine_lr(schedule, update);
    case SCHEDULE_KINDS: break;
    }
    return 0;
}
