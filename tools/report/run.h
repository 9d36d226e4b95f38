/* run.h: the data of a report: figures of steps in at most REPORT_BUCKETS_MAX buckets, plan,
 * events. Filled by log.c. One thread. */
#ifndef TOOLS_REPORT_RUN_H
#define TOOLS_REPORT_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    REPORT_BUCKETS_MAX = 480,
    REPORT_EVENTS_MAX = 400, /* further ones are only counted */
    REPORT_PARTS_MAX = 48,
    REPORT_TIMES_MAX = 1 << 15, /* step times for quantiles; longer runs keep a sample */
    REPORT_NAME_BYTES = 128,
    REPORT_EVENT_BYTES = 320,
    REPORT_DRIVES = 8,
};

enum report_figure {
    REPORT_LOSS,
    REPORT_EVAL,
    REPORT_NORM,
    REPORT_LR,
    REPORT_SCALE,
    REPORT_SKIPPED,
    REPORT_TOKENS,
    REPORT_SECONDS,
    REPORT_RATE,
    REPORT_READ,
    REPORT_WRITE,
    REPORT_UP,
    REPORT_DOWN,
    REPORT_GATHER,
    REPORT_REDUCE,
    /* parts of REPORT_GATHER and REPORT_REDUCE between nodes */
    REPORT_GATHER_BETWEEN,
    REPORT_REDUCE_BETWEEN,
    REPORT_WAIT_READ,
    REPORT_WAIT_WRITE,
    REPORT_WAIT_UPDATE,
    REPORT_WAIT_COPY,
    REPORT_WAIT_IMBALANCE,
    REPORT_WAIT_OTHER,
    REPORT_WAIT_DATA, /* before the step, not part of its seconds */
    REPORT_RIGHT,
    REPORT_WRONG,
    REPORT_LOST_BYTES,
    REPORT_LOST_SECONDS,
    REPORT_RSS,
    REPORT_DRIVE, /* read and written bytes of the first REPORT_DRIVES stores */
    REPORT_DRIVE_LAST = REPORT_DRIVE + REPORT_DRIVES - 1,
    REPORT_CHOSEN, /* this and the next five: rewards of --loss dpo */
    REPORT_REJECTED,
    REPORT_MARGIN,
    REPORT_ACCURACY,
    REPORT_EVAL_MARGIN,
    REPORT_EVAL_ACCURACY,
    REPORT_COMPUTE, /* REPORT_SECONDS without the waits */
    REPORT_FIGURES
};

/* A figure in consecutive steps. */
struct report_bucket {
    double low, high, sum; /* of finite values; undefined while count is 0 */
    uint32_t count;
    uint32_t odd; /* values that are null in the log */
};

struct report_time {
    float seconds;
    uint32_t hash; /* hash of the step's index */
};

struct report_event {
    uint64_t step;
    char kind[16];
    char text[REPORT_EVENT_BYTES];
};

struct report_part {
    char tier[16];
    char what[32];
    double bytes;
};

/* From the newest "plan" and "run"; missing: NaN or "". */
struct report_plan {
    bool known;
    char model[REPORT_NAME_BYTES];
    char device[32], precision[16], optimizer[16];
    char acts[16], timing[16], bottleneck[REPORT_NAME_BYTES];
    double ranks, zero_stage, batch, accum, length, parameters;
    double device_bytes, host_bytes, store_bytes;
    double seconds, rate, read, write, up, down;
    struct report_part parts[REPORT_PARTS_MAX];
    size_t part_count;
    /* From "run". */
    char time[32]; /* of the first "run" */
    double steps, clip, taken_device, taken_host;
};

struct report_summary {
    bool known; /* the run has ended */
    double peak_rss_gb, plan_seconds;
};

struct report_run {
    const char *path;     /* borrowed from the caller */
    uint64_t first, last; /* steps */
    uint64_t steps;       /* without repetitions */
    uint64_t repeated;    /* lines of steps that a resume repeated */
    uint64_t restarts;
    bool torn;      /* the last line was incomplete */
    uint64_t width; /* steps in a bucket */
    size_t buckets;
    struct report_bucket (*figures)[REPORT_FIGURES]; /* owned: a row for each bucket */
    struct report_bucket whole[REPORT_FIGURES];
    double first_loss, last_loss, last_eval, best_eval;
    struct report_time *times; /* owned; without the first step */
    size_t time_count;
    uint32_t times_below; /* times with a lower hash are kept */
    struct report_plan plan;
    struct report_summary summary;
    struct report_event *events; /* owned */
    size_t event_count;
    uint64_t events_lost;
};

/* Allocates buckets for first..last. `path` must outlive the run. After a failure there is
 * nothing to fini. */
int report_run_init(struct report_run *run, const char *path, uint64_t first, uint64_t last);
/* NULL and a zeroed run are allowed. */
void report_run_fini(struct report_run *run);

/* Values of a step. NaN: not in the log; infinite: null there. */
struct report_values {
    uint64_t step;
    double of[REPORT_FIGURES];
};
void report_run_add(struct report_run *run, const struct report_values *values);
void report_run_event(struct report_run *run, uint64_t step, const char *kind, const char *text);
/* Call it after the last step. */
void report_run_end(struct report_run *run);

/* Returns the quantile `part` of the step times; 0.5 is the median. The first step counts only if
 * no other step has a time. Returns NaN without times. */
double report_run_seconds(const struct report_run *run, double part);

#endif
