/* report.h: one run of the tool as people and programs read it. Each writer is a file of its own. */
#ifndef TOOLS_DS_NVME_BENCH_REPORT_H
#define TOOLS_DS_NVME_BENCH_REPORT_H

#include <stdio.h>

#include "tools/ds_nvme_bench/environment.h"
#include "tools/ds_nvme_bench/swap.h"
#include "tools/ds_nvme_bench/sweep.h"
#include "tools/ds_nvme_bench/verify.h"
#include "tools/ds_nvme_bench/wear.h"

enum { BENCH_SCHEMA_VERSION = 1 };

/* Everything about one directory. */
struct bench_result {
    struct bench_target target;
    struct bench_device device;
    struct bench_sweep sweep;
    bool swapped;
    struct bench_swap swap;
    bool verified;
    struct bench_verify verify;
    bool soaked; /* the sweep's only point ran for long */
};

struct bench_report {
    const char *mode;
    struct bench_environment environment;
    const struct bench_result *results; /* borrowed */
    unsigned count;
    bool recommends;                            /* there is a setting to recommend */
    struct bench_recommendation recommendation; /* over all directories */
    double params;                              /* of the model asked about; 0: none */
    double rated_bytes;
};

/* Bytes a second of the slowest directory for an operation at the recommended setting; reads and
 * writes are striped, so that several drives together reach that times bench_report_drives(). 0: not
 * measured. */
double bench_report_rate(const struct bench_report *report, enum bench_op op);

/* How many drives the directories lie on, as far as the machine shows them. */
unsigned bench_report_drives(const struct bench_report *report);

void bench_report_table(const struct bench_report *report, FILE *out);
int bench_report_json(const struct bench_report *report, FILE *out);
int bench_report_csv(const struct bench_report *report, FILE *out);
/* Bandwidth over block size, a line each depth, a field each operation. */
int bench_report_svg(const struct bench_report *report, FILE *out);

/* The `aio` block that DeepSpeed's engine reads, in the smallest ds_config.json that is complete. */
int bench_report_config(const struct bench_report *report, FILE *out);

/* Opens `path` ("-": stdout), calls `write`, closes. The first failure with a sentence. */
int bench_report_save(const struct bench_report *report, const char *path,
                      int (*write)(const struct bench_report *, FILE *));

/* Whether that will be able to write `path`, as far as one can tell without touching it. */
int bench_report_writable(const char *path);

/* Whether `path` may become an aio block: -EEXIST for a file that holds anything else, such as
 * the user's ds_config.json. */
int bench_report_replaceable(const char *path);

/* Compares every point with the file that --json wrote at another time. Prints each that is slower
 * by more than `tolerance` to `out`; their number in *slower. -EINVAL with a sentence for a file
 * that is no such report or shares no point. */
int bench_report_compare(const struct bench_report *report, const char *path, double tolerance,
                         FILE *out, unsigned *slower);

/* Whether `path` is a report to compare with at all. */
int bench_report_comparable(const char *path);

/* What is the limit, in a sentence or two. */
void bench_report_verdict(const struct bench_report *report, char *text, size_t bytes);

#endif
