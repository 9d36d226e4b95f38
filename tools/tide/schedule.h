/* schedule.h: the learning rate of each update, and its first beta where that moves: four schedules of transformers and five of DeepSpeed,
 * to the last bit of their double arithmetic. Pure functions; any thread. */
#ifndef TOOLS_TIDE_SCHEDULE_H
#define TOOLS_TIDE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum schedule_kind {
    SCHEDULE_CONSTANT, /* after the warm-up, as the three below */
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_WSD, /* warm up, stay, decay over the last steps; transformers' cosine */
    SCHEDULE_LR_RANGE_TEST,
    SCHEDULE_ONE_CYCLE,
    SCHEDULE_WARMUP,
    SCHEDULE_WARMUP_DECAY,
    SCHEDULE_WARMUP_COSINE,
    SCHEDULE_KINDS,
};

struct schedule {
    enum schedule_kind kind;
    double lr;      /* the optimizer's; of LR_RANGE_TEST the first one */
    int64_t total;  /* updates of the run */
    int64_t warmup; /* of them */

    int64_t decay; /* WSD: the last of them */

    /* WARMUP, WARMUP_DECAY: from `min_lr` to `lr`; WARMUP_COSINE: parts of `lr`. */
    double min_lr;
    double warmup_min_ratio;
    double cos_min_ratio;
    bool log_warmup; /* ln(step + 1) / ln(steps); else a line */

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
    bool moves_beta; /* the first beta goes from `max_beta` down to `min_beta` and back meanwhile */
    double min_beta, max_beta;
    double beta_decay_rate; /* and then grows by this part of itself every `decay_steps` */
};

/* "constant", "linear", "cosine", "wsd", "LRRangeTest", "OneCycle", "WarmupLR" ... */
const char *schedule_name(enum schedule_kind kind);

/* The rate of an update; the first is 0. A step that was skipped is no update. */
double schedule_lr(const struct schedule *schedule, int64_t update);

/* The first beta of an update where it moves; the second is then `schedule_beta2`, as in DeepSpeed. */
double schedule_beta1(const struct schedule *schedule, int64_t update);
extern const double schedule_beta2;

#endif
