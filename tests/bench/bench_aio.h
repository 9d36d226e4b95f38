/* bench_aio.h: settings, figures and our side of bench_aio. */
#ifndef TESTS_BENCH_BENCH_AIO_H
#define TESTS_BENCH_BENCH_AIO_H

#include <stdbool.h>
#include <stdint.h>

#include "aio/queue.h"
#include "core/base/mem.h"

enum { BENCH_PAIRS_MAX = 25, BENCH_WINDOW = 8 };
static const uint64_t bench_request_bytes = (uint64_t)16 << 20;
static const double bench_gib = 1024.0 * 1024 * 1024;
enum bench_pattern { BENCH_READ_ALL, BENCH_WRITE_ALL, BENCH_MIXED, BENCH_PATTERNS };
extern const char *const bench_pattern_names[BENCH_PATTERNS];

struct bench {
    const char *directory, *python, *only;
    double gib, seconds;
    int pairs;
    char files[2][512];
    int fds[2];
    uint64_t bytes;
    struct core_region region; /* memory of transfers */
};
extern struct bench bench;

struct bench_figure {
    double bytes_per_s, cpu_ms_per_gib;
};

struct bench_row { /* samples of one contestant */
    struct bench_figure samples[BENCH_PAIRS_MAX];
};

/* bench_aio_figures.c */
/* Ends the program with the last error's message. */
void bench_die(const char *what);
double bench_cpu_ms(void);
/* Sorts the values. */
double bench_median(double *values, int count);
struct bench_figure bench_middle(const struct bench_row *row);
/* Prints the medians of both contestants and the median ratio of the pairs. */
void bench_report(const char *name, const struct bench_row *ours, const struct bench_row *theirs,
                  const char *peer);

/* bench_aio_side.c */
struct bench_side {
    struct aio_drive *drive;
    struct aio_queue *queues[2]; /* reads, writes */
    uint32_t files[2];
    struct aio_sum *sums; /* one per MiB of file 0; NULL: none */
};

void bench_side_open(struct bench_side *side, const char *backend, bool sums);
void bench_side_close(struct bench_side *side);
/* Submits request `index` of a walk over the file; `fences`: requests in flight. */
void bench_side_push(struct bench_side *side, int which, uint64_t index, struct core_fence *fences);
struct bench_figure bench_side_run(struct bench_side *side, enum bench_pattern pattern,
                                   double seconds);
struct bench_figure bench_side_whole(struct bench_side *side, enum bench_pattern pattern);

/* Comparisons: bench_aio_fio.c, bench_aio_sums.c, bench_aio_deepspeed.c. */
bool bench_has_fio(void);
/* Runs fio on file 0 with blocks of 1 MiB at depth 32, unless `more`, its further arguments, say
 * otherwise. */
struct bench_figure bench_fio(enum bench_pattern pattern, const char *engine, const char *more);
void bench_against_fio(const char *backend, const char *engine, const char *more, const char *peer);
void bench_checksums(void);
void bench_against_deepspeed(void);

#endif
