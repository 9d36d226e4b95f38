/* stats.c: median, bootstrap interval and trend. */
#include "tools/ds_nvme_bench/stats.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"

enum { DRAWS = 2000 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_median(const double *samples, unsigned count)
{
    double sorted[BENCH_SAMPLES_MAX];
    assert(count > 0 && count <= BENCH_SAMPLES_MAX);
    memcpy(sorted, samples, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, ascending);
    return count % 2 == 1 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

struct bench_interval bench_median_interval(const double *samples, unsigned count)
{
    static const uint64_t seed = 20261121;
    double medians[DRAWS];
    double drawn[BENCH_SAMPLES_MAX];
    for (unsigned d = 0; d < DRAWS; d++) {
        for (unsigned i = 0; i < count; i++) {
            struct core_rng_words words = core_rng_philox(seed, d, i / 4);
            drawn[i] = samples[words.word[i % 4] % count];
        }
        medians[d] = bench_median(drawn, count);
    }
    qsort(medians, DRAWS, sizeof *medians, ascending);
    return (struct bench_interval){.low = medians[DRAWS / 40], .high = medians[DRAWS - DRAWS / 40]};
}

double bench_trend(const double *samples, unsigned count, int *likely)
{
    *likely = 0;
    if (count < 3) {
        return 0;
    }
    double mean = 0;
    for (unsigned i = 0; i < count; i++) {
        mean += samples[i] / count;
    }
    double middle = (count - 1) / 2.0;
    double covariance = 0;
    double spread = 0;
    for (unsigned i = 0; i < count; i++) {
        covariance += (i - middle) * (samples[i] - mean);
        spread += (i - middle) * (i - middle);
    }
    double slope = covariance / spread;
    double residue = 0;
    for (unsigned i = 0; i < count; i++) {
        double miss = samples[i] - mean - slope * (i - middle);
        residue += miss * miss;
    }
    double error = sqrt(residue / (count - 2) / spread);
    *likely = fabs(slope) > 3 * error && fabs(slope) * (count - 1) > 0.02 * mean;
    return mean > 0 ? slope * (count - 1) / mean : 0;
}
