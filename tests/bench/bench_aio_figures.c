/* bench_aio_figures.c: errors, processor time, and medians of our figures beside another
 * program's. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/err.h"
#include "tests/bench/bench_aio.h"

void bench_die(const char *what)
{
    fprintf(stderr, "bench_aio: %s: %s\n", what, core_err_message());
    for (int i = 0; i < 2; i++) {
        unlink(bench.files[i]);
    }
    exit(1);
}

double bench_cpu_ms(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

double bench_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return count % 2 != 0 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

struct bench_figure bench_middle(const struct bench_row *row)
{
    double rates[BENCH_PAIRS_MAX];
    double cpus[BENCH_PAIRS_MAX];
    for (int i = 0; i < bench.pairs; i++) {
        rates[i] = row->samples[i].bytes_per_s;
        cpus[i] = row->samples[i].cpu_ms_per_gib;
    }
    return (struct bench_figure){bench_median(rates, bench.pairs), bench_median(cpus, bench.pairs)};
}

void bench_report(const char *name, const struct bench_row *ours, const struct bench_row *theirs,
                  const char *peer)
{
    struct bench_figure a = bench_middle(ours);
    double rates[BENCH_PAIRS_MAX];
    double cpus[BENCH_PAIRS_MAX];
    printf("%s_bytes_per_s %.0f B/s\n%s_cpu %.2f ms/GiB\n", name, a.bytes_per_s, name,
           a.cpu_ms_per_gib);
    if (theirs != NULL) {
        struct bench_figure b = bench_middle(theirs);
        for (int i = 0; i < bench.pairs; i++) {
            rates[i] = ours->samples[i].bytes_per_s / theirs->samples[i].bytes_per_s;
            cpus[i] = ours->samples[i].cpu_ms_per_gib / theirs->samples[i].cpu_ms_per_gib;
        }
        printf("%s_%s_bytes_per_s %.0f B/s\n%s_%s_cpu %.2f ms/GiB\n", name, peer, b.bytes_per_s,
               name, peer, b.cpu_ms_per_gib);
        printf("%s_ratio_of_%s %.3f x\n%s_cpu_ratio_of_%s %.3f x\n", name, peer,
               bench_median(rates, bench.pairs), name, peer, bench_median(cpus, bench.pairs));
    }
    fflush(stdout);
}
