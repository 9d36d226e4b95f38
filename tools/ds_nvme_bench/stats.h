/* stats.h: statistics of a few noisy samples. Pure functions. */
#ifndef TOOLS_DS_NVME_BENCH_STATS_H
#define TOOLS_DS_NVME_BENCH_STATS_H

#include <stdint.h>

enum { BENCH_SAMPLES_MAX = 64 };

/* Returns the median of 1 to BENCH_SAMPLES_MAX values. */
double bench_median(const double *samples, unsigned count);

struct bench_interval {
    double low;
    double high;
};

/* Returns the 95 % interval of the median, from 2,000 bootstrap draws with a fixed seed: equal
 * samples give equal intervals. */
struct bench_interval bench_median_interval(const double *samples, unsigned count);

/* Fits a line. Returns its change over the samples as a share of the mean, 0 for fewer than 3
 * samples. *likely: the change is more than noise (|t| above 3) and more than 2 % of the mean. */
double bench_trend(const double *samples, unsigned count, int *likely);

#endif
