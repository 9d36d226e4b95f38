/* schedule.h: learning rates and first betas of updates: four schedules of transformers, five of
 * DeepSpeed, bit for bit. Pure functions; any thread. */
#ifndef TOOLS_TIDE_SCHEDULE_H
#define TOOLS_TIDE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum schedule_kind {
    SCHEDULE_CONSTANT, /* after a warmup, like the next three */
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_WSD, /* warmup, constant, then a cosine decay over the last steps */
    SCHEDULE_LR_RANGE_TEST,
    SCHEDULE_ONE_CYCLE,
    SCHEDULE_WARMUP,
    SCHEDULE_WARMUP_DECAY,
    SCHEDULE_WARMUP_COSINE,
    SCHEDULE_KINDS,
};

struct schedule {
    enum schedule_kind kind;
    double lr;      /* peak; of LR_RANGE_TEST, the first rate */
    int64_t total;  /* total_num_steps of the configuration, else steps of the run */
    int64_t warmup; /* updates of the warmup */

    int64_t decay; /* WSD: updates of the decay at the end */

    /* WARMUP, WARMUP_DECAY: from `min_lr` to `lr`; WARMUP_COSINE: ratios of `lr` */
    double min_lr;
    double warmup_min_ratio;
    double cos_min_ratio;
    bool log_warmup; /* ln(step + 1) / ln(steps), else a line */

    /* LR_RANGE_TEST. */
    int64_t range_steps;
    double range_rate;
    bool range_staircase;

    /* ONE_CYCLE: from `min_lr` to `max_lr` and back, then decay. */
    double max_lr;
    int64_t first_steps, second_steps;
    int64_t first_stairs, second_stairs; /* 0: none */
    int64_t decay_steps;                 /* 0: no decay */
    double decay_rate;
    /* in the cycle the first beta falls from `max_beta` to `min_beta` and rises again */
    bool moves_beta;
    double min_beta, max_beta;
    /* share of `max_beta` by which the first beta grows every `decay_steps` after the cycle */
    double beta_decay_rate;
};

/* Returns "constant", "linear", "LRRangeTest", "WarmupLR" ... */
const char *schedule_name(enum schedule_kind kind);

/* Returns the learning rate of an update; the first one is 0. Skipped steps are not counted. */
double schedule_lr(const struct schedule *schedule, int64_t update);

/* Returns the first beta of an update if `moves_beta`. The second beta is then `schedule_beta2`, as
 * in DeepSpeed. */
double schedule_beta1(const struct schedule *schedule, int64_t update);
extern const double schedule_beta2;

#endif
