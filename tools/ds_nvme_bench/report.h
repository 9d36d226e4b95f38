/* report.h: writes the results for people and programs. */
#ifndef TOOLS_DS_NVME_BENCH_REPORT_H
#define TOOLS_DS_NVME_BENCH_REPORT_H

#include <stdio.h>

#include "tools/ds_nvme_bench/environment.h"
#include "tools/ds_nvme_bench/swap.h"
#include "tools/ds_nvme_bench/sweep.h"
#include "tools/ds_nvme_bench/verify.h"
#include "tools/ds_nvme_bench/wear.h"

enum { BENCH_SCHEMA_VERSION = 1 };

/* The results of one directory. */
struct bench_result {
    struct bench_target target;
    struct bench_device device;
    struct bench_sweep sweep;
    bool swapped;
    struct bench_swap swap;
    bool verified;
    struct bench_verify verify;
    bool soaked; /* a long run */
};

struct bench_report {
    const char *mode;
    struct bench_environment environment;
    const struct bench_result *results; /* borrowed */
    unsigned count;
    bool recommends;                            /* `recommendation` is set */
    struct bench_recommendation recommendation; /* over all directories */
    double params;                              /* of the model given; 0: none */
    bool wants_mixed;                           /* reading and writing at once was requested */
    double rated_bytes;
};

/* Returns the bytes per second of the slowest directory at the recommended setting or, if that was
 * not measured, at the best setting of the directory; 0: not measured. Requests are striped: all
 * drives together reach this times bench_report_drives(). */
double bench_report_rate(const struct bench_report *report, enum bench_op op);

/* Returns the number of drives; an unknown drive counts as one more. */
unsigned bench_report_drives(const struct bench_report *report);

void bench_report_table(const struct bench_report *report, FILE *out);
int bench_report_json(const struct bench_report *report, FILE *out);
int bench_report_csv(const struct bench_report *report, FILE *out);
/* Draws bandwidth over block size: a panel for each operation, a line for each depth. */
int bench_report_svg(const struct bench_report *report, FILE *out);

/* Writes a ds_config.json with the `aio` block of DeepSpeed. */
int bench_report_config(const struct bench_report *report, FILE *out);

/* Opens `path` ("-": stdout), calls `write` and closes. Returns the first failure. */
int bench_report_save(const struct bench_report *report, const char *path,
                      int (*write)(const struct bench_report *, FILE *));

/* Returns 0 if bench_report_save() can probably write `path`, or -errno; does not touch it. */
int bench_report_writable(const char *path);

/* Returns 0 if an aio block may be written to `path`: the file is missing, empty or not a regular
 * one, or has only an aio block. Returns -EEXIST for other files, such as the user's
 * ds_config.json. */
int bench_report_replaceable(const char *path);

/* Compares points with the same points of an earlier --json report, and prints points slower by
 * more than `tolerance`; *slower gets their number. Fails if there is no such report or no
 * common point. */
int bench_report_compare(const struct bench_report *report, const char *path, double tolerance,
                         FILE *out, unsigned *slower);

/* Returns 0 if `path` is a report to compare with, or -errno. */
int bench_report_comparable(const char *path);

/* Writes one or two sentences on what limits the speed; "": nothing to say. */
void bench_report_verdict(const struct bench_report *report, char *text, size_t bytes);

#endif
