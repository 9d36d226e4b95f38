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

/* Returns the 95 % confidence interval of the median, from 2,000 bootstrap draws. The seed is
 * fixed, so equal samples give equal intervals. */
struct bench_interval bench_median_interval(const double *samples, unsigned count);

/* Fits a line to the samples. Returns its change from the first sample to the last as a share of
 * the mean, or 0 for fewer than 3 samples. *likely gets 1 if the change is more than noise (|t|
 * above 3) and more than 2 % of the mean, otherwise 0. */
double bench_trend(const double *samples, unsigned count, int *likely);

#endif
